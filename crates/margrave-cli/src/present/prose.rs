//! Results as words: lines of a name and a value, and short phrases.

use margrave::engine::certificate::{Certificate, TailCheck};
use margrave::engine::data::{Label, ScaleKind};
use margrave::engine::metrics::Metric;
use margrave::engine::model::{Calibration, Expansion, Reason, Record, Rule, Scheme};
use margrave::engine::problem::{Formulation, Penalty, Task};
use margrave::engine::train::Met;
use margrave::io::{Missing, Schema};
use margrave::tune::{Cell, Comparison, Params, Tuned};
use margrave::{Caution, Fit, Kernel, Model, Status};

use super::json::{nonzero_weights, worst_gap};
use super::{FitContext, Rows, row_in_file};
use crate::failure::Flags;
use crate::format;
use crate::models;

/// A kernel, its parameters to four digits.
pub(crate) fn kernel(kernel: &Kernel) -> String {
    let number = |v: f64| format::number(v, 4);
    match *kernel {
        Kernel::Poly { gamma, coef0, degree } => {
            format!("poly, γ = {}, coef0 = {}, degree {degree}", number(gamma), number(coef0))
        }
        Kernel::Sigmoid { gamma, coef0 } => format!("sigmoid, γ = {}, coef0 = {}", number(gamma), number(coef0)),
        _ => match kernel.gamma() {
            Some(gamma) => format!("{}, γ = {}", kernel.name(), number(gamma)),
            None => kernel.name().to_owned(),
        },
    }
}

/// The optimisation problem of a model: task, loss, C or ν.
pub(crate) fn problem(model: &Model) -> String {
    let number = |v: f64| format::number(v, 4);
    match (model.task, model.formulation) {
        (task, Formulation::Cost { c }) => {
            let loss = model.loss.map_or_else(|| "custom".to_owned(), |loss| loss.to_string());
            format!("{task}, {loss} loss, C = {}", number(c))
        }
        (Task::Regress, Formulation::Nu { nu, c }) => format!("ν-regression, ν = {}, C = {}", number(nu), number(c)),
        (_, Formulation::Nu { nu, .. }) => format!("ν-classification, ν = {}", number(nu)),
        (_, Formulation::OneClass { nu }) => format!("one-class, ν = {}", number(nu)),
        (_, Formulation::Svdd { nu }) => format!("SVDD, ν = {}", number(nu)),
    }
}

/// How a training ended.
pub(crate) fn outcome(fit: &Fit) -> String {
    let (totals, asked) = (fit.totals(), fit.asked());
    let short = || match (totals.known, totals.relative_gap, asked.gap, asked.tol) {
        (false, ..) => "the certificate was not finished".to_owned(),
        _ if fit.certificate().approximation().is_some() => on_centres(fit),
        (_, Some(gap), Some(most), _) if !(gap <= most) => {
            let rounded = fit.certificate().optimality().is_some_and(|o| o.rounding() > 0.5 * o.gap());
            let remedy = match rounded {
                true => {
                    "; most of it is rounding: the scores are not known more precisely (try --scale standard, or a smaller C)"
                }
                false => "",
            };
            format!("a relative gap of {}, {} requested{remedy}", format::number(gap, 2), format::number(most, 2))
        }
        (_, _, _, Some(tol)) => {
            format!("a violation of {}, {} requested", format::number(totals.violation, 2), format::number(tol, 2))
        }
        _ => "short of the requested accuracy".to_owned(),
    };
    match fit.status() {
        Status::Optimal if totals.dual.is_none() => "stationary".to_owned(),
        Status::Optimal if asked.met(fit.certificate()) == Met::WithinRounding => {
            "optimal to double precision".to_owned()
        }
        Status::Optimal if fit.certificate().approximation().is_some() => approximate(fit.certificate()),
        Status::Optimal => "optimal".to_owned(),
        Status::Inaccurate if fit.certificate().approximation().is_some() => format!("inaccurate: {}", short()),
        Status::Inaccurate => format!("inaccurate: the solver finished, but the certificate shows {}", short()),
        Status::TimeLimit => format!("stopped by the time limit at {}", short()),
        Status::IterationLimit => format!("stopped by the iteration limit at {}", short()),
        Status::Stalled => format!("stalled: no further progress in double precision; {}", short()),
        Status::Interrupted => "interrupted".to_owned(),
    }
}

