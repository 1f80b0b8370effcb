//! Where a linear solver stands: w, b, the scores z = Xw + b, β, and v = Xᵀβ.
//!
//! v is kept up to date by the changes of β alone, so that a step costs no more than the samples it moves.

use super::piece::Piece;
use crate::control::{Control, Interrupt, Status};
use crate::gram::{Matrix, Pick};
use crate::observe::{Observer, Step};
use crate::problem::LinearProblem;

/// Samples of one task of a loop over n-vectors.
pub(super) const CHUNK: usize = 1 << 13;

/// Sums over tasks of `CHUNK` of the positions `0..count`, in order.
pub(super) fn sums<const K: usize>(
    control: &Control,
    count: usize,
    term: impl Fn(usize) -> [f64; K] + Sync,
) -> [f64; K] {
    let parts = control.threads.map(count.div_ceil(CHUNK), |task| {
        let mut sum = [0.0; K];
        for k in task * CHUNK..((task + 1) * CHUNK).min(count) {
            let t = term(k);
            (0..K).for_each(|j| sum[j] += t[j]);
        }
        sum
    });
    let mut total = [0.0; K];
    parts.into_iter().for_each(|p| (0..K).for_each(|j| total[j] += p[j]));
    total
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// How good the point is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    /// P.
    pub(super) primal: f64,
    /// Σ of the samples' own shares of the gap.
    pub(super) excess: f64,
    /// ½‖w − Xᵀβ‖², and the same of a penalised bias: the rest of the gap.
    pub(super) mismatch: f64,
}

impl Measure {
    pub(super) fn scale(&self) -> f64 {
        self.primal.abs().max((self.primal - self.gap()).abs()).max(1.0)
    }

    pub(super) fn gap(&self) -> f64 {
        self.excess + self.mismatch
    }

    pub(super) fn relative(&self) -> f64 {
        self.gap() / self.scale()
    }
}

/// Everything a solver carries along.
pub(super) struct State<'a, 'o> {
    pub(super) problem: &'a LinearProblem<'a>,
    pub(super) x: &'a dyn Matrix,
    pub(super) control: &'a Control,
    pub(super) observer: &'o mut dyn Observer,
    /// Penalty of the bias; `None` without one.
    pub(super) rho: Option<f64>,
    /// Column means, about which second moments are taken; empty: the origin.
    pub(super) centre: Vec<f64>,
    pub(super) w: Vec<f64>,
    pub(super) b: f64,
    pub(super) z: Vec<f64>,
    pub(super) beta: Vec<f64>,
    pub(super) v: Vec<f64>,
    /// Σβ.
    pub(super) sum: f64,
    pub(super) iterations: u64,
    pub(super) limit: u64,
    /// Bytes for a d × d matrix and its factor.
    pub(super) memory: u64,
    /// Second moments of the last Newton step, brought up to date by the rows whose weight changed.
    pub(super) moments: Option<Moments>,
}

/// Σ a·(x − centre)(x − centre)ᵀ and the like.
pub(super) struct Moments {
    /// a of every sample.
    weights: Vec<f64>,
    pub(super) first: Vec<f64>,
    /// Lower triangle.
    pub(super) second: Vec<f64>,
    updates: usize,
}

/// Updates before the moments are taken anew, so that rounding does not pile up.
const UPDATES: usize = 40;

impl<'a, 'o> State<'a, 'o> {
    pub(super) fn n(&self) -> usize {
        self.z.len()
    }

    /// `Err` when the run must end now.
    pub(super) fn check(&self) -> Result<(), Status> {
        if self.iterations >= self.limit {
            return Err(Status::IterationLimit);
        }
        self.control.check().map_err(Status::from)
    }

    /// Tells the observer; `Err` if it says stop.
    pub(super) fn report(&mut self, phase: &'static str, measure: &Measure, active: usize) -> Result<(), Status> {
        let step = Step {
            iteration: self.iterations,
            seconds: self.control.seconds(),
            phase,
            primal: Some(measure.primal),
            dual: Some(measure.primal - measure.gap()),
            active: Some(active),
            ..Step::default()
        };
        if self.observer.step(&step).is_break() { Err(Status::Interrupted) } else { Ok(()) }
    }

    /// z = Xw + b of all samples.
    pub(super) fn rescore(&mut self) -> Result<(), Interrupt> {
        self.x.dots(Pick::All, &self.w, &mut self.z, self.control)?;
        let b = self.b;
        self.z.iter_mut().for_each(|z| *z += b);
        Ok(())
    }

    /// v and Σβ anew.
    pub(super) fn recombine(&mut self) -> Result<(), Interrupt> {
        self.v.fill(0.0);
        self.x.combine(Pick::All, &self.beta, &mut self.v, self.control)?;
        let beta = &self.beta;
        self.sum = sums(self.control, self.n(), |i| [beta[i]])[0];
        Ok(())
    }

