//! Losses of many samples at once: the only calls of a loss that the certificate makes.

use std::cell::Cell;
use std::ops::Range;

use super::{CHUNK, Point};
use crate::control::Interrupt;
use crate::problem::{Losses, Samples};

/// Which function of the losses.
#[derive(Clone, Copy)]
pub(super) enum LossView {
    Value,
    Slope,
}

/// Arrays that a thread uses again: a pass over the samples takes as long as clearing fresh memory for it. They are taken out
/// while in use, because a loss of a user's own may come back here.
#[derive(Default)]
struct Scratch {
    of: Vec<u32>,
    y: Vec<f64>,
    z: Vec<f64>,
    out: Vec<f64>,
    other: Vec<f64>,
}

impl Scratch {
    fn with<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
        thread_local! {
            static KEPT: Cell<Scratch> = const {
                Cell::new(Scratch { of: Vec::new(), y: Vec::new(), z: Vec::new(), out: Vec::new(), other: Vec::new() })
            };
        }
        let mut scratch = KEPT.take();
        let result = work(&mut scratch);
        KEPT.set(scratch);
        result
    }
}

/// The numbers of variables `of` at the scores `z`, without their costs.
pub(super) fn evaluate(p: &Samples<'_>, view: LossView, of: &[u32], z: &[f64]) -> Vec<f64> {
    let (mut y, mut out) = (Vec::new(), Vec::new());
    evaluate_into(p, view, of, z, &mut y, &mut out);
    out
}

/// The same, in `out`; `y` is overwritten with the targets.
fn evaluate_into(p: &Samples<'_>, view: LossView, of: &[u32], z: &[f64], y: &mut Vec<f64>, out: &mut Vec<f64>) {
    out.clear();
    out.resize(z.len(), 0.0);
    match p.losses {
        Losses::One(loss) => {
            y.clear();
            y.extend(of.iter().map(|&i| p.targets[i as usize]));
            match view {
                LossView::Value => loss.values(y, z, out),
                LossView::Slope => loss.slopes(y, z, out),
            }
        }
        Losses::ByGroup(_) => each(p, of, |k, loss, y| {
            out[k] = match view {
                LossView::Value => loss.value(y, z[k]),
                LossView::Slope => loss.slope(y, z[k]),
            };
        }),
    }
}

fn targets(p: &Samples<'_>, of: &[u32]) -> Vec<f64> {
    of.iter().map(|&i| p.targets[i as usize]).collect()
}

/// Calls `work` with the position, loss and target of every variable of `of`.
fn each(p: &Samples<'_>, of: &[u32], mut work: impl FnMut(usize, &dyn crate::loss::Loss, f64)) {
    for (k, &i) in of.iter().enumerate() {
        work(k, p.loss(i as usize), p.targets[i as usize]);
    }
}

/// The intervals on which the conjugates of variables `of` are finite.
fn domains(p: &Samples<'_>, of: &[u32]) -> (Vec<f64>, Vec<f64>) {
    let (mut low, mut high) = (vec![0.0; of.len()], vec![0.0; of.len()]);
    match p.losses {
        Losses::One(loss) => loss.domains(&targets(p, of), &mut low, &mut high),
        Losses::ByGroup(_) => each(p, of, |k, loss, y| (low[k], high[k]) = loss.domain(y)),
    }
    (low, high)
}

/// The variables of `range` that have a cost.
fn with_cost(p: &Samples<'_>, range: Range<usize>) -> Vec<u32> {
    range.filter(|&i| p.costs[i] != 0.0).map(|i| i as u32).collect()
}

/// The box of every variable; (0, 0) without a cost.
pub(super) fn boxes(point: &Point<'_, '_>) -> Vec<(f64, f64)> {
    let p = point.problem;
    let parts = point.control.threads.map(p.len().div_ceil(CHUNK), |task| {
        let range = task * CHUNK..((task + 1) * CHUNK).min(p.len());
        let of = with_cost(p, range.clone());
        let (low, high) = domains(p, &of);
        let mut boxes = vec![(0.0, 0.0); range.len()];
        for (k, &i) in of.iter().enumerate() {
            let c = p.costs[i as usize];
            boxes[i as usize - range.start] = (-c * high[k], -c * low[k]);
        }
        boxes
    });
    parts.concat()
}

