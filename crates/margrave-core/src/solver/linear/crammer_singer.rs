//! Several classes at once: the machine of Crammer and Singer (JMLR 2, 2001), by dual descent a sample at a time (Keerthi,
//! Sundararajan, Chang, Hsieh and Lin, KDD 2008, section 3).
//!
//! ```text
//! minimise over W:   ½Σ_m ‖w_m‖² + Σᵢ cᵢ·max_m (e_im + w_mᵀxᵢ − w_yᵢᵀxᵢ),   e_im = 1 if m ≠ yᵢ, else 0
//! dual:   −½Σ_m ‖w_m‖² − Σᵢ Σ_m e_im·α_im,   w_m = Σᵢ α_im·xᵢ,   Σ_m α_im = 0,   α_im ≤ cᵢ if m = yᵢ, else ≤ 0
//! ```
//!
//! For one sample the dual is ½A‖α‖² + Bᵀα, so α_m = min(bound, (θ − B_m)/A) with the θ that makes the sum 0: found by sorting. A step costs
//! k times the stored values of a row. Samples that agree are set aside until all others do. Memory: n·k numbers for α, d·k for W.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::Options;
use crate::control::{Control, Status};
use crate::data::Points;
use crate::error::{Error, Result, check_len};
use crate::observe::{Begin, Observer, Step};
use crate::problem::Bias;

/// The machine of Crammer and Singer: the class of x is the one with the largest w_mᵀx + b_m.
#[derive(Debug, Clone)]
pub struct CrammerSinger {
    /// w of each class, `d × k` row-major.
    pub weights: Vec<f64>,
    /// b of each class; zeros without a bias.
    pub bias: Vec<f64>,
    /// α, `n × k` row-major: the proof.
    pub alpha: Vec<f64>,
    /// The primal objective.
    pub primal: f64,
    /// The dual objective: a lower bound on the optimum.
    pub dual: f64,
    /// How it ended.
    pub status: Status,
    /// Epochs.
    pub iterations: u64,
}

impl CrammerSinger {
    /// (primal − dual) / max(1, |primal|, |dual|).
    pub fn relative_gap(&self) -> f64 {
        (self.primal - self.dual) / self.primal.abs().max(self.dual.abs()).max(1.0)
    }
}

struct Work<'a> {
    points: &'a Points,
    codes: &'a [u32],
    costs: &'a [f64],
    k: usize,
    /// Value of the feature that stands for the bias; 0 without one.
    scaling: f64,
    w: Vec<f64>,
    /// Weights of that feature.
    extra: Vec<f64>,
    alpha: Vec<f64>,
}

impl Work<'_> {
    /// e_m + w_mᵀx of every class.
    fn scores(&self, i: usize, out: &mut [f64]) {
        let k = self.k;
        for (m, (g, extra)) in out.iter_mut().zip(&self.extra).enumerate() {
            *g = self.scaling * extra + f64::from(u8::from(m != self.codes[i] as usize));
        }
        self.points.visit(i, |j, v| {
            out.iter_mut().zip(&self.w[j * k..(j + 1) * k]).for_each(|(g, w)| *g += v * w);
        });
    }

    fn bound(&self, i: usize, m: usize) -> f64 {
        if m == self.codes[i] as usize { self.costs[i] } else { 0.0 }
    }

    /// Largest score less the least of those whose α can rise: 0 at the optimum of the sample.
    fn violation(&self, i: usize, g: &[f64]) -> f64 {
        let alpha = &self.alpha[i * self.k..(i + 1) * self.k];
        let most = g.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = (0..self.k).filter(|&m| alpha[m] < self.bound(i, m)).map(|m| g[m]).fold(f64::INFINITY, f64::min);
        if least.is_finite() { (most - least).max(0.0) } else { 0.0 }
    }

    /// The best α of sample `i`, given its scores.
    fn step(&mut self, i: usize, g: &[f64], square: f64, order: &mut Vec<(f64, usize)>, new: &mut [f64]) {
        let k = self.k;
        let old = &self.alpha[i * k..(i + 1) * k];
        order.clear();
        for m in 0..k {
            let b = g[m] - square * old[m];
            order.push((b + square * self.bound(i, m), m));
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // Classes at their bound come first; θ must lie beyond the last of them and not beyond the next.
        let mut rest: f64 = (0..k).map(|m| g[m] - square * old[m]).sum();
        let mut capped = 0.0;
        let mut theta = rest / k as f64;
        for r in 0..k {
            theta = (rest - square * capped) / (k - r) as f64;
            if theta <= order[r].0 {
                break;
            }
            let m = order[r].1;
            rest -= g[m] - square * old[m];
            capped += self.bound(i, m);
        }
        for m in 0..k {
            new[m] = ((theta - (g[m] - square * old[m])) / square).min(self.bound(i, m));
        }
        let mut delta: Vec<f64> = new.iter().zip(old).map(|(n, o)| n - o).collect();
        // The sum is 0 by construction; what rounding leaves goes to the largest.
        let off: f64 = delta.iter().sum();
        if let Some(at) = (0..k).max_by(|a, b| delta[*a].abs().total_cmp(&delta[*b].abs())) {
            let fixed = (new[at] - off).min(self.bound(i, at));
            delta[at] += fixed - new[at];
            new[at] = fixed;
        }
        self.alpha[i * k..(i + 1) * k].copy_from_slice(new);
        let (w, points) = (&mut self.w, self.points);
        points.visit(i, |j, v| w[j * k..(j + 1) * k].iter_mut().zip(&delta).for_each(|(w, d)| *w += v * d));
        let scaling = self.scaling;
        self.extra.iter_mut().zip(&delta).for_each(|(w, d)| *w += scaling * d);
    }

    /// Primal and dual objective.
    fn bounds(&self) -> (f64, f64) {
        let norm: f64 = self.w.iter().chain(&self.extra).map(|w| w * w).sum();
        let (mut loss, mut linear) = (0.0, 0.0);
        let mut g = vec![0.0; self.k];
        for i in 0..self.codes.len() {
            self.scores(i, &mut g);
            let own = self.codes[i] as usize;
            loss += self.costs[i] * (g.iter().copied().fold(f64::NEG_INFINITY, f64::max) - g[own]);
            let alpha = &self.alpha[i * self.k..(i + 1) * self.k];
            linear += (0..self.k).filter(|m| *m != own).map(|m| alpha[m]).sum::<f64>();
        }
        (0.5 * norm + loss, -0.5 * norm - linear)
    }
}

