//! The statistic that a kernel is a function of, stored for all pairs of points: K for another γ then takes one pass of
//! exp.

use super::CpuGram;
use super::finish::{LaneColumns, Tile, finish};
use super::simd::{Level, Simd, Wide32};
use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::error::Result;
use crate::gram::{Gram, Pick};
use crate::kernel::{Kernel, Statistic};
use crate::linalg::pages;

/// Side length of a tile.
const SIDE: usize = 32;

/// x·x′ or ‖x − x′‖² of n points, rounded to single precision from double: n²/2 numbers.
pub struct Statistics {
    n: usize,
    statistic: Statistic,
    level: Level,
    /// Tiles of `SIDE` × `SIDE` above and on the diagonal, row of tiles by row of tiles.
    tiles: Vec<f32>,
}

impl Statistics {
    /// Bytes needed for n points.
    pub fn bytes(n: usize) -> u64 {
        let side = n.div_ceil(SIDE) as u64;
        (side * (side + 1) / 2).saturating_mul((4 * SIDE * SIDE) as u64)
    }

    /// Whether this statistic is supported: those computed from inner products, which are fast in double precision.
    pub fn serves(statistic: Statistic) -> bool {
        matches!(statistic, Statistic::Dot | Statistic::SquaredDistance)
    }

