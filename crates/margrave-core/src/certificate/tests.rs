//! Tests the certificate with worked examples, weak duality and deliberately wrong points.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::backend::cpu::CpuGram;
use crate::control::Threads;
use crate::data::Points;
use crate::gram::{Gram, PrecomputedGram};
use crate::kernel::Kernel;
use crate::loss::{Above, Below, Epsilon, Hinge, Loss, LossSpec, Pinball, Sigmoid, Square, SquaredHinge};

fn control() -> Control {
    Control::unlimited(Threads::one())
}

fn optimal(problem: &KernelProblem<'_>, beta: &[f64], bias: Option<&[f64]>) -> Optimality {
    problem.check().unwrap();
    match certify(problem, beta, bias, None, &control()).unwrap() {
        Certificate::Optimality(o) => o,
        other => panic!("expected bounds, got {other:?}"),
    }
}

fn line(x: &[f64]) -> CpuGram {
    CpuGram::square(Kernel::Linear, &Points::dense_f64(x.len(), 1, x.to_vec()).unwrap()).unwrap()
}

fn cloud(rng: &mut ChaCha8Rng, n: usize) -> CpuGram {
    let x: Vec<f64> = (0..2 * n).map(|_| rng.random_range(-1.0..1.0)).collect();
    CpuGram::square(Kernel::rbf(0.8), &Points::dense_f64(n, 2, x).unwrap()).unwrap()
}

#[test]
fn two_points_and_the_hinge_by_hand() {
    // x = ±1, w = 1, b = 0: α = ½ each, P = D = ½.
    let gram = line(&[-1.0, 1.0]);
    let problem = KernelProblem::new(&gram, &[-1.0, 1.0], &[10.0, 10.0], &Hinge, Constraint::free_bias()).unwrap();
    let o = optimal(&problem, &[-0.5, 0.5], None);
    assert!((o.primal - 0.5).abs() < 1e-15 && o.gap < 1e-12 && o.violation < 1e-14 && o.feasible, "{o:?}");
    assert!(o.bias[0].abs() < 1e-14 && (o.squared_norm - 1.0).abs() < 1e-15);
    // Half of the optimum: w = ½, P = ⅛ + 10·2·½, D = 2·¼ − ⅛.
    let o = optimal(&problem, &[-0.25, 0.25], Some(&[0.0]));
    assert!((o.primal - 10.125).abs() < 1e-12 && (o.dual - 0.375).abs() < 1e-12, "{o:?}");
    // F = (½, −½) once the targets are taken off: the pair differs by 1.
    assert!((o.violation - 1.0).abs() < 1e-12 && o.worst.len() == 2 && (o.worst[0].share - 0.5).abs() < 1e-12);
}

#[test]
fn three_points_and_the_tube_by_hand() {
    // y = (0, 1, 2) at x = (0, 1, 2), ε = ½: the flattest line in the tube has slope ½ through (1, 1); β = (−¼, 0, ¼).
    let gram = line(&[0.0, 1.0, 2.0]);
    let loss = Epsilon { epsilon: 0.5 };
    let problem = KernelProblem::new(&gram, &[0.0, 1.0, 2.0], &[1.0; 3], &loss, Constraint::free_bias()).unwrap();
    let o = optimal(&problem, &[-0.25, 0.0, 0.25], None);
    assert!((o.primal - 0.125).abs() < 1e-14 && o.gap < 1e-12 && o.violation < 1e-14, "{o:?}");
    assert!((o.bias[0] - 0.5).abs() < 1e-12, "{o:?}");
}

