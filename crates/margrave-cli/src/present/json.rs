//! Results as JSON. Scripts rely on the keys.

use margrave::engine::certificate::{Approximation, Certificate, TAIL_PROBABILITY, TailCheck};
use margrave::engine::metrics::Metric;
use margrave::engine::model::Scheme;
use margrave::engine::problem::Task;
use margrave::io::Schema;
use margrave::tune::{Cell, Params, Tuned};
use margrave::{Fit, Model};
use serde_json::{Map, Value, json};

use super::FitContext;
use super::prose::{caution, largest_weights};
use crate::models;

/// Adds the keys of a `json!` object.
fn extend(into: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        into.extend(more);
    }
}

/// A certificate, as part of a fit or a proof.
pub(crate) fn certificate(certificate: &Certificate) -> Map<String, Value> {
    let mut object = Map::new();
    let keys = match certificate {
        Certificate::Optimality(o) => json!({
            "primal": o.primal(),
            "dual": o.dual(),
            "gap": o.gap(),
            "rounding": o.rounding(),
            "relative_gap": o.relative_gap(),
            "violation": o.violation(),
            "kernel_is_psd": if o.definite() { json!(true) } else { Value::Null },
        }),
        Certificate::Stationarity(s) => json!({
            "objective": s.objective(),
            "stationarity": s.stationarity(),
            "start_objective": s.start_objective(),
        }),
        Certificate::Unknown => json!({
            "primal": null, "dual": null, "gap": null, "rounding": null, "relative_gap": null, "violation": null,
        }),
    };
    extend(&mut object, keys);
    if let Some(a) = certificate.approximation() {
        object.insert("approximation".into(), approximation(a));
    }
    object
}

/// How a machine on few centres compares with the exact one; infinite bounds are null.
fn approximation(a: &Approximation) -> Value {
    let mut object = json!(a);
    if !a.bias_distance.is_finite() || a.bias_distance >= f64::MAX {
        object["bias_distance"] = Value::Null;
    }
    if a.check == TailCheck::Own {
        object["kernel_gap"] = Value::Null;
    }
    if a.check == TailCheck::Sampled {
        object["probability"] = json!(1.0 - TAIL_PROBABILITY);
    }
    object
}

/// A certificate on its own: also whether the dual point was feasible, and the rows with the largest shares of the gap.
pub(crate) fn proof(of: &Certificate) -> Map<String, Value> {
    let mut object = certificate(of);
    if let Certificate::Optimality(o) = of {
        let more = json!({ "feasible": o.feasible(), "infeasibility": o.infeasibility(), "worst": o.worst() });
        extend(&mut object, more);
    }
    object
}

/// The proof of a model with several machines: sums and the worst, and `machines` with each one's own.
pub(crate) fn proofs(certificates: &[Certificate]) -> Map<String, Value> {
    if let [one] = certificates {
        return proof(one);
    }
    let sum = |of: fn(&Certificate) -> Option<f64>| certificates.iter().map(of).sum::<Option<f64>>();
    let primal: f64 = certificates.iter().map(Certificate::primal).sum();
    let violation = certificates.iter().map(Certificate::violation).fold(0.0, f64::max);
    let mut object = Map::new();
    let totals = match (sum(Certificate::dual), sum(Certificate::gap)) {
        (Some(dual), Some(gap)) => json!({
            "primal": primal,
            "dual": dual,
            "gap": gap,
            "rounding": sum(Certificate::rounding),
            "relative_gap": worst_gap(certificates),
        }),
        _ => json!({ "objective": primal, "stationarity": violation }),
    };
    extend(&mut object, totals);
    let optimal = || certificates.iter().filter_map(Certificate::optimality);
    let mut terms: Vec<_> = optimal().flat_map(|o| o.worst()).collect();
    terms.sort_by(|a, b| b.gap.total_cmp(&a.gap));
    terms.truncate(10);
    let more = json!({
        "violation": violation,
        "worst": terms,
        "feasible": optimal().all(|o| o.feasible()),
        "machines": certificates.iter().map(proof).collect::<Vec<_>>(),
    });
    extend(&mut object, more);
    object
}

