//! Tests whether a Gram matrix is positive semi-definite: the smallest eigenvalue of K, with its eigenvector as a
//! witness.
//!
//! Small K: the full symmetric eigendecomposition. Large K: the Lanczos process with full reorthogonalisation using
//! products K·v only, so that K is never stored. After m steps `K·Q = Q·T + t·q·eₘᵀ` with Q orthonormal and T
//! tridiagonal; an eigenpair (θ, s) of T gives the Ritz pair (θ, v = Qs), with
//!
//! * `vᵀKv = θ ≥ λ_min`: a θ clearly below zero *proves* that K is not positive semi-definite, at any step;
//! * `‖Kv − θv‖ = t·|sₘ|`: some eigenvalue of K lies within that distance of θ.
//!
//! Cost: one pass over K and O(m·n) per step; memory 8·m·n bytes.

use std::ops::ControlFlow;

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::{Mat, Par};
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::{Gram, Pick, Precision};
use crate::control::{Control, Interrupt, Status};
use crate::error::{Error, Result, check_len};
use crate::observe::{Begin, Observer, Step};

/// Options of the search for the smallest eigenvalue.
#[derive(Debug, Clone)]
pub struct SpectrumOptions {
    /// Up to this many rows, K is stored and fully decomposed.
    pub exact_up_to: usize,
    /// Maximum number of Lanczos steps.
    pub max_steps: usize,
    /// Memory limit for the Lanczos vectors, in bytes.
    pub memory: u64,
    /// Lanczos stops when the residual is below this fraction of the largest eigenvalue.
    pub accuracy: f64,
    /// An eigenvalue counts as negative below −`rounding`·largest; `None`: 4·n·2⁻⁵², the resolution of double
    /// precision.
    pub rounding: Option<f64>,
    /// Seed of the first Lanczos vector.
    pub seed: u64,
}

impl Default for SpectrumOptions {
    fn default() -> Self {
        Self { exact_up_to: 1500, max_steps: 500, memory: 2 << 30, accuracy: 1e-8, rounding: None, seed: 0 }
    }
}

/// Which method found an eigenvalue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpectrumMethod {
    /// Full eigendecomposition.
    Exact,
    /// Lanczos.
    Lanczos,
}

/// The lower end of the spectrum of K.
#[derive(Debug, Clone)]
pub struct Spectrum {
    /// How it was found.
    pub method: SpectrumMethod,
    /// The smallest eigenvalue; for Lanczos the smallest Ritz value, never below it.
    pub smallest: f64,
    /// The largest eigenvalue in magnitude; for Lanczos the largest Ritz value, never above it.
    pub largest: f64,
    /// The witness v, ‖v‖ = 1, for which vᵀKv = `smallest`.
    pub witness: Vec<f64>,
    /// ‖Kv − smallest·v‖: an eigenvalue of K lies this close to `smallest`.
    pub residual: f64,
    /// An eigenvalue above −`tolerance` cannot be distinguished from zero.
    pub tolerance: f64,
    /// Lanczos steps taken; 0 for the exact method.
    pub steps: u64,
    /// How the search ended: `Optimal` when the residual is small enough, or the budget that ended it.
    pub status: Status,
}

impl Spectrum {
    /// Whether the witness proves that K is not positive semi-definite: vᵀKv < −tolerance.
    pub fn is_indefinite(&self) -> bool {
        self.smallest < -self.tolerance
    }
}

