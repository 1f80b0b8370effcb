//! Runs long work on its own thread while the interpreter is free, handles Ctrl-C and reports progress.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use margrave::engine::observe::{Begin, Observer, Step};
use margrave::{Cancel, Status, Threads};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// How often pending signals are checked.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of steps kept of a fit. Beyond it every second step is dropped, and from then on only every second one is recorded.
const MAX_STEPS: usize = 4096;

/// Pools by number of threads. A forked child has none of its parent's threads, so each process has its own pools.
static POOLS: Mutex<Option<(u32, HashMap<usize, Threads>)>> = Mutex::new(None);

/// `count` threads, 0 for all cores: the same pool each time.
pub(crate) fn threads(count: usize) -> Threads {
    if count == 1 {
        return Threads::one();
    }
    let own = std::process::id();
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *pools {
        Some((process, known)) if *process == own => known.entry(count).or_insert_with(|| Threads::new(count)).clone(),
        other => {
            // The pools of the parent cannot be shut down here: their threads do not exist in this process.
            std::mem::forget(other.take());
            let made = Threads::new(count);
            *other = Some((own, HashMap::from([(count, made.clone())])));
            made
        }
    }
}

/// The steps that the observer of a worker has recorded.
#[derive(Default)]
pub(crate) struct StepHistory {
    steps: Vec<Step>,
    every: usize,
    received: usize,
}

impl StepHistory {
    fn push(&mut self, step: &Step) {
        let every = self.every.max(1);
        if self.received.is_multiple_of(every) {
            self.steps.push(step.clone());
            if self.steps.len() > MAX_STEPS {
                let mut at = 0;
                self.steps.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.every = 2 * every;
            }
        }
        self.received += 1;
    }

    /// A list of dictionaries, without the fields that a solver does not report.
    pub(crate) fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for step in &self.steps {
            list.append(step_dict(py, step)?)?;
        }
        Ok(list)
    }
}

fn step_dict<'py>(py: Python<'py>, step: &Step) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("iteration", step.iteration)?;
    dict.set_item("seconds", step.seconds)?;
    dict.set_item("phase", step.phase)?;
    let numbers = [
        ("violation", step.violation),
        ("primal", step.primal),
        ("dual", step.dual),
        ("step_length", step.step_length),
        ("fraction", step.fraction),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            dict.set_item(name, value)?;
        }
    }
    if let Some(active) = step.active {
        dict.set_item("active", active)?;
    }
    if let Some(entries) = step.kernel_entries {
        dict.set_item("kernel_entries", entries)?;
    }
    Ok(dict)
}

/// Passes steps to the history, and to the waiting thread if it reports them.
struct WorkerObserver {
    history: StepHistory,
    sender: Option<Sender<Step>>,
    stop: Cancel,
}

/// The same on the caller's thread: checks for signals itself from time to time.
struct CallerObserver<'a> {
    history: StepHistory,
    report: Option<&'a Py<PyAny>>,
    stop: Cancel,
    last_check: Instant,
    interrupted: Option<PyErr>,
}

impl CallerObserver<'_> {
    fn check(&mut self, step: Option<&Step>) -> ControlFlow<()> {
        if self.last_check.elapsed() >= SIGNAL_INTERVAL && self.interrupted.is_none() {
            self.last_check = Instant::now();
            let reported = Python::attach(|py| {
                if let (Some(report), Some(step)) = (self.report, step) {
                    report.bind(py).call1((step_dict(py, step)?,))?;
                }
                py.check_signals()
            });
            if let Err(error) = reported {
                self.stop.abandon();
                self.interrupted = Some(error);
            }
        }
        if self.interrupted.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for CallerObserver<'_> {
    fn begin(&mut self, _begin: &Begin) -> ControlFlow<()> {
        self.check(None)
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.history.push(step);
        self.check(Some(step))
    }
    fn finish(&mut self, _status: Status, last: &Step) {
        self.history.push(last);
    }
}

