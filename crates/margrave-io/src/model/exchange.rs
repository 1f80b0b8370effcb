//! Conversion between LIBSVM models and native models.
//!
//! Signs: LIBSVM's decision value of a pair is positive for its *first* label, ours for the second. For two classes the
//! labels are exchanged; for several the decision values change sign.

use margrave_core::certificate::Certificate;
use margrave_core::conflict::OptionName;
use margrave_core::data::{Label, Points};
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::model::{
    Calibration, Expansion, Layout, Model, Origin, Reason, Recipe, Record, Rule, SHARES, Scheme, Sigmoid, pair_output,
    pairs,
};
use margrave_core::problem::{Formulation, Task};
use margrave_core::{Error, Result, Status};

use super::libsvm::{LibsvmKind, LibsvmModel};

/// Assumptions about the training of a model whose file does not record it.
#[derive(Debug, Clone)]
pub struct Training {
    /// Row of each centre in the training data.
    pub rows: Vec<u32>,
    /// Rows of the training data.
    pub n: usize,
    /// Costs.
    pub formulation: Formulation,
    /// The loss.
    pub loss: Option<LossSpec>,
    /// Number of features, or of training rows with a precomputed kernel.
    pub width: usize,
}

/// The record of a model that was not checked.
pub(super) fn unknown_record(coefficients: &[f64]) -> Record {
    Record {
        certificate: Certificate::Unknown,
        status: Status::Inaccurate,
        iterations: 0,
        seconds: 0.0,
        kernel_entries: 0,
        support_vectors: coefficients.iter().filter(|c| **c != 0.0).count(),
        bounded: 0,
        rho: 1.0,
        tube: None,
    }
}

impl LibsvmModel {
    /// The task.
    pub fn task(&self) -> Task {
        match self.kind {
            LibsvmKind::CSvc | LibsvmKind::NuSvc => Task::Classify,
            LibsvmKind::OneClass => Task::Novelty,
            LibsvmKind::EpsilonSvr | LibsvmKind::NuSvr => Task::Regress,
        }
    }

    /// What the file alone implies about the training: centres are numbered as rows in their order, and C is the
    /// largest coefficient. `width` is the number of columns of the data with a precomputed kernel.
    pub fn training(&self, width: Option<usize>) -> Training {
        let m = self.centres.len();
        let largest = self.coefficients.iter().fold(0.0f64, |a, c| a.max(c.abs()));
        let c = if largest > 0.0 { largest } else { 1.0 };
        let (rows, n, features): (Vec<u32>, usize, usize) = if self.kernel == Kernel::Precomputed {
            let last = self.serials.iter().max().map_or(0, |s| *s as usize);
            let width = width.unwrap_or(last).max(last);
            (self.serials.iter().map(|s| s - 1).collect(), width, width)
        } else {
            ((0..m as u32).collect(), m, self.centres.dims())
        };
        let nu = 0.5;
        let formulation = match self.kind {
            LibsvmKind::CSvc | LibsvmKind::EpsilonSvr => Formulation::Cost { c },
            LibsvmKind::NuSvc | LibsvmKind::NuSvr => Formulation::Nu { nu, c },
            LibsvmKind::OneClass => Formulation::OneClass { nu },
        };
        let loss = match self.kind {
            LibsvmKind::CSvc => Some(LossSpec::Hinge),
            LibsvmKind::EpsilonSvr => Some(LossSpec::Epsilon { epsilon: 0.1 }),
            _ => None,
        };
        Training { rows, n, formulation, loss, width: features }
    }

    /// Converts to a native model. Its records contain no certificate: verify it with the training data.
    pub fn to_model(&self, training: Training) -> Result<Model> {
        let classes = self.labels.len();
        let Training { rows, n, formulation, loss, width } = training;
        let (scheme, labels, layout, sign) = match self.labels.as_slice() {
            [] => (Scheme::One, vec![], Layout::Full, 1.0),
            [first, second] => (Scheme::One, vec![second.clone(), first.clone()], Layout::Full, 1.0),
            several => {
                let layout = Layout::Pairs { classes, class_of: self.class_of() };
                (Scheme::OneVsOne, several.to_vec(), layout, -1.0)
            }
        };
        let coefficients: Vec<f64> = self.coefficients.iter().map(|c| sign * c).collect();
        let bias: Vec<f64> = self.rho.iter().map(|rho| -sign * rho).collect();
        let cost = match formulation {
            Formulation::Cost { c } => c,
            _ => 1.0,
        };
        let calibration = self.calibration(sign);
        let centres = if self.kernel == Kernel::Precomputed {
            Points::dense_f64(rows.len(), 0, vec![])?
        } else {
            self.centres.clone().widen(width)
        };
        let m = centres.len();
        super::check_size(&self.kernel, width, bias.len())?;
        let expansion = Expansion::with_layout(self.kernel, centres, rows, coefficients, layout, bias, width)?;
        let machines = (0..expansion.outputs()).map(|output| unknown_record(&expansion.column(output))).collect();
        let recipe = Recipe {
            task: self.task(),
            formulation,
            loss,
            free_bias: true,
            penalty: margrave_core::problem::Penalty::L2,
            intercept_scaling: None,
            labels,
            class_weights: vec![],
            scaling: None,
            schema: None,
            solver: "libsvm".into(),
        };
        let mut model = Model::new(recipe, scheme, expansion, vec![cost; m], machines, n);
        model.calibration = calibration;
        Ok(model)
    }

