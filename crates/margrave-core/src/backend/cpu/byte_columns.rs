//! Columns of points on a grid, packed for the loops of `byte_tiles.rs`.

use std::ops::Range;

use super::bytes::{BytePoints, LINE, Line};
use super::simd::SimdScalar;
use crate::control::{Control, Interrupt, Threads};

/// Columns packed in lines: `steps` lines for every [`LINE`] of them.
pub(crate) struct ByteColumns {
    lines: Vec<Line>,
    terms: Vec<i32>,
}

impl ByteColumns {
    /// Packs all points, padded to a whole number of the widest panels.
    pub(crate) fn new(points: &BytePoints, threads: &Threads) -> Self {
        let mut packed = Self::room(points);
        // Points without features have no lines.
        let parts = packed.terms.chunks_mut(LINE).zip(packed.lines.chunks_mut(points.steps.max(1)));
        threads.each_of(parts.collect(), |part, (terms, lines)| points.pack_part(part, lines, terms));
        packed
    }

    fn room(points: &BytePoints) -> Self {
        let widest = <f32 as SimdScalar>::NR;
        let padded = points.len().div_ceil(widest) * widest;
        Self { lines: vec![Line([0; LINE]); padded / LINE * points.steps], terms: vec![0; padded] }
    }

    /// The same on threads of its own: see `Panels::new`.
    pub(crate) fn on_own_threads(points: &BytePoints, control: &Control) -> Result<Self, Interrupt> {
        control.check()?;
        let count = control.threads.count().max(1);
        if points.words.len() < 1 << 20 || count == 1 {
            return Ok(Self::new(points, &Threads::one()));
        }
        let (mut packed, steps) = (Self::room(points), points.steps.max(1));
        let share = (packed.terms.len() / LINE).div_ceil(count).max(1);
        std::thread::scope(|scope| {
            let parts = packed.terms.chunks_mut(share * LINE).zip(packed.lines.chunks_mut(share * steps));
            for (t, (terms, lines)) in parts.enumerate() {
                scope.spawn(move || {
                    let parts = terms.chunks_mut(LINE).zip(lines.chunks_mut(steps));
                    parts.enumerate().for_each(|(at, (terms, lines))| points.pack_part(t * share + at, lines, terms));
                });
            }
        });
        Ok(packed)
    }

    /// Columns `from` up to `to`, multiples of [`LINE`].
    pub(crate) fn run(&self, steps: usize, from: usize, to: usize) -> ByteRun<'_> {
        ByteRun { lines: &self.lines[from / LINE * steps..to / LINE * steps], terms: &self.terms[from..to] }
    }
}

/// Packed columns of a run of panels.
#[derive(Clone, Copy, Default)]
pub(crate) struct ByteRun<'a> {
    pub(super) lines: &'a [Line],
    pub(super) terms: &'a [i32],
}

impl ByteRun<'_> {
    /// Panels `range` of `count`.
    #[inline(always)]
    pub(crate) fn panels(&self, range: Range<usize>, count: usize) -> Self {
        let (lines, terms) = (self.lines.len() / count, self.terms.len() / count);
        Self {
            lines: &self.lines[range.start * lines..range.end * lines],
            terms: &self.terms[range.start * terms..range.end * terms],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::bytes::Packing;

    #[test]
    fn columns_are_packed_alike_on_the_pool_and_on_own_threads() {
        // Enough words for several threads, and a number of points that fills no panel.
        let (n, d) = (3001, 700);
        for packing in [Packing::Pairs, Packing::Bytes { words: 8 }] {
            let threads = |count: usize| Control::unlimited(Threads::new(count));
            let encode = |i: usize, codes: &mut [u8]| {
                codes.iter_mut().enumerate().for_each(|(j, k)| *k = ((i * 31 + j * 7) % 61) as u8);
            };
            let points = BytePoints::coded(n, d, packing, encode, &threads(3)).unwrap();
            let want = ByteColumns::new(&points, &Threads::one());
            for count in [1, 2, 3] {
                let got = ByteColumns::on_own_threads(&points, &threads(count)).unwrap();
                assert_eq!(got.terms, want.terms);
                assert!(
                    got.lines.iter().zip(&want.lines).all(|(a, b)| a.0 == b.0) && got.lines.len() == want.lines.len()
                );
            }
        }
    }
}
