//! Tests of the ridge solvers against Gaussian elimination, brute-force leave-one-out, each other, and the certificate.

use margrave_testkit::generate::{Sample, contradicting_duplicates, friedman, rng, sinc, two_gaussians};
use rand::RngExt;

use super::{Fit, Halt, PathOptions, RidgeOptions, Side, Source, Spectrum, fit, path, solve};
use crate::backend::cpu::CpuGram;
use crate::certificate::{certify, estimate};
use crate::control::{Budget, Control, Interrupt, Status, Threads};
use crate::data::Points;
use crate::gram::{Gram, Pick, PrecomputedGram};
use crate::kernel::Kernel;
use crate::loss::{Hinge, Square};
use crate::observe::{Recorder, Silent};
use crate::problem::{Constraint, KernelProblem};

fn control() -> Control {
    Control::unlimited(Threads::one())
}

fn points(sample: &Sample) -> Points {
    Points::dense_f64(sample.n, sample.d, sample.x.clone()).unwrap()
}

fn entries(gram: &dyn Gram) -> Vec<f64> {
    let (n, m) = gram.shape();
    let mut k = vec![0.0; n * m];
    gram.block_f64(Pick::All, Pick::All, &mut k, &control()).unwrap();
    k
}

/// (K + diag(1/c))β + b = y, Σβ = 0 over the rows of `keep`, by Gaussian elimination with partial pivoting.
fn eliminate(k: &[f64], n: usize, costs: &[f64], y: &[f64], bias: bool, keep: &[usize]) -> (Vec<f64>, f64) {
    let m = keep.len() + usize::from(bias);
    let mut a = vec![vec![0.0; m + 1]; m];
    for (r, &i) in keep.iter().enumerate() {
        for (c, &j) in keep.iter().enumerate() {
            a[r][c] = k[i * n + j] + if i == j { 1.0 / costs[i] } else { 0.0 };
        }
        a[r][m] = y[i];
        if bias {
            a[r][keep.len()] = 1.0;
            a[keep.len()][r] = 1.0;
        }
    }
    for p in 0..m {
        let best = (p..m).max_by(|&u, &v| a[u][p].abs().total_cmp(&a[v][p].abs())).unwrap();
        a.swap(p, best);
        for r in p + 1..m {
            let factor = a[r][p] / a[p][p];
            for c in p..=m {
                a[r][c] -= factor * a[p][c];
            }
        }
    }
    let mut x = vec![0.0; m];
    for p in (0..m).rev() {
        x[p] = (a[p][m] - (p + 1..m).map(|c| a[p][c] * x[c]).sum::<f64>()) / a[p][p];
    }
    let b = if bias { x.pop().unwrap() } else { 0.0 };
    (x, b)
}

/// yᵢ − z₍₋ᵢ₎(xᵢ) of every row, by n fits.
fn brute_force(k: &[f64], n: usize, costs: &[f64], y: &[f64], bias: bool) -> Vec<f64> {
    (0..n)
        .map(|i| {
            let keep: Vec<usize> = (0..n).filter(|&j| j != i).collect();
            let (beta, b) = eliminate(k, n, costs, y, bias, &keep);
            y[i] - b - keep.iter().zip(&beta).map(|(&j, beta)| k[i * n + j] * beta).sum::<f64>()
        })
        .collect()
}

fn assert_near(what: &str, found: &[f64], expected: &[f64], tol: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    let worst = found.iter().zip(expected).fold(0.0f64, |m, (f, e)| m.max((f - e).abs()));
    assert!(worst <= tol * scale, "{what}: differs by {worst} at scale {scale}");
}

fn with_loo() -> RidgeOptions {
    RidgeOptions { loo: true, ..RidgeOptions::default() }
}

fn options(lambdas: &[f64], bias: bool) -> PathOptions {
    PathOptions { lambdas: lambdas.to_vec(), bias, ..PathOptions::default() }
}

#[test]
fn two_points_by_hand() {
    // K = [[1, 2], [2, 4]] (x = 1, 2), λ = 1, y = (1, 1). No bias: (K + I)⁻¹y = (3, 0)·1/6 + … = (½, 0).
    let x = Points::dense_f64(2, 1, vec![1.0, 2.0]).unwrap();
    let gram = CpuGram::square(Kernel::Linear, &x).unwrap();
    let y = [1.0, 1.0];
    let found = fit(Source::Gram(&gram), &y, 1, &[1.0; 2], None, &with_loo(), &control()).unwrap();
    assert_near("β", &found.beta, &[0.5, 0.0], 1e-15);
    // Leave-one-out: without point 1, w = 2/5, so 1 − 2/5; without point 2, w = 1/2, so 1 − 1. Trace: 5/6.
    assert_near("loo", found.loo.as_ref().unwrap(), &[0.6, 0.0], 1e-15);
    assert!((found.degrees_of_freedom.unwrap() - 5.0 / 6.0).abs() < 1e-15);
    // With a bias y is constant: β = 0, b = 1.
    let found = fit(Source::Gram(&gram), &y, 1, &[1.0; 2], Some(0.0), &with_loo(), &control()).unwrap();
    assert_near("β", &found.beta, &[0.0, 0.0], 1e-15);
    assert_near("b", &found.bias, &[1.0], 1e-15);
}

