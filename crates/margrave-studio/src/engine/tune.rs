//! A search over a grid, one kernel (γ) after the other, so that the map fills while it runs.

use std::sync::Arc;

use margrave::engine::metrics::Metric;
use margrave::engine::observe::Silent;
use margrave::engine::problem::Task;
use margrave::tune::{Cell, Grid, Tuner};
use margrave::{Budget, Cancel};
use serde_json::{Map, Value, json};

use crate::answer::Refusal;
use crate::session::{App, Session, TuneJob};

/// One strip of the grid: all values of the other axis for one value of γ, or the whole grid if γ is not searched over.
struct Strip {
    grid: Grid,
}

fn strips(axes: &[(String, Vec<f64>)]) -> Vec<Strip> {
    let fill = |grid: &mut Grid, name: &str, values: Vec<f64>| match name {
        "C" => grid.costs = values,
        "lambda" => grid.lambdas = values,
        "epsilon" => grid.epsilons = values,
        "nu" => grid.nus = values,
        _ => grid.gammas = values,
    };
    // The distances of a kernel are computed once per strip: γ, if there is one, must be what changes from strip to strip.
    let outer = axes.iter().position(|(name, _)| name == "gamma").unwrap_or(axes.len() - 1);
    let (name, values) = &axes[outer];
    let strip = |value: &f64| {
        let mut grid = Grid::default();
        fill(&mut grid, name, vec![*value]);
        for (at, (other, values)) in axes.iter().enumerate() {
            if at != outer {
                fill(&mut grid, other, values.clone());
            }
        }
        Strip { grid }
    };
    values.iter().map(strip).collect()
}

/// The value of a combination on an axis.
fn value(cell: &Cell, axis: &str) -> Option<f64> {
    match axis {
        "C" => cell.params.c,
        "lambda" => cell.params.lambda,
        "epsilon" => cell.params.epsilon,
        "nu" => cell.params.nu,
        _ => cell.params.kernel.gamma(),
    }
}

/// A cell as the page sees it; `None` if it is not of this grid.
fn cell_json(cell: &Cell, axes: &[(String, Vec<f64>)]) -> Option<Value> {
    let place = |axis: usize| {
        let Some((name, values)) = axes.get(axis) else { return Some(0) };
        let own = value(cell, name)?;
        values.iter().position(|v| *v == own)
    };
    let params: Map<String, Value> = axes.iter().map(|(name, _)| (name.clone(), json!(value(cell, name)))).collect();
    Some(json!({
        "x": place(0)?, "y": place(1)?, "params": params, "score": cell.score(), "std": cell.deviation(),
        "folds": cell.folds, "seconds": cell.seconds,
    }))
}

/// The cell with the best score; ties go to the first.
fn best(cells: &[Value]) -> Value {
    let mut top: Option<(f64, &Value)> = None;
    for cell in cells {
        if let Some(score) = cell["score"].as_f64()
            && top.is_none_or(|(other, _)| score > other)
        {
            top = Some((score, cell));
        }
    }
    top.map_or(Value::Null, |(_, cell)| json!({ "x": cell["x"], "y": cell["y"] }))
}

/// Searches.
pub(super) fn tune(app: &Arc<App>, session: &Session, job: &TuneJob, cancel: &Cancel) -> Result<(), Refusal> {
    let data = session.data()?;
    let task = job.settings.task()?;
    if task == Task::Novelty {
        return Err(Refusal::unsupported("novelty detection has no targets to score by: there is nothing to tune"));
    }
    let metric = match &job.score {
        Some(name) => name.parse()?,
        None => Metric::usual(task),
    };
    metric.check(task, data.classes.len())?;
    // The grid decides about the part of the settings it searches over.
    let mut settings = job.settings.clone();
    for (name, _) in &job.axes {
        match name.as_str() {
            "C" => settings.lambda = None,
            "lambda" => settings.lambda = Some(1.0),
            "nu" => settings.nu = Some(0.5),
            _ => {}
        }
    }
    let svm = settings.svm(&data, &app.threads, cancel)?.budget(Budget::default());
    let total: usize = job.axes.iter().map(|(_, values)| values.len()).product();
    let empty: (String, Vec<f64>) = (String::new(), vec![]);
    let (x, y) = (&job.axes[0], job.axes.get(1).unwrap_or(&empty));
    let mut view = json!({
        "tune": job.tune, "status": "running", "data_version": data.version,
        "axes": { "x": x.0, "y": if y.0.is_empty() { Value::Null } else { json!(y.0) } },
        "x": x.1, "y": y.1, "scoring": metric.score_name(), "folds": job.folds, "larger_is_better": true,
        "cells": [], "best": null, "seconds": 0.0,
    });
    session.inner().tune = Some(view.clone());
    let begun = std::time::Instant::now();
    let mut cells: Vec<Value> = Vec::new();
    let mut status = "done";
    for strip in strips(&job.axes) {
        if cancel.is_requested() {
            status = "interrupted";
            break;
        }
        let mut tuner = Tuner::new(svm.clone(), strip.grid);
        (tuner.folds, tuner.score, tuner.race) = (job.folds, Some(metric), None);
        let found = tuner.search(&data.loaded.data, &mut Silent)?;
        for cell in found.cells.iter().filter_map(|cell| cell_json(cell, &job.axes)) {
            cells.push(cell.clone());
            session.events.send("cell", json!({ "tune": job.tune, "cell": cell, "done": cells.len(), "total": total }));
        }
        view["cells"] = json!(cells);
        view["best"] = best(&cells);
        view["seconds"] = json!(begun.elapsed().as_secs_f64());
        let mut inner = session.inner();
        if let Some(running) = &mut inner.running {
            (running.phase, running.fraction) = ("tune", Some(cells.len() as f64 / total.max(1) as f64));
        }
        inner.tune = Some(view.clone());
    }
    view["status"] = json!(status);
    let event = json!({ "tune": job.tune, "status": status, "best": view["best"] });
    session.inner().tune = Some(view);
    session.events.send("tuned", event);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_cover_the_grid_one_gamma_at_a_time() {
        let axes = [("gamma".to_owned(), vec![0.1, 1.0]), ("C".to_owned(), vec![1.0, 2.0, 4.0])];
        let found = strips(&axes);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].grid.gammas.as_slice(), found[1].grid.costs.len()), ([1.0].as_slice(), 3));
        let one = strips(&[("C".to_owned(), vec![1.0, 2.0])]);
        assert_eq!((one.len(), one[0].grid.costs.as_slice()), (2, [1.0].as_slice()));
    }

    #[test]
    fn the_first_of_equal_cells_is_best() {
        let cells = [
            json!({ "x": 0, "y": 0, "score": null }),
            json!({ "x": 1, "y": 0, "score": 0.5 }),
            json!({ "x": 2, "y": 0, "score": 0.5 }),
        ];
        assert_eq!(best(&cells), json!({ "x": 1, "y": 0 }));
        assert_eq!(best(&[]), Value::Null);
    }
}
