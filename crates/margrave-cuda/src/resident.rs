//! Points in the memory of a card that somebody else owns: arrays of CuPy, PyTorch or JAX.
//!
//! Row-major values are used where they are, others are copied on the card. What the engine asks about them (are they
//! finite, which rows are equal, their centre and norms) is answered there, with the bits the processor would compute, so
//! that a model does not depend on where its points live. A copy in the memory of the processor is made on first use by code that needs
//! one: solvers and kernels that compute there.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use margrave_core::data::{Buffer as Values, Dense, Points, Real, Remote, RowHash, Storage};
use margrave_core::error::Error;

use crate::driver::{Buffer, Card, Turn, arguments, card_of};
use crate::error::CudaError;
use crate::points::Scalar;
use crate::ptx::Module;

const THREADS: u32 = 256;
const WHAT: &str = "the points";
/// Bytes that the addresses of values must be a multiple of to be used where they are: some programs load several at a time.
const ALIGNMENT: u64 = 16;

/// A matrix in the memory of a card, as its owner describes it.
pub struct CardMatrix {
    /// The address of its first element.
    pub address: u64,
    /// Number of rows and columns.
    pub shape: [usize; 2],
    /// Bytes between rows and between columns.
    pub strides: [isize; 2],
    /// Whether elements are doubles; they are single-precision numbers otherwise.
    pub double: bool,
    /// Keeps the memory alive.
    pub owner: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for CardMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CardMatrix({} × {} at {:#x})", self.shape[0], self.shape[1], self.address)
    }
}

/// How many values were copied from cards to the processor because points that live there were needed here.
static COPIED: AtomicU64 = AtomicU64::new(0);

/// How many values of points on cards this process has copied to the memory of the processor.
pub fn copied_values() -> u64 {
    COPIED.load(Ordering::Relaxed)
}

/// Values on a card, row-major.
struct Resident<T: Scalar> {
    values: Arc<Buffer<T>>,
    copy: OnceLock<Vec<T>>,
}

impl<T: Scalar> Resident<T> {
    fn new(values: Buffer<T>) -> Arc<Self> {
        Arc::new(Self { values: Arc::new(values), copy: OnceLock::new() })
    }

    fn card(&self) -> &'static Card {
        self.values.card()
    }

    /// The name of a program for this type.
    fn program(name: &str) -> String {
        format!("{name}_{}", if size_of::<T>() == 8 { "f64" } else { "f32" })
    }

    /// Runs `work` on the card. A failure is noted: the engine then asks the copy, and whoever lent the memory is told by
    /// [`CudaBackend::failure`](crate::CudaBackend::failure).
    fn ask<R>(&self, work: impl FnOnce(&Turn<'_>) -> Result<R, CudaError>) -> Option<R> {
        let done = self.card().enter().and_then(|turn| work(&turn));
        done.inspect_err(|error| self.card().note(error)).ok()
    }

    /// Starts the program `name` with a thread for each of `count` items.
    ///
    /// # Safety
    /// As for `Turn::launch`.
    unsafe fn each(
        turn: &Turn<'_>,
        name: &str,
        count: u64,
        arguments: &mut [*mut std::ffi::c_void],
    ) -> Result<(), CudaError> {
        let function = turn.function(Module::Arrays, &Self::program(name), 0)?;
        // SAFETY: the caller guarantees the arguments.
        unsafe { turn.launch(function, (count.div_ceil(u64::from(THREADS)) as u32, 1), THREADS, 0, arguments) }
    }
}

impl<T: Scalar> Remote<T> for Resident<T> {
    fn count(&self) -> usize {
        self.values.len()
    }

