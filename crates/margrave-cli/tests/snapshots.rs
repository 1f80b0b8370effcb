//! What the program prints, word for word, compared with the files in `tests/snapshots/`.
//!
//! `MARGRAVE_SNAPSHOTS=write cargo test -p margrave-cli snapshots` rewrites them; check the difference before a commit.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Output, Sandbox, command, declared, finished};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

fn rewrites() -> bool {
    std::env::var_os("MARGRAVE_SNAPSHOTS").is_some_and(|value| value == "write")
}

/// Fails, showing the first line that differs, unless the file holds this text.
#[track_caller]
fn compare(name: &str, text: &str) {
    let path = folder().join(name);
    if rewrites() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
        std::fs::write(&path, text).expect("the snapshot is written");
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // A checkout may have changed the ends of lines.
    let stored = stored.replace("\r\n", "\n");
    if stored != text {
        let (mut old, mut new) = (stored.lines(), text.lines());
        let (mut at, mut pair) = (1, (old.next(), new.next()));
        while pair.0 == pair.1 && pair.0.is_some() {
            (at, pair) = (at + 1, (old.next(), new.next()));
        }
        panic!(
            "tests/snapshots/{name}, line {at}:\n  stored  {}\n  printed {}\nMARGRAVE_SNAPSHOTS=write rewrites it",
            pair.0.unwrap_or("(end)"),
            pair.1.unwrap_or("(end)")
        );
    }
}

/// The whole output of the program: exit code, stdout, stderr.
fn whole(args: &[&str], ran: &Output, out: &str) -> String {
    // The operating system's own message.
    let not_found =
        ["No such file or directory (os error 2)", "The system cannot find the file specified. (os error 2)"];
    let err = not_found.iter().fold(ran.err.clone(), |text, words| text.replace(words, "<not found>"));
    format!("$ margrave {}\nexit code {}\n--- stdout\n{out}--- stderr\n{err}", args.join(" "), ran.code)
}

/// Results without what differs between runs or computers: times, and numbers of the size of rounding errors.
fn masked(text: &str) -> String {
    text.lines().map(|line| masked_line(line) + "\n").collect()
}

/// A word and the punctuation after it.
fn punctuated(word: &str) -> (&str, &str) {
    word.split_at(word.trim_end_matches([',', ';', ':']).len())
}

fn masked_line(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let (word, end) = punctuated(words[at]);
        let (unit, unit_end) = words.get(at + 1).map_or(("", ""), |word| punctuated(word));
        match word.parse::<f64>() {
            Ok(_) if matches!(unit, "ms" | "s") => {
                out.push(format!("<time>{unit_end}"));
                at += 1;
            }
            Ok(v) if v != 0.0 && v.abs() < 1e-3 => out.push(format!("<small>{end}")),
            _ => out.push(words[at].to_owned()),
        }
        at += 1;
    }
    out.join(" ")
}

/// The same for JSON: also sizes of memory; other numbers to six digits.
fn masked_json(value: &mut Value, key: &str) {
    match value {
        Value::Object(object) => object.iter_mut().for_each(|(own, value)| {
            let key = if key == "seconds" { key } else { own };
            masked_json(value, key);
        }),
        Value::Array(list) => list.iter_mut().for_each(|value| masked_json(value, key)),
        Value::Number(_) if key == "seconds" => *value = "<time>".into(),
        Value::Number(_) if key == "peak_memory_bytes" => *value = "<bytes>".into(),
        Value::Number(number) if number.is_f64() => {
            let v = number.as_f64().expect("a number");
            *value = match v.abs() < 1e-3 && v != 0.0 {
                true => "<small>".into(),
                false => format!("{v:.5e}").parse::<f64>().expect("a number").into(),
            };
        }
        _ => {}
    }
}

