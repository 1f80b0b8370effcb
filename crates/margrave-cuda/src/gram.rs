//! Kernel entries and products on a card.
//!
//! A request is cut into slices of rows that take a few milliseconds each, so that an interrupt is noticed. Slices do
//! not change any bit of the result: an entry depends on its two points alone, and the columns of a product are added up in a
//! fixed order (gram.cu).
//!
//! A card may fail in the middle of a run (another program takes its memory, the driver is restarted). The rest is then
//! computed on the processor, and [`CudaBackend::failure`](crate::CudaBackend::failure) says what happened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use margrave_core::backend::Device;
use margrave_core::control::{Control, Interrupt};
use margrave_core::data::Points;
use margrave_core::error::{Error, Result};
use margrave_core::gram::{
    Accuracy, Chain, DeviceFactored, DeviceFeatures, DeviceSolver, Gram, KeptGram, Pick, PivotedFactor, Precision,
};
use margrave_core::kernel::{Kernel, Statistic};
use margrave_core::linalg::factor::Cholesky;

use crate::arithmetic::{Arithmetic, KernelArgument};
use crate::driver::{Buffer, Card, Plain, Turn, arguments};
use crate::error::CudaError;
use crate::phases::phase;
use crate::points::{DevicePoints, Lazy, Raw, Side};
use crate::ptx::Module;
use crate::wide::{self, WidePoints};

/// Rows and columns of a tile: `TILE` of gram.cu.
pub(crate) const TILE: u32 = 64;
/// Threads of a block: `THREADS` of gram.cu.
const THREADS: u32 = 256;
/// Columns that one block adds up: `TILE`·`TILES` of gram.cu.
const SPLIT: u32 = 1024;
/// Columns of V that one launch multiplies.
const WIDTH: usize = 8;
/// Bytes of results that are kept on the card at a time.
const RESULTS: usize = 128 << 20;
/// Seconds that one slice should take.
const SLICE: f64 = 0.01;
/// Multiply–adds of the first slice.
const FIRST: f64 = 4e10;
/// Memory on the card that is left for programs and results.
const SPARE: u64 = 512 << 20;

/// How a request on a card ended, if not well.
pub(crate) enum Stop {
    Interrupt(Interrupt),
    Failure(CudaError),
}

impl From<Interrupt> for Stop {
    fn from(why: Interrupt) -> Self {
        Stop::Interrupt(why)
    }
}

impl From<CudaError> for Stop {
    fn from(error: CudaError) -> Self {
        Stop::Failure(error)
    }
}

/// The Gram of a kernel over points, rows × columns, on a card.
pub(crate) struct CudaGram {
    pub(crate) card: &'static Card,
    pub(crate) kernel: Kernel,
    pub(crate) rows: Points,
    pub(crate) cols: Points,
    pub(crate) square: bool,
    pub(crate) arithmetic: Arithmetic,
    rows32: Lazy<DevicePoints<f32>>,
    cols32: Lazy<DevicePoints<f32>>,
    rows64: Lazy<DevicePoints<f64>>,
    cols64: Lazy<DevicePoints<f64>>,
    rows_wide: Lazy<WidePoints>,
    cols_wide: Lazy<WidePoints>,
    /// Takes over if the card fails.
    processor: OnceLock<Box<dyn Gram>>,
    pub(crate) entries: Arc<AtomicU64>,
    pub(crate) above: Vec<Arc<AtomicU64>>,
}

impl std::fmt::Debug for CudaGram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (n, m) = self.shape();
        write!(f, "CudaGram({}, {n} × {m}, {})", self.kernel, self.card.info.name)
    }
}

/// The speed of a card in this request, to cut slices by.
struct Pace {
    multiplies: f64,
    begun: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { multiplies: FIRST, begun: Instant::now() }
    }

    /// Rows of the next slice, if a row takes `each` multiply–adds: a multiple of the tile.
    fn rows(&mut self, each: f64, most: usize) -> usize {
        self.begun = Instant::now();
        let step = 2 * TILE as usize;
        let rows = (self.multiplies / each.max(1.0)) as usize / step * step;
        rows.clamp(TILE as usize, most.max(1))
    }

    /// After a slice of so many multiply–adds.
    fn note(&mut self, done: f64) {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-6);
        self.multiplies = (done / seconds * SLICE).clamp(1e6, 4.0 * self.multiplies);
    }
}

