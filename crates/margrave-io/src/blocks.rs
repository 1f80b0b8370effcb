//! Text in blocks of whole lines, parsed in parallel and combined in order.

use std::io::Read;

use rayon::prelude::*;

use crate::error::{Fault, ReadError, Result, malformed};
use crate::source::ByteSource;

/// Typical size of a block in bytes: large enough to amortise the cost of a task, small enough to fit in cache.
const BLOCK: usize = 1 << 20;

/// Longest line accepted. A gzip file of a few megabytes can contain a line that exhausts memory.
const LONGEST_LINE: usize = 1 << 30;

/// The result of parsing one block.
pub(crate) trait ParsedPart: Send {
    /// Lines in the block.
    fn lines(&self) -> u64;
}

struct Blocks<'a> {
    reader: Box<dyn Read + Send + 'a>,
    source: &'a ByteSource,
    /// The bytes after the last line end of the previous block.
    rest: Vec<u8>,
    /// Processed blocks, whose memory is reused.
    spare: Vec<Vec<u8>>,
    left: u64,
    started: bool,
    ended: bool,
}

impl<'a> Blocks<'a> {
    fn new(source: &'a ByteSource) -> Result<Self> {
        let left = source.len().unwrap_or(u64::MAX);
        let reader = source.reader()?;
        Ok(Self { reader, source, rest: Vec::new(), spare: Vec::new(), left, started: false, ended: false })
    }

    /// The next block: whole lines, the last of which may lack its line end at the end of the file.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.ended {
            return Ok(None);
        }
        let mut block = self.spare.pop().unwrap_or_default();
        block.clear();
        block.append(&mut self.rest);
        let mut size = BLOCK;
        loop {
            let known = usize::try_from(self.left).unwrap_or(usize::MAX).min(size);
            block.reserve_exact(known.min(BLOCK).saturating_add(1));
            let before = block.len();
            self.reader.by_ref().take(size as u64).read_to_end(&mut block).map_err(|e| self.source.io(e))?;
            let got = block.len() - before;
            self.left = self.left.saturating_sub(got as u64);
            if !self.started {
                self.started = true;
                start_of_text(&mut block, self.source)?;
            }
            if got < size {
                self.ended = true;
                return Ok((!block.is_empty()).then_some(block));
            }
            if let Some(end) = memchr::memrchr(b'\n', &block[before.min(block.len())..]) {
                let end = before.min(block.len()) + end + 1;
                self.rest.extend_from_slice(&block[end..]);
                block.truncate(end);
                return Ok(Some(block));
            }
            if block.len() > LONGEST_LINE {
                return Err(malformed(
                    self.source.name(),
                    format!("a line is longer than {LONGEST_LINE} bytes"),
                    "check that this is a text file with one sample per line",
                ));
            }
            size = block.len().max(BLOCK);
        }
    }

    fn batch(&mut self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut blocks = Vec::new();
        while blocks.len() < count {
            match self.next()? {
                Some(block) => blocks.push(block),
                None => break,
            }
        }
        Ok(blocks)
    }
}

/// Skips a UTF-8 byte order mark; rejects UTF-16.
pub(crate) fn start_of_text(block: &mut Vec<u8>, source: &ByteSource) -> Result<()> {
    if block.starts_with(b"\xEF\xBB\xBF") {
        block.drain(..3);
    } else if block.starts_with(b"\xFF\xFE") || block.starts_with(b"\xFE\xFF") {
        return Err(malformed(source.name(), "the text is in UTF-16", "save it as UTF-8"));
    }
    Ok(())
}

/// Parses `source` block by block on the current thread pool and passes the parts to `fold` in file order, each with
/// the number of lines before it. The second argument of `parse` is whether its block is the first.
///
/// Memory: two batches of blocks and parts, independent of the size of the file.
pub(crate) fn parse_blocks<P: ParsedPart>(
    source: &ByteSource,
    parse: impl Fn(&[u8], bool) -> Result<P, Fault> + Sync,
    mut fold: impl FnMut(P, u64) -> Result<()> + Send,
) -> Result<()> {
    let mut blocks = Blocks::new(source)?;
    let count = 2 * rayon::current_num_threads();
    let mut lines = 0;
    let mut fold_all = |parts: Vec<Result<P, Fault>>| -> Result<()> {
        for part in parts {
            let part = part.map_err(|fault| fault.within(source.name(), lines))?;
            let before = lines;
            lines += part.lines();
            fold(part, before)?;
        }
        Ok(())
    };
    let mut first = true;
    let mut ready = blocks.batch(count)?;
    let mut parsed = Vec::new();
    while !ready.is_empty() {
        let earlier = std::mem::take(&mut parsed);
        let (parts, next) = rayon::join(
            || {
                let each = |(at, block): (usize, &Vec<u8>)| parse(block, first && at == 0);
                ready.par_iter().enumerate().with_max_len(1).map(each).collect::<Vec<_>>()
            },
            || -> Result<_, ReadError> {
                fold_all(earlier)?;
                // A read error is reported after errors in the text before it.
                Ok(blocks.batch(count))
            },
        );
        first = false;
        parsed = parts;
        let next = match next? {
            Ok(next) => next,
            Err(error) => {
                fold_all(parsed)?;
                return Err(error);
            }
        };
        blocks.spare.append(&mut ready);
        ready = next;
    }
    fold_all(parsed)
}

/// Runs `work` on a pool of `threads` threads, or on the current one for 0.
pub(crate) fn with_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    if threads == 0 {
        return work();
    }
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    }
}
