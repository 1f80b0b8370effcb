//! Points on a card.

use std::sync::{Arc, Mutex, PoisonError};

use margrave_core::data::{Csr, Points, Real, Storage};

use crate::driver::{Buffer, Plain, Turn};
use crate::error::CudaError;

/// Values copied to the card at a time.
const PIECE: usize = 1 << 18;

/// A number that the programs compute with.
pub(crate) trait Scalar: Plain + Real {
    /// Rounds a double.
    fn of(x: f64) -> Self;
}

impl Scalar for f32 {
    fn of(x: f64) -> Self {
        x as f32
    }
}

impl Scalar for f64 {
    fn of(x: f64) -> Self {
        x
    }
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

    /// Copies points to the card, minus `centre` if they are dense.
    pub(crate) fn new(turn: &Turn<'_>, points: &Points, centre: Option<&[f64]>) -> Result<Self, CudaError> {
        let (values, sparse) = match points.storage() {
            Storage::DenseF32(m) => (upload(turn, m.values(), m.dims(), centre)?, None),
            Storage::DenseF64(m) => (upload(turn, m.values(), m.dims(), centre)?, None),
            Storage::SparseF32(m) => upload_sparse(turn, m)?,
            Storage::SparseF64(m) => upload_sparse(turn, m)?,
        };
        Ok(Self { values, sparse, dims: points.dims() as u32, len: points.len() as u32 })
    }

    /// The points `pick`, or `count` points from `first` on.
    pub(crate) fn side(&self, pick: Option<&Buffer<u32>>, first: u32, count: u32) -> Side {
        debug_assert!(pick.is_some() || first + count <= self.len);
        Side {
            values: self.values.address(),
            starts: self.sparse.as_ref().map_or(0, |(starts, _)| starts.address()),
            columns: self.sparse.as_ref().map_or(0, |(_, columns)| columns.address()),
            pick: pick.map_or(0, Buffer::address),
            first,
            count,
            dims: self.dims,
            unused: 0,
        }
    }
}

fn upload<S: Real, T: Scalar>(
    turn: &Turn<'_>,
    values: &[S],
    dims: usize,
    centre: Option<&[f64]>,
) -> Result<Buffer<T>, CudaError> {
    let buffer = turn.allocate(values.len(), WHAT)?;
    let mut piece: Vec<T> = Vec::with_capacity(PIECE.min(values.len()));
    let step = (PIECE / dims.max(1)).max(1) * dims.max(1);
    for (at, part) in values.chunks(step).enumerate() {
        piece.clear();
        match centre {
            Some(centre) => part.chunks_exact(dims.max(1)).for_each(|row| {
                piece.extend(row.iter().zip(centre).map(|(x, c)| T::of(x.to_f64() - c)));
            }),
            None => piece.extend(part.iter().map(|x| T::of(x.to_f64()))),
        }
        turn.write(&buffer, at * step, &piece)?;
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

/// Points that are copied to the card on first use.
#[derive(Debug, Default)]
pub(crate) struct LazyPoints<T: Plain>(Mutex<Option<Arc<DevicePoints<T>>>>);

impl<T: Scalar> LazyPoints<T> {
    pub(crate) fn get(
        &self,
        turn: &Turn<'_>,
        points: &Points,
        centre: Option<&[f64]>,
    ) -> Result<Arc<DevicePoints<T>>, CudaError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(points) = &*held {
            return Ok(Arc::clone(points));
        }
        let made = Arc::new(DevicePoints::new(turn, points, centre)?);
        Ok(Arc::clone(held.insert(made)))
    }
}
