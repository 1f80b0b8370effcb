//! Several classes: one binary machine a pair, or one a class.

use std::sync::Arc;
use std::time::Instant;

use margrave_core::certificate::{Certificate, certify};
use margrave_core::compose::calibrate::fit_sigmoid;
use margrave_core::compose::{LANES, Part, one_vs_one, one_vs_rest, run};
use margrave_core::gram::{Gram, Picked, Precision, part};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::model::{Calibration, Column, Model, Origin, Recipe, Record, Scheme, multi};
use margrave_core::observe::{Begin, Observer, Step};
use margrave_core::problem::{Formulation, Penalty, Setup, Task};
use margrave_core::solver::Solution;
use margrave_core::solver::ridge::{self, Halt, RidgeOptions, Source};
use margrave_core::train::{Asked, prove};
use margrave_core::{Control, Error, Result, Status};

use crate::calibrate::{Subject, sigmoid_of, unseen};
use crate::fit::{Prepared, check_same_rows, square_gram};
use crate::linear;
use crate::solve::{Solved, solve_one};
use crate::svm::{LossChoice, Probability, SolverName, Svm};

/// What is to be trained.
pub(crate) struct Job<'a> {
    pub(crate) svm: &'a Svm,
    pub(crate) prepared: &'a Prepared,
    pub(crate) kernel: Kernel,
    pub(crate) formulation: Formulation,
    pub(crate) loss: Arc<dyn Loss>,
    pub(crate) control: &'a Control,
}

/// What came out.
pub(crate) struct Several {
    pub(crate) model: Model,
    pub(crate) reason: String,
    pub(crate) train_error: f64,
    pub(crate) kernel_entries: u64,
}

/// One trained machine.
struct One {
    column: Column,
    part: Part,
    /// z of the rows of its part.
    scores: Vec<f64>,
    /// a and b of its sigmoid, and what that was fitted to, if probabilities were asked for.
    sigmoid: Option<(f64, f64, Origin)>,
    solver: &'static str,
    reason: String,
}

/// The parts a scheme cuts the data into.
pub(crate) fn parts(scheme: Scheme, classes: usize, codes: &[u32]) -> Vec<Part> {
    match scheme {
        Scheme::OneVsRest => one_vs_rest::parts(classes, codes),
        Scheme::One | Scheme::OneVsOne | Scheme::CrammerSinger | Scheme::Outputs => one_vs_one::parts(classes, codes),
    }
}

impl Prepared {
    /// The class of each row, where there are more than two.
    pub(crate) fn codes(&self) -> Vec<u32> {
        self.targets.iter().map(|y| *y as u32).collect()
    }

    /// The problem of a part.
    pub(crate) fn part_setup(
        &self,
        part: &Part,
        formulation: Formulation,
        loss: Arc<dyn Loss>,
        bias: bool,
        gram: &dyn Gram,
    ) -> Result<Setup> {
        let weights: Option<Vec<f64>> =
            self.weights.as_ref().map(|all| part.rows.iter().map(|&row| all[row as usize]).collect());
        let formulation = self.possible(Task::Classify, formulation, &part.targets, weights.as_deref());
        Setup::new(Task::Classify, formulation, &part.targets, weights.as_deref(), loss, bias, || gram.diag())
    }
}

/// The names of the classes a machine tells apart, for messages.
pub(crate) fn name(job: &Job<'_>, scheme: Scheme, at: usize) -> String {
    let labels = &job.prepared.labels;
    match scheme {
        Scheme::OneVsRest => format!("{} against the rest", labels[at]),
        Scheme::One | Scheme::OneVsOne | Scheme::CrammerSinger | Scheme::Outputs => {
            margrave_core::model::pairs(labels.len())
                .nth(at)
                .map_or_else(String::new, |(i, j)| format!("{} against {}", labels[i], labels[j]))
        }
    }
}

