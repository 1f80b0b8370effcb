//! Loops over the smoothed dual terms of consecutive samples, compiled for the widest vectors of the processor.
//!
//! With few features these loops, not the products with X, are most of a Newton step. They contain no branches, and sums
//! are formed in a fixed number of lanes, so that their bits do not depend on the instructions.

use crate::linalg::vectorised::Vectorised;

/// Samples per step of a loop.
const LANES: usize = 8;

/// The larger of two numbers; b if one of them is NaN. One instruction, unlike `f64::max`.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// The smaller of two numbers; b if one of them is NaN.
#[inline(always)]
fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// Smoothed terms of consecutive samples with a common eps; all slices have the same length.
#[derive(Clone, Copy)]
pub(super) struct DualSlice<'a> {
    pub(super) eps: f64,
    /// βₖ·e − p.
    pub(super) shift: &'a [f64],
    /// 1/(d + e).
    pub(super) gain: &'a [f64],
    pub(super) lo: &'a [f64],
    pub(super) hi: &'a [f64],
}

/// Consecutive groups of samples, and those left over.
#[inline(always)]
fn lanes(values: &[f64], n: usize) -> (&[[f64; LANES]], &[f64]) {
    values[..n].as_chunks()
}

/// β and the curvature at score z.
#[inline(always)]
pub(super) fn beta_and_curvature(eps: f64, shift: f64, gain: f64, lo: f64, hi: f64, z: f64) -> (f64, f64) {
    let s = shift - z;
    let free = (larger(s - eps, 0.0) + smaller(s + eps, 0.0)) * gain;
    let beta = smaller(larger(free, lo), hi);
    let inside = (s.abs() >= eps) & (free >= lo) & (free <= hi);
    (beta, if inside { gain } else { 0.0 })
}

/// β at the scores z.
pub(super) struct Betas<'a> {
    pub(super) slice: DualSlice<'a>,
    pub(super) z: &'a [f64],
    pub(super) out: &'a mut [f64],
}

impl Vectorised for Betas<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let DualSlice { eps, shift, gain, lo, hi } = self.slice;
        let (z, n) = (self.z, self.z.len());
        let (shift, gain, lo, hi, out) = (&shift[..n], &gain[..n], &lo[..n], &hi[..n], &mut self.out[..n]);
        for k in 0..n {
            out[k] = beta_and_curvature(eps, shift[k], gain[k], lo[k], hi[k], z[k]).0;
        }
    }
}

/// The curvatures at the scores z.
pub(super) struct Curvatures<'a> {
    pub(super) slice: DualSlice<'a>,
    pub(super) z: &'a [f64],
    pub(super) out: &'a mut [f64],
}

impl Vectorised for Curvatures<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let DualSlice { eps, shift, gain, lo, hi } = self.slice;
        let (z, n) = (self.z, self.z.len());
        let (shift, gain, lo, hi, out) = (&shift[..n], &gain[..n], &lo[..n], &hi[..n], &mut self.out[..n]);
        for k in 0..n {
            out[k] = beta_and_curvature(eps, shift[k], gain[k], lo[k], hi[k], z[k]).1;
        }
    }
}

/// Σ (β(z + t·dz) − β)·dz and Σ curvature(z + t·dz)·dz².
pub(super) struct Along<'a> {
    pub(super) slice: DualSlice<'a>,
    pub(super) z: &'a [f64],
    pub(super) dz: &'a [f64],
    pub(super) t: f64,
    pub(super) beta: &'a [f64],
}

