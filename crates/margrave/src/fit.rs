//! A trained model with its proof, as returned by this crate.

use std::ops::Deref;
use std::path::Path;

use margrave_core::model::Model;
use margrave_core::train;

/// A trained model with its proof: everything of [`train::Fit`], and a way to save it.
#[derive(Debug, Clone)]
pub struct Fit(train::Fit);

impl Fit {
    /// Writes the model to a file atomically.
    pub fn save(&self, path: impl AsRef<Path>) -> margrave_io::Result<()> {
        margrave_io::model::save(self.0.model(), path)
    }

    /// The model alone.
    pub fn into_model(self) -> Model {
        self.0.into_model()
    }
}

impl Deref for Fit {
    type Target = train::Fit;

    fn deref(&self) -> &train::Fit {
        &self.0
    }
}

impl From<train::Fit> for Fit {
    fn from(fit: train::Fit) -> Self {
        Self(fit)
    }
}