#[test]
fn a_model_is_certified_with_its_own_bias() {
    let gram = line(&[-1.0, 1.0]);
    let problem = KernelProblem::new(&gram, &[-1.0, 1.0], &[1.0, 1.0], &Hinge, Constraint::free_bias()).unwrap();
    // P = ½ at b = 0; with a bias of ¼, one of the two points is ¼ inside its margin.
    let o = optimal(&problem, &[-0.5, 0.5], Some(&[0.25]));
    assert!((o.primal - 0.75).abs() < 1e-12 && (o.gap - 0.25).abs() < 1e-12 && o.bias == [0.25], "{o:?}");
    let o = optimal(&problem, &[-0.5, 0.5], Some(&[0.0]));
    assert!(o.gap < 1e-12, "{o:?}");
    let far = optimal(&problem, &[-0.5, 0.5], Some(&[1000.0]));
    assert!(far.relative_gap > 0.99, "{far:?}");
    // The best bias is available separately, and a good bias is left unchanged.
    let f = scores(&problem, &[-0.5, 0.5], &control()).unwrap();
    assert!(best_bias(&problem, &f, Some(&[0.25]), &control()).unwrap()[0].abs() < 1e-9);
    assert_eq!(best_bias(&problem, &f, Some(&[0.0]), &control()).unwrap(), [0.0]);
}

#[test]
fn the_gap_is_relative_to_the_problem_however_small() {
    let gram = line(&[-1.0, 1.0]);
    for c in [1e-12, 1e-6, 1.0, 1e6] {
        let costs = [c, c];
        let problem = KernelProblem::new(&gram, &[-1.0, 1.0], &costs, &Hinge, Constraint::free_bias()).unwrap();
        let o = optimal(&problem, &[0.0, 0.0], None);
        assert!((o.relative_gap - 1.0).abs() < 1e-9, "β = 0 must not be certified at C = {c}: {o:?}");
    }
    assert_eq!((relative(0.0, 0.0, 0.0), relative(f64::NAN, 1.0, 1.0)), (0.0, f64::INFINITY));
}

#[test]
fn rounding_far_from_the_origin_is_part_of_the_gap() {
    // Fifty points (1e9 + i, 1e9 − i): entries of the linear kernel are near 2e18, and their differences are below
    // their rounding errors.
    let values: Vec<f64> = (1..=50).flat_map(|i| [1e9 + f64::from(i), 1e9 - f64::from(i)]).collect();
    let gram = CpuGram::square(Kernel::Linear, &Points::dense_f64(50, 2, values).unwrap()).unwrap();
    let diagonal: Vec<f64> = gram.diag().iter().map(|k| 0.5 * k).collect();
    let costs = [1.0 / 25.0; 50];
    let problem = KernelProblem::new(&gram, &diagonal, &costs, &crate::loss::Above, Constraint::Sum(1.0)).unwrap();
    let o = optimal(&problem, &[0.02; 50], None);
    // Half the variance of 1, …, 50 in both features is about 208; no gap below the rounding of 1e18 is a proof of
    // that.
    assert!(o.rounding > 100.0 && o.gap >= o.rounding, "{o:?}");
    // A kernel of distances is not affected.
    let near: Vec<f64> = (1..=50).flat_map(|i| [1e9 + f64::from(i), 1e9 - f64::from(i)]).collect();
    let gram = CpuGram::square(Kernel::rbf(1e-3), &Points::dense_f64(50, 2, near).unwrap()).unwrap();
    let problem = KernelProblem::new(&gram, &[0.0; 50], &costs, &crate::loss::Above, Constraint::Sum(1.0)).unwrap();
    assert!(optimal(&problem, &[0.02; 50], None).rounding < 1e-11);
}

#[test]
fn a_possibly_indefinite_kernel_is_reported() {
    let points = Points::dense_f64(2, 1, vec![-1.0, 1.0]).unwrap();
    let known = |kernel: Kernel| CpuGram::square(kernel, &points).unwrap().accuracy().definite;
    assert!(known(Kernel::Linear) && known(Kernel::rbf(1.0)));
    assert!(known(Kernel::Poly { gamma: 1.0, coef0: 1.0, degree: 3 }));
    assert!(!known(Kernel::Poly { gamma: 1.0, coef0: -1.0, degree: 3 }));
    assert!(!known(Kernel::Sigmoid { gamma: 1.0, coef0: 0.0 }));
}

