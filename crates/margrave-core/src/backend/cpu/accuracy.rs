//! Chooses the arithmetic that keeps entries within their guaranteed error: 2·10⁻⁶ in single precision, 10⁻¹³ in
//! double.
//!
//! Errors are absolute for kernels bounded by 1 and relative to √(K(x,x)·K(x′,x′)) for linear and polynomial ones. The
//! estimates are first-order bounds with the typical, not the worst-case, growth of rounding errors along a chain;
//! tests measure them.
//!
//! A distance computed as ‖x‖² + ‖x′‖² − 2 x·x′ has an error proportional to the norms, and the error of K is
//! proportional to K times that. If it may be too large, the entries where it is (large ones of points with large norms)
//! are recomputed from differences when they are few; otherwise all entries are computed from differences. A point far
//! from all others has large norms but only small entries: heavy tails cost nothing.

use super::exact;
use super::finish::Again;
use super::grid::Grid;
use super::simd::SimdScalar;
use super::tile::{Sum, chain};
use crate::data::{Points, Storage};
use crate::gram::Precision;
use crate::kernel::{Kernel, Statistic};

/// Rounding of a sum over features in units of roundoff times the sum of absolute terms: observed growth for chains of
/// [`chain`]'s length, with a margin.
const GROWTH: f64 = 4.0;
/// Error budget for rounding in sums; the rest of the guaranteed error covers exp and storing the result.
const SINGLE: f64 = 1.7e-6;
const DOUBLE: f64 = 5e-14;
/// Error budget for rounding in sums of rough entries.
const ROUGH: f64 = 2e-5;
/// Maximum fraction of entries to recompute. A recomputed entry costs as much as about ten others.
const FEW: f64 = 0.02;

/// How an entry is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryRecipe {
    pub(crate) sum: Sum,
    /// Entries that are recomputed from the original points.
    pub(crate) again: Option<Again>,
}

/// How entries are computed.
#[derive(Debug, Clone)]
pub(crate) struct Arithmetic {
    /// Whether columns are used as stored, sparse, rather than packed.
    pub(crate) sparse: bool,
    /// Subtracted from every point: it does not change translation-invariant kernels, but reduces norms.
    pub(crate) centre: Option<Vec<f64>>,
    /// For single precision; `None`: double precision, rounded when stored.
    pub(crate) single: Option<EntryRecipe>,
    /// For double precision.
    pub(crate) double: EntryRecipe,
    /// Bound on the error of an entry in double precision, in units of roundoff: the worst case, whereas the estimates
    /// above use the typical one. Relative to the product of [`size_of`] of the two points.
    pub(crate) double_error: f64,
    /// The grid of the points.
    pub(crate) grid: Option<Grid>,
    /// Whether points are close enough to it for entries in single and in double precision.
    on_grid: [bool; 2],
}

/// s with |k(x, x′)| ≤ s·s′, from ‖x‖².
pub fn size_of(kernel: &Kernel, square: f64) -> f64 {
    match *kernel {
        Kernel::Linear | Kernel::Precomputed => square.sqrt(),
        // |γ x·x′ + c| ≤ √(γ‖x‖² + |c|)·√(γ‖x′‖² + |c|), by Cauchy and Schwarz.
        Kernel::Poly { gamma, coef0, degree } => (gamma * square + coef0.abs()).powf(0.5 * f64::from(degree)),
        _ => 1.0,
    }
}

