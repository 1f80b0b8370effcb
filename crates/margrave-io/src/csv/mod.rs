//! Text tables: CSV with or without a header, with any common separator, quoted cells, and text or numeric columns.
//!
//! Lines are parsed block by block on all threads, as long as no quoted cell contains doubled quotes or a line end; a
//! table with such cells is read sequentially. The types of the columns are guessed from the first records. If a later
//! cell contradicts the guess, the file is scanned once more, so that the result does not depend on the number of
//! records used for the guess.
//!
//! A column is numeric if all its cells are numbers. A text column becomes one feature per distinct text.

mod dialect;
mod records;

use margrave_core::conflict::OptionName;
use margrave_core::data::{Csr, Dense, Points};

use crate::Loaded;
use crate::blocks::{ParsedPart, parse_blocks};
use crate::detect::looks_binary;
use crate::error::{Fault, Place, ReadError, Result, malformed};
use crate::number::{self, Number};
use crate::options::{Format, ReadOptions};
use crate::source::ByteSource;
use crate::spill::Spill;
use crate::table::{self, Action, CellKind, TablePlan, TableRows, Unfit, is_missing};

/// Reads a text table.
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

fn load_into<'a, T: Number>(
    source: &'a ByteSource,
    options: &ReadOptions<'a>,
    spill: Option<&'a Spill>,
) -> Result<Loaded>
where
    Points: From<Dense<T>> + From<Csr<T>>,
{
    let mut head = source.head().to_vec();
    if looks_binary(&head) && !head.starts_with(b"\xFF\xFE") && !head.starts_with(b"\xFE\xFF") {
        return Err(malformed(
            source.name(),
            "this is not text",
            format!("name the format with {}", OptionName::Format),
        ));
    }
    crate::blocks::start_of_text(&mut head, source)?;
    let separator = options.separator.unwrap_or_else(|| dialect::separator(&head, source.complete()));
    let mut sample = records::sample(&head, separator, source.complete(), dialect::SAMPLE);
    if sample.is_empty() {
        // The first record is longer than the head, or invalid.
        records::for_each(source, separator, |record| {
            sample.push(record.clone());
            Err(malformed(source.name(), "", ""))
        })
        .or_else(|e| if sample.is_empty() { Err(e) } else { Ok(()) })?;
    }
    let Some(first) = sample.first() else {
        return Err(malformed(source.name(), "there are no samples", "give at least one row of data"));
    };
    let header = dialect::has_header(&sample, options);
    let names = header.then(|| {
        let name = |cell: &[u8]| String::from_utf8_lossy(cell).into_owned();
        first.cells().map(name).collect::<Vec<_>>()
    });
    let kinds = guess_kinds(first.len(), &sample[usize::from(header)..]);
    let mut plan = TablePlan::new(source.name(), names, kinds, options)?;
    let mut quoted = header && first.cells().any(|cell| cell.contains(&b'\n'));
    let mut counted = false;
    loop {
        if let Some(spill) = spill {
            plan.spill_to(spill)?;
        }
        let mut trouble = None;
        let outcome = if quoted {
            read_records::<T>(source, separator, header, &plan, &mut trouble)
        } else {
            read_blocks::<T>(source, separator, header, &plan, &mut trouble)
        };
        match (trouble, outcome) {
            (Some(Restart::Quote), _) => quoted = true,
            (Some(Restart::Text(_)), Err(error)) if counted => return Err(error),
            (Some(Restart::Text(_)), _) => {
                plan.set_kinds(&census(source, separator, header, &plan)?);
                counted = true;
            }
            (None, rows) => return table::finish(&plan, rows?, Format::Csv, true),
        }
    }
}

/// Why reading has to start again.
enum Restart {
    /// There are quoted cells that cannot be parsed line by line.
    Quote,
    /// There is text in a numeric column.
    Text(Fault),
}

impl Restart {
    /// The error to report if restarting is not possible, with `lines` lines before.
    fn error(&self, source: &ByteSource, lines: u64) -> ReadError {
        match self {
            Restart::Quote => {
                malformed(source.name(), "a quoted cell spans several lines", "close the quotes on the same line")
            }
            Restart::Text(fault) => fault.clone().within(source.name(), lines),
        }
    }
}

