//! The builder: what to train.

use std::str::FromStr;
use std::sync::Arc;

use margrave_core::data::{Dataset, ScaleKind};
use margrave_core::kernel::{Gamma, Kernel};
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::model::{Model, Scheme};
use margrave_core::observe::{Observer, Silent};
use margrave_core::problem::{ClassWeight, Formulation, Penalty, Setup, Task};
use margrave_core::solver::Stop;
use margrave_core::train::verdict::default_tol;
use margrave_core::{Budget, Cancel, Error, Result, Threads};

use crate::fit::{Fit, train};

/// Which solver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SolverName {
    /// The best for the problem, with the reason told.
    #[default]
    Auto,
    /// Decomposition with a Newton polish: exact, for every loss with a box-quadratic dual.
    Decomposition,
    /// Newton's method and coordinate descent on the data itself: the linear kernel, any loss.
    Linear,
    /// Reweighted least squares: any loss, convex or not.
    Irwls,
    /// One linear system: the square loss.
    Ridge,
    /// The teaching solver of paper 004: hinge loss.
    Smo,
    /// The regression solver of paper 001.
    SvmTorch,
}

impl SolverName {
    /// Every solver by the name users write.
    pub const ALL: [(&'static str, SolverName); 7] = [
        ("auto", SolverName::Auto),
        ("decomposition", SolverName::Decomposition),
        ("irwls", SolverName::Irwls),
        ("ridge", SolverName::Ridge),
        ("linear", SolverName::Linear),
        ("smo", SolverName::Smo),
        ("svmtorch", SolverName::SvmTorch),
    ];
}

impl FromStr for SolverName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(|(name, _)| name).join(", ");
        match Self::ALL.into_iter().find(|(name, _)| *name == text) {
            Some((_, solver)) => Ok(solver),
            None if text == "nystrom" => {
                Err(Error::option("solver", text, format!("it is not built yet; there are {names}")))
            }
            None => Err(Error::option("solver", text, format!("one of {names}"))),
        }
    }
}

/// Which scores probabilities and intervals are fitted to. Neither is random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Probability {
    /// Leave-one-out scores in closed form from the final solution; where there is no closed form, five folds.
    #[default]
    LeaveOneOut,
    /// Scores of held-out rows, from so many more trainings.
    Folds(usize),
}

/// How strongly losses count against smoothness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tradeoff {
    /// C of ½‖f‖² + C·Σℓ.
    Cost(f64),
    /// λ of (1/n)·Σℓ + λ‖f‖²: C = 1/(2λn).
    Lambda(f64),
}

/// The loss: the task's own, one of the library, or a user's.
#[derive(Clone, Default)]
pub(crate) enum LossChoice {
    #[default]
    Usual,
    Spec(LossSpec),
    Own(Arc<dyn Loss>),
}

/// A kernel machine to be trained.
///
/// ```
/// use margrave::{Kernel, Svm, loss};
/// # let data = margrave::Dataset::new(
/// #     margrave::Points::dense_f64(4, 1, vec![-2.0, -1.0, 1.0, 2.0])?,
/// #     margrave::Targets::Real(vec![-1.0, -1.0, 1.0, 1.0]),
/// # )?;
/// let fit = Svm::classifier().kernel(Kernel::rbf(0.1)).cost(1.0).loss(loss::Hinge).fit(&data)?;
/// assert!(fit.certificate().relative_gap().is_some_and(|gap| gap < 1e-2));
/// # Ok::<(), margrave::Error>(())
/// ```
#[derive(Clone)]
pub struct Svm {
    pub(crate) task: Task,
    pub(crate) kernel: Kernel,
    pub(crate) gamma: Option<Gamma>,
    pub(crate) loss: LossChoice,
    pub(crate) tradeoff: Tradeoff,
    pub(crate) epsilon: Option<f64>,
    pub(crate) nu: Option<f64>,
    pub(crate) lower_nu: bool,
    pub(crate) svdd: bool,
    pub(crate) bias: bool,
    pub(crate) intercept_scaling: Option<f64>,
    pub(crate) penalty: Penalty,
    pub(crate) class_weight: ClassWeight,
    pub(crate) multiclass: Option<Scheme>,
    pub(crate) probability: Option<Probability>,
    pub(crate) scale: Option<ScaleKind>,
    pub(crate) solver: SolverName,
    pub(crate) stop: Stop,
    /// Nothing was said about the tolerance: it follows the spread of the targets.
    pub(crate) default_tol: bool,
    pub(crate) aim: Option<f64>,
    pub(crate) budget: Budget,
    pub(crate) threads: Threads,
    pub(crate) seed: u64,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) start: Option<Arc<Model>>,
    pub(crate) schema: Option<String>,
    pub(crate) anneal: usize,
    pub(crate) compact: Option<f64>,
}

