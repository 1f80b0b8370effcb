//! The features of all rows of a table.

use margrave_core::data::{Csr, Dense, Points};

use super::learn::Column;
use super::{NO_TEXT, TablePlan, TableRows};
use crate::number::Number;

/// Features are stored dense if that takes at most this many values per cell of the table.
const DENSE_EXPANSION: usize = 8;

/// Encodes all rows; takes the numbers out of `rows` where they already are the features.
pub(super) fn points<T: Number>(
    plan: &TablePlan,
    rows: &mut TableRows<T>,
    columns: &[Column],
) -> margrave_core::Result<Points>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let (n, d) = (rows.count, columns.iter().map(|c| c.feature.width()).sum::<usize>());
    let plain = columns.iter().all(|c| c.texts.is_none() && c.feature.width() == 1);
    if plain && plan.order.is_sorted() {
        fill_numbers(rows, columns);
        return Ok(Dense::new(n, d, std::mem::take(&mut rows.numbers))?.into());
    }
    // With a schema, as the training data was stored.
    let dense = plan.schema.map_or(d <= DENSE_EXPANSION * columns.len(), |schema| !schema.sparse);
    let mut from = 0;
    let offsets: Vec<usize> = columns
        .iter()
        .map(|column| {
            from += column.feature.width();
            from - column.feature.width()
        })
        .collect();
    if dense {
        let mut values = vec![T::default(); n * d];
        for row in 0..n {
            for (column, offset) in columns.iter().zip(&offsets) {
                each(rows, column, row, |feature, value| values[row * d + offset + feature] = value);
            }
        }
        return Ok(Dense::new(n, d, values)?.into());
    }
    let (mut starts, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        for (column, offset) in columns.iter().zip(&offsets) {
            each(rows, column, row, |feature, value| {
                if value != T::default() {
                    indices.push((offset + feature) as u32);
                    values.push(value);
                }
            });
        }
        starts.push(values.len());
    }
    Ok(Csr::new(d, starts, indices, values)?.into())
}

/// Puts the values for missing cells into a table of numbers.
fn fill_numbers<T: Number>(rows: &mut TableRows<T>, columns: &[Column]) {
    if columns.iter().all(|c| c.feature.fill.is_none()) {
        return;
    }
    let fills: Vec<T> =
        columns.iter().map(|c| T::from_f64(c.feature.fill.as_ref().map_or(f64::NAN, |fill| fill.values[0]))).collect();
    for row in rows.numbers.chunks_exact_mut(columns.len()) {
        for (value, fill) in row.iter_mut().zip(&fills) {
            if value.to_f64().is_nan() {
                *value = *fill;
            }
        }
    }
}

/// Calls `put(feature of the column, value)` for the cell of a column in a row, features ascending.
fn each<T: Number>(rows: &TableRows<T>, column: &Column, row: usize, mut put: impl FnMut(usize, T)) {
    let missing = match &column.texts {
        None => {
            let across = rows.numbers.len() / rows.count;
            let value = rows.numbers[row * across + column.place];
            if !value.to_f64().is_nan() || column.feature.fill.is_none() {
                put(0, value);
                return;
            }
            true
        }
        Some((slot, texts)) => match rows.codes[row * rows.dictionaries.len() + slot] {
            NO_TEXT => true,
            code => match &texts[code as usize] {
                Some(values) => {
                    values.iter().for_each(|(feature, value)| put(*feature, T::from_f64(*value)));
                    return;
                }
                None => true,
            },
        },
    };
    if let (true, Some(fill)) = (missing, &column.feature.fill) {
        fill.values.iter().enumerate().for_each(|(feature, value)| put(feature, T::from_f64(*value)));
        if fill.indicator {
            put(fill.values.len(), T::from_f64(1.0));
        }
    }
}
