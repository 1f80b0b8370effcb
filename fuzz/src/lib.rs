//! Damaged inputs for every reader and parser.
//!
//! A [`Target`] is a function of bytes that must return: no panic, no memory out of proportion to the input, no long work. The
//! program `margrave-fuzz` damages the committed seeds and runs them on stable Rust; `libfuzzer/` has the same targets for
//! cargo-fuzz. What once failed is in `regressions/`, and a plain test runs all of it.

mod keep;
mod memory;
mod mutate;
mod rng;
mod run;
mod targets;

use std::io::Write;

pub use run::{Failed, Files, Options, Report, check, fuzz, watch};
pub use targets::{TARGETS, Target, target};

/// A line on stderr.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
