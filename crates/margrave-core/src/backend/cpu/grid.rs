//! Points on a grid: at most 256 evenly spaced values, the same for all features.

use crate::data::{Points, Storage};
use crate::kernel::{Kernel, Statistic};

/// Values of a grid.
const MOST: usize = 256;
/// Largest number of features for which sums of bytes fit into 31 bits.
pub(crate) const WIDEST: usize = (i32::MAX as usize) / (255 * 255);

/// Values low + step·k for k = 0 … 255.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    pub(crate) low: f64,
    pub(crate) step: f64,
    /// The largest k.
    pub(crate) last: u8,
    /// Largest difference of a value of the points from the grid, with the rounding of measuring it.
    pub(crate) error: f64,
}

impl Grid {
    /// The grid of all these points. Data that are on none are recognised after a few hundred values.
    pub(crate) fn find(kernel: &Kernel, sides: &[&Points]) -> Option<Self> {
        let d = sides.first()?.dims();
        if kernel.statistic() != Statistic::SquaredDistance || !(8..=WIDEST).contains(&d) {
            return None;
        }
        let mut values = Distinct::default();
        for points in sides {
            let on = match points.storage() {
                Storage::DenseF32(m) => m.values().iter().all(|x| values.insert(f64::from(*x))),
                Storage::DenseF64(m) => m.values().iter().all(|x| values.insert(*x)),
                Storage::SparseF32(m) => values.insert(0.0) && m.values().iter().all(|x| values.insert(f64::from(*x))),
                Storage::SparseF64(m) => values.insert(0.0) && m.values().iter().all(|x| values.insert(*x)),
            };
            if !on {
                return None;
            }
        }
        Self::through(&values.sorted())
    }

    /// The coarsest grid through these values, ascending.
    pub(crate) fn through(values: &[f64]) -> Option<Self> {
        let (low, high) = (*values.first()?, *values.last()?);
        let range = high - low;
        if !range.is_finite() || !(range > 0.0) {
            return None;
        }
        // Differences below this are rounding: a step is at least range / 255.
        let rounding = range / 1024.0;
        let mut step = range;
        for pair in values.windows(2) {
            let mut rest = pair[1] - pair[0];
            while rest > rounding {
                // The remainder nearest to zero: a multiple with a rounding error leaves nearly nothing, not nearly a step.
                (step, rest) = (rest, (step - rest * (step / rest).round()).abs());
            }
        }
        let last = (range / step).round();
        if !(last < MOST as f64) {
            return None;
        }
        let grid = Self { low, step: range / last, last: last as u8, error: 0.0 };
        let off = |x: &f64| (x - (low + grid.step * f64::from(grid.number(*x)))).abs();
        let error = values.iter().map(off).fold(0.0, f64::max);
        let largest = low.abs().max(high.abs());
        Some(Self { error: error + 4.0 * f64::EPSILON * (largest + range), ..grid })
    }

    /// k of a value.
    #[inline(always)]
    pub(crate) fn number(&self, x: f64) -> u8 {
        // Never negative, and below 256, for values of the grid.
        ((x - self.low) / self.step + 0.5) as u8
    }

    /// Bound on the error of an entry that comes from values not being exactly on the grid: |dK/dr| is at most 0.9·√γ,
    /// and a distance r has an error of at most 2·√d times that of a value.
    pub(crate) fn entry_error(&self, kernel: &Kernel, d: usize) -> Option<f64> {
        match *kernel {
            Kernel::Rbf { gamma } | Kernel::Matern32 { gamma } | Kernel::Matern52 { gamma } => {
                Some(2.0 * (gamma * d as f64).sqrt() * self.error)
            }
            _ => None,
        }
    }

    /// The kernel as a function of Σ(k − k′)².
    pub(crate) fn scaled(&self, kernel: Kernel) -> Kernel {
        let by = self.step * self.step;
        match kernel {
            Kernel::Rbf { gamma } => Kernel::Rbf { gamma: gamma * by },
            Kernel::Matern32 { gamma } => Kernel::Matern32 { gamma: gamma * by },
            Kernel::Matern52 { gamma } => Kernel::Matern52 { gamma: gamma * by },
            other => other,
        }
    }
}

/// Up to [`MOST`] distinct values.
struct Distinct {
    /// A hash table of bits + 1; 0 is an empty place.
    table: Vec<u64>,
    count: usize,
    /// The value before: most data repeat one.
    last: u64,
}

impl Default for Distinct {
    fn default() -> Self {
        Self { table: vec![0; Self::PLACES], count: 0, last: 0 }
    }
}

impl Distinct {
    const PLACES: usize = 1024;

    /// `false` if there are now more than [`MOST`], or the value is not finite.
    #[inline(always)]
    fn insert(&mut self, x: f64) -> bool {
        // −0 + 0 is 0.
        let bits = (x + 0.0).to_bits().wrapping_add(1);
        if bits == self.last {
            return true;
        }
        self.last = bits;
        let mut at = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        loop {
            if self.table[at] == bits {
                return true;
            }
            if self.table[at] == 0 {
                self.table[at] = bits;
                self.count += 1;
                return self.count <= MOST && x.is_finite();
            }
            at = (at + 1) % Self::PLACES;
        }
    }

    fn sorted(self) -> Vec<f64> {
        let bits = self.table.into_iter().filter(|bits| *bits != 0);
        let mut values: Vec<f64> = bits.map(|bits| f64::from_bits(bits.wrapping_sub(1))).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(values: &[f64]) -> Option<Grid> {
        let points = Points::dense_f64(values.len().div_ceil(8), 8, {
            let mut all = values.to_vec();
            all.resize(values.len().div_ceil(8) * 8, values[0]);
            all
        });
        Grid::find(&Kernel::rbf(1.0), &[&points.unwrap()])
    }

    #[test]
    fn grids_are_found_with_any_offset_and_step() {
        for (low, step) in [(0.0, 1.0), (0.0, 1.0 / 255.0), (-3.7, 0.1), (1e6, 1e-3), (-1.0, 2.0 / 15.0)] {
            for numbers in [vec![0u8, 1], vec![0, 6, 10, 15, 255], (0..=255).collect(), vec![3, 9, 21]] {
                let values: Vec<f64> = numbers.iter().map(|k| low + step * f64::from(*k)).collect();
                let grid = grid(&values).unwrap();
                let largest = values.iter().fold(0.0f64, |w, x| w.max(x.abs()));
                assert!(grid.error <= 20.0 * f64::EPSILON * (largest + step * 255.0), "{low} {step} {}", grid.error);
                for x in &values {
                    assert!((grid.low + grid.step * f64::from(grid.number(*x)) - x).abs() <= grid.error);
                }
            }
        }
    }

    #[test]
    fn other_values_are_on_no_grid() {
        assert!(grid(&[0.0, 1.0, std::f64::consts::SQRT_2]).is_none_or(|grid| grid.error > 1e-3));
        assert!(grid(&(0..300).map(f64::from).collect::<Vec<_>>()).is_none());
        assert!(grid(&[0.0, 1.0, 300.0]).is_none());
        assert!(grid(&[5.0]).is_none());
        assert!(
            Grid::find(&Kernel::Laplacian { gamma: 1.0 }, &[&Points::dense_f64(1, 8, vec![1.0; 8]).unwrap()]).is_none()
        );
    }
}
