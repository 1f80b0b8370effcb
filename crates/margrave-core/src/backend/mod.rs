//! Backends compute kernel entries and products with the data.
//!
//! A user chooses a [`Device`]. Each device has one [`Backend`], which [`Control`](crate::control::Control) carries
//! together with the threads. Trainers, solvers and models create a [`Gram`] or a [`Matrix`] through that backend and
//! never name a concrete one.

pub mod cpu;
mod streamed;

pub use streamed::{RowSource, RowStream};

use std::fmt;
use std::str::FromStr;

use crate::data::Points;
use crate::error::{Error, Result};
use crate::gram::{ChainSolver, Gram, Matrix, PrecomputedGram};
use crate::kernel::Kernel;

/// Computes kernel entries and products with the data on one kind of device.
pub trait Backend: fmt::Debug + Send + Sync {
    /// The name used on the command line, of the device that computes: asked for after a training, it is what results say.
    fn name(&self) -> &'static str;

    /// k(x, z) of every row x and column z.
    fn gram(&self, kernel: Kernel, rows: &Points, cols: &Points) -> Result<Box<dyn Gram>>;

    /// K over all pairs of points. The points of [`Kernel::Precomputed`] are the rows of K itself.
    fn square_gram(&self, kernel: Kernel, points: &Points) -> Result<Box<dyn Gram>>;

    /// X itself.
    fn matrix(&self, points: &Points) -> Box<dyn Matrix>;

    /// A solver of many problems over one set of points at a time, if the device has one: searches use it.
    fn chains(&self) -> Option<&dyn ChainSolver> {
        None
    }
}

/// Where to compute.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Device {
    /// The processor, unless a front end knows a faster device.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The device of a backend outside this crate.
    Backend(&'static dyn Backend),
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Device::Backend(a), Device::Backend(b)) => std::ptr::addr_eq(*a, *b),
            (Device::Auto, Device::Auto) | (Device::Cpu, Device::Cpu) => true,
            _ => false,
        }
    }
}

impl Eq for Device {}

impl Device {
    /// The devices that need no other crate, with their names.
    pub const ALL: [(&'static str, Device); 2] = [("auto", Device::Auto), ("cpu", Device::Cpu)];

    /// The backend of this device.
    pub fn backend(self) -> &'static dyn Backend {
        match self {
            Device::Auto | Device::Cpu => &Cpu,
            Device::Backend(backend) => backend,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Device::Auto => "auto",
            Device::Cpu => "cpu",
            Device::Backend(backend) => backend.name(),
        })
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(|(name, _)| name).join(" or ");
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, device)| device).ok_or_else(|| Error::option("device", text, names))
    }
}

/// The processor.
#[derive(Debug, Clone, Copy)]
struct Cpu;

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn gram(&self, kernel: Kernel, rows: &Points, cols: &Points) -> Result<Box<dyn Gram>> {
        cpu::CpuGram::for_rows(kernel, rows, cols)
    }

    fn square_gram(&self, kernel: Kernel, points: &Points) -> Result<Box<dyn Gram>> {
        if kernel != Kernel::Precomputed {
            return Ok(Box::new(cpu::CpuGram::square(kernel, points)?));
        }
        if points.len() != points.dims() {
            return Err(Error::data(format!(
                "a precomputed kernel needs a square matrix, but the data is {} × {}",
                points.len(),
                points.dims()
            )));
        }
        Ok(Box::new(PrecomputedGram::new(points.clone())))
    }

    fn matrix(&self, points: &Points) -> Box<dyn Matrix> {
        Box::new(cpu::rows::RowMatrix::new(points))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_name() {
        for (name, device) in Device::ALL {
            assert_eq!((name.parse::<Device>().unwrap(), device.to_string().as_str()), (device, name));
            assert_eq!(device.backend().name(), "cpu");
        }
        let error = "gpu7".parse::<Device>().unwrap_err().to_string();
        assert!(error.contains("gpu7") && error.contains("cpu"), "{error}");
    }

    #[test]
    fn a_precomputed_kernel_is_square() {
        let points = Points::dense_f64(2, 3, vec![0.0; 6]).unwrap();
        assert!(Device::Auto.backend().square_gram(Kernel::Precomputed, &points).is_err());
    }
}
