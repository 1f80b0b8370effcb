//! Parquet: columns of numbers, booleans and texts, read batch by batch.

use std::panic::AssertUnwindSafe;

use ::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use ::parquet::file::metadata::ParquetMetaData;
use ::parquet::file::reader::ChunkReader;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use margrave_core::data::{Csr, Dense, Points};

use crate::Loaded;
use crate::error::{Fault, Place, Result, malformed};
use crate::number::Number;
use crate::options::{Format, ReadOptions};
use crate::source::Source;
use crate::table::{self, Action, Kind, Plan, Rows, Unfit};

/// Rows unpacked at a time.
const BATCH: usize = 8192;

/// Reads a Parquet file.
pub(crate) fn load<T: Number>(source: &Source, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    if !source.head().starts_with(b"PAR1") {
        return Err(malformed(
            source.name(),
            "a Parquet file begins with `PAR1`, and this one does not",
            "check the file, or name its format with --format",
        ));
    }
    // The decoder checks much, but not all, of what a damaged file may claim.
    let work = AssertUnwindSafe(|| match source.file()? {
        Some(file) => read::<T, _>(source, file, options),
        None => read::<T, _>(source, bytes::Bytes::from(source.bytes()?), options),
    });
    crate::guard::caught(work).unwrap_or_else(|_| Err(damaged(source, &"its parts contradict each other")))
}

fn damaged(source: &Source, error: &dyn std::fmt::Display) -> crate::ReadError {
    malformed(source.name(), format!("the Parquet file is damaged ({error})"), "copy it or save it again")
}

fn read<T: Number, R: ChunkReader + 'static>(source: &Source, input: R, options: &ReadOptions) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let length = input.len();
    let builder = ParquetRecordBatchReaderBuilder::try_new(input).map_err(|e| damaged(source, &e))?;
    check_ranges(source, builder.metadata(), length)?;
    let fields = builder.schema().fields().clone();
    let names = fields.iter().map(|f| f.name().clone()).collect::<Vec<_>>();
    let kinds = fields.iter().enumerate().map(|(at, f)| kind(source, at, f)).collect::<Result<Vec<_>>>()?;
    let plan = Plan::new(source.name(), Some(names), kinds, options)?;
    let reader = builder.with_batch_size(BATCH).build().map_err(|e| damaged(source, &e))?;
    let rows = read_rows::<T>(source, reader, &plan)?;
    table::finish(&plan, rows, Format::Parquet, false)
}

/// Every column chunk must lie within the file: the decoder makes room for a chunk before it reads it.
fn check_ranges(source: &Source, metadata: &ParquetMetaData, length: u64) -> Result<()> {
    for chunk in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        let within = match (u64::try_from(start), u64::try_from(chunk.compressed_size())) {
            (Ok(start), Ok(size)) => start.checked_add(size).is_some_and(|end| end <= length),
            _ => false,
        };
        if !within || chunk.num_values() < 0 {
            return Err(damaged(source, &"a column lies outside of the file"));
        }
    }
    Ok(())
}

/// What a column holds; refuses what cannot be a feature.
fn kind(source: &Source, column: usize, field: &Field) -> Result<Kind> {
    use DataType::*;
    let inner = match field.data_type() {
        Dictionary(_, values) => values.as_ref(),
        plain => plain,
    };
    let refuse = |what: &str, remedy: &str| {
        let place = Place::Entry { row: 0, column: Some(column), name: Some(field.name().clone()) };
        let problem = format!("the column holds {what} ({inner})");
        Err(Fault::new(place, problem, remedy).within(source.name(), 0))
    };
    match inner {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float16 | Float32 | Float64 => {
            Ok(Kind::Number)
        }
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => Ok(Kind::Number),
        Utf8 | LargeUtf8 | Utf8View => Ok(Kind::Text),
        Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_) | Interval(_) => {
            refuse("dates or times", "convert it to numbers, or drop it")
        }
        List(_) | LargeList(_) | ListView(_) | LargeListView(_) | FixedSizeList(..) | Struct(_) | Map(..)
        | Union(..) => refuse("nested values", "give every value a column of its own"),
        _ => refuse("values that are neither numbers nor texts", "convert it, or drop it"),
    }
}

/// One column of a batch, as its action wants it.
enum Cells {
    Numbers(ArrayRef),
    Texts(ArrayRef),
    Skipped,
}

fn read_rows<T: Number>(source: &Source, reader: ParquetRecordBatchReader, plan: &Plan) -> Result<Rows<T>> {
    let mut rows = Rows::new(plan);
    for batch in reader {
        let batch = batch.map_err(|e| damaged(source, &e))?;
        if batch.num_columns() != plan.actions.len() {
            return Err(damaged(source, &"a batch has another number of columns"));
        }
        let first = rows.count as u64;
        let cells = batch_cells(source, &batch, plan, first)?;
        for row in 0..batch.num_rows() {
            push_row(&mut rows, plan, &cells, row).map_err(|(column, unfit)| {
                let (problem, remedy) = match unfit {
                    Unfit::Wrong { problem, remedy } => (problem, remedy),
                    Unfit::Text => ("this is not a number".to_owned(), "correct it"),
                };
                Fault::new(place(plan, first + row as u64, column), problem, remedy).within(source.name(), 0)
            })?;
        }
    }
    Ok(rows)
}

fn place(plan: &Plan, row: u64, column: usize) -> Place {
    Place::Entry { row, column: Some(column), name: plan.name(column) }
}

fn batch_cells(source: &Source, batch: &RecordBatch, plan: &Plan, first: u64) -> Result<Vec<Cells>> {
    let mut cells = Vec::with_capacity(batch.num_columns());
    for (column, (array, action)) in batch.columns().iter().zip(&plan.actions).enumerate() {
        let wanted = match action {
            Action::Skip => {
                cells.push(Cells::Skipped);
                continue;
            }
            Action::Text(_) | Action::TargetText => DataType::Utf8,
            _ => DataType::Float64,
        };
        let fault = |array: &ArrayRef, problem: &str, remedy: &str| {
            let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or_default();
            Fault::new(place(plan, first + row as u64, column), problem, remedy).within(source.name(), 0)
        };
        // Values of a dictionary may be null where its keys are not.
        let plain = cast(array, &wanted).map_err(|e| damaged(source, &e))?;
        if array.null_count() > 0 {
            let remedy = "missing values are not supported; fill them in, or remove the row or the column";
            return Err(fault(array, "a value is missing (null)", remedy));
        }
        if plain.null_count() > 0 {
            return Err(fault(&plain, "a value is missing, or is text where the model has numbers", "correct it"));
        }
        cells.push(if wanted == DataType::Utf8 { Cells::Texts(plain) } else { Cells::Numbers(plain) });
    }
    Ok(cells)
}

fn push_row<T: Number>(rows: &mut Rows<T>, plan: &Plan, cells: &[Cells], row: usize) -> Result<(), (usize, Unfit)> {
    let line = rows.count as u64 + 1;
    for (column, (action, cell)) in plan.actions.iter().zip(cells).enumerate() {
        match cell {
            Cells::Numbers(array) => {
                let value = array.as_primitive::<Float64Type>().value(row);
                rows.push_value(*action, value).map_err(|unfit| (column, unfit))?;
            }
            Cells::Texts(array) => {
                let text = array.as_string::<i32>().value(row);
                rows.push(*action, text.as_bytes(), line).map_err(|unfit| (column, unfit))?;
            }
            Cells::Skipped => {}
        }
    }
    rows.count += 1;
    Ok(())
}
