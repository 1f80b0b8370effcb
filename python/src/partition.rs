//! Models on data in partitions: sums over the rows of one partition, and what is made of them.
//!
//! `margrave.dask` calls these, those with `x` on the workers and the others on the driver. The interpreter is free while they
//! compute.

use margrave::engine::backend::cpu::rows::RowMatrix;
use margrave::engine::backend::cpu::{CpuGram, size_of};
use margrave::engine::certificate::{Part, combine_kernel, combine_linear, estimated_part, kernel_part, linear_part};
use margrave::engine::gram::{Gram, Pick, Precision};
use margrave::engine::loss::Loss;
use margrave::engine::problem::{Constraint, LinearProblem, Losses, Samples};
use margrave::engine::solver::decomposition::partition::{Block, largest, one_sided, solve_block};
use margrave::engine::solver::linear::partition::{Curvature, Pass, Probe, Smoothing, natural_width};
use margrave::engine::solver::linear::partition::{System, direction, pass, product, recentre};
use margrave::engine::train::{Asked, Met};
use margrave::{Certificate, Control, Error, Result, Targets};
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::data::{PyPoints, Vector, matrix, vector};
use crate::errors::raise;
use crate::fit::certificate_dict;
use crate::linear::bias_of;
use crate::losses::Trouble;
use crate::params::Params;

/// The rows of a partition: points, targets, costs, and the value of the feature that stands for the bias.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Rows<'py> {
    x: PyPoints,
    y: Vector<'py>,
    costs: Vector<'py>,
    scaling: Option<f64>,
}

/// How losses are smoothed, around which dual point.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SmoothingParam<'py> {
    width: f64,
    centre: Option<Vector<'py>>,
}

/// Calls `work` with the linear problem of the rows, without the interpreter.
fn on_rows<R: Send>(
    py: Python<'_>,
    params: &Params,
    rows: Rows<'_>,
    work: impl FnOnce(&LinearProblem<'_>, &Control) -> Result<R> + Send,
) -> PyResult<R> {
    let (y, costs, kind) = (rows.y.as_slice()?.to_vec(), rows.costs.as_slice()?.to_vec(), bias_of(rows.scaling));
    let trouble = Trouble::default();
    let targets = Targets::Real(y);
    let loss = params.loss(py, &targets, &trouble)?;
    let Targets::Real(y) = targets else { return Err(raise(Error::data("there are no targets"))) };
    let (control, points) = (params.control()?, rows.x.0);
    let found = py.detach(|| {
        let matrix = RowMatrix::new(&points);
        work(&LinearProblem::new(&matrix, &y, &costs, loss.as_ref(), kind)?, &control)
    });
    trouble.check()?;
    found.map_err(raise)
}

fn slice<'a>(values: Option<&'a Vector<'_>>) -> PyResult<Option<&'a [f64]>> {
    Ok(values.map(|v| v.as_slice()).transpose()?)
}

/// The width over which the loss of these targets is smooth by itself: 0 for the hinge, ∞ for the square.
#[pyfunction]
pub(crate) fn linear_width(py: Python<'_>, params: Params, rows: Rows<'_>) -> PyResult<f64> {
    on_rows(py, &params, rows, |problem, _| Ok(natural_width(problem)))
}

/// Sums over the rows at (w, b) + steps[0]·direction; `moments`: "none", "full" (about `means`) or "diagonal".
#[pyfunction]
#[pyo3(signature = (params, rows, smoothing, w, b, direction=None, steps=vec![], moments="none", means=None))]
pub(crate) fn linear_pass<'py>(
    py: Python<'py>,
    params: Params,
    rows: Rows<'py>,
    smoothing: SmoothingParam<'py>,
    w: Vector<'py>,
    b: f64,
    direction: Option<(Vector<'py>, f64)>,
    steps: Vec<f64>,
    moments: &str,
    means: Option<Vector<'py>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (w, centre) = (w.as_slice()?, slice(smoothing.centre.as_ref())?);
    let direction = match &direction {
        Some((dw, db)) => Some((dw.as_slice()?, *db)),
        None => None,
    };
    let means = slice(means.as_ref())?.unwrap_or_default();
    let wanted = match moments {
        "full" => Curvature::Moments(means),
        "diagonal" => Curvature::Diagonal,
        _ => Curvature::None,
    };
    let smoothing = Smoothing { width: smoothing.width, centre };
    let found = on_rows(py, &params, rows, |problem, control| {
        let probe = Probe { weights: w, bias: b, direction, steps: &steps };
        pass(problem, smoothing, probe, wanted, control)
    })?;
    let Pass { loss, excess, size, sum, magnitude, combination, curvature, first, second, slopes } = found;
    let out = PyDict::new(py);
    out.set_item("sums", vector(py, vec![loss, excess, size, sum, magnitude, curvature]))?;
    out.set_item("combination", vector(py, combination))?;
    out.set_item("first", vector(py, first))?;
    out.set_item("second", vector(py, second))?;
    out.set_item("slopes", vector(py, slopes))?;
    Ok(out)
}

/// β of the rows at (w, b).
#[pyfunction]
pub(crate) fn linear_centre<'py>(
    py: Python<'py>,
    params: Params,
    rows: Rows<'py>,
    smoothing: SmoothingParam<'py>,
    w: Vector<'py>,
    b: f64,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (w, centre) = (w.as_slice()?, slice(smoothing.centre.as_ref())?);
    let smoothing = Smoothing { width: smoothing.width, centre };
    let beta = on_rows(py, &params, rows, |problem, control| recentre(problem, smoothing, w, b, control))?;
    Ok(vector(py, beta))
}