/// The largest error of an entry in double precision that any choice of arithmetic allows, in units of roundoff, for points of `d`
/// features with at most `stored` values each and ‖x‖₁ at most `absolute`: a bound for points that are looked at in parts, each
/// of which chooses for itself.
pub fn largest_double_error(kernel: &Kernel, d: usize, stored: usize, absolute: f64) -> f64 {
    // Points may be centred, which at most doubles their norms.
    let size = Size { square: 4.0 * absolute * absolute, absolute: 2.0 * absolute, stored };
    let squares = kernel.statistic() == Statistic::SquaredDistance;
    let bound = |sparse: bool| {
        let Rounding { growth, worst, sensitivity, .. } = Rounding::of(kernel, &size, sparse, d);
        // Sparse chains are as long as the points of a part, which may have fewer values than others.
        let worst = if sparse { (stored + d) as f64 + 9.0 } else { worst };
        let allowed = (DOUBLE / f64::ROUND * worst / growth).max(2.0 * worst);
        if kernel.unit_diagonal() && (sparse || squares) {
            allowed
        } else {
            (sensitivity / growth * worst).max(allowed)
        }
    };
    bound(false).max(bound(true)) + 24.0
}

impl Arithmetic {
    /// The cheapest arithmetic that is accurate enough for these points.
    pub(crate) fn choose(kernel: &Kernel, rows: &Points, cols: &Points, square: bool, grid: Option<Grid>) -> Self {
        Self::within(SINGLE, kernel, rows, cols, square, grid)
    }

    /// Like [`choose`](Self::choose), with single-precision entries accurate to about 10⁻⁵ only.
    pub(crate) fn rough(kernel: &Kernel, rows: &Points, cols: &Points, square: bool, grid: Option<Grid>) -> Self {
        Self::within(ROUGH, kernel, rows, cols, square, grid)
    }

    /// The grid, if entries of this precision are computed from sums of its numbers.
    pub(crate) fn grid_for(&self, precision: Precision) -> Option<Grid> {
        self.grid.filter(|_| self.on_grid[usize::from(precision == Precision::Double)])
    }

    /// Whether single-precision entries are computed at full speed.
    pub(crate) fn at_full_speed(&self) -> bool {
        self.cost_of_single() == 0
    }

    /// Single-precision entries in order of their cost: as they are, some of them recomputed, from differences, in
    /// double precision.
    pub(crate) fn cost_of_single(&self) -> usize {
        match self.single {
            _ if self.on_grid[0] => 0,
            Some(EntryRecipe { sum: Sum::SquaredDifference, .. }) => 2,
            Some(recipe) => usize::from(recipe.again.is_some()),
            None => 3,
        }
    }

    /// The same where further features are added as sums of bytes, with an error of entries of at most `off_grid`; `None` if
    /// that is too large.
    pub(crate) fn beside_bytes(self, off_grid: f64) -> Option<Self> {
        // The sum of both is rounded once more, relative to a distance whose exponential is the entry.
        let double_error = self.double_error + off_grid / f64::ROUND + 4.0;
        (off_grid <= 0.2 * DOUBLE).then_some(Self { double_error, ..self })
    }

