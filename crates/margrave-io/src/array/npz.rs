//! A zip archive of NumPy arrays: features and targets under their usual names, or a sparse matrix as saved by SciPy.

use margrave_core::conflict::OptionName;
use std::io::{Cursor, Read, Seek};

use margrave_core::data::{Csr, Dense, Points, Targets};
use zip::ZipArchive;

use super::{OpenArray, data_error, load_targets, npy, sparse_set, table_of};
use crate::Loaded;
use crate::error::{ReadError, Result, malformed};
use crate::number::Number;
use crate::options::{Column, Format, ReadOptions};
use crate::source::ByteSource;

/// Common names of the feature array; below, of the target array.
const FEATURES: [&str; 4] = ["X", "x", "data", "features"];
const TARGETS: [&str; 5] = ["y", "Y", "target", "labels", "targets"];

trait ReadSeek: Read + Seek {}
impl<R: Read + Seek> ReadSeek for R {}

type Archive = ZipArchive<Box<dyn ReadSeek>>;

/// One array of the archive.
struct ArrayEntry {
    name: String,
    /// Index in the archive.
    at: usize,
    /// Number of dimensions; `None` for arrays that cannot be read.
    dims: Option<usize>,
}

/// Reads an NPZ file.
pub(crate) fn load<T: Number>(source: &ByteSource, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let inner: Box<dyn ReadSeek> = match source.file()? {
        Some(file) => Box::new(file),
        None => Box::new(Cursor::new(source.bytes()?)),
    };
    let mut archive = ZipArchive::new(inner).map_err(|e| damaged(source, &e))?;
    let mut entries = Vec::new();
    for at in 0..archive.len() {
        let Some(Ok(name)) = archive.name_for_index(at) else { continue };
        let Some(name) = name.strip_suffix(".npy").map(str::to_owned) else { continue };
        // Arrays that are not used may be of any type.
        let dims = open(source, &mut archive, at, &name).ok().map(|array| array.head.shape.len());
        entries.push(ArrayEntry { name, at, dims });
    }
    let by_name = |name: &str| entries.iter().find(|e| e.name == name);
    let sparse = ["data", "indices", "indptr", "shape"].map(by_name);
    let is_sparse = sparse.iter().all(Option::is_some) || (by_name("format").is_some() && by_name("shape").is_some());
    // A number, or a list of numbers, selects columns of the features.
    let among = |column: &Column| {
        let list = column.list();
        list.iter().all(|one| matches!(one, Column::Number(_)))
    };
    let by_number = options
        .target
        .as_ref()
        .is_some_and(|column| among(column) && !matches!(column, Column::Name(name) if by_name(name).is_some()));
    let explicit = match &options.target {
        Some(Column::Name(name)) if !by_number => Some(by_name(name).ok_or_else(|| ReadError::Option {
            file: source.name().to_owned(),
            option: OptionName::Target,
            problem: format!("there is no array {name:?}: the arrays are {}", names(&entries)),
        })?),
        _ => None,
    };
    let usual = || TARGETS.iter().find_map(|n| by_name(n).filter(|e| e.dims.is_none_or(|k| k < 3)));
    let weighed = |e: &ArrayEntry| matches!(&options.weights, Some(Column::Name(name)) if *name == e.name);
    let other = || entries.iter().find(|e| e.dims == Some(1) && !is_sparse && !weighed(e));
    let targets = match &options.target_file {
        _ if options.no_target => None,
        Some(path) => Some(load_targets(path)?),
        None if by_number => None,
        None => match explicit.or_else(usual).or_else(other) {
            Some(entry) => Some(open(source, &mut archive, entry.at, &entry.name)?.targets()?),
            None => None,
        },
    };
    let weights = match &options.weights {
        Some(Column::Name(name)) if by_name(name).is_some() => {
            let at = by_name(name).map_or(0, |e| e.at);
            Some(open(source, &mut archive, at, name)?.numbers::<f64>()?)
        }
        _ => None,
    };
    let mut rest = ReadOptions { target_file: None, ..options.clone() };
    if !by_number {
        rest.target = None;
    }
    if weights.is_some() {
        rest.weights = None;
    }
    let mut loaded = if is_sparse {
        let csr = load_csr::<T>(source, &mut archive, &entries)?;
        sparse_set(source, csr, targets.unwrap_or(Targets::None), options)?
    } else {
        let matrix = FEATURES.iter().find_map(|n| by_name(n).filter(|e| e.dims.is_none_or(|k| k > 1)));
        let Some(entry) = matrix.or_else(|| entries.iter().find(|e| e.dims.is_some_and(|k| k > 1))) else {
            return Err(malformed(
                source.name(),
                format!("there is no matrix of numbers among the arrays, which are {}", names(&entries)),
                "save the features as a two-dimensional array named X, and the targets as y",
            ));
        };
        let array = open(source, &mut archive, entry.at, &entry.name)?;
        // A single matrix contains its targets, as in an NPY file.
        table_of::<T>(source, array, targets, &rest, Format::Npz)?
    };
    if let Some(mut weights) = weights {
        let rows = loaded.data.len() + loaded.left_out.len();
        if weights.len() == rows {
            weights = super::kept_rows(rows, &loaded.left_out).iter().map(|row| weights[*row as usize]).collect();
        }
        loaded.data = loaded.data.with_weights(weights).map_err(data_error(source))?;
    }
    Ok(loaded)
}

