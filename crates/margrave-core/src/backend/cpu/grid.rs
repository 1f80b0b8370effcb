//! Points on a grid: at most 256 evenly spaced values, the same for all features.

use crate::data::{Points, Real, Storage};
use crate::kernel::{Kernel, Statistic};
use crate::linalg::vectorised::{Vectorised, vectorised};

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
    /// Share of the values that are not the least one, with k = 0.
    pub(crate) filled: f64,
}

/// Added to a small number, it leaves the nearest whole number in the low bits of the sum.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// Values looked at one by one before all others are compared with the grid through them.
const FIRST: usize = 1 << 16;
/// Largest difference from such a grid that is taken for rounding, relative to its range.
const ROUNDING: f64 = 1e-9;

impl Grid {
    /// The grid of all these points. Data that are on none are recognised after a few hundred values.
    pub(crate) fn find(kernel: &Kernel, sides: &[&Points]) -> Option<Self> {
        let d = sides.first()?.dims();
        if kernel.statistic() != Statistic::SquaredDistance || !(8..=WIDEST).contains(&d) {
            return None;
        }
        let total: usize = sides.iter().map(|points| points.len() * points.dims()).sum();
        let mut values = Distinct::default();
        if sides.iter().any(|points| !points.is_sparse()) && total > 4 * FIRST {
            // Most sets of pixels show their whole grid in a few rows.
            for points in sides {
                values.add(points, FIRST)?;
            }
            if let Some(found) = Self::through(&values.sorted()).and_then(|grid| grid.of_all(sides)) {
                return Some(found);
            }
        }
        let mut values = Distinct::default();
        for points in sides {
            values.add(points, usize::MAX)?;
        }
        let grid = Self::through(&values.sorted())?;
        // Stored values are the filled ones of sparse points where 0 is the least; of others all may be.
        let stored: usize = sides.iter().map(|points| points.stored()).sum();
        let filled = if grid.low == 0.0 { stored as f64 / total.max(1) as f64 } else { 1.0 };
        Some(Self { filled, ..grid })
    }

    /// This grid, found through some of the values, with the error of all; `None` if not all of them are on it.
    fn of_all(self, sides: &[&Points]) -> Option<Self> {
        let (mut error, mut filled, mut total) = (0.0f64, 0, 0);
        for points in sides {
            let found = self.compare(points)?;
            error = error.max(found.off);
            filled += found.filled;
            total += points.len() * points.dims();
        }
        let filled = filled as f64 / total.max(1) as f64;
        Some(Self { error: error + self.rounding(), filled, ..self })
    }

    /// Compares all values with the grid; `None` if one is outside its range, or off it by more than rounding.
    fn compare(&self, points: &Points) -> Option<Compared> {
        let found = match points.storage() {
            Storage::DenseF32(m) => self.compare_values(m.values()),
            Storage::DenseF64(m) => self.compare_values(m.values()),
            Storage::SparseF32(m) => self.compare_values(m.values()),
            Storage::SparseF64(m) => self.compare_values(m.values()),
        }?;
        let absent = points.len() * points.dims() - points.stored();
        let zero = self.compare_values(&[0.0f64]).filter(|_| absent > 0);
        match (absent, zero) {
            (0, _) => Some(found),
            (_, None) => None,
            (_, Some(zero)) => {
                Some(Compared { off: found.off.max(zero.off), filled: found.filled + absent * zero.filled })
            }
        }
    }

    fn compare_values<T: Real>(&self, values: &[T]) -> Option<Compared> {
        let rounding = ROUNDING * self.step * f64::from(self.last);
        let (mut filled, mut off) = (0, 0.0f64);
        // In short pieces, of which the sums fit into 32 bits.
        for values in values.chunks(1 << 16) {
            let piece = vectorised(Piece { grid: self, rounding, values });
            if !(piece.inside && piece.off <= rounding) {
                return None;
            }
            off = off.max(piece.off);
            filled += piece.filled as usize;
        }
        Some(Compared { off, filled })
    }

    /// Bound on the rounding of measuring how far a value is from the grid.
    fn rounding(&self) -> f64 {
        let high = self.low + self.step * f64::from(self.last);
        4.0 * f64::EPSILON * (self.low.abs().max(high.abs()) + (high - self.low))
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
        let grid = Self { low, step: range / last, last: last as u8, error: 0.0, filled: 1.0 };
        let off = |x: &f64| (x - (low + grid.step * f64::from(grid.number(*x)))).abs();
        let error = values.iter().map(off).fold(0.0, f64::max);
        let largest = low.abs().max(high.abs());
        Some(Self { error: error + 4.0 * f64::EPSILON * (largest + range), ..grid })
    }