impl Point<'_, '_> {
    /// Σ cᵢℓ(yᵢ, z(i)) over all variables.
    pub(super) fn sum_values(&self, z: impl Fn(usize) -> f64 + Sync) -> Result<f64, Interrupt> {
        self.sum_losses(LossView::Value, None, z)
    }

    /// Σ cᵢℓ′(yᵢ, z(i)) over the variables of a group; `None`: of all.
    pub(super) fn sum_slopes(
        &self,
        members: Option<&[u32]>,
        z: impl Fn(usize) -> f64 + Sync,
    ) -> Result<f64, Interrupt> {
        self.sum_losses(LossView::Slope, members, z)
    }

    /// Σ cᵢℓ′(yᵢ, z) over the variables of a group (`None`: of all) whose slope is the same at both of the scores `z(i)`,
    /// and the list of the others. `None` if more than `most` are others.
    pub(super) fn split_slopes(
        &self,
        members: Option<&[u32]>,
        z: impl Fn(usize) -> (f64, f64) + Sync,
        most: usize,
    ) -> Result<Option<(f64, Vec<u32>)>, Interrupt> {
        self.control.check()?;
        let p = self.problem;
        let n = members.map_or(p.len(), <[u32]>::len);
        let parts = self.control.threads.map(n.div_ceil(CHUNK), |task| {
            Scratch::with(|Scratch { of, y, z: at, out: one, other: two }| {
                self.with_cost_among(members, task, of);
                for (end, slopes) in [(0, &mut *one), (1, &mut *two)] {
                    at.clear();
                    at.extend(of.iter().map(|&i| if end == 0 { z(i as usize).0 } else { z(i as usize).1 }));
                    evaluate_into(p, LossView::Slope, of, at, y, slopes);
                }
                let (mut constant, mut varying) = (0.0, Vec::new());
                for (k, &i) in of.iter().enumerate() {
                    if one[k] == two[k] {
                        constant += p.costs[i as usize] * one[k];
                    } else {
                        varying.push(i);
                    }
                }
                (constant, varying)
            })
        });
        let others: usize = parts.iter().map(|(_, varying)| varying.len()).sum();
        if others > most {
            return Ok(None);
        }
        let constant = parts.iter().map(|(constant, _)| constant).sum();
        Ok(Some((constant, parts.into_iter().flat_map(|(_, varying)| varying).collect())))
    }

    /// The variables with a cost in one task's share of a group, in `of`; `None`: of all variables.
    fn with_cost_among(&self, members: Option<&[u32]>, task: usize, of: &mut Vec<u32>) {
        let p = self.problem;
        let n = members.map_or(p.len(), <[u32]>::len);
        let range = task * CHUNK..((task + 1) * CHUNK).min(n);
        of.clear();
        match members {
            None => of.extend(range.filter(|&i| p.costs[i] != 0.0).map(|i| i as u32)),
            Some(list) => of.extend(list[range].iter().copied().filter(|&i| p.costs[i as usize] != 0.0)),
        }
    }

    /// In an order that does not depend on the number of threads.
    fn sum_losses(
        &self,
        view: LossView,
        members: Option<&[u32]>,
        z: impl Fn(usize) -> f64 + Sync,
    ) -> Result<f64, Interrupt> {
        self.control.check()?;
        let p = self.problem;
        let n = members.map_or(p.len(), <[u32]>::len);
        let parts = self.control.threads.map(n.div_ceil(CHUNK), |task| {
            Scratch::with(|Scratch { of, y, z: at, out, .. }| {
                self.with_cost_among(members, task, of);
                at.clear();
                at.extend(of.iter().map(|&i| z(i as usize)));
                evaluate_into(p, view, of, at, y, out);
                of.iter().zip(&*out).map(|(&i, v)| p.costs[i as usize] * v).sum::<f64>()
            })
        });
        Ok(parts.into_iter().sum())
    }
}

