//! The plane: scores over a grid, and the samples on it.

use std::sync::Arc;

use margrave::engine::data::Csr;
use margrave::engine::gram::Precision;
use margrave::engine::model::{Prediction, Scheme};
use margrave::engine::problem::Task;
use margrave::{Control, Model, Points};
use serde_json::{Value, json};

use super::kernel_components::Components;
use super::{Kinds, Query, WEIGHT_CAP, class_scores, loss_of, loss_target, scores_of, spread_rows};
use crate::answer::{Answer, Outcome, Refusal};
use crate::arrays::Arrays;
use crate::data::Data;
use crate::session::{App, Session, Trained};

/// Most columns and rows of a grid.
pub(crate) const MOST_GRID: usize = 256;
/// Most samples of a view.
pub(crate) const MOST_POINTS: usize = 20_000;
const USUAL_GRID: usize = 96;
const USUAL_POINTS: usize = 4_000;
const LEAST_GRID: usize = 8;

/// Multiply–adds of a grid; larger ones are made coarser.
const MOST_WORK: f64 = 2e9;
/// Feature values of the points that are scored together.
const VALUES_PER_BLOCK: usize = 1 << 21;
/// More features than this are not drawn.
const MOST_FEATURES: usize = 1 << 20;

/// What the coordinates are.
enum Axes {
    Features { x: usize, y: usize, held: Held },
    Components,
}

/// What the other features are held at.
enum Held {
    Mean,
    Row(usize),
}

/// A window on the plane with its grid.
struct Window {
    x: (f64, f64),
    y: (f64, f64),
    nx: usize,
    ny: usize,
}

impl Window {
    /// Centre of column i and row j.
    fn centre(&self, i: usize, j: usize) -> (f64, f64) {
        let at = |(low, high): (f64, f64), k: usize, n: usize| low + (high - low) * (k as f64 + 0.5) / n as f64;
        (at(self.x, i, self.nx), at(self.y, j, self.ny))
    }
}

/// A range with a margin; one around a single value.
fn padded((low, high): (f64, f64)) -> (f64, f64) {
    let edge = if high > low { 0.08 * (high - low) } else { 0.5 * low.abs().max(1.0) };
    (low - edge, high + edge)
}

fn axes(query: &Query, data: &Data) -> Result<Axes, Refusal> {
    match query.text("axes").unwrap_or("features") {
        "kpca" => return Ok(Axes::Components),
        "features" => {}
        other => return Err(Refusal::request(format!("axes = {other:?}: there are features and kpca"))),
    }
    let d = data.points().dims();
    if d == 0 || d > MOST_FEATURES {
        return Err(Refusal::unsupported(format!("data of {d} features cannot be drawn")));
    }
    let feature = |key: &str, usual: usize| -> Result<usize, Refusal> {
        let at = query.number::<usize>(key)?.unwrap_or(usual.min(d - 1));
        if at < d { Ok(at) } else { Err(Refusal::request(format!("{key} = {at}: the data has {d} features"))) }
    };
    let held = match query.text("held").unwrap_or("mean") {
        "mean" => Held::Mean,
        text => {
            let row = text.strip_prefix("row:").and_then(|row| row.parse::<usize>().ok());
            let row = row.ok_or_else(|| Refusal::request(format!("held = {text:?}: mean, or row:NUMBER")))?;
            if row >= data.len() {
                return Err(Refusal::request(format!("held = {text:?}: the data has {} rows", data.len())));
            }
            Held::Row(row)
        }
    };
    Ok(Axes::Features { x: feature("x", 0)?, y: feature("y", 1)?, held })
}

/// The model that is shown and the data it is shown on.
fn subject(session: &Session, query: &Query) -> Result<(Arc<Data>, Option<Arc<Trained>>), Refusal> {
    match query.text("run") {
        None | Some("current" | "") => {
            let data = session.data()?;
            // A model of data that has been edited since is shown until there is a new one.
            let model = session.model("current").ok();
            let fits = |trained: &Arc<Trained>| trained.data.points().dims() == data.points().dims();
            Ok((data.clone(), model.filter(fits)))
        }
        Some(run) => {
            let trained = session.model(run)?;
            Ok((trained.data.clone(), Some(trained)))
        }
    }
}