#[test]
fn leave_one_out_equals_brute_force() {
    let sample = friedman(200, 5, 1.0, 1);
    let gram = CpuGram::square(Kernel::rbf(0.5), &points(&sample)).unwrap();
    let (k, n) = (entries(&gram), sample.n);
    for bias in [false, true] {
        for lambda in [1e-3, 1.0] {
            let costs = vec![1.0 / lambda; n];
            let expected = brute_force(&k, n, &costs, &sample.y, bias);
            let sum = bias.then_some(0.0);
            let found = fit(Source::Gram(&gram), &sample.y, 1, &costs, sum, &with_loo(), &control()).unwrap();
            assert_near("direct", found.loo.as_ref().unwrap(), &expected, 1e-8);

            let mse = expected.iter().map(|r| r * r).sum::<f64>() / n as f64;
            let found =
                path(Source::Gram(&gram), &sample.y, 1, None, &options(&[lambda], bias), &control(), &mut Silent);
            let point = found.unwrap().points[0].clone();
            assert!((point.loo_mse - mse).abs() <= 1e-8 * mse, "bias {bias}, λ {lambda}: {} and {mse}", point.loo_mse);
        }
    }
}

#[test]
fn weighted_leave_one_out_equals_brute_force() {
    let sample = sinc(60, 0.2, 2);
    let gram = CpuGram::square(Kernel::rbf(0.5), &points(&sample)).unwrap();
    let (k, n, lambda) = (entries(&gram), sample.n, 0.1);
    let mut rng = rng(3);
    let weights: Vec<f64> = (0..n).map(|_| rng.random_range(0.2..3.0)).collect();
    let costs: Vec<f64> = weights.iter().map(|w| w / lambda).collect();
    for bias in [false, true] {
        let expected = brute_force(&k, n, &costs, &sample.y, bias);
        let sum = bias.then_some(0.0);
        let found = fit(Source::Gram(&gram), &sample.y, 1, &costs, sum, &with_loo(), &control()).unwrap();
        assert_near("direct", found.loo.as_ref().unwrap(), &expected, 1e-8);
        let total: f64 = weights.iter().sum();
        let mse = expected.iter().zip(&weights).map(|(r, w)| w * r * r).sum::<f64>() / total;
        let options = options(&[lambda], bias);
        let found = path(Source::Gram(&gram), &sample.y, 1, Some(&weights), &options, &control(), &mut Silent).unwrap();
        assert!((found.points[0].loo_mse - mse).abs() <= 1e-8 * mse);
        let dof = fit_dof(&gram, &sample.y, &costs, sum);
        assert!((found.points[0].degrees_of_freedom - dof).abs() < 1e-8, "{dof}");
    }
}

fn fit_dof(gram: &dyn Gram, y: &[f64], costs: &[f64], sum: Option<f64>) -> f64 {
    fit(Source::Gram(gram), y, 1, costs, sum, &with_loo(), &control()).unwrap().degrees_of_freedom.unwrap()
}

