//! Why a card cannot be used.

use std::fmt;

/// Why a card cannot be used, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not on this computer.
    NoDriver,
    /// The driver is older than the program needs.
    DriverTooOld {
        /// The CUDA version that the driver supports, as 1000·major + 10·minor.
        found: i32,
    },
    /// The driver sees no card.
    NoCard,
    /// There is no card with this number.
    NoSuchCard {
        /// The number asked for.
        wanted: u32,
        /// How many there are.
        count: u32,
    },
    /// The card is older than the program needs.
    CardTooOld {
        /// Its name.
        card: String,
        /// Its compute capability, as 10·major + minor.
        capability: u32,
    },
    /// The card has too little free memory.
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The processor was used instead, for this reason.
    Yielded {
        /// Why.
        message: String,
    },
    /// The driver reported an error.
    Driver {
        /// What was being done.
        what: &'static str,
        /// The driver's name of the error.
        name: String,
    },
}

/// The oldest CUDA version that accepts the embedded programs.
pub const LEAST_CUDA: i32 = 12_000;
/// The oldest compute capability that runs them.
pub const LEAST_CAPABILITY: u32 = 80;

impl std::error::Error for CudaError {}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GIB: f64 = (1u64 << 30) as f64;
        match self {
            CudaError::NoDriver => {
                f.write_str("no CUDA driver (libcuda) on this computer: install NVIDIA's driver, or use the processor")
            }
            CudaError::DriverTooOld { found } => write!(
                f,
                "the CUDA driver is too old: it supports CUDA {}.{}, and {}.{} is needed: install NVIDIA's driver 525 or \
                 newer, or use the processor",
                found / 1000,
                found % 1000 / 10,
                LEAST_CUDA / 1000,
                LEAST_CUDA % 1000 / 10
            ),
            CudaError::NoCard => f.write_str(
                "the CUDA driver finds no card: check nvidia-smi and the variable CUDA_VISIBLE_DEVICES, or use the \
                 processor",
            ),
            CudaError::NoSuchCard { wanted, count } => {
                write!(f, "there is no card {wanted}: the driver finds {count}, counted from 0")
            }
            CudaError::CardTooOld { card, capability } => write!(
                f,
                "{card} has compute capability {}.{}, and {}.{} (Ampere) or newer is needed: use the processor",
                capability / 10,
                capability % 10,
                LEAST_CAPABILITY / 10,
                LEAST_CAPABILITY % 10
            ),
            CudaError::Memory { what, needed, free } => write!(
                f,
                "{:.2} GiB are needed on the card for {what} but {:.2} GiB are free: close other programs that use the \
                 card, choose another card, or use the processor",
                *needed as f64 / GIB,
                *free as f64 / GIB
            ),
            CudaError::Yielded { message } => f.write_str(message),
            CudaError::Driver { what, name } => write!(f, "the card failed while {what}: {name}"),
        }
    }
}

impl From<CudaError> for margrave_core::Error {
    fn from(error: CudaError) -> Self {
        margrave_core::Error::Device { message: error.to_string() }
    }
}