/// The largest relative gap, or stationarity residual where a loss has no gap.
pub(crate) fn worst_gap(certificates: &[Certificate]) -> f64 {
    let measure = |c: &Certificate| c.relative_gap().unwrap_or(c.violation());
    certificates.iter().map(measure).fold(0.0, f64::max)
}

/// The certificate of a fit: that of its only machine, or the sums over several.
fn fit_certificate(fit: &Fit) -> Map<String, Value> {
    if let [one] = fit.records() {
        return certificate(&one.certificate);
    }
    let totals = fit.totals();
    let mut object = Map::new();
    let keys = match (totals.dual, totals.gap, totals.relative_gap) {
        (Some(dual), Some(gap), Some(relative)) => json!({
            "primal": totals.primal,
            "dual": dual,
            "gap": gap,
            "rounding": totals.rounding,
            "relative_gap": relative,
            "violation": totals.violation,
        }),
        _ if !totals.known => return certificate(&Certificate::Unknown),
        _ => json!({ "objective": totals.primal, "stationarity": totals.violation }),
    };
    extend(&mut object, keys);
    object
}

/// A training, as `train --json` prints it.
pub(crate) fn fit(fit: &Fit, context: &FitContext<'_>) -> Value {
    let (model, totals) = (fit.model(), fit.totals());
    let single = model.scheme == Scheme::One;
    let mut object = fit_certificate(fit);
    let more = json!({
        "task": model.task,
        "n": model.n,
        "d": model.expansion.width(),
        "format": context.format,
        "classes": if model.task == Task::Classify { json!(model.labels) } else { Value::Null },
        "kernel": model.expansion.kernel(),
        "formulation": model.formulation,
        "loss": model.loss.map(|l| l.to_string()),
        "solver": model.solver,
        "reason": fit.reason(),
        "device": fit.device(),
        "merged_rows": fit.merged(),
        "status": totals.status,
        "asked": fit.asked(),
        "iterations": totals.iterations,
        "kernel_entries": totals.kernel_entries,
        "seconds": { "load": context.load_seconds, "train": totals.seconds, "total": context.total_seconds },
        "peak_memory_bytes": context.peak_memory,
        "support_vectors": totals.support_vectors,
        "bounded": totals.bounded,
        "bias": if single { json!(model.expansion.bias()[0]) } else { json!(model.expansion.bias()) },
        "penalty": model.penalty,
        "intercept_scaling": model.intercept_scaling,
        "nonzero_weights": nonzero_weights(model),
        "tube": if single { fit.record().tube } else { None },
        "calibration": model.calibration,
        "probability_threshold": model.probability_threshold(),
        "threshold": model.threshold,
        "cautions": fit.cautions().iter().map(caution).collect::<Vec<_>>(),
        "multiclass": if single || model.scheme == Scheme::Outputs { Value::Null } else { json!(model.scheme.name()) },
        "train_error": Some(fit.train_error()).filter(|e| e.is_finite()),
        "model": context.model,
    });
    extend(&mut object, more);
    if let Some(compact) = fit.compacted() {
        let change = json!({ "dropped": compact.dropped, "norm": compact.norm, "score_change": compact.change });
        object.insert("compact".into(), change);
    }
    if model.scheme == Scheme::Outputs {
        object.insert("targets".into(), json!(models::output_names(model)));
    }
    if !single {
        let machines: Vec<Value> = (0..model.machines.len()).map(|at| machine(model, at)).collect();
        object.insert("machines".into(), json!(machines));
    }
    Value::Object(object)
}