#[test]
fn a_path_equals_a_fit_at_every_lambda() {
    let sample = friedman(120, 5, 1.0, 4);
    let all = points(&sample);
    let gram = CpuGram::square(Kernel::rbf(0.3), &all).unwrap();
    let linear = CpuGram::square(Kernel::Linear, &all).unwrap();
    let lambdas = [1e-6, 1e-3, 0.1, 1.0, 1e3];
    let rows: Vec<u32> = (0..120).collect();
    let targets: Vec<f64> = sample.y.iter().flat_map(|y| [*y, 100.0 - 2.0 * y, y * y]).collect();
    for (source, name) in [(Source::Gram(&gram), "kernel"), (Source::Linear(&all, &linear), "primal")] {
        for bias in [false, true] {
            let options = options(&lambdas, bias);
            let spectrum = Spectrum::new(source, &rows, &[1.0; 120], &targets, 3, &options, &control()).unwrap();
            assert_eq!(spectrum.side().name(), name);
            let points = spectrum.evaluate(&lambdas, &control()).unwrap();
            for (lambda, point) in lambdas.iter().zip(&points) {
                let costs = vec![1.0 / lambda; 120];
                let sum = bias.then_some(0.0);
                let direct = fit(source, &targets, 3, &costs, sum, &with_loo(), &control()).unwrap();
                let found = spectrum.coefficients(*lambda, &control()).unwrap();
                // The condition number of K + λI, up to 1e8 at λ = 1e-6, times the rounding of either method.
                let tol = (1e-13 / lambda).max(1e-10);
                assert_near("β", &found.beta, &direct.beta, tol);
                assert_near("b", &found.bias, &direct.bias, tol);
                let mean = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
                let loo = mean(direct.loo.as_ref().unwrap());
                assert!((point.loo_mse - loo).abs() <= tol * loo, "{name} {lambda}: {} and {loo}", point.loo_mse);
                let residuals: Vec<f64> =
                    (0..360).map(|at| targets[at] - direct.scores[at] - direct.bias[at % 3]).collect();
                let train = mean(&residuals);
                assert!((point.train_mse - train).abs() <= 1e-7 * (train + 1e-6), "{} and {train}", point.train_mse);
                let dof = direct.degrees_of_freedom.unwrap();
                assert!((point.degrees_of_freedom - dof).abs() < 1e-6, "{} and {dof}", point.degrees_of_freedom);
                assert_eq!(point.loo_by_target.len(), 3);
            }
            // A larger λ gives fewer degrees of freedom and a larger training error.
            assert!(points.windows(2).all(|p| p[1].degrees_of_freedom < p[0].degrees_of_freedom));
            assert!(points.windows(2).all(|p| p[1].train_mse >= p[0].train_mse));
        }
    }
}

#[test]
fn the_primal_side_equals_the_kernel_side() {
    let sample = friedman(90, 6, 1.0, 5);
    let x = points(&sample);
    let gram = CpuGram::square(Kernel::Linear, &x).unwrap();
    let mut rng = rng(6);
    let mut costs: Vec<f64> = (0..90).map(|_| rng.random_range(0.1..10.0)).collect();
    costs[7] = 0.0;
    for sum in [None, Some(0.0)] {
        let run = |side| -> Fit {
            let options = RidgeOptions { side, ..with_loo() };
            fit(Source::Linear(&x, &gram), &sample.y, 1, &costs, sum, &options, &control()).unwrap()
        };
        let (primal, kernel) = (run(Side::Primal), run(Side::Kernel));
        assert_eq!((primal.side, kernel.side), (Side::Primal, Side::Kernel));
        assert_near("β", &primal.beta, &kernel.beta, 1e-9);
        assert_near("b", &primal.bias, &kernel.bias, 1e-9);
        assert_near("scores", &primal.scores, &kernel.scores, 1e-9);
        assert_near("loo", primal.loo.as_ref().unwrap(), kernel.loo.as_ref().unwrap(), 1e-9);
        assert!((primal.degrees_of_freedom.unwrap() - kernel.degrees_of_freedom.unwrap()).abs() < 1e-8);
        // w = Xᵀβ.
        let w: Vec<f64> = (0..6).map(|c| (0..90).map(|i| sample.x[i * 6 + c] * kernel.beta[i]).sum()).collect();
        assert_near("w", primal.weights.as_ref().unwrap(), &w, 1e-9);
    }
    assert_eq!(Side::Auto.choose(1000, 10), Side::Primal);
    assert_eq!(Side::Auto.choose(10, 1000), Side::Kernel);
}

#[test]
fn the_certificate_finds_no_gap() {
    let regression = friedman(150, 5, 1.0, 7);
    let labels = two_gaussians(150, 3, 1.0, 8);
    for (sample, kernel) in [(&regression, Kernel::rbf(0.5)), (&labels, Kernel::Linear)] {
        let x = points(sample);
        let gram = CpuGram::square(kernel, &x).unwrap();
        let costs: Vec<f64> = (0..sample.n).map(|i| 0.5 + (i % 7) as f64).collect();
        for constraint in [Constraint::None, Constraint::free_bias(), Constraint::Sum(3.0)] {
            let problem = KernelProblem::new(&gram, &sample.y, &costs, &Square, constraint).unwrap();
            let linear = (kernel == Kernel::Linear).then_some(&x);
            let found = solve(&problem, linear, &RidgeOptions::default(), &control(), &mut Silent).unwrap();
            let s = &found.solution;
            assert_eq!(s.status, Status::Optimal);
            let certificate = certify(&problem, &s.beta, Some(&s.bias), None, &control()).unwrap();
            assert!(certificate.relative_gap().unwrap() < 1e-10, "{certificate:?}");
            assert!(certificate.violation() < 1e-9, "{certificate:?}");
            let trusted = estimate(&problem, &s.beta, &s.bias, s.scores.as_deref().unwrap(), &control()).unwrap();
            assert!(trusted.relative_gap().unwrap() < 1e-12);
        }
    }
}

