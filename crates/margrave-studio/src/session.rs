//! Sessions: a data set, its runs, and what is to be done next.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use axum::body::Bytes;
use margrave::{Cancel, Fit, Svm, Threads};
use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::data::{Data, Reading, Source};
use crate::engine;
use crate::events::Events;
use crate::folder::Folder;
use crate::presenter::Presenter;
use crate::settings::Settings;
use crate::trace::Trace;

/// Sessions that may exist at once.
pub(crate) const MOST_SESSIONS: usize = 64;
/// Runs whose models are kept.
pub(crate) const KEPT_RUNS: usize = 20;
/// Runs that are listed.
const LISTED_RUNS: usize = 200;
/// Bytes of all kept models of a session.
const KEPT_BYTES: usize = 1 << 30;

/// The server as all threads see it.
pub(crate) type Shared = Arc<App>;

/// What all sessions share.
pub(crate) struct App {
    token: String,
    hosts: [String; 2],
    /// For trainings.
    pub(crate) threads: Threads,
    /// For views, so that they do not wait for trainings.
    pub(crate) view_threads: Threads,
    pub(crate) folder: Option<Folder>,
    /// The file of the command line, below the folder.
    pub(crate) start: Option<String>,
    pub(crate) presenter: Arc<dyn Presenter>,
    pub(crate) idle_seconds: u64,
    sessions: Mutex<Vec<Arc<Session>>>,
    last_request: Mutex<Instant>,
    /// Open event streams.
    pub(crate) streams: AtomicUsize,
    pub(crate) closing: AtomicBool,
}

/// Locks a mutex. What it protects is replaced whole, so a panic elsewhere leaves it usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the server is made of.
pub(crate) struct AppParts {
    pub(crate) token: String,
    pub(crate) port: u16,
    pub(crate) threads: Threads,
    pub(crate) folder: Option<Folder>,
    pub(crate) start: Option<String>,
    pub(crate) presenter: Arc<dyn Presenter>,
    pub(crate) idle_seconds: u64,
}

