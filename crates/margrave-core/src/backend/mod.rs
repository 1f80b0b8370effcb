//! Backends: what computes kernel entries.

pub mod cpu;
