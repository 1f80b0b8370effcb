use rand::{RngExt, SeedableRng};

use super::*;

fn spd(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let x: Vec<f64> = (0..n * 3).map(|_| rng.random_range(-2.0..2.0)).collect();
    let mut k = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..n {
            let d: f64 = (0..3).map(|c| (x[i * 3 + c] - x[j * 3 + c]).powi(2)).sum();
            k[i * n + j] = (-d).exp() + if i == j { 0.1 } else { 0.0 };
        }
    }
    k
}

fn residual(k: &[f64], n: usize, x: &[f64], r: &[f64], skip: &[u32]) -> f64 {
    (0..n)
        .filter(|i| !skip.contains(&(*i as u32)))
        .map(|i| ((0..n).map(|j| k[i * n + j] * x[j]).sum::<f64>() - r[i]).abs())
        .fold(0.0, f64::max)
}

#[test]
fn solves_and_is_the_same_on_any_number_of_threads() {
    for n in [1, 2, 100, 700] {
        let k = spd(n, 1);
        let r: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
        let mut answers = Vec::new();
        for threads in [1, 2, 3] {
            let control = Control::unlimited(Threads::new(threads));
            let factor = Cholesky::new(k.clone(), n, n, &control).unwrap();
            let mut x = r.clone();
            factor.solve(&mut x);
            assert!(residual(&k, n, &x, &r, &[]) < 1e-10);
            answers.push(x);
        }
        assert!(answers[0] == answers[1] && answers[1] == answers[2]);
    }
}

#[test]
fn appending_equals_factoring_the_whole() {
    let (n, m) = (300, 290);
    let k = spd(n + m, 2);
    let all = n + m;
    let control = Control::unlimited(Threads::one());
    let pick = |r0: usize, rows: usize, c0: usize, cols: usize| -> Vec<f64> {
        (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))).map(|(i, j)| k[(r0 + i) * all + c0 + j]).collect()
    };
    let mut factor = Cholesky::new(pick(0, n, 0, n), n, n, &control).unwrap();
    factor.append(pick(n, m, 0, n), &pick(n, m, n, m), m, &control).unwrap();
    let r: Vec<f64> = (0..all).map(|i| (i as f64).cos()).collect();
    let mut x = r.clone();
    factor.solve(&mut x);
    assert!(residual(&k, all, &x, &r, &[]) < 1e-10);
}

#[test]
fn entries_above_the_diagonal_are_kept_while_the_factor_grows() {
    let (n, m) = (700, 90);
    let total = n + m;
    let k = spd(total, 4);
    let control = Control::unlimited(Threads::new(2));
    for ld in [n, total + 5] {
        let mut square = vec![0.0; ld * ld];
        let mut diag = vec![0.0; n];
        for i in 0..n {
            diag[i] = k[i * total + i];
            (i + 1..n).for_each(|j| square[i * ld + j] = k[i * total + j]);
        }
        let mut factor = Cholesky::from_above(square, n, ld, &diag, &control).map_err(|e| e.1).unwrap();
        let cross: Vec<f64> = (n..total).flat_map(|i| k[i * total..i * total + n].to_vec()).collect();
        let own: Vec<f64> = (n..total).flat_map(|i| k[i * total + n..(i + 1) * total].to_vec()).collect();
        factor.append(cross, &own, m, &control).unwrap();
        factor.fill_above(total, &control.threads, |i, row| {
            if i >= n {
                row.copy_from_slice(&k[i * total + i + 1..(i + 1) * total]);
            } else {
                row[n - i - 1..].copy_from_slice(&k[i * total + n..(i + 1) * total]);
            }
        });
        for i in 0..total {
            assert_eq!(factor.above(i), &k[i * total + i + 1..(i + 1) * total], "row {i}, rows of {ld}");
        }
        let r: Vec<f64> = (0..total).map(|i| (i as f64).sin()).collect();
        let mut x = r.clone();
        factor.solve_on(&mut x, &control.threads);
        assert!(residual(&k, total, &x, &r, &[]) < 1e-8, "rows of {ld}");
        let mut alone = r.clone();
        factor.solve(&mut alone);
        assert_eq!(alone, x, "the same bits on one thread");
    }
}

