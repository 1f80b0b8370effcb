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

    /// Calls `lead` on this thread with a [`Lockstep`] over the parts, in whose passes up to one other thread for each part after the
    /// first takes part.
    pub(crate) fn lockstep<T: Send, J: Copy + Send + Sync, R: Copy + Send + Sync>(
        &self,
        parts: Vec<T>,
        idle: (J, R),
        work: &(dyn Fn(&mut T, J) -> R + Sync),
        lead: &mut dyn FnMut(&mut Lockstep<'_, T, J, R>),
    ) {
        let (job, places) = Lockstep::prepare(parts, idle);
        // The first part is the leader's.
        let serve = |number: usize| {
            if number > 0 {
                places[number].serve(&job, work);
            }
        };
        let mut led = Ok(());
        self.share(places.len(), 1, &serve, |_| {
            let _end = EndPasses(&job.pass);
            let mut lockstep = Lockstep { places: &places, job: &job, work, pass: 0, delays: 0 };
            led = catch_unwind(AssertUnwindSafe(|| lead(&mut lockstep)));
        });
        if let Err(panic) = led {
            resume_unwind(panic);
        }
    }

    /// Calls `work(i)` for every `i < tasks`, `together` of them in a row, on the caller's thread and on those that join. From within a
    /// task, and while another thread has a loop under way, on the caller's thread alone.
    pub(crate) fn each(&self, tasks: usize, together: usize, work: &(dyn Fn(usize) + Sync)) {
        self.share(tasks, together, work, |shared| match shared {
            Some((shared, own)) => shared.take_part(own),
            None => (0..tasks).for_each(work),
        });
    }

    /// Lets other threads take part in a loop while `own` runs on this one, which gets the loop if there is one: from within a task,
    /// and while another thread has a loop under way, there is none.
    fn share(
        &self,
        tasks: usize,
        together: usize,
        work: &(dyn Fn(usize) + Sync),
        own: impl FnOnce(Option<(&Shared, Loop)>),
    ) {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return own(None),
        };
        let shared = &*self.shared;
        let work: *const (dyn Fn(usize) + Sync + '_) = work;
        // SAFETY: only the lifetime changes; no thread uses the pointer after this function has returned.
        let work: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let whole = Loop { work, tasks, together };
        // SAFETY: this thread has the turn, and the loop before was closed and left by all.
        unsafe { *shared.current.get() = Some(whole) };
        shared.next.store(0, Ordering::Relaxed);
        let number = (shared.state.load(Ordering::SeqCst) / NUMBER + 1) % NUMBER;
        shared.state.store((number * NUMBER) | OPEN, Ordering::SeqCst);
        shared.wake(WAKES.min(tasks.div_ceil(together).saturating_sub(1)));
        // Closes the loop and waits for the others, whatever happens: `work` must not be used afterwards.
        let close = Close(shared);
        own(Some((shared, whole)));
        drop(close);
        if let Some(panic) = lock(&shared.panic).take() {
            resume_unwind(panic);
        }
    }
}

/// Closes a loop, and waits for the threads that are in it.
struct Close<'a>(&'a Shared);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut looks = 0u32;
        while state & COUNT != 0 {
            looks += 1;
            match () {
                () if !looks.is_multiple_of(LOOKS) => std::hint::spin_loop(),
                () if looks < LOOKS * PAUSES => thread::yield_now(),
                () => thread::sleep(NAP),
            }
            state = self.0.state.load(Ordering::SeqCst);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.wake(usize::MAX);
    }
}

/// The number of the last pass: there are no more.
const NO_MORE: u64 = u64::MAX;
/// Looks for the next pass between two pauses in which other processes may run.
const PASS_LOOKS: u32 = 1 << 9;
/// Looks after which a thread that takes part in a pass is so late that it must have been interrupted.
const LATE: u32 = 1 << 11;
/// Delays after which a leader goes on alone: its processors are busy with something else.
const MOST_DELAYS: u32 = 8;

