//! Training: from data and builder to a certified model.

use std::sync::Arc;
use std::time::Instant;

use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::Certificate;
use margrave_core::compose::Part;
use margrave_core::data::{Dataset, Label, Points, Scaling, Targets};
use margrave_core::gram::{Gram, Matrix, Precision, PrecomputedGram};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::model::{Model, Recipe, Record, Scheme, Totals};
use margrave_core::observe::Observer;
use margrave_core::problem::{Bias, ClassWeight, Formulation, Penalty, Setup, Task};
use margrave_core::train::Asked;
use margrave_core::{Control, Error, Result, Status, Threads};

use crate::calibrate::{Subject, calibration_of, unseen};
use crate::linear;
use crate::multi::{self, Job, Several};
use crate::outputs;
use crate::solve::{Compacted, Solved, solve_one};
use crate::svm::{LossChoice, Svm, Tradeoff};

/// A trained machine with its proof.
#[derive(Debug, Clone)]
pub struct Fit {
    model: Model,
    reason: String,
    train_error: f64,
    seconds: f64,
    kernel_entries: u64,
    compact: Option<Compacted>,
    asked: Asked,
}

impl Fit {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model, without the rest.
    pub fn into_model(self) -> Model {
        self.model
    }

    /// What the fit was like: status, iterations, seconds, support vectors. Of several machines, the one with the worst proof.
    pub fn record(&self) -> &Record {
        // What was not checked is worse than anything that was.
        let measure = |r: &Record| match &r.certificate {
            Certificate::Unknown => f64::INFINITY,
            known => known.relative_gap().unwrap_or(known.violation()),
        };
        let worse = |a: &&Record, b: &&Record| measure(a).total_cmp(&measure(b));
        self.model.machines.iter().max_by(worse).unwrap_or(&self.model.machines[0])
    }

    /// One record per binary machine.
    pub fn records(&self) -> &[Record] {
        &self.model.machines
    }

    /// The proof: primal, dual and gap, from the independent certificate. Of several binary machines, the worst: all are in
    /// [`certificates`](Self::certificates), the sums in [`totals`](Self::totals).
    pub fn certificate(&self) -> &Certificate {
        &self.record().certificate
    }

    /// One certificate per binary machine.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.model.machines.iter().map(|record| &record.certificate)
    }

    /// What a machine had to meet to be called optimal.
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// Sums over the binary machines.
    pub fn totals(&self) -> Totals {
        Totals { seconds: self.seconds, kernel_entries: self.kernel_entries, ..self.model.totals() }
    }

    /// How it ended; of several binary machines, the one that ended worst.
    pub fn status(&self) -> Status {
        self.totals().status
    }

    /// Why this solver.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What was dropped to make the model compact, if that was asked for.
    pub fn compacted(&self) -> Option<Compacted> {
        self.compact
    }

    /// On the training data: share of wrong labels, mean squared error (over all outputs), or share of outliers, by the task.
    pub fn train_error(&self) -> f64 {
        self.train_error
    }

    /// The scores f(x) + b of points with features as in the training data, n × outputs.
    pub fn scores(&self, points: &Points) -> Result<Vec<f64>> {
        self.model.scores(points, Precision::Double, &Control::unlimited(Threads::default()))
    }

    /// Writes the model to a file, whole or not at all.
    pub fn save(&self, path: impl AsRef<std::path::Path>) -> margrave_io::Result<()> {
        margrave_io::model::save(&self.model, path)
    }
}

/// Data as a machine sees it: scaled points, targets ±1 or real, weights with class factors.
pub(crate) struct Prepared {
    pub(crate) points: Points,
    /// ±1 or real; of several classes, the index of the label; several numbers a row where there are several targets.
    pub(crate) targets: Vec<f64>,
    pub(crate) weights: Option<Vec<f64>>,
    pub(crate) labels: Vec<Label>,
    pub(crate) class_weights: Vec<f64>,
    /// See [`Svm::lower_nu`].
    pub(crate) lower_nu: bool,
}

/// Share of the largest possible ν that is taken where a larger one was asked for.
const LARGEST_NU: f64 = 0.99;

