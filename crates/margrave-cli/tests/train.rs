//! Train, predict, verify and inspect, from the outside.

use std::path::Path;

use crate::common::{Sandbox, heart, margrave, number};

/// Two interleaved arcs with text labels, quoted names and a weight column.
fn arcs() -> String {
    let mut text = String::from("x,\"the, y\",w,class\n");
    for i in 0..60 {
        let t = f64::from(i) * 0.1;
        text += &format!("{:.4},{:.4},1,up\n", t.cos(), t.sin());
        text += &format!("{:.4},{:.4},2,down\n", 1.0 - t.cos(), 0.4 - t.sin());
    }
    text
}

#[test]
fn the_keys_of_train_are_complete_and_agree_with_libsvm() {
    let sandbox = Sandbox::new();
    // LIBSVM's default on its own example, C = 1 and γ = 1/13, prints obj = -100.877288, nSV = 132.
    let object = sandbox.train(&heart(), &["--gamma", "auto", "--gap", "1e-9"]).exits(0).json();
    assert!((number(&object, "dual") - 100.8772).abs() < 2e-4, "{object}");
    assert!(number(&object, "relative_gap") <= 1e-9);
    assert!(number(&object, "primal") >= number(&object, "dual"));
    assert!((number(&object, "bias").abs() - 0.4244).abs() < 1e-3, "{object}");
    for key in [
        "task",
        "n",
        "d",
        "classes",
        "kernel",
        "loss",
        "solver",
        "reason",
        "device",
        "status",
        "iterations",
        "kernel_entries",
        "seconds",
        "peak_memory_bytes",
        "primal",
        "dual",
        "gap",
        "relative_gap",
        "violation",
        "support_vectors",
        "bounded",
        "bias",
        "train_error",
        "model",
    ] {
        assert!(!object[key].is_null(), "{key} is missing");
    }
    for key in ["load", "train", "total"] {
        assert!(object["seconds"][key].is_f64(), "seconds.{key} is missing");
    }
    assert_eq!(
        (&object["status"], &object["task"], &object["loss"]),
        (&"optimal".into(), &"classify".into(), &"hinge".into())
    );
}

#[test]
fn train_predict_verify_inspect() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    let ran = margrave(&["train", &heart(), "-o", &model]).exits(0);
    assert!(ran.out.starts_with("optimal\n"), "{}", ran.out);
    assert!(ran.out.contains("270 rows, 13 features") && ran.out.contains("m.model"), "{}", ran.out);
    assert_eq!(ran.err, "");

    let ran = margrave(&["predict", &model, &heart()]).exits(0);
    assert_eq!(ran.out.lines().count(), 271);
    assert!(ran.out.starts_with("prediction\n1\n-1\n"), "{}", ran.out);
    assert!(ran.err.starts_with("note: 270 rows, accuracy "), "{}", ran.err);
    assert_eq!(margrave(&["predict", &model, &heart(), "--quiet"]).exits(0).err, "");
    let out = sandbox.path("out.csv");
    let object = margrave(&["predict", &model, &heart(), "-o", &out, "--scores", "--json"]).exits(0).json();
    assert_eq!(object["n"], 270);
    assert!(number(&object, "accuracy") > 0.8 && object["seconds"].is_object(), "{object}");
    let table = std::fs::read_to_string(&out).expect("the predictions were written");
    assert!(table.starts_with("prediction,score\n1,"), "{table}");

    let object = margrave(&["verify", &model, &heart(), "--json"]).exits(0).json();
    for key in ["primal", "dual", "gap", "relative_gap", "violation", "feasible", "worst"] {
        assert!(!object[key].is_null(), "{key} is missing");
    }
    // The same model is a poor solution for another C.
    let ran = margrave(&["verify", &model, &heart(), "-C", "100"]).exits(1);
    assert!(ran.out.starts_with("not within the requested gap\n"), "{}", ran.out);

    let ran = margrave(&["inspect", &model]).exits(0);
    assert!(ran.out.contains("classify, hinge loss, C = 1"), "{}", ran.out);
    assert_eq!(margrave(&["inspect", &model, "--json"]).exits(0).json()["n"], 270);
}