#[test]
fn bounds_on_rounding_hold_in_exact_arithmetic() {
    // Integers up to 2²⁶ with β a power of two: f is an integer below 2¹⁰⁰, known exactly as i128.
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    for _ in 0..50 {
        let (n, d) = (40, 7);
        let values: Vec<i64> = (0..n * d).map(|_| rng.random_range(-(1i64 << 26)..1 << 26)).collect();
        let beta: Vec<i64> = (0..n).map(|_| rng.random_range(-(1i64 << 20)..1 << 20)).collect();
        let points = Points::dense_f64(n, d, values.iter().map(|v| *v as f64).collect::<Vec<f64>>()).unwrap();
        let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
        let zero = vec![0.0; n];
        let costs = vec![1.0; n];
        let problem = KernelProblem::new(&gram, &zero, &costs, &Square, Constraint::None).unwrap();
        let given: Vec<f64> = beta.iter().map(|b| *b as f64).collect();
        let found = scores(&problem, &given, &control()).unwrap();
        for i in 0..n {
            let row = |i: usize| &values[i * d..(i + 1) * d];
            let dot = |j: usize| row(i).iter().zip(row(j)).map(|(a, b)| i128::from(*a) * i128::from(*b)).sum::<i128>();
            let exact: i128 = (0..n).map(|j| dot(j) * i128::from(beta[j])).sum();
            let off = (found.f[i] - exact as f64).abs();
            assert!(off <= found.error[i] + exact.abs() as f64 * rounding::UNIT, "row {i}: {off} > {}", found.error[i]);
        }
    }
}

/// A random problem: losses, costs (some zero), constraint, rows with two variables.
struct RandomProblem {
    gram: CpuGram,
    rows: Option<Vec<u32>>,
    targets: Vec<f64>,
    costs: Vec<f64>,
    losses: Vec<Arc<dyn Loss>>,
    constraint: Constraint,
}

impl RandomProblem {
    fn random(rng: &mut ChaCha8Rng, spec: LossSpec) -> Self {
        let rows_of_k = 9;
        let loss = spec.build().unwrap();
        let shape = rng.random_range(0..4);
        let n = if shape == 3 { 2 * rows_of_k } else { rows_of_k };
        let label = loss.properties().classification;
        let target = |i: usize, rng: &mut ChaCha8Rng| match label {
            true => f64::from(i as u32 % 2) * 2.0 - 1.0,
            false => rng.random_range(-3.0..3.0),
        };
        let targets = (0..n).map(|i| target(i, rng)).collect();
        let costs: Vec<f64> = (0..n)
            .map(|i| if i > 3 && rng.random_range(0..5) == 0 { 0.0 } else { 10f64.powf(rng.random_range(-1.0..1.0)) })
            .collect();
        let (constraint, losses): (_, Vec<Arc<dyn Loss>>) = match shape {
            0 => (Constraint::None, vec![loss]),
            1 => (Constraint::free_bias(), vec![loss]),
            // Reachable by either side of any box.
            2 if !label => (Constraint::Sum(0.03), vec![loss]),
            2 => (Constraint::free_bias(), vec![loss]),
            _ => {
                let of: Vec<u8> = (0..n).map(|i| (i % 2) as u8).collect();
                (Constraint::Groups { of, sums: vec![0.3, -0.3] }, vec![Arc::new(Above), Arc::new(Below)])
            }
        };
        let rows = (shape == 3).then(|| (0..n as u32).map(|i| i / 2).collect());
        Self { gram: cloud(rng, rows_of_k), rows, targets, costs, losses, constraint }
    }

