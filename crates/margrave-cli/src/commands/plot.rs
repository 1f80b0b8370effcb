//! `margrave plot`: the decision of a model over two features.

use std::path::{Path, PathBuf};

use clap::Args;
use margrave::data::{Csr, Label, Points};
use margrave::gram::Precision;
use margrave::model::{Prediction, Scheme};
use margrave::problem::Task;
use margrave::{Budget, Dataset, Kernel, Model};
use serde_json::json;

use crate::cli::Common;
use crate::failure::{Exit, Failure, Outcome};
use crate::models;
use crate::options::data::DataOptions;
use crate::outputs::{self, Input};
use crate::signal;
use crate::terminal::Terminal;
use margrave_plot::{Dot, Field, Plane};

const EXAMPLES: &str = "\
Examples:
  margrave plot moons.model moons.csv -o moons.svg             boundary, margins, samples, support vectors
  margrave plot iris.model iris.csv -o iris.png --features petal_length,petal_width
  margrave plot heart.model heart.svm -o heart.svg --features 3,8   by number, from 0; the others at their mean";

/// Columns and rows that are computed, and the fewest for models with very many features.
const SIZE: (usize, usize) = (155, 115);
const COARSE: (usize, usize) = (31, 23);

/// Values in all points of a picture, more than which make it coarser; and in those computed at a time.
const VALUES: usize = 200_000_000;
const AT_ONCE: usize = 1 << 22;

/// More features than this are not drawn: a point of the picture has a value of each.
const WIDEST: usize = 1 << 20;

/// Columns and rows of a picture whose points have `d` values each.
fn size(d: usize) -> (usize, usize) {
    let share = (VALUES as f64 / (SIZE.0 * SIZE.1 * d.max(1)) as f64).sqrt().min(1.0);
    let side = |full: usize, least: usize| ((full as f64 * share) as usize).max(least);
    (side(SIZE.0, COARSE.0), side(SIZE.1, COARSE.1))
}

/// Arguments of `plot`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Plot {
    /// Model file: ours, LIBSVM's or LIBLINEAR's
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    /// Picture to write: .svg or .png
    #[arg(long, short, value_name = "FILE", help_heading = "Picture")]
    output: PathBuf,
    /// The two features to draw, by name or by number from 0; needed if there are more than two
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
                "train one at a time with --target, and draw that",
            ));
        }
        let schema = margrave::io::model::schema(&model)?;
        let threads = common.threads();
        let loaded = self.data.load_like(schema.as_ref(), threads.count())?;
        let names = schema.as_ref().and_then(|s| s.feature_names());
        let control = signal::start(&Budget::default(), threads)?;
        let chosen = self.choose(&model, names.as_deref())?;
        let title = self.model.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let plane = plane(&model, &loaded.data, chosen, names.as_deref(), title, &control)?;
        save(&plane, &self.output)?;
        terminal.say(&format!("written to {}", self.output.display()))?;
        terminal.object(&json!({ "output": self.output.display().to_string(), "features": [chosen.0, chosen.1] }))?;
        Ok(Exit::Done)
    }

    /// The two columns.
    fn choose(&self, model: &Model, names: Option<&[String]>) -> Result<(usize, usize), Failure> {
        let d = model.expansion.width();
        let Some(text) = &self.features else {
            return match d {
                2 => Ok((0, 1)),
                _ => Err(Failure::with_hint(
                    format!("the model has {d} features and a picture has two"),
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
                    format!("--features {text}: there is no feature {part:?} among {d}"),
                    "'margrave inspect MODEL' lists them",
                )
            })
        };
        match text.split(',').collect::<Vec<_>>().as_slice() {
            [a, b] => Ok((find(a)?, find(b)?)),
            _ => Err(Failure::new(format!("--features {text}: expected two, as in --features 0,1"))),
        }
    }
}

/// Writes a picture as its name says.
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

