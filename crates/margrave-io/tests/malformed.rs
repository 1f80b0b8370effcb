//! Malformed and odd files: each gives a clear error or the right answer, never a panic, and never takes memory out of
//! proportion to its size.
//!
//! A program of its own, with one test: it counts the memory of the whole process, and tests beside it would be counted too.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{gzip, idx, npy, npy_f64, npz};
use margrave_io::{Column, Format, ReadOptions, read_bytes};

/// Counts the bytes in use and remembers the most there were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator unchanged; the counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes any read may take, whatever the size of its file: buffers of the decoders and one block a thread.
const CONSTANT: usize = 6 << 20;
/// Bytes a read may take for each byte of its (unpacked) file: the result, 16 for the two characters `1,`, while the
/// vector that holds it doubles; the text itself; and what is being put together.
const FACTOR: usize = 48;

/// What must come of a file.
enum Expect {
    /// An error whose message names the file and holds all of these.
    Error(&'static [&'static str]),
    /// So many samples and features.
    Set(usize, usize),
}
use Expect::{Error, Set};

struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    /// Length of the content before compression.
    unpacked: usize,
    options: ReadOptions<'static>,
    expect: Expect,
}

fn case(name: &'static str, bytes: impl AsRef<[u8]>, expect: Expect) -> Case {
    let bytes = bytes.as_ref().to_vec();
    Case { name, unpacked: bytes.len(), bytes, options: ReadOptions::default(), expect }
}

fn packed(name: &'static str, bytes: &[u8], expect: Expect) -> Case {
    Case { bytes: gzip(bytes), ..case(name, bytes, expect) }
}

