//! The programs of solver.cu and gram.cu that the solver starts.

use margrave_core::kernel::Kernel;

use crate::arithmetic::KernelArgument;
use crate::driver::{Function, Turn};
use crate::error::CudaError;
use crate::ptx::Module;

macro_rules! programs {
    ($($name:ident),*) => {
        /// Programs by name.
        #[derive(Debug)]
        pub(super) struct Programs {
            $(pub(super) $name: Function,)*
            /// K over F as tiles.
            pub(super) tiles: Function,
            /// A product with the tiles.
            pub(super) multiply: Function,
            /// K·v in single and in double precision, and the sums of its parts.
            pub(super) product: [Function; 2],
            pub(super) add_parts: [Function; 2],
        }

        impl Programs {
            /// All programs for a kernel; `small`: the tiles are 16-bit numbers.
            pub(super) fn new(turn: &Turn<'_>, kernel: &Kernel, small: bool) -> Result<Self, CudaError> {
                let (_, statistic) = KernelArgument::of(kernel);
                let kind = if small { "u16" } else { "f32" };
                let solver = |name: &str| turn.function(Module::Solver, name, 0);
                let gram = |name: &str| -> Result<[Function; 2], CudaError> {
                    Ok([
                        turn.function(Module::GramF32, &format!("{name}_f32"), 0)?,
                        turn.function(Module::GramF64, &format!("{name}_f64"), 0)?,
                    ])
                };
                Ok(Self {
                    $($name: solver(stringify!($name))?,)*
                    tiles: solver(&format!("tiles_{kind}_{statistic}"))?,
                    multiply: solver(&format!("multiply_{kind}"))?,
                    product: gram(&format!("product1_{statistic}"))?,
                    add_parts: gram("add_parts")?,
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
    cg_step,
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
    set_g
);
