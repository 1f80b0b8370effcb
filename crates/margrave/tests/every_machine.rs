//! Every machine the decomposition solver trains, certified to a relative gap of 1e-6.

use margrave::engine::data::{Dataset, ScaleKind};
use margrave::engine::model::Prediction;
use margrave::engine::problem::ClassWeight;
use margrave::engine::solver::Stop;
use margrave::{Kernel, Label, Points, Status, Svm, Targets, Threads, loss};

/// Two noisy half-circles, without a random generator: a fixed low-discrepancy sequence.
fn moons(n: usize) -> Dataset {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for i in 0..n {
        let t = std::f64::consts::PI * ((i as f64 * 0.618_033_988_7) % 1.0);
        let (side, noise) = (i % 2, 0.3 * ((i as f64 * 0.754_877_666) % 1.0 - 0.5));
        let (a, b) = if side == 0 { (t.cos(), t.sin()) } else { (1.0 - t.cos(), 0.5 - t.sin()) };
        x.extend([a + noise, b - noise]);
        y.push(side as f64);
    }
    Dataset::new(Points::dense_f64(n, 2, x).unwrap(), Targets::Real(y)).unwrap()
}

fn wave(n: usize) -> Dataset {
    let x: Vec<f64> = (0..n).map(|i| i as f64 / n as f64 * 6.0).collect();
    let y = x.iter().enumerate().map(|(i, x)| x.sin() + 0.2 * ((i as f64 * 0.618) % 1.0 - 0.5)).collect();
    Dataset::new(Points::dense_f64(n, 1, x).unwrap(), Targets::Real(y)).unwrap()
}

const TIGHT: Stop = Stop { tol: Some(1e-6), gap: Some(1e-6) };

#[test]
fn classifiers_with_every_dual_loss_are_certified() {
    let data = moons(120);
    let base = || Svm::classifier().kernel(Kernel::rbf(2.0)).cost(3.0).stop(TIGHT).threads(Threads::one());
    for svm in [
        base(),
        base().loss(loss::SquaredHinge),
        base().loss(loss::SmoothHinge { k: 5.0 }),
        base().loss(loss::HuberHinge { delta: 1.0 }),
        base().loss(loss::Square),
        base().bias(false),
        base().nu(0.2),
        base().scale(Some(ScaleKind::Standard)),
        base().class_weight(ClassWeight::Given(vec![(Label::Number(1.0), 2.0)])),
    ] {
        let fit = svm.fit(&data).unwrap();
        let name = format!("{:?} {:?}", fit.model().formulation, fit.model().loss);
        assert_eq!(fit.status(), Status::Optimal, "{name}");
        assert!(fit.certificate().relative_gap().unwrap() <= 1e-6, "{name}: {}", fit.certificate());
        assert!(fit.train_error() < 0.05, "{name}");
    }
}

#[test]
fn regressors_are_certified() {
    let data = wave(80);
    let base = || Svm::regressor().kernel(Kernel::rbf(1.0)).cost(5.0).stop(TIGHT).threads(Threads::one());
    for svm in [
        base(),
        base().loss(loss::SquaredEpsilon { epsilon: 0.05 }),
        base().loss(loss::Huber { delta: 0.1 }),
        base().loss(loss::Absolute),
        base().loss(loss::Pinball { tau: 0.7 }),
        base().loss(loss::Square),
        base().nu(0.3),
    ] {
        let fit = svm.fit(&data).unwrap();
        let name = format!("{:?} {:?}", fit.model().formulation, fit.model().loss);
        assert!(fit.certificate().relative_gap().unwrap() <= 1e-6, "{name}: {}", fit.certificate());
        let Prediction::Values(values) = fit.model().decide(&fit.scores(&data.points).unwrap()) else {
            panic!("{name}")
        };
        let worst = values.iter().zip(data.targets.real().unwrap()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 0.35, "{name}: {worst}");
    }
}

#[test]
fn novelty_leaves_a_share_nu_outside() {
    let data = moons(200);
    for svm in [Svm::novelty().nu(0.1), Svm::novelty().nu(0.1).svdd(true)] {
        let fit = svm.kernel(Kernel::rbf(1.0)).stop(TIGHT).threads(Threads::one()).fit(&data).unwrap();
        assert!(fit.certificate().relative_gap().unwrap() <= 1e-6);
        let Prediction::Inside(inside) = fit.model().decide(&fit.scores(&data.points).unwrap()) else { panic!() };
        let outside = inside.iter().filter(|i| !**i).count();
        // At most ν·n are outside; those on the boundary may fall to either side by rounding.
        assert!((10..=26).contains(&outside), "{outside}");
        let far = Points::dense_f64(1, 2, vec![9.0, 9.0]).unwrap();
        assert_eq!(fit.model().decide(&fit.scores(&far).unwrap()), Prediction::Inside(vec![false]));
    }
}
