//! Ctrl-C: the first asks the computation to end with its best result, the second ends the program.
//!
//! Until [`listen`] is called nobody polls (a file is being read) and the first one ends the program, as usual.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margrave::control::{Budget, Control, Threads};

use crate::failure::{Exit, Failure};

/// Installs the handler and gives the flag it sets; from here on the first Ctrl-C is a request. Call once.
pub(crate) fn listen() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    ctrlc::set_handler(move || {
        // The second time, waiting would only annoy.
        if seen.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    })
    .map_err(|e| Failure::new(format!("could not listen for Ctrl-C: {e}")))?;
    Ok(flag)
}

/// A running budget that Ctrl-C can end.
pub(crate) fn start(budget: &Budget, threads: Threads) -> Result<Control, Failure> {
    Ok(Control::start(budget, threads).with_cancel(listen()?))
}
