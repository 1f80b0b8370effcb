//! What is on the screen as a command and as Python.

use margrave::engine::problem::Task;
use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::data::{Data, Source};
use crate::settings::{ClassWeights, GammaText, LossText, Settings};

/// A word of a command line, in quotes where a shell needs them.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The name a file of this data has or would have.
fn file_name(data: &Data) -> String {
    match &data.source {
        Source::Path(_) | Source::Upload(_) if !is_edited(data) => data.name.clone(),
        Source::Example(_) if data.name.contains('.') && !is_edited(data) => data.name.clone(),
        _ => {
            let stem = data.name.rsplit('/').next().unwrap_or("data");
            let stem = stem.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or("data");
            format!("{stem}.csv")
        }
    }
}

fn is_edited(data: &Data) -> bool {
    data.about["edited"] == true
}

/// The command line that trains the same model.
pub(crate) fn command(settings: &Settings, data: &Data) -> Result<String, Refusal> {
    let usual = Settings::default();
    let task = settings.task()?;
    let mut words = vec!["margrave train".to_owned(), word(&file_name(data))];
    let mut flag = |name: &str, value: String| words.push(format!("{name} {}", word(&value)));
    // The program takes whole numbers for labels.
    if task != Task::Classify {
        flag("--task", settings.task.clone());
    }
    match &settings.loss {
        None => {}
        Some(LossText::Spec(spec)) => flag("--loss", spec.clone()),
        Some(LossText::Own(_)) => {
            return Err(Refusal::unsupported("a loss of one's own has no name on the command line")
                .hint("in Python it is an object with value and slope"));
        }
    }
    match settings.lambda {
        Some(lambda) => flag("--lambda", lambda.to_string()),
        None if settings.cost != usual.cost => flag("-C", settings.cost.to_string()),
        None => {}
    }
    let kernel = &settings.kernel;
    if kernel.name != usual.kernel.name {
        flag("--kernel", kernel.name.clone());
    }
    if kernel.gamma != usual.kernel.gamma && kernel.name != "linear" {
        flag("--gamma", gamma_text(&kernel.gamma));
    }
    if kernel.degree != usual.kernel.degree && kernel.name == "poly" {
        flag("--degree", kernel.degree.to_string());
    }
    if kernel.coef0 != usual.kernel.coef0 && matches!(kernel.name.as_str(), "poly" | "sigmoid") {
        flag("--coef0", kernel.coef0.to_string());
    }
    if task == Task::Regress && settings.epsilon != usual.epsilon && settings.nu.is_none() {
        flag("--epsilon", settings.epsilon.to_string());
    }
    if let Some(nu) = settings.nu {
        flag("--nu", nu.to_string());
    }
    match &settings.class_weight {
        None => {}
        Some(ClassWeights::Rule(rule)) => flag("--class-weight", rule.clone()),
        Some(ClassWeights::Given(pairs)) => {
            let list: Vec<String> = pairs.iter().map(|(label, w)| format!("{label}={w}")).collect();
            flag("--class-weight", list.join(","));
        }
    }
    for (name, value, usual) in
        [("--scale", &settings.scale, &usual.scale), ("--solver", &settings.solver, &usual.solver)]
    {
        if value != usual {
            flag(name, value.clone());
        }
    }
    if let Some(scheme) = &settings.multiclass {
        flag("--multiclass", scheme.clone());
    }
    let numbers = [
        ("--tol", settings.tol.map(|v| v.to_string())),
        ("--gap", settings.gap.map(|v| v.to_string())),
        ("--max-seconds", settings.max_seconds.map(|v| v.to_string())),
        ("--max-iter", settings.max_iter.map(|v| v.to_string())),
        ("--anneal", (settings.anneal != 0).then(|| settings.anneal.to_string())),
        ("--seed", (settings.seed != 0).then(|| settings.seed.to_string())),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            flag(name, value);
        }
    }
    for (name, on) in
        [("--no-bias", !settings.bias), ("--svdd", settings.svdd), ("--probability", settings.probability)]
    {
        if on {
            words.push(name.to_owned());
        }
    }
    Ok(words.join(" "))
}

fn gamma_text(gamma: &GammaText) -> String {
    match gamma {
        GammaText::Number(v) => v.to_string(),
        GammaText::Rule(rule) => rule.clone(),
    }
}

/// A text of Python.
fn quoted(text: &str) -> String {
    format!("{:?}", text)
}