#[test]
fn columns_labels_weights_and_scaling_travel_with_the_model() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("arcs.csv", arcs());
    let model = sandbox.path("m.model");
    let args = ["--weights", "w", "--scale", "standard", "-C", "10", "--class-weight", "up=3", "--gap", "1e-6"];
    let object = sandbox.train(&data, &args).exits(0).json();
    assert_eq!((&object["n"], &object["d"]), (&120.into(), &2.into()));
    assert_eq!(object["classes"], serde_json::json!(["down", "up"]));
    margrave(&["verify", &model, &data, "--gap", "2e-6"]).exits(0);
    // Columns are found by name, in any order, and the target may be missing.
    let fresh = sandbox.file("new.csv", "\"the, y\",x\n0.9,0.1\n-0.5,0.9\n");
    let ran = margrave(&["predict", &model, &fresh]).exits(0);
    assert_eq!(ran.out, "prediction\nup\ndown\n");
    let ran = margrave(&["inspect", &model]).exits(0);
    assert!(ran.out.contains("up: 3") && ran.out.contains("the, y"), "{}", ran.out);
}

#[test]
fn regression_novelty_and_nu() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    let mut text = String::from("x,y\n");
    (0..80).for_each(|i| text += &format!("{:.3},{:.5}\n", f64::from(i) * 0.1, (f64::from(i) * 0.1).sin()));
    let data = sandbox.file("sine.csv", &text);
    let ran = margrave(&["train", &data]).exits(2);
    assert!(ran.err.contains("fractions") && ran.err.contains("--task regress"), "{}", ran.err);
    assert!(!Path::new(&model).exists());
    let object = sandbox.train(&data, &["--task", "regress", "-C", "10", "--epsilon", "0.01"]).exits(0).json();
    assert!(number(&object, "train_error") < 1e-2, "{object}");
    let object = margrave(&["predict", &model, &data, "--json"]).exits(0).json();
    assert!(number(&object, "r2") > 0.95 && number(&object, "mse") < 1e-2, "{object}");
    for args in [
        &["--task", "regress", "--nu", "0.4"][..],
        &["--task", "regress", "--loss", "huber:delta=0.5"],
        &["--task", "regress", "--loss", "square", "--lambda", "1e-3"],
        &["--task", "regress", "--loss", "pinball:tau=0.9", "--no-bias"],
        &["--task", "novelty", "--nu", "0.2"],
        &["--task", "novelty", "--nu", "0.2", "--svdd"],
    ] {
        let object = sandbox.train(&data, args).exits(0).json();
        assert!(number(&object, "relative_gap") < 1e-2, "{args:?}: {object}");
        margrave(&["verify", &model, &data, "--gap", "1e-2"]).exits(0);
        margrave(&["predict", &model, &data]).exits(0);
    }
    let object = sandbox.train(&heart(), &["--nu", "0.3"]).exits(0).json();
    assert_eq!(object["formulation"]["name"], "nu");
    margrave(&["verify", &model, &heart(), "--gap", "1e-2"]).exits(0);
    let ran = sandbox.train(&heart(), &["--nu", "0.95"]).exits(2);
    assert!(ran.err.contains("0.888"), "the largest feasible ν is 240/270: {}", ran.err);
}

/// Three bands with text labels that need quotes.
fn bands() -> String {
    let mut text = String::from("x,y,band\n");
    for i in 0..90u32 {
        let t = f64::from(i % 30) / 30.0;
        let name = ["low", "\"mid, dle\"", "high"][i as usize / 30];
        text += &format!("{:.4},{:.4},{name}\n", t, f64::from(i / 30) + (9.0 * t).sin());
    }
    text
}