pub(crate) fn train(job: &Job<'_>, recipe: impl Fn(&str) -> Recipe, observer: &mut dyn Observer) -> Result<Several> {
    let (svm, prepared) = (job.svm, job.prepared);
    let classes = prepared.labels.len();
    let scheme = svm.scheme(&job.kernel, &job.formulation);
    if linear::applies(svm, &job.kernel, &job.formulation) && !at_once(job, scheme) {
        return linear::train_several(job, scheme, recipe, observer);
    }
    let codes = prepared.codes();
    let gram = square_gram(job.kernel, &prepared.points)?;
    let machines = if at_once(job, scheme) {
        all_at_once(job, &codes, gram.as_ref(), observer)?
    } else {
        one_by_one(job, scheme, &codes, gram.as_ref(), observer)?
    };
    let lost = lost(classes, scheme, &codes, &machines);
    let costs = row_costs(job);
    let (solver, reason) = machines.first().map_or(("none", String::new()), |m| (m.solver, m.reason.clone()));
    let how = match scheme {
        Scheme::OneVsRest => format!("{} machines, one a class; {reason}", machines.len()),
        _ => format!("{} machines, one a pair of classes; {reason}", machines.len()),
    };
    let sigmoids: Option<Vec<_>> = machines.iter().map(|machine| machine.sigmoid).collect();
    let columns = machines.into_iter().map(|machine| machine.column).collect();
    let mut model = Model::several(recipe(solver), job.kernel, &prepared.points, scheme, &codes, &costs, columns)?;
    model.calibration = sigmoids.filter(|list| !list.is_empty()).map(|list| Calibration::Sigmoid {
        a: list.iter().map(|s| s.0).collect(),
        b: list.iter().map(|s| s.1).collect(),
        origin: list[0].2,
    });
    let train_error = error(&model, prepared, &codes, &lost, &job.control.for_proof())?;
    Ok(Several { model, reason: how, train_error, kernel_entries: gram.entries() })
}

/// Whether one factorisation solves all machines.
fn at_once(job: &Job<'_>, scheme: Scheme) -> bool {
    let svm = job.svm;
    scheme == Scheme::OneVsRest
        && matches!(svm.loss, LossChoice::Spec(LossSpec::Square))
        && svm.start.is_none()
        && svm.solver == SolverName::Auto
        && svm.penalty == Penalty::L2
        && svm.intercept_scaling.is_none()
        && !matches!(svm.probability, Some(Probability::Folds(_)))
        && matches!(job.formulation, Formulation::Cost { .. })
}

/// The cost of each row, as every machine it takes part in has it.
pub(crate) fn row_costs(job: &Job<'_>) -> Vec<f64> {
    let c = match job.formulation {
        Formulation::Cost { c } => c,
        _ => 1.0,
    };
    let n = job.prepared.points.len();
    job.prepared.weights.as_ref().map_or_else(|| vec![c; n], |w| w.iter().map(|w| c * w).collect())
}

/// Rows that may not be given their own class: those that one of the machines they trained has on the wrong side. A class
/// that wins all its pairs has more votes than any other.
fn lost(classes: usize, scheme: Scheme, codes: &[u32], machines: &[One]) -> Vec<u32> {
    let mut lost = vec![false; codes.len()];
    if scheme == Scheme::OneVsRest {
        let mut z = vec![0.0; classes];
        for (row, lost) in lost.iter_mut().enumerate() {
            machines.iter().zip(&mut z).for_each(|(machine, z)| *z = machine.scores[row]);
            *lost = z.iter().any(|z| z.is_nan()) || multi::by_score(&z) != codes[row];
        }
    } else {
        for machine in machines {
            for ((&row, y), z) in machine.part.rows.iter().zip(&machine.part.targets).zip(&machine.scores) {
                lost[row as usize] |= z.is_nan() || (*z > 0.0) != (*y > 0.0);
            }
        }
    }
    (0..codes.len() as u32).filter(|&row| lost[row as usize]).collect()
}

/// Share of the training rows that are not given their own class; only those `lost` can be among them.
fn error(model: &Model, prepared: &Prepared, codes: &[u32], lost: &[u32], control: &Control) -> Result<f64> {
    if model.scheme == Scheme::OneVsRest {
        return Ok(lost.len() as f64 / codes.len().max(1) as f64);
    }
    let mut wrong = 0;
    let (classes, k) = (model.labels.len(), model.expansion.outputs());
    let mut scratch = vec![0; classes];
    for rows in lost.chunks(((1 << 22) / k).max(1)) {
        let z = model.expansion.scores(&prepared.points.gather(rows), Precision::Single, control)?;
        let winners = z.chunks_exact(k).map(|z| multi::by_votes(classes, z, &mut scratch));
        wrong += winners.zip(rows).filter(|(winner, row)| *winner != codes[**row as usize]).count();
    }
    Ok(wrong as f64 / codes.len().max(1) as f64)
}

