//! The server behind `margrave studio`: a page on this computer that shows a training while it runs.
//!
//! [`Server::bind`] opens a port of 127.0.0.1 and [`Server::run`] serves it until the process is told to stop or nobody has
//! asked for anything for a while. The interface between page and server is described in `API.md` beside this crate.
//!
//! One thread serves requests. Views are computed on threads of their own, trainings on the engine thread of their session:
//! the server answers while all cores train. What a training reports through its [`margrave::Observer`] is what the page
//! shows; every number of a certificate is the one that [`margrave::verify`] computes.
//!
//! The program that embeds the server says how results are presented ([`Presenter`]), so that the page, the terminal and
//! reports have the same figures.
#![deny(missing_docs)]

mod answer;
mod arrays;
mod assets;
mod copy;
mod data;
mod edit;
mod engine;
mod events;
mod examples;
mod expression;
mod folder;
mod guard;
mod loss;
mod presenter;
mod routes;
mod server;
mod session;
mod settings;
mod stream;
mod tour;
mod trace;
mod views;

pub use presenter::{Evaluated, PredictedSet, Presenter, Problem, ReportRequest};
pub use routes::{ROUTES, RouteInfo};
pub use server::{End, Options, Server};
