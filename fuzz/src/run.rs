//! The driver: one input under limits, and many in a row.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::mutate::mutate;
use crate::rng::Rng;
use crate::{Target, keep, memory};

/// Memory an input may take: this many times its size, and a constant for buffers of fixed size.
const TIMES: usize = 64;
const CONSTANT: usize = 16 << 20;

/// Time an input may take, and after how long it is given up.
const SLOW: Duration = Duration::from_secs(1);
const HUNG: u64 = 30;

/// Inputs that are kept because they were answered in a new way.
const POOL: usize = 1024;

/// Inputs run so far, for the watchdog.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// What an input did that it must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// It panicked.
    Panic(String),
    /// It took this many bytes.
    Memory(usize),
    /// It took this long, twice.
    Slow(Duration),
}

/// Files of a target.
#[derive(Debug)]
pub struct Files;

impl Files {
    /// The files of a target below `folder`, which is `seeds` or `regressions`, by name.
    pub fn of(folder: &str, target: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
        let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|p| p.is_file()).collect();
        files.sort();
        files.into_iter().filter_map(|path| std::fs::read(&path).ok().map(|bytes| (path, bytes))).collect()
    }
}

/// Runs one input under the limits; what the target answered.
pub fn check(target: &Target, input: &[u8]) -> Result<u64, Failed> {
    let begun = Instant::now();
    let (answer, peak) = memory::peak_of(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    let answer = answer.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Failed::Panic(text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
    })?;
    if peak > TIMES * input.len() + CONSTANT {
        return Err(Failed::Memory(peak));
    }
    if begun.elapsed() > SLOW {
        // A busy machine is slow once.
        let again = Instant::now();
        let _ = (target.run)(input);
        if again.elapsed() > SLOW {
            return Err(Failed::Slow(again.elapsed()));
        }
    }
    Ok(answer)
}

/// How to fuzz.
#[derive(Debug, Clone)]
pub struct Options {
    /// Inputs to run.
    pub runs: u64,
    /// Seed of the damage.
    pub seed: u64,
    /// Where failing inputs are saved.
    pub failures: PathBuf,
}

/// How it went.
#[derive(Debug, Default)]
pub struct Report {
    /// Inputs run.
    pub runs: u64,
    /// Different answers seen.
    pub answers: usize,
    /// The first failure of each kind.
    pub failures: Vec<(Failed, PathBuf)>,
}

/// Runs damaged seeds.
pub fn fuzz(target: &Target, options: &Options) -> Report {
    let mut pool: Vec<Vec<u8>> = Files::of("seeds", target.name).into_iter().map(|(_, bytes)| bytes).collect();
    pool.extend(Files::of("regressions", target.name).into_iter().map(|(_, bytes)| bytes));
    pool.push(Vec::new());
    let mut rng = Rng::new(options.seed);
    let mut seen = HashSet::new();
    let mut kinds = HashSet::new();
    let mut report = Report::default();
    for _ in 0..options.runs {
        let at = rng.below(pool.len());
        let input = mutate(&pool[at], &pool, &mut rng);
        keep::now(&options.failures, target.name, &input);
        RUNS.fetch_add(1, Ordering::Relaxed);
        report.runs += 1;
        match check(target, &input) {
            Ok(answer) => {
                if seen.insert(answer) && pool.len() < POOL {
                    pool.push(input);
                }
            }
            Err(failed) => {
                let kind = match &failed {
                    Failed::Panic(text) => text.chars().filter(|c| !c.is_ascii_digit()).collect(),
                    Failed::Memory(_) => "memory".to_owned(),
                    Failed::Slow(_) => "slow".to_owned(),
                };
                if kinds.insert(kind) {
                    let path = keep::save(&options.failures, target.name, &input);
                    crate::say(&format!("{}: {failed:?}: {}", target.name, path.display()));
                    report.failures.push((failed, path));
                }
            }
        }
    }
    report.answers = seen.len();
    report
}

/// Ends the process, the input saved, when one input runs for very long.
pub fn watch() {
    std::thread::spawn(|| {
        let mut last = (0, 0);
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let runs = RUNS.load(Ordering::Relaxed);
            last = if runs == last.0 { (runs, last.1 + 1) } else { (runs, 0) };
            if last.1 > HUNG {
                keep::abort_note("it does not end");
                std::process::exit(3);
            }
        }
    });
}