/// The smallest eigenvalue of a symmetric Gram. `None` if `control` or `observer` ended the search before there was any
/// result. Fails if the Gram is not square or is empty. Symmetry is assumed: see [`asymmetry`].
///
/// The decomposition of a small K cannot be interrupted; it takes about a second at the default size limit.
pub fn smallest_eigenvalue(
    gram: &dyn Gram,
    options: &SpectrumOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<(Option<Spectrum>, Status)> {
    let (n, m) = gram.shape();
    check_len("columns of the Gram matrix", n, m)?;
    if n == 0 {
        return Err(Error::data("an empty Gram matrix has no eigenvalues"));
    }
    let name = if n <= options.exact_up_to { "exact" } else { "lanczos" };
    if observer.begin(&Begin { solver: name, n, tol: Some(options.accuracy), gap: None }).is_break() {
        return Ok((None, Status::Interrupted));
    }
    let mut last = Step::default();
    let found = if n <= options.exact_up_to {
        exact(gram, options, control, observer, &mut last)
    } else {
        lanczos(gram, options, control, observer, &mut last)
    };
    let (spectrum, status) = match found {
        Ok(spectrum) => {
            let status = spectrum.status;
            (Some(spectrum), status)
        }
        Err(status) => (None, status),
    };
    observer.finish(status, &last);
    Ok((spectrum, status))
}

/// The pair (i, j) and the size of the largest |Kᵢⱼ − Kⱼᵢ|, tile by tile; (0, 0, 0.0) for a symmetric Gram.
pub fn asymmetry(gram: &dyn Gram, control: &Control) -> Result<(usize, usize, f64), Interrupt> {
    const TILE: usize = 256;
    let n = gram.shape().0;
    let mut worst = (0, 0, 0.0);
    let (mut upper, mut lower) = (vec![0.0; TILE * TILE], vec![0.0; TILE * TILE]);
    for i in (0..n).step_by(TILE) {
        for j in (i..n).step_by(TILE) {
            let (to_i, to_j) = ((i + TILE).min(n), (j + TILE).min(n));
            let (height, width) = (to_i - i, to_j - j);
            let size = height * width;
            gram.block_f64(Pick::Range(i, to_i), Pick::Range(j, to_j), &mut upper[..size], control)?;
            gram.block_f64(Pick::Range(j, to_j), Pick::Range(i, to_i), &mut lower[..size], control)?;
            for r in 0..height {
                for c in 0..width {
                    let difference = (upper[r * width + c] - lower[c * height + r]).abs();
                    if difference > worst.2 {
                        worst = (i + r, j + c, difference);
                    }
                }
            }
        }
    }
    Ok(worst)
}

fn tolerance(options: &SpectrumOptions, n: usize, largest: f64) -> f64 {
    // Entries carry a few roundings each and the decomposition is backward stable: an error of norm ~ n·2⁻⁵²·‖K‖.
    options.rounding.unwrap_or(4.0 * n as f64 * f64::EPSILON) * largest
}

/// Ascending eigenvalues and the eigenvectors, as columns, of the symmetric matrix whose lower triangle is given.
fn eigen(a: &Mat<f64>) -> Option<(Vec<f64>, Mat<f64>)> {
    let n = a.nrows();
    let (mut values, mut vectors) = (Diag::<f64>::zeros(n), Mat::<f64>::zeros(n, n));
    let scratch = self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, Default::default());
    let mut memory = MemBuffer::new(scratch);
    self_adjoint_evd(
        a.as_ref(),
        values.as_mut(),
        Some(vectors.as_mut()),
        Par::Seq,
        MemStack::new(&mut memory),
        Default::default(),
    )
    .ok()?;
    Some((values.column_vector().iter().copied().collect(), vectors))
}

fn exact(
    gram: &dyn Gram,
    options: &SpectrumOptions,
    control: &Control,
    observer: &mut dyn Observer,
    last: &mut Step,
) -> std::result::Result<Spectrum, Status> {
    let n = gram.shape().0;
    let mut values = vec![0.0; n * n];
    gram.block_f64(Pick::All, Pick::All, &mut values, control)?;
    *last = Step {
        seconds: control.seconds(),
        phase: "decompose",
        kernel_entries: Some(gram.entries()),
        ..Step::default()
    };
    if observer.step(last).is_break() {
        return Err(Status::Interrupted);
    }
    control.check()?;
    let k = Mat::from_fn(n, n, |i, j| 0.5 * (values[i * n + j] + values[j * n + i]));
    let (eigenvalues, vectors) = eigen(&k).ok_or(Status::Stalled)?;
    let witness: Vec<f64> = vectors.col(0).iter().copied().collect();
    let smallest = eigenvalues[0];
    let residual = (0..n)
        .map(|i| {
            let row: f64 = k.col(i).iter().zip(&witness).map(|(a, b)| a * b).sum();
            (row - smallest * witness[i]).powi(2)
        })
        .sum::<f64>()
        .sqrt();
    let largest = smallest.abs().max(eigenvalues[n - 1].abs());
    Ok(Spectrum {
        method: SpectrumMethod::Exact,
        smallest,
        largest,
        witness,
        residual,
        tolerance: tolerance(options, n, largest),
        steps: 0,
        status: Status::Optimal,
    })
}

/// K·v, in pieces of about 10⁶ entries; the observer is notified after each.
fn product(
    gram: &dyn Gram,
    v: &[f64],
    out: &mut [f64],
    control: &Control,
    observer: &mut dyn Observer,
    last: &mut Step,
) -> std::result::Result<(), Status> {
    let n = gram.shape().0;
    let piece = (2_000_000 / n).clamp(64, n.max(64));
    for from in (0..n).step_by(piece) {
        let to = (from + piece).min(n);
        gram.apply(Precision::Double, Pick::Range(from, to), v, 1, &mut out[from..to], control)?;
        *last = Step {
            seconds: control.seconds(),
            phase: "lanczos",
            kernel_entries: Some(gram.entries()),
            ..std::mem::take(last)
        };
        if let ControlFlow::Break(()) = observer.step(last) {
            return Err(Status::Interrupted);
        }
    }
    Ok(())
}

