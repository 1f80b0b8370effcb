//! The L1 penalty with few features: proximal Newton (Yuan, Ho and Lin, JMLR 13, 2012).
//!
//! Where features are alike, as those made from categories are, coordinate descent on the weights needs thousands of epochs over the data. Here the
//! losses are replaced by their quadratic model, whose d × d matrix is formed once a step, and the weights descend on the model alone:
//! an epoch costs d², whatever n. A line search on the objective itself makes every step a gain.

use super::lasso::Descent;
use crate::control::{Control, Interrupt};
use crate::gram::Pick;

/// Epochs on one model at most.
const EPOCHS: usize = 2000;
/// Halvings of a step at most.
const HALVINGS: usize = 30;
/// Decrease asked of a step, as a share of what its slope promises.
const SUFFICIENT: f64 = 0.01;

impl Descent<'_> {
    /// One step on all weights; false if it gains nothing. `bias` is the penalty on |b|, `None` without a bias.
    pub(super) fn newton_step(&mut self, bias: Option<f64>, control: &Control) -> Result<bool, Interrupt> {
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
        // A weight nobody bends, and rows that repeat each other: the model stays strictly convex.
        let most = (0..size).fold(0.0f64, |m, j| m.max(matrix[j * size + j]));
        (0..size).for_each(|j| matrix[j * size + j] += 1e-12 * most.max(1.0));
        let mut step = vec![0.0; size];
        let mut along = slope.clone();
        let mut begun = 0.0;
        for epoch in 0..EPOCHS {
            control.check()?;
            let mut worst = 0.0f64;
            for j in 0..size {
                let at = point[j] + step[j];
                let violation = Self::violation(at, along[j], penalties[j]);
                if violation == 0.0 {
                    continue;
                }
                worst = worst.max(violation);
                let change = Self::newton(at, along[j], matrix[j * size + j], penalties[j]);
                if change != 0.0 {
                    // Exactly 0 where the step ends there.
                    step[j] = if change == -at { -point[j] } else { step[j] + change };
                    along.iter_mut().zip(&matrix[j * size..(j + 1) * size]).for_each(|(a, h)| *a += change * h);
                }
            }
            if epoch == 0 {
                begun = worst;
            }
            if worst <= 1e-6 * begun || worst <= 1e-13 * most {
                break;
            }
        }
        let norm = |t: f64| -> f64 { (0..size).map(|j| penalties[j] * (point[j] + t * step[j]).abs()).sum() };
        let promised = slope.iter().zip(&step).map(|(g, s)| g * s).sum::<f64>() + norm(1.0) - norm(0.0);
        if !(promised < 0.0) {
            return Ok(false);
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
                scale += old;
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
                return Ok(true);
            }
            t *= 0.5;
        }
        Ok(false)
    }
}
