//! Long work on a thread of its own, with the interpreter free meanwhile, Ctrl-C heard and progress passed on.

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

/// How often a pending signal is looked for.
const PULSE: Duration = Duration::from_millis(20);
/// Steps kept of a fit; beyond that every second one is dropped, and from then on every second one not taken.
const KEPT: usize = 4096;

/// Pools by number of threads. A forked child has none of its parent's threads, so that pools belong to a process.
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
            // The pools of a parent cannot be shut down from here: their threads are not there to listen.
            std::mem::forget(other.take());
            let made = Threads::new(count);
            *other = Some((own, HashMap::from([(count, made.clone())])));
            made
        }
    }
}

/// What the observer of a worker has heard.
#[derive(Default)]
pub(crate) struct History {
    steps: Vec<Step>,
    every: usize,
    heard: usize,
}

impl History {
    fn push(&mut self, step: &Step) {
        let every = self.every.max(1);
        if self.heard.is_multiple_of(every) {
            self.steps.push(step.clone());
            if self.steps.len() > KEPT {
                let mut at = 0;
                self.steps.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.every = 2 * every;
            }
        }
        self.heard += 1;
    }

    /// A list of dictionaries, fields a solver does not have left out.
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

/// Passes steps to the history, and to the waiting thread if it wants them.
struct Ear {
    history: History,
    live: Option<Sender<Step>>,
    stop: Cancel,
}

/// The same on the caller's own thread: looks for signals itself, now and then.
struct OwnEar<'a> {
    history: History,
    report: Option<&'a Py<PyAny>>,
    stop: Cancel,
    looked: Instant,
    interrupted: Option<PyErr>,
}

impl OwnEar<'_> {
    fn look(&mut self, step: Option<&Step>) -> ControlFlow<()> {
        if self.looked.elapsed() >= PULSE && self.interrupted.is_none() {
            self.looked = Instant::now();
            let told = Python::attach(|py| {
                if let (Some(report), Some(step)) = (self.report, step) {
                    report.bind(py).call1((step_dict(py, step)?,))?;
                }
                py.check_signals()
            });
            if let Err(error) = told {
                self.stop.abandon();
                self.interrupted = Some(error);
            }
        }
        if self.interrupted.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for OwnEar<'_> {
    fn begin(&mut self, _begin: &Begin) -> ControlFlow<()> {
        self.look(None)
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.history.push(step);
        self.look(Some(step))
    }
    fn finish(&mut self, _status: Status, last: &Step) {
        self.history.push(last);
    }
}

/// Runs `work` on this very thread: a fit of a millisecond should not wait for another thread to wake up. The work must use
/// one thread only, so that the observer is called here.
fn alone<T: Send>(
    py: Python<'_>,
    report: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(Cancel, &mut dyn Observer) -> T + Send,
) -> PyResult<Supervised<T>> {
    let stop = Cancel::new();
    let own = report.map(|report| report.clone().unbind());
    let (value, mut ear) = py.detach(|| {
        let history = History::default();
        let (report, looked) = (own.as_ref(), Instant::now());
        let mut ear = OwnEar { history, report, stop: stop.clone(), looked, interrupted: None };
        let value = work(stop, &mut ear);
        (value, ear)
    });
    if let (Some(report), None, Some(last)) = (report, &ear.interrupted, ear.history.steps.last()) {
        ear.interrupted = report.call1((step_dict(py, last)?,)).err();
    }
    Ok(Supervised { value, history: ear.history, interrupted: ear.interrupted })
}

impl Ear {
    fn flow(&self) -> ControlFlow<()> {
        if self.stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for Ear {
    fn begin(&mut self, _begin: &Begin) -> ControlFlow<()> {
        self.flow()
    }
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.history.push(step);
        if let Some(live) = &self.live {
            // Nobody listens any more only if the fit is about to end.
            let _ = live.send(step.clone());
        }
        self.flow()
    }
    fn finish(&mut self, _status: Status, last: &Step) {
        self.history.push(last);
    }
}

/// The result of supervised work.
pub(crate) struct Supervised<T> {
    /// What the work gave.
    pub(crate) value: T,
    /// What the solvers said.
    pub(crate) history: History,
    /// The exception (KeyboardInterrupt, or one of `report`) that ended it early.
    pub(crate) interrupted: Option<PyErr>,
}

/// Runs `work` on a thread of its own. The interpreter is free; signals are looked for every 20 ms, and an exception they
/// raise asks `work` to end at once with its best so far, without a proof. `report` is called with the latest step now and then. `small` work stays on
/// the caller's thread.
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
    let (live, steps) = channel();
    let live = report.map(|_| live);
    let (done, finished) = channel::<()>();
    let flag = stop.clone();
    let mut interrupted = None;
    let end = std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mut ear = Ear { history: History::default(), live, stop: flag.clone() };
            let value = work(flag, &mut ear);
            drop(done);
            (value, ear.history)
        });
        let (steps, finished): (Mutex<Receiver<Step>>, Mutex<Receiver<()>>) = (Mutex::new(steps), Mutex::new(finished));
        loop {
            let over = py.detach(|| {
                let finished = finished.lock().unwrap_or_else(PoisonError::into_inner);
                // The sender sends nothing: it is dropped when the work is done, or has panicked.
                finished.recv_timeout(PULSE) != Err(RecvTimeoutError::Timeout)
            });
            if over {
                break;
            }
            let told = match report {
                Some(report) if interrupted.is_none() => pass_on(py, report, &steps),
                _ => Ok(()),
            };
            if let Err(error) = told.and_then(|()| py.check_signals()) {
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

/// The latest step, and whether to go on.
fn pass_on(py: Python<'_>, report: &Bound<'_, PyAny>, steps: &Mutex<Receiver<Step>>) -> PyResult<()> {
    let steps = steps.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(step) = steps.try_iter().last() {
        report.call1((step_dict(py, &step)?,))?;
    }
    Ok(())
}
