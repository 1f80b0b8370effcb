//! Machines computed by hand, and the same numbers from every code path.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::backend::cpu::CpuGram;
use crate::control::{Budget, Threads};
use crate::data::{Csr, ScaleKind};
use crate::error::Error;
use crate::gram::{Pick, PrecomputedGram};
use crate::kernel::Kernel;
use crate::loss::{Hinge, SquaredHinge};
use crate::solver::{Solution, Stop};
use crate::train::{Asked, prove};

fn control() -> Control {
    Control::unlimited(Threads::one())
}

fn recipe(task: Task, formulation: Formulation) -> Recipe {
    Recipe {
        task,
        formulation,
        loss: Some(LossSpec::Hinge),
        free_bias: true,
        penalty: crate::problem::Penalty::L2,
        intercept_scaling: None,
        labels: vec![Label::Text("no".into()), Label::Text("yes".into())],
        class_weights: vec![],
        scaling: None,
        schema: None,
        solver: "hand".into(),
    }
}

fn fitted(recipe: Recipe, kernel: Kernel, points: &Points, setup: &Setup, beta: Vec<f64>) -> Model {
    let gram = CpuGram::square(kernel, points).unwrap();
    let bias = vec![0.0; setup.constraint().groups()];
    let solution =
        Solution { beta, bias, exact: None, scores: None, status: Status::Optimal, iterations: 1, violation: 0.0 };
    let proven = prove(setup, &gram, &solution, &Asked::from(Stop::default()), &control()).unwrap();
    Model::binary(recipe, kernel, points, setup, &proven, 0.1, 9).unwrap()
}

/// x = −2, −1, 1, 3: the margin lies between −1 and 1, so w = 1, b = 0.
fn by_hand(kernel: Kernel) -> (Model, Points, Setup) {
    let points = Points::dense_f64(4, 1, vec![-2.0, -1.0, 1.0, 3.0]).unwrap();
    let setup = Setup::classify(&[-1.0, -1.0, 1.0, 1.0], None, 10.0, Arc::new(Hinge), true).unwrap();
    let beta = vec![0.0, -0.5, 0.5, 0.0];
    let model = fitted(recipe(Task::Classify, Formulation::Cost { c: 10.0 }), kernel, &points, &setup, beta);
    (model, points, setup)
}

#[test]
fn a_linear_machine_is_collapsed_and_its_margins_are_distances() {
    let (model, points, setup) = by_hand(Kernel::Linear);
    assert_eq!(model.expansion.weights(), Some(&[1.0][..]));
    assert_eq!(model.expansion.rows(), [1, 2]);
    let z = model.scores(&points, Precision::Double, &control()).unwrap();
    assert!(z.iter().zip([-2.0, -1.0, 1.0, 3.0]).all(|(a, b)| (a - b).abs() < 1e-12), "{z:?}");
    assert_eq!(model.predict(&points, Precision::Double, &control()).unwrap(), Prediction::Labels(vec![0, 0, 1, 1]));
    let norm = model.expansion.squared_norms(&control()).unwrap()[0];
    assert!((norm - model.machines[0].certificate.squared_norm().unwrap()).abs() < 1e-12);
    let found = margins(setup.targets(), &z, norm * 4.0);
    assert!((found.functional[3] - 3.0).abs() < 1e-12 && (found.geometric[3] - 1.5).abs() < 1e-12);
    let record = &model.machines[0];
    assert_eq!((record.support_vectors, record.bounded), (2, 0));
    assert!(record.certificate.gap().unwrap() < 1e-12);
    let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
    assert!(model.certify(&setup, &gram, &control()).unwrap().gap().unwrap() < 1e-12);
}

#[test]
fn cases_tell_zero_free_and_bound() {
    let setup = Setup::classify(&[-1.0, 1.0, 1.0], Some(&[1.0, 1.0, 3.0]), 2.0, Arc::new(Hinge), true).unwrap();
    assert_eq!(cases(&setup, &[-2.0, 0.0, 2.0]), [Case::Bound, Case::Zero, Case::Free]);
    let open = Setup::classify(&[-1.0, 1.0], None, 1.0, Arc::new(SquaredHinge), true).unwrap();
    assert_eq!(cases(&open, &[-9.0, 9.0]), [Case::Free, Case::Free]);
    let tube = Setup::nu_regress(&[0.0, 1.0], None, 1.0, 0.5).unwrap();
    assert_eq!(cases(&tube, &[0.0, 0.5, -1.0, 0.0]), [Case::Bound, Case::Free]);
}