impl CudaGram {
    /// K(xᵢ, xⱼ) over one set of points.
    pub(crate) fn square(card: &'static Card, kernel: Kernel, points: &Points) -> Result<Self> {
        Self::build(card, kernel, points, points, true)
    }

    /// K(xᵢ, x′ⱼ): rows against columns.
    pub(crate) fn new(card: &'static Card, kernel: Kernel, rows: &Points, cols: &Points) -> Result<Self> {
        Self::build(card, kernel, rows, cols, false)
    }

    fn build(card: &'static Card, kernel: Kernel, rows: &Points, cols: &Points, square: bool) -> Result<Self> {
        kernel.check()?;
        if kernel.statistic() == Statistic::Lookup {
            return Err(Error::data("a precomputed kernel has no entries to compute: use PrecomputedGram"));
        }
        if rows.dims() != cols.dims() {
            return Err(Error::Shape { what: "number of features", expected: cols.dims(), found: rows.dims() });
        }
        kernel.check_points(rows)?;
        if !square {
            kernel.check_points(cols)?;
        }
        let arithmetic = phase("choose the arithmetic", 0.0, None, || Arithmetic::choose(&kernel, rows, cols, square));
        let sides: &[&Points] = if square { &[cols] } else { &[rows, cols] };
        let each = |points: &&Points| {
            let double = match arithmetic.wide {
                Some(_) => WidePoints::bytes(points) + DevicePoints::<f64>::bytes(points),
                None => DevicePoints::<f64>::bytes(points),
            };
            let single = arithmetic.single || (square && arithmetic.solvable);
            double + if single { DevicePoints::<f32>::bytes(points) } else { 0 }
        };
        let needed = sides.iter().map(each).sum::<u64>() + SPARE;
        let free = card.enter()?.free_memory()?;
        if needed > free {
            return Err(CudaError::Memory { what: "the points", needed, free }.into());
        }
        Ok(Self {
            card,
            kernel,
            rows: rows.clone(),
            cols: cols.clone(),
            square,
            arithmetic,
            rows32: Lazy::default(),
            cols32: Lazy::default(),
            rows64: Lazy::default(),
            cols64: Lazy::default(),
            rows_wide: Lazy::default(),
            cols_wide: Lazy::default(),
            processor: OnceLock::new(),
            entries: Arc::new(AtomicU64::new(0)),
            above: Vec::new(),
        })
    }

    /// The same Gram on the processor.
    fn processor(&self) -> &dyn Gram {
        let make = || {
            let backend = Device::Cpu.backend();
            let gram = match self.square {
                true => backend.square_gram(self.kernel, &self.rows),
                false => backend.gram(self.kernel, &self.rows, &self.cols),
            };
            gram.expect("the kernel and the points were checked when this Gram was made")
        };
        self.processor.get_or_init(make).as_ref()
    }

    pub(crate) fn count(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.above.iter().for_each(|counter| {
            counter.fetch_add(entries, Ordering::Relaxed);
        });
    }

    /// The points of both sides in single precision.
    pub(crate) fn sides_f32(&self, turn: &Turn<'_>) -> Result<[Arc<DevicePoints<f32>>; 2], CudaError> {
        let centre = self.arithmetic.centre.as_deref();
        let make = |points: &Points| match centre {
            Some(_) => Raw::new(turn, points)?.centred(turn, points, centre),
            None => DevicePoints::new(turn, points),
        };
        self.sides(&self.rows32, &self.cols32, make)
    }

    /// The points of both sides in double precision.
    pub(crate) fn sides_f64(&self, turn: &Turn<'_>) -> Result<[Arc<DevicePoints<f64>>; 2], CudaError> {
        self.sides(&self.rows64, &self.cols64, |points| DevicePoints::new(turn, points))
    }

