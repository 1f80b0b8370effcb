//! Runs the program and keeps its output.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What a finished run of the program printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Output {
    /// Fails, with the whole output, unless the exit code is `code`.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// The JSON object on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("stdout is not one JSON object: {e}\n{}", self.out))
    }
}

/// The program, not yet started, without a terminal and away from the caller's environment.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_margrave"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in ["RUST_BACKTRACE", "COLUMNS", "LINES"] {
        command.env_remove(variable);
    }
    command
}

/// Runs the program to its end.
pub(crate) fn margrave(args: &[&str]) -> Output {
    finished(command(args))
}

/// Runs a command to its end.
pub(crate) fn finished(mut command: Command) -> Output {
    let output = command.output().expect("the program starts");
    Output {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        err: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

/// One command of the program, as its command line declares it.
pub(crate) struct Declared {
    /// Its words: `["check", "kernel"]`; none for the program itself.
    pub(crate) words: Vec<String>,
    /// Whether it has subcommands.
    pub(crate) is_group: bool,
    /// Whether its arguments and its help are those of one of LIBSVM's tools.
    pub(crate) is_libsvm: bool,
}

/// The program and all its commands, those of groups included.
pub(crate) fn declared() -> Vec<Declared> {
    fn visit(command: &clap::Command, words: Vec<String>, found: &mut Vec<Declared>) {
        let own: Vec<&clap::Command> =
            command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help").collect();
        let (is_group, is_libsvm) = (!own.is_empty(), command.is_disable_help_flag_set());
        found.push(Declared { words: words.clone(), is_group, is_libsvm });
        own.iter().for_each(|c| visit(c, [words.clone(), vec![c.get_name().to_owned()]].concat(), found));
    }
    let mut found = Vec::new();
    visit(&margrave_cli::command(), Vec::new(), &mut found);
    found
}

/// The data set that ships with the program.
pub(crate) fn heart() -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/heart_scale.svm").display().to_string()
}

/// A temporary folder for one test.
pub(crate) struct Sandbox(tempfile::TempDir);

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Writes a file and returns its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("the file is written");
        path
    }

    /// Trains the model `m.model` here.
    pub(crate) fn train(&self, data: &str, args: &[&str]) -> Output {
        let model = self.path("m.model");
        margrave(&[&["train", data, "-o", &model, "--json"], args].concat())
    }
}

/// The number an object has under a key.
#[track_caller]
pub(crate) fn number(object: &serde_json::Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("{key} is not a number in {object}"))
}

/// The text of a file.
#[track_caller]
pub(crate) fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}
