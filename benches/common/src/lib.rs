//! Shared by the benchmark programs: arguments, data with targets, files of numbers, and exit codes.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::HashMap;

use margrave_core::data::Dataset;
use margrave_io::{ReadOptions, load};
use serde_json::Value;

/// Any error that ends a run.
pub type Failure = Box<dyn std::error::Error>;

/// `COMMAND DATA [--name VALUE]…`; a single dash also works.
pub struct Args {
    /// The command.
    pub command: String,
    /// The data file.
    pub data: String,
    /// The options, without dashes.
    pub options: HashMap<String, String>,
}

impl Args {
    /// The arguments of this process.
    pub fn parse() -> Result<Self, Failure> {
        Self::of(std::env::args().skip(1))
    }

    fn of(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let command = words.next().ok_or("a command is missing")?;
        let data = words.next().ok_or("the data file is missing")?;
        let mut options = HashMap::new();
        while let Some(name) = words.next() {
            let value = words.next().ok_or(format!("{name} needs a value"))?;
            options.insert(name.trim_start_matches('-').to_owned(), value);
        }
        Ok(Self { command, data, options })
    }

    /// An option that is a number; fails if it is not one.
    pub fn number(&self, name: &str) -> Result<Option<f64>, Failure> {
        let number = |v: &String| v.parse().map_err(|_| format!("--{name} {v} is not a number").into());
        self.options.get(name).map(number).transpose()
    }

    /// A required option.
    pub fn text(&self, name: &str) -> Result<&str, Failure> {
        self.options.get(name).map(String::as_str).ok_or_else(|| format!("--{name} is missing").into())
    }
}

/// Prints the result of `run` as one line of JSON, or its error with exit code 2.
pub fn finish(program: &str, run: impl FnOnce() -> Result<Value, Failure>) {
    match run() {
        Ok(value) => println!("{value}"),
        Err(why) => {
            eprintln!("{program}: {why}");
            std::process::exit(2);
        }
    }
}

/// Points and targets: ±1 (the larger label is +1) to classify, real numbers otherwise.
pub fn read(path: &str, classify: bool) -> Result<(Dataset, Vec<f64>), Failure> {
    let data = load(path, &ReadOptions::default())?.data;
    let targets = if classify {
        let (classes, codes) = data.targets.classes()?;
        if classes.len() != 2 {
            return Err(format!("{path} has {} classes, two are needed", classes.len()).into());
        }
        codes.iter().map(|&c| if c == 1 { 1.0 } else { -1.0 }).collect()
    } else {
        data.targets.real()?.to_vec()
    };
    Ok((data, targets))
}

/// The numbers of a raw little-endian f64 file.
pub fn read_numbers(path: &str) -> Result<Vec<f64>, Failure> {
    let bytes = std::fs::read(path)?;
    if bytes.len() % 8 != 0 {
        return Err(format!("{path} is not a list of double-precision numbers").into());
    }
    Ok(bytes.chunks_exact(8).map(|c| f64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]])).collect())
}

/// Writes such a file.
pub fn write_numbers<'a>(path: &str, numbers: impl IntoIterator<Item = &'a f64>) -> Result<(), Failure> {
    Ok(std::fs::write(path, numbers.into_iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_in_pairs() {
        let of = |text: &str| Args::of(text.split_whitespace().map(str::to_owned));
        let args = of("train a.svm -C 2.5 --loss hinge").unwrap();
        assert_eq!((args.command.as_str(), args.data.as_str()), ("train", "a.svm"));
        assert_eq!(args.number("C").unwrap(), Some(2.5));
        assert_eq!(args.number("gap").unwrap(), None);
        assert_eq!(args.text("loss").unwrap(), "hinge");
        assert!(args.number("loss").is_err() && args.text("gap").is_err());
        assert!(of("train").is_err() && of("train a.svm -C").is_err());
    }
}
