//! Fitted machines.
//!
//! An [`Expansion`] is the function f(x) + b alone; a [`Model`] adds what is needed to predict, to verify and to resume
//! training: the task, labels, scaling, loss, costs, certificate. For two classes a score > 0 means the *second*,
//! `labels[1]`, whose samples have y = +1 (or a score above a chosen [`Threshold`]); several classes have one output per binary machine (see [`Scheme`]).

pub mod calibration;
mod expansion;
mod margins;
pub mod multi;
#[cfg(test)]
mod tests;
mod threshold;

use serde::{Deserialize, Serialize};

pub use self::calibration::{Calibration, Origin, Reason, Rule, SHARES, Sigmoid};
pub use self::expansion::{Expansion, Layout, pair_output, pairs};
pub use self::margins::{Case, Margins, cases, margins};
pub use self::multi::Scheme;
pub use self::threshold::{Threshold, ThresholdRule};
use crate::certificate::Certificate;
use crate::control::{Control, Status};
use crate::data::{Label, Points, Scaling};
use crate::error::{Result, check_len};
use crate::gram::{Gram, Precision};
use crate::loss::LossSpec;
use crate::problem::{Formulation, Machine, Penalty, Setup, Task};
use crate::train::Proven;

/// The training record of one binary machine of a model, and its proof.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its proof.
    pub certificate: Certificate,
    /// How the training ended: see [`crate::train::verdict`].
    pub status: Status,
    /// Iterations; what counts as one depends on the solver.
    pub iterations: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Kernel entries computed.
    pub kernel_entries: u64,
    /// Support vectors: rows with a coefficient ≠ 0.
    pub support_vectors: usize,
    /// Support vectors whose β is at its bound.
    pub bounded: usize,
    /// β = rho · coefficient; 1 except for ν-classification.
    pub rho: f64,
    /// Half the width of the tube that ν-regression found.
    pub tube: Option<f64>,
}

/// The dual point of a machine whose coefficients are not one: β of the training rows, zeros left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DualPoint {
    /// Rows with β ≠ 0, ascending.
    pub rows: Vec<u32>,
    /// Their β.
    pub beta: Vec<f64>,
}

impl DualPoint {
    /// From β of every row.
    pub fn new(beta: &[f64]) -> Self {
        let rows: Vec<u32> = (0..beta.len() as u32).filter(|&row| beta[row as usize] != 0.0).collect();
        Self { beta: rows.iter().map(|&row| beta[row as usize]).collect(), rows }
    }

    /// Renumbers the rows: row i becomes row `of[i]`.
    pub fn with_rows(mut self, of: &[u32]) -> Self {
        self.rows.iter_mut().for_each(|row| *row = of[*row as usize]);
        self
    }

    /// β of all `n` rows; rows that do not exist are ignored.
    pub fn over(&self, n: usize) -> Vec<f64> {
        let mut beta = vec![0.0; n];
        for (&row, value) in self.rows.iter().zip(&self.beta) {
            if let Some(to) = beta.get_mut(row as usize) {
                *to = *value;
            }
        }
        beta
    }
}

/// What a model predicts for every point.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// Index of the label (classification), into [`Model::labels`].
    Labels(Vec<u32>),
    /// Real numbers (regression), n × outputs row-major.
    Values(Vec<f64>),
    /// Whether the point is like the training data (novelty).
    Inside(Vec<bool>),
}

/// A trained machine with everything needed to use it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Model {
    /// What it predicts.
    pub task: Task,
    /// The formulation of the problem.
    pub formulation: Formulation,
    /// The loss; `None` if the formulation defines its own, or the loss was user-defined.
    pub loss: Option<LossSpec>,
    /// Whether the machine has a free bias.
    pub free_bias: bool,
    /// The penalty on the weights; L2 unless the kernel is linear.
    pub penalty: Penalty,
    /// Value of the constant feature whose weight is the bias, if the bias is penalised; then there is no free bias.
    pub intercept_scaling: Option<f64>,
    /// The labels: sorted if trained here, in the file's order if read from LIBSVM's; empty unless classifying.
    pub labels: Vec<Label>,
    /// How predictions follow from the outputs.
    pub scheme: Scheme,
    /// Cost factor of each label; empty if all are 1.
    pub class_weights: Vec<f64>,
    /// Scaling of the features, applied before the kernel.
    pub scaling: Option<Scaling>,
    /// How the columns of the training file map to features, as JSON text that only the file reader interprets.
    pub schema: Option<String>,
    /// f(x) + b, over scaled features.
    pub expansion: Expansion,
    /// Cost of each centre.
    pub costs: Vec<f64>,
    /// One record per binary machine.
    pub machines: Vec<Record>,
    /// The solver.
    pub solver: String,
    /// Rows of the training data.
    pub n: usize,
    /// How scores become probabilities or intervals, if calibrated.
    pub calibration: Option<Calibration>,
    /// Two classes: where the second is predicted, if not at scores above 0.
    pub threshold: Option<Threshold>,
    /// Machines on few centres: the dual point of each, with which it is certified. Empty if the coefficients are the dual
    /// point, or if there is none.
    pub dual: Vec<DualPoint>,
}