    /// The statistic of all pairs; it must be supported (see [`serves`](Self::serves)).
    pub fn new(points: &Points, statistic: Statistic, control: &Control) -> Result<Self> {
        debug_assert!(Self::serves(statistic));
        let n = points.len();
        let side = n.div_ceil(SIDE);
        let gram = CpuGram::square(Kernel::Linear, points)?;
        let norms = gram.diag();
        let mut tiles: Vec<f32> = pages::zeros(Self::bytes(n) as usize / 4);
        let mut block = vec![0.0; SIDE * n];
        let mut rest = tiles.as_mut_slice();
        for above in 0..side {
            let (from, to) = (above * SIDE, (above * SIDE + SIDE).min(n));
            let width = n - from;
            let block = &mut block[..(to - from) * width];
            gram.block_f64(Pick::Range(from, to), Pick::Range(from, n), block, control)?;
            let (line, after) = rest.split_at_mut((side - above) * SIDE * SIDE);
            rest = after;
            for (across, tile) in line.chunks_exact_mut(SIDE * SIDE).enumerate() {
                let first = across * SIDE;
                for r in 0..to - from {
                    for c in 0..SIDE.min(width - first) {
                        let dot = block[r * width + first + c];
                        tile[r * SIDE + c] = match statistic {
                            Statistic::SquaredDistance if first + c == r => 0.0,
                            Statistic::SquaredDistance => {
                                (norms[from + r] + norms[from + first + c] - 2.0 * dot).max(0.0) as f32
                            }
                            _ => dot as f32,
                        };
                    }
                }
            }
        }
        Ok(Self { n, statistic, level: Level::detect(), tiles })
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The stored statistic.
    pub fn statistic(&self) -> Statistic {
        self.statistic
    }

    /// K of a kernel with this statistic, n × n row-major, exactly symmetric; the same bits for any number of threads.
    pub fn fill(&self, kernel: Kernel, out: &mut [f32], control: &Control) -> std::result::Result<(), Interrupt> {
        debug_assert_eq!(kernel.statistic(), self.statistic);
        let n = self.n;
        control.threads.chunks(out, SIDE * n.max(1), |at, rows| {
            if control.check().is_ok() {
                self.rows(kernel, at, rows);
            }
        });
        control.check()
    }

    /// The tile of the row of tiles `a` and the column of tiles `b ≥ a`.
    fn tile(&self, a: usize, b: usize) -> &[f32] {
        let side = self.n.div_ceil(SIDE);
        let before = a * side - a * a.saturating_sub(1) / 2;
        &self.tiles[(before + b - a) * SIDE * SIDE..][..SIDE * SIDE]
    }

    /// The rows of one row of tiles. Entries below the diagonal are computed from the transposed tile: cheaper than
    /// copying them from rows that another thread may be writing.
    fn rows(&self, kernel: Kernel, at: usize, out: &mut [f32]) {
        let n = self.n;
        let mut done = [0f32; SIDE * SIDE];
        for across in 0..n.div_ceil(SIDE) {
            let first = across * SIDE;
            let width = SIDE.min(n - first);
            map(self.level, kernel, self.tile(at.min(across), at.max(across)), &mut done);
            for (r, line) in out.chunks_exact_mut(n).enumerate() {
                let line = &mut line[first..first + width];
                if across >= at {
                    line.copy_from_slice(&done[r * SIDE..r * SIDE + width]);
                } else {
                    line.iter_mut().enumerate().for_each(|(c, out)| *out = done[c * SIDE + r]);
                }
            }
        }
    }
}

/// Applies the kernel to every number of a tile.
fn map(level: Level, kernel: Kernel, sums: &[f32], out: &mut [f32; SIDE * SIDE]) {
    const { assert!(SIDE == <f32 as super::simd::SimdScalar>::NR) }
    #[inline(always)]
    unsafe fn all<V: Simd<T = f32>>(kernel: Kernel, sums: &[f32], out: &mut [f32; SIDE * SIDE]) {
        let zeros = [0f32; SIDE];
        let tile = Tile {
            height: SIDE,
            sums: sums.as_ptr(),
            row_norms: zeros.as_ptr(),
            norms: zeros.as_ptr(),
            rows: &[],
            columns: LaneColumns::List(&[]),
        };
        // SAFETY: `sums` has `SIDE` lines of `NR`, the norms one line, `out` the same room with lines of `SIDE`; the
        // caller guarantees the instructions of V.
        unsafe { finish::<V>(kernel, false, None, tile, out.as_mut_ptr(), SIDE) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
    unsafe fn avx512(kernel: Kernel, sums: &[f32], out: &mut [f32; SIDE * SIDE]) {
        // SAFETY: the features are enabled here.
        unsafe { all::<std::arch::x86_64::__m512>(kernel, sums, out) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(kernel: Kernel, sums: &[f32], out: &mut [f32; SIDE * SIDE]) {
        // SAFETY: the features are enabled here.
        unsafe { all::<std::arch::x86_64::__m256>(kernel, sums, out) }
    }
    assert_eq!(sums.len(), SIDE * SIDE);
    // SAFETY: this processor supports `level`.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512(kernel, sums, out),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2(kernel, sums, out),
            _ => all::<Wide32>(kernel, sums, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::control::Threads;

    #[test]
    fn kernels_of_a_statistic_are_those_of_the_points() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(11);
        for n in [1, 31, 32, 33, 97] {
            let values: Vec<f64> = (0..n * 5).map(|_| rng.random_range(-2.0..2.0)).collect();
            let points = Points::dense_f64(n, 5, values).unwrap();
            for kernel in [
                Kernel::rbf(0.3),
                Kernel::rbf(20.0),
                Kernel::Matern32 { gamma: 0.2 },
                Kernel::Poly { gamma: 0.1, coef0: 1.0, degree: 3 },
                Kernel::Linear,
            ] {
                let control = Control::unlimited(Threads::new(2));
                let statistics = Statistics::new(&points, kernel.statistic(), &control).unwrap();
                let mut found = vec![0f32; n * n];
                statistics.fill(kernel, &mut found, &control).unwrap();
                let mut again = vec![0f32; n * n];
                statistics.fill(kernel, &mut again, &Control::unlimited(Threads::one())).unwrap();
                assert_eq!(found, again);
                let mut exact = vec![0f64; n * n];
                let gram = CpuGram::square(kernel, &points).unwrap();
                gram.block_f64(Pick::All, Pick::All, &mut exact, &control).unwrap();
                let largest = exact.iter().fold(1.0f64, |w, v| w.max(v.abs()));
                for i in 0..n {
                    for j in 0..n {
                        // Rounding of the statistic contributes at most γ·s·6e-8, where γ·s ≤ 37·20 before the kernel
                        // falls to e^-37.
                        let (a, b) = (f64::from(found[i * n + j]), exact[i * n + j]);
                        assert!((a - b).abs() <= 3e-6 * largest, "{kernel} {i} {j}: {a} {b}");
                        assert_eq!(found[i * n + j], found[j * n + i]);
                    }
                }
            }
        }
    }
}
