//! Parquet: columns of numbers, booleans and texts, read batch by batch.
//!
//! Columns are decoded directly from the file, without Arrow: its conversions between all of its types were a third of
//! the program's size and compilation time.

use margrave_core::conflict::OptionName;
use std::panic::AssertUnwindSafe;

use ::parquet::basic::{Compression, ConvertedType, LogicalType, Type as Physical};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::DataType;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::ParquetMetaData;
use ::parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use ::parquet::schema::types::Type;
use margrave_core::data::{Csr, Dense, Points};

use crate::Loaded;
use crate::error::{Fault, Place, Result, malformed};
use crate::number::Number;
use crate::options::{Format, ReadOptions};
use crate::source::ByteSource;
use crate::spill::Spill;
use crate::table::{self, Action, CellKind, TablePlan, TableRows, Unfit};

/// Rows decoded at a time.
const BATCH: usize = 8192;

/// Reads a Parquet file.
pub(crate) fn load<T: Number>(source: &ByteSource, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    load_into::<T>(source, options, None)
}

/// The same with features in a temporary file.
pub(crate) fn spill(source: &ByteSource, options: &ReadOptions, spill: &Spill) -> Result<Loaded> {
    load_into::<f64>(source, options, Some(spill))
}

fn load_into<T: Number>(source: &ByteSource, options: &ReadOptions, spill: Option<&Spill>) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    if !source.head().starts_with(b"PAR1") {
        return Err(malformed(
            source.name(),
            "a Parquet file begins with `PAR1`, but this one does not",
            format!("check the file, or name its format with {}", OptionName::Format),
        ));
    }
    // The decoder does not validate everything that a damaged file may contain.
    let work = AssertUnwindSafe(|| match source.file()? {
        Some(file) => read::<T, _>(source, file, options, spill),
        None => read::<T, _>(source, bytes::Bytes::from(source.bytes()?), options, spill),
    });
    crate::guard::caught(work).unwrap_or_else(|_| Err(damaged(source, &"its parts contradict each other")))
}

fn damaged(source: &ByteSource, error: &dyn std::fmt::Display) -> crate::ReadError {
    malformed(source.name(), format!("the Parquet file is damaged ({error})"), "copy it or save it again")
}

fn read<T: Number, R: ChunkReader + 'static>(
    source: &ByteSource,
    input: R,
    options: &ReadOptions,
    spill: Option<&Spill>,
) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let length = input.len();
    let reader = SerializedFileReader::new(input).map_err(|e| damaged(source, &e))?;
    check_ranges(source, reader.metadata(), length)?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let names = fields.iter().map(|f| f.name().to_owned()).collect::<Vec<_>>();
    fields.iter().enumerate().try_for_each(|(at, f)| check_flat(source, at, f))?;
    let codes: Vec<Result<Code>> = fields.iter().enumerate().map(|(at, f)| code(source, at, f)).collect();
    let kind = |code: &Result<Code>| if matches!(code, Ok(Code::Text)) { CellKind::Text } else { CellKind::Number };
    let mut plan = TablePlan::new(source.name(), Some(names), codes.iter().map(kind).collect(), options)?;
    if let Some(spill) = spill {
        plan.spill_to(spill)?;
    }
    // Columns that are left out may be of any type.
    let used = |(code, action): (Result<Code>, &Action)| if *action == Action::Skip { Ok(Code::Number) } else { code };
    let codes = codes.into_iter().zip(&plan.actions).map(used).collect::<Result<Vec<_>>>()?;
    let mut rows = TableRows::new(&plan);
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(|e| damaged(source, &e))?;
        read_group::<T>(source, group.as_ref(), &codes, &plan, &mut rows)?;
    }
    table::finish(&plan, rows, Format::Parquet, false)
}

