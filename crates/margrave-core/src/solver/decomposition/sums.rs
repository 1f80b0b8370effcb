//! Multipliers of the sums in a linear system over several groups.

/// Solves S·m = r; S is symmetric and positive semi-definite, one row per group. A group in which nothing can move has multiplier 0.
///
/// Groups must be eliminated together: their variables are coupled by K, and correcting one sum after the other changes the
/// first again.
pub(super) fn multipliers(s: &[Vec<f64>], r: &[f64]) -> Vec<f64> {
    let inverse = inverse(s);
    (0..r.len()).map(|k| (0..r.len()).map(|j| inverse[k * r.len() + j] * r[j]).sum()).collect()
}

/// The inverse of a small symmetric positive matrix by elimination; rows without a positive pivot become zero.
pub(super) fn inverse(rows: &[Vec<f64>]) -> Vec<f64> {
    let n = rows.len();
    let mut a: Vec<f64> = rows.iter().flatten().copied().collect();
    let mut inv = vec![0.0; n * n];
    (0..n).for_each(|i| inv[i * n + i] = 1.0);
    let scale = (0..n).map(|i| a[i * n + i]).fold(0.0, f64::max);
    let mut without_pivot = vec![false; n];
    for p in 0..n {
        let pivot = a[p * n + p];
        if !(pivot > 1e-14 * scale) {
            without_pivot[p] = true;
            continue;
        }
        for j in 0..n {
            a[p * n + j] /= pivot;
            inv[p * n + j] /= pivot;
        }
        for i in (0..n).filter(|&i| i != p) {
            let by = a[i * n + p];
            for j in 0..n {
                a[i * n + j] -= by * a[p * n + j];
                inv[i * n + j] -= by * inv[p * n + j];
            }
        }
    }
    for p in (0..n).filter(|&p| without_pivot[p]) {
        (0..n).for_each(|j| {
            inv[p * n + j] = 0.0;
            inv[j * n + p] = 0.0;
        });
    }
    inv
}

#[cfg(test)]
mod tests {
    use super::multipliers;

    #[test]
    fn coupled_groups_are_solved_together() {
        let s = [vec![2.0, 1.0, 0.0], vec![1.0, 3.0, 0.5], vec![0.0, 0.5, 1.0]];
        let m = multipliers(&s, &[1.0, -2.0, 0.25]);
        for (row, r) in s.iter().zip([1.0, -2.0, 0.25]) {
            let product: f64 = row.iter().zip(&m).map(|(s, m)| s * m).sum();
            assert!((product - r).abs() < 1e-14, "{m:?}");
        }
    }

    #[test]
    fn groups_in_which_nothing_moves_are_left_out() {
        let m = multipliers(&[vec![0.0, 0.0], vec![0.0, 4.0]], &[0.0, 2.0]);
        assert_eq!(m, [0.0, 0.5]);
        // The second group moves with the first.
        assert_eq!(multipliers(&[vec![1.0, 1.0], vec![1.0, 1.0]], &[3.0, 3.0]), [3.0, 0.0]);
    }
}
