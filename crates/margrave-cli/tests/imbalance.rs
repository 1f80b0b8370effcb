//! Rare classes: probabilities, scores, thresholds, and what the program says about them.

use std::path::Path;

use crate::common::{Output, Sandbox, heart, margrave, number, text};

/// A cloud of `no` with few `yes` in and beside it: the same numbers on every machine.
fn rare(rows: usize, every: usize) -> String {
    let mut text = String::from("a,b,answer\n");
    // A linear congruential generator; sums of four uniform numbers are nearly normal.
    let mut state = 12345u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let mut normal = || (0..4).map(|_| uniform()).sum::<f64>() - 2.0;
    for row in 0..rows {
        let yes = row % every == 0;
        let shift = if yes { 0.8 } else { 0.0 };
        text += &format!("{:.5},{:.5},{}\n", normal() + shift, normal() + shift, if yes { "yes" } else { "no" });
    }
    text
}

fn trained(sandbox: &Sandbox, data: &str, args: &[&str]) -> serde_json::Value {
    sandbox.train(data, args).exits(0).json()
}

fn bad(args: &[&str], named: &str, written: &str) {
    let ran: Output = margrave(args).exits(2);
    assert!(ran.err.contains(named), "{args:?}: {}", ran.err);
    assert!(!Path::new(written).exists(), "{args:?} wrote a file");
}

#[test]
fn probabilities_estimate_frequencies_where_classes_are_weighted() {
    let sandbox = Sandbox::new();
    let (data, test) = (sandbox.file("a.csv", rare(600, 10)), sandbox.file("b.csv", rare(5000, 10)));
    let weighted = trained(&sandbox, &data, &["--class-weight", "balanced", "--probability"]);
    assert_eq!(
        (&weighted["calibration"]["rule"], &weighted["calibration"]["reason"]),
        (&"free".into(), &"weighted".into())
    );
    let cut = number(&weighted, "probability_threshold");
    assert!(cut > 0.02 && cut < 0.4, "{cut}");
    let model = sandbox.path("m.model");
    let ran = margrave(&["predict", &model, &test, "--probability", "--scores"]).exits(0);
    let mut mean = 0.0;
    for line in ran.out.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let p: f64 = cells[3].parse().expect("a probability");
        // The threshold that is reported is that of the predictions.
        assert_eq!(cells[0] == "yes", p > cut, "{line}");
        mean += p / 5000.0;
    }
    assert!((mean - 0.1).abs() < 0.03, "{mean}");
    let free = number(&margrave(&["predict", &model, &test, "--json"]).exits(0).json(), "log_loss");
    let inspected = margrave(&["inspect", &model]).exits(0);
    assert!(inspected.out.contains("yes is predicted where its probability exceeds"), "{}", inspected.out);
    assert_eq!(margrave(&["inspect", &model, "--json"]).exits(0).json()["probability_threshold"], cut);
    // Kept on the boundary by force, they are much worse.
    let agree =
        trained(&sandbox, &data, &["--class-weight", "balanced", "--probability", "--probability-rule", "agree"]);
    assert_eq!((&agree["calibration"]["rule"], number(&agree, "probability_threshold")), (&"agree".into(), 0.5));
    let forced = number(&margrave(&["predict", &model, &test, "--json"]).exits(0).json(), "log_loss");
    assert!(free < 0.95 * forced, "{free} {forced}");
    margrave(&["verify", &model, &data]).exits(0);
}

#[test]
fn balanced_classes_without_weights_keep_a_half_on_the_boundary() {
    let sandbox = Sandbox::new();
    let object = trained(&sandbox, &heart(), &["--probability"]);
    assert_eq!((&object["calibration"]["rule"], number(&object, "probability_threshold")), (&"agree".into(), 0.5));
    assert_eq!(object["cautions"], serde_json::json!([]));
    let ran = margrave(&["predict", &sandbox.path("m.model"), &heart(), "--probability"]).exits(0);
    for line in ran.out.lines().skip(1) {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().expect("a number")).collect();
        assert_eq!(cells[0] > 0.0, cells[2] > cells[1], "{line}");
    }
}

