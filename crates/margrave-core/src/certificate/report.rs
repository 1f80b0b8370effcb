//! The values of a certificate, and how they are displayed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::approximate::{Approximation, TailCheck};

/// A sample and its contribution to the gap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// Row of the data, counted from 0.
    pub row: usize,
    /// Its Fenchel–Young term.
    pub gap: f64,
    /// The term as a fraction of the gap.
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
    #[serde(skip)]
    pub(super) at_zero: f64,
    pub(super) relative_gap: f64,
    pub(super) violation: f64,
    pub(super) feasible: bool,
    pub(super) infeasibility: f64,
    pub(super) bias: Vec<f64>,
    pub(super) squared_norm: f64,
    #[serde(default)]
    pub(super) definite: bool,
    pub(super) worst: Vec<Worst>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) approximation: Option<Approximation>,
}

impl Optimality {
    /// P at the given model, with its own bias.
    pub fn primal(&self) -> f64 {
        self.primal
    }

    /// A lower bound on the optimal value: D at β, repaired if it is not feasible, minus the rounding; −∞ if the
    /// constraint is infeasible.
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

    /// P at the zero machine, f = 0 and b = 0: what a model that learnt nothing costs. For problems where that is nothing (ν,
    /// one-class, SVDD) the largest ½‖f‖² that coefficients of this size could have. 0 if the certificate was read from a file.
    pub fn at_zero(&self) -> f64 {
        self.at_zero
    }

    /// gap / max(|P|, |D|); 0/0 is 0.
    pub fn relative_gap(&self) -> f64 {
        self.relative_gap
    }

    /// Largest violation of the KKT conditions, in units of the score: the maximum of F over variables that can
    /// decrease minus the minimum of F over variables that can increase. For losses without a dual term, the distance
    /// of −β/c from the slopes of the loss at z.
    pub fn violation(&self) -> f64 {
        self.violation
    }

    /// Whether β was feasible, up to rounding, before it was repaired.
    pub fn feasible(&self) -> bool {
        self.feasible
    }

    /// Infeasibility of β: the largest excess over its box relative to the cost, or the error of a sum relative to
    /// Σ|β|.
    pub fn infeasibility(&self) -> f64 {
        self.infeasibility
    }

    /// The bias of each group at which P was evaluated: the model's own.
    pub fn bias(&self) -> &[f64] {
        &self.bias
    }

    /// ‖f‖² = βᵀKβ.
    pub fn squared_norm(&self) -> f64 {
        self.squared_norm
    }

    /// Whether the kernel is known to be positive semi-definite. Otherwise the gap is a proof only if the given matrix
    /// is.
    pub fn definite(&self) -> bool {
        self.definite
    }

    /// The samples with the largest contributions to the gap, worst first.
    pub fn worst(&self) -> &[Worst] {
        &self.worst
    }

    /// For a model on few centres: the parts of its gap. If its check is [`TailCheck::Own`], all bounds are those of the
    /// problem on the centres.
    pub fn approximation(&self) -> Option<&Approximation> {
        self.approximation.as_ref()
    }
}

/// gap / max(|P|, |D|), with 0/0 = 0; NaN means no bound.
pub(crate) fn relative(gap: f64, primal: f64, dual: f64) -> f64 {
    if gap == 0.0 {
        return 0.0;
    }
    let ratio = gap / primal.abs().max(dual.abs());
    if gap.is_finite() && ratio.is_finite() { ratio } else { f64::INFINITY }
}

/// Measures of a point of a non-convex problem.
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

    /// max |βᵢ + cᵢℓ′(zᵢ)|/cᵢ, with the best-fitting slope at a kink; and |Σβ − s|/Σc.
    pub fn stationarity(&self) -> f64 {
        self.stationarity
    }

    /// P of the convex start under the same loss, if there was one, as reported by the solver (not verified).
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

/// The proof of optimality of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Certificate {
    /// Convex losses: a bound on the distance to the optimum.
    Optimality(Optimality),
    /// Non-convex losses: how close the point is to stationary.
    Stationarity(Stationarity),
    /// Nothing was checked: a model of another program, or an interrupted check.
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

    /// The stationarity, for a non-convex problem.
    pub fn stationarity(&self) -> Option<&Stationarity> {
        match self {
            Certificate::Stationarity(s) => Some(s),
            _ => None,
        }
    }

    /// Whether anything was checked.
    pub fn is_known(&self) -> bool {
        // Files of earlier versions store an unchecked model with the largest possible gap.
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

    /// The parts of the gap of a model on few centres.
    pub fn approximation(&self) -> Option<&Approximation> {
        self.optimality().and_then(Optimality::approximation)
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

    /// Renumbers the rows: row i of the certificate becomes row `rows[i]` of the data.
    pub fn with_rows(mut self, rows: &[u32]) -> Self {
        if let Certificate::Optimality(o) = &mut self {
            o.worst.iter_mut().for_each(|worst| worst.row = rows[worst.row] as usize);
        }
        self
    }

    /// Adds the objective of the convex start, for a non-convex loss.
    pub fn with_start(mut self, objective: Option<f64>) -> Self {
        if let Certificate::Stationarity(s) = &mut self {
            s.start_objective = objective;
        }
        self
    }

    /// Replaces infinite bounds by the largest finite number, which is still a bound: for formats without infinities.
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
                if let Some(a) = &mut o.approximation {
                    [&mut a.own_gap, &mut a.own_relative_gap, &mut a.kernel_gap, &mut a.bias_distance]
                        .into_iter()
                        .for_each(tame);
                }
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
        if let Some(a) = &self.approximation {
            let kernel = match a.check {
                TailCheck::Own => "kernel not checked".to_owned(),
                TailCheck::Sampled => format!("kernel {:.3e}, with probability 1 − 1e-9", a.kernel_gap),
                TailCheck::Exact | TailCheck::Auto => format!("kernel {:.3e}", a.kernel_gap),
            };
            write!(f, "\ncentres   {}  (own gap {:.3e} + {kernel})", a.centres, a.own_gap)?;
        }
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