#[test]
fn several_classes() {
    let sandbox = Sandbox::new();
    let (data, model) = (sandbox.file("bands.csv", bands()), sandbox.path("m.model"));
    for (way, machines) in [("ovo", 3), ("ovr", 3)] {
        let object = sandbox.train(&data, &["--multiclass", way, "--gap", "1e-6", "-C", "10"]).exits(0).json();
        assert_eq!(object["classes"], serde_json::json!(["high", "low", "mid, dle"]));
        let list = object["machines"].as_array().expect("a list of machines");
        assert_eq!(list.len(), machines);
        let sum: f64 = list.iter().map(|m| number(m, "gap")).sum();
        assert!((sum - number(&object, "gap")).abs() <= 1e-12 && number(&object, "relative_gap") <= 1e-6, "{object}");
        let proof = margrave(&["verify", &model, &data, "--gap", "1e-5", "--json"]).exits(0).json();
        assert_eq!(proof["machines"].as_array().map(Vec::len), Some(machines));
        margrave(&["verify", &model, &data, "-C", "1000"]).exits(1);
        let ran = margrave(&["predict", &model, &data, "--scores"]).exits(0);
        let header = ran.out.lines().next().unwrap_or("");
        assert_eq!(header.matches("score").count(), machines, "{header}");
        assert_eq!(ran.out.lines().count(), 91);
        let shown = margrave(&["inspect", &model]).exits(0).out;
        assert!(shown.contains("mid, dle") && shown.contains("3, one per "), "{shown}");
        let predicted = margrave(&["predict", &model, &data, "--json"]).exits(0).json();
        assert!((number(&predicted, "accuracy") - (1.0 - number(&object, "train_error"))).abs() < 1e-12);
    }
    sandbox.train(&data, &["--multiclass", "all"]).exits(2);
    let object = sandbox.train(&data, &["--loss", "square", "--multiclass", "ovr"]).exits(0).json();
    assert_eq!(object["solver"], "ridge");
    let stopped = sandbox.train(&data, &["--max-seconds", "0"]).exits(3).json();
    assert_eq!(stopped["status"], "time_limit");
}

#[test]
fn a_precomputed_matrix_of_your_own() {
    let sandbox = Sandbox::new();
    // Two groups of two: K is 1 within a group, 0.1 across; the target is the last column.
    let data = sandbox.file("gram.csv", "1,0.9,0.1,0.1,a\n0.9,1,0.1,0.1,a\n0.1,0.1,1,0.9,b\n0.1,0.1,0.9,1,b\n");
    let object = sandbox.train(&data, &["--kernel", "precomputed", "--gap", "1e-9"]).exits(0).json();
    assert_eq!(object["train_error"], 0.0);
    let model = sandbox.path("m.model");
    margrave(&["verify", &model, &data, "--gap", "1e-8"]).exits(0);
    let ran = margrave(&["predict", &model, &data]).exits(0);
    assert_eq!(ran.out, "prediction\na\na\nb\nb\n");
}

#[test]
fn a_budget_stop_keeps_the_model_and_resume_goes_on() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    let args = ["-C", "100", "--gap", "1e-8"];
    let stopped = sandbox.train(&heart(), &[&args[..], &["--max-iter", "20"]].concat()).exits(3).json();
    assert_eq!(stopped["status"], "iteration_limit");
    assert!(number(&stopped, "relative_gap") > 1e-8);
    // What was kept is certified, and the certificate holds when computed again.
    let again = margrave(&["verify", &model, &heart(), "--json"]).json();
    assert!((number(&again, "gap") - number(&stopped, "gap")).abs() <= 1e-6 * number(&stopped, "gap"), "{again}");
    let resumed = sandbox.train(&heart(), &[&args[..], &["--resume", &model]].concat()).exits(0).json();
    assert!(number(&resumed, "relative_gap") <= 1e-8);
    assert!(number(&resumed, "dual") >= number(&stopped, "dual"));
    // From the optimum there is nothing left to do.
    let idle = sandbox.train(&heart(), &[&args[..], &["--resume", &model]].concat()).exits(0).json();
    assert!(number(&idle, "iterations") <= 1.0, "{idle}");
    let other = sandbox.file("other.svm", "1 1:1\n-1 1:2\n");
    let ran = sandbox.train(&other, &["--resume", &model]).exits(2);
    assert!(ran.err.contains("270 rows"), "{}", ran.err);
    let none = sandbox.train(&heart(), &["--max-seconds", "0"]).exits(3).json();
    assert_eq!(none["status"], "time_limit");
}