    /// The points of both sides for products in double precision by tensor cores, where those are accurate enough.
    pub(crate) fn sides_wide(&self, turn: &Turn<'_>) -> Result<Option<[Arc<WidePoints>; 2]>, CudaError> {
        if self.arithmetic.wide.is_none() {
            return Ok(None);
        }
        let centre = self.arithmetic.centre.as_deref();
        let make = |points: &Points| WidePoints::new(turn, &Raw::new(turn, points)?, centre);
        self.sides(&self.rows_wide, &self.cols_wide, make).map(Some)
    }

    /// The points of a square Gram in both precisions, copied to the card once.
    pub(crate) fn prepare(&self, turn: &Turn<'_>) -> Result<(), CudaError> {
        let centre = self.arithmetic.centre.as_deref();
        if self.arithmetic.wide.is_some() && centre.is_some() {
            let raw = Raw::new(turn, &self.cols)?;
            self.cols32.get(|| raw.centred(turn, &self.cols, centre))?;
            self.cols_wide.get(|| WidePoints::new(turn, &raw, centre))?;
        }
        Ok(())
    }

    fn sides<P>(
        &self,
        rows: &Lazy<P>,
        cols: &Lazy<P>,
        make: impl Fn(&Points) -> Result<P, CudaError>,
    ) -> Result<[Arc<P>; 2], CudaError> {
        let right = cols.get(|| make(&self.cols))?;
        let left = if self.square { Arc::clone(&right) } else { rows.get(|| make(&self.rows))? };
        Ok([left, right])
    }

    /// Multiply–adds per entry.
    fn work(&self) -> f64 {
        let stored = self.rows.stored() as f64 / self.rows.len().max(1) as f64;
        let sparse = self.rows.is_sparse() || self.cols.is_sparse();
        // A chunk of 16 features is computed as a whole wherever one row of a tile has a value.
        if sparse { (32.0 * stored).min(self.cols.dims() as f64) + 50.0 } else { self.cols.dims() as f64 + 50.0 }
    }

    /// Runs `on_card`, and `on_processor` if the card has failed.
    fn with_fallback<O: ?Sized>(
        &self,
        out: &mut O,
        on_card: impl FnOnce(&mut O) -> std::result::Result<(), Stop>,
        on_processor: impl FnOnce(&dyn Gram, &mut O) -> std::result::Result<(), Interrupt>,
    ) -> std::result::Result<(), Interrupt> {
        match on_card(out) {
            Ok(()) => Ok(()),
            Err(Stop::Interrupt(why)) => Err(why),
            Err(Stop::Failure(error)) => {
                self.card.note(&error);
                on_processor(self.processor(), out)
            }
        }
    }

    fn block<O: Plain + Default>(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [O],
        control: &Control,
    ) -> std::result::Result<(), Stop> {
        control.check()?;
        let (n, m) = self.shape();
        let (height, width) = (rows.len(n), cols.len(m));
        assert_eq!(out.len(), height * width, "one number per entry");
        if out.is_empty() {
            return Ok(());
        }
        control.spend(out.len() * (self.effort() / 4.0) as usize + 1000);
        let turn = self.card.enter()?;
        let (argument, statistic) = KernelArgument::of(&self.kernel);
        let single = precision == Precision::Single && self.arithmetic.single;
        let row_list = list(&turn, rows, height)?;
        let col_list = list(&turn, cols, width)?;
        let sides = if single {
            let [a, b] = self.sides_f32(&turn)?;
            SidePair { a: Either::Single(a), b: Either::Single(b) }
        } else {
            let [a, b] = self.sides_f64(&turn)?;
            SidePair { a: Either::Double(a), b: Either::Double(b) }
        };
        let (module, suffix) = if single { (Module::GramF32, "f32") } else { (Module::GramF64, "f64") };
        let function = turn.function(module, &format!("block_{statistic}_{suffix}"), 0)?;
        let most = (RESULTS / (width * size_of::<O>())).max(1);
        let result: Buffer<O> = turn.allocate(most.min(height) * width, "a block of the Gram matrix")?;
        let narrow = u32::from(size_of::<O>() == 4);
        let (mut pace, mut at) = (Pace::new(), 0);
        let each = width as f64 * self.work();
        while at < height {
            control.check()?;
            let count = pace.rows(each, most).min(height - at);
            let a = sides.a.side(row_list.as_ref(), rows, at, count);
            let b = sides.b.side(col_list.as_ref(), cols, 0, width);
            let grid = (count as u32).div_ceil(TILE) * (width as u32).div_ceil(TILE);
            // SAFETY: the arguments are those of `block` in gram.cu; `result` has room for count × width numbers.
            unsafe {
                turn.launch(function, (grid, 1), THREADS, 0, arguments![a, b, argument, result.address(), narrow])?;
            }
            turn.read(&result, 0, &mut out[at * width..(at + count) * width])?;
            pace.note(count as f64 * each);
            at += count;
        }
        self.count(out.len() as u64);
        Ok(())
    }

