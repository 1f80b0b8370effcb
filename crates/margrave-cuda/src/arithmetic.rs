//! Chooses the arithmetic that keeps entries within the errors every backend guarantees: 2·10⁻⁶ in single precision,
//! 10⁻¹³ in double.
//!
//! Distances are sums over differences, so the error of a distance comes from the rounding of the points: in single
//! precision a point x is stored with an error of u·‖x − centre‖, u = 2⁻²⁴, and a distance D has one of at most twice the
//! largest. The error of K is that times the largest slope of the kernel, whatever the distance. Double precision uses the points as
//! they are.

use std::ops::Range;

use margrave_core::backend::cpu::size_of;
use margrave_core::data::{Points, Real, Storage};
use margrave_core::gram::{Accuracy, Chain};
use margrave_core::kernel::{Kernel, Statistic};

use crate::{packed, resident, wide};

/// Error budget of single precision for rounded points and sums; the rest of 2·10⁻⁶ covers exp and storing the result.
const SINGLE: f64 = 1.6e-6;
/// The same for the solver: a few rows far from all others must not keep it from the card.
const COARSE: f64 = 1e-5;
/// Unit roundoff of single precision.
const ROUND: f64 = 1.0 / (1u64 << 24) as f64;
/// Typical growth of rounding errors in a sum of the lengths that occur, in units of roundoff.
const GROWTH: f64 = 4.0;
/// Features that are added up before they are added to the total: `STEP` of gram.cu.
const STEP: usize = 16;

/// Additions in the longest chain of a product: a quarter of the columns of a split by one thread, four threads, the splits.
const CHAIN: Chain = Chain { fixed: 256.0 + 4.0, columns: 1024.0 };

/// How entries are computed.
#[derive(Debug, Clone)]
pub(crate) struct Arithmetic {
    /// Whether single precision is accurate enough for single-precision requests.
    pub(crate) single: bool,
    /// Subtracted from every point before it is rounded to single precision.
    pub(crate) centre: Option<Vec<f64>>,
    /// Bound on the error of an entry in double precision, in units of roundoff.
    pub(crate) double_error: f64,
    /// The same for products by tensor cores, where they are accurate enough.
    pub(crate) wide: Option<f64>,
    /// Whether single precision is accurate enough for the solver, whose results are judged in double precision.
    pub(crate) solvable: bool,
    /// Whether entries by tensor cores are accurate enough for the solver.
    pub(crate) packed: bool,
    /// The largest norm of a point, less the centre.
    pub(crate) norm: f64,
}

/// Rows of a part.
fn part_rows(points: &Points) -> usize {
    /// Values of a part.
    const PART: usize = 1 << 16;
    (PART / (points.stored() / points.len().max(1)).max(1)).max(1)
}