/// Every column chunk must lie within the file: the decoder allocates a chunk before it reads it.
fn check_ranges(source: &ByteSource, metadata: &ParquetMetaData, length: u64) -> Result<()> {
    for chunk in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        let within = match (u64::try_from(start), u64::try_from(chunk.compressed_size())) {
            (Ok(start), Ok(size)) => start.checked_add(size).is_some_and(|end| end <= length),
            _ => false,
        };
        if !within || chunk.num_values() < 0 {
            return Err(damaged(source, &"a column lies outside the file"));
        }
        use Compression::{GZIP, SNAPPY, UNCOMPRESSED, ZSTD};
        if !matches!(chunk.compression(), UNCOMPRESSED | SNAPPY | GZIP(_) | ZSTD(_)) {
            return Err(malformed(
                source.name(),
                format!("its columns are compressed with {}, which is not supported", chunk.compression()),
                "save it with snappy, gzip or zstd",
            ));
        }
    }
    Ok(())
}

/// How the values of a column are decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Code {
    /// As the stored number.
    Number,
    /// As an unsigned integer.
    Unsigned,
    /// As an integer to be divided by a power of ten.
    Decimal(i32),
    /// As two bytes of a floating-point number.
    Half,
    Text,
}

fn refused(source: &ByteSource, column: usize, field: &Type, what: &str, remedy: String) -> crate::ReadError {
    let place = Place::Entry { row: 0, column: Some(column), name: Some(field.name().to_owned()) };
    Fault::new(place, format!("the column holds {what}"), remedy).within(source.name(), 0)
}

/// Rejects columns with several values per row: the other columns cannot be counted then.
fn check_flat(source: &ByteSource, column: usize, field: &Type) -> Result<()> {
    let info = field.get_basic_info();
    if !field.is_primitive() || (info.has_repetition() && info.repetition() == ::parquet::basic::Repetition::REPEATED) {
        let remedy = "give every value a column of its own".to_owned();
        return Err(refused(source, column, field, "nested values", remedy));
    }
    Ok(())
}

/// How a column is decoded; rejects types that cannot be features.
fn code(source: &ByteSource, column: usize, field: &Type) -> Result<Code> {
    let refuse = |what: &str, remedy: &str| {
        let remedy = format!("{remedy}, or leave it out with {} {}", OptionName::Drop, field.name());
        Err(refused(source, column, field, what, remedy))
    };
    let info = field.get_basic_info();
    let (logical, converted) = (info.logical_type_ref(), info.converted_type());
    let other = || refuse("values that are neither numbers nor texts", "convert it");
    use ConvertedType::*;
    let times = [DATE, TIME_MILLIS, TIME_MICROS, TIMESTAMP_MILLIS, TIMESTAMP_MICROS, INTERVAL];
    let timed = matches!(logical, Some(LogicalType::Date | LogicalType::Time(_) | LogicalType::Timestamp(_)));
    let physical = field.get_physical_type();
    if physical == Physical::INT32 && (logical == Some(&LogicalType::Date) || converted == DATE) {
        // Stored as days since 1970-01-01, which is how texts with dates are read too.
        return Ok(Code::Number);
    }
    if timed || times.contains(&converted) || physical == Physical::INT96 {
        return refuse("times", "convert it to numbers");
    }
    let scale = match logical {
        Some(LogicalType::Decimal(decimal)) => Some(decimal.scale),
        _ if converted == DECIMAL => Some(field.get_scale()),
        _ => None,
    };
    let unsigned = matches!(logical, Some(LogicalType::Integer(int)) if !int.is_signed)
        || [UINT_8, UINT_16, UINT_32, UINT_64].contains(&converted);
    let text = matches!(logical, Some(LogicalType::String | LogicalType::Enum | LogicalType::Json))
        || [UTF8, ENUM, JSON].contains(&converted);
    match (physical, scale) {
        (Physical::BYTE_ARRAY, None) if text => Ok(Code::Text),
        (Physical::BYTE_ARRAY, None) => other(),
        (Physical::FIXED_LEN_BYTE_ARRAY, None) if logical == Some(&LogicalType::Float16) => Ok(Code::Half),
        (Physical::FIXED_LEN_BYTE_ARRAY, None) => other(),
        (_, Some(scale)) => Ok(Code::Decimal(scale)),
        (Physical::INT32 | Physical::INT64, None) if unsigned => Ok(Code::Unsigned),
        _ => Ok(Code::Number),
    }
}