    /// All entries of a square Gram in single precision, row-major, to `out` on the card.
    pub(crate) fn fill(&self, turn: &Turn<'_>, out: u64) -> Result<(), CudaError> {
        let n = self.cols.len();
        let (argument, statistic) = KernelArgument::of(&self.kernel);
        let single = self.arithmetic.single;
        let side = match single {
            true => Either::Single(Arc::clone(&self.sides_f32(turn)?[1])),
            false => Either::Double(Arc::clone(&self.sides_f64(turn)?[1])),
        };
        let (module, suffix) = if single { (Module::GramF32, "f32") } else { (Module::GramF64, "f64") };
        let function = turn.function(module, &format!("block_{statistic}_{suffix}"), 0)?;
        let all = side.side(None, Pick::All, 0, n);
        let (tiles, narrow) = ((n as u32).div_ceil(TILE), 1u32);
        // SAFETY: the arguments are those of `block` in gram.cu; the caller has room for n × n numbers.
        unsafe { turn.launch(function, (tiles * tiles, 1), THREADS, 0, arguments![all, all, argument, out, narrow])? };
        self.count((n * n) as u64);
        Ok(())
    }

    fn product(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> std::result::Result<(), Stop> {
        control.check()?;
        let (n, m) = self.shape();
        let height = rows.len(n);
        assert_eq!((v.len(), out.len()), (m * k, height * k), "V must be m × k and the output rows × k");
        let active: Vec<u32> =
            (0..m as u32).filter(|&j| v[j as usize * k..(j as usize + 1) * k].iter().any(|x| *x != 0.0)).collect();
        if active.is_empty() || height == 0 {
            out.fill(0.0);
            return Ok(());
        }
        control.spend((height * active.len()) * (self.effort() / 4.0) as usize + 1000);
        let turn = self.card.enter()?;
        if precision == Precision::Double
            && k == 1
            && let Some(sides) = self.sides_wide(&turn)?
        {
            return self.wide_product(&turn, &sides, rows, v, &active, out, control);
        }
        let single = precision == Precision::Single && self.arithmetic.single;
        let sides = if single {
            let [a, b] = self.sides_f32(&turn)?;
            SidePair { a: Either::Single(a), b: Either::Single(b) }
        } else {
            let [a, b] = self.sides_f64(&turn)?;
            SidePair { a: Either::Double(a), b: Either::Double(b) }
        };
        let compact: Vec<f64> =
            active.iter().flat_map(|&j| &v[j as usize * k..(j as usize + 1) * k]).copied().collect();
        let job = Product {
            turn: &turn,
            kernel: &self.kernel,
            single,
            columns: active.len() as u32,
            v: turn.upload(&compact, "the factors of a product")?,
            b: {
                let list = turn.upload(&active, "a list of columns")?;
                let side = sides.b.side(Some(&list), Pick::List(&active), 0, active.len());
                (side, list)
            },
            k,
        };
        let row_list = list(&turn, rows, height)?;
        let splits = (active.len() as u32).div_ceil(SPLIT) as usize;
        let most = (RESULTS / (splits * WIDTH.min(k) * 8)).max(TILE as usize);
        let parts: Buffer<f64> = turn.allocate(most.min(height) * splits * WIDTH.min(k), "sums of a product")?;
        let result: Buffer<f64> = turn.allocate(most.min(height) * k, "the result of a product")?;
        let (mut pace, mut at) = (Pace::new(), 0);
        let each = active.len() as f64 * self.work() * k.div_ceil(WIDTH) as f64;
        while at < height {
            control.check()?;
            let count = pace.rows(each, most).min(height - at);
            job.run(sides.a.side(row_list.as_ref(), rows, at, count), &parts, &result)?;
            turn.read(&result, 0, &mut out[at * k..(at + count) * k])?;
            pace.note(count as f64 * each);
            at += count;
        }
        self.count((height * active.len()) as u64);
        Ok(())
    }
}

impl CudaGram {
    /// out = K[rows, ·]·v in double precision by tensor cores; `active` are the columns with v ≠ 0.
    fn wide_product(
        &self,
        turn: &Turn<'_>,
        [left, right]: &[Arc<WidePoints>; 2],
        rows: Pick<'_>,
        v: &[f64],
        active: &[u32],
        out: &mut [f64],
        control: &Control,
    ) -> std::result::Result<(), Stop> {
        let height = out.len();
        let factors: Vec<f64> = active.iter().map(|&j| v[j as usize]).collect();
        let factors = turn.upload(&factors, "the factors of a product")?;
        let columns = turn.upload(active, "a list of columns")?;
        let b = right.side(Some(&columns), 0, active.len() as u32);
        let row_list = list(turn, rows, height)?;
        let first = if let Pick::Range(from, _) = rows { from } else { 0 };
        let all = left.side(row_list.as_ref(), first as u32, height as u32);
        let splits = active.len().div_ceil(wide::SPLIT as usize);
        let most = (RESULTS / (splits * 8)).max(TILE as usize);
        let parts: Buffer<f64> = turn.allocate(most.min(height) * splits, "sums of a product")?;
        let result: Buffer<f64> = turn.allocate(most.min(height), "the result of a product")?;
        let kernel = KernelArgument::of(&self.kernel).0;
        let (mut pace, mut at) = (Pace::new(), 0);
        let each = active.len() as f64 * self.work();
        while at < height {
            control.check()?;
            let count = pace.rows(each, most).min(height - at);
            wide::product(turn, all.part(at, count), b, kernel, factors.address(), parts.address(), result.address())?;
            turn.read(&result, 0, &mut out[at..at + count])?;
            pace.note(count as f64 * each);
            at += count;
        }
        self.count((height * active.len()) as u64);
        Ok(())
    }
}

/// A product on the card, apart from its rows.
struct Product<'a> {
    turn: &'a Turn<'a>,
    kernel: &'a Kernel,
    single: bool,
    columns: u32,
    v: Buffer<f64>,
    b: (Side, Buffer<u32>),
    k: usize,
}

