//! Arrays of numbers: NPY and NPZ of NumPy, the sparse NPZ of SciPy, and the idx files MNIST is published in.
//!
//! An array of more than two dimensions becomes one row per index of the first dimension, with the others flattened.
//! Integers above 2⁵³ are rounded. No memory is allocated for values that the header declares but the file does not
//! contain.

mod idx;
mod npy;
mod npz;
mod scalar;

use margrave_core::conflict::OptionName;
use std::io::Read;
use std::path::Path;

use margrave_core::data::{Csr, Dataset, Dense, Points, Targets};

use crate::Loaded;
use crate::detect::detect;
use crate::error::{ReadError, Result, malformed};
use crate::number::Number;
use crate::options::{Format, ReadOptions};
use crate::schema::Schema;
use crate::source::ByteSource;
use crate::spill::{RowsInPlace, Spill};
use crate::table::{self, CellKind, TablePlan, TableRows};

pub(crate) use npz::Arrays;
pub(crate) use npz::load as load_npz;
use scalar::{Class, ElementLayout, ScalarType};

/// Values read at a time where rows go to a temporary file.
const NPY_VALUES: usize = 1 << 18;

/// The header of an array.
#[derive(Debug, Clone)]
struct ArrayHeader {
    layout: ElementLayout,
    /// Column-major order.
    fortran: bool,
    shape: Vec<usize>,
}

impl ArrayHeader {
    /// Number of rows, and of values per row.
    fn matrix(&self) -> Option<(usize, usize)> {
        let (n, rest) = self.shape.split_first()?;
        let d = rest.iter().try_fold(1usize, |product, k| product.checked_mul(*k))?;
        n.checked_mul(d)?.checked_mul(self.layout.size())?;
        Some((*n, d))
    }
}

/// An open array: its header is read, its values are not.
struct OpenArray<'a> {
    /// Name of the file and of the array in it, for messages.
    name: String,
    head: ArrayHeader,
    reader: Box<dyn Read + 'a>,
    /// Number of remaining bytes, if known.
    left: Option<u64>,
}

impl OpenArray<'_> {
    fn matrix(&self) -> Result<(usize, usize)> {
        self.head.matrix().ok_or_else(|| {
            malformed(
                &self.name,
                format!("an array of shape {:?} is not possible here", self.head.shape),
                "check its header",
            )
        })
    }

    /// All values, row-major.
    fn numbers<T: Number>(mut self) -> Result<Vec<T>> {
        let (n, d) = self.matrix()?;
        let scalar = self.scalar()?;
        let values: Vec<T> = scalar.read(&mut self.reader, n * d, self.left).map_err(|e| self.fail(e))?;
        if !self.head.fortran || self.head.shape.len() < 2 {
            return Ok(values);
        }
        if self.head.shape.len() > 2 {
            return Err(malformed(
                &self.name,
                "an array of more than two dimensions is in Fortran order",
                "save numpy.ascontiguousarray of it",
            ));
        }
        let mut rows = Vec::with_capacity(values.len());
        (0..n).for_each(|i| rows.extend((0..d).map(|k| values[k * n + i])));
        Ok(rows)
    }

    /// All values of an array of whole numbers ≥ 0.
    fn integers(mut self) -> Result<Vec<u64>> {
        let (n, d) = self.matrix()?;
        let scalar = self.scalar()?;
        scalar.read_integers(&mut self.reader, n * d, self.left).map_err(|e| self.fail(e))
    }

    /// The array as targets.
    fn targets(mut self) -> Result<Targets> {
        let (n, d) = self.matrix()?;
        let numbers = matches!(self.head.layout, ElementLayout::Number(_));
        if d == 0 || d > 1 && (self.head.shape.len() > 2 || !numbers) {
            return Err(malformed(
                &self.name,
                format!(
                    "targets need one dimension, or two for several numbers, but the array has shape {:?}",
                    self.head.shape
                ),
                "save a one-dimensional array, or numbers with one column for each target",
            ));
        }
        match self.head.layout {
            ElementLayout::Number(_) => {
                let name = self.name.clone();
                let values: Vec<f64> = self.numbers()?;
                if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                    return Err(malformed(
                        &name,
                        format!("the target of row {} is {}", at / d + 1, values[at]),
                        "remove or replace it",
                    ));
                }
                Ok(if d == 1 { Targets::Real(values) } else { Targets::Several { outputs: d, values } })
            }
            ElementLayout::Text(text) => {
                Ok(Targets::Text(text.read(&mut self.reader, n, self.left).map_err(|e| self.fail(e))?))
            }
        }
    }

    fn scalar(&self) -> Result<ScalarType> {
        match self.head.layout {
            ElementLayout::Number(scalar) => Ok(scalar),
            ElementLayout::Text(_) => {
                Err(malformed(&self.name, "the array holds texts where numbers are needed", "encode them"))
            }
        }
    }

    fn fail(&self, error: scalar::ReadFault) -> ReadError {
        error.within(&self.name, &self.head.shape)
    }
}

