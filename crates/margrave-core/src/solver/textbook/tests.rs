//! Tests of both textbook solvers against solutions worked out by hand and a slow reference that shares no code with
//! them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use margrave_testkit::generate::{Sample, contradicting_duplicates, friedman, sinc, two_gaussians};
use margrave_testkit::qp::BoxQp;

use super::smo::{self, RecordUnit, SmoOptions, SmoSolution};
use super::svmtorch::{self, StopRule, SvmTorchOptions, SvmTorchSolution};
use crate::backend::cpu::CpuGram;
use crate::certificate::certify;
use crate::control::{Budget, Control, Status, Threads};
use crate::data::Points;
use crate::gram::{Gram, Pick, PrecomputedGram};
use crate::kernel::Kernel;
use crate::loss::{Epsilon, Hinge, Loss, Square};
use crate::observe::{Recorder, Silent};
use crate::problem::{Constraint, KernelProblem};
use crate::solver::Solution;

fn tube(epsilon: f64) -> Epsilon {
    Epsilon { epsilon }
}

fn control() -> Control {
    Control::unlimited(Threads::one())
}

fn gram(kernel: Kernel, sample: &Sample) -> CpuGram {
    CpuGram::square(kernel, &Points::dense_f64(sample.n, sample.d, sample.x.clone()).unwrap()).unwrap()
}

fn entries(gram: &dyn Gram) -> Vec<f64> {
    let (n, m) = gram.shape();
    let mut k = vec![0.0; n * m];
    gram.block_f64(Pick::All, Pick::All, &mut k, &control()).unwrap();
    k
}

fn one_dimension(x: &[f64]) -> CpuGram {
    CpuGram::square(Kernel::Linear, &Points::dense_f64(x.len(), 1, x.to_vec()).unwrap()).unwrap()
}

fn run_smo(gram: &dyn Gram, y: &[f64], c: f64, options: &SmoOptions) -> SmoSolution {
    let costs = vec![c; y.len()];
    let problem = KernelProblem::new(gram, y, &costs, &Hinge, Constraint::free_bias()).unwrap();
    smo::solve(&problem, options, &control(), &mut Silent).unwrap()
}

fn run_torch(gram: &dyn Gram, y: &[f64], c: f64, loss: &dyn Loss, options: &SvmTorchOptions) -> SvmTorchSolution {
    let costs = vec![c; y.len()];
    let problem = KernelProblem::new(gram, y, &costs, loss, Constraint::free_bias()).unwrap();
    svmtorch::solve(&problem, options, &control(), &mut Silent).unwrap()
}

fn tight_smo() -> SmoOptions {
    SmoOptions { tol: 1e-7, max_passes: 20, ..SmoOptions::default() }
}

fn tight_torch() -> SvmTorchOptions {
    SvmTorchOptions { tol: 1e-8, ..SvmTorchOptions::default() }
}

fn assert_near(found: &[f64], expected: &[f64], tol: f64) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() <= tol, "found {found:?}, expected {expected:?}");
    }
}

/// The certified P − D of a solution, after checking its scores and its feasibility.
fn gap(gram: &dyn Gram, y: &[f64], c: f64, loss: &dyn Loss, solution: &Solution) -> f64 {
    let (k, n, costs) = (entries(gram), y.len(), vec![c; y.len()]);
    for i in 0..n {
        let f: f64 = (0..n).map(|j| k[i * n + j] * solution.beta[j]).sum();
        if let Some(scores) = &solution.scores {
            assert!((scores[i] - f).abs() <= 1e-9 * (1.0 + f.abs()), "score {i}: {} and {f}", scores[i]);
        }
    }
    let problem = KernelProblem::new(gram, y, &costs, loss, Constraint::free_bias()).unwrap();
    let found = certify(&problem, &solution.beta, Some(&solution.bias), None, &control()).unwrap();
    assert!(found.optimality().unwrap().feasible());
    found.gap().unwrap()
}