#[test]
fn singular_matrices_are_solved_with_a_jitter() {
    // 40 equal points and λ = 1e-18: K + λI is the matrix of ones to the last bit.
    let same = PrecomputedGram::new(Points::dense_f64(40, 40, vec![1.0; 1600]).unwrap());
    let y: Vec<f64> = (0..40).map(|i| (i % 3) as f64).collect();
    let found = fit(Source::Gram(&same), &y, 1, &[1e18; 40], Some(0.0), &with_loo(), &control()).unwrap();
    assert!(found.jitter > 0.0 && found.jitter < 1e-9, "{}", found.jitter);
    assert!(found.beta.iter().chain(&found.bias).chain(found.loo.as_ref().unwrap()).all(|v| v.is_finite()));
    let options = options(&[1e-18, 1.0], true);
    let found = path(Source::Gram(&same), &y, 1, None, &options, &control(), &mut Silent).unwrap();
    assert!(found.points[0].jitter > 0.0 && found.points[1].jitter == 0.0);
    // Only the mean can be fitted: leave-one-out of a mean is the deviation times n/(n − 1).
    let mean = y.iter().sum::<f64>() / 40.0;
    let expected = y.iter().map(|v| ((v - mean) * 40.0 / 39.0).powi(2)).sum::<f64>() / 40.0;
    for (point, tol) in found.points.iter().zip([5e-2, 1e-12]) {
        // At λ = 1e-18 the rounding of K itself is a few percent of the jitter.
        assert!((point.loo_mse - expected).abs() < tol * expected, "{point:?}, expected {expected}");
    }

    // Far from positive semi-definite: eigenvalues ±1. The jitter is the distance of the solved system from the given
    // one.
    let indefinite = PrecomputedGram::new(Points::dense_f64(2, 2, vec![0.0, 1.0, 1.0, 0.0]).unwrap());
    match fit(Source::Gram(&indefinite), &[1.0, 2.0], 1, &[1e6; 2], None, &with_loo(), &control()) {
        Ok(found) => assert!(found.jitter >= 1.0 - 1e-5),
        Err(halt) => assert!(matches!(halt, Halt::Error(_)), "{halt:?}"),
    }

    let sample = contradicting_duplicates(10, 6, 2, 9);
    let gram = CpuGram::square(Kernel::rbf(1e-8), &points(&sample)).unwrap();
    let found = fit(Source::Gram(&gram), &sample.y, 1, &[1e8; 60], Some(0.0), &with_loo(), &control()).unwrap();
    assert!(found.loo.unwrap().iter().all(|v| v.is_finite()));
}

#[test]
fn a_zero_cost_removes_a_row_and_an_integer_cost_repeats_it() {
    let sample = sinc(30, 0.1, 10);
    let kernel = Kernel::rbf(0.5);
    let mut costs = vec![2.0; 30];
    (costs[0], costs[1]) = (0.0, 6.0);
    let gram = CpuGram::square(kernel, &points(&sample)).unwrap();
    let by_cost = fit(Source::Gram(&gram), &sample.y, 1, &costs, Some(0.0), &with_loo(), &control()).unwrap();
    let rows: Vec<usize> = [1, 1].into_iter().chain(1..30).collect();
    let repeated = sample.take(&rows);
    let gram = CpuGram::square(kernel, &points(&repeated)).unwrap();
    let by_rows = fit(Source::Gram(&gram), &repeated.y, 1, &[2.0; 31], Some(0.0), &with_loo(), &control()).unwrap();
    assert_near("scores", &by_cost.scores[1..], &by_rows.scores[2..], 1e-10);
    assert_near("b", &by_cost.bias, &by_rows.bias, 1e-10);
    // The error of the removed row is that of a model trained without it.
    let expected = sample.y[0] - by_cost.scores[0] - by_cost.bias[0];
    assert_eq!((by_cost.beta[0], by_cost.loo.unwrap()[0]), (0.0, expected));
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let sample = friedman(600, 5, 1.0, 11);
    let x = points(&sample);
    let gram = CpuGram::square(Kernel::rbf(0.5), &x).unwrap();
    let inner = CpuGram::square(Kernel::Linear, &x).unwrap();
    let run = |threads| {
        let control = Control::unlimited(Threads::new(threads));
        let options = options(&[1e-3, 1.0], true);
        let kernel = path(Source::Gram(&gram), &sample.y, 1, None, &options, &control, &mut Silent).unwrap();
        let primal = path(Source::Linear(&x, &inner), &sample.y, 1, None, &options, &control, &mut Silent).unwrap();
        let fit = fit(Source::Gram(&gram), &sample.y, 1, &[1.0; 600], Some(0.0), &with_loo(), &control).unwrap();
        let linear =
            super::fit(Source::Linear(&x, &inner), &sample.y, 1, &[1.0; 600], None, &with_loo(), &control).unwrap();
        (kernel.points, primal.points, fit.beta, fit.loo, linear.beta, linear.loo)
    };
    let (one, two, three) = (run(1), run(2), run(3));
    assert!(one == two && two == three);
}

