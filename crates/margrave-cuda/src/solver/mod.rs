//! The set Newton solver on a card.
//!
//! ```text
//! minimise ½βᵀKβ + Σᵢ hᵢ(βᵢ),   loᵢ ≤ βᵢ ≤ hiᵢ,   Σβ kept if there is a bias
//! ```
//!
//! There are no pair steps. Four ideas:
//!
//! 1. **Cascade.** Variables are in random order. The first 1 500 to 3 000 are solved roughly, then twice as many from that
//!    answer, and so on.
//! 2. **Set Newton with half pinning** (`round.rs`). F is the set of free variables and of fixed ones that want to move. The objective is
//!    minimised over F, all others fixed. Of the variables that leave their piece, all are pinned at its end if they are
//!    few, otherwise the half that meets its end first; again from there, until none leaves. Then one exact line search and
//!    one product K·move that stores nothing. The violation falls about tenfold a round.
//! 3. **Conjugate gradients on `K_FF`** (`cg.rs`), stored as the upper triangle of tiles in 16-bit fixed point (for kernels with values
//!    from 0 to 1; single precision otherwise), so that each tile is read once a product. Sets of 16 000 and more are preconditioned
//!    (`precondition.rs`). A set on which this makes no progress is stiff.
//! 4. **Stiff problems** are left to Newton's method on the primal objective (`primal.rs`, `descend.rs`), level by level. Where most variables
//!    would be between the ends of their boxes, or boxes have no ends, rounds over sets go on with a proximal term ½ρ‖move‖², which
//!    shrinks from round to round; sets of up to 6 000, and larger ones on which conjugate gradients still fail, are factored in double
//!    precision (`factor.rs`), and the others are preconditioned with single-precision entries.
//!
//! Entries are single precision, by tensor cores where those are accurate enough (`products.rs`), sums double. At the end K·β is
//! computed in double precision; the caller judges it, and a few more rounds close what is left. A set on which even that makes no
//! progress, or that does not fit the memory of the card, ends the run: the caller goes on from the point reached.
//!
//! Cost of a round: |F|²/2 entries per step of conjugate gradients, n·|moved| entries once. Memory: |F|² bytes.

mod cg;
mod descend;
mod factor;
mod minimise;
mod precondition;
mod primal;
mod products;
mod programs;
mod round;
mod state;

use margrave_core::control::{Control, Interrupt};
use margrave_core::gram::{DevicePoint, DeviceProblem, DeviceReport, DeviceSolver, DeviceStep, Gram};

use self::descend::Smoothing;
use self::round::Rounds;
use self::state::Problem;
use crate::error::CudaError;
use crate::gram::{CudaGram, Stop};
use crate::phases::phase;

/// Fewer rows are not worth a run on the card.
const FEWEST: usize = 2_000;
/// The first level of the cascade has more than this many rows, and at most twice as many.
const FIRST_LEVEL: usize = 1_500;
/// The violation that ends a level of the cascade, apart from the last.
const LEVEL_VIOLATION: f64 = 0.5;
/// Most rounds in a row on one level.
const MOST_ROUNDS: usize = 80;
/// Most verdicts in double precision, and most rounds before each of them.
const MOST_VERDICTS: usize = 8;
const MOST_CLOSING: usize = 6;
/// A relative gap this many times larger than wanted is far from it.
const FAR: f64 = 50.0;
/// Typical error of an entry in single precision, by tensor cores.
const ENTRY_ERROR: f64 = 5e-7;
/// After a verdict that rounding has spoilt, the gap has to fall to this share.
const STRICTER: f64 = 0.2;
/// A turn that leaves more than this share of both violation and gap is no progress.
const BETTER: f64 = 0.9;
/// Steps shorter than this are no progress.
const TINY_STEP: f64 = 1e-3;

impl DeviceSolver for CudaGram {
    fn solve(
        &self,
        problem: &DeviceProblem<'_>,
        report: &mut dyn DeviceReport,
        control: &Control,
    ) -> Option<DevicePoint> {
        // Points that single precision cannot tell apart need the solver of the processor.
        if problem.terms.len() < FEWEST || !self.arithmetic.solvable || self.card.failure().is_some() {
            return None;
        }
        let mut run = match Run::new(self, problem, report, control) {
            Ok(run) => run,
            Err(error) => {
                self.card.note(&error);
                return None;
            }
        };
        let scores = run.solve();
        let point = run.point(scores);
        point.map_err(|error| self.card.note(&error)).ok()
    }
}

struct Run<'a> {
    gram: &'a CudaGram,
    problem: &'a DeviceProblem<'a>,
    report: &'a mut dyn DeviceReport,
    rounds: Rounds<'a>,
    count: u64,
    /// The relative gap to reach: the one that is asked for, or less where the proof of that would fail by its rounding.
    gap: Option<f64>,
    /// What the primal objective is smoothed by, if it can be.
    smoothing: Option<Smoothing>,
}

impl<'a> Run<'a> {
    fn new(
        gram: &'a CudaGram,
        problem: &'a DeviceProblem<'a>,
        report: &'a mut dyn DeviceReport,
        control: &'a Control,
    ) -> Result<Self, CudaError> {
        let state = phase("copy the problem", 0.0, None, || Problem::new(gram, problem))?;
        let mut rounds = phase("begin", 0.0, None, || Rounds::new(gram, state, control))?;
        let smoothing = Smoothing::of(problem);
        rounds.smoothable = smoothing.is_some();
        Ok(Self { gram, problem, report, rounds, count: 0, gap: problem.gap, smoothing })
    }

