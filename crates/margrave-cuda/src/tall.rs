//! Products and blocks of K between two sets of points that live on a card, for machines on few centres.
//!
//! A product is cut into slices of rows and pieces of columns that take some milliseconds each, so that interrupts are noticed; the
//! pieces of a row are added up in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margrave_core::control::Control;
use margrave_core::gram::Precision;

use crate::arithmetic::KernelArgument;
use crate::driver::{Buffer, Turn, arguments};
use crate::error::CudaError;
use crate::gram::{CudaGram, Stop, TILE};
use crate::packed::PackedPoints;
use crate::points::DevicePoints;
use crate::ptx::Module;
use crate::wide::{self, WidePoints};

pub(crate) const THREADS: u32 = 256;
/// Entries of a slice.
const SLICE: usize = 2 << 30;
/// Columns of a piece.
const PIECE: usize = 1 << 20;
/// Bytes for the sums of a slice.
const PARTS: usize = 256 << 20;
/// Columns that one block adds up: `TILE`·`TILES` of gram.cu.
const SPLIT: usize = 1024;
const WHAT: &str = "products with few centres";

/// How entries are computed, for the rows and for the columns of a Gram.
enum By {
    /// By tensor cores in single precision.
    Packed([PackedPoints; 2]),
    /// By tensor cores in double precision.
    Wide([Arc<WidePoints>; 2]),
    /// By sums over differences, in single precision.
    Single([Arc<DevicePoints<f32>>; 2]),
    /// The same in double precision.
    Double([Arc<DevicePoints<f64>>; 2]),
}

/// The rows and the columns of a Gram on its card.
pub(crate) struct TwoSides {
    kernel: KernelArgument,
    statistic: &'static str,
    by: By,
    counters: Vec<Arc<AtomicU64>>,
}

/// Points of one side: those of a list, or `count` from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<'a> {
    /// 0: the rows of the Gram; 1: its columns.
    pub(crate) side: usize,
    pub(crate) list: Option<&'a Buffer<u32>>,
    /// Of the list, if there is one.
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Chosen<'_> {
    /// `count` of them from `at` on: address of the list or 0, first point, number.
    fn part(&self, at: usize, count: usize) -> (u64, usize, usize) {
        let first = self.first + at;
        match self.list {
            Some(list) => (list.address() + 4 * first as u64, 0, count),
            None => (0, first, count),
        }
    }
}

impl TwoSides {
    /// The sides of a Gram, with entries in the given precision at least.
    pub(crate) fn new(gram: &CudaGram, turn: &Turn<'_>, precision: Precision) -> Result<Self, CudaError> {
        let (kernel, statistic) = KernelArgument::of(&gram.kernel);
        let counters = gram.above.iter().chain([&gram.entries]).cloned().collect();
        let by = Self::arithmetic(gram, turn, precision)?;
        Ok(Self { kernel, statistic, by, counters })
    }

    fn arithmetic(gram: &CudaGram, turn: &Turn<'_>, precision: Precision) -> Result<By, CudaError> {
        if precision == Precision::Single && gram.arithmetic.packed {
            let sides = gram.sides_f32(turn)?;
            let packed = |points: &DevicePoints<f32>| -> Result<_, CudaError> {
                let order: Vec<u32> = (0..points.len).collect();
                PackedPoints::fitting(turn, points, &turn.upload(&order, WHAT)?, gram.arithmetic.norm)
            };
            if let (Some(rows), Some(columns)) = (packed(&sides[0])?, packed(&sides[1])?) {
                return Ok(By::Packed([rows, columns]));
            }
        }
        if precision == Precision::Single && gram.arithmetic.single {
            return Ok(By::Single(gram.sides_f32(turn)?));
        }
        Ok(match gram.sides_wide(turn)? {
            Some(sides) => By::Wide(sides),
            None => By::Double(gram.sides_f64(turn)?),
        })
    }

    /// Whether blocks are single precision.
    pub(crate) fn narrow(&self) -> bool {
        matches!(self.by, By::Packed(_) | By::Single(_))
    }

    fn count(&self, entries: usize) {
        self.counters.iter().for_each(|counter| {
            counter.fetch_add(entries as u64, Ordering::Relaxed);
        });
    }

    /// out = K[rows, columns]·v on the card.
    pub(crate) fn product(
        &self,
        turn: &Turn<'_>,
        rows: Chosen<'_>,
        columns: Chosen<'_>,
        v: u64,
        out: u64,
        control: &Control,
    ) -> Result<(), Stop> {
        let piece = columns.count.min(PIECE);
        let splits = match self.by {
            By::Packed(_) => 32,
            _ => piece.div_ceil(SPLIT),
        };
        let slice = (SLICE / piece.max(1)).min(PARTS / (8 * splits)).clamp(128, rows.count.max(128)) / 128 * 128;
        let parts: Buffer<f64> = turn.allocate(slice.min(rows.count) * splits, WHAT)?;
        let add_up = turn.function(Module::Features, "add_up", 0)?;
        for at in (0..rows.count).step_by(slice) {
            for from in (0..columns.count).step_by(piece) {
                control.check()?;
                let (height, width) = (slice.min(rows.count - at), piece.min(columns.count - from));
                let (a, b) = (rows.part(at, height), columns.part(from, width));
                let v = v + 8 * from as u64;
                let count = self.sums(turn, (rows.side, a), (columns.side, b), v, parts.address())?;
                let (keep, rows) = (if from == 0 { 0.0f64 } else { 1.0 }, height as u32);
                let to = out + 8 * at as u64;
                // SAFETY: the arguments are those of the program; there is room for all rows.
                unsafe {
                    let grid = (rows.div_ceil(THREADS), 1);
                    turn.launch(add_up, grid, THREADS, 0, arguments![parts.address(), count, rows, keep, to])?;
                }
                turn.wait()?;
            }
        }
        self.count(rows.count * columns.count);
        Ok(())
    }

