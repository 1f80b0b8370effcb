//! A Gram with a solver of its own: its point is judged, used, and finished where it falls short.

use std::ops::ControlFlow;

use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::{Certificate, certify};
use margrave_core::control::{Control, Interrupt, Status, Threads};
use margrave_core::gram::{
    Accuracy, Chain, DevicePoint, DeviceProblem, DeviceReport, DeviceSolver, DeviceStep, Gram, Pick, Precision,
};
use margrave_core::kernel::Kernel;
use margrave_core::loss::Hinge;
use margrave_core::observe::{Observer, Step};
use margrave_core::problem::{Constraint, KernelProblem};
use margrave_core::solver::{Stop, decomposition};
use margrave_testkit::points;

/// What the solver of the device returns.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Returns {
    /// The optimum and its scores.
    Optimum,
    /// A feasible point far from it, without scores.
    Poor,
    /// Scores of another point.
    Stale,
    /// Nothing.
    Nothing,
}

struct OnDevice {
    gram: CpuGram,
    returns: Returns,
    optimum: Vec<f64>,
    chain: Chain,
}

impl Gram for OnDevice {
    fn shape(&self) -> (usize, usize) {
        self.gram.shape()
    }
    fn diag(&self) -> Vec<f64> {
        self.gram.diag()
    }
    fn block_f32(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f32], control: &Control) -> Result<(), Interrupt> {
        self.gram.block_f32(rows, cols, out, control)
    }
    fn block_f64(&self, rows: Pick<'_>, cols: Pick<'_>, out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.gram.block_f64(rows, cols, out, control)
    }
    fn apply(
        &self,
        precision: Precision,
        rows: Pick<'_>,
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.gram.apply(precision, rows, v, k, out, control)
    }
    fn entries(&self) -> u64 {
        self.gram.entries()
    }
    fn device_solver(&self) -> Option<&dyn DeviceSolver> {
        Some(self)
    }
    fn accuracy(&self) -> Accuracy {
        Accuracy { chain: self.chain, ..self.gram.accuracy() }
    }
}

impl DeviceSolver for OnDevice {
    fn solve(
        &self,
        problem: &DeviceProblem<'_>,
        report: &mut dyn DeviceReport,
        control: &Control,
    ) -> Option<DevicePoint> {
        let n = problem.terms.len();
        assert!(problem.keeps_sum && problem.start.iter().all(|b| *b == 0.0));
        if report.step(DeviceStep { rounds: 1, violation: 1.0, rows: n }).is_err() {
            return Some(DevicePoint { beta: problem.start.to_vec(), scores: None, rounds: 1 });
        }
        let mut scores = vec![0.0; n];
        self.apply(Precision::Double, Pick::All, &self.optimum, 1, &mut scores, control).ok()?;
        match self.returns {
            Returns::Nothing => None,
            Returns::Optimum => {
                assert!(!report.verdict(problem.start, &vec![0.0; n]), "β = 0 is not optimal");
                let theirs = report.scores(&self.optimum).ok()?;
                assert_eq!(theirs, scores, "the same product");
                assert!(report.verdict(&self.optimum, &theirs));
                Some(DevicePoint { beta: self.optimum.clone(), scores: Some(scores), rounds: 7 })
            }
            Returns::Poor => {
                let beta = self.optimum.iter().map(|b| 0.5 * b).collect();
                Some(DevicePoint { beta, scores: None, rounds: 7 })
            }
            Returns::Stale => {
                // Not feasible: it is balanced first, and the scores are then not those of the point.
                let mut beta = self.optimum.clone();
                let nonzero = beta.iter().position(|b| *b != 0.0).expect("support vectors");
                beta[nonzero] *= 0.75;
                scores.iter_mut().for_each(|z| *z += 1.0);
                Some(DevicePoint { beta, scores: Some(scores), rounds: 7 })
            }
        }
    }
}

