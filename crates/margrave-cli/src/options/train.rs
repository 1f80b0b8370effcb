//! What to train, with which solver, and when to stop.

use clap::Args;
use margrave::engine::data::{Label, ScaleKind};
use margrave::engine::model::Scheme;
use margrave::engine::problem::{ClassWeight, Penalty, Task};
use margrave::engine::solver::Stop;
use margrave::loss::LossSpec;
use margrave::{Approx, Budget, Probability, ProbabilityRule, SolverName, Svm, TailCheck, ThresholdRule};
use margrave_cuda::DeviceName;

use super::value;
use crate::failure::Failure;

/// What to train.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelOptions {
    /// classify, regress or novelty [default: classify]
    #[arg(long, value_name = "NAME", value_parser = task)]
    pub(crate) task: Option<Task>,
    /// Loss, as NAME or NAME:key=value,…; see 'margrave losses' [default: hinge, or epsilon for regression]
    #[arg(long, short, value_name = "LOSS", value_parser = loss)]
    pub(crate) loss: Option<LossSpec>,
    /// C in ½‖f‖² + C·Σloss
    #[arg(short = 'C', long = "cost", value_name = "C", default_value = "1", value_parser = value::positive, allow_negative_numbers = true)]
    pub(crate) cost: f64,
    /// λ in (1/n)·Σloss + λ‖f‖², instead of C; C = 1/(2λn)
    #[arg(long, value_name = "L", value_parser = value::positive, conflicts_with = "cost", allow_negative_numbers = true)]
    pub(crate) lambda: Option<f64>,
    /// Half-width of the ε-tube in regression [default: 0.1]
    #[arg(long, value_name = "E", value_parser = value::non_negative, allow_negative_numbers = true)]
    pub(crate) epsilon: Option<f64>,
    /// ν of ν-SVC and ν-SVR, or the share of outliers in novelty detection [default for novelty: 0.5]
    #[arg(long, value_name = "NU", value_parser = value::positive, allow_negative_numbers = true)]
    pub(crate) nu: Option<f64>,
    /// Novelty detection by the smallest enclosing ball (SVDD)
    #[arg(long)]
    pub(crate) svdd: bool,
    /// Train without a bias b
    #[arg(long)]
    pub(crate) no_bias: bool,
    /// Linear kernel: penalise b as the weight of a constant feature S, as LIBLINEAR does
    #[arg(long, value_name = "S", value_parser = value::positive, conflicts_with = "no_bias", allow_negative_numbers = true)]
    pub(crate) intercept_scaling: Option<f64>,
    /// Linear kernel: l2 (½‖w‖²), or l1 (Σ|w|; many weights become exactly 0; needs a smooth loss)
    #[arg(long, value_name = "NAME", default_value = "l2", value_parser = penalty)]
    pub(crate) penalty: Penalty,
    /// Weights of the classes, as factors of C: balanced, or LABEL=W,…
    #[arg(long, value_name = "SPEC", value_parser = class_weight, allow_hyphen_values = true)]
    pub(crate) class_weight: Option<ClassWeight>,
    /// Scale the features and store the scaling in the model: none, minmax or standard
    #[arg(long, value_name = "KIND", default_value = "none", value_parser = scale)]
    pub(crate) scale: Scale,
    /// Three classes or more: one binary model per pair (ovo), one per class against the rest (ovr), or one model for
    /// all (crammer-singer, linear kernel) [default: ovo; ovr with the linear solver]
    #[arg(long, value_name = "SCHEME", value_parser = multiclass)]
    pub(crate) multiclass: Option<Scheme>,
    /// Calibrate probabilities (classification) or intervals (regression) on leave-one-out scores, or on K folds
    #[arg(long, value_name = "K", num_args = 0..=1, require_equals = true, default_missing_value = "loo", value_parser = probability)]
    pub(crate) probability: Option<Probability>,
    /// Whether the predicted class is the most probable one (agree), or probabilities estimate frequencies whatever is
    /// predicted (free) [default: auto: free with class weights, or if clearly better on left-out scores]
    #[arg(long, value_name = "RULE", value_parser = probability_rule, requires = "probability")]
    pub(crate) probability_rule: Option<ProbabilityRule>,
    /// Two classes: choose the score above which the second label is predicted, on left-out scores: max-f1, recall=R,
    /// or cost=FP:A,FN:B
    #[arg(long, value_name = "RULE", value_parser = threshold)]
    pub(crate) threshold: Option<ThresholdRule>,
}