#[test]
fn held_variables_stay_zero_and_the_others_solve_their_own_system() {
    let n = 400;
    let k = spd(n, 3);
    let control = Control::unlimited(Threads::new(2));
    let mut factor = Cholesky::new(k.clone(), n, n, &control).unwrap();
    let which: Vec<u32> = (0..n as u32).filter(|i| i % 7 == 3).collect();
    factor.hold(&which[..20], &control).unwrap();
    factor.hold_also(&which[20..], &control).unwrap();
    let r: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
    let mut x = r.clone();
    factor.solve(&mut x);
    assert!(which.iter().all(|&i| x[i as usize] == 0.0));
    assert!(residual(&k, n, &x, &r, &which) < 1e-10);
    factor.hold(&[], &control).unwrap();
    let mut x = r.clone();
    factor.solve(&mut x);
    assert!(residual(&k, n, &x, &r, &[]) < 1e-10);
}

/// More held variables than a tile of their products has, and a second list that crosses one.
#[test]
fn many_held_variables_give_the_same_bits_on_any_number_of_threads() {
    let n = 900;
    let k = spd(n, 9);
    let which: Vec<u32> = (0..n as u32).filter(|i| i % 2 == 1).collect();
    let r: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
    let solved = |threads: usize| {
        let control = Control::unlimited(Threads::new(threads));
        let mut factor = Cholesky::new(k.clone(), n, n, &control).unwrap();
        factor.hold(&which[..300], &control).unwrap();
        factor.hold_also(&which[300..], &control).unwrap();
        let mut x = r.clone();
        factor.solve_on(&mut x, &control.threads);
        x
    };
    let x = solved(1);
    assert!(which.iter().all(|&i| x[i as usize] == 0.0));
    assert!(residual(&k, n, &x, &r, &which) < 1e-10);
    assert_eq!(x, solved(2));
    assert_eq!(x, solved(3));
}

/// `hold_also` adds held variables, `hold` with others starts over. In both cases the remaining variables solve their
/// own system.
#[test]
fn the_set_of_held_variables_can_grow_and_change() {
    let n = 120;
    let k = spd(n, 6);
    let control = Control::unlimited(Threads::one());
    let mut factor = Cholesky::new(k.clone(), n, n, &control).unwrap();
    let r: Vec<f64> = (0..n).map(|i| (i as f64).cos()).collect();
    let lists: [&[u32]; 6] = [&[7, 3], &[3, 7, 50], &[50, 3, 7], &[3, 50], &[9, 3, 50, 119, 0], &[]];
    for which in lists {
        factor.hold(which, &control).unwrap();
        let mut x = r.clone();
        factor.solve(&mut x);
        assert!((0..n as u32).all(|i| (x[i as usize] == 0.0) == which.contains(&i)), "{which:?}");
        assert!(residual(&k, n, &x, &r, which) < 1e-10, "{which:?}");
    }
}

#[test]
fn the_diagonal_of_the_inverse_is_that_of_solved_unit_vectors() {
    let n = 150;
    let control = Control::unlimited(Threads::new(2));
    let factor = Cholesky::new(spd(n, 4), n, n, &control).unwrap();
    let found = factor.inverse_diag(&control).unwrap();
    for i in 0..n {
        let mut e = vec![0.0; n];
        e[i] = 1.0;
        factor.solve(&mut e);
        assert!((found[i] - e[i]).abs() < 1e-10 * e[i].abs(), "{i}: {} and {}", found[i], e[i]);
    }
}

#[test]
fn a_singular_matrix_is_reported_with_its_pivot() {
    let control = Control::unlimited(Threads::one());
    let error = Cholesky::new(vec![1.0, 0.0, 1.0, 1.0], 2, 2, &control).unwrap_err();
    assert_eq!(error, FactorError::NotPositive(1));
}
