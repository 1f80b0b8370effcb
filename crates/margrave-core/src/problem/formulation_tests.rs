//! Tests each formulation against its objective, minimised by brute force on a few points of a line.

use super::*;
use crate::backend::cpu::CpuGram;
use crate::certificate::{Certificate, Optimality, certify};
use crate::control::{Control, Threads};
use crate::data::Points;
use crate::gram::Pick;
use crate::kernel::Kernel;
use crate::loss::Hinge;

fn control() -> Control {
    Control::unlimited(Threads::one())
}

fn line(x: &[f64]) -> CpuGram {
    CpuGram::square(Kernel::Linear, &Points::dense_f64(x.len(), 1, x.to_vec()).unwrap()).unwrap()
}

/// The minimum of a function of `from.len()` parameters by compass search with decreasing steps: slow but simple.
/// Piecewise functions have ridges, so random directions (a fixed sequence) are tried besides the axes.
fn minimise(objective: impl Fn(&[f64]) -> f64, from: &[f64]) -> (Vec<f64>, f64) {
    let mut at = from.to_vec();
    let mut best = objective(&at);
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    };
    let mut step = 1.0;
    while step > 1e-11 {
        let mut moved = false;
        for _ in 0..400 {
            let there: Vec<f64> = at.iter().map(|v| v + step * random()).collect();
            let value = objective(&there);
            if value < best {
                (at, best, moved) = (there, value, true);
            }
        }
        if !moved {
            step *= 0.8;
        }
    }
    (at, best)
}

/// Solves the dual by steepest feasible pairs within groups; sufficient for a few variables.
fn solve(setup: &Setup, gram: &CpuGram) -> (Vec<f64>, Optimality) {
    let n = setup.rows();
    let mut k = vec![0.0; n * n];
    gram.block_f64(Pick::All, Pick::All, &mut k, &control()).unwrap();
    setup
        .with(gram, |p| {
            let m = p.len();
            let terms: Vec<_> = (0..m).map(|i| p.dual_term(i).unwrap()).collect();
            let mut beta = vec![0.0; m];
            for g in 0..p.constraint.groups() {
                let mut left = p.constraint.sum(g);
                for i in (0..m).filter(|&i| p.constraint.group(i) == Some(g)) {
                    let step = left.clamp(terms[i].lo, terms[i].hi);
                    beta[i] = step;
                    left -= step;
                }
                assert!(left.abs() < 1e-12, "the sums must be feasible");
            }
            for _ in 0..100_000 {
                let f: Vec<f64> = (0..m)
                    .map(|i| terms[i].p + (0..m).map(|j| k[p.row(i) * n + p.row(j)] * beta[j]).sum::<f64>())
                    .collect();
                let mut best = (1e-13, 0, 0);
                for g in 0..p.constraint.groups() {
                    let own = || (0..m).filter(|&i| p.constraint.group(i) == Some(g));
                    let up = own().filter(|&i| beta[i] < terms[i].hi).min_by(|a, b| f[*a].total_cmp(&f[*b]));
                    let down = own().filter(|&i| beta[i] > terms[i].lo).max_by(|a, b| f[*a].total_cmp(&f[*b]));
                    if let (Some(up), Some(down)) = (up, down)
                        && f[down] - f[up] > best.0
                    {
                        best = (f[down] - f[up], up, down);
                    }
                }
                let (gap, up, down) = best;
                if up == down {
                    break;
                }
                let (a, b) = (p.row(up), p.row(down));
                let curvature = (k[a * n + a] + k[b * n + b] - 2.0 * k[a * n + b]).max(1e-12);
                let step = (gap / curvature).min(terms[up].hi - beta[up]).min(beta[down] - terms[down].lo);
                beta[up] += step;
                beta[down] -= step;
            }
            match certify(p, &beta, None, None, &control()).unwrap() {
                Certificate::Optimality(o) => Ok((beta, o)),
                other => panic!("{other:?}"),
            }
        })
        .unwrap()
}

