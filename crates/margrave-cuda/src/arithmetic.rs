//! Chooses the arithmetic that keeps entries within the errors every backend guarantees: 2·10⁻⁶ in single precision,
//! 10⁻¹³ in double.
//!
//! Distances are sums over differences, so the error of a distance comes from the rounding of the points: in single
//! precision a point x is stored with an error of u·‖x − centre‖, u = 2⁻²⁴, and a distance D has one of at most twice the
//! largest. The error of K is that times the largest slope of the kernel, whatever the distance. Double precision uses the points as
//! they are.

use margrave_core::backend::cpu::size_of;
use margrave_core::data::{Points, Real, Storage};
use margrave_core::gram::Accuracy;
use margrave_core::kernel::{Kernel, Statistic};

/// Error budget of single precision for rounded points and sums; the rest of 2·10⁻⁶ covers exp and storing the result.
const SINGLE: f64 = 1.6e-6;
/// Unit roundoff of single precision.
const ROUND: f64 = 1.0 / (1u64 << 24) as f64;
/// Typical growth of rounding errors in a sum of the lengths that occur, in units of roundoff.
const GROWTH: f64 = 4.0;
/// Features that are added up before they are added to the total: `STEP` of gram.cu.
const STEP: usize = 16;

/// How entries are computed.
#[derive(Debug, Clone)]
pub(crate) struct Arithmetic {
    /// Whether single precision is accurate enough for single-precision requests.
    pub(crate) single: bool,
    /// Subtracted from every point before it is rounded to single precision.
    pub(crate) centre: Option<Vec<f64>>,
    /// Bound on the error of an entry in double precision, in units of roundoff.
    pub(crate) double_error: f64,
}

/// The largest norms of a set of points.
struct Size {
    /// Largest ‖x‖.
    norm: f64,
    /// Largest ‖x‖₁.
    absolute: f64,
}

impl Size {
    fn add<T: Real>(&mut self, values: &[T], centre: Option<&[f64]>) {
        let (mut square, mut absolute) = (0.0, 0.0);
        let mut put = |x: f64| {
            square += x * x;
            absolute += x.abs();
        };
        match centre {
            Some(centre) => values.iter().zip(centre).for_each(|(x, c)| put(x.to_f64() - c)),
            None => values.iter().for_each(|x| put(x.to_f64())),
        }
        self.norm = self.norm.max(square.sqrt());
        self.absolute = self.absolute.max(absolute);
    }

    fn of(sides: &[&Points], centre: Option<&[f64]>) -> Self {
        let mut size = Self { norm: 0.0, absolute: 0.0 };
        for points in sides {
            for i in 0..points.len() {
                match points.storage() {
                    Storage::DenseF32(m) => size.add(m.row(i), centre),
                    Storage::DenseF64(m) => size.add(m.row(i), centre),
                    // Only dense points are centred.
                    Storage::SparseF32(m) => size.add(m.row(i).1, None),
                    Storage::SparseF64(m) => size.add(m.row(i).1, None),
                }
            }
        }
        size
    }
}

/// The mean of dense points.
fn centre(points: &Points) -> Option<Vec<f64>> {
    fn add<T: Real>(mean: &mut [f64], values: &[T]) {
        values.chunks_exact(mean.len().max(1)).for_each(|row| {
            mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x.to_f64());
        });
    }
    let mut mean = vec![0.0; points.dims()];
    match points.storage() {
        Storage::DenseF32(m) if !points.is_empty() => add(&mut mean, m.values()),
        Storage::DenseF64(m) if !points.is_empty() => add(&mut mean, m.values()),
        _ => return None,
    }
    mean.iter_mut().for_each(|x| *x /= points.len() as f64);
    mean.iter().all(|x| x.is_finite()).then_some(mean)
}