/// The view.
pub(crate) fn view(app: &App, session: &Session, query: &Query) -> Outcome {
    let (data, trained) = subject(session, query)?;
    let most = query.number::<usize>("points")?.unwrap_or(USUAL_POINTS).min(MOST_POINTS);
    let size = |key| query.number::<usize>(key).map(|n| n.unwrap_or(USUAL_GRID).clamp(LEAST_GRID, MOST_GRID));
    let (nx, ny) = (size("nx")?, size("ny")?);
    let output = query.number::<usize>("output")?.unwrap_or(0);
    let demanded: Vec<u32> =
        query.text("select").unwrap_or("").split(',').filter_map(|row| row.parse().ok()).take(1000).collect();
    let control = Control::unlimited(app.view_threads.clone());
    // β by row means something only for the rows the model was trained on.
    let own = trained.as_ref().filter(|trained| trained.data.version == data.version);
    if let Some(trained) = &trained
        && output >= trained.fit.model().expansion.outputs()
    {
        return Err(Refusal::request(format!("output = {output}: the model has fewer")));
    }
    let kinds = own.map(|trained| Kinds::new(trained, output));
    let rows = match &kinds {
        Some(kinds) => kinds.rows(data.len(), most, &demanded),
        None => spread_rows(data.len(), most),
    };
    let mut arrays = Arrays::default();
    let mut header = json!({
        "data_version": data.version,
        "run": trained.as_ref().map(|trained| trained.run),
        "model_version": trained.as_ref().map(|trained| trained.version),
        "model_data_version": trained.as_ref().map(|trained| trained.data.version),
        "outputs": trained.as_ref().map_or(1, |trained| trained.fit.model().expansion.outputs()),
        "n": data.len(), "shown": rows.len(), "explained": null, "levels": [], "range": null, "tube": null,
    });
    let with_grid = query.text("grid") != Some("0");
    match axes(query, &data)? {
        Axes::Features { x, y, held } => {
            let range = |at: usize| padded(data.ranges.get(at).copied().unwrap_or_else(|| column_range(&data, at)));
            let window = window(query, range(x), range(y), nx, ny)?;
            header["axes"] = json!("features");
            header["x"] = json!({ "feature": x, "name": data.feature(x) });
            header["y"] = json!({ "feature": y, "name": data.feature(y) });
            header["held"] = match held {
                Held::Mean => json!({ "mean": true }),
                Held::Row(row) => json!({ "row": row }),
            };
            let places: Vec<(f64, f64)> = rows.iter().map(|&row| place(&data, row as usize, x, y)).collect();
            put_places(&mut arrays, &places);
            if let (true, Some(trained)) = (with_grid, &trained) {
                let model = trained.fit.model();
                let window = coarse(window, model);
                let scores = slice(model, &data, (x, y), &held, &window, &control)?;
                put_window(&mut header, &window);
                put_grid(&mut arrays, &mut header, model, &scores);
            } else {
                put_window(&mut header, &window);
            }
        }
        Axes::Components => {
            components(app, session, &data, &trained, &rows, query, (nx, ny), &mut arrays, &mut header)?
        }
    }
    put_samples(app, &mut arrays, &data, &rows, own.cloned().as_ref(), kinds.as_ref(), output)?;
    Ok(Answer::Arrays(arrays.finish(header)))
}

fn window(query: &Query, x: (f64, f64), y: (f64, f64), nx: usize, ny: usize) -> Result<Window, Refusal> {
    let bound = |key: &str, usual: f64| -> Result<f64, Refusal> { Ok(query.number::<f64>(key)?.unwrap_or(usual)) };
    let window =
        Window { x: (bound("x0", x.0)?, bound("x1", x.1)?), y: (bound("y0", y.0)?, bound("y1", y.1)?), nx, ny };
    let valid = |(low, high): (f64, f64)| low.is_finite() && high.is_finite() && low < high;
    match valid(window.x) && valid(window.y) {
        true => Ok(window),
        false => Err(Refusal::request("the window needs x0 < x1 and y0 < y1, all finite")),
    }
}

fn put_window(header: &mut Value, window: &Window) {
    header["window"] = json!([window.x.0, window.x.1, window.y.0, window.y.1]);
    header["nx"] = json!(window.nx);
    header["ny"] = json!(window.ny);
}

/// The range of a feature beyond the listed ones.
fn column_range(data: &Data, at: usize) -> (f64, f64) {
    let rows = spread_rows(data.len(), MOST_POINTS);
    crate::data::extent(rows.iter().map(|&row| place(data, row as usize, at, at).0))
}

