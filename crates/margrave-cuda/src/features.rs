//! Products with the features F = K·L⁻ᵀ of the rows of a Gram on its columns, and the factors of Newton systems on them
//! (`kernels/features.cu`).
//!
//! W = L⁻ᵀ is computed once. Then Fw = K(Ww) and Fᵀc = Wᵀ(Kᵀc): two products with K, of which nothing is stored, and two with W.
//! FᵀAF = Wᵀ(Σ a·kkᵀ)W over rows k of K.

use margrave_core::control::Control;
use margrave_core::gram::{DeviceEnd, DeviceFactor, DeviceFeatures, Pick, Precision};
use margrave_core::linalg::factor::Cholesky;

use crate::driver::{Buffer, Card, Function, Turn, arguments};
use crate::error::CudaError;
use crate::factored::CardFactor;
use crate::gram::{CudaGram, Stop, list};
use crate::phases::phase;
use crate::ptx::Module;
use crate::tall::{Chosen, THREADS, TwoSides};

/// Rows and columns of a tile of a product of matrices: `DOWN` and `ACROSS` of features.cu.
pub(crate) const DOWN: usize = 128;
pub(crate) const ACROSS: usize = 64;
/// Rows of a product are a multiple of this: `STEP` of features.cu.
pub(crate) const STEP: usize = 16;
/// Bytes of shared memory of a product of matrices.
pub(crate) const SHARED: u32 = (2 * STEP * (DOWN + 4 + ACROSS + 4) * 8) as u32;
/// Fewer rows or columns are left to the processor.
const FEWEST_ROWS: usize = 4096;
const FEWEST_COLUMNS: usize = 64;
/// Rows of K whose second moments are added up at a time.
const HEIGHT: usize = 4096;
/// Rows of a part of a sum over rows, in features.cu.
const PART: usize = 128;
/// Memory on the card that is left for products and results.
const SPARE: u64 = 2 << 30;
const WHAT: &str = "features on few centres";

/// Which parts of the matrices matter: as in features.cu.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    Whole = 0,
    UpperRight = 1,
    UpperLeft = 2,
    Lower = 3,
}

/// A row-major matrix: its address, and the length of a row.
#[derive(Clone, Copy)]
pub(crate) struct Rows(pub(crate) u64, pub(crate) usize);

impl Rows {
    /// From row `i` and column `j` on.
    pub(crate) fn at(self, i: usize, j: usize) -> Self {
        Rows(self.0 + 8 * (i * self.1 + j) as u64, self.1)
    }
}

/// c = keep·c + factor·aᵀb over `depth` rows, c having `size` rows and columns.
pub(crate) fn multiply(
    turn: &Turn<'_>,
    a: Rows,
    b: Rows,
    c: Rows,
    (down, across): (usize, usize),
    depth: usize,
    (factor, keep): (f64, f64),
    shape: Shape,
) -> Result<(), CudaError> {
    let function = turn.function(Module::Features, "product", SHARED)?;
    let grid = ((down / DOWN) as u32, (across / ACROSS) as u32);
    let (wide_a, wide_b, wide_c) = (a.1 as u64, b.1 as u64, c.1 as u64);
    let (depth, shape) = (depth as u32, shape as u32);
    // SAFETY: the arguments are those of the program; the callers have padded all sizes to whole tiles.
    unsafe {
        turn.launch(
            function,
            grid,
            THREADS,
            SHARED,
            arguments![a.0, wide_a, b.0, wide_b, c.0, wide_c, depth, factor, keep, shape],
        )
    }
}

/// A result of the card, or why there is none.
pub(crate) fn outcome<R>(card: &Card, result: Result<R, Stop>) -> Result<R, DeviceEnd> {
    result.map_err(|stop| match stop {
        Stop::Interrupt(why) => DeviceEnd::Interrupted(why),
        Stop::Failure(error) => {
            card.note(&error);
            DeviceEnd::Failed
        }
    })
}

/// Features whose rows and centres are on a card.
struct CardFeatures {
    card: &'static Card,
    sides: TwoSides,
    n: usize,
    m: usize,
    /// m, padded to whole tiles.
    size: usize,
    /// W = L⁻ᵀ, upper triangular.
    w: Buffer<f64>,
}

