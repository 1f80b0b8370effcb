//! Which rows are shown, and what kind of support vectors they are.

use std::collections::HashMap;

use margrave::engine::model::Scheme;

use super::{loss_of, loss_target};
use crate::session::Trained;

/// At most `most` of `n` rows, evenly spread.
pub(crate) fn spread_rows(n: usize, most: usize) -> Vec<u32> {
    if n <= most {
        return (0..n as u32).collect();
    }
    (0..most).map(|k| (k * n / most) as u32).collect()
}

/// β and the kind of every support vector of one machine.
pub(crate) struct Kinds {
    by_row: HashMap<u32, (f64, u8)>,
    ordered: Vec<u32>,
}

impl Kinds {
    /// Of machine `output` of a model.
    pub(crate) fn new(trained: &Trained, output: usize) -> Self {
        let model = trained.fit.model();
        let f = &model.expansion;
        let rho = model.machines.get(output).map_or(1.0, |record| record.rho);
        let loss = loss_of(trained);
        let single = model.scheme == Scheme::One;
        let (mut by_row, mut ordered) = (HashMap::new(), Vec::new());
        for (at, (&row, coefficient)) in f.rows().iter().zip(f.column(output)).enumerate() {
            let beta = coefficient * rho;
            if beta == 0.0 {
                continue;
            }
            let cost = model.costs.get(at).copied().unwrap_or(f64::INFINITY);
            // The box of β, or without one the cost itself, which bounds β in ν-formulations.
            let term = loss.as_ref().filter(|_| single).map(|loss| {
                let y = loss_target(&trained.data, model.task, row as usize);
                loss.dual(y, cost).map_or((f64::NEG_INFINITY, f64::INFINITY), |h| (h.lo, h.hi))
            });
            let (low, high) = term.unwrap_or((-cost, cost));
            let edge = if beta > 0.0 { high } else { -low };
            let bounded = beta.abs() >= edge * (1.0 - 1e-12);
            by_row.insert(row, (beta, if bounded { 2 } else { 1 }));
            ordered.push(row);
        }
        Self { by_row, ordered }
    }

    /// β and kind of a row: 0 none, 1 free, 2 bounded.
    pub(crate) fn of(&self, row: u32) -> (f64, u8) {
        self.by_row.get(&row).copied().unwrap_or((0.0, 0))
    }

    /// At most `most` of `n` rows: the demanded ones, then support vectors, then the others, evenly spread.
    pub(crate) fn rows(&self, n: usize, most: usize, demanded: &[u32]) -> Vec<u32> {
        if n <= most {
            return (0..n as u32).collect();
        }
        let mut chosen = vec![false; n];
        let mut count = 0;
        let mut take = |row: u32, room: usize| {
            if let Some(place) = chosen.get_mut(row as usize)
                && !*place
                && count < room
            {
                *place = true;
                count += 1;
            }
        };
        demanded.iter().for_each(|row| take(*row, most));
        // Some rows that are not support vectors are always shown.
        let room = most - most / 4;
        spread_rows(self.ordered.len(), room).into_iter().for_each(|at| take(self.ordered[at as usize], room));
        spread_rows(n, most).into_iter().for_each(|row| take(row, most));
        (0..n as u32).filter(|row| chosen[*row as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn support_vectors_and_demanded_rows_survive_thinning() {
        let ordered: Vec<u32> = (500..520).collect();
        let by_row = ordered.iter().map(|row| (*row, (0.5, 1))).collect();
        let kinds = Kinds { by_row, ordered };
        let rows = kinds.rows(100_000, 100, &[77_777, 3]);
        assert!(rows.len() <= 100 && rows.windows(2).all(|w| w[0] < w[1]));
        assert!((500..520).all(|row| rows.contains(&row)) && rows.contains(&77_777) && rows.contains(&3));
        assert_eq!((kinds.of(501), kinds.of(1)), ((0.5, 1), (0.0, 0)));
        assert_eq!(spread_rows(3, 10), [0, 1, 2]);
        // Demanded rows outside the data are ignored.
        assert_eq!(kinds.rows(1000, 50, &[5000]).len(), 50);
    }
}
