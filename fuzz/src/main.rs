//! `margrave-fuzz TARGET|all|list [--runs N] [--seed S] [--failures FOLDER]`, or `margrave-fuzz TARGET FILE…` to repeat inputs.

use std::process::ExitCode;

use margrave_fuzz::{Options, TARGETS, Target, check, fuzz, say, target, watch};

const USAGE: &str = "\
Usage: margrave-fuzz TARGET|all [--runs N] [--seed S] [--failures FOLDER]
       margrave-fuzz TARGET FILE...     run these inputs once
       margrave-fuzz list               the targets
Exit codes: 0 nothing failed, 1 something did, 2 bad usage.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match parse(&words) {
        Some(Job::List) => {
            TARGETS.iter().for_each(|t| say(t.name));
            ExitCode::SUCCESS
        }
        Some(Job::Fuzz(targets, options)) => {
            watch();
            // One thread: readers then work in place, and the same seed makes the same inputs.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
            let run = || {
                let mut failed = false;
                for target in targets {
                    let report = fuzz(target, &options);
                    failed |= !report.failures.is_empty();
                    say(&format!(
                        "{}: {} runs, {} different answers, {} failures",
                        target.name,
                        report.runs,
                        report.answers,
                        report.failures.len()
                    ));
                }
                failed
            };
            let failed = pool.map_or(true, |pool| pool.install(run));
            if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Some(Job::Repeat(target, files)) => {
            let mut failed = false;
            for file in files {
                let answer = std::fs::read(&file).map(|bytes| check(target, &bytes));
                failed |= !matches!(answer, Ok(Ok(_)));
                say(&format!("{file}: {answer:?}"));
            }
            if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        None => {
            say(USAGE);
            ExitCode::from(2)
        }
    }
}

enum Job {
    List,
    Fuzz(Vec<&'static Target>, Options),
    Repeat(&'static Target, Vec<String>),
}

fn parse(words: &[String]) -> Option<Job> {
    let (name, rest) = words.split_first()?;
    if name == "list" {
        return Some(Job::List);
    }
    let targets: Vec<&'static Target> = if name == "all" { TARGETS.iter().collect() } else { vec![target(name)?] };
    if let [first, ..] = rest
        && !first.starts_with("--")
    {
        return Some(Job::Repeat(target(name)?, rest.to_vec()));
    }
    let mut options = Options { runs: 100_000, seed: 0, failures: "fuzz-failures".into() };
    for pair in rest.chunks(2) {
        let [option, value] = pair else { return None };
        match option.as_str() {
            "--runs" => options.runs = value.parse().ok()?,
            "--seed" => options.seed = value.parse().ok()?,
            "--failures" => options.failures = value.into(),
            _ => return None,
        }
    }
    Some(Job::Fuzz(targets, options))
}
