//! The linear system of one iteration: (K_FF + diag(r))·x = v over the free samples F, solved by one of four methods.
//!
//! | method | when | cost |
//! |---|---|---|
//! | on a device | the Gram has factors on its device ([`Gram::factored`]) | \|F\|³/3 there |
//! | primal | linear kernel, fewer features than free samples | \|F\|·d² + d³/3 |
//! | Cholesky | \|F\|² doubles fit in memory | \|F\|³/3, or \|F\|² times the number of samples that changed |
//! | conjugate gradients | otherwise | one pass over K_FF per step |
//!
//! **Cholesky** keeps its factor. Samples that became free are appended; samples that are no longer free are held at
//! zero. If only r has changed, and not much, the old factor of a large system preconditions conjugate gradients: a few
//! products instead of a factorisation.
//!
//! `iterative.rs` contains the first and the last method, `store.rs` K and products with it.

use super::iterative::{Nystrom, conjugate_gradients, primal};
use crate::control::Control;
use crate::data::Points;
use crate::gram::{DeviceFactored, Gram, Precision};
use crate::linalg::factor::{Cholesky, FactorError};
use crate::linalg::pages;

/// Most free samples of a factored system: beyond, products with a good preconditioner are cheaper.
const MAX_FACTORED: usize = 9000;
/// Most conjugate-gradient steps with an old factor before a new one is computed.
const MAX_OLD_FACTOR_STEPS: usize = 25;
/// Most free samples for which a changed r requires a new factor: it takes less time than conjugate gradients with the
/// old one.
const ALWAYS_REFACTORED: usize = 1500;
/// Most samples whose r may change more than threefold before a new factor is computed: conjugate gradients need a step
/// for each.
const MAX_FAR_RIDGES: usize = 32;
/// The position of a sample outside the factored set.
const NOT_IN_SET: u32 = u32::MAX;

/// Solves the systems, and keeps K and the last factor between them.
pub(super) struct SystemSolver<'a> {
    pub(super) gram: &'a dyn Gram,
    pub(super) linear: Option<&'a Points>,
    pub(super) n: usize,
    pub(super) memory: u64,
    reuse: bool,
    /// K, if it fits in a third of the memory.
    pub(super) store: Option<Vec<f64>>,
    /// The samples of the factor.
    set: Vec<u32>,
    /// The position of each sample in `set`.
    place: Vec<u32>,
    /// r of each sample of the factor.
    ridge: Vec<f64>,
    factor: Option<Cholesky<f64>>,
    pub(super) nystrom: Option<Nystrom>,
    scale: f64,
    /// Factorisations from scratch so far.
    pub(super) factorisations: u64,
}