/// The estimator and its parameters in Python.
fn estimator(settings: &Settings, data: &Data) -> Result<String, Refusal> {
    let usual = Settings::default();
    let task = settings.task()?;
    let class = match (task, settings.nu) {
        (Task::Classify, None) => "SVC",
        (Task::Classify, Some(_)) => "NuSVC",
        (Task::Regress, None) => "SVR",
        (Task::Regress, Some(_)) => "NuSVR",
        (Task::Novelty, _) => "OneClassSVM",
    };
    let mut parameters: Vec<String> = Vec::new();
    let mut set = |name: &str, value: String| parameters.push(format!("{name}={value}"));
    let cost = settings.lambda.map_or(settings.cost, |lambda| 1.0 / (2.0 * lambda * data.len().max(1) as f64));
    if class != "NuSVC" && class != "OneClassSVM" && cost != 1.0 {
        set("C", cost.to_string());
    }
    if let Some(nu) = settings.nu {
        set("nu", nu.to_string());
    }
    let kernel = &settings.kernel;
    if kernel.name != "rbf" {
        set("kernel", quoted(&kernel.name));
    }
    match &kernel.gamma {
        GammaText::Number(v) => set("gamma", v.to_string()),
        GammaText::Rule(rule) if rule != "scale" => set("gamma", quoted(rule)),
        GammaText::Rule(_) => {}
    }
    if kernel.name == "poly" && kernel.degree != 3 {
        set("degree", kernel.degree.to_string());
    }
    if matches!(kernel.name.as_str(), "poly" | "sigmoid") && kernel.coef0 != 0.0 {
        set("coef0", kernel.coef0.to_string());
    }
    match &settings.loss {
        None => {}
        Some(LossText::Spec(spec)) => set("loss", quoted(spec)),
        Some(LossText::Own(_)) => set("loss", "Own()".to_owned()),
    }
    if class == "SVR" && settings.epsilon != usual.epsilon {
        set("epsilon", settings.epsilon.to_string());
    }
    match &settings.class_weight {
        None => {}
        Some(ClassWeights::Rule(rule)) => set("class_weight", quoted(rule)),
        Some(ClassWeights::Given(pairs)) => {
            let label = |name: &str| if name.parse::<f64>().is_ok() { name.to_owned() } else { quoted(name) };
            let list: Vec<String> = pairs.iter().map(|(name, w)| format!("{}: {w}", label(name))).collect();
            set("class_weight", format!("{{{}}}", list.join(", ")));
        }
    }
    if settings.solver != usual.solver {
        set("solver", quoted(&settings.solver));
    }
    let numbers = [
        ("tol", settings.tol.map(|v| v.to_string())),
        ("gap_tol", settings.gap.map(|v| v.to_string())),
        ("max_seconds", settings.max_seconds.map(|v| v.to_string())),
        ("max_iter", settings.max_iter.map(|v| v.to_string())),
        ("probability", (settings.probability && task == Task::Classify).then(|| "True".to_owned())),
        ("intervals", (settings.probability && class == "SVR").then(|| "True".to_owned())),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            set(name, value);
        }
    }
    Ok(format!("{class}({})", parameters.join(", ")))
}

/// The same in Python.
pub(crate) fn python(settings: &Settings, data: &Data) -> Result<String, Refusal> {
    let estimator = estimator(settings, data)?;
    let class = estimator.split('(').next().unwrap_or_default().to_owned();
    let file = file_name(data);
    let mut lines = Vec::new();
    let libsvm = data.loaded.format.name() == "libsvm" && !is_edited(data);
    match libsvm {
        true => lines.push("from sklearn.datasets import load_svmlight_file".to_owned()),
        false => lines.push("import pandas as pd".to_owned()),
    }
    lines.push(format!("from margrave import {class}"));
    let scaler = match settings.scale.as_str() {
        "standard" => Some("StandardScaler()"),
        "minmax" => Some("MinMaxScaler(feature_range=(-1, 1))"),
        _ => None,
    };
    if let Some(scaler) = scaler {
        lines.push("from sklearn.pipeline import make_pipeline".to_owned());
        lines.push(format!("from sklearn.preprocessing import {}", scaler.split('(').next().unwrap_or_default()));
    }
    lines.push(String::new());
    if let Some(LossText::Own(own)) = &settings.loss {
        lines.push(format!("# The loss of the page, of m = y*z and r = y - z: {}", own.expression.replace('\n', " ")));
        lines.push("class Own:".to_owned());
        lines.push("    def value(self, y, z): ...".to_owned());
        lines.push("    def slope(self, y, z): ...".to_owned());
        lines.push(String::new());
    }
    match libsvm {
        true => lines.push(format!("X, y = load_svmlight_file({})", quoted(&file))),
        false => {
            lines.push(format!("table = pd.read_csv({})", quoted(&file)));
            lines.push("X, y = table.iloc[:, :-1], table.iloc[:, -1]".to_owned());
        }
    }
    let model = match scaler {
        Some(scaler) => format!("make_pipeline({scaler}, {estimator})"),
        None => estimator,
    };
    lines.push(match class == "OneClassSVM" {
        true => format!("model = {model}.fit(X)"),
        false => format!("model = {model}.fit(X, y)"),
    });
    lines.push(match scaler {
        Some(_) => "print(model[-1].certificate_)".to_owned(),
        None => "print(model.certificate_)".to_owned(),
    });
    Ok(lines.join("\n") + "\n")
}