impl CudaGram {
    /// Products with the features of the rows on the columns, whose K has the given factor.
    pub(crate) fn features_on_card(
        &self,
        factor: &Cholesky<f64>,
        precision: Precision,
    ) -> Option<Box<dyn DeviceFeatures>> {
        let (n, m) = (self.rows.len(), self.cols.len());
        if self.square || factor.len() != m || n < FEWEST_ROWS || m < FEWEST_COLUMNS {
            return None;
        }
        let make = || -> Result<Option<CardFeatures>, Stop> {
            let turn = self.card.enter()?;
            let size = m.next_multiple_of(DOWN);
            // W and, in turns, the moments of rows, their product with W, and the factor with a block of rows.
            let needed = (4 * size * size + 3 * HEIGHT * size) as u64 * 8 + 256 * n as u64 + SPARE;
            if needed > turn.free_memory()? {
                return Ok(None);
            }
            let sides = TwoSides::new(self, &turn, precision)?;
            let w = inverse_transposed(&turn, factor, size)?;
            Ok(Some(CardFeatures { card: self.card, sides, n, m, size, w }))
        };
        match phase("features: W", m as f64, None, make) {
            Ok(made) => made.map(|features| -> Box<dyn DeviceFeatures> { Box::new(features) }),
            Err(Stop::Interrupt(_)) => None,
            Err(Stop::Failure(error)) => {
                self.card.note(&error);
                None
            }
        }
    }
}

/// W = L⁻ᵀ, padded by the identity: U·W = I for U = Lᵀ, solved from the last panel of rows to the first.
fn inverse_transposed(turn: &Turn<'_>, factor: &Cholesky<f64>, size: usize) -> Result<Buffer<f64>, CudaError> {
    let m = factor.len();
    let (l, w): (Buffer<f64>, Buffer<f64>) = (turn.allocate(size * size, WHAT)?, turn.allocate(size * size, WHAT)?);
    let z: Buffer<f64> = turn.allocate(DOWN * size, WHAT)?;
    turn.fill(&w, size * size, 0)?;
    let mut rows = vec![0.0; DOWN * size];
    let mut inverses = Vec::with_capacity(size * DOWN);
    for from in (0..size).step_by(DOWN) {
        rows.fill(0.0);
        for (r, row) in rows.chunks_mut(size).enumerate() {
            match from + r {
                i if i < m => row[..=i].copy_from_slice(factor.row(i)),
                i => row[i] = 1.0,
            }
        }
        turn.write(&l, from * size, &rows)?;
        inverses.extend(inverse_of_diagonal(&rows, size, from));
    }
    let inverses = turn.upload(&inverses, WHAT)?;
    let identity = turn.function(Module::Features, "identity_minus", 0)?;
    let (l, wide, panel) = (Rows(l.address(), size), Rows(w.address(), size), Rows(z.address(), size));
    for from in (0..size).step_by(DOWN).rev() {
        let below = from + DOWN;
        let depth = size - below;
        multiply(turn, l.at(below, from), wide.at(below, 0), panel, (DOWN, size), depth, (1.0, 0.0), Shape::Whole)?;
        let (columns, first) = (size as u32, from as u32);
        // SAFETY: the arguments are those of the program; `z` has DOWN rows.
        unsafe {
            let grid = (columns.div_ceil(THREADS), DOWN as u32);
            turn.launch(identity, grid, THREADS, 0, arguments![panel.0, columns, first])?;
        }
        let inverse = Rows(inverses.address(), DOWN).at(from, 0);
        multiply(turn, inverse, panel, wide.at(from, 0), (DOWN, size), DOWN, (1.0, 0.0), Shape::Whole)?;
    }
    turn.wait()?;
    Ok(w)
}

/// The inverse of a diagonal block of L, row-major; `rows` are those of its panel.
fn inverse_of_diagonal(rows: &[f64], size: usize, from: usize) -> Vec<f64> {
    let l = |i: usize, j: usize| rows[i * size + from + j];
    let mut x = vec![0.0; DOWN * DOWN];
    for i in 0..DOWN {
        x[i * DOWN + i] = 1.0;
        for k in 0..i {
            let by = l(i, k);
            for j in 0..=k {
                x[i * DOWN + j] -= by * x[k * DOWN + j];
            }
        }
        let pivot = l(i, i);
        x[i * DOWN..=i * DOWN + i].iter_mut().for_each(|x| *x /= pivot);
    }
    x
}

/// Chosen rows of the Gram on the card.
struct RowList {
    list: Option<Buffer<u32>>,
    first: usize,
    count: usize,
}

