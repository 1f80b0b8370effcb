//! Ctrl-C: the first asks the computation to end with its best result, the second ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margrave::control::{Budget, Control, Threads};

use crate::failure::{Exit, Failure};

static POLLED: AtomicBool = AtomicBool::new(false);

/// Installs the handler and gives the flag it sets. Call once.
pub(crate) fn cancel_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    ctrlc::set_handler(move || {
        // While nobody polls the flag (reading a file), or on the second time, waiting would only annoy.
        if !POLLED.load(Ordering::SeqCst) || seen.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    })
    .map_err(|e| Failure::new(format!("could not listen for Ctrl-C: {e}")))?;
    Ok(flag)
}

/// A running budget that Ctrl-C can end. From here on the first Ctrl-C is a request.
pub(crate) fn start(budget: &Budget, threads: Threads) -> Result<Control, Failure> {
    let flag = cancel_flag()?;
    POLLED.store(true, Ordering::SeqCst);
    Ok(Control::start(budget, threads).with_cancel(flag))
}