/// One of the machines of a model that has several.
fn machine(model: &Model, at: usize) -> Value {
    let record = &model.machines[at];
    let mut object = certificate(&record.certificate);
    let labels = match model.scheme {
        Scheme::OneVsOne => margrave::engine::model::pairs(model.labels.len())
            .nth(at)
            .map_or(Value::Null, |(i, j)| json!([model.labels[i], model.labels[j]])),
        Scheme::CrammerSinger => json!(model.labels),
        Scheme::One | Scheme::OneVsRest => json!([model.labels[at]]),
        Scheme::Outputs => Value::Null,
    };
    match model.scheme {
        Scheme::Outputs => object.insert("target".into(), json!(models::output_names(model)[at])),
        _ => object.insert("classes".into(), labels),
    };
    let bias = match model.scheme {
        Scheme::CrammerSinger => json!(model.expansion.bias()),
        _ => json!(model.expansion.bias()[at]),
    };
    let more = json!({
        "status": record.status,
        "iterations": record.iterations,
        "kernel_entries": record.kernel_entries,
        "seconds": record.seconds,
        "support_vectors": record.support_vectors,
        "bounded": record.bounded,
        "bias": bias,
    });
    extend(&mut object, more);
    Value::Object(object)
}

/// Weights of a linear model that are not 0, over all its outputs.
pub(crate) fn nonzero_weights(model: &Model) -> Option<usize> {
    let f = &model.expansion;
    f.weights().filter(|_| f.is_weights()).map(|w| w.iter().filter(|w| **w != 0.0).count())
}

/// A model, as `inspect --json` prints it.
pub(crate) fn model(model: &Model, schema: Option<&Schema>) -> Value {
    let f = &model.expansion;
    let names = schema.and_then(Schema::feature_names);
    let weight = |(column, w): (usize, f64)| json!({ "column": column, "name": names.as_ref().and_then(|n| n.get(column)), "weight": w });
    json!({
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
        "targets": (model.scheme == Scheme::Outputs).then(|| models::output_names(model)),
        "class_weights": model.class_weights,
        "scaling": model.scaling.as_ref().map(|s| s.kind),
        "centres": if f.is_weights() { 0 } else { f.len() },
        "largest_weights": largest_weights(f).into_iter().map(weight).collect::<Vec<_>>(),
        "outputs": f.outputs(),
        "bias": f.bias(),
        "free_bias": model.free_bias,
        "penalty": model.penalty,
        "intercept_scaling": model.intercept_scaling,
        "features": names,
        "target": schema.and_then(|schema| schema.target.as_ref()?.name.as_ref()),
        "missing": schema.map(|schema| schema.missing.name()),
        "dropped": schema.map(|schema| schema.dropped.iter().map(|column| &column.name).collect::<Vec<_>>()),
        "solver": model.solver,
        "calibration": model.calibration,
        "probability_threshold": model.probability_threshold(),
        "threshold": model.threshold,
        "positive": if model.scheme == Scheme::One { model.labels.get(1) } else { None },
        "machines": model.machines,
    })
}

/// A combination of a grid.
fn params(params: &Params) -> Value {
    let mut object = Map::new();
    object.insert("kernel".into(), json!(params.kernel.name()));
    let numbers = [
        ("gamma", params.kernel.gamma()),
        ("C", params.c),
        ("lambda", params.lambda),
        ("epsilon", params.epsilon),
        ("nu", params.nu),
    ];
    for (name, value) in numbers {
        if let Some(v) = value {
            object.insert(name.into(), json!(v));
        }
    }
    if let Some(loss) = &params.loss {
        object.insert("loss".into(), json!(loss.to_string()));
    }
    Value::Object(object)
}

/// A cell of a grid.
fn cell(cell: &Cell) -> Value {
    json!({
        "params": params(&cell.params),
        "score": cell.score(),
        "std": cell.deviation(),
        "seconds": cell.seconds,
        "folds": cell.folds,
        "dropped": cell.dropped,
    })
}

/// A search over a grid, as `tune --json` prints it, without the model trained from it.
pub(crate) fn tuned(tuned: &Tuned, best: &Cell, metric: Metric, folds: usize) -> Map<String, Value> {
    let mut object = Map::new();
    let keys = json!({
        "cells": tuned.cells.iter().map(cell).collect::<Vec<_>>(),
        "best": cell(best),
        "scoring": metric.score_name(),
        "status": tuned.status,
        "folds": folds,
        "dropped": tuned.cells.iter().filter(|cell| cell.dropped).count(),
    });
    extend(&mut object, keys);
    object
}
