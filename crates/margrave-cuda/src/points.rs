//! Points on a card.

use std::any::TypeId;
use std::sync::{Arc, Mutex, PoisonError};

use margrave_core::data::{Csr, Points, Real, Storage};

use crate::driver::{Buffer, Plain, Turn, arguments};
use crate::error::CudaError;
use crate::phases::phase;
use crate::resident::on_card;
use crate::wide::{self, THREADS};

/// Values copied to the card at a time.
const PIECE: usize = 1 << 18;

/// A number that the programs compute with.
pub(crate) trait Scalar: Plain + Real {
    /// Rounds a double.
    fn of(x: f64) -> Self;

    /// The values themselves, if they have this precision.
    fn slice<S: Real>(values: &[S]) -> Option<&[Self]>;
}

impl Scalar for f32 {
    fn of(x: f64) -> Self {
        x as f32
    }

    fn slice<S: Real>(values: &[S]) -> Option<&[Self]> {
        same(values)
    }
}

impl Scalar for f64 {
    fn of(x: f64) -> Self {
        x
    }

    fn slice<S: Real>(values: &[S]) -> Option<&[Self]> {
        same(values)
    }
}

/// The values as `T`s, if that is what they are.
fn same<S: Real, T: 'static>(values: &[S]) -> Option<&[T]> {
    // SAFETY: both are the same type.
    (TypeId::of::<S>() == TypeId::of::<T>())
        .then(|| unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) })
}

/// Points in one precision, dense or sparse as stored.
#[derive(Debug)]
pub(crate) struct DevicePoints<T: Plain> {
    pub(crate) values: Buffer<T>,
    sparse: Option<(Buffer<u64>, Buffer<u32>)>,
    pub(crate) dims: u32,
    pub(crate) len: u32,
}

/// Points and which of them are used, as the programs take them.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Side {
    values: u64,
    starts: u64,
    columns: u64,
    pick: u64,
    first: u32,
    count: u32,
    dims: u32,
    unused: u32,
}

impl Side {
    /// Number of points.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The same with the list of indices moved on by `at`; points without a list are unchanged.
    pub(crate) fn from(mut self, at: usize) -> Self {
        if self.pick != 0 {
            self.pick += 4 * at as u64;
        }
        self
    }
}

const WHAT: &str = "the points";

impl<T: Scalar> DevicePoints<T> {
    /// Bytes that the points take.
    pub(crate) fn bytes(points: &Points) -> u64 {
        let sparse = if points.is_sparse() { points.stored() * 4 + points.len() * 8 } else { 0 };
        (points.stored() * size_of::<T>() + sparse) as u64
    }

    /// Copies points to the card as they are.
    pub(crate) fn new(turn: &Turn<'_>, points: &Points) -> Result<Self, CudaError> {
        if let Some(values) = on_card(turn, points)? {
            return Ok(Self { values, sparse: None, dims: points.dims() as u32, len: points.len() as u32 });
        }
        let (values, sparse) = match points.storage() {
            Storage::DenseF32(m) => (upload(turn, m.values())?, None),
            Storage::DenseF64(m) => (upload(turn, m.values())?, None),
            Storage::SparseF32(m) => upload_sparse(turn, m)?,
            Storage::SparseF64(m) => upload_sparse(turn, m)?,
        };
        Ok(Self { values, sparse, dims: points.dims() as u32, len: points.len() as u32 })
    }

    /// The addresses of the starts of rows and of the columns; zeros for dense points.
    pub(crate) fn sparse_addresses(&self) -> (u64, u64) {
        self.sparse.as_ref().map_or((0, 0), |(starts, columns)| (starts.address(), columns.address()))
    }

    /// The points `pick`, or `count` points from `first` on.
    pub(crate) fn side(&self, pick: Option<&Buffer<u32>>, first: u32, count: u32) -> Side {
        debug_assert!(pick.is_some() || first + count <= self.len);
        self.at(pick.map_or(0, Buffer::address), first as usize, count as usize)
    }

