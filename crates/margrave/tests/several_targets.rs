//! Regression of several numbers at once.

use margrave::conflict::{OptionName, With};
use margrave::engine::model::{Prediction, Scheme};
use margrave::loss::{LossSpec, Square};
use margrave::{
    Budget, Control, Dataset, Error, Fit, Kernel, Points, Probability, Status, Svm, Targets, Threads, verify,
};
use margrave_testkit::property::assert_all_close;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const N: usize = 90;
const K: usize = 3;

/// Points in the unit cube, and K smooth functions of them on scales that differ a thousandfold.
fn sample(d: usize) -> (Points, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let x: Vec<f64> = (0..N * d).map(|_| rng.random::<f64>()).collect();
    let of = |row: &[f64]| [(6.0 * row[0]).sin(), 1000.0 * row[0] * row[d - 1] + 500.0, -0.3 * row[d - 1]];
    let y = x.chunks_exact(d).flat_map(of).collect();
    (Points::dense_f64(N, d, x).unwrap(), y)
}

fn together(points: &Points, y: &[f64]) -> Dataset {
    Dataset::new(points.clone(), Targets::Several { outputs: K, values: y.to_vec() }).unwrap()
}

fn alone(points: &Points, y: &[f64], at: usize) -> Dataset {
    let own = y.iter().skip(at).step_by(K).copied().collect();
    Dataset::new(points.clone(), Targets::Real(own)).unwrap()
}

fn svm(kernel: Kernel) -> Svm {
    Svm::regressor().kernel(kernel).loss(Square).cost(10.0).threads(Threads::one())
}

fn column(all: &[f64], at: usize) -> Vec<f64> {
    all.iter().skip(at).step_by(K).copied().collect()
}

fn scores(fit: &Fit, points: &Points) -> Vec<f64> {
    fit.scores(points).unwrap()
}

#[test]
fn they_are_the_single_fits_from_one_factorisation() {
    let (points, y) = sample(2);
    let weights: Vec<f64> = (0..N).map(|i| (i % 4) as f64).collect();
    for (kernel, bias, weighted) in
        [(Kernel::rbf(2.0), true, false), (Kernel::rbf(2.0), false, true), (Kernel::Linear, true, true)]
    {
        let weigh = |data: Dataset| if weighted { data.with_weights(weights.clone()).unwrap() } else { data };
        let machine = svm(kernel).bias(bias).solver("ridge".parse().unwrap()).probability(Probability::LeaveOneOut);
        let all = machine.fit(&weigh(together(&points, &y))).unwrap();
        assert_eq!((all.status(), all.model().scheme, all.records().len()), (Status::Optimal, Scheme::Outputs, K));
        let z = scores(&all, &points);
        assert_eq!(all.model().decide(&z), Prediction::Values(z.clone()));
        let mut entries = 0;
        let mut error = 0.0;
        for at in 0..K {
            let one = machine.fit(&weigh(alone(&points, &y, at))).unwrap();
            let (own, scale) = (scores(&one, &points), if at == 1 { 1000.0 } else { 1.0 });
            // The same system and the same elimination of one right-hand side; the sums of K·β may be grouped otherwise.
            assert_all_close("scores", &column(&z, at), &own, 1e-10 * scale);
            let (a, b) = (&all.records()[at].certificate, one.certificate());
            assert!(a.relative_gap().is_some_and(|gap| gap < 1e-10), "{a}");
            assert!((a.primal() - b.primal()).abs() <= 1e-9 * b.primal().abs(), "{a} {b}");
            let radii = all.model().radii(0.9).unwrap();
            assert!((radii[at] - one.model().radius(0.9).unwrap()).abs() <= 1e-8 * scale);
            entries = one.totals().kernel_entries.max(entries);
            error += one.train_error() / K as f64;
        }
        assert!((all.train_error() - error).abs() <= 1e-10 * error);
        assert!(all.model().radius(0.9).is_none(), "one radius does not stand for several");
        // A factorisation takes n² entries, and so does a round of refinement, of which there are as many as the hardest
        // target needs.
        assert!(all.totals().kernel_entries <= entries, "{} {entries}", all.totals().kernel_entries);
    }
}

#[test]
fn the_file_holds_them_and_they_are_verified() {
    let (points, y) = sample(2);
    let control = Control::unlimited(Threads::one());
    for kernel in [Kernel::rbf(2.0), Kernel::Linear] {
        let data = together(&points, &y);
        let fit = svm(kernel).probability(Probability::LeaveOneOut).fit(&data).unwrap();
        assert_eq!(fit.model().expansion.is_weights(), kernel == Kernel::Linear);
        let bytes = margrave::io::model::to_bytes(fit.model()).unwrap();
        let back = margrave::io::model::from_bytes(&bytes, "m").unwrap();
        assert_eq!(back.expansion.coefficients(), fit.model().expansion.coefficients());
        assert_eq!(
            back.scores(&points, margrave::engine::gram::Precision::Double, &control).unwrap(),
            scores(&fit, &points)
        );
        assert_eq!((back.scheme, &back.calibration), (Scheme::Outputs, &fit.model().calibration));
        let proofs = verify(&back, &data, None, &control).unwrap();
        assert_eq!(proofs.len(), K);
        assert!(proofs.iter().all(|p| p.relative_gap().is_some_and(|gap| gap < 1e-10)), "{proofs:?}");
        let other = verify(&back, &data, Some(1.0), &control).unwrap();
        assert!(other.iter().any(|p| p.relative_gap().is_some_and(|gap| gap > 1e-3)), "another C is another problem");
        let one = verify(&back, &alone(&points, &y, 0), None, &control).unwrap_err().to_string();
        assert!(one.contains("predicts 3 numbers"), "{one}");
    }
}