/// Decoded values of one column.
enum Cells {
    Numbers(Vec<f64>),
    Texts(Vec<String>),
    Skipped,
}

/// A column of the current row group.
struct GroupColumn {
    reader: ColumnReader,
    code: Code,
    /// The definition level of a present value; 0 if no value can be missing.
    present: i16,
}

fn read_group<T: Number>(
    source: &ByteSource,
    group: &dyn RowGroupReader,
    codes: &[Code],
    plan: &TablePlan,
    rows: &mut TableRows<T>,
) -> Result<()> {
    let damaged = |e: &dyn std::fmt::Display| damaged(source, e);
    if group.num_columns() != codes.len() || plan.actions.len() != codes.len() {
        return Err(damaged(&"a group of rows has another number of columns"));
    }
    let mut columns = Vec::with_capacity(codes.len());
    for (at, code) in codes.iter().enumerate() {
        let wanted = plan.actions[at] != Action::Skip;
        columns.push(match wanted {
            true => {
                let reader = group.get_column_reader(at).map_err(|e| damaged(&e))?;
                let present = group.metadata().column(at).column_descr().max_def_level();
                Some(GroupColumn { reader, code: *code, present })
            }
            false => None,
        });
    }
    let mut left = usize::try_from(group.metadata().num_rows()).map_err(|e| damaged(&e))?;
    while left > 0 {
        let (count, first) = (left.min(BATCH), rows.count as u64);
        let mut cells = Vec::with_capacity(columns.len());
        for (at, column) in columns.iter_mut().enumerate() {
            let texts = matches!(plan.actions[at], Action::Text(_) | Action::TargetText);
            let read = match column {
                None => Ok(Cells::Skipped),
                Some(column) => column.read(count, texts),
            };
            cells.push(read.map_err(|e| damaged(&e))?);
        }
        for row in 0..count {
            push_row(rows, plan, &cells, row).map_err(|(column, unfit)| {
                let (problem, remedy) = match unfit {
                    Unfit::Wrong { problem, remedy } => (problem, remedy),
                    Unfit::Text => ("this is text where the model has numbers".to_owned(), "correct it".to_owned()),
                };
                Fault::new(place(plan, first + row as u64, column), problem, remedy).within(source.name(), 0)
            })?;
        }
        rows.spill(plan)?;
        left -= count;
    }
    Ok(())
}

fn place(plan: &TablePlan, row: u64, column: usize) -> Place {
    Place::Entry { row, column: Some(column), name: plan.name(column) }
}

impl GroupColumn {
    /// The next `count` values.
    fn read(&mut self, count: usize, texts: bool) -> std::result::Result<Cells, ParquetError> {
        let (code, present) = (self.code, self.present);
        let scale = |scale: i32| 10f64.powi(-scale);
        let numbers = match &mut self.reader {
            ColumnReader::BoolColumnReader(r) => values(r, count, present, f64::NAN, |v| f64::from(u8::from(*v)))?,
            ColumnReader::Int32ColumnReader(r) => values(r, count, present, f64::NAN, |v| match code {
                Code::Unsigned => f64::from(*v as u32),
                Code::Decimal(s) => f64::from(*v) * scale(s),
                _ => f64::from(*v),
            })?,
            ColumnReader::Int64ColumnReader(r) => values(r, count, present, f64::NAN, |v| match code {
                Code::Unsigned => *v as u64 as f64,
                Code::Decimal(s) => *v as f64 * scale(s),
                _ => *v as f64,
            })?,
            ColumnReader::FloatColumnReader(r) => values(r, count, present, f64::NAN, |v| f64::from(*v))?,
            ColumnReader::DoubleColumnReader(r) => values(r, count, present, f64::NAN, |v| *v)?,
            ColumnReader::ByteArrayColumnReader(r) if code == Code::Text => {
                let text = values(r, count, present, Ok(String::new()), |v| String::from_utf8(v.data().to_vec()))?;
                let text: std::result::Result<Vec<String>, _> = text.into_iter().collect();
                return text.map(Cells::Texts).map_err(|e| ParquetError::General(e.to_string()));
            }
            ColumnReader::ByteArrayColumnReader(r) => {
                values(r, count, present, f64::NAN, |v| bytes_of(code, v.data()))?
            }
            ColumnReader::FixedLenByteArrayColumnReader(r) => {
                values(r, count, present, f64::NAN, |v| bytes_of(code, v.data()))?
            }
            ColumnReader::Int96ColumnReader(_) => return Err(ParquetError::General("INT96".into())),
        };
        // Numbers become labels if the model expects text.
        let text = |v: &f64| if v.is_nan() { String::new() } else { v.to_string() };
        Ok(if texts { Cells::Texts(numbers.iter().map(text).collect()) } else { Cells::Numbers(numbers) })
    }
}

