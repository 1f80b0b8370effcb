//! The embedded programs, compiled by `scripts/ptx` from the folder `kernels`.

use std::io::Read;

use flate2::read::GzDecoder;

/// A module of programs, loaded on first use: the driver compiles it when it first meets it, which takes about a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Module {
    /// Entries and products in single precision.
    GramF32,
    /// Entries and products in double precision.
    GramF64,
    /// The set Newton solver.
    Solver,
    /// K over a set, by differences.
    Tiles,
    /// Entries by tensor cores in single precision, for up to 64 features.
    Packed,
    /// The same for more features.
    Chunked,
    /// Products by tensor cores in double precision.
    Wide,
    /// The same with instructions of compute capability 9.0.
    Hopper,
    /// Cholesky factors of stiff sets.
    Factor,
    /// Questions about points that live on the card.
    Arrays,
    /// Chains of problems for searches.
    Chains,
    /// Newton's method on the primal objective.
    Primal,
    /// Features on few centres.
    Features,
}

/// All modules.
pub(crate) const MODULES: [Module; 13] = [
    Module::GramF32,
    Module::GramF64,
    Module::Solver,
    Module::Tiles,
    Module::Packed,
    Module::Chunked,
    Module::Wide,
    Module::Hopper,
    Module::Factor,
    Module::Arrays,
    Module::Chains,
    Module::Primal,
    Module::Features,
];

impl Module {
    /// What loading it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Module::GramF32 => "load gram_f32",
            Module::GramF64 => "load gram_f64",
            Module::Solver => "load solver",
            Module::Tiles => "load tiles",
            Module::Packed => "load packed",
            Module::Chunked => "load chunked",
            Module::Wide => "load wide",
            Module::Hopper => "load hopper",
            Module::Factor => "load factor",
            Module::Arrays => "load arrays",
            Module::Chains => "load chains",
            Module::Primal => "load primal",
            Module::Features => "load features",
        }
    }

    /// Its PTX, which ends with a zero byte.
    pub(crate) fn text(self) -> Vec<u8> {
        let compressed: &[u8] = match self {
            Module::GramF32 => include_bytes!("../ptx/gram_f32.ptx.gz"),
            Module::GramF64 => include_bytes!("../ptx/gram_f64.ptx.gz"),
            Module::Solver => include_bytes!("../ptx/solver.ptx.gz"),
            Module::Tiles => include_bytes!("../ptx/tiles.ptx.gz"),
            Module::Packed => include_bytes!("../ptx/packed.ptx.gz"),
            Module::Chunked => include_bytes!("../ptx/chunked.ptx.gz"),
            Module::Wide => include_bytes!("../ptx/wide.ptx.gz"),
            Module::Hopper => include_bytes!("../ptx/hopper.ptx.gz"),
            Module::Factor => include_bytes!("../ptx/factor.ptx.gz"),
            Module::Arrays => include_bytes!("../ptx/arrays.ptx.gz"),
            Module::Chains => include_bytes!("../ptx/chains.ptx.gz"),
            Module::Primal => include_bytes!("../ptx/primal.ptx.gz"),
            Module::Features => include_bytes!("../ptx/features.ptx.gz"),
        };
        let mut text = Vec::new();
        GzDecoder::new(compressed).read_to_end(&mut text).expect("the programs were compressed by scripts/ptx");
        text.push(0);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64-bit FNV-1a, as in scripts/ptx.
    fn fnv(data: &[u8]) -> String {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        format!("{:016x}", data.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }

    #[test]
    fn the_programs_are_those_of_the_sources() {
        let source = |module| match module {
            Module::GramF32 | Module::GramF64 => ("gram.cu", include_str!("../kernels/gram.cu")),
            Module::Solver => ("solver.cu", include_str!("../kernels/solver.cu")),
            Module::Tiles => ("tiles.cu", include_str!("../kernels/tiles.cu")),
            Module::Packed | Module::Chunked => ("packed.cu", include_str!("../kernels/packed.cu")),
            Module::Factor => ("factor.cu", include_str!("../kernels/factor.cu")),
            Module::Arrays => ("arrays.cu", include_str!("../kernels/arrays.cu")),
            Module::Chains => ("chains.cu", include_str!("../kernels/chains.cu")),
            Module::Primal => ("primal.cu", include_str!("../kernels/primal.cu")),
            Module::Features => ("features.cu", include_str!("../kernels/features.cu")),
            Module::Wide | Module::Hopper => ("wide.cu", include_str!("../kernels/wide.cu")),
        };
        for module in MODULES {
            let (name, source) = source(module);
            let source = source
                .replace("#include \"statistics.cuh\"\n", include_str!("../kernels/statistics.cuh"))
                .replace("#include \"variables.cuh\"\n", include_str!("../kernels/variables.cuh"))
                .replace("#include \"matrix.cuh\"\n", include_str!("../kernels/matrix.cuh"))
                .replace("#include \"precondition.cuh\"\n", include_str!("../kernels/precondition.cuh"));
            assert!(!source.contains("#include"), "{name}: a header this test does not know");
            let text = String::from_utf8(module.text()).unwrap();
            let head = text.lines().next().unwrap();
            let expected = format!("// source {name} {};", fnv(source.as_bytes()));
            assert!(head.starts_with(&expected), "{module:?} is not compiled from {name}: run scripts/ptx\n{head}");
            let target = if module == Module::Hopper { ".target sm_90" } else { ".target sm_80" };
            assert!(text.contains(target), "{module:?}");
        }
    }
}
