//! Rows in a temporary file, in blocks that are read back one at a time.
//!
//! Rows of numbers of fixed width, as in an NPY file, are not copied: their blocks are read from that file.
//!
//! The file is unlinked once it is open, so it disappears with the process. A block is either dense, its values alone, or
//! sparse: its row ends (u32), its columns (u32) and its values. Values are f32 if all of them are exact in single
//! precision, f64 otherwise.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use margrave_core::data::{Csr, Points};

use crate::error::{ReadError, Result};
use crate::storage;

/// Maximum number of stored values per block, unless one row has more.
const BLOCK: usize = 1 << 20;
/// Maximum number of rows per block.
const MOST_ROWS: usize = 1 << 17;

/// Rows that stay in the file they are in: numbers of fixed width, one row after the other.
#[derive(Debug, Clone)]
pub(crate) struct RowsInPlace {
    /// Where the first row begins, in bytes.
    pub(crate) start: u64,
    /// Numbers of a row.
    pub(crate) width: usize,
    /// Which of them are features, ascending.
    pub(crate) features: Vec<usize>,
    /// Bytes of a number, little-endian: 4 or 8.
    pub(crate) size: usize,
    /// Length of the file, and when it was last changed.
    stamp: (u64, Option<SystemTime>),
}

impl RowsInPlace {
    /// Rows of `width` numbers of `size` bytes in `file`, from byte `start` on.
    pub(crate) fn new(
        file: &File,
        start: u64,
        width: usize,
        features: Vec<usize>,
        size: usize,
    ) -> std::io::Result<Self> {
        Ok(Self { start, width, features, size, stamp: stamp(file)? })
    }

    /// Reads the rows of a block. Fails if the file is not the one that was checked when its rows were counted.
    fn load(&self, block: &StoredBlock, file: &Mutex<File>) -> std::io::Result<Points> {
        let mut bytes = vec![0u8; block.rows * self.width * self.size];
        {
            let mut file = file.lock().map_err(|_| std::io::Error::other("a reader has failed"))?;
            file.seek(SeekFrom::Start(block.offset))?;
            file.read_exact(&mut bytes)?;
            // Afterwards, so that a change while the block was read is seen too.
            if stamp(&file)? != self.stamp {
                return Err(std::io::Error::other("the file has changed since training began"));
            }
        }
        let rows = || bytes.chunks_exact(self.width * self.size);
        let four = |c: &[u8]| f32::from_le_bytes([c[0], c[1], c[2], c[3]]);
        let eight = |c: &[u8]| f64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
        let cells = |row| self.features.iter().map(move |&at| cell(row, at, self.size));
        let made = match (self.size, block.single) {
            (4, _) => Points::dense_f32(block.rows, self.features.len(), collect(rows().flat_map(cells).map(four))),
            (_, true) => {
                let values = rows().flat_map(cells).map(|c| eight(c) as f32);
                Points::dense_f32(block.rows, self.features.len(), collect(values))
            }
            (_, false) => {
                Points::dense_f64(block.rows, self.features.len(), collect(rows().flat_map(cells).map(eight)))
            }
        };
        made.map_err(|e| std::io::Error::other(e.to_string()))
    }
}

/// Number `at` of a row of numbers of `size` bytes.
fn cell(row: &[u8], at: usize, size: usize) -> &[u8] {
    &row[at * size..(at + 1) * size]
}

fn collect<T>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect()
}

/// Length and time of the last change.
fn stamp(file: &File) -> std::io::Result<(u64, Option<SystemTime>)> {
    let metadata = file.metadata()?;
    Ok((metadata.len(), metadata.modified().ok()))
}

/// The position of a block in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredBlock {
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) stored: usize,
    offset: u64,
    single: bool,
    dense: bool,
}

impl StoredBlock {
    /// Row ends and columns.
    fn words(&self) -> usize {
        if self.dense { 0 } else { self.rows + self.stored }
    }

    /// Reads the block; sparse rows become dense ones if `dense`.
    pub(crate) fn load(
        &self,
        file: &Mutex<File>,
        in_place: Option<&RowsInPlace>,
        dims: usize,
        dense: bool,
    ) -> std::io::Result<Points> {
        if let Some(rows) = in_place {
            return rows.load(self, file);
        }
        let words = self.words();
        let width = if self.single { 4 } else { 8 };
        let mut bytes = vec![0u8; 4 * words + width * self.stored];
        {
            let mut file = file.lock().map_err(|_| std::io::Error::other("a reader has failed"))?;
            file.seek(SeekFrom::Start(self.offset))?;
            file.read_exact(&mut bytes)?;
        }
        let word = |c: &[u8]| u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
        let eight = |c: &[u8]| f64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
        let values = &bytes[4 * words..];
        let broken = |e: margrave_core::Error| std::io::Error::other(e.to_string());
        let singles = || values.chunks_exact(4).map(|c| f32::from_bits(word(c))).collect::<Vec<f32>>();
        let doubles = || values.chunks_exact(8).map(eight).collect::<Vec<f64>>();
        if self.dense {
            return match self.single {
                true => Points::dense_f32(self.rows, dims, singles()),
                false => Points::dense_f64(self.rows, dims, doubles()),
            }
            .map_err(broken);
        }
        let mut starts = Vec::with_capacity(self.rows + 1);
        starts.push(0);
        starts.extend(bytes[..4 * self.rows].chunks_exact(4).map(|c| word(c) as usize));
        let columns: Vec<u32> = bytes[4 * self.rows..4 * words].chunks_exact(4).map(word).collect();
        match (dense, self.single) {
            (true, true) => storage::dense_from_csr(self.rows, dims, &starts, &columns, singles()).map(Into::into),
            (true, false) => storage::dense_from_csr(self.rows, dims, &starts, &columns, doubles()).map(Into::into),
            (false, true) => Csr::new(dims, starts, columns, singles()).map(Into::into),
            (false, false) => Csr::new(dims, starts, columns, doubles()).map(Into::into),
        }
        .map_err(broken)
    }
}

