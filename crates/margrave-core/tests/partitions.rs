//! Data in parts gives what whole data gives: certificates, Newton sums, blocks of rows, tasks of a search.

use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::backend::cpu::{CpuGram, size_of};
use margrave_core::certificate::{
    Certificate, Optimality, Part, certify, certify_linear, combine_kernel, combine_linear, kernel_part, linear_part,
};
use margrave_core::data::{Dataset, Points, Targets};
use margrave_core::gram::Gram;
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Loss, LossSpec};
use margrave_core::observe::Silent;
use margrave_core::problem::{Bias, Constraint, KernelProblem, LinearProblem, Losses, Samples, Task};
use margrave_core::solver::decomposition::partition::{Block, largest, one_sided, solve_block};
use margrave_core::solver::linear::partition::{
    Curvature, Probe, Smoothing, System, direction, natural_width, pass, product, recentre,
};
use margrave_core::solver::{Stop, decomposition, linear};
use margrave_core::train::TrainOptions;
use margrave_core::train::tune::{Grid, MachineState, Outcome, Remote, SearchTask, Tuner};
use margrave_core::{Control, Result, Threads};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const N: usize = 90;
const D: usize = 3;

fn control() -> Control {
    Control::unlimited(Threads::one())
}

fn data(seed: u64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> = (0..N * D).map(|_| rng.random_range(-1.0..1.0)).collect();
    let y = x.chunks(D).map(|x| if x[0] + 0.3 * x[1] * x[2] + rng.random_range(-0.4..0.4) > 0.1 { 1.0 } else { -1.0 });
    let y = y.collect();
    let costs = (0..N).map(|i| 0.5 + (i % 4) as f64).collect();
    (x, y, costs)
}

fn loss(name: &str) -> Arc<dyn Loss> {
    name.parse::<LossSpec>().unwrap().build().unwrap()
}

fn optimality(certificate: Certificate) -> Optimality {
    match certificate {
        Certificate::Optimality(o) => o,
        other => panic!("expected bounds, got {other:?}"),
    }
}

fn assert_close(a: &Optimality, b: &Optimality, what: &str) {
    let close = |x: f64, y: f64| (x - y).abs() <= 1e-11 * a.primal().abs().max(1.0);
    assert!(close(a.primal(), b.primal()) && close(a.gap(), b.gap()), "{what}: {a:?} {b:?}");
    assert!((a.violation() - b.violation()).abs() <= 1e-9, "{what}: {a:?} {b:?}");
    // The largest terms are those of the same rows, unless they are rounding.
    let rows = |o: &Optimality| o.worst().iter().filter(|w| w.gap > 1e-9).map(|w| w.row).take(3).collect::<Vec<_>>();
    assert_eq!(rows(a), rows(b), "{what}");
}

/// The rows `range` as data of their own.
fn points(x: &[f64], range: std::ops::Range<usize>) -> Points {
    Points::dense_f64(range.len(), D, x[range.start * D..range.end * D].to_vec()).unwrap()
}

const PARTS: [std::ops::Range<usize>; 3] = [0..17, 17..60, 60..N];

#[test]
fn the_certificate_of_a_linear_model_is_the_sum_of_its_parts() {
    let (x, y, costs) = data(1);
    let all = points(&x, 0..N);
    let matrix = RowMatrix::new(&all);
    for name in ["hinge", "squared-hinge", "logistic", "huber:delta=0.5", "epsilon:epsilon=0.2"] {
        let loss = loss(name);
        for bias in [Bias::None, Bias::Penalised { scaling: 2.0 }, Bias::Free] {
            let problem = LinearProblem::new(&matrix, &y, &costs, loss.as_ref(), bias).unwrap();
            let options = linear::Options { stop: Stop { tol: None, gap: Some(1e-3) }, ..Default::default() };
            let solved = linear::solve(&problem, &options, &control(), &mut Silent).unwrap();
            let (w, b, beta) = (&solved.weights, solved.bias, &solved.beta);
            let whole = optimality(certify_linear(&problem, w, b, beta, &control()).unwrap());
            let part = |range: &std::ops::Range<usize>, factors: [f64; 2]| {
                let own = points(&x, range.clone());
                let matrix = RowMatrix::new(&own);
                let r = range.clone();
                let p = LinearProblem::new(&matrix, &y[r.clone()], &costs[r.clone()], loss.as_ref(), bias).unwrap();
                linear_part(&p, w, b, &beta[r], factors, &control()).unwrap()
            };
            let parts: Vec<Part> = PARTS.iter().map(|range| part(range, [1.0, 1.0])).collect();
            let joined = optimality(combine_linear(&parts, bias, w, b));
            assert!(joined.gap() > 0.0, "{name}");
            assert_close(&whole, &joined, name);
            if bias == Bias::Free {
                // A β whose sum is not 0 proves nothing before it is scaled.
                let off: Vec<f64> = beta.iter().map(|b| if *b > 0.0 { 0.9 * b } else { *b }).collect();
                let part = |range: &std::ops::Range<usize>, factors: [f64; 2]| {
                    let own = points(&x, range.clone());
                    let matrix = RowMatrix::new(&own);
                    let r = range.clone();
                    let p = LinearProblem::new(&matrix, &y[r.clone()], &costs[r.clone()], loss.as_ref(), bias).unwrap();
                    linear_part(&p, w, b, &off[r], factors, &control()).unwrap()
                };
                let raw: Vec<Part> = PARTS.iter().map(|range| part(range, [1.0, 1.0])).collect();
                assert!(optimality(combine_linear(&raw, bias, w, b)).gap().is_infinite(), "{name}");
                let scaled: Vec<Part> = PARTS.iter().map(|range| part(range, Part::balance(&raw))).collect();
                let found = optimality(combine_linear(&scaled, bias, w, b));
                assert!(found.gap().is_finite() && found.dual() <= whole.primal(), "{name}: {found:?}");
            }
        }
    }
}

