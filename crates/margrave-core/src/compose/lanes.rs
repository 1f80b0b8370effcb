//! Independent trainings in parallel.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::control::{Control, Interrupt, Status, Threads};
use crate::error::{Error, Result};
use crate::observe::{Begin, Observer, Step};

/// Largest number of trainings that run at the same time. Memory is divided by this number, not by the number of threads: the
/// memory of a solver can affect the last digits of its result, and the number of threads must not.
pub const LANES: usize = 8;

/// How often the observer is called.
const REPORT_INTERVAL: Duration = Duration::from_millis(40);

/// Passes the steps of a lane's solver on, and passes a request to stop back to it.
struct Lane<'a> {
    task: usize,
    iterations: &'a [AtomicUsize],
    stop: &'a AtomicBool,
}

impl Observer for Lane<'_> {
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.iterations[self.task].store(step.iteration as usize, Ordering::Relaxed);
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Passes the steps of a solver on the caller's thread on to the observer of all trainings.
struct Inline<'a> {
    observer: &'a mut dyn Observer,
    control: &'a Control,
    stop: &'a AtomicBool,
    /// The progress of all trainings, as last reported; its `iteration` counts the trainings that have ended.
    last: &'a mut Step,
    reported: &'a mut f64,
}

impl Inline<'_> {
    /// Reports the progress, `iterations` of the running training included.
    fn report(&mut self, iterations: u64) {
        self.last.seconds = self.control.seconds();
        *self.reported = self.last.seconds;
        let now = Step { iteration: self.last.iteration + iterations, ..self.last.clone() };
        if self.observer.step(&now).is_break() || self.control.check() == Err(Interrupt::Cancelled) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Observer for Inline<'_> {
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        if self.control.seconds() - *self.reported >= REPORT_INTERVAL.as_secs_f64() {
            self.report(step.iteration);
        }
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// [`run`] on the caller's thread: starting another takes longer than a small training.
fn run_inline<T>(
    sizes: &[u64],
    control: &Control,
    observer: &mut dyn Observer,
    stop: Arc<AtomicBool>,
    mut last: Step,
    work: impl Fn(usize, &Control, &mut dyn Observer) -> Result<T>,
) -> Result<Vec<T>> {
    let whole: u64 = sizes.iter().sum::<u64>().max(1);
    let running = control.for_machines(sizes.len());
    let stopped = running.clone().with_cancel(stop.clone());
    let (mut done, mut reported) = (0, 0.0);
    let mut results = Vec::with_capacity(sizes.len());
    for (task, size) in sizes.iter().enumerate() {
        let (last, reported) = (&mut last, &mut reported);
        let mut inline = Inline { observer: &mut *observer, control, stop: &stop, last, reported };
        let own = if stop.load(Ordering::Relaxed) { &stopped } else { &running };
        results.push(work(task, own, &mut inline)?);
        done += size;
        inline.last.fraction = Some(done as f64 / whole as f64);
        inline.report(0);
    }
    finish(control, observer, &stop, &last);
    Ok(results)
}

/// Tells the observer how all trainings have ended.
fn finish(control: &Control, observer: &mut dyn Observer, stop: &AtomicBool, last: &Step) {
    let status = match control.check() {
        Err(why) => why.into(),
        Ok(()) if stop.load(Ordering::Relaxed) => Status::Interrupted,
        Ok(()) => Status::Optimal,
    };
    observer.finish(status, last);
}

/// Runs `work(task)` for every task, several at a time, the largest (by `sizes`) first. Results are in the order of the tasks.
///
/// `work` gets its own control and observer. Once `control` or `observer` requests a stop, running tasks end with their best
/// result so far, and the remaining ones get a control that has already ended. The first error, in the order of the tasks, is
/// returned; after an error no further task is started.
pub fn run<T: Send>(
    sizes: &[u64],
    begin: &Begin,
    control: &Control,
    observer: &mut dyn Observer,
    work: impl Fn(usize, &Control, &mut dyn Observer) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let tasks = sizes.len();
    let stop = Arc::new(AtomicBool::new(observer.begin(begin).is_break()));
    let lanes = control.threads.count().min(LANES).min(tasks).max(1);
    let mut last = Step { phase: begin.solver, fraction: Some(0.0), ..Step::default() };
    if lanes == 1 {
        return run_inline(sizes, control, observer, stop, last, work);
    }
    let mut order: Vec<usize> = (0..tasks).collect();
    order.sort_by_key(|&task| (std::cmp::Reverse(sizes[task]), task));
    let whole: u64 = sizes.iter().sum::<u64>().max(1);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let iterations: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    let slots: Vec<Mutex<Option<Result<T>>>> = (0..tasks).map(|_| Mutex::new(None)).collect();
    let (sender, receiver) = mpsc::channel();
    let mut done = 0u64;
    std::thread::scope(|scope| {
        for lane in 0..lanes {
            let share = control.threads.count() / lanes + usize::from(lane < control.threads.count() % lanes);
            let (sender, stop, order, next) = (sender.clone(), stop.clone(), &order, &next);
            let (failed, iterations, slots, work) = (&failed, &iterations, &slots, &work);
            scope.spawn(move || {
                let control =
                    control.with_threads(Threads::new(share.max(1))).with_cancel(stop.clone()).for_machines(tasks);
                while let Some(&task) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if failed.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut observer = Lane { task, iterations, stop: &stop };
                    let result = work(task, &control, &mut observer);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    *slots[task].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                    // An error means that the receiver is gone, which is harmless.
                    let _ = sender.send(task);
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(REPORT_INTERVAL) {
                Ok(task) => done += sizes[task],
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            last.iteration = iterations.iter().map(|i| i.load(Ordering::Relaxed) as u64).sum();
            last.seconds = control.seconds();
            last.fraction = Some(done as f64 / whole as f64);
            // Deadlines are not passed on: each lane checks them itself, and reports them as such.
            if observer.step(&last).is_break() || control.check() == Err(Interrupt::Cancelled) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    let mut results = Vec::with_capacity(tasks);
    let mut missing = false;
    for slot in slots {
        match slot.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(result) => results.push(result?),
            None => missing = true,
        }
    }
    if missing {
        return Err(Error::data("a training failed"));
    }
    finish(control, observer, &stop, &last);
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Budget;
    use crate::observe::{Recorder, Silent};

    const BEGIN: Begin = Begin { solver: "pairs", n: 0, tol: None, gap: None };

    #[test]
    fn results_come_in_order_whatever_the_threads() {
        let sizes: Vec<u64> = (0..37).map(|i| (i * 7) % 11).collect();
        for count in [1, 2, 5] {
            let control = Control::unlimited(Threads::new(count));
            let found = run(&sizes, &BEGIN, &control, &mut Silent, |task, _, _| Ok(task * task)).unwrap();
            assert_eq!(found, (0..37).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_is_told() {
        let control = Control::unlimited(Threads::new(2));
        let fails = |task, _: &Control, _: &mut dyn Observer| match task {
            3 => Err(Error::data("three")),
            other => Ok(other),
        };
        let said = run(&[1; 9], &BEGIN, &control, &mut Silent, fails).unwrap_err().to_string();
        assert_eq!(said, "three");
    }

    #[test]
    fn one_thread_reports_and_stops_like_several() {
        let control = Control::unlimited(Threads::one());
        let mut impatient = Recorder { stop_after: Some(1), ..Recorder::default() };
        let endless = |_: usize, control: &Control, observer: &mut dyn Observer| {
            let mut steps = 0;
            while control.check().is_ok() && observer.step(&Step { iteration: steps, ..Step::default() }).is_continue()
            {
                std::thread::sleep(Duration::from_millis(1));
                steps += 1;
            }
            Ok(steps)
        };
        let steps = run(&[1; 4], &BEGIN, &control, &mut impatient, endless).unwrap();
        assert_eq!(impatient.status, Some(Status::Interrupted));
        assert!(steps[0] > 1 && steps[1..] == [0, 0, 0], "{steps:?}");
        let mut patient = Recorder::default();
        run(&[1, 3], &BEGIN, &control, &mut patient, |task, _, _| Ok(task)).unwrap();
        assert_eq!(patient.steps.iter().map(|step| step.fraction).collect::<Vec<_>>(), [Some(0.25), Some(1.0)]);
        assert_eq!(patient.status, Some(Status::Optimal));
    }

    #[test]
    fn stopping_reaches_every_task() {
        let over = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::new(2));
        let found = run(&[1; 5], &BEGIN, &over, &mut Silent, |_, control, _| Ok(control.check().is_err())).unwrap();
        assert_eq!(found, [true; 5]);
        let mut impatient = Recorder { stop_after: Some(1), ..Recorder::default() };
        let control = Control::unlimited(Threads::new(2));
        let endless = |_: usize, control: &Control, _: &mut dyn Observer| {
            while control.check().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        run(&[1; 4], &BEGIN, &control, &mut impatient, endless).unwrap();
        assert_eq!(impatient.status, Some(Status::Interrupted));
    }
}