/// What a pass is to do. Alone in its cache line, which threads fetch once for each pass.
#[repr(C, align(128))]
struct Job<J> {
    /// The number of the pass.
    pass: AtomicU64,
    job: UnsafeCell<J>,
}

// SAFETY: `job` is written by the leader while no part is being worked on, and read only by threads that have begun a part.
unsafe impl<J: Send + Sync> Sync for Job<J> {}

/// A part of the data of a [`Lockstep`]. What passes between threads is in one cache line.
#[repr(C, align(128))]
struct Place<T, R> {
    /// The last pass that a thread has begun here.
    begun: AtomicU64,
    /// The last pass that is complete here.
    done: AtomicU64,
    /// What it found.
    found: UnsafeCell<R>,
    part: Mutex<T>,
}

// SAFETY: `found` is written by the one thread that has begun the pass, and read by the leader once the pass is complete.
unsafe impl<T: Send, R: Send + Sync> Sync for Place<T, R> {}

impl<T, R: Copy> Place<T, R> {
    /// Works on the part unless another thread has begun to.
    fn try_pass<J: Copy>(&self, pass: u64, job: &Job<J>, work: &(dyn Fn(&mut T, J) -> R + Sync)) {
        if self.begun.compare_exchange(pass - 1, pass, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // Even if the work panics: the leader waits for this.
            let _done = Done(&self.done, pass);
            // SAFETY: the leader writes the next job only after this pass is complete here.
            let job = unsafe { *job.job.get() };
            let found = work(&mut lock(&self.part), job);
            // SAFETY: only this thread has begun the pass, and the leader reads after it is complete.
            unsafe { *self.found.get() = found };
        }
    }

    /// Takes part in every pass until there are no more.
    fn serve<J: Copy>(&self, job: &Job<J>, work: &(dyn Fn(&mut T, J) -> R + Sync)) {
        let (mut last, mut looks) = (0, 0u32);
        loop {
            match job.pass.load(Ordering::Acquire) {
                NO_MORE => return,
                pass if pass != last => {
                    self.try_pass(pass, job, work);
                    (last, looks) = (pass, 0);
                }
                _ => {
                    looks += 1;
                    if looks.is_multiple_of(PASS_LOOKS) {
                        thread::yield_now();
                    } else {
                        std::hint::spin_loop();
                    }
                }
            }
        }
    }
}

/// Marks a pass as complete.
struct Done<'a>(&'a AtomicU64, u64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::Release);
    }
}

/// Ends the passes.
struct EndPasses<'a>(&'a AtomicU64);

impl Drop for EndPasses<'_> {
    fn drop(&mut self) {
        self.0.store(NO_MORE, Ordering::Release);
    }
}

/// Data in parts, and a function that many short passes apply to every part: too short, some microseconds, for a loop of their own.
/// A pass brings a job to the parts and takes back what was found in each. Threads that are not at hand when it begins are not
/// waited for: the leader does their parts.
pub(crate) struct Lockstep<'a, T, J, R> {
    places: &'a [Place<T, R>],
    job: &'a Job<J>,
    work: &'a (dyn Fn(&mut T, J) -> R + Sync),
    pass: u64,
    /// How often a thread that took part was late.
    delays: u32,
}