#[test]
fn scores_are_the_sum_over_centres_whatever_the_storage() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let (n, d, k) = (30, 5, 3);
    let x: Vec<f64> =
        (0..n * d).map(|_| if rng.random_range(0..3) == 0 { 0.0 } else { rng.random_range(-1.0..1.0) }).collect();
    let dense = Points::dense_f64(n, d, x.clone()).unwrap();
    let (mut starts, mut columns, mut values) = (vec![0], vec![], vec![]);
    for row in x.chunks(d) {
        for (j, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
            columns.push(j as u32);
            values.push(*v);
        }
        starts.push(columns.len());
    }
    let sparse: Points = Csr::new(d, starts, columns, values).unwrap().into();
    let coefficients: Vec<f64> =
        (0..n * k).map(|at| if (at / k) % 3 == 0 { 0.0 } else { rng.random_range(-1.0..1.0) }).collect();
    let bias = vec![0.5, -1.0, 0.0];
    for kernel in [Kernel::Linear, Kernel::rbf(0.7), Kernel::Poly { gamma: 1.0, coef0: 1.0, degree: 2 }] {
        let gram = CpuGram::square(kernel, &dense).unwrap();
        let mut full = vec![0.0; n * n];
        gram.block_f64(Pick::All, Pick::All, &mut full, &control()).unwrap();
        for points in [&dense, &sparse] {
            let expansion = Expansion::of_training(kernel, points, &coefficients, bias.clone()).unwrap();
            assert_eq!(expansion.len(), 20);
            let scores = expansion.scores(points, Precision::Double, &control()).unwrap();
            for i in 0..n {
                for o in 0..k {
                    let naive: f64 = (0..n).map(|j| full[i * n + j] * coefficients[j * k + o]).sum();
                    assert!((scores[i * k + o] - naive - bias[o]).abs() < 1e-11, "{kernel}");
                }
            }
            let single = expansion.scores(points, Precision::Single, &control()).unwrap();
            assert!(single.iter().zip(&scores).all(|(a, b)| (a - b).abs() < 1e-4));
        }
        // The rows of K themselves, as a precomputed kernel.
        let table = Points::dense_f64(n, n, full).unwrap();
        let looked_up = Expansion::of_training(Kernel::Precomputed, &table, &coefficients, bias.clone()).unwrap();
        let scores = looked_up.scores(&table, Precision::Double, &control()).unwrap();
        let computed = Expansion::of_training(kernel, &dense, &coefficients, bias.clone()).unwrap();
        let expected = computed.scores(&dense, Precision::Double, &control()).unwrap();
        assert!(scores.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-11));
        assert_eq!(PrecomputedGram::new(table).shape(), (n, n));
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused_and_sparse_ones_widened() {
    let (model, ..) = by_hand(Kernel::rbf(1.0));
    let wide = Points::dense_f64(1, 2, vec![0.0, 1.0]).unwrap();
    assert!(matches!(
        model.scores(&wide, Precision::Double, &control()),
        Err(Error::Shape { expected: 1, found: 2, .. })
    ));
    let sparse: Points = Csr::new(3, vec![0, 1], vec![1], vec![1.0]).unwrap().into();
    let narrow: Points = Csr::new(1, vec![0, 0], vec![], Vec::<f64>::new()).unwrap().into();
    let centres: Points = Csr::new(2, vec![0, 1], vec![0], vec![1.0]).unwrap().into();
    let expansion = Expansion::new(Kernel::rbf(1.0), centres, vec![0], vec![1.0], vec![0.0], 2).unwrap();
    // ‖(0, 1, 0) − (1, 0, 0)‖² = 2; the empty row is at distance 1.
    let z = expansion.scores(&sparse, Precision::Double, &control()).unwrap();
    assert!((z[0] - (-2f64).exp()).abs() < 1e-12);
    let z = expansion.scores(&narrow, Precision::Double, &control()).unwrap();
    assert!((z[0] - (-1f64).exp()).abs() < 1e-12);
    let late = Control::start(&Budget { seconds: Some(0.0), ..Budget::default() }, Threads::one());
    assert!(matches!(expansion.scores(&sparse, Precision::Double, &late), Err(Error::Interrupted(_))));
    let (linear, points, _) = by_hand(Kernel::Linear);
    assert!(matches!(linear.scores(&points, Precision::Double, &late), Err(Error::Interrupted(_))));
    let bad = Expansion::new(Kernel::Linear, points, vec![0; 4], vec![f64::NAN; 4], vec![0.0], 1);
    assert!(matches!(bad, Err(Error::NotFinite { .. })));
}