impl RowList {
    fn chosen(&self) -> Chosen<'_> {
        Chosen { side: 0, list: self.list.as_ref(), first: self.first, count: self.count }
    }
}

impl CardFeatures {
    fn rows(&self, turn: &Turn<'_>, rows: Pick<'_>) -> Result<RowList, CudaError> {
        let count = rows.len(self.n);
        let first = if let Pick::Range(from, _) = rows { from } else { 0 };
        Ok(RowList { list: list(turn, rows, count)?, first, count })
    }

    fn centres(&self) -> Chosen<'static> {
        Chosen { side: 1, list: None, first: 0, count: self.m }
    }

    fn program(turn: &Turn<'_>, name: &str) -> Result<Function, CudaError> {
        turn.function(Module::Features, name, 0)
    }

    /// A vector of m numbers on the card, padded by zeros.
    fn padded(&self, turn: &Turn<'_>, values: &[f64]) -> Result<Buffer<f64>, CudaError> {
        let mut padded = values.to_vec();
        padded.resize(self.size, 0.0);
        turn.upload(&padded, WHAT)
    }

    /// Ww.
    fn upper_times(&self, turn: &Turn<'_>, w: &[f64]) -> Result<Buffer<f64>, CudaError> {
        let (x, out): (_, Buffer<f64>) = (self.padded(turn, w)?, turn.allocate(self.size, WHAT)?);
        let (function, size) = (Self::program(turn, "upper_times")?, self.size as u32);
        // SAFETY: the arguments are those of the program; vectors are padded.
        unsafe {
            let grid = (size.div_ceil(THREADS / 32), 1);
            turn.launch(function, grid, THREADS, 0, arguments![self.w.address(), size, x.address(), out.address()])?;
        }
        Ok(out)
    }

    /// Wᵀq, for q on the card.
    fn times_upper(&self, turn: &Turn<'_>, q: &Buffer<f64>) -> Result<Buffer<f64>, CudaError> {
        let parts = self.size.div_ceil(PART);
        let (sums, out): (Buffer<f64>, Buffer<f64>) =
            (turn.allocate(parts * self.size, WHAT)?, turn.allocate(self.size, WHAT)?);
        let (function, size) = (Self::program(turn, "times_upper")?, self.size as u32);
        // SAFETY: the arguments are those of the program; there is room for all parts.
        unsafe {
            let grid = (size.div_ceil(THREADS), parts as u32);
            turn.launch(function, grid, THREADS, 0, arguments![self.w.address(), size, q.address(), sums.address()])?;
        }
        add_up(turn, &sums, parts, self.size, 0.0, &out)?;
        Ok(out)
    }

    /// Fᵀc, for c on the card: one number per chosen row.
    fn combined(
        &self,
        turn: &Turn<'_>,
        rows: Chosen<'_>,
        c: &Buffer<f64>,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Stop> {
        let q: Buffer<f64> = turn.allocate(self.size, WHAT)?;
        turn.fill(&q, self.size, 0)?;
        self.sides.product(turn, self.centres(), rows, c.address(), q.address(), control)?;
        let sum = self.times_upper(turn, &q)?;
        let mut host = vec![0.0; self.m];
        turn.read(&sum, 0, &mut host)?;
        out.iter_mut().zip(&host).for_each(|(o, s)| *o += s);
        Ok(())
    }

    fn try_dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Stop> {
        if out.is_empty() {
            return Ok(());
        }
        let turn = self.card.enter()?;
        let (a, rows) = (self.upper_times(&turn, w)?, self.rows(&turn, rows)?);
        let z: Buffer<f64> = turn.allocate(rows.count, WHAT)?;
        self.sides.product(&turn, rows.chosen(), self.centres(), a.address(), z.address(), control)?;
        Ok(turn.read(&z, 0, out)?)
    }

    fn try_combine(&self, rows: Pick<'_>, c: &[f64], out: &mut [f64], control: &Control) -> Result<(), Stop> {
        let count = c.iter().filter(|c| **c != 0.0).count();
        if count == 0 {
            return Ok(());
        }
        let turn = self.card.enter()?;
        if 4 * count > 3 * c.len() {
            let (rows, c) = (self.rows(&turn, rows)?, turn.upload(c, WHAT)?);
            return self.combined(&turn, rows.chosen(), &c, out, control);
        }
        let active = || (0..c.len()).filter(|&k| c[k] != 0.0);
        let list: Vec<u32> = active().map(|k| rows.get(k) as u32).collect();
        let values: Vec<f64> = active().map(|k| c[k]).collect();
        let (rows, c) = (self.rows(&turn, Pick::List(&list))?, turn.upload(&values, WHAT)?);
        self.combined(&turn, rows.chosen(), &c, out, control)
    }

    fn try_curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        w: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Stop> {
        if dots.is_empty() {
            return Ok(());
        }
        let turn = self.card.enter()?;
        let (a, rows) = (self.upper_times(&turn, w)?, self.rows(&turn, rows)?);
        let (u, c): (Buffer<f64>, Buffer<f64>) = (turn.allocate(rows.count, WHAT)?, turn.allocate(rows.count, WHAT)?);
        let weights = turn.upload(weights, WHAT)?;
        self.sides.product(&turn, rows.chosen(), self.centres(), a.address(), u.address(), control)?;
        let (function, count) = (Self::program(&turn, "curvature")?, rows.count as u32);
        // SAFETY: the arguments are those of the program; all arrays have a number per row.
        unsafe {
            turn.launch(
                function,
                (count.div_ceil(THREADS), 1),
                THREADS,
                0,
                arguments![weights.address(), u.address(), shift, count, c.address()],
            )?;
        }
        turn.read(&u, 0, dots)?;
        self.combined(&turn, rows.chosen(), &c, out, control)
    }

    /// Σ a·kkᵀ and Σ a·k over rows k of K, the former in its lower tiles.
    fn moments(
        &self,
        turn: &Turn<'_>,
        rows: Pick<'_>,
        weights: &[f64],
        control: &Control,
    ) -> Result<[Buffer<f64>; 2], Stop> {
        let (size, m) = (self.size, self.m);
        let (second, first): (Buffer<f64>, Buffer<f64>) =
            (turn.allocate(size * size, WHAT)?, turn.allocate(size, WHAT)?);
        turn.fill(&second, size * size, 0)?;
        turn.fill(&first, size, 0)?;
        let height = HEIGHT.min(weights.len().next_multiple_of(STEP));
        let block: Buffer<f64> = turn.allocate(height * m, WHAT)?;
        let weighed: Buffer<f64> = turn.allocate(height * size, WHAT)?;
        let sums: Buffer<f64> = turn.allocate(height.div_ceil(PART) * size, WHAT)?;
        let (weigh, sum) = (Self::program(turn, "weigh")?, Self::program(turn, "weighted_sum")?);
        let (rows, all) = (self.rows(turn, rows)?, turn.upload(weights, WHAT)?);
        let (narrow, columns, wide) = (u32::from(self.sides.narrow()), m as u32, size as u32);
        for from in (0..rows.count).step_by(height) {
            control.check()?;
            let count = height.min(rows.count - from);
            let part = Chosen { first: rows.first + from, count, ..rows.chosen() };
            self.sides.block(turn, part, self.centres(), block.address())?;
            let (depth, own) = (count.next_multiple_of(STEP), all.address() + 8 * from as u64);
            let (rows, parts) = (count as u32, count.div_ceil(PART));
            // SAFETY: the arguments are those of the programs; there is room for `height` rows.
            unsafe {
                let grid = (wide.div_ceil(THREADS), depth as u32);
                turn.launch(
                    weigh,
                    grid,
                    THREADS,
                    0,
                    arguments![block.address(), narrow, columns, own, rows, wide, weighed.address()],
                )?;
                let grid = (wide.div_ceil(THREADS), parts as u32);
                turn.launch(sum, grid, THREADS, 0, arguments![weighed.address(), wide, own, rows, sums.address()])?;
            }
            add_up(turn, &sums, parts, size, 1.0, &first)?;
            let (b, to) = (Rows(weighed.address(), size), Rows(second.address(), size));
            multiply(turn, b, b, to, (size, size), depth, (1.0, 1.0), Shape::Lower)?;
            turn.wait()?;
        }
        Ok([second, first])
    }

    fn try_factor(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        bottom: f64,
        control: &Control,
    ) -> Result<Option<ScaledSystem>, Stop> {
        let turn = self.card.enter()?;
        let (size, wide, m) = (self.size, self.size as u32, self.m as u32);
        let [second, first] = self.moments(&turn, rows, weights, control)?;
        let h = self.times_upper(&turn, &first)?;
        let scaled: Buffer<f64> = turn.allocate(size, WHAT)?;
        {
            let product: Buffer<f64> = turn.allocate(size * size, WHAT)?;
            let mirror = Self::program(&turn, "mirror")?;
            // SAFETY: the arguments are those of the program; the side is a multiple of 32.
            unsafe { turn.launch(mirror, (wide / 32, wide / 32), THREADS, 0, arguments![second.address(), wide])? };
            let of = |buffer: &Buffer<f64>| Rows(buffer.address(), size);
            let (w, g, t) = (of(&self.w), of(&second), of(&product));
            multiply(&turn, g, w, t, (size, size), size, (1.0, 0.0), Shape::UpperRight)?;
            turn.wait()?;
            control.check()?;
            multiply(&turn, w, t, g, (size, size), size, (1.0, 0.0), Shape::UpperLeft)?;
        }
        let over = 1.0 / bottom;
        let (roots, assemble) = (Self::program(&turn, "roots")?, Self::program(&turn, "assemble")?);
        // SAFETY: the arguments are those of the programs.
        unsafe {
            let (matrix, h, to) = (second.address(), h.address(), scaled.address());
            turn.launch(roots, (wide.div_ceil(THREADS), 1), THREADS, 0, arguments![matrix, wide, m, h, over, to])?;
            let grid = (wide.div_ceil(THREADS), wide);
            turn.launch(assemble, grid, THREADS, 0, arguments![matrix, wide, m, h, over, to])?;
        }
        let mut roots = vec![0.0; self.m];
        turn.read(&scaled, 0, &mut roots)?;
        let factor = CardFactor::new(&turn, second, self.m, control)?;
        Ok(factor.map(|factor| ScaledSystem { factor, roots }))
    }
}

