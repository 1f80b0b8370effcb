//! The container of binary answers: a JSON header, then arrays of numbers (see `API.md`).

use serde_json::{Map, Value, json};

/// Media type of a container.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.margrave.arrays";

const MAGIC: &[u8; 4] = b"MGA1";

/// Arrays start at multiples of this many bytes, so that a browser can map them without a copy.
const ALIGN: usize = 8;

/// A container that is being filled.
#[derive(Default)]
pub(crate) struct Arrays {
    index: Map<String, Value>,
    bytes: Vec<u8>,
}

impl Arrays {
    fn put(&mut self, name: &str, kind: &str, count: usize, bytes: impl Iterator<Item = u8>) {
        self.index.insert(name.to_owned(), json!({ "type": kind, "offset": self.bytes.len(), "count": count }));
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }

    /// Adds numbers in single precision.
    pub(crate) fn f32(&mut self, name: &str, values: impl ExactSizeIterator<Item = f64>) {
        let count = values.len();
        self.put(name, "f32", count, values.flat_map(|v| (v as f32).to_le_bytes()));
    }

    /// Adds numbers in double precision.
    pub(crate) fn f64(&mut self, name: &str, values: impl ExactSizeIterator<Item = f64>) {
        let count = values.len();
        self.put(name, "f64", count, values.flat_map(f64::to_le_bytes));
    }

    /// Adds whole numbers.
    pub(crate) fn u32(&mut self, name: &str, values: impl ExactSizeIterator<Item = u32>) {
        let count = values.len();
        self.put(name, "u32", count, values.flat_map(u32::to_le_bytes));
    }

    /// Adds small whole numbers.
    pub(crate) fn u8(&mut self, name: &str, values: impl ExactSizeIterator<Item = u8>) {
        let count = values.len();
        self.put(name, "u8", count, values);
    }

    /// The whole container; `header` is an object that gains the key `arrays`.
    pub(crate) fn finish(self, header: Value) -> Vec<u8> {
        let mut header = match header {
            Value::Object(header) => header,
            _ => Map::new(),
        };
        header.insert("arrays".into(), Value::Object(self.index));
        let mut text = Value::Object(header).to_string();
        while !(8 + text.len()).is_multiple_of(ALIGN) {
            text.push(' ');
        }
        let mut out = Vec::with_capacity(8 + text.len() + self.bytes.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(&self.bytes);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_where_the_header_says() {
        let mut arrays = Arrays::default();
        arrays.u8("kind", [1u8, 2, 3].into_iter());
        arrays.f32("x", [0.5, -2.0].into_iter());
        arrays.f64("y", [1e-300].into_iter());
        arrays.u32("row", [7u32].into_iter());
        let bytes = arrays.finish(json!({ "n": 3 }));
        assert_eq!(&bytes[..4], b"MGA1");
        let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        assert_eq!((8 + length) % 8, 0);
        let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        assert_eq!(header["n"], 3);
        let at = |name: &str| {
            let offset = header["arrays"][name]["offset"].as_u64().unwrap() as usize;
            assert_eq!(offset % 8, 0);
            &bytes[8 + length + offset..]
        };
        assert_eq!(&at("kind")[..3], [1, 2, 3]);
        assert_eq!(f32::from_le_bytes(at("x")[4..8].try_into().unwrap()), -2.0);
        assert_eq!(f64::from_le_bytes(at("y")[..8].try_into().unwrap()), 1e-300);
        assert_eq!(u32::from_le_bytes(at("row")[..4].try_into().unwrap()), 7);
    }
}
