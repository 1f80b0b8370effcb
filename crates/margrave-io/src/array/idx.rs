//! The format of the MNIST files: two zero bytes, a type, the number of dimensions, their sizes, then the elements, all
//! big-endian.

use margrave_core::conflict::OptionName;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::scalar::{Class, ElementLayout, ScalarType};
use super::{ArrayHeader, OpenArray};
use crate::error::{Result, excerpt, malformed};
use crate::source::ByteSource;

/// Reads the header of an idx file.
pub(super) fn open(source: &ByteSource) -> Result<OpenArray<'_>> {
    let mut reader = source.reader()?;
    let mut take = |count: usize| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reader.by_ref().take(count as u64).read_to_end(&mut bytes).map_err(|e| source.io(e))?;
        match bytes.len() == count {
            true => Ok(bytes),
            false => Err(malformed(source.name(), "the idx header is cut off", "the file is truncated; copy it again")),
        }
    };
    let magic = take(4)?;
    let (class, size) = match magic[..] {
        [0, 0, 0x08, _] => (Class::Unsigned, 1),
        [0, 0, 0x09, _] => (Class::Signed, 1),
        [0, 0, 0x0b, _] => (Class::Signed, 2),
        [0, 0, 0x0c, _] => (Class::Signed, 4),
        [0, 0, 0x0d, _] => (Class::Float, 4),
        [0, 0, 0x0e, _] => (Class::Float, 8),
        _ => {
            return Err(malformed(
                source.name(),
                format!("an idx file begins with two zero bytes and a type, but this one with {}", excerpt(&magic)),
                format!("check the file, or name its format with {}", OptionName::Format),
            ));
        }
    };
    let dims = usize::from(magic[3]);
    let sizes = take(4 * dims)?;
    let size_of = |b: &[u8]| b.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let shape = sizes.chunks_exact(4).map(size_of).collect();
    let layout = ElementLayout::Number(ScalarType { class, size, big_endian: true });
    let left = source.len().map(|all| all.saturating_sub(4 + 4 * dims as u64));
    let head = ArrayHeader { layout, fortran: false, shape };
    Ok(OpenArray { name: source.name().to_owned(), head, reader, left })
}

/// The label file next to the image file at `path`, if it exists under one of the usual names.
pub(super) fn labels_beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    let named = plain.replace("images", "labels").replace("idx3", "idx1");
    if named == plain {
        return None;
    }
    [named.clone(), format!("{named}.gz")].into_iter().map(|n| path.with_file_name(n)).find(|p| p.is_file())
}
