//! What linear machines have that others have not: the L1 penalty, a penalised bias, all classes at once; and several classes and
//! probabilities without a kernel.

use margrave::engine::data::{Dataset, Label, Points, Targets};
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, Scheme};
use margrave::engine::problem::Penalty;
use margrave::loss::LossSpec;
use margrave::{Control, Kernel, Model, Probability, SolverName, Svm, Threads, io, verify};
use margrave_testkit::generate::two_gaussians;

fn control() -> Control {
    Control::unlimited(Threads::one())
}

/// Overlapping clouds around the corners of a square, and `noise` features that say nothing.
fn clouds(n: usize, classes: usize, noise: usize) -> Dataset {
    let d = 2 + noise;
    let mut values = two_gaussians(n, d, 0.0, 11).x;
    let mut labels = Vec::new();
    for (i, row) in values.chunks_mut(d).enumerate() {
        let class = (i * 5) % classes;
        row[0] = 0.5 * row[0] + (class % 2) as f64;
        row[1] = 0.5 * row[1] + (class / 2) as f64;
        labels.push(class as f64);
    }
    Dataset::new(Points::dense_f64(n, d, values).unwrap(), Targets::Real(labels)).unwrap()
}

fn scores(model: &Model, data: &Dataset) -> Vec<f64> {
    model.scores(&data.points, Precision::Double, &control()).unwrap()
}

/// Written, read, verified on the data: the same proof. `gap` bounds the relative gap of each machine.
fn travels(model: &Model, data: &Dataset, gap: f64) {
    let bytes = io::model::to_bytes(model).unwrap();
    let back = io::model::from_bytes(&bytes, "memory").unwrap();
    assert_eq!(
        back.predict(&data.points, Precision::Double, &control()).unwrap(),
        model.predict(&data.points, Precision::Double, &control()).unwrap()
    );
    let proofs = verify(&back, data, None, &control()).unwrap();
    assert_eq!(proofs.len(), model.machines.len());
    for (proof, record) in proofs.iter().zip(&model.machines) {
        assert!(proof.relative_gap().unwrap() <= gap, "{proof}");
        assert!((proof.primal() - record.certificate.primal()).abs() <= 1e-12 * proof.primal().abs().max(1.0));
    }
    // The gap is that of this data and no other.
    let wrong =
        Dataset::new(data.points.clone(), Targets::Real(data.targets.real().unwrap().iter().rev().copied().collect()));
    let proofs = verify(&back, &wrong.unwrap(), None, &control()).unwrap();
    assert!(proofs.iter().any(|proof| proof.relative_gap().unwrap() > 100.0 * gap));
}

#[test]
fn a_penalised_bias_is_the_weight_of_a_constant_feature() {
    let data = clouds(120, 2, 1);
    let s = 0.7;
    for loss in ["hinge", "squared-hinge", "logistic"] {
        let svm = Svm::classifier().kernel(Kernel::Linear).loss_spec(loss.parse().unwrap()).cost(0.5).gap(1e-10);
        let with = svm.clone().intercept_scaling(Some(s)).fit(&data).unwrap();
        let mut row = vec![0.0; 3];
        let wide: Vec<f64> = (0..data.len())
            .flat_map(|i| {
                data.points.copy_row(i, &mut row);
                [row[0], row[1], row[2], s]
            })
            .collect();
        let wide = Dataset::new(Points::dense_f64(data.len(), 4, wide).unwrap(), data.targets.clone()).unwrap();
        let spelt = svm.clone().bias(false).fit(&wide).unwrap();
        // Both are within 1e-10 of the optimum, of size about 40; ½‖Δw‖² ≤ gap, so weights agree to √(2·40·1e-10) < 1e-4.
        let (p, q) = (with.certificate().primal(), spelt.certificate().primal());
        assert!((p - q).abs() <= 2e-10 * p, "{loss}: {p} and {q}");
        let (w, v) = (with.model().expansion.weights().unwrap(), spelt.model().expansion.weights().unwrap());
        (0..3).for_each(|j| assert!((w[j] - v[j]).abs() < 2e-4, "{loss}: {w:?} {v:?}"));
        let bias = with.model().expansion.bias()[0];
        assert!((bias - s * v[3]).abs() < 2e-4, "{loss}: {bias} and {v:?}");
        let free = svm.fit(&data).unwrap();
        assert!((free.model().expansion.bias()[0] - bias).abs() > 1e-3, "{loss}: the penalty has no effect");
        assert_eq!((with.model().free_bias, with.model().intercept_scaling), (false, Some(s)));
        travels(with.model(), &data, 1e-9);
    }
    let svm = Svm::classifier().kernel(Kernel::Linear);
    assert!(svm.clone().intercept_scaling(Some(0.0)).fit(&data).is_err());
    assert!(svm.clone().intercept_scaling(Some(1.0)).bias(false).fit(&data).is_err());
    assert!(svm.kernel(Kernel::rbf(1.0)).intercept_scaling(Some(1.0)).fit(&data).is_err());
}

