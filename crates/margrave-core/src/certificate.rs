//! The certificate of optimality.
