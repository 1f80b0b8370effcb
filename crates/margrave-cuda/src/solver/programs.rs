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
            /// K over F as tiles, and products with them: in 16 bits (where the kernel allows it), and in single precision.
            pub(super) tiles: [Function; 2],
            pub(super) multiply: [Function; 2],
            /// Blocks of K in single and in double precision.
            pub(super) block: [Function; 2],
            /// K·v in single and in double precision, and the sums of its parts.
            pub(super) product: [Function; 2],
            pub(super) add_parts: [Function; 2],
        }

        impl Programs {
            /// All programs for a kernel; `small`: its values are from 0 to 1.
            pub(super) fn new(turn: &Turn<'_>, kernel: &Kernel, small: bool) -> Result<Self, CudaError> {
                let (_, statistic) = KernelArgument::of(kernel);
                let kinds = [if small { "u16" } else { "f32" }, "f32"];
                let solver = |name: &str| turn.function(Module::Solver, name, 0);
                let gram = |name: &str| -> Result<[Function; 2], CudaError> {
                    Ok([
                        turn.function(Module::GramF32, &format!("{name}_f32"), 0)?,
                        turn.function(Module::GramF64, &format!("{name}_f64"), 0)?,
                    ])
                };
                Ok(Self {
                    $($name: solver(stringify!($name))?,)*
                    tiles: [
                        solver(&format!("tiles_{}_{statistic}", kinds[0]))?,
                        solver(&format!("tiles_{}_{statistic}", kinds[1]))?,
                    ],
                    multiply: [
                        solver(&format!("multiply_{}", kinds[0]))?,
                        solver(&format!("multiply_{}", kinds[1]))?,
                    ],
                    block: [
                        turn.function(Module::GramF32, &format!("block_{statistic}_f32"), 0)?,
                        turn.function(Module::GramF64, &format!("block_{statistic}_f64"), 0)?,
                    ],
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
    set_g
);