#[test]
fn a_penalised_bias_without_features_is_verified_as_trained() {
    let labels = vec![2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 1.0, 3.0, 3.0];
    let data = Dataset::new(Points::dense_f64(9, 0, vec![]).unwrap(), Targets::Real(labels)).unwrap();
    for multiclass in [Scheme::OneVsOne, Scheme::OneVsRest] {
        let svm = Svm::classifier().kernel(Kernel::Linear).multiclass(multiclass).gap(1e-6);
        let fit = svm.intercept_scaling(Some(1.0)).fit(&data).unwrap();
        let proofs = verify(fit.model(), &data, None, &control()).unwrap();
        assert!(proofs.iter().all(|proof| proof.relative_gap().unwrap() <= 1e-6), "{multiclass:?}: {proofs:?}");
    }
}

#[test]
fn the_l1_penalty_leaves_out_what_says_nothing() {
    let data = clouds(200, 2, 6);
    for loss in ["squared-hinge", "logistic"] {
        let svm = Svm::classifier().kernel(Kernel::Linear).loss_spec(loss.parse().unwrap()).cost(0.03).gap(1e-8);
        let l1 = svm.clone().penalty(Penalty::L1).fit(&data).unwrap();
        let l2 = svm.fit(&data).unwrap();
        let zeros = |model: &Model| model.expansion.weights().unwrap().iter().filter(|w| **w == 0.0).count();
        assert_eq!(zeros(l2.model()), 0);
        assert!(zeros(l1.model()) >= 4, "{:?}", l1.model().expansion.weights());
        assert!(l1.model().expansion.weights().unwrap()[0] > 0.1);
        assert_eq!(l1.model().penalty, Penalty::L1);
        // P is ‖w‖₁ + Σ losses, by hand.
        let build = loss.parse::<LossSpec>().unwrap().build().unwrap();
        let y = data.targets.real().unwrap();
        let lost: f64 = scores(l1.model(), &data).iter().zip(y).map(|(z, y)| build.value(2.0 * y - 1.0, *z)).sum();
        let norm: f64 = l1.model().expansion.weights().unwrap().iter().map(|w| w.abs()).sum();
        let p = l1.certificate().primal();
        assert!((p - (norm + 0.03 * lost)).abs() <= 1e-10 * p);
        travels(l1.model(), &data, 1e-8);
    }
    let kinked = Svm::classifier().kernel(Kernel::Linear).penalty(Penalty::L1).fit(&data);
    assert!(kinked.unwrap_err().to_string().contains("squared-hinge"));
}

#[test]
fn several_classes_go_without_a_kernel() {
    let data = clouds(240, 4, 0);
    for (scheme, machines) in [(Scheme::OneVsRest, 4), (Scheme::OneVsOne, 6)] {
        for loss in ["hinge", "squared-hinge"] {
            let svm = Svm::classifier()
                .kernel(Kernel::Linear)
                .loss_spec(loss.parse().unwrap())
                .cost(3.0)
                .gap(1e-9)
                .multiclass(scheme);
            let fit = svm.fit(&data).unwrap();
            let exact = svm.clone().solver(SolverName::Decomposition).fit(&data).unwrap();
            assert_eq!((fit.model().solver.as_str(), exact.model().solver.as_str()), ("linear", "decomposition"));
            assert!(fit.model().expansion.is_weights() && fit.records().len() == machines);
            for (a, b) in fit.records().iter().zip(exact.records()) {
                let (a, b) = (a.certificate.primal(), b.certificate.primal());
                assert!((a - b).abs() <= 2e-9 * b.max(1.0), "{scheme:?} {loss}: {a} and {b}");
            }
            let Prediction::Labels(found) = fit.model().decide(&scores(fit.model(), &data)) else { panic!("labels") };
            let y = data.targets.real().unwrap();
            let wrong = found.iter().zip(y).filter(|(f, y)| f64::from(**f) != **y).count();
            assert!((fit.train_error() - wrong as f64 / data.len() as f64).abs() < 1e-12);
            assert!(wrong < data.len() / 2);
            travels(fit.model(), &data, 1e-8);
            // Resuming from the end is the end; threads do not matter.
            let again = svm.clone().start(fit.model().clone()).fit(&data).unwrap();
            assert!(again.totals().iterations <= machines as u64, "{}", again.totals().iterations);
            let two = svm.clone().threads(Threads::new(2)).fit(&data).unwrap();
            assert_eq!(two.model().expansion.weights(), fit.model().expansion.weights());
        }
    }
    // One machine a class unless asked otherwise.
    let fit = Svm::classifier().kernel(Kernel::Linear).fit(&data).unwrap();
    assert_eq!(fit.model().scheme, Scheme::OneVsRest);
    let l1 = Svm::classifier().kernel(Kernel::Linear).penalty(Penalty::L1).loss_spec(LossSpec::SquaredHinge);
    travels(l1.gap(1e-7).fit(&data).unwrap().model(), &data, 1e-7);
}

