//! Budgets, threads and interruption: the contract that no computation hangs.
//!
//! A [`Budget`] is what the user allows; a [`Control`] is a budget that has started running, together with the threads
//! to use. Every loop that may run longer than 50 ms calls [`Control::check`] at least that often and returns its best
//! result so far on [`Interrupt`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Device};
use crate::error::{Error, Result};
use crate::work_limit::WorkLimit;
use crate::workers::{Lockstep, Workers, lock};

/// How a computation ended. Every status comes with a usable model and its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The requested tolerance holds, by the certificate of the model as it is saved.
    Optimal,
    /// The solver reported convergence, but the certificate does not confirm it.
    Inaccurate,
    /// The time budget ran out.
    TimeLimit,
    /// The iteration budget ran out.
    IterationLimit,
    /// No further progress is possible in the arithmetic used, and the stopping rule does not hold.
    Stalled,
    /// Stopped by the observer or by Ctrl-C.
    Interrupted,
}

impl Status {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Optimal => "optimal",
            Self::Inaccurate => "inaccurate",
            Self::TimeLimit => "time_limit",
            Self::IterationLimit => "iteration_limit",
            Self::Stalled => "stalled",
            Self::Interrupted => "interrupted",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a computation was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// The deadline has passed.
    Deadline,
    /// The cancel flag was set.
    Cancelled,
    /// Too much work without progress.
    Stalled,
}

impl From<Interrupt> for Status {
    fn from(why: Interrupt) -> Self {
        match why {
            Interrupt::Deadline => Status::TimeLimit,
            Interrupt::Cancelled => Status::Interrupted,
            Interrupt::Stalled => Status::Stalled,
        }
    }
}

/// The resources a computation may use.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Wall-clock seconds; `None`: no limit.
    pub seconds: Option<f64>,
    /// Iterations, as defined by the solver; `None`: no limit.
    pub iterations: Option<u64>,
    /// Bytes for kernel rows, factors and other working memory (not the data itself). A machine may always use 16 MiB.
    pub memory: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { seconds: None, iterations: None, memory: 2 << 30 }
    }
}

impl Budget {
    /// Fails if a limit is negative or not a number.
    pub fn check(&self) -> Result<()> {
        match self.seconds {
            Some(s) if !(s >= 0.0) => Err(Error::option("max-seconds", s, "a number of seconds ≥ 0")),
            _ => Ok(()),
        }
    }
}

/// The threads of a computation. Results do not depend on their number. They are started when they are first needed:
/// that takes longer than a small training.
#[derive(Clone)]
pub struct Threads {
    count: usize,
    workers: Option<Arc<OnceLock<Workers>>>,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Threads({})", self.count)
    }
}

impl Threads {
    /// One thread: everything runs on the caller's thread.
    pub fn one() -> Self {
        Self { count: 1, workers: None }
    }

    /// `count` threads; 0 means all cores.
    pub fn new(count: usize) -> Self {
        let count = if count == 0 { cores() } else { count };
        if count == 1 { Self::one() } else { Self { count, workers: Some(Arc::default()) } }
    }

