//! `margrave path`: table, JSON, plot, and what it refuses.

use std::path::PathBuf;

use crate::common::{Output, heart, margrave};

fn run(text: &str, args: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("data.csv");
    std::fs::write(&path, text).expect("a written file");
    let path = path.display().to_string();
    margrave(&[&["path", path.as_str()], args].concat())
}

#[test]
fn two_points_by_hand() {
    // x = 1, 2, y = 1, 1, λ = 1: w = ½, β = (½, 0). Left out: 1 − 2/5 and 1 − 2·½. Trace: 5/6.
    let args = ["--kernel", "linear", "--no-bias", "--lambdas", "1", "--header", "no", "--json"];
    for side in ["primal", "kernel"] {
        let found = run("1,1\n2,1\n", &[&args[..], &["--side", side]].concat()).exits(0).json();
        assert_eq!(found["side"], side);
        let point = &found["path"][0];
        for (key, expected) in
            [("lambda", 1.0), ("C", 1.0), ("loo_mse", 0.18), ("train_mse", 0.125), ("degrees_of_freedom", 5.0 / 6.0)]
        {
            assert!(point[key].as_f64().is_some_and(|v| (v - expected).abs() < 1e-12), "{side} {key}: {point}");
        }
        assert_eq!(found["best"], *point);
    }
}

#[test]
fn a_table_names_the_best() {
    let ran = margrave(&["path", &heart()]).exits(0);
    let rows: Vec<&str> = ran.out.lines().skip_while(|l| !l.contains("leave-one-out MSE")).skip(1).collect();
    assert_eq!(rows.len(), 10, "{}", ran.out);
    assert_eq!(rows.iter().filter(|r| r.ends_with("best")).count(), 1, "{}", ran.out);
    assert_eq!(ran.err, "");
}

#[test]
fn json_does_not_depend_on_threads_and_best_is_least() {
    let run = |threads: &str| {
        margrave(&["path", &heart(), "--lambdas", "2^-10..2^10*4", "--json", "--threads", threads]).exits(0).json()
    };
    let (one, two) = (run("1"), run("2"));
    assert_eq!(one["path"], two["path"]);
    assert_eq!((one["n"].as_u64(), one["status"].as_str()), (Some(270), Some("optimal")));
    let points = one["path"].as_array().expect("a list");
    assert_eq!(points.len(), 11);
    let least = points.iter().filter_map(|p| p["loo_mse"].as_f64()).fold(f64::INFINITY, f64::min);
    assert_eq!(one["best"]["loo_mse"].as_f64(), Some(least));
    let freedom: Vec<f64> = points.iter().filter_map(|p| p["degrees_of_freedom"].as_f64()).collect();
    assert!(freedom.windows(2).all(|w| w[1] < w[0]), "{freedom:?}");
    assert!(one["seconds"].as_f64().is_some());
}

#[test]
fn text_labels_become_one_target_per_class() {
    let text = "x,name\n0,a\n1,b\n2,c\n0.1,a\n1.1,b\n2.1,c\n";
    let found = run(text, &["--json", "--lambdas", "0.1,1"]).exits(0).json();
    assert_eq!(found["classes"], serde_json::json!(["a", "b", "c"]));
    assert_eq!(found["path"][0]["loo_mse_by_target"].as_array().map(Vec::len), Some(3));
    let found = run("x,name\n0,a\n1,b\n0.1,a\n1.1,b\n", &["--json"]).exits(0).json();
    assert_eq!((found["targets"].as_u64(), found["classes"].as_array().map(Vec::len)), (Some(1), Some(2)));
}

#[test]
fn a_precomputed_matrix_with_its_target() {
    let args = ["--kernel", "precomputed", "--no-bias", "--lambdas", "1", "--json"];
    let found = run("1,2,1\n2,4,1\n", &[&args[..], &["--header", "no"]].concat()).exits(0).json();
    assert!(found["path"][0]["loo_mse"].as_f64().is_some_and(|v| (v - 0.18).abs() < 1e-12), "{found}");
    let ran = run("1,2,3,1\n2,4,3,1\n", &[&args[..], &["--header", "no"]].concat()).exits(2);
    assert!(ran.err.contains("square"), "{}", ran.err);
}

#[test]
fn the_plot_is_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file: PathBuf = folder.path().join("path.svg");
    let name = file.display().to_string();
    let ran = margrave(&["path", &heart(), "--plot", &name]).exits(0);
    assert!(ran.out.contains("plot written to"), "{}", ran.out);
    let svg = std::fs::read_to_string(&file).expect("the plot");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("leave-one-out") && svg.contains("degrees of freedom") && svg.contains("best: λ = "));
    let ran = margrave(&["path", &heart(), "--plot", "path.png"]).exits(2);
    assert!(ran.err.contains(".svg"), "{}", ran.err);
}

#[test]
fn no_time_is_a_budget_and_bad_ranges_are_bad_usage() {
    let found = margrave(&["path", &heart(), "--max-seconds", "0", "--json"]).exits(3).json();
    assert_eq!((found["status"].as_str(), found["path"].as_array().map(Vec::len)), (Some("time_limit"), Some(0)));
    assert!(found["best"].is_null());
    for bad in ["0..1*2", "1,0", "-1", "x", "1..2"] {
        let ran = margrave(&["path", &heart(), "--lambdas", bad]).exits(2);
        assert!(ran.err.contains("--lambdas") && ran.out.is_empty(), "{bad}: {}", ran.err);
    }
    let ran = run("1,1\n", &["--header", "no"]).exits(2);
    assert!(ran.err.contains("at least 2 rows"), "{}", ran.err);
    let ran = margrave(&["path", &heart(), "--memory", "1KB"]).exits(2);
    assert!(ran.err.contains("--memory"), "{}", ran.err);
}