impl Prepared {
    /// Targets and weights for a task. `known` are the labels of an earlier model, and its class factors.
    pub(crate) fn new(
        task: Task,
        data: &Dataset,
        points: Points,
        class_weight: &ClassWeight,
        known: Option<(&[Label], &[f64])>,
    ) -> Result<Self> {
        let n = points.len();
        if n == 0 {
            return Err(Error::data("the data has no rows"));
        }
        let mut weights = data.weights.clone();
        let (mut labels, mut class_weights) = (Vec::new(), Vec::new());
        let targets = match task {
            Task::Novelty => vec![0.0; n],
            Task::Regress => data.targets.real()?.to_vec(),
            Task::Classify => {
                let (classes, codes) = data.targets.classes()?;
                let (names, factors) = match known {
                    Some((names, factors)) => (names.to_vec(), factors.to_vec()),
                    None => {
                        check_classes(&classes, &data.targets)?;
                        let factors = match class_weight {
                            ClassWeight::Equal => Vec::new(),
                            other => other.factors(&classes, &codes)?,
                        };
                        (classes.clone(), factors)
                    }
                };
                let place = |label: &Label| names.iter().position(|name| name == label);
                let mut sides = Vec::with_capacity(classes.len());
                for class in &classes {
                    sides.push(place(class).ok_or_else(|| {
                        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                        Error::data(format!("the label {class} is not one the model knows: {}", names.join(", ")))
                    })?);
                }
                if !factors.is_empty() {
                    let all = weights.get_or_insert_with(|| vec![1.0; n]);
                    for (w, code) in all.iter_mut().zip(&codes) {
                        *w *= factors[sides[*code as usize]];
                    }
                }
                (labels, class_weights) = (names, factors);
                let side = |code: &u32| sides[*code as usize];
                match labels.len() {
                    2 => codes.iter().map(|code| if side(code) == 1 { 1.0 } else { -1.0 }).collect(),
                    _ => codes.iter().map(|code| side(code) as f64).collect(),
                }
            }
        };
        Ok(Self { points, targets, weights, labels, class_weights, lower_nu: false })
    }

    /// Several numbers a row.
    fn outputs(data: &Dataset, points: Points, values: &[f64]) -> Result<Self> {
        if points.is_empty() {
            return Err(Error::data("the data has no rows"));
        }
        let (targets, weights) = (values.to_vec(), data.weights.clone());
        Ok(Self { points, targets, weights, labels: vec![], class_weights: vec![], lower_nu: false })
    }

    /// The problem these make.
    pub(crate) fn setup(
        &self,
        task: Task,
        formulation: Formulation,
        loss: Arc<dyn Loss>,
        bias: bool,
        gram: &dyn Gram,
    ) -> Result<Setup> {
        let formulation = self.possible(task, formulation, &self.targets, self.weights.as_deref());
        Setup::new(task, formulation, &self.targets, self.weights.as_deref(), loss, bias, || gram.diag())
    }

    /// The formulation with a ν that the two classes allow, if it may be lowered.
    pub(crate) fn possible(
        &self,
        task: Task,
        formulation: Formulation,
        targets: &[f64],
        weights: Option<&[f64]>,
    ) -> Formulation {
        let (Task::Classify, Formulation::Nu { nu, c }, true) = (task, formulation, self.lower_nu) else {
            return formulation;
        };
        let weight = |row: usize| weights.map_or(1.0, |w| w[row]);
        let side = |sign: f64| (0..targets.len()).filter(|&i| targets[i] == sign).map(weight).sum::<f64>();
        let (positive, negative) = (side(1.0), side(-1.0));
        let largest = 2.0 * positive.min(negative) / (positive + negative);
        Formulation::Nu { nu: if nu > largest { LARGEST_NU * largest } else { nu }, c }
    }
}

fn check_classes(classes: &[Label], targets: &Targets) -> Result<()> {
    if !targets.looks_like_classes() {
        return Err(Error::data(
            "the target has fractions, so it does not look like classes: use --task regress, or choose another column with --target",
        ));
    }
    match classes {
        [] | [_] => Err(Error::data(format!(
            "all samples have the label {}: there is nothing to tell apart (novelty detection needs no second class)",
            classes.first().map(ToString::to_string).unwrap_or_default()
        ))),
        _ => Ok(()),
    }
}

/// The Gram of a kernel over the training points.
pub(crate) fn square_gram(kernel: Kernel, points: &Points) -> Result<Box<dyn Gram>> {
    if kernel == Kernel::Precomputed {
        if points.len() != points.dims() {
            return Err(Error::data(format!(
                "a precomputed kernel needs a square matrix, but the data is {} × {}",
                points.len(),
                points.dims()
            )));
        }
        return Ok(Box::new(PrecomputedGram::new(points.clone())));
    }
    Ok(Box::new(CpuGram::square(kernel, points)?))
}