fn data_error(source: &ByteSource) -> impl Fn(margrave_core::Error) -> ReadError + '_ {
    |e| ReadError::Data { file: source.name().to_owned(), source: e }
}

/// Opens the array of an NPY or idx file.
fn open(source: &ByteSource, format: Format) -> Result<OpenArray<'_>> {
    match format {
        Format::Idx => idx::open(source),
        _ => npy::open(source.name().to_owned(), source.reader()?, source.len(), |e| source.io(e)),
    }
}

/// Reads an NPY file: a matrix that contains the target as a column, or with targets in a separate file.
pub(crate) fn load_npy<T: Number>(source: &ByteSource, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let array = open(source, Format::Npy)?;
    if array.head.shape.len() < 2 {
        return Err(malformed(
            source.name(),
            format!("a matrix is needed, but the array has shape {:?}", array.head.shape),
            "save an array with one row for each sample",
        ));
    }
    let targets = options.target_file.as_deref().map(load_targets).transpose()?;
    table_of::<T>(source, array, targets, options, Format::Npy)
}

/// The same with features in a temporary file, or left in their own if they are stored as they are needed; rows are looked at
/// a few at a time.
pub(crate) fn spill_npy(source: &ByteSource, options: &ReadOptions, spill: &Spill) -> Result<Loaded> {
    let mut array = open(source, Format::Npy)?;
    let (n, d) = array.matrix()?;
    let ordered = array.head.shape.len() == 2 && !array.head.fortran && d > 0;
    let (ElementLayout::Number(scalar), true) = (array.head.layout, ordered && n > 0) else {
        // Rows are not one after the other, or the array is refused anyway.
        spill.refuse();
        return Err(malformed(source.name(), "the rows of the array cannot be read in blocks", ""));
    };
    let targets = options.target_file.as_deref().map(load_targets).transpose()?;
    let apart = targets.is_some();
    let options = ReadOptions { no_target: options.no_target || apart, ..options.clone() };
    let promised = (scalar.size as u64).saturating_mul(n as u64).saturating_mul(d as u64);
    if let Some(held) = array.left.filter(|held| *held < promised) {
        return Err(array.fail(scalar::ReadFault::Short { held, promised }));
    }
    let mut plan = TablePlan::new(source.name(), None, vec![CellKind::Number; d], &options)?;
    plan.spill_to(spill)?;
    let plain = scalar.class == Class::Float && matches!(scalar.size, 4 | 8) && !scalar.big_endian;
    let features = plan.number_columns();
    // Blocks are read with all columns: where few are features, a copy of these is smaller.
    let mostly_features = 2 * features.len() >= d;
    if let (true, Some(file), Some(held)) = (plain && mostly_features, source.file()?, array.left) {
        let start = source.len().unwrap_or_default().saturating_sub(held);
        let in_place = RowsInPlace::new(&file, start, d, features, scalar.size);
        spill.leave_in_place(file, in_place.map_err(|e| source.io(e))?);
    }
    let mut rows = TableRows::<f64>::new(&plan);
    let step = (NPY_VALUES / d).max(1);
    for from in (0..n).step_by(step) {
        let count = step.min(n - from);
        let values: Vec<f64> = scalar.read(&mut array.reader, count * d, None).map_err(|e| array.fail(e))?;
        values.chunks_exact(d).for_each(|row| rows.push_row(&plan, row.iter().copied()));
        rows.spill(&plan)?;
    }
    let mut loaded = table::finish(&plan, rows, Format::Npy, false)?;
    if let Some(targets) = targets {
        set_targets(source, &mut loaded.data, targets)?;
    }
    Ok(loaded)
}

/// Reads an idx file of images, whose labels are in a separate file.
pub(crate) fn load_idx<T: Number>(source: &ByteSource, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let array = open(source, Format::Idx)?;
    if array.head.shape.len() < 2 {
        return Err(malformed(
            source.name(),
            "this idx file holds one value per sample, like a file of labels",
            "name the file of images; the labels are looked for beside it",
        ));
    }
    refuse_columns(source, options)?;
    let targets = match &options.target_file {
        _ if options.no_target => Targets::None,
        Some(path) => load_targets(path)?,
        None => match source.path().and_then(idx::labels_beside) {
            Some(path) => load_targets(&path)?,
            None if options.schema.is_some() => Targets::None,
            None => {
                return Err(malformed(
                    source.name(),
                    "there is no file of labels beside this file of images",
                    "name it as usual (images → labels, idx3 → idx1), or give it as the target file",
                ));
            }
        },
    };
    table_of::<T>(source, array, Some(targets), options, Format::Idx)
}