/// Runs `work` on the calling thread: a fit of a millisecond should not wait for another thread to wake up. The work must use
/// one thread only, so that the observer is called on this thread.
fn alone<T: Send>(
    py: Python<'_>,
    report: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(Cancel, &mut dyn Observer) -> T + Send,
) -> PyResult<Supervised<T>> {
    let stop = Cancel::new();
    let own = report.map(|report| report.clone().unbind());
    let (value, mut observer) = py.detach(|| {
        let history = StepHistory::default();
        let (report, last_check) = (own.as_ref(), Instant::now());
        let mut observer = CallerObserver { history, report, stop: stop.clone(), last_check, interrupted: None };
        let value = work(stop, &mut observer);
        (value, observer)
    });
    if let (Some(report), None, Some(last)) = (report, &observer.interrupted, observer.history.steps.last()) {
        observer.interrupted = report.call1((step_dict(py, last)?,)).err();
    }
    Ok(Supervised { value, history: observer.history, interrupted: observer.interrupted })
}

impl WorkerObserver {
    fn flow(&self) -> ControlFlow<()> {
        if self.stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for WorkerObserver {
    fn begin(&mut self, _begin: &Begin) -> ControlFlow<()> {
        self.flow()
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.history.push(step);
        if let Some(sender) = &self.sender {
            // The receiver is gone only if the fit is about to end.
            let _ = sender.send(step.clone());
        }
        self.flow()
    }
    fn finish(&mut self, _status: Status, last: &Step) {
        self.history.push(last);
    }
}

/// The result of supervised work.
pub(crate) struct Supervised<T> {
    /// The result of the work itself.
    pub(crate) value: T,
    /// The steps of the solvers.
    pub(crate) history: StepHistory,
    /// The exception (KeyboardInterrupt, or one of `report`) that ended it early.
    pub(crate) interrupted: Option<PyErr>,
}

/// Runs `work` on its own thread. The interpreter is free. Signals are checked every 20 ms; if one raises an exception, `work`
/// ends at once with its best result so far, without a proof. `report` is called with the latest step from time to time.
/// `small` work stays on the caller's thread.
pub(crate) fn supervise<T: Send>(
    py: Python<'_>,
    report: Option<&Bound<'_, PyAny>>,
    small: bool,
    work: impl FnOnce(Cancel, &mut dyn Observer) -> T + Send,
) -> PyResult<Supervised<T>> {
    if small {
        return alone(py, report, work);
    }
    let stop = Cancel::new();
    let (sender, steps) = channel();
    let sender = report.map(|_| sender);
    let (done, finished) = channel::<()>();
    let flag = stop.clone();
    let mut interrupted = None;
    let end = std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mut observer = WorkerObserver { history: StepHistory::default(), sender, stop: flag.clone() };
            let value = work(flag, &mut observer);
            drop(done);
            (value, observer.history)
        });
        let (steps, finished): (Mutex<Receiver<Step>>, Mutex<Receiver<()>>) = (Mutex::new(steps), Mutex::new(finished));
        loop {
            let over = py.detach(|| {
                let finished = finished.lock().unwrap_or_else(PoisonError::into_inner);
                // The sender sends nothing: it is dropped when the work is done, or has panicked.
                finished.recv_timeout(SIGNAL_INTERVAL) != Err(RecvTimeoutError::Timeout)
            });
            if over {
                break;
            }
            let reported = match report {
                Some(report) if interrupted.is_none() => pass_on(py, report, &steps),
                _ => Ok(()),
            };
            if let Err(error) = reported.and_then(|()| py.check_signals()) {
                stop.abandon();
                interrupted.get_or_insert(error);
            }
        }
        if let (Some(report), None) = (report, &interrupted)
            && let Err(error) = pass_on(py, report, &steps)
        {
            interrupted = Some(error);
        }
        py.detach(|| worker.join())
    });
    match end {
        Ok((value, history)) => Ok(Supervised { value, history, interrupted }),
        Err(_) => Err(PyRuntimeError::new_err("margrave has failed where it should not: please report this as a bug")),
    }
}

/// The latest step, and whether to continue.
fn pass_on(py: Python<'_>, report: &Bound<'_, PyAny>, steps: &Mutex<Receiver<Step>>) -> PyResult<()> {
    let steps = steps.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(step) = steps.try_iter().last() {
        report.call1((step_dict(py, &step)?,))?;
    }
    Ok(())
}
