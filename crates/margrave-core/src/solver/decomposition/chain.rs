//! Chains of problems by pair steps on K in memory, one after the other: what a card does with all chains side by side
//! (`kernels/chains.cu` of margrave-cuda), transcribed for the processor.
//!
//! A step takes the variable i whose objective falls fastest as it grows, and the partner j with the largest gain for the pair.
//! Choices are made by single-precision keys, ties by the smaller index; gradients are sums in double precision.

use crate::control::{Control, Threads};
use crate::data::Points;
use crate::gram::{ChainLink, ChainPoint, ChainSolver, ProblemChain, StoredGram, uniform};
use crate::kernel::Kernel;
use crate::loss::DualTerm;

/// The smallest curvature of a pair.
const LEAST_CURVATURE: f32 = 1e-6;
/// A sum of β below this share of Σ|β| is zero.
const BALANCED: f64 = 1e-13;
/// Passes that move the free variables of a guess to a sum of zero.
const PASSES: usize = 8;

/// Solves chains on the processor.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessorChains;

impl ChainSolver for ProcessorChains {
    fn solve(
        &self,
        points: &Points,
        kernels: &[Kernel],
        chains: &[ProblemChain],
        control: &Control,
    ) -> Option<Vec<Vec<ChainPoint>>> {
        if chains.iter().flat_map(|chain| &chain.links).any(|link| uniform(&link.terms).is_none()) {
            return None;
        }
        let control = control.with_threads(Threads::one());
        let stored = |kernel: &Kernel| {
            let gram = control.backend().square_gram(*kernel, points).ok()?;
            StoredGram::new(gram.as_ref(), &control).ok()
        };
        let matrices: Vec<StoredGram> = kernels.iter().map(stored).collect::<Option<_>>()?;
        chains.iter().map(|chain| solve_chain(chain, matrices.get(chain.kernel)?, &control)).collect()
    }
}

fn solve_chain(chain: &ProblemChain, gram: &StoredGram, control: &Control) -> Option<Vec<ChainPoint>> {
    let mut found: Vec<ChainPoint> = Vec::with_capacity(chain.links.len());
    for link in &chain.links {
        let state = LinkState::start(link, found.last(), gram)?;
        found.push(state.run(0, chain.steps, link.tol, gram, control)?);
    }
    for (link, point) in chain.links.iter().zip(&mut found).filter(|(_, point)| !point.reached) {
        let (eps, d) = uniform(&link.terms)?;
        let slope = |i: usize| point.scores[i] + link.terms[i].p + d * point.beta[i];
        let gradient = (0..gram.len()).map(slope).collect();
        let state = LinkState { terms: &link.terms, eps, d, beta: point.beta.clone(), gradient };
        *point = state.run(point.steps, chain.steps + chain.more, link.tol, gram, control)?;
    }
    Some(found)
}

enum Progress {
    Moved,
    Reached,
    Stuck,
}

struct LinkState<'a> {
    terms: &'a [DualTerm],
    eps: f64,
    d: f64,
    beta: Vec<f64>,
    /// Kβ + p + dβ.
    gradient: Vec<f64>,
}

impl<'a> LinkState<'a> {
    /// The better of two guesses: β of the link before scaled by the ratio of the costs, or only where it was at its bound.
    fn start(link: &'a ChainLink, before: Option<&ChainPoint>, gram: &StoredGram) -> Option<Self> {
        let (terms, n) = (link.terms.as_slice(), gram.len());
        let (eps, d) = uniform(terms)?;
        let Some(before) = before else {
            let gradient = terms.iter().map(|t| t.p).collect();
            return Some(Self { terms, eps, d, beta: vec![0.0; n], gradient });
        };
        let scaled: Vec<f64> = before.beta.iter().zip(terms).map(|(b, t)| (link.ratio * b).clamp(t.lo, t.hi)).collect();
        let scores: Vec<f64> = before.scores.iter().map(|f| link.ratio * f).collect();
        let kept = keep_free(&before.beta, &scaled, terms);
        let (beta, scores) = match kept {
            Some(kept) => {
                let mut other = scores.clone();
                for i in (0..n).filter(|&i| kept[i] != scaled[i]) {
                    let by = kept[i] - scaled[i];
                    gram.row(i).iter().zip(&mut other).for_each(|(k, f)| *f += by * f64::from(*k));
                }
                if dual(&kept, &other, terms, eps, d) > dual(&scaled, &scores, terms, eps, d) {
                    (kept, other)
                } else {
                    (scaled, scores)
                }
            }
            None => (scaled, scores),
        };
        let gradient = (0..n).map(|i| scores[i] + terms[i].p + d * beta[i]).collect();
        Some(Self { terms, eps, d, beta, gradient })
    }

    /// Takes steps until the violation is reached, `limit` of them are done, or nothing moves.
    fn run(mut self, done: u64, limit: u64, tol: f64, gram: &StoredGram, control: &Control) -> Option<ChainPoint> {
        let (mut steps, mut reached) = (done, false);
        loop {
            if steps % 512 == 0 {
                control.check().ok()?;
            }
            match self.step(tol, steps < limit, gram) {
                Progress::Moved => steps += 1,
                Progress::Reached => {
                    reached = true;
                    break;
                }
                Progress::Stuck => break,
            }
        }
        Some(ChainPoint { scores: self.scores(), beta: self.beta, steps, reached })
    }

