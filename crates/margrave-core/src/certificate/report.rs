//! What a certificate says: the values it has found, and how they are told.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A sample and what it contributes to the gap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// Row of the data, counted from 0.
    pub row: usize,
    /// Its Fenchel–Young term.
    pub gap: f64,
    /// The same as a share of the whole gap.
    pub share: f64,
}

/// Bounds on the optimal value of a convex problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Optimality {
    pub(super) primal: f64,
    pub(super) dual: f64,
    pub(super) gap: f64,
    #[serde(default)]
    pub(super) rounding: f64,
    pub(super) relative_gap: f64,
    pub(super) violation: f64,
    pub(super) feasible: bool,
    pub(super) infeasibility: f64,
    pub(super) bias: Vec<f64>,
    pub(super) squared_norm: f64,
    #[serde(default)]
    pub(super) definite: bool,
    pub(super) worst: Vec<Worst>,
}

impl Optimality {
    /// P at the machine given, with its own bias.
    pub fn primal(&self) -> f64 {
        self.primal
    }

    /// A lower bound on the optimal value: D at β, repaired where it is not feasible, less the rounding; −∞ if the constraint
    /// cannot be met at all.
    pub fn dual(&self) -> f64 {
        self.dual
    }

    /// P − D ≥ 0, [`rounding`](Self::rounding) included: the optimal value lies between the two.
    pub fn gap(&self) -> f64 {
        self.gap
    }

    /// The part of the gap that bounds rounding errors.
    pub fn rounding(&self) -> f64 {
        self.rounding
    }

    /// gap / max(|P|, |D|); 0/0 is 0.
    pub fn relative_gap(&self) -> f64 {
        self.relative_gap
    }

    /// Largest violation of the KKT conditions, in units of the score: max over what can fall of F − min over what can
    /// rise of F. For losses without a dual term, the distance of −β/c from the slopes of the loss at z.
    pub fn violation(&self) -> f64 {
        self.violation
    }

    /// Whether β was feasible, up to rounding, before it was repaired.
    pub fn feasible(&self) -> bool {
        self.feasible
    }

    /// How far β was from feasible: largest excess over its box relative to the cost, or error of a sum relative to Σ|β|.
    pub fn infeasibility(&self) -> f64 {
        self.infeasibility
    }

    /// The bias of each group at which P was taken: the machine's own.
    pub fn bias(&self) -> &[f64] {
        &self.bias
    }

    /// ‖f‖² = βᵀKβ.
    pub fn squared_norm(&self) -> f64 {
        self.squared_norm
    }

    /// Whether the kernel is known to be positive semi-definite. Where it is not, the gap is a proof only if the matrix at hand is.
    pub fn definite(&self) -> bool {
        self.definite
    }

    /// The samples with the largest share of the gap, worst first.
    pub fn worst(&self) -> &[Worst] {
        &self.worst
    }
}

/// gap / max(|P|, |D|), 0/0 being 0; anything that is not a number is no bound.
pub(crate) fn relative(gap: f64, primal: f64, dual: f64) -> f64 {
    if gap == 0.0 {
        return 0.0;
    }
    let ratio = gap / primal.abs().max(dual.abs());
    if gap.is_finite() && ratio.is_finite() { ratio } else { f64::INFINITY }
}

/// What can be said about a point of a non-convex problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stationarity {
    pub(super) objective: f64,
    pub(super) stationarity: f64,
    pub(super) start_objective: Option<f64>,
    pub(super) bias: Vec<f64>,
    pub(super) squared_norm: f64,
}

impl Stationarity {
    /// P.
    pub fn objective(&self) -> f64 {
        self.objective
    }

    /// max |βᵢ + cᵢℓ′(zᵢ)|/cᵢ, the slope at a kink being the one that fits best; and |Σβ − s|/Σc.
    pub fn stationarity(&self) -> f64 {
        self.stationarity
    }

    /// P of the convex start under the same loss, where there was one. It is the solver's word.
    pub fn start_objective(&self) -> Option<f64> {
        self.start_objective
    }

    /// The bias of each group.
    pub fn bias(&self) -> &[f64] {
        &self.bias
    }

    /// ‖f‖² = βᵀKβ.
    pub fn squared_norm(&self) -> f64 {
        self.squared_norm
    }
}

/// The proof that comes with every machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Certificate {
    /// Convex losses: a bound on the distance to the optimum.
    Optimality(Optimality),
    /// Non-convex losses: how nearly stationary the point is.
    Stationarity(Stationarity),
    /// Nothing was checked: a foreign model, or a check that was cut short.
    Unknown,
}

impl Certificate {
    /// The bounds, for a convex problem.
    pub fn optimality(&self) -> Option<&Optimality> {
        match self {
            Certificate::Optimality(o) => Some(o),
            _ => None,
        }
    }

    /// What is known of a non-convex problem.
    pub fn stationarity(&self) -> Option<&Stationarity> {
        match self {
            Certificate::Stationarity(s) => Some(s),
            _ => None,
        }
    }

