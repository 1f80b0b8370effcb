//! Dropping combinations early that fall too far behind.
//!
//! After each fold the combination with the best mean is the leader. Another is dropped when, over the rows held out so far,
//! the sum of its losses minus the leader's exceeds `z` times the root of the summed squares of the differences. For labels:
//! when it is the wrong one on more than ½(m + z√m) of the m rows on which the two disagree. If the two were equally good,
//! the signs of the differences would be fair coin flips, and this would happen with probability at most exp(−z²/2)
//! (Hoeffding), in practice about Φ(−z). With z = 4 that is 3·10⁻⁵ per comparison; the winner of the full search takes part in
//! at most (folds − 1) comparisons with a given leader. Rows are assumed independent, which rows of one group are not.
//!
//! That is for scores that are means of losses of rows (accuracy, balanced accuracy with the losses of a class divided by its
//! size, squared, absolute and pinball errors). For others `judge.rs` resamples the rows: the leader's lead is compared with `z`
//! times its deviation over the resamples. Scores of probabilities are known only after the last fold and have no race.

use super::search::CellState;

/// Whether losses `b` exceed losses `a` by more than chance explains.
pub(super) fn worse(z: f64, a: &[Option<Vec<f32>>], b: &[Option<Vec<f32>>]) -> bool {
    let (mut sum, mut squares) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (Some(a), Some(b)) = (a, b) else { continue };
        for (a, b) in a.iter().zip(b) {
            let d = f64::from(*b) - f64::from(*a);
            sum += d;
            squares += d * d;
        }
    }
    sum > 0.0 && sum > z * squares.sqrt()
}

/// Whether a cell takes part in a race after `most` folds.
pub(super) fn in_race(p: &CellState, most: usize) -> bool {
    !p.cell.dropped && p.cell.folds.len() == most
}

/// The cell that leads among those trained on the most folds, and that number. `known`: whether its rows can be compared.
pub(super) fn leader(cells: &[CellState], known: impl Fn(&CellState) -> bool) -> Option<(usize, usize)> {
    let live = |p: &CellState| !p.cell.dropped && known(p);
    let most = cells.iter().filter(|p| live(p)).map(|p| p.cell.folds.len()).max()?;
    let mut leader: Option<(usize, f64)> = None;
    for (at, p) in cells.iter().enumerate().filter(|(_, p)| live(p) && p.cell.folds.len() == most) {
        let Some(mean) = p.cell.seen() else { continue };
        if leader.is_none_or(|(_, top)| mean > top) {
            leader = Some((at, mean));
        }
    }
    leader.map(|(at, _)| (at, most))
}

/// Drops the cells that are worse than the leader. Only cells trained on as many folds are compared.
pub(super) fn leave_out(leader: usize, most: usize, cells: &mut [CellState], worse: impl Fn(&CellState) -> bool) {
    for (at, p) in cells.iter_mut().enumerate() {
        if at != leader && in_race(p, most) && worse(p) {
            p.cell.dropped = true;
            p.machines.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_chance_does_not_explain_is_worse() {
        let some = |wrong: &[usize]| {
            let mut v = vec![0f32; 100];
            wrong.iter().for_each(|&i| v[i] = 1.0);
            vec![Some(v), None]
        };
        let good = some(&[0, 1, 2]);
        let twenty: Vec<usize> = (10..30).collect();
        // 20 + 3 rows of disagreement, 17 more losses: 17 < 4·√23 = 19.2, but more than 3·√23.
        assert!(!worse(4.0, &good, &some(&twenty)) && worse(3.0, &good, &some(&twenty)));
        let thirty: Vec<usize> = (10..40).collect();
        assert!(worse(4.0, &good, &some(&thirty)));
        assert!(!worse(4.0, &some(&thirty), &good) && !worse(4.0, &good, &good));
        // Folds on which one of them was not trained are ignored.
        assert!(!worse(4.0, &[None, None], &some(&thirty)));
    }
}
