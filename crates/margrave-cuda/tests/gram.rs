//! The conformance tests of all backends, on a card.

use margrave_core::backend::Backend;
use margrave_core::data::Points;
use margrave_core::gram::Gram;
use margrave_core::kernel::Kernel;
use margrave_testkit::backend_suite as suite;

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