#[test]
fn three_points_of_paper_004_in_the_plane_of_x_and_x_squared() {
    // ψ(x) = (x, x²) of −1, 0, 1, labels +, −, +: w = (0, 2), b = −1, so α = (1, 2, 1), D = 4 − ½·4 = 2.
    let points = Points::dense_f64(3, 2, vec![-1.0, 1.0, 0.0, 0.0, 1.0, 1.0]).unwrap();
    let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
    let y = [1.0, -1.0, 1.0];
    let found = run_smo(&gram, &y, 10.0, &tight_smo());
    assert_eq!(found.solution.status, Status::Optimal);
    assert_near(&found.solution.beta, &[1.0, -2.0, 1.0], 1e-5);
    assert_near(&found.solution.bias, &[-1.0], 1e-5);
    let last = found.records.last().unwrap();
    assert!((last.dual - 2.0).abs() < 1e-5 && (last.primal - 2.0).abs() < 1e-4, "{last:?}");

    let found = run_torch(&gram, &y, 10.0, &Hinge, &tight_torch()).solution;
    assert_near(&found.beta, &[1.0, -2.0, 1.0], 1e-7);
    assert_near(&found.bias, &[-1.0], 1e-7);
}

#[test]
fn two_points_of_two_classes_match_the_closed_form() {
    // x = 1 and 3: κ = 4, α = 2/κ = ½ each, w = 1, b = −2. One pair step is exact.
    let gram = one_dimension(&[1.0, 3.0]);
    let found = run_smo(&gram, &[-1.0, 1.0], 1.0, &tight_smo());
    assert_eq!(found.solution.iterations, 1);
    assert_near(&found.solution.beta, &[-0.5, 0.5], 1e-15);
    assert_near(&found.solution.bias, &[-2.0], 1e-15);
    // C = 0.1 clips both: f = 0.2x, b ∈ [−1 − 0.2, 1 − 0.6], its middle −0.4.
    let found = run_smo(&gram, &[-1.0, 1.0], 0.1, &tight_smo()).solution;
    assert_near(&found.beta, &[-0.1, 0.1], 0.0);
    assert_near(&found.bias, &[-0.4], 1e-15);
    assert_eq!(found.violation, 0.0);
}

#[test]
fn two_points_on_a_line_match_the_closed_form() {
    // (0, 0) and (1, 1), ε = 0.1: the flattest line within the tube has w = 0.8 and b = 0.1.
    let gram = one_dimension(&[0.0, 1.0]);
    let found = run_torch(&gram, &[0.0, 1.0], 10.0, &tube(0.1), &tight_torch());
    assert_near(&found.solution.beta, &[-0.8, 0.8], 1e-15);
    assert_near(&found.solution.bias, &[0.1], 1e-15);
    assert_eq!(found.lambda_eq, -found.solution.bias[0]);
    // C = ½ clips both: w = ½ and b anywhere in [0.1, 0.4].
    let found = run_torch(&gram, &[0.0, 1.0], 0.5, &tube(0.1), &tight_torch()).solution;
    assert_near(&found.beta, &[-0.5, 0.5], 0.0);
    assert_near(&found.bias, &[0.25], 1e-15);
    // Targets within one tube: β = 0 is optimal and nothing moves.
    let found = run_torch(&gram, &[0.0, 0.1], 10.0, &tube(0.1), &tight_torch()).solution;
    assert_eq!((found.iterations, found.status), (0, Status::Optimal));
    assert_near(&found.bias, &[0.05], 1e-15);
}