    fn calibration(&self, sign: f64) -> Option<Calibration> {
        if self.prob_a.is_empty() {
            return None;
        }
        if self.kind.regresses() {
            let sigma = self.prob_a[0];
            // P(|r| ≤ x) = 1 − exp(−x/σ) for a Laplace distribution.
            let radii = SHARES.iter().map(|&share| (share, -sigma * (1.0 - share).ln())).collect();
            return Some(Calibration::Residuals { sigma, radii, origin: Origin::Unknown });
        }
        if self.prob_b.len() != self.prob_a.len() {
            return None;
        }
        let sigmoids: Vec<Sigmoid> =
            self.prob_a.iter().zip(&self.prob_b).map(|(&a, b)| Sigmoid { a, below: a, b: sign * b }).collect();
        // LIBSVM's own offsets are free; with 0 in all of them ½ is on the boundary.
        let rule = if self.prob_b.iter().all(|b| *b == 0.0) { Rule::Agree } else { Rule::Free };
        Some(Calibration::of_sigmoids(&sigmoids, Origin::Unknown, rule, Reason::Unknown))
    }

    /// Converts a native model to LIBSVM's format. `order`: the labels in the desired order; by default sorted, but +1
    /// before −1. Fails for models that LIBSVM's format cannot represent; the error says what to do.
    pub fn from_model(model: &Model, order: Option<&[Label]>) -> Result<Self> {
        if model.scheme == Scheme::Outputs {
            return Err(Error::data(format!(
                "LIBSVM's format holds one number to predict, and this model has several: use onnx, or train one at a time with {}",
                OptionName::Target
            )));
        }
        if let Some(w) = model.expansion.weights().filter(|_| model.expansion.is_weights()) {
            if model.scheme != Scheme::One {
                return Err(Error::data(format!(
                    "LIBSVM's format needs the support vectors of several classes, and this model holds weights alone: train with {} and {}, or use onnx",
                    OptionName::Solver.at("decomposition"),
                    OptionName::Multiclass.at("ovo")
                )));
            }
            // One centre, which is w.
            let f = &model.expansion;
            let centre = Points::dense_f64(1, f.width(), w.to_vec())?;
            let expansion = Expansion::new(Kernel::Linear, centre, vec![0], vec![1.0], f.bias().to_vec(), f.width())?;
            let mut by_weights = model.clone();
            by_weights.expansion = expansion;
            return Self::from_model(&by_weights, order);
        }
        check_probabilities(model)?;
        let (kind, shift) = exported_kind(model)?;
        if model.task == Task::Classify {
            return Self::classifier(model, kind, order);
        }
        let f = &model.expansion;
        let all: Vec<usize> = (0..f.len()).collect();
        let prob_a = match &model.calibration {
            Some(Calibration::Residuals { sigma, .. }) => vec![*sigma],
            _ => vec![],
        };
        Ok(Self {
            kind,
            kernel: *f.kernel(),
            labels: vec![],
            rho: vec![shift - f.bias()[0]],
            prob_a,
            prob_b: vec![],
            density_marks: vec![],
            counts: vec![],
            coefficients: f.column(0),
            centres: centres_of(f, &all),
            serials: serials_of(f, &all),
        })
    }

    /// The LIBSVM model of a native classifier given by centres.
    fn classifier(model: &Model, kind: LibsvmKind, order: Option<&[Label]>) -> Result<Self> {
        let f = &model.expansion;
        let order = label_order(model, order)?;
        let labels = order.iter().map(|&at| model.labels[at].clone()).collect();
        let classes = order.len();
        let class_of: Vec<usize> = match (model.scheme, f.layout()) {
            (Scheme::OneVsOne, Layout::Pairs { class_of, .. }) => class_of.iter().map(|&c| c as usize).collect(),
            // With two classes only the totals of the groups matter: the sign decides the class.
            (Scheme::One, _) => f.coefficients().iter().map(|c| usize::from(*c > 0.0)).collect(),
            _ => {
                return Err(Error::data(format!(
                    "LIBSVM has no one-vs-rest models: train with {}, or use onnx",
                    OptionName::Multiclass.at("ovo")
                )));
            }
        };
        let mut rows: Vec<usize> = Vec::with_capacity(f.len());
        for &class in &order {
            rows.extend((0..f.len()).filter(|&at| class_of[at] == class));
        }
        let counts = order.iter().map(|&class| class_of.iter().filter(|&&c| c == class).count()).collect();
        // The native pair of two labels, and whether its score is LIBSVM's decision value or its negative.
        let ours = |first: usize, second: usize| {
            let (a, b) = (order[first], order[second]);
            (pair_output(classes, a.min(b), a.max(b)), if a > b { 1.0 } else { -1.0 })
        };
        let mut place = vec![0; classes];
        order.iter().enumerate().for_each(|(at, &class)| place[class] = at);
        let columns: Vec<Vec<f64>> = (0..f.outputs()).map(|output| f.column(output)).collect();
        let mut coefficients = Vec::with_capacity(rows.len() * (classes - 1));
        for &at in &rows {
            let own = place[class_of[at]];
            for other in (0..classes).filter(|&other| other != own) {
                let (output, sign) = ours(own.min(other), own.max(other));
                coefficients.push(sign * columns[output][at]);
            }
        }
        let (mut rho, mut prob_a, mut prob_b) = (Vec::new(), Vec::new(), Vec::new());
        for (first, second) in pairs(classes) {
            let (output, sign) = ours(first, second);
            rho.push(-sign * f.bias()[output]);
            if let Some(Calibration::Sigmoid { a, b, .. }) = &model.calibration {
                prob_a.push(a[output]);
                prob_b.push(sign * b[output]);
            }
        }
        let (centres, serials) = (centres_of(f, &rows), serials_of(f, &rows));
        Ok(Self {
            kind,
            kernel: *f.kernel(),
            labels,
            rho,
            prob_a,
            prob_b,
            density_marks: vec![],
            counts,
            coefficients,
            centres,
            serials,
        })
    }
}

