//! Searching a grid: folds of one's own, the race, going on from what is known.

use margrave::engine::data::{Dataset, Points, Targets};
use margrave::engine::gram::Precision;
use margrave::engine::model::Prediction;
use margrave::engine::observe::Silent;
use margrave::loss::LossSpec;
use margrave::tune::{Cell, Grid, Tuned, Tuner};
use margrave::{Kernel, Svm, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A ring around a disc, one label in ten wrong; or three sectors.
fn data(n: usize, classes: u32) -> Dataset {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..n {
        let (x, y): (f64, f64) = (rng.random_range(-1.5..1.5), rng.random_range(-1.5..1.5));
        let class = match classes {
            2 => f64::from(x * x + y * y > 1.2),
            _ => ((y.atan2(x) + std::f64::consts::PI) / 2.1).floor(),
        };
        let wrong = rng.random_range(0.0..1.0) < 0.1;
        values.extend([x, y]);
        labels.push(if wrong { f64::from(rng.random_range(0..classes)) } else { class });
    }
    Dataset::new(Points::dense_f64(n, 2, values).unwrap(), Targets::Real(labels)).unwrap()
}

fn tuner(race: Option<f64>) -> Tuner {
    let grid =
        Grid { costs: vec![0.1, 1.0, 10.0, 100.0], gammas: vec![1e-4, 1e-2, 0.3, 1.0, 3.0, 300.0], ..Grid::default() };
    Tuner { race, ..Tuner::new(Svm::classifier().seed(3).threads(Threads::new(2)), grid) }
}

fn search(tuner: &Tuner, data: &Dataset) -> Tuned {
    tuner.search(data, &mut Silent).unwrap()
}

fn folds(cells: &[Cell]) -> Vec<&[f64]> {
    cells.iter().map(|cell| cell.folds.as_slice()).collect()
}

#[test]
fn a_race_leaves_out_hopeless_cells_and_finds_the_same_winner() {
    let data = data(600, 2);
    let (all, raced) = (search(&tuner(None), &data), search(&tuner(Some(4.0)), &data));
    assert!(all.cells.iter().all(|cell| cell.is_finished() && !cell.dropped));
    let left_out = raced.cells.iter().filter(|cell| cell.dropped).count();
    assert!((4..24).contains(&left_out), "{left_out}");
    let best = raced.best.unwrap();
    assert_eq!(all.cells[all.best.unwrap()].params, raced.cells[best].params);
    assert!(raced.cells[best].is_finished());
    for (one, other) in all.cells.iter().zip(&raced.cells) {
        assert_eq!(other.dropped, other.folds.len() < 5);
        assert_eq!(other.score().is_some(), !other.dropped);
        // Starts differ, so that a sample on the boundary may fall to either side.
        for (a, b) in one.folds.iter().zip(&other.folds) {
            assert!((a - b).abs() <= 2.0 / 120.0, "{a} {b} {:?}", other.params);
        }
    }
    let alone = Tuner { options: Svm::classifier().seed(3).threads(Threads::new(1)).into(), ..tuner(Some(4.0)) };
    assert_eq!(folds(&search(&alone, &data).cells), folds(&raced.cells));
}

#[test]
fn scores_are_those_of_machines_trained_by_hand() {
    for (classes, loss) in [(2, LossSpec::Hinge), (2, LossSpec::SquaredHinge), (3, LossSpec::Hinge)] {
        let data = data(300, classes);
        let fold_of: Vec<u32> = (0..300).map(|row| u32::from(row % 3 == 0)).collect();
        let grid = Grid { costs: vec![0.5, 20.0], gammas: vec![0.2, 2.0], ..Grid::default() };
        let svm = Svm::classifier().loss_spec(loss).tol(1e-5);
        let tuner = Tuner { folds: 2, fold_of: Some(fold_of.clone()), ..Tuner::new(svm, grid) };
        let found = search(&tuner, &data);
        for cell in &found.cells {
            for (fold, score) in cell.folds.iter().enumerate() {
                let (kept, held): (Vec<u32>, Vec<u32>) =
                    (0..300).partition(|&row| fold_of[row as usize] as usize != fold);
                let part = |rows: &[u32]| {
                    let Targets::Real(y) = &data.targets else { panic!("numbers") };
                    let y = rows.iter().map(|&row| y[row as usize]).collect();
                    Dataset::new(data.points.gather(rows), Targets::Real(y)).unwrap()
                };
                let fit = Svm::from(tuner.machine(&cell.params)).fit(&part(&kept)).unwrap();
                let held = part(&held);
                let Targets::Real(truth) = &held.targets else { panic!("numbers") };
                let control = margrave::Control::unlimited(Threads::one());
                let said = fit.model().predict(&held.points, Precision::Double, &control).unwrap();
                let Prediction::Labels(said) = said else { panic!("labels") };
                let labels = &fit.model().labels;
                let right = said.iter().zip(truth).filter(|(at, y)| labels[**at as usize].to_string() == y.to_string());
                let by_hand = right.count() as f64 / truth.len() as f64;
                assert!((score - by_hand).abs() <= 1.5 / truth.len() as f64, "{score} {by_hand} {:?}", cell.params);
            }
        }
    }
}

#[test]
fn known_cells_are_not_tried_again() {
    let data = data(300, 2);
    let whole = search(&tuner(Some(4.0)), &data);
    // Some finished, some left out, some with their first fold only.
    let mut known = whole.cells.clone();
    for cell in known.iter_mut().skip(6).filter(|cell| !cell.dropped) {
        cell.folds.truncate(1);
    }
    let again = search(&Tuner { known, ..tuner(Some(4.0)) }, &data);
    assert_eq!(again.cells[again.best.unwrap()].params, whole.cells[whole.best.unwrap()].params);
    for (before, after) in whole.cells.iter().zip(&again.cells).take(6) {
        assert_eq!((before.seconds, &before.folds), (after.seconds, &after.folds));
    }
}

#[test]
fn folds_of_ones_own_are_looked_at() {
    let data = data(30, 2);
    let said = |folds: usize, fold_of: Vec<u32>| {
        let tuner = Tuner { folds, fold_of: Some(fold_of), ..tuner(None) };
        tuner.search(&data, &mut Silent).unwrap_err().to_string()
    };
    assert!(said(2, vec![0; 29]).contains("not 30 numbers below 2"));
    assert!(said(1, vec![0; 30]).contains("at least two"));
    assert!(said(3, (0..30).map(|i| 2 * (i % 2)).collect()).contains("fold 1 has no rows"));
    assert!(said(2, vec![u32::MAX; 30]).contains("not 30 numbers below 2"));
    // Rows that count for nothing do not change a score.
    let halves: Vec<u32> = (0..30).map(|i| i % 2).collect();
    let counts: Vec<f64> = (0..30).map(|i| if i < 2 { 1.0 } else { 0.0 }).collect();
    let few = Tuner { folds: 2, fold_of: Some(halves), counts: Some(counts), ..tuner(None) };
    assert!(search(&few, &data).cells.iter().flat_map(|cell| &cell.folds).all(|score| *score == 0.0 || *score == 1.0));
    let short = Tuner { counts: Some(vec![1.0]), ..tuner(None) };
    assert!(short.search(&data, &mut Silent).is_err());
    let linear = Grid { costs: vec![1.0], kernels: vec![Kernel::Linear], ..Grid::default() };
    let negative = Tuner { race: Some(-1.0), grid: linear, ..tuner(None) };
    assert!(negative.search(&data, &mut Silent).is_err());
}

/// Two features; the last tenth of the rows, which is the last fold, has a far larger spread in the second.
fn shifted(n: usize) -> (Dataset, Vec<u32>) {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut values, mut targets, mut fold_of) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..n {
        let late = row >= n - n / 10;
        let (x, y): (f64, f64) = (rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0));
        let wide = if late { 40.0 * y } else { y };
        values.extend([x, wide]);
        targets.push((3.0 * x).sin() + (3.0 * y).cos() + rng.random_range(-0.05..0.05));
        fold_of.push(if late { 2 } else { row as u32 % 2 });
    }
    (Dataset::new(Points::dense_f64(n, 2, values).unwrap(), Targets::Real(targets)).unwrap(), fold_of)
}