    /// The slopes of the objective as βᵢ grows and as it falls; infinite at the bounds.
    fn slopes(&self, i: usize) -> (f64, f64) {
        let (b, t, g) = (self.beta[i], &self.terms[i], self.gradient[i]);
        let up = if b < t.hi { g + if b >= 0.0 { self.eps } else { -self.eps } } else { f64::INFINITY };
        let down = if b > t.lo { g + if b > 0.0 { self.eps } else { -self.eps } } else { f64::NEG_INFINITY };
        (up, down)
    }

    /// One step, if one more is allowed.
    fn step(&mut self, tol: f64, allowed: bool, gram: &StoredGram) -> Progress {
        let n = self.beta.len();
        let (mut i, mut lowest, mut highest) = (n, f32::INFINITY, f32::NEG_INFINITY);
        let (mut up_i, mut down_most) = (f64::INFINITY, f64::NEG_INFINITY);
        for r in 0..n {
            let (up, down) = self.slopes(r);
            if (up as f32) < lowest {
                (i, lowest, up_i) = (r, up as f32, up);
            }
            if (down as f32) > highest {
                (highest, down_most) = (down as f32, down);
            }
        }
        if i == n || !(down_most - up_i > tol) {
            return Progress::Reached;
        }
        if !allowed {
            return Progress::Stuck;
        }
        let row = gram.row(i);
        let (mut j, mut most, mut down_j) = (n, 0.0f32, 0.0);
        for (r, k) in row.iter().enumerate() {
            let down = self.slopes(r).1;
            let by = (down - up_i) as f32;
            let gain = by * by / (2.0 + 2.0 * self.d as f32 - 2.0 * k).max(LEAST_CURVATURE);
            if by > 0.0 && gain > most {
                (j, most, down_j) = (r, gain, down);
            }
        }
        if j == n {
            return Progress::Stuck;
        }
        let curvature = (2.0 + 2.0 * self.d - 2.0 * f64::from(row[j])).max(f64::from(LEAST_CURVATURE));
        let by = self.move_pair(i, j, (down_j - up_i) / curvature);
        if !(by > 0.0) {
            return Progress::Stuck;
        }
        let other = gram.row(j);
        for r in 0..n {
            self.gradient[r] += by * (f64::from(row[r]) - f64::from(other[r]));
        }
        self.gradient[i] += self.d * by;
        self.gradient[j] -= self.d * by;
        Progress::Moved
    }

    /// Moves βᵢ up and βⱼ down by the same amount, at most `by`: bounds and zero, where the slopes jump, are met exactly.
    fn move_pair(&mut self, i: usize, j: usize, by: f64) -> f64 {
        let (bi, bj, eps) = (self.beta[i], self.beta[j], self.eps > 0.0);
        let end_i = if eps && bi < 0.0 { 0.0f64.min(self.terms[i].hi) } else { self.terms[i].hi };
        let end_j = if eps && bj > 0.0 { 0.0f64.max(self.terms[j].lo) } else { self.terms[j].lo };
        let by = by.min(end_i - bi).min(bj - end_j);
        self.beta[i] = if by >= end_i - bi { end_i } else { bi + by };
        self.beta[j] = if by >= bj - end_j { end_j } else { bj - by };
        by
    }

    fn scores(&self) -> Vec<f64> {
        (0..self.beta.len()).map(|r| self.gradient[r] - self.terms[r].p - self.d * self.beta[r]).collect()
    }
}

/// β as it was where it is free, scaled where it is at its bound, with a sum of zero; `None` if that cannot be had.
fn keep_free(before: &[f64], scaled: &[f64], terms: &[DualTerm]) -> Option<Vec<f64>> {
    let at_bound = |s: f64, t: &DualTerm| s != 0.0 && (s >= t.hi * (1.0 - 1e-9) || s <= t.lo * (1.0 - 1e-9));
    let mut kept: Vec<f64> = Vec::with_capacity(before.len());
    for ((b, s), t) in before.iter().zip(scaled).zip(terms) {
        kept.push(if at_bound(*s, t) { *s } else { b.clamp(t.lo, t.hi) });
    }
    for _ in 0..PASSES {
        let (mut sum, mut size, mut free) = (0.0, 0.0, 0u32);
        for (b, t) in kept.iter().zip(terms) {
            sum += b;
            size += b.abs();
            free += u32::from(*b != 0.0 && *b > t.lo && *b < t.hi);
        }
        if sum.abs() <= BALANCED * size {
            return Some(kept);
        }
        if free == 0 {
            return None;
        }
        let share = -sum / f64::from(free);
        for (b, t) in kept.iter_mut().zip(terms) {
            if *b != 0.0 && *b > t.lo && *b < t.hi {
                // A free β keeps its sign.
                let (low, high) = if *b > 0.0 { (0.0, t.hi) } else { (t.lo, 0.0) };
                *b = (*b + share).clamp(low, high);
            }
        }
    }
    None
}

/// The dual objective.
fn dual(beta: &[f64], scores: &[f64], terms: &[DualTerm], eps: f64, d: f64) -> f64 {
    let one = |((b, f), t): ((&f64, &f64), &DualTerm)| 0.5 * b * f + t.p * b + eps * b.abs() + 0.5 * d * b * b;
    -beta.iter().zip(scores).zip(terms).map(one).sum::<f64>()
}
