//! Chooses the arithmetic that keeps entries within their guaranteed error: 2·10⁻⁶ in single precision, 10⁻¹³ in
//! double.
//!
//! Errors are absolute for kernels bounded by 1 and relative to √(K(x,x)·K(x′,x′)) for linear and polynomial ones. The
//! estimates are first-order bounds with the typical, not the worst-case, growth of rounding errors along a chain;
//! tests measure them.
//!
//! A distance computed as ‖x‖² + ‖x′‖² − 2 x·x′ has an error proportional to the norms, and the error of K is
//! proportional to K times that. If it may be too large, the large entries are recomputed from differences when they
//! are few; otherwise all entries are computed from differences.

use super::exact;
use super::simd::SimdScalar;
use super::tile::{Sum, chain};
use crate::data::{Points, Storage};
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
    /// Entries above this value are recomputed from the original points.
    pub(crate) again_above: Option<f64>,
}

/// How entries are computed.
#[derive(Debug)]
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

impl Arithmetic {
    /// The cheapest arithmetic that is accurate enough for these points.
    pub(crate) fn choose(kernel: &Kernel, rows: &Points, cols: &Points, square: bool) -> Self {
        Self::within(SINGLE, kernel, rows, cols, square)
    }

    /// Like [`choose`](Self::choose), with single-precision entries accurate to about 10⁻⁵ only.
    pub(crate) fn rough(kernel: &Kernel, rows: &Points, cols: &Points, square: bool) -> Self {
        Self::within(ROUGH, kernel, rows, cols, square)
    }

    /// Whether single-precision entries are computed at full speed.
    pub(crate) fn at_full_speed(&self) -> bool {
        self.single.is_some_and(|recipe| recipe.again_above.is_none())
    }

    fn within(limit: f64, kernel: &Kernel, rows: &Points, cols: &Points, square: bool) -> Self {
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
        // Sparse chains are not split.
        let longest = if sparse { size.stored } else { chain(cols.dims()) };
        let growth = GROWTH * (longest as f64 / 160.0).sqrt().max(1.0);
        // |error of K| per unit of roundoff.
        let sensitivity = match *kernel {
            Kernel::Linear | Kernel::Precomputed => growth,
            // The power multiplies the error of its base, and is itself rounded at every multiplication.
            Kernel::Poly { degree, .. } => 2.0 * growth * f64::from(degree),
            Kernel::Sigmoid { gamma, coef0 } => growth * (gamma * size.square + coef0.abs()),
            Kernel::Rbf { gamma } => growth * 2.0 * gamma * size.square,
            Kernel::Matern32 { gamma } => growth * 6.0 * gamma * size.square,
            Kernel::Matern52 { gamma } => growth * 10.0 / 3.0 * gamma * size.square,
            Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma } if sparse => growth * 2.0 * gamma * size.absolute,
            // Each difference is accurate to the rounding of its points; the sum's error is relative to the distance.
            Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma } => growth + 2.0 * gamma * size.absolute,
        };
        let largest = match *kernel {
            Kernel::Poly { gamma, coef0, degree } => (gamma * size.square + coef0.abs()).powi(degree as i32),
            _ => size.absolute,
        };
        let in_range = |max: f64| largest.max(size.square) < 1e-3 * max;
        let plain = EntryRecipe { sum, again_above: None };
        let mostly_small = |above: f64| share_above(kernel, rows, cols, square, above) <= FEW;

        let single = if !in_range(<f32 as SimdScalar>::MAX) {
            None
        } else if sensitivity * f32::ROUND <= limit {
            Some(plain)
        } else {
            let above = recompute_above(limit, sensitivity * f32::ROUND);
            let again = kernel.unit_diagonal() && mostly_small(above);
            again.then_some(EntryRecipe { sum, again_above: Some(above) })
        };
        let double = if !kernel.unit_diagonal() || (in_range(f64::MAX) && sensitivity * f64::ROUND <= DOUBLE) {
            plain
        } else {
            let above = recompute_above(DOUBLE, sensitivity * f64::ROUND);
            let again = EntryRecipe { sum, again_above: Some(above) };
            match statistic {
                _ if sparse => again,
                Statistic::SquaredDistance if in_range(f64::MAX) && mostly_small(above) => again,
                Statistic::SquaredDistance => EntryRecipe { sum: Sum::SquaredDifference, again_above: None },
                _ => plain,
            }
        };
        // A chain of n additions has an error of at most n units of roundoff; the parts of a sum are then added up.
        let chains = size.stored.max(cols.dims()).div_ceil(longest.max(1));
        let worst = (longest + chains) as f64 + 8.0;
        let plain_error = sensitivity / growth * worst + 16.0;
        let double_error = match (double.sum, double.again_above) {
            (Sum::SquaredDifference, _) => 2.0 * worst + 16.0,
            // Entries below the threshold have the error that the estimate allows for; those above are recomputed.
            (_, Some(_)) => plain_error.min(DOUBLE / f64::ROUND * worst / growth).max(2.0 * worst) + 16.0,
            (_, None) => plain_error,
        };
        Self { sparse, centre, single, double, double_error }
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

/// The fraction of entries above a limit, from a fixed sample of pairs of different points.
fn share_above(kernel: &Kernel, rows: &Points, cols: &Points, square: bool, above: f64) -> f64 {
    const SAMPLE: usize = 1000;
    /// One in so many entries is sampled at most: the sample must not cost as much as the entries.
    const SHARE: usize = 64;
    if rows.is_empty() || cols.is_empty() {
        return 0.0;
    }
    // A low-discrepancy sequence over all pairs; the constants generalise the golden ratio to two dimensions.
    let (mut u, mut v) = (0.5f64, 0.5f64);
    let (mut seen, mut large) = (0usize, 0usize);
    for _ in 0..(rows.len() * cols.len() / SHARE).clamp(32, SAMPLE) {
        u = (u + 0.754_877_666_246_692_8).fract();
        v = (v + 0.569_840_290_998_053_3).fract();
        let i = ((u * rows.len() as f64) as usize).min(rows.len() - 1);
        let j = ((v * cols.len() as f64) as usize).min(cols.len() - 1);
        if square && i == j {
            continue;
        }
        let s = exact::statistic(kernel.statistic(), rows, i, cols, j);
        seen += 1;
        large += usize::from(kernel.of_statistic(s) > above);
    }
    large as f64 / seen.max(1) as f64
}
