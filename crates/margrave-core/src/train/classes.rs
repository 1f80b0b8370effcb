//! Several classes: one binary machine per pair of classes, or one per class against the rest.

use std::time::Instant;

use super::calibrate::{Subject, Unseen, is_square, labelled, unseen};
use super::caution;
use super::fit::{Fit, LeaveOneOut};
use super::kernel_space::KernelSpace;
use super::one::{problem, source, space};
use super::options::{LossChoice, Probability, SolverName};
use super::plan::Plan;
use super::prepared::{Prepared, check_same_rows};
use super::proof::prove;
use super::space::{LEAST_MEMORY, Request, Space, Trained};
use super::verdict::Asked;
use crate::compose::calibrate::LeftOut;
use crate::compose::sigmoid::{Labelled, fit_all};
use crate::compose::{LANES, Part, one_vs_one, one_vs_rest, run};
use crate::conflict::OptionName;
use crate::control::{Control, Status, Threads};
use crate::error::{Error, Result};
use crate::gram::{Matrix, Precision};
use crate::kernel::Kernel;
use crate::loss::LossSpec;
use crate::model::{Calibration, Column, DualPoint, Model, Origin, Record, Scheme, multi};
use crate::observe::{Begin, Observer, Step};
use crate::problem::{Formulation, Penalty};
use crate::solver::Solution;
use crate::solver::ridge::{self, Halt, RidgeOptions, Source};

/// Work up to which all machines are trained on the caller's thread, in kernel entries or stored values (20 to 50 ns each, steps
/// and proof included): starting threads takes a tenth of a millisecond.
const ALONE_WORK: u64 = 1 << 15;

/// One trained machine.
struct One {
    column: Column,
    part: Part,
    /// Scores z of the rows of its part.
    scores: Vec<f64>,
    /// w, if the machine is stored as weights.
    weights: Option<Vec<f64>>,
    /// The dual point over all rows, of a machine on few centres.
    dual: Option<DualPoint>,
    /// Its left-out scores and how they were computed, if probabilities are enabled.
    left: Option<(Labelled, Origin)>,
    /// Its leave-one-out scores in closed form, if they were asked for.
    closed: Option<LeftOut>,
    solver: &'static str,
    reason: String,
    merged: usize,
}

/// The parts a scheme divides the data into.
pub(crate) fn parts(scheme: Scheme, classes: usize, codes: &[u32]) -> Vec<Part> {
    match scheme {
        Scheme::OneVsRest => one_vs_rest::parts(classes, codes),
        Scheme::One | Scheme::OneVsOne | Scheme::CrammerSinger | Scheme::Outputs => one_vs_one::parts(classes, codes),
    }
}

/// The names of the classes that a machine separates, for messages.
fn name(plan: &Plan<'_>, scheme: Scheme, at: usize) -> String {
    let labels = &plan.prepared.labels;
    match scheme {
        Scheme::OneVsRest => format!("{} against the rest", labels[at]),
        Scheme::One | Scheme::OneVsOne | Scheme::CrammerSinger | Scheme::Outputs => crate::model::pairs(labels.len())
            .nth(at)
            .map_or_else(String::new, |(i, j)| format!("{} against {}", labels[i], labels[j])),
    }
}

/// Which solver trains the first machine, and why.
pub(crate) fn solver(plan: &Plan<'_>, scheme: Scheme) -> Result<(&'static str, String)> {
    let control = Control::unlimited(plan.options.threads.clone()).with_device(plan.options.device);
    let parts = parts(scheme, plan.prepared.labels.len(), &plan.prepared.codes());
    let Some(part) = parts.first() else { return Ok(("none", "there are no machines".to_owned())) };
    let space = KernelSpace::new(plan.kernel, &plan.prepared.points.gather(&part.rows), &control)?;
    let weights = plan.prepared.weights_of(&part.rows);
    let setup = problem(plan, &space, &part.targets, weights.as_deref())?;
    space.solver_for(&setup, &plan.options)
}

