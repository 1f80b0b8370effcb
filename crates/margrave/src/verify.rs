//! The independent certificate of a stored model.

use std::collections::HashMap;
use std::sync::Arc;

use margrave_core::certificate::Certificate;
use margrave_core::data::{Dataset, Label, Points};
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Hinge, Loss, LossSpec};
use margrave_core::model::{Model, Scheme};
use margrave_core::problem::{ClassWeight, Formulation, Penalty, Setup, Task};
use margrave_core::{Control, Error, Result};
use margrave_io::model::{LibsvmKind, LibsvmModel, Training};

use crate::fit::{Prepared, check_same_rows, square_gram};
use crate::linear;
use crate::{multi, outputs};

/// Certifies `model` on its training data: K·β is computed anew, in double precision, and nothing of what the model says
/// about itself is believed. `cost` takes the place of the C the model was trained with.
///
/// Fails if the data is not what the model was trained on.
///
/// One certificate a binary machine: for several classes there are several.
pub fn verify(model: &Model, data: &Dataset, cost: Option<f64>, control: &Control) -> Result<Vec<Certificate>> {
    let points = match &model.scaling {
        Some(scaling) => scaling.apply(&data.points.clone().widen(scaling.factor.len()))?,
        None => data.points.clone().widen(model.expansion.width()),
    };
    check_same_rows(model, &points)?;
    certify_all(model, data, points, cost, control)
}

/// The certificates of a model whose centres are known to be rows of `points`, the (scaled) points of `data`.
fn certify_all(
    model: &Model,
    data: &Dataset,
    points: Points,
    cost: Option<f64>,
    control: &Control,
) -> Result<Vec<Certificate>> {
    if model.scheme == Scheme::Outputs {
        let k = model.expansion.outputs();
        let values = match outputs::several(&data.targets) {
            Some((found, values)) if found == k => values,
            found => {
                let found = found.map_or(1, |(found, _)| found);
                return Err(Error::data(format!(
                    "the model predicts {k} numbers, and the data has {found} target{}: name those it was trained on with --target a,b,…",
                    if found == 1 { "" } else { "s" }
                )));
            }
        };
        let loss = model.loss.as_ref().map_or_else(|| LossSpec::Square.build(), LossSpec::build)?;
        let formulation = match (model.formulation, cost) {
            (Formulation::Cost { .. }, Some(c)) => Formulation::Cost { c },
            (same, _) => same,
        };
        return outputs::verify(model, &points, values, data.weights.as_deref(), formulation, loss, control);
    }
    let known = Some((model.labels.as_slice(), model.class_weights.as_slice()));
    let mut prepared = Prepared::new(model.task, data, points, &ClassWeight::Equal, known)?;
    // It may have been lowered in training; a model of another ν does not pass for optimal here.
    prepared.lower_nu = true;
    let formulation = match (model.formulation, cost) {
        (Formulation::Cost { .. }, Some(c)) => Formulation::Cost { c },
        (Formulation::Nu { nu, .. }, Some(c)) => Formulation::Nu { nu, c },
        (same, _) => same,
    };
    let loss: Arc<dyn Loss> = match (&model.loss, formulation) {
        (Some(spec), _) => LossSpec::build(spec)?,
        (None, Formulation::Cost { .. }) => {
            return Err(Error::data("the model was trained with a loss of its user's own, which the file cannot hold"));
        }
        // ν-machines bring their own losses; this one is not looked at.
        (None, _) => Arc::new(Hinge),
    };
    // Without features it has neither weights nor centres.
    if model.scheme == Scheme::CrammerSinger {
        return Ok(vec![linear::verify_together(model, &prepared, formulation, control)?]);
    }
    // Only linear machines have these; without features they cannot be told by their weights.
    let linear = model.intercept_scaling.is_some() || model.penalty == Penalty::L1;
    if linear || model.expansion.is_weights() {
        match model.scheme {
            Scheme::OneVsOne | Scheme::OneVsRest => {
                return linear::verify_several(model, &prepared, formulation, &loss, control);
            }
            Scheme::One | Scheme::Outputs | Scheme::CrammerSinger => {}
        }
        let weights = prepared.weights.as_deref();
        let setup = Setup::new(model.task, formulation, &prepared.targets, weights, loss, model.free_bias, Vec::new)?;
        return Ok(vec![linear::verify(model, &setup, &prepared.points, control)?]);
    }
    let gram = square_gram(*model.expansion.kernel(), &prepared.points)?;
    if model.scheme != Scheme::One {
        return multi::verify(model, &prepared, formulation, loss, gram.as_ref(), control);
    }
    let setup = prepared.setup(model.task, formulation, loss, model.free_bias, gram.as_ref())?;
    Ok(vec![model.certify(&setup, gram.as_ref(), control)?])
}

