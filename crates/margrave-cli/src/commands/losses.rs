//! `margrave losses`: the library of losses, and which of the three conditions each meets.

use clap::Args;
use margrave::loss::{LossInfo, LossSpec};
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::format;
use crate::terminal::{Style, Terminal};

const EXAMPLES: &str = "\
Examples:
  margrave losses                  all of them
  margrave losses huber            one of them
  margrave losses huber:delta=0.5  with a parameter of your own
  margrave losses --json";

const CONDITIONS: &str = "\
bounded  the slope stays bounded: no single sample can rule the answer
at 0     a margin loss keeps a slope > 0 as its slack falls to 0
convex   every stationary point is the best one, and a duality gap proves it
";

/// Arguments of `losses`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Losses {
    /// One loss, with parameters if wanted: name or name:key=value,…
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl Losses {
    pub(crate) fn run(self, terminal: &Terminal) -> Outcome {
        match self.name {
            None => all(terminal),
            Some(name) => one(&name, terminal),
        }
    }
}

fn tasks(info: &LossInfo) -> &'static str {
    match (info.classification, info.regression) {
        (true, true) => "classify, regress",
        (true, false) => "classify",
        _ => "regress",
    }
}

fn object(info: &LossInfo) -> Result<Value, Failure> {
    let properties = info.spec.build()?.properties();
    let parameters: Map<String, Value> =
        info.spec.parameters().into_iter().map(|(k, v)| (k.into(), v.into())).collect();
    Ok(json!({
        "name": info.spec.name(),
        "parameters": parameters,
        "formula": info.about,
        "classification": info.classification,
        "regression": info.regression,
        "slope_bounded": properties.slope_bounded,
        "slope_at_zero": properties.slope_at_zero,
        "convex": properties.convex,
        "majorised": properties.majorised,
    }))
}

fn all(terminal: &Terminal) -> Outcome {
    let list = LossSpec::all();
    let names: Vec<String> = list.iter().map(|info| info.spec.to_string()).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (title, classification) in [("Classification, u = 1 − y·z", true), ("Regression, r = y − z", false)] {
        text += &format!(
            "{}{}  bounded  at 0  convex\n",
            terminal.paint(Style::Strong, title),
            " ".repeat((width + 2).saturating_sub(title.chars().count()))
        );
        for (info, name) in list.iter().zip(&names) {
            if if classification { !info.classification } else { !info.regression } {
                continue;
            }
            let p = info.spec.build()?.properties();
            let mark = |yes: bool| if yes { "yes" } else { " – " };
            let at_zero = if classification { mark(p.slope_at_zero) } else { "   " };
            text += &format!(
                "  {name:<width$}  {}      {at_zero}   {}     {}\n",
                mark(p.slope_bounded),
                mark(p.convex),
                terminal.paint(Style::Faint, info.about)
            );
        }
        text.push('\n');
    }
    terminal.say(&(text + CONDITIONS))?;
    let objects = list.iter().map(object).collect::<Result<Vec<_>, _>>()?;
    terminal.object(&json!({ "losses": objects }))?;
    Ok(Exit::Done)
}

fn one(name: &str, terminal: &Terminal) -> Outcome {
    let spec: LossSpec = name.parse()?;
    let info = LossInfo { spec, ..spec.info() };
    let loss = spec.build()?;
    let p = loss.properties();
    let say = |yes: bool, then: &str, otherwise: &str| if yes { then.to_owned() } else { otherwise.to_owned() };
    let mut rows = vec![
        ("formula", info.about.to_owned()),
        ("for", tasks(&info).to_owned()),
        ("slope", say(p.slope_bounded, "bounded: no single sample can rule the answer", "unbounded")),
        ("convex", say(p.convex, "yes: the optimum is global and certified", "no: stationary points only, no gap")),
    ];
    if p.classification {
        rows.push((
            "slope at 0",
            say(p.slope_at_zero, "stays > 0 as the slack falls to 0", "fades out as the slack falls to 0"),
        ));
    }
    let solvers = if loss.dual(1.0, 1.0).is_some() { "decomposition" } else { "irwls (not built yet)" };
    rows.push(("solvers", solvers.to_owned()));
    terminal.say(&format!(
        "{}\n{}",
        terminal.paint(Style::Strong, &spec.to_string()),
        format::table(terminal, &rows)
    ))?;
    terminal.object(&object(&info)?)?;
    Ok(Exit::Done)
}