#[test]
fn nu_classification_minimises_its_objective_and_equals_c_classification_with_cost_one_over_rho() {
    let x = [-2.0, -1.0, -0.2, 0.1, 0.5, 1.5, 2.5];
    let y = [-1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 1.0];
    let w = [1.0, 2.0, 1.0, 1.0, 1.0, 0.5, 1.0];
    let nu = 0.5;
    let total: f64 = w.iter().sum();
    let objective = |v: &[f64]| {
        let (slope, b, rho) = (v[0], v[1], v[2]);
        let loss: f64 = (0..7).map(|i| w[i] * (rho - y[i] * (slope * x[i] + b)).max(0.0)).sum();
        0.5 * slope * slope - nu * total * rho + loss
    };
    let gram = line(&x);
    let setup = Setup::nu_classify(&y, Some(&w), nu).unwrap();
    let (beta, o) = solve(&setup, &gram);
    assert!(o.gap() < 1e-9, "{o:?}");
    let (_, best) = minimise(objective, &[1.0, 0.0, 1.0]);
    // The search may stop early on ridges, but never below the minimum.
    assert!(best > o.primal() - 1e-9 && best < o.primal() + 1e-3, "{best} {}", o.primal());
    let machine = setup.machine(&beta, o.bias());
    // The objective as written, evaluated at the certified point.
    let slope: f64 = machine.coefficients.iter().zip(&x).map(|(c, x)| c * x).sum::<f64>() * machine.rho;
    assert!((objective(&[slope, machine.bias * machine.rho, machine.rho]) - o.primal()).abs() < 1e-9);

    let ordinary = Setup::classify(&y, Some(&w), 1.0 / machine.rho, Arc::new(Hinge), true).unwrap();
    let certificate = ordinary
        .with(&gram, |p| Ok(certify(p, &machine.coefficients, Some(&[machine.bias]), None, &control()).unwrap()))
        .unwrap();
    assert!(certificate.relative_gap().unwrap() < 1e-8, "{certificate}");

    let (again, bias) = setup.solution(&machine);
    for (a, b) in again.iter().chain(&bias).zip(beta.iter().chain(o.bias())) {
        assert!((a - b).abs() < 1e-12);
    }
}

#[test]
fn nu_regression_minimises_its_objective() {
    let x = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let y = [0.1, 0.8, 2.3, 2.7, 4.9, 4.6];
    let w = [1.0, 1.0, 2.0, 1.0, 1.0, 0.5];
    let (c, nu) = (0.7, 0.4);
    let total: f64 = w.iter().sum();
    let objective = |v: &[f64]| {
        let (slope, b, eps) = (v[0], v[1], v[2]);
        if eps < 0.0 {
            return f64::INFINITY;
        }
        let loss: f64 = (0..6).map(|i| w[i] * ((y[i] - slope * x[i] - b).abs() - eps).max(0.0)).sum();
        0.5 * slope * slope + c * nu * total * eps + c * loss
    };
    let setup = Setup::nu_regress(&y, Some(&w), c, nu).unwrap();
    let (beta, o) = solve(&setup, &line(&x));
    assert!(o.gap() < 1e-9, "{o:?}");
    let (_, best) = minimise(objective, &[1.0, 0.0, 0.5]);
    // The search may stop early on ridges, but never below the minimum.
    assert!(best > o.primal() - 1e-9 && best < o.primal() + 1e-3, "{best} {}", o.primal());
    let machine = setup.machine(&beta, o.bias());
    let slope: f64 = machine.coefficients.iter().zip(&x).map(|(c, x)| c * x).sum();
    let tube = machine.tube.unwrap();
    assert!(tube > 0.0 && (objective(&[slope, machine.bias, tube]) - o.primal()).abs() < 1e-9);
    let (again, bias) = setup.solution(&machine);
    assert!((bias[0] - o.bias()[0]).abs() + (bias[1] - o.bias()[1]).abs() < 1e-12);
    assert!(again.iter().zip(&beta).all(|(a, b)| (a - b).abs() < 1e-9));
}