/// The arrays of an NPZ file, by name.
pub(crate) struct Arrays {
    source: ByteSource,
    archive: Archive,
    entries: Vec<ArrayEntry>,
}

impl Arrays {
    /// Opens the file; `None` if it is no NPZ file.
    pub(crate) fn open(path: &std::path::Path) -> Result<Option<Self>> {
        let source = ByteSource::open(path)?;
        if !source.head().starts_with(b"PK\x03\x04") {
            return Ok(None);
        }
        let inner: Box<dyn ReadSeek> = Box::new(Cursor::new(source.bytes()?));
        let archive = ZipArchive::new(inner).map_err(|e| damaged(&source, &e))?;
        let name_of = |at: usize| archive.name_for_index(at)?.ok()?.strip_suffix(".npy").map(str::to_owned);
        let entries =
            (0..archive.len()).filter_map(|at| Some(ArrayEntry { name: name_of(at)?, at, dims: None })).collect();
        Ok(Some(Self { source, archive, entries }))
    }

    /// Name of the file.
    pub(crate) fn file(&self) -> &str {
        self.source.name()
    }

    /// The names of the arrays, for messages.
    pub(crate) fn names(&self) -> String {
        names(&self.entries)
    }

    fn get(&mut self, name: &str) -> Result<Option<OpenArray<'_>>> {
        let Some(at) = self.entries.iter().find(|e| e.name == name).map(|e| e.at) else { return Ok(None) };
        open(&self.source, &mut self.archive, at, name).map(Some)
    }

    /// The shape and the values of an array, row-major; a single number has the shape `[1]`.
    pub(crate) fn numbers(&mut self, name: &str) -> Result<Option<(Vec<usize>, Vec<f64>)>> {
        let Some(mut array) = self.get(name)? else { return Ok(None) };
        if array.head.shape.is_empty() {
            array.head.shape.push(1);
        }
        let shape = array.head.shape.clone();
        Ok(Some((shape, array.numbers()?)))
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>> {
        self.get(name)?.map(OpenArray::first_text).transpose()
    }
}

fn names(entries: &[ArrayEntry]) -> String {
    let names: Vec<_> = entries.iter().take(10).map(|e| format!("{:?}", e.name)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn damaged(source: &ByteSource, error: &zip::result::ZipError) -> ReadError {
    malformed(source.name(), format!("the zip archive is damaged ({error})"), "copy it or save it again")
}

fn open<'a>(source: &ByteSource, archive: &'a mut Archive, at: usize, name: &str) -> Result<OpenArray<'a>> {
    let file = archive.by_index(at).map_err(|e| damaged(source, &e))?;
    // The size of an uncompressed entry is known if it does not exceed the archive.
    let stored = file.compression() == zip::CompressionMethod::Stored;
    let len = Some(file.compressed_size()).filter(|size| stored && source.len().is_some_and(|all| *size <= all));
    let io = |e| ReadError::Io { file: source.name().to_owned(), doing: "unpack it", source: e };
    npy::open(format!("{}, array {name}", source.name()), Box::new(file), len, io)
}