    /// k of a value.
    #[inline(always)]
    pub(crate) fn number(&self, x: f64) -> u8 {
        // Never negative, and below 256, for values of the grid.
        ((x - self.low) * (1.0 / self.step) + ROUND).to_bits() as u8
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

/// Some values that are compared with a grid.
struct Piece<'a, T> {
    grid: &'a Grid,
    rounding: f64,
    values: &'a [T],
}

/// How they differ from it.
struct PieceCompared {
    off: f64,
    filled: u32,
    /// Whether all of them are within its range.
    inside: bool,
}

impl<T: Real> Vectorised for Piece<'_, T> {
    type Output = PieceCompared;

    #[inline(always)]
    fn run(self) -> PieceCompared {
        /// Sums side by side, so that they are vectors.
        const LANES: usize = 16;
        let Self { grid: Grid { low, step, last, .. }, rounding, values } = self;
        let (by, high) = (1.0 / step, low + step * f64::from(*last));
        let (mut off, mut filled, mut outside) = ([0.0f64; LANES], [0u32; LANES], [0u32; LANES]);
        let mut look = |l: usize, x: f64| {
            let number = ((x - low) * by + ROUND) - ROUND;
            let distance = (x - (low + step * number)).abs();
            off[l] = if distance > off[l] { distance } else { off[l] };
            // A value that is not a number is outside too.
            let inside = (x - low >= -rounding) & (x - high <= rounding);
            outside[l] += u32::from(!inside);
            filled[l] += u32::from(number != 0.0);
        };
        let (whole, rest) = values.as_chunks::<LANES>();
        for part in whole {
            for l in 0..LANES {
                look(l, part[l].to_f64());
            }
        }
        rest.iter().enumerate().for_each(|(l, x)| look(l, x.to_f64()));
        PieceCompared {
            off: off.iter().fold(0.0, |a, b| a.max(*b)),
            filled: filled.iter().sum(),
            inside: outside.iter().all(|count| *count == 0),
        }
    }
}

/// How values differ from a grid.
struct Compared {
    /// The largest difference.
    off: f64,
    /// Values that are not the least one of the grid.
    filled: usize,
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

    /// The first `most` stored values of the points, and 0 of sparse ones; `None` if there are too many distinct ones.
    fn add(&mut self, points: &Points, most: usize) -> Option<()> {
        fn first<T: Real>(values: &[T], most: usize, to: &mut Distinct) -> bool {
            values[..most.min(values.len())].iter().all(|x| to.insert(x.to_f64()))
        }
        let on = match points.storage() {
            Storage::DenseF32(m) => first(m.values(), most, self),
            Storage::DenseF64(m) => first(m.values(), most, self),
            Storage::SparseF32(m) => self.insert(0.0) && first(m.values(), most, self),
            Storage::SparseF64(m) => self.insert(0.0) && first(m.values(), most, self),
        };
        on.then_some(())
    }

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
    fn grids_of_many_values_are_those_of_the_distinct_ones() {
        let (n, d) = (3 * FIRST / 4, 8);
        let pixel = |at: usize| [0.0, 0.0, 0.0, (at * 7919 % 256) as f64][at % 4] / 255.0;
        let all: Vec<f64> = (0..n * d).map(pixel).collect();
        let find = |values: Vec<f64>| Grid::find(&Kernel::rbf(1.0), &[&Points::dense_f64(n, d, values).unwrap()]);
        let mut distinct = all.clone();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let (found, want) = (find(all.clone()).unwrap(), Grid::through(&distinct).unwrap());
        assert_eq!((found.low, found.step, found.last), (want.low, want.step, want.last));
        assert!((found.error / want.error - 1.0).abs() < 0.5, "{} {}", found.error, want.error);
        let filled = all.iter().filter(|x| **x != 0.0).count() as f64 / all.len() as f64;
        assert!((found.filled - filled).abs() < 1e-12);
        // Late values beyond the range, on none, and on a finer grid.
        let with = |x: f64| {
            let mut values = all.clone();
            values[n * d - 3] = x;
            find(values)
        };
        assert!(with(300.0 / 255.0).is_none());
        let grid = find(all.clone()).unwrap();
        for value in [f64::NAN, f64::INFINITY, -1.0 / 255.0] {
            let mut values = all[..FIRST].to_vec();
            assert!(grid.compare_values(&values).is_some());
            values[77] = value;
            assert!(grid.compare_values(&values).is_none(), "{value}");
        }
        assert!(with(0.5 / 255.0).is_none_or(|grid| grid.error > 1e-4));
        let coarse: Vec<f64> = (0..n * d).map(|at| if at + 5 < n * d { (at % 2) as f64 } else { 0.25 }).collect();
        assert_eq!(find(coarse).map(|grid| (grid.last, grid.step)), Some((4, 0.25)));
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
