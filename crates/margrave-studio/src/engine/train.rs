//! Trainings, in parts: after each part there is a certified model to show.
//!
//! A part ends after a time that grows from one to the next, and the next starts from its model, so that the boundary on the
//! page moves and the work that is done twice stays a small share. A training that is over within the first part is a
//! single ordinary fit.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use margrave::engine::observe::Begin;
use margrave::{Budget, Cancel, Certificate, Control, Fit, Observer, Status, Step, Svm};
use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::data::Data;
use crate::session::{App, Inner, LISTED_MACHINES, Mode, Run, Session, Start, TrainJob, Trained, lock, shorten};
use crate::trace::Trace;

/// Seconds of the first part, unless the request says otherwise.
const FIRST_PART: f64 = 0.4;
/// Machines of a model whose proofs are kept one by one.
const MACHINES: usize = 300;
/// Each part is this many times longer than the one before.
const GROWTH: f64 = 2.5;
/// Relative gap that a polish asks for.
const POLISHED: f64 = 1e-9;
/// Time between two events with steps.
const QUIET: Duration = Duration::from_millis(50);
/// Most steps of one event.
const STEPS_PER_EVENT: usize = 40;
/// Kernel entries up to which the certificate of a published model is computed again.
const VERIFIED: f64 = 4e8;
/// Proofs of published models that are kept.
const CERTIFIED: usize = 500;

/// Puts the steps of a solver into the trace and, a few times a second, into the event stream.
struct Live<'a> {
    session: &'a Session,
    run: u64,
    mode: Mode,
    settings: Value,
    trace: Arc<Mutex<Trace>>,
    announced: bool,
    /// Iterations and seconds of the parts before.
    before: (u64, f64),
    waiting: Vec<Step>,
    flushed: Instant,
    last: (u64, f64),
}

impl Live<'_> {
    fn flush(&mut self) {
        self.flushed = Instant::now();
        let Some(last) = self.waiting.last().cloned() else { return };
        if let Some(running) = &mut self.session.inner().running {
            (running.phase, running.iteration, running.fraction) = (last.phase, last.iteration, last.fraction);
        }
        let every = self.waiting.len().div_ceil(STEPS_PER_EVENT).max(1);
        let end = self.waiting.len() - 1;
        let steps: Vec<&Step> =
            self.waiting.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == end).map(|(_, s)| s).collect();
        self.session.events.send("steps", json!({ "run": self.run, "steps": steps }));
        self.waiting.clear();
    }
}

impl Observer for Live<'_> {
    fn begin(&mut self, begin: &Begin) -> ControlFlow<()> {
        if !std::mem::replace(&mut self.announced, true) {
            let event = json!({
                "run": self.run, "mode": self.mode.name(), "solver": begin.solver, "n": begin.n, "tol": begin.tol,
                "gap": begin.gap, "settings": self.settings,
            });
            self.session.events.send("begin", event);
        }
        ControlFlow::Continue(())
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let (iterations, seconds) = self.before;
        let step = Step { iteration: step.iteration + iterations, seconds: step.seconds + seconds, ..step.clone() };
        self.last = (step.iteration, step.seconds);
        lock(&self.trace).push(&step);
        self.waiting.push(step);
        if self.flushed.elapsed() >= QUIET {
            self.flush();
        }
        ControlFlow::Continue(())
    }
}

/// The run that is to go on, or a new one, with the model to start from.
struct Begun {
    data: Arc<Data>,
    trace: Arc<Mutex<Trace>>,
    start: Option<Arc<Trained>>,
    iterations: u64,
    seconds: f64,
}

/// The newest model that a training can start from.
fn warm_start(inner: &Inner, data: &Data, settings: &crate::settings::Settings) -> Option<Arc<Trained>> {
    let fits = |run: &&Run| {
        let (old, new) = (&run.settings, settings);
        // Another scaling or another number of machines is another problem.
        run.data_version == data.version
            && old.task == new.task
            && old.scale == new.scale
            && old.multiclass == new.multiclass
            && old.svdd == new.svdd
            && old.nu.is_some() == new.nu.is_some()
            && (old.kernel.name == "linear") == (new.kernel.name == "linear")
            && run.model.is_some()
    };
    inner.runs.iter().rev().find(fits).and_then(|run| run.model.clone())
}

