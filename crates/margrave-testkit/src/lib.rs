//! Shared test utilities: naive references, seeded data, property-test helpers and conformance suites.
//!
//! [`generate`], [`property`] and [`qp`] use plain `Vec`s and numbers and work in every crate of the workspace,
//! including unit tests of `margrave-core`; the others use its types, so inside that crate only integration tests can
//! use them.

pub mod backend_suite;
pub mod generate;
pub mod naive;
pub mod points;
pub mod property;
pub mod qp;