pub(crate) fn train(plan: &Plan<'_>, scheme: Scheme, control: &Control, observer: &mut dyn Observer) -> Result<Fit> {
    let Plan { prepared, kernel, .. } = plan;
    let (classes, codes) = (prepared.labels.len(), prepared.codes());
    let (machines, entries) = if solved_at_once(plan, scheme) {
        let space = KernelSpace::new(*kernel, &prepared.points, control)?;
        let machines = all_at_once(plan, &codes, &space, control, observer)?;
        (machines, space.entries())
    } else {
        let space = space(plan, control)?;
        let machines = one_by_one(plan, scheme, &codes, space.as_ref(), control, observer)?;
        (machines, space.entries())
    };
    let mut predicted = vec![0; classes];
    let lost = lost(scheme, &codes, &machines, &mut predicted);
    let (solver, reason) = machines.first().map_or(("none", String::new()), |m| (m.solver, m.reason.clone()));
    let way = if scheme == Scheme::OneVsRest { "one per class" } else { "one per pair of classes" };
    let reason = format!("{} machines, {way}; {reason}", machines.len());
    let calibration = calibration(plan, scheme, &machines);
    let (costs, recipe) = (prepared.costs(plan.formulation), plan.recipe(solver));
    // A row takes part in every machine of one-vs-rest, and in one machine per other class of one-vs-one.
    let merged = machines.iter().map(|machine| machine.merged);
    let merged = match scheme {
        Scheme::OneVsRest => merged.max().unwrap_or(0),
        _ => merged.sum::<usize>() / (classes - 1).max(1),
    };
    let weights = stacked_weights(&machines, prepared.points.dims());
    let closed: Option<Vec<(Part, LeftOut)>> = match plan.options.leave_one_out {
        true => machines.iter().map(|m| Some((m.part.clone(), m.closed.clone()?))).collect(),
        false => None,
    };
    let duals: Option<Vec<DualPoint>> = machines.iter().map(|machine| machine.dual.clone()).collect();
    let columns = machines.into_iter().map(|machine| machine.column).collect();
    let mut model = match weights {
        Some(w) => Model::several_linear(recipe, w, prepared.points.dims(), scheme, &codes, &costs, columns)?,
        None => {
            let dims = plan.streamed.map_or(prepared.points.dims(), Matrix::dims);
            let reading = control.for_proof();
            let gather = |rows: &[u32]| Ok(source(plan, &reading)?.gather(rows, &reading)?);
            Model::several(recipe, *kernel, gather, dims, scheme, &codes, &costs, columns)?
        }
    };
    model.calibration = calibration;
    let left_out = match closed {
        Some(closed) => together(plan, &model, &closed, &control.for_calibration())?,
        None => None,
    };
    model.dual = duals.unwrap_or_default();
    let train_error = error(&model, prepared, &codes, &lost, &mut predicted, &control.for_proof())?;
    let cautions = caution::of(plan, &predicted, model.machines.iter().map(|record| &record.certificate));
    let asked = plan.options.asked_of(plan.options.stop);
    Ok(Fit {
        model,
        reason,
        train_error,
        seconds: 0.0,
        kernel_entries: entries,
        compact: None,
        asked,
        device: control.backend().name(),
        merged,
        cautions,
        left_out,
    })
}

/// The calibration of all machines, if probabilities are enabled: one rule for all of them.
fn calibration(plan: &Plan<'_>, scheme: Scheme, machines: &[One]) -> Option<Calibration> {
    let left: Option<Vec<Labelled>> = machines.iter().map(|m| m.left.as_ref().map(|(left, _)| left.clone())).collect();
    let (left, origin) = (left?, machines.first()?.left.as_ref()?.1);
    let (asked, weighted) = (plan.options.probability_rule, plan.prepared.weighs_classes());
    let (sigmoids, rule, reason) = fit_all(&left, asked, weighted, scheme == Scheme::OneVsRest);
    Some(Calibration::of_sigmoids(&sigmoids, origin, rule, reason))
}

/// Most numbers that the leave-one-out scores of all machines may be.
const MOST_SCORES: usize = 1 << 23;

