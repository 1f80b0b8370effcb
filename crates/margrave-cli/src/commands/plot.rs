//! `margrave plot`: the predictions of a model over two features.

use std::path::{Path, PathBuf};

use clap::Args;
use margrave::engine::model::Scheme;
use margrave::{Budget, Kernel, Model};
use serde_json::json;

use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::models;
use crate::options::data::DataOptions;
use crate::options::table::UnknownOption;
use crate::outputs::{self, Input};
use crate::present::chart;
use crate::signal;
use crate::terminal::Terminal;
use margrave_plot::Plane;

const EXAMPLES: &str = "\
Examples:
  margrave plot moons.model moons.csv -o moons.svg             boundary, margins, samples
  margrave plot iris.model iris.csv -o iris.png --features petal_length,petal_width
  margrave plot heart.model heart.svm -o heart.svg --features 3,8   others at their mean";

/// Arguments of `plot`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Plot {
    /// Model file of Margrave, LIBSVM or LIBLINEAR
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    unknown: UnknownOption,
    /// Picture to write: .svg or .png
    #[arg(long, short, value_name = "FILE", help_heading = "Picture")]
    output: PathBuf,
    /// The two features to draw, by name or by number from 0; required if there are more than two
    #[arg(long, value_name = "A,B", help_heading = "Picture")]
    features: Option<String>,
}

impl Plot {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let extension = self.output.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        if extension != "svg" && extension != "png" {
            return Err(Failure::new(format!("-o {}: the name must end in .svg or .png", self.output.display())));
        }
        let [data, targets] = self.data.inputs();
        let inputs = [Input::new("MODEL", self.model.as_path()), data, targets];
        outputs::check(&inputs, &[("-o", Some(self.output.as_path()))])?;
        let model = models::load(&self.model, None)?;
        if *model.expansion.kernel() == Kernel::Precomputed {
            return Err(Failure::new("a model with a precomputed kernel has no features to draw"));
        }
        if model.scheme == Scheme::Outputs {
            let k = model.expansion.outputs();
            return Err(Failure::with_hint(
                format!("the model predicts {k} numbers and a picture shows one"),
                "train on one target with --target and draw that model",
            ));
        }
        let schema = margrave::io::model::schema(&model)?;
        let threads = common.threads();
        let loaded = self.data.load_new(schema.as_ref(), &self.unknown, threads.count())?;
        let names = schema.as_ref().and_then(|s| s.feature_names());
        let control = signal::start(&Budget::default(), threads)?;
        let chosen = self.choose(&model, names.as_deref())?;
        let title = self.model.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let plane = chart::plane(&model, &loaded.data, chosen, names.as_deref(), title, &control)?;
        save(&plane, &self.output)?;
        terminal.say(&format!("written to {}", self.output.display()))?;
        terminal.object(&json!({ "output": self.output.display().to_string(), "features": [chosen.0, chosen.1] }))?;
        Ok(Exit::Done)
    }

    /// The two features to draw.
    fn choose(&self, model: &Model, names: Option<&[String]>) -> Result<(usize, usize), Failure> {
        let d = model.expansion.width();
        let Some(text) = &self.features else {
            return match d {
                2 => Ok((0, 1)),
                _ => Err(Failure::with_hint(
                    format!("the model has {d} features and a picture shows two"),
                    "choose them with --features A,B, by name or by number from 0",
                )),
            };
        };
        let find = |part: &str| {
            let part = part.trim();
            let by_name = names.and_then(|names| names.iter().position(|name| name == part));
            let by_number = part.parse::<usize>().ok().filter(|at| *at < d);
            by_name.or(by_number).ok_or_else(|| {
                Failure::with_hint(
                    format!("--features {text}: there is no feature {part:?} (the model has {d})"),
                    "'margrave inspect MODEL --json' lists them",
                )
            })
        };
        match text.split(',').collect::<Vec<_>>().as_slice() {
            [a, b] => Ok((find(a)?, find(b)?)),
            _ => Err(Failure::new(format!("--features {text}: expected two, as in --features 0,1"))),
        }
    }
}

/// Writes a picture in the format of its file name.
pub(crate) fn save(plane: &Plane, path: &Path) -> Result<(), Failure> {
    let png = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("png"));
    let bytes = if png {
        plane.to_image().to_png().map_err(|e| Failure::new(format!("{}: {e}", path.display())))?
    } else {
        plane.to_svg().into_bytes()
    };
    margrave::io::write_atomic(path, |out| out.write_all(&bytes))?;
    Ok(())
}