impl<'a> SystemSolver<'a> {
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
            place: vec![NOT_IN_SET; n],
            ridge: Vec::new(),
            factor: None,
            nystrom: None,
            scale: scale.max(f64::MIN_POSITIVE),
            factorisations: 0,
        }
    }

    /// The largest |Kᵢᵢ|.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// Whether a system of `free` samples is solved on the primal side.
    pub(super) fn is_primal(&self, free: usize) -> bool {
        let dims = self.linear.map_or(usize::MAX, Points::dims);
        dims < free && (dims as u64).saturating_mul(dims as u64).saturating_mul(64) <= self.memory
    }

    /// Whether a system of `free` samples is factored.
    pub(super) fn can_factor(&self, free: usize) -> bool {
        free <= self.max_factored_by_memory() && (free <= MAX_FACTORED || !self.reuse)
    }

    /// The largest number of free samples that can be factored within the memory.
    fn max_factored_by_memory(&self) -> usize {
        let stored_bytes = self.store.as_ref().map_or(0, |k| 8 * k.len() as u64);
        // Room for the factor, and for its copy while it grows.
        ((self.memory.saturating_sub(stored_bytes) as f64 * 0.9 / 8.0).sqrt()) as usize
    }

    /// Solves (K_FF + diag(ridge))·x = v for every right-hand side. `accuracy` is the residual allowed relative to v if
    /// the method is iterative.
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
            return primal(points, free, ridge, right, control);
        }
        if let Some(DeviceFactored::Factor(factor)) = self.gram.factored(free, ridge, control) {
            let mut x = right.to_vec();
            self.factorisations += 1;
            if factor.solve(&mut x) {
                return Ok(x);
            }
        }
        control.check()?;
        if self.can_factor(free.len()) {
            return self.solve_factored(free, ridge, right, accuracy, control);
        }
        self.drop_factor();
        self.solve_iteratively(free, ridge, right, accuracy, control)
    }

    fn drop_factor(&mut self) {
        self.set.iter().for_each(|&i| self.place[i as usize] = NOT_IN_SET);
        self.set = Vec::new();
        self.ridge = Vec::new();
        self.factor = None;
    }

    fn solve_factored(
        &mut self,
        free: &[u32],
        ridge: &[f64],
        right: &[Vec<f64>],
        accuracy: f64,
        control: &Control,
    ) -> Result<Vec<Vec<f64>>, FactorError> {
        if self.reuse
            && let Some(exact) = self.reuse_factor(free, ridge, control)?
            && let Some(x) = self.solve_with_factor(free, ridge, right, if exact { 0.0 } else { accuracy }, control)?
        {
            return Ok(x);
        }
        self.refactor(free, ridge, control)?;
        match self.solve_with_factor(free, ridge, right, 0.0, control)? {
            Some(x) => Ok(x),
            None => Err(FactorError::NotPositive(0)),
        }
    }

    /// Updates the current factor to the set F. `Some(true)`: r is the same too; `None`: a new factor is cheaper.
    fn reuse_factor(&mut self, free: &[u32], ridge: &[f64], control: &Control) -> Result<Option<bool>, FactorError> {
        if self.factor.is_none() {
            return Ok(None);
        }
        let missing: Vec<usize> = (0..free.len()).filter(|&k| self.place[free[k] as usize] == NOT_IN_SET).collect();
        let held = self.set.len() + missing.len() - free.len();
        if missing.len() * 4 > free.len() || held * 4 > free.len() {
            return Ok(None);
        }
        let (mut smallest, mut largest, mut far) = (f64::INFINITY, 0.0f64, 0usize);
        for (k, &i) in free.iter().enumerate() {
            let at = self.place[i as usize];
            if at != NOT_IN_SET {
                let ratio = ridge[k] / self.ridge[at as usize];
                if (1.0 / 3.0..=3.0).contains(&ratio) {
                    (smallest, largest) = (smallest.min(ratio), largest.max(ratio));
                } else {
                    far += 1;
                }
            }
        }
        // The eigenvalues of the preconditioned system lie between these, except for one per far sample.
        let exact = far == 0 && smallest > 1.0 - 1e-9 && largest < 1.0 + 1e-9;
        if !exact && (free.len() <= ALWAYS_REFACTORED || far > MAX_FAR_RIDGES) {
            return Ok(None);
        }
        if !missing.is_empty() {
            let (n, m) = (self.set.len(), missing.len());
            if n + m > self.max_factored_by_memory() * 7 / 10 {
                return Ok(None);
            }
            let fresh: Vec<u32> = missing.iter().map(|&k| free[k]).collect();
            let (mut cross_block, mut diagonal_block) = (vec![0.0; m * n], vec![0.0; m * m]);
            self.block(&fresh, &self.set, &mut cross_block, control)?;
            self.triangle(&fresh, &mut diagonal_block, control)?;
            (0..m).for_each(|k| diagonal_block[k * m + k] += ridge[missing[k]]);
            let Some(factor) = &mut self.factor else { return Ok(None) };
            match factor.append(cross_block, &diagonal_block, m, control) {
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
        self.drop_factor();
        let m = free.len();
        let mut jitter = 0.0;
        loop {
            let mut a = pages::zeros(m * m);
            self.triangle(free, &mut a, control)?;
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

    /// Solves with the current factor: directly, or (accuracy > 0) by conjugate gradients. `None`: they converge
    /// slowly.
    fn solve_with_factor(
        &self,
        free: &[u32],
        ridge: &[f64],
        right: &[Vec<f64>],
        accuracy: f64,
        control: &Control,
    ) -> Result<Option<Vec<Vec<f64>>>, FactorError> {
        let Some(factor) = &self.factor else { return Ok(None) };
        let precondition = |v: &[f64]| {
            control.spend(2 * self.set.len() * self.set.len());
            let mut set_values = vec![0.0; self.set.len()];
            free.iter().zip(v).for_each(|(&i, v)| set_values[self.place[i as usize] as usize] = *v);
            factor.solve(&mut set_values);
            free.iter().map(|&i| set_values[self.place[i as usize] as usize]).collect::<Vec<f64>>()
        };
        if accuracy == 0.0 {
            let solved = control.threads.map(right.len(), |j| precondition(&right[j]));
            control.check()?;
            return Ok(Some(solved));
        }
        let apply =
            |x: &[Vec<f64>]| self.apply_system(Precision::Double, self.gram, Some(free), free, ridge, x, control);
        let (x, converged) =
            conjugate_gradients(right, accuracy, MAX_OLD_FACTOR_STEPS, apply, |r| Ok(precondition(r)), control)?;
        Ok(converged.then_some(x))
    }
}