#[test]
fn both_agree_with_projected_gradient_on_classification() {
    for (seed, c) in [(1, 0.3), (2, 5.0)] {
        let sample = two_gaussians(24, 3, 1.5, seed);
        let gram = gram(Kernel::rbf(0.3), &sample);
        let (n, k) = (sample.n, entries(&gram));
        let q: Vec<f64> = (0..n * n).map(|at| sample.y[at / n] * sample.y[at % n] * k[at]).collect();
        let reference =
            BoxQp { q: &q, p: &vec![-1.0; n], lo: &vec![0.0; n], hi: &vec![c; n], z: Some(&sample.y), sum: 0.0 };
        let best = reference.objective(&reference.solve(20_000));
        let found = run_smo(&gram, &sample.y, c, &SmoOptions { tol: 1e-5, ..tight_smo() }).solution;
        let torch = run_torch(&gram, &sample.y, c, &Hinge, &tight_torch()).solution;
        for (name, solution, tol) in [("smo", found, 1e-5), ("svmtorch", torch, 1e-8)] {
            assert_eq!(solution.status, Status::Optimal, "{name}, seed {seed}");
            let alpha: Vec<f64> = solution.beta.iter().zip(&sample.y).map(|(b, y)| b * y).collect();
            // A violation of tol costs at most tol·c per variable; the reference has an error of its own.
            let slack = 2.0 * tol * c * n as f64 + 1e-9;
            assert!((reference.objective(&alpha) - best).abs() <= slack, "{name}, seed {seed}");
            let gap = gap(&gram, &sample.y, c, &Hinge, &solution);
            assert!(gap >= -1e-10 && gap <= slack, "{name}, seed {seed}: gap {gap}");
        }
    }
}

#[test]
fn svmtorch_agrees_with_projected_gradient_on_regression() {
    for (seed, c, epsilon) in [(3, 1.0, 0.1), (4, 20.0, 0.05), (5, 2.0, 0.0)] {
        let sample = sinc(20, 0.1, seed);
        let gram = gram(Kernel::rbf(0.5), &sample);
        let (n, k) = (sample.n, entries(&gram));
        let q: Vec<f64> = (0..4 * n * n).map(|at| k[(at / (2 * n)) % n * n + at % (2 * n) % n]).collect();
        let p: Vec<f64> = sample.y.iter().map(|y| y + epsilon).chain(sample.y.iter().map(|y| y - epsilon)).collect();
        let (mut lo, mut hi) = (vec![0.0; 2 * n], vec![0.0; 2 * n]);
        hi[..n].fill(c);
        lo[n..].fill(-c);
        let reference = BoxQp { q: &q, p: &p, lo: &lo, hi: &hi, z: Some(&vec![1.0; 2 * n]), sum: 0.0 };
        let best = reference.objective(&reference.solve(40_000));
        let loss = tube(epsilon);
        for rule in [StopRule::Average, StopRule::Pair] {
            let options = SvmTorchOptions { rule, record_every: 1, ..tight_torch() };
            let found = run_torch(&gram, &sample.y, c, &loss, &options);
            let slack = 4e-8 * c * n as f64 + 1e-6;
            let dual = found.records.last().unwrap().dual;
            assert!((dual + best).abs() <= slack, "seed {seed}: {dual} and {}", -best);
            let gap = gap(&gram, &sample.y, c, &loss, &found.solution);
            assert!(gap >= -1e-9 && gap <= 4e-8 * c * n as f64, "seed {seed}: gap {gap}");
        }
    }
}

#[test]
fn the_dual_objective_never_falls_and_never_exceeds_the_primal() {
    let sample = two_gaussians(40, 2, 1.0, 6);
    let gram = gram(Kernel::rbf(0.5), &sample);
    let options = SmoOptions { record_unit: RecordUnit::Pair, ..SmoOptions::default() };
    let smo = run_smo(&gram, &sample.y, 2.0, &options);
    assert_eq!(smo.records.len() as u64, smo.solution.iterations);
    let options = SvmTorchOptions { record_every: 1, ..SvmTorchOptions::default() };
    let torch = run_torch(&gram, &sample.y, 2.0, &tube(0.1), &options);
    let shrunk =
        run_torch(&gram, &sample.y, 2.0, &tube(0.1), &SvmTorchOptions { shrink_after: Some(10), ..options.clone() });
    for records in [&smo.records, &torch.records, &shrunk.records] {
        assert!(records.len() > 20);
        for pair in records.windows(2) {
            assert!(pair[1].dual >= pair[0].dual - 1e-12 * (1.0 + pair[0].dual.abs()), "{pair:?}");
        }
        assert!(records.iter().all(|r| r.primal >= r.dual - 1e-10));
    }
}

