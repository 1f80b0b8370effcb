//! Certificates of LIBSVM's model files, whose C and ν are not stored.

use crate::common::{Output, Sandbox, heart, margrave};

/// A model of `margrave svm-train`, which writes LIBSVM's files.
fn model_of(sandbox: &Sandbox, data: &str, options: &[&str]) -> String {
    let model = sandbox.path("m");
    margrave(&[&["svm-train", "-q", "-e", "0.00001"], options, &[data, &model]].concat()).exits(0);
    model
}

fn verify(model: &str, data: &str, args: &[&str]) -> Output {
    margrave(&[&["verify", model, data, "--json"], args].concat())
}

/// `text` with every coefficient of the first support vector times `factor`.
fn disturbed(text: &str, factor: f64) -> String {
    let (head, vectors) = text.split_once("SV\n").unwrap();
    let (first, rest) = vectors.split_once('\n').unwrap();
    let (coefficient, features) = first.split_once(' ').unwrap();
    let changed: f64 = coefficient.parse::<f64>().unwrap() * factor;
    format!("{head}SV\n{changed} {features}\n{rest}")
}

/// Four clouds of different sizes on a circle, as LIBSVM text.
fn clouds(classes: usize) -> String {
    let mut text = String::new();
    for i in 0..120usize {
        let class = (i % (classes * 2)).min(classes - 1);
        let (t, angle) = (i as f64, 1.7 * class as f64);
        let (x, y) = (angle.cos() + 0.6 * (3.1 * t).sin(), angle.sin() + 0.6 * (7.7 * t).cos());
        text += &format!("{class} 1:{x:.5} 2:{y:.5}\n");
    }
    text
}

/// A noisy curve.
fn curve() -> String {
    (0..80)
        .map(|i| {
            let t = f64::from(i) * 0.1;
            format!("{:.5} 1:{t:.5}\n", t.sin() + 0.2 * (37.0 * t).sin())
        })
        .collect()
}

#[test]
fn nu_svc_of_two_classes_and_more() {
    let sandbox = Sandbox::new();
    let clouds = sandbox.file("clouds.svm", clouds(4));
    for (data, nu) in [(heart(), 0.2), (heart(), 0.5), (clouds, 0.15)] {
        let model = model_of(&sandbox, &data, &["-s", "1", "-n", &nu.to_string()]);
        let proof = verify(&model, &data, &["--gap", "1e-4"]).exits(0).json();
        // Σ|β| = νn holds to rounding, and some coefficient is at its bound.
        assert!((proof["nu"].as_f64().unwrap() - nu).abs() < 1e-6, "{proof}");
        assert!(proof["C"].is_null(), "ν-SVC has no C: {proof}");
        verify(&model, &data, &["--gap", "1e-4", "--nu", &nu.to_string()]).exits(0);
        verify(&model, &data, &["--gap", "1e-4", "--nu", &(0.8 * nu).to_string()]).exits(1);
        let text = std::fs::read_to_string(&model).unwrap();
        let wrong = sandbox.file("wrong", disturbed(&text, 0.5));
        verify(&wrong, &data, &["--gap", "1e-4"]).exits(1);
        let ran = margrave(&["verify", &model, &data, "-C", "1"]).exits(2);
        assert!(ran.err.contains("nu_svc has no C"), "{}", ran.err);
    }
}

#[test]
fn a_hard_margin_proves_itself_for_any_smaller_nu() {
    let sandbox = Sandbox::new();
    // Two clouds far from each other: nothing is at its bound, and ν only scales.
    let text: String = (0..40)
        .map(|i| {
            let (t, side) = (f64::from(i), if i % 2 == 0 { 1.0 } else { -1.0 });
            format!("{side} 1:{:.5} 2:{:.5}\n", 3.0 * side + (2.3 * t).sin(), (5.1 * t).cos())
        })
        .collect();
    let data = sandbox.file("far.svm", &text);
    let model = model_of(&sandbox, &data, &["-s", "1", "-t", "0", "-n", "0.02"]);
    let proof = verify(&model, &data, &["--gap", "1e-4"]).exits(0).json();
    assert!(proof["nu"].as_f64().unwrap() > 0.021, "the largest ν with this model: {proof}");
    verify(&model, &data, &["--gap", "1e-4", "--nu", "0.02"]).exits(0);
}