/// The mean squared error on a fold of a machine trained on the others, scaling included.
fn error_by_hand(svm: &Svm, data: &Dataset, fold_of: &[u32], fold: usize) -> f64 {
    let (kept, held): (Vec<u32>, Vec<u32>) =
        (0..fold_of.len() as u32).partition(|&row| fold_of[row as usize] as usize != fold);
    let part = |rows: &[u32]| Dataset::new(data.points.gather(rows), data.targets.gather(rows)).unwrap();
    let fit = svm.fit(&part(&kept)).unwrap();
    let held = part(&held);
    let control = margrave::Control::unlimited(Threads::one());
    let said = fit.model().scores(&held.points, Precision::Double, &control).unwrap();
    let truth = held.targets.real().unwrap();
    said.iter().zip(truth).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / truth.len() as f64
}

#[test]
fn scaling_is_fitted_without_the_held_out_rows() {
    use margrave::engine::data::{ScaleKind, Scaling};
    let (data, fold_of) = shifted(240);
    let everywhere = Scaling::fit(ScaleKind::Standard, &data.points).apply(&data.points).unwrap();
    let leaked = Dataset::new(everywhere, data.targets.clone()).unwrap();
    let few = Grid { costs: vec![0.5, 8.0], gammas: vec![0.3, 3.0], ..Grid::default() };
    let many = Grid { costs: vec![0.5, 8.0], gammas: vec![0.1, 0.3, 1.0, 3.0, 9.0], ..Grid::default() };
    let linear = Grid { costs: vec![0.5, 8.0], kernels: vec![Kernel::Linear], ..Grid::default() };
    // 240² entries do not fit into the smaller memory: rows are computed on demand.
    let (plenty, little) = (1 << 30, 200_000);
    let tube = LossSpec::Epsilon { epsilon: 0.05 };
    let cases = [
        (&few, tube, None, plenty),
        (&few, tube, None, little),
        (&few, LossSpec::Square, None, plenty),
        (&many, tube, None, plenty),
        (&many, tube, Some(50.0), plenty),
        (&linear, LossSpec::Square, None, plenty),
    ];
    for (grid, loss, race, memory) in cases {
        let svm = Svm::regressor().loss_spec(loss).tol(1e-5).threads(Threads::new(2));
        let svm = svm.budget(margrave::Budget { memory, ..margrave::Budget::default() });
        let svm = svm.scale(Some(ScaleKind::Standard));
        let tuner = Tuner { folds: 3, race, fold_of: Some(fold_of.clone()), ..Tuner::new(svm, grid.clone()) };
        let found = search(&tuner, &data);
        let mut by_leak = 0.0f64;
        for cell in &found.cells {
            assert!(cell.is_finished(), "{:?}", cell.params);
            let machine = Svm::from(tuner.machine(&cell.params));
            let honest: Vec<f64> = (0..3).map(|fold| error_by_hand(&machine, &data, &fold_of, fold)).collect();
            for (score, by_hand) in cell.folds.iter().zip(&honest) {
                let near = (score + by_hand).abs() <= 1e-3 + 0.01 * by_hand;
                assert!(near, "{} {by_hand} {:?} {loss} {race:?} {memory}", -score, cell.params);
            }
            // With the spread of the last fold in the scaling, the other folds could hardly use the second feature.
            let leaky = error_by_hand(&machine.scale(None), &leaked, &fold_of, 2);
            by_leak = by_leak.max((leaky - honest[2]).abs() / honest[2]);
        }
        // Weights of a linear machine undo most of a scaling; a kernel cannot.
        assert!(by_leak > 0.1 || grid.kernels == [Kernel::Linear], "{by_leak} {loss} {race:?}");
        let alone = Tuner { options: Svm::from(tuner.options.clone()).threads(Threads::one()).into(), ..tuner };
        assert_eq!(folds(&search(&alone, &data).cells), folds(&found.cells));
    }
}

