//! Newton's method on the primal objective with smoothed losses, for stiff problems.
//!
//! Where the points of a problem are many and K is smooth, large changes of β hardly change K·β, and K·β decides which variables are
//! at an end of their box. Rounds over sets (`round.rs`) then move from one wrong set to the next. Here α may leave the box:
//!
//! ```text
//! minimise ½αᵀKα + Σᵢ φᵢ(μ − (Kα)ᵢ − pᵢ) − μ·sum,   φᵢ(w) = maximum over the box of wβ − hᵢ(β)
//! ```
//!
//! with a parabola added to each hᵢ, so that the maximum passes from one end of the box to the other while w changes by `width`.
//! A step gives every variable the place that the present K·α asks for; those between the ends, some per cent of all, solve one
//! system with K over them plus the parabola's curvature, which bounds the condition. An exact line search along all changes follows.
//! At the minimum α lies in the box and is the optimum of the smoothed dual problem, whose gap in the problem itself falls with the
//! square of the width.
//!
//! Cost of a step: a product of all rows with the variables between the ends and with those whose place has changed (others go on
//! towards theirs, which is known), and one system: a factor in double precision, or conjugate gradients with
//! the Nyström preconditioner for more than some thousand variables.

use super::cg::{Aim, ONE};
use super::round::{BLOCKS, Current, Rounds, THREADS, grid};
use crate::driver::{Buffer, Function, Turn, arguments};
use crate::error::CudaError;
use crate::gram::Stop;
use crate::phases;
use crate::ptx::Module;

/// Largest system that is factored at once.
const FACTORED: usize = 6_000;
/// Largest residual of conjugate gradients, relative to the width, at first and near the end, and most steps. The residual of no move
/// may be ten thousand times the width: with one relative to that the line search would end at once.
const RESIDUAL: f64 = 0.05;
const LAST_RESIDUAL: f64 = 0.005;
const MOST_STEPS: u32 = 600;
/// The curvature is at least this many times what rounding entries to 16 bits may take away per √variables.
const COARSE: f64 = 5.0 * 8.8e-6;
/// Places of a line search, and the distance of the first of them.
const PLACES: u32 = 33;
const APART: f64 = 1.0 / 16.0;
/// The whole step is also taken where the objective falls by less than this share of ½αᵀKα.
const ROUNDING: f64 = 2e-5;
/// The whole step is taken where the slope has fallen to this share at its end.
const FLAT: f64 = 0.1;
/// Typical error of an entry in single precision, and the share of the width that errors of scores may have.
const ENTRY_ERROR: f64 = 1e-6;
const NOISE: f64 = 0.05;

/// Programs by name.
#[derive(Debug)]
struct Own {
    scores: Function,
    assign: Function,
    taken: Function,
    gather: Function,
    moves: Function,
    mean: Function,
    columns: Function,
    change: Function,
    search: Function,
    sums: Function,
    step: Function,
    clip: Function,
    differences: Function,
}

/// Programs, memory and state.
#[derive(Debug)]
pub(super) struct Primal {
    own: Own,
    /// K·α, and K times the moves.
    scores: Buffer<f64>,
    change: Buffer<f64>,
    /// The last moves of variables at the ends of their boxes, K times them, and the share of them that is left to be done.
    before: Buffer<f64>,
    before_change: Buffer<f64>,
    left: f64,
    differences: Buffer<f64>,
    /// Whether systems are solved accurately.
    accurate: bool,
    sums: Buffer<f64>,
    /// The multiplier of the sum.
    mu: f64,
    /// How far w is from where a variable leaves one end of its box to where it reaches the other.
    pub(super) width: f64,
    /// The width has become smaller since the last step: variables between the ends of their boxes are expected to stay there.
    narrowed: bool,
    /// The mean extent of the boxes.
    across: f64,
}

/// A step of Newton's method.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newton {
    /// Variables between the ends of their boxes.
    pub(super) size: usize,
    /// The length of the step, 1 being the whole.
    pub(super) length: f64,
    /// How fast the objective fell at its beginning, and ½αᵀKα there.
    pub(super) decrease: f64,
    pub(super) energy: f64,
}