/// What the file of a LIBSVM model does not say about its training.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LibsvmTraining {
    /// C; 1 if it is not given, and for ν-SVR the largest coefficient. ν-SVC has none.
    pub cost: Option<f64>,
    /// ε of ε-SVR; 0.1 if it is not given.
    pub epsilon: Option<f64>,
    /// ν; recovered from the coefficients if it is not given.
    pub nu: Option<f64>,
}

/// The certificate of a LIBSVM model, and the problem it is a certificate of.
#[derive(Debug, Clone)]
pub struct LibsvmProof {
    /// One a pair of classes.
    pub certificates: Vec<Certificate>,
    /// The formulation with the C and ν that were given or recovered.
    pub formulation: Formulation,
}

/// Certifies a model of LIBSVM on its training data. The file stores neither C, ε nor ν; those not given are taken from the
/// coefficients where that is possible:
///
/// ν-SVC keeps β/ρ with 0 ≤ |β| ≤ 1 and Σ|β| = νn, so that a coefficient at its bound is 1/ρ (the C of the machine as C-SVC)
/// and ν = Σ|β|/n. Where none is at its bound the largest coefficient takes that part: every smaller ν has the same machine, only
/// scaled, and so the same proof. Several pairs of classes share one ν, the smallest found. ν-SVR has |β| ≤ C and
/// Σ|β| = Cνn, and the same holds for its C. One-class has Σβ = νn.
///
/// Fails if the data is not what the model was trained on, or if something is given that its kind does not have.
pub fn verify_libsvm(
    model: &LibsvmModel,
    data: &Dataset,
    said: LibsvmTraining,
    control: &Control,
) -> Result<LibsvmProof> {
    check_said(model.kind, said)?;
    let points = data.points.clone().widen(model.centres.dims());
    let (n, width) = (points.len(), points.dims());
    let total = model.coefficients.iter().map(|c| c.abs()).sum::<f64>();
    let largest = model.coefficients.iter().fold(0.0f64, |a, c| a.max(c.abs()));
    // A ν that rounding has put beyond 1 is 1.
    let share = |sum: f64, most: f64| (sum / (most * n.max(1) as f64)).min(1.0);
    let cost = said.cost.unwrap_or(1.0);
    let (formulation, loss) = match model.kind {
        LibsvmKind::CSvc => (Formulation::Cost { c: cost }, Some(LossSpec::Hinge)),
        LibsvmKind::EpsilonSvr => {
            let epsilon = said.epsilon.unwrap_or(0.1);
            (Formulation::Cost { c: cost }, Some(LossSpec::Epsilon { epsilon }))
        }
        LibsvmKind::OneClass => {
            let nu = settle(said.nu, share(model.coefficients.iter().sum(), 1.0));
            (Formulation::OneClass { nu }, None)
        }
        _ if !(largest > 0.0) => {
            return Err(Error::data("the model has no coefficient that is not 0: there is no ν to be recovered"));
        }
        LibsvmKind::NuSvr => {
            let c = said.cost.unwrap_or(largest);
            (Formulation::Nu { nu: settle(said.nu, share(total, c)), c }, None)
        }
        // Pair by pair, below.
        LibsvmKind::NuSvc => (Formulation::Nu { nu: 1.0, c: 1.0 }, None),
    };
    // Of equal rows with different labels, the class of the centre tells which is meant.
    let class_of = model.class_of();
    let codes: Vec<Option<u32>> = match model.task() {
        Task::Classify => {
            let (classes, codes) = data.targets.classes()?;
            let place = |label: &Label| model.labels.iter().position(|known| known == label).map(|at| at as u32);
            let places: Vec<Option<u32>> = classes.iter().map(place).collect();
            codes.iter().map(|&code| places[code as usize]).collect()
        }
        _ => vec![Some(0); n],
    };
    let mut rows = model.find_rows(&points, |centre, row| codes[row] == Some(class_of[centre]))?;
    if model.task() == Task::Regress && model.kernel != Kernel::Precomputed {
        by_target(&points, data.targets.real()?, &model.coefficients, &mut rows);
    }
    let mut native = model.to_model(Training { rows, n, formulation, loss, width })?;
    if model.kind == LibsvmKind::NuSvc {
        let counts: Vec<f64> = (0..model.labels.len() as u32)
            .map(|class| codes.iter().filter(|code| **code == Some(class)).count() as f64)
            .collect();
        native.formulation = recover_margins(&mut native, &counts, said.nu);
    }
    let certificates = certify_all(&native, data, points, None, control)?;
    Ok(LibsvmProof { certificates, formulation: native.formulation })
}

