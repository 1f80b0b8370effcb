//! Decoders of others that panic on damaged files.

use std::cell::Cell;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread, now, would become an ordinary error: for panic hooks, which have nothing to report then.
pub fn is_guarded() -> bool {
    GUARDED.get()
}

/// What `work` gives, or an error if it panicked.
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
    fn only_while_it_runs() {
        assert!(caught(is_guarded).is_ok_and(|guarded| guarded));
        assert!(!is_guarded());
    }
}
