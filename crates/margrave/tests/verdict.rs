//! The certificate decides: what is called optimal, what is not, and which loss was trained.

use margrave::engine::certificate::Certificate;
use margrave::engine::data::{Dataset, ScaleKind};
use margrave::engine::solver::Stop;
use margrave::loss::CustomLoss;
use margrave::{Budget, Cancel, Kernel, Points, SolverName, Status, Svm, Targets, Threads, verify};

/// A regression with features of very different sizes and an offset.
fn uneven(n: usize) -> Dataset {
    let unit = |i: usize, k: f64| ((i as f64 * k) % 1.0) - 0.5;
    let x: Vec<f64> = (0..n)
        .flat_map(|i| [1e3 * unit(i, 0.618_033_99), 5.0 + unit(i, 0.754_877_67), 1e-2 * unit(i, 0.569_840_29)])
        .collect();
    let y = (0..n).map(|i| 20.0 + 3.0 * unit(i, 0.618_033_99) - 8.0 * unit(i, 0.754_877_67) + unit(i, 0.317)).collect();
    Dataset::new(Points::dense_f64(n, 3, x).unwrap(), Targets::Real(y)).unwrap()
}

fn two_clouds(n: usize) -> Dataset {
    let point = |i: usize| {
        let side = 1.0 - 2.0 * (i % 2) as f64;
        [side + 1.5 * (i as f64 * 0.9).sin(), side - 1.5 * (i as f64 * 1.7).cos()]
    };
    let x: Vec<f64> = (0..n).flat_map(point).collect();
    let y = (0..n).map(|i| (i % 2) as f64).collect();
    Dataset::new(Points::dense_f64(n, 2, x).unwrap(), Targets::Real(y)).unwrap()
}

#[test]
fn a_plain_linear_regression_reaches_what_decomposition_proves() {
    let data = uneven(120);
    let svm = |solver| {
        Svm::regressor().kernel(Kernel::Linear).scale(Some(ScaleKind::Standard)).solver(solver).threads(Threads::one())
    };
    let linear = svm(SolverName::Auto).fit(&data).unwrap();
    let kernel = svm(SolverName::Decomposition).gap(1e-8).fit(&data).unwrap();
    assert_eq!((linear.status(), kernel.status()), (Status::Optimal, Status::Optimal));
    assert!(linear.certificate().relative_gap().unwrap() <= 1e-2);
    let (a, b) = (linear.certificate().primal(), kernel.certificate().primal());
    assert!((a - b).abs() <= 1e-2 * b, "{a} {b}");
}

#[test]
fn a_violation_alone_is_not_enough() {
    // At C = 1e5 a violation of 0.1 leaves a large gap: the training goes on until 1e-2 is proven.
    let fit = Svm::classifier().kernel(Kernel::rbf(1.0)).cost(1e5).tol(0.1).fit(&two_clouds(60)).unwrap();
    assert_eq!(fit.status(), Status::Optimal);
    assert_eq!(fit.asked().gap, Some(1e-2));
    assert!(fit.certificate().relative_gap().unwrap() <= 1e-2, "{}", fit.certificate());
}

#[test]
fn small_costs_and_small_targets_are_problems_like_others() {
    for c in [1e-9, 1e-6, 1e-3] {
        let fit = Svm::classifier().kernel(Kernel::rbf(0.5)).cost(c).gap(1e-3).fit(&two_clouds(40)).unwrap();
        assert_eq!(fit.status(), Status::Optimal, "C = {c}");
        assert!(fit.totals().support_vectors > 0 && fit.certificate().relative_gap().unwrap() <= 1e-3, "C = {c}");
    }
    let mut tiny = uneven(80);
    if let Targets::Real(y) = &mut tiny.targets {
        y.iter_mut().for_each(|y| *y *= 1e-5);
    }
    let fit = Svm::regressor().epsilon(1e-6).scale(Some(ScaleKind::Standard)).cost(10.0).fit(&tiny).unwrap();
    assert_eq!(fit.status(), Status::Optimal);
    assert!(fit.totals().support_vectors > 0 && fit.asked().tol.unwrap() < 1e-7);
}