/// The next `count` values, converted; `null` where there is none.
fn values<D: DataType, V: Clone>(
    reader: &mut ColumnReaderImpl<D>,
    count: usize,
    present: i16,
    null: V,
    convert: impl Fn(&D::T) -> V,
) -> std::result::Result<Vec<V>, ParquetError> {
    let (mut levels, mut found) = (Vec::new(), Vec::with_capacity(count));
    let mut records = 0;
    while records < count {
        let (read, ..) = reader.read_records(count - records, Some(&mut levels), None, &mut found)?;
        if read == 0 {
            return Err(ParquetError::EOF("a column ends before its rows do".into()));
        }
        records += read;
    }
    let short = || ParquetError::General("a column has another number of values".into());
    if present == 0 || levels.is_empty() {
        return if found.len() == count { Ok(found.iter().map(convert).collect()) } else { Err(short()) };
    }
    let mut next = found.iter();
    let mut all = Vec::with_capacity(count);
    for level in &levels {
        all.push(if *level < present { null.clone() } else { convert(next.next().ok_or_else(short)?) });
    }
    if all.len() == count && next.next().is_none() { Ok(all) } else { Err(short()) }
}

/// Decodes bytes as a number: two's complement, most significant byte first, or half precision.
fn bytes_of(code: Code, bytes: &[u8]) -> f64 {
    match (code, bytes) {
        (Code::Half, &[low, high]) => half(u16::from_le_bytes([low, high])),
        (Code::Decimal(scale), [first, rest @ ..]) => {
            let start = f64::from(*first as i8);
            rest.iter().fold(start, |sum, byte| 256.0 * sum + f64::from(*byte)) * 10f64.powi(-scale)
        }
        (Code::Decimal(_), []) => 0.0,
        _ => f64::NAN,
    }
}

/// Decodes a half-precision number.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

fn push_row<T: Number>(
    rows: &mut TableRows<T>,
    plan: &TablePlan,
    cells: &[Cells],
    row: usize,
) -> Result<(), (usize, Unfit)> {
    let line = rows.count as u64 + 1;
    for (column, (action, cell)) in plan.actions.iter().zip(cells).enumerate() {
        match cell {
            Cells::Numbers(values) => {
                rows.push_value(*action, values[row]).map_err(|unfit| (column, unfit))?;
            }
            Cells::Texts(texts) => {
                rows.push(*action, texts[row].as_bytes(), line).map_err(|unfit| (column, unfit))?;
            }
            Cells::Skipped => {}
        }
    }
    rows.count += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_and_decimals_are_decoded() {
        for (bits, value) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x3555, 0.333_251_953_125), (1, 2f64.powi(-24)), (0x7bff, 65504.0)]
        {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
        assert_eq!(bytes_of(Code::Decimal(2), &[0x04, 0xd2]), 12.34);
        assert_eq!(bytes_of(Code::Decimal(0), &[0xff, 0xfe]), -2.0);
    }
}