/// Two features of a row.
fn place(data: &Data, row: usize, x: usize, y: usize) -> (f64, f64) {
    let mut at = (0.0, 0.0);
    data.points().visit(row, |k, v| {
        if k == x {
            at.0 = v;
        }
        if k == y {
            at.1 = v;
        }
    });
    at
}

/// A window whose grid is coarse enough to be computed at once.
fn coarse(mut window: Window, model: &Model) -> Window {
    let f = &model.expansion;
    let per_cell = match f.weights() {
        Some(_) => f.width() as f64,
        None => f.len() as f64 * (f.width().min(200) as f64 + 8.0),
    };
    let share = (MOST_WORK / (per_cell * (window.nx * window.ny) as f64).max(1.0)).sqrt().min(1.0);
    let side = |n: usize| ((n as f64 * share) as usize).clamp(LEAST_GRID, n);
    (window.nx, window.ny) = (side(window.nx), side(window.ny));
    window
}

/// The scores over a grid of two features, the others held.
fn slice(
    model: &Model,
    data: &Data,
    (x, y): (usize, usize),
    held: &Held,
    window: &Window,
    control: &Control,
) -> Result<Vec<f64>, Refusal> {
    let d = data.points().dims();
    let mut base = match held {
        Held::Mean => data.means.clone(),
        Held::Row(row) => {
            let mut base = vec![0.0; d];
            data.points().copy_row(*row, &mut base);
            base
        }
    };
    base.resize(d, 0.0);
    let sparse = data.points().is_sparse();
    let columns: Vec<usize> = (0..d).filter(|&k| !sparse || base[k] != 0.0 || k == x || k == y).collect();
    let cells: Vec<usize> = (0..window.nx * window.ny).collect();
    let mut scores = Vec::with_capacity(cells.len() * model.expansion.outputs());
    for part in cells.chunks((VALUES_PER_BLOCK / columns.len().max(1)).max(1)) {
        let mut values = Vec::with_capacity(part.len() * columns.len());
        for cell in part {
            let (across, up) = window.centre(cell % window.nx, cell / window.nx);
            values.extend(columns.iter().map(|&k| match k {
                _ if k == y => up,
                _ if k == x => across,
                _ => base[k],
            }));
        }
        // Stored as the data is: a model trained on sparse data needs sparse points.
        let grid: Points = if sparse {
            let starts: Vec<usize> = (0..=part.len()).map(|row| row * columns.len()).collect();
            let each = columns.iter().map(|&k| k as u32);
            let all: Vec<u32> = std::iter::repeat_n(each, part.len()).flatten().collect();
            Csr::new(d, starts, all, values)?.into()
        } else {
            Points::dense_f64(part.len(), d, values)?
        };
        scores.extend(model.scores(&grid, Precision::Single, control)?);
    }
    Ok(scores)
}

/// The grid of a model: its scores, and for several classes the predicted one and its lead.
fn put_grid(arrays: &mut Arrays, header: &mut Value, model: &Model, scores: &[f64]) {
    let k = model.expansion.outputs();
    let several = model.task == Task::Classify && model.scheme != Scheme::One;
    let values: Vec<f64> = if several {
        let lead = |z: &[f64]| {
            let mut own = class_scores(model.scheme, model.labels.len(), z);
            own.sort_by(|a, b| b.total_cmp(a));
            own[0] - own.get(1).copied().unwrap_or(0.0)
        };
        scores.chunks_exact(k).map(lead).collect()
    } else {
        scores.chunks_exact(k).map(|z| z[0]).collect()
    };
    if let (true, Prediction::Labels(labels)) = (several, model.decide(scores)) {
        arrays.u8("label", labels.iter().map(|label| (*label).min(254) as u8));
    }
    header["range"] = json!(crate::data::extent(values.iter().copied()));
    let cut = model.threshold.as_ref().map_or(0.0, |threshold| threshold.score);
    header["levels"] = match model.task {
        Task::Classify if several => json!([]),
        Task::Classify => json!([-1.0, cut, 1.0]),
        Task::Novelty => json!([0.0]),
        Task::Regress => json!([]),
    };
    let epsilon = model.loss.and_then(|loss| loss.epsilon());
    header["tube"] = json!(model.machines.first().and_then(|record| record.tube).or(epsilon));
    arrays.f32("grid", values.into_iter());
}