#[test]
fn a_compacted_machine_is_judged_as_it_is_saved() {
    let data = two_clouds(80);
    let svm = Svm::classifier().kernel(Kernel::rbf(2.0)).cost(10.0);
    let fit = svm.clone().compact(Some(0.02)).fit(&data).unwrap();
    assert!(fit.compacted().unwrap().dropped > 0);
    assert_eq!(fit.status(), Status::Inaccurate, "{}", fit.certificate());
    let again = verify(fit.model(), &data, None, &margrave::Control::unlimited(Threads::one())).unwrap();
    let (a, b) = (again[0].primal(), fit.certificate().primal());
    assert!((a - b).abs() <= 1e-9 * b, "{a} {b}");
    // Nothing dropped, nothing lost.
    assert_eq!(svm.compact(Some(0.0)).fit(&data).unwrap().status(), Status::Optimal);
}

#[test]
fn limits_come_with_a_proof_and_a_second_request_without() {
    let data = two_clouds(300);
    let none = Budget { seconds: Some(0.0), ..Budget::default() };
    let fit = Svm::classifier().kernel(Kernel::rbf(2.0)).cost(100.0).budget(none).fit(&data).unwrap();
    assert_eq!(fit.status(), Status::TimeLimit);
    assert!(fit.certificate().is_known());
    let few = Budget { iterations: Some(2), ..Budget::default() };
    let fit = Svm::classifier().kernel(Kernel::rbf(2.0)).cost(100.0).budget(few).fit(&data).unwrap();
    assert_eq!(fit.status(), Status::IterationLimit);
    let cancel = Cancel::new();
    cancel.request();
    let fit = Svm::classifier().kernel(Kernel::rbf(2.0)).cancel(cancel.clone()).fit(&data).unwrap();
    assert!(fit.status() == Status::Interrupted && fit.certificate().is_known());
    cancel.request();
    let fit = Svm::classifier().kernel(Kernel::rbf(2.0)).cancel(cancel).fit(&data).unwrap();
    assert_eq!((fit.status(), fit.certificate()), (Status::Interrupted, &Certificate::Unknown));
}

#[test]
fn of_several_machines_the_worst_is_reported() {
    let mut data = two_clouds(90);
    data.targets = Targets::Real((0..90).map(|i| f64::from(i % 3)).collect());
    let fit = Svm::classifier().kernel(Kernel::rbf(0.5)).cost(10.0).fit(&data).unwrap();
    let worst = fit.certificates().filter_map(Certificate::relative_gap).fold(0.0, f64::max);
    assert_eq!(fit.certificate().relative_gap(), Some(worst));
    assert_eq!(fit.totals().relative_gap, Some(worst));
    let sum: f64 = fit.certificates().filter_map(Certificate::gap).sum();
    assert!((fit.totals().gap.unwrap() - sum).abs() <= 1e-15 * sum.abs());
}

#[test]
fn a_loss_is_what_it_is_and_not_what_it_is_called() {
    // (1 − yz)₊² under the name of another.
    let value = |y: f64, z: f64| (1.0 - y * z).max(0.0).powi(2);
    let slope = |y: f64, z: f64| -2.0 * y * (1.0 - y * z).max(0.0);
    let own = CustomLoss::new("hinge", true, value, slope).unwrap();
    let data = two_clouds(60);
    let svm = Svm::classifier().kernel(Kernel::rbf(0.5)).stop(Stop { tol: None, gap: Some(1e-6) });
    let fit = svm.clone().loss(own).fit(&data).unwrap();
    assert_eq!(fit.model().loss, None);
    let squared = svm.clone().loss(margrave::loss::SquaredHinge).fit(&data).unwrap();
    assert!(squared.model().loss.is_some());
    let (a, b) = (fit.certificate().primal(), squared.certificate().primal());
    assert!((a - b).abs() <= 1e-5 * b, "{a} {b}");
    assert!((a - svm.loss(margrave::loss::Hinge).fit(&data).unwrap().certificate().primal()).abs() > 1e-2 * b);
}
