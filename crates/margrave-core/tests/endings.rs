//! How kernel solvers end on problems at the edge of the arithmetic: within their budget, with a finite point, and optimal
//! only where a measurement from the Gram matrix itself agrees.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::data::Points;
use margrave_core::gram::Pick;
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem};
use margrave_core::solver::textbook::{smo, svmtorch};
use margrave_core::solver::{Solution, Stop, decomposition, irwls, ridge};
use margrave_core::{Budget, Control, Status, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

struct Data {
    points: Points,
    y: Vec<f64>,
    costs: Vec<f64>,
}

/// Points around `centre`, labels by a noisy plane.
fn classes(n: usize, d: usize, centre: f64, width: f64, cost: f64, seed: u64) -> Data {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> = (0..n * d).map(|_| centre + width * rng.random_range(-1.0..1.0)).collect();
    let y = (0..n)
        .map(|i| {
            let side = x[i * d] - centre + 0.5 * (x[i * d + d - 1] - centre) > 0.0;
            if side != (rng.random_range(0.0..1.0) < 0.15) { 1.0 } else { -1.0 }
        })
        .collect();
    Data { points: Points::dense_f64(n, d, x).unwrap(), y, costs: vec![cost; n] }
}

fn control() -> Control {
    Control::start(&Budget { seconds: Some(120.0), ..Budget::default() }, Threads::one())
}

/// Calls `work` with the problem.
fn with<R>(data: &Data, kernel: Kernel, loss: &str, work: impl FnOnce(&KernelProblem<'_>) -> R) -> R {
    let gram = CpuGram::square(kernel, &data.points).unwrap();
    let loss = loss.parse::<LossSpec>().unwrap().build().unwrap();
    let problem = KernelProblem::new(&gram, &data.y, &data.costs, &*loss, Constraint::free_bias()).unwrap();
    work(&problem)
}

/// K·β entry by entry, and Σ|Kᵢⱼβⱼ|: what rounding can have to do with.
fn scores(problem: &KernelProblem<'_>, beta: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = beta.len();
    let mut k = vec![0.0; n * n];
    problem.gram.block_f64(Pick::All, Pick::All, &mut k, &control()).unwrap();
    let row = |i: usize| k[i * n..(i + 1) * n].iter().zip(beta).map(|(k, b)| k * b).collect::<Vec<f64>>();
    let sums = |i: usize| row(i).iter().fold((0.0, 0.0), |(s, a), v| (s + v, a + v.abs()));
    (0..n).map(sums).unzip()
}

/// P, D, and the worst pair of the dual, with the solution's own bias.
struct Measured {
    primal: f64,
    dual: f64,
    violation: f64,
    rounding: f64,
}

fn measure(problem: &KernelProblem<'_>, solution: &Solution) -> Measured {
    let (f, size) = scores(problem, &solution.beta);
    let rounding = 1e-14 * size.iter().fold(0.0, |m: f64, v| m.max(*v));
    let bias = solution.bias.first().copied().unwrap_or(0.0);
    let (mut primal, mut dual) = (0.0, 0.0);
    let (mut up, mut down) = (f64::INFINITY, f64::NEG_INFINITY);
    for i in 0..f.len() {
        let (t, b) = (problem.dual_term(i).unwrap(), solution.beta[i]);
        primal += 0.5 * b * f[i] + problem.costs[i] * problem.loss(i).value(problem.targets[i], f[i] + bias);
        dual -= 0.5 * b * f[i] + t.p * b + t.eps * b.abs() + 0.5 * t.d * b * b;
        let g = f[i] + t.p + t.d * b;
        if b < t.hi {
            up = up.min(g + if b < 0.0 { -t.eps } else { t.eps });
        }
        if b > t.lo {
            down = down.max(g + if b > 0.0 { t.eps } else { -t.eps });
        }
    }
    Measured { primal, dual, violation: (down - up).max(0.0), rounding }
}

/// A finite point with scores that are those of β, in time, and optimal only if `stop` holds.
fn honest(name: &str, problem: &KernelProblem<'_>, solution: &Solution, stop: Stop) -> Measured {
    assert!(solution.beta.iter().chain(&solution.bias).all(|v| v.is_finite()), "{name}: not finite");
    assert!(!matches!(solution.status, Status::TimeLimit | Status::Interrupted), "{name}: {}", solution.status);
    let (f, size) = scores(problem, &solution.beta);
    for (i, own) in solution.scores.iter().flatten().enumerate() {
        // Rows that are certainly without loss may be good to single precision only.
        let slack = 1e-4 * size[i] + 1e-9;
        assert!((own - f[i]).abs() <= slack, "{name}: score {i} is {own}, of β {}", f[i]);
    }
    let m = measure(problem, solution);
    if solution.status == Status::Optimal {
        if let Some(tol) = stop.tol {
            assert!(m.violation <= 1.01 * tol + m.rounding, "{name}: optimal at a violation of {}", m.violation);
        }
        if let Some(gap) = stop.gap {
            let relative = (m.primal - m.dual) / m.primal.abs().max(m.dual.abs());
            // P − D cancels: what rounding does to the scores counts once per unit of β.
            let slack = m.rounding * solution.beta.iter().map(|b| b.abs()).sum::<f64>() / m.primal.abs();
            assert!(relative <= 1.01 * gap + slack, "{name}: optimal at a gap of {relative}, rounding {slack}");
        }
    }
    m
}

fn by_decomposition(problem: &KernelProblem<'_>, stop: Stop, start: Option<Vec<f64>>) -> Solution {
    let options = decomposition::Options { stop, start, ..decomposition::Options::default() };
    decomposition::solve(problem, &options, &control(), &mut Silent).unwrap()
}

fn by_irwls(problem: &KernelProblem<'_>, stop: Stop, start: Option<Vec<f64>>) -> Solution {
    let options = irwls::Options { stop, start, ..irwls::Options::default() };
    irwls::solve(problem, None, &options, &control(), &mut Silent).unwrap().solution
}

#[test]
fn a_small_cost_does_not_make_the_zero_machine_optimal() {
    let data = classes(120, 5, 0.0, 1.0, 1e-6, 1);
    let stop = Stop { tol: None, gap: Some(1e-3) };
    with(&data, Kernel::rbf(0.2), "hinge", |problem| {
        for solution in [by_decomposition(problem, stop, None), by_irwls(problem, stop, None)] {
            assert_eq!(solution.status, Status::Optimal);
            honest("small cost", problem, &solution, stop);
            assert!(solution.beta.iter().any(|b| *b != 0.0));
        }
    });
}

#[test]
fn an_indefinite_kernel_ends_at_a_finite_point() {
    for (gamma, cost, seed) in [(10.0, 7000.0, 2), (3.0, 1e5, 3), (0.5, 1e3, 4)] {
        let data = classes(100, 6, 0.0, 1.0, cost, seed);
        let stop = Stop { tol: None, gap: Some(1e-6) };
        with(&data, Kernel::Sigmoid { gamma, coef0: 0.0 }, "squared-hinge", |problem| {
            let solution = by_decomposition(problem, stop, None);
            let m = honest("indefinite", problem, &solution, stop);
            // No point is better than the best one passed: β = 0 is one of them.
            let zero = Solution { beta: vec![0.0; data.y.len()], scores: None, ..solution.clone() };
            assert!(m.primal - m.dual <= 2.0 * measure(problem, &zero).primal, "P {} D {}", m.primal, m.dual);
        });
    }
}

#[test]
fn huge_kernels_and_costs_end() {
    let cases = [
        (Kernel::Poly { gamma: 1e4, coef0: 1.0, degree: 1 }, 0.0, 30.0, 1e4),
        (Kernel::Poly { gamma: 1.0, coef0: 0.0, degree: 3 }, 0.0, 10.0, 1e3),
        (Kernel::Linear, 1e4, 1.0, 1e2),
        (Kernel::rbf(1e-7), 0.0, 1.0, 1e5),
    ];
    for (at, (kernel, centre, width, cost)) in cases.into_iter().enumerate() {
        let data = classes(110, 8, centre, width, cost, 10 + at as u64);
        let stop = Stop { tol: Some(0.01), gap: Some(1e-8) };
        with(&data, kernel, "hinge", |problem| {
            let solution = by_decomposition(problem, stop, None);
            let m = honest(&format!("{kernel:?}"), problem, &solution, stop);
            let zero = data.costs.iter().sum::<f64>();
            assert!(m.primal - m.dual <= zero * (1.0 + 1e-9), "{kernel:?}: worse than zero: {} {}", m.primal, m.dual);
        });
    }
}

#[test]
fn textbook_solvers_end_and_are_honest() {
    for (kernel, cost) in [(Kernel::rbf(4e-7), 4e5), (Kernel::Poly { gamma: 50.0, coef0: 1.0, degree: 2 }, 1e3)] {
        let data = classes(60, 4, 0.0, 3.0, cost, 21);
        with(&data, kernel, "hinge", |problem| {
            let options = svmtorch::SvmTorchOptions { rule: svmtorch::StopRule::Pair, ..Default::default() };
            let torch = svmtorch::solve(problem, &options, &control(), &mut Silent).unwrap().solution;
            honest("svmtorch", problem, &torch, Stop { tol: Some(1e-3), gap: None });
            let smo = smo::solve(problem, &smo::SmoOptions::default(), &control(), &mut Silent).unwrap().solution;
            // Its rule is one-sided, from the bias: a pair may be twice as far apart.
            honest("smo", problem, &smo, Stop { tol: Some(2e-3), gap: None });
        });
    }
}

#[test]
fn least_squares_on_raw_data_end_by_reweighting() {
    for (centre, width, cost) in [(1e3, 100.0, 9e3), (1e6, 1.0, 10.0), (0.0, 1e3, 1e5)] {
        let mut data = classes(130, 7, centre, width, cost, 31);
        data.y.iter_mut().enumerate().for_each(|(i, y)| *y += i as f64 * 0.3);
        let stop = Stop { tol: Some(1e-3), gap: None };
        with(&data, Kernel::Linear, "square", |problem| {
            let options = irwls::Options { stop, ..irwls::Options::default() };
            let end = irwls::solve(problem, Some(&data.points), &options, &control(), &mut Silent).unwrap();
            honest("irwls", problem, &end.solution, stop);
        });
    }
}

/// The residual of the equations of least squares in units of the score, from K itself.
fn residual(problem: &KernelProblem<'_>, solution: &Solution) -> f64 {
    let (f, _) = scores(problem, &solution.beta);
    let bias = solution.bias.first().copied().unwrap_or(0.0);
    let total: f64 = problem.costs.iter().sum();
    let sum: f64 = solution.beta.iter().sum();
    let each = (0..f.len()).map(|i| {
        let t = problem.dual_term(i).unwrap();
        (-t.p - f[i] - bias - solution.beta[i] * t.d).abs()
    });
    each.fold(sum.abs() / total, f64::max)
}

#[test]
fn ridge_returns_what_it_measured() {
    let kernels = [
        (Kernel::Linear, 0.0, 1.0),
        (Kernel::Linear, 1e5, 3.0),
        (Kernel::Poly { gamma: 1.0, coef0: -1.0, degree: 1 }, 0.5, 0.5),
        (Kernel::Poly { gamma: 0.1, coef0: 10.0, degree: 6 }, 0.0, 1.0),
        (Kernel::Sigmoid { gamma: 2.0, coef0: 0.0 }, 0.0, 1.0),
    ];
    for (at, (kernel, centre, width)) in kernels.into_iter().enumerate() {
        let mut data = classes(90, 60, centre, width, 1.0, 40 + at as u64);
        data.costs.iter_mut().enumerate().for_each(|(i, c)| *c = if i % 3 == 0 { 300.0 } else { 80.0 });
        with(&data, kernel, "square", |problem| {
            let linear = (kernel == Kernel::Linear).then_some(&data.points);
            let options = ridge::RidgeOptions::default();
            let solution = ridge::solve(problem, linear, &options, &control(), &mut Silent).unwrap().solution;
            honest(
                &format!("ridge, {kernel:?} around {centre}"),
                problem,
                &solution,
                Stop { tol: None, gap: Some(1e-5) },
            );
            let (truly, (_, size)) = (residual(problem, &solution), scores(problem, &solution.beta));
            let slack = 1e-12 * size.iter().fold(0.0, |m: f64, v| m.max(*v));
            assert!(truly <= 1.01 * solution.violation + slack, "{kernel:?}: {truly} against {}", solution.violation);
            if at == 0 || at == 2 {
                // Well conditioned, and positive on vectors of sum zero.
                assert_eq!(solution.status, Status::Optimal, "{kernel:?}: {truly}");
            }
        });
    }
}

#[test]
fn a_run_resumes_where_it_stopped() {
    let data = classes(150, 5, 0.0, 1.0, 10.0, 51);
    let (first, tight) = (Stop { tol: Some(1e-2), gap: Some(1e-2) }, Stop { tol: Some(1e-5), gap: Some(1e-7) });
    for loss in ["hinge", "squared-hinge"] {
        with(&data, Kernel::rbf(0.3), loss, |problem| {
            for solver in [by_decomposition, by_irwls] {
                let rough = solver(problem, first, None);
                assert_eq!(rough.status, Status::Optimal);
                let again = solver(problem, first, Some(rough.beta.clone()));
                assert_eq!((again.status, again.iterations), (Status::Optimal, 0), "{loss}");
                let before = honest("rough", problem, &rough, first);
                let finer = solver(problem, tight, Some(rough.beta.clone()));
                assert_eq!(finer.status, Status::Optimal, "{loss}");
                let after = honest("finer", problem, &finer, tight);
                let gap = |m: &Measured| m.primal - m.dual;
                let slack = 1e-12 * before.primal.abs();
                assert!(gap(&after) <= gap(&before) + slack, "{loss}: {} after {}", gap(&after), gap(&before));
            }
        });
    }
}

#[test]
fn losses_that_are_not_convex_end_stationary_and_below_their_start() {
    let mut rng = ChaCha8Rng::seed_from_u64(61);
    let losses = ["sigmoid:eta=1", "sigmoid:eta=2", "sigmoid:eta=3", "polynomial", "ramp"];
    let (mut runs, mut stationary) = (0, 0);
    for loss in losses {
        for _ in 0..4 {
            let cost = 10f64.powf(rng.random_range(-1.0..2.0));
            let kernel = if rng.random_range(0.0..1.0) < 0.7 {
                Kernel::rbf(rng.random_range(0.05..1.0))
            } else {
                Kernel::Linear
            };
            let data = classes(80, 4, 0.0, 1.5, cost, rng.random_range(0..1000));
            with(&data, kernel, loss, |problem| {
                let options = irwls::TwoStep::default();
                let end = irwls::two_step(problem, None, &options, &control(), &mut Silent).unwrap().end;
                let name = format!("{loss} {kernel:?} C = {cost}");
                assert!(!matches!(end.solution.status, Status::TimeLimit | Status::IterationLimit), "{name}");
                let slack = 1e-9 * end.start_objective.abs();
                assert!(end.objective <= end.start_objective + slack, "{name}: {} rose", end.objective);
                runs += 1;
                if end.solution.status == Status::Optimal {
                    stationary += 1;
                    let certificate = margrave_core::certificate::certify(
                        problem,
                        &end.solution.beta,
                        Some(&end.solution.bias),
                        None,
                        &control(),
                    );
                    let found = certificate.unwrap().violation();
                    assert!(found <= 1.01e-3, "{name}: {found}");
                }
            });
        }
    }
    assert!(stationary * 10 >= runs * 9, "only {stationary} of {runs} ended stationary");
}

#[test]
fn one_factorisation_is_not_too_much_work() {
    // Factoring a matrix of 3 600 rows takes longer than thirty passes over two features.
    let data = classes(3600, 2, 0.0, 1.0, 1.0, 11);
    with(&data, Kernel::rbf(1.0), "logistic", |problem| {
        let stop = Stop { tol: None, gap: Some(1e-4) };
        assert_eq!(by_irwls(problem, stop, None).status, Status::Optimal);
    });
}
