//! Selects a solver for a problem and gives the reason.
//!
//! The choice depends on the loss, the number of samples and features, and the memory. A new solver adds a variant to
//! [`Choice`] and a rule to [`choose`]; the first rule that matches decides.

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
    /// The name of the solver in user interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Decomposition => "decomposition",
            Choice::Ridge => "ridge",
            Choice::Irwls | Choice::TwoStep => "irwls",
        }
    }
}

/// A choice and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The solver.
    pub choice: Choice,
    /// Why this solver was chosen, as a sentence fragment for the user.
    pub reason: String,
}

/// Largest number of samples for which one dense factorisation takes only seconds.
const MAX_FACTORED_SAMPLES: usize = 8000;

/// Selects the solver for `problem`. `linear`: the points, if K is their linear kernel; `memory`: bytes.
pub fn choose(problem: &KernelProblem<'_>, linear: Option<&Points>, memory: u64) -> Chosen {
    let chosen = |choice, reason: String| Chosen { choice, reason };
    let samples = || (0..problem.len()).filter(|&i| problem.costs[i] > 0.0);
    let Some(first) = samples().next() else {
        return chosen(Choice::Decomposition, "no sample has a positive cost".into());
    };
    let name = problem.loss(first).name();
    if let Some(i) = samples().find(|&i| !problem.loss(i).properties().convex) {
        let name = problem.loss(i).name();
        return chosen(
            Choice::TwoStep,
            format!("the {name} loss is not convex: a convex start, then reweighted least squares"),
        );
    }
    if samples().any(|i| problem.dual_term(i).is_none()) {
        return chosen(Choice::Irwls, format!("the {name} loss has no box-quadratic dual: reweighted least squares"));
    }
    let one_variable_per_row = problem.row_of.is_none() && problem.constraint.groups() <= 1;
    let least_squares = one_variable_per_row
        && samples().all(|i| {
            problem
                .dual_term(i)
                .is_some_and(|t| t.eps == 0.0 && t.d > 0.0 && t.lo == f64::NEG_INFINITY && t.hi == f64::INFINITY)
        });
    if least_squares {
        let n = samples().count();
        if let Some(points) = linear
            && points.dims() <= n
            && (points.dims() as u64).saturating_mul(points.dims() as u64).saturating_mul(32) <= memory
        {
            let d = points.dims();
            return chosen(Choice::Ridge, format!("the {name} loss needs one linear system of {d} equations"));
        }
        let bytes = (n as u64).saturating_mul(n as u64).saturating_mul(8);
        if n <= MAX_FACTORED_SAMPLES && bytes <= memory {
            return chosen(Choice::Ridge, format!("the {name} loss needs one linear system of {n} equations"));
        }
        return chosen(
            Choice::Irwls,
            format!("the {name} loss needs one linear system, too large to factor: conjugate gradients"),
        );
    }
    chosen(Choice::Decomposition, "the loss has a box-quadratic dual: an exact solution to any gap".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuGram;
    use crate::kernel::Kernel;
    use crate::loss::LossSpec;
    use crate::problem::Constraint;

    #[test]
    fn the_choice_depends_on_the_loss_and_the_memory() {
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
