//! Factors that stay where the entries of a Gram are computed.

/// A factored system on a device.
pub trait DeviceFactor: Send + Sync {
    /// Solves for every right-hand side, in place. `false` if the device has failed: the values are then unspecified.
    fn solve(&self, right: &mut [Vec<f64>]) -> bool;
}

/// How a factorisation on a device ended.
pub enum DeviceFactored {
    /// The factor.
    Factor(Box<dyn DeviceFactor>),
    /// The matrix is not positive definite.
    NotPositive,
}

impl std::fmt::Debug for DeviceFactored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DeviceFactored::Factor(_) => "Factor",
            DeviceFactored::NotPositive => "NotPositive",
        })
    }
}
