use std::sync::Arc;

use super::*;
use crate::backend::cpu::CpuGram;
use crate::control::Threads;
use crate::data::Points;
use crate::kernel::Kernel;
use crate::loss::{Hinge, Loss, Square, SquaredHinge};
use crate::observe::Silent;
use crate::problem::Setup;
use crate::solver::Stop;
use crate::solver::decomposition::{self, Options};

fn control() -> Control {
    Control::unlimited(Threads::one())
}

/// Two overlapping rows of points on a line, bent.
fn sample(n: usize) -> (Points, Vec<f64>) {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for i in 0..n {
        let t = i as f64 * 0.37;
        let label = if i % 2 == 0 { 1.0 } else { -1.0 };
        x.extend([t.sin() + 0.6 * label, (1.7 * t).cos()]);
        y.push(label);
    }
    (Points::dense_f64(n, 2, x).unwrap(), y)
}

fn solve(
    points: &Points,
    y: &[f64],
    loss: Arc<dyn Loss>,
    bias: bool,
) -> (CpuGram, Setup, Vec<f64>, Vec<f64>, Vec<f64>) {
    let gram = CpuGram::square(Kernel::rbf(0.8), points).unwrap();
    let setup = Setup::classify(y, None, 2.0, loss, bias).unwrap();
    let options = Options { stop: Stop { tol: Some(1e-9), gap: None }, ..Options::default() };
    let solution =
        setup.with(&gram, |problem| decomposition::solve(problem, &options, &control(), &mut Silent)).unwrap();
    let f = solution.scores.clone().unwrap();
    (gram, setup, solution.beta, solution.bias, f)
}

/// The score of row `i` from a machine trained without it.
fn honest(points: &Points, y: &[f64], loss: Arc<dyn Loss>, bias: bool, i: usize) -> f64 {
    let rows: Vec<u32> = (0..y.len() as u32).filter(|&r| r as usize != i).collect();
    let part: Vec<f64> = rows.iter().map(|&r| y[r as usize]).collect();
    let (_, _, beta, b, _) = solve(&points.gather(&rows), &part, loss, bias);
    let gram = CpuGram::square(Kernel::rbf(0.8), points).unwrap();
    let mut row = vec![0.0; y.len()];
    gram.block_f64(Pick::List(&[i as u32]), Pick::All, &mut row, &control()).unwrap();
    rows.iter().zip(&beta).map(|(&r, beta)| row[r as usize] * beta).sum::<f64>() + b.first().copied().unwrap_or(0.0)
}

#[test]
fn least_squares_are_left_out_exactly() {
    let (points, y) = sample(24);
    for bias in [true, false] {
        let (gram, setup, beta, b, f) = solve(&points, &y, Arc::new(Square), bias);
        let left = setup
            .with(&gram, |problem| Ok(leave_one_out(problem, &beta, &b, &f, 1 << 30, &control()).unwrap().unwrap()))
            .unwrap();
        for (&row, z) in left.rows.iter().zip(&left.scores) {
            let truth = honest(&points, &y, Arc::new(Square), bias, row as usize);
            // Both come from solutions to 1e-9 in the score.
            assert!((z - truth).abs() < 1e-6, "bias {bias} row {row}: {z} {truth}");
        }
        assert_eq!(left.rows.len(), 24);
    }
}

#[test]
fn the_span_rule_is_close_for_the_hinge_losses() {
    let (points, y) = sample(60);
    // States of other samples do change, so this is an approximation, and a coarse one where a single sample at its bound is a
    // large part of the data. It is still better than training scores, and much better without bounds.
    let losses: [(Arc<dyn Loss>, f64); 2] = [(Arc::new(Hinge), 0.8), (Arc::new(SquaredHinge), 0.4)];
    for (loss, share) in losses {
        let (gram, setup, beta, b, f) = solve(&points, &y, loss.clone(), true);
        let left = setup
            .with(&gram, |problem| Ok(leave_one_out(problem, &beta, &b, &f, 1 << 30, &control()).unwrap().unwrap()))
            .unwrap();
        let (mut error, mut naive) = (0.0, 0.0);
        for (&row, z) in left.rows.iter().zip(&left.scores) {
            let truth = honest(&points, &y, loss.clone(), true, row as usize);
            error += (z - truth).abs();
            naive += (f[row as usize] + b[0] - truth).abs();
        }
        assert!(error < share * naive, "{}: {error} against {naive}", loss.name());
    }
}

#[test]
fn radii_hold_their_share() {
    let residuals: Vec<f64> = (1..=99).map(|i| if i % 2 == 0 { f64::from(i) } else { -f64::from(i) }).collect();
    let (sigma, radii) = residual_scale(&residuals, &[0.5, 0.9]);
    assert_eq!(radii, [(0.5, 50.0), (0.9, 90.0)]);
    assert!((sigma - 50.0).abs() < 1e-9);
}
