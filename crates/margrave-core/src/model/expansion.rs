//! f(x) + b = Σⱼ coefficientⱼ·k(xⱼ, x) + b over centres xⱼ, for k outputs that share them.

use crate::control::{Control, Interrupt};
use crate::data::Points;
use crate::error::{Error, Result, check_len};
use crate::gram::{Gram, Pick, Precision};
use crate::kernel::{Kernel, Statistic};

/// Number of rows per task for a collapsed machine.
const ROWS_PER_TASK: usize = 256;

/// The Gram for scores: in single precision with its faster entries, whose errors are those of plain arithmetic.
fn in_precision<'g>(gram: &'g dyn Gram, precision: Precision) -> Box<dyn Gram + 'g> {
    let rough = if precision == Precision::Single { gram.rough() } else { None };
    rough.unwrap_or_else(|| Box::new(gram))
}

/// How the coefficients of a centre are assigned to the outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One per output: m × k numbers.
    Full,
    /// The outputs are the pairs (i, j), i < j, of classes, in lexical order. A centre of class c has a coefficient for each
    /// pair that c is in, in the order of the other class: m × (classes − 1) numbers.
    Pairs {
        /// Number of classes.
        classes: usize,
        /// The class of each centre.
        class_of: Vec<u32>,
    },
}

/// The output of the pair of classes i < j out of `classes`.
pub fn pair_output(classes: usize, i: usize, j: usize) -> usize {
    i * (2 * classes - i - 1) / 2 + j - i - 1
}

/// The pairs i < j of classes in the order of their outputs.
pub fn pairs(classes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..classes).flat_map(move |i| (i + 1..classes).map(move |j| (i, j)))
}

impl Layout {
    /// Number of coefficients per centre, with k outputs.
    fn stride(&self, k: usize) -> usize {
        match self {
            Layout::Full => k,
            Layout::Pairs { classes, .. } => classes - 1,
        }
    }

    /// The output that coefficient `slot` of centre `at` belongs to.
    fn output(&self, at: usize, slot: usize) -> usize {
        match self {
            Layout::Full => slot,
            Layout::Pairs { classes, class_of } => {
                let own = class_of[at] as usize;
                if slot < own { pair_output(*classes, slot, own) } else { pair_output(*classes, own, slot + 1) }
            }
        }
    }
}

/// m centres, k outputs.
///
/// A linear machine is collapsed to w = Σ coefficientⱼ·xⱼ; so is one with a precomputed kernel, whose points *are* rows of K.
#[derive(Debug, Clone)]
pub struct Expansion {
    kernel: Kernel,
    centres: Points,
    rows: Vec<u32>,
    coefficients: Vec<f64>,
    layout: Layout,
    bias: Vec<f64>,
    width: usize,
    /// w of each output, `width × k` row-major.
    collapsed: Option<Vec<f64>>,
}

impl Expansion {
    /// From its parts. `centres` are m points (without features for a precomputed kernel), `rows` their numbers in the training
    /// data, `coefficients` m × k row-major, `bias` one per output, `width` the number of features a point must have (of
    /// training rows, for a precomputed kernel). Fails if they do not agree or a number is not finite.
    pub fn new(
        kernel: Kernel,
        centres: Points,
        rows: Vec<u32>,
        coefficients: Vec<f64>,
        bias: Vec<f64>,
        width: usize,
    ) -> Result<Self> {
        Self::with_layout(kernel, centres, rows, coefficients, Layout::Full, bias, width)
    }

