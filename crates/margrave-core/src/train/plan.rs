//! The plan of a training: every option resolved and checked against the others and the data, before anything is computed.
//!
//! Only a [`Plan`] can be trained. Unsupported combinations are rejected here, as [`Error::Conflict`], and nowhere else.

use std::sync::Arc;
use std::time::Instant;

use super::options::{Approx, LossChoice, SolverName, Tradeoff, TrainOptions};
use super::prepared::Prepared;
use super::verdict::Asked;
use super::{classes, crammer_singer, fit::Fit, linear_space, one, outputs, streamed};
use crate::certificate::TailCheck;
use crate::conflict::{OptionName, Remedy, Setting, With};
use crate::control::Control;
use crate::data::{Dataset, Points, Scaling, Targets};
use crate::error::{Error, Result};
use crate::gram::Matrix;
use crate::kernel::Kernel;
use crate::loss::{Loss, LossSpec};
use crate::model::{Recipe, Scheme};
use crate::observe::Observer;
use crate::problem::{Formulation, Penalty, Task};

/// How many machines, and of which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One binary machine, one regression, one novelty detector.
    One,
    /// Binary machines for several classes.
    Classes(Scheme),
    /// A single machine for all classes.
    CrammerSinger,
    /// This many regressions that share rows and kernel.
    Outputs(usize),
}

/// A training whose options were checked and resolved.
pub struct Plan<'a> {
    pub(crate) options: TrainOptions,
    pub(crate) prepared: Prepared,
    pub(crate) kernel: Kernel,
    pub(crate) loss: Arc<dyn Loss>,
    pub(crate) formulation: Formulation,
    pub(crate) shape: Shape,
    /// Whether machines are trained on X itself, without a kernel matrix.
    pub(crate) linear: bool,
    pub(crate) streamed: Option<&'a dyn Matrix>,
    /// The data before filling and scaling, if folds learn those from their own training rows.
    pub(crate) raw: Option<Dataset>,
    loss_spec: Option<LossSpec>,
    scaling: Option<Scaling>,
    /// Seconds spent preparing the data; they count as training time.
    spent: f64,
}

impl<'a> Plan<'a> {
    /// Resolves and checks the options for this data.
    pub fn new(options: &TrainOptions, data: &Dataset) -> Result<Self> {
        Self::build(options, data, None)
    }

    /// The same for rows that are read in blocks: `data` has the targets and points without features.
    pub fn streamed(options: &TrainOptions, data: &Dataset, rows: &'a dyn Matrix) -> Result<Self> {
        Self::build(options, data, Some(rows))
    }

