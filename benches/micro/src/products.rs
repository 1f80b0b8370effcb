//! K·V without storing K.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_core::{Control, Threads};

use crate::timing::{least, points, uniform};

pub(crate) fn run() {
    println!("\nK·V, RBF, n = 10 000 rows and columns; GFLOP/s of 2·n²·d alone");
    println!("{:>9} {:>5} {:>3} {:>8} {:>9}", "precision", "d", "k", "threads", "K·V");
    let n = 10_000;
    for d in [50, 784] {
        let points = points(&uniform(n, d, 1), n, d);
        let gram = CpuGram::square(Kernel::rbf(1.0 / d as f64), &points).expect("a valid kernel");
        let flops = 2e-9 * (n * n * d) as f64;
        for precision in [Precision::Single, Precision::Double] {
            for k in [1, 10] {
                let v = uniform(n, k, 2);
                let mut out = vec![0.0; n * k];
                for threads in [1, 2] {
                    let control = Control::unlimited(Threads::new(threads));
                    let apply = least(threads, 1.0, || {
                        gram.apply(precision, Pick::All, &v, k, &mut out, &control).expect("no limit");
                    });
                    let name = if precision == Precision::Single { "single" } else { "double" };
                    println!("{name:>9} {d:>5} {k:>3} {threads:>8} {:>9.1}", flops / apply);
                }
            }
        }
    }
}
