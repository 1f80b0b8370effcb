//! Results as charts: scores over a grid, and the decision of a model over two features.

use margrave::engine::data::{Csr, Label, Points};
use margrave::engine::gram::Precision;
use margrave::engine::metrics::Metric;
use margrave::engine::model::{Prediction, Scheme};
use margrave::engine::problem::Task;
use margrave::tune::{Cell, Params, Tuned};
use margrave::{Control, Dataset, Model};
use margrave_plot::{Dot, Field, HeatMap, Plane};

use crate::failure::Failure;
use crate::format;

/// Scores over C and γ of the best cell's kernel and loss; `None` unless there are several of both.
pub(crate) fn heat_map(tuned: &Tuned, metric: Metric) -> Option<HeatMap> {
    let best = &tuned.cells[tuned.best?].params;
    let same = |p: &Params| {
        p.kernel.name() == best.kernel.name() && p.loss == best.loss && p.epsilon == best.epsilon && p.nu == best.nu
    };
    let cells: Vec<&Cell> = tuned.cells.iter().filter(|cell| same(&cell.params)).collect();
    let axis = |of: fn(&Params) -> Option<f64>| {
        let mut values: Vec<f64> = cells.iter().filter_map(|cell| of(&cell.params)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        (values.len() > 1).then_some(values)
    };
    let cost: fn(&Params) -> Option<f64> = if best.c.is_some() { |p| p.c } else { |p| p.lambda };
    let (costs, gammas) = (axis(cost)?, axis(|p| p.kernel.gamma())?);
    let names = |values: &[f64]| values.iter().map(|v| format::number(*v, 3)).collect::<Vec<_>>();
    let mut values = vec![vec![None; costs.len()]; gammas.len()];
    let mut mark = None;
    for cell in &cells {
        let (Some(c), Some(gamma)) = (cost(&cell.params), cell.params.kernel.gamma()) else { continue };
        let place = |list: &[f64], v: f64| list.iter().position(|x| *x == v);
        if let (Some(column), Some(row)) = (place(&costs, c), place(&gammas, gamma)) {
            values[row][column] = cell.seen();
            if cell.params == *best {
                mark = Some((row, column));
            }
        }
    }
    let percent = metric == Metric::Accuracy;
    let name = match metric {
        Metric::Accuracy => "accuracy, %".to_owned(),
        Metric::Mse => "mean squared error".to_owned(),
        other => other.to_string(),
    };
    // Scores are larger where they are better: errors have a minus, which the reader need not see.
    let format: fn(f64) -> String = match (percent, metric.greater_is_better()) {
        (true, _) => |v| format::number(100.0 * v, 3),
        (_, true) => |v| format::number(v, 3),
        (_, false) => |v| format::number(-v, 3),
    };
    Some(HeatMap {
        title: format!("{name} over {} and γ, {} kernel", if best.c.is_some() { "C" } else { "λ" }, best.kernel.name()),
        x: (if best.c.is_some() { "C" } else { "λ" }.into(), names(&costs)),
        y: ("γ".into(), names(&gammas)),
        values,
        mark,
        range: None,
        format,
    })
}

/// Columns and rows of a picture, and the fewest for models with very many features.
const SIZE: (usize, usize) = (155, 115);
const COARSEST: (usize, usize) = (31, 23);

/// A picture with more feature values than this, over all its points, gets coarser.
const MOST_VALUES: usize = 200_000_000;

/// Feature values of the points that are scored together.
const VALUES_PER_BLOCK: usize = 1 << 22;

/// More features than this are not drawn: every point of the picture has a value of each.
const MOST_FEATURES: usize = 1 << 20;

/// More samples than this are thinned out.
const MOST_DOTS: usize = 4000;

/// Columns and rows of a picture whose points have `d` values each.
fn size(d: usize) -> (usize, usize) {
    let share = (MOST_VALUES as f64 / (SIZE.0 * SIZE.1 * d.max(1)) as f64).sqrt().min(1.0);
    let side = |full: usize, least: usize| ((full as f64 * share) as usize).max(least);
    (side(SIZE.0, COARSEST.0), side(SIZE.1, COARSEST.1))
}

/// The smallest and the largest value, with a margin.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if !(low <= high) {
        return (0.0, 1.0);
    }
    let edge = if high > low { 0.06 * (high - low) } else { 0.5 };
    (low - edge, high + edge)
}

/// A grid of points over features `a` and `b`, the other features at their mean.
struct Slice<'a> {
    a: usize,
    b: usize,
    x: (f64, f64),
    y: (f64, f64),
    mean: &'a [f64],
    sparse: bool,
}