impl Product<'_> {
    /// result = K[rows, columns]·V.
    fn run(&self, rows: Side, parts: &Buffer<f64>, result: &Buffer<f64>) -> Result<(), CudaError> {
        let (argument, statistic) = KernelArgument::of(self.kernel);
        let (module, suffix) = if self.single { (Module::GramF32, "f32") } else { (Module::GramF64, "f64") };
        let splits = self.columns.div_ceil(SPLIT);
        let count = rows.count();
        let stride = self.k as u32;
        for from in (0..self.k).step_by(WIDTH) {
            let width = WIDTH.min(self.k - from) as u32;
            let name = if width == 1 { "product1" } else { "product8" };
            let function = self.turn.function(module, &format!("{name}_{statistic}_{suffix}"), 0)?;
            let add = self.turn.function(module, &format!("add_parts_{suffix}"), 0)?;
            let v = self.v.address() + 8 * from as u64;
            let out = result.address() + 8 * from as u64;
            // SAFETY: the arguments are those of `product` and `add_parts` in gram.cu; `parts` has room for
            // splits × rows × width numbers and `result` for rows × k.
            unsafe {
                self.turn.launch(
                    function,
                    (count.div_ceil(TILE), splits),
                    THREADS,
                    0,
                    arguments![rows, self.b.0, argument, v, stride, width, parts.address()],
                )?;
                self.turn.launch(
                    add,
                    ((count * width).div_ceil(THREADS), 1),
                    THREADS,
                    0,
                    arguments![parts.address(), splits, count, width, out, stride],
                )?;
            }
        }
        Ok(())
    }
}

