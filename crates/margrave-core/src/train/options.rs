//! What to train: every option of a training, as plain data.

use std::str::FromStr;
use std::sync::Arc;

use crate::backend::Device;
use crate::certificate::TailCheck;
use crate::control::{Budget, Cancel, Threads};
use crate::data::ScaleKind;
use crate::error::{Error, Result};
use crate::kernel::{Gamma, Kernel};
use crate::loss::{Loss, LossSpec};
use crate::model::{Model, Scheme, ThresholdRule};
use crate::problem::{Bias, ClassWeight, Formulation, Penalty, Setup, Task};
use crate::solver::Stop;
use crate::train::verdict::{Asked, DEFAULT_GAP, DEFAULT_OWN_GAP, default_tol};

/// Which solver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SolverName {
    /// Chosen by the problem; the reason is reported.
    #[default]
    Auto,
    /// Decomposition with a Newton polish: exact, for every loss with a box-quadratic dual.
    Decomposition,
    /// Newton's method and coordinate descent on the data itself: the linear kernel, any loss.
    Linear,
    /// Iteratively reweighted least squares: any loss, convex or not.
    Irwls,
    /// One linear system: the square loss.
    Ridge,
    /// Machines on few centres, certified against the exact problem: many rows.
    Nystrom,
    /// The teaching solver of paper 004: hinge loss.
    Smo,
    /// The regression solver of paper 001.
    SvmTorch,
}

impl SolverName {
    /// Every solver with its name in the interfaces.
    pub const ALL: [(&'static str, SolverName); 8] = [
        ("auto", SolverName::Auto),
        ("decomposition", SolverName::Decomposition),
        ("irwls", SolverName::Irwls),
        ("ridge", SolverName::Ridge),
        ("linear", SolverName::Linear),
        ("nystrom", SolverName::Nystrom),
        ("smo", SolverName::Smo),
        ("svmtorch", SolverName::SvmTorch),
    ];

    /// The name in the interfaces.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, solver)| *solver == self).map_or("auto", |(name, _)| name)
    }
}

impl FromStr for SolverName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(|(name, _)| name).join(", ");
        match Self::ALL.into_iter().find(|(name, _)| *name == text) {
            Some((_, solver)) => Ok(solver),
            None => Err(Error::option("solver", text, format!("one of {names}"))),
        }
    }
}

/// On how many centres an approximate machine is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approx {
    /// This many, or fewer if K is exhausted before.
    Centres(usize),
    /// As many as it takes to prove the required gap.
    Auto,
}

impl FromStr for Approx {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let expected = "a number of centres ≥ 1, or auto";
        match text {
            "auto" => Ok(Approx::Auto),
            _ => match text.parse() {
                Ok(0) | Err(_) => Err(Error::option("approx", text, expected)),
                Ok(m) => Ok(Approx::Centres(m)),
            },
        }
    }
}

/// Which scores probabilities and intervals are fitted to. Both are deterministic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Probability {
    /// Leave-one-out scores in closed form from the final solution; five folds where there is no closed form.
    #[default]
    LeaveOneOut,
    /// Out-of-fold scores, from this many additional trainings.
    Folds(usize),
}

/// Whether probabilities agree with predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProbabilityRule {
    /// Free where costs differ by class; otherwise agreeing, unless the free rule has a log-loss lower by more than 1 % on
    /// left-out scores.
    #[default]
    Auto,
    /// The predicted class is the most probable one: ½ is on the boundary.
    Agree,
    /// Probabilities estimate frequencies, whatever is predicted.
    Free,
}

impl ProbabilityRule {
    /// Every rule with its name in the interfaces.
    pub const ALL: [(&'static str, ProbabilityRule); 3] =
        [("auto", ProbabilityRule::Auto), ("agree", ProbabilityRule::Agree), ("free", ProbabilityRule::Free)];
}

impl FromStr for ProbabilityRule {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, rule)| rule).ok_or_else(|| Error::option("probability-rule", text, "auto, agree or free"))
    }
}

/// The trade-off between losses and smoothness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tradeoff {
    /// C of ½‖f‖² + C·Σℓ.
    Cost(f64),
    /// λ of (1/n)·Σℓ + λ‖f‖²: C = 1/(2λn).
    Lambda(f64),
}

/// The loss: the default of the task, one of the library, or a user-defined one.
#[derive(Clone, Default)]
pub enum LossChoice {
    /// Hinge for classification, ε-insensitive for regression.
    #[default]
    Usual,
    /// One of the library.
    Spec(LossSpec),
    /// User-defined.
    Own(Arc<dyn Loss>),
}

