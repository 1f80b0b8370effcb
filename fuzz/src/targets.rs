//! What is fuzzed. Each target answers with a number that stands for how the input was answered (which message, which
//! shape), so that the driver can tell new answers from known ones.

use std::io::{Cursor, Write};

use margrave_core::control::{Control, Threads};
use margrave_core::data::Points;
use margrave_core::gram::Precision;
use margrave_core::model::Model;
use margrave_io::model::{AnyModel, LibsvmModel, any_from_bytes, from_bytes, schema, to_bytes, to_onnx};
use margrave_io::{Format, ReadOptions, read_bytes, write_csv, write_libsvm};

/// A function of bytes that must return.
#[derive(Debug)]
pub struct Target {
    /// Its name, that of its folders of seeds and regressions.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]) -> u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "libsvm", run: |bytes| data(bytes, Some(Format::Libsvm)) },
    Target { name: "csv", run: |bytes| data(bytes, Some(Format::Csv)) },
    Target { name: "npy", run: |bytes| data(bytes, Some(Format::Npy)) },
    Target { name: "npz", run: |bytes| data(bytes, Some(Format::Npz)) },
    Target { name: "npz-parts", run: npz_parts },
    Target { name: "idx", run: |bytes| data(bytes, Some(Format::Idx)) },
    #[cfg(feature = "parquet")]
    Target { name: "parquet", run: |bytes| data(bytes, Some(Format::Parquet)) },
    Target { name: "detect", run: |bytes| data(bytes, None) },
    Target { name: "gz", run: |bytes| data(bytes, None) },
    Target { name: "gz-parts", run: gz_parts },
    Target { name: "schema", run: with_schema },
    Target { name: "model-native", run: |bytes| native(bytes) },
    Target { name: "model-header", run: header },
    Target { name: "model-libsvm", run: any_model },
    Target { name: "model-liblinear", run: any_model },
    Target { name: "options", run: options },
    Target { name: "arguments", run: |bytes| text_target(bytes, margrave_cli::fuzzing::arguments) },
    Target { name: "tune-table", run: |bytes| text_target(bytes, margrave_cli::fuzzing::tune_table) },
    Target { name: "svm-scale", run: |bytes| text_target(bytes, margrave_cli::fuzzing::svm_scale) },
    Target { name: "scaling", run: |bytes| text_target(bytes, margrave_cli::fuzzing::scaling) },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// A number for a message: figures and quoted texts do not matter.
fn kind(message: &str) -> u64 {
    let mut quoted = false;
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in message.bytes() {
        match byte {
            b'`' | b'"' => quoted = !quoted,
            b'0'..=b'9' => continue,
            _ if quoted => continue,
            _ => {}
        }
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash
}

/// Reads a data file, as it is and in the way of a model that was trained on it, and writes what was read.
fn data(bytes: &[u8], format: Option<Format>) -> u64 {
    let way = bytes.first().map_or(0, |b| b % 8);
    let options = ReadOptions {
        format,
        no_target: way == 1,
        single: way == 2,
        weights: (way == 3).then_some(margrave_io::Column::Number(0)),
        ..ReadOptions::default()
    };
    let loaded = match read_bytes(bytes, "input", &options) {
        Ok(loaded) => loaded,
        Err(e) => return kind(&e.to_string()),
    };
    let (n, d) = (loaded.data.points.len(), loaded.data.points.dims());
    let rows = loaded.data.targets.len();
    assert!(rows == n || options.no_target || rows == 0, "{rows} targets for {n} rows");
    if n.saturating_mul(d) < 10_000 {
        let mut out = Vec::new();
        let _ = write_csv(&loaded.data, &mut out);
        let _ = write_libsvm(&loaded.data, &mut out);
    }
    let again = ReadOptions {
        format,
        schema: Some(&loaded.schema),
        weights: options.weights.clone(),
        ..ReadOptions::default()
    };
    let same = read_bytes(bytes, "input", &again);
    let width = same.as_ref().map(|l| l.data.points.dims());
    assert!(width.is_err() || width.is_ok_and(|w| w == d), "the same file has {d} features, then others");
    (n.min(8) * 64 + d.min(63)) as u64
        ^ (u64::from(loaded.data.points.is_sparse()) << 32)
        ^ (u64::from(same.is_ok()) << 33)
}

/// The separator of parts in inputs of `npz-parts`.
const PART: &[u8] = b"\n--part--\n";

/// A zip of the parts, each a name up to its first line break and an array: damage inside arrays, with checksums that hold.
fn npz_parts(bytes: &[u8]) -> u64 {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut rest = bytes;
    loop {
        let end = rest.windows(PART.len()).position(|w| w == PART);
        let part = &rest[..end.unwrap_or(rest.len())];
        let cut = part.iter().position(|b| *b == b'\n').unwrap_or(part.len());
        let name = String::from_utf8_lossy(&part[..cut]).into_owned();
        // A name that occurs twice is refused by the writer.
        if writer.start_file(name, options).is_ok() {
            let _ = writer.write_all(part.get(cut + 1..).unwrap_or(&[]));
        }
        match end {
            Some(end) => rest = &rest[end + PART.len()..],
            None => break,
        }
    }
    match writer.finish() {
        Ok(file) => data(&file.into_inner(), Some(Format::Npz)),
        Err(_) => 0,
    }
}

/// The input, gzipped: damage inside files, with checksums that hold.
fn gz_parts(bytes: &[u8]) -> u64 {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    let _ = encoder.write_all(bytes);
    encoder.finish().map_or(0, |packed| data(&packed, None))
}

/// A schema, a separator and a table that is read by it, also with a target that is named.
fn with_schema(bytes: &[u8]) -> u64 {
    let Some(cut) = bytes.windows(PART.len()).position(|w| w == PART) else { return 1 };
    let Ok(schema) = serde_json::from_slice::<margrave_io::Schema>(&bytes[..cut]) else { return 2 };
    let table = &bytes[cut + PART.len()..];
    let mut answer = 3u64;
    for (target, no_target) in [(None, false), (None, true), (Some(margrave_io::Column::Number(0)), false)] {
        let options = ReadOptions { schema: Some(&schema), target, no_target, ..ReadOptions::default() };
        answer = match read_bytes(table, "input", &options) {
            Ok(loaded) => {
                assert_eq!(loaded.data.points.dims(), schema.features, "as many features as the schema has");
                answer.wrapping_mul(3).wrapping_add(1)
            }
            Err(e) => answer.wrapping_mul(3) ^ kind(&e.to_string()),
        };
    }
    answer
}

/// Reads a native model; what was read is written, read again, converted and used.
fn native(bytes: &[u8]) -> u64 {
    match from_bytes(bytes, "input") {
        Ok(model) => used(&model),
        Err(e) => kind(&e.to_string()),
    }
}

/// What a program does with a model it was given.
fn used(model: &Model) -> u64 {
    let (m, d, k) = (model.expansion.len(), model.expansion.width(), model.expansion.outputs());
    let _ = schema(model);
    let mut answer = (m.min(15) * 256 + d.min(15) * 16 + k.min(15)) as u64;
    if d > 64 || m > 1000 || k > 100 {
        return answer;
    }
    match to_bytes(model) {
        Ok(bytes) => assert!(from_bytes(&bytes, "copy").is_ok(), "what was written is not read"),
        Err(e) => answer ^= kind(&e.to_string()),
    }
    answer ^= to_onnx(model).map_or_else(|e| kind(&e.to_string()), |_| 1 << 40);
    answer ^= LibsvmModel::from_model(model, None).map_or_else(|e| kind(&e.to_string()), |_| 1 << 41);
    let control = Control::unlimited(Threads::new(1));
    if let Ok(points) = Points::dense_f64(2, d, (0..2 * d).map(|v| v as f64 - 1.5).collect::<Vec<f64>>()) {
        match model.scores(&points, Precision::Double, &control) {
            Ok(scores) => {
                let _ = (model.decide(&scores), model.probabilities(&scores), model.radii(0.9));
            }
            Err(e) => answer ^= kind(&e.to_string()),
        }
    }
    answer
}

/// The JSON header of a native model in the place of a good one's: damage beyond the outer layout, whose lengths then fit.
fn header(bytes: &[u8]) -> u64 {
    // The input: the header, a separator, the bytes of the arrays with their own descriptions.
    let Some(cut) = bytes.windows(PART.len()).position(|w| w == PART) else { return 1 };
    let (text, rest) = (String::from_utf8_lossy(&bytes[..cut]), &bytes[cut + PART.len()..]);
    let Some(cut) = rest.windows(PART.len()).position(|w| w == PART) else { return 2 };
    let (arrays, values) = (String::from_utf8_lossy(&rest[..cut]), &rest[cut + PART.len()..]);
    let quoted = serde_json::Value::String(text.into_owned()).to_string();
    let whole = format!("{{\"__metadata__\":{{\"margrave\":{quoted}}}{arrays}}}");
    let mut file = (whole.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(whole.as_bytes());
    file.extend_from_slice(values);
    native(&file)
}

/// Reads a model of any format, and makes it ours.
fn any_model(bytes: &[u8]) -> u64 {
    match any_from_bytes(bytes, "input") {
        Err(e) => kind(&e.to_string()),
        Ok(AnyModel::Native(model)) => used(&model),
        Ok(AnyModel::Libsvm(model)) => {
            let _ = model.class_of();
            let text = model.to_text();
            assert!(any_from_bytes(text.as_bytes(), "copy").is_ok(), "what was written is not read");
            // Linear machines and those on precomputed kernels keep one number for each feature or training row: in
            // proportion to the largest index, up to a limit of its own.
            let linear = model.kernel == margrave_core::kernel::Kernel::Linear;
            if linear && model.centres.dims() > 1 << 16 || model.serials.iter().any(|serial| *serial > 1 << 16) {
                return 3;
            }
            match model.to_model(model.training(Some(3))) {
                Ok(model) => used(&model),
                Err(e) => kind(&e.to_string()),
            }
        }
    }
}

fn text_target(bytes: &[u8], run: fn(&str) -> Result<(), String>) -> u64 {
    run(&String::from_utf8_lossy(bytes)).map_or_else(|e| kind(&e), |()| 1)
}

fn options(bytes: &[u8]) -> u64 {
    let answers = margrave_cli::fuzzing::options(&String::from_utf8_lossy(bytes));
    answers.into_iter().fold(0, |all, answer| (all << 1) ^ u64::from(answer))
}