/// A machine on few centres that is short of what was requested, and what can be done.
fn on_centres(fit: &Fit) -> String {
    let (asked, certificate) = (fit.asked(), fit.certificate());
    let found = approximate(certificate);
    let found = found.strip_prefix("approximate: ").unwrap_or(&found);
    let (Some(gap), Some(a)) = (certificate.relative_gap(), certificate.approximation()) else {
        return found.to_owned();
    };
    match (asked.gap, asked.own) {
        (Some(_), _) if a.check == TailCheck::Own => format!("{found}: allow more time"),
        (Some(most), _) if !(gap <= most) => {
            let remedy = match fit.compacted() {
                Some(_) => "allow more vectors or a larger --gap",
                None => "allow more centres or a larger --gap, or add --polish",
            };
            format!("{found}; {} requested: {remedy}", format::number(most, 2))
        }
        (_, Some(own)) => format!("{found}; an own gap of {} requested", format::number(own, 2)),
        _ => found.to_owned(),
    }
}

/// What a machine on few centres is to the exact one: `approximate: 2 000 centres; exact optimum within 3.2 %, proven`.
pub(crate) fn approximate(certificate: &Certificate) -> String {
    let (Some(o), Some(a)) = (certificate.optimality(), certificate.approximation()) else { return String::new() };
    let size = o.primal().abs().max(o.dual().abs());
    let share = |gap: f64| format::number(if size > 0.0 { gap / size } else { 0.0 }, 2);
    let centres = format!("approximate: {} centres", format::count(a.centres as u64));
    let own = format::number(a.own_relative_gap, 2);
    if a.check == TailCheck::Own {
        return format!("{centres}; optimal on them within {own}, proven; the exact optimum was not compared");
    }
    let chance = if a.check == TailCheck::Sampled { " with probability 1 − 1e-9" } else { "" };
    let within = match o.relative_gap() {
        gap if gap < 1e-3 => format::number(gap, 2),
        gap => format!("{} %", format::number(100.0 * gap, 2)),
    };
    format!(
        "{centres}; exact optimum within {within}, proven{chance} (own {} + kernel {})",
        share(a.own_gap),
        share(a.kernel_gap)
    )
}

/// The relative gap of a certificate, with its rounding where that matters and the condition it rests on.
pub(crate) fn gap(certificate: &Certificate) -> String {
    let Some(o) = certificate.optimality() else { return "not checked".to_owned() };
    let size = o.primal().abs().max(o.dual().abs());
    let mut text = format::number(o.relative_gap(), 2);
    if o.rounding() > 0.1 * o.gap() && size > 0.0 {
        text += &format!(" (rounding {})", format::number(o.rounding() / size, 2));
    }
    match certificate.approximation().map(|a| a.check) {
        Some(TailCheck::Own) => return text + " relative, of the problem on the centres, proven",
        Some(TailCheck::Sampled) => text += " relative, proven with probability 1 − 1e-9",
        _ => text += " relative, proven",
    }
    if !o.definite() {
        text += " if the kernel matrix is positive semi-definite";
    }
    text
}

/// The first labels, as many as fit on a line.
fn labels(labels: &[String]) -> String {
    let mut text = String::new();
    for (at, label) in labels.iter().enumerate() {
        if text.chars().count() + label.chars().count() > 60 {
            return text + ", …";
        }
        text += if at == 0 { "" } else { ", " };
        text += label;
    }
    text
}

/// How the columns of a table became the features of a model, if it comes from one.
fn schema_of(model: &Model) -> Option<Schema> {
    margrave::io::model::schema(model).ok().flatten()
}

