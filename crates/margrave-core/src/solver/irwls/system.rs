//! The linear system of one iteration: (K_FF + diag(r))·x = v over the free samples F, solved in one of three ways.
//!
//! | way | when | cost |
//! |---|---|---|
//! | primal | linear kernel, fewer features than free samples | \|F\|·d² + d³/3 |
//! | Cholesky | \|F\|² doubles fit in memory | \|F\|³/3, or \|F\|² times the samples that changed |
//! | conjugate gradients | otherwise | one pass over K_FF an iteration |
//!
//! **Primal**: K = XXᵀ, so (R + XXᵀ)⁻¹ = R⁻¹ − R⁻¹X(I + XᵀR⁻¹X)⁻¹XᵀR⁻¹.
//!
//! **Cholesky** keeps its factor. Samples that became free are appended, samples that no longer are are held at zero; where only r
//! has changed, and not much, the old factor preconditions conjugate gradients, a handful of products instead of a
//! factorisation.
//!
//! **Conjugate gradients** on products with K, preconditioned by ZZᵀ + R, where Z holds m features of every sample whose inner
//! products are those of K projected on m samples (Nyström); inverted like the primal system. Memory n·m single-precision
//! entries.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use crate::backend::cpu::factor::{Cholesky, FactorError};
use crate::backend::cpu::{pages, sweep};
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::gram::{Gram, Pick, Precision};

/// Free samples up to which a system is factored: beyond, products with a good preconditioner are cheaper.
const MOST: usize = 9000;
/// Conjugate-gradient steps with an old factor before a new one is made.
const OLD_FACTOR: usize = 25;
/// Conjugate-gradient steps at most.
const STEPS: usize = 400;
/// Features of the Nyström preconditioner at most.
const FEATURES: usize = 1200;
/// Rows of Z handled together.
const BLOCK: usize = 1024;
/// Scores a thread sums together: they stay in its nearest memory.
const STRETCH: usize = 1024;
/// Rows of K computed together.
const STRIP: usize = 256;
const NONE: u32 = u32::MAX;

/// How systems are solved and what is kept between them.
pub(super) struct Core<'a> {
    gram: &'a dyn Gram,
    linear: Option<&'a Points>,
    n: usize,
    memory: u64,
    reuse: bool,
    /// K whole, where it fits in a third of the memory.
    store: Option<Vec<f64>>,
    set: Vec<u32>,
    place: Vec<u32>,
    ridge: Vec<f64>,
    factor: Option<Cholesky<f64>>,
    nystrom: Option<Nystrom>,
    scale: f64,
    /// Factorisations from scratch so far.
    pub(super) factorisations: u64,
    /// Which way the last system was solved.
    pub(super) way: &'static str,
}

/// Z: features whose inner products approximate K.
struct Nystrom {
    m: usize,
    z: Vec<f32>,
}

impl<'a> Core<'a> {
    pub(super) fn new(gram: &'a dyn Gram, linear: Option<&'a Points>, memory: u64, reuse: bool) -> Self {
        let n = gram.shape().0;
        let scale = gram.diag().iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        Self {
            gram,
            linear,
            n,
            memory,
            reuse,
            store: None,
            set: Vec::new(),
            place: vec![NONE; n],
            ridge: Vec::new(),
            factor: None,
            nystrom: None,
            scale: scale.max(f64::MIN_POSITIVE),
            factorisations: 0,
            way: "none",
        }
    }

    /// Largest |Kᵢᵢ|.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// The precision of products with K while the solver works; scores from single precision must be refreshed before they
    /// are believed.
    pub(super) fn working(&self) -> Precision {
        if self.store.is_none() && self.linear.is_none() { Precision::Single } else { Precision::Double }
    }

    /// Whether a system of so many free samples is solved on the primal side.
    pub(super) fn is_primal(&self, free: usize) -> bool {
        let dims = self.linear.map_or(usize::MAX, Points::dims);
        dims < free && (dims as u64).saturating_mul(dims as u64).saturating_mul(64) <= self.memory
    }

    /// Whether a system of so many free samples is factored.
    pub(super) fn factors(&self, free: usize) -> bool {
        free <= self.most() && (free <= MOST || !self.reuse)
    }

