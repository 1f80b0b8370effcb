//! The data of the table: drawn here, or read from a folder.

use std::path::Path;

use margrave::io::ReadOptions;
use margrave::{Dataset, Points, Targets};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::Failure;

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Every column to mean 0 and variance 1.
fn standardise(x: &mut [f64], d: usize) {
    let n = (x.len() / d) as f64;
    for k in 0..d {
        let mean = x.iter().skip(k).step_by(d).sum::<f64>() / n;
        let square = x.iter().skip(k).step_by(d).map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        x.iter_mut().skip(k).step_by(d).for_each(|v| *v = (*v - mean) / square.sqrt());
    }
}

/// Sixteen clouds in 50 dimensions, alternating classes, 3 % of the labels turned.
fn gauss16(n: usize) -> (Vec<f64>, Vec<f64>, usize) {
    let (d, mut rng) = (50, ChaCha8Rng::seed_from_u64(1));
    let centres: Vec<f64> = (0..16 * d).map(|_| normal(&mut rng)).collect();
    let (mut x, mut y) = (Vec::with_capacity(n * d), Vec::with_capacity(n));
    for _ in 0..n {
        let k = rng.random_range(0..16usize);
        x.extend((0..d).map(|j| centres[k * d + j] + normal(&mut rng)));
        let label = if k % 2 == 0 { 1.0 } else { -1.0 };
        y.push(if rng.random_bool(0.03) { -label } else { label });
    }
    standardise(&mut x, d);
    (x, y, d)
}

/// S1 of `benches/peers/cells.py`, drawn here: scikit-learn's `make_classification` with 20 informative features in four clusters
/// per class, 10 combinations of them, 20 features of noise, and 3 % of the labels drawn anew; standardised.
fn s1(n: usize) -> (Vec<f64>, Vec<f64>, usize) {
    const INFORMATIVE: usize = 20;
    const REDUNDANT: usize = 10;
    const CLUSTERS: usize = 8;
    let (d, mut rng) = (50, ChaCha8Rng::seed_from_u64(4));
    // Corners of a cube, every cluster with a covariance of its own.
    let corners: Vec<f64> =
        (0..CLUSTERS * INFORMATIVE).map(|_| if rng.random_bool(0.5) { 1.0 } else { -1.0 }).collect();
    let mut entries = |count: usize| -> Vec<f64> { (0..count).map(|_| rng.random_range(-1.0..1.0)).collect() };
    let shapes: Vec<Vec<f64>> = (0..CLUSTERS).map(|_| entries(INFORMATIVE * INFORMATIVE)).collect();
    let combined = entries(INFORMATIVE * REDUNDANT);
    let times = |row: &[f64], matrix: &[f64], width: usize| -> Vec<f64> {
        (0..width).map(|k| row.iter().enumerate().map(|(j, v)| v * matrix[j * width + k]).sum()).collect()
    };
    let (mut x, mut y) = (Vec::with_capacity(n * d), Vec::with_capacity(n));
    for _ in 0..n {
        let cluster = rng.random_range(0..CLUSTERS);
        let drawn: Vec<f64> = (0..INFORMATIVE).map(|_| normal(&mut rng)).collect();
        let mut row = times(&drawn, &shapes[cluster], INFORMATIVE);
        row.iter_mut().zip(&corners[cluster * INFORMATIVE..]).for_each(|(v, corner)| *v += corner);
        let redundant = times(&row, &combined, REDUNDANT);
        x.extend(row.into_iter().chain(redundant));
        x.extend((INFORMATIVE + REDUNDANT..d).map(|_| normal(&mut rng)));
        let class = if rng.random_bool(0.03) { rng.random_range(0..2) } else { cluster % 2 };
        y.push(if class == 0 { -1.0 } else { 1.0 });
    }
    standardise(&mut x, d);
    (x, y, d)
}