/// `work` on parts of the rows of fixed size, results in order; large data by several threads.
fn by_parts<R: Send>(points: &Points, work: impl Fn(Range<usize>) -> R + Sync) -> Vec<R> {
    /// The number of values for which another thread is worth its start.
    const LARGE: usize = 1 << 18;
    let n = points.len();
    let rows = part_rows(points);
    let part = |at: usize| work(at * rows..((at + 1) * rows).min(n));
    let parts = n.div_ceil(rows);
    let threads = match points.stored() / LARGE {
        0 => 1,
        most => std::thread::available_parallelism().map_or(1, usize::from).min(parts / 4).min(most).clamp(1, 16),
    };
    if threads == 1 {
        return (0..parts).map(part).collect();
    }
    let each = parts.div_ceil(threads);
    std::thread::scope(|scope| {
        let run = |thread: usize| {
            let part = &part;
            scope.spawn(move || (thread * each..((thread + 1) * each).min(parts)).map(part).collect::<Vec<R>>())
        };
        let handles: Vec<_> = (0..threads).map(run).collect();
        handles.into_iter().flat_map(|handle| handle.join().expect("no panic in a sum")).collect()
    })
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
        // Eight sums side by side: one alone would wait for every addition.
        let (mut square, mut absolute) = ([0.0; 8], [0.0; 8]);
        let mut put = |lane: usize, x: f64| {
            square[lane] += x * x;
            absolute[lane] += x.abs();
        };
        let whole = values.len() / 8 * 8;
        match centre {
            Some(centre) => {
                for (values, centre) in values.chunks_exact(8).zip(centre.chunks_exact(8)) {
                    (0..8).for_each(|lane| put(lane, values[lane].to_f64() - centre[lane]));
                }
                values[whole..].iter().zip(&centre[whole..]).for_each(|(x, c)| put(0, x.to_f64() - c));
            }
            None => {
                for values in values.chunks_exact(8) {
                    (0..8).for_each(|lane| put(lane, values[lane].to_f64()));
                }
                values[whole..].iter().for_each(|x| put(0, x.to_f64()));
            }
        }
        self.norm = self.norm.max(square.iter().sum::<f64>().sqrt());
        self.absolute = self.absolute.max(absolute.iter().sum::<f64>());
    }

    fn of(sides: &[&Points], centre: Option<&[f64]>) -> Self {
        let mut size = Self { norm: 0.0, absolute: 0.0 };
        for points in sides {
            if let Some([square, absolute]) = resident::largest(points, centre) {
                size.norm = size.norm.max(square.sqrt());
                size.absolute = size.absolute.max(absolute);
                continue;
            }
            let parts = by_parts(points, |rows| {
                let mut part = Self { norm: 0.0, absolute: 0.0 };
                for i in rows {
                    match points.storage() {
                        Storage::DenseF32(m) => part.add(m.row(i), centre),
                        Storage::DenseF64(m) => part.add(m.row(i), centre),
                        // Only dense points are centred.
                        Storage::SparseF32(m) => part.add(m.row(i).1, None),
                        Storage::SparseF64(m) => part.add(m.row(i).1, None),
                    }
                }
                part
            });
            for part in parts {
                size.norm = size.norm.max(part.norm);
                size.absolute = size.absolute.max(part.absolute);
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
    if points.is_empty() || points.is_sparse() {
        return None;
    }
    let d = points.dims();
    let there = resident::column_sums(points, part_rows(points));
    let there = there.map(|sums| sums.chunks_exact(d.max(1)).map(<[f64]>::to_vec).collect());
    let parts = there.unwrap_or_else(|| {
        by_parts(points, |rows| {
            let mut sums = vec![0.0; d];
            match points.storage() {
                Storage::DenseF32(m) => add(&mut sums, &m.values()[rows.start * d..rows.end * d]),
                Storage::DenseF64(m) => add(&mut sums, &m.values()[rows.start * d..rows.end * d]),
                Storage::SparseF32(_) | Storage::SparseF64(_) => {}
            }
            sums
        })
    });
    let mut mean = vec![0.0; d];
    parts.iter().for_each(|sums| mean.iter_mut().zip(sums).for_each(|(m, s)| *m += s));
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
        let single = in_range && error * ROUND <= SINGLE;
        Self {
            single,
            centre,
            double_error: slope * worst + constant,
            wide: wide::entry_error(kernel, cols, size.norm),
            solvable: in_range && error * ROUND <= COARSE,
            packed: in_range && packed::suffices(kernel, cols, size.norm),
            norm: size.norm,
        }
    }

    /// The accuracy of double-precision entries of a square Gram.
    pub(crate) fn accuracy(&self, kernel: &Kernel, points: &Points) -> Accuracy {
        let size = match kernel.unit_diagonal() {
            true => vec![1.0; points.len()],
            false => points.squared_norms().iter().map(|s| size_of(kernel, *s)).collect(),
        };
        let (relative, chain) = match self.wide {
            Some(error) => (error.max(self.double_error), wide::CHAIN),
            None => (self.double_error, CHAIN),
        };
        Accuracy { size, relative, definite: kernel.is_definite(), chain }
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
        // The solver copes with errors that requests of others must not have.
        let coarse = |shift| {
            let points = points(shift);
            Arithmetic::choose(&Kernel::rbf(1.0), &points, &points, true).solvable
        };
        assert!(coarse(30.0) && !single(Kernel::rbf(1.0), 30.0) && !coarse(300.0));
        // A cloud far from the origin is moved to it.
        let far = Points::dense_f64(2, 1, vec![1e6, 1e6 + 1.0]).unwrap();
        assert!(Arithmetic::choose(&Kernel::rbf(1.0), &far, &far, true).single);
    }
}