    /// Computes K whole if it fits: everything afterwards is read from memory.
    pub(super) fn prepare(&mut self, control: &Control) -> Result<(), Interrupt> {
        let bytes = (self.n as u64).saturating_mul(self.n as u64).saturating_mul(8);
        if self.linear.is_some() || bytes > self.memory / 3 || self.n == 0 {
            return Ok(());
        }
        // K is symmetric: strips on and right of the diagonal, each copied to where its transpose belongs.
        let n = self.n;
        let mut k = pages::zeros(n * n);
        let mut strip = vec![0.0; STRIP.min(n) * n];
        for from in (0..n).step_by(STRIP) {
            let (to, width) = ((from + STRIP).min(n), n - from);
            let part = &mut strip[..(to - from) * width];
            self.gram.block_f64(Pick::Range(from, to), Pick::Range(from, n), part, control)?;
            for (r, line) in part.chunks(width).enumerate() {
                k[(from + r) * n + from..][..width].copy_from_slice(line);
            }
            let part = &*part;
            control.threads.chunks(&mut k[to * n..], 16 * n, |t, rows| {
                for (r, row) in rows.chunks_mut(n).enumerate() {
                    let column = to + t * 16 + r - from;
                    row[from..to].iter_mut().enumerate().for_each(|(a, v)| *v = part[a * width + column]);
                }
            });
            control.check()?;
        }
        self.store = Some(k);
        Ok(())
    }

    /// Free samples that can be factored within the memory.
    fn most(&self) -> usize {
        let kept = self.store.as_ref().map_or(0, |k| 8 * k.len() as u64);
        // The factor, and its successor while it grows.
        ((self.memory.saturating_sub(kept) as f64 * 0.9 / 8.0).sqrt()) as usize
    }

    /// K·x for `k` columns (x and the result n × k).
    pub(super) fn product(
        &self,
        precision: Precision,
        x: &[f64],
        k: usize,
        control: &Control,
    ) -> Result<Vec<f64>, Interrupt> {
        self.product_rows(precision, Pick::All, x, k, control)
    }

    /// The same over some rows.
    pub(super) fn product_rows(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        x: &[f64],
        k: usize,
        control: &Control,
    ) -> Result<Vec<f64>, Interrupt> {
        let mut out = vec![0.0; rows.len(self.n) * k];
        let Some(store) = &self.store else {
            self.gram.apply(precision, rows, x, k, &mut out, control)?;
            return Ok(out);
        };
        // K is symmetric: K·x is the sum of its rows, each times its x, and zeros of x cost nothing.
        let n = self.n;
        let used: Vec<usize> = (0..n).filter(|&i| x[i * k..(i + 1) * k].iter().any(|v| *v != 0.0)).collect();
        if rows.len(n) * 4 < n {
            let entry = |r: usize, column: usize| {
                let entries = &store[rows.get(r) * n..][..n];
                used.iter().map(|&i| entries[i] * x[i * k + column]).sum::<f64>()
            };
            out.chunks_mut(k)
                .enumerate()
                .for_each(|(r, v)| v.iter_mut().enumerate().for_each(|(c, v)| *v = entry(r, c)));
            control.check()?;
            return Ok(out);
        }
        let chunk = STRETCH.min(n.div_ceil(8)).max(64);
        let mut whole = vec![0.0; n * k];
        for (column, out) in whole.chunks_mut(n).enumerate() {
            control.threads.chunks(out, chunk, |t, part| {
                let at = t * chunk;
                for &i in &used {
                    sweep::add_row(part, &store[i * n + at..][..part.len()], x[i * k + column]);
                }
            });
            control.check()?;
        }
        for (r, values) in out.chunks_mut(k).enumerate() {
            let row = rows.get(r);
            values.iter_mut().enumerate().for_each(|(column, value)| *value = whole[column * n + row]);
        }
        Ok(out)
    }

    fn block(&self, rows: &[u32], cols: &[u32], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        let Some(store) = &self.store else {
            return self.gram.block_f64(Pick::List(rows), Pick::List(cols), out, control);
        };
        let (n, width) = (self.n, cols.len());
        control.threads.chunks(out, 32 * width.max(1), |t, part| {
            for (r, line) in part.chunks_mut(width.max(1)).enumerate() {
                let entries = &store[rows[t * 32 + r] as usize * n..][..n];
                line.iter_mut().zip(cols).for_each(|(o, &c)| *o = entries[c as usize]);
            }
        });
        control.check()
    }

