//! Machines on few centres: the interval they prove contains the optimum of the exact problem.

use margrave_core::certificate::{Certificate, OnCentres, TailCheck};
use margrave_core::data::{Dataset, Points, Targets};
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem, Task};
use margrave_core::solver::Stop;
use margrave_core::train::{Approx, Fit, GivenMachine, LossChoice, Plan, Tradeoff, TrainOptions, verify, verify_given};
use margrave_core::{Control, Error, Status, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CLASSIFICATION: [&str; 6] =
    ["hinge", "smooth-hinge:K=10", "squared-hinge", "power:s=1.5", "logistic", "huber-hinge"];
const REGRESSION: [&str; 8] = [
    "epsilon",
    "squared-epsilon",
    "square",
    "huber:delta=0.5",
    "absolute",
    "pinball:tau=0.3",
    "expectile:tau=0.7",
    "logcosh",
];

fn control() -> Control {
    Control::unlimited(Threads::new(2))
}

/// A noisy problem in few dimensions.
fn data(rng: &mut ChaCha8Rng, n: usize, d: usize, task: Task) -> Dataset {
    let x: Vec<f64> = (0..n * d).map(|_| rng.random_range(-1.0..1.0)).collect();
    let y = (0..n)
        .map(|i| {
            let clean = (3.0 * x[i * d]).sin() + x[i * d + d - 1];
            let noisy = clean + rng.random_range(-0.5..0.5);
            match task {
                Task::Classify => {
                    if i < 2 {
                        [-1.0, 1.0][i]
                    } else {
                        noisy.signum()
                    }
                }
                _ => noisy,
            }
        })
        .collect();
    Dataset::new(Points::dense_f64(n, d, x).unwrap(), Targets::Real(y)).unwrap()
}

fn options(task: Task, loss: &str, gamma: f64, c: f64) -> TrainOptions {
    let mut options = TrainOptions::new(task);
    options.kernel = Kernel::rbf(gamma);
    options.gamma = None;
    options.loss = LossChoice::Spec(loss.parse::<LossSpec>().unwrap());
    options.tradeoff = Tradeoff::Cost(c);
    options.threads = Threads::new(2);
    options
}

fn train(options: &TrainOptions, data: &Dataset) -> Fit {
    Plan::new(options, data).unwrap().train(&mut Silent).unwrap()
}

/// An interval that contains the optimum of the exact problem, of relative width 1e-6 or so.
fn exact(options: &TrainOptions, data: &Dataset) -> (f64, f64) {
    let mut options = options.clone();
    options.stop = Stop { tol: None, gap: Some(1e-6) };
    options.default_tol = false;
    let fit = train(&options, data);
    (fit.totals().dual.unwrap(), fit.totals().primal)
}

#[test]
fn the_interval_contains_the_exact_optimum_for_every_convex_loss() {
    let mut rng = ChaCha8Rng::seed_from_u64(19);
    for round in 0..200 {
        let (task, losses): (_, &[&str]) =
            if round % 2 == 0 { (Task::Classify, &CLASSIFICATION) } else { (Task::Regress, &REGRESSION) };
        let loss = losses[(round / 2) % losses.len()];
        let n = match round {
            // Hinge and ε-insensitive.
            60 => 5000,
            113 => 3000,
            _ if round % 40 == 0 => 900,
            _ => rng.random_range(20..160),
        };
        let data = data(&mut rng, n, 2 + round % 3, task);
        let mut options =
            options(task, loss, 10f64.powf(rng.random_range(-1.0..1.0)), 10f64.powf(rng.random_range(-1.0..1.5)));
        options.bias = round % 5 != 4;
        let (low, high) = exact(&options, &data);
        options.seed = round as u64;
        options.approx = Some(Approx::Centres(rng.random_range(1..=n.min(60))));
        options.certify = if round % 3 == 0 { TailCheck::Sampled } else { TailCheck::Exact };
        let fit = train(&options, &data);
        let totals = fit.totals();
        let (primal, dual) = (totals.primal, totals.dual.unwrap());
        let what = format!("round {round}: {loss}, n = {n}: [{dual}, {primal}] and [{low}, {high}]");
        let slack = 1e-12 * high.abs().max(1.0);
        assert!(dual <= high + slack && primal >= low - slack, "{what}");
        let own = fit.certificate().approximation().unwrap();
        assert!(own.own_relative_gap <= 1e-4, "{what}: own gap {}", own.own_relative_gap);
        // Optimal is said of the exact problem: never with a gap that no other machine may have.
        let expected = if totals.relative_gap.unwrap() <= 1e-2 { Status::Optimal } else { Status::Inaccurate };
        assert_eq!(fit.status(), expected, "{what}");
        assert!(fit.model().expansion.len() <= 60);
    }
}

#[test]
fn all_rows_as_centres_are_the_exact_machine() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for (task, loss) in [(Task::Classify, "hinge"), (Task::Regress, "epsilon"), (Task::Classify, "logistic")] {
        let data = data(&mut rng, 120, 3, task);
        let mut options = options(task, loss, 1.0, 2.0);
        let (low, high) = exact(&options, &data);
        options.approx = Some(Approx::Centres(120));
        let fit = train(&options, &data);
        assert!(fit.totals().relative_gap.unwrap() < 2e-4, "{loss}: {}", fit.certificate());
        assert!(fit.totals().primal >= low * (1.0 - 1e-12) && fit.totals().primal <= high * (1.0 + 2e-4));
    }
}

