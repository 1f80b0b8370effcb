//! Detects the format of a file.

use margrave_core::conflict::OptionName;
use std::path::Path;

use crate::error::{Result, malformed};
use crate::options::Format;
use crate::source::ByteSource;

/// The format of `source`: by magic bytes, then by its name, then by its first lines.
pub(crate) fn detect(source: &ByteSource) -> Result<Format> {
    let head = source.head();
    if let Some(format) = by_magic(head) {
        return Ok(format);
    }
    if let Some(format) = by_name(source.name()) {
        return Ok(format);
    }
    if head.is_empty() {
        return Err(malformed(source.name(), "the file is empty", "give a file with at least one sample"));
    }
    if looks_binary(head) {
        return Err(malformed(
            source.name(),
            "this is neither text nor a known binary format",
            format!("give LIBSVM text, CSV, NPY, NPZ, Parquet or idx, or name the format with {}", OptionName::Format),
        ));
    }
    Ok(if looks_like_libsvm(head) { Format::Libsvm } else { Format::Csv })
}

fn by_magic(head: &[u8]) -> Option<Format> {
    const IDX_TYPES: [u8; 6] = [0x08, 0x09, 0x0b, 0x0c, 0x0d, 0x0e];
    match head {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(Format::Npy),
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Format::Npz),
        [b'P', b'A', b'R', b'1', ..] => Some(Format::Parquet),
        [0, 0, kind, 1..=8, ..] if IDX_TYPES.contains(kind) => Some(Format::Idx),
        _ => None,
    }
}

fn by_name(name: &str) -> Option<Format> {
    let name = Path::new(name).file_name()?.to_str()?.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "svm" | "libsvm" | "svmlight" => Some(Format::Libsvm),
        "csv" | "tsv" => Some(Format::Csv),
        "npy" => Some(Format::Npy),
        "npz" => Some(Format::Npz),
        "parquet" | "pq" => Some(Format::Parquet),
        "idx" | "idx1" | "idx2" | "idx3" | "idx4" => Some(Format::Idx),
        _ if name.ends_with("-ubyte") => Some(Format::Idx),
        _ => None,
    }
}

/// Whether there are control bytes other than blanks, which do not occur in text.
pub(crate) fn looks_binary(head: &[u8]) -> bool {
    head.iter().take(4096).any(|b| matches!(b, 0..=8 | 14..=31))
}

/// Whether one of the first lines has only `index:value` entries after its first word.
fn looks_like_libsvm(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    for line in head.split(|b| *b == b'\n').take(50) {
        let line = line.split(|b| *b == b'#').next().unwrap_or_default();
        let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
        let Some(first) = words.next() else { continue };
        let mut pairs = 0;
        for word in words {
            // The last word of the head may be incomplete.
            let colon = word.iter().position(|b| *b == b':');
            let digits = colon.is_some_and(|c| c > 0 && word[..c].iter().all(u8::is_ascii_digit));
            if !digits && !word.starts_with(b"qid:") {
                return pairs > 2 && colon.is_some();
            }
            pairs += 1;
        }
        if pairs > 0 {
            return true;
        }
        // One word: a row without features, or a table of one column.
        if first.contains(&b',') || first.contains(&b';') {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, bytes: &[u8]) -> Option<Format> {
        detect(&ByteSource::from_bytes(bytes.into(), name).unwrap()).ok()
    }

    #[test]
    fn content_then_name_then_first_lines() {
        assert_eq!(of("a.csv", b"PAR1...."), Some(Format::Parquet));
        assert_eq!(of("a", b"\x93NUMPY"), Some(Format::Npy));
        assert_eq!(of("a.svm.gz", b"1,2,3\n"), Some(Format::Libsvm));
        assert_eq!(of("-", b"+1 1:0.5 2:1\n"), Some(Format::Libsvm));
        assert_eq!(of("-", b"# comment\n1\n2\n-1 qid:3 1:1\n"), Some(Format::Libsvm));
        assert_eq!(of("a.txt", b"1,2,3\n"), Some(Format::Csv));
        assert_eq!(of("a.txt", b"1 2 3\n"), Some(Format::Csv));
        assert_eq!(of("a.txt", b"time value\n12:30 5\n"), Some(Format::Csv));
        assert_eq!(of("train-images-idx3-ubyte", b"\x00\x00\x08\x03"), Some(Format::Idx));
        assert_eq!(of("a", b""), None);
        assert_eq!(of("a", b"\x01\x02junk"), None);
    }
}