/// Every option of a training. `TrainOptions::new(task)` has the defaults; [`Plan::new`](crate::train::Plan::new) checks them
/// against each other and against the data.
#[derive(Clone)]
#[non_exhaustive]
pub struct TrainOptions {
    /// What to predict.
    pub task: Task,
    /// The kernel; its γ is replaced if [`gamma`](Self::gamma) has a rule.
    pub kernel: Kernel,
    /// Rule for γ from the (scaled) data.
    pub gamma: Option<Gamma>,
    /// The loss.
    pub loss: LossChoice,
    /// C or λ.
    pub tradeoff: Tradeoff,
    /// Half-width ε of the tube, for losses that have one; 0.1 if not given.
    pub epsilon: Option<f64>,
    /// ν in place of C (classification) or of ε (regression); the share of outliers (novelty).
    pub nu: Option<f64>,
    /// Use 0.99 of the largest possible ν, per pair of classes, if the classes do not allow the given ν.
    pub lower_nu: bool,
    /// Novelty detection by the smallest ball instead of the one-class machine.
    pub svdd: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Linear kernel: the bias is the weight of a constant feature of this value, penalised like the others.
    pub intercept_scaling: Option<f64>,
    /// Linear kernel: the penalty on the weights.
    pub penalty: Penalty,
    /// Factors on the costs of whole classes.
    pub class_weight: ClassWeight,
    /// How several classes become binary machines.
    pub multiclass: Option<Scheme>,
    /// Whether to calibrate probabilities or intervals, and from which scores.
    pub probability: Option<Probability>,
    /// Whether probabilities agree with predictions.
    pub probability_rule: ProbabilityRule,
    /// Two classes: choose the decision threshold by this rule, on left-out scores; it is saved with the model.
    pub threshold: Option<ThresholdRule>,
    /// Also compute leave-one-out scores of the training rows in closed form, where there is one.
    pub leave_one_out: bool,
    /// Scaling of the features; it is saved with the model.
    pub scale: Option<ScaleKind>,
    /// The solver.
    pub solver: SolverName,
    /// When the answer counts as optimal.
    pub stop: Stop,
    /// No tolerance was given: it is relative to the standard deviation of the targets.
    pub default_tol: bool,
    /// A smaller KKT violation that solvers aim at where it is cheap; it is not required for the status optimal.
    pub aim: Option<f64>,
    /// The same for the relative gap.
    pub aim_gap: Option<f64>,
    /// Seconds, iterations and memory.
    pub budget: Budget,
    /// Threads; the result does not depend on their number.
    pub threads: Threads,
    /// Where to compute.
    pub device: Device,
    /// Seed of everything random.
    pub seed: u64,
    /// Ends the training early, with the best machine so far.
    pub cancel: Option<Cancel>,
    /// A model trained on the same rows to start from.
    pub start: Option<Arc<Model>>,
    /// How the columns of a file map to features; saved with the model.
    pub schema: Option<String>,
    /// Non-convex losses: number of softer losses between the convex start and the loss itself.
    pub anneal: usize,
    /// Merge equal samples with equal targets before training: the same model in less time.
    pub merge_equal: bool,
    /// Drop training rows whose share of f is below this.
    pub compact: Option<f64>,
    /// Train on few centres instead of all rows.
    pub approx: Option<Approx>,
    /// How a machine on few centres is certified against the exact problem.
    pub certify: TailCheck,
    /// Continue from the machine on few centres to the exact one.
    pub polish: bool,
    /// Replace the trained machine by the best one on at most this many centres.
    pub budget_vectors: Option<usize>,
}

