//! User-defined losses.

use super::*;
use crate::loss::{Hinge, Huber};

fn hinge() -> CustomLoss {
    let value = |y: f64, z: f64| (1.0 - y * z).max(0.0);
    CustomLoss::new("mine", true, value, |y, z| if y * z < 1.0 { -y } else { 0.0 }).unwrap()
}

#[test]
fn a_custom_hinge_equals_the_hinge() {
    let mine = hinge();
    assert_eq!(mine.properties(), Hinge.properties());
    for y in [-1.0, 1.0] {
        let (lo, hi) = Hinge.domain(y);
        assert_eq!(mine.domain(y), (lo, hi));
        for z in [-3.0, -0.5, 0.99, 1.2] {
            let (a, b) = (mine.reweight(y, z, 1e8), Hinge.reweight(y, z, 1e8));
            assert!((a.weight - b.weight).abs() < 1e-9 * b.weight.max(1.0), "{z}: {a:?} {b:?}");
            for t in 0..=10 {
                let v = lo + (hi - lo) * f64::from(t) / 10.0;
                assert!((mine.conjugate(y, v).unwrap() - Hinge.conjugate(y, v).unwrap()).abs() < 1e-12);
                assert!((mine.excess(y, z, v).unwrap() - Hinge.excess(y, z, v).unwrap()).abs() < 1e-12);
            }
        }
    }
    assert_eq!(mine.conjugate(1.0, 0.1), Some(f64::INFINITY));
}

#[test]
fn smooth_and_unbounded_losses_get_their_conjugate() {
    let huber = Huber { delta: 0.7 };
    let mine = CustomLoss::new("h", false, move |y, z| huber.value(y, z), move |y, z| huber.slope(y, z)).unwrap();
    assert!(mine.properties().convex && mine.properties().majorised && mine.properties().slope_bounded);
    let square = CustomLoss::new("s", false, |y, z| 0.5 * (y - z) * (y - z), |y, z| z - y).unwrap();
    assert!(!square.properties().slope_bounded && square.properties().majorised);
    for v in [-0.69, -0.2, 0.0, 0.7] {
        assert!((mine.conjugate(3.0, v).unwrap() - huber.conjugate(3.0, v).unwrap()).abs() < 1e-12);
        assert!((square.conjugate(3.0, v).unwrap() - (0.5 * v * v + 3.0 * v)).abs() < 1e-12);
    }
}

#[test]
fn a_wrong_slope_is_rejected_with_the_worst_point() {
    let error = CustomLoss::new("bad", false, |y, z| (y - z) * (y - z), |y, z| z - y).unwrap_err().to_string();
    // The error is |z − y|: relative to the tolerance it is largest at the far end.
    assert!(error.contains("at y = 4, z = -61.0171") || error.contains("z = 61.0171"), "{error}");
    assert!(CustomLoss::new("nan", true, |_, z| z.ln(), |_, z| 1.0 / z).is_err());
}

#[test]
fn a_function_that_misbehaves_later_proves_nothing() {
    let broken = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (flag, other) = (broken.clone(), broken.clone());
    let on = |flag: &std::sync::atomic::AtomicBool| flag.load(std::sync::atomic::Ordering::Relaxed);
    let value = move |y: f64, z: f64| if on(&flag) { f64::NAN } else { 0.5 * (y - z) * (y - z) };
    let slope = move |y: f64, z: f64| if on(&other) { f64::NAN } else { z - y };
    let loss = CustomLoss::new("late", false, value, slope).unwrap();
    let mut out = [0.0];
    loss.excesses(&[1.0], &[2.0], &[0.5], &mut out);
    assert!((out[0] - 0.125).abs() < 1e-12, "{out:?}");
    broken.store(true, std::sync::atomic::Ordering::Relaxed);
    loss.excesses(&[1.0], &[2.0], &[0.5], &mut out);
    assert_eq!(out, [f64::INFINITY]);
    let (mut low, mut high) = ([1.0], [1.0]);
    loss.domains(&[1.0], &mut low, &mut high);
    assert_eq!((low, high), ([0.0], [0.0]));
}

#[test]
fn a_formula_of_the_conjugate_never_lowers_the_bound() {
    let functions = |wrong: bool| BulkFunctions {
        value: each(|y, z| 0.5 * (y - z) * (y - z)),
        slope: each(|y, z| z - y),
        curvature: Some(each(|_, _| 1.0)),
        // Right at the slopes that are checked when the loss is made, too small at 0.123.
        conjugate: Some(each(move |y, u| 0.5 * u * u + u * y - if wrong && u == 0.123 { 9.0 } else { 0.0 })),
    };
    for wrong in [false, true] {
        let loss = CustomLoss::from_bulk("square", false, functions(wrong), &[]).unwrap();
        let mut out = [0.0];
        loss.conjugates(&[2.0], &[0.123], &mut out);
        assert!((out[0] - (0.5 * 0.123 * 0.123 + 0.246)).abs() < 1e-12, "{out:?}");
    }
}

#[test]
fn a_loss_of_counts_is_described_at_its_targets() {
    let functions = BulkFunctions {
        value: each(|y, z| z.exp() - y * z),
        slope: each(|y, z| z.exp() - y),
        curvature: None,
        conjugate: None,
    };
    let poisson = CustomLoss::from_bulk("poisson", false, functions, &[0.0, 1.0, 1.0, 3.0, 250.0]).unwrap();
    assert!(poisson.properties().convex && !poisson.properties().slope_bounded && !poisson.sharp());
    assert!(matches!(poisson.description, Description::Targets(_)));
    assert!((poisson.slope(3.0, 0.7) - (0.7f64.exp() - 3.0)).abs() < 1e-12);
    // A target that was not announced is evaluated by the functions.
    assert_eq!(poisson.slope(2.5, 0.7), 0.7f64.exp() - 2.5);
    let mut out = [0.0];
    // The conjugate of exp(z) − yz at u is (u + y)·(ln(u + y) − 1).
    poisson.conjugates(&[3.0], &[-1.0], &mut out);
    assert!((out[0] - 2.0 * (2f64.ln() - 1.0)).abs() < 1e-12, "{out:?}");
}

#[test]
fn a_saturating_loss_is_found_to_be_non_convex() {
    let value = |y: f64, z: f64| 1.0 - (-(y - z) * (y - z)).exp();
    let slope = |y: f64, z: f64| -2.0 * (y - z) * (-(y - z) * (y - z)).exp();
    let welsch = CustomLoss::new("welsch", false, value, slope).unwrap();
    let found = welsch.properties();
    assert!(!found.convex && found.slope_bounded && found.majorised);
    assert_eq!(welsch.conjugate(0.0, 0.1), None);
    let quadratic = welsch.reweight(1.0, 0.3, 1e9);
    assert!((-quadratic.weight * (quadratic.target - 0.3) - slope(1.0, 0.3)).abs() < 1e-12);
    let logistic = |y: f64, z: f64| (-y * z).exp().ln_1p();
    let loss = CustomLoss::new("l", true, logistic, |y, z| -y / (1.0 + (y * z).exp())).unwrap();
    assert!(loss.properties().convex && loss.properties().slope_bounded);
}
