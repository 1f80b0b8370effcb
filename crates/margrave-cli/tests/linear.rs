//! The linear kernel from the outside: train, predict, verify, inspect, resume.

use crate::common::{heart, margrave, number};

#[test]
fn a_linear_model_stores_its_weights_and_is_proven() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.model").display().to_string();
    let train = |more: &[&str]| {
        let fixed = ["train", &heart(), "--kernel", "linear", "-o", &model, "--json", "--gap", "1e-8"];
        margrave(&[&fixed[..], more].concat())
    };
    // The optimum of the hinge with C = 1 on the set that ships with LIBSVM, by svm-train -t 0 -e 1e-9: obj = −89.9458…
    let object = train(&[]).exits(0).json();
    assert_eq!(object["solver"], "linear");
    assert!(object["reason"].as_str().unwrap().contains("linear"), "{object}");
    assert!(number(&object, "relative_gap") <= 1e-8, "{object}");
    assert_eq!(object["kernel_entries"], 0);
    // The kernel solver agrees.
    let other = train(&["--solver", "decomposition"]).exits(0).json();
    assert_eq!(other["solver"], "decomposition");
    let (p, q) = (number(&object, "primal"), number(&other, "primal"));
    assert!((p - q).abs() <= 2e-8 * p, "{p} and {q}");
    assert!((number(&object, "bias") - number(&other, "bias")).abs() <= 1e-3, "{object} {other}");

    let object = train(&[]).exits(0).json();
    let verified = margrave(&["verify", &model, &heart(), "--gap", "1e-7", "--json"]).exits(0).json();
    assert!((number(&verified, "primal") - number(&object, "primal")).abs() <= 1e-9 * p);
    let predicted = margrave(&["predict", &model, &heart(), "--json"]).exits(0).json();
    let wrong = 1.0 - number(&predicted, "accuracy");
    assert!((wrong - number(&object, "train_error")).abs() < 1e-12);
    // Started where it ended, it stops at once.
    let again = train(&["--resume", &model]).exits(0).json();
    assert!(number(&again, "iterations") <= 1.0, "{again}");
    // Thirteen weights, not the data.
    assert!(std::fs::metadata(&model).unwrap().len() < 12_000);
}

#[test]
fn every_loss_trains_without_a_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.model").display().to_string();
    for loss in ["squared-hinge", "logistic", "square", "huber-hinge", "power:s=1.5"] {
        let args = ["train", &heart(), "--kernel", "linear", "--loss", loss, "-o", &model, "--json", "--gap", "1e-6"];
        let object = margrave(&args).exits(0).json();
        assert_eq!(object["solver"], "linear");
        assert!(number(&object, "relative_gap") <= 1e-6, "{loss}: {object}");
    }
}

#[test]
fn inspect_names_the_largest_weights() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d.csv");
    let mut text = String::from("small,large,none,y\n");
    for i in 0..40 {
        let (a, b) = (f64::from(i % 5), f64::from(i % 7));
        text += &format!("{a},{b},0,{}\n", 0.1 * a - 3.0 * b + 0.25);
    }
    std::fs::write(&data, text).unwrap();
    let model = folder.path().join("m.model").display().to_string();
    let data = data.display().to_string();
    let train = ["train", &data, "--kernel", "linear", "--task", "regress", "-C", "100", "-o", &model, "--quiet"];
    margrave(&train).exits(0);
    let ran = margrave(&["inspect", &model]).exits(0);
    let line = ran.out.lines().find(|l| l.contains("largest weights")).expect("the weights are shown");
    let (large, small) = (line.find("large -").expect("large is named"), line.find("small 0").expect("small is named"));
    assert!(large < small && !line.contains("none"), "{line}");
    let object = margrave(&["inspect", &model, "--json"]).exits(0).json();
    assert_eq!(object["largest_weights"][0]["name"], "large");
    assert_eq!(object["largest_weights"][0]["column"], 1);
}

#[test]
fn the_linear_solver_refuses_other_kernels() {
    let ran = margrave(&["train", &heart(), "--kernel", "rbf", "--solver", "linear", "-o", "unwritten.model"]).exits(2);
    assert!(ran.err.contains("linear kernel") && ran.err.contains("decomposition"), "{}", ran.err);
}

