//! Dense linear algebra that solvers need and no backend owns: Cholesky factors, eigendecompositions, vector loops, large
//! arrays of zeros.

pub mod eigen;
pub mod factor;
pub mod pages;
pub mod sparse;
pub mod sweep;
