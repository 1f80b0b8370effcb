//! Tiles of a matrix shared by threads, and products and solves over them.

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::{Accum, MatMut, MatRef, Par};

use super::Scalar;
use crate::control::{Control, Threads};
use crate::linalg::sweep::{self, Entry};

/// A raw pointer that threads may share; every use below touches disjoint tiles.
#[derive(Clone, Copy)]
pub(super) struct SharedTiles<T>(pub(super) *mut T);
// SAFETY: the pointer is only used to form views of disjoint tiles, one thread each, while the owner is borrowed
// mutably.
unsafe impl<T> Sync for SharedTiles<T> {}
// SAFETY: as above.
unsafe impl<T> Send for SharedTiles<T> {}

impl<T> SharedTiles<T> {
    /// The address at an offset.
    pub(super) fn at(self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
    /// A mutable view of the tile with upper left corner (r, c).
    ///
    /// # Safety
    /// The tile must lie inside the allocation, and no other live view may overlap it.
    pub(super) unsafe fn tile<'a>(self, ld: usize, r: usize, c: usize, rows: usize, cols: usize) -> MatMut<'a, T> {
        // SAFETY: guaranteed by the caller.
        unsafe { MatMut::from_raw_parts_mut(self.0.add(r * ld + c), rows, cols, ld as isize, 1) }
    }
    /// A shared view of the tile with upper left corner (r, c).
    ///
    /// # Safety
    /// The tile must lie inside the allocation, and no live mutable view may overlap it.
    pub(super) unsafe fn view<'a>(self, ld: usize, r: usize, c: usize, rows: usize, cols: usize) -> MatRef<'a, T> {
        // SAFETY: guaranteed by the caller.
        unsafe { MatRef::from_raw_parts(self.0.add(r * ld + c).cast_const(), rows, cols, ld as isize, 1) }
    }
}

/// dst −= lhs·rhsᵀ; for a tile on the diagonal only the lower triangle.
pub(super) fn subtract<T: Scalar>(dst: MatMut<'_, T>, lhs: MatRef<'_, T>, rhs: MatRef<'_, T>, on_diagonal: bool) {
    if on_diagonal {
        use BlockStructure::{Rectangular, TriangularLower};
        let (lower, all) = (TriangularLower, Rectangular);
        triangular::matmul(dst, lower, Accum::Add, lhs, all, rhs.transpose(), all, T::of(-1.0), Par::Seq);
    } else {
        matmul(dst, Accum::Add, lhs, rhs.transpose(), T::of(-1.0), Par::Seq);
    }
}

/// Side length of the tiles of a product: the rows of a few hundred variables make enough of them for all threads.
const SIDE: usize = 128;

/// A·Bᵀ over columns `first..n`, a × b row-major, by tiles. `lower`: entries above the diagonal are not needed.
pub(super) fn products<T: Scalar>(
    a: &[T],
    rows: usize,
    b: &[T],
    cols: usize,
    n: usize,
    first: usize,
    lower: bool,
    control: &Control,
) -> Vec<T> {
    let mut out = vec![T::of(0.0); rows * cols];
    let (across, down) = (cols.div_ceil(SIDE), rows.div_ceil(SIDE));
    let tiles: Vec<(usize, usize)> = (0..down)
        .flat_map(|r| (0..across).map(move |c| (r, c)))
        .filter(|&(r, c)| !lower || c <= r)
        .map(|(r, c)| (r * SIDE, c * SIDE))
        .collect();
    let dst = SharedTiles(out.as_mut_ptr());
    control.threads.each(tiles.len(), |t| {
        let (r, c) = tiles[t];
        let (height, width) = (SIDE.min(rows - r), SIDE.min(cols - c));
        let lhs = MatRef::from_row_major_slice(&a[r * n..(r + height) * n], height, n).get(.., first..);
        let rhs = MatRef::from_row_major_slice(&b[c * n..(c + width) * n], width, n).get(.., first..);
        // SAFETY: each task writes its own tile of the output.
        let tile = unsafe { dst.tile(cols, r, c, height, width) };
        matmul(tile, Accum::Replace, lhs, rhs.transpose(), T::of(1.0), Par::Seq);
    });
    out
}

/// L·Xᵀ = Bᵀ for the `m` rows of `b`, whose columns before `first` are zero and stay zero.
pub(super) fn solve_rows<T: Scalar>(
    l: &[T],
    ld: usize,
    n: usize,
    first: usize,
    b: &mut [T],
    m: usize,
    threads: &Threads,
) {
    const ROWS: usize = 64;
    if n == first || m == 0 {
        return;
    }
    debug_assert!(b.len() == m * n);
    // SAFETY: the view covers rows and columns first..n of L, which lie inside the slice.
    let tri = unsafe {
        MatRef::<T>::from_raw_parts(l.as_ptr().add(first * ld + first), n - first, n - first, ld as isize, 1)
    };
    threads.chunks(b, ROWS * n, |_, part| {
        let rows = part.len() / n;
        // SAFETY: `part` is this task's own; the view covers columns first..n of its rows.
        let view =
            unsafe { MatMut::<T>::from_raw_parts_mut(part.as_mut_ptr().add(first), rows, n - first, n as isize, 1) };
        solve_lower_triangular_in_place(tri, view.transpose_mut(), Par::Seq);
    });
}

/// Σ aᵢ·xᵢ, in sixteen partial sums.
pub(super) fn dot<T: Entry>(a: &[T], x: &[f64]) -> f64 {
    sweep::dot(a, x)
}
