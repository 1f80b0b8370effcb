//! Decoding array elements from bytes.

use std::io::{self, Read};

use crate::error::{ReadError, malformed};
use crate::number::Number;

/// A kind of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Bool,
    Signed,
    Unsigned,
    Float,
}

/// A number of `size` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScalarType {
    pub(super) class: Class,
    pub(super) size: usize,
    pub(super) big_endian: bool,
}

/// A text of `units` units: bytes, or code points of four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FixedText {
    pub(super) units: usize,
    pub(super) wide: bool,
    pub(super) big_endian: bool,
}

/// The element type of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementLayout {
    Number(ScalarType),
    Text(FixedText),
}

impl ElementLayout {
    /// Size of an element in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            ElementLayout::Number(scalar) => scalar.size,
            ElementLayout::Text(text) => text.size().max(1),
        }
    }
}

/// Why elements could not be read.
pub(super) enum ReadFault {
    /// There are fewer bytes than the header states.
    Short {
        held: u64,
        promised: u64,
    },
    Io(io::Error),
    Negative,
    Text,
}

impl ReadFault {
    pub(super) fn within(self, name: &str, shape: &[usize]) -> ReadError {
        match self {
            ReadFault::Short { held, promised } => malformed(
                name,
                format!("an array of shape {shape:?} takes {promised} bytes, but {held} are there"),
                "the file is truncated, or its header is wrong; copy or save it again",
            ),
            ReadFault::Io(source) => ReadError::Io { file: name.to_owned(), doing: "read it", source },
            ReadFault::Negative => malformed(name, "an index is negative or not whole", "save the matrix again"),
            ReadFault::Text => malformed(name, "a text is not valid Unicode", "save the array again"),
        }
    }
}

/// Bytes read at a time; a multiple of every element size of numbers.
const CHUNK: usize = 1 << 16;

/// Calls `visit` with the bytes of `count` elements of `size` bytes, in chunks.
fn for_each_chunk(
    reader: &mut dyn Read,
    size: usize,
    count: usize,
    left: Option<u64>,
    mut visit: impl FnMut(&[u8]) -> Result<(), ReadFault>,
) -> Result<(), ReadFault> {
    let promised = size as u64 * count as u64;
    if let Some(held) = left
        && held < promised
    {
        return Err(ReadFault::Short { held, promised });
    }
    let step = (CHUNK / size).max(1);
    let mut bytes = Vec::new();
    let mut done = 0;
    while done < count {
        let now = step.min(count - done);
        bytes.clear();
        reader.take((now * size) as u64).read_to_end(&mut bytes).map_err(ReadFault::Io)?;
        if bytes.len() < now * size {
            return Err(ReadFault::Short { held: (done * size + bytes.len()) as u64, promised });
        }
        visit(&bytes)?;
        done += now;
    }
    Ok(())
}

/// An empty vector with capacity for `count` elements, but not more than the remaining bytes justify.
fn room<V>(count: usize, left: Option<u64>) -> Vec<V> {
    Vec::with_capacity(if left.is_some() { count } else { count.min(CHUNK) })
}

