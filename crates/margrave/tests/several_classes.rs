//! Several classes: every machine is the binary machine of its pair, results do not depend on threads, models travel.

use margrave::engine::data::{Dataset, Label, Points, Targets};
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, Scheme, pairs};
use margrave::loss::LossSpec;
use margrave::{Control, Kernel, Model, SolverName, Svm, Threads, verify};
use margrave_testkit::generate::two_gaussians;

fn control() -> Control {
    Control::unlimited(Threads::one())
}

/// Four overlapping clouds in the plane, with text labels.
fn clouds(n: usize) -> Dataset {
    // Standard normal noise: the two clouds of the generator without a distance between them.
    let noise = two_gaussians(n, 2, 0.0, 5).x;
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for i in 0..n {
        let class = (i * 7) % 4;
        let (x, y) = ((class % 2) as f64, (class / 2) as f64);
        values.push(x + 0.4 * noise[2 * i]);
        values.push(y + 0.4 * noise[2 * i + 1]);
        labels.push(["north", "east", "south", "west"][class].to_owned());
    }
    Dataset::new(Points::dense_f64(n, 2, values).unwrap(), Targets::Text(labels)).unwrap()
}

fn rows_of(data: &Dataset, names: [&Label; 2]) -> Vec<u32> {
    let Targets::Text(labels) = &data.targets else { panic!("text labels") };
    let kept = |name: &String| names.contains(&&Label::Text(name.clone()));
    (0..data.len() as u32).filter(|&row| kept(&labels[row as usize])).collect()
}

fn scores(model: &Model, data: &Dataset) -> Vec<f64> {
    model.scores(&data.points, Precision::Double, &control()).unwrap()
}

#[test]
fn each_pair_is_its_own_binary_machine() {
    let data = clouds(160);
    for kernel in [Kernel::rbf(0.7), Kernel::Linear] {
        let svm = Svm::classifier().kernel(kernel).cost(2.0).gap(1e-9).multiclass(Scheme::OneVsOne);
        let fit = svm.fit(&data).unwrap();
        assert_eq!((fit.model().scheme, fit.records().len()), (Scheme::OneVsOne, 6));
        let all = scores(fit.model(), &data);
        let labels = &fit.model().labels;
        for (output, (i, j)) in pairs(4).enumerate() {
            let rows = rows_of(&data, [&labels[i], &labels[j]]);
            let part = Dataset::new(data.points.gather(&rows), data.targets.gather(&rows)).unwrap();
            let alone = svm.fit(&part).unwrap();
            // ½‖f − f*‖² ≤ gap ≤ 1e-9·100 for both, |f(x) − f*(x)| ≤ ‖f − f*‖·√k(x, x) with k(x, x) ≤ 9 here. The bias may
            // be any of an interval where no sample lies on the margin: f is compared without it.
            let apart = scores(alone.model(), &data);
            let shift = apart[0] - all[output];
            for (row, z) in apart.iter().enumerate() {
                let difference = z - all[row * 6 + output] - shift;
                assert!(difference.abs() < 6e-3, "{kernel} pair {i} {j} row {row}: {difference}");
            }
            let (a, b) = (&fit.records()[output].certificate, alone.certificate());
            assert!((a.primal() - b.primal()).abs() <= 2e-9 * b.primal().max(1.0));
        }
        let totals = fit.totals();
        let sum: f64 = fit.records().iter().map(|r| r.certificate.primal()).sum();
        assert_eq!(totals.primal, sum);
        assert!(totals.relative_gap.is_some_and(|gap| gap <= 1e-8));
    }
}

#[test]
fn threads_change_no_bit() {
    let data = clouds(200);
    for scheme in [Scheme::OneVsOne, Scheme::OneVsRest] {
        let fit = |threads| {
            let svm = Svm::classifier().cost(10.0).multiclass(scheme).threads(Threads::new(threads));
            scores(svm.fit(&data).unwrap().model(), &data)
        };
        assert_eq!(fit(1), fit(3), "{scheme:?}");
    }
}

