//! Computations compiled for several instruction sets, of which the processor's widest is chosen at run time.

#[cfg(target_arch = "x86_64")]
use super::sweep::{InstructionSet, level};

/// A computation that is compiled for each instruction set.
///
/// `run` must be `#[inline(always)]`, and so must be the functions that its loops call: only code that is inlined uses
/// the wider instructions. Products and sums stay separate operations, so the result has the same bits everywhere.
pub(crate) trait Vectorised {
    /// The result.
    type Output;
    /// Computes it.
    fn run(self) -> Self::Output;
}

/// Runs `task` with the widest vectors of this processor.
#[inline]
pub(crate) fn vectorised<V: Vectorised>(task: V) -> V::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")]
        fn wide<V: Vectorised>(task: V) -> V::Output {
            task.run()
        }
        #[target_feature(enable = "avx2,fma")]
        fn middle<V: Vectorised>(task: V) -> V::Output {
            task.run()
        }
        match level() {
            // SAFETY: `level` has checked that this processor has the features the function is compiled for.
            InstructionSet::Wide => return unsafe { wide(task) },
            // SAFETY: as above.
            InstructionSet::Middle => return unsafe { middle(task) },
            InstructionSet::Base => {}
        }
    }
    task.run()
}
