//! Features on few centres, and the choice of centres, beside the processor.

use margrave_core::backend::{Backend, Device};
use margrave_core::control::{Control, Threads};
use margrave_core::data::Points;
use margrave_core::gram::{Pick, Precision};
use margrave_core::kernel::Kernel;
use margrave_core::linalg::factor::Cholesky;
use margrave_testkit::points;

fn control() -> Control {
    Control::unlimited(Threads::new(4))
}

/// K in double precision on the processor.
fn entries(kernel: Kernel, rows: &Points, cols: &Points) -> Vec<f64> {
    let gram = Device::Cpu.backend().gram(kernel, rows, cols).expect("a Gram");
    let mut k = vec![0.0; rows.len() * cols.len()];
    gram.block_f64(Pick::All, Pick::All, &mut k, &control()).expect("no interrupt");
    k
}

/// F = K·L⁻ᵀ, row-major, and the factor.
fn features(kernel: Kernel, rows: &Points, centres: &Points) -> (Vec<f64>, Cholesky<f64>) {
    let m = centres.len();
    let factor = Cholesky::new(entries(kernel, centres, centres), m, m, &control()).expect("distinct centres");
    let mut f = entries(kernel, rows, centres);
    factor.whiten(&mut f, rows.len(), &Threads::new(4));
    (f, factor)
}

fn close(found: &[f64], expected: &[f64], error: f64, what: &str) {
    let size = expected.iter().fold(1e-300f64, |most, v| most.max(v.abs()));
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst <= error * size, "{what}: off by {worst:e} of {size:e}");
}

#[test]
fn products_with_features_are_those_of_the_processor() {
    let Some(backend) = crate::card() else { return };
    let control = control();
    for (n, m, d, kernel, precision, error) in [
        (9000, 300, 20, Kernel::rbf(0.1), Precision::Single, 2e-3),
        (9000, 300, 20, Kernel::rbf(0.1), Precision::Double, 1e-9),
        (5000, 129, 5, Kernel::Laplacian { gamma: 0.3 }, Precision::Double, 1e-9),
        (4100, 64, 90, Kernel::rbf(0.02), Precision::Double, 1e-9),
    ] {
        let rows = points::dense(n, d, 3);
        let centres = rows.gather(&(0..m as u32).map(|i| 7 * i).collect::<Vec<_>>());
        let (f, factor) = features(kernel, &rows, &centres);
        let gram = backend.gram(kernel, &rows, &centres).expect("a Gram on the card");
        let there = gram.features(&factor, precision).expect("features on the card");
        let w: Vec<f64> = (0..m).map(|j| ((j * 37 % 11) as f64 - 5.0) / 10.0).collect();
        let row = |i: usize| &f[i * m..(i + 1) * m];
        let dot = |i: usize| row(i).iter().zip(&w).map(|(f, w)| f * w).sum::<f64>();
        let some: Vec<u32> = (0..n as u32).filter(|i| i % 3 == 1).collect();
        for pick in [Pick::All, Pick::Range(100, 2500), Pick::List(&some)] {
            let count = pick.len(n);
            let place = |k: usize| pick.get(k);
            let what = format!("{n} × {m} {kernel} {precision:?} {count} rows");
            let expected: Vec<f64> = (0..count).map(|k| dot(place(k))).collect();
            let mut found = vec![f64::NAN; count];
            there.dots(pick, &w, &mut found, &control).expect("products");
            close(&found, &expected, error, &format!("dots, {what}"));
            // Many rows, and few of them.
            for zeros in [false, true] {
                let c: Vec<f64> = (0..count)
                    .map(|k| if zeros && k % 5 > 0 { 0.0 } else { ((k * 31 % 17) as f64 - 8.0) / 8.0 })
                    .collect();
                let mut expected = vec![1.0; m];
                for (k, c) in c.iter().enumerate() {
                    expected.iter_mut().zip(row(place(k))).for_each(|(e, f)| *e += c * f);
                }
                let mut found = vec![1.0; m];
                there.combine(pick, &c, &mut found, &control).expect("products");
                close(&found, &expected, 3.0 * error, &format!("combine, {what}"));
            }
            let weights: Vec<f64> = (0..count).map(|k| 0.5 + (k % 4) as f64).collect();
            let mut both = vec![0.0; m];
            for k in 0..count {
                let by = weights[k] * (dot(place(k)) - 0.25);
                both.iter_mut().zip(row(place(k))).for_each(|(b, f)| *b += by * f);
            }
            let (mut dots, mut found) = (vec![0.0; count], vec![0.0; m]);
            there.curvature_product(pick, &weights, &w, 0.25, &mut dots, &mut found, &control).expect("products");
            close(&dots, &expected, error, &format!("dots of curvature, {what}"));
            close(&found, &both, 3.0 * error, &format!("curvature, {what}"));
            system(there.as_ref(), pick, &weights, &f, m, error, &control, &what);
        }
    }
}

