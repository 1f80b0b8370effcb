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
/// Decrease asked of a step, as a share of what its slope promises.
const SUFFICIENT: f64 = 0.01;

impl Descent<'_> {
    /// One step on all weights: the decrease its slope promised, 0 if it gains nothing. `bias` is the penalty on |b|, `None` without a bias.
    pub(super) fn newton_step(&mut self, bias: Option<f64>, control: &Control) -> Result<f64, Interrupt> {
        let (n, d) = (self.z.len(), self.w.len());
        let size = d + usize::from(bias.is_some());
        let slopes: Vec<f64> = (0..n).map(|i| self.slope(i)).collect();
        let bends: Vec<f64> = (0..n).map(|i| self.bend(i)).collect();
        let x = self.problem.matrix;
        let mut slope = vec![0.0; d];
        x.combine(Pick::All, &slopes, &mut slope, control)?;
        let (mut first, mut second) = (vec![0.0; d], vec![0.0; d * d]);
        x.moments(Pick::All, &bends, &[], &mut first, &mut second, control)?;
        let mut matrix = vec![0.0; size * size];
        for i in 0..d {
            for j in 0..=i {
                matrix[i * size + j] = second[i * d + j];
                matrix[j * size + i] = second[i * d + j];
            }
        }
        let mut point = self.w.clone();
        let mut penalties = vec![1.0; d];
        if let Some(penalty) = bias {
            for (j, f) in first.iter().enumerate() {
                matrix[d * size + j] = *f;
                matrix[j * size + d] = *f;
            }
            matrix[d * size + d] = bends.iter().sum();
            slope.push(slopes.iter().sum());
            point.push(self.b);
            penalties.push(penalty);
        }
        // A weight without curvature gets that of the others: the model must be strictly convex.
        let (mut sum, mut count) = (0.0, 0.0);
        for bend in (0..size).map(|j| matrix[j * size + j]).filter(|bend| *bend > 0.0) {
            sum += bend;
            count += 1.0;
        }
        let typical = if count > 0.0 { sum / count } else { 1.0 };
        for j in 0..size {
            let own = &mut matrix[j * size + j];
            *own = if *own > 0.0 { *own * (1.0 + 1e-12) } else { typical };
        }
        let mut model = Model {
            matrix: &matrix,
            point: &point,
            penalties: &penalties,
            step: vec![0.0; size],
            slope: slope.clone(),
        };
        model.minimise(control)?;
        let step = model.step;
        let norm = |t: f64| -> f64 { (0..size).map(|j| penalties[j] * (point[j] + t * step[j]).abs()).sum() };
        let promised = slope.iter().zip(&step).map(|(g, s)| g * s).sum::<f64>() + norm(1.0) - norm(0.0);
        if !(promised < 0.0) {
            return Ok(0.0);
        }
        let mut moved = vec![0.0; n];
        x.dots(Pick::All, &step[..d], &mut moved, control)?;
        if bias.is_some() {
            moved.iter_mut().for_each(|m| *m += step[d]);
        }
        let mut t = 1.0;
        for _ in 0..HALVINGS {
            control.check()?;
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
                if bias.is_some() {
                    self.b += t * step[d];
                }
                self.z.iter_mut().zip(&moved).for_each(|(z, m)| *z += t * m);
                return Ok(-promised);
            }
            t *= 0.5;
        }
        Ok(0.0)
    }
}
