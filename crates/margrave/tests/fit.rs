//! Properties of a fit, through the builder.

use margrave::loss::{Hinge, LossSpec};
use margrave::{
    Budget, Control, Dataset, Fit, Kernel, Points, Probability, SolverName, Status, Svm, Targets, Threads, verify,
};
use margrave_testkit::generate::{Sample, permutation, two_gaussians};
use margrave_testkit::property::{assert_all_close, assert_close};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn data(s: &Sample) -> Dataset {
    Dataset::new(Points::dense_f64(s.n, s.d, s.x.clone()).unwrap(), Targets::Real(s.y.clone())).unwrap()
}

fn svm() -> Svm {
    Svm::classifier().kernel(Kernel::rbf(0.5)).cost(2.0).gap(1e-9).threads(Threads::one())
}

fn scores(fit: &Fit, s: &Sample) -> Vec<f64> {
    fit.scores(&data(s).points).unwrap()
}

/// Strong convexity: ½‖f − f*‖² ≤ gap, and |f(x) − f*(x)| ≤ ‖f − f*‖ for a kernel with k(x, x) = 1. Biases differ by what
/// scores may differ by, twice; objectives here are below 200, so gaps are below 2e-7.
const SAME: f64 = 4e-3;

#[test]
fn a_doubled_sample_is_a_doubled_weight_and_a_zero_weight_is_removal() {
    let s = two_gaussians(60, 2, 2.0, 3);
    let rows: Vec<usize> = (0..60).chain(0..20).collect();
    let doubled = svm().fit(&data(&s.take(&rows))).unwrap();
    let weights = (0..60).map(|i| if i < 20 { 2.0 } else { 1.0 }).collect();
    let weighted = svm().fit(&data(&s).with_weights(weights).unwrap()).unwrap();
    assert_all_close("scores", &scores(&doubled, &s), &scores(&weighted, &s), SAME);
    let (a, b) = (doubled.certificate().primal(), weighted.certificate().primal());
    assert_close("objective", a, b, 1e-8);

    let kept = svm().fit(&data(&s.take(&(0..40).collect::<Vec<_>>()))).unwrap();
    let weights = (0..60).map(|i| f64::from(u8::from(i < 40))).collect();
    let muted = svm().fit(&data(&s).with_weights(weights).unwrap()).unwrap();
    assert_close("objective", kept.certificate().primal(), muted.certificate().primal(), 1e-8);
}

#[test]
fn permuted_rows_give_the_same_machine() {
    let s = two_gaussians(80, 3, 1.5, 5);
    let shuffled = s.take(&permutation(80, 1));
    let (a, b) = (svm().fit(&data(&s)).unwrap(), svm().fit(&data(&shuffled)).unwrap());
    assert_all_close("scores", &scores(&a, &s), &scores(&b, &s), SAME);
}

#[test]
fn the_certificate_is_confirmed_and_a_changed_model_is_caught() {
    let s = two_gaussians(100, 2, 1.0, 9);
    let fit = svm().fit(&data(&s)).unwrap();
    assert_eq!(fit.status(), Status::Optimal, "{:?}", fit.record());
    let control = Control::unlimited(Threads::one());
    let again = verify(fit.model(), &data(&s), None, &control).unwrap().remove(0);
    // The fit's own scores are double precision: the two agree to rounding of the objective.
    assert_close("primal", again.primal(), fit.certificate().primal(), 1e-10);
    assert!(again.relative_gap().is_some_and(|gap| gap <= 1.1e-9));

    let mut model = fit.model().clone();
    let f = model.expansion.clone();
    let changed = f.coefficients().iter().map(|b| b * 0.9).collect();
    model.expansion = margrave::engine::model::Expansion::new(
        *f.kernel(),
        f.centres().clone(),
        f.rows().to_vec(),
        changed,
        f.bias().to_vec(),
        f.width(),
    )
    .unwrap();
    let caught = verify(&model, &data(&s), None, &control).unwrap().remove(0);
    assert!(caught.relative_gap().is_some_and(|gap| gap > 1e-4), "{caught}");

    let mut other = data(&s.take(&(1..100).chain([0]).collect::<Vec<_>>()));
    assert!(verify(fit.model(), &other, None, &control).unwrap_err().to_string().contains("in its order"));
    other = data(&s.take(&[0, 1]));
    assert!(verify(fit.model(), &other, None, &control).unwrap_err().to_string().contains("100 rows"));
}

#[test]
fn a_saved_model_gives_the_same_bits() {
    let s = two_gaussians(70, 2, 1.0, 2);
    let fit = svm().scale(Some(margrave::engine::data::ScaleKind::Standard)).fit(&data(&s)).unwrap();
    let bytes = margrave::io::model::to_bytes(fit.model()).unwrap();
    let back = margrave::io::model::from_bytes(&bytes, "m").unwrap();
    let control = Control::unlimited(Threads::one());
    let read = back.scores(&data(&s).points, margrave::engine::gram::Precision::Double, &control).unwrap();
    assert_eq!(read, scores(&fit, &s));
}

#[test]
fn the_lambda_form_is_the_same_problem() {
    let s = two_gaussians(50, 2, 1.0, 4);
    let c = svm().cost(0.25).fit(&data(&s)).unwrap();
    let lambda = svm().lambda(1.0 / (2.0 * 0.25 * 50.0)).fit(&data(&s)).unwrap();
    assert_close("objective", c.certificate().primal(), lambda.certificate().primal(), 1e-9);
}

