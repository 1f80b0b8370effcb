//! How a command ends: exit codes and what is said on the way.

use std::fmt::Display;

use margrave::conflict::{OptionName, Spelling};

/// The exit codes scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done as asked.
    Done,
    /// The answer is no.
    No,
    /// Bad usage or bad input; nothing was written.
    Bad,
    /// Not optimal (a budget ended it, it stalled, or the proof fell short); the best result so far was kept.
    Budget,
    /// Interrupted by Ctrl-C; the best result so far was kept.
    Interrupted,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::No => 1,
            Exit::Bad => 2,
            Exit::Budget => 3,
            Exit::Interrupted => 130,
        }
    }
}

impl From<margrave::Status> for Exit {
    fn from(status: margrave::Status) -> Self {
        use margrave::Status;
        match status {
            Status::Optimal => Exit::Done,
            Status::Interrupted => Exit::Interrupted,
            Status::TimeLimit | Status::IterationLimit | Status::Stalled | Status::Inaccurate => Exit::Budget,
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad usage or bad input.
    Bad {
        /// What is wrong: names file, line or option.
        message: String,
        /// What to do about it, where the message does not say so itself.
        hint: Option<String>,
    },
    /// Stopped before there was anything to keep.
    Stopped {
        /// By whom.
        why: margrave::Interrupt,
        /// What was stopped.
        message: String,
    },
    /// Whoever read our output has stopped reading, as `head` does: success.
    ClosedPipe,
}

impl Failure {
    pub(crate) fn new(message: impl Display) -> Self {
        Failure::Bad { message: message.to_string(), hint: None }
    }

    pub(crate) fn with_hint(message: impl Display, hint: impl Display) -> Self {
        Failure::Bad { message: message.to_string(), hint: Some(hint.to_string()) }
    }
}

/// Options as the program writes them: `--penalty l1`.
pub(crate) struct Flags;

impl Spelling for Flags {
    fn option(&self, option: OptionName, value: Option<&str>) -> String {
        let flag = match (option, value) {
            (OptionName::Bias, Some("false")) | (OptionName::Bias, None) => return "--no-bias".to_owned(),
            (OptionName::Cost, _) => "-C".to_owned(),
            (OptionName::Probability, Some(folds)) => return format!("--probability={folds}"),
            (other, _) => format!("--{}", other.name().replace('_', "-")),
        };
        match value {
            Some(value) => format!("{flag} {value}"),
            None => flag,
        }
    }
}

/// The option of the program that a range in the engine belongs to.
fn flag(option: &str) -> String {
    match option {
        "C" => "-C".to_owned(),
        "lambdas" => "--lambda".to_owned(),
        "max_iterations" => "--max-iter".to_owned(),
        other => format!("--{}", other.replace('_', "-")),
    }
}

impl From<margrave::Error> for Failure {
    fn from(error: margrave::Error) -> Self {
        match error {
            margrave::Error::Interrupted(why) => Failure::Stopped { why, message: error.text(&Flags) },
            margrave::Error::Option { option, value, allowed } => Failure::new(margrave::conflict::spell(
                &format!("{} {value} is not allowed: {allowed}", flag(option)),
                &Flags,
            )),
            other => Failure::new(other.text(&Flags)),
        }
    }
}

impl From<margrave::io::ReadError> for Failure {
    fn from(error: margrave::io::ReadError) -> Self {
        Failure::new(error.text(&Flags))
    }
}

/// The result of a command.
pub(crate) type Outcome = Result<Exit, Failure>;