#[test]
fn budgets_and_observers_end_a_run() {
    let sample = friedman(50, 5, 1.0, 12);
    let gram = CpuGram::square(Kernel::rbf(0.5), &points(&sample)).unwrap();
    let costs = vec![1.0; 50];
    let problem = KernelProblem::new(&gram, &sample.y, &costs, &Square, Constraint::free_bias()).unwrap();
    let late = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::one());
    let found = solve(&problem, None, &RidgeOptions::default(), &late, &mut Silent).unwrap();
    let mean = sample.y.iter().sum::<f64>() / 50.0;
    assert_eq!((found.solution.status, found.fit.is_none()), (Status::TimeLimit, true));
    assert!(found.solution.beta.iter().all(|b| *b == 0.0) && (found.solution.bias[0] - mean).abs() < 1e-12);
    let halt = fit(Source::Gram(&gram), &sample.y, 1, &costs, None, &with_loo(), &late).unwrap_err();
    assert_eq!(halt, Halt::Interrupted(Interrupt::Deadline));
    let run = |control: &Control, observer: &mut Recorder| {
        path(Source::Gram(&gram), &sample.y, 1, None, &PathOptions::default(), control, observer).unwrap()
    };
    let found = run(&late, &mut Recorder::default());
    assert_eq!((found.status, found.points.len(), found.best), (Status::TimeLimit, 0, None));
    let mut recorder = Recorder { stop_after: Some(1), ..Recorder::default() };
    assert_eq!(run(&control(), &mut recorder).status, Status::Interrupted);
    assert_eq!(recorder.status, Some(Status::Interrupted));
    let found = run(&control(), &mut Recorder::default());
    let least = found.points.iter().map(|p| p.loo_mse).fold(f64::INFINITY, f64::min);
    assert_eq!(found.points[found.best.unwrap()].loo_mse, least);
}

#[test]
fn bad_input_is_rejected() {
    let gram = CpuGram::square(Kernel::Linear, &Points::dense_f64(2, 1, vec![1.0, 2.0]).unwrap()).unwrap();
    let source = Source::Gram(&gram);
    let rejected = |targets: &[f64], costs: &[f64]| {
        fit(source, targets, 1, costs, None, &RidgeOptions::default(), &control()).is_err()
    };
    assert!(rejected(&[1.0], &[1.0; 2]) && rejected(&[1.0; 2], &[1.0]) && rejected(&[1.0, f64::NAN], &[1.0; 2]));
    assert!(rejected(&[1.0; 2], &[1.0, -1.0]));
    let run = |options: &PathOptions| path(source, &[1.0, 2.0], 1, None, options, &control(), &mut Silent).is_err();
    assert!(run(&options(&[], true)) && run(&options(&[0.0], true)) && run(&options(&[f64::INFINITY], true)));
    assert!(run(&PathOptions { memory: 8, ..PathOptions::default() }));
    assert!(path(source, &[1.0, 2.0], 1, Some(&[1.0, 0.0]), &PathOptions::default(), &control(), &mut Silent).is_err());
    let problem = KernelProblem::new(&gram, &[1.0, -1.0], &[1.0; 2], &Hinge, Constraint::free_bias()).unwrap();
    let error = solve(&problem, None, &RidgeOptions::default(), &control(), &mut Silent).unwrap_err();
    assert!(error.to_string().contains("only the square loss"), "{error}");
    assert_eq!("primal".parse::<Side>(), Ok(Side::Primal));
    assert!("both".parse::<Side>().is_err());
    assert!(RidgeOptions { tol: 0.0, ..RidgeOptions::default() }.check().is_err());
}