/// Rows that are being written, all dense or all sparse.
pub(crate) struct Spill {
    path: PathBuf,
    /// Whether the file has a name that is to be removed at the end.
    named: bool,
    state: Mutex<SpillState>,
    refused: AtomicBool,
}

struct SpillState {
    file: BufWriter<File>,
    /// Where rows stay, if they are not written.
    in_place: Option<(File, RowsInPlace)>,
    blocks: Vec<StoredBlock>,
    offset: u64,
    rows: usize,
    /// Rows of the block that is being filled.
    pending: usize,
    ends: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// What was written.
pub(crate) struct Spilled {
    pub(crate) file: File,
    /// How the rows lie in it, if it is not the temporary file.
    pub(crate) in_place: Option<RowsInPlace>,
    pub(crate) blocks: Vec<StoredBlock>,
    pub(crate) rows: usize,
}

impl Spill {
    /// A temporary file in `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!(".margrave-rows-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file =
            made.map_err(|source| ReadError::Io { file: path.display().to_string(), doing: "make it", source })?;
        // An unlinked file cannot be left behind; on systems that do not allow this, it is removed at the end.
        let named = std::fs::remove_file(&path).is_err();
        let state = SpillState {
            file: BufWriter::new(file),
            in_place: None,
            blocks: Vec::new(),
            offset: 0,
            rows: 0,
            pending: 0,
            ends: Vec::new(),
            columns: Vec::new(),
            values: Vec::new(),
        };
        Ok(Self { path, named, state: Mutex::new(state), refused: AtomicBool::new(false) })
    }

    /// Notes that the rows cannot be read in blocks.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether that was found.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    fn with<R>(&self, work: impl FnOnce(&mut SpillState) -> std::io::Result<R>) -> Result<R> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut state).map_err(|source| ReadError::Io {
            file: self.path.display().to_string(),
            doing: "write to it",
            source,
        })
    }

    /// Forgets what was written: the reader starts anew.
    pub(crate) fn restart(&self) -> Result<()> {
        self.with(|state| {
            state.file.seek(SeekFrom::Start(0))?;
            (state.offset, state.rows, state.pending) = (0, 0, 0);
            state.in_place = None;
            state.blocks.clear();
            state.ends.clear();
            state.columns.clear();
            state.values.clear();
            Ok(())
        })
    }

    /// The rows that are added from now on are those of `file`: they are looked at, and not written.
    pub(crate) fn leave_in_place(&self, file: File, rows: RowsInPlace) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.in_place = Some((file, rows));
    }

    /// Adds sparse rows.
    pub(crate) fn add_sparse(&self, ends: &[usize], columns: &[u32], values: &[f64]) -> Result<()> {
        self.with(|state| {
            let mut from = 0;
            for &end in ends {
                state.columns.extend_from_slice(&columns[from..end]);
                state.values.extend_from_slice(&values[from..end]);
                state.ends.push(state.columns.len() as u32);
                from = end;
                state.row_added()?;
            }
            Ok(())
        })
    }

    /// Adds dense rows of `width` values.
    pub(crate) fn add_dense(&self, width: usize, values: impl Iterator<Item = f64>) -> Result<()> {
        self.with(|state| {
            for value in values {
                state.values.push(value);
                if state.values.len() == (state.pending + 1) * width {
                    state.row_added()?;
                }
            }
            Ok(())
        })
    }

    /// Rows written so far.
    pub(crate) fn rows(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).rows
    }

    /// The file, complete.
    pub(crate) fn finish(self) -> Result<Spilled> {
        let failed =
            |path: &Path, source| ReadError::Io { file: path.display().to_string(), doing: "write to it", source };
        self.with(SpillState::flush)?;
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let file = state.file.into_inner().map_err(|e| failed(&self.path, e.into_error()))?;
        if self.named {
            let _ = std::fs::remove_file(&self.path);
        }
        let (file, in_place) = match state.in_place {
            Some((data, rows)) => (data, Some(rows)),
            None => (file, None),
        };
        Ok(Spilled { file, in_place, blocks: state.blocks, rows: state.rows })
    }
}

impl SpillState {
    fn row_added(&mut self) -> std::io::Result<()> {
        self.rows += 1;
        self.pending += 1;
        if self.values.len() >= BLOCK || self.pending >= MOST_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.pending == 0 {
            return Ok(());
        }
        let single = self.values.iter().all(|v| f64::from(*v as f32) == *v);
        let (rows, stored, dense) = (self.pending, self.values.len(), self.ends.is_empty());
        let first = self.rows - rows;
        let offset = match &self.in_place {
            Some((_, layout)) => layout.start + (first * layout.width * layout.size) as u64,
            None => {
                let offset = self.offset;
                self.offset += self.write(single)?;
                offset
            }
        };
        self.blocks.push(StoredBlock { first, rows, stored, offset, single, dense });
        self.pending = 0;
        self.ends.clear();
        self.columns.clear();
        self.values.clear();
        Ok(())
    }

    /// Writes the pending rows; returns how many bytes they take.
    fn write(&mut self, single: bool) -> std::io::Result<u64> {
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
        Ok(written)
    }
}