    /// The threads besides the caller's, if `tasks` are worth more than one.
    fn workers(&self, tasks: usize) -> Option<&Workers> {
        let workers = self.workers.as_ref().filter(|_| tasks > 1)?;
        Some(workers.get_or_init(|| Workers::new(self.count - 1)))
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Calls `work(i)` for every `i < tasks`, in any order, on all threads. `work` must not depend on the order. A loop within
    /// a task runs on the thread of the task.
    pub fn each(&self, tasks: usize, work: impl Fn(usize) + Sync) {
        match self.workers(tasks) {
            Some(workers) => workers.each(tasks, 1, &work),
            None => (0..tasks).for_each(work),
        }
    }

    /// `work(i)` for every `i < tasks`, results in order.
    pub fn map<T: Send>(&self, tasks: usize, work: impl Fn(usize) -> T + Sync + Send) -> Vec<T> {
        match self.workers(tasks) {
            Some(workers) => {
                let mut results: Vec<Option<T>> = (0..tasks).map(|_| None).collect();
                let places: Vec<Mutex<&mut Option<T>>> = results.iter_mut().map(Mutex::new).collect();
                workers.each(tasks, 1, &|i| {
                    let result = work(i);
                    **lock(&places[i]) = Some(result);
                });
                drop(places);
                results.into_iter().map(|result| result.expect("every task has run")).collect()
            }
            None => (0..tasks).map(work).collect(),
        }
    }

    /// Calls `lead` with a [`Lockstep`] over the parts, in whose passes other threads take part. `idle` is a job and a result before the
    /// first pass.
    pub(crate) fn lockstep<T: Send, J: Copy + Send + Sync, R: Copy + Send + Sync>(
        &self,
        parts: Vec<T>,
        idle: (J, R),
        work: &(dyn Fn(&mut T, J) -> R + Sync),
        lead: &mut dyn FnMut(&mut Lockstep<'_, T, J, R>),
    ) {
        match self.workers(parts.len()) {
            Some(workers) => workers.lockstep(parts, idle, work, lead),
            None => Lockstep::alone(parts, idle, work, lead),
        }
    }

    /// Calls `work(index, part)` for each of the parts, on all threads.
    pub(crate) fn each_of<P: Send>(&self, parts: Vec<P>, work: impl Fn(usize, &mut P) + Sync) {
        let parts: Vec<Mutex<P>> = parts.into_iter().map(Mutex::new).collect();
        self.each(parts.len(), |i| work(i, &mut lock(&parts[i])));
    }

    /// Calls `work(index, chunk)` for each chunk of `chunk` elements of `data`; the last may be shorter.
    pub fn chunks<T: Send>(&self, data: &mut [T], chunk: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        /// Times that a thread takes chunks, at least: the last ones to finish are waited for.
        const SHARES: usize = 4;
        match self.workers(data.len().div_ceil(chunk.max(1))) {
            Some(workers) => {
                let parts: Vec<Mutex<&mut [T]>> = data.chunks_mut(chunk).map(Mutex::new).collect();
                let together = (parts.len() / (SHARES * self.count)).max(1);
                workers.each(parts.len(), together, &|i| work(i, &mut lock(&parts[i])));
            }
            None => data.chunks_mut(chunk).enumerate().for_each(|(i, part)| work(i, part)),
        }
    }
}

/// Number of cores this process may use, asked for once: the system answers by reading files.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

impl Default for Threads {
    fn default() -> Self {
        Self::new(0)
    }
}

/// A request to stop from another thread. After the first request, training ends with its best point and computes its
/// certificate; after the second, the certificate is abandoned as well.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    stop: Arc<AtomicBool>,
    abandon: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// No request yet.
    pub fn new() -> Self {
        Self { stop: Arc::default(), abandon: Some(Arc::default()) }
    }

    /// Whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Requests to stop at once, without a certificate.
    pub fn abandon(&self) {
        while !self.request() {}
    }

    /// Requests to stop; returns whether it had been requested twice before.
    pub fn request(&self) -> bool {
        if !self.stop.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.abandon.as_ref().is_none_or(|flag| flag.swap(true, Ordering::SeqCst))
    }
}

impl From<Arc<AtomicBool>> for Cancel {
    /// A flag that stops training but not the computation of the certificate.
    fn from(stop: Arc<AtomicBool>) -> Self {
        Self { stop, abandon: None }
    }
}

/// The certificate may always exceed a time limit by this many seconds.
const PROOF_SECONDS: f64 = 1.0;
/// Fraction of the time limit by which the certificate may exceed it, if that is more.
const PROOF_SHARE: f64 = 0.1;

/// A budget that has started running: threads, deadline and cancel flag, passed to every long loop.
#[derive(Debug, Clone)]
pub struct Control {
    /// The threads to use.
    pub threads: Threads,
    started: Instant,
    deadline: Option<Instant>,
    cancel: Option<Arc<AtomicBool>>,
    abandon: Option<Arc<AtomicBool>>,
    /// Of a proof: the request that ends the training but not the proof.
    ended: Option<Arc<AtomicBool>>,
    /// A request that is heeded from then on.
    late: Option<(Arc<AtomicBool>, Instant)>,
    work: Option<Arc<WorkLimit>>,
    backend: &'static dyn Backend,
    /// Whether a certificate may be computed beyond the deadline.
    proves: bool,
    /// Fraction of the default work without progress that a run may do.
    patience: f64,
}

impl Control {
    /// No deadline and no cancel flag.
    pub fn unlimited(threads: Threads) -> Self {
        Self {
            threads,
            started: Instant::now(),
            deadline: None,
            cancel: None,
            abandon: None,
            ended: None,
            late: None,
            work: None,
            backend: Device::default().backend(),
            proves: true,
            patience: 1.0,
        }
    }

