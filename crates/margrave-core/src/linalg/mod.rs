//! Dense linear algebra used by the solvers, independent of any backend: Cholesky factors, eigendecompositions, vector
//! loops, large zeroed arrays.

pub mod eigen;
pub mod factor;
pub mod pages;
pub mod sparse;
pub mod sweep;
pub mod sweep_single;
pub mod triangle;
pub(crate) mod vectorised;