#[test]
fn a_trace_is_the_stream_of_the_solver() {
    let sandbox = Sandbox::new();
    let trace = sandbox.path("t.jsonl");
    sandbox.train(&heart(), &["--trace", &trace]).exits(0);
    let text = std::fs::read_to_string(&trace).expect("the trace was written");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    assert_eq!(lines.first().map(|l| &l["event"]), Some(&"begin".into()));
    assert_eq!(lines.last().map(|l| &l["event"]), Some(&"finish".into()));
    assert_eq!(lines.last().map(|l| &l["status"]), Some(&"optimal".into()));
    assert_eq!(lines[0]["n"], 270);
}

#[test]
fn bad_input_is_named_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    for (name, text, args, named) in [
        ("one.svm", "1 1:1\n1 1:2\n", &[][..], "label 1"),
        ("bad.svm", "1 1:1\n-1 one:2\n", &[], "line 2"),
        ("empty.svm", "", &[], "empty"),
        ("text.csv", "x,y\n1,a\n2,b\n", &["--task", "regress"], "text"),
        ("ok.svm", "1 1:1\n-1 1:2\n", &["--loss", "epsilon"], "regression"),
        ("ok.svm", "1 1:1\n-1 1:2\n", &["--task", "regress", "--loss", "hinge"], "classification"),
        ("ok.svm", "1 1:1\n-1 1:2\n", &["--epsilon", "1"], "tube"),
        ("ok.svm", "1 1:1\n-1 1:2\n", &["--loss", "logistic", "--solver", "decomposition"], "--solver irwls"),
        ("ok.svm", "1 1:1\n-1 1:2\n", &["--class-weight", "7=2"], "7"),
        ("neg.svm", "1 1:-1\n-1 1:2\n", &["--kernel", "chi2"], "minmax"),
    ] {
        let data = sandbox.file(name, text);
        let ran = sandbox.train(&data, args).exits(2);
        assert!(ran.err.starts_with("error: ") && ran.err.contains(named), "{name} {args:?}: {}", ran.err);
        assert_eq!(ran.out, "");
        assert!(!Path::new(&model).exists(), "{name} {args:?} wrote a model");
    }
    for (text, named) in [("svm_type c_svc\n", "ends before"), ("junk", "not a Margrave model")] {
        let ran = margrave(&["verify", &sandbox.file("junk.model", text), &heart()]).exits(2);
        assert!(ran.err.contains(named), "{}", ran.err);
        let ran = margrave(&["predict", &sandbox.path("junk.model"), &heart()]).exits(2);
        assert!(ran.err.contains(named), "{}", ran.err);
    }
    sandbox.train(&heart(), &[]).exits(0);
    let ran = margrave(&["verify", &model, &sandbox.file("two.svm", "1 1:1\n-1 1:2\n")]).exits(2);
    assert!(ran.err.contains("270 rows"), "{}", ran.err);
}

#[test]
fn models_of_libsvm_are_certified() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let path = |name: &str| folder.join(name).display().to_string();
    let ran = margrave(&["verify", &path("heart_c_svc.libsvm"), &heart(), "--json"]).exits(0);
    assert!(ran.err.contains("-C"), "{}", ran.err);
    // It printed obj = -100.877288.
    let object = ran.json();
    assert!((number(&object, "dual") - 100.877288).abs() < 1e-6, "{object}");
    assert!(object["feasible"].as_bool().is_some_and(|f| f) && number(&object, "violation") < 1e-3, "{object}");
    margrave(&["verify", &path("heart_c_svc.libsvm"), &heart(), "-C", "2"]).exits(1);
    let object = margrave(&["verify", &path("heart_one_class.libsvm"), &heart(), "--json"]).exits(0).json();
    assert!(object["feasible"].as_bool().is_some_and(|f| f), "{object}");
    let sandbox = Sandbox::new();
    let other = sandbox.file("other.svm", "1 1:1\n-1 1:2\n");
    let ran = margrave(&["verify", &path("heart_c_svc.libsvm"), &other]).exits(2);
    assert!(ran.err.contains("not among the rows"), "{}", ran.err);
}