/// What a model does to a table before it sees numbers, where that is not the usual.
pub(crate) fn table(model: &Model) -> Rows {
    let Some(schema) = schema_of(model) else { return Rows::new() };
    let mut rows = Rows::new();
    if let Some(name) = schema.target.as_ref().and_then(|target| target.name.clone()) {
        rows.push(("target", name));
    }
    let named = |columns: &mut dyn Iterator<Item = Option<String>>| {
        columns.enumerate().map(|(at, name)| name.unwrap_or_else(|| format!("column {}", at + 1))).collect::<Vec<_>>()
    };
    let filled = match schema.missing {
        Missing::Refuse => None,
        Missing::Row => Some("their rows are left out"),
        Missing::Mean => Some("the mean of the column, or its most frequent text"),
        Missing::Median => Some("the median of the column, or its most frequent text"),
        Missing::Indicator => Some("the mean of the column, and a feature that marks them"),
    };
    rows.extend(filled.map(|text| ("missing values", text.to_owned())));
    let dropped = named(&mut schema.dropped.iter().map(|column| column.name.clone()));
    if !dropped.is_empty() {
        rows.push(("dropped", labels(&dropped)));
    }
    if schema.ignore_unknown {
        rows.push(("unknown texts", "ignored".to_owned()));
    }
    rows
}

/// A training: data, model, proof, errors, time.
pub(crate) fn fit(fit: &Fit, context: &FitContext<'_>) -> Rows {
    let (model, totals) = (fit.model(), fit.totals());
    let features = if model.expansion.width() == 1 { "feature" } else { "features" };
    let target = schema_of(model).and_then(|schema| schema.target?.name);
    let size = format!(
        "{}, {} rows, {} {features}{}",
        context.data,
        format::count(model.n as u64),
        format::count(model.expansion.width() as u64),
        target.map_or(String::new(), |name| format!(", target {name}"))
    );
    let mut rows = vec![("data", size)];
    if model.scheme == Scheme::Outputs {
        let names = models::output_names(model);
        rows.push(("targets", format!("{}: {}", names.len(), labels(&names))));
    }
    if model.task == Task::Classify && model.scheme != Scheme::One {
        let names: Vec<String> = model.labels.iter().map(Label::to_string).collect();
        rows.push(("classes", format!("{}: {}", names.len(), labels(&names))));
    }
    rows.push(("problem", problem(model)));
    rows.push(("kernel", kernel(model.expansion.kernel())));
    rows.push(("solver", format!("{} ({})", model.solver, fit.reason())));
    rows.extend(fit_proof(fit));
    if let Some(compact) = fit.compacted() {
        let text = format!(
            "{} rows dropped: scores change by at most {}·√k(x, x), on the training data by at most {}",
            format::count(compact.dropped as u64),
            format::number(compact.norm, 3),
            format::number(compact.change, 3)
        );
        rows.push(("compact", text));
    }
    if model.penalty == Penalty::L1 {
        let all = model.expansion.width() * model.expansion.outputs();
        let kept = nonzero_weights(model).unwrap_or(all);
        rows.push(("weights", format!("{} of {} nonzero", format::count(kept as u64), format::count(all as u64))));
    }
    let bounded = match model.scheme {
        Scheme::One => format!(", {} at bound", format::count(totals.bounded as u64)),
        _ => String::new(),
    };
    let vectors = format::count(totals.support_vectors as u64);
    rows.push(("support vectors", format!("{vectors} of {}{bounded}", format::count(model.n as u64))));
    rows.push(match model.task {
        Task::Classify => ("training error", format!("{} %", format::number(100.0 * fit.train_error(), 3))),
        Task::Regress => ("training error", format!("{} (mean squared error)", format::number(fit.train_error(), 4))),
        Task::Novelty => {
            ("outside", format!("{} % of the training data", format::number(100.0 * fit.train_error(), 3)))
        }
    });
    rows.extend(decisions(model));
    let (train, total) = (format::duration(totals.seconds), format::duration(context.total_seconds));
    rows.push(("time", format!("{train} training, {total} total")));
    rows.push(("model", context.model.to_owned()));
    rows
}