impl Vectorised for Along<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run(self) -> [f64; 2] {
        let (n, t, DualSlice { eps, shift, gain, lo, hi }) = (self.z.len(), self.t, self.slice);
        let ((zs, z), (dzs, dz), (betas, beta)) = (lanes(self.z, n), lanes(self.dz, n), lanes(self.beta, n));
        let ((shifts, shift), (gains, gain)) = (lanes(shift, n), lanes(gain, n));
        let ((los, lo), (his, hi)) = (lanes(lo, n), lanes(hi, n));
        let (mut change, mut bend) = ([0.0; LANES], [0.0; LANES]);
        for ((((((z, dz), beta), shift), gain), lo), hi) in
            zs.iter().zip(dzs).zip(betas).zip(shifts).zip(gains).zip(los).zip(his)
        {
            for l in 0..LANES {
                let new_z = z[l] + t * dz[l];
                let (new, curvature) = beta_and_curvature(eps, shift[l], gain[l], lo[l], hi[l], new_z);
                change[l] += (new - beta[l]) * dz[l];
                bend[l] += curvature * dz[l] * dz[l];
            }
        }
        for l in 0..z.len() {
            let (new, curvature) = beta_and_curvature(eps, shift[l], gain[l], lo[l], hi[l], z[l] + t * dz[l]);
            change[l] += (new - beta[l]) * dz[l];
            bend[l] += curvature * dz[l] * dz[l];
        }
        [change.iter().sum(), bend.iter().sum()]
    }
}

/// Σ value, Σ excess, Σ |value| + |β|(|z| + |b|) and Σ |β| of samples with a common eps and d: see
/// [`SmoothLoss::totals`](super::smooth_loss::SmoothLoss::totals).
pub(super) struct Totals<'a> {
    pub(super) eps: f64,
    pub(super) d: f64,
    pub(super) p: &'a [f64],
    pub(super) lo: &'a [f64],
    pub(super) hi: &'a [f64],
    pub(super) z: &'a [f64],
    pub(super) beta: &'a [f64],
    /// |b|.
    pub(super) b: f64,
}

impl Totals<'_> {
    /// The four terms of a sample.
    #[inline(always)]
    fn terms<const CURVED: bool>(&self, p: f64, lo: f64, hi: f64, z: f64, beta: f64) -> [f64; 4] {
        let (eps, d) = (self.eps, self.d);
        let s = -(p + z);
        let soft = larger(s - eps, 0.0) + smaller(s + eps, 0.0);
        let best = if CURVED {
            smaller(larger(soft / d, lo), hi)
        } else {
            let end = if soft > 0.0 { hi } else { lo };
            if soft == 0.0 { 0.0 } else { end }
        };
        let value = best * s - eps * best.abs() - 0.5 * d * best * best;
        let at_beta = beta * s - eps * beta.abs() - 0.5 * d * beta * beta;
        [value, larger(value - at_beta, 0.0), value.abs() + beta.abs() * (z.abs() + self.b), beta.abs()]
    }

    #[inline(always)]
    fn with<const CURVED: bool>(&self) -> [f64; 4] {
        let n = self.z.len();
        let ((zs, z), (betas, beta), (ps, p)) = (lanes(self.z, n), lanes(self.beta, n), lanes(self.p, n));
        let ((los, lo), (his, hi)) = (lanes(self.lo, n), lanes(self.hi, n));
        let mut sums = [[0.0; LANES]; 4];
        for ((((z, beta), p), lo), hi) in zs.iter().zip(betas).zip(ps).zip(los).zip(his) {
            for l in 0..LANES {
                let [value, excess, size, beta] = self.terms::<CURVED>(p[l], lo[l], hi[l], z[l], beta[l]);
                sums[0][l] += value;
                sums[1][l] += excess;
                sums[2][l] += size;
                sums[3][l] += beta;
            }
        }
        for l in 0..z.len() {
            let terms = self.terms::<CURVED>(p[l], lo[l], hi[l], z[l], beta[l]);
            (0..4).for_each(|k| sums[k][l] += terms[k]);
        }
        sums.map(|lanes| lanes.iter().sum())
    }
}

impl Vectorised for Totals<'_> {
    type Output = [f64; 4];

    #[inline(always)]
    fn run(self) -> [f64; 4] {
        if self.d > 0.0 { self.with::<true>() } else { self.with::<false>() }
    }
}

/// Σ x.
pub(super) struct Sum<'a>(pub(super) &'a [f64]);