    /// Runs all levels; K·β in double precision if it was judged at the end.
    fn solve(&mut self) -> Result<Option<Vec<f64>>, Stop> {
        let n = self.problem.terms.len();
        let cold = self.problem.start.iter().all(|b| *b == 0.0);
        let mut levels = vec![n];
        while cold && levels[levels.len() - 1] > 2 * FIRST_LEVEL {
            levels.push(levels[levels.len() - 1].div_ceil(2));
        }
        let mut before = 0;
        if !cold {
            self.rounds.refresh(self.report)?;
            before = n;
        }
        for &m in levels.iter().rev() {
            self.rounds.extend(before, m)?;
            before = m;
            let goal = if m == n { self.problem.violation } else { LEVEL_VIOLATION.max(self.problem.violation) };
            if self.rounds.primal.is_none() {
                self.level(m, goal, MOST_ROUNDS, true)?;
            }
            if self.rounds.stiff && self.rounds.smoothable {
                self.descend(m, m == n)?;
                if !self.rounds.smoothable {
                    self.level(m, goal, MOST_ROUNDS, true)?;
                }
            }
        }
        match self.rounds.primal.is_some() {
            true => self.settle_primal(n),
            false => self.settle(n),
        }
    }

    /// Rounds over the first m variables until the violation is at most `goal`. `new`: the level begins, so that all
    /// who want to move are released at once. Whether the goal was reached.
    fn level(&mut self, m: usize, goal: f64, most: usize, new: bool) -> Result<bool, Stop> {
        let (mut careful, mut stuck) = (false, 0);
        let mut violation = self.rounds.violation(m)?;
        self.rounds.begin_level(new);
        for round in 0..most {
            if violation <= goal {
                return Ok(true);
            }
            let Some(step) = self.rounds.round(m, goal, new && round == 0, careful)? else { return Ok(false) };
            let before = std::mem::replace(&mut violation, self.rounds.last.violation);
            self.rounds.adapt(violation < before);
            self.count += 1;
            self.report.step(DeviceStep { rounds: self.count, violation, rows: m })?;
            careful = step < 0.3;
            stuck = if step < TINY_STEP { stuck + 1 } else { 0 };
            if stuck >= 4 {
                return Ok(false);
            }
        }
        Ok(violation <= goal)
    }

    /// Whether the point is good enough by the slopes on the card.
    fn looks_good(&mut self) -> Result<bool, CudaError> {
        let (violation, gap) = self.rounds.quality()?;
        Ok(self.is_good(violation, gap))
    }

    fn is_good(&self, violation: f64, gap: f64) -> bool {
        let within = |value: f64, most: Option<f64>| most.is_none_or(|most| value <= most);
        within(violation, self.problem.tol) && within(gap, self.gap)
    }

    /// The typical error of a slope: errors of entries are independent of each other. (The gap falls with the square of the
    /// violation, so the violation wanted is the present one times the root of what the gap has to fall by.)
    fn drift(&self) -> Result<f64, CudaError> {
        let beta = self.rounds.problem.beta(&self.rounds.turn)?;
        Ok(ENTRY_ERROR * beta.iter().map(|b| b * b).sum::<f64>().sqrt())
    }

    /// Rounds until the point looks good by its own slopes, then double precision and verdict; again while that is bad.
    fn settle(&mut self, n: usize) -> Result<Option<Vec<f64>>, Stop> {
        // Rounds on slopes that are less accurate than the goal would cost more than a product in double precision.
        if let Some(wanted) = self.gap {
            let (violation, gap) = self.rounds.quality()?;
            if gap > wanted && (gap > FAR * wanted || self.drift()? > violation * (wanted / gap).sqrt()) {
                phase("refresh", 0.0, None, || self.rounds.refresh(self.report))?;
            }
        }
        let (mut turn, mut before) = (0, (f64::INFINITY, f64::INFINITY));
        loop {
            for _ in 0..MOST_CLOSING {
                if self.looks_good()? {
                    break;
                }
                let goal = (0.1 * self.rounds.violation(n)?).max(1e-10);
                if !self.level(n, goal, 1, false)? && self.rounds.last.violation > 5.0 * goal {
                    break;
                }
            }
            let (beta, found) = phase("refresh", 0.0, None, || self.rounds.refresh(self.report))?;
            let (violation, gap) = self.rounds.quality()?;
            let good = self.is_good(violation, gap);
            let accepted = good && phase("verdict", 0.0, None, || self.report.verdict(&beta, &found));
            let better = violation < BETTER * before.0 || gap < BETTER * before.1;
            turn += 1;
            if accepted || !better || turn == MOST_VERDICTS {
                return Ok(Some(found));
            }
            before = (violation, gap);
            if good {
                // What was measured is good enough, what will be proven is not: the proof adds the rounding of its scores.
                self.gap = Some(STRICTER * gap);
            }
        }
    }

    /// The point reached, however the run ended.
    fn point(&mut self, ended: Result<Option<Vec<f64>>, Stop>) -> Result<DevicePoint, CudaError> {
        self.gram.count(self.rounds.entries);
        if self.rounds.infeasible {
            self.rounds.clip()?;
        }
        let scores = match ended {
            Ok(scores) => scores,
            Err(Stop::Interrupt(Interrupt::Deadline | Interrupt::Cancelled | Interrupt::Stalled)) => None,
            // The memory went to somebody else: the point is as good as before.
            Err(Stop::Failure(CudaError::Memory { .. })) => None,
            Err(Stop::Failure(error)) => return Err(error),
        };
        Ok(DevicePoint { beta: self.rounds.problem.beta(&self.rounds.turn)?, scores, rounds: self.count })
    }
}

impl CudaGram {
    /// The solver, for square Grams of more than a few rows.
    pub(crate) fn solver(&self) -> Option<&dyn DeviceSolver> {
        (self.shape().0 >= FEWEST && self.shape().0 == self.shape().1).then_some(self)
    }
}
