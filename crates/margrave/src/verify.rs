//! The independent certificate of a stored model.

use std::sync::Arc;

use margrave_core::certificate::{Certificate, certify};
use margrave_core::data::{Dataset, Label};
use margrave_core::loss::{Epsilon, Hinge, Loss, LossSpec};
use margrave_core::model::{Model, Scheme};
use margrave_core::problem::{ClassWeight, Formulation, Machine, Task};
use margrave_core::{Control, Error, Result};
use margrave_io::model::{LibsvmKind, LibsvmModel};

use crate::fit::{Prepared, check_same_rows, square_gram};
use crate::multi;

/// Certifies `model` on its training data: K·β is computed anew, in double precision, and nothing of what the model says
/// about itself is believed. `cost` takes the place of the C the model was trained with.
///
/// Fails if the data is not what the model was trained on.
///
/// One certificate a binary machine: for several classes there are several.
pub fn verify(model: &Model, data: &Dataset, cost: Option<f64>, control: &Control) -> Result<Vec<Certificate>> {
    let points = match &model.scaling {
        Some(scaling) => scaling.apply(&data.points.clone().widen(scaling.factor.len()))?,
        None => data.points.clone().widen(model.expansion.width()),
    };
    check_same_rows(model, &points)?;
    let known = Some((model.labels.as_slice(), model.class_weights.as_slice()));
    let prepared = Prepared::new(model.task, data, points, &ClassWeight::Equal, known)?;
    let formulation = match (model.formulation, cost) {
        (Formulation::Cost { .. }, Some(c)) => Formulation::Cost { c },
        (Formulation::Nu { nu, .. }, Some(c)) => Formulation::Nu { nu, c },
        (same, _) => same,
    };
    let loss: Arc<dyn Loss> = match (&model.loss, formulation) {
        (Some(spec), _) => LossSpec::build(spec)?,
        (None, Formulation::Cost { .. }) => {
            return Err(Error::data("the model was trained with a loss of its user's own, which the file cannot hold"));
        }
        // ν-machines bring their own losses; this one is not looked at.
        (None, _) => Arc::new(Hinge),
    };
    let gram = square_gram(*model.expansion.kernel(), &prepared.points)?;
    if model.scheme != Scheme::One {
        return multi::verify(model, &prepared, formulation, loss, gram.as_ref(), control);
    }
    let setup = prepared.setup(model.task, formulation, loss, model.free_bias, gram.as_ref())?;
    Ok(vec![model.certify(&setup, gram.as_ref(), control)?])
}

/// Certifies a model of LIBSVM on its training data. The file stores neither C nor ε: `cost` and `epsilon` say what they
/// were; ν of a one-class model follows from its coefficients.
///
/// Fails if the data is not what the model was trained on, or for the machines that are not built yet.
pub fn verify_libsvm(
    model: &LibsvmModel,
    data: &Dataset,
    cost: f64,
    epsilon: f64,
    control: &Control,
) -> Result<Certificate> {
    let points = data.points.clone().widen(model.centres.dims());
    let task = match model.kind {
        LibsvmKind::CSvc => Task::Classify,
        LibsvmKind::EpsilonSvr => Task::Regress,
        LibsvmKind::OneClass => Task::Novelty,
        LibsvmKind::NuSvc | LibsvmKind::NuSvr => {
            return Err(Error::data("LIBSVM models of ν-machines cannot be verified yet: they do not store ν"));
        }
    };
    // LIBSVM: a score > 0 means the first label of the file; here it means the second in order.
    let mut labels: Vec<Label> = model.labels.clone();
    let mut sign = 1.0;
    if let [Label::Number(first), Label::Number(second)] = model.labels.as_slice() {
        if first > second {
            labels.reverse();
        } else {
            sign = -1.0;
        }
    }
    let known = Some((labels.as_slice(), &[][..]));
    let prepared = Prepared::new(task, data, points, &ClassWeight::Equal, known)?;
    // Of equal rows with different labels, the coefficient tells which is meant.
    let fits = |centre: usize, row: usize| {
        task != Task::Classify || sign * model.coefficients[centre] * prepared.targets[row] >= 0.0
    };
    let rows = model.find_rows(&prepared.points, fits)?;
    let mut coefficients = vec![0.0; prepared.points.len()];
    rows.iter().zip(&model.coefficients).for_each(|(&row, b)| coefficients[row as usize] = sign * b);
    let nu = model.coefficients.iter().sum::<f64>() / prepared.points.len() as f64;
    let formulation = match task {
        Task::Novelty => Formulation::OneClass { nu },
        _ => Formulation::Cost { c: cost },
    };
    let loss: Arc<dyn Loss> = if task == Task::Regress { Arc::new(Epsilon { epsilon }) } else { Arc::new(Hinge) };
    let gram = square_gram(model.kernel, &prepared.points)?;
    let setup = prepared.setup(task, formulation, loss, true, gram.as_ref())?;
    let machine = Machine { coefficients, bias: -sign * model.rho, rho: 1.0, tube: None };
    let (beta, bias) = setup.solution(&machine);
    setup.with(gram.as_ref(), |problem| Ok(certify(problem, &beta, Some(&bias), None, control)?))
}