/// The phases of a run; stops at the first of them if asked.
struct Phases(Vec<&'static str>, bool);

impl Observer for Phases {
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.0.push(step.phase);
        if self.1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_point_from_a_device_is_judged_and_finished() {
    let n = 300;
    let x = points::dense(n, 4, 1);
    let mut row = vec![0.0; 4];
    let targets: Vec<f64> = (0..n)
        .map(|i| {
            x.copy_row(i, &mut row);
            if row[0] * row[1] + 0.3 * row[2] > 0.0 { 1.0 } else { -1.0 }
        })
        .collect();
    let (costs, kernel) = (vec![1.0; n], Kernel::rbf(0.3));
    let options =
        decomposition::Options { stop: Stop { tol: None, gap: Some(1e-6) }, ..decomposition::Options::default() };
    let control = Control::unlimited(Threads::one());
    let solve = |gram: &dyn Gram, stops: bool| {
        let problem = KernelProblem::new(gram, &targets, &costs, &Hinge, Constraint::free_bias()).unwrap();
        let mut phases = Phases(Vec::new(), stops);
        (decomposition::solve(&problem, &options, &control, &mut phases).unwrap(), phases.0)
    };
    let (best, _) = solve(&CpuGram::square(kernel, &x).unwrap(), false);
    assert_eq!(best.status, Status::Optimal);
    let on_device = |returns| OnDevice {
        gram: CpuGram::square(kernel, &x).unwrap(),
        returns,
        optimum: best.beta.clone(),
        chain: Chain::default(),
    };
    let (found, phases) = solve(&on_device(Returns::Optimum), false);
    assert_eq!((found.status, found.iterations, found.beta == best.beta), (Status::Optimal, 7, true));
    assert!(phases.iter().all(|phase| *phase == "device"), "{phases:?}");
    // The scores that the device was given serve the proof.
    let gram = on_device(Returns::Optimum);
    let problem = KernelProblem::new(&gram, &targets, &costs, &Hinge, Constraint::free_bias()).unwrap();
    let found = decomposition::solve(&problem, &options, &control, &mut Phases(Vec::new(), false)).unwrap();
    assert!(found.exact.is_some_and(|scores| scores.are_of(&problem, &found.beta)));
    for returns in [Returns::Poor, Returns::Stale, Returns::Nothing] {
        let gram = on_device(returns);
        let (found, phases) = solve(&gram, false);
        assert_eq!(found.status, Status::Optimal);
        // Balancing a stale point may well restore the optimum.
        let finished = phases.iter().any(|phase| *phase != "device");
        assert!(finished || returns == Returns::Stale, "{returns:?}: the rest is done here");
        let scores = found.scores.expect("scores of the result");
        let mut exact = vec![0.0; n];
        gram.apply(Precision::Double, Pick::All, &found.beta, 1, &mut exact, &control).unwrap();
        let worst = scores.iter().zip(&exact).fold(0.0f64, |w, (a, b)| w.max((a - b).abs()));
        assert!(worst < 1e-5, "scores of another point: off by {worst}");
    }
    let (found, _) = solve(&on_device(Returns::Optimum), true);
    assert_eq!(found.status, Status::Interrupted);

    // The bound on rounding counts the additions that the Gram says it makes.
    let gap = |chain: Chain| {
        let gram = OnDevice { chain, ..on_device(Returns::Nothing) };
        let problem = KernelProblem::new(&gram, &targets, &costs, &Hinge, Constraint::free_bias()).unwrap();
        match certify(&problem, &best.beta, Some(&best.bias), None, &control).unwrap() {
            Certificate::Optimality(proof) => proof.gap(),
            other => panic!("a convex problem: {other:?}"),
        }
    };
    let (short, long) = (gap(Chain { fixed: 8.0, columns: 1024.0 }), gap(Chain { fixed: 8.0, columns: 1e-7 }));
    assert!(short < gap(Chain::default()) && 2.0 * gap(Chain::default()) < long, "{short:e} {long:e}");
}
