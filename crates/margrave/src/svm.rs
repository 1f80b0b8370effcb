//! The builder: what to train.

use std::sync::Arc;

use margrave_core::backend::Device;
use margrave_core::certificate::TailCheck;
use margrave_core::data::{Dataset, ScaleKind};
use margrave_core::kernel::{Gamma, Kernel};
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::model::{Model, Scheme, ThresholdRule};
use margrave_core::observe::{Observer, Silent};
use margrave_core::problem::{ClassWeight, Penalty, Task};
use margrave_core::solver::Stop;
use margrave_core::train::{
    Approx, LossChoice, Plan, Probability, ProbabilityRule, SolverName, Tradeoff, TrainOptions,
};
use margrave_core::{Budget, Cancel, Error, Result, Threads};

use crate::fit::Fit;

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
#[derive(Debug, Clone)]
pub struct Svm {
    options: TrainOptions,
}

impl Svm {
    fn new(task: Task) -> Self {
        Self { options: TrainOptions::new(task) }
    }

    /// A machine for two classes or more; hinge loss unless another is given.
    pub fn classifier() -> Self {
        Self::new(Task::Classify)
    }

    /// A machine for real targets; ε-insensitive loss unless another is given.
    pub fn regressor() -> Self {
        Self::new(Task::Regress)
    }

    /// A machine that detects whether a point is like the training data: one-class, ν = ½ unless another is given.
    pub fn novelty() -> Self {
        Self::new(Task::Novelty)
    }

    /// A machine for the task.
    pub fn of(task: Task) -> Self {
        Self::new(task)
    }

    /// What it predicts.
    pub fn task(&self) -> Task {
        self.options.task
    }

