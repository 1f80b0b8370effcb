//! K over rows that are read in blocks: the entries of a block are computed by the backend while the next one is read.
//!
//! Only some blocks are in memory at a time. Products with all rows read the blocks in order; selections of rows read the
//! blocks that contain them, of which the last few stay decoded, because callers go through rows in ascending order and
//! in small pieces.

use std::sync::{Arc, Mutex, PoisonError};

use super::cpu;
use crate::control::{Control, Interrupt};
use crate::data::{Points, Scaling};
use crate::error::{Error, Result};
use crate::gram::{Accuracy, Chain, Gram, Matrix, Pick, Precision};
use crate::kernel::Kernel;

/// Blocks that stay decoded, besides one for each thread: parallel loops over rows are at as many places at once.
const RECENT: usize = 2;

/// The rows of a training: in memory, or read in blocks.
#[derive(Clone)]
pub enum RowSource<'a> {
    /// In memory.
    Memory(Points),
    /// Read in blocks.
    Stream(Arc<RowStream<'a>>),
}

impl<'a> RowSource<'a> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(points) => points.len(),
            Self::Stream(stream) => stream.matrix.rows(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows themselves, if they are in memory.
    pub fn points(&self) -> Option<&Points> {
        match self {
            Self::Memory(points) => Some(points),
            Self::Stream(_) => None,
        }
    }

    /// A copy of the chosen rows, in the order given.
    pub fn gather(&self, rows: &[u32], control: &Control) -> Result<Points, Interrupt> {
        match self {
            Self::Memory(points) => Ok(points.gather(rows)),
            Self::Stream(stream) => stream.gather(rows, control),
        }
    }

    /// k(x, z) of every row x and every point z.
    pub fn gram(&self, kernel: Kernel, points: &Points, control: &Control) -> Result<Box<dyn Gram + 'a>> {
        match self {
            Self::Memory(rows) => Ok(control.backend().gram(kernel, rows, points)?),
            Self::Stream(stream) => stream.gram(kernel, Side::Columns(points.clone()), control),
        }
    }

    /// The same transposed: k(z, x) of every point z and every row x.
    pub fn transposed_gram(&self, kernel: Kernel, points: &Points, control: &Control) -> Result<Box<dyn Gram + 'a>> {
        match self {
            Self::Memory(rows) => Ok(control.backend().gram(kernel, points, rows)?),
            Self::Stream(stream) => stream.gram(kernel, Side::Rows(points.clone()), control),
        }
    }

    /// K over all pairs of rows.
    pub fn square_gram(&self, kernel: Kernel, control: &Control) -> Result<Box<dyn Gram + 'a>> {
        match self {
            Self::Memory(rows) => Ok(control.backend().square_gram(kernel, rows)?),
            Self::Stream(stream) => stream.gram(kernel, Side::Same, control),
        }
    }
}

/// Rows read in blocks, scaled on the way.
pub struct RowStream<'a> {
    matrix: &'a dyn Matrix,
    scaling: Option<Scaling>,
    /// First row of each block, and the number of rows.
    starts: Vec<usize>,
    /// Every block in order.
    order: Vec<u32>,
    /// Most values stored for one row, and the largest ‖x‖₁.
    longest: usize,
    absolute: f64,
    /// The last blocks that were read out of order, the newest last, and how many stay.
    recent: Mutex<Vec<(usize, Points)>>,
    remembered: usize,
}

impl<'a> RowStream<'a> {
    /// The rows of `matrix`, each scaled by `scaling`; they are read once. Fails if `matrix` is not one that is read in blocks.
    pub fn new(matrix: &'a dyn Matrix, scaling: Option<Scaling>, control: &Control) -> Result<Self> {
        let mut starts: Vec<usize> = (0..matrix.blocks()).map(|block| matrix.block_start(block)).collect();
        if starts.is_empty() {
            return Err(Error::data("there are no blocks of rows to read"));
        }
        let order = (0..starts.len() as u32).collect();
        starts.push(matrix.rows());
        let remembered = RECENT + control.threads.count();
        let recent = Mutex::default();
        let mut stream = Self { matrix, scaling, starts, order, longest: 0, absolute: 0.0, recent, remembered };
        let (mut longest, mut absolute) = (0, 0.0f64);
        stream.each(control, |_, points| {
            for i in 0..points.len() {
                let (mut stored, mut sum) = (0, 0.0);
                points.visit(i, |_, v| {
                    stored += 1;
                    sum += v.abs();
                });
                longest = longest.max(stored);
                absolute = absolute.max(sum);
            }
            Ok(())
        })?;
        (stream.longest, stream.absolute) = (longest, absolute);
        Ok(stream)
    }

