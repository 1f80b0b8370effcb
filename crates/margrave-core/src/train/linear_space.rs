//! The space of linear machines: w·x + b, trained and verified on the data itself.

use super::options::{SolverName, TrainOptions};
use super::proof::{Proven, prove_linear};
use super::space::{Request, Space, StartPoint, Trained, is_better, until_proven};
use super::verdict::Asked;
use crate::certificate::{Certificate, certify_l1, certify_linear};
use crate::compose::calibrate::{LeftOut, leave_one_out};
use crate::control::{Control, Status};
use crate::data::Points;
use crate::error::Result;
use crate::gram::{Matrix, Pick};
use crate::kernel::Kernel;
use crate::model::Model;
use crate::observe::Observer;
use crate::problem::{Bias, LinearProblem, Machine, Penalty, Setup};
use crate::solver::linear::{self, Options, Start};
use crate::solver::{Solution, Stop, decomposition};

/// Number of rows up to which decomposition is tried as well, if the proof of a machine does not hold.
const MAX_DECOMPOSITION_ROWS: usize = 5000;

/// Number of rows up to which leave-one-out scores are computed in closed form: they take a kernel matrix, and folds of linear
/// machines are cheap.
const MAX_CLOSED_ROWS: usize = 5000;

/// Rows of the data matrix.
pub(crate) struct LinearSpace<'a> {
    matrix: MatrixOf<'a>,
    /// The rows, if they are in memory; otherwise points without features.
    points: Points,
}

enum MatrixOf<'a> {
    Own(Box<dyn Matrix>),
    Streamed(&'a dyn Matrix),
}

impl<'a> LinearSpace<'a> {
    /// Over points in memory, or over the rows of `streamed`, which are read in blocks.
    pub(crate) fn new(points: &Points, streamed: Option<&'a dyn Matrix>, control: &Control) -> Self {
        let matrix = match streamed {
            Some(matrix) => MatrixOf::Streamed(matrix),
            None => MatrixOf::Own(control.backend().matrix(points)),
        };
        Self { matrix, points: points.clone() }
    }

    fn matrix(&self) -> &dyn Matrix {
        match &self.matrix {
            MatrixOf::Own(matrix) => matrix.as_ref(),
            MatrixOf::Streamed(matrix) => *matrix,
        }
    }
}

/// Why the linear solver was chosen.
pub(crate) fn reason_for(options: &TrainOptions, reason: &str) -> String {
    match options.solver {
        SolverName::Linear => format!("asked for; {reason}"),
        _ => format!("the kernel is linear; {reason}"),
    }
}

/// The bias a model was trained with.
pub(crate) fn bias_of_model(model: &Model) -> Bias {
    match (model.free_bias, model.intercept_scaling) {
        (_, Some(scaling)) => Bias::Penalised { scaling },
        (true, None) => Bias::Free,
        (false, None) => Bias::None,
    }
}

/// The weights of one output of a model, for `dims` features.
fn weights_of(model: &Model, at: usize, dims: usize) -> Vec<f64> {
    let all = model.expansion.weights().unwrap_or_default();
    let mut weights: Vec<f64> = all.iter().skip(at).step_by(model.expansion.outputs()).copied().collect();
    weights.resize(dims, 0.0);
    weights
}

