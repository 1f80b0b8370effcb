//! Catches panics of third-party decoders on damaged files.

use std::cell::Cell;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread would currently be converted to an error: panic hooks should then not report it.
pub fn is_guarded() -> bool {
    GUARDED.get()
}

/// The result of `work`, or an error if it panicked.
#[cfg_attr(not(feature = "parquet"), allow(dead_code))]
pub(crate) fn caught<R>(work: impl FnOnce() -> R + std::panic::UnwindSafe) -> std::thread::Result<R> {
    let before = GUARDED.replace(true);
    let result = std::panic::catch_unwind(work);
    GUARDED.set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_guarded_only_while_the_work_runs() {
        assert!(caught(is_guarded).is_ok_and(|guarded| guarded));
        assert!(!is_guarded());
    }
}
