//! `margrave studio`: a page to see and steer trainings.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use margrave::engine::train::{Asked, Met};
use margrave::io::Loaded;
use margrave::{Certificate, Dataset, Fit, Svm};
use margrave_studio::{End, Evaluated, Options, PredictedSet, Presenter, Problem, ReportRequest, Server};
use serde_json::{Value, json};

use crate::cli::Common;
use crate::evaluate::{Evaluation, LeftOut, Predicted};
use crate::failure::{Exit, Failure, Outcome};
use crate::options::value;
use crate::present::html::{self, Report};
use crate::present::{FitContext, json, prose};
use crate::signal;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave studio                     start with the examples, or drop a file on the page
  margrave studio heart.svm           open a file; others of its folder can be opened on the page
  margrave studio --folder data --port 8000 --no-open

Only this computer can connect, and only with the token in the printed address. From another
computer, forward the same port through ssh and open the printed address there:
  ssh -L 8000:127.0.0.1:8000 HOST margrave studio --folder data --port 8000 --no-open";

/// The gap up to which `verify` confirms a model unless told otherwise.
const VERIFY_GAP: f64 = 1e-3;

/// What a report says in place of the path of the model.
const NOT_WRITTEN: &str = "not written";

/// Arguments of `studio`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Studio {
    /// Data file to open
    #[arg(value_name = "DATA")]
    data: Option<PathBuf>,
    /// Folder whose files may be opened on the page [default: that of DATA, otherwise none]
    #[arg(long, value_name = "DIR", help_heading = "Server")]
    folder: Option<PathBuf>,
    /// Port of 127.0.0.1 [default: any free one]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true,
        help_heading = "Server"
    )]
    port: u16,
    /// Print the address without opening a browser
    #[arg(long, help_heading = "Server")]
    no_open: bool,
    /// End after this many minutes without an open page or a training
    #[arg(long, value_name = "MINUTES", default_value = "30", value_parser = value::positive, allow_negative_numbers = true, help_heading = "Server")]
    idle: f64,
}

impl Studio {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        for path in [&self.data, &self.folder].into_iter().flatten() {
            std::fs::metadata(path).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        }
        if let Some(folder) = self.folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Failure::new(format!("--folder {}: this is not a folder", folder.display())));
        }
        let idle = Duration::try_from_secs_f64(60.0 * self.idle)
            .map_err(|_| Failure::new(format!("--idle {}: too many minutes", self.idle)))?;
        let options = Options {
            data: self.data.clone(),
            folder: self.folder.clone(),
            port: self.port,
            idle,
            threads: common.threads(),
            stop: signal::listen()?,
        };
        let server = Server::bind(options, Arc::new(Pages)).map_err(|error| self.failure(&error))?;
        let url = server.url();
        terminal.say(&format!("{}  {url}", terminal.paint(Style::Good, "Margrave Studio")))?;
        terminal.say("Ctrl-C ends it.")?;
        terminal.object(&json!({ "url": url, "port": server.port(), "token": server.token() }))?;
        if !self.no_open && !open(&url) {
            terminal.note("no browser could be opened: open the address yourself");
        }
        match server.run().map_err(|error| Failure::new(format!("the server failed: {error}")))? {
            End::Stopped => {}
            End::Idle => terminal.note(&format!("ended after {} minutes without use; see --idle", self.idle)),
        }
        Ok(Exit::Done)
    }

    fn failure(&self, error: &std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::AddrInUse => Failure::with_hint(
                format!("--port {}: another program uses this port", self.port),
                "choose another, or leave --port out for any free one",
            ),
            std::io::ErrorKind::PermissionDenied => {
                Failure::with_hint(format!("--port {}: not allowed", self.port), "choose a port above 1023")
            }
            _ => {
                let path = self.data.as_deref().map_or(String::new(), |path: &Path| format!("{}: ", path.display()));
                Failure::with_hint(format!("{path}{error}"), "DATA must be a file below --folder")
            }
        }
    }
}

/// Opens the address in the browser of the desktop; whether a program for that could be started.
fn open(url: &str) -> bool {
    let programs: &[(&str, &[&str])] = if cfg!(target_os = "macos") {
        &[("open", &[])]
    } else if cfg!(windows) {
        &[("rundll32", &["url.dll,FileProtocolHandler"])]
    } else {
        &[("xdg-open", &[]), ("gio", &["open"])]
    };
    programs.iter().any(|(program, arguments)| {
        let mut command = Command::new(program);
        command.args(*arguments).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    })
}

/// The page presents results as the terminal does.
struct Pages;

fn problem(failure: Failure) -> Problem {
    match failure {
        Failure::Bad { message, hint } => Problem { message, hint },
        Failure::Stopped { message, .. } => Problem { message, hint: None },
        Failure::ClosedPipe => Problem { message: "the output was closed".to_owned(), hint: None },
    }
}

impl Presenter for Pages {
    fn fit(&self, fit: &Fit, loaded: &Loaded, name: &str) -> Value {
        json::fit(fit, &FitContext::new(fit, loaded, name, NOT_WRITTEN))
    }

    fn certificates(&self, certificates: &[Certificate]) -> Value {
        Value::Object(json::proofs(certificates))
    }

    fn certificate_rows(&self, certificates: &[Certificate]) -> Vec<(String, String)> {
        let asked = Asked { tol: None, gap: Some(VERIFY_GAP), own: None };
        let within = certificates.iter().filter(|certificate| asked.met(certificate) != Met::No).count();
        let rows = prose::certificates(certificates, within, VERIFY_GAP, &[]);
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn evaluate(&self, svm: &Svm, fit: &Fit, data: &Dataset) -> Result<Evaluated, Problem> {
        let found = Evaluation::new(svm, fit, data).map_err(problem)?;
        let how = found.left_out.how();
        let set = |name: &'static str, predicted: Predicted| {
            let quality = predicted.quality(fit.model(), data).map_or(Value::Null, |q| Value::Object(q.keys));
            let Predicted { labels, scores, probabilities } = predicted;
            PredictedSet { name, quality, predictions: labels, scores, probabilities }
        };
        let (mut sets, mut count) = (Vec::new(), None);
        if let LeftOut::Folds { folds, predicted, .. } = found.left_out {
            count = Some(folds);
            sets.push(set("left out", predicted));
        }
        sets.push(set("training", found.training));
        Ok(Evaluated { how, folds: count, sets })
    }

    fn report(&self, request: &ReportRequest<'_>) -> Result<String, Problem> {
        let ReportRequest { svm, fit, loaded, name, history, command } = *request;
        let evaluation = Evaluation::new(svm, fit, &loaded.data).map_err(problem)?;
        let summary = prose::fit(fit, &FitContext::new(fit, loaded, name, NOT_WRITTEN));
        let report = Report {
            fit,
            data: &loaded.data,
            name,
            history,
            command,
            summary,
            evaluation: &evaluation,
            left_out: &loaded.left_out,
        };
        html::page(&report).map_err(problem)
    }
}
