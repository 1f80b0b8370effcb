//! Options that several commands share, and how their values are written.

pub(crate) mod data;
pub(crate) mod kernel;
pub(crate) mod range;
pub(crate) mod train;
pub(crate) mod value;
