//! Micro-benchmarks of the Gram engine: each line shows ours, the reference measured in the same run, and the ratio.
//!
//! `cargo run --release -p margrave-bench-micro -- [blocks] [rows] [products] [sparse FILE.svm.gz …]`; everything but
//! `sparse` by default; `ridge` serves `benches/ridge/run.py`; `irwls FILE C GAMMA [SECONDS [LOSS]]` trains.
//! Times are the minimum of several repeats; on one thread, processor time of that thread.
#![allow(clippy::print_stdout, reason = "the output of this program is its table")]

mod blocks;
mod few;
mod irwls;
mod products;
mod ridge;
mod sparse;
mod timing;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "ridge") {
        return ridge::serve();
    }
    if arguments.first().is_some_and(|a| a == "irwls") {
        return irwls::run(&arguments[1..]);
    }
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|a| a == name);
    println!("instructions: {:?}", margrave_core::backend::cpu::Level::detect());
    if wanted("blocks") {
        blocks::run();
    }
    if wanted("rows") {
        few::run();
    }
    if wanted("products") {
        products::run();
    }
    let files: Vec<&String> = arguments.iter().filter(|a| a.contains('.')).collect();
    if !files.is_empty() {
        sparse::run(&files);
    }
}
