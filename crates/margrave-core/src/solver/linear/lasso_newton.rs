//! The L1 penalty with few features: proximal Newton (Yuan, Ho and Lin, JMLR 13, 2012).
//!
//! Where features are alike, as those made from categories are, coordinate descent on the weights needs thousands of epochs over the data. Here the
//! losses are replaced by their quadratic model, whose d × d matrix is formed once per step, and the model alone is minimised
//! (`lasso_model.rs`): that costs d² or d³, whatever n. A line search on the objective itself makes every step a gain.

use super::lasso::Descent;
use super::lasso_model::Model;
use crate::control::{Control, Interrupt};
use crate::gram::Pick;

/// Halvings of a step at most.
const HALVINGS: usize = 30;
/// Halvings before a step is taken again with more damping.
const SHORT: usize = 4;
/// Such steps at most.
const ATTEMPTS: usize = 12;
/// Damping at least, relative to the largest curvature there can be: the model must be strictly convex.
const LEAST: f64 = 1e-13;
/// Decrease asked of a step, as a share of what its slope promises.
const SUFFICIENT: f64 = 0.01;

impl Descent<'_> {
    /// One step on all weights and the bias; false if it gains nothing. `bias` is the penalty on |b|, `None` without a bias.
    ///
    /// Where the losses are piecewise quadratic the curvature at a point may say little about the next one. A step that has to be cut short
    /// is therefore taken again with more damping, which later steps give back.
    pub(super) fn newton_step(&mut self, bias: Option<f64>, control: &Control) -> Result<bool, Interrupt> {
        let (n, d) = (self.z.len(), self.w.len());
        let size = d + usize::from(bias.is_some());
        let slopes: Vec<f64> = (0..n).map(|i| self.slope(i)).collect();
        let bends: Vec<f64> = (0..n).map(|i| self.bend(i)).collect();
        let mut slope = vec![0.0; d];
        self.problem.matrix.combine(Pick::All, &slopes, &mut slope, control)?;
        let mut point = self.w.clone();
        let mut penalties = vec![1.0; d];
        if let Some(penalty) = bias {
            slope.push(slopes.iter().sum());
            point.push(self.b);
            penalties.push(penalty);
        }
        let mut matrix = self.curvature(&bends, size, control)?;
        // The curvature there would be if every sample were as curved as the most curved one.
        let steepest = bends.iter().copied().fold(0.0, f64::max);
        let steepest = if steepest > 0.0 { steepest } else { 1.0 };
        let mut most = self.column_squares();
        most.resize(size, n as f64);
        let diagonal: Vec<f64> = (0..size).map(|j| matrix[j * size + j]).collect();
        for attempt in 0..ATTEMPTS {
            for j in 0..size {
                let full = if most[j] > 0.0 { steepest * most[j] } else { 1.0 };
                matrix[j * size + j] = diagonal[j] * (1.0 + 1e-12) + self.damping.max(LEAST) * full;
            }
            let mut model = Model {
                matrix: &matrix,
                point: &point,
                penalties: &penalties,
                step: vec![0.0; size],
                slope: slope.clone(),
            };
            model.minimise(control)?;
            let step = std::mem::take(&mut model.step);
            let most_halvings = if attempt + 1 < ATTEMPTS { SHORT } else { HALVINGS };
            match self.search(&point, &penalties, &slope, &step, most_halvings, control)? {
                None => self.damping = (10.0 * self.damping).max(1e-6),
                Some(t) => {
                    self.damping = if t == 1.0 { 0.1 * self.damping } else { 3.0 * self.damping.max(1e-8) };
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Σ a·x·xᵀ over the samples, bordered by the bias where there is one.
    fn curvature(&self, bends: &[f64], size: usize, control: &Control) -> Result<Vec<f64>, Interrupt> {
        let d = self.w.len();
        let (mut first, mut second) = (vec![0.0; d], vec![0.0; d * d]);
        self.problem.matrix.moments(Pick::All, bends, &[], &mut first, &mut second, control)?;
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
            matrix[d * size + d] = bends.iter().sum();
        }
        Ok(matrix)
    }

    /// Takes the first of 1, ½, ¼, … of the step at which the objective falls by a share of what the slope promises: which, or `None`.
    fn search(
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
        let promised = slope.iter().zip(step).map(|(g, s)| g * s).sum::<f64>() + norm(1.0) - norm(0.0);
        if !(promised < 0.0) {
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
                let old = self.value(i, self.z[i]);
                change += self.value(i, self.z[i] + t * moved[i]) - old;
                scale += old.abs();
            }
            // Below the rounding of the losses the promise is all there is to go by.
            if change <= SUFFICIENT * t * promised || promised.abs() <= 1e-13 * scale {
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