#[test]
fn data_larger_than_the_memory_allowed_is_read_in_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut text = String::new();
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    for _ in 0..3000 {
        let x: Vec<f64> = (0..12).map(|_| (random() - 0.5) * 4.0).collect();
        let score = x[0] - 2.0 * x[5] + 0.3 + 2.0 * (random() - 0.5);
        text += if score > 0.0 { "1" } else { "-1" };
        for (j, v) in x.iter().enumerate().filter(|(_, v)| v.abs() > 0.6) {
            text += &format!(" {}:{v:.5}", 2 * j + 1);
        }
        text += "\n";
    }
    let data = path("d.svm");
    std::fs::write(&data, text).unwrap();
    let train = |model: &str, memory: &str| {
        let args = ["train", &data, "--kernel", "linear", "--gap", "1e-6", "--memory", memory, "-o", model, "--json"];
        margrave(&args).exits(0).json()
    };
    let (whole, blocks) = (train(&path("a.model"), "1GiB"), train(&path("b.model"), "100KB"));
    assert!(blocks["reason"].as_str().unwrap().contains("blocks"), "{blocks}");
    assert!(!whole["reason"].as_str().unwrap().contains("blocks"), "{whole}");
    assert_eq!((&whole["n"], &whole["d"]), (&blocks["n"], &blocks["d"]));
    assert!(number(&blocks, "relative_gap") <= 1e-6);
    let (p, q) = (number(&whole, "primal"), number(&blocks, "primal"));
    assert!((p - q).abs() <= 2e-6 * p, "{p} and {q}");
    margrave(&["verify", &path("b.model"), &data, "--gap", "1e-5"]).exits(0);
    // Nothing is left behind.
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn penalties_biases_and_several_classes_from_the_outside() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let model = path("m.model");
    let train = |data: &str, more: &[&str]| {
        margrave(&[&["train", data, "--kernel", "linear", "-o", &model, "--json", "--gap", "1e-6"][..], more].concat())
    };
    let heart = heart();
    let l1 = train(&heart, &["--penalty", "l1", "--loss", "squared-hinge", "-C", "0.02"]).exits(0).json();
    assert_eq!((&l1["penalty"], &l1["solver"]), (&"l1".into(), &"linear".into()));
    let kept = number(&l1, "nonzero_weights");
    assert!(kept > 0.0 && kept < 13.0, "{l1}");
    margrave(&["verify", &model, &heart, "--gap", "1e-5"]).exits(0);
    let ran = train(&heart, &["--penalty", "l1"]).exits(2);
    assert!(ran.err.contains("squared-hinge"), "{}", ran.err);
    let ran = margrave(&["train", &heart, "--penalty", "l1", "-o", &model]).exits(2);
    assert!(ran.err.contains("--kernel linear"), "{}", ran.err);

    let scaled = train(&heart, &["--intercept-scaling", "0.1"]).exits(0).json();
    let free = train(&heart, &[]).exits(0).json();
    assert!(number(&scaled, "bias").abs() < number(&free, "bias").abs(), "{scaled}");
    assert_eq!(scaled["intercept_scaling"], 0.1);

    let mut text = String::from("a,b,y\n");
    for i in 0..90 {
        let (class, u, v) = (i % 3, f64::from(i * 7 % 10) / 10.0, f64::from(i * 3 % 11) / 11.0);
        let (x, y) = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)][class as usize];
        text += &format!("{},{},{}\n", x + 0.9 * u, y + 0.9 * v, ["red", "green", "blue"][class as usize]);
    }
    let data = path("d.csv");
    std::fs::write(&data, text).unwrap();
    for (way, machines) in [(None, 3), (Some("ovo"), 3), (Some("crammer-singer"), 1)] {
        let more: Vec<&str> = way.map_or(vec![], |way| vec!["--multiclass", way]);
        let object = train(&data, &more).exits(0).json();
        assert_eq!(object["multiclass"], way.unwrap_or("ovr"));
        assert_eq!((&object["solver"], object["machines"].as_array().unwrap().len()), (&"linear".into(), machines));
        assert!(number(&object, "relative_gap") <= 1e-6 && number(&object, "train_error") < 0.4, "{object}");
        margrave(&["verify", &model, &data, "--gap", "1e-5"]).exits(0);
        let predicted =
            margrave(&["predict", &model, &data, "--scores", "--json", "-o", &path("p.csv")]).exits(0).json();
        assert!((1.0 - number(&predicted, "accuracy") - number(&object, "train_error")).abs() < 1e-12);
        margrave(&["convert", &model, "--to", "onnx", "-o", &path("m.onnx")]).exits(0);
        margrave(&["inspect", &model]).exits(0);
    }
    let sure = train(&data, &["--probability"]).exits(0).json();
    assert_eq!(sure["solver"], "linear");
    margrave(&["predict", &model, &data, "--probability", "-o", &path("p.csv")]).exits(0);
    let ran = margrave(&["tune", &data, "--kernel", "linear", "--multiclass", "crammer-singer"]).exits(2);
    assert!(ran.err.contains("crammer-singer"), "{}", ran.err);
}
