//! The commands, one module each.

pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod inspect;
pub(crate) mod losses;
#[cfg(feature = "man")]
pub(crate) mod man;
pub(crate) mod path;
pub(crate) mod plot;
pub(crate) mod predict;
pub(crate) mod scale;
pub(crate) mod studio;
pub(crate) mod train;
pub(crate) mod tune;
pub(crate) mod verify;

use crate::cli::{Cli, Command};
use crate::failure::Outcome;
use crate::libsvm::{self, Tool};
use crate::terminal::Terminal;

/// Runs the command of the command line.
pub(crate) fn run(cli: Cli, terminal: &Terminal) -> Outcome {
    match cli.command {
        Command::Train(train) => train.run(&cli.common, terminal),
        Command::Predict(predict) => predict.run(&cli.common, terminal),
        Command::Verify(verify) => verify.run(&cli.common, terminal),
        Command::Compare(compare) => compare.run(&cli.common, terminal),
        Command::Inspect(inspect) => inspect.run(terminal),
        Command::Convert(convert) => convert.run(terminal),
        Command::Scale(scale) => scale.run(&cli.common, terminal),
        Command::Check(check) => check.run(&cli.common, terminal),
        Command::Devices(devices) => devices.run(&cli.common, terminal),
        Command::Demo(demo) => demo.run(&cli.common, terminal),
        Command::Losses(losses) => losses.run(terminal),
        Command::Tune(tune) => tune.run(&cli.common, terminal),
        Command::Plot(plot) => plot.run(&cli.common, terminal),
        Command::Path(path) => path.run(&cli.common, terminal),
        Command::Studio(studio) => studio.run(&cli.common, terminal),
        Command::SvmTrain(passed) => Ok(libsvm::run(Tool::Train, &passed.arguments)),
        Command::SvmPredict(passed) => Ok(libsvm::run(Tool::Predict, &passed.arguments)),
        Command::SvmScale(passed) => Ok(libsvm::run(Tool::Scale, &passed.arguments)),
        Command::LiblinearTrain(passed) => Ok(libsvm::run(Tool::LinearTrain, &passed.arguments)),
        Command::LiblinearPredict(passed) => Ok(libsvm::run(Tool::LinearPredict, &passed.arguments)),
        Command::Completions(completions) => completions.run(terminal),
        #[cfg(feature = "man")]
        Command::Man(man) => man.run(terminal),
    }
}