/// γᵀEγ by its definition.
fn true_tail(gram: &dyn Gram, centres: &[u32], beta: &[f64]) -> f64 {
    let (n, m) = (beta.len(), centres.len());
    let mut k = vec![0.0; n * n];
    gram.block_f64(Pick::All, Pick::All, &mut k, &control()).unwrap();
    let mut inner = vec![0.0; m * m];
    let mut cross = vec![0.0; m];
    for (a, &i) in centres.iter().enumerate() {
        centres.iter().enumerate().for_each(|(b, &j)| inner[a * m + b] = k[i as usize * n + j as usize]);
        cross[a] = (0..n).map(|j| k[i as usize * n + j] * beta[j]).sum();
    }
    let factor = margrave_core::linalg::factor::Cholesky::new(inner, m, m, &control()).unwrap();
    let mut solved = cross.clone();
    factor.solve(&mut solved);
    let whole: f64 = (0..n).map(|i| beta[i] * (0..n).map(|j| k[i * n + j] * beta[j]).sum::<f64>()).sum();
    whole - cross.iter().zip(&solved).map(|(a, b)| a * b).sum::<f64>()
}

#[test]
fn the_sampled_bound_is_never_below_the_true_tail() {
    let mut rng = ChaCha8Rng::seed_from_u64(77);
    let (n, m) = (150, 12);
    for trial in 0..1000u64 {
        let points =
            Points::dense_f64(n, 2, (0..2 * n).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<_>>()).unwrap();
        let kernel = Kernel::rbf(10f64.powf(rng.random_range(-0.5..1.5)));
        let backend = control().backend();
        let gram = backend.square_gram(kernel, &points).unwrap();
        let centres: Vec<u32> = (0..m as u32).map(|i| i * 7).collect();
        let chosen = points.gather(&centres);
        // Heavy tails: a few large β decide.
        let beta: Vec<f64> = (0..n).map(|_| rng.random_range(-1.0f64..1.0).powi(1 + 2 * (trial % 4) as i32)).collect();
        let targets = vec![0.0; n];
        let costs = vec![1.0; n];
        let loss = "square".parse::<LossSpec>().unwrap().build().unwrap();
        let problem = KernelProblem::new(gram.as_ref(), &targets, &costs, &*loss, Constraint::None).unwrap();
        let (cross, transposed) =
            (backend.gram(kernel, &points, &chosen).unwrap(), backend.gram(kernel, &chosen, &points).unwrap());
        let square = backend.square_gram(kernel, &chosen).unwrap();
        let on = OnCentres {
            problem: &problem,
            cross: cross.as_ref(),
            transposed: transposed.as_ref(),
            centres: square.as_ref(),
        };
        let tail = true_tail(gram.as_ref(), &centres, &beta);
        let found = on.tail(&beta, TailCheck::Sampled, trial, 0.0, &control()).unwrap();
        assert!(found >= tail * (1.0 - 1e-9), "trial {trial}: {found} < {tail}");
        let exact = on.tail(&beta, TailCheck::Exact, trial, 0.0, &control()).unwrap();
        assert!((exact - tail).abs() <= 1e-7 * (1.0 + tail), "trial {trial}: {exact} and {tail}");
        assert!(found <= 3.0 * tail + 1e-3, "trial {trial}: {found} is far above {tail}");
    }
}