    /// Starts the clock of `budget`.
    pub fn start(budget: &Budget, threads: Threads) -> Self {
        let started = Instant::now();
        // A limit that the clock cannot represent is no limit.
        let deadline =
            budget.seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).and_then(|s| started.checked_add(s));
        Self { started, deadline, ..Self::unlimited(threads) }
    }

    /// Also stops when `cancel` is requested (Ctrl-C, a signal from Python).
    pub fn with_cancel(mut self, cancel: impl Into<Cancel>) -> Self {
        let Cancel { stop, abandon } = cancel.into();
        self.cancel = Some(stop);
        self.abandon = abandon.or(self.abandon);
        self
    }

    /// The same control with other threads.
    pub fn with_threads(&self, threads: Threads) -> Self {
        Self { threads, ..self.clone() }
    }

    /// For the trainings that calibrate the scores of a model: they share the extra time of a certificate beyond the
    /// limit, and no certificate is computed beyond it.
    pub fn for_calibration(&self) -> Self {
        let deadline = self.deadline.and_then(|end| end.checked_add(self.extra(end)?));
        Self { deadline, proves: false, patience: 0.2 * self.patience, ..self.clone() }
    }

    /// For training `count` models: the more there are, the less work without progress each may do.
    pub(crate) fn for_machines(&self, count: usize) -> Self {
        Self { patience: self.patience / (count.max(1) as f64).powf(0.75), ..self.clone() }
    }

    /// Extra time beyond the limit for what follows training.
    fn extra(&self, end: Instant) -> Option<Duration> {
        let limit = end.saturating_duration_since(self.started).as_secs_f64();
        Duration::try_from_secs_f64((PROOF_SHARE * limit).max(PROOF_SECONDS)).ok()
    }

    /// For the certificate of a training under this control: what ended the training does not end the certificate. It
    /// may exceed the time limit by a second or by a tenth of the limit; without a limit it takes as long as needed. A
    /// second request to stop ends it.
    pub fn for_proof(&self) -> Self {
        let deadline = match self.proves {
            true => self.deadline.and_then(|end| end.max(Instant::now()).checked_add(self.extra(end)?)),
            false => self.deadline,
        };
        let ended = self.cancel.clone().or(self.ended.clone());
        Self { deadline, cancel: self.abandon.clone(), ended, work: None, ..self.clone() }
    }

    /// For what improves a proof that is already valid: a first request to stop ends it as well, but not within the time by
    /// which a proof may exceed a limit.
    pub(crate) fn for_improvement(&self) -> Self {
        let now = Instant::now();
        let late = self.extra(now).and_then(|extra| Some((self.ended.clone()?, now.checked_add(extra)?)));
        Self { late, ..self.clone() }
    }

    /// The same, ending at least `seconds` before its deadline, so that they are left for something else; never earlier than
    /// half of what remains.
    pub(crate) fn leaving(&self, seconds: f64) -> Self {
        let deadline = self.deadline.map(|end| {
            let left = end.saturating_duration_since(Instant::now());
            let kept = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(left / 2).min(left / 2);
            end.checked_sub(kept).unwrap_or(end)
        });
        Self { deadline, ..self.clone() }
    }

