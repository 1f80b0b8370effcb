//! Points for products in double precision by tensor cores (`kernels/wide.cu`), and how accurate those are.
//!
//! With X = ‖x − c‖, Z = ‖z − c‖ and unit roundoff u, to first order in u:
//!
//! - the rounding of x − c and z − c changes ‖x − z‖² by at most 2‖x − z‖·u(X + Z) ≤ 2u(X + Z)²;
//! - a squared norm is added up with compensation, by 32 threads each, and then over these: both have errors of at most 8u(X² + Z²);
//! - x·z is added up in the order of the features; with a rounding for each product and each addition its error is at most
//!   (d + 4)·u·XZ for d features (a multiple of 4). More than 64 features are added up in parts of 32, whose sums are then added in
//!   order: the parts have errors of at most (32 + 4)·u·X_pZ_p, together (32 + 4)·u·XZ by Cauchy and Schwarz, and the additions
//!   of at most d/32 + 1 sums one of as many u·XZ. With c = d + 4 or 37 + d/32 the error of 2x·z is at most c/2·u(X + Z)²;
//! - γX² and γZ² are rounded, their sum is, and so is the sum with 2γx·z: at most 3uγ(X + Z)².
//!
//! The exponential of s ≤ 0 has a slope of at most 1, so an entry has an error of γ(X + Z)²·(c/2 + 13) units of roundoff, and four
//! more for the exponential itself. Sums over differences do not cancel and are used where this is too coarse.

use margrave_core::data::Points;
use margrave_core::gram::Chain;
use margrave_core::kernel::Kernel;

use crate::driver::{Buffer, Turn, arguments};
use crate::error::CudaError;
use crate::points::{DevicePoints, Raw};
use crate::ptx::Module;

/// Rows of a tile: `ROWS` of wide.cu.
pub(crate) const ROWS: u32 = 128;
/// Columns of a tile: `COLUMNS` of wide.cu.
pub(crate) const COLUMNS: u32 = 64;
/// Columns that one block adds up: `COLUMNS`·`TILES` of wide.cu.
pub(crate) const SPLIT: u32 = 1024;
/// Threads of a block: `THREADS` of wide.cu.
pub(crate) const THREADS: u32 = 256;
/// Bytes of shared memory: two buffers for the features of a tile.
pub(crate) const SHARED: u32 = 2 * (ROWS + COLUMNS) * 20 * 8;
/// Largest error of an entry in double precision that every backend guarantees.
const LARGEST_ERROR: f64 = 1e-13;
/// Features whose products are added up in one chain; more come in parts of 32: `PART` of wide.cu.
const ONE_PART: u32 = 64;
/// Sparse points of more features are not stored as dense ones.
pub(crate) const MOST_DENSE: usize = 1024;
/// Additions in the longest chain of a product: see wide.cu.
pub(crate) const CHAIN: Chain = Chain { fixed: 8.0 * 16.0 + 5.0, columns: SPLIT as f64 };

/// The bound on the error of an entry, in units of roundoff, if it is small enough. `norm`: the largest ‖x − c‖.
pub(crate) fn entry_error(kernel: &Kernel, points: &Points, norm: f64) -> Option<f64> {
    let Kernel::Rbf { gamma } = *kernel else { return None };
    if points.dims() == 0 || (points.is_sparse() && points.dims() > MOST_DENSE) {
        return None;
    }
    let d = stride(points.dims());
    let chain = if d > ONE_PART { 37.0 + f64::from(d) / 32.0 } else { f64::from(d) + 4.0 };
    let error = gamma * (2.0 * norm).powi(2) * (chain / 2.0 + 13.0) + 4.0;
    (error * 0.5 * f64::EPSILON <= LARGEST_ERROR).then_some(error)
}

/// Doubles of a row.
fn stride(dims: usize) -> u32 {
    dims.next_multiple_of(4) as u32
}

/// The module of a card.
pub(crate) fn module(turn: &Turn<'_>) -> Module {
    if turn.card.info.capability >= 90 { Module::Hopper } else { Module::Wide }
}

/// Points less their centre, with squared norms.
#[derive(Debug)]
pub(crate) struct WidePoints {
    rows: Buffer<f64>,
    norms: Buffer<f64>,
    stride: u32,
}

/// `Side` of wide.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct WideSide {
    rows: u64,
    norms: u64,
    pick: u64,
    first: u32,
    count: u32,
    stride: u32,
    unused: u32,
}

impl WideSide {
    /// Number of points.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// `count` points from `at` on.
    pub(crate) fn part(mut self, at: usize, count: usize) -> Self {
        if self.pick == 0 {
            self.first += at as u32;
        } else {
            self.pick += 4 * at as u64;
        }
        self.count = count as u32;
        self
    }
}

impl WidePoints {
    /// Bytes that the points take.
    pub(crate) fn bytes(points: &Points) -> u64 {
        (points.len() * (stride(points.dims()) as usize + 1) * 8) as u64
    }