    fn within(limit: f64, kernel: &Kernel, rows: &Points, cols: &Points, square: bool, grid: Option<Grid>) -> Self {
        let off_grid = grid.and_then(|grid| grid.entry_error(kernel, cols.dims())).unwrap_or(f64::INFINITY);
        let on_grid = [off_grid <= limit, off_grid <= DOUBLE];
        if on_grid == [true; 2] {
            // Sums are exact: what is left is the rounding of the exponent and of the kernel.
            let plain = EntryRecipe { sum: Sum::Product, again: None };
            let double_error = off_grid / f64::ROUND + 24.0;
            return Self {
                sparse: false,
                centre: None,
                single: Some(plain),
                double: plain,
                double_error,
                grid,
                on_grid,
            };
        }
        let statistic = kernel.statistic();
        let sparse = better_sparse(cols);
        let invariant = matches!(statistic, Statistic::SquaredDistance | Statistic::AbsoluteDistance);
        let centre = if invariant && !sparse { centre(cols) } else { None };
        let sides: &[&Points] = if square { &[cols] } else { &[rows, cols] };
        let size = Size::of(sides, centre.as_deref());
        let sum = match statistic {
            Statistic::Dot | Statistic::SquaredDistance | Statistic::Lookup => Sum::Product,
            Statistic::AbsoluteDistance => Sum::AbsoluteDifference,
            Statistic::ChiSquare => Sum::ChiSquare,
        };
        let rounding = Rounding::of(kernel, &size, sparse, cols.dims());
        let Rounding { growth, worst, sensitivity, from_differences, .. } = rounding;
        let largest = match *kernel {
            Kernel::Poly { gamma, coef0, degree } => (gamma * size.square + coef0.abs()).powi(degree as i32),
            _ => size.absolute,
        };
        let in_range = |max: f64| largest.max(size.square) < 1e-3 * max;
        let plain = EntryRecipe { sum, again: None };
        let few = |again: Again| share_again(kernel, rows, cols, square, centre.as_deref(), again) <= FEW;

        let single = if !in_range(<f32 as SimdScalar>::MAX) {
            None
        } else if sensitivity * f32::ROUND <= limit {
            Some(plain)
        } else {
            let again = rounding.again(limit, f32::ROUND);
            if kernel.unit_diagonal() && few(again) {
                Some(EntryRecipe { sum, again: Some(again) })
            } else {
                let accurate = from_differences.is_some_and(|error| error * f32::ROUND <= limit);
                accurate.then_some(EntryRecipe { sum: Sum::SquaredDifference, again: None })
            }
        };
        let double = if !kernel.unit_diagonal() || (in_range(f64::MAX) && sensitivity * f64::ROUND <= DOUBLE) {
            plain
        } else {
            let again = rounding.again(DOUBLE, f64::ROUND);
            let recipe = EntryRecipe { sum, again: Some(again) };
            match statistic {
                _ if sparse => recipe,
                Statistic::SquaredDistance if in_range(f64::MAX) && few(again) => recipe,
                Statistic::SquaredDistance => EntryRecipe { sum: Sum::SquaredDifference, again: None },
                _ => plain,
            }
        };
        let plain_error = sensitivity / growth * worst + 16.0;
        let double_error = match (double.sum, double.again) {
            (Sum::SquaredDifference, _) => 2.0 * worst + 16.0,
            // Entries below the threshold have the error that the estimate allows for; those above are recomputed.
            (_, Some(_)) => plain_error.min(DOUBLE / f64::ROUND * worst / growth).max(2.0 * worst) + 16.0,
            (_, None) => plain_error,
        };
        Self { sparse, centre, single, double, double_error, grid, on_grid }
    }
}

/// Errors of entries, per unit of roundoff.
struct Rounding {
    /// Typical rounding of a sum, relative to the sum of absolute terms.
    growth: f64,
    /// The same in the worst case.
    worst: f64,
    /// |relative error of K| per unit of ‖x‖ + ‖x′‖, for distances from what points have in common.
    by_norms: Option<f64>,
    /// |error of K|
    sensitivity: f64,
    /// |error of K| from squared differences.
    from_differences: Option<f64>,
}

