//! Projected conjugate gradients: the minimum over free variables that keeps the sum of every group.

use super::state::DualState;
use super::sums;
use crate::control::{Control, Interrupt};
use crate::linalg::sweep;

/// Marks a member without a group.
const NONE: u32 = u32::MAX;

/// By how much slopes differ from the mean of their group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Deviation {
    pub(super) largest: f64,
    pub(super) rms: f64,
}

impl Deviation {
    /// Whether one of the two measures is at most the limit's.
    fn within(&self, limit: &Deviation) -> bool {
        self.largest <= limit.largest || self.rms <= limit.rms
    }
}

/// A system to solve: minimise ½(x + fixed)ᵀA(x + fixed) + slopesᵀx over the free members, such that x + fixed sums to
/// zero in every group.
pub(super) struct System<'a> {
    pub(super) free: &'a [bool],
    pub(super) slopes: &'a [f64],
    /// Moves of members that are not free; zero for free ones.
    pub(super) fixed: &'a [f64],
    /// Where to start: values of members that are not free are ignored.
    pub(super) start: Option<Vec<f64>>,
    /// Slopes after the move may differ by so much.
    pub(super) accuracy: Deviation,
    pub(super) most_steps: usize,
}

/// An approximate minimum.
pub(super) struct Minimum {
    pub(super) x: Vec<f64>,
    /// How slopes after the move differ.
    pub(super) deviation: Deviation,
    /// Whether the accuracy was reached.
    pub(super) reached: bool,
}

impl System<'_> {
    /// Solves for these members with A·x = `multiply_all(x)`, the same for x that is zero where a member is not free as
    /// `multiply_free(x)`, and the preconditioner x ← M⁻¹x = `precondition(x)`, which leaves members that are not free at
    /// zero. Products at members that are not free are ignored.
    pub(super) fn solve(
        mut self,
        members: &[u32],
        multiply_all: impl Fn(&[f64]) -> Vec<f64>,
        multiply_free: impl Fn(&[f64]) -> Vec<f64>,
        precondition: impl Fn(&mut [f64]),
        state: &DualState,
        control: &Control,
    ) -> Result<Minimum, Interrupt> {
        let m = members.len();
        let free = self.free;
        let groups = GroupSums::new(members, free, state, &precondition);
        let mut x = self.start.take().unwrap_or_else(|| vec![0.0; m]);
        x.iter_mut().zip(free).filter(|(_, free)| !**free).for_each(|(x, _)| *x = 0.0);
        let all: Vec<f64> = x.iter().zip(self.fixed).map(|(x, f)| x + f).collect();
        groups.lower(&mut x, &groups.sums(&all));
        let mut residual = vec![0.0; m];
        if x.iter().chain(self.fixed).any(|v| *v != 0.0) {
            let all: Vec<f64> = x.iter().zip(self.fixed).map(|(x, f)| x + f).collect();
            residual = multiply_all(&all);
        }
        for k in 0..m {
            residual[k] = if free[k] { -self.slopes[k] - residual[k] } else { 0.0 };
        }
        let mut deviation = groups.deviation(&residual);
        let mut direction = vec![0.0; m];
        let mut before = f64::INFINITY;
        let mut steps = 0;
        while !deviation.within(&self.accuracy) && steps < self.most_steps {
            control.check()?;
            let mut z = residual.clone();
            precondition(&mut z);
            groups.project(&mut z);
            let rz = sweep::dot(&residual, &z);
            let keep = if steps == 0 { 0.0 } else { rz / before };
            before = rz;
            direction.iter_mut().zip(&z).for_each(|(d, z)| *d = z + keep * *d);
            let mut product = multiply_free(&direction);
            (0..m).filter(|&k| !free[k]).for_each(|k| product[k] = 0.0);
            let curve = sweep::dot(&direction, &product);
            if !(curve > 0.0 && rz > 0.0) {
                break;
            }
            let t = rz / curve;
            sweep::add_row(&mut x, &direction, t);
            sweep::add_row(&mut residual, &product, -t);
            steps += 1;
            deviation = groups.deviation(&residual);
        }
        let reached = deviation.within(&self.accuracy);
        Ok(Minimum { x, deviation, reached })
    }
}

/// The group sums that moves must keep, and the projection onto them along uᵍ = M⁻¹1_g, M being the factor's matrix.
struct GroupSums {
    /// The group of each member; NONE without fixed sums.
    of: Vec<u32>,
    /// Factor of a member in sums over free ones: 1 for them, 0 for the others.
    free: Vec<f64>,
    /// Number of free members of each group.
    counts: Vec<f64>,
    /// A one for every member.
    ones: Vec<f64>,
    unit: Vec<Vec<f64>>,
    /// Inverse of Σ_{k∈g} uʰₖ, row-major; a group without free members has zeros.
    inverse: Vec<f64>,
}

