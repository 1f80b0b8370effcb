//! Points that live on a card, and factors there.

use std::sync::Arc;

use margrave_core::backend::{Backend, Device};
use margrave_core::control::{Control, Threads};
use margrave_core::data::{Dataset, Points, Storage, Targets};
use margrave_core::gram::{DeviceFactored, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_core::observe::Silent;
use margrave_core::problem::Task;
use margrave_core::train::{Plan, TrainOptions};
use margrave_cuda::{CardMatrix, DeviceName, card_number, choose_for, copied_values, copy_to_card, points_on_card};
use margrave_testkit::points;

fn single(points: &Points) -> Points {
    let Storage::DenseF64(m) = points.storage() else { return points.clone() };
    let values: Vec<f32> = m.values().iter().map(|v| *v as f32).collect();
    Points::dense_f32(m.len(), m.dims(), values).expect("finite values")
}

#[test]
fn answers_have_the_bits_of_the_processor() {
    let Some(backend) = crate::card() else { return };
    for (n, d) in [(3000, 7), (2500, 70), (40_000, 2), (2100, 1)] {
        for own in [points::dense(n, d, 4), single(&points::dense(n, d, 4))] {
            let there = copy_to_card(0, &own).expect("a copy on the card");
            assert_eq!((card_number(&there), card_number(&own)), (Some(0), None));
            assert_eq!(there.squared_norms(), own.squared_norms(), "{n} × {d}");
            let before = copied_values();
            let kernel = Kernel::rbf(0.1);
            let (a, b) = (
                backend.square_gram(kernel, &there).expect("a Gram"),
                backend.square_gram(kernel, &own).expect("a Gram"),
            );
            let control = Control::unlimited(Threads::new(2));
            let v: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
            for precision in [Precision::Single, Precision::Double] {
                let (mut x, mut y) = (vec![0.0; 50], vec![0.0; 50]);
                a.apply(precision, Pick::Range(3, 53), &v, 1, &mut x, &control).expect("no interrupt");
                b.apply(precision, Pick::Range(3, 53), &v, 1, &mut y, &control).expect("no interrupt");
                assert_eq!(x, y, "{n} × {d}");
            }
            assert_eq!(copied_values(), before, "values were copied to the processor");
            let rows: Vec<u32> = (0..700).map(|i| (i * 3) % n as u32).collect();
            let (p, q) = (there.gather(&rows), own.gather(&rows));
            let (mut x, mut y) = (vec![0.0; d], vec![0.0; d]);
            for row in 0..700 {
                p.copy_row(row, &mut x);
                q.copy_row(row, &mut y);
                assert_eq!(x, y);
            }
        }
    }
    assert_eq!(backend.failure(), None);
}

#[test]
fn a_model_does_not_depend_on_where_its_points_live() {
    let Some(backend) = crate::card() else { return };
    let n = 4000;
    let own = points::dense(n, 6, 5);
    // A tenth of the rows are copies.
    let own = own.gather(&(0..n as u32).map(|i| if i % 10 == 9 { i / 10 } else { i }).collect::<Vec<_>>());
    let there = copy_to_card(0, &own).expect("a copy on the card");
    let mut row = vec![0.0; 6];
    let mut label = |i: usize| {
        own.copy_row(i, &mut row);
        f64::from(u8::from(row[0] * row[1] > 0.1))
    };
    let y: Vec<f64> = (0..n).map(&mut label).collect();
    let train = |points: &Points| {
        let data = Dataset::new(points.clone(), Targets::Real(y.clone())).expect("data");
        let mut options = TrainOptions::new(Task::Classify);
        (options.kernel, options.gamma, options.device) = (Kernel::rbf(0.3), None, Device::Backend(backend));
        let fit = Plan::new(&options, &data).expect("a plan").train(&mut Silent).expect("a fit");
        let expansion = &fit.model().expansion;
        (expansion.rows().to_vec(), expansion.coefficients().to_vec(), expansion.bias().to_vec())
    };
    let before = copied_values();
    let found = train(&there);
    let copied = copied_values() - before;
    assert_eq!(found, train(&own));
    assert!(copied < (n * 6) as u64, "{copied} values were copied");
    assert_eq!(backend.failure(), None);
}

#[test]
fn points_on_a_card_go_with_that_card() {
    let here = Points::dense_f64(1, 1, vec![1.0]).expect("a point");
    assert_eq!(choose_for(DeviceName::Cpu, &here).expect("any device"), DeviceName::Cpu);
    let matrix = |address| CardMatrix { address, shape: [1, 1], strides: [8, 8], double: true, owner: Arc::new(()) };
    // Memory of the processor is refused, with or without a driver.
    let value = [1.0f64];
    assert!(points_on_card(matrix(value.as_ptr() as u64)).is_err());
    if crate::card().is_none() {
        return;
    }
    let there = copy_to_card(0, &here).expect("a copy on the card");
    assert_eq!(choose_for(DeviceName::Auto, &there).expect("its card"), DeviceName::Cuda(0));
    for other in [DeviceName::Cpu, DeviceName::Cuda(3)] {
        let error = choose_for(other, &there).unwrap_err().to_string();
        assert!(error.contains("card 0") && error.contains("X.cpu()"), "{error}");
    }
}

#[test]
fn factors_solve_their_systems() {
    let Some(backend) = crate::card() else { return };
    let control = Control::unlimited(Threads::new(4));
    let points = points::dense(2000, 5, 8);
    for kernel in [Kernel::rbf(0.3), Kernel::Laplacian { gamma: 0.2 }] {
        let gram = backend.square_gram(kernel, &points).expect("a Gram");
        let rows: Vec<u32> = (0..1777).map(|i| (i * 7) % 2000).collect();
        let ridge: Vec<f64> = (0..rows.len()).map(|i| 0.1 + (i % 3) as f64).collect();
        let Some(DeviceFactored::Factor(factor)) = gram.factored(&rows, &ridge, &control) else { panic!("a factor") };
        let mut right: Vec<Vec<f64>> =
            (0..3).map(|k| (0..rows.len()).map(|i| ((i + k) as f64).cos()).collect()).collect();
        let wanted = right.clone();
        assert!(factor.solve(&mut right));
        for (x, y) in right.iter().zip(&wanted) {
            let mut all = vec![0.0; 2000];
            rows.iter().zip(x).for_each(|(&row, x)| all[row as usize] = *x);
            let mut f = vec![0.0; rows.len()];
            gram.apply(Precision::Double, Pick::List(&rows), &all, 1, &mut f, &control).expect("no interrupt");
            let worst = (0..rows.len()).map(|i| (f[i] + ridge[i] * x[i] - y[i]).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-9, "{kernel}: residual {worst}");
        }
        let broken = gram.factored(&rows, &vec![-2.0; rows.len()], &control);
        assert!(matches!(broken, Some(DeviceFactored::NotPositive)), "{broken:?}");
        assert!(gram.factored(&rows[..10], &ridge[..10], &control).is_none());
    }
    assert_eq!(backend.failure(), None);
}
