//! Shared by all papers: the report, statistics, progress.

pub(crate) mod eigen;
pub(crate) mod machine;

use std::fmt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use margrave::{Control, Threads};
use serde_json::{Map, Value, json};

/// Why there is no result.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! from_error {
    ($($error:ty),*) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        }
    )* };
}

from_error!(std::io::Error, margrave::Error, margrave::io::ReadError);

impl From<margrave::Interrupt> for Failure {
    fn from(_: margrave::Interrupt) -> Self {
        Self("interrupted".into())
    }
}

impl From<margrave::engine::solver::ridge::Halt> for Failure {
    fn from(halt: margrave::engine::solver::ridge::Halt) -> Self {
        match halt {
            margrave::engine::solver::ridge::Halt::Error(error) => error.into(),
            margrave::engine::solver::ridge::Halt::Interrupted(why) => why.into(),
        }
    }
}

/// The settings of a command.
pub(crate) struct Context {
    /// Whether to compute only a small part.
    pub(crate) quick: bool,
    /// The seed of everything random.
    pub(crate) seed: u64,
    /// Folder with data sets besides those in the repository.
    pub(crate) data: Option<PathBuf>,
    /// Number of splits of each UCI set, if given.
    pub(crate) splits: Option<usize>,
    /// All cores.
    pub(crate) threads: Threads,
}

impl Context {
    pub(crate) fn new(quick: bool, seed: u64, data: Option<PathBuf>) -> Self {
        Self { quick, seed, data, splits: None, threads: Threads::new(0) }
    }

    /// All cores, no limit.
    pub(crate) fn control(&self) -> Control {
        Control::unlimited(self.threads.clone())
    }

    /// One core, for tasks that already run in parallel.
    pub(crate) fn alone(&self) -> Control {
        Control::unlimited(Threads::one())
    }

    /// A bar on a terminal, nothing elsewhere.
    pub(crate) fn bar(&self, what: &'static str, steps: usize) -> ProgressBar {
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target).with_prefix(what);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}, {eta} left") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        bar
    }

    /// `work(i)` for every i < tasks on all cores, with a bar; results in order.
    pub(crate) fn each<T: Send>(
        &self,
        what: &'static str,
        tasks: usize,
        work: impl Fn(usize) -> Result<T, Failure> + Sync + Send,
    ) -> Result<Vec<T>, Failure> {
        let bar = self.bar(what, tasks);
        let done = self.threads.map(tasks, |i| {
            let result = work(i).map_err(|failure| failure.0);
            bar.inc(1);
            result
        });
        bar.finish_and_clear();
        done.into_iter().map(|result| result.map_err(Failure)).collect()
    }
}

/// Mean and standard deviation (of the sample: n − 1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) std: f64,
}

impl Mean {
    pub(crate) fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        Self { mean, std: if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 } }
    }

    pub(crate) fn json(self) -> Value {
        json!({ "mean": self.mean, "std": self.std })
    }

    /// mean (std), with this many decimals.
    pub(crate) fn show(self, places: usize) -> String {
        format!("{:.places$} ({:.places$})", self.mean, self.std)
    }
}

/// A claim of a paper, and whether it holds here.
pub(crate) struct ClaimCheck {
    claim: String,
    found: String,
    holds: bool,
}

enum Section {
    Text(String),
    Table { head: Vec<String>, rows: Vec<Vec<String>> },
    Figure { file: String, caption: String },
}

/// The results of a command: a page, its figures, and the same as JSON.
pub(crate) struct Report {
    name: &'static str,
    title: String,
    parts: Vec<Section>,
    checks: Vec<ClaimCheck>,
    figures: Vec<(String, String)>,
    values: Map<String, Value>,
}

impl Report {
    pub(crate) fn new(name: &'static str, title: impl Into<String>, context: &Context) -> Self {
        let mut values = Map::new();
        values.insert("name".into(), name.into());
        values.insert("seed".into(), context.seed.into());
        values.insert("quick".into(), context.quick.into());
        values.insert("splits".into(), context.splits.into());
        Self { name, title: title.into(), parts: vec![], checks: vec![], figures: vec![], values }
    }

    /// A paragraph.
    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.parts.push(Section::Text(text.into()));
    }

    pub(crate) fn table<T: Into<String>>(&mut self, head: impl IntoIterator<Item = T>, rows: Vec<Vec<String>>) {
        self.parts.push(Section::Table { head: head.into_iter().map(Into::into).collect(), rows });
    }

    /// A figure; its file is named after the report and `what`.
    pub(crate) fn figure(&mut self, what: &str, caption: impl Into<String>, svg: String) {
        let file = format!("{}-{what}.svg", self.name);
        self.parts.push(Section::Figure { file: file.clone(), caption: caption.into() });
        self.figures.push((file, svg));
    }

    pub(crate) fn check(&mut self, claim: impl Into<String>, found: impl Into<String>, holds: bool) {
        self.checks.push(ClaimCheck { claim: claim.into(), found: found.into(), holds });
    }

    /// An entry of the JSON object.
    pub(crate) fn value(&mut self, key: &str, value: impl Into<Value>) {
        self.values.insert(key.into(), value.into());
    }

    pub(crate) fn json(&self) -> Value {
        let mut values = self.values.clone();
        let checks = self.checks.iter().map(|c| json!({ "claim": c.claim, "found": c.found, "holds": c.holds }));
        values.insert("checks".into(), checks.collect());
        Value::Object(values)
    }

    pub(crate) fn markdown(&self) -> String {
        let seed = self.values.get("seed").map(Value::to_string).unwrap_or_default();
        let quick = self.values.get("quick") == Some(&Value::Bool(true));
        let mut out = format!("# {}\n\n", self.title);
        out += &format!(
            "`cargo run --release -p margrave-papers -- {}{} --seed {seed}`\n",
            self.name,
            match self.values.get("splits") {
                _ if quick => " --quick".to_owned(),
                Some(Value::Number(splits)) => format!(" --splits {splits}"),
                _ => String::new(),
            }
        );
        for part in &self.parts {
            out += "\n";
            out += &match part {
                Section::Text(text) => format!("{text}\n"),
                Section::Table { head, rows } => table(head, rows),
                Section::Figure { file, caption } => format!("![{caption}]({file})\n\n*{caption}*\n"),
            };
        }
        if !self.checks.is_empty() {
            let rows: Vec<Vec<String>> = self
                .checks
                .iter()
                .map(|c| vec![c.claim.clone(), c.found.clone(), if c.holds { "yes" } else { "**no**" }.into()])
                .collect();
            out += "\n## What was expected\n\n";
            out += &table(&["expected".into(), "found".into(), "holds".into()], &rows);
        }
        out
    }

    /// Writes the page and its figures.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), Failure> {
        let failure = |path: &Path, error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(folder).map_err(|e| failure(folder, e))?;
        let page = folder.join(format!("{}.md", self.name));
        std::fs::write(&page, self.markdown()).map_err(|e| failure(&page, e))?;
        for (file, svg) in &self.figures {
            let path = folder.join(file);
            std::fs::write(&path, svg).map_err(|e| failure(&path, e))?;
        }
        Ok(())
    }
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let escaped: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|")).collect();
        format!("| {} |\n", escaped.join(" | "))
    };
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    line(head) + &rule + &rows.iter().map(|row| line(row)).collect::<String>()
}