    /// For one run of a solver whose full passes over the problem take `pass` multiply–adds: also ends after too much
    /// work without progress.
    pub(crate) fn for_run(&self, pass: f64) -> Self {
        self.for_run_with_factors(pass, 0.0)
    }

    /// The same for a solver that may factor matrices of up to `factored` rows.
    pub(crate) fn for_run_with_factors(&self, pass: f64, factored: f64) -> Self {
        Self { work: Some(Arc::new(WorkLimit::new(self.patience, pass, factored))), ..self.clone() }
    }

    /// Counts multiply–adds of the run. The total must not depend on the number of threads.
    pub fn spend(&self, work: usize) {
        if let Some(limit) = &self.work {
            limit.spend(work as u64);
        }
    }

    /// Records the progress of the run: the violation, the gap, or both.
    pub(crate) fn note(&self, violation: Option<f64>, gap: Option<f64>) {
        if let Some(limit) = &self.work {
            limit.note(violation, gap);
        }
    }

    /// Records the objective of a loss that is not convex.
    pub(crate) fn note_objective(&self, objective: f64) {
        if let Some(limit) = &self.work {
            limit.note_objective(objective);
        }
    }

    /// The same control on another device.
    pub fn with_device(mut self, device: Device) -> Self {
        self.backend = device.backend();
        self
    }