impl GroupSums {
    /// For the given members, of which only the free ones move; `precondition` applies M⁻¹.
    fn new(members: &[u32], free: &[bool], state: &DualState, precondition: impl Fn(&mut [f64])) -> Self {
        let group = |i: u32| if state.paired { u32::from(state.group[i as usize]) } else { NONE };
        let of: Vec<u32> = members.iter().map(|&i| group(i)).collect();
        let count = if state.paired { state.ranges.len() } else { 0 };
        let unit: Vec<Vec<f64>> = (0..count as u32)
            .map(|g| {
                let mut u: Vec<f64> =
                    of.iter().zip(free).map(|(of, free)| f64::from(u8::from(*free && *of == g))).collect();
                precondition(&mut u);
                u
            })
            .collect();
        let mut counts = vec![0.0; count];
        let moving = of.iter().zip(free).filter(|(of, free)| **free && **of != NONE);
        moving.for_each(|(&of, _)| counts[of as usize] += 1.0);
        let free = free.iter().map(|free| f64::from(u8::from(*free))).collect();
        let ones = vec![1.0; of.len()];
        let mut groups = Self { of, free, counts, ones, unit, inverse: Vec::new() };
        let rows: Vec<Vec<f64>> = groups.unit.iter().map(|u| groups.sums(u)).collect();
        groups.inverse = sums::inverse(&rows);
        groups
    }

    /// The sum over each group.
    fn sums(&self, v: &[f64]) -> Vec<f64> {
        if let [_] = self.unit[..] {
            return vec![sweep::dot(&self.ones, v)];
        }
        let mut sums = vec![0.0; self.unit.len()];
        for (&g, v) in self.of.iter().zip(v) {
            if g != NONE {
                sums[g as usize] += v;
            }
        }
        sums
    }

    /// v −= Σ_g λ_g·uᵍ, with λ such that every group's sum falls by `by`.
    fn lower(&self, v: &mut [f64], by: &[f64]) {
        let count = self.unit.len();
        for g in 0..count {
            let lambda: f64 = (0..count).map(|h| self.inverse[h * count + g] * by[h]).sum();
            sweep::add_row(v, &self.unit[g], -lambda);
        }
    }

    /// Projects v so that every group's sum is zero.
    fn project(&self, v: &mut [f64]) {
        let sums = self.sums(v);
        self.lower(v, &sums);
    }

    /// The distances of a residual, zero for members that are not free, from the mean of its group.
    fn deviation(&self, residual: &[f64]) -> Deviation {
        let sums = self.sums(residual);
        let means: Vec<f64> = sums.iter().zip(&self.counts).map(|(sum, count)| sum / count.max(1.0)).collect();
        let mut off: Vec<f64> = match means[..] {
            [] => residual.to_vec(),
            [mean] => residual.iter().map(|r| r - mean).collect(),
            _ => residual.iter().zip(&self.of).map(|(r, &g)| r - means[g as usize]).collect(),
        };
        off.iter_mut().zip(&self.free).for_each(|(off, free)| *off *= free);
        let largest = off.iter().fold(0.0f64, |w, off| w.max(off.abs()));
        let count = sweep::dot(&self.ones, &self.free);
        Deviation { largest, rms: (sweep::dot(&off, &off) / count.max(1.0)).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups and members that are not free, against the definition.
    #[test]
    fn deviations_are_distances_from_the_mean_of_the_free_members_of_a_group() {
        for count in 0..3usize {
            let n = 70;
            let of: Vec<u32> = (0..n).map(|k| if count == 0 { NONE } else { (k % count) as u32 }).collect();
            let is_free = |k: usize| k % 5 != 2;
            let residual: Vec<f64> = (0..n).map(|k| if is_free(k) { (k as f64).sin() } else { 0.0 }).collect();
            let groups = GroupSums {
                free: (0..n).map(|k| f64::from(u8::from(is_free(k)))).collect(),
                counts: (0..count).map(|g| (g..n).step_by(count).filter(|&k| is_free(k)).count() as f64).collect(),
                ones: vec![1.0; n],
                unit: vec![Vec::new(); count],
                inverse: Vec::new(),
                of,
            };
            let mean = |g: usize| {
                let own: Vec<f64> = (g..n).step_by(count.max(1)).filter(|&k| is_free(k)).map(|k| residual[k]).collect();
                own.iter().sum::<f64>() / own.len() as f64
            };
            let off = |k: usize| residual[k] - if count == 0 { 0.0 } else { mean(k % count) };
            let all: Vec<f64> = (0..n).filter(|&k| is_free(k)).map(off).collect();
            let got = groups.deviation(&residual);
            let largest = all.iter().fold(0.0f64, |w, v| w.max(v.abs()));
            let rms = (all.iter().map(|v| v * v).sum::<f64>() / all.len() as f64).sqrt();
            // Sums of 70 numbers below 1, in two orders: 70 roundings of 70·1.1e-16 at most.
            assert!((got.largest - largest).abs() < 6e-13 && (got.rms - rms).abs() < 6e-13, "{count}: {got:?}");
        }
    }
}
