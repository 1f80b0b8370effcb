//! An allocator that counts, so that a reader which believes an absurd size is found without taking the memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A single request of this size is refused: the most a reader of fuzzed inputs, all small, could ever need.
const REFUSED: usize = 1 << 30;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn taken(size: usize) {
    let now = NOW.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator with the same layout; requests are refused by a null pointer, as the
// trait allows.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        if layout.size() > REFUSED {
            NOW.fetch_sub(layout.size(), Ordering::Relaxed);
            crate::keep::abort_note("a request of more than 1 GiB");
            return std::ptr::null_mut();
        }
        // SAFETY: the layout is the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        if layout.size() > REFUSED {
            NOW.fetch_sub(layout.size(), Ordering::Relaxed);
            crate::keep::abort_note("a request of more than 1 GiB");
            return std::ptr::null_mut();
        }
        // SAFETY: the layout is the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: pointer and layout are those of an allocation of ours.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The most bytes that were allocated at a time during `work`, beyond those before it.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}
