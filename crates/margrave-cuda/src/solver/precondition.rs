//! The Nyström preconditioner of large sets.
//!
//! P = C W⁻¹ Cᵀ + μI with W = K over r centres and C = K(F, centres), so that P⁻¹v = (v − C (μW + CᵀC)⁻¹ Cᵀv) / μ. The centres are the
//! first variables, which are in random order. C is single precision, all sums are double: then neither W nor C has to be
//! factored, and variables that are pinned are taken out of CᵀC one by one. A preconditioner that is not updated after
//! pins costs several times the steps.

use super::state::{Cg, Room, Set};
use crate::driver::{Buffer, Function, Turn, arguments};
use crate::error::CudaError;
use crate::ptx::Module;

/// Columns of a panel: `PANEL` of solver.cu.
const PANEL: u32 = 64;
/// Parts that sums over rows are computed in.
const SPLITS: u32 = 8;
/// Blocks of Cᵀv.
const BLOCKS: u32 = 264;
/// Rows whose residual estimates μ.
const SAMPLE: u32 = 512;
/// Smallest μ, unless both of its parts are smaller.
const LEAST_MU: f64 = 1e-3;
/// Added to the diagonal of W.
const RIDGE: f64 = 1e-4;

/// Programs by name.
#[derive(Debug)]
struct Own {
    centre_sums: Function,
    centre_add: Function,
    centre_system: Function,
    invert_block: Function,
    invert_panels: Function,
    invert_rest: Function,
    centre_residual: Function,
    gather_parts: Function,
    gather_sum: Function,
    centre_solve: Function,
    spread: Function,
    pcg_residual: Function,
    pcg_direction: Function,
}

#[derive(Debug)]
pub(super) struct Preconditioner {
    own: Own,
    /// Number of centres.
    r: u32,
    /// C of all variables computed so far: row by variable.
    c: Buffer<f32>,
    /// Variables whose row of C is known.
    known: usize,
    w: Buffer<f64>,
    /// CᵀC over the free variables of F.
    total: Buffer<f64>,
    /// (μW + CᵀC)⁻¹.
    inverse: Buffer<f64>,
    block: Buffer<f64>,
    row: Buffer<f64>,
    column: Buffer<f64>,
    parts: Buffer<f64>,
    vector: Buffer<f64>,
    solved: Buffer<f64>,
    broken: Buffer<i32>,
    /// The mean of what the centres leave out of K's diagonal; 0: not known yet.
    residual: f64,
    /// μ of the current system.
    mu: f64,
    z: Room<f64>,
    ones: Room<f64>,
}

impl Preconditioner {
    /// Room for n variables and r centres, a multiple of 64; `w` is K over the centres in double precision.
    pub(super) fn new(turn: &Turn<'_>, n: usize, r: u32, w: Buffer<f64>) -> Result<Self, CudaError> {
        let what = "the preconditioner";
        let find = |name: &str| turn.function(Module::Solver, name, 0);
        let (square, tiles) = ((r * r) as usize, (r / PANEL) * (r / PANEL + 1) / 2);
        Ok(Self {
            own: Own {
                centre_sums: find("centre_sums")?,
                centre_add: find("centre_add")?,
                centre_system: find("centre_system")?,
                invert_block: find("invert_block")?,
                invert_panels: find("invert_panels")?,
                invert_rest: find("invert_rest")?,
                centre_residual: find("centre_residual")?,
                gather_parts: find("gather_parts")?,
                gather_sum: find("gather_sum")?,
                centre_solve: find("centre_solve")?,
                spread: find("spread")?,
                pcg_residual: find("pcg_residual")?,
                pcg_direction: find("pcg_direction")?,
            },
            r,
            c: turn.allocate(n * r as usize, what)?,
            known: 0,
            w,
            total: turn.allocate(square, what)?,
            inverse: turn.allocate(square, what)?,
            block: turn.allocate((PANEL * PANEL) as usize, what)?,
            row: turn.allocate((PANEL * r) as usize, what)?,
            column: turn.allocate((PANEL * r) as usize, what)?,
            parts: turn.allocate(((SPLITS * tiles * PANEL * PANEL) as usize).max((BLOCKS * r) as usize), what)?,
            vector: turn.allocate(r as usize, what)?,
            solved: turn.allocate(r as usize, what)?,
            broken: turn.allocate(1, what)?,
            residual: 0.0,
            mu: 0.0,
            z: Room::default(),
            ones: Room::default(),
        })
    }