/// Of equal rows with different targets the file does not tell which a centre is. All have the same score, so that at the optimum
/// β does not fall where the target rises: negative coefficients belong to the least targets, positive ones to the largest.
fn by_target(points: &Points, targets: &[f64], coefficients: &[f64], rows: &mut [u32]) {
    let mut equal: HashMap<Vec<(usize, u64)>, Vec<u32>> = HashMap::new();
    for row in 0..points.len() {
        let mut content = Vec::new();
        points.visit(row, |column, value| {
            if value != 0.0 {
                content.push((column, value.to_bits()));
            }
        });
        equal.entry(content).or_default().push(row as u32);
    }
    let centre_of: HashMap<u32, usize> = rows.iter().enumerate().map(|(centre, &row)| (row, centre)).collect();
    for mut group in equal.into_values().filter(|group| group.len() > 1) {
        let mut own: Vec<usize> = group.iter().filter_map(|row| centre_of.get(row).copied()).collect();
        own.sort_by(|&a, &b| coefficients[a].total_cmp(&coefficients[b]));
        group.sort_by(|&a, &b| targets[a as usize].total_cmp(&targets[b as usize]));
        let below = own.iter().filter(|&&centre| coefficients[centre] < 0.0).count();
        let spare = group.len() - own.len();
        for (at, centre) in own.into_iter().enumerate() {
            rows[centre] = group[if at < below { at } else { spare + at }];
        }
    }
}

/// The ν given, unless the coefficients say the same but for rounding: then they add up.
fn settle(given: Option<f64>, found: f64) -> f64 {
    given.filter(|nu| (nu - found).abs() > 1e-6 * found).unwrap_or(found)
}

/// Fails for parameters that a kind of machine does not have.
fn check_said(kind: LibsvmKind, said: LibsvmTraining) -> Result<()> {
    let has_cost = matches!(kind, LibsvmKind::CSvc | LibsvmKind::EpsilonSvr | LibsvmKind::NuSvr);
    let has_nu = matches!(kind, LibsvmKind::NuSvc | LibsvmKind::NuSvr | LibsvmKind::OneClass);
    if said.cost.is_some() && !has_cost {
        return Err(Error::data(format!("a model of type {} has no C: leave out -C; its ν may be given", kind.name())));
    }
    if said.nu.is_some() && !has_nu {
        return Err(Error::data(format!("a model of type {} has no ν: leave out --nu, and give -C", kind.name())));
    }
    if said.epsilon.is_some() && kind != LibsvmKind::EpsilonSvr {
        return Err(Error::data(format!("a model of type {} has no ε to be given: leave out --epsilon", kind.name())));
    }
    Ok(())
}

/// Sets ρ of every pair of classes of a ν-SVC, from its ν or from the largest coefficients; `counts` are the rows of each class.
fn recover_margins(model: &mut Model, counts: &[f64], given: Option<f64>) -> Formulation {
    // Two classes were taken over the other way round, which does not matter to their sum.
    let rows = |(i, j): (usize, usize)| counts[i] + counts[j];
    let machines: Vec<(f64, f64, f64)> = margrave_core::model::pairs(counts.len())
        .enumerate()
        .map(|(output, pair)| {
            let column = model.expansion.column(output);
            let sum = column.iter().map(|c| c.abs()).sum::<f64>();
            (sum, column.iter().fold(0.0, |a: f64, c| a.max(c.abs())), rows(pair))
        })
        .collect();
    let largest = |(i, j): (usize, usize)| 2.0 * counts[i].min(counts[j]) / rows((i, j));
    let each = machines.iter().zip(margrave_core::model::pairs(counts.len()));
    // No pair can have more than its largest ν, but by rounding.
    let found =
        each.filter(|((sum, _, _), _)| *sum > 0.0).map(|((sum, most, n), pair)| (sum / (most * n)).min(largest(pair)));
    let nu = settle(given, found.fold(1.0, f64::min));
    // As in training: see `Svm::lower_nu`.
    let lowered = |pair| if nu > largest(pair) { 0.99 * largest(pair) } else { nu };
    for ((record, (sum, _, n)), pair) in
        model.machines.iter_mut().zip(&machines).zip(margrave_core::model::pairs(counts.len()))
    {
        if *sum > 0.0 {
            record.rho = lowered(pair) * n / sum;
        }
    }
    Formulation::Nu { nu, c: 1.0 }
}