impl std::fmt::Debug for TrainOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrainOptions").field("task", &self.task).field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl TrainOptions {
    /// The defaults for a task: RBF kernel with γ by [`Gamma::Scale`], C = 1.
    pub fn new(task: Task) -> Self {
        Self {
            task,
            kernel: Kernel::rbf(1.0),
            gamma: Some(Gamma::Scale),
            loss: LossChoice::Usual,
            tradeoff: Tradeoff::Cost(1.0),
            epsilon: None,
            nu: None,
            lower_nu: false,
            svdd: false,
            bias: true,
            intercept_scaling: None,
            penalty: Penalty::L2,
            class_weight: ClassWeight::Equal,
            multiclass: None,
            probability: None,
            probability_rule: ProbabilityRule::Auto,
            threshold: None,
            leave_one_out: false,
            scale: None,
            solver: SolverName::Auto,
            stop: Stop::default(),
            default_tol: true,
            aim: None,
            aim_gap: None,
            budget: Budget::default(),
            threads: Threads::default(),
            device: Device::default(),
            seed: 0,
            cancel: None,
            start: None,
            schema: None,
            anneal: 0,
            merge_equal: true,
            compact: None,
            approx: None,
            certify: TailCheck::Auto,
            polish: false,
            budget_vectors: None,
        }
    }

    /// On how many centres machines are trained; `None`: on all rows.
    pub(crate) fn centres(&self) -> Option<Approx> {
        self.approx.or((self.solver == SolverName::Nystrom).then_some(Approx::Auto))
    }

    /// The criteria for a problem.
    pub(crate) fn asked_for(&self, setup: &Setup) -> Asked {
        self.asked_of(self.stop_for(setup))
    }

    /// The criteria for a stopping rule: a machine on few centres has to solve its own problem, and come as close to the
    /// exact one as was asked for, or as any machine has to. Only [`TailCheck::Own`] leaves the exact problem out.
    pub(crate) fn asked_of(&self, stop: Stop) -> Asked {
        let Some(approx) = self.centres().filter(|_| !self.polish) else { return Asked::from(stop) };
        let tol = if self.default_tol { None } else { stop.tol };
        let (gap, own) = match (self.certify, stop.gap, approx) {
            (TailCheck::Own, gap, _) => (None, gap.unwrap_or(DEFAULT_OWN_GAP)),
            (_, Some(gap), _) => (Some(gap), gap.max(DEFAULT_OWN_GAP)),
            (_, None, Approx::Auto) => (Some(DEFAULT_GAP), DEFAULT_GAP),
            // The centres were chosen, so the best machine on them is wanted, however far the exact one is.
            (_, None, Approx::Centres(_)) => (Some(DEFAULT_GAP), DEFAULT_OWN_GAP),
        };
        Asked { tol, gap, own: Some(own) }
    }

    /// The bias of a linear machine.
    pub(crate) fn bias_kind(&self) -> Bias {
        match (self.bias, self.intercept_scaling) {
            (false, _) => Bias::None,
            (true, None) => Bias::Free,
            (true, Some(scaling)) => Bias::Penalised { scaling },
        }
    }

    /// Whether the linear solver is used.
    pub(crate) fn is_linear(&self, kernel: &Kernel, formulation: &Formulation) -> bool {
        *kernel == Kernel::Linear
            && matches!(formulation, Formulation::Cost { .. })
            && self.compact.is_none()
            && self.anneal == 0
            && matches!(self.solver, SolverName::Auto | SolverName::Linear)
    }

    /// How several classes become binary machines.
    pub(crate) fn scheme(&self, kernel: &Kernel, formulation: &Formulation) -> Scheme {
        match self.multiclass {
            Some(scheme @ (Scheme::OneVsRest | Scheme::CrammerSinger)) => scheme,
            None if self.centres().is_some() || self.is_linear(kernel, formulation) => Scheme::OneVsRest,
            _ => Scheme::OneVsOne,
        }
    }

    /// When the answer to a problem counts as optimal.
    pub(crate) fn stop_for(&self, setup: &Setup) -> Stop {
        self.stop_of((setup.task() == Task::Regress).then(|| setup.targets()))
    }

    /// The same, from the targets of a regression.
    pub(crate) fn stop_of(&self, regression_targets: Option<&[f64]>) -> Stop {
        match self.default_tol {
            true => Stop { tol: self.stop.tol.map(|_| default_tol(regression_targets)), ..self.stop },
            false => self.stop,
        }
    }

    /// The rule that the first attempt at a problem stops by.
    pub(crate) fn aim_for(&self, setup: &Setup) -> Stop {
        let stop = self.stop_for(setup);
        let tol = stop.tol.map(|tol| self.aim.map_or(tol, |aim| aim.min(tol)));
        let gap = match (stop.gap, self.aim_gap) {
            (Some(gap), Some(aim)) => Some(gap.min(aim)),
            (gap, aim) => gap.or(aim),
        };
        Stop { tol, gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_problem_is_always_asked_for_unless_it_is_left_out() {
        let mut options = TrainOptions::new(Task::Classify);
        let mut asked = |approx, certify, gap| {
            (options.approx, options.certify) = (Some(approx), certify);
            options.asked_of(Stop { gap, ..Stop::default() })
        };
        for check in [TailCheck::Auto, TailCheck::Exact, TailCheck::Sampled] {
            let fixed = asked(Approx::Centres(9), check, None);
            assert_eq!(fixed, Asked { tol: None, gap: Some(DEFAULT_GAP), own: Some(DEFAULT_OWN_GAP) });
            assert_eq!(asked(Approx::Auto, check, None).gap, Some(DEFAULT_GAP));
            let given = asked(Approx::Centres(9), check, Some(1e-6));
            assert_eq!(given, Asked { tol: None, gap: Some(1e-6), own: Some(DEFAULT_OWN_GAP) });
        }
        let own = asked(Approx::Centres(9), TailCheck::Own, None);
        assert_eq!(own, Asked { tol: None, gap: None, own: Some(DEFAULT_OWN_GAP) });
    }

    #[test]
    fn every_solver_has_a_name() {
        use SolverName::{Auto, Decomposition, Irwls, Linear, Nystrom, Ridge, Smo, SvmTorch};
        for solver in [Auto, Decomposition, Irwls, Linear, Nystrom, Ridge, Smo, SvmTorch] {
            // A new solver belongs in this list and in `ALL`: the match does not compile without it.
            match solver {
                Auto | Decomposition | Irwls | Linear | Nystrom | Ridge | Smo | SvmTorch => {}
            }
            assert_eq!(solver.name().parse(), Ok(solver));
        }
        assert!("simplex".parse::<SolverName>().is_err());
    }
}