/// An unsigned number of up to eight bytes.
fn unsigned(bytes: &[u8], big_endian: bool) -> u64 {
    let mut wide = [0u8; 8];
    if big_endian {
        wide[8 - bytes.len()..].copy_from_slice(bytes);
        u64::from_be_bytes(wide)
    } else {
        wide[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    }
}

/// Decodes a half-precision number.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

impl ScalarType {
    fn value(self, bytes: &[u8]) -> f64 {
        let bits = unsigned(bytes, self.big_endian);
        // Shifting up and down again extends the sign bit of a shorter number.
        let spare = 64 - 8 * self.size as u32;
        match (self.class, self.size) {
            (Class::Bool, _) => f64::from(u8::from(bits != 0)),
            (Class::Unsigned, _) => bits as f64,
            (Class::Signed, _) => ((bits << spare) as i64 >> spare) as f64,
            (Class::Float, 2) => half(bits as u16),
            (Class::Float, 4) => f64::from(f32::from_bits(bits as u32)),
            (Class::Float, _) => f64::from_bits(bits),
        }
    }

    /// Reads `count` numbers; `left` is the number of remaining bytes, if known.
    pub(super) fn read<T: Number>(
        self,
        reader: &mut dyn Read,
        count: usize,
        left: Option<u64>,
    ) -> Result<Vec<T>, ReadFault> {
        if left.is_some_and(|held| held < self.size as u64 * count as u64) {
            for_each_chunk(reader, self.size, count, left, |_| Ok(()))?;
        }
        let mut values = room(count, left);
        for_each_chunk(reader, self.size, count, left, |bytes| {
            let elements = bytes.chunks_exact(self.size);
            // Common types have their own loops, which the compiler unrolls.
            match (self.class, self.size, self.big_endian) {
                (Class::Unsigned, 1, _) => values.extend(bytes.iter().map(|b| T::from_f64(f64::from(*b)))),
                (Class::Float, 8, false) => values.extend(elements.map(|e| T::from_f64(f64::from_bits(le(e))))),
                (Class::Float, 4, false) => {
                    values.extend(elements.map(|e| T::from_f64(f64::from(f32::from_bits(le(e) as u32)))));
                }
                _ => values.extend(elements.map(|e| T::from_f64(self.value(e)))),
            }
            Ok(())
        })?;
        Ok(values)
    }

    /// Reads `count` whole numbers ≥ 0.
    pub(super) fn read_integers(
        self,
        reader: &mut dyn Read,
        count: usize,
        left: Option<u64>,
    ) -> Result<Vec<u64>, ReadFault> {
        if matches!(self.class, Class::Float | Class::Bool) {
            return Err(ReadFault::Negative);
        }
        let sign = 1u64 << (8 * self.size - 1);
        let mut values = Vec::new();
        for_each_chunk(reader, self.size, count, left, |bytes| {
            for element in bytes.chunks_exact(self.size) {
                let bits = unsigned(element, self.big_endian);
                if self.class == Class::Signed && bits & sign != 0 {
                    return Err(ReadFault::Negative);
                }
                values.push(bits);
            }
            Ok(())
        })?;
        Ok(values)
    }
}

fn le(bytes: &[u8]) -> u64 {
    unsigned(bytes, false)
}

impl FixedText {
    fn size(self) -> usize {
        self.units * if self.wide { 4 } else { 1 }
    }

    /// Reads `count` texts.
    pub(super) fn read(self, reader: &mut dyn Read, count: usize, left: Option<u64>) -> Result<Vec<String>, ReadFault> {
        let size = self.size();
        if size == 0 {
            return Err(ReadFault::Text);
        }
        let mut texts = Vec::new();
        for_each_chunk(reader, size, count, left, |bytes| {
            for element in bytes.chunks_exact(size) {
                let text = if self.wide {
                    let code = |e: &[u8]| char::from_u32(unsigned(e, self.big_endian) as u32);
                    element.chunks_exact(4).map(code).collect::<Option<String>>()
                } else {
                    std::str::from_utf8(element).ok().map(str::to_owned)
                };
                // Short texts are padded with zeros.
                texts.push(text.ok_or(ReadFault::Text)?.trim_end_matches('\0').to_owned());
            }
            Ok(())
        })?;
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_kind() {
        let value = |class, bytes: &[u8], big_endian| ScalarType { class, size: bytes.len(), big_endian }.value(bytes);
        assert_eq!(value(Class::Signed, &[0xff], false), -1.0);
        assert_eq!(value(Class::Signed, &[0xff, 0x7f], true), -129.0);
        assert_eq!(value(Class::Signed, &i64::MIN.to_le_bytes(), false), i64::MIN as f64);
        assert_eq!(value(Class::Unsigned, &[0xff, 0x00], false), 255.0);
        assert_eq!(value(Class::Unsigned, &[0xff, 0x00], true), 65280.0);
        assert_eq!(value(Class::Bool, &[7], false), 1.0);
        assert_eq!(value(Class::Float, &(-1.5f32).to_be_bytes(), true), -1.5);
        assert_eq!(value(Class::Float, &1e300f64.to_le_bytes(), false), 1e300);
        for (bits, expected) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x3555, 0.333251953125), (1, 2f64.powi(-24)), (0x7bff, 65504.0)]
        {
            assert_eq!(half(bits), expected);
        }
        assert!(half(0x7c01).is_nan() && half(0xfc00) == f64::NEG_INFINITY);
    }
}
