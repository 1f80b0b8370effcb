//! Partial Cholesky factors of a square Gram on a card, for the choice of centres (`kernels/features.cu`).
//!
//! Fᵀ is kept, a row per pivot and a column per point, padded to whole tiles: K[pivots, :] − (F[pivots])·Fᵀ is then one product of
//! matrices of the form AᵀB, and so is what follows.

use margrave_core::control::Control;
use margrave_core::gram::{DeviceEnd, PivotedFactor, Precision};

use crate::driver::{Buffer, Card, Turn, arguments};
use crate::error::CudaError;
use crate::features::{DOWN, Rows, STEP, Shape, multiply, outcome};
use crate::gram::{CudaGram, Stop};
use crate::phases::phase;
use crate::ptx::Module;
use crate::tall::{Chosen, THREADS, TwoSides};

/// Fewer points are left to the processor.
const FEWEST: usize = 4096;
/// Most pivots of a block.
const BLOCK: usize = 256;
/// Memory on the card that is left for other things.
const SPARE: u64 = 2 << 30;
const WHAT: &str = "the choice of centres";

struct CardPivots {
    card: &'static Card,
    sides: TwoSides,
    /// Number of points, and padded to whole tiles.
    n: usize,
    wide: usize,
    /// All points, the first again as padding.
    points: Buffer<u32>,
    /// Fᵀ: `most` rows, `have` of them used. The others are zero.
    f: Buffer<f64>,
    most: usize,
    have: usize,
    /// The residual of a block of pivots.
    rest: Buffer<f64>,
}

impl CudaGram {
    /// A partial Cholesky factor of up to `most` columns.
    pub(crate) fn pivots_on_card(&self, most: usize) -> Option<Box<dyn PivotedFactor>> {
        let n = self.rows.len();
        if !self.square || n < FEWEST {
            return None;
        }
        // A search ends with the block that reaches its number.
        let (wide, most) = (n.next_multiple_of(DOWN), most.min(n) + 2 * BLOCK);
        let make = || -> Result<Option<CardPivots>, CudaError> {
            let turn = self.card.enter()?;
            let needed = ((most + 2 * BLOCK) * wide * 8) as u64 + SPARE;
            if needed > turn.free_memory()? {
                return Ok(None);
            }
            let mut points: Vec<u32> = (0..n as u32).collect();
            points.resize(wide, 0);
            let f = turn.allocate(most * wide, WHAT)?;
            // Products run over whole steps of rows, of which the last may not have been written.
            turn.fill(&f, most * wide, 0)?;
            Ok(Some(CardPivots {
                card: self.card,
                sides: TwoSides::new(self, &turn, Precision::Double)?,
                n,
                wide,
                points: turn.upload(&points, WHAT)?,
                f,
                most,
                have: 0,
                rest: turn.allocate(BLOCK * wide, WHAT)?,
            }))
        };
        let made = make().inspect_err(|error| self.card.note(error)).ok()??;
        Some(Box::new(made))
    }
}

impl CardPivots {
    /// Rows of Fᵀ in whole steps.
    fn depth(&self) -> usize {
        self.have.next_multiple_of(STEP)
    }

    /// The columns of Fᵀ of some points, `width` of them, zero beyond.
    fn gather(&self, turn: &Turn<'_>, list: &Buffer<u32>, width: usize) -> Result<Buffer<f64>, CudaError> {
        let out: Buffer<f64> = turn.allocate(self.depth().max(1) * width, WHAT)?;
        let gather = turn.function(Module::Features, "gather_columns", 0)?;
        let (stride, count, columns) = (self.wide as u64, list.len() as u32, width as u32);
        // SAFETY: the arguments are those of the program; there is room for all rows.
        unsafe {
            let grid = (columns.div_ceil(THREADS), self.depth() as u32);
            let to = out.address();
            turn.launch(
                gather,
                grid,
                THREADS,
                0,
                arguments![self.f.address(), stride, list.address(), count, columns, to],
            )?;
        }
        Ok(out)
    }

