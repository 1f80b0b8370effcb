//! Values of scikit-learn 1.9 for the same truth and predictions, without weights and with them.

use super::classes::{Confusion, average_precision, brier, descending, log_loss, roc_auc};
use super::numbers::{explained_variance, mae, pinball, r2, rmse};
use super::*;

const TRUTH: [u32; 10] = [0, 1, 2, 2, 1, 0, 0, 2, 1, 1];
const LABELS: [u32; 10] = [0, 2, 2, 2, 1, 0, 1, 2, 1, 0];
const WEIGHTS: [f64; 10] = [1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 0.0, 2.0, 1.0, 0.25];
const SCORES: [f64; 10] = [-1.0, 0.2, 0.7, 0.2, -0.3, 0.9, -2.0, 1.5, 0.2, -1.0];

fn same(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-14, "{found} {expected}");
    }
}

#[test]
fn labels() {
    let of = |weights| {
        let c = Confusion::new(3, &TRUTH, &LABELS, weights);
        [c.accuracy(), c.balanced_accuracy(), c.f1(0), c.f1(1), c.f1(2), c.f1_macro(), c.mcc()]
    };
    let plain = [
        0.7,
        0.7222222222222222,
        0.6666666666666666,
        0.5714285714285714,
        0.8571428571428571,
        0.6984126984126985,
        0.5606060606060606,
    ];
    same(&of(None), &plain);
    let weighted = [
        0.8085106382978723,
        0.88,
        0.9411764705882353,
        0.7804878048780488,
        0.7777777777777778,
        0.833147351081354,
        0.7420945722142785,
    ];
    same(&of(Some(&WEIGHTS)), &weighted);
    // A class that never occurs counts nowhere; a constant prediction has no correlation.
    let c = Confusion::new(4, &TRUTH, &LABELS, None);
    same(
        &[c.balanced_accuracy(), c.f1_macro()],
        &plain[1..=1].iter().chain(&plain[5..=5]).copied().collect::<Vec<_>>(),
    );
    assert_eq!(Confusion::new(3, &TRUTH, &[1; 10], None).mcc(), 0.0);
    assert_eq!(Confusion::new(2, &[], &[], None).accuracy(), 0.0);
}

#[test]
fn scores_and_probabilities() {
    let truth: Vec<u32> = TRUTH.iter().map(|t| u32::from(*t == 2)).collect();
    let p: Vec<f64> = SCORES.iter().map(|z| 1.0 / (1.0 + (-z).exp())).flat_map(|p: f64| [1.0 - p, p]).collect();
    let order = descending(&SCORES);
    let of = |weights| {
        [
            roc_auc(&truth, &SCORES, &order, weights),
            average_precision(&truth, &SCORES, &order, weights),
            log_loss(&truth, &p, 2, weights),
            brier(&truth, &p, 2, weights),
        ]
    };
    same(&of(None), &[0.8571428571428571, 0.7222222222222222, 0.5347976440293019, 0.17960793851076196]);
    same(&of(Some(&WEIGHTS)), &[0.8961038961038962, 0.8068027210884354, 0.5866188745080894, 0.201733454847242]);
    assert!(roc_auc(&[1; 10], &SCORES, &order, None).is_nan());
    #[rustfmt::skip]
    let three = [
        0.7, 0.2, 0.1, 0.1, 0.3, 0.6, 0.2, 0.2, 0.6, 0.05, 0.05, 0.9, 0.3, 0.4, 0.3,
        0.5, 0.25, 0.25, 0.2, 0.7, 0.1, 0.1, 0.1, 0.8, 0.25, 0.5, 0.25, 0.6, 0.3, 0.1,
    ];
    let of = |weights| [log_loss(&TRUTH, &three, 3, weights), brier(&TRUTH, &three, 3, weights)];
    same(&of(None), &[0.7515973248756778, 0.4605]);
    same(&of(Some(&WEIGHTS)), &[0.6815183609007391, 0.4]);
}

#[test]
fn numbers() {
    let truth = [3.0, -1.0, 2.0, 7.0, 0.5, 0.0, 1.0, 1.0, 4.0, 2.0];
    let values = [2.5, 0.0, 2.0, 8.0, 0.5, 1.0, 1.0, -1.0, 4.5, 2.0];
    let of = |weights| {
        [
            r2(&truth, &values, weights),
            rmse(&truth, &values, weights),
            mae(&truth, &values, weights),
            pinball(0.9, &truth, &values, weights),
            explained_variance(&truth, &values, weights),
        ]
    };
    same(&of(None), &[0.8411858125992588, 0.8660254037844386, 0.6, 0.26, 0.8433033350979354]);
    let weighted = [0.7812936249418334, 1.0314212462587935, 0.7659574468085106, 0.3829787234042553, 0.7812936249418334];
    same(&of(Some(&WEIGHTS)), &weighted);
    assert_eq!((r2(&[1.0, 1.0], &[1.0, 1.0], None), r2(&[1.0, 1.0], &[1.0, 2.0], None)), (1.0, 0.0));
}

#[test]
fn names_are_read_as_they_are_written() {
    for (name, metric) in CLASSES.iter().chain(&NUMBERS) {
        assert_eq!(name.parse::<Metric>(), Ok(*metric));
        assert_eq!(metric.to_string(), *name);
        assert_eq!(name.replace('-', "_").parse::<Metric>(), Ok(*metric));
    }
    assert_eq!("pinball:0.9".parse(), Ok(Metric::Pinball(0.9)));
    assert_eq!("pinball:tau=0.9".parse::<Metric>().unwrap().to_string(), "pinball:0.9");
    for bad in ["", "auc", "pinball:1", "pinball:x", "accuracy:2"] {
        assert!(bad.parse::<Metric>().is_err(), "{bad}");
    }
    assert_eq!((Metric::Rmse.score_name(), Metric::RocAuc.score_name()), ("neg_rmse".into(), "roc_auc".into()));
    assert!(Metric::RocAuc.check(Task::Classify, 3).is_err() && Metric::RocAuc.check(Task::Classify, 2).is_ok());
    assert!(Metric::R2.check(Task::Classify, 2).is_err() && Metric::Mcc.check(Task::Regress, 0).is_err());
    assert!(Metric::LogLoss.check(Task::Classify, 3).is_ok() && Metric::F1.check(Task::Classify, 3).is_err());
}