impl Arithmetic {
    /// The cheapest arithmetic that is accurate enough for these points.
    pub(crate) fn choose(kernel: &Kernel, rows: &Points, cols: &Points, square: bool) -> Self {
        let sides: &[&Points] = if square { &[cols] } else { &[rows, cols] };
        let invariant = matches!(kernel.statistic(), Statistic::SquaredDistance | Statistic::AbsoluteDistance);
        let dense = sides.iter().all(|points| !points.is_sparse());
        let centre = if invariant && dense { centre(cols) } else { None };
        let size = Size::of(sides, centre.as_deref());
        let squared = size.norm * size.norm;
        let error = match *kernel {
            Kernel::Linear | Kernel::Precomputed => GROWTH,
            // The power multiplies the error of its base, and is itself rounded at every multiplication.
            Kernel::Poly { degree, .. } => 2.0 * GROWTH * f64::from(degree),
            Kernel::Sigmoid { gamma, coef0 } => GROWTH * (gamma * squared + coef0.abs()),
            // The largest slopes along the distance are 0.86 √γ, 0.91 √γ and 0.89 √γ.
            Kernel::Rbf { gamma } | Kernel::Matern32 { gamma } | Kernel::Matern52 { gamma } => {
                2.0 * 0.91 * gamma.sqrt() * size.norm + GROWTH
            }
            Kernel::Laplacian { gamma } => 2.0 * gamma * size.absolute + GROWTH,
            // The slope of (x − z)² / (x + z) lies between −3 and 1.
            Kernel::Chi2 { gamma } => 6.0 * gamma * size.absolute + GROWTH,
        };
        let largest = match *kernel {
            Kernel::Poly { gamma, coef0, degree } => (gamma * squared + coef0.abs()).powi(degree as i32),
            _ => size.absolute,
        };
        let in_range = largest.max(squared) < 1e-3 * f64::from(f32::MAX);
        // A chain of n additions has an error of at most n units of roundoff.
        let worst = (STEP + cols.dims().div_ceil(STEP)) as f64 + 8.0;
        let slope = match *kernel {
            Kernel::Poly { degree, .. } => 2.0 * f64::from(degree),
            Kernel::Sigmoid { gamma, coef0 } => gamma * squared + coef0.abs(),
            Kernel::Linear | Kernel::Precomputed => 1.0,
            // An error of s relative to s changes k(s) by s·k′(s) times that: at most e⁻¹, 0.27 and 0.3 for the kernels of distances.
            _ => 0.4,
        };
        let constant = if kernel.unit_diagonal() { 8.0 } else { 16.0 };
        Self { single: in_range && error * ROUND <= SINGLE, centre, double_error: slope * worst + constant }
    }

    /// The accuracy of double-precision entries of a square Gram.
    pub(crate) fn accuracy(&self, kernel: &Kernel, points: &Points) -> Accuracy {
        let size = points.squared_norms().iter().map(|s| size_of(kernel, *s)).collect();
        Accuracy { size, relative: self.double_error, definite: kernel.is_definite() }
    }
}

/// A kernel as the programs take it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelArgument {
    gamma: f64,
    coef0: f64,
    name: u32,
    degree: u32,
}

impl KernelArgument {
    /// The argument, and the name of the statistic in the names of programs.
    pub(crate) fn of(kernel: &Kernel) -> (Self, &'static str) {
        let gamma = kernel.gamma().unwrap_or(1.0);
        let (name, coef0, degree) = match *kernel {
            Kernel::Linear | Kernel::Precomputed => (0, 0.0, 1),
            Kernel::Poly { coef0, degree, .. } => (1, coef0, degree),
            Kernel::Sigmoid { coef0, .. } => (2, coef0, 1),
            Kernel::Rbf { .. } => (3, 0.0, 1),
            Kernel::Matern32 { .. } => (4, 0.0, 1),
            Kernel::Matern52 { .. } => (5, 0.0, 1),
            Kernel::Laplacian { .. } | Kernel::Chi2 { .. } => (6, 0.0, 1),
        };
        let statistic = match kernel.statistic() {
            Statistic::Dot | Statistic::Lookup => "dot",
            Statistic::SquaredDistance => "squared",
            Statistic::AbsoluteDistance => "absolute",
            Statistic::ChiSquare => "chi",
        };
        (Self { gamma, coef0, name, degree }, statistic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_precision_is_used_where_the_points_allow_it() {
        let points = |shift: f64| Points::dense_f64(3, 1, vec![shift, shift + 1.0, -shift]).unwrap();
        let single = |kernel, shift| {
            let points = points(shift);
            Arithmetic::choose(&kernel, &points, &points, true).single
        };
        assert!(single(Kernel::rbf(1.0), 1.0) && !single(Kernel::rbf(1.0), 100.0) && single(Kernel::rbf(1e-6), 100.0));
        assert!(single(Kernel::Laplacian { gamma: 1.0 }, 1.0) && !single(Kernel::Laplacian { gamma: 1.0 }, 100.0));
        assert!(single(Kernel::Linear, 1e3) && !single(Kernel::Linear, 1e30));
        let poly = |degree| Kernel::Poly { gamma: 1.0, coef0: 0.0, degree };
        assert!(single(poly(3), 1.0) && !single(poly(6), 1.0));
        // A cloud far from the origin is moved to it.
        let far = Points::dense_f64(2, 1, vec![1e6, 1e6 + 1.0]).unwrap();
        assert!(Arithmetic::choose(&Kernel::rbf(1.0), &far, &far, true).single);
    }
}