impl Slice<'_> {
    /// The scores of the model over the grid, row by row from the bottom, and the grid's columns and rows.
    fn scores(&self, model: &Model, control: &Control) -> Result<(Vec<f64>, (usize, usize)), Failure> {
        let (a, b, x, y) = (self.a, self.b, self.x, self.y);
        let d = self.mean.len();
        let used = |k: &usize| !self.sparse || self.mean[*k] != 0.0 || *k == a || *k == b;
        let columns: Vec<usize> = (0..d).filter(used).collect();
        let (w, h) = size(columns.len());
        let places: Vec<usize> = (0..w * h).collect();
        let mut scores = Vec::with_capacity(w * h * model.expansion.outputs());
        for part in places.chunks((VALUES_PER_BLOCK / columns.len().max(1)).max(1)) {
            let mut values = Vec::with_capacity(part.len() * columns.len());
            for place in part {
                let across = x.0 + (x.1 - x.0) * ((place % w) as f64 + 0.5) / w as f64;
                let up = y.0 + (y.1 - y.0) * ((place / w) as f64 + 0.5) / h as f64;
                values.extend(columns.iter().map(|&k| match k {
                    _ if k == b => up,
                    _ if k == a => across,
                    _ => self.mean[k],
                }));
            }
            // Stored as the data is: a model trained on sparse data needs sparse points.
            let grid: Points = if self.sparse {
                let starts: Vec<usize> = (0..=part.len()).map(|row| row * columns.len()).collect();
                let each = columns.iter().map(|&k| k as u32);
                let all: Vec<u32> = std::iter::repeat_n(each, part.len()).flatten().collect();
                Csr::new(d, starts, all, values)?.into()
            } else {
                Points::dense_f64(part.len(), d, values)?
            };
            scores.extend(model.scores(&grid, Precision::Double, control)?);
        }
        Ok((scores, (w, h)))
    }
}

/// The samples at their places, with class and whether they are support vectors, which come last and so on top.
fn dots(model: &Model, data: &Dataset, at: &[(f64, f64)]) -> Vec<Dot> {
    let n = data.len();
    let class_of: Vec<Option<usize>> = match data.targets.classes() {
        Ok((classes, codes)) if model.task == Task::Classify => {
            let place = |label: &Label| model.labels.iter().position(|known| known == label);
            let places: Vec<Option<usize>> = classes.iter().map(place).collect();
            codes.iter().map(|&code| places[code as usize]).collect()
        }
        _ => vec![None; n],
    };
    // Row numbers are meaningful only if this is the data the model was trained on.
    let own = model.n == n && model.solver != "libsvm";
    let mut support = vec![false; n];
    if own {
        model.expansion.rows().iter().for_each(|&row| support[row as usize] = true);
    }
    let mut dots: Vec<Dot> = (0..n).map(|i| Dot { at: at[i], class: class_of[i], support: support[i] }).collect();
    if dots.len() > MOST_DOTS {
        dots = dots.into_iter().step_by(n.div_ceil(MOST_DOTS)).collect();
    }
    dots.sort_by_key(|dot| dot.support);
    dots
}

/// What the model predicts over two features, the others at their mean.
pub(crate) fn plane(
    model: &Model,
    data: &Dataset,
    (a, b): (usize, usize),
    names: Option<&[String]>,
    title: String,
    control: &Control,
) -> Result<Plane, Failure> {
    let d = model.expansion.width();
    if d > MOST_FEATURES {
        return Err(Failure::with_hint(
            format!("the model has {d} features, and pictures are drawn of at most {MOST_FEATURES}"),
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
    let (x, y) = (span(at.iter().map(|p| p.0)), span(at.iter().map(|p| p.1)));
    let slice = Slice { a, b, x, y, mean: &mean, sparse: data.points.is_sparse() };
    let (scores, size) = slice.scores(model, control)?;
    let field = match (model.task, model.scheme) {
        (Task::Classify, Scheme::One) => Field::Score(scores, [0, 1]),
        (Task::Novelty, _) => Field::Score(scores, [1, 0]),
        (Task::Regress, _) => Field::Value(scores),
        (Task::Classify, _) => match model.decide(&scores) {
            Prediction::Labels(codes) => Field::Class(codes.iter().map(|c| *c as usize).collect()),
            _ => return Err(Failure::new("the model does not give labels")),
        },
    };
    let name = |at: usize| names.and_then(|names| names.get(at).cloned()).unwrap_or_else(|| format!("feature {at}"));
    Ok(Plane {
        title,
        names: (name(a), name(b)),
        x,
        y,
        size,
        field,
        dots: dots(model, data, &at),
        classes: model.labels.iter().map(ToString::to_string).collect(),
        ring: "support vector".into(),
    })
}