    fn build(options: &TrainOptions, data: &Dataset, streamed: Option<&'a dyn Matrix>) -> Result<Self> {
        let begun = Instant::now();
        let (loss, loss_spec) = loss_of(options)?;
        let formulation = formulation_of(options, data.len())?;
        let outputs = match &data.targets {
            Targets::Several { outputs, .. } if options.task != Task::Novelty => Some(*outputs),
            _ => None,
        };
        if let Some(k) = outputs {
            check_outputs(options, k)?;
        }
        check(options, &options.kernel, &formulation, loss.as_ref())?;
        let reading = streamed::control(options);
        let scaling = match streamed {
            Some(rows) => streamed::scaling(options, rows, &reading)?,
            None => options.scale.map(|kind| Scaling::fit(kind, &data.points)),
        };
        let points = match &scaling {
            Some(scaling) if streamed.is_none() => scaling.apply(&data.points)?,
            _ => data.points.clone(),
        };
        let mut prepared = match &data.targets {
            Targets::Several { values, .. } if outputs.is_some() => Prepared::outputs(data, points, values)?,
            _ => Prepared::new(options.task, data, points, &options.class_weight, None)?,
        };
        prepared.lower_nu = options.lower_nu;
        let kernel = match (streamed, options.gamma) {
            (Some(rows), _) => streamed::kernel(options, rows, scaling.as_ref(), &reading)?,
            (None, Some(rule)) if options.kernel.gamma().is_some() => {
                options.kernel.with_gamma(rule.resolve(&prepared.points, options.seed)?)
            }
            _ => options.kernel,
        };
        kernel.check()?;
        check_centres(options, &kernel, &formulation, loss.as_ref(), data.len(), outputs)?;
        let classify = options.task == Task::Classify;
        let shape = match outputs {
            Some(k) => Shape::Outputs(k),
            None if classify && options.multiclass == Some(Scheme::CrammerSinger) => Shape::CrammerSinger,
            None if classify && prepared.labels.len() > 2 => Shape::Classes(options.scheme(&kernel, &formulation)),
            None => Shape::One,
        };
        let linear = options.is_linear(&kernel, &formulation);
        check_budget(options, &kernel, &formulation, loss.as_ref(), shape, linear)?;
        if matches!(shape, Shape::Classes(_)) && options.compact.is_some() {
            return Err(conflict(OptionName::Compact, With::SeveralClasses, "", Remedy::LeaveOut(OptionName::Compact)));
        }
        if options.threshold.is_some() && shape != Shape::One {
            let remedy = Remedy::LeaveOut(OptionName::Threshold);
            return Err(conflict(OptionName::Threshold, With::SeveralClasses, "it is for two", remedy));
        }
        if streamed.is_some() {
            streamed::check(options, shape, linear)?;
        }
        let learns = options.scale.is_some() || data.fills.is_some();
        // Folds are made where scores of left-out rows are used.
        let folds = options.probability.is_some() || options.threshold.is_some();
        let raw = (learns && folds && streamed.is_none()).then(|| data.clone());
        let spent = begun.elapsed().as_secs_f64();
        let options = options.clone();
        Ok(Self {
            options,
            prepared,
            kernel,
            loss,
            formulation,
            shape,
            linear,
            streamed,
            raw,
            loss_spec,
            scaling,
            spent,
        })
    }

    /// Trains.
    pub fn train(&self, observer: &mut dyn Observer) -> Result<Fit> {
        let begun = Instant::now();
        let mut budget = self.options.budget.clone();
        budget.seconds = budget.seconds.map(|all| (all - self.spent).max(0.0));
        let mut control = Control::start(&budget, self.options.threads.clone()).with_device(self.options.device);
        if let Some(cancel) = &self.options.cancel {
            control = control.with_cancel(cancel.clone());
        }
        let mut fit = match self.shape {
            Shape::One => one::train(self, &control, observer)?,
            Shape::Classes(scheme) => classes::train(self, scheme, &control, observer)?,
            Shape::CrammerSinger => crammer_singer::train(self, &control, observer)?,
            Shape::Outputs(k) => outputs::train(self, k, &control, observer)?,
        };
        fit.seconds = self.spent + begun.elapsed().as_secs_f64();
        Ok(fit)
    }

    /// Points and kernel as a training without the rows `held` has them: missing values, scaling and γ from the other rows alone.
    /// `None` if they are the same.
    pub(crate) fn without(&self, held: &[u32]) -> Result<Option<(Points, Kernel)>> {
        let Some(data) = &self.raw else { return Ok(None) };
        let mut leave = vec![false; data.len()];
        held.iter().for_each(|&row| leave[row as usize] = true);
        let kept: Vec<u32> = (0..data.len() as u32).filter(|&row| !leave[row as usize]).collect();
        let mut points = data.points_for(&kept)?;
        if let Some(kind) = self.options.scale {
            points = Scaling::fit(kind, &points.gather(&kept)).apply(&points)?;
        }
        let kernel = match self.options.gamma {
            Some(rule) if self.kernel.gamma().is_some() => {
                self.kernel.with_gamma(rule.resolve(&points.gather(&kept), self.options.seed)?)
            }
            _ => self.kernel,
        };
        Ok(Some((points, kernel)))
    }

    /// What the model file says about its training.
    pub(crate) fn recipe(&self, solver: &str) -> Recipe {
        let options = &self.options;
        Recipe {
            task: options.task,
            formulation: self.formulation,
            loss: if matches!(self.formulation, Formulation::Cost { .. }) { self.loss_spec } else { None },
            free_bias: self.free_bias(),
            penalty: options.penalty,
            intercept_scaling: options.intercept_scaling,
            labels: self.prepared.labels.clone(),
            class_weights: self.prepared.class_weights.clone(),
            scaling: self.scaling.clone(),
            schema: options.schema.clone(),
            solver: solver.to_owned(),
        }
    }