/// The Lanczos basis Q and the tridiagonal T.
struct Krylov {
    basis: Vec<Vec<f64>>,
    diagonal: Vec<f64>,
    beside: Vec<f64>,
}

impl Krylov {
    /// The extreme Ritz values, and the vector s of the smallest.
    fn ritz(&self) -> Option<(f64, f64, Vec<f64>)> {
        let m = self.diagonal.len();
        let t = Mat::from_fn(m, m, |i, j| match i.abs_diff(j) {
            0 => self.diagonal[i],
            1 => self.beside[i.min(j)],
            _ => 0.0,
        });
        let (values, vectors) = eigen(&t)?;
        Some((values[0], values[m - 1], vectors.col(0).iter().copied().collect()))
    }

    /// The Ritz vector Qs, normalised.
    fn vector(&self, s: &[f64]) -> Vec<f64> {
        let mut v = vec![0.0; self.basis[0].len()];
        for (q, weight) in self.basis.iter().zip(s) {
            v.iter_mut().zip(q).for_each(|(v, q)| *v += weight * q);
        }
        let length = dot(&v, &v).sqrt();
        v.iter_mut().for_each(|v| *v /= length);
        v
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn lanczos(
    gram: &dyn Gram,
    options: &SpectrumOptions,
    control: &Control,
    observer: &mut dyn Observer,
    last: &mut Step,
) -> std::result::Result<Spectrum, Status> {
    let n = gram.shape().0;
    let fitting = (options.memory / (8 * n as u64)).max(2).min(n as u64) as usize;
    let max_steps = options.max_steps.clamp(1, fitting);
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(options.seed);
    let mut q: Vec<f64> = (0..n).map(|_| rng.random::<f64>() - 0.5).collect();
    let length = dot(&q, &q).sqrt();
    q.iter_mut().for_each(|v| *v /= length);

    let mut krylov = Krylov { basis: vec![q], diagonal: Vec::new(), beside: Vec::new() };
    let mut w = vec![0.0; n];
    let mut best: Option<(f64, f64, Vec<f64>, f64)> = None;
    let mut next_look = 4;
    let status = loop {
        let m = krylov.diagonal.len();
        if let Err(status) = product(gram, &krylov.basis[m], &mut w, control, observer, last) {
            break status;
        }
        krylov.diagonal.push(dot(&krylov.basis[m], &w));
        // Twice is enough: one pass of Gram–Schmidt against the whole basis loses at most half the digits.
        for _ in 0..2 {
            for q in &krylov.basis {
                let along = dot(q, &w);
                w.iter_mut().zip(q).for_each(|(w, q)| *w -= along * q);
            }
        }
        let beta = dot(&w, &w).sqrt();
        let steps = m + 1;
        let scale = krylov.diagonal.iter().chain(&krylov.beside).fold(0.0f64, |a, v| a.max(v.abs()));
        // The basis spans an invariant subspace: the Ritz values are eigenvalues.
        let complete = beta <= scale * n as f64 * f64::EPSILON || steps == n;
        if complete || steps >= next_look || steps == max_steps {
            next_look = steps + (steps / 8).max(4);
            let (low, high, s) = krylov.ritz().ok_or(Status::Stalled)?;
            let largest = low.abs().max(high.abs());
            let residual = beta * s[steps - 1].abs();
            *last = Step { iteration: steps as u64, violation: Some(residual / largest), ..std::mem::take(last) };
            best = Some((low, largest, s, residual));
            // A negative value must also be known to a few digits of its own.
            let wanted = (options.accuracy * largest).min(if low < 0.0 {
                (1e-3 * low.abs()).max(tolerance(options, n, largest))
            } else {
                f64::INFINITY
            });
            if complete || residual <= wanted {
                break Status::Optimal;
            }
        }
        if steps >= max_steps {
            break Status::IterationLimit;
        }
        krylov.beside.push(beta);
        krylov.basis.push(w.iter().map(|v| v / beta).collect());
    };
    if status == Status::TimeLimit || status == Status::Interrupted {
        // Count every completed step, not only those at which T was decomposed.
        let m = krylov.diagonal.len();
        if m > 0
            && let Some((low, high, s)) = krylov.ritz()
        {
            let residual = krylov.beside.get(m - 1).map_or(f64::INFINITY, |beta| beta * s[m - 1].abs());
            best = Some((low, low.abs().max(high.abs()), s, residual));
        }
    }
    // The T decomposed last may be smaller than the basis; the length of s is its number of vectors.
    let (mut smallest, largest, s, mut residual) = best.ok_or(status)?;
    let witness = krylov.vector(&s);
    if status == Status::Optimal || status == Status::IterationLimit {
        // Measure the residual that the recurrence predicts, if there is time left.
        if product(gram, &witness, &mut w, control, observer, last).is_ok() {
            smallest = dot(&witness, &w);
            residual = w.iter().zip(&witness).map(|(w, v)| (w - smallest * v).powi(2)).sum::<f64>().sqrt();
        }
    }
    Ok(Spectrum {
        method: SpectrumMethod::Lanczos,
        smallest,
        largest,
        witness,
        residual,
        tolerance: tolerance(options, n, largest),
        steps: krylov.diagonal.len() as u64,
        status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::control::{Budget, Threads};
    use crate::data::Points;
    use crate::gram::PrecomputedGram;
    use crate::kernel::Kernel;
    use crate::observe::{Recorder, Silent};

    fn unlimited() -> Control {
        Control::unlimited(Threads::one())
    }

    fn both_ways(gram: &dyn Gram) -> [Spectrum; 2] {
        [usize::MAX, 0].map(|exact_up_to| {
            let options = SpectrumOptions { exact_up_to, ..SpectrumOptions::default() };
            smallest_eigenvalue(gram, &options, &unlimited(), &mut Silent).unwrap().0.unwrap()
        })
    }

    fn cloud(n: usize, d: usize) -> Points {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        Points::dense_f64(n, d, (0..n * d).map(|_| rng.random::<f64>() * 2.0 - 1.0).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn two_by_two_by_hand() {
        // Eigenvalues 1 ± 2, eigenvectors (1, ±1)/√2.
        let gram = PrecomputedGram::new(Points::dense_f64(2, 2, vec![1.0, 2.0, 2.0, 1.0]).unwrap());
        for found in both_ways(&gram) {
            assert!((found.smallest + 1.0).abs() < 1e-14, "{found:?}");
            assert!((found.largest - 3.0).abs() < 1e-14);
            assert!((found.witness[0] + found.witness[1]).abs() < 1e-14);
            assert!(found.residual < 1e-14);
            assert!(found.is_indefinite());
        }
    }

    #[test]
    fn an_rbf_gram_is_positive_semi_definite_and_a_sigmoid_one_is_not() {
        let x = cloud(120, 3);
        let rbf = CpuGram::square(Kernel::rbf(0.5), &x).unwrap();
        let sigmoid = CpuGram::square(Kernel::Sigmoid { gamma: 1.0, coef0: -1.0 }, &x).unwrap();
        for found in both_ways(&rbf) {
            assert!(!found.is_indefinite(), "{} {}", found.smallest, found.tolerance);
        }
        let [exact, lanczos] = both_ways(&sigmoid);
        assert!(exact.is_indefinite() && lanczos.is_indefinite());
        // A residual r puts θ within r²/gap-to-the-next of λ, and within r of it always.
        assert!((exact.smallest - lanczos.smallest).abs() <= lanczos.residual + exact.residual);
        assert!(lanczos.smallest >= exact.smallest - 1e-12 * exact.largest);
    }

    #[test]
    fn every_budget_ends_the_search() {
        let gram = CpuGram::square(Kernel::rbf(0.5), &cloud(200, 3)).unwrap();
        let options = SpectrumOptions { exact_up_to: 0, ..SpectrumOptions::default() };
        let none = Budget { seconds: Some(0.0), ..Budget::default() };
        let control = Control::start(&none, Threads::one());
        let (found, status) = smallest_eigenvalue(&gram, &options, &control, &mut Silent).unwrap();
        assert!(found.is_none());
        assert_eq!(status, Status::TimeLimit);
        let mut three = Recorder { stop_after: Some(3), ..Recorder::default() };
        let (_, status) = smallest_eigenvalue(&gram, &options, &unlimited(), &mut three).unwrap();
        assert_eq!((status, three.steps.len(), three.status), (Status::Interrupted, 3, Some(Status::Interrupted)));
        let few = SpectrumOptions { max_steps: 6, ..options };
        let (found, status) = smallest_eigenvalue(&gram, &few, &unlimited(), &mut Silent).unwrap();
        assert_eq!((status, found.unwrap().steps), (Status::IterationLimit, 6));
    }

    #[test]
    fn asymmetry_names_the_worst_pair() {
        let n = 300;
        let mut values = vec![0.0; n * n];
        values[5 * n + 290] = 0.25;
        let gram = PrecomputedGram::new(Points::dense_f64(n, n, values).unwrap());
        assert_eq!(asymmetry(&gram, &unlimited()).unwrap(), (5, 290, 0.25));
    }

    #[test]
    fn shapes_are_checked() {
        let wide = PrecomputedGram::new(Points::dense_f64(1, 2, vec![1.0, 2.0]).unwrap());
        assert!(smallest_eigenvalue(&wide, &SpectrumOptions::default(), &unlimited(), &mut Silent).is_err());
        let empty = PrecomputedGram::new(Points::dense_f64(0, 0, vec![]).unwrap());
        assert!(smallest_eigenvalue(&empty, &SpectrumOptions::default(), &unlimited(), &mut Silent).is_err());
    }
}
