//! Decomposition over n variables β = α* − α with ε|β| in the objective: equivalent to selecting pairs (α, α*).
//!
//! max D(β) = yᵀβ − ½βᵀKβ − ε‖β‖₁ subject to Σβ = 0, |β| ≤ C. One variable increases, another decreases
//! by the same amount. The two are the pair with the largest violation, or the partner is the one with the largest predicted gain.

/// The problem, with K stored.
pub(super) struct Regression<'a> {
    pub(super) k: &'a [f64],
    pub(super) y: &'a [f64],
    pub(super) c: f64,
    pub(super) epsilon: f64,
}

/// How the partner is chosen.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Partner {
    Worst,
    SecondOrder,
}

/// The state of a run at one iteration.
pub(super) struct Moment {
    pub(super) iteration: u64,
    pub(super) dual: f64,
    pub(super) violation: f64,
}

impl Regression<'_> {
    /// −dD/dβᵢ for an increase and for a decrease of βᵢ.
    fn slopes(&self, beta: f64, f: f64, y: f64) -> (f64, f64) {
        let tube = |positive: bool| if positive { self.epsilon } else { -self.epsilon };
        (f - y + tube(beta >= 0.0), f - y + tube(beta > 0.0))
    }

    pub(super) fn dual(&self, beta: &[f64], f: &[f64]) -> f64 {
        (0..beta.len()).map(|i| beta[i] * (self.y[i] - 0.5 * f[i]) - self.epsilon * beta[i].abs()).sum()
    }

    /// The pair with the largest violation, and the violation: (increasing, decreasing, largest slope of a decrease − smallest
    /// slope of an increase).
    fn worst(&self, beta: &[f64], f: &[f64]) -> (usize, usize, f64) {
        let (mut rise, mut fall) = ((0, f64::INFINITY), (0, f64::NEG_INFINITY));
        for i in 0..beta.len() {
            let (up, down) = self.slopes(beta[i], f[i], self.y[i]);
            if beta[i] < self.c && up < rise.1 {
                rise = (i, up);
            }
            if beta[i] > -self.c && down > fall.1 {
                fall = (i, down);
            }
        }
        (rise.0, fall.0, fall.1 - rise.1)
    }

    /// The quantity bounded by rule (13).
    pub(super) fn violation(&self, beta: &[f64], f: &[f64]) -> f64 {
        self.worst(beta, f).2
    }

    fn curvature(&self, i: usize, j: usize) -> f64 {
        let n = self.y.len();
        (self.k[i * n + i] + self.k[j * n + j] - 2.0 * self.k[i * n + j]).max(1e-12)
    }

    /// The step t that minimises −D along β_i + t, β_j − t: a parabola between kinks.
    fn length(&self, i: usize, j: usize, beta: &[f64], f: &[f64]) -> f64 {
        let most = (self.c - beta[i]).min(self.c + beta[j]);
        let kappa = self.curvature(i, j);
        let mut kinks: Vec<f64> = [-beta[i], beta[j]].into_iter().filter(|t| *t > 0.0 && *t < most).collect();
        kinks.sort_by(f64::total_cmp);
        kinks.push(most);
        let mut from = 0.0;
        for to in kinks {
            let middle = 0.5 * (from + to);
            let tube = self.epsilon * ((beta[i] + middle).signum() - (beta[j] - middle).signum());
            let slope = f[i] - f[j] - (self.y[i] - self.y[j]) + kappa * from + tube;
            if slope >= 0.0 {
                return from;
            }
            if from - slope / kappa <= to {
                return from - slope / kappa;
            }
            from = to;
        }
        most
    }

    /// Runs until the largest violation is at most `tol`; records the state every `every` iterations and at the end.
    pub(super) fn descend(&self, partner: Partner, tol: f64, most: u64, every: u64) -> Vec<Moment> {
        let n = self.y.len();
        let (mut beta, mut f) = (vec![0.0; n], vec![0.0; n]);
        let mut moments = Vec::new();
        for iteration in 0.. {
            let (i, mut j, violation) = self.worst(&beta, &f);
            let done = violation <= tol || iteration >= most;
            if done || iteration % every == 0 {
                moments.push(Moment { iteration, dual: self.dual(&beta, &f), violation });
            }
            if done {
                break;
            }
            if partner == Partner::SecondOrder {
                let up = self.slopes(beta[i], f[i], self.y[i]).0;
                let mut best = f64::NEG_INFINITY;
                for v in (0..n).filter(|&v| v != i && beta[v] > -self.c) {
                    let gain = self.slopes(beta[v], f[v], self.y[v]).1 - up;
                    if gain > 0.0 && gain * gain / self.curvature(i, v) > best {
                        (best, j) = (gain * gain / self.curvature(i, v), v);
                    }
                }
            }
            let t = self.length(i, j, &beta, &f);
            (beta[i], beta[j]) = (beta[i] + t, beta[j] - t);
            for v in 0..n {
                f[v] += t * (self.k[i * n + v] - self.k[j * n + v]);
            }
        }
        moments
    }
}
