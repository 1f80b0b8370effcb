//! Rounds of the set Newton method.

use std::sync::Arc;

use margrave_core::control::Control;
use margrave_core::gram::DeviceReport;

use super::cg::{Matrix, ONE, SIDE};
use super::factor::Factor;
use super::primal::Primal;
use super::programs::Programs;
use super::state::{Problem, Room, Set, SetRoom, State};
use crate::arithmetic::KernelArgument;
use crate::driver::{Buffer, LongTurn, arguments};
use crate::error::CudaError;
use crate::gram::{CudaGram, Stop};
use crate::packed::PackedPoints;
use crate::phases;
use crate::points::DevicePoints;

/// Blocks of programs that add up over all variables.
pub(super) const BLOCKS: u32 = 264;
/// Threads of programs with one thread per variable.
pub(super) const THREADS: u32 = 256;
/// In all but the first round of a level at most this many variables are released, or half as many as are free.
const LEAST_RELEASED: usize = 8192;
/// Smallest ρ of the proximal term.
const LEAST_PROXIMAL: f64 = 1e-8;

pub(super) struct Rounds<'a> {
    pub(super) gram: &'a CudaGram,
    pub(super) control: &'a Control,
    pub(super) turn: LongTurn,
    pub(super) problem: Problem,
    pub(super) programs: Programs,
    pub(super) kernel: KernelArgument,
    pub(super) points: Arc<DevicePoints<f32>>,
    /// The points by variable for tensor cores, where those are accurate enough.
    pub(super) packed: Option<PackedPoints>,
    pub(super) matrix: Matrix,
    pub(super) small: bool,
    /// Largest number of variables in F, and the bytes that sets may take.
    pub(super) most: usize,
    pub(super) memory: u64,
    pub(super) state: Buffer<State>,
    pub(super) last: State,
    pub(super) histogram: Buffer<u32>,
    pub(super) flags: Buffer<u8>,
    pub(super) counts: Buffer<u32>,
    pub(super) kd: Buffer<f64>,
    pub(super) sums: Room<f64>,
    /// F, and F without what was pinned, in turns.
    pub(super) whole: SetRoom,
    pub(super) shrunk: [SetRoom; 2],
    pub(super) taken: Buffer<f64>,
    pub(super) moves: Buffer<f64>,
    pub(super) moving: Buffer<u8>,
    pub(super) kept: Room<u32>,
    pub(super) step: Room<f64>,
    pub(super) step_flags: Room<u8>,
    pub(super) variables: Room<u32>,
    pub(super) columns: Room<u32>,
    pub(super) values: Room<f64>,
    /// Entries computed.
    pub(super) entries: u64,
    /// Whether sets have turned out to be stiff, and ρ of the proximal term then.
    pub(super) stiff: bool,
    pub(super) proximal: f64,
    /// Passes with pins in the last round, and the share of F that left its piece in the first.
    pub(super) pins: u32,
    pub(super) left_at_first: f64,
    /// Whether there is no room for a preconditioner.
    pub(super) no_preconditioner: bool,
    pub(super) fresh: Room<u8>,
    /// Programs and memory for factors of stiff sets, once there are any.
    pub(super) factor: Option<Factor>,
    /// Programs and state of Newton's method on the primal objective, once it is used; whether β is one of its points, which need not
    /// lie in the box; whether entries of its systems may be rounded to 16 bits.
    pub(super) primal: Option<Primal>,
    pub(super) infeasible: bool,
    pub(super) coarse: bool,
    /// Whether stiff problems are left to it.
    pub(super) smoothable: bool,
}

/// F as it is in a round: the whole, or what is left of it.
#[derive(Clone, Copy)]
pub(super) struct Current {
    pub(super) set: Set,
    pub(super) m: u32,
    pub(super) list: u64,
    pub(super) rows: u64,
}

pub(super) fn grid(n: usize) -> (u32, u32) {
    ((n as u32).div_ceil(THREADS), 1)
}

