//! Which arithmetic keeps entries within their promised error: 2·10⁻⁶ in single precision, 10⁻¹³ in double.
//!
//! Errors are absolute for kernels bounded by 1 and relative to √(K(x,x)·K(x′,x′)) for linear and polynomial ones. The estimates are
//! first-order bounds with the typical, not the worst, growth of rounding along a chain; tests measure them.

use super::simd::Scalar;
use super::tile::Sum;
use crate::data::Points;
use crate::kernel::{Kernel, Statistic};

/// Rounding of a sum over features in units of the last place of the sum of absolute terms: observed growth for the chain
/// lengths of [`super::tile::chain`], with a margin.
const GROWTH: f64 = 4.0;
const SINGLE: f64 = 2e-6;
const DOUBLE: f64 = 5e-14;

/// How entries are computed.
#[derive(Debug)]
pub(crate) struct Arithmetic {
    /// Subtracted from every point: translation-invariant kernels do not see it, but norms shrink.
    pub(crate) centre: Option<Vec<f64>>,
    /// The sum for single precision; `None`: double precision, rounded when stored.
    pub(crate) single: Option<Sum>,
    /// The sum for double precision.
    pub(crate) double: Sum,
}

impl Arithmetic {
    /// The cheapest arithmetic that is good enough for these points.
    pub(crate) fn choose(kernel: &Kernel, rows: &Points, cols: &Points) -> Self {
        let statistic = kernel.statistic();
        let invariant = matches!(statistic, Statistic::SquaredDistance | Statistic::AbsoluteDistance);
        let centre = if invariant { centre(cols) } else { None };
        let size = Size::of(&[rows, cols], centre.as_deref());
        let sum = match statistic {
            Statistic::Dot | Statistic::SquaredDistance | Statistic::Lookup => Sum::Product,
            Statistic::AbsoluteDistance => Sum::AbsoluteDifference,
            Statistic::ChiSquare => Sum::ChiSquare,
        };
        // |error of K| per unit of roundoff.
        let sensitivity = match *kernel {
            Kernel::Linear | Kernel::Precomputed => GROWTH,
            Kernel::Poly { degree, .. } => GROWTH * f64::from(degree),
            Kernel::Sigmoid { gamma, coef0 } => GROWTH * (gamma * size.square + coef0.abs()),
            Kernel::Rbf { gamma } => GROWTH * 2.0 * gamma * size.square,
            Kernel::Matern32 { gamma } => GROWTH * 6.0 * gamma * size.square,
            Kernel::Matern52 { gamma } => GROWTH * 10.0 / 3.0 * gamma * size.square,
            Kernel::Laplacian { gamma } | Kernel::Chi2 { gamma } => GROWTH + 2.0 * gamma * size.absolute,
        };
        let largest = match *kernel {
            Kernel::Poly { gamma, coef0, degree } => (gamma * size.square + coef0.abs()).powi(degree as i32),
            _ => size.square.max(size.absolute),
        };
        let fits = |roundoff: f64, tolerance: f64, max: f64| {
            sensitivity * roundoff <= tolerance && largest.max(size.square) < 1e-3 * max
        };
        let single = fits(f32::ROUND, SINGLE, <f32 as Scalar>::MAX).then_some(sum);
        let double = match statistic {
            Statistic::SquaredDistance if !fits(f64::ROUND, DOUBLE, <f64 as Scalar>::MAX) => Sum::SquaredDifference,
            _ => sum,
        };
        Self { centre, single, double }
    }
}

/// The mean of dense points, where subtracting it at least halves the mean squared norm.
fn centre(points: &Points) -> Option<Vec<f64>> {
    if points.is_sparse() || points.is_empty() {
        return None;
    }
    let n = points.len() as f64;
    let mut mean = vec![0.0; points.dims()];
    (0..points.len()).for_each(|i| points.visit(i, |k, x| mean[k] += x / n));
    let square: f64 = mean.iter().map(|x| x * x).sum();
    let total: f64 = points.squared_norms().iter().map(|s| s / n).sum();
    (square.is_finite() && 2.0 * square >= total && square > 0.0).then_some(mean)
}

/// How far points reach.
struct Size {
    /// Largest ‖x‖².
    square: f64,
    /// Largest ‖x‖₁.
    absolute: f64,
}

impl Size {
    fn of(sides: &[&Points], centre: Option<&[f64]>) -> Self {
        let mut size = Self { square: 0.0, absolute: 0.0 };
        for points in sides {
            for i in 0..points.len() {
                let (mut square, mut absolute) = (0.0, 0.0);
                points.visit(i, |k, x| {
                    let x = centre.map_or(x, |c| x - c[k]);
                    square += x * x;
                    absolute += x.abs();
                });
                size.square = size.square.max(square);
                size.absolute = size.absolute.max(absolute);
            }
        }
        size
    }
}
