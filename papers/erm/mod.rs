//! Paper 002: empirical risk minimisation for support vector classifiers.

pub(crate) mod figures;
pub(crate) mod problem;
pub(crate) mod sets;
pub(crate) mod table1;
pub(crate) mod uci;