fn begin(session: &Session, job: &TrainJob) -> Result<Begun, Refusal> {
    let mut inner = session.inner();
    let data = inner.data.clone().ok_or_else(Refusal::no_data)?;
    inner.settings = job.settings.clone();
    if job.continues {
        let run = inner.run_mut(job.run).ok_or_else(|| Refusal::gone(format!("run {} is not listed", job.run)))?;
        run.status = "running";
        run.mode = job.mode;
        run.error = None;
        if !job.settings.is_resumable() {
            // Its steps come again from the first.
            run.trace = Arc::default();
            run.seconds = 0.0;
        }
        let (trace, start) = (run.trace.clone(), run.model.clone());
        let (iterations, seconds) = (run.iterations, run.seconds);
        return Ok(Begun { data, trace, start, iterations, seconds });
    }
    let start = match (job.start, job.settings.is_resumable()) {
        (Start::Cold, _) | (_, false) => None,
        (Start::Warm, true) => warm_start(&inner, &data, &job.settings),
        (Start::Run(id), true) => {
            let run = inner.runs.iter().find(|run| run.id == id);
            let model = run.and_then(|run| run.model.clone());
            let model = model.ok_or_else(|| Refusal::gone(format!("run {id} has no model to start from")))?;
            if model.data.version != data.version {
                return Err(Refusal::settings(format!("run {id} was trained on other data")));
            }
            Some(model)
        }
    };
    let run = Run {
        id: job.run,
        data_version: data.version,
        data_name: data.name.clone(),
        settings: job.settings.clone(),
        mode: job.mode,
        from: start.as_ref().map(|trained| trained.run),
        status: "running",
        error: None,
        model: None,
        version: 0,
        certificate: Value::Null,
        summary: Value::Null,
        trace: Arc::default(),
        certified: VecDeque::new(),
        evaluation: None,
        begun: Instant::now(),
        iterations: 0,
        seconds: 0.0,
        dropped: false,
    };
    let trace = run.trace.clone();
    inner.runs.push_back(run);
    inner.forget();
    Ok(Begun { data, trace, start, iterations: 0, seconds: 0.0 })
}

/// What limits one part of a training: its budget, and whether a limit is the end of the training.
struct Part {
    budget: Budget,
    /// The seconds are those of the part alone, not of the settings.
    cut: bool,
}

/// The limits of the next part. `part`: its seconds, if trainings are shown in parts.
fn limits(job: &TrainJob, done: (u64, f64), part: Option<f64>, resumable: bool) -> Part {
    let settings = &job.settings;
    let left = settings.max_seconds.map(|limit| (limit - done.1).max(0.0));
    let iterations = match job.mode {
        // A solver that cannot go on from a model repeats its steps: it is deterministic.
        Mode::Step if !resumable => Some(done.0 + job.steps),
        Mode::Step => Some(job.steps),
        _ => settings.max_iter.map(|limit| limit.saturating_sub(done.0)),
    };
    let cut = part.is_some_and(|part| left.is_none_or(|left| part < left));
    Part { budget: Budget { seconds: if cut { part } else { left }, iterations, ..Budget::default() }, cut }
}