/// The proof of a training: gap and objectives, or stationarity where the loss is not convex.
fn fit_proof(fit: &Fit) -> Rows {
    let totals = fit.totals();
    let several = if fit.records().len() > 1 { ", worst machine" } else { "" };
    match (totals.dual, totals.relative_gap) {
        _ if !totals.known => vec![("gap", "not checked: the certificate was not finished".to_owned())],
        (Some(dual), Some(_)) => vec![
            ("gap", format!("{}{several}", gap(fit.certificate()))),
            ("violation", format::number(totals.violation, 2)),
            ("objective", format!("{} ≥ optimum ≥ {}", format::number(totals.primal, 7), format::number(dual, 7))),
        ],
        _ => {
            let mut rows = vec![
                ("objective", format!("{}; not convex, so no gap", format::number(totals.primal, 7))),
                ("stationarity", format::number(totals.violation, 2)),
            ];
            if let [Record { certificate: Certificate::Stationarity(s), .. }] = fit.records()
                && let Some(start) = s.start_objective()
            {
                rows.push(("convex start", format!("{} under the same loss", format::number(start, 7))));
            }
            rows
        }
    }
}

/// A certificate on its own, compared with the gap it should not exceed.
fn certificate(certificate: &Certificate, limit: f64, left_out: &[usize]) -> Rows {
    let compared = |v: f64| format!("{}, {} requested", format::number(v, 3), format::number(limit, 3));
    match certificate {
        Certificate::Optimality(o) => {
            let share = |v: f64| format::number(100.0 * v, 2);
            let worst: Vec<String> = o
                .worst()
                .iter()
                .take(3)
                .map(|w| format!("row {} ({} %)", row_in_file(w.row, left_out), share(w.share)))
                .collect();
            let feasible = if o.feasible() {
                "yes".to_owned()
            } else {
                format!("no, by {}; repaired first", format::number(o.infeasibility(), 2))
            };
            vec![
                ("relative gap", compared(o.relative_gap())),
                ("primal", format::number(o.primal(), 10)),
                ("dual", format::number(o.dual(), 10)),
                ("rounding", format!("{} of the gap", format::number(o.rounding(), 2))),
                ("violation", format::number(o.violation(), 3)),
                ("dual feasible", feasible),
                ("worst rows", if worst.is_empty() { "none".into() } else { worst.join(", ") }),
            ]
        }
        Certificate::Stationarity(s) => vec![
            ("stationarity", compared(s.stationarity())),
            ("objective", format::number(s.objective(), 10)),
            ("loss", "not convex: no bound on the optimum".to_owned()),
        ],
        Certificate::Unknown => vec![("relative gap", "not checked".to_owned())],
    }
}

/// The certificates of a model, of which `within` do not exceed the limit. `left_out`: rows of the file that are not part of the
/// data.
pub(crate) fn certificates(certificates: &[Certificate], within: usize, limit: f64, left_out: &[usize]) -> Rows {
    if let [one] = certificates {
        return certificate(one, limit, left_out);
    }
    let violation = certificates.iter().map(Certificate::violation).fold(0.0, f64::max);
    let worst = format::number(worst_gap(certificates), 3);
    let mut rows = vec![
        ("machines", format!("{within} of {} within the gap", certificates.len())),
        ("worst gap", format!("{worst}, {} requested", format::number(limit, 3))),
        ("violation", format::number(violation, 3)),
    ];
    if let Some(dual) = certificates.iter().map(Certificate::dual).sum::<Option<f64>>() {
        let primal: f64 = certificates.iter().map(Certificate::primal).sum();
        rows.push(("primal, sum", format::number(primal, 10)));
        rows.push(("dual, sum", format::number(dual, 10)));
    }
    rows
}

