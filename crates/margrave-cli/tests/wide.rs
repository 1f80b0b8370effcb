//! Absurd feature indices, no features at all, and very wide pictures.

use crate::common::{Sandbox, margrave};

/// Rows of which one has a feature with an absurd number.
const WIDE: &str = "1 4000000000:1\n-1 2:1\n1 1:1\n-1 3:1\n";

#[test]
fn absurd_indices_are_refused_clearly() {
    let sandbox = Sandbox::new();
    let wide = sandbox.file("w.svm", WIDE);
    let model = sandbox.file(
        "w.libsvm",
        "svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv 2\nrho 0.25\nlabel 1 -1\nnr_sv 1 1\nSV\n0.5 1:1 \n-0.5 4000000000:1 \n",
    );
    let linear = sandbox.file("l.libsvm", crate::common::text(&model).replace("rbf\ngamma 0.5", "linear"));
    let data = sandbox.file("d.svm", "1 1:1\n-1 2:1\n");
    let (out, range) = (sandbox.path("out"), sandbox.path("range"));
    let refused: [&[&str]; 13] = [
        &["train", &wide, "-o", &out],
        &["train", &wide, "-o", &out, "-k", "linear"],
        &["train", &wide, "-o", &out, "--scale", "standard"],
        &["tune", &wide, "--grid", "C=1,2", "--folds", "2"],
        &["path", &wide],
        &["scale", &wide],
        &["check", "kernel", &wide],
        &["predict", &model, &data],
        &["predict", &linear, &data],
        &["predict", &model, &wide],
        &["plot", &model, &data, "--features", "0,1", "-o", &sandbox.path("x.svg")],
        &["convert", &linear, "--to", "onnx", "-o", &out],
        &["verify", &linear, &wide, "-C", "1"],
    ];
    for words in refused {
        let ran = margrave(words).exits(2);
        assert!(ran.err.contains("4000000000") && ran.err.contains("without gaps"), "{words:?}: {}", ran.err);
    }
    // LIBSVM's own exit code.
    margrave(&["svm-train", "-q", &wide, &out]).exits(1);
    margrave(&["svm-predict", &data, &model, &out]).exits(1);
    assert!(!std::path::Path::new(&out).exists());
    // Ranges are kept by index: nothing is as long as the largest.
    margrave(&["svm-scale", "-s", &range, &wide]).exits(0);
    let known = sandbox.file("known", "x\n-1 1\n1 0 1\n");
    let ran = margrave(&["svm-scale", "-r", &known, &wide]).exits(0);
    assert_eq!(ran.err.matches("WARNING: feature index").count(), 3, "{}", ran.err);
}

#[test]
fn no_features_make_a_constant_model() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("n.svm", "1\n-1\n1\n-1\n");
    let (model, out) = (sandbox.path("m"), sandbox.path("out"));
    for kernel in ["0", "1", "2", "3"] {
        margrave(&["svm-train", "-q", "-t", kernel, &data, &model]).exits(0);
        let ran = margrave(&["predict", &model, &data]).exits(0);
        assert_eq!(ran.out.lines().count(), 5, "{}", ran.out);
        margrave(&["svm-predict", "-q", &data, &model, &out]).exits(0);
    }
    let lines = crate::common::text(&out);
    assert!(lines.lines().all(|line| line == lines.lines().next().unwrap_or("")), "{lines}");
}

#[test]
fn a_picture_of_a_very_wide_model_takes_little_memory() {
    let sandbox = Sandbox::new();
    let row = |i: usize| {
        let at = |k: usize| (i * 7919 + k * 104_729) % 99_997 + 3;
        let mut columns: Vec<usize> = (0..6).map(at).collect();
        columns.sort_unstable();
        columns.dedup();
        let entries: String = columns.iter().map(|c| format!(" {c}:1")).collect();
        format!("{} 1:{} 2:{}{entries}\n", if i.is_multiple_of(2) { 1 } else { -1 }, i % 5, i % 3)
    };
    let data = sandbox.file("w.svm", (0..30).map(row).collect::<String>());
    sandbox.train(&data, &[]).exits(0);
    let picture = sandbox.path("w.svg");
    margrave(&["plot", &sandbox.path("m.model"), &data, "--features", "0,1", "-o", &picture]).exits(0);
    assert!(crate::common::text(&picture).contains("<svg"));
}

#[test]
fn what_could_never_predict_is_not_trained() {
    let sandbox = Sandbox::new();
    let gram = sandbox.file("k.csv", "1,0,0\n0,1,0\n0,0,1\n");
    let words = ["train", &gram, "--task", "novelty", "--svdd", "-k", "precomputed", "-o", &sandbox.path("m")];
    assert!(margrave(&words).exits(2).err.contains("leave --svdd out"));
    assert!(!std::path::Path::new(&sandbox.path("m")).exists());
}
