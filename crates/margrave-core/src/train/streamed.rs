//! Trainings on rows that are read in blocks: which are possible, and what is learned from the rows beforehand.

use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

use super::options::TrainOptions;
use super::plan::Shape;
use crate::backend::{RowSource, RowStream};
use crate::conflict::OptionName;
use crate::control::{Control, Threads};
use crate::data::{ColumnRanges, Scaling};
use crate::error::{Error, Result};
use crate::gram::Matrix;
use crate::kernel::Kernel;
use crate::model::Scheme;
use crate::problem::Penalty;

/// Rows from which γ is determined where a rule asks for their spread.
const SAMPLED_ROWS: usize = 20_000;

/// Fails for trainings that need all rows in memory.
pub(super) fn check(options: &TrainOptions, shape: Shape, linear: bool) -> Result<()> {
    let approximate = options.centres().is_some() && !options.polish && options.budget_vectors.is_none();
    let several = shape == Shape::Classes(Scheme::OneVsRest);
    let possible = (approximate && (shape == Shape::One || several)
        || linear && shape == Shape::One && options.scale.is_none())
        && options.probability.is_none()
        && options.threshold.is_none()
        && options.penalty == Penalty::L2;
    if possible {
        return Ok(());
    }
    Err(Error::data(format!(
        "rows read in blocks are for {} without {} and {}, or for the linear kernel, unscaled, with two classes or a regression; with a cost C, the L2 penalty, and without probabilities or a chosen threshold: raise {}",
        OptionName::Approx,
        OptionName::Polish,
        OptionName::BudgetVectors,
        OptionName::Memory
    )))
}

/// The scaling of rows that are read in blocks, from all of them.
pub(super) fn scaling(options: &TrainOptions, rows: &dyn Matrix, control: &Control) -> Result<Option<Scaling>> {
    let Some(kind) = options.scale else { return Ok(None) };
    let mut found = ColumnRanges::new(rows.dims());
    let order: Vec<u32> = (0..rows.blocks() as u32).collect();
    rows.each_block(&order, control, &mut |_, points| {
        found.add(points);
        Ok(())
    })?;
    Ok(Some(found.scaling(kind)))
}

/// The kernel with γ resolved from rows that are read in blocks: rules that look at the data get a sample of the rows.
pub(super) fn kernel(
    options: &TrainOptions,
    rows: &dyn Matrix,
    scaling: Option<&Scaling>,
    control: &Control,
) -> Result<Kernel> {
    let (Some(rule), Some(_)) = (options.gamma, options.kernel.gamma()) else { return Ok(options.kernel) };
    let n = rows.rows();
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed ^ 0x0067_616d);
    let mut chosen: Vec<u32> = index::sample(&mut rng, n, SAMPLED_ROWS.min(n)).iter().map(|i| i as u32).collect();
    chosen.sort_unstable();
    let source = RowSource::Stream(Arc::new(RowStream::new(rows, scaling.cloned(), control)?));
    let sample = source.gather(&chosen, control)?;
    Ok(options.kernel.with_gamma(rule.resolve(&sample, options.seed)?))
}

/// Control of the preparation: cancelled as the training is.
pub(super) fn control(options: &TrainOptions) -> Control {
    let control = Control::unlimited(Threads::one());
    match &options.cancel {
        Some(cancel) => control.with_cancel(cancel.clone()),
        None => control,
    }
}
