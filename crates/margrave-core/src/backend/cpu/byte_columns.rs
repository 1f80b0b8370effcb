//! Columns of points on a grid, packed for the loops of `byte_tiles.rs`.

use std::ops::Range;

use super::bytes::{BytePoints, LINE, Line};
use super::simd::SimdScalar;
use super::tasks::each_part;
use crate::control::{Control, Interrupt};

/// Columns packed in lines: `steps` lines for every [`LINE`] of them.
pub(crate) struct ByteColumns {
    lines: Vec<Line>,
    terms: Vec<i32>,
}

impl ByteColumns {
    /// Packs all points, padded to a whole number of the widest panels.
    pub(crate) fn new(points: &BytePoints, control: &Control) -> Result<Self, Interrupt> {
        let widest = <f32 as SimdScalar>::NR;
        let padded = points.len().div_ceil(widest) * widest;
        let mut packed = Self { lines: vec![Line([0; LINE]); padded / LINE * points.steps], terms: vec![0; padded] };
        // Points without features have no lines.
        let parts = packed.terms.chunks_mut(LINE).zip(packed.lines.chunks_mut(points.steps.max(1)));
        each_part(control, parts.collect(), |part, (terms, lines)| points.pack_part(part, lines, terms))?;
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
    use crate::control::Threads;

    #[test]
    fn columns_are_packed_alike_on_any_number_of_threads() {
        // A number of points that fills no panel.
        let (n, d) = (3001, 700);
        for packing in [Packing::Pairs, Packing::Bytes { words: 8 }] {
            let threads = |count: usize| Control::unlimited(Threads::new(count));
            let encode = |i: usize, codes: &mut [u8]| {
                codes.iter_mut().enumerate().for_each(|(j, k)| *k = ((i * 31 + j * 7) % 61) as u8);
            };
            let points = BytePoints::coded(n, d, packing, encode, &threads(1)).unwrap();
            let want = ByteColumns::new(&points, &threads(1)).unwrap();
            for count in [2, 3] {
                let points = BytePoints::coded(n, d, packing, encode, &threads(count)).unwrap();
                let got = ByteColumns::new(&points, &threads(count)).unwrap();
                assert_eq!(got.terms, want.terms);
                assert!(
                    got.lines.iter().zip(&want.lines).all(|(a, b)| a.0 == b.0) && got.lines.len() == want.lines.len()
                );
            }
        }
    }
}
