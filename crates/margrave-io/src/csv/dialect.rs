//! Detects the separator and the header of a table from its first records.

use super::records::{self, CsvRecord};
use crate::number;
use crate::options::ReadOptions;
use crate::table::is_missing;

/// Number of records used for detection.
pub(crate) const SAMPLE: usize = 256;

/// The separator that splits each of the first lines into the same number of cells, more than one.
pub(crate) fn separator(head: &[u8], complete: bool) -> u8 {
    // Commas are tried after semicolons, as they may be decimal commas; blanks last, as they may occur in texts.
    let widths = |separator: u8| -> Option<usize> {
        let sample = records::sample(head, separator, complete, 20);
        let width = sample.first()?.len();
        sample.iter().all(|r| r.len() == width).then_some(width)
    };
    let candidates = [b'\t', b';', b',', b'|', b' '];
    if let Some(found) = candidates.into_iter().find(|s| widths(*s).is_some_and(|w| w > 1)) {
        return found;
    }
    // Ragged rows: the separator that is most frequent in the first line, so that the error refers to it.
    let first = head.split(|b| *b == b'\n').next().unwrap_or_default();
    let count = |s: u8| first.iter().filter(|b| **b == s).count();
    let best = [b',', b';', b'\t', b'|', b' '].into_iter().rev().max_by_key(|s| count(*s));
    best.filter(|s| count(*s) > 0).unwrap_or(b',')
}

/// Whether the first record contains names: it has text in a column where all others have numbers, or it is all text
/// and none of it occurs again below.
pub(crate) fn has_header(sample: &[CsvRecord], options: &ReadOptions) -> bool {
    if let Some(header) = options.header {
        return header;
    }
    let Some((first, rest)) = sample.split_first() else { return false };
    let is_number = |cell: &[u8]| number::whole::<f64>(cell).is_some();
    let is_text = |cell: &[u8]| !cell.is_empty() && !is_number(cell) && !is_missing(cell);
    // Names may be integers such as years, but not fractions.
    let name_like = |cell: &[u8]| !is_number(cell) || cell.iter().all(u8::is_ascii_digit);
    let known = options.schema.and_then(|s| s.columns.as_ref());
    let known = known.and_then(|c| c.iter().map(|c| c.name.as_deref()).collect::<Option<Vec<_>>>());
    if let Some(names) = &known
        && names.iter().any(|name| first.cells().any(|cell| cell == name.as_bytes()))
    {
        return true;
    }
    if !first.cells().all(name_like) {
        return false;
    }
    let column = |k: usize| rest.iter().filter(move |r| k < r.len()).map(move |r| r.cell(k));
    let numeric = |k: usize| {
        let mut seen = column(k).filter(|c| !c.is_empty() && !is_missing(c)).peekable();
        seen.peek().is_some() && seen.all(is_number)
    };
    if (0..first.len()).any(|k| is_text(first.cell(k)) && numeric(k)) {
        return true;
    }
    // If the model knows none of the names, the first record is more likely a row of texts.
    if known.is_some() {
        return false;
    }
    let mut names: Vec<&[u8]> = first.cells().collect();
    names.sort_unstable();
    let distinct = names.windows(2).all(|w| w[0] != w[1]);
    let fresh = |k: usize| column(k).all(|c| c != first.cell(k));
    !rest.is_empty() && distinct && first.cells().all(is_text) && (0..first.len()).all(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> bool {
        let options = ReadOptions::default();
        has_header(&records::sample(text.as_bytes(), b',', true, SAMPLE), &options)
    }

    #[test]
    fn headers() {
        assert!(header("a,b,class\n1,2,x\n3,4,y\n"));
        assert!(header("year,2019,2020\n1,2,3\n"));
        assert!(header("buying,doors\nhigh,2\nlow,more\n"));
        assert!(!header("high,2\nhigh,more\n"));
        assert!(!header("5.1,3.5,setosa\n4.9,3.0,virginica\n"));
        assert!(!header("1,2,?\n3,4,5\n"));
        assert!(!header("1.5,2,3x\n3,4,5\n"));
        assert!(!header("1,2\n"));
    }

    #[test]
    fn separators() {
        for (text, expected) in [
            ("1,2\n3,4\n", b','),
            ("1;2,5\n3;4,5\n", b';'),
            ("1\t2 3\n4\t5 6\n", b'\t'),
            ("1|2\n", b'|'),
            ("  1 2   3\n4  5 6\n", b' '),
            ("a,\"x;y\"\nb,\"z\"\n", b','),
            ("1\n2\n", b','),
            ("1;2;3\n1;2\n", b';'),
        ] {
            assert_eq!(separator(text.as_bytes(), true) as char, expected as char, "{text:?}");
        }
    }
}