/// The curvature at (w, b) times (p, p_b): a vector and the entry of the bias.
#[pyfunction]
pub(crate) fn linear_product<'py>(
    py: Python<'py>,
    params: Params,
    rows: Rows<'py>,
    smoothing: SmoothingParam<'py>,
    w: Vector<'py>,
    b: f64,
    p: Vector<'py>,
    p_b: f64,
) -> PyResult<(Bound<'py, PyArray1<f64>>, f64)> {
    let (w, p, centre) = (w.as_slice()?, p.as_slice()?, slice(smoothing.centre.as_ref())?);
    let smoothing = Smoothing { width: smoothing.width, centre };
    let (out, sum) =
        on_rows(py, &params, rows, |problem, control| product(problem, smoothing, (w, b), (p, p_b), control))?;
    Ok((vector(py, out), sum))
}

/// The Newton direction from the sums of all partitions; `None` if rounding makes the system singular. `packed` is the lower
/// triangle of the second moments, row after row; `bias` are slope and curvature in b.
#[pyfunction]
pub(crate) fn linear_direction<'py>(
    py: Python<'py>,
    packed: Vector<'py>,
    first: Vector<'py>,
    means: Option<Vector<'py>>,
    total: f64,
    gradient: Vector<'py>,
    bias: (f64, f64),
) -> PyResult<Option<(Bound<'py, PyArray1<f64>>, f64)>> {
    let (packed, first, gradient) = (packed.as_slice()?, first.as_slice()?, gradient.as_slice()?);
    let means = slice(means.as_ref())?.unwrap_or_default();
    let control = Control::unlimited(crate::supervise::threads(0));
    let found = py.detach(|| direction(&System { packed, first, means, total, gradient, bias }, &control));
    Ok(found.map_err(raise)?.map(|(dw, db)| (vector(py, dw), db)))
}

/// What the certificate of (w, b) with the dual point β, scaled by `factors`, needs to know of the rows.
#[pyfunction]
pub(crate) fn certify_rows<'py>(
    py: Python<'py>,
    params: Params,
    rows: Rows<'py>,
    w: Vector<'py>,
    b: f64,
    beta: Vector<'py>,
    factors: (f64, f64),
) -> PyResult<Bound<'py, PyDict>> {
    let (w, beta) = (w.as_slice()?, beta.as_slice()?);
    let part = on_rows(py, &params, rows, |problem, control| {
        Ok(linear_part(problem, w, b, beta, [factors.0, factors.1], control)?)
    })?;
    part_dict(py, part)
}

fn part_dict(py: Python<'_>, part: Part) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    let Part {
        rows, loss, at_zero, terms, rounding, sizes, norm, sums, reach, fall, rise, slope, infeasibility, ..
    } = part;
    let numbers =
        vec![loss, at_zero, terms, rounding, sizes, norm, sums[0], sums[1], reach, fall, rise, slope, infeasibility];
    out.set_item("rows", rows)?;
    out.set_item("numbers", vector(py, numbers))?;
    out.set_item("worst", part.worst)?;
    out.set_item("combination", vector(py, part.combination))?;
    out.set_item("combination_error", vector(py, part.combination_error))?;
    Ok(out)
}

/// A part of a certificate, as `part_dict` makes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PartParam<'py> {
    rows: usize,
    numbers: Vector<'py>,
    worst: Vec<(usize, f64)>,
    combination: Vector<'py>,
    combination_error: Vector<'py>,
}