    fn gram(self: &Arc<Self>, kernel: Kernel, other: Side, control: &Control) -> Result<Box<dyn Gram + 'a>> {
        kernel.check()?;
        if matches!(kernel, Kernel::Precomputed) {
            return Err(Error::data("a precomputed kernel has no rows that could be read in blocks"));
        }
        let mut norms = Vec::new();
        let mut relative = cpu::largest_double_error(&kernel, self.matrix.dims(), self.longest, self.absolute);
        if matches!(other, Side::Same) {
            let some = self.block(0, control)?.gather(&[0]);
            relative = relative.max(control.backend().square_gram(kernel, &some)?.accuracy().relative);
            // Only kernels whose k(x, x) differs need norms, and only some are not for every point.
            let mut fault = None;
            if !kernel.unit_diagonal() || matches!(kernel, Kernel::Chi2 { .. }) {
                self.each(control, |_, points| {
                    fault = fault.take().or(kernel.check_points(points).err());
                    norms.extend_from_slice(points.squared_norms());
                    Ok(())
                })?;
            }
            if let Some(fault) = fault {
                return Err(fault);
            }
        }
        let gram = StreamedGram {
            stream: self.clone(),
            kernel,
            other,
            norms,
            relative,
            entries: Mutex::new(0),
            recent: Mutex::default(),
        };
        Ok(Box::new(gram))
    }

    fn scaled(&self, points: &Points) -> Points {
        match &self.scaling {
            // The number of features was checked when the scaling was found.
            Some(scaling) => scaling.apply(points).unwrap_or_else(|_| points.clone()),
            None => points.clone(),
        }
    }

    /// Calls `work(first row, rows)` for every block in order.
    pub fn each(
        &self,
        control: &Control,
        mut work: impl FnMut(usize, &Points) -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        self.matrix.each_block(&self.order, control, &mut |first, points| work(first, &self.scaled(points)))
    }

    /// The block with the given number.
    fn block(&self, number: usize, control: &Control) -> Result<Points, Interrupt> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, points)) = recent.iter().find(|(of, _)| *of == number) {
            return Ok(points.clone());
        }
        let mut found = None;
        self.matrix.each_block(&[number as u32], control, &mut |_, points| {
            found = Some(self.scaled(points));
            Ok(())
        })?;
        let points = found.ok_or(Interrupt::Cancelled)?;
        self.remember(&mut recent, number, points.clone());
        Ok(points)
    }

    /// Which of the rows each block has: `work(block, places among the rows, rows within the block)`. Rows are ascending.
    fn split(
        &self,
        rows: Pick<'_>,
        mut work: impl FnMut(usize, std::ops::Range<usize>, Pick<'_>) -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        let n = self.matrix.rows();
        let count = rows.len(n);
        let mut at = 0;
        while at < count {
            let row = rows.get(at);
            let block = self.starts.partition_point(|start| *start <= row) - 1;
            let (first, end) = (self.starts[block], self.starts[block + 1]);
            let until = match rows {
                Pick::All | Pick::Range(..) => (at + end - row).min(count),
                Pick::List(list) => at + list[at..].partition_point(|&i| (i as usize) < end),
            };
            let local: Vec<u32>;
            let within = match rows {
                Pick::List(list) => {
                    local = list[at..until].iter().map(|&i| i - first as u32).collect();
                    Pick::List(&local)
                }
                _ => Pick::Range(row - first, row - first + until - at),
            };
            work(block, at..until, within)?;
            at = until;
        }
        Ok(())
    }

    /// Adds to the blocks that are remembered, in place of the oldest.
    fn remember<T>(&self, recent: &mut Vec<(usize, T)>, number: usize, what: T) {
        if recent.len() >= self.remembered {
            recent.remove(0);
        }
        recent.push((number, what));
    }

    fn gather(&self, rows: &[u32], control: &Control) -> Result<Points, Interrupt> {
        if rows.is_empty() {
            let block = self.block(0, control)?;
            return Ok(block.gather(&[]));
        }
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        order.sort_by_key(|&k| rows[k as usize]);
        let sorted: Vec<u32> = order.iter().map(|&k| rows[k as usize]).collect();
        let mut parts = Vec::new();
        self.split(Pick::List(&sorted), |block, _, within| {
            control.check()?;
            let Pick::List(list) = within else { return Ok(()) };
            parts.push(self.block(block, control)?.gather(list));
            Ok(())
        })?;
        let all = Points::concat(&parts);
        if order.is_sorted() {
            return Ok(all);
        }
        let mut place = vec![0u32; rows.len()];
        order.iter().enumerate().for_each(|(at, &k)| place[k as usize] = at as u32);
        Ok(all.gather(&place))
    }
}

