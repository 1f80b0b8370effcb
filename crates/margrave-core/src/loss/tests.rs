//! Properties that every built-in loss must have, by sampling.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// Every loss, with its default parameters and some others, and the targets it is for.
fn losses() -> Vec<(Arc<dyn Loss>, Vec<f64>)> {
    let more = [
        "smooth-hinge:K=3",
        "power:s=1",
        "power:s=2",
        "power:s=3.5",
        "huber-hinge:delta=0.4",
        "ramp:limit=0.7",
        "sigmoid:eta=0.5",
        "sigmoid:eta=5",
        "polynomial:s=4,kappa=0.1",
        "polynomial:s=1,kappa=0",
        "epsilon:epsilon=0",
        "squared-epsilon:epsilon=0.6",
        "huber:delta=0.2",
        "pinball:tau=0.1",
        "expectile:tau=0.8",
    ];
    let named = LossSpec::all().into_iter().map(|info| info.spec);
    let specs = named.chain(more.iter().map(|text| text.parse().unwrap()));
    let mut all: Vec<(Arc<dyn Loss>, Vec<f64>)> = Vec::new();
    for spec in specs {
        let loss = spec.build().unwrap();
        let targets = if loss.properties().classification { vec![-1.0, 1.0] } else { vec![-7.3, -1.0, 0.0, 0.4, 11.0] };
        all.push((loss, targets));
    }
    all.push((Arc::new(Above), vec![-2.0, 0.0, 3.0]));
    all.push((Arc::new(Below), vec![-2.0, 0.0, 3.0]));
    all
}

fn sample(rng: &mut ChaCha8Rng) -> f64 {
    let wide = rng.random_range(0.0..1.0) < 0.3;
    rng.random_range(-1.0..1.0) * if wide { 30.0 } else { 3.0 }
}

/// A random u in the domain, sometimes one of its ends.
fn inside(rng: &mut ChaCha8Rng, (lo, hi): (f64, f64)) -> f64 {
    let (lo, hi) = (lo.max(-20.0), hi.min(20.0));
    match rng.random_range(0..10) {
        0 => lo,
        1 => hi,
        _ => lo + (hi - lo) * rng.random_range(0.0..1.0),
    }
}

#[test]
fn fenchel_young_holds_and_is_tight_at_the_slope() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (loss, targets) in losses().iter().filter(|(loss, _)| loss.properties().convex) {
        for _ in 0..400 {
            for &y in targets {
                let (z, u) = (sample(&mut rng), inside(&mut rng, loss.domain(y)));
                let conjugate = loss.conjugate(y, u).unwrap();
                let excess = loss.value(y, z) + conjugate - u * z;
                // Rounding of three terms.
                let scale = 1e-14 * (1.0 + loss.value(y, z) + conjugate.abs() + (u * z).abs());
                assert!(excess >= -scale, "{} y={y} z={z} u={u}: {excess}", loss.name());
                assert!((loss.excess(y, z, u).unwrap() - excess).abs() <= 10.0 * scale, "{}", loss.name());
                let at = loss.slope(y, z);
                let (lo, hi) = loss.domain(y);
                assert!(at >= lo && at <= hi, "{} y={y} z={z}", loss.name());
                let tight = loss.excess(y, z, at).unwrap();
                let scale = 1e-12 * (1.0 + loss.value(y, z) + (at * z).abs());
                assert!(tight <= scale, "{} y={y} z={z}: {tight}", loss.name());
            }
        }
        for &y in targets {
            assert_eq!(loss.conjugate(y, 0.0), Some(0.0), "{}: the infimum is 0", loss.name());
            let (lo, hi) = loss.domain(y);
            assert!(hi.is_infinite() || loss.conjugate(y, hi + 1e-9) == Some(f64::INFINITY), "{}", loss.name());
            assert!(lo.is_infinite() || loss.conjugate(y, lo - 1e-9) == Some(f64::INFINITY), "{}", loss.name());
        }
    }
}

#[test]
fn slopes_agree_with_finite_differences() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for (loss, targets) in losses() {
        for _ in 0..300 {
            for &y in &targets {
                let z = sample(&mut rng);
                let h = 1e-6 * (1.0 + z.abs());
                let (before, after) =
                    ((loss.value(y, z) - loss.value(y, z - h)) / h, (loss.value(y, z + h) - loss.value(y, z)) / h);
                let slope = loss.slope(y, z);
                // One-sided differences bracket the slope up to rounding (1e-16·|ℓ|/h) and, without convexity, h·ℓ″.
                let slack = 1e-8 * (1.0 + loss.value(y, z)) + 1e-4 * (1.0 + slope.abs());
                let (low, high) = (before.min(after), before.max(after));
                assert!(
                    slope > low - slack && slope < high + slack,
                    "{} y={y} z={z}: {slope} {low} {high}",
                    loss.name()
                );
            }
        }
    }
}

