//! Set Newton rounds and the cascade: enough rows for both, conditions from K ≈ I to nearly singular, every dual term.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::certify;
use margrave_core::data::Points;
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem};
use margrave_core::solver::{Solution, Stop, decomposition};
use margrave_core::{Control, Status, Threads};
use margrave_testkit::points;

/// More than twice the first level of the cascade.
const N: usize = 3200;
const D: usize = 6;

/// A problem to solve.
struct Case {
    loss: &'static str,
    gamma: f64,
    cost: f64,
    bias: bool,
    memory: u64,
}

impl Case {
    fn solve(&self, threads: usize) -> Solution {
        let x = points::normal(N, D, 1.0, 0.0, 3);
        let noise = points::normal(N, 1, 0.3, 0.0, 4);
        let f = |i: usize| (2.0 * x[i * D]).sin() + x[i * D + 1] * x[i * D + 2] + noise[i];
        let loss = self.loss.parse::<LossSpec>().unwrap().build().unwrap();
        let numbers =
            self.loss.starts_with("epsilon") || self.loss.starts_with("huber") || self.loss == "pinball:tau=0.2";
        let targets: Vec<f64> = (0..N).map(|i| if numbers { f(i) } else { f(i).signum() }).collect();
        // Some rows weigh more, some nothing.
        let weight = |i: usize| [1.0, 1.0, 3.0, 0.5, 0.0][i * 7 % 5];
        let costs: Vec<f64> = (0..N).map(|i| self.cost * weight(i)).collect();
        let points = Points::dense_f64(N, D, x.clone()).unwrap();
        let gram = CpuGram::square(Kernel::rbf(self.gamma), &points).unwrap();
        let constraint = if self.bias { Constraint::free_bias() } else { Constraint::None };
        let problem = KernelProblem::new(&gram, &targets, &costs, &*loss, constraint).unwrap();
        let stop = Stop { tol: Some(1e-3), gap: Some(1e-5) };
        let options = decomposition::Options { stop, memory: self.memory, ..decomposition::Options::default() };
        let control = Control::unlimited(Threads::new(threads));
        let solved = decomposition::solve(&problem, &options, &control, &mut Silent).unwrap();
        assert_eq!(solved.status, Status::Optimal, "{} γ {} C {}", self.loss, self.gamma, self.cost);
        let proof = certify(&problem, &solved.beta, None, None, &control).unwrap();
        let gap = proof.optimality().expect("a convex loss").relative_gap();
        assert!(gap <= 1.1e-5, "{} γ {} C {}: {gap}", self.loss, self.gamma, self.cost);
        solved
    }
}

#[test]
fn every_dual_term_reaches_its_gap_under_any_condition() {
    for loss in ["hinge", "squared-hinge", "epsilon:epsilon=0.1", "huber:delta=0.5", "pinball:tau=0.2"] {
        for (gamma, cost) in [(10.0, 10.0), (0.3, 10.0), (0.01, 100.0)] {
            let bias = loss != "huber:delta=0.5";
            Case { loss, gamma, cost, bias, memory: 1 << 30 }.solve(2);
        }
    }
}

#[test]
fn threads_do_not_change_the_solution() {
    for (gamma, cost) in [(10.0, 100.0), (0.3, 10.0)] {
        let case = Case { loss: "hinge", gamma, cost, bias: true, memory: 1 << 30 };
        assert_eq!(case.solve(1).beta, case.solve(2).beta, "γ {gamma} C {cost}");
    }
}

#[test]
fn little_memory_is_enough() {
    for (gamma, cost) in [(10.0, 100.0), (0.3, 10.0)] {
        Case { loss: "hinge", gamma, cost, bias: true, memory: 4 << 20 }.solve(2);
    }
}

#[test]
fn nearly_diagonal_kernels_take_rounds_and_no_pair_steps() {
    // Nearly every sample is a free support vector: a few rounds replace more than a thousand pair steps.
    let solved = Case { loss: "hinge", gamma: 20.0, cost: 100.0, bias: true, memory: 1 << 30 }.solve(2);
    assert!(solved.iterations < 40, "{} steps", solved.iterations);
}
