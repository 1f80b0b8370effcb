//! Nothing is lost: outputs that are inputs or each other are refused before anything runs, and so is what cannot be written.

use crate::common::{Desk, heart, margrave, text};

const SMALL: &str = "1 1:0.5 2:1\n-1 1:-0.5 2:-1\n1 1:0.6 2:0.9\n-1 1:-0.7 2:-1.1\n1 1:0.4 2:1.2\n-1 1:-0.6 2:-0.8\n";

/// A folder with data, a model of ours and one of LIBSVM's, and other names for all three.
fn desk() -> Desk {
    let desk = Desk::new();
    let data = desk.file("d.svm", SMALL);
    desk.train(&data, &[]).exits(0);
    margrave(&["svm-train", "-q", &data, &desk.path("m.libsvm")]).exits(0);
    desk.file("cells.csv", "kernel,degree,coef0,gamma,loss,epsilon,nu,C,lambda,score,std,seconds,state,key\n");
    desk.file("names", "a\nb\na\nb\na\nb\n");
    desk.file("folds", "0\n1\n0\n1\n0\n1\n");
    margrave(&["scale", &data, "-o", &desk.path("s.svm"), "--save", &desk.path("s.json")]).exits(0);
    margrave(&["svm-scale", "-s", &desk.path("s.range"), &data]).exits(0);
    desk
}

/// Commands in which `@NAME` is a file of the desk: each has an output that is an input or another output.
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
    "convert @m.model --to libsvm -o @m.model",
    "convert @m.libsvm --to native -o @m.libsvm",
    "plot @m.model @p.svg -o @p.svg",
    "plot @p.svg @d.svm -o @p.svg",
    "svm-train @d.svm @d.svm",
    "svm-predict @d.svm @m.libsvm @d.svm",
    "svm-predict @d.svm @m.libsvm @m.libsvm",
    "svm-scale -s @d.svm @d.svm",
];

/// Runs a line of words, `@NAME` being files of the desk.
fn said(desk: &Desk, line: &str) -> crate::common::Said {
    let words: Vec<String> =
        line.split(' ').map(|w| w.strip_prefix('@').map_or(w.to_owned(), |name| desk.path(name))).collect();
    margrave(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn contents(desk: &Desk) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(desk.path("."))
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
    let desk = desk();
    desk.file("p.svg", SMALL);
    desk.file("d.csv", "1,2\n3,4\n");
    desk.file("y.npy", "");
    let before = contents(&desk);
    for line in REFUSED {
        let said = said(&desk, line).exits(2);
        let told = said.err.contains("would overwrite an input") || said.err.contains("are the same file");
        assert!(told, "{line}: {}", said.err);
        assert!(contents(&desk) == before, "{line} changed a file");
    }
}

#[cfg(unix)]
#[test]
fn links_are_seen_through() {
    let desk = desk();
    std::os::unix::fs::symlink(desk.path("d.svm"), desk.path("soft.svm")).expect("a link");
    std::fs::hard_link(desk.path("d.svm"), desk.path("hard.svm")).expect("a link");
    std::fs::create_dir(desk.path("sub")).expect("a folder");
    for line in [
        "train @d.svm -o @soft.svm",
        "train @soft.svm -o @d.svm",
        "train @d.svm -o @hard.svm",
        "train @d.svm -o @sub/../d.svm",
        "predict @m.model @hard.svm -o @soft.svm",
        "svm-train @hard.svm @d.svm",
        "train @d.svm -o @sub/x --report @sub/../sub/x",
    ] {
        said(&desk, line).exits(2);
        assert_eq!(text(&desk.path("d.svm")), SMALL, "{line}");
    }
    assert!(!std::path::Path::new(&desk.path("sub/x")).exists());
    // Standard input is an input too.
    let mut command = crate::common::command(&["train", "-", "-o", &desk.path("d.svm")]);
    command.stdin(std::fs::File::open(desk.path("d.svm")).expect("the data"));
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text(&desk.path("d.svm")), SMALL);
}

#[test]
fn the_default_model_name_is_checked_too() {
    let desk = Desk::new();
    desk.file("d.model", SMALL);
    let mut command = crate::common::command(&["train", "d.model"]);
    let output = command.current_dir(desk.path(".")).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text(&desk.path("d.model")), SMALL);
}

#[test]
fn going_on_in_place_is_allowed() {
    let desk = desk();
    said(&desk, "train @d.svm --resume @m.model -o @m.model").exits(0);
    said(&desk, "tune @d.svm --grid C=1,2 --folds 2 --table @t.csv").exits(0);
    said(&desk, "tune @d.svm --grid C=1,2 --folds 2 --resume @t.csv --table @t.csv").exits(0);
    // Both go nowhere.
    if cfg!(unix) {
        said(&desk, "train @d.svm -o /dev/null --trace /dev/null").exits(0);
    }
}

#[test]
fn a_dash_is_standard_output_or_refused() {
    let desk = desk();
    let plain = said(&desk, "predict @m.model @d.svm").exits(0);
    let run = |line: &str| {
        let words: Vec<String> =
            line.split(' ').map(|w| w.strip_prefix('@').map_or(w.to_owned(), |name| desk.path(name))).collect();
        let mut command = crate::common::command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let output = command.current_dir(desk.path(".")).output().expect("the program starts");
        assert!(!std::path::Path::new(&desk.path("-")).exists(), "{line} wrote a file named -");
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
fn what_cannot_be_written_is_said_before_the_work() {
    let desk = desk();
    let before = contents(&desk);
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
        said(&desk, line).exits(2);
        assert!(contents(&desk) == before, "{line} changed a file");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_at_the_end_costs_neither_the_model_nor_the_exit_code() {
    let desk = desk();
    for line in ["train @d.svm -o @x.model --trace /dev/full", "train @d.svm -o @x.model --report /dev/full"] {
        let said = said(&desk, line).exits(2);
        assert!(said.err.contains("/dev/full"), "{}", said.err);
        margrave(&["inspect", &desk.path("x.model")]).exits(0);
        std::fs::remove_file(desk.path("x.model")).expect("the model");
    }
    said(&desk, "tune @d.svm --grid C=1,2 --folds 2 --table /dev/full -o @x.model").exits(2);
    margrave(&["inspect", &desk.path("x.model")]).exits(0);
}

#[test]
fn a_table_that_is_none_is_not_resumed() {
    let desk = desk();
    for garbage in ["garbage", "", "kernel,degree\n"] {
        let file = desk.file("g.csv", garbage);
        let said = margrave(&["tune", &heart(), "--grid", "C=1,2", "--resume", &file]).exits(2);
        assert!(said.err.contains("line 1") && said.err.contains("--table"), "{}", said.err);
    }
}