#[test]
fn missing_values_are_filled_without_the_held_out_rows() {
    use margrave::engine::data::{FillRule, FilledColumn, Fills};
    let (data, fold_of) = shifted(240);
    // The second feature is missing in every third row; its mean and median depend on whether the odd rows take part.
    let mut x = vec![0.0; 2 * 240];
    (0..240).for_each(|row| data.points.copy_row(row, &mut x[2 * row..2 * row + 2]));
    (0..240).for_each(|row| x[2 * row + 1] = x[2 * row + 1].clamp(-2.0, 2.0) + f64::from(fold_of[row]));
    let data = Dataset::new(Points::dense_f64(240, 2, x).unwrap(), data.targets).unwrap();
    let rows: Vec<u32> = (0..240).filter(|row| row % 3 == 1).collect();
    let grid = Grid { costs: vec![0.5, 8.0], gammas: vec![0.3, 3.0], ..Grid::default() };
    for rule in [FillRule::Mean, FillRule::Median] {
        let column = FilledColumn { features: 1..2, rule, rows: rows.clone() };
        let fills = Fills::new(vec![column]).unwrap();
        let all: Vec<u32> = (0..240).collect();
        let points = fills.refit(&data.points, None, &all).unwrap();
        let mut filled = Dataset::new(points, data.targets.clone()).unwrap();
        filled.fills = Some(std::sync::Arc::new(fills));
        let svm = Svm::regressor().loss_spec(LossSpec::Square).tol(1e-6).threads(Threads::one());
        let tuner = Tuner { folds: 3, race: None, fold_of: Some(fold_of.clone()), ..Tuner::new(svm, grid.clone()) };
        let found = search(&tuner, &filled);
        let mut by_leak = 0.0f64;
        for cell in &found.cells {
            let machine = Svm::from(tuner.machine(&cell.params));
            for (fold, score) in cell.folds.iter().enumerate() {
                let kept: Vec<u32> = (0..240).filter(|&row| fold_of[row as usize] as usize != fold).collect();
                let own = Dataset { points: filled.points_for(&kept).unwrap(), fills: None, ..filled.clone() };
                let honest = error_by_hand(&machine, &own, &fold_of, fold);
                assert!((score + honest).abs() <= 1e-3 + 0.01 * honest, "{} {honest} {:?}", -score, cell.params);
                let leaky = error_by_hand(&machine, &Dataset { fills: None, ..filled.clone() }, &fold_of, fold);
                by_leak = by_leak.max((leaky - honest).abs() / honest);
            }
        }
        assert!(by_leak > 0.03, "the fills of all rows give the same: {by_leak}");
    }
}