/// The parameters of a fit that a model keeps, apart from the data.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// What to predict.
    pub task: Task,
    /// The formulation of the problem.
    pub formulation: Formulation,
    /// The loss, unless the formulation defines its own.
    pub loss: Option<LossSpec>,
    /// Whether there is a free bias.
    pub free_bias: bool,
    /// See [`Model::penalty`].
    pub penalty: Penalty,
    /// See [`Model::intercept_scaling`].
    pub intercept_scaling: Option<f64>,
    /// The labels, sorted; empty unless classifying.
    pub labels: Vec<Label>,
    /// Cost factor of each label; empty if all are 1.
    pub class_weights: Vec<f64>,
    /// The scaling already applied to the points.
    pub scaling: Option<Scaling>,
    /// See [`Model::schema`].
    pub schema: Option<String>,
    /// The solver.
    pub solver: String,
}

/// One binary machine among several: its coefficients by row of the data, zeros left out.
#[derive(Debug, Clone)]
pub struct Column {
    /// Rows with a coefficient ≠ 0.
    pub rows: Vec<u32>,
    /// Their coefficients.
    pub coefficients: Vec<f64>,
    /// The bias.
    pub bias: f64,
    /// Its training record.
    pub record: Record,
}

impl Column {
    /// From a machine over some rows of the data.
    pub fn new(machine: &Machine, rows: &[u32], record: Record) -> Self {
        let kept = || machine.coefficients.iter().zip(rows).filter(|(c, _)| **c != 0.0);
        Self {
            rows: kept().map(|(_, &row)| row).collect(),
            coefficients: kept().map(|(c, _)| *c).collect(),
            bias: machine.bias,
            record,
        }
    }
}

impl Record {
    /// The record of a solution of `setup`.
    pub fn new(setup: &Setup, proven: &Proven, seconds: f64, kernel_entries: u64) -> Self {
        let machine = &proven.machine;
        Self {
            certificate: proven.certificate.clone(),
            status: proven.status,
            iterations: proven.iterations,
            seconds,
            kernel_entries,
            support_vectors: machine.coefficients.iter().filter(|c| **c != 0.0).count(),
            bounded: cases(setup, &proven.beta).iter().filter(|case| **case == Case::Bound).count(),
            rho: machine.rho,
            tube: machine.tube,
        }
    }
}

/// Sums over the binary machines of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Totals {
    /// Σ of the primal objectives, or of the objectives of a non-convex loss.
    pub primal: f64,
    /// Σ of the dual objectives; `None` for a non-convex loss.
    pub dual: Option<f64>,
    /// Σ of the gaps.
    pub gap: Option<f64>,
    /// Σ of the bounds on rounding.
    pub rounding: Option<f64>,
    /// gap / max(|primal|, |dual|) of the worst machine.
    pub relative_gap: Option<f64>,
    /// The largest KKT violation, or stationarity residual.
    pub violation: f64,
    /// Whether every machine was checked.
    pub known: bool,
    /// The worst status.
    pub status: Status,
    /// Σ of the iterations.
    pub iterations: u64,
    /// Seconds of the whole training.
    pub seconds: f64,
    /// Kernel entries computed in total.
    pub kernel_entries: u64,
    /// Number of rows that are support vectors of at least one machine.
    pub support_vectors: usize,
    /// Σ of the numbers of bounded support vectors.
    pub bounded: usize,
}

/// Severity of a status.
fn severity(status: Status) -> u8 {
    match status {
        Status::Optimal => 0,
        Status::Inaccurate => 1,
        Status::Stalled => 2,
        Status::IterationLimit => 3,
        Status::TimeLimit => 4,
        Status::Interrupted => 5,
    }
}

