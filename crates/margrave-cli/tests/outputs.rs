//! Outputs that are inputs or other outputs, or that cannot be written, are refused before anything runs.

use crate::common::{Sandbox, heart, margrave, text};

const SMALL: &str = "1 1:0.5 2:1\n-1 1:-0.5 2:-1\n1 1:0.6 2:0.9\n-1 1:-0.7 2:-1.1\n1 1:0.4 2:1.2\n-1 1:-0.6 2:-0.8\n";

/// A folder with data, a native model, a LIBSVM model and other inputs.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let data = sandbox.file("d.svm", SMALL);
    sandbox.train(&data, &[]).exits(0);
    margrave(&["svm-train", "-q", &data, &sandbox.path("m.libsvm")]).exits(0);
    sandbox.file("cells.csv", "kernel,degree,coef0,gamma,loss,epsilon,nu,C,lambda,score,std,seconds,state,key\n");
    sandbox.file("names", "a\nb\na\nb\na\nb\n");
    sandbox.file("folds", "0\n1\n0\n1\n0\n1\n");
    margrave(&["scale", &data, "-o", &sandbox.path("s.svm"), "--save", &sandbox.path("s.json")]).exits(0);
    margrave(&["svm-scale", "-s", &sandbox.path("s.range"), &data]).exits(0);
    sandbox
}

/// Commands in which `@NAME` is a file of the sandbox: each has an output that is an input or another output.
const REFUSED: &[&str] = &[
    "train @d.svm -o @d.svm",
    "train @d.svm -o @x.model --trace @d.svm",
    "train @d.svm -o @x.model --report @d.svm",
    "train @d.svm -o @x.model --report @x.model",
    "train @d.svm -o @x.model --trace @x.model",
    "train @d.svm -o @x.model --trace @t --report @t",
    "train @d.svm -o @m.model --resume @m.model --report @m.model",
    "train @d.svm -o @x.model --resume @m.model --trace @m.model",
    "train @d.csv --target-file @y.npy -o @y.npy",
    "predict @m.model @d.svm -o @d.svm",
    "predict @m.model @d.svm -o @m.model",
    "predict @m.libsvm @d.svm -o @m.libsvm",
    "tune @d.svm -o @d.svm",
    "tune @d.svm --table @d.svm",
    "tune @d.svm --plot @d.svm.svg --table @d.svm.svg",
    "tune @d.svm -o @x --table @x",
    "tune @d.svm --groups @names --table @names",
    "tune @d.svm --fold-file @folds -o @folds",
    "tune @d.svm --resume @cells.csv -o @cells.csv",
    "path @p.svg --plot @p.svg",
    "scale @d.svm -o @d.svm",
    "scale @d.svm --save @d.svm -o @x",
    "scale @d.svm --save @x -o @x",
    "scale @d.svm --restore @s.json -o @s.json",
    "compare @m.model @m.libsvm @d.svm --report @d.svm",
    "compare @m.model @m.libsvm @d.svm --report @m.libsvm",
    "convert @m.model --to libsvm -o @m.model",
    "convert @m.libsvm --to native -o @m.libsvm",
    "plot @m.model @p.svg -o @p.svg",
    "plot @p.svg @d.svm -o @p.svg",
    "svm-train @d.svm @d.svm",
    "svm-predict @d.svm @m.libsvm @d.svm",
    "svm-predict @d.svm @m.libsvm @m.libsvm",
    "svm-scale -s @d.svm @d.svm",
];