/// Both; what cannot be said in one of them is null, with the reason beside it.
pub(crate) fn both(settings: &Settings, data: &Data) -> Value {
    let text = |found: Result<String, Refusal>| match found {
        Ok(text) => (json!(text), Value::Null),
        Err(refusal) => (Value::Null, json!(refusal.message)),
    };
    let ((command, why_no_command), (python, why_no_python)) =
        (text(command(settings, data)), text(python(settings, data)));
    let saved = !matches!(data.source, Source::Path(_) | Source::Upload(_)) || is_edited(data);
    json!({
        "command": command, "why_no_command": why_no_command, "python": python, "why_no_python": why_no_python,
        "file": file_name(data), "save_data_first": saved,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Reading;

    fn open(id: &str) -> Data {
        Data::open(Source::Example(id.into()), &Reading::default(), None, None, 1, 1).unwrap()
    }

    fn settings(data: &Data, value: Value) -> Settings {
        Settings::read(Some(&value), data).unwrap()
    }

    #[test]
    fn defaults_are_left_out() {
        let heart = open("heart");
        let plain = settings(&heart, json!({}));
        assert_eq!(command(&plain, &heart).unwrap(), "margrave train heart_scale.svm");
        assert!(python(&plain, &heart).unwrap().contains("model = SVC().fit(X, y)"));
    }

    #[test]
    fn every_choice_is_spelled() {
        let heart = open("heart");
        let chosen = settings(
            &heart,
            json!({ "C": 10.0, "kernel": { "name": "poly", "gamma": 0.1, "degree": 2, "coef0": 1.0 },
                "class_weight": { "-1": 2.0 }, "scale": "standard", "loss": "squared-hinge", "gap": 1e-6 }),
        );
        assert_eq!(
            command(&chosen, &heart).unwrap(),
            "margrave train heart_scale.svm --loss squared-hinge -C 10 --kernel poly --gamma 0.1 --degree 2 --coef0 1 \
             --class-weight '-1=2' --scale standard --gap 0.000001"
        );
        let text = python(&chosen, &heart).unwrap();
        assert!(
            text.contains(
                "make_pipeline(StandardScaler(), SVC(C=10, kernel=\"poly\", gamma=0.1, degree=2, coef0=1, \
             loss=\"squared-hinge\", class_weight={-1: 2}, gap_tol=0.000001))"
            ),
            "{text}"
        );
        let housing = open("housing");
        let nu = settings(&housing, json!({ "nu": 0.3 }));
        assert_eq!(command(&nu, &housing).unwrap(), "margrave train housing.csv --task regress --nu 0.3");
        assert!(python(&nu, &housing).unwrap().contains("NuSVR(nu=0.3)"));
    }

    #[test]
    fn words_are_quoted_for_shells() {
        assert_eq!(word("a b"), "'a b'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word("$(rm)"), "'$(rm)'");
        assert_eq!(word("sub/x.csv"), "sub/x.csv");
        let moons = open("moons");
        let own = settings(&moons, json!({ "loss": { "expression": "max(0,1-m)" } }));
        let found = both(&own, &moons);
        assert!(found["command"].is_null() && found["why_no_command"].is_string());
        assert_eq!(found["file"], "moons.csv");
        assert_eq!(found["save_data_first"], true);
    }
}
