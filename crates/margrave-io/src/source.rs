//! Sources of bytes: a file, standard input or memory, plain or gzipped. A source can be opened more than once, and its
//! content is not held in memory unless it came from a pipe.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

use crate::error::{ReadError, Result, malformed};

/// Number of bytes used to detect format, separator, header and column types.
pub(crate) const HEAD: usize = 64 << 10;

enum ByteOrigin {
    File(PathBuf),
    Memory(Arc<[u8]>),
}

/// A named sequence of bytes that can be opened more than once.
pub(crate) struct ByteSource {
    name: String,
    origin: ByteOrigin,
    stored: u64,
    gzip: bool,
    head: Vec<u8>,
    complete: bool,
}

impl ByteSource {
    /// Opens `path`, or standard input if it is `-`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let io = |doing| move |source| ReadError::Io { file: path.to_string_lossy().into_owned(), doing, source };
        if name == "-" {
            return Self::from_reader(io::stdin().lock(), &name);
        }
        let mut file = File::open(path).map_err(io("open it"))?;
        let metadata = file.metadata().map_err(io("open it"))?;
        if metadata.is_dir() {
            return Err(malformed(&name, "this is a directory", "name a data file"));
        }
        if !metadata.is_file() {
            // A pipe or a device cannot be opened again.
            return Self::from_reader(&mut file, &name);
        }
        Self::start(name, ByteOrigin::File(path.to_owned()), metadata.len())
    }

    /// Reads all of `reader`.
    pub(crate) fn from_reader(mut reader: impl Read, name: &str) -> Result<Self> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|source| ReadError::Io {
            file: name.to_owned(),
            doing: "read it",
            source,
        })?;
        Self::from_bytes(bytes.into(), name)
    }

    /// Bytes in memory.
    pub(crate) fn from_bytes(bytes: Arc<[u8]>, name: &str) -> Result<Self> {
        let stored = bytes.len() as u64;
        Self::start(name.to_owned(), ByteOrigin::Memory(bytes), stored)
    }

    fn start(name: String, origin: ByteOrigin, stored: u64) -> Result<Self> {
        let mut source = Self { name, origin, stored, gzip: false, head: Vec::new(), complete: false };
        let mut magic = Vec::new();
        source.raw()?.take(2).read_to_end(&mut magic).map_err(|e| source.io(e))?;
        source.gzip = magic == [0x1f, 0x8b];
        let mut head = Vec::new();
        source.reader()?.take(HEAD as u64).read_to_end(&mut head).map_err(|e| source.io(e))?;
        source.complete = head.len() < HEAD;
        source.head = head;
        Ok(source)
    }

    fn raw(&self) -> Result<Box<dyn Read + Send + '_>> {
        Ok(match &self.origin {
            ByteOrigin::File(path) => Box::new(File::open(path).map_err(|source| ReadError::Io {
                file: self.name.clone(),
                doing: "open it",
                source,
            })?),
            ByteOrigin::Memory(bytes) => Box::new(Cursor::new(&bytes[..])),
        })
    }

    /// The decompressed content from its beginning.
    pub(crate) fn reader(&self) -> Result<Box<dyn Read + Send + '_>> {
        let raw = self.raw()?;
        Ok(if self.gzip { Box::new(MultiGzDecoder::new(BufReader::with_capacity(HEAD, raw))) } else { raw })
    }

    /// All of the decompressed content, in memory.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        self.reader()?.read_to_end(&mut all).map_err(|e| self.io(e))?;
        Ok(all)
    }

    /// The file itself, if the source is an uncompressed file.
    pub(crate) fn file(&self) -> Result<Option<File>> {
        match &self.origin {
            ByteOrigin::File(path) if !self.gzip => File::open(path).map(Some).map_err(|e| self.io(e)),
            _ => Ok(None),
        }
    }

    /// The path, if this is a file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.origin {
            ByteOrigin::File(path) => Some(path),
            ByteOrigin::Memory(_) => None,
        }
    }

    /// The first [`HEAD`] bytes of the decompressed content.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether the head is the whole content.
    pub(crate) fn complete(&self) -> bool {
        self.complete
    }

    /// Name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Length of the decompressed content, if known without reading it.
    pub(crate) fn len(&self) -> Option<u64> {
        (!self.gzip).then_some(self.stored)
    }

    /// Converts an input error, adding the name of this source.
    pub(crate) fn io(&self, error: io::Error) -> ReadError {
        if self.gzip && error.kind() == io::ErrorKind::UnexpectedEof {
            return malformed(
                &self.name,
                "the gzip data ends too early",
                "the file is truncated; copy or download it again",
            );
        }
        if self.gzip && matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) {
            return malformed(
                &self.name,
                format!("the gzip data is damaged ({error})"),
                "copy or download the file again",
            );
        }
        ReadError::Io { file: self.name.clone(), doing: "read it", source: error }
    }
}
