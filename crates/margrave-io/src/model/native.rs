//! The native model file, versions 1 and 2. Version 2 is written where it is needed: probabilities with two slopes or a free
//! offset, a threshold, or columns that were left out, filled or encoded in a way that readers of version 1 do not know.
//!
//! Arrays: `beta` (m × k; for one-vs-one m × (classes − 1), see [`Layout`], with `classes` (m)), `bias` (k), `costs`
//! (m), `rows` (m); the centres as `centres` (m × d) or, sparse, as `centres.starts` (m + 1), `centres.columns`,
//! `centres.values`; `scaling.shift` and `scaling.factor` (d) if there is a scaling. A linear model given by its
//! weights has them as `weights` (d × k), and centres without features. Machines on few centres have their dual points,
//! one after the other, as `dual.rows` and `dual.beta`, with `dual.starts` (k + 1). Everything else is in the JSON header.

use margrave_core::data::{Csr, Dense, Label, Points, ScaleKind, Scaling, Storage};
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::model::{Calibration, DualPoint, Expansion, Layout, Model, Recipe, Record, Rule, Scheme, Threshold};
use margrave_core::problem::{Formulation, Penalty, Task};
use serde::{Deserialize, Serialize};

use super::check_size;
use super::container::{Array, ArrayValues, Broken, Container, Reals};
use crate::Schema;

const FORMAT: &str = "margrave-model";
const FIRST_VERSION: u32 = 1;
const VERSION: u32 = 2;

