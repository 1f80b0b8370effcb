//! Points for the solver's entries in single precision by tensor cores (`kernels/packed.cu`).

use margrave_core::data::Points;
use margrave_core::kernel::Kernel;

use crate::arithmetic::KernelArgument;
use crate::driver::{Buffer, Turn, arguments};
use crate::error::CudaError;
use crate::points::DevicePoints;
use crate::ptx::Module;
use crate::wide::MOST_DENSE;

/// Rows and columns of a tile: `SIDE` of packed.cu.
pub(crate) const SIDE: u32 = 128;
/// Features of a chunk: `CHUNK` of packed.cu.
const CHUNK: u32 = 64;
const THREADS: u32 = 256;
/// The largest estimate of the error of an entry with which the solver still makes progress to what double precision then corrects.
const LARGEST_ERROR: f64 = 1e-5;
/// Largest absolute coordinate after scaling, well within the range of half precision.
const LARGEST: f64 = 1024.0;
/// Blocks that keep a card busy.
const BLOCKS: u32 = 264 * 6;

/// Whether entries are accurate enough. `norm`: the largest norm of a point, less the centre if it is dense.
pub(crate) fn suffices(kernel: &Kernel, points: &Points, norm: f64) -> bool {
    let slope = match *kernel {
        Kernel::Rbf { gamma } => gamma,
        Kernel::Matern32 { gamma } => 3.0 * gamma,
        Kernel::Matern52 { gamma } => 5.0 / 3.0 * gamma,
        _ => return false,
    };
    let fits = points.dims() > 0 && (!points.is_sparse() || points.dims() <= MOST_DENSE);
    // Measured errors are up to 1.5 of these units.
    let error = 1.5 * slope * (2.0 * norm).powi(2) / f64::from(1u32 << 22);
    fits && norm > 0.0 && norm.is_finite() && error <= LARGEST_ERROR
}

/// Bytes of shared memory of a program for points of so many chunks.
fn shared(chunks: u32) -> u32 {
    (if chunks > 1 { 4 } else { 3 }) * SIDE * (2 * CHUNK + 8) * 2 + 4 * SIDE * 4
}

/// The module for points of so many chunks.
fn module(chunks: u32) -> Module {
    if chunks > 1 { Module::Chunked } else { Module::Packed }
}

/// Points as two half-precision numbers per coordinate, in the order of the solver's variables.
#[derive(Debug)]
pub(crate) struct PackedPoints {
    rows: Buffer<u16>,
    norms: Buffer<f32>,
    chunks: u32,
    steps: u32,
    unscale: f32,
}

/// `Side` of packed.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PackedSide {
    rows: u64,
    norms: u64,
    pick: u64,
    first: u32,
    count: u32,
    chunks: u32,
    steps: u32,
    unscale: f32,
    unused: u32,
}

