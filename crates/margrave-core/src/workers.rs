//! Threads that share parallel loops with the thread that starts them.
//!
//! A training starts thousands of short loops (a product with a triangle of K takes 20 to 500 µs) between serial pieces. The caller
//! works on its own loop from the first moment and never waits for a thread that has not begun: other threads join while there is work left. They look for
//! the next loop for a while before they sleep. A general thread pool lets the caller sleep and wakes its threads one by one; after a serial
//! piece of 20 ms a loop of 0.4 ms on two threads then took as long as on one.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a thread without work looks for more before it sleeps.
const AWAKE: Duration = Duration::from_micros(100);
/// Looks between two pauses in which other processes may run.
const LOOKS: u32 = 64;
/// Pauses of a caller that waits for others to finish, after which it sleeps between looks.
const PAUSES: u32 = 256;
/// How long it sleeps then.
const NAP: Duration = Duration::from_micros(100);
/// Sleeping threads that a thread wakes when it begins a loop: each wakes others in turn.
const WAKES: usize = 2;

/// The lowest bits of [`Shared::state`]: how many threads besides the caller are in the loop.
const COUNT: u64 = OPEN - 1;
/// Whether threads may join the loop.
const OPEN: u64 = 1 << 31;
/// The upper half of the state is the number of the loop.
const NUMBER: u64 = 1 << 32;

/// Locks a mutex. Poisoning is ignored: a task that panics ends the whole loop anyway.
pub(crate) fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loop over tasks, taken `together` at a time.
#[derive(Clone, Copy)]
struct Loop {
    work: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    together: usize,
}

/// A thread, and whether it sleeps.
#[derive(Default)]
struct Sleeper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

/// What the threads share.
struct Shared {
    /// Number of the loop, whether it is open, and how many threads besides the caller are in it.
    state: AtomicU64,
    /// The loop; read only by threads that are in it.
    current: UnsafeCell<Option<Loop>>,
    /// The first task that nobody has taken.
    next: AtomicUsize,
    /// What the first task that panicked left.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleepers: Vec<Sleeper>,
    /// How many of them sleep.
    sleeping: AtomicUsize,
    /// No further loop will come.
    ended: AtomicBool,
}

// SAFETY: `current` is written by the thread that holds `Workers::turn`, while no other thread is in the loop; it is read by
// threads that have joined the loop, which the writer opened afterwards. Everything else is made for several threads.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer of a loop is used only while its caller waits.
unsafe impl Send for Shared {}