impl Model {
    /// Sums over the binary machines.
    pub fn totals(&self) -> Totals {
        let sum = |of: &dyn Fn(&Record) -> f64| self.machines.iter().map(of).sum::<f64>();
        let convex = self.machines.iter().all(|r| r.certificate.optimality().is_some());
        let primal = sum(&|r| r.certificate.primal());
        let dual = convex.then(|| sum(&|r| r.certificate.dual().unwrap_or(0.0)));
        let gap = convex.then(|| sum(&|r| r.certificate.gap().unwrap_or(0.0)));
        let relative = self.machines.iter().map(|r| r.certificate.relative_gap().unwrap_or(f64::INFINITY));
        let statuses = self.machines.iter().map(|r| r.status);
        Totals {
            primal,
            dual,
            gap,
            rounding: convex.then(|| sum(&|r| r.certificate.rounding().unwrap_or(0.0))),
            relative_gap: convex.then(|| relative.fold(0.0, f64::max)),
            known: self.machines.iter().all(|r| r.certificate.is_known()),
            violation: self.machines.iter().map(|r| r.certificate.violation()).fold(0.0, f64::max),
            status: statuses.max_by_key(|status| severity(*status)).unwrap_or(Status::Optimal),
            iterations: self.machines.iter().map(|r| r.iterations).sum(),
            seconds: sum(&|r| r.seconds),
            kernel_entries: self.machines.iter().map(|r| r.kernel_entries).sum(),
            support_vectors: self.expansion.len(),
            bounded: self.machines.iter().map(|r| r.bounded).sum(),
        }
    }

    /// The model of one binary machine: `points` are the (scaled) training points.
    pub fn binary(
        recipe: Recipe,
        kernel: crate::kernel::Kernel,
        points: &Points,
        setup: &Setup,
        proven: &Proven,
        seconds: f64,
        kernel_entries: u64,
    ) -> Result<Self> {
        check_len("number of training points", setup.rows(), points.len())?;
        let machine = &proven.machine;
        let expansion = Expansion::of_training(kernel, points, &machine.coefficients, vec![machine.bias])?;
        let costs = expansion.rows().iter().map(|&row| setup.costs()[row as usize]).collect();
        let record = Record::new(setup, proven, seconds, kernel_entries);
        Ok(Self::new(recipe, Scheme::One, expansion, costs, vec![record], points.len()))
    }

    /// The same where the training points are not all in memory: `gather` gives those with the listed rows, and `dims` is their
    /// number of features.
    pub fn binary_of_rows(
        recipe: Recipe,
        kernel: crate::kernel::Kernel,
        gather: impl FnOnce(&[u32]) -> Result<Points>,
        dims: usize,
        setup: &Setup,
        proven: &Proven,
        seconds: f64,
        kernel_entries: u64,
    ) -> Result<Self> {
        let all = &proven.machine.coefficients;
        let rows: Vec<u32> = (0..setup.rows() as u32).filter(|&row| all[row as usize] != 0.0).collect();
        let coefficients = rows.iter().map(|&row| all[row as usize]).collect();
        let costs = rows.iter().map(|&row| setup.costs()[row as usize]).collect();
        let centres = gather(&rows)?;
        let expansion = Expansion::new(kernel, centres, rows, coefficients, vec![proven.machine.bias], dims)?;
        let record = Record::new(setup, proven, seconds, kernel_entries);
        Ok(Self::new(recipe, Scheme::One, expansion, costs, vec![record], setup.rows()))
    }

    /// The model of one linear machine (w, b) with its dual point; `dims` is the number of features.
    pub fn linear(
        recipe: Recipe,
        weights: Vec<f64>,
        dims: usize,
        setup: &Setup,
        proven: &Proven,
        seconds: f64,
    ) -> Result<Self> {
        let machine = &proven.machine;
        let used: Vec<u32> =
            (0..setup.rows() as u32).filter(|&row| machine.coefficients[row as usize] != 0.0).collect();
        let coefficients = used.iter().map(|&row| machine.coefficients[row as usize]).collect();
        let costs = used.iter().map(|&row| setup.costs()[row as usize]).collect();
        let expansion = Expansion::linear(weights, used, coefficients, Layout::Full, vec![machine.bias], dims)?;
        let record = Record::new(setup, proven, seconds, 0);
        Ok(Self::new(recipe, Scheme::One, expansion, costs, vec![record], setup.rows()))
    }