impl std::fmt::Debug for Svm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Svm").field("task", &self.task).field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl Svm {
    fn new(task: Task) -> Self {
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
            scale: None,
            solver: SolverName::Auto,
            stop: Stop::default(),
            default_tol: true,
            aim: None,
            budget: Budget::default(),
            threads: Threads::default(),
            seed: 0,
            cancel: None,
            start: None,
            schema: None,
            anneal: 0,
            compact: None,
        }
    }

    /// A machine for two classes or more; hinge loss unless another is given.
    pub fn classifier() -> Self {
        Self::new(Task::Classify)
    }

    /// A machine for real targets; ε-insensitive loss unless another is given.
    pub fn regressor() -> Self {
        Self::new(Task::Regress)
    }

    /// A machine that tells whether a point is like the training data: one-class, ν = ½ unless another is given.
    pub fn novelty() -> Self {
        Self::new(Task::Novelty)
    }

    /// A machine for the task.
    pub fn of(task: Task) -> Self {
        Self::new(task)
    }

    /// What it predicts.
    pub fn task(&self) -> Task {
        self.task
    }

    /// The kernel, with its own γ. The default is RBF with γ by [`Gamma::Scale`].
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = kernel;
        self.gamma = None;
        self
    }

    /// γ by a rule that looks at the (scaled) data; call it after [`kernel`](Self::kernel).
    pub fn gamma(mut self, gamma: Gamma) -> Self {
        self.gamma = Some(gamma);
        self
    }

    /// C of ½‖f‖² + C·Σ weightᵢ·ℓ; 1 by default.
    pub fn cost(mut self, c: f64) -> Self {
        self.tradeoff = Tradeoff::Cost(c);
        self
    }

    /// λ of (1/n)·Σ weightᵢ·ℓ + λ‖f‖², in place of C: C = 1/(2λn).
    pub fn lambda(mut self, lambda: f64) -> Self {
        self.tradeoff = Tradeoff::Lambda(lambda);
        self
    }

    /// The loss: one of [`crate::loss`], or a type of one's own.
    pub fn loss(mut self, loss: impl Loss + 'static) -> Self {
        // A loss of the library is kept by its description, so that the model file can say which it was.
        self.loss = match loss.spec() {
            Some(spec) => LossChoice::Spec(spec),
            None => LossChoice::Own(Arc::new(loss)),
        };
        self
    }

    /// The loss by its description.
    pub fn loss_spec(mut self, spec: LossSpec) -> Self {
        self.loss = LossChoice::Spec(spec);
        self
    }

    /// Half-width of the tube of losses that have one; 0.1 by default.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = Some(epsilon);
        self
    }

    /// ν in place of C (classification) or of ε (regression); the share of outliers (novelty).
    pub fn nu(mut self, nu: f64) -> Self {
        self.nu = Some(nu);
        self
    }

    /// Where ν-classification cannot have its ν with these classes, take 0.99 of the largest possible one instead of failing; each
    /// pair of classes by itself.
    pub fn lower_nu(mut self, lower: bool) -> Self {
        self.lower_nu = lower;
        self
    }

    /// Novelty by the smallest ball instead of the one-class machine.
    pub fn svdd(mut self, svdd: bool) -> Self {
        self.svdd = svdd;
        self
    }

    /// Whether there is a free bias; there is by default.
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// For the linear kernel: the bias is the weight of a constant feature of this value, penalised like the others, as in
    /// LIBLINEAR and scikit-learn's `LinearSVC`. `None`, the default: it is free.
    pub fn intercept_scaling(mut self, scaling: Option<f64>) -> Self {
        self.intercept_scaling = scaling;
        self
    }

    /// For the linear kernel: what is put on the weights, ½‖w‖² by default. L1 needs a smooth loss: squared hinge, logistic, …
    pub fn penalty(mut self, penalty: Penalty) -> Self {
        self.penalty = penalty;
        self
    }

    /// Factors on the costs of whole classes.
    pub fn class_weight(mut self, weight: ClassWeight) -> Self {
        self.class_weight = weight;
        self
    }

    /// How several classes become machines. Unless one is given: [`Scheme::OneVsRest`] where the linear solver trains, otherwise
    /// [`Scheme::OneVsOne`]. [`Scheme::CrammerSinger`] is for the linear kernel with the hinge; it is penalised in its bias, by
    /// [`intercept_scaling`](Self::intercept_scaling) or 1, or has none.
    pub fn multiclass(mut self, scheme: Scheme) -> Self {
        self.multiclass = Some(scheme);
        self
    }

    /// Calibrated probabilities (classification) or intervals (regression), and from which scores.
    pub fn probability(mut self, from: Probability) -> Self {
        self.probability = Some(from);
        self
    }

    /// Scale the features first; the scaling travels with the model.
    pub fn scale(mut self, kind: Option<ScaleKind>) -> Self {
        self.scale = kind;
        self
    }

    /// The solver; chosen by the problem by default.
    pub fn solver(mut self, solver: SolverName) -> Self {
        self.solver = solver;
        self
    }

    /// When the answer counts as optimal. By default the KKT violation is at most 1e-3 (in regression, of the standard deviation of
    /// the targets); wherever a violation is asked for without a gap, a relative gap of 1e-2 is asked for as well.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self.default_tol = false;
        self
    }

    /// Stop at this KKT violation.
    pub fn tol(mut self, tol: f64) -> Self {
        self.stop.tol = Some(tol);
        self.default_tol = false;
        self
    }

    /// A smaller KKT violation that solvers aim at where it comes cheaply; the answer counts as optimal without it.
    pub fn aim(mut self, tol: f64) -> Self {
        self.aim = Some(tol);
        self
    }

    /// Stop at this relative duality gap, too.
    pub fn gap(mut self, gap: f64) -> Self {
        self.stop.gap = Some(gap);
        self
    }

    /// Seconds, iterations and memory the training may take.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Threads to use; the result does not depend on their number.
    pub fn threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// Seed of everything random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Training ends with its best machine so far once this asks for it.
    pub fn cancel(mut self, cancel: impl Into<Cancel>) -> Self {
        self.cancel = Some(cancel.into());
        self
    }

    /// The rule that the first attempt at a problem stops by.
    pub(crate) fn aim_for(&self, setup: &Setup) -> Stop {
        let stop = self.stop_for(setup);
        Stop { tol: stop.tol.map(|tol| self.aim.map_or(tol, |aim| aim.min(tol))), ..stop }
    }

    /// When the answer to a problem counts as optimal.
    pub(crate) fn stop_for(&self, setup: &Setup) -> Stop {
        let regression = (setup.task() == Task::Regress).then(|| setup.targets());
        match self.default_tol {
            true => Stop { tol: self.stop.tol.map(|_| default_tol(regression)), ..self.stop },
            false => self.stop,
        }
    }

    /// Start from a machine trained on the same rows.
    pub fn start(mut self, model: Model) -> Self {
        self.start = Some(Arc::new(model));
        self
    }

    /// For a loss that is not convex: also go through this many softer losses from the convex start (sigmoid: η/2ᵏ, …, η/2), and
    /// keep the better end. 0 by default.
    pub fn anneal(mut self, stages: usize) -> Self {
        self.anneal = stages;
        self
    }

    /// Drop training rows whose share of f, |βᵢ|√k(xᵢ, xᵢ) over the sum of all, is below `share`; the certificate is that of
    /// what is left.
    pub fn compact(mut self, share: Option<f64>) -> Self {
        self.compact = share;
        self
    }

    /// How columns of a file became the features: travels with the model.
    pub fn schema(mut self, schema: &margrave_io::Schema) -> Result<Self> {
        let text = serde_json::to_string(schema);
        self.schema = Some(text.map_err(|e| Error::data(format!("the schema cannot be written: {e}")))?);
        Ok(self)
    }

    /// Trains. With [`Targets::Several`](margrave_core::data::Targets::Several), regression with the square loss predicts all of
    /// them: one factorisation, the same centres, a certificate an output.
    pub fn fit(&self, data: &Dataset) -> Result<Fit> {
        self.fit_observed(data, &mut Silent)
    }

    /// Trains with a listener.
    pub fn fit_observed(&self, data: &Dataset, observer: &mut dyn Observer) -> Result<Fit> {
        train(self, data, None, observer)
    }

    /// Trains a linear machine on rows that are not in memory: `data` has the targets, and points without features.
    pub fn fit_streamed(
        &self,
        data: &Dataset,
        rows: &margrave_io::StreamedRows,
        observer: &mut dyn Observer,
    ) -> Result<Fit> {
        let fit = train(self, data, Some(rows), observer);
        match rows.trouble() {
            Some(why) => Err(Error::data(format!("the rows on disk could not be read back: {why}"))),
            None => fit,
        }
    }

    /// How several classes become machines with this kernel.
    pub(crate) fn scheme(&self, kernel: &Kernel, formulation: &Formulation) -> Scheme {
        match self.multiclass {
            Some(scheme @ (Scheme::OneVsRest | Scheme::CrammerSinger)) => scheme,
            None if crate::linear::applies(self, kernel, formulation) => Scheme::OneVsRest,
            _ => Scheme::OneVsOne,
        }
    }
}
