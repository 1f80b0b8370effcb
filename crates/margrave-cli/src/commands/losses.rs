//! `margrave losses`: the losses and their properties.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use margrave::loss::{LossInfo, LossSpec};
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::outputs;
use crate::terminal::{Style, Terminal};
use margrave_plot::{Axis, Figure, Panel, Scale, Series};

const EXAMPLES: &str = "\
Examples:
  margrave losses                              list all losses
  margrave losses huber                        show one loss
  margrave losses huber:delta=0.5              with this parameter
  margrave losses sigmoid --plot sigmoid.svg   draw value, slope and IRWLS weight
  margrave losses --plot losses.svg            draw all losses
  margrave losses --json";

const CONDITIONS: &str = "\
bounded  the slope is bounded: a single sample has limited influence
at 0     the slope of a margin loss stays > 0 as its slack falls to 0
convex   every stationary point is optimal, and a duality gap proves it
";

/// Arguments of `losses`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Losses {
    /// Show one loss: NAME or NAME:key=value,…
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Draw value, slope and IRWLS weight of the loss, or of all losses
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Losses {
    pub(crate) fn run(self, terminal: &Terminal) -> Outcome {
        if let Some(file) = &self.plot {
            if file.extension().is_none_or(|e| !e.eq_ignore_ascii_case("svg")) {
                return Err(Failure::new(format!("--plot {}: the name must end in .svg", file.display())));
            }
            outputs::check(&[], &[("--plot", Some(file.as_path()))])?;
            let specs = match &self.name {
                None => LossSpec::all().map(|info| info.spec).to_vec(),
                Some(name) => vec![name.parse()?],
            };
            let picture = draw(&specs)?.svg();
            margrave::io::write_atomic(file, |w: &mut dyn Write| w.write_all(picture.as_bytes()))?;
        }
        let done = match &self.name {
            None => all(terminal),
            Some(name) => one(name, terminal),
        };
        if let Some(file) = &self.plot {
            terminal.say(&format!("plot written to {}\n", file.display()))?;
        }
        done
    }
}

/// Value, slope and weight of each loss for a sample with y = 1 (classification) or y = 0 (regression), by the score.
fn draw(specs: &[LossSpec]) -> Result<Figure, Failure> {
    /// Larger values are not drawn: the weight at a corner of the loss is K.
    const TOP: f64 = 6.0;
    let mut panels = Vec::new();
    let title = match specs {
        [one] => one.to_string(),
        _ => "Losses".to_owned(),
    };
    for (classification, y, label) in [(true, 1.0, "score z, label y = 1"), (false, 0.0, "score z, target y = 0")] {
        let mut lines = [Vec::new(), Vec::new(), Vec::new()];
        for spec in specs {
            let loss = spec.build()?;
            if loss.properties().classification != classification {
                continue;
            }
            let scores = || (0..=600).map(|i| -3.0 + f64::from(i) * 0.01 + 1e-9);
            let short = if specs.len() == 1 { spec.to_string() } else { spec.name().to_owned() };
            let mut add = |panel: usize, of: &dyn Fn(f64) -> f64| {
                let shown = |v: f64| if v.abs() <= TOP { v } else { f64::NAN };
                let points = scores().map(|z| (z, shown(of(z)))).collect();
                lines[panel].push(Series::line(short.clone(), points));
            };
            add(0, &|z| loss.value(y, z));
            add(1, &|z| loss.slope(y, z));
            add(2, &|z| loss.reweight(y, z, 1e8).weight);
        }
        for (series, name) in lines.into_iter().zip(["loss", "slope", "IRWLS weight"]) {
            // The legend has room for four names; more losses take more panels.
            for part in series.chunks(4) {
                panels.push(Panel {
                    x: Axis::new(label, Scale::Linear),
                    y: Axis::new(name, Scale::Linear),
                    height: 170.0,
                    series: part.to_vec(),
                    marks: vec![],
                });
            }
        }
    }
    Ok(Figure { title, panels })
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
    let either = |yes: bool, then: &str, otherwise: &str| if yes { then.to_owned() } else { otherwise.to_owned() };
    let mut rows = vec![
        ("formula", info.about.to_owned()),
        ("for", tasks(&info).to_owned()),
        ("slope", either(p.slope_bounded, "bounded: a single sample has limited influence", "unbounded")),
        (
            "convex",
            either(
                p.convex,
                "yes: the optimum is global and is certified",
                "no: stationary points only, without a gap",
            ),
        ),
    ];
    if p.classification {
        rows.push((
            "slope at 0",
            either(p.slope_at_zero, "stays > 0 as the slack falls to 0", "falls to 0 with the slack"),
        ));
    }
    let solvers = match (spec, loss.dual(1.0, 1.0).is_some(), p.convex) {
        (LossSpec::Square, _, _) => "ridge, decomposition, irwls",
        (_, true, _) => "decomposition, irwls",
        (_, false, true) => "irwls",
        (_, false, false) => "irwls, from a convex start",
    };
    rows.push(("solvers", solvers.to_owned()));
    terminal.say(&terminal.summary(Style::Strong, &spec.to_string(), &rows))?;
    terminal.object(&object(&info)?)?;
    Ok(Exit::Done)
}
