//! Features and pivots on a device that is a transcription for the processor, and one that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::backend::{Backend, Device, RowSource};
use crate::control::{Control, Interrupt, Status, Threads};
use crate::data::Points;
use crate::error::Result;
use crate::gram::{DeviceEnd, DeviceFactor, DeviceFeatures, Gram, Matrix, Pick, PivotedFactor, Precision};
use crate::kernel::Kernel;
use crate::linalg::factor::Cholesky;
use crate::loss::Hinge;
use crate::observe::Silent;
use crate::problem::{Bias, LinearProblem};

type Answer<T = ()> = std::result::Result<T, DeviceEnd>;

/// A device that answers so many requests, and fails from then on.
#[derive(Debug)]
struct Transcription {
    left: Arc<AtomicI64>,
}

fn ask(left: &AtomicI64) -> Answer {
    if left.fetch_sub(1, Ordering::Relaxed) > 0 { Ok(()) } else { Err(DeviceEnd::Failed) }
}

impl Backend for Transcription {
    fn name(&self) -> &'static str {
        "transcription"
    }

    fn gram(&self, kernel: Kernel, rows: &Points, cols: &Points) -> Result<Box<dyn Gram>> {
        let inner = Device::Cpu.backend().gram(kernel, rows, cols)?;
        Ok(Box::new(DeviceGram { inner, left: self.left.clone() }))
    }

    fn square_gram(&self, kernel: Kernel, points: &Points) -> Result<Box<dyn Gram>> {
        let inner = Device::Cpu.backend().square_gram(kernel, points)?;
        Ok(Box::new(DeviceGram { inner, left: self.left.clone() }))
    }

    fn matrix(&self, points: &Points) -> Box<dyn Matrix> {
        Device::Cpu.backend().matrix(points)
    }
}

struct DeviceGram {
    inner: Box<dyn Gram>,
    left: Arc<AtomicI64>,
}

impl DeviceGram {
    fn all(&self) -> Vec<f64> {
        let (n, m) = self.inner.shape();
        let mut k = vec![0.0; n * m];
        self.inner.block_f64(Pick::All, Pick::All, &mut k, &Control::unlimited(Threads::new(2))).unwrap();
        k
    }
}

impl Gram for DeviceGram {
    fn shape(&self) -> (usize, usize) {
        self.inner.shape()
    }

    fn diag(&self) -> Vec<f64> {
        self.inner.diag()
    }

    fn block_f32(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [f32],
        control: &Control,
    ) -> std::result::Result<(), Interrupt> {
        self.inner.block_f32(rows, cols, out, control)
    }

    fn block_f64(
        &self,
        rows: Pick<'_>,
        cols: Pick<'_>,
        out: &mut [f64],
        control: &Control,
    ) -> std::result::Result<(), Interrupt> {
        self.inner.block_f64(rows, cols, out, control)
    }

    fn apply(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> std::result::Result<(), Interrupt> {
        self.inner.apply(precision, rows, v, k, out, control)
    }

    fn entries(&self) -> u64 {
        self.inner.entries()
    }

    fn features(&self, factor: &Cholesky<f64>, _: Precision) -> Option<Box<dyn DeviceFeatures>> {
        let mut f = self.all();
        factor.whiten(&mut f, self.shape().0, &Threads::new(2));
        Some(Box::new(There { f, m: factor.len(), left: self.left.clone() }))
    }

    fn pivoted(&self, most: usize) -> Option<Box<dyn PivotedFactor>> {
        Some(Box::new(TherePivots { k: self.all(), f: Vec::new(), most: most + 192, left: self.left.clone() }))
    }
}

/// F, row-major.
struct There {
    f: Vec<f64>,
    m: usize,
    left: Arc<AtomicI64>,
}

impl There {
    fn row(&self, i: usize) -> &[f64] {
        &self.f[i * self.m..(i + 1) * self.m]
    }
}

impl DeviceFeatures for There {
    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Answer {
        control.check()?;
        ask(&self.left)?;
        let dot = |i: usize| self.row(i).iter().zip(w).map(|(f, w)| f * w).sum();
        out.iter_mut().enumerate().for_each(|(k, o)| *o = dot(rows.get(k)));
        Ok(())
    }