    /// β = β(z) of the chosen samples; v follows.
    pub(super) fn refresh<P: Piece>(&mut self, piece: &P, rows: Pick<'_>) -> Result<(), Interrupt> {
        let count = rows.len(self.n());
        let (z, beta) = (&self.z, &self.beta);
        let parts = self.control.threads.map(count.div_ceil(CHUNK), |task| {
            let mut changed: Vec<(u32, f64)> = Vec::new();
            for k in task * CHUNK..((task + 1) * CHUNK).min(count) {
                let i = rows.get(k);
                let new = piece.beta(i, z[i]);
                if new != beta[i] {
                    changed.push((i as u32, new));
                }
            }
            changed
        });
        let total: usize = parts.iter().map(Vec::len).sum();
        if 3 * total > self.n() {
            parts.into_iter().flatten().for_each(|(i, new)| self.beta[i as usize] = new);
            return self.recombine();
        }
        let (mut list, mut deltas) = (Vec::with_capacity(total), Vec::with_capacity(total));
        for (i, new) in parts.into_iter().flatten() {
            let delta = new - self.beta[i as usize];
            list.push(i);
            deltas.push(delta);
            self.sum += delta;
            self.beta[i as usize] = new;
        }
        self.x.combine(Pick::List(&list), &deltas, &mut self.v, self.control)
    }

    /// The moments of the rows `list` with these weights.
    pub(super) fn moments(&mut self, list: &[u32], weights: &[f64]) -> Result<&Moments, Interrupt> {
        let (n, d) = (self.n(), self.x.dims());
        let mut wanted = vec![0.0; n];
        list.iter().zip(weights).for_each(|(&i, a)| wanted[i as usize] = *a);
        let mut moments = self.moments.take();
        if let Some(m) = &mut moments
            && m.updates < UPDATES
        {
            let mut sides = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
            for i in 0..n {
                let change = wanted[i] - m.weights[i];
                if change != 0.0 {
                    let (rows, weights) = &mut sides[usize::from(change < 0.0)];
                    rows.push(i as u32);
                    weights.push(change.abs());
                }
            }
            let changed = sides[0].0.len() + sides[1].0.len();
            if 2 * changed <= list.len() {
                for (sign, (rows, weights)) in [1.0, -1.0].into_iter().zip(&sides) {
                    if rows.is_empty() {
                        continue;
                    }
                    let (mut first, mut second) = (vec![0.0; d], vec![0.0; d * d]);
                    self.x.moments(Pick::List(rows), weights, &self.centre, &mut first, &mut second, self.control)?;
                    m.first.iter_mut().zip(&first).for_each(|(m, f)| *m += sign * f);
                    m.second.iter_mut().zip(&second).for_each(|(m, s)| *m += sign * s);
                }
                m.weights = wanted;
                m.updates += 1;
                return Ok(self.moments.insert(moments.expect("just looked at")));
            }
        }
        let (mut first, mut second) = (vec![0.0; d], vec![0.0; d * d]);
        self.x.moments(Pick::List(list), weights, &self.centre, &mut first, &mut second, self.control)?;
        Ok(self.moments.insert(Moments { weights: wanted, first, second, updates: 0 }))
    }

    /// ½‖w − v‖² and what a penalised bias adds.
    pub(super) fn mismatch(&self) -> f64 {
        let mut total: f64 = self.w.iter().zip(&self.v).map(|(w, v)| (w - v) * (w - v)).sum();
        if let Some(rho) = self.rho
            && rho > 0.0
        {
            total += (rho * self.b - self.sum).powi(2) / rho;
        }
        0.5 * total
    }

    /// P and the parts of the gap; β must be up to date.
    pub(super) fn measure<P: Piece>(&self, piece: &P) -> Measure {
        let (z, beta) = (&self.z, &self.beta);
        let [loss, excess] = sums(self.control, self.n(), |i| [piece.value(i, z[i]), piece.excess(i, z[i], beta[i])]);
        let bias = self.rho.map_or(0.0, |rho| 0.5 * rho * self.b * self.b);
        Measure { primal: 0.5 * dot(&self.w, &self.w) + bias + loss, excess, mismatch: self.mismatch() }
    }

    /// Moves a free bias to where Σβ(z) = 0, the minimum of the smooth objective over b alone.
    pub(super) fn balance<P: Piece>(&mut self, piece: &P) -> Result<(), Interrupt> {
        if self.rho != Some(0.0) {
            return Ok(());
        }
        let (n, z) = (self.n(), &self.z);
        let at = |shift: f64| {
            sums(self.control, n, |i| {
                let beta = piece.beta(i, z[i] + shift);
                [beta, beta.abs(), piece.curvature(i, z[i] + shift)]
            })
        };
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let (mut shift, mut step) = (0.0, 1e-3);
        for _ in 0..80 {
            self.control.check()?;
            let [sum, size, curvature] = at(shift);
            if sum.abs() <= 1e-13 * size {
                break;
            }
            // Σβ falls as the bias rises.
            if sum > 0.0 {
                low = shift
            } else {
                high = shift
            }
            let newton = shift + sum / curvature;
            shift = if curvature > 0.0 && newton > low && newton < high {
                newton
            } else if low.is_finite() && high.is_finite() {
                0.5 * (low + high)
            } else {
                step *= 4.0;
                if step > 1e15 {
                    shift = 0.0;
                    break;
                }
                shift + step * sum.signum()
            };
            if low.is_finite() && high - low <= 1e-16 * (low.abs() + high.abs()) {
                break;
            }
        }
        if shift != 0.0 {
            self.b += shift;
            self.z.iter_mut().for_each(|z| *z += shift);
            self.refresh(piece, Pick::All)?;
        }
        Ok(())
    }
}
