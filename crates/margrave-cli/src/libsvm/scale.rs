//! `margrave svm-scale`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use margrave::io::{c_number, write_atomic};

use super::{ToolError, check_files, number};
use crate::failure::Exit;
use crate::terminal::Terminal;

pub(super) const USAGE: &str = "\
Usage: svm-scale [options] data_filename
options:
-l lower : x scaling lower limit (default -1)
-u upper : x scaling upper limit (default +1)
-y y_lower y_upper : y scaling limits (default: no y scaling)
-s save_filename : save scaling parameters to save_filename
-r restore_filename : restore scaling parameters from restore_filename
";

/// The smallest and the largest value of a feature in the training data.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    min: f64,
    max: f64,
}

impl Range {
    fn seen(range: Option<&Self>, value: f64) -> Self {
        range.map_or(Self { min: value, max: value }, |r| Self { min: r.min.min(value), max: r.max.max(value) })
    }

    fn map(&self, value: f64, low: f64, high: f64) -> f64 {
        if value == self.min {
            low
        } else if value == self.max {
            high
        } else {
            low + (high - low) * (value - self.min) / (self.max - self.min)
        }
    }
}

/// The limits and ranges of a file of parameters.
#[derive(Debug, Clone, PartialEq)]
struct Parameters {
    low: f64,
    high: f64,
    /// y: limits and range.
    target: Option<(f64, f64, Range)>,
    features: BTreeMap<u32, Range>,
}

impl Parameters {
    fn to_text(&self) -> String {
        let g = |v: f64| c_number(v, 17);
        let mut text = String::new();
        if let Some((low, high, range)) = &self.target {
            let _ = write!(text, "y\n{} {}\n{} {}\n", g(*low), g(*high), g(range.min), g(range.max));
        }
        let _ = write!(text, "x\n{} {}\n", g(self.low), g(self.high));
        for (index, range) in self.features.iter().filter(|(_, range)| range.min != range.max) {
            let _ = writeln!(text, "{index} {} {}", g(range.min), g(range.max));
        }
        text
    }

    fn parse(text: &str, file: &str) -> Result<Self, ToolError> {
        let wrong = || ToolError::Failed(format!("{file}: not a file of scaling parameters: give one written with -s"));
        let numbers = |line: Option<&str>| -> Result<Vec<f64>, ToolError> {
            let words = line.ok_or_else(wrong)?.split_whitespace();
            words.map(|word| word.parse().map_err(|_| wrong())).collect()
        };
        let mut lines = text.lines();
        let mut head = lines.next().map(str::trim);
        let mut target = None;
        if head == Some("y") {
            let (limits, range) = (numbers(lines.next())?, numbers(lines.next())?);
            let (&[low, high], &[min, max]) = (limits.as_slice(), range.as_slice()) else { return Err(wrong()) };
            target = Some((low, high, Range { min, max }));
            head = lines.next().map(str::trim);
        }
        if head != Some("x") {
            return Err(wrong());
        }
        let limits = numbers(lines.next())?;
        let &[low, high] = limits.as_slice() else { return Err(wrong()) };
        let mut features = BTreeMap::new();
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let values = numbers(Some(line))?;
            let &[index, min, max] = values.as_slice() else { return Err(wrong()) };
            features.insert(index as u32, Range { min, max });
        }
        Ok(Self { low, high, target, features })
    }
}

/// One line: its label and its entries.
struct Line {
    label: f64,
    entries: Vec<(u32, f64)>,
}

fn parse_lines(text: &str) -> Result<Vec<Line>, ToolError> {
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = || ToolError::Failed(format!("Wrong input format at line {}", at + 1));
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let label = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        let mut entries: Vec<(u32, f64)> = Vec::new();
        for word in words {
            let (index, value) = word.split_once(':').ok_or_else(wrong)?;
            let entry = (index.parse().map_err(|_| wrong())?, value.parse().map_err(|_| wrong())?);
            if entries.last().is_some_and(|last| last.0 >= entry.0) {
                return Err(wrong());
            }
            entries.push(entry);
        }
        lines.push(Line { label, entries });
    }
    Ok(lines)
}