impl<'a> Rounds<'a> {
    pub(super) fn new(gram: &'a CudaGram, problem: Problem, control: &'a Control) -> Result<Self, CudaError> {
        let turn = gram.card.enter()?;
        gram.prepare(&turn)?;
        let [points, _] = gram.sides_f32(&turn)?;
        let packed = match gram.arithmetic.packed {
            true => PackedPoints::fitting(&turn, &points, &problem.order, gram.arithmetic.norm)?,
            false => None,
        };
        let small = gram.kernel.unit_diagonal();
        let n = problem.n;
        let what = "the solver";
        Ok(Self {
            kernel: KernelArgument::of(&gram.kernel).0,
            programs: Programs::new(&turn)?,
            matrix: Matrix::new(&turn, small)?,
            most: 0,
            memory: 0,
            state: turn.allocate(1, what)?,
            last: State::default(),
            histogram: turn.allocate(4096, what)?,
            flags: turn.allocate(n, what)?,
            counts: turn.allocate(n.div_ceil(1024) + 1, what)?,
            kd: turn.allocate(n, what)?,
            sums: Room::default(),
            whole: SetRoom::default(),
            shrunk: Default::default(),
            taken: turn.allocate(1, what)?,
            moves: turn.allocate(n, what)?,
            moving: turn.allocate(n, what)?,
            kept: Room::default(),
            step: Room::default(),
            step_flags: Room::default(),
            variables: Room::default(),
            columns: Room::default(),
            values: Room::default(),
            entries: 0,
            stiff: false,
            proximal: 0.0,
            pins: 0,
            left_at_first: 0.0,
            no_preconditioner: !small,
            fresh: Room::default(),
            factor: None,
            primal: None,
            infeasible: false,
            coarse: false,
            smoothable: false,
            gram,
            control,
            problem,
            points,
            packed,
            small,
            turn: LongTurn::new(turn),
        })
    }

    /// The positions of set flags, in `list`; their number.
    pub(super) fn select(&self, flags: &Buffer<u8>, n: usize, list: &Buffer<u32>) -> Result<usize, CudaError> {
        let (chunks, n) = (n.div_ceil(1024) as u32, n as u32);
        let (flags, counts, list) = (flags.address(), self.counts.address(), list.address());
        let total = counts + 4 * u64::from(chunks);
        // SAFETY: the arguments are those of the three programs; `counts` has a place for each chunk and for the total.
        unsafe {
            self.turn.launch(self.programs.select_count, (chunks, 1), ONE, 0, arguments![flags, n, counts])?;
            self.turn.launch(self.programs.select_scan, (1, 1), ONE, 0, arguments![counts, chunks, total])?;
            self.turn.launch(self.programs.select_list, (chunks, 1), ONE, 0, arguments![flags, n, counts, list])?;
        }
        let mut found = [0];
        self.turn.read(&self.counts, chunks as usize, &mut found)?;
        Ok(found[0] as usize)
    }

    fn measure(&mut self, m: usize) -> Result<(), CudaError> {
        let (variables, n, paired) = (self.problem.variables(), m as u32, self.problem.paired);
        let parts = self.matrix.parts.address();
        // SAFETY: the arguments are those of the programs.
        unsafe {
            self.turn.launch(self.programs.measure_parts, (BLOCKS, 1), THREADS, 0, arguments![variables, n, parts])?;
            self.turn.launch(
                self.programs.measure,
                (1, 1),
                THREADS,
                0,
                arguments![parts, BLOCKS, paired, self.state.address()],
            )
        }
    }

    pub(super) fn read_state(&mut self) -> Result<(), CudaError> {
        let mut state = [State::default()];
        self.turn.read(&self.state, 0, &mut state)?;
        self.last = state[0];
        Ok(())
    }

    /// The violation of the first m variables.
    pub(super) fn violation(&mut self, m: usize) -> Result<f64, Stop> {
        self.measure(m)?;
        self.read_state()?;
        Ok(self.last.violation)
    }

