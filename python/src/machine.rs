//! A fitted machine from its arrays: for prediction and for writing model files.

use margrave::engine::certificate::Certificate;
use margrave::engine::data::{Label, Points};
use margrave::engine::gram::Precision;
use margrave::engine::kernel::Kernel;
use margrave::engine::model::{
    Calibration, Expansion, Layout, Model, Origin, Prediction, Reason, Recipe, Record, Rule, Scheme, Threshold, multi,
};
use margrave::engine::problem::{Penalty, Task};
use margrave::{Control, Error, Status};
use numpy::{PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::data::{PyPoints, Vector, matrix, vector};
use crate::errors::raise;
use crate::params::Params;
use crate::supervise::supervise;

/// The arrays of a fitted machine; every key is required.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Parts<'py> {
    /// The centres; nothing for a precomputed kernel.
    centres: Option<PyPoints>,
    /// Their rows in the training data.
    rows: PyReadonlyArray1<'py, i32>,
    /// Coefficients of each centre.
    coefficients: PyReadonlyArray2<'py, f64>,
    /// Class of each centre, where the machines are those of pairs of classes.
    class_of: Option<PyReadonlyArray1<'py, i32>>,
    /// One per output.
    bias: Vector<'py>,
    /// Labels; empty unless classifying.
    labels: Vec<PyLabel>,
    /// Number of features of a point; number of training rows for a precomputed kernel.
    width: usize,
    /// Rows of the training data.
    n: usize,
    /// Sigmoid of each machine.
    sigmoid_a: Option<Vector<'py>>,
    sigmoid_b: Option<Vector<'py>>,
    /// Slopes where scores are ≤ 0, if they are others.
    sigmoid_below: Option<Vector<'py>>,
    /// Whether probabilities agree with predictions: "agree" or "free".
    probability_rule: String,
    /// The threshold that was chosen: see `fit::threshold_parts`.
    threshold: Option<(f64, String, String, f64, f64)>,
    /// Scale of each ν-machine.
    rho: Option<Vector<'py>>,
    /// Weights of a linear machine without centres, one row per output.
    weights: Option<PyReadonlyArray2<'py, f64>>,
}

/// A label: a number or a text.
#[derive(FromPyObject)]
enum PyLabel {
    Number(f64),
    Text(String),
}

impl Parts<'_> {
    /// The model of these parts. Its records contain no proof.
    pub(crate) fn model(self, params: &Params) -> PyResult<Model> {
        let (task, kernel, formulation) = (params.task()?, params.kernel()?, params.formulation()?);
        let rows: Vec<u32> = self.rows.as_slice()?.iter().map(|&row| row as u32).collect();
        let m = rows.len();
        let centres = match self.centres {
            Some(points) if kernel != Kernel::Precomputed => points.0,
            _ => Points::dense_f64(m, 0, vec![]).map_err(raise)?,
        };
        let labels: Vec<Label> = self
            .labels
            .into_iter()
            .map(|label| match label {
                PyLabel::Number(v) => Label::Number(v),
                PyLabel::Text(s) => Label::Text(s),
            })
            .collect();
        let bias = self.bias.as_slice()?.to_vec();
        let classes = labels.len();
        let (layout, scheme) = match self.class_of {
            Some(class_of) => {
                let class_of = class_of.as_slice()?.iter().map(|&class| class as u32).collect();
                (Layout::Pairs { classes, class_of }, Scheme::OneVsOne)
            }
            None if bias.len() > 1 && task == Task::Regress => (Layout::Full, Scheme::Outputs),
            None if bias.len() > 1 => (Layout::Full, Scheme::OneVsRest),
            None => (Layout::Full, Scheme::One),
        };
        let coefficients = self.coefficients.as_slice()?.to_vec();
        let expansion = match &self.weights {
            Some(weights) => {
                let (weights, k, d) = (weights.as_slice()?, bias.len(), self.width);
                let by_feature = (0..d).flat_map(|j| (0..k).map(move |output| weights[output * d + j])).collect();
                Expansion::linear(by_feature, rows, coefficients, Layout::Full, bias, d)
            }
            None => Expansion::with_layout(kernel, centres, rows, coefficients, layout, bias, self.width),
        };
        let expansion = expansion.map_err(raise)?;
        let rho = self.rho.as_ref().map(|rho| rho.as_slice()).transpose()?;
        let machines = (0..expansion.outputs())
            .map(|output| Record {
                certificate: Certificate::Unknown,
                status: Status::Inaccurate,
                iterations: 0,
                seconds: 0.0,
                kernel_entries: 0,
                support_vectors: expansion.column(output).iter().filter(|c| **c != 0.0).count(),
                bounded: 0,
                rho: rho.and_then(|rho| rho.get(output)).copied().unwrap_or(1.0),
                tube: None,
            })
            .collect();
        let calibration = match (&self.sigmoid_a, &self.sigmoid_b) {
            (Some(a), Some(b)) => {
                let (a, b) = (a.as_slice()?.to_vec(), b.as_slice()?.to_vec());
                let below = match &self.sigmoid_below {
                    Some(below) => below.as_slice()?.to_vec(),
                    None => vec![],
                };
                let rule = if self.probability_rule == "free" { Rule::Free } else { Rule::Agree };
                let (origin, reason) = (Origin::LeaveOneOut, Reason::Unknown);
                Some(Calibration::Sigmoid { a, below, b, origin, rule, reason })
            }
            _ => None,
        };
        let cost = match formulation {
            margrave::engine::problem::Formulation::Cost { c } => c,
            _ => 1.0,
        };
        let loss = match formulation {
            margrave::engine::problem::Formulation::Cost { .. } => params.spec()?,
            _ => None,
        };
        let recipe = Recipe {
            task,
            formulation,
            loss,
            free_bias: params.bias,
            penalty: Penalty::default(),
            intercept_scaling: None,
            labels,
            class_weights: vec![],
            scaling: None,
            schema: None,
            solver: if params.on_centres() { "nystrom" } else { "margrave" }.into(),
        };
        let mut model = Model::new(recipe, scheme, expansion, vec![cost; m], machines, self.n);
        model.calibration = calibration;
        if let Some((score, rule, origin, precision, recall)) = self.threshold {
            let known = [Origin::LeaveOneOut, Origin::Folds];
            let origin = known.into_iter().find(|one| one.name() == origin).unwrap_or(Origin::Unknown);
            let rule = rule.parse().map_err(raise)?;
            model.threshold = Some(Threshold { score, rule, origin, precision, recall });
        }
        Ok(model)
    }
}