/// Fails for sigmoids and thresholds that LIBSVM's format has no place for.
fn check_probabilities(model: &Model) -> Result<()> {
    if model.threshold.is_some() {
        return Err(Error::data(format!(
            "LIBSVM's models predict at a score of 0, and this one has a threshold of its own: use onnx, or train without {}",
            OptionName::Threshold
        )));
    }
    match &model.calibration {
        Some(Calibration::Sigmoid { below, .. }) if !below.is_empty() => Err(Error::data(format!(
            "LIBSVM's sigmoid has one slope, and the probabilities of this model have one on each side of the boundary: train with {}, or use onnx",
            OptionName::ProbabilityRule.at("free")
        ))),
        _ => Ok(()),
    }
}

/// The LIBSVM type of a native model, and what its decision value is shifted by. Fails for models that LIBSVM's format
/// cannot represent.
fn exported_kind(model: &Model) -> Result<(LibsvmKind, f64)> {
    let f = &model.expansion;
    match f.kernel() {
        Kernel::Linear | Kernel::Poly { .. } | Kernel::Rbf { .. } | Kernel::Sigmoid { .. } | Kernel::Precomputed => {}
        other => {
            return Err(Error::data(format!(
                "LIBSVM has no {} kernel: keep the native format, or train with rbf",
                other.name()
            )));
        }
    }
    if model.scaling.is_some() {
        return Err(Error::data(
            "a LIBSVM model cannot hold the scaling: scale the data with 'margrave scale' and train on that, or use onnx",
        ));
    }
    let mut shift = 0.0;
    let kind = match (model.task, model.formulation) {
        (Task::Classify, Formulation::Nu { .. }) => LibsvmKind::NuSvc,
        (Task::Classify, _) => LibsvmKind::CSvc,
        (Task::Regress, Formulation::Nu { .. }) => LibsvmKind::NuSvr,
        (Task::Regress, _) => LibsvmKind::EpsilonSvr,
        (Task::Novelty, Formulation::Svdd { .. }) if f.kernel().unit_diagonal() => {
            shift = 0.5;
            LibsvmKind::OneClass
        }
        (Task::Novelty, Formulation::Svdd { .. }) => {
            return Err(Error::data("LIBSVM has no smallest ball, and with this kernel it is not a one-class model"));
        }
        (Task::Novelty, _) => LibsvmKind::OneClass,
    };
    Ok((kind, shift))
}

/// With a precomputed kernel, the serials (from 1) of the centres `at`; otherwise empty.
fn serials_of(f: &Expansion, at: &[usize]) -> Vec<u32> {
    match f.kernel() {
        Kernel::Precomputed => at.iter().map(|&at| f.rows()[at] + 1).collect(),
        _ => vec![],
    }
}

/// The centres `at`, in that order.
fn centres_of(f: &Expansion, at: &[usize]) -> Points {
    f.centres().gather(&at.iter().map(|&at| at as u32).collect::<Vec<_>>())
}

/// The positions of a model's labels in the desired order. LIBSVM's labels are integers.
fn label_order(model: &Model, order: Option<&[Label]>) -> Result<Vec<usize>> {
    for label in &model.labels {
        match label {
            Label::Number(v) if v.fract() == 0.0 && v.abs() <= f64::from(i32::MAX) => {}
            other => {
                return Err(Error::data(format!(
                    "LIBSVM's labels are whole numbers, and the model has {other}: keep the native format, or use onnx"
                )));
            }
        }
    }
    match order {
        Some(order) => order
            .iter()
            .map(|label| {
                let place = model.labels.iter().position(|known| known == label);
                place.ok_or_else(|| Error::data(format!("the model has no label {label}")))
            })
            .collect(),
        None if model.labels == [Label::Number(-1.0), Label::Number(1.0)] => Ok(vec![1, 0]),
        None => Ok((0..model.labels.len()).collect()),
    }
}