impl App {
    pub(crate) fn new(parts: AppParts) -> Self {
        let AppParts { token, port, threads, folder, start, presenter, idle_seconds } = parts;
        let view_threads = Threads::new(threads.count());
        Self {
            token,
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
            threads,
            view_threads,
            folder,
            start,
            presenter,
            idle_seconds,
            sessions: Mutex::default(),
            last_request: Mutex::new(Instant::now()),
            streams: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn token(&self) -> &[u8] {
        self.token.as_bytes()
    }

    pub(crate) fn is_own_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    /// Notes a request.
    pub(crate) fn touch(&self) {
        *lock(&self.last_request) = Instant::now();
    }

    /// Seconds without a request, an open stream or a running job.
    pub(crate) fn idle(&self) -> f64 {
        if self.streams.load(Ordering::Relaxed) > 0 || lock(&self.sessions).iter().any(|s| s.is_running()) {
            self.touch();
        }
        lock(&self.last_request).elapsed().as_secs_f64()
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        lock(&self.sessions).clone()
    }

    /// A session by its name.
    pub(crate) fn session(&self, id: &str) -> Result<Arc<Session>, Refusal> {
        let found = lock(&self.sessions).iter().find(|session| session.id == id).cloned();
        found.ok_or_else(|| Refusal::gone("this session does not exist or has ended").hint("reload the page"))
    }

    /// A new session. Where there are too many, the oldest in which nothing runs ends.
    pub(crate) fn open(self: &Arc<Self>) -> Result<Arc<Session>, Refusal> {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= MOST_SESSIONS {
            let Some(at) = sessions.iter().position(|session| !session.is_running()) else {
                return Err(
                    Refusal::new(409, "busy", "too many sessions are training").hint("end one of them, or wait for it")
                );
            };
            sessions.remove(at).end();
        }
        let session = Arc::new(Session::new(random_hex(8)?));
        let (app, own) = (self.clone(), session.clone());
        let worker = std::thread::Builder::new().name(format!("engine-{}", session.id));
        worker
            .spawn(move || engine::work(&app, &own))
            .map_err(|error| Refusal::new(500, "internal", format!("no thread could be started: {error}")))?;
        sessions.push(session.clone());
        Ok(session)
    }

    /// Ends a session.
    pub(crate) fn close(&self, id: &str) -> Result<(), Refusal> {
        let mut sessions = lock(&self.sessions);
        let at = sessions.iter().position(|session| session.id == id);
        let at = at.ok_or_else(|| Refusal::gone("this session does not exist or has ended"))?;
        sessions.remove(at).end();
        Ok(())
    }

    /// Ends everything.
    pub(crate) fn close_all(&self) {
        self.closing.store(true, Ordering::Relaxed);
        for session in lock(&self.sessions).drain(..) {
            session.end();
        }
    }
}

/// Random bytes as text.
pub(crate) fn random_hex(bytes: usize) -> Result<String, Refusal> {
    let mut random = vec![0u8; bytes];
    getrandom::fill(&mut random)
        .map_err(|error| Refusal::new(500, "internal", format!("no random numbers: {error}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// How a training goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Play,
    Step,
    Resume,
    Polish,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Play => "play",
            Mode::Step => "step",
            Mode::Resume => "resume",
            Mode::Polish => "polish",
        }
    }
}

/// Where a training starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Warm,
    Cold,
    Run(u64),
}

/// A training to be done.
#[derive(Debug, Clone)]
pub(crate) struct TrainJob {
    pub(crate) run: u64,
    /// Whether `run` exists and goes on.
    pub(crate) continues: bool,
    pub(crate) settings: Settings,
    pub(crate) mode: Mode,
    pub(crate) start: Start,
    pub(crate) steps: u64,
    pub(crate) live: bool,
    /// Seconds of the first part.
    pub(crate) part_seconds: Option<f64>,
}

/// A search to be done.
#[derive(Debug, Clone)]
pub(crate) struct TuneJob {
    pub(crate) tune: u64,
    pub(crate) settings: Settings,
    /// Name and values of each axis, the first being x.
    pub(crate) axes: Vec<(String, Vec<f64>)>,
    pub(crate) folds: usize,
    pub(crate) score: Option<String>,
}

/// What an engine thread does.
pub(crate) enum Job {
    Load { source: Source, reading: Box<Reading>, upload: Option<Bytes> },
    Train(Box<TrainJob>),
    Tune(Box<TuneJob>),
    Evaluate(u64),
    Path { settings: Box<Settings>, lambdas: Option<Vec<f64>> },
}

impl Job {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Job::Load { .. } => "load",
            Job::Train(_) => "train",
            Job::Tune(_) => "tune",
            Job::Evaluate(_) => "evaluate",
            Job::Path { .. } => "path",
        }
    }

    fn run(&self) -> Option<u64> {
        match self {
            Job::Train(job) => Some(job.run),
            Job::Evaluate(run) => Some(*run),
            _ => None,
        }
    }
}

/// The job that is under way.
pub(crate) struct Running {
    pub(crate) kind: &'static str,
    pub(crate) run: Option<u64>,
    pub(crate) mode: Option<Mode>,
    pub(crate) cancel: Cancel,
    pub(crate) begun: Instant,
    pub(crate) phase: &'static str,
    pub(crate) iteration: u64,
    pub(crate) fraction: Option<f64>,
}

/// A certified model of a run.
pub(crate) struct Trained {
    pub(crate) run: u64,
    pub(crate) version: u64,
    pub(crate) fit: Fit,
    pub(crate) svm: Svm,
    pub(crate) data: Arc<Data>,
    /// Scores of the training rows, computed when first needed.
    pub(crate) scores: OnceLock<Option<Arc<Vec<f64>>>>,
}

impl Trained {
    /// Roughly how much memory the model takes.
    fn bytes(&self) -> usize {
        let f = &self.fit.model().expansion;
        8 * (f.centres().stored() + f.coefficients().len()) + 4 * f.rows().len()
    }
}

