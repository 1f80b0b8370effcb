//! What to train, as a dictionary.

use std::sync::Arc;

use margrave::engine::data::{Label, Points};
use margrave::engine::kernel::Kernel;
use margrave::engine::model::Scheme;
use margrave::engine::problem::{ClassWeight, Formulation, Penalty, Task};
use margrave::engine::solver::Stop;
use margrave::loss::{Loss, LossSpec};
use margrave::{Budget, Control, Device, Error, Probability, Svm, Targets, Threads};
use pyo3::prelude::*;

use crate::errors::raise;
use crate::losses::{PyLoss, Trouble};
use crate::supervise::threads;

/// The description of a machine; every key is required (`margrave/_spec.py` makes the dictionary).
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Params {
    pub(crate) task: String,
    kernel: String,
    gamma: f64,
    degree: u32,
    coef0: f64,
    pub(crate) loss: Option<LossParam>,
    #[pyo3(item("C"))]
    pub(crate) c: f64,
    pub(crate) nu: Option<f64>,
    pub(crate) epsilon: Option<f64>,
    pub(crate) svdd: bool,
    pub(crate) bias: bool,
    multiclass: Option<String>,
    penalty: String,
    intercept_scaling: Option<f64>,
    device: String,
    probability: bool,
    probability_rule: String,
    /// The rule of the decision threshold.
    threshold: Option<String>,
    /// Whether leave-one-out scores are returned with the fit.
    leave_one_out: bool,
    /// Factors on the costs of the classes, in their order.
    class_weight: Option<Vec<f64>>,
    solver: String,
    tol: Option<f64>,
    aim: Option<f64>,
    aim_gap: Option<f64>,
    gap_tol: Option<f64>,
    max_seconds: Option<f64>,
    max_iter: Option<u64>,
    memory: u64,
    threads: usize,
    pub(crate) seed: u64,
    small: bool,
    /// Number of centres, or `auto`.
    approx: Option<String>,
    /// How a machine on centres is certified; `None`: by size.
    certify: Option<String>,
    polish: bool,
}

/// A loss by name, or an object of `margrave.losses.Custom`.
#[derive(FromPyObject)]
pub(crate) enum LossParam {
    Name(String),
    Own(Py<PyAny>),
}

impl Params {
    pub(crate) fn task(&self) -> PyResult<Task> {
        match self.task.as_str() {
            "classify" => Ok(Task::Classify),
            "regress" => Ok(Task::Regress),
            "novelty" => Ok(Task::Novelty),
            other => Err(raise(Error::option("task", other, "classify, regress or novelty"))),
        }
    }

    pub(crate) fn kernel(&self) -> PyResult<Kernel> {
        let (gamma, coef0, degree) = (self.gamma, self.coef0, self.degree);
        Ok(match self.kernel.as_str() {
            "linear" => Kernel::Linear,
            "poly" => Kernel::Poly { gamma, coef0, degree },
            "rbf" => Kernel::Rbf { gamma },
            "sigmoid" => Kernel::Sigmoid { gamma, coef0 },
            "laplacian" => Kernel::Laplacian { gamma },
            "matern32" => Kernel::Matern32 { gamma },
            "matern52" => Kernel::Matern52 { gamma },
            "chi2" => Kernel::Chi2 { gamma },
            "precomputed" => Kernel::Precomputed,
            other => return Err(raise(Error::option("kernel", other, "see the documentation of the estimator"))),
        })
    }

    /// The loss of the library, given by name or by the task; `None` for a user-defined one.
    pub(crate) fn spec(&self) -> PyResult<Option<LossSpec>> {
        let spec = match &self.loss {
            Some(LossParam::Own(_)) => return Ok(None),
            Some(LossParam::Name(name)) => name.parse::<LossSpec>().map_err(raise)?,
            None if self.task()? == Task::Regress => LossSpec::Epsilon { epsilon: 0.1 },
            None => LossSpec::Hinge,
        };
        Ok(Some(self.epsilon.map_or(spec, |epsilon| spec.with_epsilon(epsilon))))
    }

    /// The loss itself.
    pub(crate) fn loss(&self, py: Python<'_>, targets: &Targets, trouble: &Trouble) -> PyResult<Arc<dyn Loss>> {
        match &self.loss {
            Some(LossParam::Own(object)) => {
                let loss = PyLoss::new(object.clone_ref(py), self.task()? == Task::Classify);
                Ok(Arc::new(loss.build(py, targets, trouble)?))
            }
            _ => match self.spec()? {
                Some(spec) => spec.build().map_err(raise),
                None => Err(raise(Error::data("there is no loss"))),
            },
        }
    }

    /// How several classes become machines; `None`: chosen by the engine.
    pub(crate) fn scheme(&self) -> PyResult<Option<Scheme>> {
        Ok(match self.multiclass.as_deref() {
            None => None,
            Some("ovo") => Some(Scheme::OneVsOne),
            Some("ovr") => Some(Scheme::OneVsRest),
            Some("crammer-singer") => Some(Scheme::CrammerSinger),
            Some(other) => return Err(raise(Error::option("multiclass", other, "ovo, ovr or crammer-singer"))),
        })
    }

