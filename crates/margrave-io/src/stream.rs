//! Data larger than memory: rows of a LIBSVM text in a compact binary file, read back in blocks.
//!
//! The text is parsed once. Every pass of a linear solver then reads the binary file sequentially, one block at a time:
//! the memory used is that of a block, independent of the size of the data. The file is unlinked once it is open, so it
//! disappears with the process.
//!
//! A block is its row ends (u32), its columns (u32) and its values: f32 if all of them are exact in single precision,
//! f64 otherwise.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use margrave_core::backend::cpu::rows::RowMatrix;
use margrave_core::data::{Csr, Points, Targets};
use margrave_core::gram::{Matrix, Pick};
use margrave_core::{Control, Interrupt};

use crate::error::{ReadError, Result, malformed};
use crate::options::{Format, ReadOptions};
use crate::schema::Schema;
use crate::source::ByteSource;
use crate::{blocks, detect, libsvm};

/// Maximum number of stored values per block, unless one row has more.
const BLOCK: usize = 1 << 20;

/// The position of a block in the file.
#[derive(Debug, Clone, Copy)]
struct StoredBlock {
    first: usize,
    rows: usize,
    stored: usize,
    offset: u64,
    single: bool,
}

/// X stored in a file.
#[derive(Debug)]
pub struct StreamedRows {
    file: Mutex<File>,
    blocks: Vec<StoredBlock>,
    rows: usize,
    dims: usize,
    stored: usize,
    /// Set if a block could not be read back: products are then invalid.
    broken: Mutex<Option<String>>,
}

/// The content of a file whose rows are streamed.
#[derive(Debug)]
pub struct Streamed {
    /// The rows.
    pub matrix: StreamedRows,
    /// The targets.
    pub targets: Targets,
    /// The encoding of columns.
    pub schema: Schema,
}

/// Writes blocks.
struct Writer {
    file: BufWriter<File>,
    blocks: Vec<StoredBlock>,
    offset: u64,
    rows: usize,
    ends: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Writer {
    fn flush(&mut self) -> std::io::Result<()> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let single = self.values.iter().all(|v| f64::from(*v as f32) == *v);
        let mut bytes = Vec::with_capacity(1 << 16);
        let mut written = 0u64;
        let mut put = |bytes: &mut Vec<u8>, last: bool, file: &mut BufWriter<File>| -> std::io::Result<()> {
            if last || bytes.len() >= 1 << 16 {
                file.write_all(bytes)?;
                written += bytes.len() as u64;
                bytes.clear();
            }
            Ok(())
        };
        for v in self.ends.iter().chain(&self.columns) {
            bytes.extend_from_slice(&v.to_le_bytes());
            put(&mut bytes, false, &mut self.file)?;
        }
        for v in &self.values {
            if single {
                bytes.extend_from_slice(&(*v as f32).to_le_bytes());
            } else {
                bytes.extend_from_slice(&v.to_le_bytes());
            }
            put(&mut bytes, false, &mut self.file)?;
        }
        put(&mut bytes, true, &mut self.file)?;
        let (rows, stored) = (self.ends.len(), self.columns.len());
        self.blocks.push(StoredBlock { first: self.rows - rows, rows, stored, offset: self.offset, single });
        self.offset += written;
        self.ends.clear();
        self.columns.clear();
        self.values.clear();
        Ok(())
    }

    fn add(&mut self, ends: &[usize], columns: &[u32], values: &[f64]) -> std::io::Result<()> {
        let mut from = 0;
        for &end in ends {
            self.columns.extend_from_slice(&columns[from..end]);
            self.values.extend_from_slice(&values[from..end]);
            self.ends.push(self.columns.len() as u32);
            self.rows += 1;
            from = end;
            if self.columns.len() >= BLOCK {
                self.flush()?;
            }
        }
        Ok(())
    }
}