    /// Whether anything was checked.
    pub fn is_known(&self) -> bool {
        // Files of earlier versions keep an unchecked machine as one of the largest gap there is.
        !matches!(self, Certificate::Unknown) && self.gap().is_none_or(|gap| gap < f64::MAX)
    }

    /// P; NaN if nothing was checked.
    pub fn primal(&self) -> f64 {
        match self {
            Certificate::Optimality(o) => o.primal,
            Certificate::Stationarity(s) => s.objective,
            Certificate::Unknown => f64::NAN,
        }
    }

    /// D, for a convex problem.
    pub fn dual(&self) -> Option<f64> {
        self.optimality().map(|o| o.dual)
    }

    /// P − D, for a convex problem.
    pub fn gap(&self) -> Option<f64> {
        self.optimality().map(|o| o.gap)
    }

    /// The part of the gap that bounds rounding errors.
    pub fn rounding(&self) -> Option<f64> {
        self.optimality().map(|o| o.rounding)
    }

    /// The relative gap, for a convex problem.
    pub fn relative_gap(&self) -> Option<f64> {
        self.optimality().map(|o| o.relative_gap)
    }

    /// KKT violation, or the stationarity residual of a non-convex problem; ∞ if nothing was checked.
    pub fn violation(&self) -> f64 {
        match self {
            Certificate::Optimality(o) => o.violation,
            Certificate::Stationarity(s) => s.stationarity,
            Certificate::Unknown => f64::INFINITY,
        }
    }

    /// The bias of each group; empty if nothing was checked.
    pub fn bias(&self) -> &[f64] {
        match self {
            Certificate::Optimality(o) => &o.bias,
            Certificate::Stationarity(s) => &s.bias,
            Certificate::Unknown => &[],
        }
    }

    /// ‖f‖².
    pub fn squared_norm(&self) -> Option<f64> {
        match self {
            Certificate::Optimality(o) => Some(o.squared_norm),
            Certificate::Stationarity(s) => Some(s.squared_norm),
            Certificate::Unknown => None,
        }
    }

    /// The same with rows numbered as in the data: row i of the certificate is row `rows[i]` there.
    pub fn with_rows(mut self, rows: &[u32]) -> Self {
        if let Certificate::Optimality(o) = &mut self {
            o.worst.iter_mut().for_each(|worst| worst.row = rows[worst.row] as usize);
        }
        self
    }

    /// The same with the objective of the convex start, for a non-convex loss.
    pub fn with_start(mut self, objective: Option<f64>) -> Self {
        if let Certificate::Stationarity(s) = &mut self {
            s.start_objective = objective;
        }
        self
    }

    /// The same with finite numbers only, for formats that have no others: an infinite bound becomes the largest number, which is
    /// still a bound.
    pub fn finite(mut self) -> Self {
        let tame = |v: &mut f64| *v = if v.is_nan() { f64::MAX } else { v.clamp(-f64::MAX, f64::MAX) };
        match &mut self {
            Certificate::Optimality(o) => {
                let scalars = [
                    &mut o.primal,
                    &mut o.dual,
                    &mut o.gap,
                    &mut o.rounding,
                    &mut o.relative_gap,
                    &mut o.violation,
                    &mut o.infeasibility,
                    &mut o.squared_norm,
                ];
                scalars.into_iter().chain(&mut o.bias).for_each(tame);
                o.worst.iter_mut().flat_map(|w| [&mut w.gap, &mut w.share]).for_each(tame);
            }
            Certificate::Stationarity(s) => {
                let scalars = [&mut s.objective, &mut s.stationarity, &mut s.squared_norm];
                scalars.into_iter().chain(&mut s.bias).chain(&mut s.start_objective).for_each(tame);
            }
            Certificate::Unknown => {}
        }
        self
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Certificate::Optimality(o) => o.fmt(f),
            Certificate::Stationarity(s) => s.fmt(f),
            Certificate::Unknown => f.write_str("not checked"),
        }
    }
}

impl fmt::Display for Optimality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "primal    {:.10e}", self.primal)?;
        writeln!(f, "dual      {:.10e}", self.dual)?;
        writeln!(
            f,
            "gap       {:.3e}  (relative {:.3e}; {:.1e} of it bounds rounding)",
            self.gap, self.relative_gap, self.rounding
        )?;
        write!(f, "violation {:.3e}", self.violation)?;
        if !self.feasible {
            write!(f, "\nthe dual point was {:.1e} from feasible and was repaired", self.infeasibility)?;
        }
        for (at, worst) in self.worst.iter().take(3).enumerate() {
            let lead = if at == 0 { "\nworst     " } else { ", " };
            write!(f, "{lead}row {} ({:.1} % of the gap)", worst.row, 100.0 * worst.share)?;
        }
        Ok(())
    }
}

impl fmt::Display for Stationarity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "objective    {:.10e}  (the loss is not convex: no bound on the optimum)", self.objective)?;
        write!(f, "stationarity {:.3e}", self.stationarity)?;
        match self.start_objective {
            Some(start) => write!(f, "\nconvex start {start:.10e}"),
            None => Ok(()),
        }
    }
}
