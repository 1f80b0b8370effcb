//! LIBSVM and svmlight text: `label index:value index:value … # comment`, one sample per line.
//!
//! Indices count from 1 and ascend strictly within a line. Blank lines and comments are skipped, `qid:` entries are
//! ignored. Labels are all numbers or all texts. Rows that begin with `0:serial` and then give every value are a
//! precomputed kernel matrix.
//!
//! Cost: one pass, about 0.5 GB/s per core; memory 12 bytes per value (8 in single precision), independent of the
//! largest index.

use margrave_core::conflict::OptionName;
use margrave_core::data::{Csr, Dataset, Dense, Points, Targets};

use crate::blocks::{ParsedPart, parse_blocks};
use crate::error::{Fault, Place, ReadError, Result, malformed};
use crate::number::{self, Number};
use crate::options::{Format, ReadOptions};
use crate::schema::Schema;
use crate::source::ByteSource;
use crate::{Loaded, storage};

/// Labels of the rows of a block.
enum Labels {
    Real(Vec<f64>),
    Text(Vec<String>),
}

/// Rows of one block.
struct LibsvmRows<T> {
    lines: u64,
    labels: Labels,
    /// End of every row in `columns`.
    ends: Vec<usize>,
    /// Index − 1.
    columns: Vec<u32>,
    values: Vec<T>,
    /// The serials of rows that begin with `0:serial`.
    serials: Vec<u32>,
    /// The first row with `0:serial` and the first row without.
    zero: Option<Fault>,
    plain: Option<u64>,
    /// First row with a label, for messages about mixed labels.
    first_label: Option<u64>,
}

impl<T: Send> ParsedPart for LibsvmRows<T> {
    fn lines(&self) -> u64 {
        self.lines
    }
}

/// Reads LIBSVM text.
pub(crate) fn load<T: Number>(source: &ByteSource, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let refuse = |option, what: &str| {
        Err(ReadError::Option {
            file: source.name().to_owned(),
            option,
            problem: format!("LIBSVM text has no {what} columns: leave the option out, or convert the file to CSV"),
        })
    };
    if options.target.is_some() {
        return refuse(OptionName::Target, "other target");
    }
    if options.weights.is_some() {
        return refuse(OptionName::Weights, "weight");
    }
    let mut all = LibsvmRows::<T>::default();
    let mut starts = vec![0];
    let limits = Limits {
        unlabelled: options.no_target,
        features: options.schema.map_or(u64::from(u32::MAX), |s| s.features as u64),
        schema: options.schema.is_some(),
    };
    parse_blocks(
        source,
        |block, _| parse_block::<T>(block, &limits),
        |part, before| {
            starts.extend(part.ends.iter().map(|end| all.values.len() + end));
            all.append(part, before).map_err(|fault| fault.within(source.name(), 0))
        },
    )?;
    let n = starts.len() - 1;
    if n == 0 {
        return Err(malformed(source.name(), "there are no samples", "give at least one line `label index:value …`"));
    }
    let serials = match (all.zero.take(), all.plain) {
        (None, _) => None,
        (Some(fault), Some(_)) => return Err(fault.within(source.name(), 0)),
        (Some(_), None) => Some(std::mem::take(&mut all.serials)),
    };
    let found = all.columns.iter().max().map_or(0, |c| *c as usize + 1);
    let d = options.schema.map_or(found, |s| s.features);
    let targets = match all.labels {
        _ if options.no_target => Targets::None,
        Labels::Real(values) => Targets::Real(values),
        Labels::Text(values) => Targets::Text(values),
    };
    if serials.is_some() {
        check_precomputed(source, &starts, found)?;
        if d != found {
            return Err(malformed(
                source.name(),
                format!("its rows have {found} kernel values, but the model was trained on {d} rows"),
                "give the kernel between each row and every training row",
            ));
        }
    }
    let dense =
        serials.is_some() || options.schema.map_or(storage::prefer_dense(n, d, all.values.len()), |s| !s.sparse);
    let points: Points = if dense {
        storage::dense_from_csr(n, d, &starts, &all.columns, all.values).map_err(data_error(source))?.into()
    } else {
        all.columns.shrink_to_fit();
        all.values.shrink_to_fit();
        Csr::new(d, starts, all.columns, all.values).map_err(data_error(source))?.into()
    };
    let schema = options.schema.cloned().unwrap_or_else(|| Schema::plain(d, !dense));
    let mut data = Dataset::new(points, targets).map_err(data_error(source))?;
    data.names = schema.feature_names();
    Ok(Loaded { data, format: Format::Libsvm, schema, serials, left_out: vec![], notes: vec![] })
}

