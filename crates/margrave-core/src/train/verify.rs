//! The independent certificate of a stored model.

use std::sync::Arc;

use super::approximate_space::ApproximateSpace;
use super::classes::parts;
use super::crammer_singer;
use super::kernel_space::KernelSpace;
use super::linear_space::LinearSpace;
use super::options::{Approx, TrainOptions};
use super::prepared::{Prepared, check_same_rows};
use super::proof::ProofOnCentres;
use super::space::Space;
use crate::backend::RowSource;
use crate::certificate::{Certificate, TailCheck};
use crate::compose::{Part, run};
use crate::conflict::OptionName;
use crate::control::Control;
use crate::data::{Dataset, Points, Targets};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::loss::{Hinge, Loss, LossSpec};
use crate::model::{Model, Scheme};
use crate::observe::{Begin, Silent};
use crate::problem::{ClassWeight, Formulation, Penalty, Setup, Task};

/// Certifies `model` on its training data: the scores are recomputed in double precision, and the certificate stored in the
/// model is not used. `cost` replaces the C the model was trained with.
///
/// Fails if the data is not the data the model was trained on.
///
/// One certificate per binary machine or target.
pub fn verify(model: &Model, data: &Dataset, cost: Option<f64>, control: &Control) -> Result<Vec<Certificate>> {
    let points = match &model.scaling {
        Some(scaling) => scaling.apply(&data.points.clone().widen(scaling.factor.len()))?,
        None => data.points.clone().widen(model.expansion.width()),
    };
    check_same_rows(model, &points)?;
    certify_all(model, data, points, cost, control)
}

/// The certificates of a model whose centres are known to be rows of `points`, the (scaled) points of `data`.
pub fn certify_all(
    model: &Model,
    data: &Dataset,
    points: Points,
    cost: Option<f64>,
    control: &Control,
) -> Result<Vec<Certificate>> {
    let formulation = match (model.formulation, cost) {
        (Formulation::Cost { .. }, Some(c)) => Formulation::Cost { c },
        (Formulation::Nu { nu, .. }, Some(c)) => Formulation::Nu { nu, c },
        (same, _) => same,
    };
    let loss: Arc<dyn Loss> = match (&model.loss, formulation) {
        (Some(spec), _) => LossSpec::build(spec)?,
        (None, Formulation::Cost { .. }) => {
            return Err(Error::data("the model was trained with a user's own loss, which the file cannot hold"));
        }
        // ν-machines define their own loss; this one is not used.
        (None, _) => Arc::new(Hinge),
    };
    let prepared = prepared(model, data, points)?;
    if model.scheme == Scheme::CrammerSinger {
        return Ok(vec![crammer_singer::verify(model, &prepared, formulation, control)?]);
    }
    // Only linear machines have these options; `is_weights` alone misses models without features.
    let linear = model.intercept_scaling.is_some() || model.penalty == Penalty::L1 || model.expansion.is_weights();
    let approximate = !model.dual.is_empty() || model.solver == "nystrom";
    let space: Box<dyn Space> = match linear && *model.expansion.kernel() == Kernel::Linear {
        true => Box::new(LinearSpace::new(&prepared.points, None, control)),
        false if approximate => {
            let options = TrainOptions::new(model.task);
            let kernel = *model.expansion.kernel();
            let source = RowSource::Memory(prepared.points.clone());
            Box::new(ApproximateSpace::new(kernel, source, Approx::Auto, &options, control)?)
        }
        false => Box::new(KernelSpace::new(*model.expansion.kernel(), &prepared.points, control)?),
    };
    let parts = machines(model, &prepared);
    let sizes: Vec<u64> = parts.iter().map(|part| space.work(part.rows.len())).collect();
    let begin = Begin { solver: "certify", n: prepared.points.len(), tol: None, gap: None };
    run(&sizes, &begin, control, &mut Silent, |at, control, _| {
        let Part { rows, targets } = &parts[at];
        let own = space.restrict(rows, control);
        let weights = prepared.weights_of(rows);
        let setup = prepared.setup(
            model.task,
            formulation,
            &loss,
            model.free_bias,
            own.as_ref(),
            targets,
            weights.as_deref(),
        )?;
        let certificate = own.certify(model, at, &model.machine_over(at, rows), &setup, control)?;
        Ok(certificate.with_rows(rows))
    })
}