#[test]
fn the_certificate_of_a_kernel_model_is_the_sum_of_its_parts() {
    let (x, y, costs) = data(2);
    let (kernel, all, hinge) = (Kernel::rbf(0.7), points(&x, 0..N), loss("hinge"));
    let gram = CpuGram::square(kernel, &all).unwrap();
    let problem = KernelProblem::new(&gram, &y, &costs, hinge.as_ref(), Constraint::free_bias()).unwrap();
    let options = decomposition::Options { stop: Stop { tol: Some(0.05), gap: None }, ..Default::default() };
    let solved = decomposition::solve(&problem, &options, &control(), &mut Silent).unwrap();
    let b = solved.bias[0];
    let whole = optimality(certify(&problem, &solved.beta, Some(&[b]), None, &control()).unwrap());
    let sizes: Vec<f64> = all.squared_norms().iter().map(|s| size_of(&kernel, *s)).collect();
    let none = Constraint::None;
    let parts: Vec<Part> = PARTS
        .iter()
        .map(|r| {
            let gram = CpuGram::new(kernel, &points(&x, r.clone()), &all).unwrap();
            let (targets, costs, losses) = (&y[r.clone()], &costs[r.clone()], Losses::One(hinge.as_ref()));
            let samples = Samples { row_of: None, targets, costs, losses, constraint: &none };
            kernel_part(&gram, &sizes, &solved.beta, &samples, b, &solved.beta[r.clone()], &control()).unwrap()
        })
        .collect();
    let joined = optimality(combine_kernel(&parts, true, b, true));
    assert!(joined.gap() > 1e-6, "a loose solution has a gap: {joined:?}");
    assert_close(&whole, &joined, "rbf");
}

#[test]
fn newton_steps_from_sums_of_parts_reach_the_optimum() {
    let (x, y, costs) = data(3);
    let all = points(&x, 0..N);
    let matrix = RowMatrix::new(&all);
    let logistic = loss("logistic");
    let bias = Bias::Penalised { scaling: 1.0 };
    let problem = LinearProblem::new(&matrix, &y, &costs, logistic.as_ref(), bias).unwrap();
    assert!(natural_width(&problem).is_infinite());
    let (mut w, mut b) = (vec![0.0; D], 0.0);
    for _ in 0..12 {
        let (mut sums, mut curvature) = ([0.0; 2], 0.0);
        let (mut v, mut first, mut packed) = (vec![0.0; D], vec![0.0; D], vec![0.0; D * (D + 1) / 2]);
        for r in &PARTS {
            let own = points(&x, r.clone());
            let rows = RowMatrix::new(&own);
            let part = LinearProblem::new(&rows, &y[r.clone()], &costs[r.clone()], logistic.as_ref(), bias).unwrap();
            let probe = Probe { weights: &w, bias: b, direction: None, steps: &[] };
            let found = pass(&part, Smoothing::default(), probe, Curvature::Moments(&[]), &control()).unwrap();
            // The curvature times a unit vector is a column of the second moments.
            let (column, total) =
                product(&part, Smoothing::default(), (&w, b), (&[1.0, 0.0, 0.0], 0.0), &control()).unwrap();
            assert!((column[0] - found.second[0]).abs() < 1e-12 && (total - found.first[0]).abs() < 1e-12);
            (sums[0], sums[1], curvature) = (sums[0] + found.sum, sums[1] + found.excess, curvature + found.curvature);
            (0..D).for_each(|i| {
                v[i] += found.combination[i];
                first[i] += found.first[i];
                (0..=i).for_each(|j| packed[i * (i + 1) / 2 + j] += found.second[i * D + j]);
            });
        }
        let gradient: Vec<f64> = w.iter().zip(&v).map(|(w, v)| w - v).collect();
        let system = System {
            packed: &packed,
            first: &first,
            means: &[],
            total: curvature,
            gradient: &gradient,
            bias: (b - sums[0], 1.0 + curvature),
        };
        let (dw, db) = direction(&system, &control()).unwrap().unwrap();
        w.iter_mut().zip(&dw).for_each(|(w, dw)| *w += dw);
        b += db;
    }
    let beta = recentre(&problem, Smoothing::default(), &w, b, &control()).unwrap();
    let found = optimality(certify_linear(&problem, &w, b, &beta, &control()).unwrap());
    assert!(found.relative_gap() < 1e-10, "{found:?}");
}

