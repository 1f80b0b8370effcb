//! The certificate of a model of LIBSVM, whose file does not say how it was trained.

use std::collections::HashMap;

use margrave_core::certificate::Certificate;
use margrave_core::conflict::OptionName;
use margrave_core::data::{Dataset, Label, Points};
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::model::Model;
use margrave_core::problem::{Formulation, Task};
use margrave_core::train::certify_all;
use margrave_core::{Control, Error, Result};

use super::{LibsvmKind, LibsvmModel, Training};

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
        return Err(Error::data(format!(
            "a model of type {} has no C: leave out {}; its ν may be given",
            kind.name(),
            OptionName::Cost
        )));
    }
    if said.nu.is_some() && !has_nu {
        return Err(Error::data(format!(
            "a model of type {} has no ν: leave out {}, and give {}",
            kind.name(),
            OptionName::Nu,
            OptionName::Cost
        )));
    }
    if said.epsilon.is_some() && kind != LibsvmKind::EpsilonSvr {
        return Err(Error::data(format!(
            "a model of type {} has no ε: leave out {}",
            kind.name(),
            OptionName::Epsilon
        )));
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
    // As in training: see `TrainOptions::lower_nu`.
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