#[test]
fn the_average_rule_stops_no_later_than_the_pair_rule() {
    let mut earlier = 0;
    for seed in 0..8 {
        let sample = friedman(60, 5, 0.5, seed);
        let gram = gram(Kernel::rbf(0.5), &sample);
        let with =
            |rule| run_torch(&gram, &sample.y, 5.0, &tube(0.2), &SvmTorchOptions { rule, tol: 1e-2, ..tight_torch() });
        let (average, pair) = (with(StopRule::Average), with(StopRule::Pair));
        assert!(average.solution.iterations <= pair.solution.iterations, "seed {seed}");
        earlier += u32::from(average.solution.iterations < pair.solution.iterations);
        assert!(average.violation_average <= 1e-2 && pair.violation_pair <= 1e-2);
        // (13) implies (10), and (10) bounds the pair by 2·tol.
        assert!(pair.violation_average <= pair.violation_pair && average.violation_pair <= 2e-2, "seed {seed}");
    }
    assert!(earlier > 0, "the two rules never differed: the test has no power");
}

#[test]
fn shrinking_reaches_the_same_optimum_with_fewer_active_variables() {
    let sample = friedman(120, 5, 0.5, 9);
    let gram = gram(Kernel::rbf(0.5), &sample);
    let plain = SvmTorchOptions { tol: 1e-6, rule: StopRule::Pair, ..SvmTorchOptions::default() };
    let (full, shrunk) = (
        run_torch(&gram, &sample.y, 1.0, &tube(0.5), &plain),
        run_torch(&gram, &sample.y, 1.0, &tube(0.5), &SvmTorchOptions { shrink_after: Some(50), ..plain.clone() }),
    );
    assert!(shrunk.smallest_active < full.smallest_active, "nothing was shrunk");
    assert!(shrunk.rechecks > 0);
    for found in [&full, &shrunk] {
        assert_eq!(found.solution.status, Status::Optimal);
        let gap = gap_of(&gram, &sample, &found.solution);
        assert!((-1e-10..=1e-6 * 2.0 * 120.0).contains(&gap), "{gap}");
    }
    fn gap_of(gram: &CpuGram, sample: &Sample, solution: &Solution) -> f64 {
        gap(gram, &sample.y, 1.0, &tube(0.5), solution)
    }
}

#[test]
fn equal_seeds_give_equal_runs_and_different_seeds_different_runs() {
    let sample = two_gaussians(30, 2, 1.0, 10);
    let gram = gram(Kernel::rbf(0.5), &sample);
    let run = |seed| run_smo(&gram, &sample.y, 1.0, &SmoOptions { seed, ..SmoOptions::default() });
    let (a, b, c) = (run(1), run(1), run(2));
    assert_eq!((&a.records, a.sweeps), (&b.records, b.sweeps));
    assert_eq!(a.solution.beta, b.solution.beta);
    assert_ne!(a.solution.beta, c.solution.beta);
}

#[test]
fn records_are_taken_every_tau_units() {
    let sample = two_gaussians(30, 2, 1.0, 11);
    let gram = gram(Kernel::rbf(0.5), &sample);
    let run = |unit, every| {
        let options = SmoOptions { record_unit: unit, record_every: every, ..SmoOptions::default() };
        run_smo(&gram, &sample.y, 1.0, &options)
    };
    let pairs = run(RecordUnit::Pair, 7);
    let expected: Vec<u64> = (1..=pairs.solution.iterations / 7).map(|t| 7 * t).collect();
    assert_eq!(pairs.records.iter().map(|r| r.iteration).collect::<Vec<_>>(), expected);
    let sweeps = run(RecordUnit::Sweep, 1);
    assert_eq!(sweeps.records.len() as u64, sweeps.sweeps);
    let outer = run(RecordUnit::Outer, 1);
    assert_eq!(outer.records.len() as u64, outer.outer_iterations);
    assert_eq!(outer.records.last().unwrap().beta, outer.solution.beta);
    assert!(run(RecordUnit::Pair, 0).records.is_empty());
}

