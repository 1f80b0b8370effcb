//! The independent certificate of a stored model.

use std::sync::Arc;

use margrave_core::certificate::Certificate;
use margrave_core::data::{Dataset, Label, Points};
use margrave_core::loss::{Hinge, Loss, LossSpec};
use margrave_core::model::{Model, Scheme};
use margrave_core::problem::{ClassWeight, Formulation, Setup, Task};
use margrave_core::{Control, Error, Result};
use margrave_io::model::{LibsvmKind, LibsvmModel, Training};

use crate::fit::{Prepared, check_same_rows, square_gram};
use crate::linear;
use crate::{multi, outputs};

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
    certify_all(model, data, points, cost, control)
}

/// The certificates of a model whose centres are known to be rows of `points`, the (scaled) points of `data`.
fn certify_all(
    model: &Model,
    data: &Dataset,
    points: Points,
    cost: Option<f64>,
    control: &Control,
) -> Result<Vec<Certificate>> {
    if model.scheme == Scheme::Outputs {
        let k = model.expansion.outputs();
        let values = match outputs::several(&data.targets) {
            Some((found, values)) if found == k => values,
            found => {
                let found = found.map_or(1, |(found, _)| found);
                return Err(Error::data(format!(
                    "the model predicts {k} numbers, and the data has {found} target{}: name those it was trained on with --target a,b,…",
                    if found == 1 { "" } else { "s" }
                )));
            }
        };
        let loss = model.loss.as_ref().map_or_else(|| LossSpec::Square.build(), LossSpec::build)?;
        let formulation = match (model.formulation, cost) {
            (Formulation::Cost { .. }, Some(c)) => Formulation::Cost { c },
            (same, _) => same,
        };
        return outputs::verify(model, &points, values, data.weights.as_deref(), formulation, loss, control);
    }
    let known = Some((model.labels.as_slice(), model.class_weights.as_slice()));
    let mut prepared = Prepared::new(model.task, data, points, &ClassWeight::Equal, known)?;
    // It may have been lowered in training; a model of another ν does not pass for optimal here.
    prepared.lower_nu = true;
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
    if model.expansion.is_weights() {
        match model.scheme {
            Scheme::CrammerSinger => return Ok(vec![linear::verify_together(model, &prepared, formulation, control)?]),
            Scheme::OneVsOne | Scheme::OneVsRest => {
                return linear::verify_several(model, &prepared, formulation, &loss, control);
            }
            Scheme::One | Scheme::Outputs => {}
        }
        let weights = prepared.weights.as_deref();
        let setup = Setup::new(model.task, formulation, &prepared.targets, weights, loss, model.free_bias, Vec::new)?;
        return Ok(vec![linear::verify(model, &setup, &prepared.points, control)?]);
    }
    let gram = square_gram(*model.expansion.kernel(), &prepared.points)?;
    if model.scheme != Scheme::One {
        return multi::verify(model, &prepared, formulation, loss, gram.as_ref(), control);
    }
    let setup = prepared.setup(model.task, formulation, loss, model.free_bias, gram.as_ref())?;
    Ok(vec![model.certify(&setup, gram.as_ref(), control)?])
}

/// Certifies a model of LIBSVM on its training data, one certificate a pair of classes. The file stores neither C nor ε:
/// `cost` and `epsilon` say what they were; ν of a one-class model follows from its coefficients.
///
/// Fails if the data is not what the model was trained on, or for ν-machines, whose ν is not stored.
pub fn verify_libsvm(
    model: &LibsvmModel,
    data: &Dataset,
    cost: f64,
    epsilon: f64,
    control: &Control,
) -> Result<Vec<Certificate>> {
    let points = data.points.clone().widen(model.centres.dims());
    let (n, width) = (points.len(), points.dims());
    let (formulation, loss) = match model.kind {
        LibsvmKind::CSvc => (Formulation::Cost { c: cost }, Some(LossSpec::Hinge)),
        LibsvmKind::EpsilonSvr => (Formulation::Cost { c: cost }, Some(LossSpec::Epsilon { epsilon })),
        LibsvmKind::OneClass => {
            (Formulation::OneClass { nu: model.coefficients.iter().sum::<f64>() / n.max(1) as f64 }, None)
        }
        LibsvmKind::NuSvc | LibsvmKind::NuSvr => {
            return Err(Error::data("LIBSVM models of ν-machines cannot be verified: they do not store ν"));
        }
    };
    // Of equal rows with different labels, the class of the centre tells which is meant.
    let class_of = model.class_of();
    let codes: Vec<Option<u32>> = match model.task() {
        Task::Classify => {
            let (classes, codes) = data.targets.classes()?;
            let place = |label: &Label| model.labels.iter().position(|known| known == label).map(|at| at as u32);
            let places: Vec<Option<u32>> = classes.iter().map(place).collect();
            codes.iter().map(|&code| places[code as usize]).collect()
        }
        _ => vec![Some(0); n],
    };
    let rows = model.find_rows(&points, |centre, row| codes[row] == Some(class_of[centre]))?;
    let native = model.to_model(Training { rows, n, formulation, loss, width })?;
    certify_all(&native, data, points, None, control)
}
