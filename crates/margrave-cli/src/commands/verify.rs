//! `margrave verify`: the certificate, computed from the model and the data alone.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use margrave::engine::certificate::Certificate;
use margrave::engine::problem::Formulation;
use margrave::engine::train::{Asked, Met, verify_given};
use margrave::io::model::{AnyModel, CentresModel, LibsvmKind};
use margrave::{Budget, LibsvmTraining, TailCheck};
use margrave_cuda::DeviceName;
use serde_json::{Map, Value, json};

use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::models;
use crate::options::data::DataOptions;
use crate::options::device;
use crate::options::table::UnknownOption;
use crate::options::value;
use crate::present::{Rows, json, prose};
use crate::signal;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave verify heart.model heart.svm               is it within a relative gap of 1e-3?
  margrave verify heart.model heart.svm --gap 1e-6
  margrave verify heart.model heart.svm -C 10         as a solution for C = 10
  margrave verify svm-train.model heart.svm -C 1      a LIBSVM model; its file has no C
  margrave verify nu-svc.model heart.svm --nu 0.3     without --nu, ν is recovered
  margrave verify falkon.npz heart.svm -C 1           any function in the span of given centres

Exit codes: 0 within the gap, 1 not, 2 the model was not trained on this data.";

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Verify {
    /// Model file of Margrave or LIBSVM, or an NPZ file with centres and coefficients
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    unknown: UnknownOption,
    /// Largest relative duality gap to accept, or largest stationarity residual for a non-convex loss
    #[arg(long, value_name = "REL", default_value = "1e-3", value_parser = value::non_negative, allow_negative_numbers = true, help_heading = "Certificate")]
    gap: f64,
    /// C, instead of the one in the model; LIBSVM models do not store it
    #[arg(short = 'C', long = "cost", value_name = "C", value_parser = value::positive, allow_negative_numbers = true, help_heading = "Certificate")]
    cost: Option<f64>,
    /// ε of the tube, for LIBSVM models, which do not store it [default: 0.1]
    #[arg(long, value_name = "E", value_parser = value::non_negative, allow_negative_numbers = true, help_heading = "Certificate")]
    epsilon: Option<f64>,
    /// ν, for LIBSVM models, which do not store it [default: recovered from the coefficients]
    #[arg(long, value_name = "NU", value_parser = value::positive, allow_negative_numbers = true, help_heading = "Certificate")]
    nu: Option<f64>,
    /// Where to compute: cpu, cuda or cuda:N, or auto; see 'margrave devices'
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = device::name, help_heading = "Certificate")]
    device: DeviceName,
}