/// Every machine by itself, several at a time.
fn one_by_one(
    job: &Job<'_>,
    scheme: Scheme,
    codes: &[u32],
    gram: &dyn Gram,
    observer: &mut dyn Observer,
) -> Result<Vec<One>> {
    let (svm, prepared) = (job.svm, job.prepared);
    let parts = parts(scheme, prepared.labels.len(), codes);
    if let Some(model) = &svm.start {
        check_same_rows(model, &prepared.points)?;
        if model.scheme != scheme || model.labels != prepared.labels {
            return Err(Error::data("the model to resume from is not of the same classes and the same --multiclass"));
        }
    }
    // A share that does not depend on the threads: see `LANES`.
    let memory = svm.budget.memory / parts.len().clamp(1, LANES) as u64;
    let sizes: Vec<u64> = parts.iter().map(|part| (part.rows.len() as u64).pow(2)).collect();
    let begin = Begin {
        solver: if scheme == Scheme::OneVsRest { "one-vs-rest" } else { "one-vs-one" },
        n: prepared.points.len(),
        tol: svm.stop.tol,
        gap: svm.stop.gap,
    };
    let from = gram.entries();
    let machines = run(&sizes, &begin, job.control, observer, |at, control, observer| {
        let begun = Instant::now();
        let rows = &parts[at].rows;
        let own: Option<Box<dyn Gram + '_>> = if rows.len() == prepared.points.len() {
            None
        } else if control.check().is_err() {
            // Out of time: a view that makes nothing ready.
            Some(Box::new(Picked::new(gram, rows.clone())))
        } else {
            Some(part(gram, rows))
        };
        let gram = own.as_deref().unwrap_or(gram);
        let before = gram.entries();
        let told = |e: Error| match e {
            Error::Interrupted(why) => Error::Interrupted(why),
            other => Error::data(format!("{}: {other}", name(job, scheme, at))),
        };
        let setup = prepared.part_setup(&parts[at], job.formulation, job.loss.clone(), svm.bias, gram).map_err(told)?;
        let start = svm.start.as_ref().map(|model| setup.solution(&model.machine_over(at, rows)));
        let points = (job.kernel == Kernel::Linear).then(|| prepared.points.gather(rows));
        let solved = solve_one(svm, &setup, gram, points.as_ref(), start, memory, control, observer).map_err(told)?;
        let Solved { mut proven, left_out, solver, reason, compact: _ } = solved;
        proven.certificate = proven.certificate.with_rows(rows);
        let machine = &proven.machine;
        let seconds = begun.elapsed().as_secs_f64();
        let record = Record::new(&setup, &proven, seconds, gram.entries() - before);
        let mut scores: Vec<f64> = proven.scores.iter().map(|f| f / machine.rho + machine.bias).collect();
        // Without a proof there are none: every row may be on the wrong side.
        scores.resize(rows.len(), f64::NAN);
        let column = Column::new(machine, rows, record);
        let sigmoid = match svm.probability {
            None => None,
            Some(_) => {
                let weights: Option<Vec<f64>> =
                    prepared.weights.as_ref().map(|all| rows.iter().map(|&row| all[row as usize]).collect());
                let subject = Subject {
                    svm,
                    task: Task::Classify,
                    formulation: job.formulation,
                    loss: job.loss.clone(),
                    gram,
                    part: &parts[at],
                    weights: weights.as_deref(),
                    memory,
                };
                let (left, origin) = unseen(&subject, left_out, &control.for_calibration())?;
                // The class against the rest wins by score, not by its side of 0.
                let (a, b) = sigmoid_of(&left, &parts[at].targets, scheme != Scheme::OneVsRest);
                Some((a, b, origin))
            }
        };
        Ok(One { column, part: parts[at].clone(), scores, sigmoid, solver, reason })
    });
    let mut machines = machines?;
    if scheme == Scheme::OneVsRest {
        // All count on the same Gram at the same time: only what they computed together is known.
        let each = (gram.entries() - from) / machines.len().max(1) as u64;
        machines.iter_mut().for_each(|machine| machine.column.record.kernel_entries = each);
    }
    Ok(machines)
}