#[test]
fn nothing_allowed_still_gives_a_certified_machine() {
    let s = two_gaussians(50, 2, 1.0, 4);
    let fit = svm().budget(Budget { seconds: Some(0.0), ..Budget::default() }).fit(&data(&s)).unwrap();
    assert_eq!(fit.status(), Status::TimeLimit);
    assert!(fit.certificate().gap().is_some_and(|gap| gap >= 0.0 && gap.is_finite()));
    // A start from the optimum has next to nothing left to do: both are optimal to rounding of the same gap.
    let full = svm().fit(&data(&s)).unwrap();
    let from_nothing = full.record().iterations;
    let again = svm().start(full.into_model()).fit(&data(&s)).unwrap();
    assert_eq!(again.status(), Status::Optimal);
    assert!(again.record().iterations <= from_nothing / 4, "{from_nothing}, then {:?}", again.record());
}

#[test]
fn errors_say_what_to_do() {
    let s = two_gaussians(10, 2, 1.0, 4);
    let say = |svm: Svm, data: &Dataset| svm.fit(data).unwrap_err().to_string();
    let d = data(&s);
    assert!(say(svm().cost(0.0), &d).contains("C = 0"));
    assert!(say(svm().epsilon(0.1), &d).contains("tube"));
    assert!(say(svm().nu(0.5).loss(Hinge), &d).contains("leave out"));
    assert!(say(Svm::regressor().loss(Hinge), &d).contains("classification"));
    assert!(say(svm().kernel(Kernel::Precomputed), &d).contains("10 × 2"));
    assert!(say(svm().kernel(Kernel::rbf(-1.0)), &d).contains("gamma"));
    let unlabelled = Dataset::new(d.points.clone(), Targets::None).unwrap();
    assert!(say(svm(), &unlabelled).contains("no target"));
    let one = Dataset::new(d.points.clone(), Targets::Real(vec![1.0; 10])).unwrap();
    assert!(say(svm(), &one).contains("nothing to tell apart"));
    let empty = Dataset::new(Points::dense_f64(0, 2, vec![]).unwrap(), Targets::Real(vec![])).unwrap();
    assert!(say(svm(), &empty).contains("no rows"));
}

#[test]
fn equal_samples_are_merged_without_a_trace_in_the_answer() {
    let mut rng = ChaCha8Rng::seed_from_u64(77);
    // 40 places, 200 rows, some with both labels; weights differ between copies.
    let n = 200;
    let places: Vec<[f64; 2]> = (0..40).map(|_| [rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0)]).collect();
    let at: Vec<usize> = (0..n).map(|_| rng.random_range(0..40)).collect();
    let x: Vec<f64> = at.iter().flat_map(|&p| places[p]).collect();
    let label = |p: usize| if places[p][0] + places[p][1] > 0.0 { 1.0 } else { -1.0 };
    let y: Vec<f64> = at.iter().map(|&p| if rng.random_range(0..8) == 0 { -label(p) } else { label(p) }).collect();
    let weights: Vec<f64> = (0..n).map(|_| f64::from(rng.random_range(1..4))).collect();
    let points = Points::dense_f64(n, 2, x).unwrap();
    let classes =
        Dataset::new(points.clone(), Targets::Real(y.clone())).unwrap().with_weights(weights.clone()).unwrap();
    let several: Vec<f64> = at.iter().map(|&p| (p % 3) as f64).collect();
    let several = Dataset::new(points.clone(), Targets::Real(several)).unwrap();
    let rbf = Kernel::rbf(1.0);
    let spec = |text: &str| text.parse::<LossSpec>().unwrap();
    let cases = [
        (Svm::classifier().kernel(rbf), &classes),
        (Svm::classifier().kernel(rbf).loss_spec(spec("squared-hinge")), &classes),
        (Svm::classifier().kernel(rbf).loss_spec(spec("logistic")), &classes),
        (Svm::classifier().kernel(rbf).nu(0.3), &classes),
        (Svm::classifier().kernel(rbf).bias(false), &classes),
        (Svm::classifier().kernel(rbf).probability(Probability::LeaveOneOut), &several),
        (Svm::regressor().kernel(rbf).epsilon(0.2), &classes),
        (Svm::regressor().kernel(rbf).nu(0.4), &classes),
        (Svm::regressor().kernel(rbf).loss_spec(spec("huber:delta=0.3")), &classes),
        (Svm::regressor().kernel(rbf).loss_spec(spec("square")), &classes),
        (Svm::novelty().kernel(rbf).nu(0.4), &classes),
        (Svm::novelty().kernel(rbf).nu(0.4).svdd(true), &classes),
        (Svm::classifier().kernel(Kernel::Linear).solver(SolverName::Decomposition), &classes),
    ];
    for (svm, data) in cases {
        let svm = svm.tol(1e-6).gap(1e-7);
        let merged = svm.fit(data).unwrap();
        let plain = svm.clone().merge_equal(false).fit(data).unwrap();
        assert!(merged.merged() > 50 && plain.merged() == 0, "{} merged", merged.merged());
        assert_eq!((merged.status(), plain.status()), (Status::Optimal, Status::Optimal), "{svm:?}");
        for (a, b) in merged.certificates().zip(plain.certificates()) {
            assert!((a.primal() - b.primal()).abs() <= 1e-6 * b.primal().abs(), "{a} and {b}");
        }
        let (z, plain_z) = (merged.scores(&points).unwrap(), plain.scores(&points).unwrap());
        assert!(z.iter().zip(&plain_z).all(|(a, b)| (a - b).abs() < 2e-3), "{svm:?}");
        // A split within the bounds, not one share for every copy: no more support vectors than before, about.
        let (few, many) = (merged.totals().support_vectors, plain.totals().support_vectors);
        assert!(few as f64 <= 1.1 * many as f64 + 2.0, "{few} and {many} support vectors: {svm:?}");
        assert!(verify(merged.model(), data, None, &Control::unlimited(Threads::one())).is_ok());
    }
}