impl Space for LinearSpace<'_> {
    fn len(&self) -> usize {
        self.matrix().rows()
    }

    fn diag(&self) -> Vec<f64> {
        self.points.squared_norms().to_vec()
    }

    fn entries(&self) -> u64 {
        0
    }

    fn work(&self, rows: usize) -> u64 {
        (rows * (self.matrix().stored() / self.len().max(1)).max(1)) as u64
    }

    fn restrict<'s>(&'s self, rows: &[u32], control: &Control) -> Box<dyn Space + 's> {
        let points = if rows.len() == self.points.len() { self.points.clone() } else { self.points.gather(rows) };
        Box::new(LinearSpace { matrix: MatrixOf::Own(control.backend().matrix(&points)), points })
    }

    fn start(&self, model: &Model, at: usize, machine: &Machine, setup: &Setup) -> StartPoint {
        let (beta, _) = setup.solution(machine);
        let dims = self.matrix().dims();
        let fits = *model.expansion.kernel() == Kernel::Linear && model.expansion.width() == dims;
        let weights = match model.expansion.weights() {
            Some(_) if fits => weights_of(model, at, dims),
            _ => Vec::new(),
        };
        StartPoint { beta, bias: vec![machine.bias], weights }
    }

    fn solve(
        &self,
        setup: &Setup,
        mut start: Option<StartPoint>,
        request: Request<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Trained> {
        let Request { options, memory, control } = request;
        let problem = setup.linear_with(self.matrix(), options.bias_kind())?;
        let stop = options.aim_for(setup);
        let asked = Asked::from(options.stop_for(setup));
        let blocks = if self.matrix().points().is_none() { "rows are read in blocks; " } else { "" };
        let mut best = until_proven(stop, &asked, control, |stop, best| {
            let (from, used) = match best {
                None => (start.take(), 0),
                Some(Trained { proven, weights, .. }) => {
                    let (beta, bias) = (proven.beta.clone(), vec![proven.machine.bias]);
                    let weights = weights.clone().unwrap_or_default();
                    (Some(StartPoint { beta, bias, weights }), proven.iterations)
                }
            };
            let solver_options = Options {
                stop,
                start: from.map(|s| Start {
                    weights: s.weights,
                    bias: s.bias.first().copied().unwrap_or(0.0),
                    beta: s.beta,
                }),
                iterations: options.budget.iterations.map(|all| all.saturating_sub(used)),
                memory,
                seed: options.seed,
                ..Options::default()
            };
            let solved = match options.penalty {
                Penalty::L2 => linear::solve(&problem, &solver_options, control, observer)?,
                Penalty::L1 => linear::solve_l1(&problem, &solver_options, control, observer)?,
            };
            let solution = Solution {
                beta: solved.beta,
                bias: if options.bias { vec![solved.bias] } else { vec![] },
                exact: None,
                scores: None,
                status: solved.status,
                iterations: used + solved.iterations,
                violation: f64::INFINITY,
            };
            let proof = control.for_proof();
            let mut proven =
                prove_linear(setup, &problem, options.penalty, &solved.weights, &solution, &asked, &proof)?;
            proven.certificate = proven.certificate.with_start(solved.start_objective);
            let reason = reason_for(options, &format!("{blocks}{}", solved.reason));
            Ok(Trained { proven, weights: Some(solved.weights), solver: "linear", reason, compact: None, merged: 0 })
        })?;
        if matches!(best.proven.status, Status::Inaccurate | Status::Stalled)
            && options.solver == SolverName::Auto
            && control.check().is_ok()
            && let Some(other) = by_decomposition(setup, &problem, &best, &asked, request, observer)?
            && is_better(&other.proven, &best.proven, &asked)
        {
            best = other;
        }
        Ok(best)
    }

    fn certify(
        &self,
        model: &Model,
        at: usize,
        machine: &Machine,
        setup: &Setup,
        control: &Control,
    ) -> Result<Certificate> {
        let problem = setup.linear_with(self.matrix(), bias_of_model(model))?;
        let (beta, _) = setup.solution(machine);
        let weights = weights_of(model, at, self.matrix().dims());
        Ok(match model.penalty {
            Penalty::L2 => certify_linear(&problem, &weights, machine.bias, &beta, control)?,
            Penalty::L1 => certify_l1(&problem, &weights, machine.bias, &beta, control)?,
        })
    }

    fn score(&self, trained: &Trained, _: &[u32], rows: &[u32], control: &Control) -> Result<Vec<f64>> {
        let mut scores = vec![0.0; rows.len()];
        let weights = trained.weights.as_deref().unwrap_or_default();
        self.matrix().dots(Pick::List(rows), weights, &mut scores, control)?;
        scores.iter_mut().for_each(|z| *z += trained.proven.machine.bias);
        Ok(scores)
    }

    fn leave_one_out(&self, trained: &Trained, setup: &Setup, request: Request<'_>) -> Result<Option<LeftOut>> {
        let Request { options, memory, control } = request;
        let Proven { beta, bias, scores, .. } = &trained.proven;
        let n = self.points.len();
        if options.penalty != Penalty::L2 || scores.len() != n || n > MAX_CLOSED_ROWS {
            return Ok(None);
        }
        // A penalised bias is the weight of a constant feature.
        let (points, f) = match options.intercept_scaling {
            Some(scaling) if scaling.is_finite() => {
                let b = trained.proven.machine.bias;
                (self.points.with_constant(scaling), scores.iter().map(|f| f + b).collect())
            }
            Some(_) => return Ok(None),
            None => (self.points.clone(), scores.clone()),
        };
        let bias = if options.intercept_scaling.is_some() { &[][..] } else { bias.as_slice() };
        let gram = control.backend().square_gram(Kernel::Linear, &points)?;
        // If time runs out here, folds are used instead.
        setup.with(gram.as_ref(), |problem| Ok(leave_one_out(problem, beta, bias, &f, memory, control).unwrap_or(None)))
    }
}

/// The same machine by decomposition, if decomposition supports its dual and the problem is small enough.
fn by_decomposition(
    setup: &Setup,
    problem: &LinearProblem<'_>,
    best: &Trained,
    asked: &Asked,
    request: Request<'_>,
    observer: &mut dyn Observer,
) -> Result<Option<Trained>> {
    let Request { options, memory, control } = request;
    let Some(points) = problem.matrix.points().filter(|points| points.len() <= MAX_DECOMPOSITION_ROWS) else {
        return Ok(None);
    };
    if options.penalty != Penalty::L2 || options.intercept_scaling.is_some() {
        return Ok(None);
    }
    let gram = control.backend().square_gram(Kernel::Linear, points)?;
    let stop: Stop = asked.stricter(options.aim_for(setup), &best.proven.certificate);
    let solved = setup.with(gram.as_ref(), |problem| {
        if (0..problem.len()).any(|i| problem.dual_term(i).is_none()) {
            return Ok(None);
        }
        let start = Some(best.proven.beta.clone());
        let iterations = options.budget.iterations.map(|all| all.saturating_sub(best.proven.iterations));
        let options = decomposition::Options { stop, start, iterations, memory, ..decomposition::Options::default() };
        Ok(Some(decomposition::solve(problem, &options, control, observer)?))
    })?;
    let Some(mut solution) = solved else { return Ok(None) };
    solution.iterations += best.proven.iterations;
    let proof = control.for_proof();
    let mut weights = vec![0.0; problem.matrix.dims()];
    if problem.matrix.combine(Pick::All, &solution.beta, &mut weights, &proof).is_err() {
        return Ok(None);
    }
    let proven = prove_linear(setup, problem, options.penalty, &weights, &solution, asked, &proof)?;
    let reason = format!("{}; finished by decomposition, as it ended short of the proof", best.reason);
    Ok(Some(Trained { proven, weights: Some(weights), solver: "linear", reason, compact: None, merged: 0 }))
}
