//! The command line as a whole.

use clap::{Args, Parser, Subcommand};
use margrave::engine::control::Threads;

use crate::commands::{
    check, compare, completions, convert, demo, devices, inspect, losses, path, plot, predict, scale, studio, train,
    tune, verify,
};

const ABOUT: &str = "Kernel machines for any loss, with a proof of optimality on every fit";

const EXAMPLES: &str = "\
Examples:
  margrave demo                                     a tour on embedded data
  margrave train heart.svm -o heart.model           train, certify, write the model
  margrave predict heart.model new.svm -o out.csv   predict
  margrave verify heart.model heart.svm             compute the certificate again
  margrave tune heart.svm -o heart.model            the best C and γ by cross-validation
  margrave compare a.model b.model test.csv         which is better, and is it chance?
  margrave plot moons.model moons.csv -o moons.svg  boundary, margins, support vectors
  margrave check kernel heart.svm --kernel sigmoid  is this Gram matrix positive semi-definite?
  margrave path housing.csv --plot path.svg         ridge regression for many values of λ
  margrave losses                                   the losses and their properties
  margrave devices                                  what can compute here
  margrave studio heart.svm                         see and steer trainings in the browser
  margrave completions bash                         shell completions

Exit codes: 0 done, 1 the answer is no, 2 bad usage or input, 3 not optimal, 130 interrupted.
'margrave COMMAND --help' shows the options of a command.";

/// The program's arguments.
#[derive(Debug, Parser)]
#[command(name = "margrave", version, about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// Print the result as one JSON object on stdout
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no notes and no progress on stderr
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Number of threads; 0 uses all cores. Results do not depend on it
    #[arg(long, global = true, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    threads: u16,
    /// Seed of all random numbers
    #[arg(long, global = true, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

impl Common {
    pub(crate) fn threads(&self) -> Threads {
        Threads::new(usize::from(self.threads))
    }
}

/// Arguments of one of LIBSVM's tools.
#[derive(Debug, Args)]
pub(crate) struct Passed {
    /// Arguments as LIBSVM's tool takes them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<String>,
}

/// The commands, one file each.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model, certify it and write it to a file
    Train(Box<train::Train>),
    /// Predict with a model
    Predict(predict::Predict),
    /// Prove how far a model is from optimal, from the model and the data alone
    Verify(verify::Verify),
    /// Compare two models on the same data, with a paired test
    Compare(compare::Compare),
    /// Show the contents of a model file
    Inspect(inspect::Inspect),
    /// Write a model in another format
    Convert(convert::Convert),
    /// Scale the features of a data file
    Scale(scale::Scale),
    /// Check a property of data or kernels
    #[command(subcommand)]
    Check(check::Check),
    /// Train, certify and compare models on embedded data
    Demo(demo::Demo),
    /// List what can compute here, and why not
    Devices(devices::Devices),
    /// List the losses and their properties
    Losses(losses::Losses),
    /// Search a grid of parameters by cross-validation and train the best
    Tune(Box<tune::Tune>),
    /// Draw decision boundary, margins and support vectors over two features
    Plot(plot::Plot),
    /// Regularised least squares for many values of λ, with leave-one-out errors
    Path(path::Path),
    /// See and steer trainings on a page in the browser
    Studio(studio::Studio),
    /// Train like LIBSVM's svm-train, with its options, files and output
    #[command(name = "svm-train", disable_help_flag = true)]
    SvmTrain(Passed),
    /// Predict like LIBSVM's svm-predict
    #[command(name = "svm-predict", disable_help_flag = true)]
    SvmPredict(Passed),
    /// Scale like LIBSVM's svm-scale
    #[command(name = "svm-scale", disable_help_flag = true)]
    SvmScale(Passed),
    /// Train like LIBLINEAR's train, with its options and files
    #[command(name = "liblinear-train", disable_help_flag = true)]
    LiblinearTrain(Passed),
    /// Predict like LIBLINEAR's predict
    #[command(name = "liblinear-predict", disable_help_flag = true)]
    LiblinearPredict(Passed),
    /// Print shell completions
    Completions(completions::Completions),
    /// Write the manual pages to a folder
    #[cfg(feature = "man")]
    #[command(hide = true)]
    Man(super::commands::man::Man),
}
