//! Tests against a card. Without one they check that the reason is given, and pass.
#![allow(clippy::print_stderr)]

mod gram;
