//! The backend of a card.

use std::sync::Mutex;
use std::sync::PoisonError;

use margrave_core::backend::{Backend, Device};
use margrave_core::data::Points;
use margrave_core::error::Result;
use margrave_core::gram::{Gram, Matrix};
use margrave_core::kernel::Kernel;

use crate::driver::{Card, CardInfo};
use crate::error::CudaError;
use crate::gram::CudaGram;

/// Computes kernel entries on a card. Products with the data itself, which linear solvers use, and precomputed kernels stay
/// on the processor: they move more bytes than they compute.
#[derive(Debug)]
pub struct CudaBackend {
    card: &'static Card,
}

impl CudaBackend {
    /// The backend of card `number`, opened on first use.
    pub fn open(number: u32) -> Result<&'static CudaBackend, CudaError> {
        static OPEN: Mutex<Vec<&'static CudaBackend>> = Mutex::new(Vec::new());
        let card = Card::open(number)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = open.iter().find(|backend| std::ptr::eq(backend.card, card)) {
            return Ok(backend);
        }
        let backend: &'static CudaBackend = Box::leak(Box::new(CudaBackend { card }));
        open.push(backend);
        Ok(backend)
    }

    /// The card.
    pub fn card(&self) -> &CardInfo {
        &self.card.info
    }

    /// Why the card was given up, if it was: later results come from the processor.
    pub fn failure(&self) -> Option<&CudaError> {
        self.card.failure()
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn gram(&self, kernel: Kernel, rows: &Points, cols: &Points) -> Result<Box<dyn Gram>> {
        Ok(Box::new(CudaGram::new(self.card, kernel, rows, cols)?))
    }

    fn square_gram(&self, kernel: Kernel, points: &Points) -> Result<Box<dyn Gram>> {
        if kernel == Kernel::Precomputed {
            return Device::Cpu.backend().square_gram(kernel, points);
        }
        Ok(Box::new(CudaGram::square(self.card, kernel, points)?))
    }

    fn matrix(&self, points: &Points) -> Box<dyn Matrix> {
        Device::Cpu.backend().matrix(points)
    }
}