/// What the rows of a stream are compared with.
enum Side {
    /// With points, as the columns of K.
    Columns(Points),
    /// With points, as the rows of K.
    Rows(Points),
    /// With each other.
    Same,
}

/// K of streamed rows and points in memory, or of all pairs of streamed rows.
struct StreamedGram<'a> {
    stream: Arc<RowStream<'a>>,
    kernel: Kernel,
    other: Side,
    /// ‖x‖² of every row, if k(x, x) is not 1 everywhere.
    norms: Vec<f64>,
    /// As in [`Accuracy`].
    relative: f64,
    entries: Mutex<u64>,
    /// K of the last blocks and the columns.
    recent: Mutex<Vec<(usize, Arc<dyn Gram>)>>,
}

impl StreamedGram<'_> {
    fn n(&self) -> usize {
        self.stream.matrix.rows()
    }

    /// K of points in memory, whose entries are counted here.
    fn of(&self, rows: &Points, cols: &Points, control: &Control) -> Result<Box<dyn Gram>, Interrupt> {
        // Kernel and points were checked before; what is left is data that a kernel does not allow.
        control.backend().gram(self.kernel, rows, cols).map_err(|_| Interrupt::Cancelled)
    }

    fn count(&self, entries: u64) {
        *self.entries.lock().unwrap_or_else(PoisonError::into_inner) += entries;
    }

    /// K of one block and the columns.
    fn with_columns(&self, block: usize, cols: &Points, control: &Control) -> Result<Arc<dyn Gram>, Interrupt> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, gram)) = recent.iter().find(|(of, _)| *of == block) {
            return Ok(gram.clone());
        }
        let points = self.stream.block(block, control)?;
        let gram: Arc<dyn Gram> = Arc::from(self.of(&points, cols, control)?);
        self.stream.remember(&mut recent, block, gram.clone());
        Ok(gram)
    }

    /// A block of entries: `fill` computes those of some rows in memory.
    fn block<T: Copy>(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [T],
        fill: impl Fn(&dyn Gram, Pick<'_>, Pick<'_>, &mut [T]) -> Result<(), Interrupt>,
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.count(out.len() as u64);
        let (height, width) = self.shape();
        let width = cols.len(width);
        if out.is_empty() {
            return control.check();
        }
        let list: Vec<u32>;
        match &self.other {
            Side::Columns(points) if is_ascending(rows) => self.stream.split(rows, |block, at, within| {
                let gram = self.with_columns(block, points, control)?;
                fill(gram.as_ref(), within, cols, &mut out[at.start * width..at.end * width])
            }),
            Side::Columns(points) => {
                list = listed(rows, height);
                let gram = self.of(&self.stream.gather(&list, control)?, points, control)?;
                fill(gram.as_ref(), Pick::All, cols, out)
            }
            Side::Rows(points) => {
                list = listed(cols, self.n());
                let gram = self.of(points, &self.stream.gather(&list, control)?, control)?;
                fill(gram.as_ref(), rows, Pick::All, out)
            }
            Side::Same => {
                let points = |of: Pick<'_>| self.stream.gather(&listed(of, height), control);
                let gram = self.of(&points(rows)?, &points(cols)?, control)?;
                fill(gram.as_ref(), Pick::All, Pick::All, out)
            }
        }
    }

    /// `out = K(points, rows)·V`, block by block: blocks without a coefficient are not needed.
    fn apply_rows(
        &self,
        precision: Precision,
        points: &Points,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        out.fill(0.0);
        let starts = &self.stream.starts;
        let used: Vec<u32> = (0..starts.len() as u32 - 1)
            .filter(|&b| v[starts[b as usize] * k..starts[b as usize + 1] * k].iter().any(|v| *v != 0.0))
            .collect();
        let mut part = vec![0.0; out.len()];
        self.stream.matrix.each_block(&used, control, &mut |first, block| {
            let block = self.stream.scaled(block);
            let gram = self.of(points, &block, control)?;
            gram.apply(precision, Pick::All, &v[first * k..(first + block.len()) * k], k, &mut part, control)?;
            out.iter_mut().zip(&part).for_each(|(o, p)| *o += p);
            self.count(gram.entries());
            Ok(())
        })
    }
}