/// Trains the machine of Crammer and Singer. `codes` holds the class of each row, below `classes`; the bias is absent or penalised.
pub fn solve_crammer_singer(
    points: &Points,
    codes: &[u32],
    classes: usize,
    costs: &[f64],
    bias: Bias,
    options: &Options,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<CrammerSinger> {
    options.check()?;
    let (n, d, k) = (points.len(), points.dims(), classes);
    check_len("classes of the rows", n, codes.len())?;
    check_len("number of costs", n, costs.len())?;
    if k < 2 || codes.iter().any(|&c| c as usize >= k) {
        return Err(Error::data(format!("the rows are not of {k} classes, 2 at least")));
    }
    if let Some(row) = costs.iter().position(|c| !(*c >= 0.0 && c.is_finite())) {
        return Err(Error::data(format!("the cost of row {row} is {}: costs must be ≥ 0", costs[row])));
    }
    let scaling = match bias {
        Bias::None => 0.0,
        Bias::Penalised { scaling } => scaling,
        Bias::Free => {
            return Err(Error::Unsupported {
                solver: "crammer-singer",
                what: "a free bias".into(),
                instead: "a penalised one, or none".into(),
            });
        }
    };
    let size =
        n.checked_mul(k).filter(|s| s.checked_mul(8).is_some()).ok_or_else(|| Error::data("n·k is too large"))?;
    let mut work =
        Work { points, codes, costs, k, scaling, w: vec![0.0; d * k], extra: vec![0.0; k], alpha: vec![0.0; size] };
    let begin = Begin { solver: "crammer-singer", n, tol: options.stop.tol, gap: options.stop.gap };
    let mut status = if observer.begin(&begin).is_break() { Status::Interrupted } else { Status::Optimal };
    let squares: Vec<f64> = points.squared_norms().iter().map(|q| q + scaling * scaling).collect();
    let all = || (0..n as u32).filter(|&i| costs[i as usize] > 0.0).collect::<Vec<u32>>();
    let mut active = all();
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let (mut g, mut new, mut order) = (vec![0.0; k], vec![0.0; k], Vec::with_capacity(k));
    let (mut epoch, mut check_at) = (0u64, 1u64);
    let (mut primal, mut dual) = work.bounds();
    let (mut bar, mut checked) = (0.0, f64::INFINITY);
    while status == Status::Optimal {
        if options.iterations.is_some_and(|most| epoch >= most) {
            status = Status::IterationLimit;
            break;
        }
        epoch += 1;
        active.shuffle(&mut rng);
        let mut worst = 0.0f64;
        let mut kept = 0;
        for at in 0..active.len() {
            if at % 256 == 0
                && let Err(why) = control.check()
            {
                status = why.into();
                break;
            }
            let i = active[at] as usize;
            work.scores(i, &mut g);
            let violation = work.violation(i, &g);
            if violation <= bar {
                continue;
            }
            active[kept] = active[at];
            kept += 1;
            worst = worst.max(violation);
            if squares[i] > 0.0 {
                work.step(i, &g, squares[i], &mut order, &mut new);
            } else {
                // An empty row costs 1 whatever W is; its α only has to say so.
                let own = codes[i] as usize;
                let row = &mut work.alpha[i * k..(i + 1) * k];
                row[own] = costs[i];
                row[usize::from(own == 0)] = -costs[i];
            }
        }
        if status != Status::Optimal {
            break;
        }
        active.truncate(kept);
        // A few stubborn samples must not keep all others waiting.
        if epoch < check_at && !active.is_empty() && worst > 0.1 * checked {
            bar = 0.01 * worst;
            continue;
        }
        (primal, dual) = work.bounds();
        let relative = (primal - dual) / primal.abs().max(dual.abs()).max(1.0);
        let step = Step {
            iteration: epoch,
            seconds: control.seconds(),
            phase: "coordinate",
            violation: Some(worst),
            primal: Some(primal),
            dual: Some(dual),
            active: Some(active.len()),
            ..Step::default()
        };
        if observer.step(&step).is_break() {
            status = Status::Interrupted;
            break;
        }
        let whole = kept == all().len() || worst == 0.0;
        let tol_holds = options.stop.tol.is_none_or(|tol| worst <= tol && (whole || relative <= 1e-3));
        if tol_holds && options.stop.gap.is_none_or(|gap| relative <= gap) {
            break;
        }
        check_at = epoch + 1 + (epoch / 6).min(20);
        checked = worst;
        active = all();
        bar = 0.0;
    }
    if status != Status::Optimal {
        (primal, dual) = work.bounds();
    }
    observer.finish(status, &Step { iteration: epoch, seconds: control.seconds(), ..Step::default() });
    let bias = work.extra.iter().map(|w| scaling * w).collect();
    Ok(CrammerSinger { weights: work.w, bias, alpha: work.alpha, primal, dual, status, iterations: epoch })
}