/// `--scale none|minmax|standard`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale(pub(crate) Option<ScaleKind>);

/// The solver and its limits.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Solver")]
pub(crate) struct SolverOptions {
    /// auto, decomposition, irwls (any loss), ridge (square loss), linear, nystrom, smo or svmtorch
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = solver)]
    pub(crate) solver: SolverName,
    /// Stop at this KKT violation [default: 1e-3, unless --gap is given]
    #[arg(long, value_name = "TOL", value_parser = value::positive, allow_negative_numbers = true)]
    tol: Option<f64>,
    /// Stop at this relative duality gap
    #[arg(long, value_name = "REL", value_parser = value::positive, allow_negative_numbers = true)]
    gap: Option<f64>,
    /// Stop after this many seconds of training, with the best model so far and exit code 3
    #[arg(long, value_name = "S", value_parser = value::non_negative, allow_negative_numbers = true)]
    max_seconds: Option<f64>,
    /// Stop after this many iterations, with the best model so far and exit code 3
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_iter: Option<u64>,
    /// Working memory besides the data, as in 500MB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = value::bytes, allow_negative_numbers = true)]
    memory: u64,
    /// Non-convex loss: also follow a path through N softer losses, and keep the better result
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) anneal: usize,
    /// Drop support vectors whose share of the model is below this, and report how much scores may change
    #[arg(long, value_name = "SHARE", value_parser = value::non_negative, allow_negative_numbers = true)]
    pub(crate) compact: Option<f64>,
    /// Where to compute: cpu, cuda or cuda:N, or auto; see 'margrave devices'
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = super::device::name)]
    pub(crate) device: DeviceName,
}

/// Machines on few centres.
#[derive(Debug, Args)]
#[command(next_help_heading = "Many rows")]
pub(crate) struct ApproxOptions {
    /// Train on M centres instead of all rows, and prove how far the exact machine is; auto: as many as --gap needs
    #[arg(long, value_name = "M|auto", value_parser = approx, allow_negative_numbers = true)]
    pub(crate) approx: Option<Approx>,
    /// How that is proven: exact, sampled (with probability 1 − 1e-9), or own: not at all [default: by size]
    #[arg(long, value_name = "HOW", value_parser = certify)]
    pub(crate) certify: Option<TailCheck>,
    /// Go on from the machine on centres to the exact one
    #[arg(long)]
    pub(crate) polish: bool,
    /// After training, the best machine on at most B vectors, for fast predictions
    #[arg(long, value_name = "B", value_parser = budget_vectors, allow_negative_numbers = true)]
    pub(crate) budget_vectors: Option<usize>,
}

impl ApproxOptions {
    /// The builder with these options.
    pub(crate) fn choose(&self, svm: Svm) -> Svm {
        svm.approx(self.approx)
            .certify(self.certify.unwrap_or_default())
            .polish(self.polish)
            .budget_vectors(self.budget_vectors)
    }
}

fn approx(text: &str) -> Result<Approx, String> {
    text.parse().map_err(allowed)
}

fn certify(text: &str) -> Result<TailCheck, String> {
    text.parse().map_err(allowed)
}

fn budget_vectors(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number of vectors ≥ 1".to_owned()),
        Ok(count) => Ok(count),
    }
}

impl SolverOptions {
    /// When to stop, if that is given.
    pub(crate) fn stop(&self) -> Option<Stop> {
        match (self.tol, self.gap) {
            (None, None) => None,
            (tol, gap) => Some(Stop { tol, gap }),
        }
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget { seconds: self.max_seconds, iterations: self.max_iter, memory: self.memory }
    }
}

impl ModelOptions {
    /// Fails for options that need another one.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.svdd && self.task != Some(Task::Novelty) {
            return Err(Failure::new("--svdd is for novelty detection: add --task novelty"));
        }
        if self.probability_rule.is_some() && matches!(self.task, Some(Task::Regress | Task::Novelty)) {
            return Err(Failure::new("--probability-rule is for classes: leave it out"));
        }
        Ok(())
    }
}