/// Runs the program in a folder with `twelve.svm` and compares its output, results masked.
#[track_caller]
fn snapshot(sandbox: &Sandbox, name: &str, args: &[&str]) {
    let mut program = command(args);
    program.current_dir(sandbox.path("."));
    let ran = finished(program);
    let out = match name.ends_with(".json") {
        true => {
            let mut object = ran.json();
            masked_json(&mut object, "");
            serde_json::to_string_pretty(&object).expect("JSON") + "\n"
        }
        false => masked(&ran.out),
    };
    compare(name, &whole(args, &ran, &out));
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("twelve.svm", include_bytes!("data/twelve.svm"));
    sandbox
}

#[test]
fn help_of_every_command() {
    let mut names = Vec::new();
    for declared in declared() {
        let words: Vec<&str> = declared.words.iter().map(String::as_str).chain(["--help"]).collect();
        let ran = finished(command(&words)).exits(0);
        let name = std::iter::once("margrave").chain(declared.words.iter().map(String::as_str));
        let name = format!("{}.txt", name.collect::<Vec<_>>().join("-"));
        compare(&format!("help/{name}"), &ran.out);
        names.push(name);
    }
    // A file whose command is gone would stay unread.
    for entry in std::fs::read_dir(folder().join("help")).expect("the snapshots") {
        let entry = entry.expect("an entry");
        let known = names.iter().any(|name| entry.file_name() == name.as_str());
        if !known && rewrites() {
            std::fs::remove_file(entry.path()).expect("the stale snapshot is removed");
        }
        assert!(known || rewrites(), "{}: there is no such command", entry.path().display());
    }
}

#[test]
fn train_verify_inspect_and_predict() {
    let sandbox = sandbox();
    snapshot(&sandbox, "train.txt", &["train", "twelve.svm", "-o", "twelve.model"]);
    snapshot(&sandbox, "train.json", &["train", "twelve.svm", "-o", "twelve.model", "--json"]);
    snapshot(&sandbox, "verify.txt", &["verify", "twelve.model", "twelve.svm"]);
    snapshot(&sandbox, "verify.json", &["verify", "twelve.model", "twelve.svm", "--json"]);
    snapshot(&sandbox, "verify-no.txt", &["verify", "twelve.model", "twelve.svm", "-C", "10"]);
    snapshot(&sandbox, "inspect.txt", &["inspect", "twelve.model"]);
    snapshot(&sandbox, "predict.txt", &["predict", "twelve.model", "twelve.svm", "-o", "out.csv"]);
    snapshot(
        &sandbox,
        "train-stopped.txt",
        &["train", "twelve.svm", "-o", "x.model", "--max-iter", "1", "--gap", "1e-9"],
    );
    snapshot(&sandbox, "train-sigmoid.txt", &["train", "twelve.svm", "-o", "x.model", "--loss", "sigmoid"]);
}

#[test]
fn tune() {
    let sandbox = sandbox();
    let grid = ["--grid", "C=0.1,1,10", "--grid", "gamma=0.1,1", "--folds", "3"];
    snapshot(&sandbox, "tune.txt", &[&["tune", "twelve.svm", "-o", "best.model"][..], &grid].concat());
    snapshot(&sandbox, "tune.json", &[&["tune", "twelve.svm", "--json"][..], &grid].concat());
}

#[test]
fn errors() {
    let sandbox = sandbox();
    for (name, args) in [
        ("no-command", &[][..]),
        ("unknown-command", &["trian"]),
        ("unknown-option", &["predict", "twelve.model", "twelve.svm", "--score"]),
        ("missing-argument", &["predict", "twelve.model"]),
        ("missing-data", &["train", "no.svm"]),
        ("missing-model", &["predict", "no.model", "twelve.svm"]),
        ("bad-value", &["train", "twelve.svm", "-C", "-1"]),
        ("bad-grid", &["tune", "twelve.svm", "--grid", "size=1"]),
        ("same-file", &["train", "twelve.svm", "-o", "twelve.svm"]),
        ("wrong-task", &["train", "twelve.svm", "--svdd"]),
    ] {
        snapshot(&sandbox, &format!("errors/{name}.txt"), args);
    }
}