fn put_places(arrays: &mut Arrays, places: &[(f64, f64)]) {
    arrays.f32("px", places.iter().map(|p| p.0));
    arrays.f32("py", places.iter().map(|p| p.1));
}

/// What is known about the shown samples.
fn put_samples(
    app: &App,
    arrays: &mut Arrays,
    data: &Data,
    rows: &[u32],
    trained: Option<&Arc<Trained>>,
    kinds: Option<&Kinds>,
    output: usize,
) -> Result<(), Refusal> {
    arrays.u32("row", rows.iter().copied());
    arrays.u8("class", rows.iter().map(|&row| data.codes.get(row as usize).map_or(255, |code| (*code).min(254) as u8)));
    let target = |row: u32| data.real().map_or(f64::NAN, |y| y[row as usize]);
    arrays.f32("target", rows.iter().map(|&row| target(row)));
    let kind = |row: u32| kinds.map_or((0.0, 0), |kinds| kinds.of(row));
    arrays.u8("kind", rows.iter().map(|&row| kind(row).1));
    if let Some(trained) = trained {
        arrays.f32("beta", rows.iter().map(|&row| kind(row).0));
        let k = trained.fit.model().expansion.outputs();
        let scores = scores_of(app, trained, rows)?;
        let own: Vec<f64> = scores.chunks_exact(k).map(|z| z[output]).collect();
        let model = trained.fit.model();
        if let Some(loss) = loss_of(trained).filter(|_| model.scheme == Scheme::One) {
            let weight = |(row, z): (&u32, &f64)| {
                loss.reweight(loss_target(data, model.task, *row as usize), *z, WEIGHT_CAP).weight
            };
            let weights: Vec<f64> = rows.iter().zip(&own).map(weight).collect();
            arrays.f32("weight", weights.into_iter());
        }
        arrays.f32("score", own.into_iter());
    }
    Ok(())
}

/// The samples along the two leading kernel principal components, and the model projected on them.
#[allow(clippy::too_many_arguments)]
fn components(
    app: &App,
    session: &Session,
    data: &Arc<Data>,
    trained: &Option<Arc<Trained>>,
    rows: &[u32],
    query: &Query,
    (nx, ny): (usize, usize),
    arrays: &mut Arrays,
    header: &mut Value,
) -> Result<(), Refusal> {
    let control = Control::unlimited(app.view_threads.clone());
    let (kernel, points) = match trained {
        Some(trained) => {
            let model = trained.fit.model();
            let points = match &model.scaling {
                Some(scaling) => scaling.apply(data.points())?,
                None => data.points().clone(),
            };
            (*model.expansion.kernel(), points)
        }
        None => {
            let settings = session.inner().settings.clone();
            let mut kernel = settings.kernel.kernel()?;
            if kernel.gamma().is_some() {
                kernel = kernel.with_gamma(settings.kernel.gamma.gamma()?.resolve(data.points(), settings.seed)?);
            }
            (kernel, data.points().clone())
        }
    };
    let found = Components::new(kernel, &points, rows, &control)?;
    let places: Vec<(f64, f64)> = found.coordinates.iter().map(|p| (p[0], p[1])).collect();
    let range = |of: fn(&(f64, f64)) -> f64| padded(crate::data::extent(places.iter().map(of)));
    let window = window(query, range(|p| p.0), range(|p| p.1), nx, ny)?;
    header["axes"] = json!("kpca");
    header["x"] = json!({ "feature": null, "name": "first kernel principal component" });
    header["y"] = json!({ "feature": null, "name": "second kernel principal component" });
    header["held"] = Value::Null;
    put_window(header, &window);
    put_places(arrays, &places);
    let Some(trained) = trained.as_ref().filter(|t| t.fit.model().scheme == Scheme::One) else { return Ok(()) };
    let model = trained.fit.model();
    let scores = model.scores(&data.points().gather(&found.landmarks), Precision::Double, &control)?;
    let ([constant, a, b], squared) = found.project(&scores);
    let norm = trained.fit.certificate().squared_norm().filter(|norm| *norm > 0.0);
    header["explained"] = json!(norm.map(|norm| (squared / norm).min(1.0)));
    let cells = (0..nx * ny).map(|cell| {
        let (x, y) = window.centre(cell % nx, cell / nx);
        constant + a * x + b * y
    });
    let values: Vec<f64> = cells.collect();
    put_grid(arrays, header, model, &values);
    Ok(())
}