#[test]
fn exports_keep_what_their_format_can_say() {
    let sandbox = Sandbox::new();
    let (data, model) = (heart(), sandbox.path("m.model"));
    trained(&sandbox, &data, &["--probability"]);
    let (onnx, libsvm) = (sandbox.path("m.onnx"), sandbox.path("m.libsvm"));
    margrave(&["convert", &model, "--to", "onnx", "-o", &onnx]).exits(0);
    bad(&["convert", &model, "--to", "libsvm", "-o", &libsvm], "--probability-rule free", &libsvm);
    trained(&sandbox, &data, &["--probability", "--probability-rule", "free"]);
    margrave(&["convert", &model, "--to", "libsvm", "-o", &libsvm]).exits(0);
    let probabilities = |model: &str| margrave(&["predict", model, &data, "--probability"]).exits(0).out;
    let (ours, theirs) = (probabilities(&model), probabilities(&libsvm));
    for (a, b) in ours.lines().zip(theirs.lines()).skip(1) {
        let numbers = |line: &str| line.split(',').filter_map(|c| c.parse::<f64>().ok()).collect::<Vec<_>>();
        let (a, b) = (numbers(a), numbers(b));
        assert!((a[0] - b[0]).abs() < 1e-9 && (a[2] - b[2]).abs() < 1e-9, "{a:?} {b:?}");
    }
    trained(&sandbox, &data, &["--threshold", "max-f1"]);
    std::fs::remove_file(&libsvm).expect("it was written");
    bad(&["convert", &model, "--to", "libsvm", "-o", &libsvm], "--threshold", &libsvm);
}

#[test]
fn thresholds_are_chosen_kept_and_used() {
    let sandbox = Sandbox::new();
    let (data, test) = (sandbox.file("a.csv", rare(600, 10)), sandbox.file("b.csv", rare(5000, 10)));
    let model = sandbox.path("m.model");
    let judged = |args: &[&str]| {
        let fit = trained(&sandbox, &data, args);
        (fit, margrave(&["predict", &model, &test, "--json"]).exits(0).json())
    };
    let (plain, without) = judged(&[]);
    let (fit, with) = judged(&["--threshold", "max-f1", "--probability"]);
    assert!(number(&with, "f1") > number(&without, "f1") + 0.02, "{with} {without}");
    // The machine is the same, and so is its proof.
    assert_eq!((&fit["bias"], &fit["primal"]), (&plain["bias"], &plain["primal"]));
    assert_eq!(fit["threshold"]["rule"], "max-f1");
    margrave(&["verify", &model, &data]).exits(0);
    let shown = margrave(&["inspect", &model]).exits(0);
    assert!(shown.out.contains("yes is predicted at scores above"), "{}", shown.out);
    assert!(!shown.out.contains("positive (scores above 0)"), "{}", shown.out);
    // Scores, probabilities and predictions fit together.
    let (cut, p_cut) = (number(&fit["threshold"], "score"), number(&fit, "probability_threshold"));
    let table = margrave(&["predict", &model, &test, "--scores", "--probability"]).exits(0);
    for line in table.out.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let (z, p): (f64, f64) = (cells[1].parse().expect("a score"), cells[3].parse().expect("a probability"));
        assert_eq!((cells[0] == "yes", cells[0] == "yes"), (z > cut, p > p_cut), "{line}");
    }
    let (fit, with) = judged(&["--threshold", "recall=0.9"]);
    assert!(number(&fit["threshold"], "recall") >= 0.9);
    let yes = &with["by_class"][1];
    assert_eq!(yes["label"], "yes");
    assert!(number(yes, "recall") > 0.8, "{with}");
    // The dearer a missed positive, the lower the threshold.
    let cuts: Vec<f64> = ["cost=FP:1,FN:1", "cost=FP:1,FN:5", "cost=FP:1,FN:50"]
        .iter()
        .map(|rule| number(&judged(&["--threshold", rule]).0["threshold"], "score"))
        .collect();
    assert!(cuts[0] > cuts[1] && cuts[1] > cuts[2], "{cuts:?}");
    let three = sandbox.file("three.svm", "1 1:0\n2 1:1\n3 1:2\n1 1:0.1\n2 1:1.1\n3 1:2.1\n");
    let other = sandbox.path("other.model");
    for (args, named) in [
        (&["train", &data, "--threshold", "f1"][..], "max-f1"),
        (&["train", &data, "--threshold", "recall=2"], "recall=R"),
        (&["train", &data, "--threshold", "cost=FP:1"], "cost=FP:A,FN:B"),
        (&["train", &data, "--probability-rule", "free"], "--probability"),
        (&["train", &data, "--probability", "--probability-rule", "platt"], "agree"),
        (&["train", &three, "--threshold", "max-f1"], "--threshold"),
        (&["train", &three, "--task", "regress", "--threshold", "max-f1"], "two classes"),
        (&["tune", &three, "--threshold", "max-f1", "--folds", "2"], "--threshold"),
    ] {
        bad(&[args, &["-o", &other]].concat(), named, &other);
    }
}