/// Reads LIBSVM text part by part: `take` gets the row ends, columns and values of each part; only the labels are kept.
/// Returns the targets and the number of features.
pub(crate) fn each_part(
    source: &ByteSource,
    options: &ReadOptions,
    mut take: impl FnMut(&[usize], &[u32], &[f64]) -> Result<()> + Send,
) -> Result<(Targets, usize)> {
    let limits = Limits {
        unlabelled: options.no_target,
        features: options.schema.map_or(u64::from(u32::MAX), |s| s.features as u64),
        schema: options.schema.is_some(),
    };
    let mut all = LibsvmRows::<f64>::default();
    let mut dims = 0;
    parse_blocks(
        source,
        |block, _| parse_block::<f64>(block, &limits),
        |mut part, before| {
            if let Some(fault) = part.zero.take() {
                return Err(fault.after(before).within(source.name(), 0));
            }
            let (columns, values) = (std::mem::take(&mut part.columns), std::mem::take(&mut part.values));
            dims = columns.iter().fold(dims, |d, c| d.max(*c as usize + 1));
            take(&part.ends, &columns, &values)?;
            all.append(part, before).map_err(|fault| fault.within(source.name(), 0))
        },
    )?;
    let targets = match all.labels {
        _ if options.no_target => Targets::None,
        Labels::Real(values) => Targets::Real(values),
        Labels::Text(values) => Targets::Text(values),
    };
    Ok((targets, options.schema.map_or(dims, |s| s.features)))
}

fn data_error(source: &ByteSource) -> impl Fn(margrave_core::Error) -> ReadError + '_ {
    |e| ReadError::Data { file: source.name().to_owned(), source: e }
}

/// Restrictions on the rows.
struct Limits {
    /// Whether labels may be missing.
    unlabelled: bool,
    /// Largest index.
    features: u64,
    /// Whether the limit comes from a model.
    schema: bool,
}

impl<T> Default for LibsvmRows<T> {
    fn default() -> Self {
        Self {
            lines: 0,
            labels: Labels::Real(Vec::new()),
            ends: Vec::new(),
            columns: Vec::new(),
            values: Vec::new(),
            serials: Vec::new(),
            zero: None,
            plain: None,
            first_label: None,
        }
    }
}

impl<T: Number> LibsvmRows<T> {
    /// Appends `part`, which starts after `before` lines. Row ends are handled by the caller.
    fn append(&mut self, part: LibsvmRows<T>, before: u64) -> Result<(), Fault> {
        self.columns.extend_from_slice(&part.columns);
        self.values.extend_from_slice(&part.values);
        self.serials.extend_from_slice(&part.serials);
        self.plain = self.plain.or(part.plain.map(|line| line + before));
        if self.zero.is_none() {
            self.zero = part.zero.map(|fault| fault.after(before));
        }
        match (&mut self.labels, part.labels) {
            (Labels::Real(all), Labels::Real(more)) => all.extend_from_slice(&more),
            (Labels::Text(all), Labels::Text(more)) => all.extend(more),
            (Labels::Real(_), Labels::Text(more)) if self.first_label.is_none() => self.labels = Labels::Text(more),
            (_, _) if part.first_label.is_none() => {}
            (_, more) => {
                let line = part.first_label.unwrap_or(1) + before;
                let text = match more {
                    Labels::Real(values) => values.first().map(f64::to_string),
                    Labels::Text(texts) => texts.into_iter().next(),
                };
                return Err(mixed_labels(line, text.unwrap_or_default().as_bytes()));
            }
        }
        self.first_label = self.first_label.or(part.first_label.map(|line| line + before));
        Ok(())
    }
}

