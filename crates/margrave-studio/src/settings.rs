//! What to train, as the page says it.

use std::collections::BTreeMap;

use margrave::engine::data::{Label, ScaleKind};
use margrave::engine::model::Scheme;
use margrave::engine::problem::{ClassWeight, Task};
use margrave::engine::solver::Stop;
use margrave::loss::{CustomLoss, LossSpec};
use margrave::{Budget, Cancel, Gamma, Kernel, Probability, SolverName, Svm, Threads};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::Refusal;
use crate::data::{self, Data};
use crate::expression::Expression;

/// γ: a number or a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum GammaText {
    Number(f64),
    Rule(String),
}

impl GammaText {
    pub(crate) fn gamma(&self) -> Result<Gamma, Refusal> {
        Ok(match self {
            GammaText::Number(v) => v.to_string().parse()?,
            GammaText::Rule(text) => text.parse()?,
        })
    }
}

/// The kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KernelSettings {
    pub(crate) name: String,
    pub(crate) gamma: GammaText,
    pub(crate) degree: u32,
    pub(crate) coef0: f64,
}

impl Default for KernelSettings {
    fn default() -> Self {
        Self { name: "rbf".into(), gamma: GammaText::Rule("scale".into()), degree: 3, coef0: 0.0 }
    }
}

/// The kernels of the page: name, parameters, formula.
pub(crate) const KERNELS: [(&str, &[&str], &str); 8] = [
    ("linear", &[], "x·x′"),
    ("poly", &["gamma", "degree", "coef0"], "(γ x·x′ + coef0)^degree"),
    ("rbf", &["gamma"], "exp(−γ‖x − x′‖²)"),
    ("sigmoid", &["gamma", "coef0"], "tanh(γ x·x′ + coef0)"),
    ("laplacian", &["gamma"], "exp(−γ‖x − x′‖₁)"),
    ("matern32", &["gamma"], "(1 + √3 r) exp(−√3 r), r = √(2γ)‖x − x′‖"),
    ("matern52", &["gamma"], "(1 + √5 r + 5r²/3) exp(−√5 r), r = √(2γ)‖x − x′‖"),
    ("chi2", &["gamma"], "exp(−γ Σ(x − x′)²/(x + x′)), features ≥ 0"),
];

impl KernelSettings {
    /// The kernel with a placeholder γ = 1.
    pub(crate) fn kernel(&self) -> Result<Kernel, Refusal> {
        let (gamma, coef0, degree) = (1.0, self.coef0, self.degree);
        let kernel = match self.name.as_str() {
            "linear" => Kernel::Linear,
            "poly" => Kernel::Poly { gamma, coef0, degree },
            "rbf" => Kernel::Rbf { gamma },
            "sigmoid" => Kernel::Sigmoid { gamma, coef0 },
            "laplacian" => Kernel::Laplacian { gamma },
            "matern32" => Kernel::Matern32 { gamma },
            "matern52" => Kernel::Matern52 { gamma },
            "chi2" => Kernel::Chi2 { gamma },
            name => {
                let known = KERNELS.map(|(name, ..)| name).join(", ");
                return Err(Refusal::settings(format!("kernel = {name:?}: there are {known}")));
            }
        };
        kernel.check()?;
        Ok(kernel)
    }
}

/// A loss: by name, or by a formula.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum LossText {
    Spec(String),
    Own(OwnLoss),
}

/// A loss of the user's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnLoss {
    pub(crate) expression: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

impl OwnLoss {
    /// The loss, checked: its slope by differences, its convexity by sampling.
    pub(crate) fn build(&self, task: Task) -> Result<CustomLoss, Refusal> {
        let parsed = Expression::parse(&self.expression)?;
        let (value, slope) = (parsed.clone(), parsed);
        let name = self.name.clone().unwrap_or_else(|| value.text().to_owned());
        Ok(CustomLoss::new(name, task == Task::Classify, move |y, z| value.value(y, z), move |y, z| slope.slope(y, z))?)
    }
}

/// Weights of classes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum ClassWeights {
    Rule(String),
    Given(BTreeMap<String, f64>),
}