/// Trains.
pub(super) fn train(app: &Arc<App>, session: &Session, job: &TrainJob, cancel: &Cancel) -> Result<(), Refusal> {
    let begun = begin(session, job)?;
    let data = begun.data;
    if data.len() == 0 {
        return Err(Refusal::no_data());
    }
    let mut svm = job.settings.svm(&data, &app.threads, cancel)?;
    if job.mode == Mode::Polish {
        svm = svm.gap(POLISHED);
    }
    let resumable = job.settings.is_resumable();
    let mut start = begun.start.filter(|_| resumable);
    let mut live = Live {
        session,
        run: job.run,
        mode: job.mode,
        settings: json!(job.settings),
        trace: begun.trace,
        announced: false,
        before: (begun.iterations, begun.seconds),
        waiting: Vec::new(),
        flushed: Instant::now(),
        last: (begun.iterations, begun.seconds),
    };
    if !resumable {
        live.before = (0, begun.seconds);
    }
    let in_parts = job.live && resumable && job.mode != Mode::Step;
    let mut part = in_parts.then_some(job.part_seconds.unwrap_or(FIRST_PART));
    let mut done = (begun.iterations, begun.seconds);
    loop {
        let Part { budget, cut } = limits(job, done, part, resumable);
        let mut own = svm.clone().budget(budget);
        if let Some(start) = &start {
            own = own.start(start.fit.model().clone());
        }
        let fit = match fit(own, start.is_some(), &data, &mut live) {
            Ok(fit) => fit,
            Err(_) if cancel.is_requested() => {
                give_up(session, job.run, "interrupted", done);
                return Ok(());
            }
            Err(refusal) => return Err(refusal),
        };
        live.flush();
        let totals = fit.totals();
        let base = if resumable { done.0 } else { 0 };
        done = (base + totals.iterations, done.1 + totals.seconds);
        live.before = (if resumable { done.0 } else { 0 }, done.1);
        let goes_on = cut && fit.status() == Status::TimeLimit && !cancel.is_requested();
        let trained = publish(app, session, job, fit, &svm, &data, done, goes_on, cancel);
        if !goes_on {
            return Ok(());
        }
        start = Some(trained);
        part = part.map(|seconds| seconds * GROWTH);
    }
}

