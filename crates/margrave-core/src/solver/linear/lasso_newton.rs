//! The L1 penalty with few features: proximal Newton (Yuan, Ho and Lin, JMLR 13, 2012).
//!
//! For correlated features, such as those of encoded categories, coordinate descent on the weights needs thousands of
//! epochs over the data. Here the losses are replaced by their quadratic model, whose d × d matrix is formed once per
//! step, and the model is minimised (`lasso_model.rs`): that costs d² or d³, independent of n. With a line search on
//! the objective itself every step lowers it.

use super::lasso::LassoState;
use super::lasso_model::PenalisedQuadratic;
use crate::control::{Control, Interrupt};
use crate::gram::Pick;

/// Most halvings of a step.
const MAX_HALVINGS: usize = 30;
/// Halvings after which a step is recomputed with more damping.
const HALVINGS_BEFORE_DAMPING: usize = 4;
/// Most attempts with increasing damping.
const MAX_ATTEMPTS: usize = 12;
/// Smallest damping, relative to the largest possible curvature: the model must be strictly convex.
const MIN_DAMPING: f64 = 1e-13;
/// Required decrease of a step, as a fraction of the decrease predicted by the slope.
const SUFFICIENT_DECREASE: f64 = 0.01;

impl LassoState<'_> {
    /// One step on all weights and the bias; false if it makes no progress. `bias` is the penalty on |b|; `None`
    /// without a bias.
    ///
    /// For piecewise quadratic losses the curvature may change a lot between two points. A step that would have to be
    /// shortened is therefore recomputed with more damping, which later steps reduce again.
    pub(super) fn newton_step(&mut self, bias: Option<f64>, control: &Control) -> Result<bool, Interrupt> {
        let (n, d) = (self.z.len(), self.w.len());
        let size = d + usize::from(bias.is_some());
        let slopes: Vec<f64> = (0..n).map(|i| self.slope_at(i)).collect();
        let curvatures: Vec<f64> = (0..n).map(|i| self.curvature_at(i)).collect();
        let mut slope = vec![0.0; d];
        self.problem.matrix.combine(Pick::All, &slopes, &mut slope, control)?;
        let mut point = self.w.clone();
        let mut penalties = vec![1.0; d];
        if let Some(penalty) = bias {
            slope.push(slopes.iter().sum());
            point.push(self.b);
            penalties.push(penalty);
        }
        let mut matrix = self.curvature_matrix(&curvatures, size, control)?;
        // The curvature if every sample had the largest one.
        let largest = curvatures.iter().copied().fold(0.0, f64::max);
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let mut squares = self.column_squares();
        squares.resize(size, n as f64);
        let diagonal: Vec<f64> = (0..size).map(|j| matrix[j * size + j]).collect();
        for attempt in 0..MAX_ATTEMPTS {
            for j in 0..size {
                let bound = if squares[j] > 0.0 { largest * squares[j] } else { 1.0 };
                matrix[j * size + j] = diagonal[j] * (1.0 + 1e-12) + self.damping.max(MIN_DAMPING) * bound;
            }
            let mut model = PenalisedQuadratic {
                matrix: &matrix,
                point: &point,
                penalties: &penalties,
                step: vec![0.0; size],
                slope: slope.clone(),
            };
            model.minimise(control)?;
            let step = std::mem::take(&mut model.step);
            let max_halvings = if attempt + 1 < MAX_ATTEMPTS { HALVINGS_BEFORE_DAMPING } else { MAX_HALVINGS };
            match self.backtrack(&point, &penalties, &slope, &step, max_halvings, control)? {
                None => self.damping = (10.0 * self.damping).max(1e-6),
                Some(t) => {
                    self.damping = if t == 1.0 { 0.1 * self.damping } else { 3.0 * self.damping.max(1e-8) };
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Σ a·x·xᵀ over the samples, with a row and a column for the bias if there is one.
    fn curvature_matrix(&self, curvatures: &[f64], size: usize, control: &Control) -> Result<Vec<f64>, Interrupt> {
        let d = self.w.len();
        let (mut first, mut second) = (vec![0.0; d], vec![0.0; d * d]);
        self.problem.matrix.moments(Pick::All, curvatures, &[], &mut first, &mut second, control)?;
        let mut matrix = vec![0.0; size * size];
        for i in 0..d {
            for j in 0..=i {
                matrix[i * size + j] = second[i * d + j];
                matrix[j * size + i] = second[i * d + j];
            }
        }
        if size > d {
            for (j, f) in first.iter().enumerate() {
                matrix[d * size + j] = *f;
                matrix[j * size + d] = *f;
            }
            matrix[d * size + d] = curvatures.iter().sum();
        }
        Ok(matrix)
    }

    /// Takes the first of 1, ½, ¼, … of the step at which the objective falls by a fraction of the predicted decrease.
    /// Returns that multiple; `None` if there is none.
    fn backtrack(
        &mut self,
        point: &[f64],
        penalties: &[f64],
        slope: &[f64],
        step: &[f64],
        halvings: usize,
        control: &Control,
    ) -> Result<Option<f64>, Interrupt> {
        let (n, d) = (self.z.len(), self.w.len());
        let norm = |t: f64| -> f64 { (0..step.len()).map(|j| penalties[j] * (point[j] + t * step[j]).abs()).sum() };
        let predicted = slope.iter().zip(step).map(|(g, s)| g * s).sum::<f64>() + norm(1.0) - norm(0.0);
        if !(predicted < 0.0) {
            return Ok(None);
        }
        let mut moved = vec![0.0; n];
        self.problem.matrix.dots(Pick::All, &step[..d], &mut moved, control)?;
        if step.len() > d {
            moved.iter_mut().for_each(|m| *m += step[d]);
        }
        let mut t = 1.0;
        for _ in 0..halvings {
            control.check()?;
            control.spend(40 * n);
            let (mut change, mut scale) = (norm(t) - norm(0.0), 0.0);
            for i in 0..n {
                let old = self.value_at(i, self.z[i]);
                change += self.value_at(i, self.z[i] + t * moved[i]) - old;
                scale += old.abs();
            }
            // If the predicted decrease is within the rounding of the losses, accept it without a test.
            if change <= SUFFICIENT_DECREASE * t * predicted || predicted.abs() <= 1e-13 * scale {
                for j in 0..d {
                    self.w[j] = if t == 1.0 && step[j] == -point[j] { 0.0 } else { point[j] + t * step[j] };
                }
                if step.len() > d {
                    self.b += t * step[d];
                }
                self.z.iter_mut().zip(&moved).for_each(|(z, m)| *z += t * m);
                return Ok(Some(t));
            }
            t *= 0.5;
        }
        Ok(None)
    }
}
