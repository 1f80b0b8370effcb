//! Solvers that live where the entries of a Gram are computed.

use crate::control::{Control, Interrupt};
use crate::loss::DualTerm;

/// A dual problem over all rows of a Gram: minimise ½βᵀKβ + Σ hᵢ(βᵢ) over the boxes of the terms, with Σβ kept at its
/// value in `start` if there is a bias.
#[derive(Debug, Clone, Copy)]
pub struct DeviceProblem<'a> {
    /// hᵢ, one per row.
    pub terms: &'a [DualTerm],
    /// A feasible point.
    pub start: &'a [f64],
    /// Whether Σβ is kept.
    pub keeps_sum: bool,
    /// The KKT violation to reach before the first verdict.
    pub violation: f64,
    /// The largest violation and the largest relative gap that the verdict accepts.
    pub tol: Option<f64>,
    /// See `tol`.
    pub gap: Option<f64>,
}

/// The state of a run on a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStep {
    /// Rounds so far.
    pub rounds: u64,
    /// KKT violation over the rows considered so far.
    pub violation: f64,
    /// Rows considered so far.
    pub rows: usize,
}

/// What a solver on a device tells the one that called it.
pub trait DeviceReport {
    /// After each round; `Err` ends the run.
    fn step(&mut self, step: DeviceStep) -> Result<(), Interrupt>;

    /// K·β by row in double precision. The caller computes it, with the Gram that the solver runs on, and keeps it for the proof.
    fn scores(&mut self, beta: &[f64]) -> Result<Vec<f64>, Interrupt>;

    /// β and K·β in double precision: whether they are good enough.
    fn verdict(&mut self, beta: &[f64], scores: &[f64]) -> bool;
}

/// The point that a solver on a device has reached.
#[derive(Debug, Clone)]
pub struct DevicePoint {
    /// β, feasible up to rounding.
    pub beta: Vec<f64>,
    /// K·β in double precision, unless the run was interrupted.
    pub scores: Option<Vec<f64>>,
    /// Rounds.
    pub rounds: u64,
}

/// A solver that keeps data and variables on a device. Its results are judged by the caller: a run that does not
/// succeed returns a point to go on from.
pub trait DeviceSolver {
    /// Runs until the verdict is good, no more progress is possible, or `control` or `report` end it. `None` if the
    /// problem is not one it solves, or if the device has failed.
    fn solve(
        &self,
        problem: &DeviceProblem<'_>,
        report: &mut dyn DeviceReport,
        control: &Control,
    ) -> Option<DevicePoint>;
}