/// The leave-one-out scores of all machines for the rows that have them in each machine they belong to. A machine of two other
/// classes was trained without the row anyway: there the row has its plain score.
fn together(
    plan: &Plan<'_>,
    model: &Model,
    closed: &[(Part, LeftOut)],
    control: &Control,
) -> Result<Option<LeaveOneOut>> {
    let (n, k) = (plan.prepared.points.len(), closed.len());
    let (mut expected, mut found) = (vec![0usize; n], vec![0usize; n]);
    for (part, left) in closed {
        part.rows.iter().for_each(|&row| expected[row as usize] += 1);
        left.rows.iter().for_each(|&at| found[part.rows[at as usize] as usize] += 1);
    }
    let complete: Vec<u32> = (0..n as u32).filter(|&row| found[row as usize] == expected[row as usize]).collect();
    let step = (complete.len() * k).div_ceil(MOST_SCORES).max(1);
    let rows: Vec<u32> = complete.into_iter().step_by(step).collect();
    let scores = match model.scheme {
        Scheme::OneVsRest => Ok(vec![0.0; rows.len() * k]),
        _ => model.expansion.scores(&plan.prepared.points.gather(&rows), Precision::Double, control),
    };
    let mut scores = match scores {
        Ok(scores) => scores,
        Err(Error::Interrupted(_)) => return Ok(None),
        Err(other) => return Err(other),
    };
    for (at, (part, left)) in closed.iter().enumerate() {
        for (&own, z) in left.rows.iter().zip(&left.scores) {
            if let Ok(place) = rows.binary_search(&part.rows[own as usize]) {
                scores[place * k + at] = *z;
            }
        }
    }
    Ok(Some(LeaveOneOut { rows, scores, exact: is_square(plan) }))
}

/// The weights of all machines, d × machines; `None` unless every machine is stored as weights.
fn stacked_weights(machines: &[One], dims: usize) -> Option<Vec<f64>> {
    let outputs = machines.len();
    let mut weights = vec![0.0; dims * outputs];
    for (at, machine) in machines.iter().enumerate() {
        let own = machine.weights.as_ref()?;
        own.iter().enumerate().for_each(|(j, w)| weights[j * outputs + at] = *w);
    }
    (outputs > 0).then_some(weights)
}

/// Whether one factorisation solves all machines.
pub(crate) fn solved_at_once(plan: &Plan<'_>, scheme: Scheme) -> bool {
    let options = &plan.options;
    scheme == Scheme::OneVsRest
        && matches!(options.loss, LossChoice::Spec(LossSpec::Square))
        && options.start.is_none()
        && options.solver == SolverName::Auto
        && options.approx.is_none()
        && options.penalty == Penalty::L2
        && options.intercept_scaling.is_none()
        && !matches!(options.probability, Some(Probability::Folds(_)))
        && matches!(plan.formulation, Formulation::Cost { .. })
}

/// Rows that may be misclassified: those on the wrong side of one of the machines trained on them. All others are right,
/// because a class that wins all its pairs has more votes than any other. In `predicted` the number of rows that each class is
/// predicted for, where that is known already (one-vs-rest), and otherwise the number of rows of each class.
fn lost(scheme: Scheme, codes: &[u32], machines: &[One], predicted: &mut [u64]) -> Vec<u32> {
    let mut lost = vec![false; codes.len()];
    if scheme == Scheme::OneVsRest {
        let mut z = vec![0.0; predicted.len()];
        for (row, lost) in lost.iter_mut().enumerate() {
            machines.iter().zip(&mut z).for_each(|(machine, z)| *z = machine.scores[row]);
            let winner = multi::by_score(&z);
            predicted[winner as usize] += 1;
            *lost = z.iter().any(|z| z.is_nan()) || winner != codes[row];
        }
    } else {
        codes.iter().for_each(|&code| predicted[code as usize] += 1);
        for machine in machines {
            for ((&row, y), z) in machine.part.rows.iter().zip(&machine.part.targets).zip(&machine.scores) {
                lost[row as usize] |= z.is_nan() || (*z > 0.0) != (*y > 0.0);
            }
        }
    }
    (0..codes.len() as u32).filter(|&row| lost[row as usize]).collect()
}

/// Fraction of the training rows that are misclassified; only rows in `lost` can be. Those that are move in `predicted`.
fn error(
    model: &Model,
    prepared: &Prepared,
    codes: &[u32],
    lost: &[u32],
    predicted: &mut [u64],
    control: &Control,
) -> Result<f64> {
    if model.scheme == Scheme::OneVsRest {
        return Ok(lost.len() as f64 / codes.len().max(1) as f64);
    }
    let mut wrong = 0;
    let (classes, k) = (model.labels.len(), model.expansion.outputs());
    let mut scratch = vec![0; classes];
    for rows in lost.chunks(((1 << 22) / k).max(1)) {
        let z = model.expansion.scores(&prepared.points.gather(rows), Precision::Single, control)?;
        for (z, &row) in z.chunks_exact(k).zip(rows) {
            let winner = multi::by_votes(classes, z, &mut scratch);
            let code = codes[row as usize];
            predicted[code as usize] -= 1;
            predicted[winner as usize] += 1;
            wrong += usize::from(winner != code);
        }
    }
    Ok(wrong as f64 / codes.len().max(1) as f64)
}