impl PartParam<'_> {
    fn part(self) -> PyResult<Part> {
        let &[loss, at_zero, terms, rounding, sizes, norm, up, down, reach, fall, rise, slope, infeasibility] =
            self.numbers.as_slice()?
        else {
            return Err(raise(Error::data("a part of a certificate has another number of values")));
        };
        Ok(Part {
            rows: self.rows,
            loss,
            at_zero,
            terms,
            rounding,
            sizes,
            norm,
            sums: [up, down],
            reach,
            fall,
            rise,
            slope,
            infeasibility,
            worst: self.worst,
            combination: self.combination.as_slice()?.to_vec(),
            combination_error: self.combination_error.as_slice()?.to_vec(),
        })
    }
}

/// The factors on positive and negative β that make their sum 0.
#[pyfunction]
pub(crate) fn balance_parts(parts: Vec<PartParam<'_>>) -> PyResult<(f64, f64)> {
    let parts = parts.into_iter().map(PartParam::part).collect::<PyResult<Vec<_>>>()?;
    let [up, down] = Part::balance(&parts);
    Ok((up, down))
}

/// The certificate of a linear model from its parts, which are in the order of the data.
#[pyfunction]
pub(crate) fn combine_linear_parts<'py>(
    py: Python<'py>,
    params: Params,
    parts: Vec<PartParam<'py>>,
    scaling: Option<f64>,
    w: Vector<'py>,
    b: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let parts = parts.into_iter().map(PartParam::part).collect::<PyResult<Vec<_>>>()?;
    let w = w.as_slice()?;
    if parts.iter().any(|part| part.combination.len() != w.len() || part.combination_error.len() != w.len()) {
        return Err(raise(Error::data("the parts of a certificate have another number of features")));
    }
    judged(py, &params, &combine_linear(&parts, bias_of(scaling), w, b))
}

/// The certificate, and whether it meets what the parameters ask for.
fn judged<'py>(py: Python<'py>, params: &Params, certificate: &Certificate) -> PyResult<Bound<'py, PyDict>> {
    let out = certificate_dict(py, certificate, None)?;
    out.set_item("met", Asked::from(params.stop()).met(certificate) != Met::No)?;
    Ok(out)
}

/// The certificate of a kernel model from its parts, which are in the order of the data.
#[pyfunction]
pub(crate) fn combine_kernel_parts<'py>(
    py: Python<'py>,
    params: Params,
    parts: Vec<PartParam<'py>>,
    b: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let parts = parts.into_iter().map(PartParam::part).collect::<PyResult<Vec<_>>>()?;
    let definite = params.kernel()?.is_definite();
    judged(py, &params, &combine_kernel(&parts, params.bias, b, definite))
}

/// K(x, centres)·coefficients, in double precision.
#[pyfunction]
pub(crate) fn kernel_scores<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    centres: PyPoints,
    coefficients: Vector<'py>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (kernel, control, coefficients) = (params.kernel()?, params.control()?, coefficients.as_slice()?);
    check_centres(&centres, coefficients)?;
    let found = py.detach(|| -> Result<Vec<f64>> {
        let gram = CpuGram::new(kernel, &x.0, &centres.0)?;
        let mut out = vec![0.0; x.0.len()];
        gram.apply(Precision::Double, Pick::All, coefficients, 1, &mut out, &control)?;
        Ok(out)
    });
    Ok(vector(py, found.map_err(raise)?))
}

fn check_centres(centres: &PyPoints, coefficients: &[f64]) -> PyResult<()> {
    if centres.0.len() != coefficients.len() {
        let (expected, found) = (centres.0.len(), coefficients.len());
        return Err(raise(Error::Shape { what: "number of coefficients", expected, found }));
    }
    Ok(())
}

/// K(x, centres), in double precision.
#[pyfunction]
pub(crate) fn kernel_block<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    centres: PyPoints,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (kernel, control) = (params.kernel()?, params.control()?);
    let (n, m) = (x.0.len(), centres.0.len());
    let found = py.detach(|| -> Result<Vec<f64>> {
        let mut out = vec![0.0; n * m];
        CpuGram::new(kernel, &x.0, &centres.0)?.block_f64(Pick::All, Pick::All, &mut out, &control)?;
        Ok(out)
    });
    matrix(py, n, m, found.map_err(raise)?)
}

