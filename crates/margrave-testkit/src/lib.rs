//! What Margrave's own tests share: naive references, seeded data, property-test helpers and conformance suites.
//!
//! [`generate`], [`property`] and [`qp`] are plain `Vec`s and numbers and serve every crate of the workspace, unit tests of
//! `margrave-core` included; the others speak its types, so inside that crate only integration tests can use them.

pub mod backend_suite;
pub mod generate;
pub mod naive;
pub mod points;
pub mod property;
pub mod qp;
