//! Ctrl-C: the first ends the computation with its best result, the second skips its certificate, the third ends the
//! program.
//!
//! Until [`listen`] is called, while files are read, the first one ends the program.

use margrave::Cancel;
use margrave::engine::control::{Budget, Control, Threads};

use crate::failure::{Exit, Failure};

/// Installs the handler and returns the request that Ctrl-C makes from now on. Call once.
pub(crate) fn listen() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    let seen = cancel.clone();
    ctrlc::set_handler(move || {
        if seen.request() {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    })
    .map_err(|e| Failure::new(format!("could not listen for Ctrl-C: {e}")))?;
    Ok(cancel)
}

/// A running budget that Ctrl-C can end.
pub(crate) fn start(budget: &Budget, threads: Threads) -> Result<Control, Failure> {
    Ok(Control::start(budget, threads).with_cancel(listen()?))
}
