//! Model files.
//!
//! The native file contains everything needed to predict, to verify and to resume training: kernel, loss, costs,
//! scaling, labels, encoding of columns, certificate, and the centres with their row numbers in the training data. It
//! is safe to open untrusted files, and numbers are stored exactly.

mod centres;
mod container;
mod exchange;
mod liblinear;
mod libsvm;
mod libsvm_proof;
mod native;
mod onnx;
mod protobuf;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

use margrave_core::Error;
use margrave_core::kernel::Kernel;
use margrave_core::model::{Calibration, Model, Scheme};
use margrave_core::problem::{Bias, Formulation, Task};

pub use self::centres::{CentresModel, load_centres};
pub use self::exchange::Training;
pub use self::libsvm::{LibsvmKind, LibsvmModel};
pub use self::libsvm_proof::{LibsvmProof, LibsvmTraining, verify_libsvm};
pub use self::onnx::{OnnxOptions, to_onnx, to_onnx_with};
use crate::error::{ReadError, Result, malformed};
use crate::{Schema, write_atomic};
pub use margrave_core::model::SHARES;

/// A native or LIBSVM model.
#[derive(Debug, Clone)]
pub enum AnyModel {
    /// A native model.
    Native(Box<Model>),
    /// A LIBSVM model.
    Libsvm(Box<LibsvmModel>),
}

/// Reads a native model file, a LIBSVM model or a LIBLINEAR model (converted to a native one); `-` is standard input.
pub fn load_any(path: impl AsRef<Path>) -> Result<AnyModel> {
    let (name, bytes) = bytes_of(path.as_ref())?;
    any_from_bytes(&bytes, &name)
}

/// Reads a model of any format from memory; `name` is used in messages.
pub fn any_from_bytes(bytes: &[u8], name: &str) -> Result<AnyModel> {
    if libsvm::looks_like(bytes) {
        return libsvm_from_bytes(bytes, name).map(|model| AnyModel::Libsvm(Box::new(model)));
    }
    if liblinear::looks_like(bytes) {
        let model =
            liblinear::parse(bytes).map_err(|e| malformed(name, e.to_string(), "give it whole and unchanged"))?;
        return Ok(AnyModel::Native(Box::new(model)));
    }
    Ok(AnyModel::Native(Box::new(from_bytes(bytes, name)?)))
}

/// Reads a LIBSVM model from memory; `name` is used in messages.
pub fn libsvm_from_bytes(bytes: &[u8], name: &str) -> Result<LibsvmModel> {
    if !libsvm::looks_like(bytes) {
        return Err(malformed(name, "not a LIBSVM model: it does not begin with svm_type", "give one"));
    }
    libsvm::parse(bytes).map_err(|e| malformed(name, e.to_string(), "give it whole and unchanged"))
}

/// Reads a native model file; `-` is standard input.
pub fn load(path: impl AsRef<Path>) -> Result<Model> {
    let (name, bytes) = bytes_of(path.as_ref())?;
    from_bytes(&bytes, &name)
}

/// The name of a file and all its bytes.
fn bytes_of(path: &Path) -> Result<(String, Vec<u8>)> {
    let name = path.display().to_string();
    let bytes = if name == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    match bytes {
        Ok(bytes) => Ok((name, bytes)),
        Err(source) => Err(ReadError::Io { file: name, doing: "open it", source }),
    }
}

/// Writes a native model file atomically: readers see either the old file or the new one.
pub fn save(model: &Model, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let file = path.display().to_string();
    let bytes = to_bytes(model).map_err(|source| ReadError::Data { file, source })?;
    write_atomic(path, |out| out.write_all(&bytes))
}

/// The bytes of a native model file.
pub fn to_bytes(model: &Model) -> margrave_core::Result<Vec<u8>> {
    check(model)?;
    native::write(model).map_err(|e| Error::data(e.to_string()))
}

/// Reads a native model file from memory; `name` is used in messages.
pub fn from_bytes(bytes: &[u8], name: &str) -> Result<Model> {
    let model = native::read(bytes)
        .map_err(|e| malformed(name, e.to_string(), "give a model written by 'margrave train', whole and unchanged"))?;
    check(&model).map_err(|source| ReadError::Data { file: name.to_owned(), source })?;
    Ok(model)
}

/// The encoding of columns stored in a model, if its data came from a file.
pub fn schema(model: &Model) -> margrave_core::Result<Option<Schema>> {
    let Some(text) = &model.schema else { return Ok(None) };
    let schema: Schema =
        serde_json::from_str(text).map_err(|e| Error::data(format!("the model's list of columns is damaged: {e}")))?;
    schema.check()?;
    Ok(Some(schema))
}

