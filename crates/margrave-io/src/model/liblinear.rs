//! LIBLINEAR model files, read as native linear models.
//!
//! Header `solver_type`, `nr_class`, `label`, `nr_feature`, `bias`, `rho` (one-class), then `w` and one line per
//! feature (and one for the bias, if it is ≥ 0) with one number per output. Two classes have one output, positive for
//! the first label, except with Crammer and Singer's method; more classes have one output per class. w becomes an
//! expansion over the unit vectors.

use margrave_core::data::{Csr, Label};
use margrave_core::kernel::Kernel;
use margrave_core::model::{Calibration, Expansion, Model, Origin, Reason, Recipe, Rule, Scheme, Sigmoid};
use margrave_core::problem::{Formulation, Task};

use super::container::Broken;
use super::exchange::unknown_record;

/// Whether these bytes begin like a LIBLINEAR model.
pub(super) fn looks_like(bytes: &[u8]) -> bool {
    bytes.starts_with(b"solver_type ")
}

fn wrong(line: usize, what: impl std::fmt::Display) -> Broken {
    Broken::new(format!("line {line} of the LIBLINEAR model: {what}"))
}

fn number(line: usize, text: &str) -> Result<f64, Broken> {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(v),
        _ => Err(wrong(line, format_args!("{text:?} is not a finite number"))),
    }
}

/// Reads a LIBLINEAR model from memory.
pub(super) fn parse(bytes: &[u8]) -> Result<Model, Broken> {
    let text = std::str::from_utf8(bytes).map_err(|_| Broken::new("the LIBLINEAR model is not text"))?;
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_end()));
    let (mut solver, mut classes, mut labels, mut features) = (String::new(), None, Vec::new(), None);
    let (mut intercept, mut rho) = (-1.0, 0.0);
    loop {
        let Some((at, line)) = lines.next() else {
            return Err(Broken::new("the LIBLINEAR model ends before its weights"));
        };
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or("");
        let values: Vec<&str> = words.collect();
        let first = || values.first().copied().ok_or_else(|| wrong(at, format_args!("{key} has no value")));
        let whole = || first()?.parse::<usize>().map_err(|_| wrong(at, format_args!("{key} is not a whole number")));
        match key {
            "solver_type" => solver = first()?.to_owned(),
            "nr_class" => classes = Some(whole()?),
            "nr_feature" => features = Some(whole()?),
            "bias" => intercept = number(at, first()?)?,
            "rho" => rho = number(at, first()?)?,
            "label" => labels = values.iter().map(|v| number(at, v)).collect::<Result<_, _>>()?,
            "w" => break,
            other => return Err(wrong(at, format_args!("unknown entry {other:?}"))),
        }
    }
    let task = match solver.as_str() {
        "ONECLASS_SVM" => Task::Novelty,
        name if name.contains("SVR") => Task::Regress,
        name if name.contains("SVC") || name.contains("LR") || name == "MCSVM_CS" => Task::Classify,
        other => return Err(Broken::new(format!("the LIBLINEAR model has the unknown solver_type {other:?}"))),
    };
    let missing = |what: &str| Broken::new(format!("the LIBLINEAR model has no {what}"));
    let (classes, features) =
        (classes.ok_or_else(|| missing("nr_class"))?, features.ok_or_else(|| missing("nr_feature"))?);
    if task == Task::Classify && (classes < 2 || labels.len() != classes) {
        return Err(Broken::new(format!("the LIBLINEAR model has {classes} classes and {} labels", labels.len())));
    }
    let outputs = if task != Task::Classify || (classes == 2 && solver != "MCSVM_CS") { 1 } else { classes };
    let rows = features + usize::from(intercept >= 0.0);
    let mut w = Vec::new();
    for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let before = w.len();
        for word in line.split_whitespace() {
            w.push(number(at, word)?);
        }
        if w.len() - before != outputs {
            return Err(wrong(at, format_args!("{} weights, not {outputs}", w.len() - before)));
        }
    }
    if w.len() != rows.saturating_mul(outputs) {
        return Err(Broken::new(format!(
            "the LIBLINEAR model has {} lines of weights, not {rows}: it is cut short",
            w.len() / outputs
        )));
    }
    let mut bias = vec![-rho; outputs];
    if intercept >= 0.0 {
        let last = w.split_off(features * outputs);
        bias.iter_mut().zip(last).for_each(|(b, w)| *b += intercept * w);
    }
    build(task, &solver, labels, features, w, bias)
}

