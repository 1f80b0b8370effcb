//! The command line as a whole.

use clap::{Args, Parser, Subcommand};
use margrave::control::Threads;

use crate::commands::{
    check, completions, convert, demo, inspect, losses, path, plot, predict, scale, train, tune, verify,
};

const ABOUT: &str = "Kernel machines for any loss, with a proof of optimality on every fit";

const EXAMPLES: &str = "\
Examples:
  margrave demo                                     what it does, on embedded data
  margrave train heart.svm -o heart.model           train, certify, write the model
  margrave predict heart.model new.svm -o out.csv   predict
  margrave verify heart.model heart.svm             prove it again, from nothing
  margrave tune heart.svm -o heart.model            the best C and γ by cross validation
  margrave plot moons.model moons.csv -o moons.svg  boundary, margins, support vectors
  margrave check kernel heart.svm --kernel sigmoid  is this Gram matrix positive semi-definite?
  margrave path housing.csv --plot path.svg         every λ of ridge regression from one decomposition
  margrave losses                                   the losses, and what each promises
  margrave completions bash                         shell completions

Exit codes: 0 done, 1 the answer is no, 2 bad usage or input, 3 out of budget, 130 interrupted.
'margrave COMMAND --help' explains a command.";

/// The program's arguments.
#[derive(Debug, Parser)]
#[command(name = "margrave", version, about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// Print one JSON object on stdout, and nothing else there
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No notes and no progress on stderr
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Threads to use; 0: all cores. Results do not depend on it
    #[arg(long, global = true, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    threads: u16,
    /// Seed of everything random
    #[arg(long, global = true, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

impl Common {
    pub(crate) fn threads(&self) -> Threads {
        Threads::new(usize::from(self.threads))
    }
}

/// Arguments that another program understands.
#[derive(Debug, Args)]
pub(crate) struct Passed {
    /// As that program takes them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<String>,
}

/// The commands, one file each.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a machine, certify it and write the model
    Train(Box<train::Train>),
    /// Predict with a model
    Predict(predict::Predict),
    /// Prove how far a model is from optimal, believing nothing it says
    Verify(verify::Verify),
    /// Show what a model file holds
    Inspect(inspect::Inspect),
    /// Write a model in another format
    Convert(convert::Convert),
    /// Scale the features of a data file
    Scale(scale::Scale),
    /// Check a property of data or kernels
    #[command(subcommand)]
    Check(check::Check),
    /// The main job on embedded data, step by step
    Demo(demo::Demo),
    /// List the losses, and which conditions each meets
    Losses(losses::Losses),
    /// Find the best of a grid by cross validation, and train it
    Tune(Box<tune::Tune>),
    /// Draw boundary, margins and support vectors over two features
    Plot(plot::Plot),
    /// Regularised least squares for every λ at once, with leave-one-out errors
    Path(path::Path),
    /// Train as LIBSVM's svm-train does: its options, files and output
    #[command(name = "svm-train", disable_help_flag = true)]
    SvmTrain(Passed),
    /// Predict as LIBSVM's svm-predict does
    #[command(name = "svm-predict", disable_help_flag = true)]
    SvmPredict(Passed),
    /// Scale as LIBSVM's svm-scale does
    #[command(name = "svm-scale", disable_help_flag = true)]
    SvmScale(Passed),
    /// Print shell completions
    Completions(completions::Completions),
    /// Write the manual pages into a folder
    #[cfg(feature = "man")]
    #[command(hide = true)]
    Man(super::commands::man::Man),
}