    fn values(&self) -> &[T] {
        self.copy.get_or_init(|| {
            let mut copy = vec![T::default(); self.values.len()];
            COPIED.fetch_add(copy.len() as u64, Ordering::Relaxed);
            let read = self.card().enter().and_then(|turn| turn.read(&self.values, 0, &mut copy));
            // There is nothing to return instead: the failure is noted, and whoever lent the memory discards the result.
            if let Err(error) = read {
                self.card().note(&error);
            }
            copy
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn first_not_finite(&self) -> Option<Option<(usize, f64)>> {
        /// Blocks that keep a card busy.
        const BLOCKS: u64 = 2048;
        let total = self.values.len() as u64;
        self.ask(|turn| {
            let first: Buffer<u64> = turn.upload(&[u64::MAX], WHAT)?;
            let count = total.min(BLOCKS * u64::from(THREADS));
            // SAFETY: the arguments are those of the program.
            unsafe { Self::each(turn, "check", count, arguments![self.values.address(), total, first.address()])? };
            let (mut at, mut value) = ([0u64], [T::default()]);
            turn.read(&first, 0, &mut at)?;
            if at[0] == u64::MAX {
                return Ok(None);
            }
            turn.read(&self.values, at[0] as usize, &mut value)?;
            Ok(Some((at[0] as usize, value[0].to_f64())))
        })
    }

    fn squared_norms(&self, dims: usize) -> Option<Vec<f64>> {
        if dims == 0 {
            return None;
        }
        let n = self.values.len() / dims;
        self.ask(|turn| {
            let out: Buffer<f64> = turn.allocate(n, "the norms of the points")?;
            let (rows, dims) = (n as u64, dims as u32);
            // SAFETY: the arguments are those of the program; there is room for all norms.
            unsafe { Self::each(turn, "norms", rows, arguments![self.values.address(), rows, dims, out.address()])? };
            let mut norms = vec![0.0; n];
            turn.read(&out, 0, &mut norms)?;
            Ok(norms)
        })
    }

    fn gather(&self, dims: usize, rows: &[u32]) -> Option<Values<T>> {
        let n = self.values.len() / dims.max(1);
        assert!(rows.iter().all(|&row| (row as usize) < n), "rows of the matrix");
        let there = self.ask(|turn| {
            let list = turn.upload(rows, "a list of rows")?;
            let out: Buffer<T> = turn.allocate(rows.len() * dims, WHAT)?;
            let (count, dims) = (rows.len() as u64, dims as u32);
            let total = count * u64::from(dims);
            let from = self.values.address();
            // SAFETY: the arguments are those of the program; rows were checked, and there is room for all of them.
            unsafe {
                Self::each(turn, "gather", total, arguments![from, dims, list.address(), count, out.address()])?;
            }
            Ok(out)
        })?;
        Some(Values::from_remote(Resident::new(there)))
    }

    fn hashes(&self, dims: usize, hash: RowHash) -> Option<Vec<u64>> {
        if dims == 0 {
            return None;
        }
        let n = self.values.len() / dims;
        self.ask(|turn| {
            let out: Buffer<u64> = turn.allocate(n, "the hashes of the points")?;
            let (from, rows, dims) = (self.values.address(), n as u64, dims as u32);
            // SAFETY: the arguments are those of the program; there is room for all hashes.
            unsafe { Self::each(turn, "hashes", rows, arguments![from, rows, dims, hash, out.address()])? };
            let mut hashes = vec![0; n];
            turn.read(&out, 0, &mut hashes)?;
            Ok(hashes)
        })
    }

    fn all_equal(&self, dims: usize, pairs: &[(u32, u32)]) -> Option<bool> {
        let n = self.values.len() / dims.max(1);
        assert!(pairs.iter().all(|&(a, b)| (a.max(b) as usize) < n), "rows of the matrix");
        self.ask(|turn| {
            let list: Vec<u32> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
            let list = turn.upload(&list, "pairs of rows")?;
            let different: Buffer<u32> = turn.upload(&[0], WHAT)?;
            let (from, count, dims) = (self.values.address(), pairs.len() as u64, dims as u32);
            // SAFETY: the arguments are those of the program; rows were checked.
            unsafe {
                Self::each(turn, "compare", count, arguments![from, dims, list.address(), count, different.address()])?;
            }
            let mut found = [0u32];
            turn.read(&different, 0, &mut found)?;
            Ok(found[0] == 0)
        })
    }
}

/// Points that live on a card. Commands that other libraries have given to the card are waited for first, so that values
/// are used as those commands leave them. Values that are not finite are an error.
pub fn points_on_card(matrix: CardMatrix) -> Result<(Points, u32), Error> {
    if matrix.shape.contains(&0) {
        return Err(Error::data("the matrix on the card has no rows or no columns"));
    }
    let number = card_of(matrix.address)?.ok_or_else(|| {
        Error::data("the address of the matrix is not memory of a card: pass an array that lives on one")
    })?;
    let card = Card::open(number)?;
    let points = match matrix.double {
        true => Dense::<f64>::new(matrix.shape[0], matrix.shape[1], held::<f64>(card, matrix)?)?.into(),
        false => Dense::<f32>::new(matrix.shape[0], matrix.shape[1], held::<f32>(card, matrix)?)?.into(),
    };
    match card.failure() {
        Some(failure) => Err(failure.clone().into()),
        None => Ok((points, number)),
    }
}

/// The values of a matrix, in place if they are row-major.
fn held<T: Scalar>(card: &'static Card, matrix: CardMatrix) -> Result<Values<T>, CudaError> {
    let (size, [n, d], [row, column]) = (size_of::<T>() as isize, matrix.shape, matrix.strides);
    let turn = card.enter()?;
    turn.wait_for_others()?;
    let in_order = (d == 1 || column == size) && (n == 1 || row == size * d as isize);
    if in_order && matrix.address.is_multiple_of(ALIGNMENT) {
        // SAFETY: the driver says that the memory is on this card; shape and owner are those its owner gave.
        let values = unsafe { Buffer::lent(card, matrix.address, n * d, matrix.owner) };
        return Ok(Values::from_remote(Resident::new(values)));
    }
    let out: Buffer<T> = turn.allocate(n * d, WHAT)?;
    let (rows, dims, total) = (n as u64, d as u32, (n * d) as u64);
    let (row, column) = (row as i64, column as i64);
    // SAFETY: the arguments are those of the program; strides are those that the owner gave.
    unsafe {
        let address = matrix.address;
        Resident::<T>::each(&turn, "pack", total, arguments![address, row, column, rows, dims, out.address()])?;
    }
    // The owner may reuse its memory from now on.
    turn.wait()?;
    Ok(Values::from_remote(Resident::new(out)))
}

/// The values of dense points on the card of a turn, if that is where they live.
pub(crate) fn on_card<T: Scalar>(turn: &Turn<'_>, points: &Points) -> Result<Option<Buffer<T>>, CudaError> {
    /// Values of one type as those of another, converted on the card.
    fn converted<S: Scalar, T: Scalar>(turn: &Turn<'_>, m: &Dense<S>) -> Result<Option<Buffer<T>>, CudaError> {
        let Some(resident) = m.remote().and_then(|values| values.as_any().downcast_ref::<Resident<S>>()) else {
            return Ok(None);
        };
        if !std::ptr::eq(resident.card(), turn.card) {
            return Ok(None);
        }
        let same: &dyn Any = &resident.values;
        if let Some(same) = same.downcast_ref::<Arc<Buffer<T>>>() {
            return Ok(Some(Buffer::shared(same)));
        }
        let total = resident.values.len() as u64;
        let out: Buffer<T> = turn.allocate(total as usize, WHAT)?;
        // SAFETY: the arguments are those of the program; there is room for all values.
        unsafe {
            Resident::<S>::each(turn, "convert", total, arguments![resident.values.address(), total, out.address()])?;
        }
        Ok(Some(out))
    }
    match points.storage() {
        Storage::DenseF32(m) => converted(turn, m),
        Storage::DenseF64(m) => converted(turn, m),
        Storage::SparseF32(_) | Storage::SparseF64(_) => Ok(None),
    }
}

/// Whether points live on some card.
pub fn card_number(points: &Points) -> Option<u32> {
    fn number<T: Scalar>(m: &Dense<T>) -> Option<u32> {
        let resident = m.remote()?.as_any().downcast_ref::<Resident<T>>()?;
        Some(resident.card().info.number)
    }
    match points.storage() {
        Storage::DenseF32(m) => number(m),
        Storage::DenseF64(m) => number(m),
        Storage::SparseF32(_) | Storage::SparseF64(_) => None,
    }
}

/// Calls `$body` with `$held` bound to the values of dense points on a card, or returns `None`.
macro_rules! with_resident {
    ($points:expr, $held:ident, $d:ident => $body:expr) => {
        match $points.storage() {
            Storage::DenseF32(m) => {
                let ($held, $d) = (m.remote()?.as_any().downcast_ref::<Resident<f32>>()?, m.dims());
                $body
            }
            Storage::DenseF64(m) => {
                let ($held, $d) = (m.remote()?.as_any().downcast_ref::<Resident<f64>>()?, m.dims());
                $body
            }
            Storage::SparseF32(_) | Storage::SparseF64(_) => None,
        }
    };
}

/// Sums of each column over parts of `height` rows, part after part; `None` if the points do not live on a card.
pub(crate) fn column_sums(points: &Points, height: usize) -> Option<Vec<f64>> {
    fn of<T: Scalar>(held: &Resident<T>, d: usize, n: usize, height: usize) -> Option<Vec<f64>> {
        held.ask(|turn| {
            let parts = n.div_ceil(height);
            let out: Buffer<f64> = turn.allocate(parts * d, "the centre of the points")?;
            let (from, rows, dims, each) = (held.values.address(), n as u64, d as u32, height as u64);
            let count = (parts * d) as u64;
            // SAFETY: the arguments are those of the program; there is room for all sums.
            unsafe {
                Resident::<T>::each(turn, "columns", count, arguments![from, rows, dims, each, out.address()])?;
            }
            let mut sums = vec![0.0; parts * d];
            turn.read(&out, 0, &mut sums)?;
            Ok(sums)
        })
    }
    let n = points.len();
    with_resident!(points, held, d => of(held, d, n, height))
}

/// The largest ‖x − c‖² and ‖x − c‖₁; `None` if the points do not live on a card.
pub(crate) fn largest(points: &Points, centre: Option<&[f64]>) -> Option<[f64; 2]> {
    fn of<T: Scalar>(held: &Resident<T>, d: usize, n: usize, centre: Option<&[f64]>) -> Option<[f64; 2]> {
        held.ask(|turn| {
            let centre = centre.map(|c| turn.upload(c, "the centre of the points")).transpose()?;
            let out: Buffer<u64> = turn.upload(&[0, 0], WHAT)?;
            let (from, rows, dims) = (held.values.address(), n as u64, d as u32);
            let centre_at = centre.as_ref().map_or(0, Buffer::address);
            // SAFETY: the arguments are those of the program.
            unsafe {
                Resident::<T>::each(turn, "sizes", rows, arguments![from, centre_at, rows, dims, out.address()])?;
            }
            let mut bits = [0u64; 2];
            turn.read(&out, 0, &mut bits)?;
            Ok(bits.map(f64::from_bits))
        })
    }
    let n = points.len();
    with_resident!(points, held, d => of(held, d, n, centre))
}

/// The sum of x − `shift` over each row, or of its squares; `None` if the points do not live on a card, or if it failed.
pub fn row_sums(points: &Points, shift: f64, squared: bool) -> Option<Vec<f64>> {
    fn of<T: Scalar>(held: &Resident<T>, d: usize, n: usize, shift: f64, squared: bool) -> Option<Vec<f64>> {
        held.ask(|turn| {
            let out: Buffer<f64> = turn.allocate(n, "sums of the points")?;
            let (from, rows, dims, squared) = (held.values.address(), n as u64, d as u32, u32::from(squared));
            // SAFETY: the arguments are those of the program; there is room for all sums.
            unsafe {
                Resident::<T>::each(turn, "sums", rows, arguments![from, rows, dims, shift, squared, out.address()])?;
            }
            let mut sums = vec![0.0; n];
            turn.read(&out, 0, &mut sums)?;
            Ok(sums)
        })
    }
    let n = points.len();
    with_resident!(points, held, d => of(held, d, n, shift, squared))
}

/// A copy of host values as points on a card: for tests, and for callers that use the same points many times.
pub fn copy_to_card(number: u32, points: &Points) -> Result<Points, Error> {
    fn copied<T: Scalar + Real>(card: &'static Card, m: &Dense<T>) -> Result<Points, Error>
    where
        Points: From<Dense<T>>,
    {
        let values = card.enter()?.upload(m.values(), WHAT)?;
        Ok(Dense::<T>::new(m.len(), m.dims(), Values::from_remote(Resident::new(values)))?.into())
    }
    let card = Card::open(number)?;
    match points.storage() {
        Storage::DenseF32(m) => copied(card, m),
        Storage::DenseF64(m) => copied(card, m),
        Storage::SparseF32(_) | Storage::SparseF64(_) => Err(Error::data("sparse points stay with the processor")),
    }
}