/// What the model says over two features, the others at their mean.
pub(crate) fn plane(
    model: &Model,
    data: &Dataset,
    (a, b): (usize, usize),
    names: Option<&[String]>,
    title: String,
    control: &margrave::Control,
) -> Result<Plane, Failure> {
    let d = model.expansion.width();
    if d > WIDEST {
        return Err(Failure::with_hint(
            format!("the model has {d} features, and pictures are drawn of at most {WIDEST}"),
            "train on the two features to be drawn",
        ));
    }
    let n = data.len();
    let mut mean = vec![0.0; d];
    let mut at = Vec::with_capacity(n);
    let mut row = vec![0.0; data.points.dims().max(d)];
    for i in 0..n {
        data.points.copy_row(i, &mut row[..data.points.dims()]);
        mean.iter_mut().zip(&row).for_each(|(m, v)| *m += v / n.max(1) as f64);
        at.push((row[a], row[b]));
    }
    let span = |of: fn(&(f64, f64)) -> f64| {
        let (low, high) = at.iter().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if !(low <= high) {
            return (0.0, 1.0);
        }
        let edge = if high > low { 0.06 * (high - low) } else { 0.5 };
        (low - edge, high + edge)
    };
    let (x, y) = (span(|p| p.0), span(|p| p.1));
    let columns: Vec<usize> = match data.points.is_sparse() {
        true => (0..d).filter(|&k| mean[k] != 0.0 || k == a || k == b).collect(),
        false => (0..d).collect(),
    };
    let (w, h) = size(columns.len());
    let places: Vec<usize> = (0..w * h).collect();
    let mut scores = Vec::with_capacity(w * h * model.expansion.outputs());
    for part in places.chunks((AT_ONCE / columns.len().max(1)).max(1)) {
        let mut values = Vec::with_capacity(part.len() * columns.len());
        for place in part {
            let across = x.0 + (x.1 - x.0) * ((place % w) as f64 + 0.5) / w as f64;
            let up = y.0 + (y.1 - y.0) * ((place / w) as f64 + 0.5) / h as f64;
            values.extend(columns.iter().map(|&k| match k {
                _ if k == b => up,
                _ if k == a => across,
                _ => mean[k],
            }));
        }
        // Stored as the data is: a model trained on sparse data wants sparse points.
        let grid: Points = if data.points.is_sparse() {
            let starts: Vec<usize> = (0..=part.len()).map(|row| row * columns.len()).collect();
            let each = columns.iter().map(|&k| k as u32);
            let all: Vec<u32> = std::iter::repeat_n(each, part.len()).flatten().collect();
            Csr::new(d, starts, all, values)?.into()
        } else {
            Points::dense_f64(part.len(), d, values)?
        };
        scores.extend(model.scores(&grid, Precision::Double, control)?);
    }
    let field = match (model.task, model.scheme) {
        (Task::Classify, Scheme::One) => Field::Score(scores, [0, 1]),
        (Task::Novelty, _) => Field::Score(scores, [1, 0]),
        (Task::Regress, _) => Field::Value(scores),
        (Task::Classify, _) => match model.decide(&scores) {
            Prediction::Labels(codes) => Field::Class(codes.iter().map(|c| *c as usize).collect()),
            _ => return Err(Failure::new("the model does not give labels")),
        },
    };
    let class_of: Vec<Option<usize>> = match data.targets.classes() {
        Ok((classes, codes)) if model.task == Task::Classify => {
            let place = |label: &Label| model.labels.iter().position(|known| known == label);
            let places: Vec<Option<usize>> = classes.iter().map(place).collect();
            codes.iter().map(|&code| places[code as usize]).collect()
        }
        _ => vec![None; n],
    };
    // Row numbers mean something only if this is the data the model was trained on.
    let own = model.n == n && model.solver != "libsvm";
    let mut support = vec![false; n];
    if own {
        model.expansion.rows().iter().for_each(|&row| support[row as usize] = true);
    }
    let mut dots: Vec<Dot> = (0..n).map(|i| Dot { at: at[i], class: class_of[i], support: support[i] }).collect();
    // Some thousands of dots are as good as all, and support vectors come last, on top.
    if dots.len() > 4000 {
        dots = dots.into_iter().step_by(n.div_ceil(4000)).collect();
    }
    dots.sort_by_key(|dot| dot.support);
    let name = |at: usize| names.and_then(|names| names.get(at).cloned()).unwrap_or_else(|| format!("feature {at}"));
    Ok(Plane {
        title,
        names: (name(a), name(b)),
        x,
        y,
        size: (w, h),
        field,
        dots,
        classes: model.labels.iter().map(ToString::to_string).collect(),
        ring: "support vector".into(),
    })
}