#[test]
fn one_class_minimises_its_objective() {
    let x = [0.5, 1.0, 1.2, 2.0, 3.0];
    let nu = 0.4;
    let objective = |v: &[f64]| {
        let (slope, rho) = (v[0], v[1]);
        let loss: f64 = x.iter().map(|x| (rho - slope * x).max(0.0)).sum();
        0.5 * slope * slope - nu * 5.0 * rho + loss
    };
    let setup = Setup::one_class(5, None, nu).unwrap();
    let (beta, o) = solve(&setup, &line(&x));
    let (_, best) = minimise(objective, &[1.0, 1.0]);
    assert!(o.gap() < 1e-9 && best > o.primal() - 1e-9 && best < o.primal() + 1e-3, "{best} {o:?}");
    assert!((beta.iter().sum::<f64>() - 2.0).abs() < 1e-12);
    let machine = setup.machine(&beta, o.bias());
    let slope: f64 = machine.coefficients.iter().zip(&x).map(|(c, x)| c * x).sum();
    assert!((objective(&[slope, -machine.bias]) - o.primal()).abs() < 1e-9);
}

#[test]
fn svdd_finds_the_smallest_ball() {
    // C large: the ball around all of 0, 1, 4 has centre 2 and radius 2.
    let x = [0.0, 1.0, 4.0];
    let gram = line(&x);
    let setup = Setup::svdd(&gram.diag(), None, 5.0).unwrap();
    let (beta, o) = solve(&setup, &gram);
    let machine = setup.machine(&beta, o.bias());
    let centre: f64 = machine.coefficients.iter().zip(&x).map(|(c, x)| c * x).sum();
    let squared_radius = 2.0 * machine.bias + o.squared_norm();
    assert!((centre - 2.0).abs() < 1e-9 && (squared_radius - 4.0).abs() < 1e-8 && o.gap() < 1e-9, "{o:?}");
    // P is half of R² + C·Σξ.
    assert!((o.primal() - 2.0).abs() < 1e-8);
    // A small C leaves the outlier outside.
    let c = 0.4;
    let objective =
        |v: &[f64]| v[1] * v[1] + c * x.iter().map(|x| ((x - v[0]).powi(2) - v[1] * v[1]).max(0.0)).sum::<f64>();
    let setup = Setup::svdd(&gram.diag(), None, c).unwrap();
    let (_, o) = solve(&setup, &gram);
    let (_, best) = minimise(objective, &[1.0, 1.0]);
    assert!(best > 2.0 * o.primal() - 1e-9 && best < 2.0 * o.primal() + 1e-3, "{best} {o:?}");
    let by_nu = Setup::svdd_nu(&gram.diag(), None, 1.0 / (3.0 * c)).unwrap();
    assert!(by_nu.costs().iter().zip(setup.costs()).all(|(a, b)| (a - b).abs() < 1e-15));
}

#[test]
fn infeasible_parameters_are_rejected_with_the_limit() {
    let y = [1.0, -1.0, -1.0, -1.0];
    let message = Setup::nu_classify(&y, None, 0.6).err().unwrap().to_string();
    assert!(message.contains("at most 0.5"), "{message}");
    let edge = Setup::nu_classify(&y, None, 0.5).unwrap();
    assert_eq!(edge.constraint().sum(0), 1.0);
    assert!(Setup::nu_classify(&y, None, 0.0).is_err());
    assert!(Setup::nu_regress(&y, None, 1.0, 1.1).is_err());
    assert!(Setup::one_class(4, Some(&[0.0; 4]), 0.5).is_err());
    assert!(Setup::classify(&[1.0, 2.0], None, 1.0, Arc::new(Hinge), true).is_err());
    assert!(Setup::classify(&[1.0, -1.0], None, -1.0, Arc::new(Hinge), true).is_err());
    let message = Setup::svdd(&[1.0; 4], None, 0.1).err().unwrap().to_string();
    assert!(message.contains("at least 0.25"), "{message}");
    let gram = line(&[1.0, 2.0]);
    assert!(edge.with(&gram, |_| Ok(())).is_err());
}