/// A function in the span of given points, which need not be rows of any data: f(x) = Σⱼ aⱼ·k(sⱼ, x) + b.
#[derive(Debug, Clone)]
pub struct GivenMachine {
    /// The kernel, positive semi-definite.
    pub kernel: Kernel,
    /// The points s.
    pub centres: Points,
    /// a, one per point.
    pub coefficients: Vec<f64>,
    /// b; `None`: the problem has no bias.
    pub bias: Option<f64>,
}

/// Certifies a function from anywhere, such as another program, as a solution of ½‖f‖² + C·Σℓ on `data`: two classes if
/// the loss is one of classification, numbers otherwise. Its dual point is made from its scores.
pub fn verify_given(
    machine: &GivenMachine,
    data: &Dataset,
    loss: &LossSpec,
    cost: f64,
    check: TailCheck,
    control: &Control,
) -> Result<Certificate> {
    let loss = loss.build()?;
    let GivenMachine { kernel, centres, coefficients, bias } = machine;
    if !kernel.is_definite() || !loss.properties().convex {
        return Err(Error::data("nothing is proven without a positive semi-definite kernel and a convex loss"));
    }
    if coefficients.len() != centres.len() || centres.is_empty() {
        return Err(Error::data("the model needs a coefficient for each centre, and at least one centre"));
    }
    let width = data.points.dims().max(centres.dims());
    if !data.points.is_sparse() && data.points.dims() != centres.dims() {
        let (d, own) = (data.points.dims(), centres.dims());
        return Err(Error::data(format!("the data has {d} features, and the centres of the model have {own}")));
    }
    let (points, centres) = (data.points.clone().widen(width), centres.clone().widen(width));
    let task = if loss.properties().classification { Task::Classify } else { Task::Regress };
    let prepared = Prepared::new(task, data, points, &ClassWeight::Equal, None)?;
    if task == Task::Classify && prepared.labels.len() != 2 {
        let k = prepared.labels.len();
        return Err(Error::data(format!("the model separates two classes, and the data has {k}")));
    }
    let formulation = Formulation::Cost { c: cost };
    let gram = control.backend().square_gram(*kernel, &prepared.points)?;
    let (targets, weights) = (prepared.targets.as_slice(), prepared.weights.as_deref());
    let setup = Setup::new(task, formulation, targets, weights, loss, bias.is_some(), || gram.diag())?;
    let source = RowSource::Memory(prepared.points.clone());
    let proof = ProofOnCentres {
        kernel: *kernel,
        source: &source,
        gram: gram.as_ref(),
        rows: &[],
        centres: &centres,
        check,
        seed: 0,
        enough: 1e-4,
    };
    let bias: Vec<f64> = bias.iter().copied().collect();
    proof.certify(&setup, coefficients, &bias, None, control)
}

/// The data as it was prepared for training the model.
fn prepared(model: &Model, data: &Dataset, points: Points) -> Result<Prepared> {
    if model.scheme == Scheme::Outputs {
        let k = model.expansion.outputs();
        let found = match &data.targets {
            Targets::Several { outputs, values } if *outputs == k => return Prepared::outputs(data, points, values),
            Targets::Several { outputs, .. } => *outputs,
            _ => 1,
        };
        return Err(Error::data(format!(
            "the model predicts {k} numbers, and the data has {found} target{}: name those it was trained on with {}",
            if found == 1 { "" } else { "s" },
            OptionName::Target.at("a,b,…")
        )));
    }
    let known = Some((model.labels.as_slice(), model.class_weights.as_slice()));
    let mut prepared = Prepared::new(model.task, data, points, &ClassWeight::Equal, known)?;
    // ν may have been lowered in training; a model of another ν is not certified as optimal here.
    prepared.lower_nu = true;
    Ok(prepared)
}

/// The rows and targets of every machine of a model.
fn machines(model: &Model, prepared: &Prepared) -> Vec<Part> {
    let n = prepared.points.len();
    let all = || (0..n as u32).collect::<Vec<u32>>();
    match model.scheme {
        Scheme::OneVsOne | Scheme::OneVsRest => parts(model.scheme, prepared.labels.len(), &prepared.codes()),
        Scheme::Outputs => {
            let k = model.expansion.outputs();
            let column = |at: usize| prepared.targets.iter().skip(at).step_by(k).copied().collect();
            (0..k).map(|at| Part { rows: all(), targets: column(at) }).collect()
        }
        Scheme::One | Scheme::CrammerSinger => vec![Part { rows: all(), targets: prepared.targets.clone() }],
    }
}