pub(super) fn run(arguments: &[String], terminal: &Terminal) -> Result<Exit, ToolError> {
    let (mut low, mut high, mut target) = (-1.0, 1.0, None);
    let (mut save, mut restore) = (None, None);
    let mut at = 0;
    let usage = || ToolError::Usage(String::new());
    while at < arguments.len() && arguments[at].starts_with('-') {
        let name = arguments[at].clone();
        let value = arguments.get(at + 1).ok_or_else(usage)?;
        at += 2;
        match name.chars().nth(1) {
            Some('l') => low = number(&name, value)?,
            Some('u') => high = number(&name, value)?,
            Some('y') => {
                let second = arguments.get(at).ok_or_else(usage)?;
                target = Some((number::<f64>(&name, value)?, number::<f64>(&name, second)?));
                at += 1;
            }
            Some('s') => save = Some(value.clone()),
            Some('r') => restore = Some(value.clone()),
            _ => return Err(ToolError::Usage(format!("unknown option {name}"))),
        }
    }
    if !(high > low) || target.is_some_and(|(low, high)| !(high > low)) {
        return Err(ToolError::Failed("inconsistent lower/upper specification".into()));
    }
    if save.is_some() && restore.is_some() {
        return Err(ToolError::Failed("cannot use -r and -s simultaneously".into()));
    }
    let [file] = &arguments[at..] else { return Err(usage()) };
    if let Some(path) = &save {
        check_files(&[("data_filename", file)], ("-s", path))?;
    }
    let text = std::fs::read_to_string(file).map_err(|_| ToolError::Failed(format!("can't open file {file}")))?;
    let lines = parse_lines(&text)?;
    let parameters = match &restore {
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|_| ToolError::Failed(format!("can't open file {path}")))?;
            Parameters::parse(&text, path)?
        }
        None => measure(&lines, low, high, target),
    };
    if let Some(path) = &save {
        let text = parameters.to_text();
        write_atomic(Path::new(path), |out| out.write_all(text.as_bytes()))?;
    }
    if restore.is_some() {
        unseen(&lines, &parameters).iter().for_each(|index| {
            terminal.plain_error(&format!(
                "WARNING: feature index {index} appeared in file {file} was not seen in the scaling factor file {}. The feature is scaled to 0.",
                restore.as_deref().unwrap_or_default()
            ));
        });
    }
    let (out, before, after) = apply(&lines, &parameters);
    terminal.write(&out)?;
    if after > before {
        terminal.plain_error(&format!(
            "WARNING: original #nonzeros {before}\n       > new      #nonzeros {after}\nIf feature values are non-negative and sparse, use -l 0 rather than the default -l -1"
        ));
    }
    Ok(Exit::Done)
}

/// Scales the part of a text before the first line `--` by the ranges in the part after it, or by its own.
pub(super) fn both(text: &str) -> Result<(), ToolError> {
    let (data, ranges) = text.split_once("\n--\n").unwrap_or((text, ""));
    let lines = parse_lines(data)?;
    let own = measure(&lines, -1.0, 1.0, Some((0.0, 1.0)));
    let _ = (own.to_text(), apply(&lines, &own));
    let given = Parameters::parse(ranges, "input")?;
    let _ = (unseen(&lines, &given), apply(&lines, &given));
    Ok(())
}

/// Features of the file beyond those of the parameters.
fn unseen(lines: &[Line], parameters: &Parameters) -> Vec<u32> {
    let known = parameters.features.keys().last().copied().unwrap_or(0);
    let found: BTreeSet<u32> =
        lines.iter().flat_map(|line| &line.entries).map(|entry| entry.0).filter(|index| *index > known).collect();
    found.into_iter().collect()
}

fn measure(lines: &[Line], low: f64, high: f64, target: Option<(f64, f64)>) -> Parameters {
    let (mut features, mut counts): (BTreeMap<u32, Range>, BTreeMap<u32, usize>) = Default::default();
    let mut labels: Option<Range> = None;
    for line in lines {
        labels = Some(Range::seen(labels.as_ref(), line.label));
        for &(index, value) in &line.entries {
            let range = Range::seen(features.get(&index), value);
            features.insert(index, range);
            *counts.entry(index).or_default() += 1;
        }
    }
    // Missing entries are zeros.
    for (index, range) in &mut features {
        if counts[index] < lines.len() {
            *range = Range::seen(Some(range), 0.0);
        }
    }
    let target = target.zip(labels).map(|((low, high), range)| (low, high, range));
    Parameters { low, high, target, features }
}

/// The scaled file, and the numbers of entries that are not zero before and after.
fn apply(lines: &[Line], parameters: &Parameters) -> (String, usize, usize) {
    let (mut text, mut before, mut after) = (String::new(), 0, 0);
    for line in lines {
        let label = match &parameters.target {
            Some((low, high, range)) => range.map(line.label, *low, *high),
            None => line.label,
        };
        let _ = write!(text, "{} ", c_number(label, 17));
        before += line.entries.iter().filter(|(_, value)| *value != 0.0).count();
        let mut given = line.entries.iter().peekable();
        for (&index, range) in &parameters.features {
            while given.next_if(|(own, _)| *own < index).is_some() {}
            let value = given.next_if(|(own, _)| *own == index).map_or(0.0, |(_, value)| *value);
            if range.min == range.max {
                continue;
            }
            let scaled = range.map(value, parameters.low, parameters.high);
            if scaled != 0.0 {
                let _ = write!(text, "{index}:{} ", c_number(scaled, 6));
                after += 1;
            }
        }
        text.push('\n');
    }
    (text, before, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_by_hand() {
        let lines = parse_lines("1 1:2 3:5\n-1 1:4\n1 1:3 3:-5 # note\n").unwrap_or_default();
        assert_eq!(lines.len(), 3);
        let parameters = measure(&lines, -1.0, 1.0, None);
        assert_eq!(parameters.to_text(), "x\n-1 1\n1 2 4\n3 -5 5\n");
        let (text, before, after) = apply(&lines, &parameters);
        assert_eq!(text, "1 1:-1 3:1 \n-1 1:1 \n1 3:-1 \n");
        assert_eq!((before, after), (5, 4));
        let Ok(back) = Parameters::parse(&parameters.to_text(), "f") else { panic!("reads back") };
        assert_eq!(back, parameters);
        assert!(Parameters::parse("x\n1\n", "f").is_err() && Parameters::parse("", "f").is_err());
    }
}