/// What certificates that meet the limit prove: proven (up to rounding, under a condition), or stationary.
pub(crate) fn proven(certificates: &[Certificate], limit: f64) -> &'static str {
    let beyond = |c: &Certificate| c.relative_gap().is_some_and(|gap| gap > limit);
    let convex = certificates.iter().all(|c| c.optimality().is_some());
    let definite = certificates.iter().filter_map(Certificate::optimality).all(|o| o.definite());
    match (convex, definite) {
        (true, true) if certificates.iter().any(beyond) => {
            "proven to double precision: the rest of the gap is rounding"
        }
        (true, true) => "proven",
        (true, false) => "proven if the kernel matrix is positive semi-definite (see 'margrave check kernel')",
        (false, _) => "stationary",
    }
}

/// What a model file holds.
pub(crate) fn model(model: &Model, schema: Option<&Schema>) -> Rows {
    let f = &model.expansion;
    let names = schema.and_then(Schema::feature_names);
    // LIBLINEAR's files have the weights, and neither the number of rows nor C.
    let weights_alone = models::is_liblinear(model);
    let features = format!("{} features", format::count(f.width() as u64));
    let size = match weights_alone {
        true => format!("{features}; the file does not say how many rows"),
        false => format!("{} rows, {features}", format::count(model.n as u64)),
    };
    let problem = match weights_alone {
        true => format!("{}, {}", model.task, model.solver.trim_start_matches("liblinear ")),
        false => problem(model),
    };
    let mut rows = vec![("problem", problem), ("kernel", kernel(f.kernel())), ("trained on", size)];
    rows.extend(table(model));
    let labels: Vec<String> = model.labels.iter().map(Label::to_string).collect();
    if model.task == Task::Classify {
        let positive = match (model.scheme, labels.as_slice()) {
            (Scheme::One, [_, positive]) => {
                let cut = model.threshold.as_ref().map_or(0.0, |threshold| threshold.score);
                format!("; positive (scores above {}): {positive}", format::number(cut, 4))
            }
            _ => String::new(),
        };
        rows.push(("labels", format!("{}{positive}", labels.join(", "))));
    }
    if !model.class_weights.is_empty() {
        let weight = |(label, w): (&String, &f64)| format!("{label}: {}", format::number(*w, 4));
        let weights: Vec<String> = labels.iter().zip(&model.class_weights).map(weight).collect();
        rows.push(("class weights", weights.join(", ")));
    }
    let scaling = match model.scaling.as_ref().map(|s| s.kind) {
        None => "none",
        Some(ScaleKind::MinMax) => "minmax",
        Some(ScaleKind::Standard) => "standard",
    };
    rows.push(("scaling", scaling.to_owned()));
    if !f.is_weights() && !weights_alone {
        let sparse = if f.centres().is_sparse() { ", sparse" } else { "" };
        rows.push(("centres", format!("{}{sparse}", format::count(f.len() as u64))));
    }
    if model.scheme == Scheme::Outputs {
        rows.push(("targets", format!("{}: {}", f.outputs(), models::output_names(model).join(", "))));
    }
    rows.push(match model.scheme {
        Scheme::OneVsOne => ("machines", format!("{}, one per pair of classes", model.machines.len())),
        Scheme::CrammerSinger => ("machines", format!("{}, for all classes together", model.machines.len())),
        Scheme::OneVsRest => ("machines", format!("{}, one per class", model.machines.len())),
        Scheme::Outputs => ("machines", format!("{}, one per target", model.machines.len())),
        Scheme::One if model.free_bias || model.intercept_scaling.is_some() => ("bias", format::number(f.bias()[0], 6)),
        Scheme::One => ("bias", "none".into()),
    });
    if let Some(names) = &names {
        let more = if names.len() > 6 { ", …" } else { "" };
        let first: Vec<&str> = names.iter().take(6).map(String::as_str).collect();
        rows.push(("features", format!("{}{more}", first.join(", "))));
    }
    let largest = largest_weights(f);
    if !largest.is_empty() {
        let named = |column: usize| names.as_ref().and_then(|n| n.get(column).cloned());
        let weight = |(column, w): &(usize, f64)| {
            let name = named(*column).unwrap_or_else(|| format!("feature {}", column + 1));
            format!("{name} {}", format::number(*w, 4))
        };
        rows.push(("largest weights", largest.iter().map(weight).collect::<Vec<_>>().join(", ")));
    }
    rows.extend(record(model));
    rows
}

