//! `liblinear-train` and `liblinear-predict`: LIBLINEAR's options and files.

use std::path::Path;

use crate::common::{Sandbox, heart, margrave, text};

/// Three classes in a plane, as LIBSVM text.
fn three() -> String {
    let row = |i: usize| {
        let (class, shift) = (i % 3 + 5, [(0.0, 0.0), (3.0, 0.0), (0.0, 3.0)][i % 3]);
        let noise = |k: usize| ((i * 37 + k * 53) % 17) as f64 / 17.0 - 0.5;
        format!("{class} 1:{:.4} 2:{:.4}\n", shift.0 + noise(1), shift.1 + noise(2))
    };
    (0..60).map(row).collect()
}

#[test]
fn models_of_every_type_predict_like_our_own() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("three.svm", three());
    let (model, native, out) = (sandbox.path("l.model"), sandbox.path("n.model"), sandbox.path("out"));
    let cases: [(&str, &[&str]); 8] = [
        ("0", &["--loss", "logistic"]),
        ("1", &["--loss", "squared-hinge"]),
        ("3", &["--loss", "hinge"]),
        ("4", &["--multiclass", "crammer-singer"]),
        ("5", &["--penalty", "l1", "--loss", "squared-hinge"]),
        ("6", &["--penalty", "l1", "--loss", "logistic"]),
        ("12", &["--task", "regress", "--loss", "squared-epsilon"]),
        ("13", &["--task", "regress"]),
    ];
    for (kind, ours) in cases {
        let ran = margrave(&["liblinear-train", "-s", kind, "-B", "1", "-c", "2", &data, &model]).exits(0);
        assert!(ran.out.contains("Objective value"), "{}", ran.out);
        let written = text(&model);
        assert!(written.starts_with("solver_type L") || kind == "4", "{written}");
        margrave(&["liblinear-predict", &data, &model, &out]).exits(0);
        let predicted = text(&out);
        assert_eq!(predicted.lines().count(), 60);
        let classify = !matches!(kind, "12" | "13");
        let scheme: &[&str] = if classify && kind != "4" { &["--multiclass", "ovr"] } else { &[] };
        let args = ["train", &data, "-o", &native, "--kernel", "linear", "-C", "2", "--intercept-scaling", "1"];
        margrave(&[&args[..], ours, scheme].concat()).exits(0);
        let expected = margrave(&["predict", &native, &data]).exits(0).out;
        for (a, b) in predicted.lines().zip(expected.lines().skip(1)) {
            let (a, b): (f64, f64) = (a.parse().expect("a number"), b.parse().expect("a number"));
            assert!((a - b).abs() < if classify { 1e-9 } else { 1e-2 }, "-s {kind}: {a} {b}");
        }
    }
}

#[test]
fn two_classes_have_one_column_and_the_first_label_is_positive() {
    let sandbox = Sandbox::new();
    let (model, out) = (sandbox.path("l.model"), sandbox.path("out"));
    margrave(&["liblinear-train", "-s", "0", "-q", &heart(), &model]).exits(0);
    let written = text(&model);
    assert!(
        written.starts_with("solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 13\nbias -1\nw\n"),
        "{written}"
    );
    assert_eq!(written.lines().count(), 6 + 13);
    let ran = margrave(&["liblinear-predict", "-b", "1", &heart(), &model, &out]).exits(0);
    let share =
        ran.out.strip_prefix("Accuracy = ").and_then(|t| t.split('%').next()).and_then(|t| t.parse::<f64>().ok());
    assert!(share.is_some_and(|share| share > 80.0), "{}", ran.out);
    let table = text(&out);
    assert_eq!(table.lines().next(), Some("labels 1 -1"));
    for line in table.lines().skip(1) {
        let cells: Vec<f64> = line.split(' ').map(|cell| cell.parse().expect("a number")).collect();
        assert!((cells[1] + cells[2] - 1.0).abs() < 1e-5 && (cells[0] > 0.0) == (cells[1] > 0.5), "{line}");
    }
    // Our own commands read the same file.
    let ours = margrave(&["predict", &model, &heart(), "--json"]).exits(0).json()["accuracy"].as_f64();
    assert!(ours.zip(share).is_some_and(|(a, b)| (100.0 * a - b).abs() < 1e-3));
    let ran = margrave(&["liblinear-train", "-v", "5", "-w1", "2", &heart()]).exits(0);
    assert!(ran.out.starts_with("Cross Validation Accuracy = "), "{}", ran.out);
    let ran = margrave(&["liblinear-train", "-s", "12", "-v", "5", &heart()]).exits(0);
    assert!(ran.out.starts_with("Cross Validation Mean squared error = "), "{}", ran.out);
}

#[test]
fn bad_options_are_named_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    let (model, data) = (sandbox.path("l.model"), heart());
    let cases: [(&[&str], &str); 9] = [
        (&["-s", "9"], "unknown solver type"),
        (&["-s", "21"], "margrave train --task novelty"),
        (&["-c", "0"], "C <= 0"),
        (&["-e", "-1"], "eps <= 0"),
        (&["-c", "x"], "needs a number"),
        (&["-R"], "-R needs -B 1"),
        (&["-C"], "margrave tune"),
        (&["-w1", "-2"], "the weight of class 1 is negative (-2)"),
        (&["-z", "1"], "unknown option"),
    ];
    for (args, named) in cases {
        let ran = margrave(&[&["liblinear-train"], args, &[&data, &model]].concat()).exits(1);
        assert!(ran.err.contains(named), "{args:?}: {}", ran.err);
        assert!(!Path::new(&model).exists());
    }
    margrave(&["liblinear-train", &data, &data]).exits(2);
    margrave(&["liblinear-train", "-s", "3", "-q", &data, &model]).exits(0);
    let out = sandbox.path("out");
    let ran = margrave(&["liblinear-predict", "-b", "1", &data, &model, &out]).exits(1);
    assert!(ran.err.contains("only supported for logistic regression"), "{}", ran.err);
    assert!(!Path::new(&out).exists());
}
