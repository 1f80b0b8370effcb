//! Points packed for the register tiles: columns in panels, rows in groups.

use super::finish::LaneColumns;
use super::simd::{Level, PORTABLE_FMA, SimdScalar};
use super::tasks::each_part;
use super::tile::chain;
use crate::control::{Control, Interrupt};
use crate::data::{Points, Real, Storage};

/// Rows packed together.
pub(crate) const GROUP: usize = 8;

/// A buffer aligned to a cache line.
pub(crate) struct Aligned<T> {
    values: Vec<T>,
    skip: usize,
    len: usize,
}

impl<T: Real> Aligned<T> {
    pub(crate) fn zeros(len: usize) -> Self {
        const LINE: usize = 64;
        let values = vec![T::default(); len + LINE / size_of::<T>()];
        let skip = values.as_ptr().align_offset(LINE).min(LINE / size_of::<T>());
        Self { values, skip, len }
    }
}

impl<T> std::ops::Deref for Aligned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.values[self.skip..self.skip + self.len]
    }
}

impl<T> std::ops::DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[self.skip..self.skip + self.len]
    }
}

/// Points as passed to the kernel: for some translation-invariant kernels, relative to a centre.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) points: &'a Points,
    pub(crate) centre: Option<&'a [f64]>,
}

impl View<'_> {
    /// Writes point `i` to `out[k·stride]`, k = 0 … d − 1, which must be zero for features that the point does not
    /// store.
    fn scatter<T: SimdScalar>(&self, i: usize, out: &mut [T], stride: usize) {
        fn dense<T: SimdScalar, S: Real>(row: &[S], centre: Option<&[f64]>, out: &mut [T], stride: usize) {
            let lines = out.chunks_mut(stride);
            match centre {
                Some(centre) => lines
                    .zip(row)
                    .zip(centre)
                    .for_each(|((line, x), centre)| line[0] = T::from_f64(x.to_f64() - centre)),
                None => lines.zip(row).for_each(|(line, x)| line[0] = T::from_f64(x.to_f64())),
            }
        }
        match self.points.storage() {
            Storage::DenseF32(m) => dense(m.row(i), self.centre, out, stride),
            Storage::DenseF64(m) => dense(m.row(i), self.centre, out, stride),
            _ => {
                if let Some(centre) = self.centre {
                    out.chunks_mut(stride).zip(centre).for_each(|(line, c)| line[0] = T::from_f64(-c));
                    self.points.visit(i, |k, x| out[k * stride] = T::from_f64(x - centre[k]));
                } else {
                    self.points.visit(i, |k, x| out[k * stride] = T::from_f64(x));
                }
            }
        }
    }

    /// Packs up to `width` points side by side: `out[k·width + j]` is feature k of point `index(j)`, and their squared
    /// norms.
    fn pack<T: SimdScalar>(
        &self,
        level: Level,
        width: usize,
        count: usize,
        index: impl Fn(usize) -> usize,
        out: &mut [T],
        norms: &mut [T],
    ) {
        if self.points.dims() == 0 {
            norms[..width].fill(T::default());
            return;
        }
        match self.points.storage() {
            Storage::DenseF32(m) => interleave(width, count, |j| m.row(index(j)), self.centre, out),
            Storage::DenseF64(m) => interleave(width, count, |j| m.row(index(j)), self.centre, out),
            _ => {
                out.fill(T::default());
                for j in 0..count {
                    self.scatter(index(j), &mut out[j..], width);
                }
            }
        }
        squared_norms(level, self.points.dims(), width, out, norms);
    }
}

/// Transposes rows into `out`, sixteen features at a time so that the lines written stay in the first-level cache.
fn interleave<'a, T: SimdScalar, S: Real>(
    width: usize,
    count: usize,
    row: impl Fn(usize) -> &'a [S],
    centre: Option<&[f64]>,
    out: &mut [T],
) {
    const WIDEST: usize = 32;
    const STEP: usize = 16;
    let mut rows: [&[S]; WIDEST] = [&[]; WIDEST];
    for (j, slot) in rows[..count].iter_mut().enumerate() {
        *slot = row(j);
    }
    if count < width {
        out.fill(T::default());
    }
    let d = rows[0].len();
    for from in (0..d).step_by(STEP) {
        let until = (from + STEP).min(d);
        let lines = &mut out[from * width..until * width];
        for (j, row) in rows[..count].iter().enumerate() {
            let part = &row[from..until];
            match centre {
                Some(centre) => {
                    for ((line, x), c) in lines.chunks_exact_mut(width).zip(part).zip(&centre[from..until]) {
                        line[j] = T::from_f64(x.to_f64() - c);
                    }
                }
                None => {
                    for (line, x) in lines.chunks_exact_mut(width).zip(part) {
                        line[j] = T::from_f64(x.to_f64());
                    }
                }
            }
        }
    }
}