#[test]
fn training_error_is_the_error_of_predicting_the_training_data() {
    let data = clouds(300);
    for scheme in [Scheme::OneVsOne, Scheme::OneVsRest] {
        let fit = Svm::classifier().cost(0.5).multiclass(scheme).fit(&data).unwrap();
        let model = fit.model();
        let Prediction::Labels(codes) = model.predict(&data.points, Precision::Double, &control()).unwrap() else {
            panic!("labels expected")
        };
        let (classes, truth) = data.targets.classes().unwrap();
        assert_eq!(classes, model.labels);
        let wrong = codes.iter().zip(&truth).filter(|(a, b)| a != b).count();
        assert!(wrong > 0, "the clouds overlap");
        assert_eq!(fit.train_error(), wrong as f64 / 300.0, "{scheme:?}");
    }
}

#[test]
fn models_of_several_classes_travel_and_verify() {
    let data = clouds(120);
    for scheme in [Scheme::OneVsOne, Scheme::OneVsRest] {
        let fit = Svm::classifier().cost(3.0).multiclass(scheme).gap(1e-7).fit(&data).unwrap();
        let bytes = margrave::io::model::to_bytes(fit.model()).unwrap();
        let back = margrave::io::model::from_bytes(&bytes, "memory").unwrap();
        assert_eq!(scores(&back, &data), scores(fit.model(), &data));
        let proofs = verify(&back, &data, None, &control()).unwrap();
        assert_eq!(proofs.len(), fit.records().len());
        for proof in &proofs {
            assert!(proof.relative_gap().is_some_and(|gap| gap <= 2e-7), "{proof}");
        }
        // As an answer to another question it is caught.
        let other = verify(&back, &data, Some(30.0), &control()).unwrap();
        assert!(other.iter().any(|proof| proof.relative_gap().is_some_and(|gap| gap > 1e-2)));
        for end in (0..bytes.len()).step_by(97) {
            assert!(margrave::io::model::from_bytes(&bytes[..end], "cut").is_err());
        }
    }
}

#[test]
fn least_squares_of_all_classes_come_from_one_factorisation() {
    let data = clouds(150);
    let svm = Svm::classifier().loss_spec(LossSpec::Square).cost(5.0).multiclass(Scheme::OneVsRest).gap(1e-10);
    let together = svm.fit(&data).unwrap();
    assert_eq!(together.model().solver, "ridge");
    let apart = svm.clone().solver(SolverName::Decomposition).fit(&data).unwrap();
    assert_eq!(apart.model().solver, "decomposition");
    for (a, b) in scores(together.model(), &data).iter().zip(scores(apart.model(), &data)) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    assert!(together.totals().relative_gap.is_some_and(|gap| gap < 1e-9));
}

#[test]
fn budgets_and_resuming_reach_every_machine() {
    let data = clouds(160);
    let svm = Svm::classifier().cost(100.0).gap(1e-8);
    let budget = margrave::Budget { seconds: Some(0.0), ..margrave::Budget::default() };
    let stopped = svm.clone().budget(budget).fit(&data).unwrap();
    assert_eq!(stopped.status(), margrave::Status::TimeLimit);
    let whole = svm.fit(&data).unwrap();
    let again = svm.clone().start(whole.model().clone()).fit(&data).unwrap();
    assert_eq!(again.status(), margrave::Status::Optimal);
    assert!(again.totals().iterations <= 6, "{}", again.totals().iterations);
    let other = svm.clone().multiclass(Scheme::OneVsRest).start(whole.into_model()).fit(&data);
    assert!(other.unwrap_err().to_string().contains(".multiclass("));
}

#[test]
fn what_goes_wrong_names_the_classes() {
    // Class c has 1 of 21 samples: ν = 0.5 is too large for its pairs.
    let labels: Vec<String> = (0..21).map(|i| ["a", "b", "c"][if i == 20 { 2 } else { i % 2 }].to_owned()).collect();
    let points = Points::dense_f64(21, 1, (0..21).map(f64::from).collect::<Vec<_>>()).unwrap();
    let data = Dataset::new(points, Targets::Text(labels)).unwrap();
    let said = Svm::classifier().nu(0.5).fit(&data).unwrap_err().to_string();
    assert!(said.contains("against c") && said.contains("at most"), "{said}");
}