impl Primal {
    fn new(turn: &Turn<'_>, n: usize, across: f64) -> Result<Self, CudaError> {
        let find = |name: &str| turn.function(Module::Primal, name, 0);
        let what = "the solver";
        Ok(Self {
            own: Own {
                scores: find("primal_scores")?,
                assign: find("primal_assign")?,
                taken: find("primal_taken")?,
                gather: find("primal_gather")?,
                moves: find("primal_moves")?,
                mean: find("primal_mean")?,
                columns: find("primal_columns")?,
                change: find("primal_change")?,
                search: find("primal_search")?,
                sums: find("primal_sums")?,
                step: find("primal_step")?,
                clip: find("primal_clip")?,
                differences: find("primal_differences")?,
            },
            scores: turn.allocate(n, what)?,
            change: turn.allocate(n, what)?,
            before: turn.allocate(n, what)?,
            before_change: turn.allocate(n, what)?,
            left: 0.0,
            differences: turn.allocate(n, what)?,
            accurate: false,
            sums: turn.allocate(PLACES as usize + 1, what)?,
            mu: 0.0,
            width: 0.0,
            narrowed: false,
            across,
        })
    }
}

impl Rounds<'_> {
    /// Begins with the first m variables as they are; `width` where there is none yet, `across` the mean extent of boxes.
    pub(super) fn begin_primal(&mut self, m: usize, width: f64, across: f64) -> Result<(), Stop> {
        self.infeasible = true;
        let mut primal = match self.primal.take() {
            Some(primal) => primal,
            None => {
                self.violation(m)?;
                let mu = if self.problem.paired == 1 { self.last.mu } else { 0.0 };
                Primal { mu, width, ..Primal::new(&self.turn, self.problem.n, across)? }
            }
        };
        if self.problem.paired == 0 {
            primal.mu = 0.0;
        }
        self.forget_moves(&mut primal, m)?;
        let (variables, p, n) = (self.problem.variables(), self.problem.p.address(), m as u32);
        let scores = primal.scores.address();
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(primal.own.scores, grid(m), THREADS, 0, arguments![variables, p, n, scores])?;
        }
        self.primal = Some(primal);
        Ok(())
    }

    /// The moves of the last step are no longer those of the next one's variables.
    fn forget_moves(&self, primal: &mut Primal, m: usize) -> Result<(), CudaError> {
        primal.left = 0.0;
        self.turn.fill(&primal.before, m, 0)?;
        self.turn.fill(&primal.before_change, m, 0)
    }

    /// Changes the width by a factor.
    pub(super) fn scale_width(&mut self, by: f64) {
        if let Some(primal) = &mut self.primal {
            primal.width *= by;
            primal.narrowed = by < 1.0;
        }
    }

    /// Whether the next system is to be solved accurately.
    pub(super) fn set_accurate(&mut self, accurate: bool) {
        if let Some(primal) = &mut self.primal {
            primal.accurate = accurate;
        }
    }

    /// What was said last.
    pub(super) fn is_accurate(&self) -> bool {
        self.primal.as_ref().is_some_and(|primal| primal.accurate)
    }

    /// Another width, before the first step on more variables.
    pub(super) fn set_width(&mut self, width: f64) {
        if let Some(primal) = &mut self.primal {
            (primal.width, primal.narrowed) = (width, false);
        }
    }

    /// The present width.
    pub(super) fn width(&self) -> f64 {
        self.primal.as_ref().map_or(0.0, |primal| primal.width)
    }

    /// The slopes from K·α.
    pub(super) fn end_primal(&mut self, m: usize) -> Result<(), CudaError> {
        match self.primal.as_ref().map(|primal| primal.scores.address()) {
            Some(scores) => self.set_gradient(0, m, scores),
            None => Ok(()),
        }
    }

    /// One step over the first m variables. `None`: the system has more than `limit` variables, or does not fit the card.
    pub(super) fn primal_newton(&mut self, m: usize, limit: usize) -> Result<Option<Newton>, Stop> {
        let Some(mut primal) = self.primal.take() else { return Ok(None) };
        let done = self.newton(&mut primal, m, limit);
        self.primal = Some(primal);
        done
    }

    fn newton(&mut self, primal: &mut Primal, m: usize, limit: usize) -> Result<Option<Newton>, Stop> {
        self.control.check()?;
        self.set_limits()?;
        let begun = phases::begin();
        let (variables, p, order) = (self.problem.variables(), self.problem.p.address(), self.problem.order.address());
        let (n, parts, total) = (m as u32, self.matrix.parts.address(), self.problem.sum);
        let (width, mu, scores) = (primal.width, primal.mu, primal.scores.address());
        let held = u32::from(std::mem::take(&mut primal.narrowed));
        let (moves, flags, taken) = (self.moves.address(), self.flags.address(), self.taken.address());
        self.whole.list.get(&self.turn, m)?;
        // SAFETY: the arguments are those of the programs.
        unsafe {
            self.turn.launch(
                primal.own.assign,
                (BLOCKS, 1),
                THREADS,
                0,
                arguments![variables, p, scores, n, width, mu, held, moves, flags, parts],
            )?;
            self.turn.launch(primal.own.taken, (1, 1), THREADS, 0, arguments![parts, BLOCKS, total, taken])?;
        }
        let size = self.select(&self.flags, m, self.whole.list.held())?;
        if size > self.most.min(limit) {
            return Ok(None);
        }
        if size == 0 {
            return Ok(Some(Newton { size, length: 0.0, decrease: 0.0, energy: 0.0 }));
        }
        phases::end(begun, "primal: choose the set", size as f64, Some(&self.turn));
        let (left, before, differences) = (primal.left, primal.before.address(), primal.differences.address());
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                primal.own.differences,
                grid(m),
                THREADS,
                0,
                arguments![n, left, moves, before, differences],
            )?;
        }
        let columns = self.nonzero_columns(m, differences)?;
        let noise = ENTRY_ERROR * primal.across * ((columns + size) as f64).sqrt();
        let double = noise > NOISE * width && self.gram.arithmetic.wide.is_some();
        self.product(double, 0, m, columns)?;
        let known = primal.before_change.address();
        self.add_change(primal, m, left, known, known)?;
        let set = self.whole.get(&self.turn, size)?;
        let (count, list, rows) = (size as u32, self.whole.list.address(), self.whole.rows.address());
        let change = primal.before_change.address();
        let factored = size <= FACTORED;
        let share = if factored || self.problem.paired == 0 { 0.0 } else { 1.0 / size as f64 };
        let f = Current { set, m: count, list, rows };
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                primal.own.gather,
                grid(size),
                THREADS,
                0,
                arguments![variables, p, order, scores, change, list, count, width, mu, held, taken, share, set, rows],
            )?;
        }
        self.solve_system(primal, f, m, factored)?;
        let [chosen, columns, values] = [
            self.variables.get(&self.turn, size)?.address(),
            self.columns.get(&self.turn, size)?.address(),
            self.values.get(&self.turn, size)?.address(),
        ];
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                primal.own.columns,
                grid(size),
                THREADS,
                0,
                arguments![count, set, list, order, moves, chosen, columns, values],
            )?;
        }
        self.product(double, 0, m, size)?;
        self.add_change(primal, m, 1.0, known, primal.change.address())?;
        let begun = phases::begin();
        let mut found = [0.0];
        self.turn.read(&primal.sums, 0, &mut found)?;
        let step = self.search_primal(primal, m, size, found[0] - mu)?;
        phases::end(begun, "primal: line search", 0.0, Some(&self.turn));
        Ok(Some(step))
    }

    /// to = share·from + the last product.
    fn add_change(&self, primal: &Primal, m: usize, share: f64, from: u64, to: u64) -> Result<(), CudaError> {
        let (n, product) = (m as u32, self.kd.address());
        // SAFETY: the arguments are those of the program.
        unsafe { self.turn.launch(primal.own.change, grid(m), THREADS, 0, arguments![n, product, share, from, to]) }
    }

    /// The moves of F, in its x; the new multiplier goes to `sums`.
    fn solve_system(&mut self, primal: &Primal, f: Current, level: usize, factored: bool) -> Result<(), Stop> {
        let (count, paired) = (f.m, self.problem.paired);
        let (taken, mu) = (self.taken.address(), primal.sums.address());
        if !factored && self.solve_by_steps(primal, f, level)? {
            let product = self.matrix.kq.address();
            // SAFETY: the arguments are those of the program.
            unsafe {
                self.turn.launch(primal.own.mean, (1, 1), ONE, 0, arguments![count, f.set, product, paired, mu])?;
            }
            return Ok(());
        }
        let begun = phases::begin();
        let (solved, size) = self.solve_by_factor(f)?;
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                primal.own.moves,
                (1, 1),
                ONE,
                0,
                arguments![count, f.set, solved, size, taken, paired, mu],
            )?;
        }
        phases::end(begun, "primal: factor", f64::from(count), Some(&self.turn));
        Ok(())
    }

    /// Conjugate gradients; K·x is in `kq` afterwards. `false`: a factor would be better, and fits.
    fn solve_by_steps(&mut self, primal: &Primal, f: Current, level: usize) -> Result<bool, Stop> {
        let (added, paired) = (primal.width / primal.across, self.problem.paired);
        self.coarse = !primal.accurate && added > COARSE * f64::from(f.m).sqrt();
        self.fill_matrix(f, None)?;
        let preconditioned = self.prepare(level, f)?;
        let again = self.programs.cg_again;
        // SAFETY: the argument is that of the program.
        unsafe { self.turn.launch(again, (1, 1), 1, 0, arguments![self.matrix.cg.address()])? };
        if paired == 1 {
            self.matrix.multiply(&self.turn, &self.programs, f.set, false)?;
        }
        let residual = primal.width * if primal.accurate { LAST_RESIDUAL } else { RESIDUAL };
        let aim = Aim { aim: 0.0, floor: residual, share: 1.0, most: MOST_STEPS };
        self.matrix.start(&self.turn, &self.programs, f.set, paired == 1, paired, aim)?;
        if preconditioned {
            if !self.build_preconditioner(f, added)? {
                return Ok(false);
            }
            self.matrix.first_direction(&self.turn, f.set, f.list, paired)?;
        }
        let begun = phases::begin();
        let cg = loop {
            self.control.check()?;
            match preconditioned {
                true => self.matrix.steps(&self.turn, &self.programs, f.set, f.list, paired)?,
                false => self.matrix.run(&self.turn, &self.programs, f.set, paired)?,
            }
            let cg = self.matrix.state(&self.turn)?;
            if cg.done != 0 {
                break cg;
            }
        };
        phases::end(begun, "primal: conjugate gradients", f64::from(cg.steps), Some(&self.turn));
        let reached = cg.largest <= 20.0 * residual;
        if !reached && self.fits_factor(f.m as usize) {
            return Ok(false);
        }
        self.reload(f)?;
        self.matrix.multiply(&self.turn, &self.programs, f.set, true)?;
        Ok(true)
    }

    /// Slopes of the objective along the moves, at `PLACES` places, less what the sum takes; the last number is ½αᵀKα.
    fn slopes(&self, primal: &Primal, m: usize, mu_move: f64, from: f64, by: f64) -> Result<Vec<f64>, CudaError> {
        let (variables, p, n) = (self.problem.variables(), self.problem.p.address(), m as u32);
        let (scores, change, moves) = (primal.scores.address(), primal.change.address(), self.moves.address());
        let (parts, out, width, mu) = (self.matrix.parts.address(), primal.sums.address(), primal.width, primal.mu);
        // SAFETY: the arguments are those of the programs; `parts` has room for all blocks of all places.
        unsafe {
            self.turn.launch(
                primal.own.search,
                (BLOCKS, PLACES + 1),
                THREADS,
                0,
                arguments![variables, p, scores, moves, change, n, width, mu, mu_move, from, by, parts],
            )?;
            self.turn.launch(primal.own.sums, (PLACES + 1, 1), THREADS, 0, arguments![parts, BLOCKS, out])?;
        }
        let mut found = vec![0.0; PLACES as usize + 1];
        self.turn.read(&primal.sums, 0, &mut found)?;
        found[..PLACES as usize].iter_mut().for_each(|slope| *slope -= self.problem.sum * mu_move);
        Ok(found)
    }

    fn search_primal(&mut self, primal: &mut Primal, m: usize, size: usize, mu_move: f64) -> Result<Newton, CudaError> {
        let slopes = self.slopes(primal, m, mu_move, 0.0, APART)?;
        let (first, energy) = (slopes[0], slopes[PLACES as usize]);
        let length = match first < 0.0 && first.is_finite() {
            // Slopes this small are mostly rounding of the products; the whole step puts all variables into their boxes.
            true if -first <= ROUNDING * energy => 1.0,
            true => self.line_search(primal, m, mu_move, &slopes)?,
            false => 0.0,
        };
        let (variables, n) = (self.problem.variables(), m as u32);
        let (scores, change, moves) = (primal.scores.address(), primal.change.address(), self.moves.address());
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(
                primal.own.step,
                grid(m),
                THREADS,
                0,
                arguments![variables, n, moves, change, length, scores],
            )?;
        }
        primal.mu += length * mu_move;
        primal.left = 1.0 - length;
        Ok(Newton { size, length, decrease: -first, energy })
    }

    /// Where the slope is zero, given the slopes at the first places.
    fn line_search(&self, primal: &Primal, m: usize, mu_move: f64, slopes: &[f64]) -> Result<f64, CudaError> {
        let one = (1.0 / APART) as usize;
        if slopes[one].abs() <= FLAT * slopes[0].abs() {
            return Ok(1.0);
        }
        let last = PLACES as usize - 1;
        let mut slopes = slopes.to_vec();
        let (mut from, mut by) = (0.0, APART);
        for finer in 0..3 {
            let Some(at) = (1..=last).find(|&k| slopes[k] >= 0.0) else { return Ok(from + by * last as f64) };
            let (low, high) = (slopes[at - 1], slopes[at]);
            let place = from + by * ((at - 1) as f64 - low / (high - low).max(f64::MIN_POSITIVE));
            // Slopes are linear between places that are this close.
            if finer == 2 || by < 0.1 * place {
                return Ok(place);
            }
            (from, by) = (from + by * (at - 1) as f64, by / last as f64);
            slopes = self.slopes(primal, m, mu_move, from, by)?;
        }
        Ok(from)
    }

    /// Puts α into the box and its sum right; K·α is not computed.
    pub(super) fn clip(&mut self) -> Result<(), CudaError> {
        let Some(primal) = &self.primal else { return Ok(()) };
        let (variables, n, before) = (self.problem.variables(), self.problem.n as u32, self.moves.address());
        // SAFETY: the arguments are those of the program; `moves` is used within steps only.
        unsafe {
            self.turn.launch(primal.own.clip, grid(self.problem.n), THREADS, 0, arguments![variables, n, before])?;
        }
        self.infeasible = false;
        self.balance()
    }

    /// The point in the box that α has become, with the slopes of the first n variables; the others are zero.
    pub(super) fn finish_primal(&mut self, n: usize) -> Result<(), Stop> {
        self.clip()?;
        let (count, beta, moves) = (n as u32, self.problem.beta.address(), self.moves.address());
        // SAFETY: the arguments are those of the program.
        unsafe {
            self.turn.launch(self.programs.subtract, grid(n), THREADS, 0, arguments![count, beta, moves, moves])?;
        }
        let columns = self.nonzero_columns(n, moves)?;
        self.product(false, 0, n, columns)?;
        if let Some(mut primal) = self.primal.take() {
            let scores = primal.scores.address();
            self.add_change(&primal, n, 1.0, scores, scores)?;
            self.forget_moves(&mut primal, n)?;
            self.primal = Some(primal);
        }
        Ok(self.end_primal(n)?)
    }

    /// α as it was before `finish_primal`, if nothing was computed since but how good the point is.
    pub(super) fn undo_finish(&mut self, n: usize) -> Result<(), CudaError> {
        let Some(primal) = &self.primal else { return Ok(()) };
        let (variables, count, back) = (self.problem.variables(), n as u32, -1.0f64);
        let (moves, change, scores) = (self.moves.address(), self.kd.address(), primal.scores.address());
        self.infeasible = true;
        // SAFETY: the arguments are those of the program; `moves` and the product are those of the last call.
        unsafe {
            self.turn.launch(
                primal.own.step,
                grid(n),
                THREADS,
                0,
                arguments![variables, count, moves, change, back, scores],
            )
        }
    }
}