#[test]
fn a_search_goes_by_the_score_it_is_given() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("a.csv", rare(300, 9));
    let grid = ["--grid", "C=0.1,1,10", "--grid", "gamma=0.01,0.1,1,10"];
    let tuned = |extra: &[&str]| margrave(&[&["tune", &data, "--json"][..], &grid, extra].concat()).exits(0).json();
    let accuracy = tuned(&["--race", "0"]);
    assert_eq!(accuracy["scoring"], "accuracy");
    let balanced = tuned(&["--race", "0", "--score", "balanced-accuracy", "--class-weight", "balanced"]);
    assert_eq!(balanced["scoring"], "balanced_accuracy");
    assert!(number(&balanced["best"], "score") > 0.6, "{}", balanced["best"]);
    for name in ["f1", "f1-macro", "roc-auc", "average_precision", "mcc", "log-loss", "brier"] {
        let all = tuned(&["--race", "0", "--score", name]);
        let raced = tuned(&["--score", name]);
        assert_eq!(all["best"]["params"], raced["best"]["params"], "{name}");
        assert_eq!(all["best"]["score"], raced["best"]["score"], "{name}");
        let losses = name == "log-loss" || name == "brier";
        for cell in all["cells"].as_array().expect("cells") {
            let score = number(cell, "score");
            assert!(
                if losses { (-1.0..0.0).contains(&score) } else { (-1.0..=1.0).contains(&score) },
                "{name} {score}"
            );
        }
        if losses {
            assert_eq!(raced["dropped"], 0);
        }
        // The same for any number of threads.
        assert_eq!(tuned(&["--score", name, "--threads", "1"])["cells"][0]["folds"], raced["cells"][0]["folds"]);
    }
    let ran = margrave(&[&["tune", &data, "--score", "log-loss"][..], &grid].concat()).exits(0);
    assert!(ran.out.contains("no combination is dropped"), "{}", ran.out);
    // A table belongs to its score.
    let (table, model) = (sandbox.path("t.csv"), sandbox.path("m"));
    margrave(&[&["tune", &data, "--score", "log-loss", "--table", &table][..], &grid].concat()).exits(0);
    let again = tuned(&["--score", "log-loss", "--resume", &table]);
    assert_eq!(again["best"]["score"], tuned(&["--score", "log-loss"])["best"]["score"]);
    for (args, named) in [
        (&["--score", "auc"][..], "roc-auc"),
        (&["--score", "r2"], "it is for numbers"),
        (&["--score", "pinball:2"], "TAU"),
        (&["--score", "mcc", "--resume", &table], "score"),
        (&["--task", "regress", "--target", "a", "--score", "mcc"], "it is for classes"),
    ] {
        bad(&[&["tune", &data, "-o", &model][..], args].concat(), named, &model);
    }
}