/// What a model file says about its training.
fn record(model: &Model) -> Rows {
    let totals = model.totals();
    let iterations = format::count(totals.iterations);
    let solver = match totals.known {
        true => format!("{}, {}, {iterations} iterations", model.solver, totals.status),
        false => format!("{}, not checked", model.solver),
    };
    let (vectors, bounded) = (format::count(totals.support_vectors as u64), format::count(totals.bounded as u64));
    let mut rows = vec![("solver", solver)];
    if !models::is_liblinear(model) {
        let bounded = if totals.known { format!(", {bounded} at bound") } else { String::new() };
        rows.push(("support vectors", format!("{vectors}{bounded}")));
    }
    match totals.relative_gap {
        _ if !model.machines.iter().all(|record| record.certificate.is_known()) => {
            let why = match models::is_liblinear(model) {
                true => "unknown: LIBLINEAR's files have no dual point to certify with",
                false => "unknown: run 'margrave verify' on the training data",
            };
            rows.push(("relative gap", why.into()));
        }
        Some(gap) => {
            rows.push(("relative gap", format::number(gap, 3)));
            rows.push(("violation", format::number(totals.violation, 3)));
        }
        None => rows.push(("stationarity", format::number(totals.violation, 3))),
    }
    rows.extend(decisions(model));
    match &model.calibration {
        Some(Calibration::Residuals { sigma, .. }) => {
            rows.push(("residuals", format!("{} mean absolute, out-of-sample", format::number(*sigma, 4))));
        }
        Some(Calibration::ResidualsByOutput { sigma, .. }) => {
            let each: Vec<String> = sigma.iter().map(|s| format::number(*s, 4)).collect();
            rows.push(("residuals", format!("{} mean absolute, out-of-sample", each.join(", "))));
        }
        Some(Calibration::Sigmoid { .. }) | None => {}
    }
    if let Some(tube) = model.machines.first().and_then(|record| record.tube) {
        rows.push(("tube", format!("±{}", format::number(tube, 5))));
    }
    rows
}

/// How scores become probabilities and predictions, where that is not the usual way.
pub(crate) fn decisions(model: &Model) -> Rows {
    let mut rows = Rows::new();
    if let Some(threshold) = &model.threshold {
        let text = format!(
            "{} is predicted at scores above {}: {} on left-out scores, precision {}, recall {}",
            model.labels[1],
            format::number(threshold.score, 4),
            threshold.rule,
            format::number(threshold.precision, 3),
            format::number(threshold.recall, 3)
        );
        rows.push(("threshold", text));
    }
    if let Some(Calibration::Sigmoid { rule, reason, .. }) = &model.calibration {
        let why = match reason {
            Reason::Asked => ", as asked",
            Reason::Weighted => ", as costs differ by class",
            Reason::Better => ", as that is clearly better on left-out scores",
            Reason::Usual | Reason::Unknown => "",
        };
        let mut text = match rule {
            // A threshold moves the predictions away from score 0, and not the probabilities.
            Rule::Agree if model.threshold.is_some() => format!("are ½ at score 0{why}"),
            Rule::Agree => format!("agree with predictions{why}"),
            Rule::Free => format!("estimate frequencies, whatever is predicted{why}"),
        };
        if let Some(p) = model.probability_threshold().filter(|p| *p != 0.5) {
            text +=
                &format!("; {} is predicted where its probability exceeds {}", model.labels[1], format::number(p, 4));
        }
        rows.push(("probabilities", text));
    }
    rows
}