    /// The model of several binary machines over the (scaled) training points: those of all pairs of classes, or one per class.
    /// `gather` gives the points of listed rows, `dims` is their number of features, `codes` holds the class of each row and `costs`
    /// its cost.
    pub fn several(
        recipe: Recipe,
        kernel: crate::kernel::Kernel,
        gather: impl FnOnce(&[u32]) -> Result<Points>,
        dims: usize,
        scheme: Scheme,
        codes: &[u32],
        costs: &[f64],
        columns: Vec<Column>,
    ) -> Result<Self> {
        let Stacked { rows, coefficients, layout, bias } = stack(recipe.labels.len(), scheme, codes, &columns)?;
        check_len("costs of the rows", codes.len(), costs.len())?;
        let centres = match kernel {
            crate::kernel::Kernel::Precomputed => Points::dense_f64(rows.len(), 0, vec![])?,
            _ => gather(&rows)?,
        };
        let costs = rows.iter().map(|&row| costs[row as usize]).collect();
        let expansion = Expansion::with_layout(kernel, centres, rows, coefficients, layout, bias, dims)?;
        let records = columns.into_iter().map(|column| column.record).collect();
        Ok(Self::new(recipe, scheme, expansion, costs, records, codes.len()))
    }

    /// The same of linear machines: `weights` holds w of each, `dims × k` row-major, and the columns their dual points.
    pub fn several_linear(
        recipe: Recipe,
        weights: Vec<f64>,
        dims: usize,
        scheme: Scheme,
        codes: &[u32],
        costs: &[f64],
        columns: Vec<Column>,
    ) -> Result<Self> {
        let Stacked { rows, coefficients, layout, bias } = stack(recipe.labels.len(), scheme, codes, &columns)?;
        check_len("costs of the rows", codes.len(), costs.len())?;
        let costs = rows.iter().map(|&row| costs[row as usize]).collect();
        let expansion = Expansion::linear(weights, rows, coefficients, layout, bias, dims)?;
        let records = columns.into_iter().map(|column| column.record).collect();
        Ok(Self::new(recipe, scheme, expansion, costs, records, codes.len()))
    }

    /// The machine of Crammer and Singer: `weights` d × k and `alpha` n × k, row-major, `costs` one per row.
    pub fn crammer_singer(
        recipe: Recipe,
        weights: Vec<f64>,
        dims: usize,
        alpha: &[f64],
        costs: &[f64],
        bias: Vec<f64>,
        record: Record,
    ) -> Result<Self> {
        let (n, k) = (costs.len(), bias.len());
        check_len("classes of the model", recipe.labels.len(), k)?;
        check_len("coefficients of the model", n.saturating_mul(k), alpha.len())?;
        let own = |row: u32| &alpha[row as usize * k..(row as usize + 1) * k];
        let rows: Vec<u32> = (0..n as u32).filter(|&row| own(row).iter().any(|a| *a != 0.0)).collect();
        let coefficients = rows.iter().flat_map(|&row| own(row)).copied().collect();
        let kept = rows.iter().map(|&row| costs[row as usize]).collect();
        let expansion = Expansion::linear(weights, rows, coefficients, Layout::Full, bias, dims)?;
        Ok(Self::new(recipe, Scheme::CrammerSinger, expansion, kept, vec![record], n))
    }

    /// The model of several targets, one regression each over the same (scaled) training points: `coefficients` n × k
    /// row-major, `costs` one per row. `weights` (dims × k) if the kernel is linear: then no centres are kept.
    pub fn outputs(
        recipe: Recipe,
        kernel: crate::kernel::Kernel,
        points: &Points,
        coefficients: &[f64],
        weights: Option<Vec<f64>>,
        bias: Vec<f64>,
        costs: &[f64],
        records: Vec<Record>,
    ) -> Result<Self> {
        let (n, k) = (points.len(), bias.len());
        check_len("coefficients of the training rows", n.saturating_mul(k), coefficients.len())?;
        check_len("costs of the rows", n, costs.len())?;
        check_len("records of the outputs", k, records.len())?;
        let expansion = match weights {
            None => Expansion::of_training(kernel, points, coefficients, bias)?,
            Some(weights) => {
                let own = |row: u32| &coefficients[row as usize * k..(row as usize + 1) * k];
                let rows: Vec<u32> = (0..n as u32).filter(|&row| own(row).iter().any(|c| *c != 0.0)).collect();
                let kept = rows.iter().flat_map(|&row| own(row)).copied().collect();
                Expansion::linear(weights, rows, kept, Layout::Full, bias, points.dims())?
            }
        };
        let kept = expansion.rows().iter().map(|&row| costs[row as usize]).collect();
        Ok(Self::new(recipe, Scheme::Outputs, expansion, kept, records, n))
    }