/// A run: a training, under way or finished.
pub(crate) struct Run {
    pub(crate) id: u64,
    pub(crate) data_version: u64,
    pub(crate) data_name: String,
    pub(crate) settings: Settings,
    pub(crate) mode: Mode,
    pub(crate) from: Option<u64>,
    pub(crate) status: &'static str,
    pub(crate) error: Option<Value>,
    pub(crate) model: Option<Arc<Trained>>,
    pub(crate) version: u64,
    pub(crate) certificate: Value,
    pub(crate) summary: Value,
    pub(crate) trace: Arc<Mutex<Trace>>,
    /// The proofs of published models.
    pub(crate) certified: VecDeque<Value>,
    pub(crate) evaluation: Option<Arc<Value>>,
    pub(crate) begun: Instant,
    /// Iterations and seconds of finished parts.
    pub(crate) iterations: u64,
    pub(crate) seconds: f64,
    /// Whether the model was dropped.
    pub(crate) dropped: bool,
}

/// Machines of a model that lists of runs have one by one.
pub(crate) const LISTED_MACHINES: usize = 10;

/// Leaves out the proofs of single machines beyond `most`, and says how many there were.
pub(crate) fn shorten(value: &mut Value, most: usize) {
    let Some(object) = value.as_object_mut() else { return };
    let Some(machines) = object.get_mut("machines").and_then(Value::as_array_mut) else { return };
    let count = machines.len();
    if count > most {
        machines.truncate(most);
        object.entry("machines_count").or_insert(json!(count));
    }
}

impl Run {
    /// The run with the proofs of at most `machines` single machines.
    pub(crate) fn json(&self, machines: usize) -> Value {
        let (mut certificate, mut summary) = (self.certificate.clone(), self.summary.clone());
        shorten(&mut certificate, machines);
        shorten(&mut summary, machines);
        json!({
            "run": self.id,
            "data_version": self.data_version,
            "data": self.data_name,
            "settings": self.settings,
            "mode": self.mode.name(),
            "started_from": self.from,
            "status": self.status,
            "error": self.error,
            "kept": self.model.is_some(),
            "model_version": self.version,
            "certificate": certificate,
            "summary": summary,
            "evaluated": self.evaluation.is_some(),
            "trace_steps": lock(&self.trace).seen(),
            "begun_seconds_ago": self.begun.elapsed().as_secs_f64(),
        })
    }
}

/// What a session knows.
pub(crate) struct Inner {
    pub(crate) data: Option<Arc<Data>>,
    pub(crate) data_version: u64,
    pub(crate) loading: Option<String>,
    pub(crate) failed: Option<Value>,
    pub(crate) settings: Settings,
    jobs: VecDeque<Job>,
    pub(crate) running: Option<Running>,
    /// Newest last.
    pub(crate) runs: VecDeque<Run>,
    next_run: u64,
    next_tune: u64,
    pub(crate) current: Option<u64>,
    pub(crate) tune: Option<Value>,
    pub(crate) path: Option<Value>,
    ended: bool,
}

/// A data set, its runs, and an engine thread.
pub(crate) struct Session {
    pub(crate) id: String,
    begun: Instant,
    inner: Mutex<Inner>,
    wake: Condvar,
    pub(crate) events: Events,
}

