//! What Margrave's own tests share: seeded data and property-test helpers.
//!
//! Everything here is plain `Vec`s and numbers, so that every crate of the workspace can use it in its tests.

pub mod generate;
pub mod property;
pub mod qp;