/// A board of 4 × 4 squares, turned into 20 dimensions, 5 % of the labels turned.
fn checker(n: usize) -> (Vec<f64>, Vec<f64>, usize) {
    let (d, mut rng) = (20, ChaCha8Rng::seed_from_u64(2));
    let mut axes: Vec<Vec<f64>> = (0..2).map(|_| (0..d).map(|_| normal(&mut rng)).collect()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let along = dot(&axes[0], &axes[1]) / dot(&axes[0], &axes[0]);
    for k in 0..d {
        axes[1][k] -= along * axes[0][k];
    }
    let lengths: Vec<f64> = axes.iter().map(|a| dot(a, a).sqrt()).collect();
    let (mut x, mut y) = (Vec::with_capacity(n * d), Vec::with_capacity(n));
    for _ in 0..n {
        let (u, v) = (rng.random_range(0.0..4.0f64), rng.random_range(0.0..4.0f64));
        for k in 0..d {
            let plane = (u - 2.0) * axes[0][k] / lengths[0] + (v - 2.0) * axes[1][k] / lengths[1];
            x.push(plane + 0.03 * normal(&mut rng));
        }
        let label = if (u.floor() + v.floor()) % 2.0 == 0.0 { 1.0 } else { -1.0 };
        y.push(if rng.random_bool(0.05) { -label } else { label });
    }
    (x, y, d)
}

/// Regression: waves in 20 dimensions with noise.
fn sine(n: usize) -> (Vec<f64>, Vec<f64>, usize) {
    let (d, mut rng) = (20, ChaCha8Rng::seed_from_u64(3));
    let (mut x, mut y) = (Vec::with_capacity(n * d), Vec::with_capacity(n));
    for _ in 0..n {
        let row: Vec<f64> = (0..d).map(|_| normal(&mut rng)).collect();
        y.push((2.0 * row[0]).sin() + row[1] * row[2] + 0.1 * normal(&mut rng));
        x.extend(row);
    }
    (x, y, d)
}

/// Data of a name that is drawn here.
pub(crate) fn drawn(name: &str, n: usize) -> Result<Dataset, Failure> {
    let (x, y, d) = match name {
        "gauss16" => gauss16(n),
        "checker" => checker(n),
        "s1" => s1(n),
        _ => sine(n),
    };
    let x: Vec<f32> = x.iter().map(|v| *v as f32).collect();
    Ok(Dataset::new(Points::dense_f32(n, d, x)?, Targets::Real(y))?)
}

/// Data of a name that another program has drawn: `NAME.N.x`, rows of 50 32-bit numbers, and `NAME.N.y`, 1 and −1 likewise.
pub(crate) fn given(folder: &Path, name: &str, n: usize) -> Result<Option<Dataset>, Failure> {
    let numbers = |what: &str| -> std::io::Result<Vec<f32>> {
        let bytes = std::fs::read(folder.join(format!("{name}.{n}.{what}")))?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    };
    match numbers("x") {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        x => {
            let y = numbers("y")?.iter().map(|y| f64::from(*y)).collect();
            Ok(Some(Dataset::new(Points::dense_f32(n, 50, x?)?, Targets::Real(y))?))
        }
    }
}

/// covtype, class 2 against the rest, features scaled to [0, 1].
pub(crate) fn covtype(folder: &Path, n: usize) -> Result<Dataset, Failure> {
    let options = ReadOptions { single: true, ..ReadOptions::default() };
    let data = margrave::io::load(folder.join("covtype.csv.gz"), &options)?.data;
    let Targets::Real(classes) = &data.targets else { return Err("covtype: classes are numbers".into()) };
    let y: Vec<f64> = classes.iter().map(|c| if *c == 2.0 { 1.0 } else { -1.0 }).collect();
    let (d, mut row) = (data.points.dims(), vec![0.0; data.points.dims()]);
    let (mut least, mut most) = (vec![f64::INFINITY; d], vec![f64::NEG_INFINITY; d]);
    let rows: Vec<f64> = (0..data.points.len())
        .flat_map(|i| {
            data.points.copy_row(i, &mut row);
            row.clone()
        })
        .collect();
    for line in rows.chunks_exact(d) {
        for k in 0..d {
            least[k] = least[k].min(line[k]);
            most[k] = most[k].max(line[k]);
        }
    }
    let range = |k: usize| if most[k] > least[k] { most[k] - least[k] } else { 1.0 };
    let x: Vec<f32> = rows.iter().enumerate().map(|(i, v)| ((v - least[i % d]) / range(i % d)) as f32).collect();
    let all = Dataset::new(Points::dense_f32(y.len(), d, x)?, Targets::Real(y))?;
    if n >= all.len() {
        return Ok(all);
    }
    // Rows of one class follow each other: a part is taken from everywhere.
    let rows: Vec<u32> = (0..n).map(|i| (i as u64 * all.len() as u64 / n as u64) as u32).collect();
    Ok(all.part(&rows)?)
}

/// MNIST, pixels from 0 to 1; `part`: "train" or "t10k".
pub(crate) fn mnist(folder: &Path, part: &str) -> Result<Dataset, Failure> {
    let labels = folder.join(format!("mnist_{part}_labels.idx1"));
    let options = ReadOptions { single: true, target_file: Some(labels), ..ReadOptions::default() };
    let data = margrave::io::load(folder.join(format!("mnist_{part}_images.idx3.gz")), &options)?.data;
    let mut row = vec![0.0; data.points.dims()];
    let mut x = Vec::with_capacity(data.points.len() * row.len());
    let mut largest = 0.0f64;
    for i in 0..data.points.len() {
        data.points.copy_row(i, &mut row);
        row.iter().for_each(|v| largest = largest.max(*v));
        x.extend(row.iter().map(|v| *v as f32));
    }
    if largest > 1.0 {
        x.iter_mut().for_each(|v| *v /= 255.0);
    }
    Ok(Dataset::new(Points::dense_f32(data.points.len(), row.len(), x)?, data.targets)?)
}

/// Letters, features as they are; `part`: "" or ".t".
pub(crate) fn letter(folder: &Path, part: &str) -> Result<Dataset, Failure> {
    Ok(margrave::load(folder.join(format!("letter_scale{part}.svm.gz")))?)
}
