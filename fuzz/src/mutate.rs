//! Damage: what accidents and strangers do to files.

use crate::rng::Rng;

/// Inputs do not grow beyond this.
const LONGEST: usize = 1 << 14;

/// Numbers at which parsers and sizes break.
const NUMBERS: [&str; 40] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "7",
    "8",
    "10",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "32768",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967294",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999",
    "1e308",
    "1e309",
    "-1e309",
    "1e-320",
    "5e-324",
    "1e-999",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "1e",
    "1.",
    ".5",
    "0.1e+5",
];

/// Words that mean something to one parser or another.
const WORDS: [&str; 64] = [
    ":",
    ",",
    ";",
    "=",
    "..",
    "*",
    "+",
    "^",
    "#",
    "\"",
    "\"\"",
    "\n",
    "\r\n",
    "\r",
    "\t",
    " ",
    "\0",
    "\u{feff}",
    "é",
    "∞",
    "qid:1",
    "0:1",
    "0:2 ",
    "1:1",
    "nan",
    "NA",
    "?",
    "svm_type c_svc\n",
    "kernel_type precomputed\n",
    "nr_class 2\n",
    "nr_class 0\n",
    "total_sv 0\n",
    "SV\n",
    "label 1 1\n",
    "rho 0\n",
    "nr_feature 0\n",
    "bias 1\n",
    "w\n",
    "<f8",
    ">i4",
    "|S3",
    "|b1",
    "|O",
    "True",
    "False",
    "()",
    "(1,)",
    "null",
    "true",
    "{}",
    "[]",
    "\"\\ud800\"",
    "balanced",
    "scale",
    "median",
    "GiB",
    "hinge",
    "huber:delta=",
    "sigmoid:eta=",
    "C=",
    "gamma=",
    "--",
    "-o\n",
    "\u{1F4A9}",
];

/// A damaged copy of `input`; parts may come from `others`.
pub(crate) fn mutate(input: &[u8], others: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    // Mostly one or two changes: more of them seldom get past the first check.
    for _ in 0..=(rng.bits().trailing_zeros().min(6)) {
        change(&mut bytes, others, rng);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn change(bytes: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
    let n = bytes.len();
    let at = rng.below(n);
    match rng.below(16) {
        0 if n > 0 => bytes[at] ^= 1 << rng.below(8),
        1 if n > 0 => bytes[at] = rng.bits() as u8,
        2 if n > 0 => bytes[at] = *rng.one(&[0, 1, 9, 10, 13, 32, 34, 44, 45, 58, 127, 128, 254, 255]),
        3 => bytes.truncate(at),
        4 => {
            bytes.drain(at..(at + 1 + rng.below(16)).min(n).max(at));
        }
        5 => {
            let part = bytes[at..(at + 1 + rng.below(64)).min(n)].to_vec();
            let to = rng.below(n + 1);
            bytes.splice(to..to, part);
        }
        6 | 7 => integer(bytes, rng),
        8 | 9 => number(bytes, rng),
        10 => {
            let to = rng.below(n + 1);
            bytes.splice(to..to, rng.one(&WORDS).bytes());
        }
        11 | 12 => line(bytes, rng),
        13 if !others.is_empty() => {
            let other = rng.one(others);
            let from = rng.below(other.len());
            let part = &other[from..(from + 1 + rng.below(256)).min(other.len())];
            let end = (at + rng.below(64)).min(n);
            bytes.splice(at..end, part.iter().copied());
        }
        14 => {
            let part: Vec<u8> = (0..1 + rng.below(8)).map(|_| rng.bits() as u8).collect();
            bytes.splice(at..at, part);
        }
        _ => {
            let count = 1 + rng.below(8);
            let byte = *rng.one(b"0123456789-+.eE:, \n\t\"{}[]()'=#");
            bytes.splice(at..at, std::iter::repeat_n(byte, count));
        }
    }
}

/// Writes an integer at the end of some range over the bytes, of any size and order.
fn integer(bytes: &mut [u8], rng: &mut Rng) {
    let value: u64 = match rng.below(4) {
        0 => rng.below(16) as u64,
        1 => (1u64 << rng.below(64)).wrapping_sub(rng.below(2) as u64),
        2 => u64::MAX - rng.below(16) as u64,
        _ => rng.bits() >> rng.below(64),
    };
    let size = *rng.one(&[1usize, 2, 4, 8]);
    if bytes.len() < size {
        return;
    }
    let at = rng.below(bytes.len() - size + 1);
    let little = value.to_le_bytes();
    bytes[at..at + size].copy_from_slice(&little[..size]);
    if rng.below(2) == 0 {
        bytes[at..at + size].reverse();
    }
}

/// Replaces a number in text.
fn number(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let starts: Vec<usize> = (0..bytes.len())
        .filter(|&i| bytes[i].is_ascii_digit() && (i == 0 || !bytes[i - 1].is_ascii_digit()))
        .take(4096)
        .collect();
    if starts.is_empty() {
        return;
    }
    let at = *rng.one(&starts);
    let end = at + bytes[at..].iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
    bytes.splice(at..end, rng.one(&NUMBERS).bytes());
}

/// Repeats, removes or moves a line.
fn line(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let lines: Vec<Vec<u8>> = bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return;
    }
    let mut lines = lines;
    let (a, b) = (rng.below(lines.len()), rng.below(lines.len()));
    match rng.below(3) {
        0 => {
            let copy = lines[a].clone();
            lines.insert(b, copy);
        }
        1 => {
            lines.remove(a);
        }
        _ => lines.swap(a, b),
    }
    *bytes = lines.concat();
}
