//! `margrave check kernel`: yes, no, and stopped.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::common::{Output, command, heart, margrave};

#[test]
fn an_rbf_gram_is_positive_semi_definite() {
    let ran = margrave(&["check", "kernel", &heart(), "--gamma", "2^-3"]).exits(0);
    assert!(ran.out.starts_with("positive semi-definite\n"), "{}", ran.out);
    assert!(ran.out.contains("rbf, γ = 0.125"), "{}", ran.out);
    assert_eq!(ran.err, "");
}

#[test]
fn a_sigmoid_gram_is_not_and_the_witness_is_shown() {
    let ran = margrave(&["check", "kernel", &heart(), "--kernel", "sigmoid", "--show", "3"]).exits(1);
    assert!(ran.out.starts_with("not positive semi-definite\n"), "{}", ran.out);
    assert_eq!(ran.out.lines().filter(|l| l.starts_with("    row ")).count(), 3, "{}", ran.out);
}

#[test]
fn json_is_complete_and_does_not_depend_on_threads() {
    let run = |threads: &str| {
        margrave(&["check", "kernel", &heart(), "--kernel", "sigmoid", "--json", "--threads", threads]).exits(1).json()
    };
    let (one, two) = (run("1"), run("2"));
    assert_eq!(one["psd"], false);
    assert_eq!(one["n"], 270);
    assert_eq!(one["kernel"]["name"], "sigmoid");
    assert_eq!(one["status"], "optimal");
    assert!(one["smallest_eigenvalue"].as_f64().is_some_and(|v| v < -1.0), "{one}");
    assert_eq!(one["witness"].as_array().map(Vec::len), Some(5));
    for key in ["d", "method", "largest_eigenvalue", "residual", "tolerance", "kernel_entries", "seconds"] {
        assert!(!one[key].is_null(), "{key} is missing");
    }
    assert_eq!(one["smallest_eigenvalue"], two["smallest_eigenvalue"]);
    assert_eq!(one["witness"], two["witness"]);
}

fn matrix(text: &str, args: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("gram.csv");
    std::fs::write(&path, text).expect("a written file");
    let path = path.display().to_string();
    margrave(&[&["check", "kernel", path.as_str(), "--kernel", "precomputed"], args].concat())
}

#[test]
fn a_precomputed_matrix_of_your_own() {
    let object = matrix("2,1\n1,2\n", &["--json"]).exits(0).json();
    assert!(object["smallest_eigenvalue"].as_f64().is_some_and(|v| (v - 1.0).abs() < 1e-14), "{object}");
    // Eigenvalues 1 ± 2.
    let object = matrix("1,2\n2,1\n", &["--json"]).exits(1).json();
    assert!(object["smallest_eigenvalue"].as_f64().is_some_and(|v| (v + 1.0).abs() < 1e-14), "{object}");
    // An indefiniteness of 1e-6 is rounding if the user says so.
    matrix("1,1.000001\n1.000001,1\n", &[]).exits(1);
    matrix("1,1.000001\n1.000001,1\n", &["--tol", "1e-5"]).exits(0);
    let ran = matrix("1,2\n0,1\n", &[]).exits(1);
    assert!(ran.out.contains("not symmetric") && ran.out.contains("(0, 1)"), "{}", ran.out);
    let ran = matrix("1,2,3\n2,1,3\n", &[]).exits(2);
    assert!(ran.err.contains("2 × 3"), "{}", ran.err);
}

/// More rows than any computer can decide in a second or two.
fn large() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("large.svm");
    let mut text = String::new();
    let mut state = 1u64;
    for _ in 0..40_000 {
        text.push('1');
        for k in 1..=20 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let _ = write!(text, " {k}:{:.4}", (state >> 40) as f64 / (1u64 << 24) as f64);
        }
        text.push('\n');
    }
    std::fs::write(&path, text).expect("a written file");
    let name = path.display().to_string();
    (folder, name)
}

#[test]
fn a_time_limit_ends_a_long_product() {
    let (_folder, path) = large();
    let begun = Instant::now();
    let ran = margrave(&["check", "kernel", &path, "--max-seconds", "0.5", "--json"]).exits(3);
    assert_eq!(ran.json()["status"], "time_limit");
    assert_eq!(ran.json()["psd"], serde_json::Value::Null);
    // Reading takes a moment and the computer may be busy; without the limit it would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_long_product() {
    let (_folder, path) = large();
    let child = command(&["check", "kernel", &path]).spawn().expect("the program starts");
    std::thread::sleep(Duration::from_millis(1500));
    let pid = child.id().to_string();
    let begun = Instant::now();
    let sent = std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
    assert!(sent.success(), "the program ended before it was interrupted");
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("undecided: interrupted"));
}