/// out = keep·out + the sum of `parts` vectors of `count` numbers.
fn add_up(
    turn: &Turn<'_>,
    sums: &Buffer<f64>,
    parts: usize,
    count: usize,
    keep: f64,
    out: &Buffer<f64>,
) -> Result<(), CudaError> {
    let function = turn.function(Module::Features, "add_up", 0)?;
    let (parts, count) = (parts as u32, count as u32);
    // SAFETY: the arguments are those of the program.
    unsafe {
        turn.launch(
            function,
            (count.div_ceil(THREADS), 1),
            THREADS,
            0,
            arguments![sums.address(), parts, count, keep, out.address()],
        )
    }
}

/// The factor of a system whose diagonal was scaled to 1.
struct ScaledSystem {
    factor: CardFactor,
    roots: Vec<f64>,
}

impl DeviceFactor for ScaledSystem {
    fn solve(&self, right: &mut [Vec<f64>]) -> bool {
        let scale = |sides: &mut [Vec<f64>]| {
            sides.iter_mut().for_each(|v| v.iter_mut().zip(&self.roots).for_each(|(v, root)| *v *= root));
        };
        scale(right);
        let solved = self.factor.solve(right);
        scale(right);
        solved
    }
}

impl DeviceFeatures for CardFeatures {
    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), DeviceEnd> {
        let units = (out.len() * self.m) as f64;
        let done = phase("features: dots", units, None, || self.try_dots(rows, w, out, control));
        outcome(self.card, done)
    }

    fn combine(&self, rows: Pick<'_>, c: &[f64], out: &mut [f64], control: &Control) -> Result<(), DeviceEnd> {
        let units = (c.len() * self.m) as f64;
        let done = phase("features: combine", units, None, || self.try_combine(rows, c, out, control));
        outcome(self.card, done)
    }

    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        w: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), DeviceEnd> {
        let units = 2.0 * (dots.len() * self.m) as f64;
        let done = phase("features: curvature", units, None, || {
            self.try_curvature_product(rows, weights, w, shift, dots, out, control)
        });
        outcome(self.card, done)
    }

    fn curvature_factor(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        bottom: f64,
        control: &Control,
    ) -> Result<Box<dyn DeviceFactor>, DeviceEnd> {
        let units = weights.len() as f64;
        let made = phase("features: factor", units, None, || self.try_factor(rows, weights, bottom, control));
        match outcome(self.card, made)? {
            Some(system) => Ok(Box::new(system)),
            None => Err(DeviceEnd::Failed),
        }
    }
}

impl std::fmt::Debug for CardFeatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CardFeatures({} × {})", self.n, self.m)
    }
}
