//! Searching grids, drawing, reporting.

use std::path::Path;

use crate::common::{Sandbox, heart, margrave, text};

/// Two arcs, and a number beside them.
fn arcs() -> String {
    let mut text = String::from("x,y,side\n");
    for i in 0..90u32 {
        let t = f64::from(i) * 0.07;
        let wobble = 0.25 * (13.0 * t).sin();
        text += &format!("{:.4},{:.4},up\n", t.cos() + wobble, t.sin());
        text += &format!("{:.4},{:.4},down\n", 1.0 - t.cos(), 0.4 - t.sin() + wobble);
    }
    text
}

#[test]
fn a_grid_is_searched_and_the_best_is_trained() {
    let sandbox = Sandbox::new();
    let (model, table, plot) = (sandbox.path("m"), sandbox.path("t.csv"), sandbox.path("p.svg"));
    let grid = ["--grid", "C=0.1,1,10", "--grid", "gamma=0.01,0.1,1"];
    let data = heart();
    let args = [&["tune", &data, "-o", &model, "--table", &table, "--plot", &plot, "--json"][..], &grid].concat();
    let object = margrave(&args).exits(0).json();
    let cells = object["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 9);
    let best = object["best"]["score"].as_f64().expect("a score");
    for cell in cells {
        let score = cell["score"].as_f64().expect("a score");
        assert!(score <= best && (0.5..0.9).contains(&score), "{cell}");
        assert!(cell["std"].is_f64() && cell["seconds"].is_f64() && cell["params"]["C"].is_f64());
    }
    assert!(best > 0.8, "{best}");
    assert_eq!(object["fit"]["status"], "optimal");
    margrave(&["verify", &model, &heart()]).exits(0);
    assert_eq!(text(&table).lines().count(), 10);
    assert!(text(&plot).starts_with("<svg"));
    // The same again from the table, without training anything; and from half of it.
    let half: String = text(&table).lines().take(5).map(|line| format!("{line}\n")).collect();
    let half = sandbox.file("half.csv", &half);
    for known in [&table, &half] {
        let again = margrave(&[&["tune", &heart(), "--resume", known, "--json"][..], &grid].concat()).exits(0).json();
        assert_eq!(again["best"]["score"], object["best"]["score"]);
        assert_eq!(again["best"]["params"], object["best"]["params"]);
    }
    let ran = margrave(&["tune", &heart(), "--resume", &table, "--seed", "9"]).exits(2);
    assert!(ran.err.contains("other data, folds, seed or score"), "{}", ran.err);
}

#[test]
fn results_do_not_depend_on_threads_or_on_storing_the_kernel() {
    let run = |extra: &[&str]| {
        let data = heart();
        let args = [&["tune", &data, "--json", "--grid", "C=1,100", "--grid", "gamma=0.02,0.5"][..], extra].concat();
        let object = margrave(&args).exits(0).json();
        let cells = object["cells"].as_array().expect("cells").clone();
        cells.iter().map(|cell| cell["folds"].clone()).collect::<Vec<_>>()
    };
    let one = run(&["--threads", "1"]);
    assert_eq!(one, run(&["--threads", "3"]));
    // 270² entries do not fit into three fifths of this: rows are computed on demand instead.
    let frugal = run(&["--memory", "300KB"]);
    for (a, b) in one.iter().zip(&frugal) {
        let (a, b) = (a[0].as_f64().expect("a score"), b[0].as_f64().expect("a score"));
        // A sample on the boundary may fall to either side of it.
        assert!((a - b).abs() <= 2.0 / 54.0, "{a} {b}");
    }
}

#[test]
fn the_scores_are_those_of_training_by_hand() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("arcs.csv", arcs());
    // One group a fold, so that the folds are known: the first half and the second.
    let groups: String = (0..180).map(|i| if i < 90 { "a\n" } else { "b\n" }).collect();
    let groups = sandbox.file("groups", &groups);
    let args = ["tune", &data, "--groups", &groups, "--folds", "2", "--grid", "C=5", "--gamma", "2", "--json"];
    let object = margrave(&args).exits(0).json();
    let lines: Vec<String> = arcs().lines().map(str::to_owned).collect();
    let half = |range: std::ops::Range<usize>| format!("{}\n{}\n", lines[0], lines[1..][range].join("\n"));
    let (a, b) = (sandbox.file("a.csv", half(0..90)), sandbox.file("b.csv", half(90..180)));
    let mut found: Vec<f64> = Vec::new();
    for (train, test) in [(&b, &a), (&a, &b)] {
        let model = sandbox.path("m");
        margrave(&["train", train, "-o", &model, "-C", "5", "--gamma", "2"]).exits(0);
        let ran = margrave(&["predict", &model, test, "--json"]).exits(0).json();
        found.push(ran["accuracy"].as_f64().expect("an accuracy"));
    }
    let mut folds: Vec<f64> =
        object["cells"][0]["folds"].as_array().expect("folds").iter().filter_map(|v| v.as_f64()).collect();
    folds.sort_by(f64::total_cmp);
    found.sort_by(f64::total_cmp);
    assert_eq!(folds, found);
}

