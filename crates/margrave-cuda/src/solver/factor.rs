//! One round's minimum over a stiff set by Cholesky factors in double precision.
//!
//! Conjugate gradients need as many steps as the set has different eigenvalues, and single-precision entries have rounded the
//! smallest of them away. With a proximal term the matrix can always be factored. A pass costs m³/3 multiply–adds: that is less than
//! conjugate gradients up to some thousand variables, and more only where those make no progress at all.

use margrave_core::control::Control;

use super::cg::ONE;
use super::round::{Current, Rounds, THREADS, grid};
use super::state::Room;
use crate::driver::{Buffer, Function, Turn, arguments};
use crate::error::CudaError;
use crate::gram::{Stop, TILE};
use crate::phases;
use crate::ptx::Module;
use crate::wide;

/// Columns of a panel: `PANEL` of factor.cu.
const PANEL: u32 = 64;
/// Largest set that is factored before conjugate gradients are tried.
const SMALL: usize = 6_000;
/// Largest set that is factored.
const LARGEST: usize = 24_000;
/// Least number on the diagonal beside K.
const LEAST: f64 = 1e-9;
/// Multiply–adds after which interrupts are looked for.
const SLICE: f64 = 1e11;
/// Passes of a round.
const PASSES: usize = 60;

/// Programs, the matrix and its factor.
#[derive(Debug)]
pub(super) struct Factor {
    fill: Function,
    block: Function,
    panel: Function,
    rest: Function,
    forward: Function,
    backward: Function,
    pinned_product: Function,
    sides: Function,
    moves: Function,
    /// K over the set, and the factor of its free part.
    k: Room<f64>,
    w: Room<f64>,
    inverses: Room<f64>,
    v: Room<f64>,
    y: Room<f64>,
    broken: Buffer<i32>,
}

impl Factor {
    fn new(turn: &Turn<'_>) -> Result<Self, CudaError> {
        let find = |name: &str| turn.function(Module::Factor, name, 0);
        Ok(Self {
            fill: find("factor_fill")?,
            block: find("factor_block")?,
            panel: find("factor_panel")?,
            rest: find("factor_rest")?,
            forward: find("solve_forward")?,
            backward: find("solve_backward")?,
            pinned_product: find("pinned_product")?,
            sides: find("factor_sides")?,
            moves: find("factor_moves")?,
            k: Room::default(),
            w: Room::default(),
            inverses: Room::default(),
            v: Room::default(),
            y: Room::default(),
            broken: turn.allocate(1, "the factor of a set")?,
        })
    }

    /// Factors `w`, whose size is a multiple of the panel, and solves for both right-hand sides in `v`; the solutions are in `v` again.
    /// `false` if the matrix is not positive definite.
    fn solve(&mut self, turn: &Turn<'_>, size: u32, control: &Control) -> Result<bool, Stop> {
        let (w, inverses) = (self.w.address(), self.inverses.address());
        let (v, y, broken) = (self.v.address(), self.y.address(), self.broken.address());
        let panels = size / PANEL;
        turn.fill(&self.broken, 1, 0)?;
        let mut work = 0.0;
        // SAFETY: the arguments are those of the programs; all rooms have been made for this size.
        unsafe {
            for k in 0..panels {
                let below = panels - k - 1;
                turn.launch(self.block, (1, 1), THREADS, 0, arguments![w, size, k, inverses, broken])?;
                turn.launch(self.panel, (below, 1), THREADS, 0, arguments![w, size, k, inverses])?;
                turn.launch(self.rest, (below * (below + 1) / 2, 1), THREADS, 0, arguments![w, size, k])?;
                work += f64::from(below * PANEL).powi(2) * f64::from(PANEL) / 2.0;
                if work > SLICE {
                    turn.wait()?;
                    control.check()?;
                    work = 0.0;
                }
            }
            for k in 0..panels {
                turn.launch(self.forward, (panels - k, 1), THREADS, 0, arguments![w, size, k, inverses, v, y])?;
            }
            for k in (0..panels).rev() {
                turn.launch(self.backward, (k + 1, 1), THREADS, 0, arguments![w, size, k, inverses, y, v])?;
            }
        }
        let mut found = [0];
        turn.read(&self.broken, 0, &mut found)?;
        Ok(found[0] == 0)
    }
}