    pub(crate) fn formulation(&self) -> PyResult<Formulation> {
        Ok(match (self.task()?, self.nu) {
            (Task::Novelty, nu) if self.svdd => Formulation::Svdd { nu: nu.unwrap_or(0.5) },
            (Task::Novelty, nu) => Formulation::OneClass { nu: nu.unwrap_or(0.5) },
            (_, Some(nu)) => Formulation::Nu { nu, c: self.c },
            (_, None) => Formulation::Cost { c: self.c },
        })
    }

    pub(crate) fn stop(&self) -> Stop {
        Stop { tol: self.tol, gap: self.gap_tol }
    }

    /// Whether a stopping rule was given: a machine on few centres has one of its own.
    fn stops(&self) -> bool {
        self.approx.is_none() || self.tol.is_some() || self.gap_tol.is_some()
    }

    /// Whether the coefficients of the machine are those of few centres, and no dual point.
    pub(crate) fn on_centres(&self) -> bool {
        self.approx.is_some() && !self.polish
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget { seconds: self.max_seconds, iterations: self.max_iter, memory: self.memory }
    }

    /// Whether the work is small enough to run on the calling thread.
    pub(crate) fn small(&self) -> bool {
        self.small && self.threads == 1
    }

    pub(crate) fn threads(&self) -> Threads {
        threads(self.threads)
    }

    /// A running budget.
    pub(crate) fn control(&self) -> PyResult<Control> {
        let budget = self.budget();
        budget.check().map_err(raise)?;
        if self.stops() {
            self.stop().check().map_err(raise)?;
        }
        Ok(Control::start(&budget, self.threads()))
    }

    /// Where to compute, as given.
    pub(crate) fn device_name(&self) -> &str {
        &self.device
    }

    /// The builder of the machine, for these points. `targets` are those it will be trained on; `trouble` receives
    /// the exceptions of a loss.
    pub(crate) fn svm(&self, py: Python<'_>, points: &Points, targets: &Targets, trouble: &Trouble) -> PyResult<Svm> {
        let mut svm = Svm::of(self.task()?)
            .kernel(self.kernel()?)
            .cost(self.c)
            .svdd(self.svdd)
            .bias(self.bias)
            .penalty(if self.penalty == "l1" { Penalty::L1 } else { Penalty::L2 })
            .intercept_scaling(self.intercept_scaling)
            .device(device(&self.device, points)?)
            .probability_rule(self.probability_rule.parse().map_err(raise)?)
            .solver(self.solver.parse().map_err(raise)?)
            .approx(self.approx.as_deref().map(str::parse).transpose().map_err(raise)?)
            .certify(self.certify.as_deref().map(str::parse).transpose().map_err(raise)?.unwrap_or_default())
            .polish(self.polish)
            .budget(self.budget())
            .threads(self.threads())
            .seed(self.seed);
        if self.stops() {
            svm = svm.stop(self.stop());
        }
        if let Some(scheme) = self.scheme()? {
            svm = svm.multiclass(scheme);
        }
        if let Some(factors) = &self.class_weight {
            let given = factors.iter().enumerate().map(|(class, factor)| (Label::Number(class as f64), *factor));
            svm = svm.class_weight(ClassWeight::Given(given.collect()));
        }
        if let Some(gap) = self.aim_gap {
            svm = svm.aim_gap(gap);
        }
        if let Some(aim) = self.aim {
            svm = svm.aim(aim);
        }
        if let Some(rule) = &self.threshold {
            svm = svm.threshold(rule.parse().map_err(raise)?);
        }
        svm = svm.leave_one_out(self.leave_one_out);
        match &self.loss {
            None => {}
            Some(LossParam::Name(name)) => svm = svm.loss_spec(name.parse().map_err(raise)?),
            Some(LossParam::Own(object)) => {
                let loss = PyLoss::new(object.clone_ref(py), self.task()? == Task::Classify);
                svm = svm.loss(loss.build(py, targets, trouble)?);
            }
        }
        if let Some(nu) = self.nu {
            svm = svm.nu(nu).lower_nu(true);
        }
        if self.nu.is_none()
            && let (Some(epsilon), Some(_)) = (self.epsilon, self.spec()?.and_then(|spec| spec.epsilon()))
        {
            svm = svm.epsilon(epsilon);
        }
        if self.probability {
            svm = svm.probability(Probability::LeaveOneOut);
        }
        Ok(svm)
    }
}

/// Where to compute with these points, by the name of a device: points that live on a card stay there.
pub(crate) fn device(name: &str, points: &Points) -> PyResult<Device> {
    let name = margrave_cuda::choose_for(name.parse().map_err(raise)?, points).map_err(raise)?;
    let chosen = margrave_cuda::choose(name, points.len()).map_err(|error| raise(error.into()))?;
    Ok(chosen.device)
}