#[test]
fn more_centres_until_the_gap_is_proven() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let data = data(&mut rng, 1500, 2, Task::Classify);
    let mut options = options(Task::Classify, "hinge", 20.0, 1.0);
    options.approx = Some(Approx::Auto);
    options.stop = Stop { tol: None, gap: Some(1e-2) };
    options.default_tol = false;
    let fit = train(&options, &data);
    assert_eq!(fit.status(), Status::Optimal, "{}", fit.certificate());
    assert!(fit.totals().relative_gap.unwrap() <= 1e-2);
    // A fixed number that is too small ends without the gap, and says so.
    options.approx = Some(Approx::Centres(10));
    let fit = train(&options, &data);
    assert_eq!(fit.status(), Status::Inaccurate, "{}", fit.certificate());
    // Nor is it optimal where no gap was named: only if the exact problem is left out, which the certificate says.
    (options.stop, options.default_tol) = (Stop::default(), true);
    let fit = train(&options, &data);
    assert!(fit.totals().relative_gap.unwrap() > 1e-2, "{}", fit.certificate());
    assert_eq!(fit.status(), Status::Inaccurate, "{}", fit.certificate());
    options.certify = TailCheck::Own;
    let fit = train(&options, &data);
    assert_eq!(fit.status(), Status::Optimal, "{}", fit.certificate());
    assert_eq!(fit.certificate().approximation().unwrap().check, TailCheck::Own);
}

#[test]
fn copies_end_with_fewer_centres_and_say_so() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let small = data(&mut rng, 12, 2, Task::Classify);
    let rows: Vec<u32> = (0..240).map(|i| i % 12).collect();
    let Targets::Real(y) = &small.targets else { panic!("real targets") };
    let y = rows.iter().map(|&i| y[i as usize]).collect();
    let data = Dataset::new(small.points.gather(&rows), Targets::Real(y)).unwrap();
    let mut options = options(Task::Classify, "hinge", 1.0, 1.0);
    options.approx = Some(Approx::Centres(100));
    let fit = train(&options, &data);
    assert_eq!(fit.certificate().approximation().unwrap().centres, 12);
    assert!(fit.reason().starts_with("12 centres of 100 asked for"), "{}", fit.reason());
    assert!(fit.totals().relative_gap.unwrap() < 1e-3, "{}", fit.certificate());
}

#[test]
fn stored_models_are_verified_with_their_dual_point_and_without() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for (task, loss) in [(Task::Classify, "hinge"), (Task::Regress, "huber:delta=0.5")] {
        let data = data(&mut rng, 300, 2, task);
        let mut options = options(task, loss, 1.0, 1.0);
        options.approx = Some(Approx::Centres(80));
        let fit = train(&options, &data);
        let mut model = fit.model().clone();
        let found = verify(&model, &data, None, &control()).unwrap();
        let (stored, again) = (fit.certificate().gap().unwrap(), found[0].gap().unwrap());
        assert!((stored - again).abs() <= 1e-6 * stored.max(1e-3), "{loss}: {stored} and {again}");
        // A dual point from the scores proves less, but it proves something, and never too much.
        model.dual.clear();
        let without = verify(&model, &data, None, &control()).unwrap()[0].clone();
        options.approx = None;
        let (low, high) = exact(&options, &data);
        assert!(without.gap().unwrap() >= stored * 0.5 && without.relative_gap().unwrap() < 0.2, "{loss}: {without}");
        assert!(without.dual().unwrap() <= high && without.primal() >= low);
    }
}

