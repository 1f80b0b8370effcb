//! A loss of one's own: the engine needs its value and its slope, and finds a stationary point or, for a convex loss, a proof.

#![allow(clippy::print_stdout)]

use margrave::loss::{Loss, Properties, Reweight};
use margrave::{Dataset, Kernel, Points, Status, Svm, Targets};

/// √(1 + r²) − 1: square near 0, linear far away.
#[derive(Debug)]
struct PseudoHuber;

impl Loss for PseudoHuber {
    fn name(&self) -> String {
        "pseudo-huber".into()
    }

    fn value(&self, y: f64, z: f64) -> f64 {
        (1.0 + (y - z).powi(2)).sqrt() - 1.0
    }

    fn slope(&self, y: f64, z: f64) -> f64 {
        (z - y) / (1.0 + (y - z).powi(2)).sqrt()
    }

    // ℓ*(u) = u·y + 1 − √(1 − u²) for |u| ≤ 1.
    fn conjugate(&self, y: f64, u: f64) -> Option<f64> {
        Some(if u.abs() <= 1.0 { u * y + 1.0 - (1.0 - u * u).sqrt() } else { f64::INFINITY })
    }

    fn domain(&self, _: f64) -> (f64, f64) {
        (-1.0, 1.0)
    }

    // ½·weight·(target − z)² with the slope of the loss at z.
    fn reweight(&self, y: f64, z: f64, cap: f64) -> Reweight {
        Reweight { weight: (1.0 / (1.0 + (y - z).powi(2)).sqrt()).min(cap), target: y }
    }

    fn properties(&self) -> Properties {
        Properties { slope_bounded: true, slope_at_zero: false, convex: true, majorised: true, classification: false }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let x: Vec<f64> = (0..80).map(|i| f64::from(i) * 0.1).collect();
    let mut y: Vec<f64> = x.iter().map(|x| x.sin()).collect();
    y[17] = 50.0; // an outlier, which this loss does not follow
    let data = Dataset::new(Points::dense_f64(80, 1, x)?, Targets::Real(y))?;
    let fit = Svm::regressor().kernel(Kernel::rbf(1.0)).cost(10.0).loss(PseudoHuber).fit(&data)?;
    println!("{}: {}", fit.reason(), fit.certificate());
    assert_eq!(fit.status(), Status::Optimal);
    let at = fit.scores(&Points::dense_f64(1, 1, vec![1.7])?)?[0];
    println!("f(1.7) = {at:.3}, sin 1.7 = {:.3}", 1.7f64.sin());
    assert!((at - 1.7f64.sin()).abs() < 0.3);
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