fn with(mut case: Case, change: impl FnOnce(&mut ReadOptions<'static>)) -> Case {
    change(&mut case.options);
    case
}

fn libsvm() -> Vec<Case> {
    let long: String = std::iter::once("1".to_owned()).chain((1..=900_000).map(|k| format!(" {k}:1.5"))).collect();
    let late = format!("{}1 1:1 2:oops\n", "1 1:1 2:2\n".repeat(300_000));
    vec![
        case("empty.svm", "", Error(&["no samples"])),
        case("blank.svm", "\n \n\t\r\n", Error(&["no samples"])),
        case("comments.svm", "# one\n# two\n", Error(&["no samples"])),
        case("nan.svm", "1 1:0.5\n-1 1:nan\n", Error(&["line 2, byte 4", "`1:nan`", "finite"])),
        case("inf.svm", "1 1:inf\n", Error(&["line 1, byte 3", "`1:inf`", "finite"])),
        case("overflow.svm", "1 1:1e999\n", Error(&["line 1", "`1:1e999`", "finite"])),
        with(case("single.svm", "1 1:1e60\n", Error(&["line 1", "`1:1e60`", "single"])), |o| o.single = true),
        case("novalue.svm", "1 1:\n", Error(&["line 1, byte 3", "`1:`", "not a number"])),
        case("valuegone.svm", "1 1: 2:1\n", Error(&["line 1, byte 3", "`1:`"])),
        case("letter.svm", "1 a:1\n", Error(&["line 1, byte 3", "`a:1`", "index:value"])),
        case("nocolon.svm", "1 1:1 7\n", Error(&["line 1, byte 7", "`7`", "index:value"])),
        case("twocolons.svm", "1 1:2:3\n", Error(&["line 1, byte 3", "`1:2:3`"])),
        case("minus.svm", "1 -1:2\n", Error(&["line 1, byte 3", "`-1:2`"])),
        case("fraction.svm", "1 1.5:2\n", Error(&["line 1, byte 3", "`1.5:2`"])),
        case("junkvalue.svm", "1 1:2x\n", Error(&["line 1, byte 3", "`1:2x`"])),
        case("descending.svm", "1 1:1\n1 3:1 2:5\n", Error(&["line 2, byte 7", "`2:5`", "index 2 follows index 3"])),
        case("twice.svm", "1 3:1 3:5\n", Error(&["line 1, byte 7", "`3:5`", "twice"])),
        case("zero.svm", "1 0:0.5 1:1\n", Error(&["line 1, byte 3", "`0:0.5`", "from 1"])),
        case("somezero.svm", "1 1:1\n1 0:1 1:1\n", Error(&["line 2, byte 3", "`0:1`", "from 1"])),
        case("zerolater.svm", "1 1:1 0:1\n", Error(&["line 1, byte 7", "`0:1`"])),
        case("gram.svm", "1 0:1 1:2 2:0\n-1 0:2 1:0 2:2\n", Set(2, 2)),
        case("gramgap.svm", "1 0:1 1:2 2:0\n-1 0:2 1:0\n", Error(&["1 of 2 values"])),
        case("billion.svm", "1 1000000000:1\n", Set(1, 1_000_000_000)),
        case("largest.svm", "1 4294967295:1\n", Set(1, 4_294_967_295)),
        case("toolarge.svm", "1 4294967296:1\n", Error(&["line 1, byte 3", "too large"])),
        case("digits.svm", "1 99999999999999999999:1\n", Error(&["line 1, byte 3", "`99999999999999999999:1`"])),
        case("nolabel.svm", "1 1:1\n1:1 2:1\n", Error(&["line 2, byte 1", "`1:1`", "no label"])),
        with(case("unlabelled.svm", "1:1 2:1\n2:3\n", Set(2, 2)), |o| o.no_target = true),
        case("nanlabel.svm", "1 1:1\nnan 1:1\n", Error(&["line 2, byte 1", "`nan`", "label"])),
        case("mixed.svm", "1 1:1\ncat 1:1\n", Error(&["line 2", "`cat`", "mixed"])),
        case("labelsonly.svm", "1\n-1\n", Set(2, 0)),
        case("crlf.svm", "1 1:1 2:2\r\n-1 1:3\r\n", Set(2, 2)),
        case("bom.svm", "\u{FEFF}1 1:1 2:2\n-1 1:3\n", Set(2, 2)),
        case("utf16.svm", b"\xFF\xFE1\x00 \x00", Error(&["UTF-16", "UTF-8"])),
        case("noend.svm", "1 1:1 2:2\n-1 1:3", Set(2, 2)),
        case("tabs.svm", "1\t1:1\t2:2\n\n-1  1:3 \t \n", Set(2, 2)),
        case("comment.svm", "# head\n1 qid:3 1:1 2:2 # 9:x\n-1 1:3#\n", Set(2, 2)),
        case("tenmegabytes.svm", long, Set(1, 900_000)),
        case("late.svm", late, Error(&["line 300001, byte 7", "`2:oops`"])),
        case("binary.svm", b"\x00\x01\x02\xff\xfe\n\x80\x81", Error(&["line 1", "label"])),
        case("latin1.svm", b"caf\xe9 1:1\n", Error(&["line 1, byte 1", "UTF-8"])),
        with(case("target.svm", "1 1:1\n", Error(&[".target("])), |o| o.target = Some(Column::Number(0))),
        packed("ok.svm.gz", b"1 1:1 2:2\n-1 1:3\n", Set(2, 2)),
    ]
}

fn csv() -> Vec<Case> {
    let quote_late = format!("a,b,c\n{}4,\"x\n", "1,2,3\n".repeat(50_000));
    let wide: String = (0..1_500_000).map(|k| k.to_string() + ",").collect::<String>() + "1\n";
    let ids: String = (0..20_000).map(|k| format!("id{k},{}\n", k % 7)).collect();
    vec![
        case("empty.csv", "", Error(&["no samples"])),
        case("blank.csv", "\n\n  \n", Error(&["no samples"])),
        case("header.csv", "a,b,c\n", Error(&["no samples"])).header(true),
        case("ragged.csv", "1,2,3\n4,5,6\n7,8\n", Error(&["line 3", "2 cells", "has 3", "`7,8`"])),
        case("long.csv", "1,2,3\n4,5,6,7\n", Error(&["line 2", "4 cells", "has 3"])),
        case("unclosed.csv", "a,b\n1,\"x\n2,y\n", Error(&["line 2, column 2", "never closed", "`\"x\\n2,y\\n`"])),
        case("unclosedlate.csv", quote_late, Error(&["line 50002, column 2", "never closed"])),
        case("afterquote.csv", "a,b\n\"x\"y,1\n", Error(&["line 2, column 1", "closing quote", "`y,1"])),
        case("hole.csv", "a,b,y\n1,2,3\n4,,6\n", Error(&["line 3, column 2", "`b`", "empty", "missing"])),
        case("lasthole.csv", "a,b,y\n1,2,3\n4,5,\n", Error(&["line 3, column 3", "`y`", "empty"])),
        case("na.csv", "a,b,y\n1,2,3\n4,NA,6\n", Error(&["line 3, column 2", "`NA`", "missing"])),
        case("question.csv", "1,2,3\n?,5,6\n?,5,6\n7,1,2\n", Error(&["line 2, column 1", "`?`", "missing"])),
        case("nan.csv", "a,y\n1,2\nnan,3\n", Error(&["line 3, column 1", "`nan`"])),
        case("inf.csv", "a,y\n1,2\n3,-inf\n", Error(&["line 3, column 2", "`-inf`", "finite"])),
        case("overflow.csv", "1,2\n1e400,3\n", Error(&["line 2, column 1", "`1e400`", "finite"])),
        case("slip.csv", "1,2\n".repeat(30) + "1x,2\n", Error(&["line 31, column 1", "`1x`", "numbers"])),
        case("comma.csv", "1,5;2\n2,5;3\n", Error(&["line 1, column 1", "`1,5`", "decimal comma"])),
        case("onecolumn.csv", "1\n2\n", Error(&["none is left for features"])),
        with(case("onefeature.csv", "1\n2\n", Set(2, 1)), |o| o.no_target = true),
        case("quoted.csv", "\"a\",\"b, c\",\"y\"\n\"1\",\"2\",\"u\"\"v\"\n\"3\",\"4\",\"line\nbreak\"\n", Set(2, 2)),
        case("crlf.csv", "a,b,y\r\n1,2,3\r\n4,5,6\r\n", Set(2, 2)),
        case("bom.csv", "\u{FEFF}a,b,y\n1,2,3\n", Set(1, 2)),
        case("utf16.csv", b"\xFE\xFF\x001\x00,", Error(&["UTF-16"])),
        case("noend.csv", "1,2,3\n4,5,6", Set(2, 2)),
        case("tsv.tsv", "a\tb\ty\n1\t2\t3\n", Set(1, 2)),
        case("tabhole.tsv", "a\tb\ty\n1\t2\t3\n\t\t\n", Error(&["line 3, column 1", "empty"])),
        case("semicolons.txt", "a;b;y\n1;2;3\n", Set(1, 2)),
        case("pipes.txt", "1|2|3\n4|5|6\n", Set(2, 2)),
        case("blanks.txt", "  1   2 3\n4 5\t6\n", Set(2, 2)),
        case("onerow.csv", "1,2,3\n", Set(1, 2)),
        case("wide.csv", wide, Set(1, 1_500_000)),
        case("ids.csv", ids, Set(20_000, 20_000)),
        case("latin1.csv", b"a,y\ncaf\xe9,1\nbar,2\n", Error(&["line 2, column 1", "UTF-8"])),
        case("binary.csv", b"\x00\x01\x02\x03\x04", Error(&["not text"])),
        case("nocolumn.csv", "a,b\n1,2\n", Error(&[".target(", "\"z\"", "\"a\", \"b\""])).target("z"),
        case("nonumber.csv", "a,b\n1,2\n", Error(&[".target(", "no column 9", "0 to 1"])).target("9"),
        with(case("weight.csv", "1,2,-3\n", Error(&["line 1, column 3", "`-3`", "negative"])), |o| {
            o.weights = Some(Column::Number(2));
        }),
        packed("ok.csv.gz", b"a,b,y\n1,2,3\n", Set(1, 2)),
    ]
}

impl Case {
    fn header(mut self, header: bool) -> Self {
        self.options.header = Some(header);
        self
    }

    fn target(mut self, column: &str) -> Self {
        self.options.target = column.parse().ok();
        self
    }
}

#[cfg(feature = "parquet")]
fn parquet() -> Vec<Case> {
    let table = crate::common::parquet_numbers(&["a", "b", "y"], &[&[1.0, 2.0], &[3.0, 4.0], &[5.0, 6.0]]);
    vec![
        case("good.parquet", &table, Set(2, 2)),
        case("other.csv", &table, Set(2, 2)),
        packed("good.parquet.gz", &table, Set(2, 2)),
        case("magic.parquet", b"hello, world", Error(&["PAR1"])),
        case("short.parquet", b"PAR1", Error(&["damaged"])),
        case("cut.parquet", &table[..table.len() - 9], Error(&["damaged"])),
        case("nested.parquet", crate::common::parquet_nested(), Error(&["row 1, column 2", "`list`", "nested"])),
        case("null.parquet", crate::common::parquet_null(), Error(&["row 2, column 1", "`a`", "missing"])),
        case("times.parquet", crate::common::parquet_times(), Error(&["column 1", "`when`", "times", "drop"])),
    ]
}

#[cfg(not(feature = "parquet"))]
fn parquet() -> Vec<Case> {
    vec![case("good.parquet", b"PAR1....PAR1", Error(&["built without Parquet", "feature"]))]
}

fn binary() -> Vec<Case> {
    let good = npy_f64(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let whole = gzip(&"1 1:1 2:2\n".repeat(10_000).into_bytes());
    let cut = &whole[..whole.len() / 2];
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle..middle + 8].fill(0xAA);
    let trailing = [&whole[..], b"rubbish"].concat();
    let images = idx(8, &[2, 2, 2], &[0, 1, 2, 3, 4, 5, 6, 7]);
    let no_target = |o: &mut ReadOptions| o.no_target = true;
    vec![
        case("cut.svm.gz", cut, Error(&["gzip data ends too early", "truncated"])),
        case("cuthead.svm.gz", &whole[..6], Error(&["gzip data ends too early"])),
        case("flipped.svm.gz", flipped, Error(&["gzip"])),
        case("trailing.svm.gz", trailing, Error(&["gzip"])),
        case("empty", "", Error(&["empty"])),
        case("junk", b"\x01\x02\x03\x04\x05\x06\x07", Error(&["neither text nor"])),
        case("good.npy", &good, Set(2, 2)),
        case("noname", &good, Set(2, 2)),
        packed("good.npy.gz", &good, Set(2, 2)),
        case("magic.npy", b"NUMPYxxxxxxxxxxxxx", Error(&["begins with", "`NUMPYx`"])),
        case("empty.npy", "", Error(&["begins with"])),
        case("cuthead.npy", &good[..20], Error(&["cut off"])),
        case("cut.npy", &good[..good.len() - 8], Error(&["[2, 3]", "48 bytes", "40 are there"])),
        packed("cut.npy.gz", &good[..good.len() - 8], Error(&["[2, 3]", "48 bytes", "40 are there"])),
        case("object.npy", npy("|O", "2, 2", &[0; 32]), Error(&["objects", "astype"])),
        case("fields.npy", npy("x", "2, 2", &[0; 32]).replace_descr(), Error(&["named fields"])),
        case("complex.npy", npy("<c16", "2, 2", &[0; 64]), Error(&["<c16", "complex"])),
        case("longdouble.npy", npy("<f16", "2, 2", &[0; 64]), Error(&["<f16", "float64"])),
        case("vector.npy", npy("<f8", "4,", &[0; 32]), Error(&["[4]", "matrix"])),
        case("scalar.npy", npy("<f8", "", &[0; 8]), Error(&["matrix"])),
        case("petabyte.npy", npy("<f8", "1000000000000000, 2", &[0; 64]), Error(&["takes", "64 are there"])),
        packed("petabyte.npy.gz", &npy("<f8", "1000000000000000, 2", &[0; 64]), Error(&["takes", "64 are there"])),
        case("overflow.npy", npy("<f8", "9223372036854775807, 9", &[0; 64]), Error(&["not possible"])),
        case("wide.npy", npy("<f8", "1, 1000000000000", &[0; 64]), Error(&["takes", "64 are there"])),
        packed("wide.npy.gz", &npy("<f8", "1, 1000000000000", &[0; 64]), Error(&["takes", "64 are there"])),
        case("norows.npy", npy("<f8", "0, 3", &[]), Error(&["no values", "[0, 3]"])),
        case("nan.npy", npy_f64(&[1, 2], &[f64::NAN, 1.0]), Error(&["missing (NaN)", "row 1, column 1"])),
        case("nantarget.npy", npy_f64(&[1, 2], &[1.0, f64::NAN]), Error(&["not finite", "row 0"])),
        with(case("images.npy", npy_f64(&[2, 2, 2], &[1.0; 8]), Set(2, 4)), no_target),
        case("junk.npz", b"PK\x03\x04junkjunkjunk", Error(&["zip archive is damaged"])),
        case("notzip.npz", b"hello", Error(&["zip archive is damaged"])),
        case("xy.npz", npz(&[("X", &good), ("y", &npy_f64(&[2], &[1.0, 2.0]))]), Set(2, 3)),
        case("alone.npz", npz(&[("arr_0", &good)]), Set(2, 2)),
        case("short.npz", npz(&[("X", &good), ("y", &npy_f64(&[1], &[1.0]))]), Error(&["1 targets for 2 samples"])),
        case("none.npz", npz(&[("y", &npy_f64(&[1], &[1.0]))]), Error(&["no matrix", "\"y\""])),
        case("objects.npz", npz(&[("X", &good), ("y", &npy("|O", "2,", &[0; 16]))]), Error(&["array y", "objects"])),
        case("features.npz", npz(&[("X", &npy("|O", "2, 2", &[0; 32]))]), Error(&["array X", "objects"])),
        case(
            "coo.npz",
            npz(&[("format", &npy("|S3", "", b"coo")), ("shape", &npy("<i8", "2,", &[0; 16]))]),
            Error(&["coo"]),
        ),
        with(case("images.idx3", &images, Set(2, 4)), no_target),
        case("nolabels.idx3", &images, Error(&["no file of labels"])),
        case("labels.idx1", idx(8, &[3], &[1, 2, 3]), Error(&["labels"])),
        with(case("cut.idx3", &images[..images.len() - 1], Error(&["8 bytes", "7 are there"])), no_target),
        with(case("lie.idx3", idx(8, &[u32::MAX, 28, 28], &[0; 10]), Error(&["10 are there"])), no_target),
        with(case("short.idx3", idx(8, &[1000, 2, 2], &[0; 10]), Error(&["4000 bytes", "10 are there"])), no_target),
        with(
            case("overflow.idx3", idx(14, &[u32::MAX, u32::MAX, u32::MAX], &[0; 10]), Error(&["not possible"])),
            no_target,
        ),
        case("magic.idx3", b"\x01\x00\x08\x03aaaaaaaa", Error(&["two zero bytes"])),
        case("cuthead.idx3", b"\x00\x00\x08\x03\x00", Error(&["cut off"])),
        with(case("forced", "1,2,3\n", Error(&["NPY"])), |o| o.format = Some(Format::Npy)),
    ]
}

/// An NPY file whose elements are structures.
trait ReplaceDescr {
    fn replace_descr(self) -> Vec<u8>;
}

impl ReplaceDescr for Vec<u8> {
    fn replace_descr(mut self) -> Vec<u8> {
        let header = String::from_utf8_lossy(&self[10..]).find("'x'").map_or(0, |at| at + 10);
        self[header..header + 3].copy_from_slice(b"[()");
        self
    }
}

#[test]
fn every_file_gives_a_clear_error_or_the_right_answer() {
    let cases: Vec<Case> = [libsvm(), csv(), binary(), parquet()].into_iter().flatten().collect();
    assert!(cases.len() >= 40, "{}", cases.len());
    // The thread pool is not the first file's to pay for.
    let warm = read_bytes(b"1 1:1\n", "warm.svm", &ReadOptions::default());
    assert!(warm.is_ok());
    let mut failures = Vec::new();
    for case in &cases {
        let before = NOW.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let outcome = read_bytes(&case.bytes, case.name, &case.options);
        let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
        let allowed = CONSTANT + FACTOR * case.unpacked;
        if taken > allowed {
            failures.push(format!("{}: {taken} bytes taken, {allowed} allowed", case.name));
        }
        match (&case.expect, outcome) {
            (Error(words), Err(e)) => {
                let message = e.to_string();
                let missing: Vec<_> = words.iter().filter(|w| !message.contains(**w)).collect();
                if !missing.is_empty() || !message.starts_with(case.name) || message.chars().count() > 400 {
                    failures.push(format!("{}: {message}\n    lacks {missing:?}", case.name));
                }
            }
            (Set(n, d), Ok(l)) if (l.data.len(), l.data.points.dims()) == (*n, *d) => {}
            (Set(..), Ok(l)) => {
                failures.push(format!("{}: {} × {}", case.name, l.data.len(), l.data.points.dims()));
            }
            (Set(..), Err(e)) => failures.push(format!("{}: {e}", case.name)),
            (Error(words), Ok(l)) => {
                failures.push(format!("{}: {words:?} expected, read {} rows", case.name, l.data.len()))
            }
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}
