//! A slow but simple reference solver for the quadratic programs in solver tests: accelerated projected gradient.

/// min ½xᵀQx + pᵀx subject to lo ≤ x ≤ hi and Σzᵢxᵢ = sum.
pub struct BoxQp<'a> {
    /// Q, n × n, symmetric positive semi-definite.
    pub q: &'a [f64],
    /// p.
    pub p: &'a [f64],
    /// Lower bounds of x, finite.
    pub lo: &'a [f64],
    /// Upper bounds of x, finite.
    pub hi: &'a [f64],
    /// Signs ±1 of the sum constraint; `None`: no such constraint.
    pub z: Option<&'a [f64]>,
    /// The sum.
    pub sum: f64,
}

impl BoxQp<'_> {
    /// ½xᵀQx + pᵀx.
    pub fn objective(&self, x: &[f64]) -> f64 {
        self.gradient(x).iter().zip(self.p).zip(x).map(|((g, p), x)| 0.5 * (g + p) * x).sum()
    }

    fn gradient(&self, x: &[f64]) -> Vec<f64> {
        let n = x.len();
        (0..n).map(|i| self.p[i] + (0..n).map(|j| self.q[i * n + j] * x[j]).sum::<f64>()).collect()
    }

    /// The nearest feasible point: clip(v − μz) with μ found by bisection, since Σz·clip(v − μz) is non-increasing in
    /// μ.
    fn project(&self, v: &[f64]) -> Vec<f64> {
        let clip = |mu: f64| -> Vec<f64> {
            (0..v.len()).map(|i| (v[i] - mu * self.z.map_or(0.0, |z| z[i])).clamp(self.lo[i], self.hi[i])).collect()
        };
        let Some(z) = self.z else { return clip(0.0) };
        let reach: f64 = v.iter().chain(self.lo).chain(self.hi).fold(1.0, |m, x| x.abs().max(m));
        let (mut low, mut high) = (-4.0 * reach, 4.0 * reach);
        for _ in 0..200 {
            let mid = 0.5 * (low + high);
            let total: f64 = clip(mid).iter().zip(z).map(|(x, z)| x * z).sum();
            if total > self.sum { low = mid } else { high = mid }
        }
        clip(0.5 * (low + high))
    }

    /// The minimiser after `steps` steps, restarted whenever the objective increases.
    pub fn solve(&self, steps: usize) -> Vec<f64> {
        let n = self.p.len();
        // The largest row sum bounds the largest eigenvalue.
        let lipschitz = (0..n).map(|i| self.q[i * n..(i + 1) * n].iter().map(|v| v.abs()).sum()).fold(1e-12, f64::max);
        let mut x = self.project(&vec![0.0; n]);
        let (mut ahead, mut momentum, mut best) = (x.clone(), 1.0f64, self.objective(&x));
        for _ in 0..steps {
            let g = self.gradient(&ahead);
            let next = self.project(&ahead.iter().zip(&g).map(|(a, g)| a - g / lipschitz).collect::<Vec<_>>());
            let value = self.objective(&next);
            if value > best {
                (ahead, momentum) = (x.clone(), 1.0);
                continue;
            }
            let following = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
            let weight = (momentum - 1.0) / following;
            ahead = next.iter().zip(&x).map(|(a, b)| a + weight * (a - b)).collect();
            (x, momentum, best) = (next, following, value);
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_variables_by_hand() {
        // min ½(x² + y²) − x with x + y = 0 and the box [−1, 1]²: x = ½.
        let qp = BoxQp {
            q: &[1.0, 0.0, 0.0, 1.0],
            p: &[-1.0, 0.0],
            lo: &[-1.0; 2],
            hi: &[1.0; 2],
            z: Some(&[1.0; 2]),
            sum: 0.0,
        };
        let x = qp.solve(200);
        assert!((x[0] - 0.5).abs() < 1e-12 && (x[1] + 0.5).abs() < 1e-12, "{x:?}");
        // The same without the sum: x = 1, y = 0.
        let x = BoxQp { z: None, ..qp }.solve(200);
        assert!((x[0] - 1.0).abs() < 1e-12 && x[1].abs() < 1e-12, "{x:?}");
    }
}