/// Runs a line of words, `@NAME` being files of the sandbox.
fn ran(sandbox: &Sandbox, line: &str) -> crate::common::Output {
    let words: Vec<String> =
        line.split(' ').map(|w| w.strip_prefix('@').map_or(w.to_owned(), |name| sandbox.path(name))).collect();
    margrave(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn contents(sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(sandbox.path("."))
        .expect("the folder")
        .map(|entry| {
            let entry = entry.expect("an entry");
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_command_refuses_to_overwrite_what_it_reads() {
    let sandbox = sandbox();
    sandbox.file("p.svg", SMALL);
    sandbox.file("d.csv", "1,2\n3,4\n");
    sandbox.file("y.npy", "");
    let before = contents(&sandbox);
    for line in REFUSED {
        let ran = ran(&sandbox, line).exits(2);
        let refused = ran.err.contains("would overwrite an input") || ran.err.contains("are the same file");
        assert!(refused, "{line}: {}", ran.err);
        assert!(contents(&sandbox) == before, "{line} changed a file");
    }
}

#[cfg(unix)]
#[test]
fn links_are_seen_through() {
    let sandbox = sandbox();
    std::os::unix::fs::symlink(sandbox.path("d.svm"), sandbox.path("soft.svm")).expect("a link");
    std::fs::hard_link(sandbox.path("d.svm"), sandbox.path("hard.svm")).expect("a link");
    std::fs::create_dir(sandbox.path("sub")).expect("a folder");
    for line in [
        "train @d.svm -o @soft.svm",
        "train @soft.svm -o @d.svm",
        "train @d.svm -o @hard.svm",
        "train @d.svm -o @sub/../d.svm",
        "predict @m.model @hard.svm -o @soft.svm",
        "svm-train @hard.svm @d.svm",
        "train @d.svm -o @sub/x --report @sub/../sub/x",
    ] {
        ran(&sandbox, line).exits(2);
        assert_eq!(text(&sandbox.path("d.svm")), SMALL, "{line}");
    }
    assert!(!std::path::Path::new(&sandbox.path("sub/x")).exists());
    // Standard input is an input too.
    let mut command = crate::common::command(&["train", "-", "-o", &sandbox.path("d.svm")]);
    command.stdin(std::fs::File::open(sandbox.path("d.svm")).expect("the data"));
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text(&sandbox.path("d.svm")), SMALL);
}

#[test]
fn the_default_model_name_is_checked_too() {
    let sandbox = Sandbox::new();
    sandbox.file("d.model", SMALL);
    let mut command = crate::common::command(&["train", "d.model"]);
    let output = command.current_dir(sandbox.path(".")).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text(&sandbox.path("d.model")), SMALL);
}

#[test]
fn resuming_in_place_is_allowed() {
    let sandbox = sandbox();
    ran(&sandbox, "train @d.svm --resume @m.model -o @m.model").exits(0);
    ran(&sandbox, "tune @d.svm --grid C=1,2 --folds 2 --table @t.csv").exits(0);
    ran(&sandbox, "tune @d.svm --grid C=1,2 --folds 2 --resume @t.csv --table @t.csv").exits(0);
    // Both go nowhere.
    if cfg!(unix) {
        ran(&sandbox, "train @d.svm -o /dev/null --trace /dev/null").exits(0);
    }
}

#[test]
fn a_dash_is_standard_output_or_refused() {
    let sandbox = sandbox();
    let plain = ran(&sandbox, "predict @m.model @d.svm").exits(0);
    let run = |line: &str| {
        let words: Vec<String> =
            line.split(' ').map(|w| w.strip_prefix('@').map_or(w.to_owned(), |name| sandbox.path(name))).collect();
        let mut command = crate::common::command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let output = command.current_dir(sandbox.path(".")).output().expect("the program starts");
        assert!(!std::path::Path::new(&sandbox.path("-")).exists(), "{line} wrote a file named -");
        (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run("predict @m.model @d.svm -o -").1, plain.out.as_bytes());
    assert_eq!(run("scale @d.svm -o -").0, Some(0));
    for line in [
        "train @d.svm -o -",
        "train @d.svm -o @x --trace -",
        "convert @m.model --to onnx -o -",
        "tune @d.svm --table -",
        "svm-train -q @d.svm -",
        "svm-predict @d.svm @m.libsvm -",
    ] {
        let (code, _, error) = run(line);
        assert_eq!(code, Some(2), "{line}: {error}");
    }
}

#[test]
fn unwritable_outputs_are_refused_before_the_work() {
    let sandbox = sandbox();
    let before = contents(&sandbox);
    for line in [
        "train @d.svm -o @no/x.model",
        "train @d.svm -o @x.model --trace @no/t",
        "train @d.svm -o @x.model --report @no/t.html",
        "train @d.svm -o @.",
        "predict @m.model @d.svm -o @no/out.csv",
        "tune @d.svm --table @no/t.csv",
        "tune @d.svm --plot @no/t.svg",
        "tune @d.svm --grid C=1,2 --plot @t.svg",
        "path @d.svm --plot @no/t.svg",
        "losses --plot @no/t.svg",
        "demo -o @d.svm",
        "svm-train @d.svm @no/m",
        "svm-predict @d.svm @m.libsvm @no/out",
    ] {
        ran(&sandbox, line).exits(2);
        assert!(contents(&sandbox) == before, "{line} changed a file");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_at_the_end_costs_neither_the_model_nor_the_exit_code() {
    let sandbox = sandbox();
    for line in ["train @d.svm -o @x.model --trace /dev/full", "train @d.svm -o @x.model --report /dev/full"] {
        let ran = ran(&sandbox, line).exits(2);
        assert!(ran.err.contains("/dev/full"), "{}", ran.err);
        margrave(&["inspect", &sandbox.path("x.model")]).exits(0);
        std::fs::remove_file(sandbox.path("x.model")).expect("the model");
    }
    ran(&sandbox, "tune @d.svm --grid C=1,2 --folds 2 --table /dev/full -o @x.model").exits(2);
    margrave(&["inspect", &sandbox.path("x.model")]).exits(0);
}

#[test]
fn a_damaged_table_is_not_resumed() {
    let sandbox = sandbox();
    for garbage in ["garbage", "", "kernel,degree\n"] {
        let file = sandbox.file("g.csv", garbage);
        let ran = margrave(&["tune", &heart(), "--grid", "C=1,2", "--resume", &file]).exits(2);
        assert!(ran.err.contains("line 1") && ran.err.contains("--table"), "{}", ran.err);
    }
}
