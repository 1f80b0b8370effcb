//! Readers and model files.