/// Every setting of the page. What a request leaves out has its default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Empty: that of the data.
    pub(crate) task: String,
    pub(crate) kernel: KernelSettings,
    pub(crate) loss: Option<LossText>,
    #[serde(rename = "C")]
    pub(crate) cost: f64,
    pub(crate) lambda: Option<f64>,
    pub(crate) epsilon: f64,
    pub(crate) nu: Option<f64>,
    pub(crate) class_weight: Option<ClassWeights>,
    pub(crate) scale: String,
    pub(crate) solver: String,
    pub(crate) multiclass: Option<String>,
    pub(crate) bias: bool,
    pub(crate) svdd: bool,
    pub(crate) probability: bool,
    pub(crate) anneal: usize,
    pub(crate) tol: Option<f64>,
    pub(crate) gap: Option<f64>,
    pub(crate) max_seconds: Option<f64>,
    pub(crate) max_iter: Option<u64>,
    pub(crate) seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            task: String::new(),
            kernel: KernelSettings::default(),
            loss: None,
            cost: 1.0,
            lambda: None,
            epsilon: 0.1,
            nu: None,
            class_weight: None,
            scale: "none".into(),
            solver: "auto".into(),
            multiclass: None,
            bias: true,
            svdd: false,
            probability: false,
            anneal: 0,
            tol: None,
            gap: None,
            max_seconds: None,
            max_iter: None,
            seed: 0,
        }
    }
}