    fn combine(&self, rows: Pick<'_>, c: &[f64], out: &mut [f64], control: &Control) -> Answer {
        control.check()?;
        ask(&self.left)?;
        for (k, c) in c.iter().enumerate() {
            out.iter_mut().zip(self.row(rows.get(k))).for_each(|(o, f)| *o += c * f);
        }
        Ok(())
    }

    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        w: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Answer {
        self.dots(rows, w, dots, control)?;
        let c: Vec<f64> = dots.iter().zip(weights).map(|(u, a)| a * (u - shift)).collect();
        self.combine(rows, &c, out, control)
    }

    fn curvature_factor(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        bottom: f64,
        control: &Control,
    ) -> Answer<Box<dyn DeviceFactor>> {
        ask(&self.left)?;
        let m = self.m;
        let (mut a, mut h) = (vec![0.0; m * m], vec![0.0; m]);
        for (k, weight) in weights.iter().enumerate() {
            let row = self.row(rows.get(k));
            for i in 0..m {
                h[i] += weight * row[i];
                (0..=i).for_each(|j| a[i * m + j] += weight * row[i] * row[j]);
            }
        }
        for i in 0..m {
            (0..=i).for_each(|j| a[i * m + j] -= h[i] * h[j] / bottom);
            a[i * m + i] += 1.0;
        }
        let factor = Cholesky::new(a, m, m, control).map_err(|_| DeviceEnd::Failed)?;
        Ok(Box::new(Factor { factor, left: self.left.clone() }))
    }
}

struct Factor {
    factor: Cholesky<f64>,
    left: Arc<AtomicI64>,
}

impl DeviceFactor for Factor {
    fn solve(&self, right: &mut [Vec<f64>]) -> bool {
        right.iter_mut().for_each(|r| self.factor.solve(r));
        ask(&self.left).is_ok()
    }
}

struct TherePivots {
    k: Vec<f64>,
    /// A column per pivot.
    f: Vec<Vec<f64>>,
    most: usize,
    left: Arc<AtomicI64>,
}

impl TherePivots {
    fn n(&self) -> usize {
        self.k.len().isqrt()
    }

    fn residual_at(&self, i: u32, j: u32) -> f64 {
        let (i, j) = (i as usize, j as usize);
        self.k[i * self.n() + j] - self.f.iter().map(|f| f[i] * f[j]).sum::<f64>()
    }
}

impl PivotedFactor for TherePivots {
    fn residual(&mut self, rows: &[u32], out: &mut [f64], control: &Control) -> Answer {
        control.check()?;
        ask(&self.left)?;
        let p = rows.len();
        (0..p * p).for_each(|at| out[at] = self.residual_at(rows[at / p], rows[at % p]));
        Ok(())
    }