    /// Solves (K_FF + diag(ridge))·x = v for every right-hand side; `accuracy` is the residual allowed relative to v, where
    /// the way is iterative.
    pub(super) fn solve(
        &mut self,
        free: &[u32],
        ridge: &[f64],
        right: &[Vec<f64>],
        accuracy: f64,
        control: &Control,
    ) -> Result<Vec<Vec<f64>>, FactorError> {
        if free.is_empty() {
            return Ok(right.iter().map(|_| Vec::new()).collect());
        }
        if let Some(points) = self.linear
            && self.is_primal(free.len())
        {
            self.way = "primal";
            return primal(points, free, ridge, right, control);
        }
        if self.factors(free.len()) {
            self.way = "cholesky";
            return self.factored(free, ridge, right, accuracy, control);
        }
        self.way = "conjugate gradients";
        self.forget();
        self.iterative(free, ridge, right, accuracy, control)
    }

    fn forget(&mut self) {
        self.set.iter().for_each(|&i| self.place[i as usize] = NONE);
        self.set = Vec::new();
        self.ridge = Vec::new();
        self.factor = None;
    }

    fn factored(
        &mut self,
        free: &[u32],
        ridge: &[f64],
        right: &[Vec<f64>],
        accuracy: f64,
        control: &Control,
    ) -> Result<Vec<Vec<f64>>, FactorError> {
        if self.reuse
            && let Some(exact) = self.adopt(free, ridge, control)?
            && let Some(x) = self.with_factor(free, ridge, right, if exact { 0.0 } else { accuracy }, control)?
        {
            return Ok(x);
        }
        self.refactor(free, ridge, control)?;
        match self.with_factor(free, ridge, right, 0.0, control)? {
            Some(x) => Ok(x),
            None => Err(FactorError::NotPositive(0)),
        }
    }