/// Fails unless all parts of a model are consistent: for untrusted files.
fn check(model: &Model) -> margrave_core::Result<()> {
    let wrong = |what: String| Err(Error::data(what));
    let (m, k, d) = (model.expansion.len(), model.expansion.outputs(), model.expansion.width());
    if model.costs.len() != m {
        return Err(Error::Shape { what: "costs of the model", expected: m, found: model.costs.len() });
    }
    let records = if model.scheme == Scheme::CrammerSinger { 1 } else { k };
    if model.machines.len() != records {
        return Err(Error::Shape { what: "records of the model", expected: records, found: model.machines.len() });
    }
    if let Some(s) = model.intercept_scaling {
        Bias::Penalised { scaling: s }.check()?;
    }
    if let Some(row) = model.expansion.rows().iter().find(|&&row| row as usize >= model.n) {
        return wrong(format!("a centre is row {row} of {} training rows", model.n));
    }
    if model.costs.iter().any(|c| !(*c >= 0.0)) {
        return wrong("a cost of the model is negative".into());
    }
    if let Some(record) = model.machines.iter().find(|r| !(r.rho > 0.0 && r.rho.is_finite())) {
        return wrong(format!("the model has rho = {}, which is not possible", record.rho));
    }
    if let Some(loss) = &model.loss {
        loss.check()?;
    }
    if let Some(scaling) = &model.scaling
        && (scaling.shift.len() != d || scaling.factor.len() != d)
    {
        return wrong(format!("the scaling of the model is not over {d} features"));
    }
    if let Some(schema) = schema(model)?
        && schema.features != d
    {
        return wrong(format!("the model has {d} features but its columns have {}", schema.features));
    }
    let labels = model.labels.len();
    let expected = match (model.task, model.scheme) {
        (Task::Classify, Scheme::One) if labels == 2 => 1,
        (Task::Classify, Scheme::OneVsOne | Scheme::OneVsRest) if labels > 2 => model.scheme.outputs(labels),
        (Task::Classify, Scheme::CrammerSinger) if labels >= 2 => labels,
        (Task::Regress | Task::Novelty, Scheme::One) => 1,
        (Task::Regress, Scheme::Outputs) if k >= 2 => k,
        _ => 0,
    };
    if k != expected {
        return wrong(format!("a model to {} with {labels} labels and {k} outputs", model.task));
    }
    if !model.class_weights.is_empty() && model.class_weights.len() != labels {
        return wrong(format!("{} class weights for {labels} labels", model.class_weights.len()));
    }
    match &model.calibration {
        Some(Calibration::Sigmoid { a, below, b, .. })
            if a.len() != k
                || b.len() != k
                || !(below.is_empty() || below.len() == k)
                || a.iter().chain(below).chain(b).any(|v| !v.is_finite()) =>
        {
            return wrong(format!("the calibration of the model is not over {k} machines"));
        }
        Some(Calibration::Residuals { sigma, radii, .. })
            if !sigma.is_finite() || radii.iter().any(|(s, r)| !(s.is_finite() && r.is_finite())) =>
        {
            return wrong("the residuals of the model are not finite".into());
        }
        Some(Calibration::ResidualsByOutput { sigma, radii, .. })
            if sigma.len() != k
                || radii.len() != k
                || sigma.iter().any(|s| !s.is_finite())
                || radii.iter().flatten().any(|(s, r)| !(s.is_finite() && r.is_finite())) =>
        {
            return wrong(format!("the residuals of the model are not over {k} outputs, or not finite"));
        }
        _ => {}
    }
    if let Some(threshold) = &model.threshold {
        let shares = [threshold.precision, threshold.recall];
        if model.scheme != Scheme::One
            || model.task != Task::Classify
            || !threshold.score.is_finite()
            || shares.iter().any(|share| !(0.0..=1.0).contains(share))
        {
            return wrong("the threshold of the model is damaged, or the model is not one of two classes".into());
        }
    }
    let (possible, text) = match model.formulation {
        Formulation::Cost { c } => (c > 0.0, format!("C = {c}")),
        Formulation::Nu { nu, c } => (nu > 0.0 && nu <= 1.0 && c > 0.0, format!("nu = {nu}, C = {c}")),
        Formulation::OneClass { nu } | Formulation::Svdd { nu } => (nu > 0.0 && nu <= 1.0, format!("nu = {nu}")),
    };
    if possible { Ok(()) } else { wrong(format!("the model was trained with {text}, which is not possible")) }
}

/// Training rows of a precomputed kernel, or features of a linear one, times outputs: prediction holds that many
/// numbers in memory.
const LARGEST_DENSE: usize = 1 << 28;

fn check_size(kernel: &Kernel, width: usize, outputs: usize) -> margrave_core::Result<()> {
    match width.checked_mul(outputs) {
        Some(size) if !matches!(kernel, Kernel::Precomputed | Kernel::Linear) || size <= LARGEST_DENSE => Ok(()),
        _ => Err(Error::data(format!(
            "a {} model over {width} features and {outputs} outputs is too large: number the features from 1 without gaps",
            kernel.name()
        ))),
    }
}
