//! Options in messages, independent of how a front end spells them.
//!
//! The engine rejects some combinations of options, and its messages name them. The program writes `--penalty l1`, Python
//! `penalty="l1"`, Rust `.penalty(L1)`: so the engine uses [`OptionName`] and [`Setting`], and each front end has its own
//! [`Spelling`]. Inside a message an option is a placeholder that [`spell`] replaces.

use std::fmt;

/// An option of a training or of reading its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum OptionName {
    Anneal,
    Approx,
    Bias,
    BudgetVectors,
    Certify,
    ClassWeight,
    Compact,
    Cost,
    Dates,
    Device,
    Drop,
    Epsilon,
    Format,
    Gap,
    InterceptScaling,
    Kernel,
    Loss,
    Memory,
    Missing,
    Multiclass,
    Nu,
    Only,
    Ordinal,
    Penalty,
    Polish,
    Probability,
    ProbabilityRule,
    Resume,
    Scale,
    Score,
    Solver,
    Target,
    Task,
    Threshold,
    Tol,
    Unknown,
    Weights,
}

impl OptionName {
    /// Every option by its plain name.
    pub const ALL: [(&'static str, OptionName); 37] = [
        ("anneal", OptionName::Anneal),
        ("approx", OptionName::Approx),
        ("bias", OptionName::Bias),
        ("budget_vectors", OptionName::BudgetVectors),
        ("certify", OptionName::Certify),
        ("class_weight", OptionName::ClassWeight),
        ("compact", OptionName::Compact),
        ("cost", OptionName::Cost),
        ("dates", OptionName::Dates),
        ("device", OptionName::Device),
        ("drop", OptionName::Drop),
        ("epsilon", OptionName::Epsilon),
        ("format", OptionName::Format),
        ("gap", OptionName::Gap),
        ("intercept_scaling", OptionName::InterceptScaling),
        ("kernel", OptionName::Kernel),
        ("loss", OptionName::Loss),
        ("memory", OptionName::Memory),
        ("missing", OptionName::Missing),
        ("multiclass", OptionName::Multiclass),
        ("nu", OptionName::Nu),
        ("only", OptionName::Only),
        ("ordinal", OptionName::Ordinal),
        ("penalty", OptionName::Penalty),
        ("polish", OptionName::Polish),
        ("probability", OptionName::Probability),
        ("probability_rule", OptionName::ProbabilityRule),
        ("resume", OptionName::Resume),
        ("scale", OptionName::Scale),
        ("score", OptionName::Score),
        ("solver", OptionName::Solver),
        ("target", OptionName::Target),
        ("task", OptionName::Task),
        ("threshold", OptionName::Threshold),
        ("tol", OptionName::Tol),
        ("unknown", OptionName::Unknown),
        ("weights", OptionName::Weights),
    ];

    /// Its plain name, words joined by `_`.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, option)| *option == self).map_or("", |(name, _)| name)
    }

    /// With a value: `penalty = l1`.
    pub fn at(self, value: &'static str) -> Setting {
        Setting { option: self, value: Some(value) }
    }
}

/// An option, with a value where one matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The option.
    pub option: OptionName,
    /// Its value.
    pub value: Option<&'static str>,
}

impl From<OptionName> for Setting {
    fn from(option: OptionName) -> Self {
        Setting { option, value: None }
    }
}

const OPEN: char = '⟦';
const CLOSE: char = '⟧';

/// The placeholder that [`spell`] replaces.
impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Setting::from(*self))
    }
}

/// The placeholder that [`spell`] replaces.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{OPEN}{}={value}{CLOSE}", self.option.name()),
            None => write!(f, "{OPEN}{}{CLOSE}", self.option.name()),
        }
    }
}

/// How a front end writes options.
pub trait Spelling {
    /// An option, and its value if there is one: `--penalty l1`.
    fn option(&self, option: OptionName, value: Option<&str>) -> String;
}