    /// parts[split][row] = the split's share of K[rows, columns]·v; returns the number of splits.
    fn sums(
        &self,
        turn: &Turn<'_>,
        (side_a, a): (usize, (u64, usize, usize)),
        (side_b, b): (usize, (u64, usize, usize)),
        v: u64,
        parts: u64,
    ) -> Result<u32, CudaError> {
        let list = |pick: u64| (pick != 0).then_some(pick);
        match &self.by {
            By::Packed(sides) => {
                let sides = [sides[side_a].side(list(a.0), a.1, a.2), sides[side_b].side(list(b.0), b.1, b.2)];
                let splits = PackedPoints::splits(a.2, b.2);
                PackedPoints::product(turn, sides, self.kernel, v, splits, parts)?;
                Ok(splits.1)
            }
            By::Wide(sides) => {
                let (a, b) = (sides[side_a].at(a.0, a.1, a.2), sides[side_b].at(b.0, b.1, b.2));
                wide::sums(turn, a, b, self.kernel, v, parts)
            }
            By::Single(sides) => {
                let (a, b) = (sides[side_a].at(a.0, a.1, a.2), sides[side_b].at(b.0, b.1, b.2));
                self.by_differences(turn, (Module::GramF32, "f32"), (a, b), v, parts)
            }
            By::Double(sides) => {
                let (a, b) = (sides[side_a].at(a.0, a.1, a.2), sides[side_b].at(b.0, b.1, b.2));
                self.by_differences(turn, (Module::GramF64, "f64"), (a, b), v, parts)
            }
        }
    }

    fn by_differences(
        &self,
        turn: &Turn<'_>,
        (module, suffix): (Module, &str),
        (a, b): (crate::points::Side, crate::points::Side),
        v: u64,
        parts: u64,
    ) -> Result<u32, CudaError> {
        let function = turn.function(module, &format!("product1_{}_{suffix}", self.statistic), 0)?;
        let (splits, one) = (b.count().div_ceil(SPLIT as u32), 1u32);
        // SAFETY: the arguments are those of `product` in gram.cu; `parts` has room for splits × rows numbers.
        unsafe {
            turn.launch(
                function,
                (a.count().div_ceil(TILE), splits),
                THREADS,
                0,
                arguments![a, b, self.kernel, v, one, one, parts],
            )?;
        }
        Ok(splits)
    }

    /// out = K[rows, columns], row-major, in single precision if [`narrow`](Self::narrow).
    pub(crate) fn block(
        &self,
        turn: &Turn<'_>,
        rows: Chosen<'_>,
        columns: Chosen<'_>,
        out: u64,
    ) -> Result<(), CudaError> {
        let (a, b) = (rows.part(0, rows.count), columns.part(0, columns.count));
        let list = |pick: u64| (pick != 0).then_some(pick);
        self.count(rows.count * columns.count);
        let (module, suffix, a, b) = match &self.by {
            By::Packed(sides) => {
                let sides = [sides[rows.side].side(list(a.0), a.1, a.2), sides[columns.side].side(list(b.0), b.1, b.2)];
                return PackedPoints::block(turn, sides, self.kernel, out);
            }
            By::Wide(sides) => {
                let (a, b) = (sides[rows.side].at(a.0, a.1, a.2), sides[columns.side].at(b.0, b.1, b.2));
                return wide::block(turn, a, b, self.kernel, out);
            }
            By::Single(sides) => {
                let (a, b) = (sides[rows.side].at(a.0, a.1, a.2), sides[columns.side].at(b.0, b.1, b.2));
                (Module::GramF32, "f32", a, b)
            }
            By::Double(sides) => {
                let (a, b) = (sides[rows.side].at(a.0, a.1, a.2), sides[columns.side].at(b.0, b.1, b.2));
                (Module::GramF64, "f64", a, b)
            }
        };
        let function = turn.function(module, &format!("block_{}_{suffix}", self.statistic), 0)?;
        let grid = (a.count().div_ceil(TILE) * b.count().div_ceil(TILE), 1);
        let narrow = u32::from(self.narrow());
        // SAFETY: the arguments are those of `block` in gram.cu; the caller has room for all entries.
        unsafe { turn.launch(function, grid, THREADS, 0, arguments![a, b, self.kernel, out, narrow]) }
    }
}