fn task(text: &str) -> Result<Task, String> {
    match text {
        "classify" => Ok(Task::Classify),
        "regress" => Ok(Task::Regress),
        "novelty" => Ok(Task::Novelty),
        _ => Err("expected classify, regress or novelty".to_owned()),
    }
}

fn probability(text: &str) -> Result<Probability, String> {
    match text.parse() {
        _ if text == "loo" => Ok(Probability::LeaveOneOut),
        Ok(k) if k >= 2 => Ok(Probability::Folds(k)),
        _ => Err("expected a number of folds ≥ 2, or nothing for leave-one-out".to_owned()),
    }
}

fn probability_rule(text: &str) -> Result<ProbabilityRule, String> {
    text.parse().map_err(|_| "expected auto, agree or free".to_owned())
}

fn threshold(text: &str) -> Result<ThresholdRule, String> {
    text.parse().map_err(allowed)
}

fn penalty(text: &str) -> Result<Penalty, String> {
    text.parse().map_err(allowed)
}

fn multiclass(text: &str) -> Result<Scheme, String> {
    match text {
        "ovo" => Ok(Scheme::OneVsOne),
        "ovr" => Ok(Scheme::OneVsRest),
        "crammer-singer" => Ok(Scheme::CrammerSinger),
        _ => Err("expected ovo, ovr or crammer-singer".to_owned()),
    }
}

/// What an engine error says is allowed, without what clap already prints.
fn allowed(error: margrave::Error) -> String {
    match error {
        margrave::Error::Option { allowed, .. } => allowed,
        other => other.to_string(),
    }
}

fn loss(text: &str) -> Result<LossSpec, String> {
    text.parse().map_err(allowed)
}

fn solver(text: &str) -> Result<SolverName, String> {
    text.parse().map_err(allowed)
}

fn scale(text: &str) -> Result<Scale, String> {
    match text {
        "none" => Ok(Scale(None)),
        "minmax" => Ok(Scale(Some(ScaleKind::MinMax))),
        "standard" => Ok(Scale(Some(ScaleKind::Standard))),
        _ => Err("expected none, minmax or standard".to_owned()),
    }
}

fn class_weight(text: &str) -> Result<ClassWeight, String> {
    if text == "balanced" {
        return Ok(ClassWeight::Balanced);
    }
    let pair = |part: &str| {
        // The label may itself hold an equals sign; the weight may not.
        let (label, weight) = part.rsplit_once('=').ok_or("expected balanced, or LABEL=W,…".to_owned())?;
        let label = match label.parse::<f64>() {
            Ok(v) if v.is_finite() => Label::Number(v),
            _ => Label::Text(label.to_owned()),
        };
        match value::number(weight) {
            Ok(w) if w < 0.0 => {
                Err(format!("the weight of class {label} is negative ({weight}): weights are factors of C, ≥ 0"))
            }
            _ => Ok((label, value::non_negative(weight)?)),
        }
    };
    text.split(',').map(pair).collect::<Result<Vec<_>, String>>().map(ClassWeight::Given)
}

/// Whether each parser of this file accepts a text.
pub(crate) fn accepts(text: &str) -> [bool; 14] {
    [
        task(text).is_ok(),
        probability(text).is_ok(),
        penalty(text).is_ok(),
        multiclass(text).is_ok(),
        loss(text).is_ok(),
        solver(text).is_ok(),
        super::device::name(text).is_ok(),
        scale(text).is_ok(),
        class_weight(text).is_ok(),
        probability_rule(text).is_ok(),
        threshold(text).is_ok(),
        approx(text).is_ok(),
        certify(text).is_ok(),
        budget_vectors(text).is_ok(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_weights_of_numbers_and_words() {
        assert_eq!(class_weight("balanced"), Ok(ClassWeight::Balanced));
        assert_eq!(
            class_weight("-1=2,yes=0.5"),
            Ok(ClassWeight::Given(vec![(Label::Number(-1.0), 2.0), (Label::Text("yes".into()), 0.5)]))
        );
        for bad in ["", "1", "1=", "1=-2", "1=x", "1=2,,"] {
            assert!(class_weight(bad).is_err(), "{bad}");
        }
    }
}