impl Session {
    fn new(id: String) -> Self {
        let inner = Inner {
            data: None,
            data_version: 0,
            loading: None,
            failed: None,
            settings: Settings::default(),
            jobs: VecDeque::new(),
            running: None,
            runs: VecDeque::new(),
            next_run: 1,
            next_tune: 1,
            current: None,
            tune: None,
            path: None,
            ended: false,
        };
        Self { id, begun: Instant::now(), inner: Mutex::new(inner), wake: Condvar::new(), events: Events::default() }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    pub(crate) fn is_running(&self) -> bool {
        let inner = self.inner();
        inner.running.is_some() || !inner.jobs.is_empty()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.inner().ended
    }

    /// The data.
    pub(crate) fn data(&self) -> Result<Arc<Data>, Refusal> {
        self.inner().data.clone().ok_or_else(Refusal::no_data)
    }

    /// The whole state, as the page sees it.
    pub(crate) fn state(&self) -> Value {
        // Events up to this number are part of the state: taken first, so that none is missed.
        let seq = self.events.last();
        let inner = self.inner();
        let mut settings = json!(inner.settings);
        if let (Some(data), Some("")) = (&inner.data, settings["task"].as_str()) {
            settings["task"] = json!(data.task);
        }
        json!({
            "session": self.id,
            "seq": seq,
            "data": inner.data.as_ref().map(|data| data.about.clone()),
            "loading": inner.loading.as_ref().map(|name| json!({ "name": name })),
            "failed": inner.failed,
            "settings": settings,
            "job": inner.running.as_ref().map(job_json).or_else(|| inner.jobs.front().map(waiting_json)),
            "current": inner.current,
            "runs": inner.runs.iter().rev().map(|run| run.json(LISTED_MACHINES)).collect::<Vec<_>>(),
        })
    }

    /// A line in the list of sessions.
    pub(crate) fn summary(&self) -> Value {
        let inner = self.inner();
        json!({
            "session": self.id,
            "data": inner.data.as_ref().map(|data| data.name.clone()),
            "n": inner.data.as_ref().map(|data| data.len()),
            "runs": inner.runs.len(),
            "running": inner.running.is_some() || !inner.jobs.is_empty(),
            "age_seconds": self.begun.elapsed().as_secs_f64(),
        })
    }

    /// A new number for a run.
    pub(crate) fn number_run(inner: &mut Inner) -> u64 {
        inner.next_run += 1;
        inner.next_run - 1
    }

    /// A new number for a search.
    pub(crate) fn number_tune(&self) -> u64 {
        let mut inner = self.inner();
        inner.next_tune += 1;
        inner.next_tune - 1
    }

    /// Hands a job to the engine thread. Trainings, searches and new data take the place of those that are waiting or under
    /// way; an evaluation waits for its turn.
    pub(crate) fn submit(&self, job: Job) {
        let mut inner = self.inner();
        self.submit_locked(&mut inner, job);
    }

    pub(crate) fn submit_locked(&self, inner: &mut Inner, job: Job) {
        let load = matches!(job, Job::Load { .. });
        if !matches!(job, Job::Evaluate(_)) {
            let (stays, goes) = std::mem::take(&mut inner.jobs)
                .into_iter()
                .partition::<Vec<_>, _>(|old| !load && matches!(old, Job::Evaluate(_) | Job::Load { .. }));
            inner.jobs = stays.into();
            for old in goes {
                if let Job::Train(old) = old {
                    self.events.send("superseded", json!({ "run": old.run }));
                }
            }
            if let Some(running) = inner.running.as_ref().filter(|running| load || running.kind != "load") {
                running.cancel.abandon();
            }
        }
        inner.jobs.push_back(job);
        self.wake.notify_all();
    }

    /// Asks what is under way to stop.
    pub(crate) fn stop(&self) {
        let mut inner = self.inner();
        inner.jobs.clear();
        if let Some(running) = &inner.running {
            running.cancel.request();
        }
    }

    fn end(&self) {
        let mut inner = self.inner();
        inner.ended = true;
        inner.jobs.clear();
        if let Some(running) = &inner.running {
            running.cancel.abandon();
        }
        self.wake.notify_all();
        drop(inner);
        // Whoever follows the session notices.
        self.events.send("closing", json!({}));
    }

    /// Waits for the next job; `None` when the session has ended.
    pub(crate) fn next(&self) -> Option<(Job, Cancel)> {
        let mut inner = self.inner();
        inner.running = None;
        loop {
            if inner.ended {
                return None;
            }
            if let Some(job) = inner.jobs.pop_front() {
                let cancel = Cancel::new();
                let mode = if let Job::Train(job) = &job { Some(job.mode) } else { None };
                inner.running = Some(Running {
                    kind: job.kind(),
                    run: job.run(),
                    mode,
                    cancel: cancel.clone(),
                    begun: Instant::now(),
                    phase: "begin",
                    iteration: 0,
                    fraction: None,
                });
                return Some((job, cancel));
            }
            inner = self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The model of a run, or of the current one.
    pub(crate) fn model(&self, run: &str) -> Result<Arc<Trained>, Refusal> {
        let inner = self.inner();
        let found = inner.find(run)?;
        match &found.model {
            Some(model) => Ok(model.clone()),
            None if found.dropped => {
                Err(Refusal::gone(format!("the model of run {} is no longer kept", found.id)).hint("train it again"))
            }
            None => Err(Refusal::no_model()),
        }
    }
}

/// The job as the page sees it.
fn job_json(running: &Running) -> Value {
    json!({
        "kind": running.kind,
        "run": running.run,
        "mode": running.mode.map(Mode::name),
        "phase": running.phase,
        "iteration": running.iteration,
        "seconds": running.begun.elapsed().as_secs_f64(),
        "fraction": running.fraction,
    })
}

/// A job that the engine thread has not taken up yet: a client that asks right after it gave the order must not read that
/// nothing is under way, and take the last status of a run that goes on for its new one.
fn waiting_json(job: &Job) -> Value {
    let mode = if let Job::Train(job) = job { Some(job.mode.name()) } else { None };
    json!({
        "kind": job.kind(), "run": job.run(), "mode": mode,
        "phase": "waiting", "iteration": 0, "seconds": 0.0, "fraction": null,
    })
}

impl Inner {
    /// A run by its number, or the current one.
    pub(crate) fn find(&self, run: &str) -> Result<&Run, Refusal> {
        let id = match run {
            "current" => self.current.ok_or_else(Refusal::no_model)?,
            text => text.parse().map_err(|_| Refusal::request(format!("{text:?} is not the number of a run")))?,
        };
        self.runs.iter().find(|run| run.id == id).ok_or_else(|| Refusal::gone(format!("run {id} is not listed")))
    }

    /// Whether a run has been asked for and is not listed yet: the engine thread has not begun it.
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        let asked = self.jobs.iter().any(|job| job.run() == Some(id))
            || self.running.as_ref().is_some_and(|running| running.run == Some(id));
        asked && !self.runs.iter().any(|run| run.id == id)
    }

    pub(crate) fn run_mut(&mut self, id: u64) -> Option<&mut Run> {
        self.runs.iter_mut().rev().find(|run| run.id == id)
    }

    /// Drops the models of old runs, and the oldest runs.
    pub(crate) fn forget(&mut self) {
        while self.runs.len() > LISTED_RUNS {
            self.runs.pop_front();
        }
        let (mut count, mut bytes) = (0, 0);
        for run in self.runs.iter_mut().rev() {
            let Some(model) = &run.model else { continue };
            count += 1;
            bytes += model.bytes();
            // The newest model is kept whatever its size.
            if count > KEPT_RUNS || count > 1 && bytes > KEPT_BYTES {
                run.model = None;
                run.evaluation = None;
                run.trace = Arc::default();
                run.certified.clear();
                run.dropped = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_seen_from_the_moment_it_is_asked_for() {
        // No engine thread: nothing takes the job up.
        let session = Session::new("a".into());
        assert_eq!(session.state()["job"], Value::Null);
        session.submit(Job::Evaluate(3));
        let job = &session.state()["job"];
        assert_eq!((&job["kind"], &job["run"], &job["phase"]), (&json!("evaluate"), &json!(3), &json!("waiting")));
        assert_eq!(session.summary()["running"], true);
        let taken = session.next();
        assert!(taken.is_some());
        assert_eq!(session.state()["job"]["phase"], "begin");
    }
}