/// A column holds text if one of its cells is neither a number nor missing.
fn guess_kinds(count: usize, sample: &[records::CsvRecord]) -> Vec<CellKind> {
    let text = |cell: &[u8]| !cell.is_empty() && number::whole::<f64>(cell).is_none() && !is_missing(cell);
    let kind = |k: usize| match sample.iter().any(|r| k < r.len() && text(r.cell(k))) {
        true => CellKind::Text,
        false => CellKind::Number,
    };
    (0..count).map(kind).collect()
}

/// The types of all columns, determined from all cells.
fn census(source: &ByteSource, separator: u8, header: bool, plan: &TablePlan) -> Result<Vec<CellKind>> {
    let mut kinds = plan.kinds();
    let mut skip = header;
    records::for_each(source, separator, |record| {
        if std::mem::take(&mut skip) {
            return Ok(());
        }
        for (column, cell) in record.cells().enumerate().take(kinds.len()) {
            if kinds[column] == CellKind::Number
                && plan.may_be_text(column)
                && !cell.is_empty()
                && number::whole::<f64>(cell).is_none()
                && !is_missing(cell)
            {
                kinds[column] = CellKind::Text;
            }
        }
        Ok(())
    })?;
    Ok(kinds)
}

/// Rows of one block.
struct BlockRows<T> {
    lines: u64,
    rows: TableRows<T>,
    trouble: Option<Restart>,
}

impl<T: Send> ParsedPart for BlockRows<T> {
    fn lines(&self) -> u64 {
        self.lines
    }
}

fn read_blocks<T: Number>(
    source: &ByteSource,
    separator: u8,
    header: bool,
    plan: &TablePlan,
    trouble: &mut Option<Restart>,
) -> Result<TableRows<T>> {
    let mut all = TableRows::new(plan);
    parse_blocks(
        source,
        |block, first| parse_block::<T>(block, separator, header && first, plan),
        |part, before| {
            if let Some(found) = part.trouble {
                let error = found.error(source, before);
                *trouble = Some(found);
                return Err(error);
            }
            all.append(part.rows, before);
            all.spill(plan)
        },
    )?;
    Ok(all)
}

fn parse_block<T: Number>(block: &[u8], separator: u8, header: bool, plan: &TablePlan) -> Result<BlockRows<T>, Fault> {
    let mut part = BlockRows { lines: 0, rows: TableRows::new(plan), trouble: None };
    part.rows.reserve(block.len() / 8);
    let mut header = header;
    let mut at = 0;
    while at < block.len() {
        let end = memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |k| at + k);
        let line = records::trim_end(&block[at..end], separator);
        part.lines += 1;
        if !line.is_empty() && !std::mem::take(&mut header) {
            match parse_line(line, separator, plan, part.lines, &mut part.rows) {
                Ok(()) => part.rows.count += 1,
                Err(LineFailure::Fault(fault)) => return Err(fault),
                Err(LineFailure::Text(fault)) => {
                    part.trouble = Some(Restart::Text(fault));
                    return Ok(part);
                }
                Err(LineFailure::Quote) => {
                    part.trouble = Some(Restart::Quote);
                    return Ok(part);
                }
            }
        }
        at = end + 1;
    }
    Ok(part)
}

/// Why a line could not be parsed.
enum LineFailure {
    Fault(Fault),
    /// A numeric column may be a text column.
    Text(Fault),
    /// A quoted cell may continue on the next line.
    Quote,
}

