//! Ctrl-C: the first asks the computation to end with its best result, the second gives up its proof, the third ends the program.
//!
//! Until [`listen`] is called nobody polls (a file is being read) and the first one ends the program, as usual.

use margrave::Cancel;
use margrave::control::{Budget, Control, Threads};

use crate::failure::{Exit, Failure};

/// Installs the handler and gives the request it makes; from here on the first Ctrl-C is a request. Call once.
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