/// Least squares of all classes against the rest: one factorisation, a right-hand side a class.
fn all_at_once(job: &Job<'_>, codes: &[u32], gram: &dyn Gram, observer: &mut dyn Observer) -> Result<Vec<One>> {
    let (svm, prepared) = (job.svm, job.prepared);
    let begun = Instant::now();
    let classes = prepared.labels.len();
    let parts = one_vs_rest::parts(classes, codes);
    let targets = one_vs_rest::targets(classes, codes);
    let costs = row_costs(job);
    let begin = Begin { solver: "ridge", n: codes.len(), tol: svm.stop.tol, gap: svm.stop.gap };
    let loo = svm.probability == Some(Probability::LeaveOneOut);
    let options = RidgeOptions { loo, memory: svm.budget.memory, ..RidgeOptions::default() };
    let source = if job.kernel == Kernel::Linear { Source::Linear(&prepared.points, gram) } else { Source::Gram(gram) };
    let mut last = Step { phase: "factor", ..Step::default() };
    let stopped = observer.begin(&begin).is_break() || observer.step(&last).is_break();
    let fit = match ridge::fit(source, &targets, classes, &costs, svm.bias.then_some(0.0), &options, job.control) {
        Ok(fit) if !stopped => Some(fit),
        Ok(_) | Err(Halt::Interrupted(_)) => None,
        // Too large to factorise: each by itself, by a solver that needs less.
        Err(Halt::Error(_)) => return one_by_one(job, Scheme::OneVsRest, codes, gram, observer),
    };
    let status = match job.control.check() {
        Err(why) => why.into(),
        Ok(()) if stopped => Status::Interrupted,
        Ok(()) => Status::Optimal,
    };
    let proof = job.control.for_proof();
    let mut machines = Vec::with_capacity(classes);
    let mut short = false;
    for (class, part) in parts.into_iter().enumerate() {
        let setup = prepared.part_setup(&part, job.formulation, job.loss.clone(), svm.bias, gram)?;
        let column = |all: &[f64]| (0..codes.len()).map(|row| all[row * classes + class]).collect::<Vec<f64>>();
        let (beta, bias) = match &fit {
            Some(fit) => (column(&fit.beta), fit.bias[class]),
            None => (vec![0.0; codes.len()], 0.0),
        };
        let bias = if svm.bias { vec![bias] } else { vec![] };
        let solution = Solution { beta, bias, scores: None, status, iterations: 1, violation: f64::INFINITY };
        let asked = Asked::from(svm.stop_for(&setup));
        let proven = prove(&setup, gram, &solution, &asked, &proof)?;
        short |= proven.status == Status::Inaccurate;
        let seconds = begun.elapsed().as_secs_f64() / classes as f64;
        let record = Record::new(&setup, &proven, seconds, gram.entries() / classes as u64);
        let machine = &proven.machine;
        let mut scores: Vec<f64> = proven.scores.iter().map(|f| f + machine.bias).collect();
        scores.resize(codes.len(), f64::NAN);
        let sigmoid = fit.as_ref().and_then(|fit| fit.loo.as_ref()).map(|residuals| {
            let unseen: Vec<f64> = column(residuals).iter().zip(&part.targets).map(|(r, y)| y - r).collect();
            let (a, b) = fit_sigmoid(&unseen, &part.targets, false);
            (a, b, Origin::LeaveOneOut)
        });
        let column = Column::new(machine, &part.rows, record);
        let reason = "square loss: one factorisation for all classes".to_owned();
        machines.push(One { column, part, scores, sigmoid, solver: "ridge", reason });
    }
    last.seconds = job.control.seconds();
    last.fraction = Some(1.0);
    observer.finish(status, &last);
    if short && job.control.check().is_ok() {
        // The system is too ill-conditioned for its factorisation: each machine by itself, with other solvers to turn to.
        return one_by_one(job, Scheme::OneVsRest, codes, gram, observer);
    }
    Ok(machines)
}

/// Certifies every machine of a model of several classes anew.
pub(crate) fn verify(
    model: &Model,
    prepared: &Prepared,
    formulation: Formulation,
    loss: Arc<dyn Loss>,
    gram: &dyn Gram,
    control: &Control,
) -> Result<Vec<Certificate>> {
    let codes = prepared.codes();
    let parts = parts(model.scheme, prepared.labels.len(), &codes);
    let sizes: Vec<u64> = parts.iter().map(|part| (part.rows.len() as u64).pow(2)).collect();
    let begin = Begin { solver: "certify", n: codes.len(), tol: None, gap: None };
    run(&sizes, &begin, control, &mut margrave_core::observe::Silent, |at, control, _| {
        let rows = &parts[at].rows;
        let own = if rows.len() == codes.len() { None } else { Some(part(gram, rows)) };
        let gram = own.as_deref().unwrap_or(gram);
        let setup = prepared.part_setup(&parts[at], formulation, loss.clone(), model.free_bias, gram)?;
        let (beta, bias) = setup.solution(&model.machine_over(at, rows));
        let certificate = setup.with(gram, |problem| Ok(certify(problem, &beta, Some(&bias), None, control)?))?;
        Ok(certificate.with_rows(rows))
    })
}
