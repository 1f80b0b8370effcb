//! The programs of solver.cu.

use crate::driver::{Function, Turn};
use crate::error::CudaError;
use crate::ptx::Module;

macro_rules! programs {
    ($($name:ident),*) => {
        /// Programs by name.
        #[derive(Debug)]
        pub(super) struct Programs {
            $(pub(super) $name: Function,)*
            /// Products with K over F in 16 bits and in single precision.
            pub(super) multiply: [Function; 2],
            /// Whole runs of conjugate gradients, and how many of their blocks can run at the same time.
            pub(super) cg_run: [Function; 2],
            pub(super) together: u32,
        }

        impl Programs {
            /// All programs.
            pub(super) fn new(turn: &Turn<'_>) -> Result<Self, CudaError> {
                let solver = |name: &str| turn.function(Module::Solver, name, 0);
                let cg_run = [solver("cg_run_u16")?, solver("cg_run_f32")?];
                let together = turn.together(cg_run[0], 256)?.min(turn.together(cg_run[1], 256)?);
                Ok(Self {
                    $($name: solver(stringify!($name))?,)*
                    multiply: [solver("multiply_u16")?, solver("multiply_f32")?],
                    cg_run,
                    together,
                })
            }
        }
    };
}

programs!(
    measure_parts,
    measure,
    wish_histogram,
    wish_threshold,
    flag_set,
    flag_nonzero,
    select_count,
    select_scan,
    select_list,
    gather_set,
    multiply_sum,
    cg_start,
    cg_tighten,
    cg_again,
    pin,
    load_q,
    keep_moves,
    add_taken,
    compact,
    settle,
    pick_columns,
    search_parts,
    search,
    move_beta,
    move_g,
    set_g,
    sum_parts,
    subtract,
    gap_parts,
    gap_sum,
    balance_parts,
    balance
);
