use std::sync::atomic::{AtomicUsize, Ordering};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::control::Threads;
use crate::data::ScaleKind;

/// Rows in memory, handed out in blocks of different sizes and storages.
struct InBlocks {
    parts: Vec<Points>,
    starts: Vec<usize>,
    reads: AtomicUsize,
}

impl InBlocks {
    fn new(points: &Points, sizes: &[usize]) -> Self {
        let (mut parts, mut starts, mut at) = (Vec::new(), Vec::new(), 0);
        for size in sizes {
            let rows: Vec<u32> = (at..at + size).map(|i| i as u32).collect();
            starts.push(at);
            parts.push(points.gather(&rows));
            at += size;
        }
        assert_eq!(at, points.len());
        Self { parts, starts, reads: AtomicUsize::new(0) }
    }
}

impl Matrix for InBlocks {
    fn rows(&self) -> usize {
        self.parts.iter().map(Points::len).sum()
    }
    fn dims(&self) -> usize {
        self.parts[0].dims()
    }
    fn stored(&self) -> usize {
        self.parts.iter().map(Points::stored).sum()
    }
    fn blocks(&self) -> usize {
        self.parts.len()
    }
    fn block_start(&self, block: usize) -> usize {
        self.starts[block]
    }
    fn each_block(
        &self,
        order: &[u32],
        control: &Control,
        work: &mut dyn FnMut(usize, &Points) -> Result<(), Interrupt>,
    ) -> Result<(), Interrupt> {
        for &k in order {
            control.check()?;
            self.reads.fetch_add(1, Ordering::Relaxed);
            work(self.starts[k as usize], &self.parts[k as usize])?;
        }
        Ok(())
    }
    fn dots(&self, _: Pick<'_>, _: &[f64], _: &mut [f64], _: &Control) -> Result<(), Interrupt> {
        unreachable!("kernels need the rows themselves")
    }
    fn combine(&self, _: Pick<'_>, _: &[f64], _: &mut [f64], _: &Control) -> Result<(), Interrupt> {
        unreachable!("kernels need the rows themselves")
    }
    fn moments(
        &self,
        _: Pick<'_>,
        _: &[f64],
        _: &[f64],
        _: &mut [f64],
        _: &mut [f64],
        _: &Control,
    ) -> Result<(), Interrupt> {
        unreachable!("kernels need the rows themselves")
    }
    fn squares(&self, _: Pick<'_>, _: &[f64], _: &mut [f64], _: &Control) -> Result<(), Interrupt> {
        unreachable!("kernels need the rows themselves")
    }
}

fn control() -> Control {
    Control::unlimited(Threads::new(2))
}

fn uniform(n: usize, d: usize, seed: u64) -> Points {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Points::dense_f64(n, d, (0..n * d).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f64>>()).unwrap()
}

fn close(a: &[f64], b: &[f64]) {
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= 1e-10 * (1.0 + b.abs()), "{a} {b}");
    }
}

/// Every product and block is that of the rows in memory, for selections in any order.
#[test]
fn blocks_give_the_same_kernel_matrix() {
    let (points, others, c) = (uniform(700, 5, 1), uniform(40, 5, 2), control());
    let blocks = InBlocks::new(&points, &[3, 250, 1, 346, 100]);
    let scaling = Scaling::fit(ScaleKind::Standard, &points);
    let scaled = scaling.apply(&points).unwrap();
    let memory = RowSource::Memory(scaled);
    let stream = RowSource::Stream(Arc::new(RowStream::new(&blocks, Some(scaling), &c).unwrap()));
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let list: Vec<u32> = (0..90).map(|_| rng.random_range(0..700)).collect();
    let mut sorted = list.clone();
    sorted.sort_unstable();
    let picks = [Pick::All, Pick::Range(2, 500), Pick::Range(253, 254), Pick::List(&sorted), Pick::List(&list)];
    for kernel in
        [Kernel::rbf(0.3), Kernel::Poly { gamma: 0.5, coef0: 1.0, degree: 2 }, Kernel::Laplacian { gamma: 0.2 }]
    {
        let pairs = [
            (memory.gram(kernel, &others, &c).unwrap(), stream.gram(kernel, &others, &c).unwrap()),
            (
                memory.transposed_gram(kernel, &others, &c).unwrap(),
                stream.transposed_gram(kernel, &others, &c).unwrap(),
            ),
            (memory.square_gram(kernel, &c).unwrap(), stream.square_gram(kernel, &c).unwrap()),
        ];
        for (at, (whole, parts)) in pairs.iter().enumerate() {
            assert_eq!(whole.shape(), parts.shape());
            let (n, m) = whole.shape();
            let v: Vec<f64> = (0..m).map(|j| if j % 3 == 0 { 0.0 } else { rng.random_range(-1.0..1.0) }).collect();
            for rows in picks.iter().filter(|rows| at != 1 || matches!(rows, Pick::All)) {
                let height = rows.len(n);
                let (mut a, mut b) = (vec![0.0; height], vec![0.0; height]);
                whole.apply(Precision::Double, *rows, &v, 1, &mut a, &c).unwrap();
                parts.apply(Precision::Double, *rows, &v, 1, &mut b, &c).unwrap();
                close(&b, &a);
                let cols = if at == 1 { Pick::List(&sorted) } else { Pick::Range(1, 30) };
                let width = cols.len(m);
                let (mut a, mut b) = (vec![0.0; height * width], vec![0.0; height * width]);
                whole.block_f64(*rows, cols, &mut a, &c).unwrap();
                parts.block_f64(*rows, cols, &mut b, &c).unwrap();
                close(&b, &a);
            }
        }
        let (whole, parts) = &pairs[2];
        close(&parts.diag(), &whole.diag());
        let (of_whole, of_parts) = (whole.accuracy(), parts.accuracy());
        close(&of_parts.size, &of_whole.size);
        assert!(of_parts.relative >= of_whole.relative && of_parts.definite == of_whole.definite);
    }
}

