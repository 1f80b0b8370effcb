//! Data larger than memory: its rows in a compact binary file, read back in blocks.
//!
//! The data is parsed once. Every pass of a solver then reads the binary file sequentially, one block at a time: the
//! memory used is that of a block, independent of the size of the data.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::data::{Dataset, Points};
use margrave_core::gram::{Matrix, Pick};
use margrave_core::{Control, Interrupt};

use crate::error::{ReadError, Result, malformed};
use crate::options::{Format, ReadOptions};
use crate::schema::Schema;
use crate::source::ByteSource;
use crate::spill::{RowsInPlace, Spill, Spilled, StoredBlock};
use crate::{Loaded, array, blocks, csv, detect, libsvm, storage};

/// X stored in a file.
#[derive(Debug)]
pub struct StreamedRows {
    file: Mutex<File>,
    /// How rows lie in the file, if it is the data itself and no copy.
    in_place: Option<RowsInPlace>,
    blocks: Vec<StoredBlock>,
    rows: usize,
    dims: usize,
    stored: usize,
    /// Whether sparse rows are turned into dense ones as they are read.
    dense: bool,
    /// Set if a block could not be read back: products are then invalid.
    broken: Mutex<Option<String>>,
}

/// The content of a file whose rows are streamed.
#[derive(Debug)]
pub struct Streamed {
    /// The rows.
    pub matrix: StreamedRows,
    /// What else the file contains: its points have no features.
    pub rest: Loaded,
}

/// The size of the file at `path` in bytes if [`stream`] may be able to read it: LIBSVM text, or a table of numbers as CSV,
/// Parquet or NPY.
pub fn streams(path: impl AsRef<Path>, options: &ReadOptions<'_>) -> Result<Option<u64>> {
    let path = path.as_ref();
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(None) };
    if path.as_os_str() == "-" || !metadata.is_file() || options.schema.is_some() {
        return Ok(None);
    }
    let source = ByteSource::open(path)?;
    let possible = match format_of(&source, options)? {
        Format::Libsvm => {
            let asks = options.target.is_some() || options.weights.is_some() || options.target_file.is_some();
            !asks && options.needs_table().is_none()
        }
        Format::Csv | Format::Npy => true,
        Format::Parquet => cfg!(feature = "parquet"),
        Format::Npz | Format::Idx => false,
    };
    Ok(possible.then_some(metadata.len()))
}

fn format_of(source: &ByteSource, options: &ReadOptions<'_>) -> Result<Format> {
    match options.format {
        Some(format) => Ok(format),
        None => detect::detect(source),
    }
}

/// Copies the rows of the file at `path` to a temporary file in `folder`, and returns them from there; `None` if they
/// have to be in memory: columns of texts, or missing values to be filled in. Rows of an NPY file of 32- or 64-bit
/// floating-point numbers are not copied: they are read from that file, which must not change meanwhile.
pub fn stream(path: impl AsRef<Path>, folder: impl AsRef<Path>, options: &ReadOptions<'_>) -> Result<Option<Streamed>> {
    let source = ByteSource::open(path.as_ref())?;
    let format = format_of(&source, options)?;
    let spill = Spill::new(folder.as_ref())?;
    let read = blocks::with_threads(options.threads, || match format {
        Format::Csv => csv::spill(&source, options, &spill),
        Format::Npy => array::spill_npy(&source, options, &spill),
        #[cfg(feature = "parquet")]
        Format::Parquet => crate::parquet::spill(&source, options, &spill),
        _ => libsvm_rows(&source, options, &spill),
    });
    let mut rest = match read {
        Err(_) if spill.is_refused() => return Ok(None),
        other => other?,
    };
    let Spilled { file, in_place, blocks, rows } = spill.finish()?;
    let (dims, stored) = (rest.schema.features, blocks.iter().map(|b| b.stored).sum());
    let dense = storage::prefer_dense(rows, dims, stored);
    rest.schema.sparse = !dense;
    let (file, broken) = (Mutex::new(file), Mutex::new(None));
    let matrix = StreamedRows { file, in_place, blocks, rows, dims, stored, dense, broken };
    Ok(Some(Streamed { matrix, rest }))
}

fn libsvm_rows(source: &ByteSource, options: &ReadOptions<'_>, spill: &Spill) -> Result<Loaded> {
    let (targets, dims) =
        libsvm::each_part(source, options, |ends, columns, values| spill.add_sparse(ends, columns, values))?;
    let rows = spill.rows();
    if rows == 0 {
        return Err(malformed(source.name(), "there are no samples", "give at least one line `label index:value …`"));
    }
    let data_error = |e| ReadError::Data { file: source.name().to_owned(), source: e };
    let points = Points::dense_f64(rows, 0, vec![]).map_err(data_error)?;
    let data = Dataset::new(points, targets).map_err(data_error)?;
    let schema = Schema::plain(dims, true);
    Ok(Loaded { data, format: Format::Libsvm, schema, serials: None, left_out: vec![], notes: vec![] })
}

impl StreamedRows {
    /// Whether the rows are read from the data file itself, rather than from a copy.
    pub fn in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// Why the file could not be read back, if a read failed: every product since then is invalid.
    pub fn trouble(&self) -> Option<String> {
        self.broken.lock().map_or_else(|e| e.into_inner().clone(), |b| b.clone())
    }