    /// The scaling of the rows.
    pub(crate) fn scaling(&self) -> Option<&Scaling> {
        self.scaling.as_ref()
    }

    /// Whether the bias is free: neither absent nor penalised.
    pub(crate) fn free_bias(&self) -> bool {
        self.options.bias && self.options.intercept_scaling.is_none()
    }

    /// The criteria every machine has to meet to count as optimal.
    pub(crate) fn asked(&self) -> Asked {
        let regression = (self.options.task == Task::Regress).then_some(self.prepared.targets.as_slice());
        self.options.asked_of(self.options.stop_of(regression))
    }

    /// Every decision, with its reason: the name of what was decided and the decision.
    pub fn explain(&self) -> Result<Vec<(&'static str, String)>> {
        let options = &self.options;
        let (n, d) = (self.prepared.points.len(), self.streamed.map_or(self.prepared.points.dims(), Matrix::dims));
        let mut lines = vec![("data", format!("{n} rows, {d} features"))];
        if !self.prepared.labels.is_empty() {
            let names: Vec<String> = self.prepared.labels.iter().take(8).map(ToString::to_string).collect();
            let more = if self.prepared.labels.len() > 8 { ", …" } else { "" };
            lines.push(("classes", format!("{}: {}{more}", self.prepared.labels.len(), names.join(", "))));
        }
        lines.push(("task", options.task.to_string()));
        lines.push(("scaling", options.scale.map_or("none".to_owned(), |kind| kind.name().to_owned())));
        let gamma = match (options.gamma, self.kernel.gamma()) {
            (Some(rule), Some(gamma)) => {
                format!(" (γ = {gamma}{})", rule.name().map_or(String::new(), |r| format!(", the rule '{r}'")))
            }
            (None, Some(gamma)) => format!(" (γ = {gamma})"),
            _ => String::new(),
        };
        lines.push(("kernel", format!("{}{gamma}", self.kernel.name())));
        let formulation = match self.formulation {
            Formulation::Cost { c } => format!("{} loss, C = {c}", self.loss.name()),
            Formulation::Nu { nu, c } => format!("ν = {nu}, C = {c}"),
            Formulation::OneClass { nu } => format!("one-class, ν = {nu}"),
            Formulation::Svdd { nu } => format!("smallest ball, ν = {nu}"),
        };
        lines.push(("formulation", formulation));
        lines.push(("bias", self.bias_text()));
        let classes = self.prepared.labels.len();
        let machines = match self.shape {
            Shape::One => "1".to_owned(),
            Shape::CrammerSinger => "1 for all classes, by Crammer and Singer".to_owned(),
            Shape::Outputs(k) => format!("{k}, one per target"),
            Shape::Classes(Scheme::OneVsRest) => format!("{classes}, one per class"),
            Shape::Classes(scheme) => format!("{}, one per pair of classes", scheme.machines(classes)),
        };
        lines.push(("machines", machines));
        let (solver, reason) = self.solver()?;
        lines.push(("solver", format!("{solver} ({reason})")));
        if let Some(rule) = options.threshold {
            lines.push(("threshold", format!("{rule}, on left-out scores")));
        }
        let asked = self.asked();
        let tol = asked.tol.map(|tol| format!("KKT violation ≤ {tol:.3e}"));
        let gap = asked.gap.map(|gap| format!("relative gap ≤ {gap:.3e}"));
        lines.push(("stops at", [tol, gap].into_iter().flatten().collect::<Vec<_>>().join(" and ")));
        let seconds = options.budget.seconds.map_or("no time limit".to_owned(), |s| format!("{s} s"));
        lines.push(("budget", format!("{seconds}, {} MB of memory", options.budget.memory >> 20)));
        lines.push(("device", format!("{}, {} threads", options.device.backend().name(), options.threads.count())));
        Ok(lines)
    }

