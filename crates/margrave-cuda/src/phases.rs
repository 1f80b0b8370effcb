//! Where the seconds of a run go, for `benches/gpu`.
//!
//! Nothing is recorded unless [`record`] is on. Then the card is waited for at the end of each phase: the sum of the phases is more
//! than a run takes without them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::driver::Turn;

static RECORDING: AtomicBool = AtomicBool::new(false);
static PHASES: Mutex<Vec<Phase>> = Mutex::new(Vec::new());

/// A phase of the work of a card.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// What is done in it.
    pub name: &'static str,
    /// Seconds, phases within it included.
    pub seconds: f64,
    /// How often it was entered.
    pub times: u64,
    /// Work units that it was told of: entries of K, or steps.
    pub units: f64,
}

/// Turns recording on or off.
pub fn record(on: bool) {
    RECORDING.store(on, Ordering::Relaxed);
}

/// The phases since the last call.
pub fn take() -> Vec<Phase> {
    std::mem::take(&mut PHASES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The beginning of a phase; `None` if nothing is recorded.
pub(crate) fn begin() -> Option<Instant> {
    RECORDING.load(Ordering::Relaxed).then(Instant::now)
}

/// The end of a phase; `turn`: the card to wait for.
pub(crate) fn end(begun: Option<Instant>, name: &'static str, units: f64, turn: Option<&Turn<'_>>) {
    let Some(begun) = begun else { return };
    if let Some(turn) = turn {
        // A failure shows at the next command.
        let _ = turn.wait();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut phases = PHASES.lock().unwrap_or_else(PoisonError::into_inner);
    match phases.iter_mut().find(|phase| phase.name == name) {
        Some(phase) => {
            phase.seconds += seconds;
            phase.times += 1;
            phase.units += units;
        }
        None => phases.push(Phase { name, seconds, times: 1, units }),
    }
}

/// Runs `work` as the phase `name`.
pub(crate) fn phase<R>(name: &'static str, units: f64, turn: Option<&Turn<'_>>, work: impl FnOnce() -> R) -> R {
    let begun = begin();
    let result = work();
    end(begun, name, units, turn);
    result
}