#[test]
fn regressions_are_scored_by_their_own_measures() {
    let sandbox = Sandbox::new();
    let wave = |from: usize| {
        let line = |i: usize| {
            let x = (i + from) as f64 * 0.05;
            format!("{:.5} 1:{x:.3}\n", x.sin() + 0.1 * (17.0 * x).sin())
        };
        (0..120).map(line).collect::<String>()
    };
    let (data, test) = (sandbox.file("a.svm", wave(0)), sandbox.file("b.svm", wave(60)));
    for name in ["r2", "rmse", "mae", "mse", "pinball:0.9", "explained-variance"] {
        let grid = ["--grid", "gamma=0.01,0.1,1,10", "--grid", "C=1,10", "--score", name];
        let object = margrave(&[&["tune", &data, "--task", "regress", "--json"][..], &grid].concat()).exits(0).json();
        let score = number(&object["best"], "score");
        assert!(if name.contains("r2") || name.contains("var") { score > 0.5 } else { score < 0.0 }, "{name} {score}");
    }
    let model = sandbox.path("m.model");
    sandbox.train(&data, &["--task", "regress", "--loss", "pinball:tau=0.9"]).exits(0);
    let object = margrave(&["predict", &model, &test, "--json"]).exits(0).json();
    let (mse, rmse) = (number(&object, "mse"), number(&object, "rmse"));
    assert!((mse.sqrt() - rmse).abs() < 1e-12 && number(&object, "mae") <= rmse);
    assert!(number(&object, "pinball") > 0.0 && number(&object, "explained_variance") >= number(&object, "r2"));
}

#[test]
fn imbalance_and_constant_predictions_are_pointed_out() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("a.csv", rare(300, 10));
    let ran = sandbox.train(&data, &["-C", "0.0001"]).exits(0);
    assert!(ran.err.contains("every training row is predicted as no"), "{}", ran.err);
    assert!(
        ran.err.contains("the largest class, no, has 270 rows and the smallest, yes, has 30")
            && ran.err.contains("--class-weight balanced"),
        "{}",
        ran.err
    );
    assert_eq!(ran.json()["cautions"].as_array().map(Vec::len), Some(2));
    for said in [&["--class-weight", "balanced"][..], &["--threshold", "max-f1"]] {
        let ran = sandbox.train(&data, said).exits(0);
        assert!(!ran.err.contains("the largest class"), "{}", ran.err);
    }
    let model = sandbox.path("t.model");
    let tune = ["tune", &data, "--grid", "C=1", "--gamma", "1", "-o", &model];
    assert!(margrave(&tune[..6]).exits(0).err.contains("the largest class, no, has 270 rows"));
    assert_eq!(margrave(&tune).exits(0).err.matches("the largest class, no, has 270 rows").count(), 1);
    assert!(
        !margrave(&[&tune[..], &["--score", "f1"]].concat())
            .exits(0)
            .err
            .contains("the largest class, no, has 270 rows")
    );
    // Three to one is not worth a word, and --quiet says none.
    let mild = sandbox.file("mild.csv", rare(300, 3));
    assert!(!sandbox.train(&mild, &[]).exits(0).err.contains("the largest class"));
    assert!(sandbox.train(&data, &["-q"]).exits(0).err.is_empty());
    let report = sandbox.path("r.html");
    sandbox.train(&data, &["--probability", "--report", &report]).exits(0);
    for name in ["Figures of merit", "balanced accuracy", "average precision", "log-loss"] {
        assert!(text(&report).contains(name), "{name}");
    }
}