/// A fitted machine, ready to predict. It never changes: estimators keep it between calls, and threads may share it.
#[pyclass(frozen, module = "margrave._core")]
pub(crate) struct Machine {
    model: Model,
    /// Where to compute, as given.
    device: String,
}

#[pymethods]
impl Machine {
    #[new]
    fn new(params: Params, parts: Parts<'_>) -> PyResult<Self> {
        Ok(Self { model: parts.model(&params)?, device: params.device_name().to_owned() })
    }

    /// The scores of points, one column per output, on `threads` threads (0: all cores). `small`: on the calling thread.
    fn scores<'py>(
        &self,
        py: Python<'py>,
        x: PyPoints,
        threads: usize,
        small: bool,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (n, k) = (x.0.len(), self.model.expansion.outputs());
        let pool = crate::supervise::threads(threads);
        let device = crate::params::device(&self.device, &x.0)?;
        let ended = supervise(py, None, small && threads == 1, |cancel, _| {
            let control = Control::unlimited(pool).with_cancel(cancel).with_device(device);
            self.model.scores(&x.0, Precision::Double, &control)
        })?;
        crate::card::check(&x.0)?;
        match (ended.value, ended.interrupted) {
            (_, Some(error)) => Err(error),
            (Err(error), None) => Err(raise(error)),
            (Ok(values), None) => matrix(py, n, k, values),
        }
    }

    /// P of every class for each row of scores, by the sigmoids of the machines; the most probable class is the one predicted.
    fn probabilities<'py>(
        &self,
        py: Python<'py>,
        scores: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let model = &self.model;
        let values = scores.as_slice()?.to_vec();
        let classes = model.labels.len();
        let all = py.detach(|| match (model.task, model.decide(&values)) {
            (Task::Classify, Prediction::Labels(_)) => model.probabilities(&values),
            _ => None,
        });
        let all =
            all.ok_or_else(|| raise(Error::data("the machine has no probabilities: fit with probability=True")))?;
        matrix(py, all.len() / classes.max(1), classes, all)
    }
}

/// The class of each row of one-vs-one scores.
#[pyfunction]
pub(crate) fn votes<'py>(
    py: Python<'py>,
    classes: usize,
    scores: PyReadonlyArray2<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let pairs = classes * classes.saturating_sub(1) / 2;
    let values = scores.as_slice()?;
    if pairs == 0 || values.len() % pairs != 0 {
        return Err(raise(Error::data(format!("{classes} classes do not make these scores"))));
    }
    let mut scratch = vec![0; classes];
    let winners = values.chunks_exact(pairs).map(|z| i64::from(multi::by_votes(classes, z, &mut scratch)));
    Ok(vector(py, winners.collect()))
}