    /// A model from its parameters, its expansion (over scaled features), the cost of each centre, one record per machine, and
    /// the number of training rows. It has no calibration.
    pub fn new(
        recipe: Recipe,
        scheme: Scheme,
        expansion: Expansion,
        costs: Vec<f64>,
        machines: Vec<Record>,
        n: usize,
    ) -> Self {
        let Recipe {
            task,
            formulation,
            loss,
            free_bias,
            penalty,
            intercept_scaling,
            labels,
            class_weights,
            scaling,
            schema,
            solver,
        } = recipe;
        Self {
            task,
            formulation,
            loss,
            free_bias,
            penalty,
            intercept_scaling,
            labels,
            scheme,
            class_weights,
            scaling,
            schema,
            expansion,
            costs,
            machines,
            solver,
            n,
            calibration: None,
            threshold: None,
            dual: Vec::new(),
        }
    }

    /// The scores of every point, `n × k` row-major: f(x) + b, for SVDD half of R² − ‖φ(x) − a‖². Features as in the training
    /// file; scaling is applied here.
    pub fn scores(&self, points: &Points, precision: Precision, control: &Control) -> Result<Vec<f64>> {
        let scaled;
        let points = match &self.scaling {
            Some(scaling) => {
                scaled = scaling.apply(&points.clone().widen(scaling.factor.len()))?;
                &scaled
            }
            None => points,
        };
        let mut scores = self.expansion.scores(points, precision, control)?;
        if matches!(self.formulation, Formulation::Svdd { .. }) {
            let diagonal = self.expansion.diagonal(points)?;
            scores.iter_mut().zip(diagonal).for_each(|(z, k)| *z -= 0.5 * k);
        }
        Ok(scores)
    }

    /// How far the scores of points can be from those of the exact machine, n × outputs: √(2·gap·k(x, x)) plus the distance of
    /// the bias. `None` unless every machine is on few centres and was compared with the exact problem. Features as in
    /// [`scores`](Self::scores).
    pub fn score_bounds(&self, points: &Points) -> Result<Option<Vec<f64>>> {
        let radius = |record: &Record| {
            let o = record.certificate.optimality()?;
            let distance = o.approximation()?.bias_distance;
            (distance < f64::MAX && o.gap() < f64::MAX).then(|| ((2.0 * o.gap()).sqrt(), distance))
        };
        let Some(radii) = self.machines.iter().map(radius).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let scaled;
        let points = match &self.scaling {
            Some(scaling) => {
                scaled = scaling.apply(&points.clone().widen(scaling.factor.len()))?;
                &scaled
            }
            None => points,
        };
        let sizes = self.expansion.diagonal(points)?;
        let of = |k: f64| radii.iter().map(move |(radius, distance)| radius * k.max(0.0).sqrt() + distance);
        Ok(Some(sizes.into_iter().flat_map(of).collect()))
    }

    /// Two classes: the score above which the second is predicted; 0 unless a threshold was chosen.
    pub fn cut(&self) -> f64 {
        self.threshold.as_ref().map_or(0.0, |threshold| threshold.score)
    }

    /// The predictions that follow from scores, n × outputs.
    pub fn decide(&self, scores: &[f64]) -> Prediction {
        let k = self.expansion.outputs();
        match (self.task, self.scheme) {
            (Task::Classify, Scheme::One) => {
                let cut = self.cut();
                Prediction::Labels(scores.iter().map(|z| u32::from(*z > cut)).collect())
            }
            (Task::Classify, Scheme::OneVsOne) => {
                let classes = self.labels.len();
                let mut scratch = vec![0; classes];
                let winner = |z: &[f64]| multi::by_votes(classes, z, &mut scratch);
                Prediction::Labels(scores.chunks_exact(k).map(winner).collect())
            }
            (Task::Classify, Scheme::OneVsRest | Scheme::CrammerSinger | Scheme::Outputs) => {
                Prediction::Labels(scores.chunks_exact(k).map(multi::by_score).collect())
            }
            (Task::Regress, _) => Prediction::Values(scores.to_vec()),
            (Task::Novelty, _) => Prediction::Inside(scores.iter().map(|z| *z >= 0.0).collect()),
        }
    }

