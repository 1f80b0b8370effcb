//! Some of the rows of a matrix, as a matrix of its own.

use crate::control::{Control, Interrupt};
use crate::gram::{Matrix, Pick, RowsBehind};

pub(super) struct SomeRows<'a> {
    inner: &'a dyn Matrix,
    behind: Option<&'a dyn RowsBehind>,
    rows: &'a [u32],
}

impl<'a> SomeRows<'a> {
    pub(super) fn new(inner: &'a dyn Matrix, rows: &'a [u32]) -> Self {
        Self { inner, behind: inner.behind(), rows }
    }

    /// Calls `work` with the rows of the whole matrix that are chosen here.
    fn within<R>(&self, rows: Pick<'_>, work: impl FnOnce(Pick<'_>) -> R) -> R {
        match rows {
            Pick::All => work(Pick::List(self.rows)),
            Pick::Range(from, until) => work(Pick::List(&self.rows[from..until])),
            Pick::List(list) => {
                let list: Vec<u32> = list.iter().map(|&k| self.rows[k as usize]).collect();
                work(Pick::List(&list))
            }
        }
    }
}

impl Matrix for SomeRows<'_> {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn dims(&self) -> usize {
        self.inner.dims()
    }

    fn stored(&self) -> usize {
        self.rows().saturating_mul(self.dims())
    }

    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.within(rows, |rows| self.inner.dots(rows, w, out, control))
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.within(rows, |rows| self.inner.combine(rows, coefficients, out, control))
    }

    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        w: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.within(rows, |rows| self.inner.curvature_product(rows, weights, w, shift, dots, out, control))
    }

    fn moments(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        centre: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.within(rows, |rows| self.inner.moments(rows, weights, centre, first, second, control))
    }

    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        self.within(rows, |rows| self.inner.squares(rows, weights, out, control))
    }

    fn behind(&self) -> Option<&dyn RowsBehind> {
        self.behind.is_some().then_some(self)
    }
}

impl SomeRows<'_> {
    fn all_behind(&self) -> &dyn RowsBehind {
        self.behind.expect("`Matrix::behind` has returned it")
    }
}

impl RowsBehind for SomeRows<'_> {
    fn gram(&self, control: &Control) -> Result<&[f32], Interrupt> {
        self.all_behind().gram(control)
    }

    fn lower(&self, v: &[f64], control: &Control) -> Vec<f64> {
        self.all_behind().lower(v, control)
    }

    fn lower_transposed(&self, v: &[f64]) -> Vec<f64> {
        self.all_behind().lower_transposed(v)
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.within(rows, |rows| self.all_behind().combine(rows, coefficients, out, control))
    }

    fn curvature_product(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        v: &[f64],
        shift: f64,
        dots: &mut [f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.within(rows, |rows| self.all_behind().curvature_product(rows, weights, v, shift, dots, out, control))
    }

    fn moments(
        &self,
        rows: Pick<'_>,
        weights: &[f64],
        first: &mut [f64],
        second: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        self.within(rows, |rows| self.all_behind().moments(rows, weights, first, second, control))
    }
}
