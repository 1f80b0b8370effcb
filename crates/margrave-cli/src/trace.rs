//! `--trace FILE.jsonl`: the progress of the solver, one JSON object per line.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use margrave::engine::control::Status;
use margrave::engine::observe::{Begin, Observer, Step};
use serde::Serialize;

use crate::failure::Failure;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line<'a> {
    Begin(&'a Begin),
    Step(&'a Step),
    Finish {
        status: Status,
        #[serde(flatten)]
        last: &'a Step,
    },
}

/// Writes the events of an observer to a file. A failure to write does not end the training;
/// [`close`](Trace::close) returns it.
pub(crate) struct Trace {
    path: PathBuf,
    out: BufWriter<File>,
    failed: Option<std::io::Error>,
}

impl Trace {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|e| Failure::new(format!("{}: cannot write it: {e}", path.display())))?;
        Ok(Self { path: path.to_owned(), out: BufWriter::new(file), failed: None })
    }

    fn line(&mut self, line: &Line<'_>) {
        if self.failed.is_none() {
            let written = serde_json::to_writer(&mut self.out, line)
                .map_err(std::io::Error::from)
                .and_then(|()| self.out.write_all(b"\n"));
            self.failed = written.err();
        }
    }

    /// Ends the file; returns the first error, if any.
    pub(crate) fn close(mut self) -> Option<String> {
        let flushed = self.out.flush().err();
        self.failed.or(flushed).map(|e| format!("{}: the trace is not complete: {e}", self.path.display()))
    }
}

impl Observer for Trace {
    fn begin(&mut self, begin: &Begin) -> ControlFlow<()> {
        self.line(&Line::Begin(begin));
        ControlFlow::Continue(())
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.line(&Line::Step(step));
        ControlFlow::Continue(())
    }
    fn finish(&mut self, status: Status, last: &Step) {
        self.line(&Line::Finish { status, last });
    }
}
