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
    let mut order: Vec<usize> = (0..tasks).collect();
    order.sort_by_key(|&task| (std::cmp::Reverse(sizes[task]), task));
    let whole: u64 = sizes.iter().sum::<u64>().max(1);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let iterations: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    let slots: Vec<Mutex<Option<Result<T>>>> = (0..tasks).map(|_| Mutex::new(None)).collect();
    let (sender, receiver) = mpsc::channel();
    let mut done = 0u64;
    let mut last = Step { phase: begin.solver, fraction: Some(0.0), ..Step::default() };
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
    let status = match control.check() {
        Err(why) => why.into(),
        Ok(()) if stop.load(Ordering::Relaxed) => Status::Interrupted,
        Ok(()) => Status::Optimal,
    };
    observer.finish(status, &last);
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