    fn with<T>(&self, work: impl FnOnce(&KernelProblem<'_>) -> T) -> T {
        let losses: Vec<&dyn Loss> = self.losses.iter().map(|l| &**l).collect();
        let problem = KernelProblem {
            gram: &self.gram,
            row_of: self.rows.as_deref(),
            targets: &self.targets,
            costs: &self.costs,
            losses: if losses.len() == 1 { Losses::One(losses[0]) } else { Losses::ByGroup(&losses) },
            constraint: self.constraint.clone(),
        };
        work(&problem)
    }
}

#[test]
fn every_dual_value_is_below_every_primal_value() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for info in LossSpec::all() {
        if !info.spec.build().unwrap().properties().convex {
            continue;
        }
        for _ in 0..12 {
            let case = RandomProblem::random(&mut rng, info.spec);
            case.with(|problem| {
                let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
                for trial in 0..8 {
                    // Zero, modest, and wildly infeasible points.
                    let size = [0.0, 0.1, 1.0, 50.0][trial % 4];
                    let beta: Vec<f64> = (0..problem.len()).map(|_| rng.random_range(-1.0..=1.0) * size).collect();
                    let o = optimal(problem, &beta, None);
                    assert!(o.gap >= 0.0 && o.relative_gap.is_finite() && o.violation >= 0.0, "{} {o:?}", info.spec);
                    lowest = lowest.min(o.primal);
                    highest = highest.max(o.dual);
                    let f = kernel_product(problem, |i| beta[i], Pick::All, &control()).unwrap();
                    let point = Point { problem: &problem.samples(), f: &f, error: &[], control: &control() };
                    for shift in [-1.0, -1e-3, -1e-7, 1e-7, 1e-3, 1.0] {
                        let moved: Vec<f64> = o.bias.iter().map(|b| b + shift).collect();
                        let there = point.primal(o.squared_norm, &moved).unwrap();
                        assert!(there >= o.primal - 1e-12 * (1.0 + o.primal.abs()), "{}: better bias", info.spec);
                    }
                }
                assert!(highest <= lowest + 1e-10 * (1.0 + lowest.abs()), "{}: {highest} > {lowest}", info.spec);
            });
        }
    }
}

/// Steepest pair descent on ½βᵀKβ + pᵀβ + ½Σdβ² in a box with Σβ fixed: slow but simple.
fn descend(k: &[f64], problem: &KernelProblem<'_>) -> Vec<f64> {
    let n = problem.len();
    let terms: Vec<_> = (0..n).map(|i| problem.dual_term(i).unwrap()).collect();
    let mut beta = vec![0.0; n];
    for _ in 0..200_000 {
        let slope = |i: usize| (0..n).map(|j| k[i * n + j] * beta[j]).sum::<f64>() + terms[i].p + terms[i].d * beta[i];
        let f: Vec<f64> = (0..n).map(slope).collect();
        let up = (0..n).filter(|&i| beta[i] < terms[i].hi).min_by(|a, b| f[*a].total_cmp(&f[*b])).unwrap();
        let down = (0..n).filter(|&i| beta[i] > terms[i].lo).max_by(|a, b| f[*a].total_cmp(&f[*b])).unwrap();
        if f[down] - f[up] < 1e-12 {
            break;
        }
        let curvature = k[up * n + up] + k[down * n + down] - 2.0 * k[up * n + down] + terms[up].d + terms[down].d;
        let step = ((f[down] - f[up]) / curvature).min(terms[up].hi - beta[up]).min(beta[down] - terms[down].lo);
        beta[up] += step;
        beta[down] -= step;
    }
    beta
}

#[test]
fn an_optimum_is_recognised_and_a_perturbed_one_detected() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let n = 24;
    for loss in [&Hinge as &dyn Loss, &SquaredHinge, &Square, &Pinball { tau: 0.3 }] {
        let gram = cloud(&mut rng, n);
        let mut k = vec![0.0; n * n];
        gram.block_f64(Pick::All, Pick::All, &mut k, &control()).unwrap();
        let targets: Vec<f64> = (0..n).map(|i| if i % 3 == 0 { 1.0 } else { -1.0 }).collect();
        let costs: Vec<f64> = (0..n).map(|_| rng.random_range(0.5..3.0)).collect();
        let problem = KernelProblem::new(&gram, &targets, &costs, loss, Constraint::free_bias()).unwrap();
        let beta = descend(&k, &problem);
        let o = optimal(&problem, &beta, None);
        // A violation of 1e-12 over 24 variables of size ≤ 3, and a bias found to the same precision.
        assert!(o.gap <= 1e-10 && o.violation <= 1e-8 && o.feasible, "{} {o:?}", loss.name());
        for i in 0..n {
            let mut wrong = beta.clone();
            wrong[i] += if wrong[i].abs() > 0.2 { -0.1 * wrong[i].signum() } else { 0.1 };
            let o = optimal(&problem, &wrong, None);
            assert!(o.relative_gap > 1e-6, "{} {i}: {o:?}", loss.name());
            assert!(!o.feasible);
        }
        // The solution of another problem.
        let other: Vec<f64> = costs.iter().map(|c| c * 0.9).collect();
        let smaller = KernelProblem::new(&gram, &targets, &other, loss, Constraint::free_bias()).unwrap();
        assert!(optimal(&smaller, &beta, None).relative_gap > 1e-6, "{}", loss.name());
    }
}