#[test]
fn duplicates_with_flipped_labels_and_flat_kernels_terminate() {
    let sample = contradicting_duplicates(5, 8, 2, 12);
    let duplicates = gram(Kernel::rbf(1.0), &sample);
    // All points equal: every κ is 0.
    let same = one_dimension(&[1.0; 6]);
    // Not positive semi-definite: κ = −2 for every pair.
    let indefinite = PrecomputedGram::new(Points::dense_f64(2, 2, vec![0.0, 1.0, 1.0, 0.0]).unwrap());
    let y6 = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0];
    for (gram, y) in [(&duplicates as &dyn Gram, &sample.y[..]), (&same, &y6), (&indefinite, &y6[..2])] {
        let found = run_smo(gram, y, 1.0, &SmoOptions::default()).solution;
        assert!(matches!(found.status, Status::Optimal | Status::Stalled), "{found:?}");
        let found = run_torch(gram, y, 1.0, &Hinge, &SvmTorchOptions::default()).solution;
        assert_eq!(found.status, Status::Optimal);
        let found = run_torch(gram, y, 1.0, &tube(0.1), &SvmTorchOptions::default()).solution;
        assert_eq!(found.status, Status::Optimal);
    }
    // With all points equal only the bias can vary: P = D = Σα at α = C for both classes.
    let found = run_torch(&same, &y6, 1.0, &Hinge, &SvmTorchOptions::default()).solution;
    assert_near(&found.beta, &y6, 0.0);
}

#[test]
fn one_class_one_point_and_extreme_costs_are_solved() {
    let found = run_smo(&one_dimension(&[1.0, 2.0]), &[1.0, 1.0], 1.0, &SmoOptions::default()).solution;
    assert_eq!((found.status, &found.beta[..], found.bias[0]), (Status::Optimal, &[0.0, 0.0][..], 1.0));
    let found = run_smo(&one_dimension(&[1.0]), &[-1.0], 1.0, &SmoOptions::default()).solution;
    assert_eq!((found.status, found.bias[0]), (Status::Optimal, -1.0));
    let found = run_torch(&one_dimension(&[1.0]), &[3.0], 1.0, &tube(0.1), &SvmTorchOptions::default()).solution;
    assert_eq!((found.status, found.bias[0]), (Status::Optimal, 3.0));

    let sample = two_gaussians(30, 2, 3.0, 13);
    let gram = gram(Kernel::rbf(0.5), &sample);
    for c in [1e-8, 1e8] {
        let found = run_smo(&gram, &sample.y, c, &SmoOptions::default()).solution;
        assert_eq!(found.status, Status::Optimal, "C = {c}");
        assert!(found.beta.iter().any(|b| *b != 0.0), "C = {c}");
        let found = run_torch(&gram, &sample.y, c, &Hinge, &SvmTorchOptions::default()).solution;
        assert_eq!(found.status, Status::Optimal, "C = {c}");
    }
}

#[test]
fn a_zero_cost_removes_a_sample_and_a_doubled_cost_repeats_it() {
    let sample = sinc(16, 0.1, 14);
    let kernel = Kernel::rbf(0.5);
    let keep: Vec<usize> = (0..14).collect();
    let mut costs = vec![1.0; 16];
    (costs[14], costs[15], costs[0]) = (0.0, 0.0, 2.0);
    let repeated: Vec<usize> = std::iter::once(0).chain(keep.iter().copied()).collect();
    let weighted = gram(kernel, &sample);
    let loss = tube(0.05);
    let problem = KernelProblem::new(&weighted, &sample.y, &costs, &loss, Constraint::free_bias()).unwrap();
    let by_cost = svmtorch::solve(&problem, &tight_torch(), &control(), &mut Silent).unwrap().solution;
    let plain = sample.take(&repeated);
    let by_rows = run_torch(&gram(kernel, &plain), &plain.y, 1.0, &tube(0.05), &tight_torch()).solution;
    assert_eq!(by_cost.beta[14..], [0.0, 0.0]);
    assert_near(&by_cost.scores.unwrap()[1..14], &by_rows.scores.unwrap()[2..], 1e-6);
    assert_near(&by_cost.bias, &by_rows.bias, 1e-6);
}

