//! Chains of dual problems that a device solves side by side: the trainings of a search over one set of points.

use crate::control::Control;
use crate::data::Points;
use crate::kernel::Kernel;
use crate::loss::DualTerm;

/// One dual problem of a chain: minimise ½βᵀKβ + Σ hᵢ(βᵢ) over the boxes of the terms with Σβ = 0.
#[derive(Debug, Clone)]
pub struct ChainLink {
    /// hᵢ, one per row; `eps` is the same for all rows, and so is `d` for those with lo < hi.
    pub terms: Vec<DualTerm>,
    /// Its costs divided by those of the link before: β of that link, scaled by it, is a feasible start.
    pub ratio: f64,
    /// The KKT violation to reach.
    pub tol: f64,
}

/// Problems over the same K, each started from the solution of the one before it; the first from β = 0.
#[derive(Debug, Clone)]
pub struct ProblemChain {
    /// Which of the kernels.
    pub kernel: usize,
    /// The problems, costs ascending.
    pub links: Vec<ChainLink>,
    /// Pair steps that a link may take before the next one starts from where it is.
    pub steps: u64,
    /// Further steps of the links that have not reached their violation, all side by side, once the chains have ended.
    pub more: u64,
}

/// The point reached for a link.
#[derive(Debug, Clone)]
pub struct ChainPoint {
    /// β, feasible up to rounding.
    pub beta: Vec<f64>,
    /// K·β: sums in double precision over entries in single precision.
    pub scores: Vec<f64>,
    /// Pair steps.
    pub steps: u64,
    /// Whether the violation was reached.
    pub reached: bool,
}

/// Solves chains side by side. Its results are judged by the caller.
pub trait ChainSolver: Send + Sync {
    /// The points of all links of all chains, over the kernels of these points. A link that takes too many steps ends where it
    /// is. `None` if these are not chains it solves, if they do not fit, if `control` ends it, or if the device fails.
    fn solve(
        &self,
        points: &Points,
        kernels: &[Kernel],
        chains: &[ProblemChain],
        control: &Control,
    ) -> Option<Vec<Vec<ChainPoint>>>;
}

/// ε and d of a link, if they are the same for all rows that can move and β = 0 is feasible.
pub fn uniform(terms: &[DualTerm]) -> Option<(f64, f64)> {
    let moves = |t: &&DualTerm| t.lo < t.hi;
    let first = terms.iter().find(moves)?;
    let same = |t: &DualTerm| t.eps == first.eps && t.d == first.d && t.lo <= 0.0 && t.hi >= 0.0 && t.p.is_finite();
    (first.d.is_finite() && first.eps.is_finite() && terms.iter().filter(moves).all(same))
        .then_some((first.eps, first.d))
}
