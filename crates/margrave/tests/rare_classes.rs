//! Probabilities, thresholds and scores for classes of different size, through the builder.

use margrave::engine::metrics::Metric;
use margrave::engine::model::{Calibration, Reason, Rule};
use margrave::tune::{Comparison, Grid, Tuner};
use margrave::{
    Caution, ClassWeight, Dataset, Kernel, Points, Prediction, Probability, ProbabilityRule, Silent, Svm, Targets,
    Threads, ThresholdRule,
};
use margrave_testkit::generate::{Sample, two_gaussians};

fn data(s: &Sample) -> Dataset {
    Dataset::new(Points::dense_f64(s.n, s.d, s.x.clone()).unwrap(), Targets::Real(s.y.clone())).unwrap()
}

/// A sample with one positive row for every nine negative ones.
fn rare(n: usize, seed: u64) -> Sample {
    let s = two_gaussians(6 * n, 2, 1.5, seed);
    let positive = (0..s.n).filter(|&i| s.y[i] > 0.0).take(n / 10);
    let negative = (0..s.n).filter(|&i| s.y[i] <= 0.0).take(n - n / 10);
    s.take(&positive.chain(negative).collect::<Vec<_>>())
}

fn svm() -> Svm {
    Svm::classifier().kernel(Kernel::rbf(0.5)).tol(1e-9).gap(1e-9).probability(Probability::LeaveOneOut)
}

