//! Models of any format, as native models.

use std::path::Path;

use margrave::engine::data::{Csr, Points};
use margrave::io::model::{AnyModel, load_any};
use margrave::{Budget, Kernel, Model};

use crate::failure::Failure;
use crate::options::data::check_width;

/// Converts a stored model; `width` is the number of columns of the data, for precomputed kernels.
pub(crate) fn native(stored: AnyModel, width: Option<usize>) -> Result<Model, Failure> {
    let features = match &stored {
        AnyModel::Native(model) => model.expansion.width(),
        AnyModel::Libsvm(model) => model.centres.dims(),
    };
    check_width("the model", features, Budget::default().memory)?;
    match stored {
        AnyModel::Native(model) => Ok(*model),
        AnyModel::Libsvm(model) => Ok(model.to_model(model.training(width))?),
    }
}

/// Reads a model of any format.
pub(crate) fn load(path: &Path, width: Option<usize>) -> Result<Model, Failure> {
    native(load_any(path)?, width)
}

/// Whether a model comes from a file of LIBLINEAR, which has weights and no dual point.
pub(crate) fn is_liblinear(model: &Model) -> bool {
    model.solver.starts_with("liblinear ")
}

/// The names of the targets a model predicts, if there are several: those of their columns, or their numbers.
pub(crate) fn output_names(model: &Model) -> Vec<String> {
    let schema = margrave::io::model::schema(model).ok().flatten().unwrap_or_default();
    schema.target_names(model.expansion.outputs())
}

/// Points of a file that was not read with the schema of the model. If they have another number of features than the
/// model, they become sparse, where that does not matter.
pub(crate) fn fit_width(points: Points, model: &Model) -> Points {
    let width = model.expansion.width();
    if points.is_sparse() || points.dims() == width || *model.expansion.kernel() == Kernel::Precomputed {
        return points;
    }
    let (mut starts, mut columns, mut values) = (vec![0usize], Vec::new(), Vec::new());
    for row in 0..points.len() {
        points.visit(row, |column, value| {
            if value != 0.0 {
                columns.push(column as u32);
                values.push(value);
            }
        });
        starts.push(columns.len());
    }
    // The same numbers in another layout, so the checks pass again.
    Csr::new(points.dims(), starts, columns, values).map_or(points, Points::from)
}