impl Rounding {
    fn of(kernel: &Kernel, size: &Size, sparse: bool, d: usize) -> Self {
        // Sparse chains are not split.
        let longest = if sparse { size.stored } else { chain(d) };
        let growth = GROWTH * (longest as f64 / 160.0).sqrt().max(1.0);
        let by_norms = match *kernel {
            Kernel::Rbf { gamma } => Some(growth * gamma),
            Kernel::Matern32 { gamma } => Some(growth * 3.0 * gamma),
            Kernel::Matern52 { gamma } => Some(growth * 5.0 / 3.0 * gamma),
            Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma } if sparse => Some(growth * gamma),
            _ => None,
        };
        let sensitivity = match *kernel {
            Kernel::Linear | Kernel::Precomputed => growth,
            // The power multiplies the error of its base, and is itself rounded at every multiplication.
            Kernel::Poly { degree, .. } => 2.0 * growth * f64::from(degree),
            Kernel::Sigmoid { gamma, coef0 } => growth * (gamma * size.square + coef0.abs()),
            Kernel::Rbf { .. } | Kernel::Matern32 { .. } | Kernel::Matern52 { .. } => {
                by_norms.unwrap_or(0.0) * 2.0 * size.square
            }
            Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma } if sparse => growth * 2.0 * gamma * size.absolute,
            // Each difference is accurate to the rounding of its points; the sum's error is relative to the distance.
            Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma } => growth + 2.0 * gamma * size.absolute,
        };
        // The points' own rounding: |dK/dr| is at most 0.9·√γ, and a distance r has twice the error of a point.
        let from_differences = match *kernel {
            Kernel::Rbf { gamma } | Kernel::Matern32 { gamma } | Kernel::Matern52 { gamma } if !sparse => {
                Some(growth + 2.0 * (gamma * size.square).sqrt())
            }
            _ => None,
        };
        // A chain of n additions has an error of at most n units of roundoff; the parts of a sum are then added up.
        let chains = size.stored.max(d).div_ceil(longest.max(1));
        let worst = (longest + chains) as f64 + 8.0;
        Self { growth, worst, by_norms, sensitivity, from_differences }
    }

    /// The entries whose errors may be larger than `limit`, `round` being the unit of roundoff.
    fn again(&self, limit: f64, round: f64) -> Again {
        match self.by_norms {
            // e^slip − 1 ≤ 1.3·slip up to a slip of ½. Beyond, in the worst case, computed values mean nothing.
            Some(slip) => Again::ByNorms {
                product: limit / (1.3 * slip * round),
                far: 0.5 / (slip * (self.worst / self.growth) * round),
            },
            None => Again::Above(recompute_above(limit, self.sensitivity * round)),
        }
    }
}

/// Computed values above this may have an error larger than `limit`, if the logarithm of a value has an error of at
/// most `slip`: a true value is at most e^slip times the computed one. A large `slip` says that computed values mean
/// nothing, not even that they are small, and every entry is to be recomputed: the result is negative, as a computed
/// value may be zero.
fn recompute_above(limit: f64, slip: f64) -> f64 {
    /// e^slip and its reciprocal are far from the ends of double and single precision.
    const MEANINGFUL: f64 = 30.0;
    if slip <= MEANINGFUL { limit / slip.exp_m1() } else { -1.0 }
}

/// Whether the columns are so sparse that working on stored values only is faster. Packed values are processed eight
/// rows at a time and take a fraction of an instruction each; a stored value takes a whole instruction, and the end of
/// each row is a mispredicted branch.
fn better_sparse(cols: &Points) -> bool {
    cols.is_sparse() && cols.len() * cols.dims() > 2 * cols.stored() + 24 * cols.len()
}

/// The mean of dense points, if subtracting it at least halves the mean squared norm.
fn centre(points: &Points) -> Option<Vec<f64>> {
    if points.is_sparse() || points.is_empty() {
        return None;
    }
    fn add<T: crate::data::Real>(values: &[T], mean: &mut [f64]) {
        for row in values.chunks_exact(mean.len().max(1)) {
            mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += x.to_f64());
        }
    }
    let n = points.len() as f64;
    let mut mean = vec![0.0; points.dims()];
    match points.storage() {
        Storage::DenseF32(m) => add(m.values(), &mut mean),
        Storage::DenseF64(m) => add(m.values(), &mut mean),
        Storage::SparseF32(_) | Storage::SparseF64(_) => return None,
    }
    mean.iter_mut().for_each(|x| *x /= n);
    let square: f64 = mean.iter().map(|x| x * x).sum();
    let total: f64 = points.squared_norms().iter().map(|s| s / n).sum();
    (square.is_finite() && 2.0 * square >= total && square > 0.0).then_some(mean)
}