    fn extend(&mut self, pivots: &[u32], inverse: &[f64], _: &Control) -> Answer<Vec<f64>> {
        ask(&self.left)?;
        let (n, t) = (self.n(), pivots.len());
        if self.f.len() + t > self.most {
            return Err(DeviceEnd::Failed);
        }
        let mut new = vec![vec![0.0; n]; t];
        for i in 0..n {
            let rest: Vec<f64> = pivots.iter().map(|&p| self.residual_at(i as u32, p)).collect();
            (0..t).for_each(|c| new[c][i] = (0..=c).map(|k| inverse[c * t + k] * rest[k]).sum());
        }
        let squares = (0..n).map(|i| new.iter().map(|f| f[i] * f[i]).sum()).collect();
        self.f.extend(new);
        Ok(squares)
    }
}

/// A control on a device that answers `requests` of them, and how many are left.
fn on_device(requests: i64) -> (Control, Arc<AtomicI64>) {
    let left = Arc::new(AtomicI64::new(requests));
    let backend: &'static Transcription = Box::leak(Box::new(Transcription { left: left.clone() }));
    (Control::unlimited(Threads::new(2)).with_device(Device::Backend(backend)), left)
}

fn rows(n: usize) -> (Points, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let x: Vec<f64> = (0..n * 2).map(|_| rng.random_range(-2.0..2.0)).collect();
    let y = x.chunks(2).map(|x| if x[0] * x[1] + rng.random_range(-0.3..0.3) > 0.0 { 1.0 } else { -1.0 }).collect();
    (Points::dense_f64(n, 2, x).unwrap(), y)
}

/// The objective of the machine on `m` centres, evaluated on the processor.
fn objective(points: &Points, y: &[f64], m: usize, control: &Control) -> (f64, Status) {
    let costs = vec![1.0; y.len()];
    let source = RowSource::Memory(points.clone());
    let mut features = Features::new(Kernel::rbf(1.0), &source, m, 1 << 18, 3, control).unwrap();
    let set = features.on(m, control).unwrap();
    assert!(!set.is_stored() && set.centres.len() == m);
    let problem = LinearProblem::new(set.matrix(), y, &costs, &Hinge, Bias::Free).unwrap();
    let options = Options { memory: 1 << 20, ..Options::default() };
    let found = solve(&problem, &set, &options, control, &mut Silent).unwrap();
    let here = Control::unlimited(Threads::new(2));
    let mut scores = vec![0.0; y.len()];
    let a = set.centres.coefficients(&found.weights, &here.threads);
    let gram = here.backend().gram(Kernel::rbf(1.0), points, &set.centres.points).unwrap();
    gram.apply(Precision::Double, Pick::All, &a, 1, &mut scores, &here).unwrap();
    let loss: f64 = scores.iter().zip(y).map(|(z, y)| (1.0 - y * (z + found.bias)).max(0.0)).sum();
    (0.5 * found.weights.iter().map(|w| w * w).sum::<f64>() + loss, found.status)
}

#[test]
fn a_device_trains_the_machine_of_the_processor() {
    let (points, y) = rows(6000);
    let here = Control::unlimited(Threads::new(2));
    let (expected, status) = objective(&points, &y, 60, &here);
    assert_eq!(status, Status::Optimal);
    let (control, left) = on_device(1_000_000);
    let (found, status) = objective(&points, &y, 60, &control);
    assert_eq!(status, Status::Optimal);
    assert!(left.load(Ordering::Relaxed) < 1_000_000 - 10, "the device was hardly asked");
    // Both are within 1e-4 of the best on these centres.
    assert!((found - expected).abs() <= 2e-4 * expected, "{found} and {expected}");
}

#[test]
fn a_device_that_fails_anywhere_leaves_the_rest_to_the_processor() {
    let (points, y) = rows(2500);
    let here = Control::unlimited(Threads::new(2));
    let (expected, _) = objective(&points, &y, 40, &here);
    let (control, left) = on_device(1_000_000);
    objective(&points, &y, 40, &control);
    let all = 1_000_000 - left.load(Ordering::Relaxed);
    for requests in [0, 1, 2, 3, 4, 5, 7, 11, 18, all / 4, all / 2, all - 1] {
        let (found, status) = objective(&points, &y, 40, &on_device(requests).0);
        assert_eq!(status, Status::Optimal, "after {requests} of {all} requests");
        // Centres may be others if the search began anew: the best on them differs a little more.
        assert!((found - expected).abs() <= 2e-2 * expected, "{found} and {expected} after {requests} of {all}");
    }
}

#[test]
fn a_search_on_a_device_draws_the_pivots_of_the_processor() {
    let (points, _) = rows(900);
    let here = Control::unlimited(Threads::new(2));
    let (control, _) = on_device(1_000_000);
    let gram = control.backend().square_gram(Kernel::rbf(20.0), &points).unwrap();
    let mut there = CentreSearch::new(gram.diag(), 4).on_device(gram.pivoted(60));
    let mut own = CentreSearch::new(gram.diag(), 4);
    for m in [20, 60] {
        there.grow(gram.as_ref(), m, &control).unwrap();
        own.grow(gram.as_ref(), m, &here).unwrap();
    }
    assert_eq!(there.pivots()[..60], own.pivots()[..60]);
    assert!(there.features(5, &Threads::one()).is_none());
    // More than the device has room for: the search begins anew on the processor.
    there.grow(gram.as_ref(), 400, &control).unwrap();
    own.grow(gram.as_ref(), 400, &here).unwrap();
    assert_eq!(there.pivots(), own.pivots());
    assert!(there.features(5, &Threads::one()).is_some());
}

#[test]
fn an_interrupt_reaches_a_device() {
    let (points, _) = rows(900);
    let (control, _) = on_device(1_000_000);
    let stopped = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let control = control.with_cancel(stopped);
    let gram = control.backend().square_gram(Kernel::rbf(1.0), &points).unwrap();
    let mut search = CentreSearch::new(gram.diag(), 4).on_device(gram.pivoted(60));
    assert!(search.grow(gram.as_ref(), 60, &control).is_err() && search.pivots().is_empty());
}