fn mixed_labels(line: u64, label: &[u8]) -> Fault {
    Fault::new(
        Place::Line(line),
        "numbers and texts are mixed among the labels",
        "write all labels as numbers, or all as texts",
    )
    .found(label)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// The word at position `at` of `line`, up to the next blank.
fn word(line: &[u8], at: usize) -> &[u8] {
    let rest = &line[at..];
    &rest[..rest.iter().position(|b| is_blank(*b)).unwrap_or(rest.len())]
}

fn parse_block<T: Number>(block: &[u8], limits: &Limits) -> Result<LibsvmRows<T>, Fault> {
    let mut rows = LibsvmRows::<T>::default();
    // Capacities for short rows, the common case; both grow if needed.
    rows.columns.reserve(block.len() / 8);
    rows.values.reserve(block.len() / 8);
    let mut at = 0;
    while at < block.len() {
        let end = memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |k| at + k);
        rows.lines += 1;
        parse_line(&block[at..end], &mut rows, limits)?;
        at = end + 1;
    }
    Ok(rows)
}

fn parse_line<T: Number>(line: &[u8], rows: &mut LibsvmRows<T>, limits: &Limits) -> Result<(), Fault> {
    let number = rows.lines;
    let mut at = skip_blanks(line, 0);
    if at == line.len() || line[at] == b'#' {
        return Ok(());
    }
    at = parse_label(line, at, rows, limits)?;
    let mut last = 0u64;
    let mut first = true;
    loop {
        at = skip_blanks(line, at);
        if at == line.len() || line[at] == b'#' {
            break;
        }
        let start = at;
        let mut index = 0u64;
        while let Some(digit) = line.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            // 19 digits cannot overflow; longer numbers are rejected below.
            index = index.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        if at == start || at - start > 18 || line.get(at) != Some(&b':') {
            if line[start..].starts_with(b"qid:") && first && number::whole::<f64>(&word(line, start)[4..]).is_some() {
                at = start + word(line, start).len();
                continue;
            }
            return Err(bad_entry(line, start, number));
        }
        at += 1;
        let Some((value, len)) = number::prefix::<T>(&line[at..]) else {
            return Err(bad_value(line, start, number));
        };
        at += len;
        if line.get(at).is_some_and(|b| !is_blank(*b) && *b != b'#') {
            return Err(bad_value(line, start, number));
        }
        if !value.to_f64().is_finite() {
            return Err(not_finite::<T>(line, start, number));
        }
        if index <= last || index > limits.features {
            if index == 0 && first {
                note_serial(line, start, value.to_f64(), rows);
                first = false;
                continue;
            }
            return Err(bad_index(line, start, number, index, last, limits));
        }
        last = index;
        first = false;
        rows.columns.push((index - 1) as u32);
        rows.values.push(value);
    }
    rows.ends.push(rows.values.len());
    if rows.serials.len() < rows.ends.len() && rows.plain.is_none() {
        rows.plain = Some(number);
    }
    Ok(())
}

fn skip_blanks(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(|b| is_blank(*b)) {
        at += 1;
    }
    at
}

/// Parses the label at `at` and returns its end.
fn parse_label<T: Number>(line: &[u8], at: usize, rows: &mut LibsvmRows<T>, limits: &Limits) -> Result<usize, Fault> {
    let number = rows.lines;
    if limits.unlabelled {
        let first = word(line, at);
        return Ok(if first.contains(&b':') { at } else { at + first.len() });
    }
    if let Some((value, len)) = number::prefix::<f64>(&line[at..])
        && line.get(at + len).is_none_or(|b| is_blank(*b) || *b == b'#')
    {
        if !value.is_finite() {
            let place = Place::Text { line: number, column: at as u64 + 1 };
            return Err(Fault::new(place, "the label is not a finite number", "remove the line, or correct the label")
                .found(word(line, at)));
        }
        match &mut rows.labels {
            Labels::Real(values) => values.push(value),
            Labels::Text(_) => return Err(mixed_labels(number, word(line, at))),
        }
        rows.first_label.get_or_insert(number);
        return Ok(at + len);
    }
    let label = word(line, at);
    let place = Place::Text { line: number, column: at as u64 + 1 };
    if label.contains(&b':') {
        return Err(
            Fault::new(place, "the line has no label", "begin every line with the label of its sample").found(label)
        );
    }
    let Ok(text) = std::str::from_utf8(label) else {
        return Err(Fault::new(place, "the label is not text in UTF-8", "check that this is a text file").found(label));
    };
    if text.chars().any(char::is_control) {
        return Err(
            Fault::new(place, "the label has control characters", "check that this is a text file").found(label)
        );
    }
    match &mut rows.labels {
        Labels::Text(texts) => texts.push(text.to_owned()),
        Labels::Real(_) if rows.first_label.is_none() => rows.labels = Labels::Text(vec![text.to_owned()]),
        Labels::Real(_) => return Err(mixed_labels(number, label)),
    }
    rows.first_label.get_or_insert(number);
    Ok(at + label.len())
}