    /// Makes the factor at hand one of F; `Some(true)`: r is the same too, `None`: a new factor is cheaper.
    fn adopt(&mut self, free: &[u32], ridge: &[f64], control: &Control) -> Result<Option<bool>, FactorError> {
        if self.factor.is_none() {
            return Ok(None);
        }
        let missing: Vec<usize> = (0..free.len()).filter(|&k| self.place[free[k] as usize] == NONE).collect();
        let held = self.set.len() + missing.len() - free.len();
        if missing.len() * 4 > free.len() || held * 4 > free.len() {
            return Ok(None);
        }
        let (mut least, mut largest) = (f64::INFINITY, 0.0f64);
        for (k, &i) in free.iter().enumerate() {
            let at = self.place[i as usize];
            if at != NONE {
                let ratio = ridge[k] / self.ridge[at as usize];
                (least, largest) = (least.min(ratio), largest.max(ratio));
            }
        }
        // Eigenvalues of the preconditioned system lie between these: far apart, a new factor is cheaper.
        let exact = least > 1.0 - 1e-9 && largest < 1.0 + 1e-9;
        if !exact && (largest / least > 8.0 || missing.len() + held > 0 && largest / least > 3.0) {
            return Ok(None);
        }
        if !missing.is_empty() {
            let (n, m) = (self.set.len(), missing.len());
            if n + m > self.most() * 7 / 10 {
                return Ok(None);
            }
            let fresh: Vec<u32> = missing.iter().map(|&k| free[k]).collect();
            let (mut cross, mut own) = (vec![0.0; m * n], vec![0.0; m * m]);
            self.block(&fresh, &self.set, &mut cross, control)?;
            self.block(&fresh, &fresh, &mut own, control)?;
            (0..m).for_each(|k| own[k * m + k] += ridge[missing[k]]);
            let Some(factor) = &mut self.factor else { return Ok(None) };
            match factor.append(cross, &own, m, control) {
                Ok(()) => {}
                Err(FactorError::NotPositive(_)) => return Ok(None),
                Err(why) => return Err(why),
            }
            for (k, &i) in fresh.iter().enumerate() {
                self.place[i as usize] = (n + k) as u32;
                self.set.push(i);
                self.ridge.push(ridge[missing[k]]);
            }
        }
        let mut is_free = vec![false; self.set.len()];
        free.iter().for_each(|&i| is_free[self.place[i as usize] as usize] = true);
        let held: Vec<u32> = (0..self.set.len() as u32).filter(|&k| !is_free[k as usize]).collect();
        let Some(factor) = &mut self.factor else { return Ok(None) };
        match factor.hold(&held, control) {
            Ok(()) => Ok(Some(exact)),
            Err(FactorError::NotPositive(_)) => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn refactor(&mut self, free: &[u32], ridge: &[f64], control: &Control) -> Result<(), FactorError> {
        self.forget();
        let m = free.len();
        let mut jitter = 0.0;
        loop {
            let mut a = pages::zeros(m * m);
            self.block(free, free, &mut a, control)?;
            (0..m).for_each(|k| a[k * m + k] += ridge[k] + jitter);
            self.factorisations += 1;
            match Cholesky::new(a, m, m, control) {
                Ok(factor) => {
                    self.factor = Some(factor);
                    break;
                }
                Err(FactorError::NotPositive(_)) if jitter < self.scale => {
                    jitter = if jitter == 0.0 { m as f64 * f64::EPSILON * self.scale } else { 10.0 * jitter };
                }
                Err(why) => return Err(why),
            }
        }
        free.iter().enumerate().for_each(|(k, &i)| self.place[i as usize] = k as u32);
        self.set = free.to_vec();
        self.ridge = ridge.to_vec();
        Ok(())
    }

    /// Solves with the factor at hand: at once, or (accuracy > 0) by conjugate gradients. `None`: they do not converge soon.
    fn with_factor(
        &self,
        free: &[u32],
        ridge: &[f64],
        right: &[Vec<f64>],
        accuracy: f64,
        control: &Control,
    ) -> Result<Option<Vec<Vec<f64>>>, FactorError> {
        let Some(factor) = &self.factor else { return Ok(None) };
        let precondition = |v: &[f64]| {
            let mut whole = vec![0.0; self.set.len()];
            free.iter().zip(v).for_each(|(&i, v)| whole[self.place[i as usize] as usize] = *v);
            factor.solve(&mut whole);
            free.iter().map(|&i| whole[self.place[i as usize] as usize]).collect::<Vec<f64>>()
        };
        if accuracy == 0.0 {
            let solved = control.threads.map(right.len(), |j| precondition(&right[j]));
            control.check()?;
            return Ok(Some(solved));
        }
        let apply = |x: &[Vec<f64>]| self.multiply(Precision::Double, self.gram, Some(free), free, ridge, x, control);
        let (x, converged) = gradients(right, accuracy, OLD_FACTOR, apply, |r| Ok(precondition(r)), control)?;
        Ok(converged.then_some(x))
    }

    /// (K_FF + R)·x for several x. `rows`: F as rows of `gram`; `None`: `gram` is K_FF itself.
    fn multiply(
        &self,
        precision: Precision,
        gram: &dyn Gram,
        rows: Option<&[u32]>,
        free: &[u32],
        ridge: &[f64],
        x: &[Vec<f64>],
        control: &Control,
    ) -> Result<Vec<Vec<f64>>, Interrupt> {
        let k = x.len();
        let product = match rows {
            None => {
                let mut v = vec![0.0; free.len() * k];
                (0..free.len()).for_each(|a| (0..k).for_each(|j| v[a * k + j] = x[j][a]));
                let mut out = vec![0.0; free.len() * k];
                gram.apply(precision, Pick::All, &v, k, &mut out, control)?;
                out
            }
            Some(rows) => {
                let mut v = vec![0.0; self.n * k];
                for (a, &i) in free.iter().enumerate() {
                    (0..k).for_each(|j| v[i as usize * k + j] = x[j][a]);
                }
                let pick = if rows.len() == self.n { Pick::All } else { Pick::List(rows) };
                self.product_rows(precision, pick, &v, k, control)?
            }
        };
        Ok((0..k).map(|j| (0..free.len()).map(|a| product[a * k + j] + ridge[a] * x[j][a]).collect()).collect())
    }

    fn iterative(
        &mut self,
        free: &[u32],
        ridge: &[f64],
        right: &[Vec<f64>],
        accuracy: f64,
        control: &Control,
    ) -> Result<Vec<Vec<f64>>, FactorError> {
        if self.nystrom.is_none() {
            let bytes = self.memory / 3;
            let m = (bytes / (4 * self.n.max(1) as u64)).min(FEATURES as u64).min(self.n as u64 / 4) as usize;
            self.nystrom = Some(Nystrom::new(self.gram, m, control)?);
        }
        let Some(nystrom) = &self.nystrom else { return Err(FactorError::NotPositive(0)) };
        let inverse = Woodbury::new(nystrom.m, free.len(), ridge, |a, row| nystrom.feature(free[a], row), control)?;
        let selected = if free.len() * 10 < self.n * 9 { self.gram.select(free) } else { None };
        let apply = |x: &[Vec<f64>]| match &selected {
            Some(gram) => self.multiply(Precision::Single, gram.as_ref(), None, free, ridge, x, control),
            None => self.multiply(Precision::Single, self.gram, Some(free), free, ridge, x, control),
        };
        let precondition = |r: &[f64]| inverse.solve(r, |a, row| nystrom.feature(free[a], row), control);
        let (x, _) = gradients(right, accuracy.max(1e-7), STEPS, apply, precondition, control)?;
        Ok(x)
    }
}

/// Preconditioned conjugate gradients for several right-hand sides at once, so that they share passes over K. Ends when
/// every residual is at most `accuracy` times its right-hand side; false if that takes more than `most` steps.
fn gradients(
    right: &[Vec<f64>],
    accuracy: f64,
    most: usize,
    apply: impl Fn(&[Vec<f64>]) -> Result<Vec<Vec<f64>>, Interrupt>,
    precondition: impl Fn(&[f64]) -> Result<Vec<f64>, Interrupt>,
    control: &Control,
) -> Result<(Vec<Vec<f64>>, bool), Interrupt> {
    let k = right.len();
    let norm = |v: &[f64]| sweep::dot(v, v).sqrt();
    let goal: Vec<f64> = right.iter().map(|r| accuracy * norm(r)).collect();
    let mut x: Vec<Vec<f64>> = right.iter().map(|r| vec![0.0; r.len()]).collect();
    let mut residual = right.to_vec();
    let mut direction: Vec<Vec<f64>> = Vec::with_capacity(k);
    for r in &residual {
        direction.push(precondition(r)?);
    }
    let mut rz: Vec<f64> = (0..k).map(|j| sweep::dot(&residual[j], &direction[j])).collect();
    let mut open: Vec<usize> = (0..k).filter(|&j| norm(&residual[j]) > goal[j]).collect();
    for _ in 0..most {
        if open.is_empty() {
            return Ok((x, true));
        }
        control.check()?;
        let asked: Vec<Vec<f64>> = open.iter().map(|&j| direction[j].clone()).collect();
        let products = apply(&asked)?;
        let mut still = Vec::with_capacity(open.len());
        for (&j, product) in open.iter().zip(&products) {
            let curve = sweep::dot(&direction[j], product);
            if !(curve > 0.0 && rz[j] > 0.0) {
                continue;
            }
            let t = rz[j] / curve;
            sweep::add_row(&mut x[j], &direction[j], t);
            sweep::add_row(&mut residual[j], product, -t);
            if norm(&residual[j]) <= goal[j] {
                continue;
            }
            let z = precondition(&residual[j])?;
            let next = sweep::dot(&residual[j], &z);
            let share = next / rz[j];
            rz[j] = next;
            direction[j].iter_mut().zip(&z).for_each(|(d, z)| *d = z + share * *d);
            still.push(j);
        }
        open = still;
    }
    Ok((x, open.is_empty()))
}

/// (ZZᵀ + R)⁻¹ for features Z given row by row: R⁻¹ − R⁻¹Z(I + ZᵀR⁻¹Z)⁻¹ZᵀR⁻¹.
struct Woodbury {
    m: usize,
    inverse_ridge: Vec<f64>,
    factor: Cholesky<f64>,
}

impl Woodbury {
    fn new(
        m: usize,
        rows: usize,
        ridge: &[f64],
        feature: impl Fn(usize, &mut [f64]) + Sync,
        control: &Control,
    ) -> Result<Self, FactorError> {
        let inverse_ridge: Vec<f64> = ridge.iter().map(|r| 1.0 / r).collect();
        // A fixed number of partial sums: the same bits for any number of threads.
        let blocks = rows.div_ceil(BLOCK);
        let groups = blocks.clamp(1, 4);
        let each = blocks.div_ceil(groups);
        let parts = control.threads.map(groups, |g| -> Result<Vec<f64>, Interrupt> {
            let mut sum = vec![0.0; m * m];
            let mut scaled = vec![0.0; BLOCK * m];
            for t in g * each..((g + 1) * each).min(blocks) {
                control.check()?;
                let range = t * BLOCK..((t + 1) * BLOCK).min(rows);
                let height = range.len();
                for (r, a) in range.enumerate() {
                    let row = &mut scaled[r * m..(r + 1) * m];
                    feature(a, row);
                    let root = inverse_ridge[a].sqrt();
                    row.iter_mut().for_each(|v| *v *= root);
                }
                let block = MatRef::from_row_major_slice(&scaled[..height * m], height, m);
                let out = MatMut::from_row_major_slice_mut(&mut sum, m, m);
                matmul(out, Accum::Add, block.transpose(), block, 1.0, Par::Seq);
            }
            Ok(sum)
        });
        let mut total = vec![0.0; m * m];
        for part in parts {
            total.iter_mut().zip(part?).for_each(|(t, p)| *t += p);
        }
        (0..m).for_each(|i| total[i * m + i] += 1.0);
        Ok(Self { m, inverse_ridge, factor: Cholesky::new(total, m, m, control)? })
    }

    fn solve(
        &self,
        v: &[f64],
        feature: impl Fn(usize, &mut [f64]) + Sync,
        control: &Control,
    ) -> Result<Vec<f64>, Interrupt> {
        let (m, rows) = (self.m, v.len());
        let blocks = rows.div_ceil(BLOCK);
        let parts = control.threads.map(blocks, |t| {
            let (mut sum, mut row) = (vec![0.0; m], vec![0.0; m]);
            for a in t * BLOCK..((t + 1) * BLOCK).min(rows) {
                feature(a, &mut row);
                sweep::add_row(&mut sum, &row, self.inverse_ridge[a] * v[a]);
            }
            sum
        });
        control.check()?;
        let mut inner = vec![0.0; m];
        for part in parts {
            inner.iter_mut().zip(part).for_each(|(t, p)| *t += p);
        }
        self.factor.solve(&mut inner);
        let mut out = vec![0.0; rows];
        control.threads.chunks(&mut out, BLOCK, |t, part| {
            let mut row = vec![0.0; m];
            for (r, value) in part.iter_mut().enumerate() {
                let a = t * BLOCK + r;
                feature(a, &mut row);
                *value = self.inverse_ridge[a] * (v[a] - sweep::dot(&row, &inner));
            }
        });
        control.check()?;
        Ok(out)
    }
}

/// The linear kernel on its primal side.
fn primal(
    points: &Points,
    free: &[u32],
    ridge: &[f64],
    right: &[Vec<f64>],
    control: &Control,
) -> Result<Vec<Vec<f64>>, FactorError> {
    let feature = |a: usize, row: &mut [f64]| points.copy_row(free[a] as usize, row);
    let inverse = Woodbury::new(points.dims(), free.len(), ridge, feature, control)?;
    let mut out = Vec::with_capacity(right.len());
    for r in right {
        out.push(inverse.solve(r, feature, control)?);
    }
    Ok(out)
}

impl Nystrom {
    /// Features from `m` samples spread over the data: Z = K_nm·L⁻ᵀ with K_mm = LLᵀ.
    fn new(gram: &dyn Gram, m: usize, control: &Control) -> Result<Self, FactorError> {
        let n = gram.shape().0;
        // A stride that shares no factor with n visits all residues: spread, without repeats, the same every time.
        let mut stride = (n as f64 * 0.618_034) as usize | 1;
        while m > 0 && gcd(stride, n) != 1 {
            stride += 2;
        }
        let mut chosen: Vec<u32> = (0..m).map(|k| (k * stride % n.max(1)) as u32).collect();
        chosen.sort_unstable();
        let mut jitter = 1e-10;
        let factor = loop {
            let mut kmm = vec![0.0; m * m];
            gram.block_f64(Pick::List(&chosen), Pick::List(&chosen), &mut kmm, control)?;
            let scale = (0..m).map(|i| kmm[i * m + i]).fold(0.0, f64::max);
            (0..m).for_each(|i| kmm[i * m + i] += jitter * scale);
            match Cholesky::new(kmm, m, m, control) {
                Ok(factor) => break factor,
                Err(FactorError::NotPositive(_)) if jitter < 1.0 => jitter *= 100.0,
                Err(why) => return Err(why),
            }
        };
        let mut z: Vec<f32> = pages::zeros(n * m);
        let mut block = vec![0.0; BLOCK * m];
        for from in (0..n).step_by(BLOCK) {
            let to = (from + BLOCK).min(n);
            let part = &mut block[..(to - from) * m];
            gram.block_f64(Pick::Range(from, to), Pick::List(&chosen), part, control)?;
            factor.whiten(part, to - from, &control.threads);
            z[from * m..to * m].iter_mut().zip(part.iter()).for_each(|(z, v)| *z = *v as f32);
        }
        Ok(Self { m, z })
    }

    fn feature(&self, i: u32, row: &mut [f64]) {
        let at = i as usize * self.m;
        row.iter_mut().zip(&self.z[at..at + self.m]).for_each(|(r, z)| *r = f64::from(*z));
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
