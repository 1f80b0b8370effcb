//! The machine of Crammer and Singer on a family of small problems: cost × scaling × bias × data set. It must end, and the certificate
//! must find a relative gap, gap / max(|P|, |D|), of at most what was asked for.
//!
//! A seeded sample runs by default; `MARGRAVE_FAMILY=full` runs the whole product.

use margrave_core::certificate::certify_crammer_singer;
use margrave_core::data::{Csr, Points};
use margrave_core::observe::{Recorder, Silent};
use margrave_core::problem::Bias;
use margrave_core::solver::Stop;
use margrave_core::solver::linear::{CrammerSinger, Options, solve_crammer_singer};
use margrave_core::{Budget, Control, Status, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const COSTS: [f64; 6] = [1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4];
const BIASES: [Bias; 3] = [Bias::None, Bias::Penalised { scaling: 1.0 }, Bias::Penalised { scaling: 10.0 }];

struct Set {
    name: &'static str,
    k: usize,
    d: usize,
    x: Vec<f64>,
    codes: Vec<u32>,
    weights: Vec<f64>,
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0
}

/// Classes about centres, `spread` apart.
fn set(name: &'static str, n: usize, d: usize, k: usize, spread: f64) -> Set {
    let mut rng = ChaCha8Rng::seed_from_u64(name.len() as u64 + n as u64);
    let centres: Vec<f64> = (0..k * d).map(|_| spread * normal(&mut rng)).collect();
    let codes: Vec<u32> = (0..n).map(|_| rng.random_range(0..k as u32)).collect();
    let x = (0..n * d).map(|at| centres[codes[at / d] as usize * d + at % d] + normal(&mut rng)).collect();
    Set { name, k, d, x, codes, weights: vec![1.0; n] }
}

fn sets() -> Vec<Set> {
    let mut far = set("far from the origin", 60, 3, 3, 1.0);
    far.x.iter_mut().for_each(|x| *x += 1e3);
    let mut scales = set("scales from 1e-3 to 1e3", 80, 7, 4, 0.5);
    scales.x.iter_mut().enumerate().for_each(|(at, x)| *x *= 10f64.powi((at % 7) as i32 - 3));
    let mut sorted = set("sorted by class", 90, 4, 3, 1.0);
    let mut order: Vec<usize> = (0..90).collect();
    order.sort_by_key(|&i| sorted.codes[i]);
    sorted.x = order.iter().flat_map(|&i| sorted.x[i * 4..(i + 1) * 4].to_vec()).collect();
    sorted.codes = order.iter().map(|&i| sorted.codes[i]).collect();
    let mut weighted = set("weights and empty rows", 60, 5, 3, 1.0);
    weighted.weights = (0..60).map(|i| [1.0, 0.0, 0.01, 30.0][i % 4]).collect();
    weighted.x[..15].fill(0.0);
    let mut twice = set("contradicting copies", 60, 3, 3, 1.0);
    for i in 30..60 {
        let row = twice.x[(i - 30) * 3..(i - 29) * 3].to_vec();
        twice.x[i * 3..(i + 1) * 3].copy_from_slice(&row);
    }
    vec![
        set("apart", 90, 4, 3, 3.0),
        set("overlapping", 120, 4, 3, 0.3),
        set("many classes", 150, 6, 12, 1.0),
        set("wide", 25, 60, 4, 0.3),
        set("two classes", 60, 3, 2, 0.5),
        set("tiny", 3, 2, 3, 1.0),
        far,
        scales,
        sorted,
        weighted,
        twice,
    ]
}

fn points(set: &Set, standardise: bool) -> Points {
    let (n, d) = (set.codes.len(), set.d);
    let mut x = set.x.clone();
    for j in (0..d).filter(|_| standardise) {
        let column = |i: usize| set.x[i * d + j];
        let mean = (0..n).map(column).sum::<f64>() / n as f64;
        let unit = ((0..n).map(|i| (column(i) - mean) * (column(i) - mean)).sum::<f64>() / n as f64).sqrt();
        (0..n).for_each(|i| x[i * d + j] = (column(i) - mean) / unit);
    }
    Points::dense_f64(n, d, x).unwrap()
}

/// The certified gap / max(|P|, |D|), and the violation.
fn certified(x: &Points, codes: &[u32], costs: &[f64], bias: Bias, s: &CrammerSinger) -> (f64, f64) {
    let control = Control::unlimited(Threads::one());
    let c = certify_crammer_singer(x, codes, costs, bias, &s.weights, &s.bias, &s.alpha, &control).unwrap();
    let o = c.optimality().unwrap();
    assert!(o.feasible(), "{o}");
    // Without the bound on rounding, which solvers do not count.
    let gap = o.gap() - o.rounding();
    (if gap <= 0.0 { 0.0 } else { gap / o.primal().abs().max(o.dual().abs()) }, o.violation())
}

fn limited(seconds: f64) -> Control {
    Control::start(&Budget { seconds: Some(seconds), ..Budget::default() }, Threads::one())
}

#[test]
fn every_problem_ends_at_the_gap_asked_for() {
    let full = std::env::var("MARGRAVE_FAMILY").is_ok_and(|v| v == "full");
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut failures, mut count) = (Vec::new(), 0);
    for set in sets() {
        for standardise in [false, true] {
            let x = points(&set, standardise);
            for c in COSTS {
                let costs: Vec<f64> = set.weights.iter().map(|w| c * w).collect();
                for bias in BIASES {
                    if !full && rng.random_range(0..3) > 0 {
                        continue;
                    }
                    count += 1;
                    let gap = [1e-4, 1e-6][count % 2];
                    let options = Options { stop: Stop { tol: None, gap: Some(gap) }, ..Options::default() };
                    let started = std::time::Instant::now();
                    let s = solve_crammer_singer(
                        &x,
                        &set.codes,
                        set.k,
                        &costs,
                        bias,
                        &options,
                        &limited(20.0),
                        &mut Silent,
                    )
                    .unwrap();
                    let (found, _) = certified(&x, &set.codes, &costs, bias, &s);
                    let what = format!(
                        "{}, standardised {standardise}, C = {c}, {bias:?}: {} {found:.1e}, {} steps, {:.2} s",
                        set.name,
                        s.status,
                        s.iterations,
                        started.elapsed().as_secs_f64()
                    );
                    // A gap within the rounding of its sums counts as none.
                    if s.status != Status::Optimal || found > 1.01 * gap {
                        failures.push(what);
                    }
                }
            }
        }
    }
    assert!(count > 100, "only {count} problems");
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_tolerance_on_the_violation_ends_it_too() {
    // Flowers' measurements to one digit: copies, ties and a class apart. The violation alone is asked for.
    let mut set = set("iris-like", 150, 4, 3, 1.5);
    set.x.iter_mut().for_each(|x| *x = (10.0 * *x).round() / 10.0 + 5.0);
    let x = points(&set, false);
    for c in [1.0, 133.0] {
        let costs = vec![c; 150];
        let options = Options { stop: Stop { tol: Some(1e-3), gap: None }, ..Options::default() };
        let bias = Bias::Penalised { scaling: 1.0 };
        let mut recorder = Recorder::default();
        let s = solve_crammer_singer(&x, &set.codes, 3, &costs, bias, &options, &limited(20.0), &mut recorder).unwrap();
        let (_, violation) = certified(&x, &set.codes, &costs, bias, &s);
        assert!(s.status == Status::Optimal && violation <= 1.1e-3, "C = {c}: {} {violation}", s.status);
        assert!(recorder.steps.iter().all(|step| step.primal.is_some() && step.violation.is_some()));
    }
}

#[test]
fn what_cannot_be_had_is_stalled_and_not_optimal() {
    let set = set("overlapping", 60, 3, 3, 0.3);
    let (x, costs) = (points(&set, false), vec![1e3; 60]);
    let options = Options { stop: Stop { tol: Some(1e-30), gap: None }, ..Options::default() };
    let s = solve_crammer_singer(&x, &set.codes, 3, &costs, Bias::None, &options, &limited(60.0), &mut Silent).unwrap();
    assert!(matches!(s.status, Status::Stalled | Status::Optimal), "{}", s.status);
    let (gap, violation) = certified(&x, &set.codes, &costs, Bias::None, &s);
    assert!(s.status != Status::Optimal || violation == 0.0, "{violation}");
    assert!(gap <= 1e-9, "{gap}");
}

#[test]
fn many_features_take_conjugate_gradients() {
    // 700 × 2 unknowns are factored, 800 × 2 are too many.
    [700, 800].into_iter().for_each(train_wide_problems);
}

fn train_wide_problems(d: usize) {
    let n = 80;
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    let codes: Vec<u32> = (0..n).map(|_| rng.random_range(0..3)).collect();
    for _ in 0..n {
        for j in (0..d as u32).filter(|_| rng.random_range(0..10) == 0).collect::<Vec<_>>() {
            columns.push(j);
            values.push(10f64.powi(j as i32 % 4) * rng.random_range(0.5..1.0));
        }
        starts.push(columns.len());
    }
    let x: Points = Csr::new(d, starts, columns, values).unwrap().into();
    for c in [1e-4, 1.0, 100.0] {
        let costs = vec![c; n];
        let options = Options { stop: Stop { tol: None, gap: Some(1e-5) }, ..Options::default() };
        let s = solve_crammer_singer(&x, &codes, 3, &costs, Bias::None, &options, &limited(30.0), &mut Silent).unwrap();
        let (gap, _) = certified(&x, &codes, &costs, Bias::None, &s);
        assert!(s.status == Status::Optimal && gap <= 1.01e-5, "d = {d}, C = {c}: {} {gap}", s.status);
    }
}

#[test]
fn limits_leave_a_feasible_point() {
    let set = set("overlapping", 200, 5, 4, 0.2);
    let (x, costs) = (points(&set, false), vec![1e3; 200]);
    for most in [1, 3, 20] {
        let stop = Stop { tol: None, gap: Some(1e-12) };
        let options = Options { stop, iterations: Some(most), ..Options::default() };
        let s =
            solve_crammer_singer(&x, &set.codes, 4, &costs, Bias::None, &options, &limited(30.0), &mut Silent).unwrap();
        assert_eq!((s.status, s.iterations), (Status::IterationLimit, most));
        let (gap, _) = certified(&x, &set.codes, &costs, Bias::None, &s);
        let own = s.relative_gap();
        assert!(gap.is_finite() && (gap - own).abs() <= 1e-6 + 1e-6 * gap, "{gap} {own}");
    }
}

/// Trains to a relative gap of 1e-6 with a bias, and checks the certificate.
fn optimum(set: &Set, costs: &[f64], threads: Threads) -> CrammerSinger {
    let (x, bias) = (points(set, false), Bias::Penalised { scaling: 1.0 });
    let options = Options { stop: Stop { tol: None, gap: Some(1e-6) }, ..Options::default() };
    let control = Control::start(&Budget { seconds: Some(60.0), ..Budget::default() }, threads);
    let s = solve_crammer_singer(&x, &set.codes, set.k, costs, bias, &options, &control, &mut Silent).unwrap();
    let (gap, _) = certified(&x, &set.codes, costs, bias, &s);
    assert!(s.status == Status::Optimal && gap <= 1.01e-6, "{}: {} {gap}", set.name, s.status);
    s
}

/// The same rows in another order.
fn reordered(set: &Set, order: &[usize]) -> Set {
    let d = set.d;
    Set {
        x: order.iter().flat_map(|&i| set.x[i * d..(i + 1) * d].to_vec()).collect(),
        codes: order.iter().map(|&i| set.codes[i]).collect(),
        weights: order.iter().map(|&i| set.weights[i]).collect(),
        ..*set
    }
}

#[test]
fn the_order_of_the_rows_changes_neither_the_optimum_nor_the_work() {
    let set = set("orders", 600, 8, 6, 0.7);
    let costs = vec![1.0; 600];
    let given: Vec<usize> = (0..600).collect();
    let mut sorted = given.clone();
    sorted.sort_by_key(|&i| set.codes[i]);
    let reversed: Vec<usize> = sorted.iter().rev().copied().collect();
    let interleaved: Vec<usize> = (0..600).map(|at| sorted[(at * 97) % 600]).collect();
    let solved: Vec<CrammerSinger> = [given, sorted, reversed, interleaved]
        .iter()
        .map(|order| optimum(&reordered(&set, order), &costs, Threads::one()))
        .collect();
    let (fewest, most) =
        (solved.iter().map(|s| s.iterations).min().unwrap(), solved.iter().map(|s| s.iterations).max().unwrap());
    assert!(most as f64 <= 1.5 * fewest as f64, "{fewest} to {most} iterations");
    for s in &solved {
        assert!((s.primal - solved[0].primal).abs() <= 2e-6 * solved[0].primal, "{} {}", s.primal, solved[0].primal);
    }
}

#[test]
fn copies_of_a_row_count_as_one_of_their_total_cost() {
    let set = set("copies", 120, 5, 4, 0.6);
    let once = optimum(&set, &vec![3.0; 120], Threads::one());
    let order: Vec<usize> = (0..600).map(|at| (at * 7) % 120).collect();
    let copies = optimum(&reordered(&set, &order), &vec![0.6; 600], Threads::one());
    assert!((once.primal - copies.primal).abs() <= 2e-6 * once.primal, "{} {}", once.primal, copies.primal);
    assert!(copies.iterations <= 250, "{} against {} iterations", copies.iterations, once.iterations);
}

#[test]
fn few_iterations_suffice_where_samples_outnumber_the_weights() {
    // Descent alone needs thousands of epochs here.
    for c in [1.0, 1e2] {
        let set = set("many rows", 1500, 10, 7, 0.5);
        let s = optimum(&set, &vec![c; 1500], Threads::one());
        assert!(s.iterations <= 200, "C = {c}: {} iterations", s.iterations);
    }
}

#[test]
fn with_many_classes_and_features_steps_over_free_variables_help() {
    // 69 × 31 unknowns are too many to factor, and 18 lanes are enough to leave some out.
    let set = set("seventy classes", 700, 30, 70, 0.5);
    let s = optimum(&set, &vec![1.0; 700], Threads::one());
    assert!(s.iterations <= 1500, "{} iterations", s.iterations);
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let set = set("threads", 400, 6, 5, 0.5);
    let (one, two) =
        (optimum(&set, &vec![10.0; 400], Threads::one()), optimum(&set, &vec![10.0; 400], Threads::new(2)));
    assert!(one.weights == two.weights && one.alpha == two.alpha && one.iterations == two.iterations);
}

/// Hard problems of `k` classes: features from 1e-3 to 1e3, more features than rows, copies with other classes; rows
/// sorted by class.
fn hard_sets(k: usize) -> Vec<Set> {
    let scale = |mut set: Set| {
        let d = set.d;
        set.x.iter_mut().enumerate().for_each(|(at, x)| *x *= 10f64.powi((at % d % 7) as i32 - 3));
        set
    };
    let sort = |set: &Set| {
        let mut order: Vec<usize> = (0..set.codes.len()).collect();
        order.sort_by_key(|&i| set.codes[i]);
        reordered(set, &order)
    };
    let copy = |set: &Set| {
        let mut copies = reordered(set, &(0..240).map(|at| at % 80).collect::<Vec<_>>());
        (80..240).step_by(3).for_each(|i| copies.codes[i] = (copies.codes[i] + 1) % k as u32);
        copies
    };
    vec![
        scale(set("scaled", 150, 7, k, 0.5)),
        sort(&set("wide", 50, 200, k, 0.3)),
        sort(&scale(set("wide and scaled", 50, 200, k, 0.3))),
        sort(&copy(&set("copies", 80, 5, k, 0.6))),
        copy(&scale(set("scaled copies", 80, 7, k, 0.6))),
    ]
}

#[test]
fn hard_problems_end_at_the_gap_asked_for() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for k in [2, 5, 20, 60] {
        for (at, set) in hard_sets(k).iter().enumerate() {
            let x = points(set, false);
            for c in [1e-4, 1e-2, 1.0, 1e2, 1e4] {
                let (costs, bias) = (vec![c; set.codes.len()], BIASES[at % 2]);
                let options = Options { stop: Stop { tol: None, gap: Some(1e-5) }, ..Options::default() };
                let control = limited(30.0);
                let s = solve_crammer_singer(&x, &set.codes, k, &costs, bias, &options, &control, &mut Silent).unwrap();
                let (gap, _) = certified(&x, &set.codes, &costs, bias, &s);
                // With large costs and long rows P is far below the cost of one sample, whose scores near 1 are rounded: the
                // solver counts 4 units of roundoff for each of two scores as none, and the certificate adds its own bound.
                let rounding = 16.0 * f64::EPSILON * c * set.codes.len() as f64 / s.primal;
                if s.status != Status::Optimal || gap > 1.01e-5 + rounding {
                    failures.push(format!("{}, {k} classes, C = {c}: {} {gap:.1e} {rounding:.1e}", set.name, s.status));
                }
                count += 1;
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}
