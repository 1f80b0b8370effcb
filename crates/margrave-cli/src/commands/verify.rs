//! `margrave verify`: the certificate again, from the model and the data alone.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use margrave::certificate::Certificate;
use margrave::io::model::{AnyModel, LibsvmKind};
use margrave::problem::Formulation;
use margrave::train::{Asked, Met};
use margrave::{Budget, LibsvmTraining};
use serde_json::{Map, Value, json};

use super::train::certificate_keys;
use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::options::data::DataOptions;
use crate::options::value;
use crate::signal;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave verify heart.model heart.svm               is it within a relative gap of 1e-3?
  margrave verify heart.model heart.svm --gap 1e-6
  margrave verify heart.model heart.svm -C 10         as an answer to the problem with C = 10
  margrave verify svm-train.model heart.svm -C 1      a model of LIBSVM
  margrave verify nu-svc.model heart.svm --nu 0.3     its ν-models: without --nu the coefficients tell it

Exit codes: 0 within the gap, 1 not, 2 the data is not what the model was trained on.";

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Verify {
    /// Model file, ours or LIBSVM's
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    /// Largest relative duality gap to accept; for a loss that is not convex, largest stationarity residual
    #[arg(long, value_name = "REL", default_value = "1e-3", value_parser = value::non_negative, allow_negative_numbers = true, help_heading = "Proof")]
    gap: f64,
    /// C, in place of the one in the model; LIBSVM models store none
    #[arg(short = 'C', long = "cost", value_name = "C", value_parser = value::positive, allow_negative_numbers = true, help_heading = "Proof")]
    cost: Option<f64>,
    /// ε of the tube, for LIBSVM models, which do not store it [default: 0.1]
    #[arg(long, value_name = "E", value_parser = value::non_negative, allow_negative_numbers = true, help_heading = "Proof")]
    epsilon: Option<f64>,
    /// ν, for LIBSVM models, which do not store it [default: recovered from the coefficients]
    #[arg(long, value_name = "NU", value_parser = value::positive, allow_negative_numbers = true, help_heading = "Proof")]
    nu: Option<f64>,
}

impl Verify {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        let model = margrave::io::model::load_any(&self.model)?;
        let schema = match &model {
            AnyModel::Native(model) => margrave::io::model::schema(model)?,
            AnyModel::Libsvm(_) => None,
        };
        let threads = common.threads();
        let loaded = self.data.load_like(schema.as_ref(), threads.count())?;
        let load_seconds = begun.elapsed().as_secs_f64();
        let control = signal::start(&Budget::default(), threads)?;
        let (certificates, certified) = match &model {
            AnyModel::Native(model) => {
                if self.epsilon.is_some() {
                    return Err(Failure::new("--epsilon is for LIBSVM models: this one stores its loss"));
                }
                if self.nu.is_some() {
                    return Err(Failure::new("--nu is for LIBSVM models: this one stores its ν, if it has one"));
                }
                (margrave::verify(model, &loaded.data, self.cost, &control)?, None)
            }
            AnyModel::Libsvm(model) => {
                if self.cost.is_none() && matches!(model.kind, LibsvmKind::CSvc | LibsvmKind::EpsilonSvr) {
                    terminal.note("LIBSVM models do not store C: taken to be 1; say so with -C");
                }
                let said = LibsvmTraining { cost: self.cost, epsilon: self.epsilon, nu: self.nu };
                let proof = margrave::verify_libsvm(model, &loaded.data, said, &control)?;
                (proof.certificates, Some((model.kind, proof.formulation)))
            }
        };

