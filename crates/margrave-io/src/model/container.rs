//! The container of a native model file: named arrays and one JSON header, in the safetensors layout.
//!
//! Safe for untrusted files: every length is checked against the available bytes before anything is allocated, and
//! files contain no code. Lossless: arrays are little-endian IEEE numbers, and numbers in the header are written with
//! as many digits as needed.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::{Dtype, SafeTensors, View};

/// Key of the JSON header in the safetensors metadata.
const HEADER: &str = "margrave";

/// An error in the bytes of a model file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(pub(super) String);

impl Broken {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// One array, any number of dimensions, row-major.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ArrayValues {
    F32(Vec<f32>),
    F64(Vec<f64>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

/// Real numbers of either precision.
pub(super) enum Reals {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) values: ArrayValues,
}

impl Array {
    pub(super) fn new(shape: impl Into<Vec<usize>>, values: ArrayValues) -> Self {
        Self { shape: shape.into(), values }
    }
}

impl View for &Array {
    fn dtype(&self) -> Dtype {
        match self.values {
            ArrayValues::F32(_) => Dtype::F32,
            ArrayValues::F64(_) => Dtype::F64,
            ArrayValues::U32(_) => Dtype::U32,
            ArrayValues::U64(_) => Dtype::U64,
        }
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(match &self.values {
            ArrayValues::F32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            ArrayValues::F64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            ArrayValues::U32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            ArrayValues::U64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        })
    }
    fn data_len(&self) -> usize {
        match &self.values {
            ArrayValues::F32(v) => v.len() * 4,
            ArrayValues::F64(v) => v.len() * 8,
            ArrayValues::U32(v) => v.len() * 4,
            ArrayValues::U64(v) => v.len() * 8,
        }
    }
}

/// A header and its arrays.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Container {
    pub(super) header: String,
    pub(super) arrays: BTreeMap<String, Array>,
}

impl Container {
    /// The bytes of the file.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, Broken> {
        let metadata = HashMap::from([(HEADER.to_owned(), self.header.clone())]);
        safetensors::serialize(self.arrays.iter().map(|(name, array)| (name.as_str(), array)), Some(metadata))
            .map_err(|e| Broken::new(format!("the model cannot be written: {e}")))
    }

    /// Reads the bytes of a file.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Broken> {
        let broken = |e| Broken::new(format!("not a Margrave model, or a damaged one ({e})"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(broken)?;
        let header = metadata.metadata().as_ref().and_then(|m| m.get(HEADER)).cloned().ok_or_else(|| {
            Broken::new("a safetensors file, but not a Margrave model: it has no entry \"margrave\" in its header")
        })?;
        let mut arrays = BTreeMap::new();
        for (name, view) in SafeTensors::deserialize(bytes).map_err(broken)?.tensors() {
            let data = view.data();
            let values = match view.dtype() {
                Dtype::F32 => ArrayValues::F32(decode(data, f32::from_le_bytes)),
                Dtype::F64 => ArrayValues::F64(decode(data, f64::from_le_bytes)),
                Dtype::U32 => ArrayValues::U32(decode(data, u32::from_le_bytes)),
                Dtype::U64 => ArrayValues::U64(decode(data, u64::from_le_bytes)),
                other => return Err(Broken::new(format!("the array {name:?} has the unknown type {other:?}"))),
            };
            arrays.insert(name, Array { shape: view.shape().to_vec(), values });
        }
        Ok(Self { header, arrays })
    }

    fn take(&mut self, name: &str) -> Result<Array, Broken> {
        self.arrays.remove(name).ok_or_else(|| Broken::new(format!("the array {name:?} is missing")))
    }

    /// An f64 array of `len` values.
    pub(super) fn f64s(&mut self, name: &str, len: usize) -> Result<Vec<f64>, Broken> {
        match self.take(name)?.values {
            ArrayValues::F64(v) if v.len() == len => match v.iter().position(|x| !x.is_finite()) {
                None => Ok(v),
                Some(at) => Err(Broken::new(format!("entry {at} of the array {name:?} is {}", v[at]))),
            },
            ArrayValues::F64(v) => Err(Broken::new(format!("the array {name:?} has {} values, not {len}", v.len()))),
            _ => Err(Broken::new(format!("the array {name:?} does not hold double-precision numbers"))),
        }
    }

    /// A u32 array of `len` values.
    pub(super) fn u32s(&mut self, name: &str, len: usize) -> Result<Vec<u32>, Broken> {
        match self.take(name)?.values {
            ArrayValues::U32(v) if v.len() == len => Ok(v),
            ArrayValues::U32(v) => Err(Broken::new(format!("the array {name:?} has {} values, not {len}", v.len()))),
            _ => Err(Broken::new(format!("the array {name:?} does not hold 32-bit whole numbers"))),
        }
    }

    /// A u64 array of `len` values, as sizes.
    pub(super) fn sizes(&mut self, name: &str, len: usize) -> Result<Vec<usize>, Broken> {
        match self.take(name)?.values {
            ArrayValues::U64(v) if v.len() == len => v
                .into_iter()
                .map(|x| usize::try_from(x).map_err(|_| Broken::new(format!("the array {name:?} holds {x}"))))
                .collect(),
            ArrayValues::U64(v) => Err(Broken::new(format!("the array {name:?} has {} values, not {len}", v.len()))),
            _ => Err(Broken::new(format!("the array {name:?} does not hold 64-bit whole numbers"))),
        }
    }

    /// An array of real numbers of either precision, any length.
    pub(super) fn reals(&mut self, name: &str) -> Result<Reals, Broken> {
        match self.take(name)?.values {
            ArrayValues::F32(v) => Ok(Reals::Single(v)),
            ArrayValues::F64(v) => Ok(Reals::Double(v)),
            _ => Err(Broken::new(format!("the array {name:?} does not hold real numbers"))),
        }
    }
}

fn decode<T, const N: usize>(data: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks::<N>().0.iter().map(|chunk| from(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Container {
        let mut c = Container { header: r#"{"x":1}"#.into(), ..Container::default() };
        c.arrays.insert("a".into(), Array::new([2, 2], ArrayValues::F64(vec![0.1, -0.0, 1e-308, f64::MAX])));
        c.arrays.insert("b".into(), Array::new([3], ArrayValues::U32(vec![0, 7, u32::MAX])));
        c.arrays.insert("c".into(), Array::new([1], ArrayValues::F32(vec![0.1])));
        c.arrays.insert("d".into(), Array::new([0], ArrayValues::U64(vec![])));
        c
    }

    #[test]
    fn a_round_trip_is_exact() {
        let back = Container::from_bytes(&example().to_bytes().unwrap()).unwrap();
        assert_eq!(back, example());
        let ArrayValues::F64(v) = &back.arrays["a"].values else { panic!("type changed") };
        assert!(v[1].is_sign_negative());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = example().to_bytes().unwrap();
        for end in 0..bytes.len() {
            assert!(Container::from_bytes(&bytes[..end]).is_err(), "{end} bytes were accepted");
        }
    }

    #[test]
    fn wrong_lengths_types_and_names_are_reported() {
        let say = |r: Result<Vec<f64>, Broken>| r.unwrap_err().to_string();
        assert!(say(example().f64s("z", 1)).contains("\"z\" is missing"));
        assert!(say(example().f64s("a", 5)).contains("4 values, not 5"));
        assert!(say(example().f64s("b", 3)).contains("double-precision"));
        let mut nan = example();
        nan.arrays.insert("n".into(), Array::new([1], ArrayValues::F64(vec![f64::NAN])));
        assert!(say(nan.f64s("n", 1)).contains("NaN"));
    }
}
