//! The Gram matrix: the only boundary between solvers and backends.
//!
//! A solver accesses K only through [`Gram`]: as blocks of entries, or as a product that never stores K. Device memory,
//! packing, SIMD and sparsity are hidden behind it. User-defined kernels implement this trait.

mod chains;
mod device;
mod factored;
mod features;
mod kept;
mod matrix;
mod picked;
mod precomputed;
mod spectrum;
mod stored;

pub use chains::{ChainLink, ChainPoint, ChainSolver, ProblemChain, uniform};
pub use device::{DevicePoint, DeviceProblem, DeviceReport, DeviceSolver, DeviceStep};
pub use factored::{DeviceFactor, DeviceFactored};
pub use features::{DeviceEnd, DeviceFeatures, PivotedFactor};
pub use kept::KeptGram;
pub use matrix::{Matrix, RowsBehind};
pub use picked::{Picked, part};
pub use precomputed::PrecomputedGram;
pub use spectrum::{Spectrum, SpectrumMethod, SpectrumOptions, asymmetry, smallest_eigenvalue};
pub use stored::{StoredGram, Without};

use crate::control::{Control, Interrupt};
use crate::linalg::factor::Cholesky;

/// Multiply–adds of an entry from which it is kept rather than computed again, with vectors of 256 bits.
pub(crate) const EXPENSIVE_ENTRY: f64 = 192.0;

/// A selection of rows or columns.
#[derive(Debug, Clone, Copy)]
pub enum Pick<'a> {
    /// All of them.
    All,
    /// `from..to`.
    Range(usize, usize),
    /// The listed indices, in that order.
    List(&'a [u32]),
}

impl Pick<'_> {
    /// Number of selected indices, out of `n`.
    pub fn len(&self, n: usize) -> usize {
        match self {
            Pick::All => n,
            Pick::Range(from, to) => to - from,
            Pick::List(list) => list.len(),
        }
    }

    /// The `i`-th selected index.
    pub fn get(&self, i: usize) -> usize {
        match self {
            Pick::All => i,
            Pick::Range(from, _) => from + i,
            Pick::List(list) => list[i] as usize,
        }
    }
}

/// The precision kernel entries are computed and stored in. Sums over entries are always f64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Entries accurate to about 1e-6.
    Single,
    /// Entries accurate to about 1e-15.
    Double,
}

/// K with `n` rows and `m` columns, computed on demand.
///
/// Every method gives the same bits for any number of threads, and returns `Err` soon (≤ 50 ms) after `control` is
/// interrupted; the output is then unspecified but initialised.
///
/// Six methods are required. The others are optional: they describe the entries or offer faster ones, and their default
/// bodies are correct for every Gram.
pub trait Gram: Send + Sync {
    /// Number of rows and columns.
    fn shape(&self) -> (usize, usize);

    /// The diagonal of a square Gram.
    fn diag(&self) -> Vec<f64>;

    /// `out[r·len(cols) + c] = K[rows[r], cols[c]]`, single precision.
    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt>;

    /// `out[r·len(cols) + c] = K[rows[r], cols[c]]`, double precision.
    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt>;

    /// `out = K[rows, :]·V`, V being `m × k` and `out` `len(rows) × k`, both row-major. K is never stored. Columns
    /// whose row of V is all zero cost nothing.
    fn apply(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt>;

    /// Number of kernel entries computed so far by this Gram.
    fn entries(&self) -> u64;

    // Optional capabilities.

    /// K restricted to the given rows and the same columns, as a Gram of its own whose blocks are faster than blocks of
    /// this one with index lists. Its entries are counted here too. `None` if there is nothing to gain.
    fn select(&self, _rows: &[u32]) -> Option<Box<dyn Gram + '_>> {
        None
    }