/// Rows are gathered in the order asked for, whatever the storage of their blocks.
#[test]
fn gathered_rows_are_in_order() {
    let c = control();
    let dense = uniform(50, 4, 5);
    let mut blocks = InBlocks::new(&dense, &[20, 20, 10]);
    let single: Vec<f32> = (0..80).map(|k| k as f32).collect();
    blocks.parts[1] = Points::dense_f32(20, 4, single).unwrap();
    let stream = RowSource::Stream(Arc::new(RowStream::new(&blocks, None, &c).unwrap()));
    let rows = [49, 0, 21, 21, 5, 39];
    let got = stream.gather(&rows, &c).unwrap();
    let (mut a, mut b) = ([0.0; 4], [0.0; 4]);
    for (at, &row) in rows.iter().enumerate() {
        let block = if row < 20 {
            0
        } else if row < 40 {
            1
        } else {
            2
        };
        got.copy_row(at, &mut a);
        blocks.parts[block].copy_row(row as usize - blocks.starts[block], &mut b);
        assert_eq!(a, b);
    }
}

/// The threads of a parallel loop over rows are at as many places at once, in ascending order each: no block is read twice.
#[test]
fn a_loop_on_many_threads_reads_every_block_once() {
    let (threads, n) = (8, 960);
    let c = Control::unlimited(Threads::new(threads));
    let blocks = InBlocks::new(&uniform(n, 3, 6), &[20; 48]);
    let stream = RowSource::Stream(Arc::new(RowStream::new(&blocks, None, &c).unwrap()));
    let gram = stream.gram(Kernel::rbf(0.5), &uniform(4, 3, 7), &c).unwrap();
    let before = blocks.reads.load(Ordering::Relaxed);
    let mut out = vec![0.0; 5 * 4];
    for at in (0..n / threads).step_by(5) {
        for thread in 0..threads {
            let from = thread * (n / threads) + at;
            gram.block_f64(Pick::Range(from, from + 5), Pick::All, &mut out, &c).unwrap();
        }
    }
    assert_eq!(blocks.reads.load(Ordering::Relaxed) - before, 48);
}

/// The bound on rounding that holds for every block is at least that of any set of points.
#[test]
fn the_largest_error_covers_every_choice() {
    let c = control();
    for (scale, d) in [(1e-3, 1), (1.0, 7), (300.0, 40), (1e6, 3)] {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let values: Vec<f64> = (0..60 * d).map(|_| scale * rng.random_range(-1.0..1.0)).collect();
        let points = Points::dense_f64(60, d, values).unwrap();
        let absolute = (0..60).fold(0.0f64, |most, i| {
            let mut sum = 0.0;
            points.visit(i, |_, v| sum += v.abs());
            most.max(sum)
        });
        for kernel in
            [Kernel::rbf(0.7), Kernel::Laplacian { gamma: 2.0 }, Kernel::Matern32 { gamma: 1.0 }, Kernel::Linear]
        {
            let own = c.backend().square_gram(kernel, &points).unwrap().accuracy().relative;
            assert!(own <= cpu::largest_double_error(&kernel, d, d, absolute), "{kernel} {scale} {d} {own}");
        }
    }
}