    /// Where the rows of C from `known` on go, and how many are known.
    pub(super) fn rows(&self) -> (u64, usize, u32) {
        (self.c.address() + 4 * (self.known * self.r as usize) as u64, self.known, self.r)
    }

    /// The rows of C of the first `known` variables are there. The first time, μ is estimated.
    pub(super) fn set_known(&mut self, turn: &Turn<'_>, known: usize) -> Result<bool, CudaError> {
        self.known = known;
        if self.residual > 0.0 {
            return Ok(true);
        }
        let sample = SAMPLE.min((known as u32).saturating_sub(self.r));
        if sample == 0 {
            return Ok(false);
        }
        let (r, none, one, c) = (self.r, 0u64, 1.0f64, self.c.address());
        let (first, inverse, out) = (self.r, self.inverse.address(), self.parts.address());
        // SAFETY: the arguments are those of the programs.
        unsafe {
            turn.launch(
                self.own.centre_system,
                ((r * r).div_ceil(256), 1),
                256,
                0,
                arguments![r, none, self.w.address(), one, RIDGE, inverse],
            )?;
        }
        if !self.invert(turn)? {
            return Ok(false);
        }
        // SAFETY: as above; `parts` has room for the sample.
        unsafe {
            turn.launch(self.own.centre_residual, (sample, 1), 256, 0, arguments![c, r, first, inverse, out])?;
        }
        let mut residual = vec![0.0; sample as usize];
        turn.read(&self.parts, 0, &mut residual)?;
        let mean = residual.iter().sum::<f64>() / f64::from(sample);
        self.residual = mean.max(1e-6);
        Ok(mean.is_finite())
    }

    /// Inverts `inverse` in place; `false` if it is not positive definite.
    fn invert(&mut self, turn: &Turn<'_>) -> Result<bool, CudaError> {
        let (r, g, block) = (self.r, self.inverse.address(), self.block.address());
        let (row, column, broken) = (self.row.address(), self.column.address(), self.broken.address());
        turn.fill(&self.broken, 1, 0)?;
        let panels = r / PANEL;
        for k in 0..panels {
            // SAFETY: the arguments are those of the programs.
            unsafe {
                turn.launch(self.own.invert_block, (1, 1), 256, 0, arguments![g, r, k, block, broken])?;
                turn.launch(self.own.invert_panels, (panels, 1), 256, 0, arguments![g, r, k, block, row, column])?;
                turn.launch(self.own.invert_rest, (panels, panels), 256, 0, arguments![g, r, k, block, row, column])?;
            }
        }
        let mut found = [0];
        turn.read(&self.broken, 0, &mut found)?;
        Ok(found[0] == 0)
    }

    /// total ±= CᵀC over `count` variables: those at the positions `kept` of `list`, or the first of `list`.
    pub(super) fn add(
        &mut self,
        turn: &Turn<'_>,
        list: u64,
        kept: Option<u64>,
        count: usize,
        sign: f64,
    ) -> Result<(), CudaError> {
        if kept.is_none() {
            turn.fill(&self.total, (self.r * self.r) as usize, 0)?;
        }
        let tiles = (self.r / PANEL) * (self.r / PANEL + 1) / 2;
        let (r, m, c, kept) = (self.r, count as u32, self.c.address(), kept.unwrap_or(0));
        let splits = SPLITS.min(m.div_ceil(16)).max(1);
        let (parts, total) = (self.parts.address(), self.total.address());
        // SAFETY: the arguments are those of the programs; `parts` has room for all tiles of all splits.
        unsafe {
            turn.launch(self.own.centre_sums, (tiles, splits), 256, 0, arguments![c, r, list, kept, m, splits, parts])?;
            turn.launch(self.own.centre_add, (tiles, 1), 256, 0, arguments![parts, tiles, splits, sign, r, total])
        }
    }