impl Verify {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let begun = Instant::now();
        if let Some(given) = margrave::io::model::load_centres(&self.model)? {
            return self.run_given(&given, begun, common, terminal);
        }
        let model = margrave::io::model::load_any(&self.model)?;
        let schema = match &model {
            AnyModel::Native(model) => margrave::io::model::schema(model)?,
            AnyModel::Libsvm(_) => None,
        };
        let threads = common.threads();
        let loaded = self.data.load_new(schema.as_ref(), &self.unknown, threads.count())?;
        let load_seconds = begun.elapsed().as_secs_f64();
        let chosen = device::choose(self.device, loaded.data.len(), terminal)?;
        let control = signal::start(&Budget::default(), threads)?.with_device(chosen.device);
        let (certificates, certified) = match &model {
            AnyModel::Native(model) if models::is_liblinear(model) => {
                return Err(Failure::with_hint(
                    format!(
                        "{} is a LIBLINEAR model: its file has weights and no dual point to certify with",
                        self.model.display()
                    ),
                    "train on the same data with 'margrave train --kernel linear', which certifies its result",
                ));
            }
            AnyModel::Native(model) => {
                if self.epsilon.is_some() {
                    return Err(Failure::new("--epsilon is for LIBSVM models: this one stores its loss"));
                }
                if self.nu.is_some() {
                    return Err(Failure::new("--nu is for LIBSVM models: this one stores its ν, if any"));
                }
                (margrave::verify(model, &loaded.data, self.cost, &control)?, None)
            }
            AnyModel::Libsvm(model) => {
                if self.cost.is_none() && matches!(model.kind, LibsvmKind::CSvc | LibsvmKind::EpsilonSvr) {
                    terminal.note("LIBSVM models do not store C: assuming 1; set it with -C");
                }
                let training = LibsvmTraining { cost: self.cost, epsilon: self.epsilon, nu: self.nu };
                let proof = margrave::verify_libsvm(model, &loaded.data, training, &control)?;
                (proof.certificates, Some((model.kind, proof.formulation)))
            }
        };
        device::report(&chosen, terminal);
        self.say(&certificates, certified, &loaded.left_out, begun, load_seconds, control.seconds(), terminal)
    }

    /// A function in the span of given centres.
    fn run_given(&self, given: &CentresModel, begun: Instant, common: &Common, terminal: &Terminal) -> Outcome {
        let Some(cost) = self.cost.or(given.cost) else {
            return Err(Failure::with_hint(
                format!("{} has no array C", self.model.display()),
                "give the C of ½‖f‖² + C·Σℓ with -C",
            ));
        };
        if self.nu.is_some() {
            return Err(Failure::new("--nu is for LIBSVM models: a model on given centres has a cost C"));
        }
        let loss = match (self.epsilon, given.loss.epsilon()) {
            (None, _) => given.loss,
            (Some(epsilon), Some(_)) => given.loss.with_epsilon(epsilon),
            (Some(_), None) => {
                return Err(Failure::new(format!("--epsilon: the {} loss has no tube", given.loss.name())));
            }
        };
        let threads = common.threads();
        let loaded = self.data.load_new(None, &self.unknown, threads.count())?;
        let load_seconds = begun.elapsed().as_secs_f64();
        let chosen = device::choose(self.device, loaded.data.len(), terminal)?;
        let control = signal::start(&Budget::default(), threads)?.with_device(chosen.device);
        let certificate = verify_given(&given.machine, &loaded.data, &loss, cost, TailCheck::Auto, &control)?;
        device::report(&chosen, terminal);
        self.say(&[certificate], None, &loaded.left_out, begun, load_seconds, control.seconds(), terminal)
    }

    /// Prints what the certificates prove.
    fn say(
        &self,
        certificates: &[Certificate],
        certified: Option<(LibsvmKind, Formulation)>,
        left_out: &[usize],
        begun: Instant,
        load_seconds: f64,
        verify_seconds: f64,
        terminal: &Terminal,
    ) -> Outcome {
        let within = certificates.iter().filter(|certificate| self.is_met(certificate)).count();
        let holds = within == certificates.len();
        let mut rows = prose::certificates(certificates, within, self.gap, left_out);
        let mut object = json::proofs(certificates);
        self.parameters(certified, &mut rows, &mut object);
        let (style, verdict) = match holds {
            true => (Style::Good, prose::proven(certificates, self.gap)),
            false => (Style::Bad, "not within the requested gap"),
        };
        terminal.say(&terminal.summary(style, verdict, &rows))?;
        object.insert("holds".into(), json!(holds));
        object.insert(
            "seconds".into(),
            json!({ "load": load_seconds, "verify": verify_seconds, "total": begun.elapsed().as_secs_f64() }),
        );
        terminal.object(&object)?;
        Ok(if holds { Exit::Done } else { Exit::No })
    }

    /// The ν and C a LIBSVM model was certified with, and their source.
    fn parameters(
        &self,
        certified: Option<(LibsvmKind, Formulation)>,
        rows: &mut Rows,
        object: &mut Map<String, Value>,
    ) {
        let source = |given: bool| if given { "given" } else { "from the coefficients" };
        let (nu, c) = match certified {
            Some((LibsvmKind::NuSvr, Formulation::Nu { nu, c })) => (nu, Some(c)),
            Some((_, Formulation::Nu { nu, .. } | Formulation::OneClass { nu })) => (nu, None),
            _ => return,
        };
        rows.push(("ν", format!("{}, {}", format::number(nu, 6), source(self.nu.is_some()))));
        object.insert("nu".into(), json!(nu));
        if let Some(c) = c {
            rows.push(("C", format!("{}, {}", format::number(c, 6), source(self.cost.is_some()))));
            object.insert("C".into(), json!(c));
        }
    }

    /// Whether a certificate is within the gap, by the rule of trainings: a gap within its own rounding counts.
    fn is_met(&self, certificate: &Certificate) -> bool {
        match certificate {
            Certificate::Optimality(_) => {
                Asked { tol: None, gap: Some(self.gap), own: None }.met(certificate) != Met::No
            }
            Certificate::Stationarity(s) => s.stationarity() <= self.gap,
            Certificate::Unknown => false,
        }
    }
}