impl Settings {
    /// Reads the settings of a request for this data.
    pub(crate) fn read(value: Option<&Value>, data: &Data) -> Result<Self, Refusal> {
        let mut settings: Settings = match value {
            None | Some(Value::Null) => Settings::default(),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|error| Refusal::settings(format!("the settings cannot be read: {error}")))?,
        };
        if settings.task.is_empty() {
            settings.task = data.task.name().to_owned();
        }
        if settings.task()? == Task::Classify && data.task != Task::Classify {
            return Err(Refusal::settings("the target of this data was read as a number, not as classes")
                .hint("open the data again with the task classify"));
        }
        Ok(settings)
    }

    pub(crate) fn task(&self) -> Result<Task, Refusal> {
        data::task(&self.task)
    }

    /// Whether a training can go on from a model.
    pub(crate) fn is_resumable(&self) -> bool {
        !matches!(self.solver.as_str(), "smo" | "svmtorch") && self.multiclass.as_deref() != Some("crammer-singer")
    }

    pub(crate) fn loss_spec(&self) -> Result<Option<LossSpec>, Refusal> {
        match &self.loss {
            Some(LossText::Spec(text)) => Ok(Some(text.parse()?)),
            _ => Ok(None),
        }
    }

    /// When the answer counts as optimal, if the settings say so.
    fn stop(&self) -> Option<Stop> {
        (self.tol.is_some() || self.gap.is_some()).then_some(Stop { tol: self.tol, gap: self.gap })
    }

    fn scheme(&self) -> Result<Option<Scheme>, Refusal> {
        match self.multiclass.as_deref() {
            None => Ok(None),
            Some("ovo") => Ok(Some(Scheme::OneVsOne)),
            Some("ovr") => Ok(Some(Scheme::OneVsRest)),
            Some("crammer-singer") => Ok(Some(Scheme::CrammerSinger)),
            Some(other) => {
                Err(Refusal::settings(format!("multiclass = {other:?}: there are ovo, ovr and crammer-singer")))
            }
        }
    }

    fn weights(&self, data: &Data) -> Result<ClassWeight, Refusal> {
        match &self.class_weight {
            None => Ok(ClassWeight::Equal),
            Some(ClassWeights::Rule(rule)) if rule == "balanced" => Ok(ClassWeight::Balanced),
            Some(ClassWeights::Rule(rule)) => {
                Err(Refusal::settings(format!("class_weight = {rule:?}: \"balanced\", or a weight for each class")))
            }
            Some(ClassWeights::Given(pairs)) => {
                let find = |(name, weight): (&String, &f64)| {
                    let label = data.classes.iter().find(|label| label.to_string() == *name).cloned();
                    (label.unwrap_or_else(|| Label::Text(name.clone())), *weight)
                };
                Ok(ClassWeight::Given(pairs.iter().map(find).collect()))
            }
        }
    }

    /// The builder they describe.
    pub(crate) fn svm(&self, data: &Data, threads: &Threads, cancel: &Cancel) -> Result<Svm, Refusal> {
        let task = self.task()?;
        let kernel = self.kernel.kernel()?;
        let scale = match self.scale.as_str() {
            "none" => None,
            "minmax" => Some(ScaleKind::MinMax),
            "standard" => Some(ScaleKind::Standard),
            other => {
                return Err(Refusal::settings(format!("scale = {other:?}: there are none, minmax and standard")));
            }
        };
        let budget = Budget { seconds: self.max_seconds, iterations: self.max_iter, ..Budget::default() };
        budget.check()?;
        let mut svm = Svm::of(task)
            .kernel(kernel)
            .bias(self.bias)
            .svdd(self.svdd && task == Task::Novelty)
            .scale(scale)
            .solver(self.solver.parse::<SolverName>()?)
            .anneal(self.anneal)
            .budget(budget)
            .threads(threads.clone())
            .seed(self.seed)
            .cancel(cancel.clone())
            .schema(&data.loaded.schema)?;
        if kernel.gamma().is_some() {
            svm = svm.gamma(self.kernel.gamma.gamma()?);
        }
        if let Some(stop) = self.stop() {
            svm = svm.stop(stop);
        }
        if let Some(scheme) = self.scheme()?.filter(|_| task == Task::Classify && data.classes.len() > 2) {
            svm = svm.multiclass(scheme);
        }
        svm = match self.lambda {
            Some(lambda) => svm.lambda(lambda),
            None => svm.cost(self.cost),
        };
        svm = match &self.loss {
            None => svm,
            Some(LossText::Spec(_)) => match self.loss_spec()? {
                Some(spec) => svm.loss_spec(spec),
                None => svm,
            },
            Some(LossText::Own(own)) => svm.loss(own.build(task)?),
        };
        // A tube is for the default loss of regression and for those that have one.
        let tube = match &self.loss {
            None => task == Task::Regress && self.nu.is_none(),
            Some(LossText::Spec(text)) => matches!(text.as_str(), "epsilon" | "squared-epsilon"),
            Some(LossText::Own(_)) => false,
        };
        if tube {
            svm = svm.epsilon(self.epsilon);
        }
        if let Some(nu) = self.nu {
            svm = svm.nu(nu);
        }
        if self.probability && task != Task::Novelty {
            svm = svm.probability(Probability::LeaveOneOut);
        }
        if task == Task::Classify {
            svm = svm.class_weight(self.weights(data)?);
        }
        Ok(svm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Reading, Source};

    fn heart() -> Data {
        Data::open(Source::Example("heart".into()), &Reading::default(), None, None, 1, 1).unwrap()
    }

    fn svm(settings: Value) -> Result<Svm, String> {
        let data = heart();
        let settings = Settings::read(Some(&settings), &data).map_err(|r| r.message)?;
        let svm = settings.svm(&data, &Threads::one(), &Cancel::new()).map_err(|r| r.message)?;
        svm.plan(&data.loaded.data).map_err(|e| e.to_string())?;
        Ok(svm)
    }

    #[test]
    fn settings_become_options() {
        use serde_json::json;
        let options = svm(json!({
            "kernel": { "name": "poly", "gamma": 0.5, "degree": 2, "coef0": 1.0 }, "C": 4.0, "loss": "squared-hinge",
            "class_weight": { "1": 2.0 }, "tol": 1e-4, "gap": 1e-6, "seed": 3,
        }));
        let options = options.unwrap();
        let options = options.options();
        assert_eq!(options.loss_spec_name(), "squared-hinge");
        assert_eq!(options.class_weight, ClassWeight::Given(vec![(Label::Number(1.0), 2.0)]));
        assert_eq!((options.stop.tol, options.stop.gap, options.seed), (Some(1e-4), Some(1e-6), 3));
        assert_eq!(options.gamma, Some(Gamma::Value(0.5)));
    }

    trait SpecName {
        fn loss_spec_name(&self) -> String;
    }

    impl SpecName for margrave::TrainOptions {
        fn loss_spec_name(&self) -> String {
            match &self.loss {
                margrave::engine::train::LossChoice::Spec(spec) => spec.to_string(),
                _ => String::new(),
            }
        }
    }

    #[test]
    fn numbers_are_not_taken_for_classes() {
        let housing = Data::open(Source::Example("housing".into()), &Reading::default(), None, None, 1, 1).unwrap();
        let asked = serde_json::json!({ "task": "classify" });
        assert!(Settings::read(Some(&asked), &housing).is_err());
        assert_eq!(Settings::read(None, &housing).unwrap().task, "regress");
    }

    #[test]
    fn bad_settings_are_named() {
        use serde_json::json;
        for (settings, word) in [
            (json!({ "C": "x" }), "settings"),
            (json!({ "D": 1 }), "D"),
            (json!({ "task": "dance" }), "dance"),
            (json!({ "kernel": { "name": "magic" } }), "magic"),
            (json!({ "kernel": { "gamma": -1.0 } }), "gamma"),
            (json!({ "loss": "hing" }), "hing"),
            (json!({ "loss": { "expression": "1+" } }), "character"),
            (json!({ "scale": "big" }), "big"),
            (json!({ "multiclass": "all" }), "all"),
            (json!({ "solver": "simplex" }), "simplex"),
            (json!({ "class_weight": "equal" }), "equal"),
            (json!({ "C": -1.0 }), "-1"),
            (json!({ "max_seconds": -1.0 }), "max-seconds"),
        ] {
            let message = svm(settings.clone()).err().unwrap_or_default();
            assert!(message.contains(word), "{settings}: {message}");
        }
    }
}