        let (holds, mut rows, mut object) = match certificates.as_slice() {
            [one] => self.one(one),
            several => self.several(several),
        };
        self.parameters(certified, &mut rows, &mut object);
        let verdict = if holds {
            let convex = certificates.iter().all(|c| c.optimality().is_some());
            let definite = certificates.iter().filter_map(Certificate::optimality).all(|o| o.definite());
            terminal.paint(
                Style::Good,
                match (convex, definite) {
                    (true, true) => "proven",
                    (true, false) => {
                        "proven if the kernel matrix is positive semi-definite ('margrave check kernel' tells)"
                    }
                    (false, _) => "stationary",
                },
            )
        } else {
            terminal.paint(Style::Bad, "not within the gap asked")
        };
        terminal.say(&format!("{verdict}\n{}", format::table(terminal, &rows)))?;
        object.insert("holds".into(), json!(holds));
        object.insert(
            "seconds".into(),
            json!({ "load": load_seconds, "verify": control.seconds(), "total": begun.elapsed().as_secs_f64() }),
        );
        terminal.object(&object)?;
        Ok(if holds { Exit::Done } else { Exit::No })
    }

    /// The ν and C a LIBSVM model was certified with, and where they are from.
    fn parameters(
        &self,
        certified: Option<(LibsvmKind, Formulation)>,
        rows: &mut Vec<(&'static str, String)>,
        object: &mut Map<String, Value>,
    ) {
        let told = |given: bool| if given { "as given" } else { "from the coefficients" };
        let (nu, c) = match certified {
            Some((LibsvmKind::NuSvr, Formulation::Nu { nu, c })) => (nu, Some(c)),
            Some((_, Formulation::Nu { nu, .. } | Formulation::OneClass { nu })) => (nu, None),
            _ => return,
        };
        rows.push(("ν", format!("{}, {}", format::number(nu, 6), told(self.nu.is_some()))));
        object.insert("nu".into(), json!(nu));
        if let Some(c) = c {
            rows.push(("C", format!("{}, {}", format::number(c, 6), told(self.cost.is_some()))));
            object.insert("C".into(), json!(c));
        }
    }

    /// Whether the gap asked for is met, by the rule of trainings: a gap within its own rounding counts.
    fn is_met(&self, certificate: &Certificate) -> bool {
        Asked { tol: None, gap: Some(self.gap) }.met(certificate) != Met::No
    }

    /// Whether one machine is within the gap, and what to say of it.
    fn one(&self, certificate: &Certificate) -> (bool, Vec<(&'static str, String)>, Map<String, Value>) {
        let mut object = Map::new();
        certificate_keys(certificate, &mut object);
        match certificate {
            Certificate::Optimality(o) => {
                object.insert("feasible".into(), json!(o.feasible()));
                object.insert("infeasibility".into(), json!(o.infeasibility()));
                object.insert("worst".into(), json!(o.worst()));
                let worst: Vec<String> = o
                    .worst()
                    .iter()
                    .take(3)
                    .map(|w| format!("row {} ({} %)", w.row, format::number(100.0 * w.share, 2)))
                    .collect();
                let feasible = if o.feasible() {
                    "yes".to_owned()
                } else {
                    format!("no, by {}: repaired first", format::number(o.infeasibility(), 2))
                };
                let rows = vec![
                    (
                        "relative gap",
                        format!("{}, asked for {}", format::number(o.relative_gap(), 3), format::number(self.gap, 3)),
                    ),
                    ("primal", format::number(o.primal(), 10)),
                    ("dual", format::number(o.dual(), 10)),
                    ("rounding", format!("{} of the gap", format::number(o.rounding(), 2))),
                    ("violation", format::number(o.violation(), 3)),
                    ("dual feasible", feasible),
                    ("worst rows", if worst.is_empty() { "none".into() } else { worst.join(", ") }),
                ];
                (self.is_met(certificate), rows, object)
            }
            Certificate::Stationarity(s) => {
                let rows = vec![
                    (
                        "stationarity",
                        format!("{}, asked for {}", format::number(s.stationarity(), 3), format::number(self.gap, 3)),
                    ),
                    ("objective", format::number(s.objective(), 10)),
                    ("loss", "not convex: no bound on the optimum".to_owned()),
                ];
                (s.stationarity() <= self.gap, rows, object)
            }
            Certificate::Unknown => (false, vec![("relative gap", "not checked".to_owned())], object),
        }
    }

    /// The same for several machines, each of which must be within the gap.
    fn several(&self, certificates: &[Certificate]) -> (bool, Vec<(&'static str, String)>, Map<String, Value>) {
        let each: Vec<_> = certificates.iter().map(|certificate| self.one(certificate)).collect();
        let within = each.iter().filter(|(holds, _, _)| *holds).count();
        let sum = |of: fn(&Certificate) -> Option<f64>| certificates.iter().map(of).sum::<Option<f64>>();
        let measure = |c: &Certificate| c.relative_gap().unwrap_or(c.violation());
        let worst = certificates.iter().map(measure).fold(0.0, f64::max);
        let violation = certificates.iter().map(Certificate::violation).fold(0.0, f64::max);
        let mut object = Map::new();
        let mut rows = vec![
            ("machines", format!("{within} of {} within the gap", certificates.len())),
            ("worst gap", format!("{}, asked for {}", format::number(worst, 3), format::number(self.gap, 3))),
            ("violation", format::number(violation, 3)),
        ];
        object.insert("violation".into(), json!(violation));
        let primal: f64 = certificates.iter().map(Certificate::primal).sum();
        if let (Some(dual), Some(gap)) = (sum(Certificate::dual), sum(Certificate::gap)) {
            rows.push(("primal, sum", format::number(primal, 10)));
            rows.push(("dual, sum", format::number(dual, 10)));
            object.insert("primal".into(), json!(primal));
            object.insert("dual".into(), json!(dual));
            object.insert("gap".into(), json!(gap));
            object.insert("rounding".into(), json!(sum(Certificate::rounding)));
            object.insert("relative_gap".into(), json!(worst));
        } else {
            object.insert("objective".into(), json!(primal));
            object.insert("stationarity".into(), json!(violation));
        }
        let mut terms: Vec<_> =
            certificates.iter().filter_map(Certificate::optimality).flat_map(|o| o.worst()).collect();
        terms.sort_by(|a, b| b.gap.total_cmp(&a.gap));
        object.insert("worst".into(), json!(terms.iter().take(10).collect::<Vec<_>>()));
        let feasible = certificates.iter().filter_map(Certificate::optimality).all(|o| o.feasible());
        object.insert("feasible".into(), json!(feasible));
        let machines: Vec<Value> = each.into_iter().map(|(_, _, object)| Value::Object(object)).collect();
        object.insert("machines".into(), json!(machines));
        (within == certificates.len(), rows, object)
    }
}