/// Whether rows are in ascending order.
fn is_ascending(rows: Pick<'_>) -> bool {
    match rows {
        Pick::List(list) => list.is_sorted(),
        _ => true,
    }
}

/// The selected rows as a list.
fn listed(rows: Pick<'_>, n: usize) -> Vec<u32> {
    (0..rows.len(n)).map(|k| rows.get(k) as u32).collect()
}

impl Gram for StreamedGram<'_> {
    fn shape(&self) -> (usize, usize) {
        match &self.other {
            Side::Columns(points) => (self.n(), points.len()),
            Side::Rows(points) => (points.len(), self.n()),
            Side::Same => (self.n(), self.n()),
        }
    }

    fn diag(&self) -> Vec<f64> {
        if self.kernel.unit_diagonal() {
            return vec![1.0; self.n()];
        }
        self.norms.iter().map(|s| self.kernel.of_statistic(*s)).collect()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        self.block(rows, cols, out, |gram, rows, cols, out| gram.block_f32(rows, cols, out, control), control)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.block(rows, cols, out, |gram, rows, cols, out| gram.block_f64(rows, cols, out, control), control)
    }

    fn apply(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let (height, width) = self.shape();
        assert_eq!((v.len(), out.len()), (width * k, rows.len(height) * k), "V is m × k and the output rows × k");
        match (&self.other, rows) {
            (Side::Columns(points), Pick::All) => self.stream.each(control, |first, block| {
                let gram = self.of(block, points, control)?;
                let out = &mut out[first * k..(first + block.len()) * k];
                gram.apply(precision, Pick::All, v, k, out, control)?;
                self.count(gram.entries());
                Ok(())
            }),
            (Side::Columns(points), _) if is_ascending(rows) => self.stream.split(rows, |block, at, within| {
                control.check()?;
                let gram = self.with_columns(block, points, control)?;
                self.count((at.len() * points.len()) as u64);
                gram.apply(precision, within, v, k, &mut out[at.start * k..at.end * k], control)
            }),
            (Side::Columns(points), _) => {
                let chosen = self.stream.gather(&listed(rows, height), control)?;
                let gram = self.of(&chosen, points, control)?;
                gram.apply(precision, Pick::All, v, k, out, control)?;
                self.count(gram.entries());
                Ok(())
            }
            (Side::Rows(points), Pick::All) => self.apply_rows(precision, points, v, k, out, control),
            (Side::Rows(points), _) => {
                self.apply_rows(precision, &points.gather(&listed(rows, height)), v, k, out, control)
            }
            (Side::Same, _) => {
                let chosen = self.stream.gather(&listed(rows, height), control)?;
                self.apply_rows(precision, &chosen, v, k, out, control)
            }
        }
    }

    fn entries(&self) -> u64 {
        *self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn effort(&self) -> f64 {
        (self.stream.matrix.stored() as f64 / self.n().max(1) as f64).max(1.0)
    }

    fn accuracy(&self) -> Accuracy {
        let size = match self.kernel.unit_diagonal() {
            true => vec![1.0; self.n()],
            false => self.norms.iter().map(|s| cpu::size_of(&self.kernel, *s)).collect(),
        };
        let blocks = self.stream.order.len() as f64;
        let chain = Chain { fixed: Chain::default().fixed + blocks, ..Chain::default() };
        Accuracy { size, relative: self.relative, definite: self.kernel.is_definite(), chain }
    }
}

#[cfg(test)]
#[path = "streamed_tests.rs"]
mod tests;