#[test]
fn budgets_observers_and_cancel_flags_end_a_run() {
    let sample = two_gaussians(200, 2, 0.5, 15);
    let gram = gram(Kernel::rbf(0.5), &sample);
    let costs = vec![100.0; sample.n];
    let problem = KernelProblem::new(&gram, &sample.y, &costs, &Hinge, Constraint::free_bias()).unwrap();
    let late = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::one());
    let cancelled = control().with_cancel(Arc::new(AtomicBool::new(true)));
    for (control, status) in [(late, Status::TimeLimit), (cancelled, Status::Interrupted)] {
        let found = smo::solve(&problem, &SmoOptions::default(), &control, &mut Silent).unwrap().solution;
        assert_eq!(found.status, status);
        let found = svmtorch::solve(&problem, &SvmTorchOptions::default(), &control, &mut Silent).unwrap().solution;
        assert_eq!((found.status, found.beta.len()), (status, sample.n));
    }
    let options = SmoOptions { max_pairs: Some(5), ..SmoOptions::default() };
    let found = smo::solve(&problem, &options, &control(), &mut Silent).unwrap().solution;
    assert_eq!((found.status, found.iterations), (Status::IterationLimit, 5));
    let options = SvmTorchOptions { max_iterations: Some(5), ..SvmTorchOptions::default() };
    let mut recorder = Recorder::default();
    let found = svmtorch::solve(&problem, &options, &control(), &mut recorder).unwrap().solution;
    assert_eq!((found.status, found.iterations), (Status::IterationLimit, 5));
    assert_eq!((recorder.begin.unwrap().solver, recorder.status), ("svmtorch", Some(Status::IterationLimit)));
}

#[test]
fn a_small_row_cache_only_changes_the_number_of_entries_computed() {
    let sample = two_gaussians(40, 2, 1.0, 16);
    let (small, large) = (gram(Kernel::rbf(0.5), &sample), gram(Kernel::rbf(0.5), &sample));
    let a = run_smo(&small, &sample.y, 1.0, &SmoOptions { memory: 0, ..SmoOptions::default() });
    let b = run_smo(&large, &sample.y, 1.0, &SmoOptions::default());
    assert_eq!(a.solution.beta, b.solution.beta);
    // Every row at most once, and once more for the final check of the scores.
    assert!(small.entries() > large.entries() && large.entries() <= 2 * 40 * 40);
}

#[test]
fn problems_not_covered_by_the_papers_are_rejected_with_a_reason() {
    let gram = one_dimension(&[1.0, 2.0]);
    let (y, costs) = ([1.0, -1.0], [1.0, 1.0]);
    let refused = |loss: &dyn Loss, y: &[f64], constraint: Constraint| {
        let problem = KernelProblem::new(&gram, y, &costs, loss, constraint).unwrap();
        smo::solve(&problem, &SmoOptions::default(), &control(), &mut Silent).unwrap_err().to_string()
    };
    assert!(refused(&tube(0.1), &y, Constraint::free_bias()).contains("only the hinge"));
    assert!(refused(&Hinge, &[1.0, 2.0], Constraint::free_bias()).contains("target 2"));
    assert!(refused(&Hinge, &y, Constraint::None).contains("decomposition"));
    let problem = KernelProblem::new(&gram, &y, &costs, &Square, Constraint::free_bias()).unwrap();
    let error = svmtorch::solve(&problem, &SvmTorchOptions::default(), &control(), &mut Silent).unwrap_err();
    assert!(error.to_string().contains("the square loss"), "{error}");
    assert!(SmoOptions { tol: f64::NAN, ..SmoOptions::default() }.check().is_err());
    assert!(SmoOptions { max_passes: 0, ..SmoOptions::default() }.check().is_err());
    assert!(SvmTorchOptions { tol: 0.0, ..SvmTorchOptions::default() }.check().is_err());
    assert!(SvmTorchOptions { shrink_after: Some(0), ..SvmTorchOptions::default() }.check().is_err());
}