#[test]
fn losses_kernels_and_regression_can_be_searched() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("arcs.csv", arcs());
    let args =
        ["tune", &data, "--grid", "kernel=rbf,linear", "--grid", "loss=hinge,square", "--grid", "C=10", "--json"];
    let object = margrave(&args).exits(0).json();
    assert_eq!(object["cells"].as_array().map(Vec::len), Some(4));
    assert_eq!(object["best"]["params"]["kernel"], "rbf");
    let numbers: String =
        (0..120).map(|i| format!("{:.5} 1:{:.3}\n", (f64::from(i) * 0.1).sin(), f64::from(i) * 0.1)).collect();
    let numbers = sandbox.file("sine.svm", &numbers);
    let args =
        ["tune", &numbers, "--task", "regress", "--grid", "gamma=0.01,1", "--grid", "epsilon=0.01,0.5", "--json"];
    let object = margrave(&args).exits(0).json();
    assert_eq!((&object["scoring"], object["cells"].as_array().map(Vec::len)), (&"neg_mse".into(), Some(4)));
    assert_eq!(object["best"]["params"]["gamma"], 1.0);
    // Three classes, both ways.
    let bands: String = (0..90)
        .map(|i| {
            format!("{} 1:{:.3} 2:{:.3}\n", i % 3, f64::from(i % 3) + 0.3 * f64::from(i).sin(), f64::from(i).cos())
        })
        .collect();
    let bands = sandbox.file("bands.svm", &bands);
    for way in ["ovo", "ovr"] {
        let args = ["tune", &bands, "--multiclass", way, "--grid", "C=1,10", "--json"];
        let object = margrave(&args).exits(0).json();
        assert!(object["best"]["score"].as_f64().is_some_and(|score| score > 0.9), "{object}");
    }
}

#[test]
fn a_search_can_be_stopped_and_what_is_wrong_is_named() {
    let sandbox = Sandbox::new();
    let ran = margrave(&["tune", &heart(), "--max-seconds", "0"]).exits(3);
    assert!(ran.err.contains("--max-seconds"), "{}", ran.err);
    for (args, named) in [
        (&["--grid", "C"][..], "NAME=VALUES"),
        (&["--grid", "C=0,1"], "> 0"),
        (&["--grid", "nu=2"], "≤ 1"),
        (&["--grid", "size=1"], "size"),
        (&["--grid", "loss=hinges"], "hinges"),
        (&["--grid", "kernel=rbg"], "rbg"),
        (&["--folds", "1"], "at least 2"),
        (&["--folds", "1000"], "270"),
        (&["--grid", "C=1", "--grid", "lambda=1"], "both"),
        (&["--resume", "nowhere.csv"], "nowhere.csv"),
        (&["--plot", "p.pdf"], ".svg"),
        (&["--task", "novelty"], "nothing to tune"),
    ] {
        let model = sandbox.path("m");
        let ran = margrave(&[&["tune", &heart(), "-o", &model][..], args].concat()).exits(2);
        assert!(ran.err.contains(named), "{args:?}: {}", ran.err);
        assert!(!Path::new(&model).exists());
    }
}

#[test]
fn pictures_and_reports_are_whole() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("arcs.csv", arcs());
    let (model, html) = (sandbox.path("m"), sandbox.path("r.html"));
    margrave(&["train", &data, "-o", &model, "--probability", "--report", &html, "-q"]).exits(0);
    let page = text(&html);
    for part in [
        "Summary",
        "Certificate",
        "Confusion matrix",
        "ROC",
        "Calibration",
        "Support vectors",
        "worst",
        "margrave train",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(page.ends_with("</html>\n") && !page.contains("http-equiv") && !page.contains("src=\"http"));
    for name in ["p.svg", "p.png"] {
        let picture = sandbox.path(name);
        margrave(&["plot", &model, &data, "-o", &picture]).exits(0);
        let bytes = std::fs::read(&picture).expect("the picture was written");
        assert!(bytes.starts_with(b"<svg") || bytes.starts_with(b"\x89PNG"));
    }
    let ran = margrave(&["plot", &model, &data, "-o", &sandbox.path("p.jpg")]).exits(2);
    assert!(ran.err.contains(".svg or .png"), "{}", ran.err);
    margrave(&["train", &heart(), "-o", &model]).exits(0);
    let ran = margrave(&["plot", &model, &heart(), "-o", &sandbox.path("q.svg")]).exits(2);
    assert!(ran.err.contains("--features"), "{}", ran.err);
    margrave(&["plot", &model, &heart(), "-o", &sandbox.path("q.svg"), "--features", "0,7"]).exits(0);
    let ran = margrave(&["plot", &model, &heart(), "-o", &sandbox.path("q.svg"), "--features", "0,99"]).exits(2);
    assert!(ran.err.contains("99"), "{}", ran.err);
    // Regression and novelty have their own reports.
    let numbers: String =
        (0..60).map(|i| format!("{:.5} 1:{:.3}\n", (f64::from(i) * 0.1).sin(), f64::from(i) * 0.1)).collect();
    let numbers = sandbox.file("sine.svm", &numbers);
    margrave(&["train", &numbers, "-o", &model, "--task", "regress", "--report", &html]).exits(0);
    assert!(text(&html).contains("Residuals"));
    margrave(&["train", &numbers, "-o", &model, "--task", "novelty", "--report", &html]).exits(0);
    assert!(text(&html).contains("Support vectors"));
}

#[test]
fn the_demo_writes_its_files() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("demo");
    let ran = margrave(&["demo", "-o", &folder]).exits(0);
    assert!(ran.out.contains("What to try next"), "{}", ran.out);
    for name in ["heart_scale.svm", "heart.model", "heart.html", "heart.png", "grid.svg"] {
        assert!(Path::new(&folder).join(name).exists(), "{name} is missing");
    }
    let (model, data) = (format!("{folder}/heart.model"), format!("{folder}/heart_scale.svm"));
    margrave(&["verify", &model, &data, "--gap", "1e-5"]).exits(0);
}