    /// The same K with faster single-precision entries, accurate to about 1e-5 instead of 1e-6: for solvers that verify
    /// their result in double precision. Its entries are counted here too. `None` if there is nothing to gain.
    fn rough(&self) -> Option<Box<dyn Gram + '_>> {
        None
    }

    /// A solver that keeps dual problems over this K where its entries are computed. `None` if there is none.
    fn device_solver(&self) -> Option<&dyn DeviceSolver> {
        None
    }

    /// The factor of K[rows, rows] + diag(diagonal) in double precision, computed and kept where the entries are computed. `None` if there is
    /// nothing to gain, if it does not fit, or if `control` ends it.
    fn factored(&self, _rows: &[u32], _diagonal: &[f64], _control: &Control) -> Option<DeviceFactored> {
        None
    }

    /// Products with the features of the rows on the columns, K over the columns having the given factor, computed where the entries
    /// are. `None` if there is nothing to gain, or if they do not fit.
    fn features(&self, _factor: &Cholesky<f64>, _precision: Precision) -> Option<Box<dyn DeviceFeatures>> {
        None
    }

    /// A partial Cholesky factor of up to `most` columns, computed and kept where the entries are computed. `None` if there is nothing
    /// to gain, or if it does not fit.
    fn pivoted(&self, _most: usize) -> Option<Box<dyn PivotedFactor>> {
        None
    }

    /// Approximate number of multiply–adds per entry: solvers use it to decide whether to keep entries or to recompute
    /// them. ∞ means unknown; solvers then treat entries as expensive.
    fn effort(&self) -> f64 {
        f64::INFINITY
    }

    /// Whether to keep an entry that is used a few times takes less time than to compute it again. Fresh memory is slow, so that
    /// only expensive entries are worth it.
    fn worth_keeping(&self) -> bool {
        self.effort() >= EXPENSIVE_ENTRY
    }

    /// Whether all entries are in memory in double precision, so that single precision saves nothing.
    fn in_memory(&self) -> bool {
        false
    }

    /// Bounds on the entries and on their rounding errors in double precision. Called for square Grams only.
    ///
    /// The default suits positive semi-definite matrices, for which |K[i, j]| ≤ √(K[i, i]·K[j, j]), and assumes entries
    /// accurate to 64 units of roundoff.
    fn accuracy(&self) -> Accuracy {
        Accuracy {
            size: self.diag().iter().map(|k| k.abs().sqrt()).collect(),
            relative: 64.0,
            definite: false,
            chain: Chain::default(),
        }
    }
}

impl<G: Gram + ?Sized> Gram for &G {
    fn shape(&self) -> (usize, usize) {
        (**self).shape()
    }

    fn diag(&self) -> Vec<f64> {
        (**self).diag()
    }

    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        (**self).block_f32(rows, cols, out, control)
    }

    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        (**self).block_f64(rows, cols, out, control)
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
        (**self).apply(precision, rows, v, k, out, control)
    }

    fn entries(&self) -> u64 {
        (**self).entries()
    }

    fn select(&self, rows: &[u32]) -> Option<Box<dyn Gram + '_>> {
        (**self).select(rows)
    }

    fn rough(&self) -> Option<Box<dyn Gram + '_>> {
        (**self).rough()
    }

    fn device_solver(&self) -> Option<&dyn DeviceSolver> {
        (**self).device_solver()
    }

    fn factored(&self, rows: &[u32], diagonal: &[f64], control: &Control) -> Option<DeviceFactored> {
        (**self).factored(rows, diagonal, control)
    }

    fn features(&self, factor: &Cholesky<f64>, precision: Precision) -> Option<Box<dyn DeviceFeatures>> {
        (**self).features(factor, precision)
    }

    fn pivoted(&self, most: usize) -> Option<Box<dyn PivotedFactor>> {
        (**self).pivoted(most)
    }

    fn effort(&self) -> f64 {
        (**self).effort()
    }

    fn worth_keeping(&self) -> bool {
        (**self).worth_keeping()
    }

    fn in_memory(&self) -> bool {
        (**self).in_memory()
    }

    fn accuracy(&self) -> Accuracy {
        (**self).accuracy()
    }
}

/// Bounds on the entries of a square Gram and on their rounding errors: |K[i, j]| ≤ sizeᵢ·sizeⱼ, and an entry computed
/// in double precision has an error of at most u·relative·sizeᵢ·sizeⱼ, where u = 2⁻⁵³ is the unit roundoff.
#[derive(Debug, Clone)]
pub struct Accuracy {
    /// sizeᵢ, one per row.
    pub size: Vec<f64>,
    /// The relative error, in units of roundoff.
    pub relative: f64,
    /// Whether the kernel is known to be positive semi-definite.
    pub definite: bool,
    /// How products with K are added up.
    pub chain: Chain,
}

/// Number of additions in the longest chain of a product with m columns: fixed + m / columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chain {
    /// Additions whatever the number of columns.
    pub fixed: f64,
    /// Columns per further addition.
    pub columns: f64,
}

impl Default for Chain {
    /// At least 8 lanes.
    fn default() -> Self {
        Self { fixed: 32.0, columns: 8.0 }
    }
}

impl Chain {
    /// Additions for a product with `columns` columns.
    pub fn additions(&self, columns: usize) -> f64 {
        self.fixed + columns as f64 / self.columns
    }
}
