//! The device that a user asks for by name.

use std::fmt;
use std::str::FromStr;

use margrave_core::backend::Device;
use margrave_core::data::Points;
use margrave_core::error::{Error, Result};

use crate::backend::CudaBackend;
use crate::error::CudaError;
use crate::resident::card_number;

/// Rows from which `auto` takes a card: opening it takes longer than training on fewer.
pub const WORTHWHILE: usize = 20_000;

/// A device as a user names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceName {
    /// A card, where there is one and the data is large enough; the processor otherwise.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The card with this number.
    Cuda(u32),
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = match text {
            "auto" => return Ok(DeviceName::Auto),
            "cpu" => return Ok(DeviceName::Cpu),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
        };
        let allowed = "auto, cpu, cuda or cuda:N, N being the number of a card";
        number.map(DeviceName::Cuda).ok_or_else(|| Error::option("device", text, allowed))
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Auto => f.write_str("auto"),
            DeviceName::Cpu => f.write_str("cpu"),
            DeviceName::Cuda(0) => f.write_str("cuda"),
            DeviceName::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// The device that was chosen.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The device.
    pub device: Device,
    /// The card, if it is one.
    pub card: Option<&'static CudaBackend>,
    /// Why `auto` chose the processor, if it did.
    pub why_not: Option<WhyNot>,
}

/// Why `auto` chose the processor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNot {
    /// No card can be used.
    Card(CudaError),
    /// Too few rows to be worth opening a card.
    Small {
        /// The number of rows.
        rows: usize,
    },
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::Card(error) => error.fmt(f),
            WhyNot::Small { rows } => {
                write!(f, "{rows} rows are too few to be worth opening a card (from {WORTHWHILE} on)")
            }
        }
    }
}

/// The device with this name, for data of so many rows.
pub fn choose(name: DeviceName, rows: usize) -> Result<Chosen, CudaError> {
    let processor = |why_not| Chosen { device: Device::Cpu, card: None, why_not };
    let card =
        |backend: &'static CudaBackend| Chosen { device: Device::Backend(backend), card: Some(backend), why_not: None };
    match name {
        DeviceName::Cpu => Ok(processor(None)),
        DeviceName::Cuda(number) => CudaBackend::open(number).map(card),
        DeviceName::Auto if rows < WORTHWHILE => Ok(processor(Some(WhyNot::Small { rows }))),
        DeviceName::Auto => {
            Ok(CudaBackend::open_yielding(0).map_or_else(|error| processor(Some(WhyNot::Card(error))), card))
        }
    }
}

/// The device for points that may live on a card: `auto` is that card. Another device is an error that says what to do.
pub fn choose_for(name: DeviceName, points: &Points) -> Result<DeviceName> {
    let Some(number) = card_number(points) else { return Ok(name) };
    let own = DeviceName::Cuda(number);
    match name {
        DeviceName::Auto => Ok(own),
        named if named == own => Ok(own),
        named => Err(Error::data(format!(
            "the points are in the memory of card {number}, but the device is {named}: use the device auto or {own}, or copy \
             the points to the memory of the processor first (X.get() in CuPy, X.cpu().numpy() in PyTorch)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_name() {
        for (text, name) in [
            ("auto", DeviceName::Auto),
            ("cpu", DeviceName::Cpu),
            ("cuda", DeviceName::Cuda(0)),
            ("cuda:3", DeviceName::Cuda(3)),
        ] {
            assert_eq!((text.parse(), name.to_string().as_str()), (Ok(name), text));
        }
        for text in ["gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", ""] {
            let error = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains("cuda:N"), "{error}");
        }
    }

    #[test]
    fn small_data_stays_on_the_processor() {
        let chosen = choose(DeviceName::Auto, 100).unwrap();
        assert_eq!((chosen.why_not, chosen.device.backend().name()), (Some(WhyNot::Small { rows: 100 }), "cpu"));
        assert_eq!(choose(DeviceName::Cpu, 1 << 30).unwrap().why_not, None);
    }

    #[test]
    fn a_large_problem_runs_with_or_without_a_card() {
        let chosen = choose(DeviceName::Auto, WORTHWHILE).unwrap();
        match CudaBackend::open(0) {
            Ok(_) => assert!(chosen.card.is_some() && chosen.why_not.is_none()),
            Err(error) => {
                assert_eq!(
                    (chosen.device.backend().name(), chosen.why_not),
                    ("cpu", Some(WhyNot::Card(error.clone())))
                );
                assert_eq!(choose(DeviceName::Cuda(0), 1).unwrap_err(), error);
            }
        }
    }
}