#[test]
fn a_duplicated_sample_equals_a_doubled_cost() {
    let gram = line(&[-1.0, 0.3, 1.0]);
    let once = KernelProblem::new(&gram, &[-1.0, 1.0, 1.0], &[2.0, 1.0, 1.0], &Hinge, Constraint::free_bias()).unwrap();
    let rows = [0, 0, 1, 2];
    let twice =
        KernelProblem { row_of: Some(&rows), targets: &[-1.0, -1.0, 1.0, 1.0], costs: &[1.0; 4], ..once.clone() };
    let a = optimal(&once, &[-0.9, 0.7, 0.2], None);
    let b = optimal(&twice, &[-0.6, -0.3, 0.7, 0.2], None);
    for (x, y) in [(a.primal, b.primal), (a.dual, b.dual), (a.gap, b.gap), (a.violation, b.violation)] {
        assert!((x - y).abs() < 1e-13, "{a:?} {b:?}");
    }
    // A sample with cost zero has no effect: its β, its target and its label do not matter.
    let with = KernelProblem::new(&gram, &[-1.0, 1.0, 1.0], &[1.0, 0.0, 1.0], &Hinge, Constraint::free_bias()).unwrap();
    let o = optimal(&with, &[-0.5, 0.0, 0.5], None);
    assert!(o.gap < 1e-12 && o.primal == 0.5, "{o:?}");
    assert!(!optimal(&with, &[-0.5, 0.2, 0.3], None).feasible);
}

#[test]
fn rounding_is_repaired_and_infeasible_constraints_are_reported() {
    let gram = line(&[-1.0, 1.0]);
    let (y, c) = ([-1.0, 1.0], [10.0, 10.0]);
    let problem = KernelProblem::new(&gram, &y, &c, &Hinge, Constraint::free_bias()).unwrap();
    let o = optimal(&problem, &[-0.5, 0.5 + 1e-13], None);
    assert!(o.feasible && o.infeasibility > 0.0 && o.gap < 1e-12, "{o:?}");
    // Σβ = 30 needs more than the boxes hold.
    let beyond = KernelProblem { constraint: Constraint::Sum(30.0), ..problem.clone() };
    let o = optimal(&beyond, &[-0.5, 0.5], None);
    assert!(!o.feasible && o.dual == f64::NEG_INFINITY && o.gap == f64::INFINITY);
    // NaN is infeasible and does not panic.
    assert!(!optimal(&problem, &[f64::NAN, 0.5], Some(&[f64::NAN])).feasible);
}

#[test]
fn repairing_a_sum_does_not_free_a_bounded_variable() {
    // The two points of the first test, and two at 0 with contradicting labels: α = (½, ½, 100, 100).
    let gram = line(&[-1.0, 1.0, 0.0, 0.0]);
    let (y, c) = ([-1.0, 1.0, 1.0, -1.0], [10.0, 10.0, 100.0, 100.0]);
    let problem = KernelProblem::new(&gram, &y, &c, &Hinge, Constraint::free_bias()).unwrap();
    for off in [1e-8, -1e-8] {
        let o = optimal(&problem, &[-0.5, 0.5 + off, 100.0, -100.0], None);
        assert!(o.violation < 1e-7 && o.relative_gap < 1e-9, "{o:?}");
    }
}