fn refuse_columns(source: &ByteSource, options: &ReadOptions) -> Result<()> {
    let option = match (&options.target, &options.weights) {
        (Some(_), _) => OptionName::Target,
        (_, Some(_)) => OptionName::Weights,
        _ => return Ok(()),
    };
    Err(ReadError::Option {
        file: source.name().to_owned(),
        option,
        problem: "this format keeps targets apart from the features: leave the option out".to_owned(),
    })
}

/// The data set of a matrix; `targets` are separate targets, `None` if they are among its columns.
fn table_of<T: Number>(
    source: &ByteSource,
    array: OpenArray,
    targets: Option<Targets>,
    options: &ReadOptions,
    format: Format,
) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let (n, d) = array.matrix()?;
    let apart = targets.is_some();
    let options = ReadOptions { no_target: options.no_target || apart, ..options.clone() };
    if n == 0 || d == 0 {
        return Err(malformed(
            source.name(),
            format!("there are no values in an array of shape {:?}", array.head.shape),
            "give at least one row and one column",
        ));
    }
    let plan = || TablePlan::new(source.name(), None, vec![CellKind::Number; d], &options);
    let chosen = options.weights.is_some() || options.drop.is_some() || options.only.is_some();
    let all_features = options.no_target
        && !chosen
        && options.ordinals.is_empty()
        && options.schema.is_none_or(|s| s.weights.is_none() && s.dropped.is_empty());
    // A plan has one entry per column, so the values are read first: a header may declare any number of columns.
    let (plan, rows) = if all_features {
        let values: Vec<T> = array.numbers()?;
        let plan = plan()?;
        let rows = TableRows::of_features(n, values, &plan);
        (plan, rows)
    } else {
        // Targets and weights keep double precision.
        let values: Vec<f64> = array.numbers()?;
        let plan = plan()?;
        let mut rows = TableRows::new(&plan);
        values.chunks_exact(d).for_each(|row| rows.push_row(&plan, row.iter().copied()));
        (plan, rows)
    };
    let mut loaded = table::finish(&plan, rows, format, false)?;
    if let Some(targets) = targets {
        let kept = if targets.len() == n { targets.gather(&kept_rows(n, &loaded.left_out)) } else { targets };
        set_targets(source, &mut loaded.data, kept)?;
    }
    Ok(loaded)
}

/// The rows that were not left out.
fn kept_rows(n: usize, left_out: &[usize]) -> Vec<u32> {
    (0..n).filter(|row| left_out.binary_search(row).is_err()).map(|row| row as u32).collect()
}

fn set_targets(source: &ByteSource, data: &mut Dataset, targets: Targets) -> Result<()> {
    if !matches!(targets, Targets::None) && targets.len() != data.len() {
        return Err(malformed(
            source.name(),
            format!("there are {} targets for {} samples", targets.len(), data.len()),
            "give one target for each sample",
        ));
    }
    data.targets = targets;
    Ok(())
}

/// Reads targets from an NPY or idx file.
fn load_targets(path: &Path) -> Result<Targets> {
    let source = ByteSource::open(path)?;
    match detect(&source)? {
        format @ (Format::Npy | Format::Idx) => open(&source, format)?.targets(),
        other => Err(malformed(
            source.name(),
            format!("targets are read from NPY and idx files, but this is {other}"),
            "save a one-dimensional array with numpy.save",
        )),
    }
}

/// The data set of sparse rows.
fn sparse_set<T: Number>(source: &ByteSource, points: Csr<T>, targets: Targets, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    if let Some(option) = options.needs_table() {
        return Err(ReadError::Option {
            file: source.name().to_owned(),
            option,
            problem: "a sparse matrix has no columns to choose or to fill: leave the option out".to_owned(),
        });
    }
    let found = points.dims();
    let schema = match options.schema {
        Some(schema) if found > schema.features => {
            return Err(malformed(
                source.name(),
                format!("there are {found} features, but the model was trained on {}", schema.features),
                "use the features of the training data",
            ));
        }
        Some(schema) => schema.clone(),
        None => Schema::plain(found, true),
    };
    let points: Points = if schema.sparse {
        points.widen(schema.features).into()
    } else {
        let (starts, columns, values) = (points.starts(), points.columns(), points.values().to_vec());
        crate::storage::dense_from_csr(points.len(), schema.features, starts, columns, values)
            .map_err(data_error(source))?
            .into()
    };
    let mut data = Dataset::new(points, Targets::None).map_err(data_error(source))?;
    if !options.no_target {
        set_targets(source, &mut data, targets)?;
    }
    data.names = schema.feature_names();
    Ok(Loaded { data, format: Format::Npz, schema, serials: None, left_out: vec![], notes: vec![] })
}