#[test]
fn dual_terms_are_the_conjugate() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut seen = 0;
    for (loss, targets) in losses() {
        for _ in 0..50 {
            for &y in &targets {
                let c = 10f64.powf(rng.random_range(-3.0..3.0));
                let Some(term) = loss.dual(y, c) else { continue };
                seen += 1;
                assert!(term.lo <= 0.0 && term.hi >= 0.0 && term.eps >= 0.0 && term.d >= 0.0);
                let (lo, hi) = loss.domain(y);
                assert!((term.lo + c * hi).abs() <= 1e-12 * c || term.lo == -c * hi, "{}", loss.name());
                assert!((term.hi + c * lo).abs() <= 1e-12 * c || term.hi == -c * lo, "{}", loss.name());
                let u = inside(&mut rng, (lo, hi));
                let expected = c * loss.conjugate(y, u).unwrap();
                let beta = (-c * u).clamp(term.lo, term.hi);
                assert!((term.value(beta) - expected).abs() <= 1e-12 * (c + expected.abs()), "{} y={y}", loss.name());
            }
        }
    }
    assert!(seen > 1000);
}

#[test]
fn reweighting_keeps_the_slope() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for (loss, targets) in losses() {
        for _ in 0..300 {
            for &y in &targets {
                let z = sample(&mut rng);
                let quadratic = loss.reweight(y, z, 1e9);
                assert!(quadratic.weight >= 0.0 && quadratic.weight.is_finite());
                let slope = if quadratic.weight == 0.0 { 0.0 } else { -quadratic.weight * (quadratic.target - z) };
                let expected = loss.slope(y, z);
                assert!((slope - expected).abs() <= 1e-9 * (1.0 + expected.abs()), "{} y={y} z={z}", loss.name());
            }
        }
    }
}

#[test]
fn weights_are_constant_below_one_over_the_cap() {
    // Paper 000: K for a hinge slack in [0, 1/K), 1/u beyond, 0 for u < 0.
    let k = 1e4;
    let weight = |u: f64| Hinge.reweight(1.0, 1.0 - u, k).weight;
    assert_eq!(weight(0.0), k);
    assert_eq!(weight(0.3 / k), k);
    assert!((weight(2.0 / k) - k / 2.0).abs() < 1e-6 * k);
    assert_eq!(weight(-1e-9), 0.0);
    let tube = Epsilon { epsilon: 0.5 };
    assert_eq!(tube.reweight(0.0, 0.5, k), Reweight { weight: k, target: 0.5 });
    assert_eq!(tube.reweight(0.0, 0.2, k).weight, 0.0);
    assert_eq!(tube.reweight(0.0, -1.5, k), Reweight { weight: 1.0, target: -0.5 });
}

#[test]
fn stated_properties_hold() {
    let grid: Vec<f64> = (-400..=400).map(|i| f64::from(i) * 0.05 + 0.0013).collect();
    for (loss, targets) in losses() {
        let name = loss.name();
        let stated = loss.properties();
        let (mut convex, mut majorised) = (true, true);
        for &y in &targets {
            let values: Vec<f64> = grid.iter().map(|&z| loss.value(y, z)).collect();
            convex &= values.windows(3).all(|w| w[0] - 2.0 * w[1] + w[2] >= -1e-10 * (1.0 + w[1].abs()));
            for &z in grid.iter().step_by(7) {
                let quadratic = loss.reweight(y, z, 1e12);
                // Samples outside the active set have no quadratic: the step rule covers them.
                if quadratic.weight == 0.0 {
                    continue;
                }
                let above = |x: f64| 0.5 * quadratic.weight * (quadratic.target - x).powi(2);
                let offset = loss.value(y, z) - above(z);
                majorised &= grid.iter().zip(&values).all(|(&x, v)| *v <= above(x) + offset + 1e-9 * (1.0 + above(x)));
            }
            let far = |s: f64| loss.slope(y, s * 1e7).abs();
            let steep = far(1.0).max(far(-1.0)) > 1e4 || (name.starts_with("power:s=1.5") && far(-y) > 1e3);
            assert_eq!(steep, !stated.slope_bounded, "{name}: slope bounded");
            if stated.classification {
                assert_eq!(
                    loss.slope(y, y * (1.0 - 1e-13)).abs() > 1e-5,
                    stated.slope_at_zero,
                    "{name}: slope at zero"
                );
            }
        }
        assert_eq!(convex, stated.convex, "{name}: convex");
        assert_eq!(majorised, stated.majorised, "{name}: majorised");
    }
}

#[test]
fn large_arguments_do_not_overflow() {
    for loss in [&Logistic as &dyn Loss, &Sigmoid { eta: 50.0 }] {
        for z in [-1e5, 1e5] {
            assert!(loss.value(1.0, z).is_finite() && loss.slope(1.0, z).is_finite());
            assert!(loss.reweight(1.0, z, 1e8).weight.is_finite());
        }
    }
    assert!((LogCosh.value(0.0, 1e8) - 1e8 + std::f64::consts::LN_2).abs() < 1e-7);
    assert!((LogCosh.value(0.0, 1e-9) - 0.5e-18).abs() < 1e-30);
}

/// A loss that computes slope and curvature together must give what it gives for each of them.
#[test]
fn slope_and_curvature_together_are_those_of_each() {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    for (loss, targets) in losses() {
        for &y in &targets {
            for _ in 0..50 {
                let z = sample(&mut rng);
                let together = loss.slope_and_curvature(y, z, 1e-5);
                assert_eq!(together, (loss.slope(y, z), loss.curvature(y, z, 1e-5)), "{} at {z}", loss.name());
            }
        }
    }
}
