//! An array as saved by NumPy: a magic number, a Python dictionary in text, then the elements.

use margrave_core::conflict::OptionName;
use std::io::{self, Read};

use super::scalar::{Class, ElementLayout, FixedText, ScalarType};
use super::{ArrayHeader, OpenArray};
use crate::error::{ReadError, Result, excerpt, malformed};

/// Longest accepted header, in bytes.
const LONGEST_HEADER: usize = 1 << 20;

/// Reads the header of the array at the start of `reader`; `len` is the total length, if known.
pub(super) fn open<'a>(
    name: String,
    mut reader: Box<dyn Read + 'a>,
    len: Option<u64>,
    io: impl Fn(io::Error) -> ReadError,
) -> Result<OpenArray<'a>> {
    let mut take = |count: usize| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reader.by_ref().take(count as u64).read_to_end(&mut bytes).map_err(&io)?;
        match bytes.len() == count {
            true => Ok(bytes),
            false => Err(malformed(&name, "the NPY header is cut off", "the file is truncated; copy or save it again")),
        }
    };
    let magic = take(6).unwrap_or_default();
    if magic != b"\x93NUMPY" {
        return Err(malformed(
            &name,
            format!("an NPY file begins with `\\x93NUMPY`, but this one with {}", excerpt(&magic)),
            format!("check the file, or name its format with {}", OptionName::Format),
        ));
    }
    let version = take(2)?;
    let width = match version[0] {
        1 => 2,
        2 | 3 => 4,
        other => return Err(malformed(&name, format!("NPY version {other} is not known"), "save it again with NumPy")),
    };
    let mut length = [0; 4];
    length[..width].copy_from_slice(&take(width)?);
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST_HEADER {
        return Err(malformed(&name, format!("the NPY header declares a length of {length} bytes"), "save it again"));
    }
    let header = take(length)?;
    let head = parse(&header).map_err(|(problem, remedy)| malformed(&name, problem, remedy))?;
    let left = len.map(|all| all.saturating_sub((8 + width + length) as u64));
    Ok(OpenArray { name, head, reader, left })
}

type Problem = (String, &'static str);

fn parse(header: &[u8]) -> Result<ArrayHeader, Problem> {
    let text = String::from_utf8_lossy(header);
    let bad =
        || (format!("the NPY header cannot be understood, {}", excerpt(header)), "save the array again with NumPy");
    let after = |key: &str| -> Option<&str> {
        let at = text.find(&format!("'{key}'")).or_else(|| text.find(&format!("\"{key}\"")))?;
        Some(text[at + key.len() + 2..].trim_start().strip_prefix(':')?.trim_start())
    };
    let shape = after("shape").ok_or_else(bad)?;
    let inner = shape.strip_prefix('(').and_then(|s| s.split(')').next()).ok_or_else(bad)?;
    let sizes = inner.split(',').map(str::trim).filter(|s| !s.is_empty());
    let shape =
        sizes.map(|s| s.trim_end_matches('L').parse::<usize>().ok()).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
    let fortran = match after("fortran_order").ok_or_else(bad)? {
        t if t.starts_with("True") => true,
        t if t.starts_with("False") => false,
        _ => return Err(bad()),
    };
    let descr = after("descr").ok_or_else(bad)?;
    let quote = descr.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let Some(quote) = quote else {
        return Err(("the array has named fields".to_owned(), "save a plain array of numbers"));
    };
    let descr = descr[1..].split(quote).next().ok_or_else(bad)?;
    Ok(ArrayHeader { layout: layout(descr)?, fortran, shape })
}

/// The element type of a type string such as `<f8`.
fn layout(descr: &str) -> Result<ElementLayout, Problem> {
    let refuse = |remedy| (format!("elements of type `{descr}` cannot be read"), remedy);
    let mut chars = descr.chars();
    let big_endian = match chars.next() {
        Some('>') => true,
        Some('<' | '|') => false,
        Some('=') => cfg!(target_endian = "big"),
        _ => return Err(refuse("save an array of numbers")),
    };
    let code = chars.next();
    if code == Some('O') {
        return Err((
            "the array holds Python objects (type `|O`), which cannot be read safely".to_owned(),
            "convert it to numbers, for example with astype(float), and save it again",
        ));
    }
    let size: usize = chars.as_str().parse().map_err(|_| refuse("save an array of numbers"))?;
    let number = |class| Ok(ElementLayout::Number(ScalarType { class, size, big_endian }));
    match (code, size) {
        (Some('b'), 1) => number(Class::Bool),
        (Some('i'), 1 | 2 | 4 | 8) => number(Class::Signed),
        (Some('u'), 1 | 2 | 4 | 8) => number(Class::Unsigned),
        (Some('f'), 2 | 4 | 8) => number(Class::Float),
        (Some('f'), _) => Err(refuse("convert it to float64")),
        (Some('c'), _) => Err(refuse("complex numbers are not supported; save real and imaginary parts as columns")),
        (Some(code @ ('S' | 'a' | 'U')), 0..=65_536) => {
            Ok(ElementLayout::Text(FixedText { units: size, wide: code == 'U', big_endian }))
        }
        (Some('M' | 'm'), _) => Err(refuse("convert dates to numbers")),
        _ => Err(refuse("save an array of numbers")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let head = parse(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }   \n").unwrap();
        assert_eq!((head.fortran, head.shape), (false, vec![3, 4]));
        assert_eq!(parse(b"{'shape': (5,), 'fortran_order': True, 'descr': \"|b1\"}").unwrap().shape, [5]);
        assert_eq!(parse(b"{'descr': '<i4', 'fortran_order': False, 'shape': ()}").unwrap().shape, [0usize; 0]);
        for (bad, word) in [
            (&b"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}"[..], "objects"),
            (b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}", "named fields"),
            (b"{'descr': '<c16', 'fortran_order': False, 'shape': (3,)}", "<c16"),
            (b"{'descr': '<f8', 'fortran_order': Maybe, 'shape': (3,)}", "understood"),
            (b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}", "understood"),
            (b"", "understood"),
        ] {
            assert!(parse(bad).unwrap_err().0.contains(word));
        }
    }
}