#[test]
fn several_classes_share_their_centres() {
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let n = 300;
    let x: Vec<f64> = (0..2 * n).map(|_| rng.random_range(-1.0..1.0)).collect();
    let y: Vec<f64> = (0..n).map(|i| f64::from(u8::from(x[2 * i] > 0.2) + u8::from(x[2 * i + 1] > 0.0))).collect();
    let data = Dataset::new(Points::dense_f64(n, 2, x).unwrap(), Targets::Real(y)).unwrap();
    let mut options = options(Task::Classify, "hinge", 2.0, 5.0);
    options.approx = Some(Approx::Centres(50));
    let fit = train(&options, &data);
    assert_eq!((fit.records().len(), fit.model().expansion.len()), (3, 50));
    let own = |certificate: &Certificate| certificate.approximation().unwrap().own_relative_gap;
    assert!(fit.records().iter().all(|record| own(&record.certificate) <= 1e-4));
    assert!(fit.train_error() < 0.1);
    let found = verify(fit.model(), &data, None, &control()).unwrap();
    for (record, again) in fit.records().iter().zip(&found) {
        assert!((record.certificate.gap().unwrap() - again.gap().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let data = data(&mut rng, 3000, 3, Task::Classify);
    let mut options = options(Task::Classify, "hinge", 1.0, 1.0);
    options.approx = Some(Approx::Centres(40));
    // So little memory that features are recomputed.
    options.budget.memory = 400_000;
    let coefficients = |threads: usize| {
        let mut options = options.clone();
        options.threads = Threads::new(threads);
        let fit = train(&options, &data);
        assert!(fit.reason().contains("recomputed"), "{}", fit.reason());
        (fit.model().expansion.coefficients().to_vec(), fit.totals().gap)
    };
    assert_eq!(coefficients(1), coefficients(2));
}

#[test]
fn the_polished_machine_is_the_exact_one() {
    let mut rng = ChaCha8Rng::seed_from_u64(41);
    let data = data(&mut rng, 800, 2, Task::Classify);
    let mut options = options(Task::Classify, "hinge", 3.0, 10.0);
    let (low, high) = exact(&options, &data);
    options.approx = Some(Approx::Centres(60));
    options.polish = true;
    options.stop = Stop { tol: None, gap: Some(1e-4) };
    options.default_tol = false;
    let fit = train(&options, &data);
    assert_eq!(fit.status(), Status::Optimal);
    assert!(fit.certificate().approximation().is_none());
    assert!(fit.totals().primal >= low && fit.totals().primal <= high * (1.0 + 1e-4));
    assert!(fit.reason().contains("from a machine on 60 centres"), "{}", fit.reason());
}

#[test]
fn bad_input_is_an_error() {
    let mut rng = ChaCha8Rng::seed_from_u64(51);
    let data = data(&mut rng, 30, 2, Task::Classify);
    let with = |change: &dyn Fn(&mut TrainOptions)| {
        let mut options = options(Task::Classify, "hinge", 1.0, 1.0);
        options.approx = Some(Approx::Centres(10));
        change(&mut options);
        match Plan::new(&options, &data) {
            Err(error @ (Error::Conflict { .. } | Error::Option { .. })) => error.to_string(),
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    assert!(with(&|o| o.approx = Some(Approx::Centres(31))).contains("from 1 to 30"));
    assert!(with(&|o| o.approx = Some(Approx::Centres(0))).contains("from 1 to 30"));
    with(&|o| o.kernel = Kernel::Sigmoid { gamma: 1.0, coef0: 0.0 });
    with(&|o| o.kernel = Kernel::Poly { gamma: 1.0, coef0: -1.0, degree: 2 });
    with(&|o| o.kernel = Kernel::Precomputed);
    with(&|o| o.kernel = Kernel::Linear);
    with(&|o| o.nu = Some(0.3));
    with(&|o| o.loss = LossChoice::Spec("ramp".parse().unwrap()));
    with(&|o| (o.approx, o.polish) = (None, true));
    with(&|o| (o.approx, o.certify) = (None, TailCheck::Own));
    assert!("0".parse::<Approx>().is_err() && "-3".parse::<Approx>().is_err() && "2.5".parse::<Approx>().is_err());
    assert_eq!("auto".parse::<Approx>(), Ok(Approx::Auto));
}

#[test]
fn a_function_from_elsewhere_is_certified_on_any_centres() {
    let mut rng = ChaCha8Rng::seed_from_u64(81);
    for (task, loss) in [(Task::Classify, "hinge"), (Task::Classify, "logistic"), (Task::Regress, "square")] {
        let data = data(&mut rng, 200, 2, task);
        let mut options = options(task, loss, 1.0, 1.0);
        let (low, high) = exact(&options, &data);
        options.approx = Some(Approx::Centres(60));
        let fit = train(&options, &data);
        let expansion = &fit.model().expansion;
        let mut machine = GivenMachine {
            kernel: Kernel::rbf(1.0),
            centres: expansion.centres().clone(),
            coefficients: expansion.coefficients().to_vec(),
            bias: Some(expansion.bias()[0]),
        };
        let loss: LossSpec = loss.parse().unwrap();
        let found = verify_given(&machine, &data, &loss, 1.0, TailCheck::Auto, &control()).unwrap();
        assert!((found.primal() - fit.totals().primal).abs() < 1e-6 * high, "{loss}: {found}");
        assert!(found.dual().unwrap() <= high && found.relative_gap().unwrap() < 0.2, "{loss}: {found}");
        // Centres that are no rows of the data, and a worse function: still an interval around the optimum.
        let moved: Vec<f64> = (0..120).map(|_| rng.random_range(-1.0..1.0)).collect();
        machine.centres = Points::dense_f64(60, 2, moved).unwrap();
        let found = verify_given(&machine, &data, &loss, 1.0, TailCheck::Auto, &control()).unwrap();
        assert!(found.dual().unwrap() <= high && found.primal() >= low && found.primal() > high, "{loss}: {found}");
        // Of a problem without a bias the optimum is another one.
        machine.bias = None;
        options.bias = false;
        let (_, high) = exact(&full_options(&options), &data);
        let found = verify_given(&machine, &data, &loss, 1.0, TailCheck::Auto, &control()).unwrap();
        assert!(found.dual().unwrap() <= high && found.primal() >= high, "{loss}: {found}");
        machine.coefficients.pop();
        assert!(verify_given(&machine, &data, &loss, 1.0, TailCheck::Auto, &control()).is_err());
    }
}

/// K_nS·a in double precision agrees with what the model predicts.
#[test]
fn the_model_is_an_expansion_over_its_centres() {
    let mut rng = ChaCha8Rng::seed_from_u64(61);
    let data = data(&mut rng, 200, 3, Task::Regress);
    let mut options = options(Task::Regress, "square", 1.0, 1.0);
    options.approx = Some(Approx::Centres(25));
    let fit = train(&options, &data);
    assert_eq!(fit.model().expansion.len(), 25);
    let scores = fit.model().scores(&data.points, Precision::Double, &control()).unwrap();
    let gram = control().backend().gram(Kernel::rbf(1.0), &data.points, fit.model().expansion.centres()).unwrap();
    let mut direct = vec![0.0; 200];
    gram.apply(Precision::Double, Pick::All, fit.model().expansion.coefficients(), 1, &mut direct, &control()).unwrap();
    let bias = fit.model().expansion.bias()[0];
    assert!(scores.iter().zip(&direct).all(|(a, b)| (a - b - bias).abs() < 1e-9));
}

#[test]
fn a_budget_of_vectors_gives_a_smaller_machine_and_says_what_changed() {
    let mut rng = ChaCha8Rng::seed_from_u64(71);
    for (task, loss) in [(Task::Classify, "hinge"), (Task::Regress, "epsilon")] {
        let data = data(&mut rng, 500, 2, task);
        let mut options = options(task, loss, 1.0, 1.0);
        let full = train(&options, &data);
        assert!(full.model().expansion.len() > 40);
        options.budget_vectors = Some(40);
        let small = train(&options, &data);
        assert_eq!((small.status(), small.model().expansion.len()), (Status::Optimal, 40));
        let compacted = small.compacted().unwrap();
        assert_eq!(compacted.dropped, full.model().expansion.len() - 40);
        // No score without bias changes by more than the norm of the difference: k(x, x) = 1.
        assert!(compacted.change <= compacted.norm * (1.0 + 1e-9) + 1e-12, "{compacted:?}");
        assert!(compacted.change > 0.0 && compacted.norm < 1.0, "{compacted:?}");
        // The optimum of the exact problem is within the interval.
        let (low, high) = exact(&full_options(&options), &data);
        assert!(small.totals().dual.unwrap() <= high && small.totals().primal >= low);
        // So few that the exact optimum is far: the best machine on them, and no proof of more.
        options.budget_vectors = Some(3);
        let tiny = train(&options, &data);
        assert!(tiny.totals().relative_gap.unwrap() > 1e-2, "{}", tiny.certificate());
        assert_eq!(tiny.status(), Status::Inaccurate, "{}", tiny.certificate());
        options.certify = TailCheck::Own;
        let tiny = train(&options, &data);
        assert_eq!(tiny.status(), Status::Optimal, "{}", tiny.certificate());
        assert_eq!(tiny.certificate().approximation().unwrap().check, TailCheck::Own);
        options.certify = TailCheck::Auto;
        // A machine that is small enough stays as it is.
        options.budget_vectors = Some(500);
        let same = train(&options, &data);
        assert_eq!(same.model().expansion.coefficients(), full.model().expansion.coefficients());
        assert_eq!(same.compacted(), None);
    }
}

fn full_options(options: &TrainOptions) -> TrainOptions {
    let mut options = options.clone();
    (options.budget_vectors, options.approx) = (None, None);
    options
}