/// Points in one of two precisions.
enum Either {
    Single(Arc<DevicePoints<f32>>),
    Double(Arc<DevicePoints<f64>>),
}

struct SidePair {
    a: Either,
    b: Either,
}

impl Either {
    /// `count` of the picked points from `at` on; `list` is the pick on the card, from `at` 0 on.
    fn side(&self, list: Option<&Buffer<u32>>, pick: Pick<'_>, at: usize, count: usize) -> Side {
        let first = if let Pick::Range(from, _) = pick { from } else { 0 } + at;
        let side = match self {
            Either::Single(points) => points.side(list, first as u32, count as u32),
            Either::Double(points) => points.side(list, first as u32, count as u32),
        };
        side.from(at)
    }
}

/// The list of a pick on the card, if it is one.
pub(crate) fn list(turn: &Turn<'_>, pick: Pick<'_>, count: usize) -> Result<Option<Buffer<u32>>, CudaError> {
    match pick {
        Pick::List(list) => turn.upload(&list[..count], "a list of rows").map(Some),
        Pick::All | Pick::Range(..) => Ok(None),
    }
}

impl Gram for CudaGram {
    fn shape(&self) -> (usize, usize) {
        (self.rows.len(), self.cols.len())
    }

    fn diag(&self) -> Vec<f64> {
        if self.kernel.unit_diagonal() {
            return vec![1.0; self.rows.len()];
        }
        self.rows.squared_norms().iter().map(|s| self.kernel.of_statistic(*s)).collect()
    }

    fn block_f32(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [f32],
        control: &Control,
    ) -> std::result::Result<(), Interrupt> {
        self.with_fallback(
            out,
            |out| self.block(Precision::Single, rows, cols, out, control),
            |gram, out| gram.block_f32(rows, cols, out, control),
        )
    }

    fn block_f64(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [f64],
        control: &Control,
    ) -> std::result::Result<(), Interrupt> {
        self.with_fallback(
            out,
            |out| self.block(Precision::Double, rows, cols, out, control),
            |gram, out| gram.block_f64(rows, cols, out, control),
        )
    }

    fn apply(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> std::result::Result<(), Interrupt> {
        self.with_fallback(
            out,
            |out| {
                let units = v.len() as f64;
                phase("product for the engine", units, None, || self.product(precision, rows, v, k, out, control))
            },
            |gram, out| gram.apply(precision, rows, v, k, out, control),
        )
    }

    fn entries(&self) -> u64 {
        let processor = self.processor.get().map_or(0, |gram| gram.entries());
        self.entries.load(Ordering::Relaxed) + processor
    }

    fn select(&self, rows: &[u32]) -> Option<Box<dyn Gram + '_>> {
        if !self.square {
            return None;
        }
        let points = self.rows.gather(rows);
        // Entries of a few points take less time than asking a card for them.
        if rows.len() <= KeptGram::MOST {
            return Device::Cpu.backend().square_gram(self.kernel, &points).ok();
        }
        let part = Self::square(self.card, self.kernel, &points).ok()?;
        let above = self.above.iter().chain([&self.entries]).cloned().collect();
        Some(Box::new(Self { above, ..part }))
    }

    fn device_solver(&self) -> Option<&dyn DeviceSolver> {
        self.solver()
    }

    fn factored(&self, rows: &[u32], diagonal: &[f64], control: &Control) -> Option<DeviceFactored> {
        self.factor_on_card(rows, diagonal, control)
    }

    fn features(&self, factor: &Cholesky<f64>, precision: Precision) -> Option<Box<dyn DeviceFeatures>> {
        self.features_on_card(factor, precision)
    }

    fn pivoted(&self, most: usize) -> Option<Box<dyn PivotedFactor>> {
        self.pivots_on_card(most)
    }

    fn effort(&self) -> f64 {
        self.cols.stored() as f64 / self.cols.len().max(1) as f64
    }

    fn accuracy(&self) -> Accuracy {
        let card = self.arithmetic.accuracy(&self.kernel, &self.rows);
        match self.processor.get() {
            Some(gram) => {
                let relative = card.relative.max(gram.accuracy().relative);
                Accuracy { relative, chain: Chain::default(), ..card }
            }
            None => card,
        }
    }
}
