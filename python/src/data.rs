//! Points from Python arrays, without copies.
//!
//! The only `unsafe` of this crate: a slice of a NumPy array outlives the borrow of the array because its owner is kept.

use margrave::engine::data::{Buffer, Csr, Dataset, Points, Targets};
use numpy::{Element, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::card::CardArray;
use crate::errors::raise;

/// A contiguous NumPy array kept alive for its values.
struct Lent<T> {
    /// Without the interpreter's lock, PyO3 defers dropping the last reference until a thread holds the lock.
    _array: Py<PyAny>,
    start: *const T,
    len: usize,
}

// SAFETY: `start` points into memory owned by `_array`, which lives as long as this value; it is only ever read. A Python
// thread that writes into the array during a fit races with it, as with every NumPy operation that releases the lock.
unsafe impl<T: Sync> Send for Lent<T> {}
// SAFETY: as above: shared access is reading.
unsafe impl<T: Sync> Sync for Lent<T> {}

impl<T> AsRef<[T]> for Lent<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: `start` and `len` are those of a contiguous, aligned slice of `_array`, whose memory NumPy does not move
        // while there is a reference to it (`resize` refuses then).
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

fn lend<T: Element + Send + Sync + 'static>(array: &Bound<'_, PyAny>, values: &[T]) -> Buffer<T> {
    Buffer::from_owner(Lent { _array: array.clone().unbind(), start: values.as_ptr(), len: values.len() })
}

/// Points as the estimators send them: a C-contiguous array of f32 or f64, or the tuple (data, indices, indptr, columns) of a
/// CSR matrix, indices as uint32 and indptr as uint64, or an array on a card.
pub(crate) struct PyPoints(pub(crate) Points);

impl<'a, 'py> FromPyObject<'a, 'py> for PyPoints {
    type Error = PyErr;
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.cast::<CardArray>() {
            return Ok(Self(array.get().points()));
        }
        if object.is_instance_of::<PyTuple>() {
            type Parts<'py> = (Bound<'py, PyAny>, PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, u64>, usize);
            let (data, indices, indptr, d) = object.extract::<Parts<'py>>()?;
            let starts: Vec<usize> = indptr.as_slice()?.iter().map(|&at| at as usize).collect();
            let columns = lend(indices.as_any(), indices.as_slice()?);
            if let Ok(values) = data.extract::<PyReadonlyArray1<'py, f64>>() {
                return Ok(Self(Csr::new(d, starts, columns, lend(&data, values.as_slice()?)).map_err(raise)?.into()));
            }
            let values = data.extract::<PyReadonlyArray1<'py, f32>>()?;
            return Ok(Self(Csr::new(d, starts, columns, lend(&data, values.as_slice()?)).map_err(raise)?.into()));
        }
        if let Ok(values) = object.extract::<PyReadonlyArray2<'py, f64>>() {
            let (n, d) = (values.shape()[0], values.shape()[1]);
            return Ok(Self(Points::dense_f64(n, d, lend(&object, values.as_slice()?)).map_err(raise)?));
        }
        if let Ok(values) = object.extract::<PyReadonlyArray2<'py, f32>>() {
            let (n, d) = (values.shape()[0], values.shape()[1]);
            return Ok(Self(Points::dense_f32(n, d, lend(&object, values.as_slice()?)).map_err(raise)?));
        }
        Err(PyTypeError::new_err("expected a C-contiguous array of float32 or float64, or the parts of a CSR matrix"))
    }
}

/// A vector of numbers.
pub(crate) type Vector<'py> = PyReadonlyArray1<'py, f64>;

/// Points with targets (none for novelty) and weights.
pub(crate) fn dataset(points: PyPoints, y: Option<Vector<'_>>, weights: Option<Vector<'_>>) -> PyResult<Dataset> {
    dataset_of(points, y, 1, weights)
}

/// The same with `outputs` targets per row, row-major.
pub(crate) fn dataset_of(
    points: PyPoints,
    y: Option<Vector<'_>>,
    outputs: usize,
    weights: Option<Vector<'_>>,
) -> PyResult<Dataset> {
    let targets = match y {
        Some(y) if outputs == 1 => Targets::Real(y.as_slice()?.to_vec()),
        Some(y) => Targets::Several { outputs, values: y.as_slice()?.to_vec() },
        None => Targets::None,
    };
    let data = Dataset::new(points.0, targets).map_err(raise)?;
    match weights {
        Some(weights) => data.with_weights(weights.as_slice()?.to_vec()).map_err(raise),
        None => Ok(data),
    }
}

/// A vector for Python, moved.
pub(crate) fn vector<T: Element>(py: Python<'_>, values: Vec<T>) -> Bound<'_, PyArray1<T>> {
    PyArray1::from_vec(py, values)
}

/// A row-major matrix for Python, moved.
pub(crate) fn matrix(
    py: Python<'_>,
    rows: usize,
    columns: usize,
    values: Vec<f64>,
) -> PyResult<Bound<'_, PyArray2<f64>>> {
    PyArray1::from_vec(py, values).reshape([rows, columns])
}

/// A fingerprint of a data set, the same as the program's. The targets are numbers, `outputs` per row, or texts.
#[pyfunction]
#[pyo3(signature = (x, numbers=None, texts=None, outputs=1, weights=None))]
pub(crate) fn fingerprint(
    x: PyPoints,
    numbers: Option<Vector<'_>>,
    texts: Option<Vec<String>>,
    outputs: usize,
    weights: Option<Vector<'_>>,
) -> PyResult<String> {
    let mut data = dataset_of(x, numbers, outputs, weights)?;
    if let Some(texts) = texts {
        data.targets = Targets::Text(texts);
    }
    Ok(data.fingerprint())
}
