//! Reads records of separated text sequentially, including quoted cells.

use std::io::Read;

use crate::error::{Fault, Place, Result, malformed};
use crate::source::ByteSource;

const CHUNK: usize = 256 << 10;

/// Longest record accepted: an unclosed quote must not consume all of a large decompressed file.
const LONGEST: usize = 1 << 30;

/// The cells of one record.
#[derive(Default, Clone)]
pub(crate) struct CsvRecord {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Line on which the record begins, from 1.
    pub(crate) line: u64,
}

impl CsvRecord {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn cell(&self, column: usize) -> &[u8] {
        let start = if column == 0 { 0 } else { self.ends[column - 1] };
        &self.bytes[start..self.ends[column]]
    }

    pub(crate) fn cells(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|k| self.cell(k))
    }
}

/// Whether `byte` is padding around a cell.
#[inline(always)]
pub(crate) fn is_pad(byte: u8, separator: u8) -> bool {
    byte == b' ' || byte == b'\r' || (byte == b'\t' && separator != b'\t')
}

/// `text` without trailing padding.
pub(crate) fn trim_end(mut text: &[u8], separator: u8) -> &[u8] {
    while let [head @ .., tail] = text
        && is_pad(*tail, separator)
    {
        text = head;
    }
    text
}

/// The result of trying to split one record.
enum SplitOutcome {
    /// A record (or a blank line, without cells) of this many bytes and lines.
    Done {
        bytes: usize,
        lines: u64,
    },
    /// The text ends within the record.
    More,
    Bad(Fault),
}

/// Splits the record at the start of `text` into cells. `last`: nothing follows `text`.
fn split(text: &[u8], separator: u8, line: u64, last: bool, record: &mut CsvRecord) -> SplitOutcome {
    record.bytes.clear();
    record.ends.clear();
    record.line = line;
    let blanks = separator == b' ';
    let pad = |b: u8| is_pad(b, separator);
    let (mut at, mut lines) = (0, 0);
    loop {
        while at < text.len() && pad(text[at]) {
            at += 1;
        }
        let start = record.bytes.len();
        let quoted = text.get(at) == Some(&b'"');
        if quoted {
            let opened = line + lines;
            at += 1;
            loop {
                let Some(next) = memchr::memchr(b'"', &text[at..]) else {
                    if !last {
                        return SplitOutcome::More;
                    }
                    let cell = &text[at..];
                    let place = Place::Cell { line: opened, column: record.ends.len(), name: None };
                    return SplitOutcome::Bad(
                        Fault::new(place, "a quote is opened and never closed", "close it, or double it within a text")
                            .found(&text[at - 1..at + cell.len().min(60)]),
                    );
                };
                record.bytes.extend_from_slice(&text[at..at + next]);
                lines += memchr::memchr_iter(b'\n', &text[at..at + next]).count() as u64;
                at += next + 1;
                match text.get(at) {
                    Some(b'"') => {
                        record.bytes.push(b'"');
                        at += 1;
                    }
                    None if !last => return SplitOutcome::More,
                    _ => break,
                }
            }
            let close = at;
            while at < text.len() && pad(text[at]) {
                at += 1;
            }
            let ends = at == text.len() || text[at] == b'\n' || (!blanks && text[at] == separator);
            if at == text.len() && !last {
                return SplitOutcome::More;
            }
            if !(ends || blanks && at > close) {
                let rest = &text[close..];
                let place = Place::Cell { line: line + lines, column: record.ends.len(), name: None };
                return SplitOutcome::Bad(
                    Fault::new(place, "text follows a closing quote", "double the quotes within a text")
                        .found(&rest[..rest.len().min(60)]),
                );
            }
        } else {
            let rest = &text[at..];
            let end = if blanks {
                rest.iter().position(|b| *b == b'\n' || pad(*b))
            } else {
                memchr::memchr2(separator, b'\n', rest)
            };
            let Some(end) = end.or(last.then_some(rest.len())) else { return SplitOutcome::More };
            record.bytes.extend_from_slice(trim_end(&rest[..end], separator));
            at += end;
            if blanks {
                while at < text.len() && pad(text[at]) {
                    at += 1;
                }
                if at == text.len() && !last {
                    return SplitOutcome::More;
                }
            }
        }
        let empty = !quoted && record.bytes.len() == start;
        let done = at == text.len() || text[at] == b'\n';
        // A blank line has no cells, and trailing blanks are not separators.
        if !(empty && done && (record.ends.is_empty() || blanks)) {
            record.ends.push(record.bytes.len());
        }
        if done {
            lines += 1;
            return SplitOutcome::Done { bytes: (at + 1).min(text.len()), lines };
        }
        if !blanks {
            at += 1;
        }
    }
}

