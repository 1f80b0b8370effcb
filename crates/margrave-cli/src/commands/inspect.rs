//! `margrave inspect`: what a model file holds.

use std::path::PathBuf;

use clap::Args;
use margrave::Kernel;
use margrave::data::{Label, ScaleKind};
use margrave::model::{Calibration, Expansion, Scheme};
use margrave::problem::Task;
use serde_json::json;

use super::train::machine_name;
use crate::failure::{Exit, Outcome};
use crate::format;
use crate::models;
use crate::options::kernel::describe;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave inspect heart.model
  margrave inspect heart.model --json";

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inspect {
    /// Model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
}

impl Inspect {
    pub(crate) fn run(self, terminal: &Terminal) -> Outcome {
        let model = models::load(&self.model, None)?;
        let schema = margrave::io::model::schema(&model)?;
        let f = &model.expansion;
        let labels: Vec<String> = model.labels.iter().map(Label::to_string).collect();
        let scaling = match model.scaling.as_ref().map(|s| s.kind) {
            None => "none",
            Some(ScaleKind::MinMax) => "minmax",
            Some(ScaleKind::Standard) => "standard",
        };
        let mut rows = vec![
            ("machine", machine_name(model.task, &model.formulation, model.loss.map(|l| l.to_string()))),
            ("kernel", describe(f.kernel())),
            (
                "trained on",
                format!("{} rows, {} features", format::count(model.n as u64), format::count(f.width() as u64)),
            ),
        ];
        if model.task == Task::Classify {
            rows.push(("labels", labels.join(", ")));
        }
        if !model.class_weights.is_empty() {
            let weights: Vec<String> = labels
                .iter()
                .zip(&model.class_weights)
                .map(|(l, w)| format!("{l}: {}", format::number(*w, 4)))
                .collect();
            rows.push(("class weights", weights.join(", ")));
        }
        rows.push(("scaling", scaling.to_owned()));
        if !f.is_weights() {
            rows.push((
                "centres",
                format!("{}{}", format::count(f.len() as u64), if f.centres().is_sparse() { ", sparse" } else { "" }),
            ));
        }
        if model.scheme == Scheme::Outputs {
            rows.push(("targets", format!("{}: {}", f.outputs(), models::output_names(&model).join(", "))));
        }
        if model.scheme != Scheme::One {
            let way = match model.scheme {
                Scheme::OneVsOne => "one a pair of classes",
                Scheme::CrammerSinger => "for all classes at once",
                Scheme::One | Scheme::OneVsRest => "one a class",
                Scheme::Outputs => "one a target",
            };
            rows.push(("machines", format!("{}, {way}", model.machines.len())));
        } else if model.free_bias || model.intercept_scaling.is_some() {
            rows.push(("bias", format::number(f.bias()[0], 6)));
        } else {
            rows.push(("bias", "none".into()));
        }
        if let Some(names) = schema.as_ref().and_then(|s| s.feature_names()) {
            let shown = names.iter().take(6).cloned().collect::<Vec<_>>().join(", ");
            rows.push(("features", if names.len() > 6 { format!("{shown}, …") } else { shown }));
        }
        let names = schema.as_ref().and_then(|s| s.feature_names());
        let largest = largest_weights(f);
        if !largest.is_empty() {
            let named = |column: usize| names.as_ref().and_then(|n| n.get(column).cloned());
            let shown: Vec<String> = largest
                .iter()
                .map(|(column, w)| {
                    let name = named(*column).unwrap_or_else(|| format!("feature {column}"));
                    format!("{name} {}", format::number(*w, 4))
                })
                .collect();
            rows.push(("largest weights", shown.join(", ")));
        }
        let totals = model.totals();
        rows.push((
            "solver",
            match totals.known {
                true => format!("{}, {}, {} iterations", model.solver, totals.status, format::count(totals.iterations)),
                false => format!("{}, not checked", model.solver),
            },
        ));
        rows.push((
            "support vectors",
            format!(
                "{}, {} at their bound",
                format::count(totals.support_vectors as u64),
                format::count(totals.bounded as u64)
            ),
        ));
        let known = model.machines.iter().all(|record| record.certificate.is_known());
        match totals.relative_gap {
            _ if !known => {
                rows.push(("relative gap", "not known: 'margrave verify' proves it on the training data".into()))
            }
            Some(gap) => {
                rows.push(("relative gap", format::number(gap, 3)));
                rows.push(("violation", format::number(totals.violation, 3)));
            }
            None => rows.push(("stationarity", format::number(totals.violation, 3))),
        }
        match &model.calibration {
            Some(Calibration::Sigmoid { .. }) => rows.push(("probabilities", "yes".into())),
            Some(Calibration::Residuals { sigma, .. }) => {
                rows.push(("residuals", format!("{} on average, left out", format::number(*sigma, 4))));
            }
            Some(Calibration::ResidualsByOutput { sigma, .. }) => {
                let each: Vec<String> = sigma.iter().map(|s| format::number(*s, 4)).collect();
                rows.push(("residuals", format!("{} on average, left out", each.join(", "))));
            }
            None => {}
        }
        if let Some(tube) = model.machines.first().and_then(|record| record.tube) {
            rows.push(("tube", format!("±{}", format::number(tube, 5))));
        }
        terminal.say(&format!(
            "{}\n{}",
            terminal.paint(Style::Strong, &self.model.display().to_string()),
            format::table(terminal, &rows)
        ))?;
        terminal.object(&json!({
            "task": model.task,
            "formulation": model.formulation,
            "kernel": f.kernel(),
            "loss": model.loss.map(|l| l.to_string()),
            "n": model.n,
            "d": f.width(),
            "classes": model.labels,
            "multiclass": match model.scheme {
                Scheme::One | Scheme::Outputs => None,
                scheme => Some(scheme.name()),
            },
            "targets": (model.scheme == Scheme::Outputs).then(|| models::output_names(&model)),
            "class_weights": model.class_weights,
            "scaling": model.scaling.as_ref().map(|s| s.kind),
            "centres": if f.is_weights() { 0 } else { f.len() },
            "largest_weights": largest
                .iter()
                .map(|(column, w)| {
                    json!({
                        "column": column,
                        "name": names.as_ref().and_then(|n| n.get(*column)),
                        "weight": w,
                    })
                })
                .collect::<Vec<_>>(),
            "outputs": f.outputs(),
            "bias": f.bias(),
            "free_bias": model.free_bias,
            "penalty": model.penalty,
            "intercept_scaling": model.intercept_scaling,
            "features": schema.as_ref().and_then(|s| s.feature_names()),
            "solver": model.solver,
            "calibration": model.calibration,
            "machines": model.machines,
        }))?;
        Ok(Exit::Done)
    }
}

/// How many weights are shown.
const SHOWN: usize = 10;

/// The features of a linear machine with one output that move its score most, and their weights. The features are those the
/// kernel meets: scaled, where the model scales.
fn largest_weights(f: &Expansion) -> Vec<(usize, f64)> {
    let Some(weights) = f.weights().filter(|_| *f.kernel() == Kernel::Linear && f.outputs() == 1) else {
        return Vec::new();
    };
    let mut order: Vec<usize> = (0..weights.len()).filter(|&j| weights[j] != 0.0).collect();
    order.sort_by(|a, b| weights[*b].abs().total_cmp(&weights[*a].abs()).then(a.cmp(b)));
    order.truncate(SHOWN);
    order.into_iter().map(|j| (j, weights[j])).collect()
}
