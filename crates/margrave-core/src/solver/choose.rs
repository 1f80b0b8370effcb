//! Which solver suits a problem, and why.
//!
//! The choice looks at the loss, the number of samples and features, and the memory. A new solver adds a variant to [`Choice`]
//! and a rule to [`choose`]; rules are tried in order and the first that fits speaks.

use crate::data::Points;
use crate::problem::KernelProblem;

/// A solver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// [`decomposition`](super::decomposition).
    Decomposition,
    /// [`ridge`](super::ridge): one linear system.
    Ridge,
    /// [`irwls`](super::irwls) for a convex loss.
    Irwls,
    /// [`irwls::two_step`](fn@super::irwls::two_step): a loss that is not convex.
    TwoStep,
}

impl Choice {
    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Decomposition => "decomposition",
            Choice::Ridge => "ridge",
            Choice::Irwls | Choice::TwoStep => "irwls",
        }
    }
}

/// A choice and what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The solver.
    pub choice: Choice,
    /// Why, in a sentence fragment for people.
    pub reason: String,
}

/// Samples up to which one dense factorisation of all of them takes seconds.
const FACTOR: usize = 8000;

/// The solver for `problem`. `linear`: the points, if K is the linear kernel over them; `memory`: bytes.
pub fn choose(problem: &KernelProblem<'_>, linear: Option<&Points>, memory: u64) -> Chosen {
    let chosen = |choice, reason: String| Chosen { choice, reason };
    let samples: Vec<usize> = (0..problem.len()).filter(|&i| problem.costs[i] > 0.0).collect();
    let n = samples.len();
    let Some(&first) = samples.first() else {
        return chosen(Choice::Decomposition, "no sample has a cost".into());
    };
    let name = problem.loss(first).name();
    if let Some(&i) = samples.iter().find(|&&i| !problem.loss(i).properties().convex) {
        let name = problem.loss(i).name();
        return chosen(Choice::TwoStep, format!("the {name} loss is not convex: a convex start, then reweighting"));
    }
    if samples.iter().any(|&i| problem.dual_term(i).is_none()) {
        return chosen(Choice::Irwls, format!("the {name} loss has no box-quadratic dual: reweighting"));
    }
    let plain = problem.row_of.is_none() && problem.constraint.groups() <= 1;
    let least_squares = plain
        && samples.iter().all(|&i| {
            problem
                .dual_term(i)
                .is_some_and(|t| t.eps == 0.0 && t.d > 0.0 && t.lo == f64::NEG_INFINITY && t.hi == f64::INFINITY)
        });
    if least_squares {
        if let Some(points) = linear
            && points.dims() <= n
            && (points.dims() as u64).saturating_mul(points.dims() as u64).saturating_mul(32) <= memory
        {
            let d = points.dims();
            return chosen(Choice::Ridge, format!("the {name} loss is one linear system, of {d} equations"));
        }
        let bytes = (n as u64).saturating_mul(n as u64).saturating_mul(8);
        if n <= FACTOR && bytes <= memory {
            return chosen(Choice::Ridge, format!("the {name} loss is one linear system, of {n} equations"));
        }
        return chosen(
            Choice::Irwls,
            format!("the {name} loss is one linear system, too large to factor: conjugate gradients"),
        );
    }
    chosen(Choice::Decomposition, "the loss has a box-quadratic dual: exact, to any gap".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::kernel::Kernel;
    use crate::loss::LossSpec;
    use crate::problem::Constraint;

    #[test]
    fn the_loss_and_the_memory_decide() {
        let points = Points::dense_f64(6, 1, vec![-3.0, -2.0, -1.0, 1.0, 2.0, 3.0]).unwrap();
        let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
        let (y, c) = ([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0], [1.0; 6]);
        let pick = |loss: &str, linear: bool, memory: u64| {
            let loss = loss.parse::<LossSpec>().unwrap().build().unwrap();
            let problem = KernelProblem::new(&gram, &y, &c, &*loss, Constraint::free_bias()).unwrap();
            choose(&problem, linear.then_some(&points), memory)
        };
        assert_eq!(pick("hinge", false, 1 << 30).choice, Choice::Decomposition);
        assert_eq!(pick("logistic", false, 1 << 30).choice, Choice::Irwls);
        assert_eq!(pick("sigmoid", false, 1 << 30).choice, Choice::TwoStep);
        assert!(pick("sigmoid", false, 1 << 30).reason.contains("not convex"));
        assert_eq!(pick("square", false, 1 << 30).choice, Choice::Ridge);
        assert_eq!(pick("square", false, 100).choice, Choice::Irwls);
        assert!(pick("square", true, 100).reason.contains("1 equations"));
    }
}