    /// The system of the current total, and P⁻¹·1; `false` if it is not positive definite. `added` is what was added to
    /// the diagonal of K.
    pub(super) fn build(
        &mut self,
        turn: &Turn<'_>,
        f: Set,
        list: u64,
        m: u32,
        cg: u64,
        added: f64,
    ) -> Result<bool, CudaError> {
        self.mu = (self.residual + added).max(LEAST_MU.min(self.residual.max(added))).max(1e-5);
        let (r, total, inverse) = (self.r, self.total.address(), self.inverse.address());
        let ridge = RIDGE * self.mu;
        // SAFETY: the arguments are those of the program.
        unsafe {
            turn.launch(
                self.own.centre_system,
                ((r * r).div_ceil(256), 1),
                256,
                0,
                arguments![r, total, self.w.address(), self.mu, ridge, inverse],
            )?;
        }
        if !self.invert(turn)? {
            return Ok(false);
        }
        let ones = self.ones.get(turn, m as usize)?.address();
        self.z.get(turn, m as usize)?;
        self.apply(turn, f, list, m, None, ones, cg, true)?;
        Ok(true)
    }

    /// out = P⁻¹ v, v being ones if not given.
    fn apply(
        &self,
        turn: &Turn<'_>,
        f: Set,
        list: u64,
        m: u32,
        v: Option<u64>,
        out: u64,
        cg: u64,
        force: bool,
    ) -> Result<(), CudaError> {
        let (r, c, v, force) = (self.r, self.c.address(), v.unwrap_or(0), u32::from(force));
        let (parts, w, u) = (self.parts.address(), self.vector.address(), self.solved.address());
        // SAFETY: the arguments are those of the programs.
        unsafe {
            turn.launch(self.own.gather_parts, (BLOCKS, 1), 256, 0, arguments![c, r, list, m, f, v, parts, cg, force])?;
            turn.launch(self.own.gather_sum, (r / 32, 1), 256, 0, arguments![r, BLOCKS, parts, w, cg, force])?;
            turn.launch(
                self.own.centre_solve,
                (r.div_ceil(8), 1),
                256,
                0,
                arguments![r, self.inverse.address(), w, u, cg, force],
            )?;
            turn.launch(
                self.own.spread,
                (m.div_ceil(8), 1),
                256,
                0,
                arguments![c, r, list, m, f, v, u, self.mu, out, cg, force],
            )
        }
    }

    /// The first direction, after `cg_start`: q = P⁻¹ r, with sum zero if it is kept.
    pub(super) fn first_direction(
        &self,
        turn: &Turn<'_>,
        f: Set,
        list: u64,
        m: u32,
        r: u64,
        cg: &Buffer<Cg>,
        paired: u32,
    ) -> Result<(), CudaError> {
        self.apply(turn, f, list, m, Some(r), self.z.address(), cg.address(), true)?;
        let one = 1u32;
        // SAFETY: the arguments are those of the program.
        unsafe {
            turn.launch(
                self.own.pcg_direction,
                (1, 1),
                1024,
                0,
                arguments![m, f, r, self.z.address(), self.ones.address(), cg.address(), paired, one],
            )
        }
    }

    /// A step, after the product with q.
    pub(super) fn step(
        &self,
        turn: &Turn<'_>,
        f: Set,
        list: u64,
        m: u32,
        vectors: [u64; 3],
        blocks: u32,
        cg: &Buffer<Cg>,
        paired: u32,
    ) -> Result<(), CudaError> {
        let ([r, kq, parts], zero, cg) = (vectors, 0u32, cg.address());
        // SAFETY: the arguments are those of the programs.
        unsafe {
            turn.launch(self.own.pcg_residual, (1, 1), 1024, 0, arguments![m, f, r, kq, parts, blocks, cg, paired])?;
            self.apply(turn, f, list, m, Some(r), self.z.address(), cg, false)?;
            turn.launch(
                self.own.pcg_direction,
                (1, 1),
                1024,
                0,
                arguments![m, f, r, self.z.address(), self.ones.address(), cg, paired, zero],
            )
        }
    }
}
