//! The embedded programs, compiled by `scripts/ptx` from the folder `kernels`.

/// Number of modules.
pub(crate) const PROGRAMS: usize = 3;

/// A module of programs, loaded on first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Module {
    /// Entries and products in single precision.
    GramF32,
    /// Entries and products in double precision.
    GramF64,
    /// The set Newton solver.
    Solver,
}

impl Module {
    /// Its PTX.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Module::GramF32 => include_str!("../ptx/gram_f32.ptx"),
            Module::GramF64 => include_str!("../ptx/gram_f64.ptx"),
            Module::Solver => include_str!("../ptx/solver.ptx"),
        }
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
        let common = include_str!("../kernels/statistics.cuh");
        let gram = include_str!("../kernels/gram.cu");
        let solver = include_str!("../kernels/solver.cu");
        for (module, name, source) in [
            (Module::GramF32, "gram.cu", gram),
            (Module::GramF64, "gram.cu", gram),
            (Module::Solver, "solver.cu", solver),
        ] {
            let source = source
                .replace("#include \"statistics.cuh\"\n", common)
                .replace("#include \"matrix.cuh\"\n", include_str!("../kernels/matrix.cuh"))
                .replace("#include \"precondition.cuh\"\n", include_str!("../kernels/precondition.cuh"));
            assert!(!source.contains("#include"), "{name}: a header this test does not know");
            let head = module.text().lines().next().unwrap();
            let expected = format!("// source {name} {};", fnv(source.as_bytes()));
            assert!(head.starts_with(&expected), "{module:?} is not compiled from {name}: run scripts/ptx\n{head}");
            assert!(module.text().contains(".target sm_80"), "{module:?}");
        }
    }
}