/// The loss to use, and its description where it is one of the library.
pub(crate) fn loss_of(svm: &Svm) -> Result<(Arc<dyn Loss>, Option<LossSpec>)> {
    let mut spec = match &svm.loss {
        LossChoice::Own(loss) => {
            fits_task(svm.task, loss.as_ref(), false)?;
            return Ok((loss.clone(), None));
        }
        LossChoice::Spec(spec) => *spec,
        LossChoice::Usual if svm.task == Task::Regress => LossSpec::Epsilon { epsilon: 0.1 },
        LossChoice::Usual => LossSpec::Hinge,
    };
    if let Some(epsilon) = svm.epsilon {
        if spec.epsilon().is_none() {
            let allowed = format!("the {} loss has no tube: leave it out, or use the epsilon loss", spec.name());
            return Err(Error::option("epsilon", epsilon, allowed));
        }
        spec = spec.with_epsilon(epsilon);
    }
    let loss = spec.build()?;
    fits_task(svm.task, loss.as_ref(), spec == LossSpec::Square)?;
    Ok((loss, Some(spec)))
}

fn fits_task(task: Task, loss: &dyn Loss, both: bool) -> Result<()> {
    let classification = loss.properties().classification;
    match task {
        Task::Classify if !classification && !both => Err(Error::option(
            "loss",
            loss.name(),
            "it is for regression; for classification use hinge, squared-hinge, square, …",
        )),
        Task::Regress if classification => Err(Error::option(
            "loss",
            loss.name(),
            "it is for classification; for regression use epsilon, huber, square, …",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn formulation_of(svm: &Svm, n: usize) -> Result<Formulation> {
    let c = match svm.tradeoff {
        Tradeoff::Cost(c) if c > 0.0 && c.is_finite() => c,
        Tradeoff::Cost(c) => return Err(Error::option("C", c, "a finite number > 0")),
        Tradeoff::Lambda(l) if l > 0.0 && (1.0 / (2.0 * l * n as f64)).is_finite() => 1.0 / (2.0 * l * n as f64),
        Tradeoff::Lambda(l) => return Err(Error::option("lambda", l, "a finite number > 0")),
    };
    if svm.nu.is_some() && !matches!(svm.loss, LossChoice::Usual) && svm.task != Task::Novelty {
        return Err(Error::data("ν-machines have a loss of their own: leave out --loss, or --nu"));
    }
    if svm.nu.is_some() && !svm.bias {
        return Err(Error::data("ν-machines need their bias: leave out --no-bias, or --nu"));
    }
    Ok(match (svm.task, svm.nu) {
        (Task::Novelty, nu) if svm.svdd => Formulation::Svdd { nu: nu.unwrap_or(0.5) },
        (Task::Novelty, nu) => Formulation::OneClass { nu: nu.unwrap_or(0.5) },
        (_, Some(nu)) => Formulation::Nu { nu, c },
        (_, None) => Formulation::Cost { c },
    })
}

/// Fails unless the centres of `model` are rows of `points`, where it says they are.
pub(crate) fn check_same_rows(model: &Model, points: &Points) -> Result<()> {
    if model.n != points.len() {
        return Err(Error::data(format!(
            "the model was trained on {} rows, but the data has {}: give the training data",
            model.n,
            points.len()
        )));
    }
    let centres = model.expansion.centres();
    if *model.expansion.kernel() == Kernel::Precomputed || model.expansion.is_weights() {
        return Ok(());
    }
    let d = points.dims().max(centres.dims());
    let (mut a, mut b) = (vec![0.0; d], vec![0.0; d]);
    for (at, &row) in model.expansion.rows().iter().enumerate() {
        centres.copy_row(at, &mut a);
        points.copy_row(row as usize, &mut b);
        if a != b {
            return Err(Error::data(format!(
                "row {row} of the data is not what the model was trained on: give the training data, in its order"
            )));
        }
    }
    Ok(())
}

/// From the task and the scores z of the training points: wrong labels, mean squared error, or outliers.
fn train_error(task: Task, targets: &[f64], scores: &[f64]) -> f64 {
    if scores.len() != targets.len() {
        // The proof, which computes them, was cut short.
        return f64::NAN;
    }
    let n = targets.len().max(1) as f64;
    let pairs = targets.iter().zip(scores);
    match task {
        Task::Classify => pairs.filter(|(y, z)| (**z > 0.0) != (**y > 0.0)).count() as f64 / n,
        Task::Regress => pairs.map(|(y, z)| (y - z) * (y - z)).sum::<f64>() / n,
        Task::Novelty => scores.iter().filter(|z| **z < 0.0).count() as f64 / n,
    }
}

pub(crate) fn train(
    svm: &Svm,
    data: &Dataset,
    streamed: Option<&dyn Matrix>,
    observer: &mut dyn Observer,
) -> Result<Fit> {
    let begun = Instant::now();
    svm.budget.check()?;
    svm.stop.check()?;
    // Scaling and packing are part of the training: they use up its time, too.
    let mut control = Control::start(&svm.budget, svm.threads.clone());
    if let Some(cancel) = &svm.cancel {
        control = control.with_cancel(cancel.clone());
    }
    let asked = |setup: Option<&Setup>| Asked::from(setup.map_or(svm.stop, |setup| svm.stop_for(setup)));
    let (loss, spec) = loss_of(svm)?;
    let formulation = formulation_of(svm, data.len())?;
    if svm.kernel == Kernel::Precomputed && svm.scale.is_some() {
        return Err(Error::data("a precomputed kernel has no features to scale: leave out --scale"));
    }
    if svm.probability.is_some() && svm.task == Task::Novelty {
        return Err(Error::data("novelty detection has no probabilities: leave out --probability"));
    }
    let scaling = svm.scale.map(|kind| Scaling::fit(kind, &data.points));
    let points = match &scaling {
        Some(scaling) => scaling.apply(&data.points)?,
        None => data.points.clone(),
    };
    let many = outputs::several(&data.targets).filter(|_| svm.task != Task::Novelty);
    let mut prepared = match many {
        None => Prepared::new(svm.task, data, points, &svm.class_weight, None)?,
        Some((k, values)) => {
            outputs::check(svm, k)?;
            Prepared::outputs(data, points, values)?
        }
    };
    prepared.lower_nu = svm.lower_nu;
    let kernel = match svm.gamma {
        Some(rule) if svm.kernel.gamma().is_some() => svm.kernel.with_gamma(rule.resolve(&prepared.points, svm.seed)?),
        _ => svm.kernel,
    };
    kernel.check()?;
    let recipe = |solver: &str| Recipe {
        task: svm.task,
        formulation,
        loss: if matches!(formulation, Formulation::Cost { .. }) { spec } else { None },
        free_bias: svm.bias && svm.intercept_scaling.is_none(),
        penalty: svm.penalty,
        intercept_scaling: svm.intercept_scaling,
        labels: prepared.labels.clone(),
        class_weights: prepared.class_weights.clone(),
        scaling: scaling.clone(),
        schema: svm.schema.clone(),
        solver: solver.to_owned(),
    };
    if let Some((k, _)) = many {
        let job = outputs::Job {
            svm,
            points: &prepared.points,
            targets: &prepared.targets,
            k,
            weights: prepared.weights.as_deref(),
            kernel,
            formulation,
            loss,
            control: &control,
        };
        let Several { model, reason, train_error, kernel_entries } = outputs::train(&job, recipe, observer)?;
        let seconds = begun.elapsed().as_secs_f64();
        let asked = Asked::from(outputs::stop_of(svm, &prepared.targets));
        return Ok(Fit { model, reason, train_error, seconds, kernel_entries, compact: None, asked });
    }
    let several = svm.task == Task::Classify && prepared.labels.len() > 2;
    linear::check(svm, &kernel, &formulation)?;
    let together = svm.task == Task::Classify && svm.multiclass == Some(Scheme::CrammerSinger);
    let in_blocks = linear::applies(svm, &kernel, &formulation)
        && !(several || together || svm.scale.is_some() || svm.probability.is_some() || svm.penalty == Penalty::L1);
    if streamed.is_some() && !in_blocks {
        return Err(Error::data(
            "rows read in blocks are for the linear kernel with a cost C, two classes or regression, the L2 penalty, unscaled and without probabilities: give more --memory",
        ));
    }
    if together {
        let job = Job { svm, prepared: &prepared, kernel, formulation, loss, control: &control };
        let Several { model, reason, train_error, kernel_entries } = linear::train_together(&job, recipe, observer)?;
        let seconds = begun.elapsed().as_secs_f64();
        return Ok(Fit { model, reason, train_error, seconds, kernel_entries, compact: None, asked: asked(None) });
    }
    if several {
        if svm.compact.is_some() {
            return Err(Error::data(
                "only a single machine can be made compact: leave out --compact, or use two classes",
            ));
        }
        let job = Job { svm, prepared: &prepared, kernel, formulation, loss, control: &control };
        let several = multi::train(&job, recipe, observer)?;
        let seconds = begun.elapsed().as_secs_f64();
        let Several { model, reason, train_error, kernel_entries } = several;
        return Ok(Fit { model, reason, train_error, seconds, kernel_entries, compact: None, asked: asked(None) });
    }
    if linear::applies(svm, &kernel, &formulation) {
        let setup = Setup::new(
            svm.task,
            formulation,
            &prepared.targets,
            prepared.weights.as_deref(),
            loss.clone(),
            linear::bias_of(svm) == Bias::Free,
            Vec::new,
        )?;
        let trained = linear::train(svm, &setup, &prepared.points, streamed, &control, observer)?;
        let calibration = match svm.probability {
            None => None,
            Some(_) => {
                let subject = linear::Subject {
                    svm,
                    task: svm.task,
                    formulation,
                    loss: &loss,
                    points: &prepared.points,
                    targets: &prepared.targets,
                    weights: prepared.weights.as_deref(),
                    memory: svm.budget.memory,
                };
                let (left, origin) = linear::unseen(&subject, &trained, &control.for_calibration())?;
                Some(calibration_of(svm.task, &left, &prepared.targets, origin))
            }
        };
        let linear::Trained { proven, weights, reason } = trained;
        let bias = proven.machine.bias;
        let scores: Vec<f64> = proven.scores.iter().map(|f| f + bias).collect();
        let error = train_error(svm.task, &prepared.targets, &scores);
        let seconds = begun.elapsed().as_secs_f64();
        let dims = streamed.map_or(prepared.points.dims(), Matrix::dims);
        let mut model = Model::linear(recipe("linear"), weights, dims, &setup, &proven, seconds)?;
        model.calibration = calibration;
        let asked = asked(Some(&setup));
        return Ok(Fit { model, reason, train_error: error, seconds, kernel_entries: 0, compact: None, asked });
    }
    let gram = square_gram(kernel, &prepared.points)?;
    let own_loss = loss.clone();
    let setup = prepared.setup(svm.task, formulation, loss, svm.bias, gram.as_ref())?;
    let start = match &svm.start {
        None => None,
        Some(model) => {
            check_same_rows(model, &prepared.points)?;
            if model.scheme != Scheme::One {
                return Err(Error::data("the model to resume from has several machines, and this training has one"));
            }
            Some(model.solution(&setup)?)
        }
    };
    let linear = (kernel == Kernel::Linear).then_some(&prepared.points);
    let memory = svm.budget.memory;
    let solved = solve_one(svm, &setup, gram.as_ref(), linear, start, memory, &control, observer)?;
    let Solved { proven, left_out, solver, reason, compact } = solved;
    let machine = &proven.machine;
    let mut z: Vec<f64> = proven.scores.iter().map(|f| f / machine.rho + machine.bias).collect();
    if let Formulation::Svdd { .. } = formulation {
        z.iter_mut().zip(gram.diag()).for_each(|(z, k)| *z -= 0.5 * k);
    }
    let calibration = match svm.probability {
        None => None,
        Some(_) => {
            let rows = (0..prepared.points.len() as u32).collect();
            let part = Part { rows, targets: prepared.targets.clone() };
            let subject = Subject {
                svm,
                task: svm.task,
                formulation,
                loss: own_loss,
                gram: gram.as_ref(),
                part: &part,
                weights: prepared.weights.as_deref(),
                memory: svm.budget.memory,
            };
            let (left, origin) = unseen(&subject, left_out, &control.for_calibration())?;
            Some(calibration_of(svm.task, &left, &prepared.targets, origin))
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let entries = gram.entries();
    let recipe = recipe(solver);
    let mut model = Model::binary(recipe, kernel, &prepared.points, &setup, &proven, seconds, entries)?;
    model.calibration = calibration;
    let train_error = train_error(svm.task, &prepared.targets, &z);
    let asked = asked(Some(&setup));
    Ok(Fit { model, reason, train_error, seconds, kernel_entries: entries, compact, asked })
}
