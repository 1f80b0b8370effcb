//! A few rows of K against all columns: the access pattern of pairwise solvers.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::gram::{Gram, Pick};
use margrave_core::kernel::Kernel;
use margrave_core::{Control, Threads};

use crate::timing::{least, points, uniform};

pub(crate) fn run() {
    let control = Control::unlimited(Threads::one());
    for (n, d) in [(65_536, 64), (32_768, 784)] {
        println!("\nRBF rows, n = {n}, d = {d}, single precision, one thread");
        println!("{:>6} {:>12} {:>12} {:>10} {:>14}", "rows", "µs per row", "linear, µs", "GFLOP/s", "list ½n, µs");
        let points = points(&uniform(n, d, 1), n, d);
        let gram = CpuGram::square(Kernel::rbf(1.0 / d as f64), &points).expect("a valid kernel");
        let linear = CpuGram::square(Kernel::Linear, &points).expect("a valid kernel");
        let half: Vec<u32> = (0..n as u32).filter(|i| (i * 2_654_435_761u32) >> 31 == 0).collect();
        for rows in [1usize, 2, 4, 8, 16] {
            let list: Vec<u32> = (0..rows as u32).map(|i| i * 991).collect();
            let mut out = vec![0f32; rows * n];
            let time = |gram: &CpuGram, cols: Pick<'_>, out: &mut [f32]| {
                least(1, 0.5, || gram.block_f32(Pick::List(&list), cols, out, &control).expect("no limit"))
                    / rows as f64
            };
            let rbf = time(&gram, Pick::All, &mut out);
            let dot = time(&linear, Pick::All, &mut out);
            let part = time(&gram, Pick::List(&half), &mut out[..rows * half.len()]);
            let rate = 2e-9 * (n * d) as f64 / rbf;
            println!("{rows:>6} {:>12.1} {:>12.1} {rate:>10.1} {:>14.1}", 1e6 * rbf, 1e6 * dot, 1e6 * part);
        }
    }
}