    /// The points of the list at the address `pick`, or, if that is 0, `count` points from `first` on.
    pub(crate) fn at(&self, pick: u64, first: usize, count: usize) -> Side {
        Side {
            values: self.values.address(),
            starts: self.sparse_addresses().0,
            columns: self.sparse_addresses().1,
            pick,
            first: first as u32,
            count: count as u32,
            dims: self.dims,
            unused: 0,
        }
    }
}

fn upload<S: Real, T: Scalar>(turn: &Turn<'_>, values: &[S]) -> Result<Buffer<T>, CudaError> {
    let buffer = turn.allocate(values.len(), WHAT)?;
    if let Some(same) = T::slice(values) {
        turn.write(&buffer, 0, same)?;
        return Ok(buffer);
    }
    let mut piece: Vec<T> = Vec::with_capacity(PIECE.min(values.len()));
    for (at, part) in values.chunks(PIECE).enumerate() {
        piece.clear();
        piece.extend(part.iter().map(|x| T::of(x.to_f64())));
        turn.write(&buffer, at * PIECE, &piece)?;
    }
    Ok(buffer)
}

type SparseParts<T> = (Buffer<T>, Option<(Buffer<u64>, Buffer<u32>)>);

fn upload_sparse<S: Real, T: Scalar>(turn: &Turn<'_>, m: &Csr<S>) -> Result<SparseParts<T>, CudaError> {
    let n = m.len();
    let mut starts = Vec::with_capacity(n + 1);
    let (mut columns, mut values) = (Vec::with_capacity(m.stored()), Vec::with_capacity(m.stored()));
    starts.push(0u64);
    for i in 0..n {
        let (c, v) = m.row(i);
        columns.extend_from_slice(c);
        values.extend(v.iter().map(|x| T::of(x.to_f64())));
        starts.push(columns.len() as u64);
    }
    Ok((turn.upload(&values, WHAT)?, Some((turn.upload(&starts, WHAT)?, turn.upload(&columns, WHAT)?))))
}

/// Points on the card in the precision they are stored in.
#[derive(Debug)]
pub(crate) enum Raw {
    Single(DevicePoints<f32>),
    Double(DevicePoints<f64>),
}

impl Raw {
    /// Copies points to the card.
    pub(crate) fn new(turn: &Turn<'_>, points: &Points) -> Result<Self, CudaError> {
        phase("copy points", points.stored() as f64, Some(turn), || {
            Ok(match points.storage() {
                Storage::DenseF32(_) | Storage::SparseF32(_) => Raw::Single(DevicePoints::new(turn, points)?),
                Storage::DenseF64(_) | Storage::SparseF64(_) => Raw::Double(DevicePoints::new(turn, points)?),
            })
        })
    }

    /// The points in single precision, minus `centre` if they are dense.
    pub(crate) fn centred(
        &self,
        turn: &Turn<'_>,
        points: &Points,
        centre: Option<&[f64]>,
    ) -> Result<DevicePoints<f32>, CudaError> {
        let Some(centre) = centre else { return DevicePoints::new(turn, points) };
        let (name, values, dims, len) = match self {
            Raw::Single(raw) => ("narrow_f32", raw.values.address(), raw.dims, raw.len),
            Raw::Double(raw) => ("narrow_f64", raw.values.address(), raw.dims, raw.len),
        };
        let total = u64::from(len) * u64::from(dims);
        let (centre, out) = (turn.upload(centre, WHAT)?, turn.allocate(total as usize, WHAT)?);
        let function = turn.function(wide::module(turn), name, 0)?;
        let blocks = total.div_ceil(u64::from(THREADS)) as u32;
        // SAFETY: the arguments are those of the program; there is room for all values.
        unsafe {
            turn.launch(
                function,
                (blocks, 1),
                THREADS,
                0,
                arguments![values, centre.address(), total, dims, out.address()],
            )?;
        }
        Ok(DevicePoints { values: out, sparse: None, dims, len })
    }
}

/// What is made on the card on first use.
#[derive(Debug)]
pub(crate) struct Lazy<P>(Mutex<Option<Arc<P>>>);

impl<P> Default for Lazy<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P> Lazy<P> {
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<P, CudaError>) -> Result<Arc<P>, CudaError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*held {
            return Ok(Arc::clone(made));
        }
        Ok(Arc::clone(held.insert(Arc::new(make()?))))
    }
}
