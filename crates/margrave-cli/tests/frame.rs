//! What holds for every command: usage errors, help, completions, closed pipes.

use clap::ValueEnum;

use crate::common::{command, declared, heart, margrave};

#[test]
fn without_arguments_it_prints_help_and_fails() {
    let ran = margrave(&[]).exits(2);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("Usage: margrave"), "{}", ran.err);
    assert!(ran.err.contains("Examples:"), "{}", ran.err);
}

#[test]
fn every_command_has_help_with_examples() {
    for command in declared() {
        let words: Vec<&str> = command.words.iter().map(String::as_str).chain(["--help"]).collect();
        let ran = margrave(&words).exits(0);
        assert_eq!(ran.err, "");
        if command.is_libsvm {
            assert!(ran.out.starts_with(&format!("Usage: {}", words[0])), "{words:?}: {}", ran.out);
            continue;
        }
        for option in ["--json", "--quiet", "--threads", "--seed"] {
            assert!(ran.out.contains(option), "{words:?} lacks {option}");
        }
        let needs_examples = command.words.is_empty() || !command.is_group;
        assert!(!needs_examples || ran.out.contains("Examples:\n  margrave "), "{words:?}: {}", ran.out);
    }
}

#[test]
fn usage_errors_name_the_option_and_exit_with_2() {
    for (args, named) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["check", "kernel"], "<DATA>"),
        (&["check", "kernel", "x", "--kernel", "cubic"], "cubic"),
        (&["check", "kernel", "x", "--gamma", "-1"], "--gamma"),
        (&["check", "kernel", "x", "--gamma", "wide"], "scale, auto, median"),
        (&["check", "kernel", "x", "--memory", "2 parsecs"], "parsecs"),
        (&["check", "kernel", "x", "--max-seconds", "nan"], "--max-seconds"),
        (&["check", "kernel", "x", "--format", "xls"], "libsvm, csv"),
        (&["check", "kernel", "x", "--threads", "-1"], "--threads"),
        (&["completions", "cmd.exe"], "cmd.exe"),
        (&["losses", "hinges"], "squared-hinge"),
        (&["train"], "<DATA>"),
        (&["train", "x", "-C", "-1"], "--cost"),
        (&["train", "x", "-C", "1", "--lambda", "1"], "--lambda"),
        (&["train", "x", "--loss", "power:s=0.5"], "unbounded"),
        (&["train", "x", "--approx", "0"], "a number of centres"),
        (&["train", "x", "--certify", "perhaps"], "exact, sampled or own"),
        (&["train", "x", "--solver", "magic"], "decomposition"),
        (&["train", "x", "--device", "gpu"], "cuda:N"),
        (&["train", "x", "--task", "guess"], "novelty"),
        (&["train", "x", "--class-weight", "1"], "balanced"),
        (&["train", "x", "--probability=1"], "folds"),
        (&["train", "x", "--multiclass", "all"], "ovo, ovr or crammer-singer"),
        (&["train", "x", "--svdd"], "--task novelty"),
        (&["convert", "x", "--to", "pickle", "-o", "y"], "native, libsvm or onnx"),
        (&["tune", "x", "--plot", "y.gif"], ".svg"),
        (&["plot", "x", "y", "-o", "z.gif"], ".png"),
        (&["train", "x", "--resume", "no.model"], "no.model"),
        (&["train", "-"], "-o MODEL"),
        (&["predict", "no.model", "x"], "no.model"),
        (&["scale", "x", "--json"], "-o FILE"),
        (&["losses", "huber:tau=1"], "delta"),
    ] {
        let ran = margrave(args).exits(2);
        assert!(ran.err.contains(named), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{args:?}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let ran = margrave(&["check", "kernel", "no/such/file.svm"]).exits(2);
    assert!(ran.err.starts_with("error: no/such/file.svm"), "{}", ran.err);
    assert_eq!(ran.out, "");
}

#[test]
fn output_that_is_not_a_terminal_has_no_colours() {
    let ran = margrave(&["check", "kernel", &heart(), "--kernel", "sigmoid"]).exits(1);
    assert!(!ran.out.contains('\x1b') && !ran.err.contains('\x1b'));
    assert_eq!(ran.err, "");
}

#[test]
fn completions_for_every_shell() {
    for shell in clap_complete::Shell::value_variants() {
        let ran = margrave(&["completions", &shell.to_string()]).exits(0);
        assert!(ran.out.contains("margrave") && ran.out.contains("kernel"), "{shell}");
        assert_eq!(ran.err, "");
    }
}

#[test]
fn a_closed_pipe_is_success() {
    let mut child = command(&["completions", "bash"]).spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
}

#[test]
fn losses_are_listed_and_explained() {
    let ran = margrave(&["losses"]).exits(0);
    for name in ["hinge", "sigmoid:eta=2", "pinball:tau=0.5", "logcosh"] {
        assert!(ran.out.contains(name), "{name} is missing:\n{}", ran.out);
    }
    let ran = margrave(&["losses", "huber:delta=0.25"]).exits(0);
    assert!(ran.out.starts_with("huber:delta=0.25\n"), "{}", ran.out);
    let list = margrave(&["losses", "--json"]).exits(0).json();
    let hinge = list["losses"].as_array().and_then(|l| l.iter().find(|o| o["name"] == "hinge")).cloned();
    let hinge = hinge.expect("the hinge is listed");
    assert_eq!(
        (&hinge["convex"], &hinge["slope_bounded"], &hinge["slope_at_zero"]),
        (&true.into(), &true.into(), &true.into())
    );
}

#[test]
fn the_demo_runs_and_prints_json() {
    let ran = margrave(&["demo"]).exits(0);
    assert!(ran.out.contains("270"), "{}", ran.out);
    assert_eq!(ran.err, "");
    assert!(ran.out.starts_with("Heart disease") && ran.out.contains("proven"), "{}", ran.out);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let heart = folder.path().join("heart");
    let object = margrave(&["demo", "--json", "-o", &heart.display().to_string()]).exits(0).json();
    assert_eq!((&object["n"], &object["d"]), (&270.into(), &13.into()));
    assert!(object["verified_gap"].as_f64().is_some_and(|gap| gap <= 1e-6), "{object}");
    assert_eq!(object["losses"].as_array().map(Vec::len), Some(5));
    let (model, data) = (heart.join("heart.model"), heart.join("heart_scale.svm"));
    margrave(&["verify", &model.display().to_string(), &data.display().to_string(), "--gap", "1e-6"]).exits(0);
}
