//! Tests of the server over HTTP.

mod common;
mod security;
mod sessions;
mod views;