    /// The kernel, with its own γ. The default is RBF with γ by [`Gamma::Scale`].
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.options.kernel = kernel;
        self.options.gamma = None;
        self
    }

    /// γ by a rule computed from the (scaled) data; call it after [`kernel`](Self::kernel).
    pub fn gamma(mut self, gamma: Gamma) -> Self {
        self.options.gamma = Some(gamma);
        self
    }

    /// C of ½‖f‖² + C·Σ weightᵢ·ℓ; 1 by default.
    pub fn cost(mut self, c: f64) -> Self {
        self.options.tradeoff = Tradeoff::Cost(c);
        self
    }

    /// λ of (1/n)·Σ weightᵢ·ℓ + λ‖f‖², in place of C: C = 1/(2λn).
    pub fn lambda(mut self, lambda: f64) -> Self {
        self.options.tradeoff = Tradeoff::Lambda(lambda);
        self
    }

    /// The loss: one of [`crate::loss`], or a user-defined type.
    pub fn loss(mut self, loss: impl Loss + 'static) -> Self {
        // A loss of the library is kept by its description, so that the model file can name it.
        self.options.loss = match loss.spec() {
            Some(spec) => LossChoice::Spec(spec),
            None => LossChoice::Own(Arc::new(loss)),
        };
        self
    }

    /// The loss by its description.
    pub fn loss_spec(mut self, spec: LossSpec) -> Self {
        self.options.loss = LossChoice::Spec(spec);
        self
    }

    /// Half-width ε of the tube, for losses that have one; 0.1 by default.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.options.epsilon = Some(epsilon);
        self
    }

    /// ν in place of C (classification) or of ε (regression); the share of outliers (novelty).
    pub fn nu(mut self, nu: f64) -> Self {
        self.options.nu = Some(nu);
        self
    }

    /// If the classes do not allow the given ν in ν-classification, use 0.99 of the largest possible one instead of failing,
    /// separately for each pair of classes.
    pub fn lower_nu(mut self, lower: bool) -> Self {
        self.options.lower_nu = lower;
        self
    }

    /// Novelty by the smallest ball instead of the one-class machine.
    pub fn svdd(mut self, svdd: bool) -> Self {
        self.options.svdd = svdd;
        self
    }

    /// Whether there is a free bias; there is by default.
    pub fn bias(mut self, bias: bool) -> Self {
        self.options.bias = bias;
        self
    }

    /// For the linear kernel: the bias is the weight of a constant feature of this value, penalised like the others, as in
    /// LIBLINEAR and scikit-learn's `LinearSVC`. `None`, the default: it is free.
    pub fn intercept_scaling(mut self, scaling: Option<f64>) -> Self {
        self.options.intercept_scaling = scaling;
        self
    }

    /// For the linear kernel: the penalty on the weights, ½‖w‖² by default. L1 needs a smooth loss: squared hinge, logistic, …
    pub fn penalty(mut self, penalty: Penalty) -> Self {
        self.options.penalty = penalty;
        self
    }

    /// Factors on the costs of whole classes.
    pub fn class_weight(mut self, weight: ClassWeight) -> Self {
        self.options.class_weight = weight;
        self
    }

    /// How several classes become machines. The default is [`Scheme::OneVsRest`] with the linear solver and
    /// [`Scheme::OneVsOne`] otherwise. [`Scheme::CrammerSinger`] is for the linear kernel with the hinge loss; its bias is
    /// penalised, with [`intercept_scaling`](Self::intercept_scaling) or 1, or there is none.
    pub fn multiclass(mut self, scheme: Scheme) -> Self {
        self.options.multiclass = Some(scheme);
        self
    }

    /// Calibrated probabilities (classification) or intervals (regression), and from which scores.
    pub fn probability(mut self, from: Probability) -> Self {
        self.options.probability = Some(from);
        self
    }

    /// Whether probabilities agree with predictions: see [`ProbabilityRule`].
    pub fn probability_rule(mut self, rule: ProbabilityRule) -> Self {
        self.options.probability_rule = rule;
        self
    }

    /// Two classes: choose the decision threshold by this rule, on left-out scores; it is saved with the model.
    pub fn threshold(mut self, rule: ThresholdRule) -> Self {
        self.options.threshold = Some(rule);
        self
    }

    /// Also compute leave-one-out scores of the training rows in closed form: see
    /// [`Fit::leave_one_out`](margrave_core::train::Fit::leave_one_out).
    pub fn leave_one_out(mut self, yes: bool) -> Self {
        self.options.leave_one_out = yes;
        self
    }

    /// Scale the features first; the scaling is saved with the model.
    pub fn scale(mut self, kind: Option<ScaleKind>) -> Self {
        self.options.scale = kind;
        self
    }

    /// The solver; chosen by the problem by default.
    pub fn solver(mut self, solver: SolverName) -> Self {
        self.options.solver = solver;
        self
    }

    /// Train on few centres instead of all rows, for many rows. The certificate is that of the exact problem, of which
    /// the relative gap given with [`stop`](Self::stop) is required, or 1e-2; of the problem on the centres 1e-4, which is all
    /// that [`TailCheck::Own`] requires. `None`, the default: all rows.
    pub fn approx(mut self, approx: Option<Approx>) -> Self {
        self.options.approx = approx;
        self
    }

    /// How a machine on few centres is compared with the exact problem.
    pub fn certify(mut self, check: TailCheck) -> Self {
        self.options.certify = check;
        self
    }

    /// Continue from the machine on few centres to the exact one.
    pub fn polish(mut self, polish: bool) -> Self {
        self.options.polish = polish;
        self
    }

    /// After training, the best machine on at most this many centres, for fast predictions.
    pub fn budget_vectors(mut self, most: Option<usize>) -> Self {
        self.options.budget_vectors = most;
        self
    }

    /// When the answer counts as optimal. By default the KKT violation is at most 1e-3 (in regression, of the standard deviation of
    /// the targets); a violation given without a gap also requires a relative gap of 1e-2.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.options.stop = stop;
        self.options.default_tol = false;
        self
    }

    /// Stop at this KKT violation.
    pub fn tol(mut self, tol: f64) -> Self {
        self.options.stop.tol = Some(tol);
        self.options.default_tol = false;
        self
    }

    /// A smaller KKT violation that solvers aim at where it is cheap; it is not required for the status optimal.
    pub fn aim(mut self, tol: f64) -> Self {
        self.options.aim = Some(tol);
        self
    }

    /// The same for the relative gap: a smaller one that solvers aim at.
    pub fn aim_gap(mut self, gap: f64) -> Self {
        self.options.aim_gap = Some(gap);
        self
    }

    /// Stop at this relative duality gap, too.
    pub fn gap(mut self, gap: f64) -> Self {
        self.options.stop.gap = Some(gap);
        self
    }

    /// Seconds, iterations and memory the training may take.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.options.budget = budget;
        self
    }

    /// Threads to use; the result does not depend on their number.
    pub fn threads(mut self, threads: Threads) -> Self {
        self.options.threads = threads;
        self
    }

    /// Seed of everything random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// Ends the training early when cancelled, with the best machine so far.
    pub fn cancel(mut self, cancel: impl Into<Cancel>) -> Self {
        self.options.cancel = Some(cancel.into());
        self
    }

    /// Where to compute; the fastest available device by default.
    pub fn device(mut self, device: Device) -> Self {
        self.options.device = device;
        self
    }

    /// Start from a machine trained on the same rows.
    pub fn start(mut self, model: Model) -> Self {
        self.options.start = Some(Arc::new(model));
        self
    }

    /// For a non-convex loss: train a second time through this many softer losses from the convex start (sigmoid: η/2ᵏ, …, η/2),
    /// and keep the better result. 0 by default.
    pub fn anneal(mut self, stages: usize) -> Self {
        self.options.anneal = stages;
        self
    }

    /// Drop training rows whose share of f, |βᵢ|√k(xᵢ, xᵢ) over the sum of all, is below `share`; the certificate is that of
    /// the remaining model.
    pub fn compact(mut self, share: Option<f64>) -> Self {
        self.options.compact = share;
        self
    }

    /// Whether to merge equal samples with equal targets before training; true by default. The model is the same, in less time.
    pub fn merge_equal(mut self, merge: bool) -> Self {
        self.options.merge_equal = merge;
        self
    }

    /// How the columns of a file map to features; saved with the model.
    pub fn schema(mut self, schema: &margrave_io::Schema) -> Result<Self> {
        let text = serde_json::to_string(schema);
        self.options.schema = Some(text.map_err(|e| Error::data(format!("the schema cannot be written: {e}")))?);
        Ok(self)
    }

    /// Trains. With [`Targets::Several`](margrave_core::data::Targets::Several), regression with the square loss predicts all of
    /// them: one factorisation, the same centres, one certificate per output.
    pub fn fit(&self, data: &Dataset) -> Result<Fit> {
        self.fit_observed(data, &mut Silent)
    }

    /// Trains with an observer.
    pub fn fit_observed(&self, data: &Dataset, observer: &mut dyn Observer) -> Result<Fit> {
        Ok(self.plan(data)?.train(observer)?.into())
    }

    /// Resolves and checks every option for this data without training: see [`Plan::explain`].
    pub fn plan(&self, data: &Dataset) -> Result<Plan<'static>> {
        Plan::new(&self.options, data)
    }

    /// Trains a linear machine on rows that are not in memory: `data` has the targets and points without features.
    pub fn fit_streamed(
        &self,
        data: &Dataset,
        rows: &margrave_io::StreamedRows,
        observer: &mut dyn Observer,
    ) -> Result<Fit> {
        let fit = Plan::streamed(&self.options, data, rows).and_then(|plan| plan.train(observer));
        match rows.trouble() {
            Some(why) => Err(Error::data(format!("the rows on disk could not be read back: {why}"))),
            None => fit.map(Fit::from),
        }
    }

    /// The options as plain data.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }
}

impl From<Svm> for TrainOptions {
    fn from(svm: Svm) -> Self {
        svm.options
    }
}

impl From<TrainOptions> for Svm {
    fn from(options: TrainOptions) -> Self {
        Svm { options }
    }
}