    /// The points minus `centre`, which only dense points have.
    pub(crate) fn new(turn: &Turn<'_>, raw: &Raw, centre: Option<&[f64]>) -> Result<Self, CudaError> {
        fn convert<T: crate::points::Scalar>(
            turn: &Turn<'_>,
            points: &DevicePoints<T>,
            name: &str,
            centre: Option<&Buffer<f64>>,
        ) -> Result<WidePoints, CudaError> {
            let (n, dims, what) = (points.len, points.dims, "the points in double precision");
            let stride = stride(dims as usize);
            let made = WidePoints {
                rows: turn.allocate(n as usize * stride as usize, what)?,
                norms: turn.allocate(n as usize, what)?,
                stride,
            };
            let (starts, columns) = points.sparse_addresses();
            let (values, centre) = (points.values.address(), centre.map_or(0, Buffer::address));
            let function = turn.function(module(turn), name, 0)?;
            // SAFETY: the arguments are those of the program; there is room for all rows and norms.
            unsafe {
                turn.launch(
                    function,
                    (n.div_ceil(THREADS / 32), 1),
                    THREADS,
                    0,
                    arguments![
                        values,
                        starts,
                        columns,
                        centre,
                        n,
                        dims,
                        stride,
                        made.rows.address(),
                        made.norms.address()
                    ],
                )?;
            }
            Ok(made)
        }
        let centre = centre.map(|c| turn.upload(c, "the centre of the points")).transpose()?;
        match raw {
            Raw::Single(points) => convert(turn, points, "widen_f32", centre.as_ref()),
            Raw::Double(points) => convert(turn, points, "widen_f64", centre.as_ref()),
        }
    }

    /// The points `pick`, or `count` points from `first` on.
    pub(crate) fn side(&self, pick: Option<&Buffer<u32>>, first: u32, count: u32) -> WideSide {
        self.at(pick.map_or(0, Buffer::address), first as usize, count as usize)
    }

    /// The points of the list at the address `pick`, or, if that is 0, `count` points from `first` on.
    pub(crate) fn at(&self, pick: u64, first: usize, count: usize) -> WideSide {
        WideSide {
            rows: self.rows.address(),
            norms: self.norms.address(),
            pick,
            first: first as u32,
            count: count as u32,
            stride: self.stride,
            unused: 0,
        }
    }
}

/// out = K[rows, columns]·v on the card. `parts` has room for a number per row and split.
pub(crate) fn product(
    turn: &Turn<'_>,
    rows: WideSide,
    columns: WideSide,
    kernel: crate::arithmetic::KernelArgument,
    v: u64,
    parts: u64,
    out: u64,
) -> Result<(), CudaError> {
    let (count, splits) = (rows.count(), sums(turn, rows, columns, kernel, v, parts)?);
    let sum = turn.function(module(turn), "wide_sum", 0)?;
    // SAFETY: the arguments are those of the program; the caller has room for the results.
    unsafe { turn.launch(sum, (count.div_ceil(THREADS), 1), THREADS, 0, arguments![parts, splits, count, out]) }
}

/// parts[split][row] = the split's share of K[rows, columns]·v; returns the number of splits.
pub(crate) fn sums(
    turn: &Turn<'_>,
    rows: WideSide,
    columns: WideSide,
    kernel: crate::arithmetic::KernelArgument,
    v: u64,
    parts: u64,
) -> Result<u32, CudaError> {
    let (count, splits) = (rows.count(), columns.count().div_ceil(SPLIT));
    let name = if rows.stride > ONE_PART { "wide_product_many" } else { "wide_product" };
    let product = turn.function(module(turn), name, SHARED)?;
    let grid = (count.div_ceil(ROWS), splits);
    // SAFETY: the arguments are those of the program; the caller has room for the parts.
    unsafe { turn.launch(product, grid, THREADS, SHARED, arguments![rows, columns, kernel, v, parts])? };
    Ok(splits)
}

/// out = K[rows, columns] on the card, row-major.
pub(crate) fn block(
    turn: &Turn<'_>,
    rows: WideSide,
    columns: WideSide,
    kernel: crate::arithmetic::KernelArgument,
    out: u64,
) -> Result<(), CudaError> {
    let name = if rows.stride > ONE_PART { "wide_block_many" } else { "wide_block" };
    let function = turn.function(module(turn), name, SHARED)?;
    let grid = (rows.count().div_ceil(ROWS), columns.count().div_ceil(SPLIT));
    // SAFETY: the arguments are those of the program; the caller has room for all entries.
    unsafe { turn.launch(function, grid, THREADS, SHARED, arguments![rows, columns, kernel, out]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_far_apart_are_left_to_differences() {
        let points = Points::dense_f64(2, 50, vec![0.0; 100]).unwrap();
        let error = |gamma, norm| entry_error(&Kernel::rbf(gamma), &points, norm);
        assert!(error(0.02, 10.0).is_some() && error(0.02, 100.0).is_none() && error(2.0, 10.0).is_none());
        // Sums of many features come in parts: their error grows with the number of parts, not of features.
        let many = Points::dense_f64(2, 784, vec![0.0; 1568]).unwrap();
        assert!(entry_error(&Kernel::rbf(0.02), &many, 13.0).is_some_and(|error| error < 900.0));
        assert_eq!(entry_error(&Kernel::Laplacian { gamma: 0.02 }, &points, 1.0), None);
    }
}