fn build(
    task: Task,
    solver: &str,
    labels: Vec<f64>,
    features: usize,
    mut w: Vec<f64>,
    mut bias: Vec<f64>,
) -> Result<Model, Broken> {
    let mut labels: Vec<Label> =
        if task == Task::Classify { labels.into_iter().map(Label::Number).collect() } else { vec![] };
    if labels.len() == 2 {
        // Native scores are positive for the second label.
        labels.reverse();
        if bias.len() == 2 {
            w = w.chunks_exact(2).map(|pair| pair[0] - pair[1]).collect();
            bias = vec![bias[0] - bias[1]];
        }
    }
    let outputs = bias.len();
    let scheme = if outputs > 1 { Scheme::OneVsRest } else { Scheme::One };
    let unit: Vec<u32> =
        (0..features).map(u32::try_from).collect::<Result<_, _>>().map_err(|_| Broken::new("too many features"))?;
    let engine = |e: margrave_core::Error| Broken::new(e.to_string());
    let centres = Csr::new(features, (0..=features).collect::<Vec<usize>>(), unit.clone(), vec![1.0; features])
        .map_err(engine)?;
    let calibration = (task == Task::Classify && solver.contains("LR")).then(|| {
        let logistic = Sigmoid { a: -1.0, below: -1.0, b: 0.0 };
        Calibration::of_sigmoids(&vec![logistic; outputs], Origin::Unknown, Rule::Agree, Reason::Unknown)
    });
    let expansion = Expansion::new(Kernel::Linear, centres.into(), unit, w, bias, features).map_err(engine)?;
    let machines = (0..outputs).map(|output| unknown_record(&expansion.column(output))).collect();
    let recipe = Recipe {
        task,
        formulation: if task == Task::Novelty {
            Formulation::OneClass { nu: 0.5 }
        } else {
            Formulation::Cost { c: 1.0 }
        },
        loss: None,
        free_bias: true,
        penalty: margrave_core::problem::Penalty::L2,
        intercept_scaling: None,
        labels,
        class_weights: vec![],
        scaling: None,
        schema: None,
        solver: format!("liblinear {solver}"),
    };
    let mut model = Model::new(recipe, scheme, expansion, vec![1.0; features], machines, features);
    model.calibration = calibration;
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 3\nlabel 2 7 -1\nnr_feature 2\nbias 2\nw\n\
                         1 0 -1 \n0 2 0 \n0.5 0 0.25 \n";

    #[test]
    fn weights_bias_and_labels_by_hand() {
        let model = parse(THREE.as_bytes()).unwrap();
        assert_eq!(model.expansion.weights(), Some(&[1.0, 0.0, -1.0, 0.0, 2.0, 0.0][..]));
        assert_eq!((model.expansion.bias(), model.scheme), (&[1.0, 0.0, 0.5][..], Scheme::OneVsRest));
        let two = "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 1\nbias -1\nw\n0.5 \n";
        let model = parse(two.as_bytes()).unwrap();
        assert_eq!(model.labels, [Label::Number(-1.0), Label::Number(1.0)]);
        assert_eq!((model.expansion.weights(), model.expansion.bias()), (Some(&[0.5][..]), &[0.0][..]));
        assert!(model.calibration.is_some());
        let outlier = "solver_type ONECLASS_SVM\nnr_class 2\nnr_feature 1\nbias -1\nrho 0.75\nw\n0.5 \n";
        assert_eq!(parse(outlier.as_bytes()).unwrap().expansion.bias(), [-0.75]);
    }

    #[test]
    fn errors_state_what_is_wrong() {
        for (from, to, named) in [
            ("label 2 7 -1\n", "", "labels"),
            ("0 2 0 \n", "", "cut short"),
            ("0 2 0", "0 2", "line 8"),
            ("SVC_DUAL", "XYZ", "solver_type"),
            ("nr_feature 2\n", "", "nr_feature"),
            ("0 2 0", "0 2 nan", "finite"),
        ] {
            let said = parse(THREE.replace(from, to).as_bytes()).unwrap_err().to_string();
            assert!(said.contains(named), "{from:?} → {to:?}: {said}");
        }
        for end in 0..THREE.len() - 1 {
            let _ = parse(&THREE.as_bytes()[..end]);
        }
    }
}
