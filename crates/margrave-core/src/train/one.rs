//! One machine over all rows.

use std::sync::Arc;

use super::approximate_space::ApproximateSpace;
use super::budget;
use super::calibrate::{Subject, Unseen, ascending, settle, unseen};
use super::caution;
use super::fit::Fit;
use super::kernel_space::KernelSpace;
use super::linear_space::LinearSpace;
use super::options::SolverName;
use super::plan::Plan;
use super::prepared::check_same_rows;
use super::space::{LEAST_MEMORY, Request, Space, Trained};
use crate::backend::{RowSource, RowStream};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::gram::Matrix;
use crate::model::{Model, Scheme};
use crate::observe::Observer;
use crate::problem::{Formulation, Setup, Task};

/// The space a plan trains in.
pub(crate) fn space<'a>(plan: &'a Plan<'_>, control: &Control) -> Result<Box<dyn Space + 'a>> {
    // The textbook solvers train on what their papers train on.
    let textbook = matches!(plan.options.solver, SolverName::Smo | SolverName::SvmTorch);
    let merges = plan.options.merge_equal && !textbook;
    if let Some(approx) = plan.options.centres() {
        let source = source(plan, control)?;
        return Ok(Box::new(ApproximateSpace::new(plan.kernel, source, approx, &plan.options, control)?));
    }
    Ok(match plan.linear {
        true => Box::new(LinearSpace::new(&plan.prepared.points, plan.streamed, control)),
        false if merges => {
            Box::new(KernelSpace::with_distinct(plan.kernel, &plan.prepared.points, control)?.kept(control))
        }
        false => Box::new(KernelSpace::new(plan.kernel, &plan.prepared.points, control)?),
    })
}

/// The rows a plan trains a kernel machine on, scaled.
pub(crate) fn source<'a>(plan: &'a Plan<'_>, control: &Control) -> Result<RowSource<'a>> {
    Ok(match plan.streamed {
        Some(rows) => RowSource::Stream(Arc::new(RowStream::new(rows, plan.scaling().cloned(), control)?)),
        None => RowSource::Memory(plan.prepared.points.clone()),
    })
}

/// The problem of some of the rows.
pub(crate) fn problem(plan: &Plan<'_>, space: &dyn Space, targets: &[f64], weights: Option<&[f64]>) -> Result<Setup> {
    let Plan { options, prepared, formulation, loss, .. } = plan;
    prepared.setup(options.task, *formulation, loss, plan.free_bias(), space, targets, weights)
}

/// Which solver trains the machine, and why.
pub(crate) fn solver(plan: &Plan<'_>) -> Result<(&'static str, String)> {
    let control = Control::unlimited(plan.options.threads.clone()).with_device(plan.options.device);
    let space = KernelSpace::new(plan.kernel, &plan.prepared.points, &control)?;
    let setup = problem(plan, &space, &plan.prepared.targets, plan.prepared.weights.as_deref())?;
    space.solver_for(&setup, &plan.options)
}

pub(crate) fn train(plan: &Plan<'_>, control: &Control, observer: &mut dyn Observer) -> Result<Fit> {
    let Plan { options, prepared, .. } = plan;
    let (targets, weights) = (prepared.targets.as_slice(), prepared.weights.as_deref());
    let space = space(plan, control)?;
    let setup = problem(plan, space.as_ref(), targets, weights)?;
    let start = match &options.start {
        None => None,
        Some(model) => {
            check_same_rows(model, &prepared.points)?;
            if model.scheme != Scheme::One {
                return Err(Error::data("the model to resume from has several machines, and this training has one"));
            }
            Some(space.start(model, 0, &model.machine(0), &setup))
        }
    };
    let memory = options.budget.memory.max(LEAST_MEMORY);
    let request = Request { options, memory, control };
    let mut trained = space.solve(&setup, start, request, observer)?;
    if let Some(most) = options.budget_vectors {
        trained = budget::reduce(plan, &setup, trained, most, request, observer)?;
    }
    let subject = Subject { plan, space: space.as_ref(), rows: None, targets, weights };
    let Unseen { used, closed } = unseen(&subject, &setup, &trained, request)?;
    let (calibration, threshold) = match used {
        Some((left, origin)) => settle(plan, &left, targets, origin),
        None => (None, None),
    };
    let left_out = closed.map(|left| ascending(plan, left));
    let mut z = trained.scores(targets.len());
    if let Formulation::Svdd { .. } = plan.formulation {
        z.iter_mut().zip(space.diag()).for_each(|(z, k)| *z -= 0.5 * k);
    }
    let entries = space.entries();
    let cut = threshold.as_ref().map_or(0.0, |threshold| threshold.score);
    let train_error = train_error(options.task, targets, &z, cut);
    let above = z.iter().filter(|z| **z > cut).count();
    let predicted = [(targets.len() - above) as u64, above as u64];
    let cautions = caution::of(plan, &predicted, std::iter::once(&trained.proven.certificate));
    let dual = trained.dual();
    let Trained { proven, weights, solver, reason, compact, merged } = trained;
    let (recipe, seconds) = (plan.recipe(solver), control.seconds());
    let mut model = match weights {
        Some(weights) => {
            let dims = plan.streamed.map_or(prepared.points.dims(), Matrix::dims);
            Model::linear(recipe, weights, dims, &setup, &proven, seconds)?
        }
        None => match plan.streamed {
            None => Model::binary(recipe, plan.kernel, &prepared.points, &setup, &proven, seconds, entries)?,
            Some(rows) => {
                let control = control.for_proof();
                let gather = |rows: &[u32]| Ok(source(plan, &control)?.gather(rows, &control)?);
                Model::binary_of_rows(recipe, plan.kernel, gather, rows.dims(), &setup, &proven, seconds, entries)?
            }
        },
    };
    (model.calibration, model.threshold) = (calibration, threshold);
    model.dual.extend(dual);
    let asked = options.asked_for(&setup);
    Ok(Fit {
        model,
        reason,
        train_error,
        seconds,
        kernel_entries: entries,
        compact,
        asked,
        device: control.backend().name(),
        merged,
        cautions,
        left_out,
    })
}

/// The training error by task, from the scores z of the training points: fraction of wrong labels, mean squared error, or
/// fraction of outliers; the second class is predicted above the score `cut`. NaN if the proof, which computes the scores, was interrupted.
fn train_error(task: Task, targets: &[f64], scores: &[f64], cut: f64) -> f64 {
    if scores.iter().any(|z| z.is_nan()) {
        return f64::NAN;
    }
    let n = targets.len().max(1) as f64;
    let pairs = targets.iter().zip(scores);
    match task {
        Task::Classify => pairs.filter(|(y, z)| (**z > cut) != (**y > 0.0)).count() as f64 / n,
        Task::Regress => pairs.map(|(y, z)| (y - z) * (y - z)).sum::<f64>() / n,
        Task::Novelty => scores.iter().filter(|z| **z < 0.0).count() as f64 / n,
    }
}