/// As the methods of a builder in Rust: `.penalty(l1)`.
#[derive(Debug, Clone, Copy)]
pub struct InRust;

impl Spelling for InRust {
    fn option(&self, option: OptionName, value: Option<&str>) -> String {
        let method = match option {
            OptionName::Resume => "start",
            other => other.name(),
        };
        format!(".{method}({})", value.unwrap_or("…"))
    }
}

/// A message with every placeholder replaced.
pub fn spell(message: &str, spelling: &dyn Spelling) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(OPEN) {
        out.push_str(before);
        let Some((mark, tail)) = after.split_once(CLOSE) else {
            out.push(OPEN);
            rest = after;
            continue;
        };
        let (name, value) = mark.split_once('=').map_or((mark, None), |(name, value)| (name, Some(value)));
        match OptionName::ALL.into_iter().find(|(known, _)| *known == name) {
            Some((_, option)) => out.push_str(&spelling.option(option, value)),
            None => out.push_str(mark),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// What an option cannot be combined with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum With {
    /// Another option.
    Setting(Setting),
    /// Several targets; their number.
    Targets(usize),
    /// More than two classes.
    SeveralClasses,
    /// A kernel, solver or formulation that is not a linear machine with a cost C.
    NotLinear,
    /// A convex loss.
    ConvexLoss,
    /// A loss that is not convex.
    NonConvexLoss,
    /// The solvers of the papers, `smo` and `svmtorch`.
    Textbook,
    /// Rows that are read in blocks because they do not fit in memory.
    Blocks,
    /// A search over a grid.
    Tuning,
    /// A machine that is trained on all rows.
    AllRows,
}

impl fmt::Display for With {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            With::Setting(setting) => write!(f, "{setting}"),
            With::Targets(k) => write!(f, "{k} targets"),
            With::SeveralClasses => f.write_str("more than two classes"),
            With::NotLinear => f.write_str("this kernel, solver or formulation"),
            With::ConvexLoss => f.write_str("a convex loss"),
            With::NonConvexLoss => f.write_str("a loss that is not convex"),
            With::Textbook => f.write_str("the textbook solvers"),
            With::Blocks => f.write_str("rows that are read in blocks"),
            With::Tuning => f.write_str("tuning"),
            With::AllRows => f.write_str("a machine on all rows"),
        }
    }
}

/// What to do about a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Leave this out.
    LeaveOut(OptionName),
    /// Leave out either.
    LeaveOutOne(OptionName, OptionName),
    /// Use this, or all of these together.
    Use(Vec<Setting>),
    /// Raise the value of this.
    Raise(OptionName),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::LeaveOut(option) => write!(f, "leave out {option}"),
            Remedy::LeaveOutOne(a, b) => write!(f, "leave out {a} or {b}"),
            Remedy::Raise(option) => write!(f, "raise {option}"),
            Remedy::Use(settings) => {
                let all: Vec<String> = settings.iter().map(ToString::to_string).collect();
                write!(f, "use {}", all.join(" and "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shout;

    impl Spelling for Shout {
        fn option(&self, option: OptionName, value: Option<&str>) -> String {
            format!("{}:{}", option.name().to_uppercase(), value.unwrap_or("-"))
        }
    }

    #[test]
    fn marks_are_spelled_by_the_front_end() {
        let message =
            format!("{} and {}: raise {}", OptionName::Penalty.at("l1"), With::Targets(2), OptionName::Memory);
        assert_eq!(spell(&message, &Shout), "PENALTY:l1 and 2 targets: raise MEMORY:-");
        assert_eq!(spell(&message, &InRust), ".penalty(l1) and 2 targets: raise .memory(…)");
        // Text that only looks like a placeholder stays as it is.
        assert_eq!(spell("a ⟦b⟧ c ⟦d", &Shout), "a b c ⟦d");
    }

    #[test]
    fn every_option_has_one_name() {
        for (name, option) in OptionName::ALL {
            assert_eq!(option.name(), name);
        }
    }
}