    fn approximate_reason(&self) -> String {
        let centres = match self.options.centres() {
            Some(Approx::Centres(m)) => format!("{m} centres"),
            _ => "as many centres as the gap needs".to_owned(),
        };
        let polish = if self.options.polish { ", then the exact machine from there" } else { "" };
        format!("asked for; {centres}{polish}")
    }

    fn bias_text(&self) -> String {
        match (self.options.bias, self.options.intercept_scaling) {
            (false, _) => "none".to_owned(),
            (true, None) => "free".to_owned(),
            (true, Some(scaling)) => format!("penalised, as the weight of a constant feature {scaling}"),
        }
    }

    /// The solver of the first machine, and why.
    pub(crate) fn solver(&self) -> Result<(&'static str, String)> {
        match self.shape {
            Shape::Outputs(k) if outputs::solved_at_once(self) => {
                Ok(("ridge", format!("square loss: one factorisation for {k} targets")))
            }
            Shape::Outputs(k) => outputs::solver(self, k),
            Shape::CrammerSinger => Ok(("linear", linear_space::reason_for(&self.options, "dual coordinate descent"))),
            Shape::Classes(Scheme::OneVsRest) if classes::solved_at_once(self, Scheme::OneVsRest) => {
                Ok(("ridge", "square loss: one factorisation for all classes".to_owned()))
            }
            _ if self.options.centres().is_some() => Ok(("nystrom", self.approximate_reason())),
            _ if self.linear => Ok(("linear", linear_space::reason_for(&self.options, "trained on the data itself"))),
            Shape::One => one::solver(self),
            Shape::Classes(scheme) => classes::solver(self, scheme),
        }
    }
}

fn conflict(option: impl Into<Setting>, with: With, why: &'static str, remedy: Remedy) -> Error {
    Error::conflict(option, with, why, remedy)
}