/// Parses a line that does not start inside quotes.
fn parse_line<T: Number>(
    line: &[u8],
    separator: u8,
    plan: &TablePlan,
    number: u64,
    rows: &mut TableRows<T>,
) -> Result<(), LineFailure> {
    let blanks = separator == b' ';
    let pad = |at: usize| line.get(at).is_some_and(|b| records::is_pad(*b, separator));
    let skip = |mut at: usize| {
        while pad(at) {
            at += 1;
        }
        at
    };
    let mut at = 0;
    for (column, action) in plan.actions.iter().enumerate() {
        if column > 0 {
            if at >= line.len() {
                return Err(LineFailure::Fault(ragged(line, separator, plan, number)));
            }
            at += usize::from(!blanks);
        }
        at = skip(at);
        if *action == Action::Number
            && let Some((value, len)) = number::prefix::<T>(&line[at..])
        {
            let end = skip(at + len);
            let closed = end == line.len() || if blanks { end > at + len } else { line[end] == separator };
            if closed && value.to_f64().is_finite() {
                rows.push_number(value);
                at = end;
                continue;
            }
        }
        if line.get(at) == Some(&b'"') {
            let start = at + 1;
            let close = start + memchr::memchr(b'"', &line[start..]).ok_or(LineFailure::Quote)?;
            let end = skip(close + 1);
            // Doubled quotes, and text after a closing quote, are left to the sequential reader.
            if !(end == line.len() || if blanks { end > close + 1 } else { line[end] == separator }) {
                return Err(LineFailure::Quote);
            }
            let cell = &line[start..close];
            rows.push(*action, cell, number).map_err(|unfit| cell_failure(unfit, plan, number, column, cell))?;
            at = end;
            continue;
        }
        let rest = &line[at..];
        let end = if blanks {
            rest.iter().position(|b| records::is_pad(*b, separator))
        } else {
            memchr::memchr(separator, rest)
        };
        let end = at + end.unwrap_or(rest.len());
        let cell = records::trim_end(&line[at..end], separator);
        rows.push(*action, cell, number).map_err(|unfit| cell_failure(unfit, plan, number, column, cell))?;
        at = skip(end);
    }
    match at < line.len() {
        true => Err(LineFailure::Fault(ragged(line, separator, plan, number))),
        false => Ok(()),
    }
}

#[cold]
fn cell_failure(unfit: Unfit, plan: &TablePlan, line: u64, column: usize, cell: &[u8]) -> LineFailure {
    let place = Place::Cell { line, column, name: plan.name(column) };
    let not_a_number = |place| Fault::new(place, "this is not a number", "correct the cell").found(cell);
    match unfit {
        Unfit::Text if plan.may_be_text(column) => LineFailure::Text(not_a_number(place)),
        Unfit::Text => LineFailure::Fault(not_a_number(place)),
        Unfit::Wrong { problem, remedy } => LineFailure::Fault(Fault::new(place, problem, remedy).found(cell)),
    }
}

#[cold]
fn ragged(line: &[u8], separator: u8, plan: &TablePlan, number: u64) -> Fault {
    let cells = records::sample(line, separator, true, 1).first().map_or(0, records::CsvRecord::len);
    uneven(cells, plan.actions.len(), number, line)
}

fn uneven(cells: usize, expected: usize, line: u64, text: &[u8]) -> Fault {
    Fault::new(
        Place::Line(line),
        format!("the row has {cells} cells where the first row has {expected}"),
        "give every row the same number of cells, and quote texts that hold the separator",
    )
    .found(text)
}