    /// The backend that computes kernel entries and products with the data.
    pub fn backend(&self) -> &'static dyn Backend {
        self.backend
    }

    /// The same threads and cancel flag without the deadline and without a limit on work.
    pub fn without_deadline(&self) -> Self {
        Self { deadline: None, work: None, ..self.clone() }
    }

    /// `Err` if the computation must end now. Cheap (one clock read): call it every few milliseconds.
    pub fn check(&self) -> std::result::Result<(), Interrupt> {
        if let Some(flag) = &self.cancel
            && flag.load(Ordering::Relaxed)
        {
            return Err(Interrupt::Cancelled);
        }
        if let Some((flag, from)) = &self.late
            && flag.load(Ordering::Relaxed)
            && Instant::now() >= *from
        {
            return Err(Interrupt::Cancelled);
        }
        if self.work.as_ref().is_some_and(|limit| limit.is_over()) {
            return Err(Interrupt::Stalled);
        }
        match self.deadline {
            Some(end) if Instant::now() >= end => Err(Interrupt::Deadline),
            _ => Ok(()),
        }
    }

    /// Seconds left until the deadline, if there is one.
    pub fn remaining(&self) -> Option<f64> {
        self.deadline.map(|end| end.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_and_cancel_interrupt() {
        let zero = Budget { seconds: Some(0.0), ..Budget::default() };
        assert_eq!(Control::start(&zero, Threads::one()).check(), Err(Interrupt::Deadline));
        assert_eq!(Control::start(&zero, Threads::one()).remaining(), Some(0.0));
        assert_eq!(Control::unlimited(Threads::one()).remaining(), None);
        let flag = Arc::new(AtomicBool::new(false));
        let control = Control::unlimited(Threads::one()).with_cancel(flag.clone());
        assert_eq!(control.check(), Ok(()));
        flag.store(true, Ordering::Relaxed);
        assert_eq!(control.check(), Err(Interrupt::Cancelled));
        assert_eq!(control.without_deadline().check(), Err(Interrupt::Cancelled));
    }

    #[test]
    fn a_certificate_continues_until_it_is_abandoned() {
        let zero = Budget { seconds: Some(0.0), ..Budget::default() };
        let cancel = Cancel::new();
        let control = Control::start(&zero, Threads::one()).with_cancel(cancel.clone());
        let proof = control.for_proof();
        assert_eq!((control.check(), proof.check()), (Err(Interrupt::Deadline), Ok(())));
        assert!(proof.remaining().is_some_and(|left| left > 0.5 && left <= PROOF_SECONDS));
        assert!(!cancel.request());
        assert_eq!((control.check(), proof.check()), (Err(Interrupt::Cancelled), Ok(())));
        assert!(!cancel.request());
        assert_eq!(proof.check(), Err(Interrupt::Cancelled));
        assert!(cancel.request());
        // A flag of the caller replaces the first request, not the second.
        let lane = control.with_cancel(Arc::new(AtomicBool::new(false)));
        assert_eq!((lane.check(), lane.for_proof().check()), (Err(Interrupt::Deadline), Err(Interrupt::Cancelled)));
    }

    #[test]
    fn a_first_request_ends_the_improvement_of_a_proof_after_some_time() {
        let cancel = Cancel::new();
        let budget = Budget { seconds: None, ..Budget::default() };
        let training = Control::start(&budget, Threads::one()).with_cancel(cancel.clone());
        let mut improvement = training.for_proof().for_improvement();
        assert!(!cancel.request());
        assert_eq!((training.check(), training.for_proof().check()), (Err(Interrupt::Cancelled), Ok(())));
        assert_eq!(improvement.check(), Ok(()));
        improvement.late = improvement.late.map(|(flag, from)| (flag, from - Duration::from_secs(2)));
        assert_eq!(improvement.check(), Err(Interrupt::Cancelled));
        // A request that ended the training counts too, and without one there is all the time.
        assert!(training.for_proof().for_improvement().late.is_some());
        assert!(Control::unlimited(Threads::one()).for_proof().for_improvement().late.is_none());
        let mut patient =
            Control::start(&budget, Threads::one()).with_cancel(Cancel::new()).for_proof().for_improvement();
        patient.late = patient.late.map(|(flag, from)| (flag, from - Duration::from_secs(2)));
        assert_eq!(patient.check(), Ok(()));
    }

    #[test]
    fn calibration_trainings_share_one_deadline() {
        let zero = Budget { seconds: Some(0.0), ..Budget::default() };
        let control = Control::start(&zero, Threads::one());
        let calibration = control.for_calibration();
        std::thread::sleep(Duration::from_millis(20));
        assert!(calibration.remaining().is_some_and(|left| left < PROOF_SECONDS - 0.015));
        let left = calibration.remaining();
        assert!(calibration.for_proof().remaining() <= left);
        assert_eq!(Control::unlimited(Threads::one()).for_calibration().for_proof().remaining(), None);
    }

    #[test]
    fn an_infinite_time_limit_is_no_limit() {
        let long = Budget { seconds: Some(1e300), ..Budget::default() };
        assert_eq!(Control::start(&long, Threads::one()).check(), Ok(()));
        assert!(Budget { seconds: Some(f64::NAN), ..Budget::default() }.check().is_err());
        assert!(Budget { seconds: Some(-1.0), ..Budget::default() }.check().is_err());
    }

    #[test]
    fn map_keeps_the_order_on_any_number_of_threads() {
        for count in [1, 2, 3] {
            let out = Threads::new(count).map(100, |i| i * i);
            assert_eq!(out, (0..100).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn chunks_reach_every_element_once_on_any_number_of_threads() {
        for threads in [Threads::one(), Threads::new(3)] {
            let mut data = vec![0; 1000];
            threads.chunks(&mut data, 7, |i, part| part.iter_mut().enumerate().for_each(|(j, x)| *x += 7 * i + j));
            assert_eq!(data, (0..1000).collect::<Vec<_>>());
            assert_eq!(threads.map(5, |i| i.to_string()), ["0", "1", "2", "3", "4"]);
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller() {
        let threads = Threads::new(2);
        let run = std::panic::AssertUnwindSafe(|| threads.map(8, |i| if i == 5 { panic!("five") } else { vec![i] }));
        assert!(std::panic::catch_unwind(run).is_err());
        assert_eq!(threads.map(3, |i| i), [0, 1, 2]);
    }
}
