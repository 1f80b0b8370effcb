//! The engine of Margrave: support vector machines and related models, trained with any loss, with a proof of
//! optimality for every fit.
//!
//! The pipeline, left to right; dependencies point one way only:
//!
//! ```text
//! data ──► kernel ──► gram ──► problem = losses × costs × constraint ──► solver ──► model
//!                       ▲                                                 │  ▲
//!                 backend::cpu                            observe ◄───────┘  control (budget)
//!                                       certificate(problem, β, b) → primal, dual, gap
//! ```
//!
//! The engine never prints, never reads a file and never reads the environment; a test checks this.
//!
//! One notation throughout (see `docs/math.md`): `n` samples, `d` features, `x` a point, `y` a target,
//! `z = f(x) + b` a score, `beta` the signed dual variable, `c` a cost, `K` the Gram matrix.
#![deny(missing_docs)]

pub mod backend;
pub mod certificate;
pub mod compose;
pub mod conflict;
pub mod control;
pub mod data;
pub mod error;
pub mod gram;
pub mod kernel;
pub mod linalg;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod observe;
pub mod problem;
pub mod solver;
pub mod train;
mod work_limit;
mod workers;

pub use control::{Budget, Cancel, Control, Interrupt, Status, Threads};
pub use error::{Error, Result};