impl Shared {
    /// Takes tasks until none are left.
    fn take_part(&self, own: Loop) {
        // SAFETY: the caller of the loop returns only after it has closed the loop and every thread has left it.
        let work = unsafe { &*own.work };
        loop {
            let from = self.next.fetch_add(own.together, Ordering::Relaxed);
            if from >= own.tasks {
                return;
            }
            let until = own.tasks.min(from + own.together);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (from..until).for_each(work))) {
                lock(&self.panic).get_or_insert(panic);
                // The tasks that are left would only delay the panic.
                self.next.store(own.tasks, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Wakes up to `count` threads.
    fn wake(&self, count: usize) {
        let mut left = count;
        for sleeper in &self.sleepers {
            if left == 0 || self.sleeping.load(Ordering::SeqCst) == 0 {
                return;
            }
            if sleeper.asleep.swap(false, Ordering::SeqCst) {
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
                if let Some(thread) = sleeper.thread.get() {
                    thread.unpark();
                }
                left -= 1;
            }
        }
    }

    /// Joins an open loop other than number `last`, and takes part in it; the number of the loop.
    fn join(&self, last: u64) -> Option<u64> {
        let state = self.state.load(Ordering::SeqCst);
        if state & OPEN == 0 || state / NUMBER == last {
            return None;
        }
        // Joining fails once the caller has closed the loop.
        self.state.compare_exchange(state, state + 1, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        // SAFETY: this thread has joined the loop, so that it is not changed until it leaves.
        let own = unsafe { *self.current.get() }.expect("an open loop");
        if self.next.load(Ordering::Relaxed) + own.together < own.tasks {
            self.wake(WAKES);
        }
        self.take_part(own);
        self.state.fetch_sub(1, Ordering::SeqCst);
        Some(state / NUMBER)
    }

    /// The life of thread `me`.
    fn serve(&self, me: usize) {
        let own = &self.sleepers[me];
        let _ = own.thread.set(thread::current());
        let (mut last, mut looks, mut idle) = (0, 0u32, Instant::now());
        while !self.ended.load(Ordering::SeqCst) {
            if let Some(number) = self.join(last) {
                (last, looks, idle) = (number, 0, Instant::now());
                continue;
            }
            looks += 1;
            if !looks.is_multiple_of(LOOKS) {
                std::hint::spin_loop();
            } else if idle.elapsed() < AWAKE {
                thread::yield_now();
            } else {
                self.sleep(own, last);
                (looks, idle) = (0, Instant::now());
            }
        }
    }

    /// Sleeps until woken, unless a loop other than number `last` has come meanwhile.
    fn sleep(&self, own: &Sleeper, last: u64) {
        own.asleep.store(true, Ordering::SeqCst);
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        // Whoever opens a loop after this look sees that this thread sleeps.
        let state = self.state.load(Ordering::SeqCst);
        if (state & OPEN != 0 && state / NUMBER != last) || self.ended.load(Ordering::SeqCst) {
            if own.asleep.swap(false, Ordering::SeqCst) {
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
            }
            return;
        }
        while own.asleep.load(Ordering::SeqCst) {
            thread::park();
        }
    }
}

/// Threads that join the loops of others.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    /// Held by the caller of the loop under way.
    turn: Mutex<()>,
}

impl Workers {
    /// Starts up to `count` threads; fewer, or none, if the system cannot create more.
    pub(crate) fn new(count: usize) -> Self {
        let sleepers = (0..count).map(|_| Sleeper::default()).collect();
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            current: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            panic: Mutex::new(None),
            sleepers,
            sleeping: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        for me in 0..count {
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new().name(format!("margrave-{me}"));
            if thread.spawn(move || shared.serve(me)).is_err() {
                break;
            }
        }
        Self { shared, turn: Mutex::new(()) }
    }

    /// Calls `work(i)` for every `i < tasks`, `together` of them in a row, on the caller's thread and on those that join. From within a
    /// task, and while another thread has a loop under way, on the caller's thread alone.
    pub(crate) fn each(&self, tasks: usize, together: usize, work: &(dyn Fn(usize) + Sync)) {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return (0..tasks).for_each(work),
        };
        let shared = &*self.shared;
        let work: *const (dyn Fn(usize) + Sync + '_) = work;
        // SAFETY: only the lifetime changes; no thread uses the pointer after this function has returned.
        let work: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let own = Loop { work, tasks, together };
        // SAFETY: this thread has the turn, and the loop before was closed and left by all.
        unsafe { *shared.current.get() = Some(own) };
        shared.next.store(0, Ordering::Relaxed);
        let number = (shared.state.load(Ordering::SeqCst) / NUMBER + 1) % NUMBER;
        shared.state.store((number * NUMBER) | OPEN, Ordering::SeqCst);
        shared.wake(WAKES.min(tasks.div_ceil(together).saturating_sub(1)));
        shared.take_part(own);
        let mut state = shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut looks = 0u32;
        while state & COUNT != 0 {
            looks += 1;
            match () {
                () if !looks.is_multiple_of(LOOKS) => std::hint::spin_loop(),
                () if looks < LOOKS * PAUSES => thread::yield_now(),
                () => thread::sleep(NAP),
            }
            state = shared.state.load(Ordering::SeqCst);
        }
        if let Some(panic) = lock(&shared.panic).take() {
            resume_unwind(panic);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.wake(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each task ran.
    fn counts(workers: &Workers, tasks: usize, together: usize, pause: Duration) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        workers.each(tasks, together, &|i| {
            thread::sleep(pause);
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_task_runs_once_in_thousands_of_loops() {
        for threads in [0, 1, 3, 7] {
            let workers = Workers::new(threads);
            for round in 0..3000 {
                let (tasks, together) = (round % 37, 1 + round % 5);
                assert_eq!(counts(&workers, tasks, together, Duration::ZERO), vec![1; tasks], "round {round}");
            }
        }
    }

    #[test]
    fn threads_that_have_fallen_asleep_join_again() {
        let workers = Workers::new(3);
        for _ in 0..5 {
            thread::sleep(20 * AWAKE);
            let threads = Mutex::new(std::collections::HashSet::new());
            workers.each(4, 1, &|_| {
                // No thread takes a second task until all four have one.
                lock(&threads).insert(thread::current().id());
                while lock(&threads).len() < 4 {
                    thread::yield_now();
                }
            });
            assert_eq!(lock(&threads).len(), 4);
        }
    }

    #[test]
    fn a_loop_within_a_task_runs_on_its_thread() {
        let workers = Workers::new(2);
        let total = AtomicUsize::new(0);
        workers.each(8, 1, &|_| {
            let own = thread::current().id();
            workers.each(5, 1, &|_| {
                assert_eq!(thread::current().id(), own);
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.into_inner(), 40);
    }

    #[test]
    fn callers_at_the_same_time_all_finish() {
        let workers = Workers::new(2);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..200 {
                        assert_eq!(counts(&workers, round % 11, 1, Duration::ZERO), vec![1; round % 11]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_threads_go_on() {
        let workers = Workers::new(2);
        for panicking in [0, 3, 15] {
            let run = AssertUnwindSafe(|| workers.each(16, 1, &|i| assert!(i != panicking, "task {i}")));
            let panic = catch_unwind(run).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(&*format!("task {panicking}")));
            assert_eq!(counts(&workers, 20, 1, Duration::from_micros(50)), vec![1; 20]);
        }
    }

    #[test]
    fn threads_end_with_their_pool() {
        let workers = Workers::new(3);
        counts(&workers, 6, 1, Duration::from_millis(1));
        let shared = Arc::downgrade(&workers.shared);
        drop(workers);
        let begun = Instant::now();
        while shared.strong_count() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "threads are still there");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