/// Squared norms by exactly the chain of operations of the register tiles.
fn squared_norms<T: SimdScalar>(level: Level, d: usize, width: usize, values: &[T], norms: &mut [T]) {
    #[inline(always)]
    fn all<T: SimdScalar, const FMA: bool>(d: usize, width: usize, values: &[T], norms: &mut [T]) {
        let step = chain(d);
        norms[..width].fill(T::default());
        let mut sums = [T::default(); 32];
        let sums = &mut sums[..width];
        for piece in values[..d * width].chunks(step * width) {
            sums.fill(T::default());
            for line in piece.chunks_exact(width) {
                for (sum, x) in sums.iter_mut().zip(line) {
                    *sum = T::fma::<FMA>(*x, *x, *sum);
                }
            }
            for (norm, sum) in norms.iter_mut().zip(sums.iter()) {
                *norm = T::plus(*norm, *sum);
            }
        }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn fused<T: SimdScalar>(d: usize, width: usize, values: &[T], norms: &mut [T]) {
        all::<T, true>(d, width, values, norms);
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: both levels imply AVX2 and FMA.
        Level::Avx2 | Level::Avx512 => unsafe { fused(d, width, values, norms) },
        _ => all::<T, PORTABLE_FMA>(d, width, values, norms),
    }
}

/// Columns packed in panels of `NR`, padded with zeros.
pub(crate) struct Panels<T> {
    values: Aligned<T>,
    norms: Aligned<T>,
    n: usize,
    d: usize,
}

impl<T: SimdScalar> Panels<T> {
    /// Packs every point.
    pub(crate) fn new(view: View<'_>, level: Level, control: &Control) -> Result<Self, Interrupt> {
        /// Panels that a task packs.
        const SHARE: usize = 4;
        let (n, d) = (view.points.len(), view.points.dims());
        let panels = n.div_ceil(T::NR);
        let mut values = Aligned::<T>::zeros(panels * d * T::NR);
        let mut norms = Aligned::<T>::zeros(panels * T::NR);
        let parts = values.chunks_mut((SHARE * d * T::NR).max(1)).zip(norms.chunks_mut(SHARE * T::NR));
        each_part(control, parts.collect(), |t, (values, norms)| {
            for (p, norms) in norms.chunks_mut(T::NR).enumerate() {
                let from = (t * SHARE + p) * T::NR;
                let values = &mut values[p * d * T::NR..(p + 1) * d * T::NR];
                view.pack(level, T::NR, T::NR.min(n - from), |j| from + j, values, norms);
            }
        })?;
        Ok(Self { values, norms, n, d })
    }

    /// Packs one panel of listed points.
    pub(crate) fn gather(view: View<'_>, level: Level, list: &[u32], values: &mut [T], norms: &mut [T]) {
        view.pack(level, T::NR, list.len(), |j| list[j] as usize, values, norms);
    }

    /// `count` panels from `first`.
    pub(crate) fn run(&self, first: usize, count: usize) -> super::tile::PanelRun<'_, T> {
        let line = self.d * T::NR;
        super::tile::PanelRun {
            values: &self.values[first * line..(first + count) * line],
            norms: &self.norms[first * T::NR..(first + count) * T::NR],
            count,
            columns: LaneColumns::From { first: first * T::NR, count: (count * T::NR).min(self.n - first * T::NR) },
            bytes: super::byte_columns::ByteRun::default(),
        }
    }
}

/// Requested rows, packed in groups of [`GROUP`]; the last group has height 1, 2, 4 or 8, padded with zeros.
pub(crate) struct PackedRows<T> {
    values: Aligned<T>,
    norms: Vec<T>,
    numbers: Vec<u32>,
    d: usize,
}

impl<T: SimdScalar> PackedRows<T> {
    /// Packs the points `index(0 .. count)`.
    pub(crate) fn new(view: View<'_>, level: Level, count: usize, index: impl Fn(usize) -> usize) -> Self {
        let d = view.points.dims();
        let padded = count / GROUP * GROUP + Self::height(count % GROUP);
        let numbers: Vec<u32> = (0..count).map(|i| index(i) as u32).collect();
        let mut packed = Self { values: Aligned::zeros(padded * d), norms: vec![T::default(); padded], numbers, d };
        for first in (0..count).step_by(GROUP) {
            let wanted = GROUP.min(count - first);
            let height = if wanted == GROUP { GROUP } else { Self::height(wanted) };
            let values = &mut packed.values[first * d..(first + height) * d];
            let norms = &mut packed.norms[first..first + height];
            view.pack(level, height, wanted, |i| packed.numbers[first + i] as usize, values, norms);
        }
        packed
    }

    /// Height of a group that holds `rows < GROUP` rows.
    fn height(rows: usize) -> usize {
        if rows == 0 { 0 } else { rows.next_power_of_two() }
    }

    /// Number of rows, padding not counted.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.numbers.len().div_ceil(GROUP)
    }

    /// Values (`d` lines of the group's height) and height of group `g`.
    pub(crate) fn group(&self, g: usize) -> (&[T], usize) {
        let first = g * GROUP;
        let height = GROUP.min(self.norms.len() - first);
        (&self.values[first * self.d..(first + height) * self.d], height)
    }

    /// Indices of the points.
    pub(crate) fn indices(&self) -> &[u32] {
        &self.numbers
    }

    /// Squared norms, padding included.
    pub(crate) fn norms(&self) -> &[T] {
        &self.norms
    }
}