impl Rounds<'_> {
    /// Whether a stiff set is factored at once, or (`last`) when conjugate gradients have failed on it.
    pub(super) fn is_factored(&self, size: usize, last: bool) -> bool {
        let bytes = 2 * size.next_multiple_of(PANEL as usize).pow(2) as u64 * 8;
        self.stiff && size <= if last { LARGEST } else { SMALL } && bytes <= self.memory
    }

    /// Minimises over F by factors, pinning what leaves. `false`: K over F with what was added is not positive definite.
    pub(super) fn minimise_by_factors(&mut self, f: Current, careful: bool) -> Result<bool, Stop> {
        let begun = phases::begin();
        let mut factor = match self.factor.take() {
            Some(factor) => factor,
            None => Factor::new(&self.turn)?,
        };
        let done = self.passes(&mut factor, f, careful);
        self.factor = Some(factor);
        let done = done?;
        if done {
            self.keep_moves(f, true)?;
        }
        phases::end(begun, "factors of stiff sets", f64::from(f.m), Some(&self.turn));
        Ok(done)
    }

    /// Whether there is room for the factor of a set.
    pub(super) fn fits_factor(&self, size: usize) -> bool {
        let bytes = 2 * size.next_multiple_of(PANEL as usize).pow(2) as u64 * 8;
        size <= LARGEST && bytes <= self.memory
    }

    /// Solutions of K over F with its diagonal, for minus its slopes and for ones: where they are, and where the second begins.
    pub(super) fn solve_by_factor(&mut self, f: Current) -> Result<(u64, u32), Stop> {
        let mut factor = match self.factor.take() {
            Some(factor) => factor,
            None => Factor::new(&self.turn)?,
        };
        let solved = self.one_factor(&mut factor, f);
        let at = (factor.v.address(), f.m.next_multiple_of(PANEL));
        self.factor = Some(factor);
        solved.map(|()| at)
    }

    fn one_factor(&mut self, factor: &mut Factor, f: Current) -> Result<(), Stop> {
        let (m, size) = (f.m, f.m.next_multiple_of(PANEL));
        let k = factor.k.get(&self.turn, (m as usize).pow(2))?.address();
        self.double_block_of_set(f, k)?;
        self.entries += u64::from(m).pow(2);
        let product = self.matrix.kq.get(&self.turn, m as usize)?.address();
        self.turn.fill(self.matrix.kq.held(), m as usize, 0)?;
        self.kept.get(&self.turn, m as usize)?;
        let kept = self.select(self.whole.mask.held(), m as usize, self.kept.held())? as u32;
        debug_assert_eq!(kept, m, "nothing is pinned");
        self.make_system(factor, f, kept, size, product)?;
        match factor.solve(&self.turn, size, self.control)? {
            true => Ok(()),
            // The diagonal makes the matrix positive definite but for rounding: no move is the answer then.
            false => Ok(self.turn.fill(factor.v.held(), 2 * size as usize, 0)?),
        }
    }

    /// The matrix of the n kept variables of F and the right-hand sides; `product`: K times what was pinned.
    fn make_system(
        &mut self,
        factor: &mut Factor,
        f: Current,
        n: u32,
        size: u32,
        product: u64,
    ) -> Result<(), CudaError> {
        let (m, k, kept) = (f.m, factor.k.address(), self.kept.address());
        let w = factor.w.get(&self.turn, (size as usize).pow(2))?.address();
        let v = factor.v.get(&self.turn, 2 * size as usize)?.address();
        factor.y.get(&self.turn, 2 * size as usize)?;
        factor.inverses.get(&self.turn, (size * PANEL) as usize)?;
        let (tiles, diagonal) = ((size / PANEL) * (size / PANEL + 1) / 2, f.set.d);
        // SAFETY: the arguments are those of the programs.
        unsafe {
            self.turn.launch(
                factor.fill,
                (tiles, 1),
                THREADS,
                0,
                arguments![k, m, kept, n, size, diagonal, LEAST, w],
            )?;
            self.turn.launch(
                factor.sides,
                grid(size as usize),
                THREADS,
                0,
                arguments![f.set, kept, n, size, product, v],
            )
        }
    }

    fn passes(&mut self, factor: &mut Factor, f: Current, careful: bool) -> Result<bool, Stop> {
        let (part, few) = if careful { (4u32, 4096u32) } else { (2, 8) };
        let (m, paired, taken) = (f.m, self.problem.paired, self.taken.address());
        let k = factor.k.get(&self.turn, (m as usize).pow(2))?.address();
        self.double_block_of_set(f, k)?;
        self.entries += u64::from(m).pow(2);
        let product = self.matrix.kq.get(&self.turn, m as usize)?.address();
        (self.pins, self.left_at_first) = (0, 0.0);
        for pass in 0..PASSES {
            self.control.check()?;
            self.kept.get(&self.turn, m as usize)?;
            let mask = self.whole.mask.held();
            let n = self.select(mask, m as usize, self.kept.held())? as u32;
            if n == 0 {
                break;
            }
            let (size, kept) = (n.next_multiple_of(PANEL), self.kept.address());
            // SAFETY: the arguments are those of the program.
            unsafe {
                let multiply = factor.pinned_product;
                self.turn.launch(multiply, (m.div_ceil(8), 1), THREADS, 0, arguments![k, m, f.set, product])?;
            }
            self.make_system(factor, f, n, size, product)?;
            let v = factor.v.address();
            if !factor.solve(&self.turn, size, self.control)? {
                return Ok(false);
            }
            // SAFETY: the arguments are those of the program.
            unsafe {
                self.turn.launch(
                    factor.moves,
                    (1, 1),
                    ONE,
                    0,
                    arguments![m, f.set, kept, n, size, v, taken, paired],
                )?;
            }
            self.pin(f, part, few, false)?;
            let (out, left) = (self.last.out, self.last.left);
            if pass == 0 {
                self.left_at_first = f64::from(out) / f64::from(m);
            }
            if out == 0 {
                break;
            }
            self.pins += 1;
            if left == 0 {
                break;
            }
        }
        Ok(true)
    }

    /// K over the points of F in double precision, row-major at the address `out`.
    fn double_block_of_set(&self, f: Current, out: u64) -> Result<(), CudaError> {
        let rows = self.whole.rows.held();
        if let Some([points, _]) = self.gram.sides_wide(&self.turn)? {
            let side = points.side(Some(rows), 0, f.m);
            return wide::block(&self.turn, side, side, self.kernel, out);
        }
        let side = self.gram.sides_f64(&self.turn)?[0].side(Some(rows), 0, f.m);
        let (blocks, narrow) = (f.m.div_ceil(TILE) * f.m.div_ceil(TILE), 0u32);
        let function = self.gram_function(true, "block")?;
        // SAFETY: the arguments are those of `block` in gram.cu; there is room for all entries.
        unsafe { self.turn.launch(function, (blocks, 1), THREADS, 0, arguments![side, side, self.kernel, out, narrow]) }
    }
}
