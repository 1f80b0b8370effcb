//! A panic is a bug: it prints one line that says how to report it, with a backtrace only if `RUST_BACKTRACE` is set.

use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

static REPORTED: AtomicBool = AtomicBool::new(false);

/// Replaces the standard panic message by [`message`], printed once.
pub(crate) fn install() {
    let standard = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // A decoder that panics on a damaged file: the reader reports it.
        if margrave::io::is_guarded() {
            return;
        }
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0") {
            standard(info);
        }
        // Several threads may panic for the same reason.
        if !REPORTED.swap(true, Ordering::SeqCst) {
            let _ = writeln!(std::io::stderr(), "{}", message(info));
        }
    }));
}

fn message(info: &PanicHookInfo<'_>) -> String {
    let what = info
        .payload()
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| info.payload().downcast_ref::<&str>().copied())
        .unwrap_or("unknown cause");
    let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
    line(what, &place)
}

fn line(what: &str, place: &str) -> String {
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(
        "margrave: this is a bug: {what}{place}; please report this line, the command and 'margrave --version' ({})",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_report_is_one_line() {
        let text = super::line("left\n  != right", " (a.rs:1)");
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains("left != right (a.rs:1)"), "{text}");
    }
}