/// One fit. A start that this problem cannot use is left out.
fn fit(svm: Svm, started: bool, data: &Data, live: &mut Live<'_>) -> Result<Fit, Refusal> {
    match svm.fit_observed(&data.loaded.data, live) {
        Ok(fit) => Ok(fit),
        Err(_) if started => {
            let mut options = svm.options().clone();
            options.start = None;
            Ok(Svm::from(options).fit_observed(&data.loaded.data, live)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// The certificates that `verify` computes from the saved model, to the last digit. Those of the training bound the same
/// numbers but may be rounded differently; they are used where computing them again would take long.
fn proofs(app: &App, fit: &Fit, data: &Data, cancel: &Cancel) -> Vec<Certificate> {
    let own: Vec<Certificate> = fit.certificates().cloned().collect();
    let (model, n) = (fit.model(), data.len() as f64);
    let work = n * if model.expansion.is_weights() { 1.0 } else { model.expansion.len() as f64 };
    if work > VERIFIED || !own.iter().all(Certificate::is_known) {
        return own;
    }
    let control = Control::unlimited(app.threads.clone()).with_cancel(cancel.clone()).for_proof();
    match margrave::verify(model, &data.loaded.data, None, &control) {
        // The objective of a convex start is known to the training alone.
        Ok(found) if found.len() == own.len() => found
            .into_iter()
            .zip(&own)
            .map(|(found, own)| found.with_start(own.stationarity().and_then(|s| s.start_objective())))
            .collect(),
        // A loss of the user's own is not part of a saved model; or nobody waits for the proof any more.
        _ => own,
    }
}

/// Ends a training that was given up before there was a proof: what was shown last stays.
fn give_up(session: &Session, id: u64, status: &'static str, done: (u64, f64)) {
    let mut inner = session.inner();
    let mut whole = Value::Null;
    if let Some(run) = inner.run_mut(id) {
        run.status = status;
        (run.iterations, run.seconds) = done;
        whole = run.json(LISTED_MACHINES);
    }
    inner.running = None;
    drop(inner);
    session.events.send("done", json!({ "run": whole }));
}

/// Makes a model that of its run, with its certificate.
fn publish(
    app: &App,
    session: &Session,
    job: &TrainJob,
    fit: Fit,
    svm: &Svm,
    data: &Arc<Data>,
    done: (u64, f64),
    goes_on: bool,
    cancel: &Cancel,
) -> Arc<Trained> {
    let certificates = proofs(app, &fit, data, cancel);
    let mut certificate = app.presenter.certificates(&certificates);
    shorten(&mut certificate, MACHINES);
    certificate["text"] = json!(app.presenter.certificate_rows(&certificates));
    let mut summary = app.presenter.fit(&fit, &data.loaded, &data.name);
    shorten(&mut summary, MACHINES);
    summary["iterations"] = json!(done.0);
    summary["seconds"]["train"] = json!(done.1);
    let (status, known) = (fit.status().name(), certificates.iter().all(Certificate::is_known));
    let mut inner = session.inner();
    let version = inner.runs.iter().find(|run| run.id == job.run).map_or(1, |run| run.version + 1);
    let trained =
        Arc::new(Trained { run: job.run, version, fit, svm: svm.clone(), data: data.clone(), scores: OnceLock::new() });
    let mut brief = certificate.clone();
    shorten(&mut brief, LISTED_MACHINES);
    let event = json!({
        "run": job.run, "model_version": version, "certificate": brief,
        "iteration": done.0, "seconds": done.1, "final": !goes_on,
    });
    let mut mark = json!({ "iteration": done.0, "seconds": done.1, "model_version": version });
    for key in ["primal", "dual", "gap", "relative_gap", "violation", "objective", "stationarity"] {
        mark[key] = certificate[key].clone();
    }
    let mut whole = Value::Null;
    if !known {
        drop(inner);
        give_up(session, job.run, if cancel.is_requested() { "interrupted" } else { status }, done);
        return trained;
    }
    if let Some(run) = inner.run_mut(job.run) {
        run.version = version;
        run.certified.push_back(mark);
        if run.certified.len() > CERTIFIED {
            run.certified.pop_front();
        }
        run.model = Some(trained.clone());
        run.certificate = certificate;
        run.summary = summary;
        run.evaluation = None;
        (run.iterations, run.seconds) = done;
        run.status = if goes_on { "running" } else { status };
        whole = run.json(LISTED_MACHINES);
    }
    inner.current = Some(job.run);
    inner.forget();
    if !goes_on {
        // Whoever sees the end of the training sees that nothing is under way.
        inner.running = None;
    }
    drop(inner);
    session.events.send("model", event);
    if !goes_on {
        session.events.send("done", json!({ "run": whole }));
    }
    trained
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn job(mode: Mode, settings: Settings) -> TrainJob {
        TrainJob {
            run: 1,
            continues: false,
            settings,
            mode,
            start: Start::Warm,
            steps: 7,
            live: true,
            part_seconds: None,
        }
    }

    #[test]
    fn parts_end_by_their_own_time_or_by_that_of_the_settings() {
        let free = job(Mode::Play, Settings::default());
        let part = limits(&free, (5, 1.0), Some(0.4), true);
        assert_eq!((part.budget.seconds, part.budget.iterations, part.cut), (Some(0.4), None, true));
        let bound = job(Mode::Play, Settings { max_seconds: Some(1.2), max_iter: Some(9), ..Settings::default() });
        let part = limits(&bound, (5, 1.0), Some(0.4), true);
        assert_eq!((part.budget.iterations, part.cut), (Some(4), false));
        assert!((part.budget.seconds.unwrap() - 0.2).abs() < 1e-12);
    }

    #[test]
    fn steps_of_a_solver_that_cannot_resume_are_counted_from_the_start() {
        let step = job(Mode::Step, Settings::default());
        assert_eq!(limits(&step, (5, 0.0), None, true).budget.iterations, Some(7));
        assert_eq!(limits(&step, (5, 0.0), None, false).budget.iterations, Some(12));
    }
}
