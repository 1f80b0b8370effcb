//! Arrays in the memory of a card, by `__cuda_array_interface__` or DLPack.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use margrave::engine::data::{Points, Storage};
use margrave_cuda::{CardMatrix, card_number, points_on_card, row_sums};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::data::vector;
use crate::errors::{DeviceError, raise};

/// Points on a card, used where they are. Copies are made of what is asked for: NumPy arrays.
#[pyclass(frozen, module = "margrave._core")]
pub(crate) struct CardArray {
    points: Points,
    card: u32,
}

/// DLPack's description of an array, version 0.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: i32,
    device_number: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    offset: u64,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Tensor)>,
}

/// A tensor taken over from its producer, which frees it when told to.
struct Taken(*mut Tensor);

// SAFETY: the tensor is only read, and its deleter may be called from any thread: producers take the interpreter's lock themselves.
unsafe impl Send for Taken {}
// SAFETY: as above.
unsafe impl Sync for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the tensor was taken over once, and is freed once.
        unsafe {
            if let Some(delete) = (*self.0).deleter {
                delete(self.0);
            }
        }
    }
}

/// Types of numbers by the names of the array interface: float16, int64 and so on.
fn not_a_float(name: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "the array on the card has elements of type {name}: convert it there to float32 or float64 first, \
         X.astype(\"float32\") in CuPy or X.float() in PyTorch"
    ))
}

fn matrix_shape(shape: &[i64]) -> PyResult<[usize; 2]> {
    match *shape {
        [rows, columns] if rows >= 0 && columns >= 0 => Ok([rows as usize, columns as usize]),
        _ => Err(PyValueError::new_err(format!(
            "Expected 2D array, got an array of {} dimensions on the card instead",
            shape.len()
        ))),
    }
}

fn c_order([_, columns]: [usize; 2], size: isize) -> [isize; 2] {
    [columns as isize * size, size]
}

/// The array by `__cuda_array_interface__`.
fn by_interface(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>) -> PyResult<CardMatrix> {
    let interface = interface.cast::<PyDict>()?;
    let required = |key: &str| {
        interface.get_item(key)?.ok_or_else(|| PyValueError::new_err(format!("an interface without {key}")))
    };
    let kind: String = required("typestr")?.extract()?;
    let double = match kind.as_str() {
        "<f8" | "=f8" => true,
        "<f4" | "=f4" => false,
        other => return Err(not_a_float(other)),
    };
    if interface.get_item("mask")?.is_some_and(|mask| !mask.is_none()) {
        return Err(PyValueError::new_err("masked arrays on a card are not supported: fill the masked values first"));
    }
    let shape = matrix_shape(&required("shape")?.extract::<Vec<i64>>()?)?;
    let (address, _): (u64, bool) = required("data")?.extract()?;
    let given = interface.get_item("strides")?.filter(|strides| !strides.is_none());
    let strides = match given {
        Some(strides) => strides.extract::<(isize, isize)>()?.into(),
        None => c_order(shape, if double { 8 } else { 4 }),
    };
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(object.clone().unbind());
    Ok(CardMatrix { address, shape, strides, double, owner })
}

/// The array by DLPack.
fn by_dlpack(object: &Bound<'_, PyAny>) -> PyResult<CardMatrix> {
    const NAME: &CStr = c"dltensor";
    const USED: &CStr = c"used_dltensor";
    let options = PyDict::new(object.py());
    // The producer makes the default stream wait for its own; all streams are waited for before the values are used.
    options.set_item("stream", 1)?;
    let capsule = object.call_method("__dlpack__", (), Some(&options))?;
    let capsule = capsule.cast::<PyCapsule>()?;
    // SAFETY: the capsule is alive; its pointer is a tensor if it has this name, and after renaming it belongs to us.
    let taken = unsafe {
        let tensor = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast::<Tensor>();
        if tensor.is_null() {
            return Err(PyErr::fetch(object.py()));
        }
        if ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Taken(tensor)
    };
    // SAFETY: the tensor is alive, and its arrays have `ndim` elements.
    let (tensor, shape) = unsafe {
        let tensor = &*taken.0;
        let ndim = tensor.ndim.max(0) as usize;
        (tensor, if ndim == 0 { &[][..] } else { std::slice::from_raw_parts(tensor.shape, ndim) })
    };
    let double = match (tensor.code, tensor.bits, tensor.lanes) {
        (2, 64, 1) => true,
        (2, 32, 1) => false,
        (code, bits, _) => return Err(not_a_float(&format!("{bits} bits of DLPack's kind {code}"))),
    };
    let shape = matrix_shape(shape)?;
    let size = if double { 8 } else { 4 };
    let strides = match tensor.strides.is_null() {
        true => c_order(shape, size),
        // SAFETY: there are as many strides as dimensions, counted in elements.
        false => unsafe { [*tensor.strides as isize * size, *tensor.strides.add(1) as isize * size] },
    };
    let address = tensor.data as u64 + tensor.offset;
    Ok(CardMatrix { address, shape, strides, double, owner: Arc::new(taken) })
}

