//! Products with K in single and in double precision.

use super::cg::SIDE;
use super::round::{Rounds, THREADS, grid};
use crate::arithmetic::KernelArgument;
use crate::driver::{Buffer, Function, arguments};
use crate::error::CudaError;
use crate::gram::{Stop, TILE};
use crate::packed::PackedPoints;
use crate::phases;
use crate::points::Side;
use crate::ptx::Module;
use crate::wide;

/// Columns that one block of a product adds up: `TILE`·`TILES` of gram.cu.
const SPLIT: u32 = 1024;
/// Bytes for the sums of a product.
const PARTS: usize = 256 << 20;
/// Multiply–adds of a slice of a product, after which interrupts are looked for.
const SLICE: f64 = 2e11;

/// How entries of a product are computed.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// By tensor cores in single precision.
    Packed,
    /// By tensor cores in double precision.
    Wide,
    /// By sums over differences.
    Differences,
}

impl Rounds<'_> {
    /// kd[..count] = K[rows, columns]·values, for `count` variables from `first` on.
    pub(super) fn product(&mut self, double: bool, first: usize, count: usize, columns: usize) -> Result<(), Stop> {
        if columns == 0 {
            self.turn.fill(&self.kd, count, 0)?;
            return Ok(());
        }
        let begun = phases::begin();
        let wide = if double { self.gram.sides_wide(&self.turn)? } else { None };
        let by = match (&self.packed, &wide) {
            (Some(_), _) if !double => By::Packed,
            (_, Some(_)) => By::Wide,
            _ => By::Differences,
        };
        // Tensor cores take a row of 64 features in about the time in which others take four.
        let each = columns as f64 * if by == By::Differences { f64::from(self.points.dims) + 50.0 } else { 25.0 };
        let by_work = (SLICE / each) as usize / SIDE as usize * SIDE as usize;
        let splits = match by {
            By::Packed => 32.min(columns.div_ceil(SIDE as usize)),
            _ => columns.div_ceil(SPLIT as usize),
        };
        let slice = by_work.min(PARTS / (8 * splits)).clamp(SIDE as usize, count.max(SIDE as usize));
        let parts = self.sums.get(&self.turn, slice * splits)?.address();
        for at in (0..count).step_by(slice) {
            if at > 0 {
                self.turn.wait()?;
                self.control.check()?;
            }
            let (height, out) = (slice.min(count - at), self.kd.address() + 8 * at as u64);
            match by {
                By::Packed => self.packed_slice(first + at, height, columns, parts, out)?,
                By::Wide => {
                    let Some([points, _]) = &wide else { break };
                    let rows = points.side(Some(&self.problem.order), 0, self.problem.n as u32);
                    let b = points.side(Some(self.columns.held()), 0, columns as u32);
                    let rows = rows.part(first + at, height);
                    wide::product(&self.turn, rows, b, self.kernel, self.values.address(), parts, out)?;
                }
                By::Differences => self.slice_by_differences(double, first + at, height, columns, parts, out)?,
            }
        }
        self.entries += (count * columns) as u64;
        let name = if double { "product in double precision" } else { "product" };
        phases::end(begun, name, (count * columns) as f64, Some(&self.turn));
        Ok(())
    }

    /// A slice of a product by tensor cores in single precision.
    fn packed_slice(&self, first: usize, height: usize, columns: usize, parts: u64, out: u64) -> Result<(), CudaError> {
        let Some(packed) = &self.packed else { return Ok(()) };
        let sides = [packed.side(None, first, height), packed.side(Some(self.variables.address()), 0, columns)];
        let splits = PackedPoints::splits(height, columns);
        PackedPoints::product(&self.turn, sides, self.kernel, self.values.address(), splits, parts)?;
        let rows = height as u32;
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(self.programs.sum_parts, grid(height), THREADS, 0, arguments![parts, splits.1, rows, out])
        }
    }

    fn slice_by_differences(
        &self,
        double: bool,
        first: usize,
        height: usize,
        columns: usize,
        parts: u64,
        out: u64,
    ) -> Result<(), CudaError> {
        let side = |of: &Buffer<u32>, at: usize, count: usize| -> Result<Side, CudaError> {
            Ok(if double {
                let [points, _] = self.gram.sides_f64(&self.turn)?;
                points.side(Some(of), 0, count as u32).from(at)
            } else {
                self.points.side(Some(of), 0, count as u32).from(at)
            })
        };
        let (a, b) = (side(&self.problem.order, first, height)?, side(self.columns.held(), 0, columns)?);
        let (splits, rows, one) = ((columns as u32).div_ceil(SPLIT), height as u32, 1u32);
        let function = self.gram_function(double, "product1")?;
        // SAFETY: the arguments are those of `product` in gram.cu and of `sum_parts`; `parts` has room for a slice.
        unsafe {
            self.turn.launch(
                function,
                (rows.div_ceil(TILE), splits),
                THREADS,
                0,
                arguments![a, b, self.kernel, self.values.address(), one, one, parts],
            )?;
            self.turn.launch(self.programs.sum_parts, grid(height), THREADS, 0, arguments![parts, splits, rows, out])
        }
    }

    /// A program of gram.cu for the kernel.
    pub(super) fn gram_function(&self, double: bool, name: &str) -> Result<Function, CudaError> {
        let (_, statistic) = KernelArgument::of(&self.gram.kernel);
        match double {
            true => self.turn.function(Module::GramF64, &format!("{name}_{statistic}_f64"), 0),
            false => self.turn.function(Module::GramF32, &format!("{name}_{statistic}_f32"), 0),
        }
    }
}
