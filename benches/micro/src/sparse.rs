//! Sparse blocks compared with merging two sorted lists.

use std::io::Read;

use margrave_core::backend::cpu::CpuGram;
use margrave_core::data::{Csr, Points};
use margrave_core::gram::{Gram, Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_core::{Control, Threads};

use crate::timing::least;

/// Reads LIBSVM text, gzipped or not; only for well-formed files.
fn read(path: &str) -> Csr<f64> {
    read_labelled(path).0
}

/// The same with the targets.
pub(crate) fn read_labelled(path: &str) -> (Csr<f64>, Vec<f64>) {
    let bytes = std::fs::read(path).expect("a readable file");
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("gzipped text");
    } else {
        text = String::from_utf8(bytes).expect("text");
    }
    let (mut starts, mut columns, mut values, mut d) = (vec![0], Vec::new(), Vec::new(), 0);
    let mut targets = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        targets.push(fields.next().expect("a target").parse().expect("a number"));
        for field in fields {
            let (k, x) = field.split_once(':').expect("index:value");
            let k: u32 = k.parse().expect("an index");
            columns.push(k - 1);
            values.push(x.parse().expect("a number"));
            d = d.max(k as usize);
        }
        starts.push(columns.len());
    }
    (Csr::new(d, starts, columns, values).expect("sorted indices"), targets)
}

/// A node of a row as LIBSVM stores it; index −1 ends the row.
#[derive(Clone, Copy)]
struct Node {
    index: i32,
    value: f64,
}

/// x·y by walking both lists at once.
fn merge(x: &[Node], y: &[Node]) -> f64 {
    let (mut p, mut q, mut sum) = (0, 0, 0.0);
    while x[p].index != -1 && y[q].index != -1 {
        if x[p].index == y[q].index {
            sum += x[p].value * y[q].value;
            p += 1;
            q += 1;
        } else if x[p].index > y[q].index {
            q += 1;
        } else {
            p += 1;
        }
    }
    sum
}

pub(crate) fn run(files: &[&String]) {
    println!(
        "\nSparse RBF blocks, one thread, million entries a second (the merge in double precision, as LIBSVM does)"
    );
    println!(
        "{:>28} {:>6} {:>6} {:>6} {:>5} {:>9} {:>8} {:>7} {:>8} {:>7}",
        "file", "n", "d", "stored", "rows", "merge", "single", "ratio", "double", "ratio"
    );
    for file in files {
        let csr = read(file);
        let (n, d) = (csr.len(), csr.dims());
        let mut nodes = Vec::new();
        let mut starts = Vec::new();
        for i in 0..n {
            starts.push(nodes.len());
            let (columns, values) = csr.row(i);
            nodes.extend(columns.iter().zip(values).map(|(k, x)| Node { index: *k as i32 + 1, value: *x }));
            nodes.push(Node { index: -1, value: 0.0 });
        }
        let stored = csr.stored() as f64 / n as f64;
        let points = Points::from(csr);
        let gamma = 1.0 / d as f64;
        let norms = points.squared_norms();
        let gram = CpuGram::square(Kernel::rbf(gamma), &points).expect("a valid kernel");
        let control = Control::unlimited(Threads::one());
        for rows in [1usize, 2, 16, 256] {
            let list: Vec<u32> = (0..rows).map(|i| (i * 997 % n) as u32).collect();
            let mut out = vec![0f64; rows * n];
            let sample = rows.min(4);
            let merged = least(1, 0.3, || {
                for (r, i) in list[..sample].iter().enumerate() {
                    let i = *i as usize;
                    let x = &nodes[starts[i]..];
                    for j in 0..n {
                        let s = norms[i] + norms[j] - 2.0 * merge(x, &nodes[starts[j]..]);
                        out[r * n + j] = (-gamma * s).exp();
                    }
                }
            }) * rows as f64
                / sample as f64;
            let double = least(1, 0.3, || {
                gram.block_f64(Pick::List(&list), Pick::All, &mut out, &control).expect("no limit");
            });
            let mut out = vec![0f32; rows * n];
            let single = least(1, 0.3, || {
                gram.block_f32(Pick::List(&list), Pick::All, &mut out, &control).expect("no limit");
            });
            let rate = |seconds: f64| 1e-6 * (rows * n) as f64 / seconds;
            let name = file.rsplit('/').next().unwrap_or(file);
            println!(
                "{name:>28} {n:>6} {d:>6} {stored:>6.1} {rows:>5} {:>9.1} {:>8.1} {:>7.1} {:>8.1} {:>7.1}",
                rate(merged),
                rate(single),
                merged / single,
                rate(double),
                merged / double
            );
        }
        let v = vec![1.0; n];
        let some = n.min(2000);
        let mut out = vec![0.0; some];
        let time = least(1, 0.3, || {
            gram.apply(Precision::Double, Pick::Range(0, some), &v, 1, &mut out, &control).expect("no limit");
        });
        println!("{:>28} K·v in double precision: {:.1}", "", 1e-6 * (some * n) as f64 / time);
    }
}
