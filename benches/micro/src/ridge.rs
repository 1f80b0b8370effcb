//! Times of the ridge core, by commands on standard input, so that another program can be timed in between.
//!
//! `load FILE N D` reads N × D doubles (little endian, row-major); then `cholesky THREADS`, `eigen THREADS` and
//! `path THREADS LAMBDAS` print `begin` when their matrix is ready and then the seconds of the work.
//! `benches/ridge/run.py` sends the commands.

use std::io::BufRead;
use std::time::Instant;

use margrave_core::backend::cpu::CpuGram;
use margrave_core::data::Points;
use margrave_core::gram::{Gram, Pick};
use margrave_core::kernel::Kernel;
use margrave_core::linalg::{eigen, factor, pages};
use margrave_core::observe::Silent;
use margrave_core::solver::ridge::{PathOptions, Source, path};
use margrave_core::{Control, Threads};

fn timed<T>(work: impl FnOnce() -> T) -> T {
    println!("begin");
    let wall = Instant::now();
    let out = work();
    println!("{:.6}", wall.elapsed().as_secs_f64());
    out
}

fn load(file: &str, n: usize, d: usize) -> (CpuGram, Vec<f64>) {
    let bytes = std::fs::read(file).expect("a readable file");
    let values: Vec<f64> = bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes"))).collect();
    let y = (0..n).map(|i| values[i * d].sin() + 0.1 * values[i * d + 1]).collect();
    let points = Points::dense_f64(n, d, values).expect("n × d numbers");
    (CpuGram::square(Kernel::rbf(1.0 / d as f64), &points).expect("a kernel"), y)
}

/// Runs commands until standard input ends.
pub(crate) fn serve() {
    let mut loaded: Option<(CpuGram, Vec<f64>)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| words[i].parse::<usize>().expect("a number");
        if words[0] == "load" {
            loaded = Some(load(words[1], number(2), number(3)));
            println!("loaded");
            continue;
        }
        let (gram, y) = loaded.as_ref().expect("load comes first");
        let n = y.len();
        let control = Control::unlimited(Threads::new(number(1)));
        let matrix = |ridge: f64| {
            let mut a = pages::zeros(n * n);
            gram.block_f64(Pick::All, Pick::All, &mut a, &control).expect("no budget");
            (0..n).for_each(|i| a[i * n + i] += ridge);
            a
        };
        match words[0] {
            "cholesky" => {
                let a = matrix(0.1);
                timed(|| factor::Cholesky::new(a, n, n, &control).expect("positive definite"));
            }
            "eigen" => {
                let a = matrix(0.0);
                timed(|| eigen::eigen(a, n, &control).expect("finite"));
            }
            "path" => {
                let lambdas: Vec<f64> = (0..number(2)).map(|i| 1e-6 * 10f64.powf(i as f64 * 0.2)).collect();
                let options = PathOptions { lambdas, ..PathOptions::default() };
                let found = timed(|| path(Source::Gram(gram), y, 1, None, &options, &control, &mut Silent));
                assert!(found.is_ok_and(|p| p.best.is_some()));
            }
            other => println!("unknown command {other}"),
        }
    }
}