/// A CSR matrix as `scipy.sparse.save_npz` writes it.
fn load_csr<T: Number>(source: &ByteSource, archive: &mut Archive, entries: &[ArrayEntry]) -> Result<Csr<T>> {
    let find = |name: &str| {
        entries.iter().find(|e| e.name == name).ok_or_else(|| {
            malformed(
                source.name(),
                format!("this is a sparse matrix without the array {name:?}, so it is not in CSR form"),
                "save X.tocsr()",
            )
        })
    };
    if let Some(entry) = entries.iter().find(|e| e.name == "format") {
        let array = open(source, archive, entry.at, &entry.name)?;
        let form = match array.head.shape.is_empty() {
            true => array.first_text()?,
            false => String::new(),
        };
        if form != "csr" {
            return Err(malformed(source.name(), format!("the sparse matrix is in {form:?} form"), "save X.tocsr()"));
        }
    }
    let mut integers = |name: &str| open(source, archive, find(name)?.at, name)?.integers();
    let (shape, starts, indices) = (integers("shape")?, integers("indptr")?, integers("indices")?);
    let values: Vec<T> = open(source, archive, find("data")?.at, "data")?.numbers()?;
    let bad = |problem: &str| malformed(source.name(), problem, "save the matrix again");
    let [n, d] = shape[..] else { return Err(bad("the sparse matrix does not have two dimensions")) };
    if starts.len() as u64 != n.saturating_add(1) || values.len() != indices.len() {
        return Err(bad("the parts of the sparse matrix have lengths that do not agree"));
    }
    if d > u64::from(u32::MAX) || indices.iter().any(|c| *c >= d) {
        return Err(bad("a column index is beyond the shape of the sparse matrix, or beyond 4294967295"));
    }
    if starts.windows(2).any(|w| w[0] > w[1])
        || starts.first() != Some(&0)
        || starts.last() != Some(&(values.len() as u64))
    {
        return Err(bad("the row pointers of the sparse matrix do not ascend from 0 to the number of values"));
    }
    let (starts, columns, values) = ordered(&starts, indices, values);
    Csr::new(d as usize, starts, columns, values).map_err(data_error(source))
}

/// Sorts the columns of each row and adds up duplicates, which SciPy does not do by itself.
fn ordered<T: Number>(starts: &[u64], indices: Vec<u64>, values: Vec<T>) -> (Vec<usize>, Vec<u32>, Vec<T>) {
    let row = |i: usize| starts[i] as usize..starts[i + 1] as usize;
    let n = starts.len() - 1;
    if (0..n).all(|i| indices[row(i)].windows(2).all(|w| w[0] < w[1])) {
        let columns = indices.iter().map(|c| *c as u32).collect();
        return (starts.iter().map(|s| *s as usize).collect(), columns, values);
    }
    let (mut ends, mut columns, mut sums) = (vec![0], Vec::<u32>::new(), Vec::<T>::new());
    for i in 0..n {
        let mut pairs: Vec<(u64, T)> = row(i).map(|k| (indices[k], values[k])).collect();
        pairs.sort_by_key(|p| p.0);
        let start = columns.len();
        for (column, value) in pairs {
            match sums.last_mut() {
                Some(sum) if columns.len() > start && columns.last() == Some(&(column as u32)) => {
                    *sum = T::from_f64(sum.to_f64() + value.to_f64());
                }
                _ => {
                    columns.push(column as u32);
                    sums.push(value);
                }
            }
        }
        ends.push(columns.len());
    }
    (ends, columns, sums)
}

impl OpenArray<'_> {
    /// The text of a zero-dimensional array.
    fn first_text(mut self) -> Result<String> {
        let super::ElementLayout::Text(text) = self.head.layout else {
            return Err(malformed(&self.name, "a text is expected here", "save it again"));
        };
        let texts = text.read(&mut self.reader, 1, self.left).map_err(|e| self.fail(e))?;
        Ok(texts.into_iter().next().unwrap_or_default())
    }
}