impl PackedPoints {
    /// Packs the points `order[0]`, `order[1]`, …; `None` if the card has too little memory of one kind or another.
    pub(crate) fn fitting(
        turn: &Turn<'_>,
        points: &DevicePoints<f32>,
        order: &Buffer<u32>,
        norm: f64,
    ) -> Result<Option<Self>, CudaError> {
        if shared(points.dims.div_ceil(CHUNK)) > turn.card.info.shared {
            return Ok(None);
        }
        match Self::new(turn, points, order, norm) {
            Err(CudaError::Memory { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    fn new(turn: &Turn<'_>, points: &DevicePoints<f32>, order: &Buffer<u32>, norm: f64) -> Result<Self, CudaError> {
        let (n, dims, what) = (points.len, points.dims, "the points of the solver");
        let chunks = dims.div_ceil(CHUNK);
        let exponent = (LARGEST / norm).log2().floor().clamp(-60.0, 60.0);
        let scale = exponent.exp2() as f32;
        let made = Self {
            rows: turn.allocate(n as usize * (chunks * 2 * CHUNK) as usize, what)?,
            norms: turn.allocate(n as usize, what)?,
            chunks,
            steps: (dims - (chunks - 1) * CHUNK).div_ceil(16),
            unscale: -2.0 / (scale * scale),
        };
        let (starts, columns) = points.sparse_addresses();
        let function = turn.function(module(chunks), "pack", 0)?;
        // SAFETY: the arguments are those of the program; there is room for all rows and norms.
        unsafe {
            turn.launch(
                function,
                (n.div_ceil(THREADS / 32), 1),
                THREADS,
                0,
                arguments![
                    points.values.address(),
                    starts,
                    columns,
                    order.address(),
                    n,
                    dims,
                    chunks,
                    scale,
                    made.rows.address(),
                    made.norms.address()
                ],
            )?;
        }
        Ok(made)
    }

    /// The points of the variables `pick`, or of `count` variables from `first` on.
    pub(crate) fn side(&self, pick: Option<u64>, first: usize, count: usize) -> PackedSide {
        PackedSide {
            rows: self.rows.address(),
            norms: self.norms.address(),
            pick: pick.unwrap_or(0),
            first: first as u32,
            count: count as u32,
            chunks: self.chunks,
            steps: self.steps,
            unscale: self.unscale,
            unused: 0,
        }
    }

    /// Starts a program; `grid`: tiles of rows, and splits of `per` tiles of columns.
    fn launch(
        turn: &Turn<'_>,
        name: &str,
        [a, b]: [PackedSide; 2],
        kernel: KernelArgument,
        v: u64,
        (per, splits): (u32, u32),
        parts: u64,
        out: u64,
    ) -> Result<(), CudaError> {
        let shared = shared(a.chunks);
        let function = turn.function(module(a.chunks), name, shared)?;
        let grid = (a.count.div_ceil(SIDE), splits);
        // SAFETY: the arguments are those of the programs; the callers have room for the results.
        unsafe { turn.launch(function, grid, THREADS, shared, arguments![a, b, kernel, v, per, parts, out]) }
    }

    /// How columns are divided: tiles per split, and splits. It determines the order of summation.
    pub(crate) fn splits(rows: usize, columns: usize) -> (u32, u32) {
        let (down, across) = ((rows as u32).div_ceil(SIDE).max(1), (columns as u32).div_ceil(SIDE).max(1));
        let splits = BLOCKS.div_ceil(down).clamp(1, across.min(32));
        let per = across.div_ceil(splits);
        (per, across.div_ceil(per))
    }

    /// parts[split][row] = the split's share of K[rows, columns]·v.
    pub(crate) fn product(
        turn: &Turn<'_>,
        sides: [PackedSide; 2],
        kernel: KernelArgument,
        v: u64,
        splits: (u32, u32),
        parts: u64,
    ) -> Result<(), CudaError> {
        Self::launch(turn, "packed_product", sides, kernel, v, splits, parts, 0)
    }

    /// K over a set as 16-bit tiles of its upper triangle.
    pub(crate) fn triangle(
        turn: &Turn<'_>,
        side: PackedSide,
        kernel: KernelArgument,
        out: u64,
    ) -> Result<(), CudaError> {
        let across = side.count.div_ceil(SIDE);
        let splits = (BLOCKS * 4 / 3).div_ceil(across).clamp(1, across);
        let per = across.div_ceil(splits);
        Self::launch(turn, "packed_triangle", [side, side], kernel, 0, (per, across.div_ceil(per)), 0, out)
    }

    /// out = K[rows, columns] in single precision, row-major.
    pub(crate) fn block(
        turn: &Turn<'_>,
        sides: [PackedSide; 2],
        kernel: KernelArgument,
        out: u64,
    ) -> Result<(), CudaError> {
        let across = sides[1].count.div_ceil(SIDE);
        Self::launch(turn, "packed_block", sides, kernel, 0, (across, 1), 0, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_far_apart_are_left_to_differences() {
        let points = Points::dense_f64(2, 50, vec![0.0; 100]).unwrap();
        assert!(suffices(&Kernel::rbf(0.02), &points, 10.0) && !suffices(&Kernel::rbf(0.02), &points, 100.0));
        assert!(!suffices(&Kernel::Laplacian { gamma: 0.02 }, &points, 10.0));
    }

    #[test]
    fn splits_cover_all_columns() {
        for (rows, columns) in [(1, 1), (100, 5000), (100_000, 12_345), (1_000_000, 100_000), (3000, 129)] {
            let (per, splits) = PackedPoints::splits(rows, columns);
            let across = columns.div_ceil(SIDE as usize) as u32;
            assert!(per * splits >= across && per * (splits - 1) < across && splits <= 32, "{rows} {columns}");
        }
    }

    #[test]
    fn sides_are_laid_out_as_in_the_programs() {
        assert_eq!((size_of::<PackedSide>(), size_of::<crate::wide::WideSide>()), (48, 40));
    }
}