/// What a user should know before relying on a model.
pub(crate) fn caution(caution: &Caution) -> String {
    margrave::conflict::spell(&caution.to_string(), &Flags)
}

/// How many weights are shown.
const SHOWN_WEIGHTS: usize = 10;

/// The features with the largest weights of a linear model with one output, and the weights. The features are those the
/// kernel sees: scaled, where the model scales.
pub(super) fn largest_weights(f: &Expansion) -> Vec<(usize, f64)> {
    let Some(weights) = f.weights().filter(|_| *f.kernel() == Kernel::Linear && f.outputs() == 1) else {
        return Vec::new();
    };
    let mut order: Vec<usize> = (0..weights.len()).filter(|&j| weights[j] != 0.0).collect();
    order.sort_by(|a, b| weights[*b].abs().total_cmp(&weights[*a].abs()).then(a.cmp(b)));
    order.truncate(SHOWN_WEIGHTS);
    order.into_iter().map(|j| (j, weights[j])).collect()
}

/// A combination of a grid.
pub(crate) fn params(params: &Params) -> String {
    let mut parts = Vec::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(v) = value {
            parts.push(format!("{name} = {}", format::number(v, 4)));
        }
    };
    put("C", params.c);
    put("λ", params.lambda);
    put("γ", params.kernel.gamma());
    put("ε", params.epsilon);
    put("ν", params.nu);
    if let Some(loss) = &params.loss {
        parts.push(format!("{loss} loss"));
    }
    parts.push(format!("{} kernel", params.kernel.name()));
    parts.join(", ")
}

/// The score of a cell over its folds, with its deviation.
pub(crate) fn score(cell: &Cell, metric: Metric) -> String {
    let (mean, deviation) = (cell.seen().unwrap_or(f64::NAN), cell.deviation().unwrap_or(0.0));
    match metric {
        Metric::Mse => format!("mean squared error {} ± {}", format::number(-mean, 5), format::number(deviation, 2)),
        Metric::Accuracy => {
            format!("accuracy {} % ± {}", format::number(100.0 * mean, 4), format::number(100.0 * deviation, 2))
        }
        other => format!(
            "{} {} ± {}",
            other,
            format::number(if other.greater_is_better() { mean } else { -mean }, 5),
            format::number(deviation, 2)
        ),
    }
}

/// How combinations are compared before their last fold, where that is not row by row.
pub(crate) fn race(metric: Metric) -> Option<String> {
    match Comparison::of(metric) {
        Comparison::Losses => None,
        Comparison::Bootstrap => {
            Some(format!("{metric} is no mean over rows: compared by paired resamples of the rows"))
        }
        Comparison::None => {
            Some(format!("none: {metric} needs the held-out scores of all folds, so no combination is dropped"))
        }
    }
}

/// How a search over a grid ended.
pub(crate) fn search_outcome(tuned: &Tuned) -> String {
    match tuned.status {
        Status::Optimal => "done".to_owned(),
        _ => format!("stopped early: {} of {} combinations finished", finished(tuned), tuned.cells.len()),
    }
}

fn finished(tuned: &Tuned) -> usize {
    tuned.cells.iter().filter(|cell| cell.is_finished()).count()
}

/// A search over a grid: how much was tried, the best combination and its score.
pub(crate) fn tuned(tuned: &Tuned, best: &Cell, metric: Metric, folds: usize, races: bool) -> Rows {
    let finished = finished(tuned);
    let tried = match tuned.cells.iter().filter(|cell| cell.dropped).count() {
        0 => format!("{finished}, {folds} folds each"),
        dropped => format!("{}: {finished} on {folds} folds, {dropped} dropped after fewer", tuned.cells.len()),
    };
    let mut rows = vec![("combinations", tried), ("best", params(&best.params)), ("score", score(best, metric))];
    if let Some(how) = race(metric).filter(|_| races) {
        rows.push(("race", how));
    }
    rows.push(("time", format::duration(tuned.seconds)));
    rows
}