    /// Computes scores and predictions. With many outputs rows are processed in blocks, to bound the memory.
    pub fn predict(&self, points: &Points, precision: Precision, control: &Control) -> Result<Prediction> {
        let at_once = ((1 << 23) / self.expansion.outputs()).max(1);
        if points.len() <= at_once || self.scheme == Scheme::One {
            return Ok(self.decide(&self.scores(points, precision, control)?));
        }
        let (mut labels, mut values) = (Vec::new(), Vec::new());
        for from in (0..points.len()).step_by(at_once) {
            let rows: Vec<u32> = (from as u32..(from + at_once).min(points.len()) as u32).collect();
            match self.decide(&self.scores(&points.gather(&rows), precision, control)?) {
                Prediction::Labels(part) => labels.extend(part),
                Prediction::Values(part) => values.extend(part),
                // A single output: handled above.
                Prediction::Inside(_) => {}
            }
        }
        Ok(if self.task == Task::Classify { Prediction::Labels(labels) } else { Prediction::Values(values) })
    }

    /// The machine of one output over all training rows.
    pub fn machine(&self, output: usize) -> Machine {
        let (rho, tube) = self.machines.get(output).map_or((1.0, None), |record| (record.rho, record.tube));
        let mut coefficients = vec![0.0; self.n];
        for (&row, value) in self.expansion.rows().iter().zip(self.expansion.column(output)) {
            coefficients[row as usize] = value;
        }
        Machine { coefficients, bias: self.expansion.bias()[output], rho, tube }
    }

    /// The machine of one output over some of the training rows.
    pub fn machine_over(&self, output: usize, rows: &[u32]) -> Machine {
        let whole = self.machine(output);
        Machine { coefficients: rows.iter().map(|&row| whole.coefficients[row as usize]).collect(), ..whole }
    }

    /// β and biases of a binary model as the solution of `setup`: to resume from it.
    pub fn solution(&self, setup: &Setup) -> Result<(Vec<f64>, Vec<f64>)> {
        check_len("number of training rows", self.n, setup.rows())?;
        Ok(setup.solution(&self.machine(0)))
    }

    /// An independent certificate of a binary model: K·β is recomputed in double precision.
    pub fn certify(&self, setup: &Setup, gram: &dyn Gram, control: &Control) -> Result<Certificate> {
        check_len("number of training rows", self.n, setup.rows())?;
        crate::train::certify_machine(setup, gram, &self.machine(0), control)
    }
}

/// Combines columns into a matrix over the rows that at least one of them uses.
struct Stacked {
    rows: Vec<u32>,
    coefficients: Vec<f64>,
    layout: Layout,
    bias: Vec<f64>,
}

fn stack(classes: usize, scheme: Scheme, codes: &[u32], columns: &[Column]) -> Result<Stacked> {
    check_len("machines of the model", scheme.machines(classes), columns.len())?;
    let n = codes.len();
    let mut used = vec![false; n];
    for column in columns {
        column.rows.iter().for_each(|&row| used[row as usize] = true);
    }
    let rows: Vec<u32> = (0..n as u32).filter(|&row| used[row as usize]).collect();
    let mut place = vec![0; n];
    rows.iter().enumerate().for_each(|(at, &row)| place[row as usize] = at);
    let (layout, stride) = match scheme {
        Scheme::OneVsOne => {
            let class_of = rows.iter().map(|&row| codes[row as usize]).collect();
            (Layout::Pairs { classes, class_of }, classes - 1)
        }
        Scheme::One | Scheme::OneVsRest | Scheme::CrammerSinger | Scheme::Outputs => (Layout::Full, columns.len()),
    };
    let mut coefficients = vec![0.0; rows.len() * stride];
    let mut put = |column: &Column, slot: &dyn Fn(u32) -> usize| {
        for (&row, value) in column.rows.iter().zip(&column.coefficients) {
            coefficients[place[row as usize] * stride + slot(row)] = *value;
        }
    };
    match scheme {
        Scheme::OneVsOne => {
            for (column, (i, j)) in columns.iter().zip(pairs(classes)) {
                put(column, &|row| if codes[row as usize] as usize == i { j - 1 } else { i });
            }
        }
        Scheme::One | Scheme::OneVsRest | Scheme::CrammerSinger | Scheme::Outputs => {
            columns.iter().enumerate().for_each(|(output, column)| put(column, &|_| output));
        }
    }
    let bias = columns.iter().map(|column| column.bias).collect();
    Ok(Stacked { rows, coefficients, layout, bias })
}