/// Trains every machine separately, several at a time.
fn one_by_one(
    plan: &Plan<'_>,
    scheme: Scheme,
    codes: &[u32],
    space: &dyn Space,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Vec<One>> {
    let Plan { options, prepared, .. } = plan;
    let parts = parts(scheme, prepared.labels.len(), codes);
    if let Some(model) = &options.start {
        check_same_rows(model, &prepared.points)?;
        if model.scheme != scheme || model.labels != prepared.labels {
            return Err(Error::data(format!(
                "the model to resume from is not of the same classes and the same {}",
                OptionName::Multiclass
            )));
        }
    }
    // This share of the memory does not depend on the number of threads: see `LANES`.
    let memory = (options.budget.memory / parts.len().clamp(1, LANES) as u64).max(LEAST_MEMORY);
    let sizes: Vec<u64> = parts.iter().map(|part| space.work(part.rows.len())).collect();
    let alone;
    let control = if sizes.iter().sum::<u64>() <= ALONE_WORK {
        alone = control.with_threads(Threads::one());
        &alone
    } else {
        control
    };
    let begin = Begin {
        solver: if scheme == Scheme::OneVsRest { "one-vs-rest" } else { "one-vs-one" },
        n: prepared.points.len(),
        tol: options.stop.tol,
        gap: options.stop.gap,
    };
    let from = space.entries();
    let mut machines = run(&sizes, &begin, control, observer, |at, control, observer| {
        let named = |e: Error| match e {
            Error::Interrupted(why) => Error::Interrupted(why),
            other => Error::data(format!("{}: {}", name(plan, scheme, at), other.marked())),
        };
        let request = Request { options, memory, control };
        one_machine(plan, at, &parts[at], space, request, observer).map_err(named)
    })?;
    if scheme == Scheme::OneVsRest {
        // All machines count entries on the same Gram at the same time: only the total is known.
        let each = (space.entries() - from) / machines.len().max(1) as u64;
        machines.iter_mut().for_each(|machine| machine.column.record.kernel_entries = each);
    }
    Ok(machines)
}

fn one_machine(
    plan: &Plan<'_>,
    at: usize,
    part: &Part,
    whole: &dyn Space,
    request: Request<'_>,
    observer: &mut dyn Observer,
) -> Result<One> {
    let begun = Instant::now();
    let options = request.options;
    let rows = &part.rows;
    let space = whole.restrict(rows, request.control);
    let before = space.entries();
    let weights = plan.prepared.weights_of(rows);
    let setup = problem(plan, space.as_ref(), &part.targets, weights.as_deref())?;
    let start = options.start.as_ref().map(|model| space.start(model, at, &model.machine_over(at, rows), &setup));
    let mut trained = space.solve(&setup, start, request, observer)?;
    let (targets, own) = (part.targets.as_slice(), weights.as_deref());
    let subject = Subject { plan, space: space.as_ref(), rows: Some(rows), targets, weights: own };
    let Unseen { used, closed } = unseen(&subject, &setup, &trained, request)?;
    let counts = plan.prepared.counts_of(rows);
    let left = used.map(|(left, origin)| (labelled(&left, targets, counts.as_deref()), origin));
    trained.proven.certificate = trained.proven.certificate.with_rows(rows);
    // Without a proof there are no scores: every row may be on the wrong side.
    let scores = trained.scores(rows.len());
    let dual = trained.dual().map(|dual| dual.with_rows(rows));
    let Trained { proven, weights, solver, reason, compact: _, merged } = trained;
    let record = Record::new(&setup, &proven, begun.elapsed().as_secs_f64(), space.entries() - before);
    let column = Column::new(&proven.machine, rows, record);
    Ok(One { column, part: part.clone(), scores, weights, dual, left, closed, solver, reason, merged })
}

/// One-vs-rest least squares for all classes: one factorisation, one right-hand side per class.
fn all_at_once(
    plan: &Plan<'_>,
    codes: &[u32],
    space: &KernelSpace<'_>,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Vec<One>> {
    let Plan { options, prepared, .. } = plan;
    let gram = space.gram();
    let begun = Instant::now();
    let classes = prepared.labels.len();
    let parts = one_vs_rest::parts(classes, codes);
    let targets = one_vs_rest::targets(classes, codes);
    let costs = prepared.costs(plan.formulation);
    let begin = Begin { solver: "ridge", n: codes.len(), tol: options.stop.tol, gap: options.stop.gap };
    let loo = options.probability == Some(Probability::LeaveOneOut) || options.leave_one_out;
    let ridge_options = RidgeOptions { loo, memory: options.budget.memory, ..RidgeOptions::default() };
    let source =
        if plan.kernel == Kernel::Linear { Source::Linear(&prepared.points, gram) } else { Source::Gram(gram) };
    let mut last = Step { phase: "factor", ..Step::default() };
    let stopped = observer.begin(&begin).is_break() || observer.step(&last).is_break();
    let fit = match ridge::fit(source, &targets, classes, &costs, options.bias.then_some(0.0), &ridge_options, control)
    {
        Ok(fit) if !stopped => Some(fit),
        Ok(_) | Err(Halt::Interrupted(_)) => None,
        // Too large to factorise: each machine separately, with a solver that needs less memory.
        Err(Halt::Error(_)) => return one_by_one(plan, Scheme::OneVsRest, codes, space, control, observer),
    };
    let status = match control.check() {
        Err(why) => why.into(),
        Ok(()) if stopped => Status::Interrupted,
        Ok(()) => Status::Optimal,
    };
    let proof = control.for_proof();
    let mut machines = Vec::with_capacity(classes);
    let mut short = false;
    for (class, part) in parts.into_iter().enumerate() {
        let weights = prepared.weights_of(&part.rows);
        let setup = problem(plan, space, &part.targets, weights.as_deref())?;
        let column = |all: &[f64]| (0..codes.len()).map(|row| all[row * classes + class]).collect::<Vec<f64>>();
        let (beta, bias) = match &fit {
            Some(fit) => (column(&fit.beta), fit.bias[class]),
            None => (vec![0.0; codes.len()], 0.0),
        };
        let bias = if options.bias { vec![bias] } else { vec![] };
        let solution =
            Solution { beta, bias, exact: None, scores: None, status, iterations: 1, violation: f64::INFINITY };
        let asked = Asked::from(options.stop_for(&setup));
        let proven = prove(&setup, gram, &solution, &asked, &proof)?;
        short |= proven.status == Status::Inaccurate;
        let seconds = begun.elapsed().as_secs_f64() / classes as f64;
        let record = Record::new(&setup, &proven, seconds, gram.entries() / classes as u64);
        let machine = &proven.machine;
        let mut scores: Vec<f64> = proven.scores.iter().map(|f| f + machine.bias).collect();
        scores.resize(codes.len(), f64::NAN);
        let closed = fit.as_ref().and_then(|fit| fit.loo.as_ref()).map(|residuals| {
            let scores = column(residuals).iter().zip(&part.targets).map(|(r, y)| y - r).collect();
            LeftOut { rows: (0..codes.len() as u32).collect(), scores }
        });
        let counts = prepared.counts_of(&part.rows);
        let left = closed.as_ref().filter(|_| options.probability.is_some());
        let left = left.map(|left| (labelled(left, &part.targets, counts.as_deref()), Origin::LeaveOneOut));
        let column = Column::new(machine, &part.rows, record);
        let reason = "square loss: one factorisation for all classes".to_owned();
        machines.push(One {
            column,
            part,
            scores,
            weights: None,
            dual: None,
            left,
            closed,
            solver: "ridge",
            reason,
            merged: 0,
        });
    }
    last.seconds = control.seconds();
    last.fraction = Some(1.0);
    observer.finish(status, &last);
    if short && control.check().is_ok() {
        // The system is too ill-conditioned to factorise: each machine separately, where other solvers can be tried.
        return one_by_one(plan, Scheme::OneVsRest, codes, space, control, observer);
    }
    Ok(machines)
}
