//! The backend of a card.

use std::sync::{Mutex, OnceLock, PoisonError};

use margrave_core::backend::{Backend, Device};
use margrave_core::data::Points;
use margrave_core::error::{Error, Result};
use margrave_core::gram::{ChainSolver, Gram, Matrix};
use margrave_core::kernel::Kernel;

use crate::driver::{Card, CardInfo};
use crate::error::CudaError;
use crate::gram::CudaGram;

/// Computes kernel entries on a card. Products with the data itself, which linear solvers use, and precomputed kernels stay
/// on the processor: they move more bytes than they compute.
#[derive(Debug)]
pub struct CudaBackend {
    card: &'static Card,
    /// Whether the processor takes what does not fit the card.
    yields: bool,
    /// What did not fit.
    yielded: OnceLock<CudaError>,
}

impl CudaBackend {
    /// The backend of card `number`, opened on first use.
    pub fn open(number: u32) -> Result<&'static CudaBackend, CudaError> {
        Self::find(number, false)
    }

    /// Like [`open`](Self::open), but the processor takes what does not fit the memory of the card.
    pub fn open_yielding(number: u32) -> Result<&'static CudaBackend, CudaError> {
        Self::find(number, true)
    }

    fn find(number: u32, yields: bool) -> Result<&'static CudaBackend, CudaError> {
        static OPEN: Mutex<Vec<&'static CudaBackend>> = Mutex::new(Vec::new());
        let card = Card::open(number)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = open.iter().find(|b| std::ptr::eq(b.card, card) && b.yields == yields) {
            return Ok(backend);
        }
        let backend: &'static CudaBackend = Box::leak(Box::new(CudaBackend { card, yields, yielded: OnceLock::new() }));
        open.push(backend);
        Ok(backend)
    }

    /// The Gram of the card, or that of the processor if it does not fit and may yield.
    fn or_processor(
        &self,
        gram: Result<CudaGram>,
        processor: impl FnOnce(&dyn Backend) -> Result<Box<dyn Gram>>,
    ) -> Result<Box<dyn Gram>> {
        match gram {
            Err(Error::Device { message }) if self.yields => {
                let _ = self.yielded.set(CudaError::Yielded { message });
                processor(Device::Cpu.backend())
            }
            other => Ok(Box::new(other?)),
        }
    }

    pub(crate) fn raw_card(&self) -> &'static Card {
        self.card
    }

    /// Records a failure of the card.
    pub(crate) fn note(&self, error: CudaError) {
        self.card.note(&error);
    }

    /// Loads all programs now instead of on first use: the driver compiles what it has not met before, which takes seconds.
    pub fn load_programs(&self) -> Result<(), CudaError> {
        self.card.enter()?.load_modules()
    }

    /// The card.
    pub fn card(&self) -> &CardInfo {
        &self.card.info
    }

    /// The failure of the card itself, if there was one: values in its memory are lost.
    pub fn card_failure(&self) -> Option<&CudaError> {
        self.card.failure()
    }

    /// Why the card was given up, if it was: later results come from the processor.
    pub fn failure(&self) -> Option<&CudaError> {
        self.card.failure().or(self.yielded.get())
    }
}

impl Backend for CudaBackend {
    /// `cpu` once the processor has taken over.
    fn name(&self) -> &'static str {
        if self.failure().is_some() { "cpu" } else { "cuda" }
    }

    fn gram(&self, kernel: Kernel, rows: &Points, cols: &Points) -> Result<Box<dyn Gram>> {
        self.or_processor(CudaGram::new(self.card, kernel, rows, cols), |cpu| cpu.gram(kernel, rows, cols))
    }

    fn square_gram(&self, kernel: Kernel, points: &Points) -> Result<Box<dyn Gram>> {
        if kernel == Kernel::Precomputed {
            return Device::Cpu.backend().square_gram(kernel, points);
        }
        self.or_processor(CudaGram::square(self.card, kernel, points), |cpu| cpu.square_gram(kernel, points))
    }

    fn matrix(&self, points: &Points) -> Box<dyn Matrix> {
        Device::Cpu.backend().matrix(points)
    }

    fn chains(&self) -> Option<&dyn ChainSolver> {
        Some(self)
    }
}
