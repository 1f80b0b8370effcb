//! The facade of Margrave.