impl Vectorised for Sum<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut lanes = [0.0; LANES];
        let parts = self.0.chunks_exact(LANES);
        let rest = parts.remainder();
        for part in parts {
            for l in 0..LANES {
                lanes[l] += part[l];
            }
        }
        for (l, x) in rest.iter().enumerate() {
            lanes[l] += x;
        }
        lanes.iter().sum()
    }
}

/// The number of positions at which two slices differ.
pub(super) struct Differences<'a>(pub(super) &'a [f64], pub(super) &'a [f64]);

impl Vectorised for Differences<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let count: u64 = self.0.iter().zip(self.1).map(|(a, b)| u64::from(a != b)).sum();
        count as usize
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::cpu::rows::RowMatrix;
    use crate::data::Points;
    use crate::loss::LossSpec;
    use crate::problem::{Bias, LinearProblem};
    use crate::solver::linear::smooth_loss::{DualTerms, SmoothLoss, SmoothedDual};

    /// The loops must agree with the functions of one sample, for numbers of samples that leave any rest.
    #[test]
    fn loops_agree_with_the_functions_of_one_sample() {
        let losses =
            ["hinge", "squared-hinge", "epsilon:epsilon=0.1", "squared-epsilon:epsilon=0.1", "pinball", "huber"];
        for name in losses {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            for n in [1, 7, 8, 21] {
                let points = Points::dense_f64(n, 1, vec![1.0; n]).unwrap();
                let matrix = RowMatrix::new(&points);
                let targets: Vec<f64> = (0..n).map(|i| if i % 3 == 0 { 1.0 } else { -1.0 }).collect();
                let costs: Vec<f64> = (0..n).map(|i| [0.0, 1.0, 2.0][i % 3]).collect();
                let costs = if name == "huber" || name.starts_with("squared") { vec![0.5; n] } else { costs };
                let problem = LinearProblem::new(&matrix, &targets, &costs, &*loss, Bias::Free).unwrap();
                let terms = DualTerms::new(&problem).unwrap();
                let z: Vec<f64> = (0..n).map(|i| 0.3 * ((i * 5) % 13) as f64 - 1.7).collect();
                let dz: Vec<f64> = (0..n).map(|i| 0.2 * ((i * 3) % 7) as f64 - 0.5).collect();
                for width in [0.0, 0.5] {
                    let smoothed = SmoothedDual::new(&terms, width, &vec![0.1; n]);
                    let (mut betas, mut curvatures) = (vec![f64::NAN; n], vec![f64::NAN; n]);
                    smoothed.betas(0, &z, &mut betas);
                    smoothed.curvatures(0, &z, &mut curvatures);
                    let (mut along, mut totals) = ([0.0; 2], [0.0; 4]);
                    for i in 0..n {
                        let what = format!("{name} width {width} n {n} sample {i}");
                        assert_eq!(betas[i], smoothed.beta(i, z[i]), "{what}");
                        assert_eq!(curvatures[i], smoothed.curvature(i, z[i]), "{what}");
                        let new = z[i] + 0.7 * dz[i];
                        along[0] += (smoothed.beta(i, new) - betas[i]) * dz[i];
                        along[1] += smoothed.curvature(i, new) * dz[i] * dz[i];
                        let value = smoothed.value(i, z[i]);
                        totals[0] += value;
                        totals[1] += smoothed.excess(i, z[i], betas[i]);
                        totals[2] += value.abs() + betas[i].abs() * (z[i].abs() + 0.4);
                        totals[3] += betas[i].abs();
                    }
                    // Sums of at most 21 terms in another order.
                    let close = |a: f64, b: f64| (a - b).abs() <= 1e-13 * a.abs().max(b.abs()).max(1.0);
                    let found = smoothed.along(0, &z, &dz, 0.7, &betas);
                    assert!((0..2).all(|k| close(found[k], along[k])), "{name} {width} {n}: {found:?} {along:?}");
                    let found = smoothed.totals(0, &z, &betas, -0.4);
                    assert!((0..4).all(|k| close(found[k], totals[k])), "{name} {width} {n}: {found:?} {totals:?}");
                }
            }
        }
    }
}
