//! Options that several commands share, and the parsers of their values.

pub(crate) mod data;
pub(crate) mod device;
pub(crate) mod kernel;
pub(crate) mod range;
pub(crate) mod table;
pub(crate) mod train;
pub(crate) mod value;