#[test]
fn blocks_of_rows_reach_the_optimum_of_all() {
    let (x, y, costs) = data(4);
    let (kernel, all) = (Kernel::rbf(0.7), points(&x, 0..N));
    for name in ["hinge", "squared-hinge", "epsilon:epsilon=0.1", "huber:delta=0.3"] {
        let loss = loss(name);
        let gram = CpuGram::square(kernel, &all).unwrap();
        let problem = KernelProblem::new(&gram, &y, &costs, loss.as_ref(), Constraint::free_bias()).unwrap();
        let samples = problem.samples();
        let mut beta = vec![0.0; N];
        let stop = Stop { tol: Some(1e-6), gap: None };
        let mut found = None;
        for round in 0..200 {
            let mut f = vec![0.0; N];
            let whole = margrave_core::gram::Pick::All;
            gram.apply(margrave_core::gram::Precision::Double, whole, &beta, 1, &mut f, &control()).unwrap();
            let (fall, rise) = one_sided(&samples, &f, &beta).unwrap();
            let worst = fall.iter().fold(f64::MIN, |m, v| m.max(*v)) - rise.iter().fold(f64::MAX, |m, v| m.min(*v));
            if worst <= 1e-4 {
                break;
            }
            let mut rows = largest(&fall, 15, round);
            rows.extend(largest(&rise.iter().map(|f| -f).collect::<Vec<_>>(), 15, round));
            rows.sort_unstable();
            rows.dedup();
            let at = |v: &[f64]| rows.iter().map(|&i| v[i as usize]).collect::<Vec<f64>>();
            let inner = all.gather(&rows);
            let own = CpuGram::square(kernel, &inner).unwrap();
            let (targets, own_costs, before, mut offsets) = (at(&y), at(&costs), at(&beta), at(&f));
            let mut mine = vec![0.0; rows.len()];
            own.apply(margrave_core::gram::Precision::Double, whole, &before, 1, &mut mine, &control()).unwrap();
            offsets.iter_mut().zip(&mine).for_each(|(o, m)| *o -= m);
            let block = Block {
                gram: &own,
                targets: &targets,
                costs: &own_costs,
                offsets: &offsets,
                beta: &before,
                sum: Some(before.iter().sum()),
            };
            let solved = solve_block(&block, loss.as_ref(), stop, 1 << 30, &control()).unwrap();
            rows.iter().zip(&solved.beta).for_each(|(&i, b)| beta[i as usize] = *b);
            found = Some(solved.bias[0]);
        }
        let o =
            optimality(certify(&problem, &beta, found.as_ref().map(std::slice::from_ref), None, &control()).unwrap());
        assert!(o.violation() < 1e-3 && o.relative_gap() < 1e-3, "{name}: {o:?}");
    }
}

/// Carries out tasks in reverse order, each with nothing but the data and what the task before it returned.
struct Elsewhere<'a> {
    tuner: &'a Tuner,
    data: &'a Dataset,
    machines: Vec<(usize, Vec<(usize, Vec<MachineState>)>)>,
    tasks: usize,
}

impl Remote for Elsewhere<'_> {
    fn run(&mut self, tasks: &[SearchTask]) -> Result<Vec<Outcome>> {
        self.tasks += tasks.len();
        let mut all = Vec::new();
        for task in tasks.iter().rev() {
            let earlier = self.machines.iter().rev().find(|m| m.0 == task.kernel).map(|m| m.1.clone());
            let found = self.tuner.run_task(self.data, task, &earlier.unwrap_or_default())?;
            if task.keep_machines {
                let machines = |o: &Outcome| (o.cell, o.found.as_ref().map(|f| f.machines.clone()).unwrap_or_default());
                self.machines.push((task.kernel, found.iter().map(machines).collect()));
            }
            all.extend(found);
        }
        Ok(all)
    }
}

#[test]
fn a_search_elsewhere_has_the_bits_of_a_search_here() {
    let (x, y, _) = data(5);
    let data = Dataset::new(points(&x, 0..N), Targets::Real(y)).unwrap();
    for (gammas, race) in [(2, None), (5, None), (5, Some(1.5))] {
        let grid = Grid {
            costs: vec![0.1, 1.0, 10.0],
            gammas: (0..gammas).map(|k| 0.05 * 4f64.powi(k)).collect(),
            ..Grid::default()
        };
        let options = TrainOptions::new(Task::Classify);
        let tuner = Tuner { race, ..Tuner::new(options, grid) };
        let here = tuner.search(&data, &mut Silent).unwrap();
        let mut elsewhere = Elsewhere { tuner: &tuner, data: &data, machines: vec![], tasks: 0 };
        let there = tuner.search_on(&data, Some(&mut elsewhere), &mut Silent).unwrap();
        assert!(elsewhere.tasks >= gammas as usize);
        assert_eq!(here.best, there.best);
        for (a, b) in here.cells.iter().zip(&there.cells) {
            assert_eq!((&a.params, &a.folds, a.dropped), (&b.params, &b.folds, b.dropped));
        }
    }
}
