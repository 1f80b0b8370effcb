//! The conjugate of a convex loss from its slopes alone.

/// What is known of the losses of some samples: their slopes, and where to look first.
pub(super) struct SlopeSearch<'a> {
    /// Targets.
    pub(super) y: &'a [f64],
    /// The largest scores that are evaluated, by sample.
    pub(super) ends: &'a [f64],
    /// Scores at which the slopes are about u.
    pub(super) start: Vec<f64>,
    /// Fills the slopes of targets and scores.
    pub(super) slopes: &'a dyn Fn(&[f64], &[f64]) -> Vec<f64>,
}

/// Brackets of scores, with the slopes at their ends.
struct Brackets {
    low: Vec<f64>,
    high: Vec<f64>,
    at_low: Vec<f64>,
    at_high: Vec<f64>,
}

impl Brackets {
    /// What the tangents at both ends may add to u·z − ℓ(z) there.
    fn slack(&self, k: usize, u: f64) -> (f64, f64) {
        let width = self.high[k] - self.low[k];
        ((u - self.at_low[k]).max(0.0) * width, (self.at_high[k] - u).max(0.0) * width)
    }
}

impl SlopeSearch<'_> {
    /// For every sample a score a and a number e with ℓ*(y, u) ≤ u·a − ℓ(y, a) + e.
    ///
    /// A convex loss lies above its tangents. If its slopes at a and b are on both sides of u, then the tangent at a
    /// gives ℓ*(u) ≤ u·a − ℓ(a) + (u − slope(a))·(b − a), and the one at b the mirrored bound. The bracket [a, b] starts
    /// around a guess and is halved until the last term is negligible. u must lie in the domain.
    pub(super) fn suprema(&self, u: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut brackets = self.around_start();
        self.widen(&mut brackets, u);
        self.halve(&mut brackets, u);
        let bound = |k: usize| {
            // Without slopes on both sides of u the tangents bound nothing.
            if !(brackets.at_low[k] <= u[k] && u[k] <= brackets.at_high[k]) {
                return (brackets.low[k], f64::INFINITY);
            }
            let (below, above) = brackets.slack(k, u[k]);
            if below <= above { (brackets.low[k], below) } else { (brackets.high[k], above) }
        };
        (0..u.len()).map(bound).unzip()
    }

    fn width(&self, k: usize) -> f64 {
        1e-13 * self.start[k].abs().max(self.y[k].abs()).max(1.0)
    }

    fn around_start(&self) -> Brackets {
        let at = |k: usize, way: f64| (self.start[k] + way * self.width(k)).clamp(-self.ends[k], self.ends[k]);
        let low: Vec<f64> = (0..self.y.len()).map(|k| at(k, -1.0)).collect();
        let high: Vec<f64> = (0..self.y.len()).map(|k| at(k, 1.0)).collect();
        let (at_low, at_high) = ((self.slopes)(self.y, &low), (self.slopes)(self.y, &high));
        Brackets { low, high, at_low, at_high }
    }

    /// Slopes of the samples `of` at `z`.
    fn slopes_of(&self, of: &[usize], z: &[f64]) -> Vec<f64> {
        (self.slopes)(&of.iter().map(|&k| self.y[k]).collect::<Vec<_>>(), z)
    }

    /// Moves the brackets that do not contain u, with growing steps.
    fn widen(&self, b: &mut Brackets, u: &[f64]) {
        let mut step: Vec<f64> = (0..u.len()).map(|k| self.width(k)).collect();
        let mut pending: Vec<usize> = (0..u.len()).collect();
        for _ in 0..80 {
            pending.retain(|&k| {
                (b.at_low[k] > u[k] && b.low[k] > -self.ends[k]) || (b.at_high[k] < u[k] && b.high[k] < self.ends[k])
            });
            if pending.is_empty() {
                break;
            }
            let next = |&k: &usize| {
                step[k] *= 16.0;
                let moved = if b.at_low[k] > u[k] { b.low[k] - step[k] } else { b.high[k] + step[k] };
                moved.clamp(-self.ends[k], self.ends[k])
            };
            let z: Vec<f64> = pending.iter().map(next).collect();
            let slopes = self.slopes_of(&pending, &z);
            for (at, &k) in pending.iter().enumerate() {
                if b.at_low[k] > u[k] {
                    (b.high[k], b.at_high[k]) = (b.low[k], b.at_low[k]);
                    (b.low[k], b.at_low[k]) = (z[at], slopes[at]);
                } else {
                    (b.low[k], b.at_low[k]) = (b.high[k], b.at_high[k]);
                    (b.high[k], b.at_high[k]) = (z[at], slopes[at]);
                }
            }
        }
    }

    /// Halves the brackets whose bound is not tight.
    fn halve(&self, b: &mut Brackets, u: &[f64]) {
        let mut pending: Vec<usize> = (0..u.len()).collect();
        for _ in 0..1100 {
            pending.retain(|&k| {
                let (below, above) = b.slack(k, u[k]);
                let mid = 0.5 * (b.low[k] + b.high[k]);
                let inside = mid > b.low[k] && mid < b.high[k];
                inside && below.min(above) > 1e-15 * u[k].abs() * b.low[k].abs().max(b.high[k].abs())
            });
            if pending.is_empty() {
                break;
            }
            let mids: Vec<f64> = pending.iter().map(|&k| 0.5 * (b.low[k] + b.high[k])).collect();
            let slopes = self.slopes_of(&pending, &mids);
            for (at, &k) in pending.iter().enumerate() {
                if slopes[at] <= u[k] {
                    (b.low[k], b.at_low[k]) = (mids[at], slopes[at]);
                } else {
                    (b.high[k], b.at_high[k]) = (mids[at], slopes[at]);
                }
            }
        }
    }
}