#[test]
fn crammer_and_singer_with_two_classes_is_the_hinge_at_twice_the_cost() {
    // With W = (−w, w)/2 the objective is ¼‖w‖² + C·Σ hinge(w): half of the binary one at 2C.
    let two = clouds(100, 2, 1);
    let svm = Svm::classifier().kernel(Kernel::Linear).bias(false).gap(1e-9);
    let both = svm.clone().multiclass(Scheme::CrammerSinger).cost(0.7).fit(&two).unwrap();
    let binary = svm.cost(1.4).fit(&two).unwrap();
    let (p, q) = (both.certificate().primal(), 0.5 * binary.certificate().primal());
    assert!((p - q).abs() <= 2e-9 * p, "{p} and {q}");
    assert_eq!(
        both.model().predict(&two.points, Precision::Double, &control()).unwrap(),
        binary.model().predict(&two.points, Precision::Double, &control()).unwrap()
    );
    travels(both.model(), &two, 1e-8);
}

#[test]
fn crammer_and_singer_is_one_proven_machine() {
    let data = clouds(240, 4, 1);
    let svm = Svm::classifier().kernel(Kernel::Linear).multiclass(Scheme::CrammerSinger).cost(2.0).gap(1e-7);
    let fit = svm.fit(&data).unwrap();
    assert_eq!((fit.records().len(), fit.model().expansion.outputs()), (1, 4));
    assert_eq!(fit.model().intercept_scaling, Some(1.0));
    assert!(fit.certificate().relative_gap().unwrap() <= 1e-7);
    // P by hand from the scores of the model.
    let z = scores(fit.model(), &data);
    let y = data.targets.real().unwrap();
    let lost: f64 = z
        .chunks(4)
        .zip(y)
        .map(|(z, y)| (0..4).map(|m| z[m] - z[*y as usize] + f64::from(u8::from(m != *y as usize))).fold(0.0, f64::max))
        .sum();
    let f = &fit.model().expansion;
    let norm: f64 = f.weights().unwrap().iter().chain(f.bias()).map(|w| w * w).sum();
    let p = fit.certificate().primal();
    assert!((p - (0.5 * norm + 2.0 * lost)).abs() <= 1e-10 * p);
    assert!(fit.train_error() < 0.5);
    travels(fit.model(), &data, 1e-6);
    assert!(svm.clone().loss_spec(LossSpec::SquaredHinge).fit(&data).is_err());
    assert!(svm.clone().penalty(Penalty::L1).fit(&data).is_err());
    assert!(svm.clone().kernel(Kernel::rbf(1.0)).fit(&data).is_err());
    assert!(svm.probability(Probability::LeaveOneOut).fit(&data).is_err());
}

#[test]
fn probabilities_do_not_need_a_kernel() {
    for classes in [2, 3] {
        let data = clouds(180, classes, 0);
        for from in [Probability::LeaveOneOut, Probability::Folds(4)] {
            let svm = Svm::classifier().kernel(Kernel::Linear).gap(1e-8).multiclass(Scheme::OneVsOne).probability(from);
            let fit = svm.fit(&data).unwrap();
            let exact = svm.clone().solver(SolverName::Decomposition).fit(&data).unwrap();
            assert_eq!(fit.model().solver, "linear");
            let p = fit.model().probabilities(&scores(fit.model(), &data)).unwrap();
            let q = exact.model().probabilities(&scores(exact.model(), &data)).unwrap();
            // The same machines, rows left out and folds: what is left is the gap, through the slope of the sigmoid.
            p.iter().zip(&q).for_each(|(p, q)| assert!((p - q).abs() < 2e-3, "{classes} {from:?}: {p} and {q}"));
        }
    }
    let data = clouds(90, 2, 0);
    let Targets::Real(y) = &data.targets else { panic!("numbers") };
    let noisy: Vec<f64> = y.iter().enumerate().map(|(i, y)| y + 0.1 * (i as f64).sin()).collect();
    let data = Dataset::new(data.points.clone(), Targets::Real(noisy)).unwrap();
    let fit = Svm::regressor().kernel(Kernel::Linear).probability(Probability::LeaveOneOut).fit(&data).unwrap();
    assert!(fit.model().calibration.is_some());
    assert_eq!(fit.model().labels, Vec::<Label>::new());
}