    fn try_residual(&self, rows: &[u32], out: &mut [f64], control: &Control) -> Result<(), Stop> {
        control.check()?;
        let turn = self.card.enter()?;
        let p = rows.len();
        let list = turn.upload(rows, WHAT)?;
        let chosen = Chosen { side: 1, list: Some(&list), first: 0, count: p };
        let k: Buffer<f64> = turn.allocate(p * p, WHAT)?;
        self.sides.block(&turn, chosen, chosen, k.address())?;
        let width = p.next_multiple_of(DOWN);
        let own = self.gather(&turn, &list, width)?;
        let h: Buffer<f64> = turn.allocate(width * width, WHAT)?;
        let (own, to) = (Rows(own.address(), width), Rows(h.address(), width));
        multiply(&turn, own, own, to, (width, width), self.depth(), (1.0, 0.0), Shape::Whole)?;
        let mut product = vec![0.0; width * width];
        turn.read(&k, 0, out)?;
        turn.read(&h, 0, &mut product)?;
        for (out, product) in out.chunks_mut(p).zip(product.chunks(width)) {
            out.iter_mut().zip(product).for_each(|(o, h)| *o -= h);
        }
        Ok(())
    }

    fn try_extend(&mut self, pivots: &[u32], inverse: &[f64], control: &Control) -> Result<Vec<f64>, Stop> {
        control.check()?;
        let t = pivots.len();
        let (padded, wide) = (t.next_multiple_of(DOWN), self.wide);
        if padded > BLOCK || self.have + padded > self.most {
            let (needed, free) = ((padded * wide * 8) as u64, 0);
            return Err(CudaError::Memory { what: WHAT, needed, free }.into());
        }
        let turn = self.card.enter()?;
        let list = turn.upload(pivots, WHAT)?;
        turn.fill(&self.rest, padded * wide, 0)?;
        let rows = Chosen { side: 1, list: Some(&list), first: 0, count: t };
        let all = Chosen { side: 1, list: Some(&self.points), first: 0, count: wide };
        self.sides.block(&turn, rows, all, self.rest.address())?;
        let own = self.gather(&turn, &list, padded)?;
        let (f, rest) = (Rows(self.f.address(), wide), Rows(self.rest.address(), wide));
        let own = Rows(own.address(), padded);
        multiply(&turn, own, f, rest, (padded, wide), self.depth(), (-1.0, 1.0), Shape::Whole)?;
        // T⁻ᵀ: the sum of a product runs over the rows of both matrices.
        let mut transposed = vec![0.0; padded * padded];
        for i in 0..t {
            (0..=i).for_each(|k| transposed[k * padded + i] = inverse[i * t + k]);
        }
        let transposed = turn.upload(&transposed, WHAT)?;
        let (a, to, depth) = (Rows(transposed.address(), padded), f.at(self.have, 0), t.next_multiple_of(STEP));
        multiply(&turn, a, rest, to, (padded, wide), depth, (1.0, 0.0), Shape::Whole)?;
        let squares: Buffer<f64> = turn.allocate(self.n, WHAT)?;
        let (sum, stride) = (turn.function(Module::Features, "column_squares", 0)?, wide as u64);
        let (new, count) = (t as u32, self.n as u32);
        // SAFETY: the arguments are those of the program; there is room for a number per point.
        unsafe {
            turn.launch(
                sum,
                (count.div_ceil(THREADS), 1),
                THREADS,
                0,
                arguments![to.0, stride, new, count, squares.address()],
            )?;
        }
        let mut out = vec![0.0; self.n];
        turn.read(&squares, 0, &mut out)?;
        self.have += t;
        Ok(out)
    }
}

impl PivotedFactor for CardPivots {
    fn residual(&mut self, rows: &[u32], out: &mut [f64], control: &Control) -> Result<(), DeviceEnd> {
        let done = phase("centres: residual", rows.len() as f64, None, || self.try_residual(rows, out, control));
        outcome(self.card, done)
    }

    fn extend(&mut self, pivots: &[u32], inverse: &[f64], control: &Control) -> Result<Vec<f64>, DeviceEnd> {
        let units = pivots.len() as f64;
        let done = phase("centres: extend", units, None, || self.try_extend(pivots, inverse, control));
        outcome(self.card, done)
    }
}