/// The factor of a Newton system solves it.
fn system(
    there: &dyn margrave_core::gram::DeviceFeatures,
    pick: Pick<'_>,
    weights: &[f64],
    f: &[f64],
    m: usize,
    error: f64,
    control: &Control,
    what: &str,
) {
    let bottom: f64 = 3.0 + weights.iter().sum::<f64>();
    let factor = there.curvature_factor(pick, weights, bottom, control).expect("a factor");
    let x: Vec<f64> = (0..m).map(|j| 1.0 + (j % 3) as f64).collect();
    let row = |k: usize| &f[pick.get(k) * m..(pick.get(k) + 1) * m];
    let (mut right, mut h) = (x.clone(), vec![0.0; m]);
    for (k, a) in weights.iter().enumerate() {
        let dot: f64 = row(k).iter().zip(&x).map(|(f, x)| f * x).sum();
        for j in 0..m {
            right[j] += a * dot * row(k)[j];
            h[j] += a * row(k)[j];
        }
    }
    let along: f64 = h.iter().zip(&x).map(|(h, x)| h * x).sum();
    right.iter_mut().zip(&h).for_each(|(r, h)| *r -= along * h / bottom);
    let mut sides = [right];
    assert!(factor.solve(&mut sides), "{what}");
    close(&sides[0], &x, 30.0 * error, &format!("system, {what}"));
}

#[test]
fn pivots_leave_the_residual_of_the_processor() {
    let Some(backend) = crate::card() else { return };
    let control = control();
    let n = 5003;
    for kernel in [Kernel::rbf(0.2), Kernel::Laplacian { gamma: 0.2 }] {
        let points = points::dense(n, 6, 5);
        let gram = backend.square_gram(kernel, &points).expect("a Gram on the card");
        let mut there = gram.pivoted(450).expect("a factor on the card");
        let mut chosen: Vec<u32> = Vec::new();
        let mut residual = vec![1.0; n];
        // Memory that others have used is not zero.
        drop(
            backend
                .square_gram(kernel, &points)
                .expect("a Gram on the card")
                .pivoted(400)
                .map(|mut used| used.extend(&[1, 2, 3], &[f64::NAN; 9], &control)),
        );
        // Of different sizes: less than a step below a tile, and others.
        for (block, size) in [125u32, 40, 127, 66, 92].into_iter().enumerate() {
            let pivots: Vec<u32> = (0..size).map(|i| block as u32 * 1000 + 7 * i).collect();
            let t = pivots.len();
            let mut own = vec![0.0; t * t];
            there.residual(&pivots, &mut own, &control).expect("a residual");
            close(&own, &expected_residual(kernel, &points, &chosen, &pivots), 1e-10, "residual over pivots");
            let factor = Cholesky::new(own, t, t, &control).expect("independent pivots");
            let mut inverse = vec![0.0; t * t];
            for j in 0..t {
                let mut unit = vec![0.0; t];
                unit[j] = 1.0;
                factor.solve_lower(&mut unit, &Threads::one());
                (0..t).for_each(|i| inverse[i * t + j] = unit[i]);
            }
            let squares = there.extend(&pivots, &inverse, &control).expect("new columns");
            residual.iter_mut().zip(&squares).for_each(|(r, s)| *r -= s);
            chosen.extend(pivots);
        }
        let (f, _) = features(kernel, &points, &points.gather(&chosen));
        let expected: Vec<f64> =
            f.chunks(chosen.len()).map(|row| 1.0 - row.iter().map(|f| f * f).sum::<f64>()).collect();
        close(&residual, &expected, 1e-8, "residual diagonal");
        let too_many: Vec<u32> = (0..250).collect();
        let refused = (0..5).any(|_| there.extend(&too_many, &vec![0.0; 250 * 250], &control).is_err());
        assert!(refused, "there is room for 450 pivots and two blocks");
    }
}

/// (K − F·Fᵀ)[rows, rows], F being that of the chosen points.
fn expected_residual(kernel: Kernel, points: &Points, chosen: &[u32], rows: &[u32]) -> Vec<f64> {
    let own = points.gather(rows);
    let mut k = entries(kernel, &own, &own);
    if !chosen.is_empty() {
        let (f, m, t) = (features(kernel, &own, &points.gather(chosen)).0, chosen.len(), rows.len());
        for i in 0..t {
            for j in 0..t {
                k[i * t + j] -= (0..m).map(|c| f[i * m + c] * f[j * m + c]).sum::<f64>();
            }
        }
    }
    k
}

#[test]
fn machines_on_few_centres_are_those_of_the_processor() {
    use margrave_core::solver::nystrom::CentreSearch;
    let Some(backend) = crate::card() else { return };
    let control = control();
    let points = points::dense(6000, 4, 8);
    let there = backend.square_gram(Kernel::rbf(0.5), &points).expect("a Gram on the card");
    let here = Device::Cpu.backend().square_gram(Kernel::rbf(0.5), &points).expect("a Gram");
    let mut a = CentreSearch::new(there.diag(), 1).on_device(there.pivoted(200));
    let mut b = CentreSearch::new(here.diag(), 1);
    a.grow(there.as_ref(), 200, &control).expect("no interrupt");
    b.grow(here.as_ref(), 200, &control).expect("no interrupt");
    // The same draws: residuals differ by rounding only.
    assert_eq!(a.pivots()[..100], b.pivots()[..100]);
    assert!(a.features(10, &Threads::one()).is_none() && b.features(10, &Threads::one()).is_some());
    assert!((a.residual_share() - b.residual_share()).abs() < 1e-3, "{} {}", a.residual_share(), b.residual_share());
}
