//! Clocks and seeded data.

use margrave_core::data::Points;
use rand::{RngExt, SeedableRng};

/// Seconds of `work`: the minimum of at least three repeats that take about `budget` seconds. On one thread the processor time
/// of that thread, which other processes do not disturb; otherwise wall-clock time.
pub(crate) fn least(threads: usize, budget: f64, mut work: impl FnMut()) -> f64 {
    let clock = if threads == 1 { thread_time } else { wall_time };
    let begin = wall_time();
    let mut best = f64::INFINITY;
    let mut repeats = 0;
    while repeats < 3 || (wall_time() - begin < budget && repeats < 10_000) {
        let start = clock();
        work();
        best = best.min(clock() - start);
        repeats += 1;
    }
    best
}

fn wall_time() -> f64 {
    clock(libc::CLOCK_MONOTONIC)
}

fn thread_time() -> f64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::clock_gettime(which, &mut time) };
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// `n × d` numbers from −1 to 1.
pub(crate) fn uniform(n: usize, d: usize, seed: u64) -> Vec<f64> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    (0..n * d).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect()
}

/// The same as points stored in single precision.
pub(crate) fn points(values: &[f64], n: usize, d: usize) -> Points {
    Points::dense_f32(n, d, values.iter().map(|x| *x as f32).collect::<Vec<_>>()).expect("finite numbers")
}