/// Stores `0:serial`; a value that is not a serial marks the row as an ordinary one, so that index 0 is rejected in the
/// end.
#[cold]
fn note_serial<T: Number>(line: &[u8], at: usize, value: f64, rows: &mut LibsvmRows<T>) {
    let serial = value >= 1.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0;
    if rows.zero.is_none() {
        rows.zero = Some(
            Fault::new(
                Place::Text { line: rows.lines, column: at as u64 + 1 },
                "index 0 is only for precomputed kernels, where every row begins with `0:serial`",
                "count features from 1 (scikit-learn's dump_svmlight_file does with zero_based=False)",
            )
            .found(word(line, at)),
        );
    }
    if serial {
        rows.serials.push(value as u32);
    } else {
        rows.plain.get_or_insert(rows.lines);
    }
}

#[cold]
fn bad_entry(line: &[u8], at: usize, number: u64) -> Fault {
    let place = Place::Text { line: number, column: at as u64 + 1 };
    Fault::new(place, "this is not `index:value` with a whole number as index", "correct the entry")
        .found(word(line, at))
}

#[cold]
fn bad_value(line: &[u8], at: usize, number: u64) -> Fault {
    let place = Place::Text { line: number, column: at as u64 + 1 };
    Fault::new(place, "the value after `:` is not a number", "correct the entry").found(word(line, at))
}

#[cold]
fn not_finite<T: Number>(line: &[u8], at: usize, number: u64) -> Fault {
    let place = Place::Text { line: number, column: at as u64 + 1 };
    let problem = format!("the value is not a finite number in {} precision", T::PRECISION);
    Fault::new(place, problem, "remove or replace it").found(word(line, at))
}

#[cold]
fn bad_index(line: &[u8], at: usize, number: u64, index: u64, last: u64, limits: &Limits) -> Fault {
    let place = Place::Text { line: number, column: at as u64 + 1 };
    let (problem, remedy) = if index == 0 {
        ("index 0 may only come first, in a precomputed kernel".to_owned(), "count features from 1")
    } else if index == last {
        (format!("index {index} is given twice"), "give every feature of a line once")
    } else if index < last {
        (format!("index {index} follows index {last}"), "sort the entries of every line by index")
    } else if limits.schema {
        let problem = format!("index {index} is beyond the {} features that the model was trained on", limits.features);
        (problem, "use the features of the training data")
    } else {
        (format!("index {index} is too large"), "use indices up to 4294967295")
    };
    Fault::new(place, problem, remedy).found(word(line, at))
}