    /// The same with another layout of the coefficients.
    pub fn with_layout(
        kernel: Kernel,
        centres: Points,
        rows: Vec<u32>,
        coefficients: Vec<f64>,
        layout: Layout,
        bias: Vec<f64>,
        width: usize,
    ) -> Result<Self> {
        kernel.check()?;
        let k = bias.len();
        if k == 0 {
            return Err(Error::data("the model has no output"));
        }
        check_len("rows of the centres", centres.len(), rows.len())?;
        if let Layout::Pairs { classes, class_of } = &layout {
            if *classes < 2 || classes.checked_mul(classes - 1).is_none_or(|twice| twice / 2 != k) {
                return Err(Error::data(format!("{classes} classes do not make {k} pairs")));
            }
            check_len("classes of the centres", centres.len(), class_of.len())?;
            if let Some(class) = class_of.iter().find(|&&class| class as usize >= *classes) {
                return Err(Error::data(format!("a centre is of class {class} of {classes}")));
            }
        }
        let stride = layout.stride(k);
        check_len("coefficients of the model", centres.len().saturating_mul(stride), coefficients.len())?;
        for (what, values, width) in [("the coefficients", &coefficients, stride), ("the bias", &bias, k)] {
            if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                let (row, column) = (at / width, Some(at % width));
                return Err(Error::NotFinite { what, row, column, value: values[at] });
            }
        }
        if kernel == Kernel::Precomputed {
            if let Some(row) = rows.iter().find(|&&row| row as usize >= width) {
                return Err(Error::data(format!("a centre is row {row} of {width} training rows")));
            }
        } else {
            check_len("features of the centres", width, centres.dims())?;
        }
        let mut expansion = Self { kernel, centres, rows, coefficients, layout, bias, width, collapsed: None };
        expansion.collapsed = expansion.collapse();
        Ok(expansion)
    }

    /// A linear machine given by its weights, `width × k` row-major: it has no centres. `rows` and `coefficients` (in
    /// the order of the layout) are the dual point that proves it. Fails if the parts do not agree or a number is not finite.
    pub fn linear(
        weights: Vec<f64>,
        rows: Vec<u32>,
        coefficients: Vec<f64>,
        layout: Layout,
        bias: Vec<f64>,
        width: usize,
    ) -> Result<Self> {
        let k = bias.len();
        check_len("weights of the model", width.saturating_mul(k), weights.len())?;
        if let Some(at) = weights.iter().position(|w| !w.is_finite()) {
            let (row, column) = (at / k, Some(at % k));
            return Err(Error::NotFinite { what: "the weights", row, column, value: weights[at] });
        }
        let centres = Points::dense_f64(rows.len(), 0, vec![])?;
        let bare = Self::with_layout(Kernel::Linear, centres, rows, coefficients, layout, bias, 0)?;
        Ok(Self { width, collapsed: Some(weights), ..bare })
    }

    /// Whether the machine is stored as weights alone.
    pub fn is_weights(&self) -> bool {
        self.kernel == Kernel::Linear && self.centres.dims() != self.width
    }

    /// From coefficients of every training row, n × k row-major: rows whose coefficients are all zero are left out.
    pub fn of_training(kernel: Kernel, points: &Points, coefficients: &[f64], bias: Vec<f64>) -> Result<Self> {
        let k = bias.len();
        check_len("coefficients of the training rows", points.len().saturating_mul(k), coefficients.len())?;
        let used = |row: usize| coefficients[row * k..(row + 1) * k].iter().any(|v| *v != 0.0);
        let rows: Vec<u32> = (0..points.len()).filter(|&row| used(row)).map(|row| row as u32).collect();
        let kept = rows.iter().flat_map(|&row| &coefficients[row as usize * k..(row as usize + 1) * k]).copied();
        let kept = kept.collect();
        let centres = match kernel {
            Kernel::Precomputed => Points::dense_f64(rows.len(), 0, vec![])?,
            _ => points.gather(&rows),
        };
        Self::new(kernel, centres, rows, kept, bias, points.dims())
    }

    fn collapse(&self) -> Option<Vec<f64>> {
        let (k, stride) = (self.bias.len(), self.layout.stride(self.bias.len()));
        let (linear, lookup) = (self.kernel == Kernel::Linear, self.kernel == Kernel::Precomputed);
        // Sparse data with very many features: w would be larger than the centres it replaces.
        let stored = self.centres.stored().saturating_mul(stride);
        if !(lookup || linear && self.width.saturating_mul(k) <= stored.max(1 << 20)) {
            return None;
        }
        let mut w = vec![0.0; self.width * k];
        for (j, &row) in self.rows.iter().enumerate() {
            let own = &self.coefficients[j * stride..(j + 1) * stride];
            let mut add = |column: usize, value: f64| {
                for (slot, c) in own.iter().enumerate() {
                    w[column * k + self.layout.output(j, slot)] += c * value;
                }
            };
            if lookup { add(row as usize, 1.0) } else { self.centres.visit(j, add) }
        }
        Some(w)
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
    /// The m centres.
    pub fn centres(&self) -> &Points {
        &self.centres
    }
    /// Their rows in the training data.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }
    /// The coefficients, centre by centre, in the order of the layout.
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }
    /// How the coefficients are assigned to the outputs.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
    /// Number of coefficients per centre.
    pub fn stride(&self) -> usize {
        self.layout.stride(self.outputs())
    }
    /// The coefficient of every centre in one output.
    pub fn column(&self, output: usize) -> Vec<f64> {
        let stride = self.stride();
        match &self.layout {
            Layout::Full => (0..self.len()).map(|at| self.coefficients[at * stride + output]).collect(),
            Layout::Pairs { classes, class_of } => {
                let (i, j) = pairs(*classes).nth(output).expect("an output is a pair");
                let own = |(at, &class): (usize, &u32)| match class as usize {
                    class if class == i => self.coefficients[at * stride + j - 1],
                    class if class == j => self.coefficients[at * stride + i],
                    _ => 0.0,
                };
                class_of.iter().enumerate().map(own).collect()
            }
        }
    }
    /// One bias per output.
    pub fn bias(&self) -> &[f64] {
        &self.bias
    }
    /// Number of centres.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether there are none: the machine is constant.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }
    /// Number of features a point must have.
    pub fn width(&self) -> usize {
        self.width
    }
    /// w of each output, `width × k` row-major, if the machine is linear.
    pub fn weights(&self) -> Option<&[f64]> {
        self.collapsed.as_deref()
    }

    /// The scores of every point, n × k row-major. Sparse points may have fewer features than the centres, or more (the
    /// centres are zero there); otherwise the numbers must agree. Kernel entries are accurate to about 1e-5 in single
    /// precision, as plain arithmetic is where points are up to ten length scales from their mean, and to 1e-13 in double.
    pub fn scores(&self, points: &Points, precision: Precision, control: &Control) -> Result<Vec<f64>> {
        let k = self.outputs();
        let points = &points.clone().widen(self.width);
        let extra = points.dims() > self.width && points.is_sparse() && self.kernel != Kernel::Precomputed;
        if points.dims() != self.width && !extra {
            return Err(Error::Shape { what: "number of features", expected: self.width, found: points.dims() });
        }
        let mut scores = vec![0.0; points.len() * k];
        if !self.is_empty() || self.is_weights() {
            match &self.collapsed {
                Some(w) => self.collapsed_scores(w, points, &mut scores, control)?,
                None => {
                    let centres = self.centres.clone().widen(points.dims());
                    match &self.layout {
                        Layout::Full => {
                            let gram = control.backend().gram(self.kernel, points, &centres)?;
                            let gram = in_precision(&*gram, precision);
                            gram.apply(precision, Pick::All, &self.coefficients, k, &mut scores, control)?;
                        }
                        Layout::Pairs { classes, class_of } => {
                            self.pair_scores(*classes, class_of, points, &centres, precision, &mut scores, control)?;
                        }
                    }
                }
            }
        }
        scores.iter_mut().enumerate().for_each(|(at, z)| *z += self.bias[at % k]);
        Ok(scores)
    }

    /// Class by class, so that every kernel entry is computed once and used only for the pairs it belongs to.
    fn pair_scores(
        &self,
        classes: usize,
        class_of: &[u32],
        points: &Points,
        centres: &Points,
        precision: Precision,
        scores: &mut [f64],
        control: &Control,
    ) -> Result<()> {
        let (k, stride) = (self.outputs(), classes - 1);
        let mut partial = vec![0.0; points.len() * stride];
        for class in 0..classes {
            let own: Vec<u32> = (0..self.len() as u32).filter(|&j| class_of[j as usize] as usize == class).collect();
            let Some(&first) = own.first() else { continue };
            let v: Vec<f64> = own
                .iter()
                .flat_map(|&j| &self.coefficients[j as usize * stride..(j as usize + 1) * stride])
                .copied()
                .collect();
            let gram = control.backend().gram(self.kernel, points, &centres.gather(&own))?;
            let gram = in_precision(&*gram, precision);
            gram.apply(precision, Pick::All, &v, stride, &mut partial, control)?;
            let outputs: Vec<usize> = (0..stride).map(|slot| self.layout.output(first as usize, slot)).collect();
            for (z, part) in scores.chunks_exact_mut(k).zip(partial.chunks_exact(stride)) {
                outputs.iter().zip(part).for_each(|(&output, f)| z[output] += f);
            }
        }
        Ok(())
    }

    fn collapsed_scores(
        &self,
        w: &[f64],
        points: &Points,
        scores: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        let k = self.outputs();
        // A task that runs out of time leaves its scores at zero; the check below reports it.
        control.threads.chunks(scores, ROWS_PER_TASK * k, |task, part| {
            if control.check().is_err() {
                return;
            }
            for (at, out) in part.chunks_mut(k).enumerate() {
                points.visit(task * ROWS_PER_TASK + at, |column, value| {
                    if column < self.width {
                        let own = &w[column * k..(column + 1) * k];
                        out.iter_mut().zip(own).for_each(|(z, w)| *z += value * w);
                    }
                });
            }
        });
        control.check()
    }

    /// k(x, x) of every point; fails for a precomputed kernel, whose rows do not contain it.
    pub fn diagonal(&self, points: &Points) -> Result<Vec<f64>> {
        if self.kernel.unit_diagonal() {
            return Ok(vec![1.0; points.len()]);
        }
        match self.kernel.statistic() {
            Statistic::Dot => Ok(points.squared_norms().iter().map(|s| self.kernel.of_statistic(*s)).collect()),
            _ => Err(Error::data("with a precomputed kernel the distance from the centre of the ball is not known")),
        }
    }

    /// ‖f‖² = Σᵢⱼ coefficientᵢ·coefficientⱼ·k(xᵢ, xⱼ) of each output.
    pub fn squared_norms(&self, control: &Control) -> Result<Vec<f64>> {
        let k = self.outputs();
        let mut norms = vec![0.0; k];
        match (&self.kernel, &self.collapsed) {
            (Kernel::Precomputed, _) => {
                return Err(Error::data("with a precomputed kernel ‖f‖ needs the Gram matrix of the training data"));
            }
            (Kernel::Linear, Some(w)) => w.iter().enumerate().for_each(|(at, w)| norms[at % k] += w * w),
            _ => {
                let gram = control.backend().square_gram(self.kernel, &self.centres)?;
                let mut values = vec![0.0; self.len()];
                for (output, norm) in norms.iter_mut().enumerate() {
                    let column = self.column(output);
                    gram.apply(Precision::Double, Pick::All, &column, 1, &mut values, control)?;
                    *norm = column.iter().zip(&values).map(|(c, f)| c * f).sum();
                }
            }
        }
        Ok(norms)
    }
}