#[pymethods]
impl CardArray {
    /// The array of CuPy, PyTorch, JAX or another library.
    #[new]
    fn new(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let matrix = match array.getattr_opt("__cuda_array_interface__")? {
            Some(interface) => by_interface(array, &interface)?,
            None => by_dlpack(array)?,
        };
        let (points, card) = py.detach(|| points_on_card(matrix)).map_err(raise)?;
        Ok(Self { points, card })
    }

    /// Number of rows and columns.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.points.len(), self.points.dims())
    }

    /// 2.
    #[getter]
    fn ndim(&self) -> usize {
        2
    }

    /// The NumPy type of the elements.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self.points.storage() {
            Storage::DenseF32(_) => numpy::dtype::<f32>(py).into_any(),
            _ => numpy::dtype::<f64>(py).into_any(),
        }
    }

    /// How many values of arrays on cards this process has copied to the memory of the processor.
    #[staticmethod]
    fn copied() -> u64 {
        margrave_cuda::copied_values()
    }

    /// The number of the card.
    #[getter]
    fn card(&self) -> u32 {
        self.card
    }

    fn __len__(&self) -> usize {
        self.points.len()
    }

    /// The sum over each row of its values minus `shift`, or of their squares.
    #[pyo3(signature = (shift, squared))]
    fn row_sums<'py>(&self, py: Python<'py>, shift: f64, squared: bool) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let sums = py.detach(|| row_sums(&self.points, shift, squared));
        sums.map(|sums| vector(py, sums)).ok_or_else(|| failure(&self.points))
    }

    /// Some of the rows, on the card.
    fn take(&self, py: Python<'_>, rows: PyReadonlyArray1<'_, i64>) -> PyResult<Self> {
        let rows = self.rows(rows.as_slice()?)?;
        let points = py.detach(|| self.points.gather(&rows));
        check(&self.points)?;
        Ok(Self { points, card: self.card })
    }

    /// All values, as a NumPy array.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (n, d) = self.shape();
        let out = match self.points.storage() {
            Storage::DenseF32(m) => PyArray1::from_slice(py, py.detach(|| m.values())).reshape([n, d])?.into_any(),
            Storage::DenseF64(m) => PyArray1::from_slice(py, py.detach(|| m.values())).reshape([n, d])?.into_any(),
            Storage::SparseF32(_) | Storage::SparseF64(_) => return Err(PyTypeError::new_err("a sparse matrix")),
        };
        check(&self.points)?;
        Ok(out)
    }
}

impl CardArray {
    pub(crate) fn points(&self) -> Points {
        self.points.clone()
    }

    fn rows(&self, rows: &[i64]) -> PyResult<Vec<u32>> {
        let n = self.points.len() as i64;
        let inside = |&row: &i64| (0..n).contains(&row).then_some(row as u32);
        let list: Option<Vec<u32>> = rows.iter().map(inside).collect();
        list.ok_or_else(|| PyValueError::new_err(format!("a row is not one of the {n} rows")))
    }
}

fn failure(points: &Points) -> PyErr {
    check(points).err().unwrap_or_else(|| DeviceError::new_err("the card has too little free memory"))
}

/// Fails if points live on a card that has failed: values may then have been lost.
pub(crate) fn check(points: &Points) -> PyResult<()> {
    let Some(number) = card_number(points) else { return Ok(()) };
    let backend = margrave_cuda::CudaBackend::open(number).map_err(|error| raise(error.into()))?;
    match backend.card_failure() {
        Some(error) => Err(raise(error.clone().into())),
        None => Ok(()),
    }
}
