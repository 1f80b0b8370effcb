//! The conformance tests of all backends, on a card.

use margrave_core::backend::{Backend, Device};
use margrave_core::control::{Control, Threads};
use margrave_core::data::Points;
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_testkit::{backend_suite as suite, points};

/// Runs a test of the suite on the first card; says so if there is none.
fn on_card(test: fn(suite::Make<'_>)) {
    let Some(backend) = crate::card() else { return };
    let make = |kernel: Kernel, rows: &Points, cols: Option<&Points>| -> Box<dyn Gram> {
        match cols {
            Some(cols) => backend.gram(kernel, rows, cols).expect("a Gram on the card"),
            None => backend.square_gram(kernel, rows).expect("a Gram on the card"),
        }
    };
    test(&make);
    assert_eq!(backend.failure(), None, "the processor took over");
}

macro_rules! tests {
    ($($test:ident),*) => {
        $(
            #[test]
            fn $test() {
                on_card(suite::$test);
            }
        )*
    };
}

tests!(
    entries_are_accurate,
    sparse_points_are_accurate,
    symmetry_is_exact,
    picks_are_consistent,
    products_are_those_of_the_entries,
    threads_do_not_change_bits,
    interrupts_are_obeyed,
    entries_are_counted
);

/// Products of many shapes, by tensor cores where those are accurate enough, against the processor.
#[test]
fn products_agree_with_the_processor() {
    let Some(backend) = crate::card() else { return };
    let control = Control::unlimited(Threads::new(4));
    for (n, d, gamma, spread, sparse) in [
        (3001, 50, 0.02, 1.0, false),
        (1500, 1, 0.5, 1.0, false),
        (2100, 7, 0.1, 1.0, false),
        (700, 784, 0.001, 1.0, false),
        (1300, 130, 0.01, 1.0, true),
        // Too far apart for anything but differences.
        (900, 20, 10.0, 30.0, false),
    ] {
        let points = match sparse {
            true => points::sparse(n, d, 0.2, 4),
            false => {
                let values = points::normal(n, d, spread, 3.0, 6);
                Points::dense_f32(n, d, values.iter().map(|x| *x as f32).collect::<Vec<f32>>()).unwrap()
            }
        };
        let kernel = Kernel::rbf(gamma);
        let here = Device::Cpu.backend().square_gram(kernel, &points).unwrap();
        let there = backend.square_gram(kernel, &points).unwrap();
        let v: Vec<f64> = points::normal(n, 1, 1.0, 0.0, 7).iter().map(|x| if *x < -0.5 { 0.0 } else { *x }).collect();
        let list: Vec<u32> = (0..n as u32).rev().step_by(3).collect();
        for pick in [Pick::All, Pick::Range(17, n - 5), Pick::List(&list)] {
            let (mut expected, mut found) = (vec![0.0; pick.len(n)], vec![f64::NAN; pick.len(n)]);
            here.apply(Precision::Double, pick, &v, 1, &mut expected, &control).unwrap();
            there.apply(Precision::Double, pick, &v, 1, &mut found, &control).unwrap();
            let reach: f64 = v.iter().map(|x| x.abs()).sum();
            let worst = expected.iter().zip(&found).fold(0.0f64, |w, (a, b)| w.max((a - b).abs()));
            let bound = there.accuracy();
            let allowed = 0.5 * f64::EPSILON * (bound.relative + bound.chain.additions(n) + 64.0) * reach;
            eprintln!("n {n}, d {d}, gamma {gamma}: off by {worst:e}, allowed {allowed:e}");
            assert!(worst <= allowed, "n {n}, d {d}: off by {worst:e} of {allowed:e}");
        }
    }
    assert_eq!(backend.failure(), None, "the processor took over");
}