/// The size of the file at `path` in bytes if [`stream`] can read it: plain LIBSVM text.
pub fn streams(path: impl AsRef<Path>, options: &ReadOptions<'_>) -> Result<Option<u64>> {
    let path = path.as_ref();
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(None) };
    let asks = options.target.is_some() || options.weights.is_some() || options.target_file.is_some();
    let asks = asks || options.needs_table().is_some();
    if path.as_os_str() == "-" || !metadata.is_file() || asks {
        return Ok(None);
    }
    let source = ByteSource::open(path)?;
    let format = match options.format {
        Some(format) => format,
        None => detect::detect(&source)?,
    };
    Ok((format == Format::Libsvm).then_some(metadata.len()))
}

/// Parses the LIBSVM text at `path` into a temporary file in `folder`, and returns its rows from there.
pub fn stream(path: impl AsRef<Path>, folder: impl AsRef<Path>, options: &ReadOptions<'_>) -> Result<Streamed> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let source = ByteSource::open(path.as_ref())?;
    let name = format!(".margrave-rows-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let cache = folder.as_ref().join(name);
    let io = |doing| {
        let file = cache.display().to_string();
        move |source| ReadError::Io { file, doing, source }
    };
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&cache).map_err(io("make it"))?;
    // An unlinked file cannot be left behind; on systems that do not allow this, it is removed at the end.
    let unnamed = std::fs::remove_file(&cache).is_ok();
    let mut writer = Writer {
        file: BufWriter::new(file),
        blocks: Vec::new(),
        offset: 0,
        rows: 0,
        ends: Vec::new(),
        columns: Vec::new(),
        values: Vec::new(),
    };
    let read = blocks::with_threads(options.threads, || {
        libsvm::each_part(&source, options, |ends, columns, values| {
            writer.add(ends, columns, values).map_err(io("write to it"))
        })
    });
    let finished = read.and_then(|(targets, dims)| {
        writer.flush().map_err(io("write to it"))?;
        let file = writer.file.into_inner().map_err(|e| io("write to it")(e.into_error()))?;
        if writer.rows == 0 {
            return Err(malformed(
                source.name(),
                "there are no samples",
                "give at least one line `label index:value …`",
            ));
        }
        let stored = writer.blocks.iter().map(|b| b.stored).sum();
        let matrix = StreamedRows {
            file: Mutex::new(file),
            blocks: writer.blocks,
            rows: writer.rows,
            dims,
            stored,
            broken: Mutex::new(None),
        };
        Ok(Streamed { matrix, targets, schema: Schema::plain(dims, true) })
    });
    if !unnamed {
        let _ = std::fs::remove_file(&cache);
    }
    finished
}

impl StreamedRows {
    /// Why the file could not be read back, if a read failed: every product since then is invalid.
    pub fn trouble(&self) -> Option<String> {
        self.broken.lock().map_or_else(|e| e.into_inner().clone(), |b| b.clone())
    }

    fn load(&self, block: &StoredBlock) -> std::io::Result<Points> {
        let words = block.rows + block.stored;
        let width = if block.single { 4 } else { 8 };
        let mut bytes = vec![0u8; 4 * words + width * block.stored];
        {
            let mut file = self.file.lock().map_err(|_| std::io::Error::other("a reader has failed"))?;
            file.seek(SeekFrom::Start(block.offset))?;
            file.read_exact(&mut bytes)?;
        }
        let word = |c: &[u8]| u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
        let mut starts = Vec::with_capacity(block.rows + 1);
        starts.push(0);
        starts.extend(bytes[..4 * block.rows].chunks_exact(4).map(|c| word(c) as usize));
        let columns: Vec<u32> = bytes[4 * block.rows..4 * words].chunks_exact(4).map(word).collect();
        let values = &bytes[4 * words..];
        let broken = |e: margrave_core::Error| std::io::Error::other(e.to_string());
        Ok(if block.single {
            let values: Vec<f32> = values.chunks_exact(4).map(|c| f32::from_bits(word(c))).collect();
            Csr::new(self.dims, starts, columns, values).map_err(broken)?.into()
        } else {
            let eight = |c: &[u8]| f64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
            let values: Vec<f64> = values.chunks_exact(8).map(eight).collect();
            Csr::new(self.dims, starts, columns, values).map_err(broken)?.into()
        })
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
