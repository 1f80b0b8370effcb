//! The independent certificate of a stored model.

use margrave_core::certificate::Certificate;
use margrave_core::data::Dataset;
use margrave_core::loss::{Hinge, Loss, LossSpec};
use margrave_core::model::Model;
use margrave_core::problem::{ClassWeight, Formulation, Task};
use margrave_core::{Control, Error, Result};

use crate::fit::{Prepared, check_same_rows, square_gram};

/// Certifies `model` on its training data: K·β is computed anew, in double precision, and nothing of what the model says
/// about itself is believed. `cost` takes the place of the C the model was trained with.
///
/// Fails if the data is not what the model was trained on.
pub fn verify(model: &Model, data: &Dataset, cost: Option<f64>, control: &Control) -> Result<Certificate> {
    let points = match &model.scaling {
        Some(scaling) => scaling.apply(&data.points.clone().widen(scaling.factor.len()))?,
        None => data.points.clone().widen(model.expansion.width()),
    };
    check_same_rows(model, &points)?;
    if model.task == Task::Classify && model.labels.len() != 2 {
        return Err(Error::data("only models of two classes can be verified yet"));
    }
    let known = Some((model.labels.as_slice(), model.class_weights.as_slice()));
    let prepared = Prepared::new(model.task, data, points, &ClassWeight::Equal, known)?;
    let formulation = match (model.formulation, cost) {
        (Formulation::Cost { .. }, Some(c)) => Formulation::Cost { c },
        (Formulation::Nu { nu, .. }, Some(c)) => Formulation::Nu { nu, c },
        (same, _) => same,
    };
    let loss: std::sync::Arc<dyn Loss> = match (&model.loss, formulation) {
        (Some(spec), _) => LossSpec::build(spec)?,
        (None, Formulation::Cost { .. }) => {
            return Err(Error::data("the model was trained with a loss of its user's own, which the file cannot hold"));
        }
        // ν-machines bring their own losses; this one is not looked at.
        (None, _) => std::sync::Arc::new(Hinge),
    };
    let gram = square_gram(*model.expansion.kernel(), &prepared.points)?;
    let setup = prepared.setup(model.task, formulation, loss, model.free_bias, gram.as_ref())?;
    model.certify(&setup, gram.as_ref(), control)
}
