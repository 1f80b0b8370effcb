//! The only place that writes to stdout and stderr.

use std::io::{ErrorKind, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// How a word is shown, where colours are used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Style {
    Good,
    Bad,
    Warn,
    Strong,
    Faint,
}

/// Where output goes and how it may look.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    colour_out: bool,
    colour_err: bool,
}

impl Terminal {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        // https://no-color.org: any non-empty value.
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_none_or(|v| v != "dumb");
        Self {
            json,
            quiet,
            colour_out: allowed && std::io::stdout().is_terminal(),
            colour_err: allowed && std::io::stderr().is_terminal(),
        }
    }

    /// Whether a progress bar may be shown.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// `text` in a style, for stdout.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        paint(self.colour_out, style, text)
    }

    /// A headline in a style and the lines below it, for stdout.
    pub(crate) fn summary(&self, style: Style, headline: &str, rows: &[(&str, String)]) -> String {
        format!("{}\n{}", self.paint(style, headline), self.table(rows))
    }

    /// Aligned lines of a name and a value, for stdout.
    pub(crate) fn table(&self, rows: &[(&str, String)]) -> String {
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        rows.iter()
            .map(|(name, value)| {
                let pad = " ".repeat(width - name.chars().count());
                format!("  {}{pad}  {value}\n", self.paint(Style::Faint, name))
            })
            .collect()
    }

    /// Prints a result as text; does nothing with `--json`.
    pub(crate) fn say(&self, text: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        self.write(text)
    }

    /// Prints the JSON object of `--json`; does nothing without it.
    pub(crate) fn object(&self, value: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(value).map_err(Failure::new)?;
        self.write(&text)
    }

    /// Prints text on stdout whatever the options: results such as completions and predictions.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        written(write!(out, "{text}{end}").and_then(|()| out.flush()))
    }

    /// Prints a note on stderr; does nothing with `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            let label = paint(self.colour_err, Style::Warn, "note:");
            let _ = writeln!(std::io::stderr(), "{label} {text}");
        }
    }

    /// What went wrong; on stderr, always.
    pub(crate) fn error(&self, message: &str, hint: Option<&str>) {
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "{} {message}", paint(self.colour_err, Style::Bad, "error:"));
        if let Some(hint) = hint {
            let _ = writeln!(err, "{} {hint}", paint(self.colour_err, Style::Good, " hint:"));
        }
    }
}

impl Terminal {
    /// Prints a message on stderr as it is.
    pub(crate) fn plain_error(&self, message: &str) {
        let _ = writeln!(std::io::stderr(), "{message}");
    }
}

fn paint(colour: bool, style: Style, text: &str) -> String {
    if !colour {
        return text.to_owned();
    }
    let code = match style {
        Style::Good => "1;32",
        Style::Bad => "1;31",
        Style::Warn => "1;33",
        Style::Strong => "1",
        Style::Faint => "2",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// A closed pipe is success; any other failure to write is an error.
pub(crate) fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        Err(e) => Err(Failure::new(format!("could not write to standard output: {e}"))),
    }
}
