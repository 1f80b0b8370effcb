//! Cholesky factors of K plus a diagonal on the card, for least squares and reweighted least squares (`kernels/factor.cu`).

use margrave_core::control::Control;
use margrave_core::gram::{DeviceFactor, DeviceFactored};

use crate::arithmetic::KernelArgument;
use crate::driver::{Buffer, Card, Function, Turn, arguments};
use crate::error::CudaError;
use crate::gram::{CudaGram, Stop, TILE};
use crate::phases::phase;
use crate::ptx::Module;
use crate::wide;

/// Columns of a panel: `PANEL` of factor.cu.
const PANEL: u32 = 64;
const THREADS: u32 = 256;
/// Fewer rows are factored on the processor before they have been sent to the card.
const FEWEST: usize = 1500;
/// Multiply–adds after which interrupts are looked for.
const SLICE: f64 = 1e11;
/// Memory on the card that is left for products and results.
const SPARE: u64 = 1 << 30;
const WHAT: &str = "the factor of a least-squares system";

/// A factor in the memory of a card.
pub(crate) struct CardFactor {
    card: &'static Card,
    n: usize,
    size: u32,
    w: Buffer<f64>,
    inverses: Buffer<f64>,
    forward: Function,
    backward: Function,
}

impl CudaGram {
    /// The factor of K[rows, rows] + diag(diagonal).
    pub(crate) fn factor_on_card(&self, rows: &[u32], diagonal: &[f64], control: &Control) -> Option<DeviceFactored> {
        if rows.len() < FEWEST || rows.len() != diagonal.len() {
            return None;
        }
        match phase("factor for the engine", rows.len() as f64, None, || self.try_factor(rows, diagonal, control)) {
            Ok(made) => made,
            Err(Stop::Interrupt(_)) => None,
            Err(Stop::Failure(error)) => {
                self.card.note(&error);
                None
            }
        }
    }

    fn try_factor(&self, rows: &[u32], diagonal: &[f64], control: &Control) -> Result<Option<DeviceFactored>, Stop> {
        let (n, size) = (rows.len(), rows.len().next_multiple_of(PANEL as usize));
        let turn = self.card.enter()?;
        let needed = ((n * n + size * size + size * PANEL as usize + 8 * size) * 8) as u64;
        // The driver's pool may hold freed memory that counts as used.
        if needed + SPARE > turn.free_memory()? {
            return Ok(None);
        }
        let (m, padded) = (n as u32, size as u32);
        let w: Buffer<f64> = turn.allocate(size * size, WHAT)?;
        {
            let k: Buffer<f64> = turn.allocate(n * n, WHAT)?;
            let list = turn.upload(rows, WHAT)?;
            self.double_block(&turn, &list, k.address())?;
            let all: Vec<u32> = (0..m).collect();
            let (all, added) = (turn.upload(&all, WHAT)?, turn.upload(diagonal, WHAT)?);
            let fill = turn.function(Module::Factor, "factor_fill", 0)?;
            let (tiles, least) = ((padded / PANEL) * (padded / PANEL + 1) / 2, f64::NEG_INFINITY);
            let (from, kept, own, to) = (k.address(), all.address(), added.address(), w.address());
            // SAFETY: the arguments are those of the program; all arrays have been made for these sizes.
            unsafe {
                turn.launch(fill, (tiles, 1), THREADS, 0, arguments![from, m, kept, m, padded, own, least, to])?;
            }
        }
        self.count((n * n) as u64);
        Ok(Some(match CardFactor::new(&turn, w, n, control)? {
            Some(factor) => DeviceFactored::Factor(Box::new(factor)),
            None => DeviceFactored::NotPositive,
        }))
    }

    /// K over the listed rows in double precision, row-major at the address `out`.
    fn double_block(&self, turn: &Turn<'_>, rows: &Buffer<u32>, out: u64) -> Result<(), CudaError> {
        let (kernel, statistic) = KernelArgument::of(&self.kernel);
        let m = rows.len() as u32;
        if let Some([points, _]) = self.sides_wide(turn)? {
            let side = points.side(Some(rows), 0, m);
            return wide::block(turn, side, side, kernel, out);
        }
        let side = self.sides_f64(turn)?[0].side(Some(rows), 0, m);
        let (blocks, narrow) = (m.div_ceil(TILE) * m.div_ceil(TILE), 0u32);
        let function = turn.function(Module::GramF64, &format!("block_{statistic}_f64"), 0)?;
        // SAFETY: the arguments are those of `block` in gram.cu; there is room for all entries.
        unsafe { turn.launch(function, (blocks, 1), THREADS, 0, arguments![side, side, kernel, out, narrow]) }
    }
}