/// Read first, so that a file of a later version is rejected for that reason.
#[derive(Deserialize)]
struct Lead {
    format: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct NativeHeader {
    format: String,
    version: u32,
    /// The program that wrote the file, for information only.
    program: String,
    task: Task,
    formulation: Formulation,
    kernel: Kernel,
    loss: Option<LossSpec>,
    free_bias: bool,
    #[serde(default)]
    penalty: Penalty,
    #[serde(default)]
    intercept_scaling: Option<f64>,
    labels: Vec<Label>,
    #[serde(default)]
    scheme: Scheme,
    class_weights: Vec<f64>,
    scaling: Option<ScaleKind>,
    schema: Option<Schema>,
    machines: Vec<Record>,
    solver: String,
    /// Rows of the training data.
    n: usize,
    centres: usize,
    features: usize,
    outputs: usize,
    sparse: bool,
    #[serde(default)]
    calibration: Option<Calibration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold: Option<Threshold>,
}

/// JSON has no infinities: see [`Certificate::finite`](margrave_core::certificate::Certificate::finite).
fn bounded(record: &Record) -> Record {
    Record { certificate: record.certificate.clone().finite(), ..record.clone() }
}

/// The oldest version whose readers predict with this model what it predicts.
fn version_of(model: &Model, schema: Option<&Schema>) -> u32 {
    let later = schema.is_some_and(Schema::is_recent);
    let later = later
        || match &model.calibration {
            Some(Calibration::Sigmoid { below, rule, .. }) => !below.is_empty() || *rule == Rule::Free,
            _ => false,
        };
    if later || model.threshold.is_some() { VERSION } else { FIRST_VERSION }
}

pub(super) fn write(model: &Model) -> Result<Vec<u8>, Broken> {
    let f = &model.expansion;
    let (m, k, d) = (f.len(), f.outputs(), f.centres().dims());
    let schema = super::schema(model).map_err(|e| Broken::new(e.to_string()))?;
    let header = NativeHeader {
        format: FORMAT.into(),
        version: version_of(model, schema.as_ref()),
        program: concat!("margrave ", env!("CARGO_PKG_VERSION")).into(),
        task: model.task,
        formulation: model.formulation,
        kernel: *f.kernel(),
        loss: model.loss,
        free_bias: model.free_bias,
        penalty: model.penalty,
        intercept_scaling: model.intercept_scaling,
        labels: model.labels.clone(),
        scheme: model.scheme,
        class_weights: model.class_weights.clone(),
        scaling: model.scaling.as_ref().map(|s| s.kind),
        schema,
        machines: model.machines.iter().map(bounded).collect(),
        solver: model.solver.clone(),
        n: model.n,
        centres: m,
        features: f.width(),
        outputs: k,
        sparse: f.centres().is_sparse(),
        calibration: model.calibration.clone(),
        threshold: model.threshold.clone(),
    };
    let header =
        serde_json::to_string(&header).map_err(|e| Broken::new(format!("the header cannot be written: {e}")))?;
    let mut file = Container { header, ..Container::default() };
    let mut put = |name: &str, shape: &[usize], values| {
        file.arrays.insert(name.into(), Array::new(shape, values));
    };
    put("beta", &[m, f.stride()], ArrayValues::F64(f.coefficients().to_vec()));
    if let Layout::Pairs { class_of, .. } = f.layout() {
        put("classes", &[m], ArrayValues::U32(class_of.clone()));
    }
    put("bias", &[k], ArrayValues::F64(f.bias().to_vec()));
    put("costs", &[m], ArrayValues::F64(model.costs.clone()));
    put("rows", &[m], ArrayValues::U32(f.rows().to_vec()));
    if let Some(weights) = f.weights().filter(|_| f.is_weights()) {
        put("weights", &[f.width(), k], ArrayValues::F64(weights.to_vec()));
    }
    if !model.dual.is_empty() {
        let starts = std::iter::once(0).chain(model.dual.iter().scan(0u64, |sum, dual| {
            *sum += dual.rows.len() as u64;
            Some(*sum)
        }));
        let rows: Vec<u32> = model.dual.iter().flat_map(|dual| &dual.rows).copied().collect();
        let beta: Vec<f64> = model.dual.iter().flat_map(|dual| &dual.beta).copied().collect();
        put("dual.starts", &[model.dual.len() + 1], ArrayValues::U64(starts.collect()));
        put("dual.rows", &[rows.len()], ArrayValues::U32(rows));
        put("dual.beta", &[beta.len()], ArrayValues::F64(beta));
    }
    if let Some(scaling) = &model.scaling {
        put("scaling.shift", &[scaling.shift.len()], ArrayValues::F64(scaling.shift.clone()));
        put("scaling.factor", &[scaling.factor.len()], ArrayValues::F64(scaling.factor.clone()));
    }
    let (sparse, dense) = match f.centres().storage() {
        Storage::SparseF32(c) => (Some((c.starts(), c.columns())), ArrayValues::F32(c.values().to_vec())),
        Storage::SparseF64(c) => (Some((c.starts(), c.columns())), ArrayValues::F64(c.values().to_vec())),
        Storage::DenseF32(c) => (None, ArrayValues::F32(c.values().to_vec())),
        Storage::DenseF64(c) => (None, ArrayValues::F64(c.values().to_vec())),
    };
    match sparse {
        None => put("centres", &[m, d], dense),
        Some((starts, columns)) => {
            put("centres.starts", &[m + 1], ArrayValues::U64(starts.iter().map(|&s| s as u64).collect()));
            put("centres.columns", &[columns.len()], ArrayValues::U32(columns.to_vec()));
            put("centres.values", &[columns.len()], dense);
        }
    }
    file.to_bytes()
}

pub(super) fn read(bytes: &[u8]) -> Result<Model, Broken> {
    let mut file = Container::from_bytes(bytes)?;
    let json = |e: serde_json::Error| Broken::new(format!("the header is damaged ({e})"));
    let lead: Lead = serde_json::from_str(&file.header).map_err(json)?;
    if lead.format != FORMAT {
        return Err(Broken::new(format!("the format is {:?}, not {FORMAT:?}", lead.format)));
    }
    if !(FIRST_VERSION..=VERSION).contains(&lead.version) {
        return Err(Broken::new(format!(
            "a model of version {}, and this program reads versions {FIRST_VERSION} to {VERSION}: update it",
            lead.version
        )));
    }
    let header: NativeHeader = serde_json::from_str(&file.header).map_err(json)?;
    let (m, k, width) = (header.centres, header.outputs, header.features);
    let (layout, stride) = match header.scheme {
        Scheme::OneVsOne => {
            let classes = header.labels.len();
            (Layout::Pairs { classes, class_of: file.u32s("classes", m)? }, classes.saturating_sub(1))
        }
        Scheme::One | Scheme::OneVsRest | Scheme::CrammerSinger | Scheme::Outputs => (Layout::Full, k),
    };
    let coefficients = m.checked_mul(stride).ok_or_else(|| Broken::new(format!("{m} centres and {k} outputs")))?;
    let engine = |e: margrave_core::Error| Broken::new(e.to_string());
    check_size(&header.kernel, width, k).map_err(engine)?;
    let by_weights = header.kernel == Kernel::Linear && file.arrays.contains_key("weights");
    if by_weights && header.sparse {
        return Err(Broken::new("a model has both weights and centres"));
    }
    let d = if header.kernel == Kernel::Precomputed || by_weights { 0 } else { width };
    let centres: Points = if header.sparse {
        let starts = m.checked_add(1).ok_or_else(|| Broken::new(format!("{m} centres")))?;
        let starts = file.sizes("centres.starts", starts)?;
        let stored = starts.last().copied().unwrap_or(0);
        let columns = file.u32s("centres.columns", stored)?;
        match file.reals("centres.values")? {
            Reals::Single(v) => Csr::new(d, starts, columns, v).map_err(engine)?.into(),
            Reals::Double(v) => Csr::new(d, starts, columns, v).map_err(engine)?.into(),
        }
    } else {
        match file.reals("centres")? {
            Reals::Single(v) => Dense::new(m, d, v).map_err(engine)?.into(),
            Reals::Double(v) => Dense::new(m, d, v).map_err(engine)?.into(),
        }
    };
    let scaling = match header.scaling {
        None => None,
        Some(kind) => {
            let (shift, factor) = (file.f64s("scaling.shift", width)?, file.f64s("scaling.factor", width)?);
            Some(Scaling { kind, shift, factor })
        }
    };
    let dual = duals(&mut file, header.machines.len(), header.n)?;
    let (rows, beta, bias) = (file.u32s("rows", m)?, file.f64s("beta", coefficients)?, file.f64s("bias", k)?);
    let schema = header.schema.map(|schema| serde_json::to_string(&schema)).transpose().map_err(json)?;
    let recipe = Recipe {
        task: header.task,
        formulation: header.formulation,
        loss: header.loss,
        free_bias: header.free_bias,
        penalty: header.penalty,
        intercept_scaling: header.intercept_scaling,
        labels: header.labels,
        class_weights: header.class_weights,
        scaling,
        schema,
        solver: header.solver,
    };
    let mut model = Model::new(
        recipe,
        header.scheme,
        match by_weights {
            true => {
                Expansion::linear(file.f64s("weights", width * k)?, rows, beta, layout, bias, width).map_err(engine)?
            }
            false => Expansion::with_layout(header.kernel, centres, rows, beta, layout, bias, width).map_err(engine)?,
        },
        file.f64s("costs", m)?,
        header.machines,
        header.n,
    );
    (model.calibration, model.threshold, model.dual) = (header.calibration, header.threshold, dual);
    Ok(model)
}

/// The dual points of machines on few centres; none for other machines.
fn duals(file: &mut Container, machines: usize, n: usize) -> Result<Vec<DualPoint>, Broken> {
    if !file.arrays.contains_key("dual.starts") {
        return Ok(Vec::new());
    }
    let starts = machines.checked_add(1).ok_or_else(|| Broken::new(format!("{machines} machines")))?;
    let starts = file.sizes("dual.starts", starts)?;
    let total = starts.last().copied().unwrap_or(0);
    if starts.first() != Some(&0) || starts.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(Broken::new("the dual points do not follow each other"));
    }
    let (rows, beta) = (file.u32s("dual.rows", total)?, file.f64s("dual.beta", total)?);
    if rows.iter().any(|&row| row as usize >= n) || beta.iter().any(|b| !b.is_finite()) {
        return Err(Broken::new(format!(
            "a dual point has a row beyond the {n} of the training, or a number that is not finite"
        )));
    }
    let part =
        |pair: &[usize]| DualPoint { rows: rows[pair[0]..pair[1]].to_vec(), beta: beta[pair[0]..pair[1]].to_vec() };
    Ok(starts.windows(2).map(part).collect())
}