    fn load(&self, block: &StoredBlock) -> std::io::Result<Points> {
        block.load(&self.file, self.in_place.as_ref(), self.dims, self.dense)
    }

    /// Calls `work(matrix of a block, rows within it, positions among the requested rows)` for every block that
    /// contains any of them.
    fn each(
        &self,
        rows: Pick<'_>,
        control: &Control,
        mut work: impl FnMut(&RowMatrix, Pick<'_>, std::ops::Range<usize>) -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        for block in &self.blocks {
            control.check()?;
            let (first, end) = (block.first, block.first + block.rows);
            let local: Vec<u32>;
            let (pick, at) = match rows {
                Pick::All => (Pick::All, first..end),
                Pick::Range(from, to) => {
                    let (a, b) = (from.max(first), to.min(end));
                    if a >= b {
                        continue;
                    }
                    (Pick::Range(a - first, b - first), a - from..b - from)
                }
                // Lists are sorted: see `ascending`.
                Pick::List(list) => {
                    let a = list.partition_point(|&i| (i as usize) < first);
                    let b = list.partition_point(|&i| (i as usize) < end);
                    if a == b {
                        continue;
                    }
                    local = list[a..b].iter().map(|&i| i - first as u32).collect();
                    (Pick::List(&local), a..b)
                }
            };
            let points = self.load(block).map_err(|e| self.fail(&e))?;
            work(&RowMatrix::new(&points), pick, at)?;
        }
        Ok(())
    }

    /// Records why a block could not be read.
    fn fail(&self, why: &std::io::Error) -> Interrupt {
        if let Ok(mut broken) = self.broken.lock() {
            broken.get_or_insert_with(|| why.to_string());
        }
        Interrupt::Cancelled
    }
}

/// The order that sorts a list; `None` if it is already sorted.
fn ascending(rows: Pick<'_>) -> Option<Vec<u32>> {
    match rows {
        Pick::List(list) if !list.is_sorted() => {
            let mut order: Vec<u32> = (0..list.len() as u32).collect();
            order.sort_by_key(|&k| list[k as usize]);
            Some(order)
        }
        _ => None,
    }
}

/// The list and its numbers, sorted.
fn sorted(rows: Pick<'_>, order: &[u32], numbers: &[f64]) -> (Vec<u32>, Vec<f64>) {
    order.iter().map(|&k| (rows.get(k as usize) as u32, numbers[k as usize])).unzip()
}

impl Matrix for StreamedRows {
    fn blocks(&self) -> usize {
        self.blocks.len()
    }

    fn block_start(&self, block: usize) -> usize {
        self.blocks[block].first
    }

    fn each_block(
        &self,
        order: &[u32],
        control: &Control,
        work: &mut dyn FnMut(usize, &Points) -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        std::thread::scope(|scope| {
            // One block is in use, one is ready, one is being read.
            let (give, take) = sync_channel(1);
            scope.spawn(move || {
                for &k in order {
                    let points = self.load(&self.blocks[k as usize]);
                    if points.is_err() | give.send(points).is_err() {
                        break;
                    }
                }
            });
            for &k in order {
                control.check()?;
                let points = match take.recv() {
                    Ok(read) => read.map_err(|e| self.fail(&e))?,
                    Err(_) => return Err(self.fail(&std::io::Error::other("a reader has failed"))),
                };
                work(self.blocks[k as usize].first, &points)?;
            }
            Ok(())
        })
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn dims(&self) -> usize {
        self.dims
    }

    fn stored(&self) -> usize {
        self.stored
    }

    fn dots(&self, rows: Pick<'_>, w: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        if let Some(order) = ascending(rows) {
            let list: Vec<u32> = order.iter().map(|&k| rows.get(k as usize) as u32).collect();
            let mut there = vec![0.0; out.len()];
            self.dots(Pick::List(&list), w, &mut there, control)?;
            order.iter().zip(there).for_each(|(&k, v)| out[k as usize] = v);
            return Ok(());
        }
        self.each(rows, control, |x, pick, at| x.dots(pick, w, &mut out[at], control))
    }

    fn combine(
        &self,
        rows: Pick<'_>,
        coefficients: &[f64],
        out: &mut [f64],
        control: &Control,
    ) -> Result<(), Interrupt> {
        if let Some(order) = ascending(rows) {
            let (list, coefficients) = sorted(rows, &order, coefficients);
            return self.combine(Pick::List(&list), &coefficients, out, control);
        }
        self.each(rows, control, |x, pick, at| x.combine(pick, &coefficients[at], out, control))
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
        if let Some(order) = ascending(rows) {
            let (list, weights) = sorted(rows, &order, weights);
            return self.moments(Pick::List(&list), &weights, centre, first, second, control);
        }
        self.each(rows, control, |x, pick, at| x.moments(pick, &weights[at], centre, first, second, control))
    }

    fn squares(&self, rows: Pick<'_>, weights: &[f64], out: &mut [f64], control: &Control) -> Result<(), Interrupt> {
        if let Some(order) = ascending(rows) {
            let (list, weights) = sorted(rows, &order, weights);
            return self.squares(Pick::List(&list), &weights, out, control);
        }
        self.each(rows, control, |x, pick, at| x.squares(pick, &weights[at], out, control))
    }
}