#[test]
fn scaling_travels_with_the_model() {
    let raw = Points::dense_f64(4, 1, vec![80.0, 90.0, 110.0, 130.0]).unwrap();
    let scaling = Scaling::fit(ScaleKind::MinMax, &raw);
    let scaled = scaling.apply(&raw).unwrap();
    let setup = Setup::classify(&[-1.0, -1.0, 1.0, 1.0], None, 1.0, Arc::new(Hinge), true).unwrap();
    let recipe = Recipe { scaling: Some(scaling), ..recipe(Task::Classify, Formulation::Cost { c: 1.0 }) };
    let model = fitted(recipe, Kernel::Linear, &scaled, &setup, vec![0.0, -1.0, 1.0, 0.0]);
    let z = model.scores(&raw, Precision::Double, &control()).unwrap();
    let direct = model.expansion.scores(&scaled, Precision::Double, &control()).unwrap();
    assert_eq!(z, direct);
    assert_eq!(model.machines[0].bounded, 2);
}

#[test]
fn novelty_models_say_inside_or_outside() {
    // The ball around 0 and 4: centre 2, R² = 4; a score is half of R² − distance².
    let points = Points::dense_f64(3, 1, vec![0.0, 1.0, 4.0]).unwrap();
    let setup = Setup::svdd(&[0.0, 1.0, 16.0], None, 5.0).unwrap();
    let recipe = recipe(Task::Novelty, Formulation::Svdd { nu: 1.0 / 15.0 });
    let model = fitted(recipe, Kernel::Linear, &points, &setup, vec![0.5, 0.0, 0.5]);
    let probe = Points::dense_f64(3, 1, vec![2.0, 3.9, 5.0]).unwrap();
    let z = model.scores(&probe, Precision::Double, &control()).unwrap();
    assert!((z[0] - 2.0).abs() < 1e-9 && (z[2] + 2.5).abs() < 1e-9, "{z:?}");
    assert_eq!(model.decide(&z), Prediction::Inside(vec![true, true, false]));
}

#[test]
fn a_nu_machine_can_be_resumed_and_certified() {
    let points = Points::dense_f64(4, 1, vec![-2.0, -1.0, 1.0, 3.0]).unwrap();
    let setup = Setup::nu_classify(&[-1.0, -1.0, 1.0, 1.0], None, 0.4).unwrap();
    // Sums ±0.8 on the two points next to the margin: w = 1.6 before, 1 after dividing by ρ = 1.6.
    let beta = vec![0.0, -0.8, 0.8, 0.0];
    let recipe = recipe(Task::Classify, Formulation::Nu { nu: 0.4, c: 1.0 });
    let model = fitted(recipe, Kernel::Linear, &points, &setup, beta.clone());
    assert!((model.expansion.weights().unwrap()[0] - 1.0).abs() < 1e-9);
    assert!((model.machines[0].rho - 1.6).abs() < 1e-9);
    let (again, _) = model.solution(&setup).unwrap();
    assert!(again.iter().zip(&beta).all(|(a, b)| (a - b).abs() < 1e-9));
    let gram = CpuGram::square(Kernel::Linear, &points).unwrap();
    let certificate = model.certify(&setup, &gram, &control()).unwrap();
    assert!(certificate.gap().unwrap() < 1e-8 && certificate.violation() < 1e-8, "{certificate}");
}
