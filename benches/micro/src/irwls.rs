//! One RBF machine on a file with two classes, by decomposition, by IRWLS, and by IRWLS from scratch, where every iteration forms
//! and factors the whole system of paper 000 again. All to a relative gap of 1e-6, certified, with the same time limit.

use margrave_core::backend::cpu::CpuGram;
use margrave_core::certificate::certify;
use margrave_core::data::Points;
use margrave_core::kernel::Kernel;
use margrave_core::loss::LossSpec;
use margrave_core::observe::Silent;
use margrave_core::problem::{Constraint, KernelProblem};
use margrave_core::solver::{Solution, Stop, decomposition, irwls};
use margrave_core::{Budget, Control, Threads};

use crate::sparse::read_labelled;

/// Memory limit in bytes of the run from scratch, whose systems are large.
const SCRATCH_MEMORY: u64 = 12 << 30;

pub(crate) fn run(arguments: &[String]) {
    let [file, c, gamma, rest @ ..] = arguments else {
        println!("irwls FILE C GAMMA [SECONDS [LOSS]]");
        return;
    };
    let number = |text: &String| text.parse::<f64>().expect("a number");
    let (c, gamma, seconds) = (number(c), number(gamma), rest.first().map_or(600.0, number));
    let loss = rest.get(1).map_or(LossSpec::Hinge, |l| l.parse().expect("a loss")).build().expect("a loss");
    let (points, targets) = read_labelled(file);
    let points = Points::from(points);
    let least = targets.iter().copied().fold(f64::INFINITY, f64::min);
    let labels: Vec<f64> = targets.iter().map(|y| if *y > least { 1.0 } else { -1.0 }).collect();
    let costs = vec![c; labels.len()];
    println!("{file}: {} rows, {}, C = {c}, gamma = {gamma}", labels.len(), loss.name());
    println!("| solver | s | status | relative gap | iterations | factorisations |");
    println!("|---|---|---|---|---|---|");
    let stop = Stop { tol: None, gap: Some(1e-6) };
    for way in ["decomposition", "irwls", "irwls from scratch"] {
        let gram = CpuGram::square(Kernel::rbf(gamma), &points).expect("a Gram");
        let problem = KernelProblem::new(&gram, &labels, &costs, &*loss, Constraint::free_bias()).expect("a problem");
        let budget = Budget { seconds: Some(seconds), ..Budget::default() };
        let control = Control::start(&budget, Threads::default());
        let (solution, factorisations): (Solution, u64) = match way {
            "decomposition" if problem.dual_term(0).is_none() => continue,
            "decomposition" => {
                let options = decomposition::Options { stop, ..decomposition::Options::default() };
                (decomposition::solve(&problem, &options, &control, &mut Silent).expect("a solution"), 0)
            }
            way => {
                let reuse = way == "irwls";
                let memory = if reuse { budget.memory } else { SCRATCH_MEMORY };
                let options = irwls::Options { stop, reuse, memory, ..irwls::Options::default() };
                let end = irwls::solve(&problem, None, &options, &control, &mut Silent).expect("a solution");
                (end.solution, end.factorisations)
            }
        };
        let took = control.seconds();
        let calm = Control::unlimited(Threads::default());
        let proof = certify(&problem, &solution.beta, Some(&solution.bias), None, &calm).expect("a proof");
        println!(
            "| {way} | {took:.2} | {} | {:.1e} | {} | {factorisations} |",
            solution.status,
            proof.relative_gap().unwrap_or(f64::NAN),
            solution.iterations,
        );
    }
}