impl CardFactor {
    /// Factors the lower tiles of `w`, a row-major square whose side is a multiple of the panel, at least n. `None` if it is
    /// not positive definite.
    pub(crate) fn new(turn: &Turn<'_>, w: Buffer<f64>, n: usize, control: &Control) -> Result<Option<Self>, Stop> {
        let padded = (w.len() as f64).sqrt().round() as u32;
        let find = |name: &str| turn.function(Module::Factor, name, 0);
        let (block, panel, rest) = (find("factor_block")?, find("factor_panel")?, find("factor_rest")?);
        let inverses: Buffer<f64> = turn.allocate((padded * PANEL) as usize, WHAT)?;
        let broken: Buffer<i32> = turn.upload(&[0], WHAT)?;
        let (matrix, inverse, sign) = (w.address(), inverses.address(), broken.address());
        let panels = padded / PANEL;
        let mut work = 0.0;
        for k in 0..panels {
            let below = panels - k - 1;
            // SAFETY: the arguments are those of the programs; all arrays have been made for this size.
            unsafe {
                turn.launch(block, (1, 1), THREADS, 0, arguments![matrix, padded, k, inverse, sign])?;
                turn.launch(panel, (below, 1), THREADS, 0, arguments![matrix, padded, k, inverse])?;
                turn.launch(rest, (below * (below + 1) / 2, 1), THREADS, 0, arguments![matrix, padded, k])?;
            }
            work += f64::from(below * PANEL).powi(2) * f64::from(PANEL) / 2.0;
            if work > SLICE {
                turn.wait()?;
                control.check()?;
                work = 0.0;
            }
        }
        let mut found = [0];
        turn.read(&broken, 0, &mut found)?;
        let (forward, backward) = (find("solve_forward")?, find("solve_backward")?);
        let factor = Self { card: turn.card, n, size: padded, w, inverses, forward, backward };
        Ok((found[0] == 0).then_some(factor))
    }

    /// Solves for one or two right-hand sides.
    fn solve_pair(&self, turn: &Turn<'_>, pair: &mut [Vec<f64>]) -> Result<(), CudaError> {
        let size = self.size as usize;
        let mut sides = vec![0.0; 2 * size];
        for (at, right) in pair.iter().enumerate() {
            sides[at * size..at * size + self.n].copy_from_slice(right);
        }
        let (v, y): (Buffer<f64>, Buffer<f64>) = (turn.upload(&sides, WHAT)?, turn.allocate(2 * size, WHAT)?);
        let (w, inverses, panels) = (self.w.address(), self.inverses.address(), self.size / PANEL);
        let (from, to) = (v.address(), y.address());
        // SAFETY: the arguments are those of the programs; all arrays have been made for this size.
        unsafe {
            for k in 0..panels {
                let grid = (panels - k, 1);
                turn.launch(self.forward, grid, THREADS, 0, arguments![w, self.size, k, inverses, from, to])?;
            }
            for k in (0..panels).rev() {
                turn.launch(self.backward, (k + 1, 1), THREADS, 0, arguments![w, self.size, k, inverses, to, from])?;
            }
        }
        turn.read(&v, 0, &mut sides)?;
        for (at, right) in pair.iter_mut().enumerate() {
            right.copy_from_slice(&sides[at * size..at * size + self.n]);
        }
        Ok(())
    }
}

impl DeviceFactor for CardFactor {
    fn solve(&self, right: &mut [Vec<f64>]) -> bool {
        let solved =
            self.card.enter().and_then(|turn| right.chunks_mut(2).try_for_each(|pair| self.solve_pair(&turn, pair)));
        solved.inspect_err(|error| self.card.note(error)).is_ok()
    }
}

impl std::fmt::Debug for CardFactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CardFactor({} rows)", self.n)
    }
}