/// The loss of a kernel model: one of the library, for the same targets on every partition.
fn library_loss(params: &Params) -> PyResult<std::sync::Arc<dyn Loss>> {
    match params.spec()? {
        Some(spec) => spec.build().map_err(raise),
        None => Err(raise(Error::data("kernel models on partitions take losses by name"))),
    }
}

/// Rows that the next block may contain, at the scores z (with bias): `count` of the largest F of those that can decrease and as
/// many of the smallest of those that can increase, F of all rows on either side, and an estimate of their part of the certificate.
#[pyfunction]
pub(crate) fn worst_rows<'py>(
    py: Python<'py>,
    params: Params,
    y: Vector<'py>,
    costs: Vector<'py>,
    z: Vector<'py>,
    b: f64,
    beta: Vector<'py>,
    count: usize,
) -> PyResult<WorstRows<'py>> {
    let (loss, control) = (library_loss(&params)?, params.control()?);
    let (targets, costs, z, beta) = (y.as_slice()?, costs.as_slice()?, z.as_slice()?, beta.as_slice()?);
    let (seed, constraint) = (params.seed, Constraint::None);
    let found = py.detach(|| -> Result<_> {
        let losses = Losses::One(loss.as_ref());
        let samples = Samples { row_of: None, targets, costs, losses, constraint: &constraint };
        samples.check()?;
        let (fall, rise) = one_sided(&samples, z, beta)?;
        let part = estimated_part(&samples, z, b, beta, &control)?;
        let mut rows = largest(&fall, count, seed);
        rows.extend(largest(&rise.iter().map(|f| -f).collect::<Vec<_>>(), count, seed));
        Ok((rows, fall, rise, part))
    });
    let (rows, fall, rise, part) = found.map_err(raise)?;
    Ok((vector(py, rows), vector(py, fall), vector(py, rise), part_dict(py, part)?))
}

/// Rows, F on either side, a part of a certificate.
type WorstRows<'py> =
    (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyDict>);

/// Minimises over a block of rows with the others fixed; returns β, the bias (0 without one) and the status.
#[pyfunction]
pub(crate) fn solve_rows<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    y: Vector<'py>,
    costs: Vector<'py>,
    offsets: Vector<'py>,
    beta: Vector<'py>,
    sum: Option<f64>,
) -> PyResult<(Bound<'py, PyArray1<f64>>, f64, &'static str)> {
    let (loss, kernel, control) = (library_loss(&params)?, params.kernel()?, params.control()?);
    let (targets, costs, offsets, beta) = (y.as_slice()?, costs.as_slice()?, offsets.as_slice()?, beta.as_slice()?);
    let (stop, memory) = (params.stop(), params.budget().memory);
    let ended = crate::supervise::supervise(py, None, params.small(), |cancel, _| {
        let control = control.with_cancel(cancel);
        let gram = CpuGram::square(kernel, &x.0)?;
        solve_block(&Block { gram: &gram, targets, costs, offsets, beta, sum }, loss.as_ref(), stop, memory, &control)
    })?;
    if let Some(error) = ended.interrupted {
        return Err(error);
    }
    let found = ended.value.map_err(raise)?;
    Ok((vector(py, found.beta), found.bias.first().copied().unwrap_or(0.0), found.status.name()))
}

/// What the certificate of a kernel model needs to know of the rows; `beta` are the coefficients of the rows themselves.
#[pyfunction]
pub(crate) fn certify_kernel_rows<'py>(
    py: Python<'py>,
    params: Params,
    x: PyPoints,
    centres: PyPoints,
    coefficients: Vector<'py>,
    y: Vector<'py>,
    costs: Vector<'py>,
    b: f64,
    beta: Vector<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let (loss, kernel, control) = (library_loss(&params)?, params.kernel()?, params.control()?);
    let coefficients = coefficients.as_slice()?;
    check_centres(&centres, coefficients)?;
    let (targets, costs, beta) = (y.as_slice()?, costs.as_slice()?, beta.as_slice()?);
    let constraint = Constraint::None;
    let found = py.detach(|| -> Result<Part> {
        let losses = Losses::One(loss.as_ref());
        let samples = Samples { row_of: None, targets, costs, losses, constraint: &constraint };
        samples.check()?;
        let gram = CpuGram::new(kernel, &x.0, &centres.0)?;
        let sizes: Vec<f64> = centres.0.squared_norms().iter().map(|s| size_of(&kernel, *s)).collect();
        Ok(kernel_part(&gram, &sizes, coefficients, &samples, b, beta, &control)?)
    });
    part_dict(py, found.map_err(raise)?)
}
