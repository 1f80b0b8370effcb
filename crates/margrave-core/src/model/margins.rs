//! Where the training points lie: KKT cases and margins (paper 004, §2 and §3.4.1).

use serde::{Deserialize, Serialize};

use crate::problem::Setup;

/// The KKT case of a training point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// β = 0: not a support vector; on the right side of its margin, or inside the tube.
    Zero,
    /// β strictly inside its box: on the margin, or on the edge of the tube.
    Free,
    /// β at its bound: inside the margin, or outside the tube.
    Bound,
}

/// The case of every *row*; a row with two variables has the case of the nonzero one.
pub fn cases(setup: &Setup, beta: &[f64]) -> Vec<Case> {
    let mut cases = vec![Case::Zero; setup.rows()];
    for (i, b) in beta.iter().enumerate() {
        if *b == 0.0 {
            continue;
        }
        let (lo, hi) = setup.bounds(i);
        // Within the rounding of c·bound.
        let edge = if *b > 0.0 { hi } else { -lo };
        cases[setup.row(i)] = if b.abs() >= edge * (1.0 - 1e-12) { Case::Bound } else { Case::Free };
    }
    cases
}

/// Margins of classified training points.
#[derive(Debug, Clone, PartialEq)]
pub struct Margins {
    /// y·z: at least 1 outside the margin, negative where misclassified.
    pub functional: Vec<f64>,
    /// y·z / ‖f‖: the distance from the boundary in feature space; 0 if f = 0.
    pub geometric: Vec<f64>,
}

/// The margins of points with labels ±1 and scores z, ‖f‖² being `squared_norm`.
pub fn margins(labels: &[f64], scores: &[f64], squared_norm: f64) -> Margins {
    let functional: Vec<f64> = labels.iter().zip(scores).map(|(y, z)| y * z).collect();
    let scale = if squared_norm > 0.0 { 1.0 / squared_norm.sqrt() } else { 0.0 };
    let geometric = functional.iter().map(|m| m * scale).collect();
    Margins { functional, geometric }
}
