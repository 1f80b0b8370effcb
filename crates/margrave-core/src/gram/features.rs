//! Machines on few centres that stay where the entries of a Gram are computed.

use super::Pick;
use super::factored::DeviceFactor;
use crate::control::{Control, Interrupt};

/// Why a device has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEnd {
    /// The run was interrupted.
    Interrupted(Interrupt),
    /// The device has failed, or has too little memory: the caller computes the result itself.
    Failed,
}

impl From<Interrupt> for DeviceEnd {
    fn from(why: Interrupt) -> Self {
        DeviceEnd::Interrupted(why)
    }
}

/// Products with the features F = K·L⁻ᵀ of the rows of a Gram K on its columns, K_SS = L·Lᵀ being K over the columns. As the
/// methods of [`Matrix`](super::Matrix) with the same names; after an `Err` the output is unspecified.
pub trait DeviceFeatures: Send + Sync {
    /// `out = F[rows]·w`.
    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), DeviceEnd>;

    /// `out += F[rows]ᵀ·coefficients`.
    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), DeviceEnd>;

    /// `dots = F[rows]·w` and `out += F[rows]ᵀ·(weights ∘ (dots − shift))`.
    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        w: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), DeviceEnd>;

    /// The factor of I + FᵀAF − hhᵀ/bottom, h = Fᵀa, over the rows with weights a = diag(A).
    fn curvature_factor(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        bottom: f64,
        control: &Control,
    ) -> Result<Box<dyn DeviceFactor>, DeviceEnd>;
}

/// A partial Cholesky factor F·Fᵀ of a square Gram, which grows by blocks of pivots.
pub trait PivotedFactor: Send {
    /// `out = (K − F·Fᵀ)[rows, rows]`, row-major.
    fn residual(&mut self, rows: &[u32], out: &mut [f64], control: &Control) -> Result<(), DeviceEnd>;

    /// Appends the columns (K − F·Fᵀ)[:, pivots]·T⁻ᵀ, T being the Cholesky factor of the residual over the pivots and `inverse` T⁻¹,
    /// row-major. Returns the squared norm of each row of these columns.
    fn extend(&mut self, pivots: &[u32], inverse: &[f64], control: &Control) -> Result<Vec<f64>, DeviceEnd>;
}