#[test]
fn results_do_not_depend_on_threads() {
    let sandbox = Sandbox::new();
    let run = |threads: &str| {
        let model = sandbox.path(&format!("{threads}.model"));
        margrave(&["train", &heart(), "-o", &model, "-C", "10", "--threads", threads]).exits(0);
        let object = margrave(&["inspect", &model, "--json"]).exits(0).json();
        (object["bias"].clone(), object["machines"][0]["certificate"].clone())
    };
    assert_eq!(run("1"), run("2"));
}

#[test]
fn scaling_a_file() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("a.csv", "x,y,c\n0,10,a\n2,10,b\n4,10,a\n");
    let (out, range) = (sandbox.path("b.csv"), sandbox.path("r.json"));
    let ran = margrave(&["scale", &data, "--scale", "minmax", "-o", &out, "--save", &range]).exits(0);
    assert!(ran.out.starts_with("3 rows"), "{}", ran.out);
    let text = std::fs::read_to_string(&out).expect("the file was written");
    assert!(text.contains("0.5,0,b"), "{text}");
    let other = sandbox.file("c.csv", "x,y,c\n8,11,a\n0,10,b\n");
    let ran = margrave(&["scale", &other, "--restore", &range]).exits(0);
    assert!(ran.out.contains("2,1,a"), "{}", ran.out);
    let ran = margrave(&["scale", &data, "--restore", &data]).exits(2);
    assert!(ran.err.contains("--save"), "{}", ran.err);
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_best_model_so_far() {
    use std::time::{Duration, Instant};
    let sandbox = Sandbox::new();
    let model = sandbox.path("m.model");
    // Random labels, a narrow kernel and a large C: thousands of rows keep any solver busy for a while.
    let mut text = String::new();
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    for _ in 0..30_000 {
        text += if random() < 0.5 { "1" } else { "-1" };
        (1..=10).for_each(|k| text += &format!(" {k}:{:.3}", random()));
        text.push('\n');
    }
    let data = sandbox.file("noise.svm", &text);
    let args = ["train", &data, "-o", &model, "-C", "1000", "--gamma", "1", "--gap", "1e-9", "--json"];
    let child = crate::common::command(&args).spawn().expect("the program starts");
    std::thread::sleep(Duration::from_millis(2500));
    let begun = Instant::now();
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success(), "the program ended before it was interrupted");
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(object["status"], "interrupted");
    assert_eq!(margrave(&["inspect", &model, "--json"]).exits(0).json()["n"], 30_000);
}

#[test]
fn a_plan_is_explained_without_training() {
    let sandbox = Sandbox::new();
    let plan = sandbox.train(&heart(), &["--explain", "--scale", "standard", "-C", "7"]).exits(0).json();
    assert_eq!(plan["formulation"], "hinge loss, C = 7");
    assert_eq!((&plan["scaling"], &plan["machines"]), (&"standard".into(), &"1".into()));
    assert!(plan["solver"].as_str().unwrap().starts_with("decomposition ("), "{plan}");
    assert!(plan["kernel"].as_str().unwrap().contains("the rule 'scale'"), "{plan}");
    assert!(plan["stops_at"].as_str().unwrap().contains("relative gap"), "{plan}");
    let written = std::fs::read_dir(sandbox.path("")).unwrap().count();
    assert_eq!(written, 0, "nothing is written");
    let refused = sandbox.train(&heart(), &["--explain", "--penalty", "l1"]).exits(2);
    assert!(refused.err.contains("--penalty l1") && refused.err.contains("use --kernel linear"), "{}", refused.err);
}