#[test]
fn nu_svr_and_one_class() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("curve.svm", curve());
    for (nu, c) in [("0.3", "2"), ("0.6", "0.5")] {
        let model = model_of(&sandbox, &data, &["-s", "4", "-n", nu, "-c", c, "-g", "1"]);
        let proof = verify(&model, &data, &["--gap", "1e-4"]).exits(0).json();
        let (found, cost) = (proof["nu"].as_f64().unwrap(), proof["C"].as_f64().unwrap());
        assert!((found - nu.parse::<f64>().unwrap()).abs() < 1e-6, "{proof}");
        assert!((cost - c.parse::<f64>().unwrap()).abs() < 1e-9, "{proof}");
        verify(&model, &data, &["--gap", "1e-4", "-C", c, "--nu", nu]).exits(0);
        verify(&model, &data, &["--gap", "1e-4", "-C", "7"]).exits(1);
        let text = std::fs::read_to_string(&model).unwrap();
        let wrong = sandbox.file("wrong", disturbed(&text, 0.5));
        verify(&wrong, &data, &["--gap", "1e-4"]).exits(1);
    }
    let model = model_of(&sandbox, &heart(), &["-s", "2", "-n", "0.25"]);
    let proof = verify(&model, &heart(), &["--gap", "1e-4"]).exits(0).json();
    assert!((proof["nu"].as_f64().unwrap() - 0.25).abs() < 1e-6, "{proof}");
    verify(&model, &heart(), &["--gap", "1e-4", "--nu", "0.5"]).exits(1);
}

#[test]
fn equal_rows_with_different_targets_are_distinguished() {
    let sandbox = Sandbox::new();
    // Ten places with eight targets each, in no order.
    let text: String =
        (0..80).map(|i| format!("{:.4} 1:{}\n", (f64::from(i) * 7.3).sin() + f64::from(i % 10), i % 10)).collect();
    let data = sandbox.file("steps.svm", text);
    let model = model_of(&sandbox, &data, &["-s", "3", "-c", "2", "-p", "0.2", "-g", "0.5"]);
    verify(&model, &data, &["-C", "2", "--epsilon", "0.2", "--gap", "1e-4"]).exits(0);
    let model = model_of(&sandbox, &data, &["-s", "4", "-c", "2", "-n", "0.4", "-g", "0.5"]);
    let proof = verify(&model, &data, &["--gap", "1e-4"]).exits(0).json();
    assert!((proof["nu"].as_f64().unwrap() - 0.4).abs() < 1e-6, "{proof}");
}

#[test]
fn a_closed_tube_is_proven() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("curve.svm", curve());
    let native = sandbox.path("native");
    margrave(&["train", &data, "--task", "regress", "--nu", "1", "-o", &native, "--gap", "1e-6"]).exits(0);
    verify(&native, &data, &["--gap", "1e-5"]).exits(0);
    let model = model_of(&sandbox, &data, &["-s", "4", "-n", "1"]);
    verify(&model, &data, &["--gap", "1e-4"]).exits(0);
    verify(&model, &data, &["--gap", "1e-4", "-C", "1", "--nu", "1"]).exits(0);
}

#[test]
fn what_a_model_does_not_have_is_refused() {
    let sandbox = Sandbox::new();
    let model = model_of(&sandbox, &heart(), &["-s", "0"]);
    let ran = verify(&model, &heart(), &["--nu", "0.5"]).exits(2);
    assert!(ran.err.contains("c_svc has no ν") && ran.err.contains("-C"), "{}", ran.err);
    let ran = verify(&model, &heart(), &["-C", "1", "--epsilon", "0.1"]).exits(2);
    assert!(ran.err.contains("no ε"), "{}", ran.err);
    let native = sandbox.path("native");
    margrave(&["train", &heart(), "-o", &native]).exits(0);
    let ran = verify(&native, &heart(), &["--nu", "0.5"]).exits(2);
    assert!(ran.err.contains("stores its ν"), "{}", ran.err);
    let model = model_of(&sandbox, &heart(), &["-s", "1"]);
    let other = sandbox.file("other.svm", clouds(2));
    let ran = verify(&model, &other, &[]).exits(2);
    assert!(ran.err.contains("support vector"), "{}", ran.err);
}

#[test]
fn a_bias_that_is_not_the_models_own_is_not_proven() {
    let sandbox = Sandbox::new();
    let model = model_of(&sandbox, &heart(), &["-c", "1"]);
    verify(&model, &heart(), &[]).exits(0);
    let text = crate::common::text(&model);
    let rho = text.lines().find(|line| line.starts_with("rho ")).unwrap().to_owned();
    let forged = sandbox.file("forged", text.replace(&rho, "rho 1000"));
    let ran = verify(&forged, &heart(), &[]).exits(1);
    assert!(crate::common::number(&ran.json(), "relative_gap") > 0.9);
    // The same in a native file: the bias is the last eight bytes of its tensor, wherever that lies.
    let trained = sandbox.train(&heart(), &[]).exits(0).json();
    let bias = crate::common::number(&trained, "bias").to_le_bytes();
    let bytes = std::fs::read(sandbox.path("m.model")).unwrap();
    let at = (0..bytes.len() - 8).rfind(|&at| bytes[at..at + 8] == bias).unwrap();
    let mut changed = bytes.clone();
    changed[at..at + 8].copy_from_slice(&1000f64.to_le_bytes());
    let forged = sandbox.file("forged.model", changed);
    verify(&sandbox.path("m.model"), &heart(), &[]).exits(0);
    verify(&forged, &heart(), &[]).exits(1);
}