/// Fails unless every row of a precomputed kernel has all its values.
fn check_precomputed(source: &ByteSource, starts: &[usize], width: usize) -> Result<()> {
    match starts.windows(2).position(|w| w[1] - w[0] != width) {
        Some(row) => Err(malformed(
            source.name(),
            format!(
                "rows begin with `0:serial` as in a precomputed kernel, but row {} has {} of {width} values",
                row + 1,
                starts[row + 1] - starts[row]
            ),
            "write every value of the kernel matrix, or count features from 1",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadOptions, read_bytes};

    fn parse(text: &str) -> Result<Loaded> {
        read_bytes(text.as_bytes(), "t.svm", &ReadOptions::default())
    }

    #[test]
    fn a_typical_file() {
        let l = parse("+1 1:0.5 3:-2e-1 # note\r\n-1\t2:1\n\n# all comment\n-1 qid:7 7:3#c").unwrap();
        assert_eq!((l.data.len(), l.data.points.dims()), (3, 7));
        assert_eq!(l.data.targets, Targets::Real(vec![1.0, -1.0, -1.0]));
        assert!(l.data.points.is_sparse() && l.schema.sparse);
        let mut row = [0.0; 7];
        l.data.points.copy_row(0, &mut row);
        assert_eq!(row, [0.5, 0.0, -0.2, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn dense_rows_are_stored_dense() {
        let l = parse("1 1:1 2:2\n2 1:3\n").unwrap();
        assert!(!l.data.points.is_sparse());
        assert_eq!((l.data.points.dims(), l.schema.sparse), (2, false));
    }

    #[test]
    fn text_labels_and_no_labels() {
        let l = parse("cat 1:1\ndog 1:2\n").unwrap();
        assert_eq!(l.data.targets, Targets::Text(vec!["cat".into(), "dog".into()]));
        let options = ReadOptions { no_target: true, ..ReadOptions::default() };
        let l = read_bytes(b"1:1 2:5\n3 1:2\n", "t.svm", &options).unwrap();
        assert_eq!((l.data.targets, l.data.points.len()), (Targets::None, 2));
        assert!(parse("cat 1:1\n3 1:2\n").unwrap_err().to_string().contains("line 2"));
        assert!(parse("3 1:1\ncat 1:2\n").unwrap_err().to_string().contains("`cat`"));
    }

    #[test]
    fn precomputed_kernels() {
        let l = parse("1 0:2 1:4 2:1\n-1 0:1 1:1 2:3\n").unwrap();
        assert_eq!(l.serials, Some(vec![2, 1]));
        assert_eq!(l.data.points.dims(), 2);
        assert!(parse("1 0:1 1:4 2:1\n-1 1:1 2:3\n").is_err());
        assert!(parse("1 0:0.5 1:4 2:1\n").is_err());
        assert!(parse("1 0:1 1:4 2:1\n1 0:2 1:4\n").unwrap_err().to_string().contains("1 of 2"));
    }

    #[test]
    fn a_model_fixes_the_number_of_features() {
        let schema = Schema::plain(5, true);
        let options = ReadOptions { schema: Some(&schema), ..ReadOptions::default() };
        let l = read_bytes(b"1 1:1 2:1\n", "t.svm", &options).unwrap();
        assert_eq!((l.data.points.dims(), l.data.points.is_sparse()), (5, true));
        let e = read_bytes(b"1 1:1\n1 2:1 6:2\n", "t.svm", &options).unwrap_err().to_string();
        assert!(e.contains("line 2, byte 7") && e.contains("`6:2`") && e.contains("5 features"), "{e}");
    }

    #[test]
    fn a_huge_index_costs_nothing() {
        let l = parse("1 1000000000:2\n").unwrap();
        assert_eq!((l.data.points.dims(), l.data.points.stored()), (1_000_000_000, 1));
    }

    #[test]
    fn the_result_does_not_depend_on_threads() {
        let text: String = (0..200_000).map(|i| format!("{} {}:{}\n", i % 3, i % 90 + 1, i)).collect();
        let read = |threads| {
            let options = ReadOptions { threads, ..ReadOptions::default() };
            let l = read_bytes(text.as_bytes(), "t.svm", &options).unwrap();
            match l.data.points.storage() {
                margrave_core::data::Storage::SparseF64(m) => {
                    (m.starts().to_vec(), m.columns().to_vec(), m.values().to_vec(), l.data.targets)
                }
                _ => unreachable!("one value in 90"),
            }
        };
        let one = read(1);
        assert_eq!(one.0.len(), 200_001);
        assert_eq!(one.2[199_999], 199_999.0);
        assert_eq!(one, read(2));
        assert_eq!(one, read(3));
        let late = format!("{text}1 2:x\n");
        let e = read_bytes(late.as_bytes(), "t.svm", &ReadOptions::default()).unwrap_err().to_string();
        assert!(e.contains("line 200001, byte 3") && e.contains("`2:x`"), "{e}");
    }
}