/// The largest norms of a set of points.
#[derive(Default)]
struct Size {
    /// Largest ‖x‖².
    square: f64,
    /// Largest ‖x‖₁.
    absolute: f64,
    /// Largest number of values stored for one point.
    stored: usize,
}

impl Size {
    fn of(sides: &[&Points], centre: Option<&[f64]>) -> Self {
        fn add<T: crate::data::Real>(size: &mut Size, values: &[T], centre: Option<&[f64]>) {
            // Eight sums: one alone would wait for every addition.
            const LANES: usize = 8;
            let (mut squares, mut absolutes) = ([0.0f64; LANES], [0.0f64; LANES]);
            let mut put = |l: usize, x: f64| {
                squares[l] += x * x;
                absolutes[l] += x.abs();
            };
            match centre {
                Some(centre) => {
                    for (x, c) in values.chunks(LANES).zip(centre.chunks(LANES)) {
                        x.iter().zip(c).enumerate().for_each(|(l, (x, c))| put(l, x.to_f64() - c));
                    }
                }
                None => {
                    for x in values.chunks(LANES) {
                        x.iter().enumerate().for_each(|(l, x)| put(l, x.to_f64()));
                    }
                }
            }
            size.square = size.square.max(squares.iter().sum());
            size.absolute = size.absolute.max(absolutes.iter().sum());
            size.stored = size.stored.max(values.len());
        }
        let mut size = Self::default();
        for points in sides {
            for i in 0..points.len() {
                match points.storage() {
                    Storage::DenseF32(m) => add(&mut size, m.row(i), centre),
                    Storage::DenseF64(m) => add(&mut size, m.row(i), centre),
                    // Only dense points are centred, so their mean is never needed here.
                    Storage::SparseF32(m) => add(&mut size, m.row(i).1, None),
                    Storage::SparseF64(m) => add(&mut size, m.row(i).1, None),
                }
            }
        }
        size
    }
}

/// The fraction of entries to be recomputed, from a fixed sample of pairs of different points.
fn share_again(
    kernel: &Kernel,
    rows: &Points,
    cols: &Points,
    square: bool,
    centre: Option<&[f64]>,
    again: Again,
) -> f64 {
    const SAMPLE: usize = 1000;
    /// One in so many entries is sampled at most: the sample must not cost as much as the entries.
    const SHARE: usize = 64;
    /// Pairs after which none that needs it means that fewer than `FEW` do, 99 times in 100.
    const NONE_SEEN: usize = 240;
    if rows.is_empty() || cols.is_empty() {
        return 0.0;
    }
    let squares = kernel.statistic() == Statistic::SquaredDistance;
    let norm = |points: &Points, i: usize| {
        let mut sum = 0.0;
        points.visit(i, |k, x| {
            let x = x - centre.map_or(0.0, |centre| centre[k]);
            sum += if squares { x * x } else { x.abs() };
        });
        sum
    };
    // A low-discrepancy sequence over all pairs; the constants generalise the golden ratio to two dimensions.
    let (mut u, mut v) = (0.5f64, 0.5f64);
    let (mut seen, mut needed) = (0usize, 0usize);
    for _ in 0..(rows.len() * cols.len() / SHARE).clamp(32, SAMPLE) {
        u = (u + 0.754_877_666_246_692_8).fract();
        v = (v + 0.569_840_290_998_053_3).fract();
        let i = ((u * rows.len() as f64) as usize).min(rows.len() - 1);
        let j = ((v * cols.len() as f64) as usize).min(cols.len() - 1);
        if square && i == j {
            continue;
        }
        let entry = kernel.of_statistic(exact::statistic(kernel.statistic(), rows, i, cols, j));
        seen += 1;
        needed += usize::from(again.is_needed(entry, norm(rows, i) + norm(cols, j)));
        if needed == 0 && seen == NONE_SEEN {
            break;
        }
    }
    needed as f64 / seen.max(1) as f64
}