/// The records of a text in memory; an incomplete record at its end is omitted unless `last`.
pub(crate) fn sample(mut text: &[u8], separator: u8, last: bool, most: usize) -> Vec<CsvRecord> {
    let mut records = Vec::new();
    let mut line = 1;
    while records.len() < most && !text.is_empty() {
        let mut record = CsvRecord::default();
        let SplitOutcome::Done { bytes, lines } = split(text, separator, line, last, &mut record) else { break };
        text = &text[bytes..];
        line += lines;
        if record.len() > 0 {
            records.push(record);
        }
    }
    records
}

/// Calls `visit` with every record of `source` that has cells, until it fails.
pub(crate) fn for_each(
    source: &ByteSource,
    separator: u8,
    mut visit: impl FnMut(&CsvRecord) -> Result<()>,
) -> Result<()> {
    let mut reader = source.reader()?;
    let mut text: Vec<u8> = Vec::new();
    let (mut at, mut line, mut last, mut size) = (0, 1, false, CHUNK);
    let mut record = CsvRecord::default();
    let mut started = false;
    loop {
        let step =
            if at == text.len() { SplitOutcome::More } else { split(&text[at..], separator, line, last, &mut record) };
        match step {
            SplitOutcome::Done { bytes, lines } => {
                at += bytes;
                line += lines;
                if record.len() > 0 {
                    visit(&record)?;
                }
            }
            SplitOutcome::Bad(fault) => return Err(fault.within(source.name(), 0)),
            SplitOutcome::More if last => return Ok(()),
            SplitOutcome::More => {
                text.drain(..at);
                // A record longer than the buffer is retried only after the buffer has doubled.
                size = if at == 0 { size.max(text.len()) } else { CHUNK };
                at = 0;
                if text.len() > LONGEST {
                    return Err(malformed(
                        source.name(),
                        format!("the record that begins on line {line} is longer than {LONGEST} bytes"),
                        "check for an unclosed quote there",
                    ));
                }
                let got = reader.by_ref().take(size as u64).read_to_end(&mut text).map_err(|e| source.io(e))?;
                last = got < size;
                if !started {
                    started = true;
                    crate::blocks::start_of_text(&mut text, source)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str, separator: u8) -> Vec<Vec<String>> {
        let own = |r: &CsvRecord| r.cells().map(|c| String::from_utf8_lossy(c).into_owned()).collect();
        sample(text.as_bytes(), separator, true, 99).iter().map(own).collect()
    }

    #[test]
    fn quotes_blanks_and_line_ends() {
        assert_eq!(
            cells("a,b\r\n1, 2 \n\n3,\"x, \"\"y\"\"\nz\"", b','),
            [vec!["a", "b"], vec!["1", "2"], vec!["3", "x, \"y\"\nz"]]
        );
        assert_eq!(cells("  1   2\t3  \n4 \"5 6\" 7", b' '), [vec!["1", "2", "3"], vec!["4", "5 6", "7"]]);
        assert_eq!(cells("1,,\n,\n", b','), [vec!["1", "", ""], vec!["", ""]]);
        assert_eq!(cells("1\t\t2\n", b'\t'), [vec!["1", "", "2"]]);
        assert_eq!(cells("5\" pipe,1", b','), [vec!["5\" pipe", "1"]]);
    }

    #[test]
    fn splitting_the_text_anywhere_gives_the_same_records() {
        let text = b"a,b\n1,\"x\"\"y\n\"\n2,z";
        for cut in 0..text.len() {
            let head = sample(&text[..cut], b',', false, 99);
            assert!(head.len() <= 2, "the last record cannot be known to be whole");
            for record in head {
                assert_eq!(record.len(), 2);
            }
        }
    }
}