fn rule_of(fit: &margrave::Fit) -> (Rule, Reason) {
    match &fit.model().calibration {
        Some(Calibration::Sigmoid { rule, reason, .. }) => (*rule, *reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn weights_are_copies_for_probabilities_and_thresholds() {
    let s = two_gaussians(80, 2, 1.5, 4);
    let counts: Vec<usize> = (0..s.n).map(|i| 1 + i % 3).collect();
    let copies: Vec<usize> = (0..s.n).flat_map(|i| vec![i; counts[i]]).collect();
    let weighted = data(&s).with_weights(counts.iter().map(|&c| c as f64).collect()).unwrap();
    let plain = data(&s);
    for rule in [ProbabilityRule::Agree, ProbabilityRule::Free, ProbabilityRule::Auto] {
        for weight in [ClassWeight::Equal, ClassWeight::Given(vec![(margrave::Label::Number(1.0), 3.0)])] {
            let svm = svm().probability_rule(rule).class_weight(weight).threshold(ThresholdRule::MaxF1);
            let (a, b) = (svm.fit(&weighted).unwrap(), svm.fit(&data(&s.take(&copies))).unwrap());
            assert_eq!(rule_of(&a), rule_of(&b));
            let (p, q) = (a.probabilities(&plain.points).unwrap(), b.probabilities(&plain.points).unwrap());
            // Both come from solutions to 1e-9.
            assert!(p.iter().zip(&q).all(|(p, q)| (p - q).abs() < 1e-5), "{rule:?}");
            let (t, u) = (a.model().threshold.clone().unwrap(), b.model().threshold.clone().unwrap());
            assert!((t.score - u.score).abs() < 1e-5 && (t.recall - u.recall).abs() < 1e-9, "{t:?} {u:?}");
        }
    }
}

#[test]
fn probabilities_of_weighted_classes_are_frequencies() {
    let (train, test) = (rare(400, 1), rare(4000, 2));
    let plain = svm().fit(&data(&train)).unwrap();
    assert!(plain.cautions().iter().any(|c| matches!(c, Caution::Imbalanced { .. })), "{:?}", plain.cautions());
    let fit = svm().class_weight(ClassWeight::Balanced).fit(&data(&train)).unwrap();
    assert_eq!((rule_of(&fit), fit.cautions()), ((Rule::Free, Reason::Weighted), &[][..]));
    let p = fit.probabilities(&data(&test).points).unwrap();
    let mean = p.iter().skip(1).step_by(2).sum::<f64>() / test.n as f64;
    assert!((mean - 0.1).abs() < 0.02, "{mean}");
    // What is predicted is what exceeds the reported threshold.
    let cut = fit.model().probability_threshold().unwrap();
    let Prediction::Labels(codes) = fit.predict(&data(&test).points).unwrap() else { panic!("labels") };
    assert!(codes.iter().zip(p.chunks_exact(2)).all(|(code, p)| (*code == 1) == (p[1] > cut)));
}

#[test]
fn a_threshold_changes_predictions_and_nothing_else() {
    let train = rare(400, 3);
    let plain = svm().fit(&data(&train)).unwrap();
    let fit = svm().threshold(ThresholdRule::Recall(0.8)).fit(&data(&train)).unwrap();
    let points = data(&train).points;
    assert_eq!(plain.scores(&points).unwrap(), fit.scores(&points).unwrap());
    assert_eq!(plain.certificate(), fit.certificate());
    let positives = |fit: &margrave::Fit| match fit.predict(&points).unwrap() {
        Prediction::Labels(codes) => codes.iter().filter(|c| **c == 1).count(),
        other => panic!("{other:?}"),
    };
    assert!(positives(&fit) > positives(&plain));
    assert!(fit.model().threshold.as_ref().unwrap().recall >= 0.8);
}

#[test]
fn the_race_loses_no_winner_by_any_score() {
    let s = two_gaussians(300, 2, 1.2, 7);
    let gammas = vec![1e-4, 1e-2, 0.3, 3.0, 300.0];
    let classes =
        ["accuracy", "balanced-accuracy", "f1", "f1-macro", "roc-auc", "average-precision", "log-loss", "mcc"];
    let numbers = ["r2", "rmse", "mae", "pinball:0.8", "explained-variance"];
    let mut dropped = 0;
    let cases = classes.iter().map(|name| (true, *name)).chain(numbers.iter().map(|name| (false, *name)));
    for (classify, name) in cases {
        let metric: Metric = name.parse().unwrap();
        let search = |race: Option<f64>, threads: usize| {
            let svm = if classify { Svm::classifier() } else { Svm::regressor() };
            let svm = svm.kernel(Kernel::rbf(1.0)).threads(Threads::new(threads));
            let grid = Grid { gammas: gammas.clone(), costs: vec![0.1, 10.0], ..Grid::default() };
            let tuner = Tuner { race, score: Some(metric), ..Tuner::new(svm, grid) };
            tuner.search(&data(&s), &mut Silent).unwrap()
        };
        let (all, raced) = (search(None, 2), search(Some(4.0), 2));
        let best = |t: &margrave::tune::Tuned| t.cells[t.best.unwrap()].clone();
        assert_eq!(best(&all).params, best(&raced).params, "{name}");
        // Machines start from others in another order.
        assert!((best(&all).score().unwrap() - best(&raced).score().unwrap()).abs() < 1e-6, "{name}");
        let left: Vec<bool> = raced.cells.iter().map(|cell| cell.dropped).collect();
        let by_one: Vec<bool> = search(Some(4.0), 1).cells.iter().map(|cell| cell.dropped).collect();
        assert_eq!(left, by_one, "{name}: the number of threads matters");
        let count = left.iter().filter(|d| **d).count();
        match Comparison::of(metric) {
            Comparison::None => assert_eq!(count, 0, "{name}"),
            Comparison::Bootstrap => dropped += count,
            Comparison::Losses => assert!(count > 0, "{name}: nothing hopeless was dropped"),
        }
    }
    assert!(dropped > 0, "resampling never dropped anything");
}

#[test]
fn scores_that_do_not_fit_are_refused() {
    let s = two_gaussians(60, 2, 1.0, 1);
    let search = |score: Metric, folds: usize| {
        let svm = Svm::classifier().kernel(Kernel::rbf(1.0));
        let fold_of = Some((0..60).map(|i| (i / (60 / folds)) as u32).collect());
        let tuner = Tuner { score: Some(score), folds, fold_of, ..Tuner::new(svm, Grid::default()) };
        tuner.search(&data(&s), &mut Silent).map(|_| ()).map_err(|e| e.to_string())
    };
    assert!(search(Metric::R2, 2).unwrap_err().contains("it is for numbers"));
    assert!(search(Metric::RocAuc, 2).is_ok());
    // Folds in the order of the rows may have one class only.
    assert!(search(Metric::RocAuc, 60).unwrap_err().contains("fewer folds"));
}

#[test]
fn tiny_nu_machines_have_probabilities() {
    // Fifteen rows of three classes: a fold may hold out all rows of a class of a pair, and ν = 0 would be left.
    for few in [1, 2, 3, 4] {
        let n = 15;
        let x: Vec<f64> = (0..n).flat_map(|i| [(i as f64).sin(), (1.7 * i as f64).cos()]).collect();
        let y = (0..n).map(|i| if i < few { 2.0 } else { f64::from(i as u32 % 2) }).collect();
        let data = Dataset::new(Points::dense_f64(n, 2, x).unwrap(), Targets::Real(y)).unwrap();
        let svm = Svm::classifier().kernel(Kernel::rbf(0.5)).nu(0.5).lower_nu(true);
        let fit = svm.probability(Probability::LeaveOneOut).threads(Threads::one()).fit(&data).unwrap();
        let p = fit.probabilities(&data.points).unwrap();
        assert!(p.iter().all(|p| (0.0..=1.0).contains(p)), "{few}: {p:?}");
        assert!(p.chunks_exact(3).all(|p| (p.iter().sum::<f64>() - 1.0).abs() < 1e-9), "{few}: {p:?}");
    }
}

#[test]
fn folds_of_a_calibration_learn_their_own_scaling() {
    use margrave::engine::compose::cross_validate::{Deal, folds};
    use margrave::engine::compose::sigmoid::{Labelled, fit_free};
    use margrave::engine::data::{ScaleKind, Scaling};
    use margrave::engine::gram::Precision;
    // One row has most of the spread of the second feature: the scaling of a fold depends on whether it has that row.
    let mut s = two_gaussians(120, 2, 1.0, 9);
    (0..s.n).for_each(|i| s.x[2 * i + 1] *= 0.05);
    s.x[1] = 60.0;
    let data = data(&s);
    let (k, seed) = (4, 3);
    let plain = || Svm::classifier().cost(5.0).seed(seed).threads(Threads::one());
    let svm = plain().scale(Some(ScaleKind::Standard));
    let asked = |svm: Svm| svm.probability(Probability::Folds(k)).probability_rule(ProbabilityRule::Free);
    let sigmoid = |fit: &margrave::Fit| match &fit.model().calibration {
        Some(Calibration::Sigmoid { a, b, .. }) => (a[0], b[0]),
        other => panic!("{other:?}"),
    };
    let (a, b) = sigmoid(&asked(svm.clone()).fit(&data).unwrap());
    let codes: Vec<u32> = s.y.iter().map(|y| u32::from(*y > 0.0)).collect();
    let fold = folds(s.n, k, Deal::Stratified(&codes), seed).unwrap();
    let mut left = Labelled { scores: vec![0.0; s.n], labels: s.y.clone(), counts: vec![] };
    let control = margrave::Control::unlimited(Threads::one());
    for f in 0..k as u32 {
        let (kept, held): (Vec<u32>, Vec<u32>) = (0..s.n as u32).partition(|&row| fold[row as usize] != f);
        let fit = svm.fit(&data.part(&kept).unwrap()).unwrap();
        let z = fit.model().scores(&data.points.gather(&held), Precision::Double, &control).unwrap();
        held.iter().zip(z).for_each(|(&row, z)| left.scores[row as usize] = z);
    }
    let by_hand = fit_free(&left);
    // The folds of a calibration stop at a violation of 1e-3, as those do.
    assert!((a - by_hand.a).abs() < 0.02 * by_hand.a.abs() && (b - by_hand.b).abs() < 0.02, "{a} {b} {by_hand:?}");
    // With the scaling of all rows the sigmoid is another one.
    let everywhere = Scaling::fit(ScaleKind::Standard, &data.points).apply(&data.points).unwrap();
    let leaked = Dataset { points: everywhere, ..data.clone() };
    let (other, _) = sigmoid(&asked(plain()).fit(&leaked).unwrap());
    assert!((a - other).abs() > 0.05 * a.abs(), "{a} {other}");
}

/// Scores of every row by a training without it, rows × outputs.
fn without_each(svm: &Svm, data: &Dataset) -> Vec<f64> {
    use margrave::engine::gram::Precision;
    let control = margrave::Control::unlimited(Threads::one());
    let n = data.len() as u32;
    let one = |row: u32| {
        let kept: Vec<u32> = (0..n).filter(|&other| other != row).collect();
        let fit = svm.fit(&data.part(&kept).unwrap()).unwrap();
        fit.model().scores(&data.points.gather(&[row]), Precision::Double, &control).unwrap()
    };
    (0..n).flat_map(one).collect()
}

#[test]
fn leave_one_out_is_exact_for_the_square_loss_and_near_otherwise() {
    use margrave::loss::LossSpec;
    let s = two_gaussians(40, 2, 1.0, 5);
    let two = data(&s);
    let three = Dataset::new(two.points.clone(), Targets::Real((0..40).map(|i| f64::from(i % 3)).collect())).unwrap();
    let values: Vec<f64> = (0..40).flat_map(|i| [s.x[2 * i].sin(), s.x[2 * i + 1] * s.x[2 * i]]).collect();
    let numbers = Dataset::new(two.points.clone(), Targets::Several { outputs: 2, values }).unwrap();
    let classify = || Svm::classifier().kernel(Kernel::rbf(0.7)).cost(2.0).tol(1e-9).gap(1e-10).threads(Threads::one());
    let regress = || Svm::regressor().kernel(Kernel::rbf(0.7)).cost(2.0).tol(1e-9).gap(1e-10).threads(Threads::one());
    let square = LossSpec::Square;
    let exact = [
        (classify().loss_spec(square), &two),
        (classify().loss_spec(square), &three),
        (classify().loss_spec(square).multiclass(margrave::engine::model::Scheme::OneVsRest), &three),
        (classify().kernel(Kernel::Linear).loss_spec(square), &two),
        (classify().kernel(Kernel::Linear).intercept_scaling(Some(2.0)).loss_spec(square), &two),
        (regress().loss_spec(square), &numbers),
        (regress().loss_spec(square).solver("irwls".parse().unwrap()), &numbers),
    ];
    for (at, (svm, data)) in exact.into_iter().enumerate() {
        assert!(svm.fit(data).unwrap().leave_one_out().is_none());
        let fit = svm.clone().leave_one_out(true).fit(data).unwrap();
        assert!(fit.model().calibration.is_none());
        let left = fit.leave_one_out().unwrap();
        assert!(left.exact && left.rows == (0..40).collect::<Vec<u32>>(), "{at}");
        for (found, truth) in left.scores.iter().zip(without_each(&svm, data)) {
            assert!((found - truth).abs() < 1e-5, "{at}: {found} {truth}");
        }
    }
    // With C = 20 rows at their bounds would move far, and the rule is not used.
    assert!(classify().cost(20.0).leave_one_out(true).fit(&two).unwrap().leave_one_out().is_none());
    let svm = classify().cost(1.0);
    let fit = svm.clone().leave_one_out(true).fit(&two).unwrap();
    let left = fit.leave_one_out().unwrap();
    assert!(!left.exact && left.rows.len() == 40);
    let truth = without_each(&svm, &two);
    let plain = fit.scores(&two.points).unwrap();
    let off = |scores: &[f64]| scores.iter().zip(&truth).map(|(a, b)| (a - b).abs()).sum::<f64>();
    assert!(off(&left.scores) < 0.6 * off(&plain), "{} {}", off(&left.scores), off(&plain));
}

#[test]
fn a_coarse_rule_gives_way_to_folds_that_copies_do_not_change() {
    use margrave::engine::model::Origin;
    let s = two_gaussians(90, 2, 1.0, 8);
    let origin = |fit: &margrave::Fit| match &fit.model().calibration {
        Some(Calibration::Sigmoid { origin, .. }) => *origin,
        other => panic!("{other:?}"),
    };
    assert_eq!(origin(&svm().cost(1.0).fit(&data(&s)).unwrap()), Origin::LeaveOneOut);
    for svm in [svm().cost(50.0), svm().kernel(Kernel::Linear).cost(5.0)] {
        let fit = svm.fit(&data(&s)).unwrap();
        assert_eq!(origin(&fit), Origin::Folds);
        // In another order, and with weights in place of copies, the folds have the same rows.
        let turned: Vec<usize> = (0..s.n).rev().collect();
        let counts: Vec<usize> = (0..s.n).map(|i| 1 + i % 2).collect();
        let copies: Vec<usize> = (0..s.n).flat_map(|i| vec![i; counts[i]]).collect();
        let weighted = data(&s).with_weights(counts.iter().map(|&c| c as f64).collect()).unwrap();
        let plain = data(&s).points;
        let p = |data: &Dataset| svm.fit(data).unwrap().probabilities(&plain).unwrap();
        for (a, b) in [(p(&data(&s)), p(&data(&s.take(&turned)))), (p(&weighted), p(&data(&s.take(&copies))))] {
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }
}

#[test]
fn a_machine_that_can_only_be_zero_is_pointed_out() {
    let overlapping = data(&two_gaussians(120, 2, 0.5, 3));
    let fit = |nu: f64| Svm::classifier().kernel(Kernel::Linear).nu(nu).fit(&overlapping).unwrap();
    let zero = |fit: &margrave::Fit| fit.cautions().iter().any(|c| matches!(c, Caution::Zero { .. }));
    assert!(zero(&fit(0.05)), "{:?}", fit(0.05).certificate());
    assert!(!zero(&fit(0.9)), "{:?}", fit(0.9).certificate());
    // Points around the origin cannot be separated from it by a line; in the space of the RBF kernel all points can.
    let novelty = |kernel: Kernel| Svm::novelty().kernel(kernel).nu(0.5).fit(&overlapping).unwrap();
    assert!(zero(&novelty(Kernel::Linear)) && !zero(&novelty(Kernel::rbf(0.5))));
    let said = novelty(Kernel::Linear).cautions()[0].to_string();
    assert!(said.contains("the origin"), "{said}");
}