#[test]
fn scores_that_are_given_are_used_and_threads_do_not_matter() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let n = 20_000;
    let identity = PrecomputedGram::new({
        let starts: Vec<usize> = (0..=n).collect();
        let columns: Vec<u32> = (0..n as u32).collect();
        crate::data::Csr::new(n, starts, columns, vec![1.0f64; n]).unwrap().into()
    });
    let targets: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let half: Vec<f64> = (0..n / 2).map(|_| rng.random_range(0.0..1.0)).collect();
    let beta: Vec<f64> = (0..n).map(|i| targets[i] * half[i / 2]).collect();
    let costs = vec![1.0; n];
    let problem = KernelProblem::new(&identity, &targets, &costs, &Hinge, Constraint::free_bias()).unwrap();
    let given = scores(&problem, &beta, &control()).unwrap();
    assert_eq!(given.values(), beta);
    let one = certify(&problem, &beta, None, Some(&given), &control()).unwrap();
    let two = certify(&problem, &beta, None, None, &Control::unlimited(Threads::new(3))).unwrap();
    assert_eq!(one, two);
}

#[test]
fn non_convex_losses_report_stationarity() {
    let gram = line(&[-1.0, 1.0]);
    let loss = Sigmoid { eta: 2.0 };
    let (y, c) = ([-1.0, 1.0], [3.0, 3.0]);
    let problem = KernelProblem::new(&gram, &y, &c, &loss, Constraint::free_bias()).unwrap();
    // By symmetry β = (−a, a), f = ±2a; stationary where a = 3·L′(1 − 2a), found by bisection.
    let residual = |a: f64| a + 3.0 * loss.slope(1.0, 2.0 * a);
    let (mut lo, mut hi) = (0.0, 0.4999);
    assert!(residual(lo) < 0.0 && residual(hi) > 0.0);
    for _ in 0..200 {
        let mid = 0.5 * (lo + hi);
        if residual(mid) > 0.0 { hi = mid } else { lo = mid }
    }
    let certificate = certify(&problem, &[-lo, lo], Some(&[0.0]), None, &control()).unwrap();
    let Certificate::Stationarity(s) = &certificate else { panic!("{certificate:?}") };
    assert!(s.stationarity < 1e-6 && certificate.gap().is_none(), "{s:?}");
    let expected = 2.0 * lo * lo + 6.0 * loss.value(1.0, 2.0 * lo);
    assert!((s.objective - expected).abs() < 1e-12);
    let off = certify(&problem, &[-lo - 0.1, lo + 0.1], Some(&[0.0]), None, &control()).unwrap();
    assert!(off.violation() > 1e-2);
    // On the kink u = 0 every β between 0 and c·L′(0) is stationary.
    let kink = certify(&problem, &[-0.5, 0.5], Some(&[0.0]), None, &control()).unwrap();
    let steepest = 3.0 * 2.0 * loss.eta / 4.0 / (loss.eta.cosh() * loss.eta.cosh());
    assert!((kink.violation() - (0.5 - steepest) / 3.0).abs() < 1e-5, "{kink:?}");
    // Scores 2e-4 beside the kink, β between the slopes there: the residual is that distance, not the jump of the
    // slope.
    let costs = [30.0, 30.0];
    let with_cost = KernelProblem::new(&gram, &y, &costs, &loss, Constraint::free_bias()).unwrap();
    let beside = certify(&with_cost, &[-0.5001, 0.5001], Some(&[0.0]), None, &control()).unwrap();
    assert!((beside.violation() - 2e-4).abs() < 1e-8, "{beside:?}");
}

#[test]
fn the_display_shows_bounds_and_worst_rows() {
    let gram = line(&[-1.0, 1.0]);
    let problem = KernelProblem::new(&gram, &[-1.0, 1.0], &[1.0, 1.0], &Hinge, Constraint::free_bias()).unwrap();
    let text = certify(&problem, &[-0.25, 0.25], None, None, &control()).unwrap().to_string();
    assert!(text.contains("primal    1.125") && text.contains("row 0 (50.0 % of the gap)"), "{text}");
}
