//! Losses beyond the hinge: reweighting, least squares, losses that are not convex.

use crate::common::{Sandbox, heart, margrave, number};
use serde_json::Value;

#[test]
fn every_convex_loss_for_labels_trains_to_a_proven_gap_and_verifies() {
    let sandbox = Sandbox::new();
    for loss in ["hinge", "squared-hinge", "power:s=1.5", "logistic", "huber-hinge", "smooth-hinge", "square"] {
        let object = sandbox.train(&heart(), &["--loss", loss, "--solver", "irwls", "--gap", "1e-6"]).exits(0).json();
        assert!(number(&object, "relative_gap") <= 1e-6, "{object}");
        assert_eq!((&object["solver"], &object["status"]), (&"irwls".into(), &"optimal".into()), "{object}");
        let ran = margrave(&["verify", &sandbox.path("m.model"), &heart(), "--gap", "1e-6", "--json"]).exits(0).json();
        assert!(number(&ran, "relative_gap") <= 1e-6, "{loss}: {ran}");
        let ran = margrave(&["predict", &sandbox.path("m.model"), &heart(), "--json"]).exits(0).json();
        assert!(number(&ran, "accuracy") > 0.8, "{loss}: {ran}");
    }
}

#[test]
fn the_solver_is_chosen_by_the_loss_with_a_reason() {
    let sandbox = Sandbox::new();
    for (loss, solver, why) in [
        ("hinge", "decomposition", "dual"),
        ("logistic", "irwls", "no box-quadratic dual"),
        ("square", "ridge", "one linear system"),
        ("sigmoid", "irwls", "not convex"),
    ] {
        let object = sandbox.train(&heart(), &["--loss", loss]).exits(0).json();
        assert_eq!(object["solver"], solver, "{loss}");
        assert!(object["reason"].as_str().is_some_and(|reason| reason.contains(why)), "{object}");
    }
}

#[test]
fn a_loss_that_is_not_convex_has_an_objective_below_its_start_and_no_gap() {
    let sandbox = Sandbox::new();
    for loss in ["sigmoid:eta=2", "polynomial", "ramp"] {
        let object = sandbox.train(&heart(), &["--loss", loss, "--tol", "1e-4"]).exits(0).json();
        assert!(number(&object, "objective") <= number(&object, "start_objective"), "{object}");
        assert!(number(&object, "stationarity") <= 1e-4, "{object}");
        for absent in ["primal", "dual", "gap", "relative_gap"] {
            assert!(object.get(absent).is_none(), "{loss}: {absent}");
        }
        let ran = margrave(&["verify", &sandbox.path("m.model"), &heart(), "--json"]).exits(0).json();
        assert!((number(&ran, "objective") - number(&object, "objective")).abs() < 1e-6, "{ran}");
        let shown = margrave(&["inspect", &sandbox.path("m.model")]).exits(0).out;
        assert!(shown.contains("stationarity"), "{shown}");
    }
    let model = sandbox.path("m.model");
    let ran = margrave(&["train", &heart(), "-o", &model, "--loss", "sigmoid", "--anneal", "2"]).exits(0);
    assert!(ran.out.contains("not convex, so no gap") && ran.out.contains("convex start"), "{}", ran.out);
}

#[test]
fn a_compact_model_reports_what_it_dropped() {
    let sandbox = Sandbox::new();
    let whole = sandbox.train(&heart(), &["--loss", "logistic"]).exits(0).json();
    let small = sandbox.train(&heart(), &["--loss", "logistic", "--compact", "0.002"]).exits(3).json();
    // What is left is judged as it is saved: dropping rows has a price.
    assert_eq!(small["status"], "inaccurate");
    assert!(number(&small, "relative_gap") > 1e-2, "{small}");
    let dropped = number(&small["compact"], "dropped");
    assert!(dropped > 0.0, "{small}");
    assert_eq!(number(&whole, "support_vectors") - dropped, number(&small, "support_vectors"));
    assert!(number(&small["compact"], "score_change") <= number(&small["compact"], "norm") + 1e-12, "{small}");
}

#[test]
fn budgets_resume_and_trace_work_as_with_any_solver() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    let short = sandbox.train(&heart(), &["--loss", "logistic", "--max-iter", "1", "--gap", "1e-9"]).exits(3).json();
    assert_eq!(short["status"], "iteration_limit");
    let trace = sandbox.path("t.jsonl");
    let more = ["--loss", "logistic", "--gap", "1e-9", "--resume", &model, "--trace", &trace];
    let object = sandbox.train(&heart(), &more).exits(0).json();
    assert!(number(&object, "primal") <= number(&short, "primal"));
    let lines = std::fs::read_to_string(&trace).expect("a trace");
    let steps: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).expect("a JSON line")).collect();
    let objectives: Vec<f64> = steps.iter().filter_map(|s| s["primal"].as_f64()).collect();
    assert!(!objectives.is_empty() && objectives.windows(2).all(|w| w[1] <= w[0]), "{lines}");
    assert!(steps.iter().any(|s| s["step_length"].is_number() && s["active"].is_number()), "{lines}");
    let none = sandbox.train(&heart(), &["--loss", "sigmoid", "--max-seconds", "0"]).exits(3).json();
    assert_eq!(none["status"], "time_limit");
    assert_eq!(none["objective"], none["start_objective"]);
}

#[test]
fn impossible_options_are_refused_with_the_reason() {
    let sandbox = Sandbox::new();
    for (args, words) in [
        (&["--loss", "power:s=0.5"][..], "unbounded"),
        (&["--loss", "sigmoid", "--gap", "1e-3"], "no duality gap"),
        (&["--loss", "sigmoid", "--solver", "decomposition"], "--solver irwls"),
        (&["--loss", "hinge", "--solver", "ridge"], "only the square loss"),
        (&["--loss", "logistic", "--anneal", "2"], "a convex loss"),
        (&["--nu", "0.3", "--solver", "irwls"], "several biases"),
    ] {
        let ran = sandbox.train(&heart(), args).exits(2);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}

#[test]
fn losses_are_drawn() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("l.svg");
    margrave(&["losses", "sigmoid:eta=4", "--plot", &file]).exits(0);
    let picture = std::fs::read_to_string(&file).expect("a picture");
    assert!(picture.contains("IRWLS weight") && picture.contains("sigmoid:eta=4"));
    margrave(&["losses", "--plot", &file]).exits(0);
    assert!(margrave(&["losses", "--plot", "l.png"]).exits(2).err.contains(".svg"));
}