/// Rejects combinations of options that are not supported for any data.
pub(crate) fn check(options: &TrainOptions, kernel: &Kernel, formulation: &Formulation, loss: &dyn Loss) -> Result<()> {
    use OptionName as Name;
    options.budget.check()?;
    options.stop.check()?;
    options.bias_kind().check()?;
    let own_loss = !matches!(options.loss, LossChoice::Usual);
    let crammer_singer = options.multiclass == Some(Scheme::CrammerSinger);
    let textbook = matches!(options.solver, SolverName::Smo | SolverName::SvmTorch);
    let convex = loss.properties().convex || !matches!(formulation, Formulation::Cost { .. });
    let linear = options.is_linear(kernel, formulation);
    let to_linear = || Remedy::Use(vec![Name::Kernel.at("linear")]);
    let by_rest = || Remedy::Use(vec![Name::Multiclass.at("ovr")]);
    let with_cs = With::Setting(Name::Multiclass.at("crammer-singer"));
    let hinge = matches!(options.loss, LossChoice::Usual | LossChoice::Spec(LossSpec::Hinge));
    let penalised = options.intercept_scaling.is_some();
    type Rule = (bool, Setting, With, &'static str, Remedy);
    let rules: Vec<Rule> = vec![
        (
            options.nu.is_some() && own_loss && options.task != Task::Novelty,
            Name::Loss.into(),
            With::Setting(Name::Nu.into()),
            "ν-machines have a loss of their own",
            Remedy::LeaveOutOne(Name::Loss, Name::Nu),
        ),
        (
            options.nu.is_some() && !options.bias,
            Name::Bias.at("false"),
            With::Setting(Name::Nu.into()),
            "ν-machines need their bias",
            Remedy::LeaveOutOne(Name::Bias, Name::Nu),
        ),
        (
            *kernel == Kernel::Precomputed && options.scale.is_some(),
            Name::Scale.into(),
            With::Setting(Name::Kernel.at("precomputed")),
            "there are no features to scale",
            Remedy::LeaveOut(Name::Scale),
        ),
        (
            options.probability.is_some() && options.task == Task::Novelty,
            Name::Probability.into(),
            With::Setting(Name::Task.at("novelty")),
            "",
            Remedy::LeaveOut(Name::Probability),
        ),
        (
            options.threshold.is_some() && options.task != Task::Classify,
            Name::Threshold.into(),
            With::Setting(Name::Task.at(options.task.name())),
            "a threshold is between two classes",
            Remedy::LeaveOut(Name::Threshold),
        ),
        (
            penalised && !options.bias,
            Name::InterceptScaling.into(),
            With::Setting(Name::Bias.at("false")),
            "a penalised bias is still a bias",
            Remedy::LeaveOutOne(Name::InterceptScaling, Name::Bias),
        ),
        (options.penalty == Penalty::L1 && !linear, Name::Penalty.at("l1"), With::NotLinear, "", to_linear()),
        (penalised && !linear, Name::InterceptScaling.into(), With::NotLinear, "", to_linear()),
        (crammer_singer && !linear, Name::Multiclass.at("crammer-singer"), With::NotLinear, "", to_linear()),
        (crammer_singer && !hinge, Name::Loss.into(), with_cs, "it has a hinge over all classes", by_rest()),
        (crammer_singer && options.penalty == Penalty::L1, Name::Penalty.at("l1"), with_cs, "", by_rest()),
        (crammer_singer && options.probability.is_some(), Name::Probability.into(), with_cs, "", by_rest()),
        (crammer_singer && options.start.is_some(), Name::Resume.into(), with_cs, "", Remedy::LeaveOut(Name::Resume)),
        (
            textbook && options.stop.gap.is_some(),
            Name::Gap.into(),
            With::Textbook,
            "they stop on the KKT violation alone",
            Remedy::Use(vec![Name::Tol.into()]),
        ),
        (
            textbook && options.start.is_some(),
            Name::Resume.into(),
            With::Textbook,
            "",
            Remedy::Use(vec![Name::Solver.at("decomposition")]),
        ),
        (
            !convex && options.stop.tol.is_none() && options.stop.gap.is_some(),
            Name::Gap.into(),
            With::NonConvexLoss,
            "there is no duality gap, only a stationarity residual",
            Remedy::Use(vec![Name::Tol.into()]),
        ),
        (
            options.anneal > 0 && convex,
            Name::Anneal.into(),
            With::ConvexLoss,
            "a convex loss has no other minimum",
            Remedy::LeaveOut(Name::Anneal),
        ),
        (
            options.anneal > 0 && !matches!(options.solver, SolverName::Auto | SolverName::Irwls),
            Name::Anneal.into(),
            With::Setting(Name::Solver.into()),
            "only irwls anneals",
            Remedy::Use(vec![Name::Solver.at("irwls")]),
        ),
    ];
    match rules.into_iter().find(|rule| rule.0) {
        Some((_, option, with, why, remedy)) => Err(conflict(option, with, why, remedy)),
        None => Ok(()),
    }
}

/// Rejects what machines on few centres do not support.
fn check_centres(
    options: &TrainOptions,
    kernel: &Kernel,
    formulation: &Formulation,
    loss: &dyn Loss,
    n: usize,
    outputs: Option<usize>,
) -> Result<()> {
    use OptionName as Name;
    let asked = match (options.centres(), options.polish, options.certify) {
        (Some(_), ..) => Name::Approx,
        (None, true, _) => {
            let remedy = Remedy::Use(vec![Name::Approx.at("auto")]);
            return Err(conflict(Name::Polish, With::AllRows, "it continues from few centres", remedy));
        }
        (None, _, TailCheck::Auto) => return Ok(()),
        // The smaller machine is one on few centres.
        (None, ..) if options.budget_vectors.is_some() => return Ok(()),
        (None, ..) => {
            let remedy = Remedy::Use(vec![Name::Approx.at("auto")]);
            return Err(conflict(Name::Certify, With::AllRows, "it is about few centres", remedy));
        }
    };
    if let Some(Approx::Centres(m)) = options.approx
        && (m == 0 || m > n)
    {
        return Err(Error::option(
            "approx",
            m,
            format!("a number of centres from 1 to {n}, the number of rows, or auto"),
        ));
    }
    let leave_out = Remedy::LeaveOut(asked);
    if *kernel == Kernel::Precomputed {
        let why = "centres need rows of features, and there is only a matrix";
        return Err(conflict(asked, With::Setting(Name::Kernel.at("precomputed")), why, leave_out));
    }
    if !kernel.is_definite() {
        let why = "the kernel may not be positive semi-definite, and then nothing is proven";
        return Err(conflict(
            asked,
            With::Setting(Name::Kernel.at(kernel.name())),
            why,
            Remedy::Use(vec![Name::Kernel.at("rbf")]),
        ));
    }
    if *kernel == Kernel::Linear {
        let why = "linear machines are trained exactly, on the data itself";
        return Err(conflict(asked, With::Setting(Name::Kernel.at("linear")), why, leave_out));
    }
    if !matches!(formulation, Formulation::Cost { .. }) {
        let with = if options.task == Task::Novelty { Name::Task.at("novelty") } else { Name::Nu.into() };
        return Err(conflict(asked, With::Setting(with), "it is for machines with a cost C", leave_out));
    }
    if !loss.properties().convex {
        return Err(conflict(asked, With::NonConvexLoss, "without a dual nothing is proven", leave_out));
    }
    if let Some(k) = outputs {
        return Err(conflict(asked, With::Targets(k), "", leave_out));
    }
    if options.multiclass == Some(Scheme::OneVsOne) {
        let why = "machines of all classes share their centres";
        let remedy = Remedy::Use(vec![Name::Multiclass.at("ovr")]);
        return Err(conflict(Name::Multiclass.at("ovo"), With::Setting(asked.into()), why, remedy));
    }
    let rules = [
        (!matches!(options.solver, SolverName::Auto | SolverName::Nystrom), Name::Solver),
        (options.compact.is_some(), Name::Compact),
        (options.start.is_some(), Name::Resume),
        (options.intercept_scaling.is_some(), Name::InterceptScaling),
        (options.penalty == Penalty::L1, Name::Penalty),
    ];
    match rules.into_iter().find(|rule| rule.0) {
        Some((_, other)) => Err(conflict(asked, With::Setting(other.into()), "", Remedy::LeaveOutOne(asked, other))),
        None => Ok(()),
    }
}

/// Rejects what a machine on a given number of vectors cannot be made from.
fn check_budget(
    options: &TrainOptions,
    kernel: &Kernel,
    formulation: &Formulation,
    loss: &dyn Loss,
    shape: Shape,
    linear: bool,
) -> Result<()> {
    use OptionName as Name;
    let Some(most) = options.budget_vectors else { return Ok(()) };
    if most == 0 {
        return Err(Error::option("budget-vectors", most, "a number of vectors ≥ 1"));
    }
    let own = Name::BudgetVectors;
    let leave_out = Remedy::LeaveOut(own);
    let refuse = |with: With, why: &'static str| Err(conflict(own, with, why, leave_out.clone()));
    match (shape, formulation) {
        _ if linear => refuse(With::Setting(Name::Kernel.at("linear")), "a linear machine has weights, not vectors"),
        _ if *kernel == Kernel::Precomputed => refuse(With::Setting(Name::Kernel.at("precomputed")), ""),
        _ if !kernel.is_definite() => refuse(With::Setting(Name::Kernel.at(kernel.name())), ""),
        _ if !loss.properties().convex => refuse(With::NonConvexLoss, ""),
        (_, Formulation::Nu { .. }) => refuse(With::Setting(Name::Nu.into()), "it is for machines with a cost C"),
        (_, Formulation::OneClass { .. } | Formulation::Svdd { .. }) => {
            refuse(With::Setting(Name::Task.at("novelty")), "it is for machines with a cost C")
        }
        (Shape::Outputs(k), _) => refuse(With::Targets(k), ""),
        (Shape::Classes(_) | Shape::CrammerSinger, _) => refuse(With::SeveralClasses, ""),
        (Shape::One, Formulation::Cost { .. }) => Ok(()),
    }
}

/// Rejects what several targets do not support.
fn check_outputs(options: &TrainOptions, k: usize) -> Result<()> {
    use OptionName as Name;
    let with = With::Targets(k);
    if options.task != Task::Regress {
        let why = "several targets are for regression; choose one otherwise";
        let remedy = Remedy::Use(vec![Name::Task.at("regress")]);
        return Err(conflict(Name::Task.at(options.task.name()), with, why, remedy));
    }
    let rules = [
        (options.compact.is_some(), Name::Compact),
        (options.multiclass.is_some(), Name::Multiclass),
        (options.start.is_some(), Name::Resume),
    ];
    match rules.into_iter().find(|rule| rule.0) {
        Some((_, option)) => Err(conflict(option, with, "", Remedy::LeaveOut(option))),
        None => Ok(()),
    }
}

/// Rejects options that cross-validation, which trains on kernels, cannot score.
pub(crate) fn check_tunable(options: &TrainOptions) -> Result<()> {
    use OptionName as Name;
    let rules = [
        (options.penalty == Penalty::L1, Name::Penalty.at("l1")),
        (options.intercept_scaling.is_some(), Name::InterceptScaling.into()),
        (options.multiclass == Some(Scheme::CrammerSinger), Name::Multiclass.at("crammer-singer")),
    ];
    match rules.into_iter().find(|rule| rule.0) {
        Some((_, option)) => Err(conflict(option, With::Tuning, "", Remedy::LeaveOut(option.option))),
        None => Ok(()),
    }
}

/// The loss to use, and its description where it is one of the library.
pub(crate) fn loss_of(options: &TrainOptions) -> Result<(Arc<dyn Loss>, Option<LossSpec>)> {
    let mut spec = match &options.loss {
        LossChoice::Own(loss) => {
            fits_task(options.task, loss.as_ref(), false)?;
            return Ok((loss.clone(), None));
        }
        LossChoice::Spec(spec) => *spec,
        LossChoice::Usual if options.task == Task::Regress => LossSpec::Epsilon { epsilon: 0.1 },
        LossChoice::Usual => LossSpec::Hinge,
    };
    if let Some(epsilon) = options.epsilon {
        if spec.epsilon().is_none() {
            let allowed = format!("the {} loss has no tube: leave it out, or use the epsilon loss", spec.name());
            return Err(Error::option("epsilon", epsilon, allowed));
        }
        spec = spec.with_epsilon(epsilon);
    }
    let loss = spec.build()?;
    fits_task(options.task, loss.as_ref(), spec == LossSpec::Square)?;
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

pub(crate) fn formulation_of(options: &TrainOptions, n: usize) -> Result<Formulation> {
    let c = match options.tradeoff {
        Tradeoff::Cost(c) if c > 0.0 && c.is_finite() => c,
        Tradeoff::Cost(c) => return Err(Error::option("C", c, "a finite number > 0")),
        Tradeoff::Lambda(l) if l > 0.0 && (1.0 / (2.0 * l * n as f64)).is_finite() => 1.0 / (2.0 * l * n as f64),
        Tradeoff::Lambda(l) => return Err(Error::option("lambda", l, "a finite number > 0")),
    };
    Ok(match (options.task, options.nu) {
        (Task::Novelty, nu) if options.svdd => Formulation::Svdd { nu: nu.unwrap_or(0.5) },
        (Task::Novelty, nu) => Formulation::OneClass { nu: nu.unwrap_or(0.5) },
        (_, Some(nu)) => Formulation::Nu { nu, c },
        (_, None) => Formulation::Cost { c },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ClassWeight;
    use crate::solver::Stop;
    use crate::train::Probability;

    fn two_classes() -> Dataset {
        let x = vec![0.0, 0.0, 0.1, 1.0, 1.0, 0.2, 1.1, 1.0];
        Dataset::new(Points::dense_f64(4, 2, x).unwrap(), Targets::Real(vec![-1.0, -1.0, 1.0, 1.0])).unwrap()
    }

    fn refused(options: &TrainOptions) -> Option<(OptionName, With)> {
        match Plan::new(options, &two_classes()) {
            Ok(_) => None,
            Err(Error::Conflict { option, with, .. }) => Some((option.option, with)),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_impossible_combination_is_a_conflict() {
        use OptionName as Name;
        let new = TrainOptions::new;
        let linear = || TrainOptions { kernel: Kernel::Linear, ..new(Task::Classify) };
        let spec = |text: &str| LossChoice::Spec(text.parse().unwrap());
        let cs = || TrainOptions { multiclass: Some(Scheme::CrammerSinger), ..linear() };
        let with_cs = With::Setting(Name::Multiclass.at("crammer-singer"));
        let nu = With::Setting(Name::Nu.into());
        let gap = Stop { tol: None, gap: Some(1e-3) };
        let cases = [
            (TrainOptions { nu: Some(0.3), loss: spec("hinge"), ..new(Task::Classify) }, Name::Loss, nu),
            (TrainOptions { nu: Some(0.3), bias: false, ..new(Task::Classify) }, Name::Bias, nu),
            (
                TrainOptions {
                    kernel: Kernel::Precomputed,
                    scale: Some(crate::data::ScaleKind::MinMax),
                    ..new(Task::Classify)
                },
                Name::Scale,
                With::Setting(Name::Kernel.at("precomputed")),
            ),
            (
                TrainOptions { probability: Some(Probability::LeaveOneOut), ..new(Task::Novelty) },
                Name::Probability,
                With::Setting(Name::Task.at("novelty")),
            ),
            (
                TrainOptions { threshold: Some(crate::model::ThresholdRule::MaxF1), ..new(Task::Regress) },
                Name::Threshold,
                With::Setting(Name::Task.at("regress")),
            ),
            (
                TrainOptions { intercept_scaling: Some(1.0), bias: false, ..linear() },
                Name::InterceptScaling,
                With::Setting(Name::Bias.at("false")),
            ),
            (TrainOptions { penalty: Penalty::L1, ..new(Task::Classify) }, Name::Penalty, With::NotLinear),
            (
                TrainOptions { intercept_scaling: Some(1.0), ..new(Task::Classify) },
                Name::InterceptScaling,
                With::NotLinear,
            ),
            (
                TrainOptions { multiclass: Some(Scheme::CrammerSinger), ..new(Task::Classify) },
                Name::Multiclass,
                With::NotLinear,
            ),
            (TrainOptions { loss: spec("squared-hinge"), ..cs() }, Name::Loss, with_cs),
            (TrainOptions { penalty: Penalty::L1, ..cs() }, Name::Penalty, with_cs),
            (TrainOptions { probability: Some(Probability::Folds(3)), ..cs() }, Name::Probability, with_cs),
            (TrainOptions { solver: SolverName::Smo, stop: gap, ..new(Task::Classify) }, Name::Gap, With::Textbook),
            (TrainOptions { loss: spec("sigmoid"), stop: gap, ..new(Task::Classify) }, Name::Gap, With::NonConvexLoss),
            (TrainOptions { anneal: 2, ..new(Task::Classify) }, Name::Anneal, With::ConvexLoss),
            (
                TrainOptions { anneal: 2, loss: spec("ramp"), solver: SolverName::Ridge, ..new(Task::Classify) },
                Name::Anneal,
                With::Setting(Name::Solver.into()),
            ),
        ];
        for (options, option, with) in cases {
            assert_eq!(refused(&options), Some((option, with)), "{options:?}");
        }
        // Supported combinations are accepted.
        for options in [new(Task::Classify), linear(), cs(), TrainOptions { penalty: Penalty::L1, ..linear() }] {
            assert_eq!(refused(&TrainOptions { class_weight: ClassWeight::Balanced, ..options }), None);
        }
    }

    #[test]
    fn a_plan_says_what_will_be_done() {
        let plan = Plan::new(&TrainOptions::new(Task::Classify), &two_classes()).unwrap();
        let lines = plan.explain().unwrap();
        let of = |name: &str| lines.iter().find(|(found, _)| *found == name).map(|(_, text)| text.as_str());
        assert_eq!(of("data"), Some("4 rows, 2 features"));
        assert_eq!(of("formulation"), Some("hinge loss, C = 1"));
        assert_eq!(of("machines"), Some("1"));
        assert!(of("solver").is_some_and(|text| text.starts_with("decomposition (")), "{lines:?}");
        let fit = plan.train(&mut crate::observe::Silent).unwrap();
        assert_eq!((fit.status(), fit.model().solver.as_str()), (crate::Status::Optimal, "decomposition"));
    }
}