/// cᵢ·[ℓ(y, z) + ℓ*(y, u) − u·z] of variables `of`.
fn excesses(p: &Samples<'_>, of: &[u32], z: &[f64], u: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; z.len()];
    match p.losses {
        Losses::One(loss) => loss.excesses(&targets(p, of), z, u, &mut out),
        Losses::ByGroup(_) => {
            each(p, of, |k, loss, y| out[k] = loss.excess(y, z[k], u[k]).unwrap_or(f64::INFINITY));
        }
    }
    out.iter_mut().zip(of).for_each(|(out, &i)| *out *= p.costs[i as usize]);
    out
}

/// −γ/c of variables `of`. γ lies in its box; clamping again only undoes the rounding of −c·u and back.
fn dual_slopes(p: &Samples<'_>, of: &[u32], gamma: &[f64]) -> Vec<f64> {
    let (low, high) = domains(p, of);
    let slope = |(k, &i): (usize, &u32)| (-gamma[i as usize] / p.costs[i as usize]).clamp(low[k], high[k]);
    of.iter().enumerate().map(slope).collect()
}

/// The Fenchel–Young term of every variable of `range`, and what an error of its score may add to it and to P. The term
/// is convex in z: between two points it is at most the larger of its values there.
pub(super) fn terms(point: &Point<'_, '_>, range: Range<usize>, gamma: &[f64], bias: &[f64]) -> Vec<(f64, f64)> {
    let p = point.problem;
    let mut terms = vec![(0.0, 0.0); range.len()];
    let of = with_cost(p, range.clone());
    let u = dual_slopes(p, &of, gamma);
    let z: Vec<f64> = of.iter().map(|&i| point.z(i as usize, bias)).collect();
    let here = excesses(p, &of, &z, &u);
    let errors: Vec<f64> = of.iter().zip(&z).map(|(&i, z)| point.error(i as usize, *z)).collect();
    let mut added = vec![0.0; of.len()];
    if errors.iter().any(|e| *e != 0.0) {
        let values = evaluate(p, LossView::Value, &of, &z);
        let mut around = vec![f64::NEG_INFINITY; of.len()];
        let mut of_loss = vec![0.0; of.len()];
        for way in [-1.0, 1.0] {
            let moved: Vec<f64> = z.iter().zip(&errors).map(|(z, e)| z + way * e).collect();
            let (excess, value) = (excesses(p, &of, &moved, &u), evaluate(p, LossView::Value, &of, &moved));
            for k in 0..of.len() {
                let c = p.costs[of[k] as usize];
                around[k] = f64::max(around[k], excess[k]);
                of_loss[k] = f64::max(of_loss[k], (c * value[k] - c * values[k]).abs());
            }
        }
        for k in (0..of.len()).filter(|&k| errors[k] != 0.0) {
            added[k] = (around[k] - here[k]).max(0.0) + of_loss[k];
        }
    }
    for (k, &i) in of.iter().enumerate() {
        terms[i as usize - range.start] = (here[k], added[k]);
    }
    terms
}

/// cᵢ·ℓ*(y, −γ/c) of every variable of `range`.
pub(super) fn conjugates(p: &Samples<'_>, range: Range<usize>, gamma: &[f64]) -> Vec<f64> {
    let of = with_cost(p, range.clone());
    let u = dual_slopes(p, &of, gamma);
    let mut found = vec![0.0; of.len()];
    match p.losses {
        Losses::One(loss) => loss.conjugates(&targets(p, &of), &u, &mut found),
        Losses::ByGroup(_) => {
            each(p, &of, |k, loss, y| found[k] = loss.conjugate(y, u[k]).unwrap_or(f64::INFINITY));
        }
    }
    let mut all = vec![0.0; range.len()];
    of.iter().zip(&found).for_each(|(&i, v)| all[i as usize - range.start] = p.costs[i as usize] * v);
    all
}