#[test]
fn without_memory_each_is_solved_by_itself_and_without_time_there_is_an_answer() {
    let (points, y) = sample(2);
    let data = together(&points, &y);
    let small = Budget { memory: 40_000, ..Budget::default() };
    for kernel in [Kernel::rbf(2.0), Kernel::Poly { gamma: 1.0, coef0: 1.0, degree: 2 }] {
        let whole = svm(kernel).fit(&data).unwrap();
        let parts = svm(kernel).gap(1e-10).budget(small.clone()).fit(&data).unwrap();
        assert!(parts.reason().contains("one after the other"), "{}", parts.reason());
        assert_eq!((parts.status(), parts.records().len()), (Status::Optimal, K));
        for at in 0..K {
            let scale = if at == 1 { 1000.0 } else { 1.0 };
            let (a, b) = (scores(&whole, &points), scores(&parts, &points));
            // |f − f*| ≤ √(2·gap·k(x, x)), with objectives below 1e6 of the second target.
            assert_all_close("scores", &column(&a, at), &column(&b, at), 1e-3 * scale);
        }
    }
    let ridge = svm(Kernel::rbf(2.0)).solver("ridge".parse().unwrap()).budget(small.clone()).fit(&data);
    assert!(matches!(ridge, Err(Error::Memory { .. })));

    let none = Budget { seconds: Some(0.0), ..Budget::default() };
    for kernel in [Kernel::rbf(2.0), Kernel::Linear] {
        let stopped = svm(kernel).budget(none.clone()).fit(&data).unwrap();
        assert_eq!(stopped.status(), Status::TimeLimit);
        let mean = |at: usize| column(&y, at).iter().sum::<f64>() / N as f64;
        let z = scores(&stopped, &points);
        assert!((0..K).all(|at| (z[at] - mean(at)).abs() < 1e-9), "{:?}", &z[..K]);
    }
}

#[test]
fn what_takes_one_target_says_so() {
    let (points, y) = sample(2);
    let data = together(&points, &y);
    let rbf = || Svm::regressor().kernel(Kernel::rbf(1.0));
    let cases = [
        (Svm::classifier(), OptionName::Task),
        (rbf().loss(Square).compact(Some(0.1)), OptionName::Compact),
        (rbf().multiclass(Scheme::OneVsRest), OptionName::Multiclass),
    ];
    for (svm, expected) in cases {
        match svm.fit(&data).unwrap_err() {
            Error::Conflict { option, with, .. } => assert_eq!((option.option, with), (expected, With::Targets(3))),
            other => panic!("{other}"),
        }
    }
    let bad = Dataset::new(points.clone(), Targets::Several { outputs: 3, values: vec![0.0; 3 * N - 1] });
    assert!(bad.is_err());
    let mut values = y;
    values[7] = f64::NAN;
    let error = Dataset::new(points, Targets::Several { outputs: 3, values }).unwrap_err().to_string();
    assert!(error.contains('2') && error.contains("NaN"), "{error}");
}

#[test]
fn any_loss_and_formulation_is_that_of_single_targets() {
    let (points, y) = sample(2);
    let data = together(&points, &y);
    let rbf = || Svm::regressor().kernel(Kernel::rbf(2.0)).cost(10.0).gap(1e-9).threads(Threads::one());
    let linear = || Svm::regressor().kernel(Kernel::Linear).cost(10.0).gap(1e-9).threads(Threads::one());
    let huber = LossSpec::Huber { delta: 0.2 };
    let cases = [
        rbf(),
        rbf().loss_spec(huber).solver("irwls".parse().unwrap()),
        rbf().nu(0.4),
        rbf().probability(Probability::LeaveOneOut).scale(Some(margrave::engine::data::ScaleKind::Standard)),
        rbf().loss(Square).probability(Probability::Folds(3)),
        linear().intercept_scaling(Some(1.0)).loss_spec(huber),
        linear().penalty(margrave::engine::problem::Penalty::L2),
    ];
    let control = Control::unlimited(Threads::one());
    for (at, svm) in cases.into_iter().enumerate() {
        let all = svm.fit(&data).unwrap();
        assert_eq!((all.records().len(), all.model().scheme), (K, Scheme::Outputs), "{at}");
        assert!(all.reason().contains("one after the other"), "{at}: {}", all.reason());
        let z = scores(&all, &points);
        for target in 0..K {
            let single = alone(&points, &y, target);
            let one = svm.fit(&single).unwrap();
            let scale = if target == 1 { 1000.0 } else { 1.0 };
            assert_all_close("scores", &column(&z, target), &scores(&one, &points), 2e-3 * scale);
        }
        let proofs = verify(all.model(), &data, None, &control).unwrap();
        for (proof, record) in proofs.iter().zip(all.records()) {
            let (again, said) = (proof.relative_gap().unwrap(), record.certificate.relative_gap().unwrap());
            assert!(again <= 1e-6 && (again - said).abs() <= 0.01 * said + 1e-8, "{at}: {again} {said}");
        }
        let lines = svm.plan(&data).unwrap().explain().unwrap();
        let solver = &lines.iter().find(|line| line.0 == "solver").unwrap().1;
        assert!(solver.contains("one after the other"), "{solver}");
    }
}
