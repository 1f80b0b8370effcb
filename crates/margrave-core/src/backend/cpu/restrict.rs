//! Products with some of the columns.

use super::byte_columns::ByteColumns;
use super::bytes::{ByteEngine, ByteSource};
use super::dense::PackedSource;
use super::finish::Refine;
use super::pack::{Panels, View};
use super::sparse::{SparseEngine, SparseSource};
use super::tasks::{EntrySource, Tasks};
use crate::control::{Control, Interrupt};
use crate::gram::Pick;

/// Columns from which entries between them are used twice: below, the bound on the certificate's chains of additions
/// (see `Chain`) would not hold, and there is little to gain.
const LEAST_MIRRORED: usize = 2048;

/// Sources that can be restricted to some of their columns if that saves work.
pub(crate) trait Restrict: EntrySource {
    /// `out = K[rows, columns]·V[columns]`.
    fn multiply_some(
        &self,
        rows: Pick<'_>,
        columns: &[u32],
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt>;

    /// Whether a product of so many columns, all of which are rows too, is faster with every entry used for two rows.
    fn mirrors(&self, columns: usize) -> bool {
        columns >= LEAST_MIRRORED && self.dots_at_once().is_some()
    }

    /// `out = K[:, columns]·v[columns]` of a square Gram: entries between two of the columns are computed once.
    fn multiply_mirrored(
        &self,
        columns: &[u32],
        v: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt>;
}

/// Rows that are not columns, and the product of those that are put where they belong.
pub(crate) fn beyond(
    columns: &[u32],
    own: &[f64],
    out: &mut [f64],
    multiply: impl FnOnce(&[u32], &mut [f64]) -> Result<(), Interrupt>,
) -> Result<(), Interrupt> {
    let mut is_column = vec![false; out.len()];
    columns.iter().for_each(|&j| is_column[j as usize] = true);
    let rest: Vec<u32> = (0..out.len() as u32).filter(|&i| !is_column[i as usize]).collect();
    let mut others = vec![0.0; rest.len()];
    if !rest.is_empty() {
        multiply(&rest, &mut others)?;
    }
    columns.iter().zip(own).for_each(|(&j, f)| out[j as usize] = *f);
    rest.iter().zip(others).for_each(|(&i, f)| out[i as usize] = f);
    Ok(())
}

impl<T: SparseEngine> Restrict for SparseSource<'_, T> {
    fn multiply_some(
        &self,
        rows: Pick<'_>,
        columns: &[u32],
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        Tasks { source: self, control }.multiply(rows, Pick::List(columns), v, k, out)
    }

    fn multiply_mirrored(
        &self,
        columns: &[u32],
        v: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.multiply_some(Pick::All, columns, v, 1, out, control)
    }
}

impl<T: SparseEngine> Restrict for PackedSource<'_, T> {
    fn multiply_some(
        &self,
        rows: Pick<'_>,
        columns: &[u32],
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        /// Number of rows above which repacking the used columns pays off.
        const MANY: usize = 64;
        let (n, m) = self.shape();
        if columns.len() * 4 >= 3 * m {
            return Tasks { source: self, control }.multiply(rows, Pick::All, v, k, out);
        }
        if rows.len(n) <= MANY {
            return Tasks { source: self, control }.multiply(rows, Pick::List(columns), v, k, out);
        }
        let chosen = self.cols.points.gather(columns);
        let cols = View { points: &chosen, centre: self.cols.centre };
        let panels = Panels::new(cols, self.level, control)?;
        let refine = self.refine.map(|refine| Refine { cols: &chosen, ..refine });
        let part = PackedSource { refine, cols, panels: &panels, ..*self };
        let mut compact = Vec::with_capacity(columns.len() * k);
        columns.iter().for_each(|&j| compact.extend_from_slice(&v[j as usize * k..(j as usize + 1) * k]));
        Tasks { source: &part, control }.multiply(rows, Pick::All, &compact, k, out)
    }

    fn multiply_mirrored(
        &self,
        columns: &[u32],
        v: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let chosen = self.cols.points.gather(columns);
        let cols = View { points: &chosen, centre: self.cols.centre };
        let panels = Panels::new(cols, self.level, control)?;
        let compact: Vec<f64> = columns.iter().map(|&j| v[j as usize]).collect();
        let mut own = vec![0.0; columns.len()];
        let refine = self.refine.map(|refine| Refine { rows: &chosen, cols: &chosen, ..refine });
        let square = PackedSource { refine, rows: cols, cols, panels: &panels, ..*self };
        Tasks { source: &square, control }.multiply_mirrored(&compact, &mut own)?;
        let refine = self.refine.map(|refine| Refine { cols: &chosen, ..refine });
        let part = PackedSource { refine, cols, panels: &panels, ..*self };
        beyond(columns, &own, out, |rest, others| {
            Tasks { source: &part, control }.multiply(Pick::List(rest), Pick::All, &compact, 1, others)
        })
    }
}

impl<T: ByteEngine> Restrict for ByteSource<'_, T> {
    fn multiply_some(
        &self,
        rows: Pick<'_>,
        columns: &[u32],
        v: &[f64],
        k: usize,
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        if columns.len() == self.cols.len() {
            return Tasks { source: self, control }.multiply(rows, Pick::All, v, k, out);
        }
        let chosen = self.cols.gather(columns);
        let packed = ByteColumns::new(&chosen, control)?;
        let part: ByteSource<'_, T> = ByteSource { cols: &chosen, packed: &packed, ..*self };
        let mut compact = Vec::with_capacity(columns.len() * k);
        columns.iter().for_each(|&j| compact.extend_from_slice(&v[j as usize * k..(j as usize + 1) * k]));
        Tasks { source: &part, control }.multiply(rows, Pick::All, &compact, k, out)
    }

    fn multiply_mirrored(
        &self,
        columns: &[u32],
        v: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let chosen = self.cols.gather(columns);
        let packed = ByteColumns::new(&chosen, control)?;
        let square: ByteSource<'_, T> = ByteSource { rows: &chosen, cols: &chosen, packed: &packed, ..*self };
        let compact: Vec<f64> = columns.iter().map(|&j| v[j as usize]).collect();
        let mut own = vec![0.0; columns.len()];
        Tasks { source: &square, control }.multiply_mirrored(&compact, &mut own)?;
        let part: ByteSource<'_, T> = ByteSource { cols: &chosen, packed: &packed, ..*self };
        beyond(columns, &own, out, |rest, others| {
            Tasks { source: &part, control }.multiply(Pick::List(rest), Pick::All, &compact, 1, others)
        })
    }
}