impl<T, J: Copy, R: Copy> Lockstep<'_, T, J, R> {
    fn prepare(parts: Vec<T>, (job, found): (J, R)) -> (Job<J>, Vec<Place<T, R>>) {
        let place = |part| Place {
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            found: UnsafeCell::new(found),
            part: Mutex::new(part),
        };
        (Job { pass: AtomicU64::new(0), job: UnsafeCell::new(job) }, parts.into_iter().map(place).collect())
    }

    /// Calls `lead` with one whose passes run on this thread.
    pub(crate) fn alone(
        parts: Vec<T>,
        idle: (J, R),
        work: &(dyn Fn(&mut T, J) -> R + Sync),
        lead: &mut dyn FnMut(&mut Lockstep<'_, T, J, R>),
    ) {
        let (job, places) = Self::prepare(parts, idle);
        lead(&mut Lockstep { places: &places, job: &job, work, pass: 0, delays: MOST_DELAYS });
    }

    /// Applies the function to every part, and returns what it found in each.
    pub(crate) fn pass(&mut self, job: J) -> impl Iterator<Item = &R> {
        self.pass += 1;
        // SAFETY: the pass before is complete everywhere, and nobody begins this one before it is announced.
        unsafe { *self.job.job.get() = job };
        if self.delays < MOST_DELAYS {
            self.job.pass.store(self.pass, Ordering::Release);
        }
        for place in self.places {
            // A look takes less time than the attempt.
            if place.begun.load(Ordering::Relaxed) != self.pass {
                place.try_pass(self.pass, self.job, self.work);
            }
        }
        let mut looks = 0u32;
        for place in self.places {
            while place.done.load(Ordering::Acquire) != self.pass {
                looks += 1;
                match () {
                    () if looks < LATE => std::hint::spin_loop(),
                    () if looks < LATE + PAUSES => thread::yield_now(),
                    () => thread::sleep(NAP),
                }
            }
        }
        if looks >= LATE {
            self.delays += 1;
            if self.delays == MOST_DELAYS {
                self.job.pass.store(NO_MORE, Ordering::Release);
            }
        }
        // SAFETY: the pass is complete everywhere, and no other begins while the results are borrowed.
        self.places.iter().map(|place| unsafe { &*place.found.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred passes over the numbers of the parts, each of which adds the number of the pass.
    fn passes(workers: &Workers, parts: usize) -> Vec<u64> {
        let (mut sums, mut total) = (vec![], 0);
        let work = |part: &mut (u64, u64), pass: u64| {
            part.1 += part.0 + pass;
            part.1
        };
        workers.lockstep((0..parts as u64).map(|k| (k, 0)).collect(), (0, 0), &work, &mut |lockstep| {
            for pass in 0..100 {
                sums = lockstep.pass(pass).copied().collect();
                total += pass;
                assert!(sums.iter().enumerate().all(|(k, sum)| *sum == total + (pass + 1) * k as u64));
            }
        });
        sums
    }

    #[test]
    fn every_pass_reaches_every_part_once() {
        let expected = |k: u64| 100 * k + (0..100).sum::<u64>();
        for threads in [0, 1, 3] {
            let workers = Workers::new(threads);
            for round in 0..200 {
                let parts = 1 + round % 6;
                let sums = passes(&workers, parts);
                assert_eq!(
                    sums,
                    (0..parts as u64).map(expected).collect::<Vec<_>>(),
                    "{threads} threads, {parts} parts"
                );
                if round % 50 == 0 {
                    thread::sleep(20 * AWAKE);
                }
            }
        }
    }

    /// More threads than processors: threads are interrupted within a pass, and leaders go on.
    #[test]
    fn passes_on_busy_processors_end() {
        let workers: Vec<Workers> = (0..4).map(|_| Workers::new(3)).collect();
        thread::scope(|scope| {
            let runs: Vec<_> =
                workers.iter().map(|own| scope.spawn(|| (0..30).map(|_| passes(own, 4)).collect::<Vec<_>>())).collect();
            for run in runs {
                let sums = run.join().unwrap();
                assert!(sums.iter().all(|found| *found == sums[0]));
            }
        });
    }

    #[test]
    fn a_panic_in_a_pass_reaches_the_leader() {
        for threads in [0, 2] {
            let workers = Workers::new(threads);
            let run = AssertUnwindSafe(|| {
                let work = |k: &mut u64, ()| assert!(*k != 2, "part {k}");
                workers.lockstep(vec![0, 1, 2], ((), ()), &work, &mut |lockstep| {
                    (0..3).for_each(|_| assert_eq!(lockstep.pass(()).count(), 3));
                });
            });
            let panic = catch_unwind(run).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("part 2"));
            assert_eq!(passes(&workers, 1).len(), 1);
        }
    }

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