fn read_records<T: Number>(
    source: &ByteSource,
    separator: u8,
    header: bool,
    plan: &TablePlan,
    trouble: &mut Option<Restart>,
) -> Result<TableRows<T>> {
    let mut rows = TableRows::new(plan);
    let mut skip = header;
    records::for_each(source, separator, |record| {
        if std::mem::take(&mut skip) {
            return Ok(());
        }
        if record.len() != plan.actions.len() {
            let text = record.cells().collect::<Vec<_>>().join(&separator);
            return Err(uneven(record.len(), plan.actions.len(), record.line, &text).within(source.name(), 0));
        }
        for (column, (action, cell)) in plan.actions.iter().zip(record.cells()).enumerate() {
            if let Err(unfit) = rows.push(*action, cell, record.line) {
                return Err(match cell_failure(unfit, plan, record.line, column, cell) {
                    LineFailure::Fault(fault) => fault.within(source.name(), 0),
                    LineFailure::Quote => Restart::Quote.error(source, 0),
                    LineFailure::Text(fault) => {
                        let found = Restart::Text(fault);
                        let error = found.error(source, 0);
                        *trouble = Some(found);
                        error
                    }
                });
            }
        }
        rows.count += 1;
        rows.spill(plan)
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use margrave_core::data::{Storage, Targets};

    use super::*;
    use crate::{Column, Encoding, read_bytes};

    fn parse(text: &str, options: &ReadOptions) -> Result<Loaded> {
        read_bytes(text.as_bytes(), "t.csv", options)
    }

    fn rows(loaded: &Loaded) -> Vec<Vec<f64>> {
        let mut row = vec![0.0; loaded.data.points.dims()];
        let copy = |i| {
            loaded.data.points.copy_row(i, &mut row);
            row.clone()
        };
        (0..loaded.data.len()).map(copy).collect()
    }

    #[test]
    fn duplicate_column_names_are_made_distinct() {
        let text = "a,b,a,a.1,a\n1,2,3,4,0\n5,6,7,8,1\n";
        let l = parse(text, &ReadOptions::default()).unwrap();
        assert_eq!(l.data.names.as_deref(), Some(&["a", "b", "a.2", "a.1"].map(String::from)[..]));
        assert_eq!(l.schema.target.as_ref().and_then(|t| t.name.as_deref()), Some("a.3"));
        let again = parse(text, &ReadOptions { schema: Some(&l.schema), ..ReadOptions::default() }).unwrap();
        assert_eq!(rows(&again), rows(&l));
        assert_eq!(again.data.targets, Targets::Real(vec![0.0, 1.0]));
        let target = Some(Column::Name("b".into()));
        let e = parse(text, &ReadOptions { schema: Some(&l.schema), target, ..ReadOptions::default() }).unwrap_err();
        assert!(e.to_string().contains("feature of the model"), "{e}");
    }

    #[test]
    fn numbers_with_and_without_header() {
        for text in
            ["a,b,y\n1,2,3\n4,5,6\n", "1,2,3\r\n4,5,6", "1;2;3\n\n4;5;6", "1\t2\t3\n4\t5\t6\n", " 1  2 3\n4 5  6 \n"]
        {
            let l = parse(text, &ReadOptions::default()).unwrap();
            assert_eq!(rows(&l), [[1.0, 2.0], [4.0, 5.0]], "{text:?}");
            assert_eq!(l.data.targets, Targets::Real(vec![3.0, 6.0]));
            assert_eq!(l.data.names.is_some(), text.starts_with('a'));
        }
    }

    #[test]
    fn columns_by_name_and_number() {
        let text = "w,y,x\n1,2,3\n4,5,6\n";
        let by = |t: &str, w: &str| ReadOptions {
            target: Some(t.parse().unwrap()),
            weights: Some(w.parse().unwrap()),
            ..ReadOptions::default()
        };
        for options in [by("y", "w"), by("1", "0"), by("-2", "-3")] {
            let l = parse(text, &options).unwrap();
            assert_eq!(rows(&l), [[3.0], [6.0]]);
            assert_eq!(l.data.targets, Targets::Real(vec![2.0, 5.0]));
            assert_eq!(l.data.weights, Some(vec![1.0, 4.0]));
        }
        let e = parse(text, &ReadOptions { target: Some(Column::Name("z".into())), ..ReadOptions::default() });
        assert!(e.unwrap_err().to_string().contains("\"w\", \"y\", \"x\""));
        let l = parse(text, &ReadOptions { no_target: true, ..ReadOptions::default() }).unwrap();
        assert_eq!((l.data.points.dims(), l.data.targets), (3, Targets::None));
    }

    #[test]
    fn texts_become_features() {
        let text = "size,colour,kind\n1,red,a\n2,blue,b\n3,\"red\",\"a\"\n";
        let l = parse(text, &ReadOptions::default()).unwrap();
        assert_eq!(rows(&l), [[1.0, 0.0, 1.0], [2.0, 1.0, 0.0], [3.0, 0.0, 1.0]]);
        assert_eq!(l.data.targets, Targets::Text(vec!["a".into(), "b".into(), "a".into()]));
        let names = ["size", "colour=blue", "colour=red"].map(String::from).to_vec();
        assert_eq!(l.data.names.as_ref(), Some(&names));
        let again = ReadOptions { schema: Some(&l.schema), ..ReadOptions::default() };
        // Another column order, no target, an extra column, fewer categories.
        let p = parse("id,colour,size\n9,red,7\n", &again).unwrap();
        assert_eq!((rows(&p), p.data.targets), (vec![vec![7.0, 0.0, 1.0]], Targets::None));
        let p = parse("7,blue\n8,red\n", &again).unwrap();
        assert_eq!(rows(&p), [[7.0, 1.0, 0.0], [8.0, 0.0, 1.0]]);
        let p = parse("7,blue,b\n", &again).unwrap();
        assert_eq!(p.data.targets, Targets::Text(vec!["b".into()]));
        let e = parse("size,colour\n7,blue\n7,green\n", &again).unwrap_err().to_string();
        assert!(["line 3", "`colour`", "`green`", "\"blue\", \"red\""].iter().all(|t| e.contains(t)), "{e}");
        let e = parse("size,hue\n7,blue\n", &again).unwrap_err().to_string();
        assert!(e.contains("\"colour\""), "{e}");
        let json = serde_json::to_string(&l.schema).unwrap();
        assert_eq!(serde_json::from_str::<crate::Schema>(&json).unwrap(), l.schema);
    }

    #[test]
    fn text_after_the_sampled_records_is_found() {
        let mut text: String = (0..3000).map(|i| format!("{},{}\n", i, i % 2)).collect();
        (0..1000).for_each(|i| text += &format!("{i},high\n"));
        let options = ReadOptions { target: Some(Column::Number(0)), ..ReadOptions::default() };
        let l = parse(&text, &options).unwrap();
        assert_eq!(
            l.schema.columns.as_ref().map(|c| &c[0].encoding),
            Some(&Encoding::OneHot(vec!["0".into(), "1".into(), "high".into()]))
        );
        let slip = text.replace("high", "1").replacen("2999,1", "2999,1.2.3", 1);
        let e = parse(&slip, &options).unwrap_err().to_string();
        assert!(e.contains("line 3000, column 2") && e.contains("`1.2.3`"), "{e}");
        for cell in ["\"2\"", " \"2\" ", "\"\"\"2\"", "\"2\n3\"", "\"2\n\n\"", "\"\n\"\"2,\""] {
            let late = format!("{}5,{cell}\n", text.replace("high", "2"));
            let options = ReadOptions { target: Some(Column::Number(1)), ..ReadOptions::default() };
            let l = parse(&late, &options);
            match cell.contains("2\"") && !cell.contains("\"\"\"") {
                true => assert_eq!(l.unwrap().data.targets.real().unwrap()[4000], 2.0),
                // Read as text, it is the only cell of the column that is not a number.
                false => assert!(l.unwrap_err().to_string().contains("line 4001, column 2"), "{cell:?}"),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn lines_and_records_agree(text in "([-0-9a.\"\"]{0,3}[, ,;\t\r\n]{1,2}){0,12}", which in 0usize..3) {
            let separator = [b',', b' ', b'\t'][which];
            let options = ReadOptions { no_target: true, ..ReadOptions::default() };
            let source = ByteSource::from_bytes(text.as_bytes().into(), "t.csv").unwrap();
            let Some(width) = records::sample(text.as_bytes(), separator, true, 1).first().map(records::CsvRecord::len) else {
                return Ok(());
            };
            let plan = TablePlan::new("t.csv", None, vec![CellKind::Text; width], &options).unwrap();
            let mut trouble = None;
            let lines = read_blocks::<f64>(&source, separator, false, &plan, &mut trouble);
            if trouble.is_none() {
                let records = read_records::<f64>(&source, separator, false, &plan, &mut trouble);
                let show = |rows: Result<TableRows<f64>>| rows.map(|r| r.texts()).map_err(|_| ());
                proptest::prop_assert_eq!(show(lines), show(records));
            }
        }
    }

    #[test]
    fn many_categories_stay_sparse() {
        let text: String = (0..500).map(|i| format!("name{i},{i}\n")).collect();
        let l = parse(&text, &ReadOptions::default()).unwrap();
        assert!(matches!(l.data.points.storage(), Storage::SparseF64(m) if m.stored() == 500 && m.dims() == 500));
    }

    #[test]
    fn carriage_returns_are_blanks_in_both_readers() {
        for text in ["1,\r2\n3,4\n", "1,\"\r2\"\n3,4\n", "\r1 \r 2\n3 4\r\r\n"] {
            let l = parse(text, &ReadOptions { header: Some(false), ..ReadOptions::default() });
            assert!(l.is_ok_and(|l| l.data.len() == 2), "{text:?}");
        }
    }

    #[test]
    fn embedded_line_ends_count() {
        let e = parse("a,b,c\n1,\"x\ny\",2\n1,z\n", &ReadOptions::default()).unwrap_err().to_string();
        assert!(e.contains("line 4") && e.contains("2 cells") && e.contains("has 3"), "{e}");
    }
}
