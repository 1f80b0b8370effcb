//! How options become a training: which data is read, which files are written, and the builder.

use std::path::{Path, PathBuf};

use margrave::engine::problem::{Penalty, Task};
use margrave::io::{Loaded, StreamedRows};
use margrave::{Cancel, Device, SolverName, Svm, Targets, Threads};

use super::Train;
use crate::failure::Failure;
use crate::options::data::DataOptions;
use crate::options::kernel::{KernelName, KernelOptions};
use crate::options::train::{ModelOptions, SolverOptions};
use crate::outputs::{self, Input};

/// Models on few centres are trained on rows read in blocks where the file is larger than the memory over this.
const ROWS_SHARE: u64 = 8;

impl Train {
    /// Where the model goes: `heart.svm.gz` becomes `heart.model`, in this folder.
    pub(super) fn output_path(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = &self.output {
            return Ok(path.clone());
        }
        if self.data.name() == "-" {
            return Err(Failure::new("the data comes from stdin: name the model with -o MODEL"));
        }
        let name = self.data.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
        Ok(PathBuf::from(format!("{stem}.model")))
    }

    /// Fails for outputs that must not or cannot be written, and for options that exclude each other.
    pub(super) fn check(&self, output: &Path) -> Result<(), Failure> {
        if self.settings.svdd && self.kernel.is_precomputed() {
            return Err(Failure::with_hint(
                "--svdd with a precomputed kernel cannot predict: the distance to the centre needs k(x, x) of new points",
                "leave --svdd out: the one-class model only needs rows of the matrix",
            ));
        }
        let [data, targets] = self.data.inputs();
        let resume = Input::new("--resume", self.resume.as_deref()).in_place("-o");
        let outputs = [("-o", Some(output)), ("--trace", self.trace.as_deref()), ("--report", self.report.as_deref())];
        outputs::check(&[data, targets, resume], &outputs)
    }

    /// The data; also its rows in a temporary file beside the output, where it does not fit into memory.
    pub(super) fn load(&self, output: &Path, threads: usize) -> Result<(Loaded, Option<StreamedRows>), Failure> {
        if let Some((loaded, rows)) = self.stream(output, threads)? {
            return Ok((loaded, Some(rows)));
        }
        let loaded = if self.kernel.is_precomputed() && self.settings.task == Some(Task::Novelty) {
            self.data.load_matrix(&self.table, threads)?
        } else {
            self.data.load_table(&self.table, self.solver.memory(), threads)?
        };
        Ok((loaded, None))
    }

    /// Rows read in blocks, where a linear model, or one on few centres, is trained on a file too large for the memory it
    /// may take.
    fn stream(&self, output: &Path, threads: usize) -> Result<Option<(Loaded, StreamedRows)>, Failure> {
        let possible = self.settings.nu.is_none()
            && self.settings.task != Some(Task::Novelty)
            && self.settings.probability.is_none()
            && self.settings.threshold.is_none()
            && self.settings.penalty == Penalty::L2
            && self.settings.multiclass.is_none()
            && self.resume.is_none()
            && self.report.is_none();
        let linear = self.kernel.kernel == KernelName::Linear
            && matches!(self.solver.solver, SolverName::Auto | SolverName::Linear)
            && self.settings.scale.0.is_none();
        let centres = !self.kernel.is_precomputed()
            && (self.approx.approx.is_some() || self.solver.solver == SolverName::Nystrom)
            && !self.approx.polish
            && self.approx.budget_vectors.is_none();
        let memory = self.solver.memory();
        let limit = match (linear, centres) {
            (true, _) => memory,
            // Features share the memory with the rows.
            (_, true) => memory / ROWS_SHARE,
            _ => return Ok(None),
        };
        if !possible {
            return Ok(None);
        }
        let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.data.stream(&self.table, limit, memory, folder, threads)
    }
}

/// The options of a training, as `train` and `tune` have them.
pub(crate) struct Training<'a> {
    pub(crate) data: &'a DataOptions,
    pub(crate) settings: &'a ModelOptions,
    pub(crate) kernel: &'a KernelOptions,
    pub(crate) solver: &'a SolverOptions,
    pub(crate) seed: u64,
}

impl Training<'_> {
    /// The builder they describe, for this data.
    pub(crate) fn svm(&self, loaded: &Loaded, threads: Threads, device: Device, flag: Cancel) -> Result<Svm, Failure> {
        let task = self.task(loaded)?;
        let mut svm = Svm::of(task)
            .bias(!self.settings.no_bias)
            .svdd(self.settings.svdd)
            .penalty(self.settings.penalty)
            .intercept_scaling(self.settings.intercept_scaling)
            .scale(self.settings.scale.0)
            .solver(self.solver.solver)
            .anneal(self.solver.anneal)
            .compact(self.solver.compact)
            .budget(self.solver.budget())
            .threads(threads)
            .device(device)
            .seed(self.seed)
            .cancel(flag)
            .schema(&loaded.schema)?;
        if let Some(stop) = self.solver.stop() {
            svm = svm.stop(stop);
        }
        svm = self.kernel.choose(svm);
        if let Some(scheme) = self.settings.multiclass {
            svm = svm.multiclass(scheme);
        }
        svm = match self.settings.lambda {
            Some(lambda) => svm.lambda(lambda),
            None => svm.cost(self.settings.cost),
        };
        if let Some(loss) = self.settings.loss {
            svm = svm.loss_spec(loss);
        }
        if let Some(epsilon) = self.settings.epsilon {
            svm = svm.epsilon(epsilon);
        }
        if let Some(nu) = self.settings.nu {
            svm = svm.nu(nu);
        }
        if let Some(from) = self.settings.probability {
            svm = svm.probability(from).probability_rule(self.settings.probability_rule.unwrap_or_default());
        }
        if let Some(rule) = self.settings.threshold {
            svm = svm.threshold(rule);
        }
        if let Some(weight) = &self.settings.class_weight {
            if task != Task::Classify {
                return Err(Failure::new(format!("--class-weight is for classification; the task is {task}")));
            }
            svm = svm.class_weight(weight.clone());
        }
        Ok(svm)
    }

    /// The task that is given, or classification if the target can be class labels.
    fn task(&self, loaded: &Loaded) -> Result<Task, Failure> {
        if let Some(task) = self.settings.task {
            return Ok(task);
        }
        match &loaded.data.targets {
            Targets::None => Err(Failure::with_hint(
                format!("{} has no target", self.data.name()),
                "name a column with --target, or use --task novelty, which needs no target",
            )),
            Targets::Several { outputs, .. } => Err(Failure::with_hint(
                format!("{} has {outputs} targets, and classification needs one", self.data.name()),
                "add --task regress, or choose one column with --target",
            )),
            targets if !targets.looks_like_classes() => Err(Failure::with_hint(
                format!("the target of {} has fractions, so it cannot be class labels", self.data.name()),
                "add --task regress, or choose another column with --target",
            )),
            _ => Ok(Task::Classify),
        }
    }
}