    /// The nonzero ones of m values by variable (at the address `beta`) become the columns of the next product; their number.
    pub(super) fn nonzero_columns(&mut self, m: usize, beta: u64) -> Result<usize, CudaError> {
        let n = m as u32;
        let kept = self.kept.get(&self.turn, m)?.address();
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                self.programs.flag_nonzero,
                grid(m),
                THREADS,
                0,
                arguments![beta, n, self.flags.address()],
            )?;
        }
        let count = self.select(&self.flags, m, self.kept.held())?;
        let (c, none, order) = (count as u32, 0u64, self.problem.order.address());
        let variables = self.variables.get(&self.turn, count.max(1))?.address();
        let columns = self.columns.get(&self.turn, count.max(1))?.address();
        let values = self.values.get(&self.turn, count.max(1))?.address();
        // SAFETY: the arguments are those of the program; β serves as the step, indexed by variable.
        unsafe {
            self.turn.launch(
                self.programs.pick_columns,
                grid(count),
                THREADS,
                0,
                arguments![c, kept, none, order, beta, variables, columns, values],
            )?;
        }
        Ok(count)
    }

    pub(super) fn set_gradient(&mut self, first: usize, count: usize, scores: u64) -> Result<(), CudaError> {
        let (n, from, variables) = (count as u32, first as u32, self.problem.variables());
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                self.programs.set_g,
                grid(count),
                THREADS,
                0,
                arguments![n, from, variables, scores, self.problem.p.address()],
            )
        }
    }

    /// The slopes of variables `before..m`, from those before, whose β alone may be nonzero.
    pub(super) fn extend(&mut self, before: usize, m: usize) -> Result<(), Stop> {
        if before == m {
            return Ok(());
        }
        let beta = self.problem.beta.address();
        let columns = if before > 0 { self.nonzero_columns(before, beta)? } else { 0 };
        self.product(false, before, m - before, columns)?;
        self.set_gradient(before, m - before, self.kd.address())?;
        Ok(())
    }

    /// K·β in double precision by the caller, and the slopes from it. Returns β and K·β by row.
    pub(super) fn refresh(&mut self, report: &mut dyn DeviceReport) -> Result<(Vec<f64>, Vec<f64>), Stop> {
        self.balance()?;
        let beta = self.problem.beta(&self.turn)?;
        let scores = self.turn.without(|| report.scores(&beta))?;
        self.turn.write(&self.kd, 0, &self.problem.by_variable(&scores))?;
        self.set_gradient(0, self.problem.n, self.kd.address())?;
        Ok((beta, scores))
    }

    /// Corrects Σβ for rounding, by free variables.
    pub(super) fn balance(&self) -> Result<(), CudaError> {
        if self.problem.paired == 0 {
            return Ok(());
        }
        let (variables, n, parts) = (self.problem.variables(), self.problem.n as u32, self.matrix.parts.address());
        for _ in 0..2 {
            // SAFETY: the arguments are those of the programs.
            unsafe {
                let first = self.programs.balance_parts;
                self.turn.launch(first, (BLOCKS, 1), THREADS, 0, arguments![variables, n, parts])?;
                self.turn.launch(
                    self.programs.balance,
                    grid(self.problem.n),
                    THREADS,
                    0,
                    arguments![variables, n, parts, BLOCKS, self.problem.sum],
                )?;
            }
        }
        Ok(())
    }

    /// The violation of all variables, and the relative duality gap, by the current slopes.
    pub(super) fn quality(&mut self) -> Result<(f64, f64), CudaError> {
        let (variables, n, parts) = (self.problem.variables(), self.problem.n as u32, self.matrix.parts.address());
        self.measure(self.problem.n)?;
        let (p, state) = (self.problem.p.address(), self.state.address());
        // SAFETY: the arguments are those of the programs.
        unsafe {
            let first = self.programs.gap_parts;
            self.turn.launch(first, (BLOCKS, 1), THREADS, 0, arguments![variables, p, n, state, parts])?;
            self.turn.launch(self.programs.gap_sum, (1, 1), THREADS, 0, arguments![parts, BLOCKS, state])?;
        }
        self.read_state()?;
        let State { violation, gap, dual, .. } = self.last;
        Ok((violation, gap / dual.abs().max((dual + gap).abs()).max(f64::MIN_POSITIVE)))
    }

    /// How large sets may be: what is free on the card at first, less a share for vectors and for other programs.
    pub(super) fn set_limits(&mut self) -> Result<(), CudaError> {
        if self.most == 0 {
            self.memory = (0.8 * self.turn.free_memory()? as f64) as u64;
            self.most = Matrix::most(self.memory, self.small);
        }
        Ok(())
    }

    /// One round over the first m variables; the length of its step. `None`: the set does not fit the card, or
    /// conjugate gradients make no progress on it.
    pub(super) fn round(&mut self, m: usize, goal: f64, first: bool, careful: bool) -> Result<Option<f64>, Stop> {
        self.control.check()?;
        let violation = self.last.violation;
        self.set_limits()?;
        let begun = phases::begin();
        let size = self.choose_set(m, goal, first)?;
        if size == 0 {
            return Ok(Some(0.0));
        }
        if size > self.most {
            return Ok(None);
        }
        let f = self.gather(size)?;
        phases::end(begun, "choose the set", size as f64, Some(&self.turn));
        let done = match self.is_factored(size, false) {
            true => self.minimise_by_factors(f, careful)?,
            false => self.minimise(f, m, goal, violation, careful)?,
        };
        if done {
            return self.move_along(m, size);
        }
        if !self.stiff {
            (self.stiff, self.proximal) = (true, 1.0);
            if self.smoothable {
                return Ok(None);
            }
            if !self.is_factored(size, false) && Matrix::bytes(size, false) <= self.memory {
                let f = self.gather(size)?;
                if self.minimise(f, m, goal, violation, careful)? {
                    return self.move_along(m, size);
                }
            }
        }
        if !self.is_factored(size, true) {
            return Ok(None);
        }
        let f = self.gather(size)?;
        match self.minimise_by_factors(f, careful)? {
            true => self.move_along(m, size),
            false => Ok(None),
        }
    }

    /// A new level begins, or rounds on the same one go on after a verdict.
    pub(super) fn begin_level(&mut self, new: bool) {
        if self.stiff {
            self.proximal = if new { self.proximal.max(0.1) } else { (0.2 * self.proximal).max(LEAST_PROXIMAL) };
        }
    }

    /// ρ after a round: it shrinks the faster the more the sets have settled.
    pub(super) fn adapt(&mut self, better: bool) {
        let settled = self.pins <= 3 && self.left_at_first < 0.5;
        let factor = match (settled, better) {
            (true, _) => 0.2,
            (false, true) => 0.5,
            (false, false) => 2.0,
        };
        self.proximal = (factor * self.proximal).clamp(LEAST_PROXIMAL, 1e3);
    }

    /// Flags and lists F; its size.
    fn choose_set(&mut self, m: usize, goal: f64, first: bool) -> Result<usize, CudaError> {
        let free = self.last.free.max(0) as usize;
        let most = if first { m } else { LEAST_RELEASED.max(free / 2) };
        let limit = most.min(self.most.saturating_sub(free).max(1024)) as u32;
        let (variables, n, slack) = (self.problem.variables(), m as u32, 0.25 * goal);
        let (state, histogram) = (self.state.address(), self.histogram.address());
        self.whole.list.get(&self.turn, m)?;
        self.turn.fill(&self.histogram, 4096, 0)?;
        // SAFETY: the arguments are those of the programs.
        unsafe {
            self.turn.launch(
                self.programs.wish_histogram,
                (BLOCKS, 1),
                THREADS,
                0,
                arguments![variables, n, state, slack, histogram],
            )?;
            self.turn.launch(
                self.programs.wish_threshold,
                (1, 1),
                64,
                0,
                arguments![state, histogram, slack, limit],
            )?;
            self.turn.launch(
                self.programs.flag_set,
                grid(m),
                THREADS,
                0,
                arguments![variables, n, state, self.flags.address()],
            )?;
        }
        self.select(&self.flags, m, self.whole.list.held())
    }

    fn gather(&mut self, size: usize) -> Result<Current, CudaError> {
        let set = self.whole.get(&self.turn, size)?;
        let (m, list, rows) = (size as u32, self.whole.list.address(), self.whole.rows.address());
        let proximal = if self.stiff { self.proximal } else { 0.0 };
        self.turn.fill(&self.taken, 1, 0)?;
        let (variables, order) = (self.problem.variables(), self.problem.order.address());
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                self.programs.gather_set,
                grid(size),
                THREADS,
                0,
                arguments![variables, order, self.state.address(), list, m, proximal, set, rows],
            )?;
        }
        Ok(Current { set, m, list, rows })
    }

    /// The moves of F as one step: product, line search, new β and slopes, new violation.
    fn move_along(&mut self, m: usize, size: usize) -> Result<Option<f64>, Stop> {
        let set = self.whole.again();
        let (count, paired, list) = (size as u32, self.problem.paired, self.whole.list.address());
        let step = self.step.get(&self.turn, size)?.address();
        let flags = self.step_flags.get(&self.turn, size)?.address();
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                self.programs.settle,
                (1, 1),
                ONE,
                0,
                arguments![count, list, self.moves.address(), self.moving.address(), set, paired, step, flags],
            )?;
        }
        self.kept.get(&self.turn, size)?;
        let moved = self.select(self.step_flags.held(), size, self.kept.held())?;
        if moved == 0 {
            return Ok(Some(0.0));
        }
        let variables = self.variables.get(&self.turn, moved)?.address();
        let columns = self.columns.get(&self.turn, moved)?.address();
        let values = self.values.get(&self.turn, moved)?.address();
        let (c, kept, order) = (moved as u32, self.kept.address(), self.problem.order.address());
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                self.programs.pick_columns,
                grid(moved),
                THREADS,
                0,
                arguments![c, kept, list, order, step, variables, columns, values],
            )?;
        }
        // The entries of stiff sets differ by less than single precision resolves.
        let double = self.stiff && self.gram.arithmetic.wide.is_some();
        self.product(double, 0, m, moved)?;
        let (state, kd, all) = (self.state.address(), self.kd.address(), self.problem.variables());
        let (parts, slopes, n) = (self.matrix.parts.address(), self.whole.slope.address(), m as u32);
        // SAFETY: the arguments are those of the programs.
        unsafe {
            self.turn.launch(
                self.programs.search_parts,
                (SIDE, 1),
                THREADS,
                0,
                arguments![c, kept, variables, values, slopes, all, kd, parts],
            )?;
            self.turn.launch(self.programs.search, (1, 1), SIDE, 0, arguments![parts, SIDE, state])?;
            self.turn.launch(
                self.programs.move_beta,
                grid(moved),
                THREADS,
                0,
                arguments![c, variables, values, state, all],
            )?;
            self.turn.launch(self.programs.move_g, grid(m), THREADS, 0, arguments![n, all, kd, state])?;
        }
        self.measure(m)?;
        self.read_state()?;
        Ok(Some(self.last.step))
    }
}
