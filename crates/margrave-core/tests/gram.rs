//! The CPU backend against the suite every backend must pass, at every instruction level of this machine.

use margrave_core::backend::cpu::{CpuGram, Level};
use margrave_core::data::Points;
use margrave_core::gram::Gram;
use margrave_core::kernel::Kernel;
use margrave_testkit::backend_suite;

fn make(level: Level, kernel: Kernel, rows: &Points, cols: Option<&Points>) -> Box<dyn Gram> {
    let gram = match cols {
        Some(cols) => CpuGram::new(kernel, rows, cols),
        None => CpuGram::square(kernel, rows),
    };
    Box::new(gram.expect("points of equal width").with_level(level))
}

backend_suite!(best, |kernel, rows: &Points, cols: Option<&Points>| make(Level::Avx512, kernel, rows, cols));
backend_suite!(avx2, |kernel, rows: &Points, cols: Option<&Points>| make(Level::Avx2, kernel, rows, cols));
backend_suite!(portable, |kernel, rows: &Points, cols: Option<&Points>| make(Level::Portable, kernel, rows, cols));
