//! From options and data to a model with its proof.
//!
//! [`TrainOptions`] say what to train; [`Plan::new`] resolves them for the data and rejects combinations that are not
//! supported; [`Plan::train`] trains. Machines belong to a `Space` (`space.rs`), of a kernel or of linear machines, and
//! everything made of several machines (classes, folds, calibration, verification) is written once on top of it. A solver
//! reports how it ended; [`prove`] builds the machine that will be saved and certifies *that*, with scores computed
//! independently; and [`verdict`](mod@verdict) alone turns the criteria, the certificate and the solver's ending into a
//! [`Status`].

mod approximate_space;
mod budget;
mod calibrate;
pub mod caution;
mod classes;
mod crammer_singer;
mod fit;
mod kernel_space;
mod linear_space;
mod merge;
mod one;
mod options;
mod outputs;
mod plan;
mod prepared;
mod proof;
mod shared;
mod space;
mod streamed;
pub mod tune;
pub mod verdict;
mod verify;

pub use caution::Caution;
pub use fit::{Fit, LeaveOneOut};
pub use options::{Approx, LossChoice, Probability, ProbabilityRule, SolverName, Tradeoff, TrainOptions};
pub use plan::{Plan, Shape};
pub use proof::{Proven, certify_machine, prove, prove_linear};
pub use space::Compacted;
pub use verdict::{Asked, Met};
pub use verify::{GivenMachine, certify_all, verify, verify_given};

use crate::control::Status;
