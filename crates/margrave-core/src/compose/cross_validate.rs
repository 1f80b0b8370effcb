//! Folds: which rows are held out together.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};

/// How rows are assigned to folds.
#[derive(Debug, Clone, Copy)]
pub enum Deal<'a> {
    /// At random.
    Plain,
    /// At random, each class spread evenly: the class of each row.
    Stratified(&'a [u32]),
    /// Whole groups at random, the larger ones first into the smallest fold: the group of each row.
    Grouped(&'a [u32]),
}

/// The fold of each row, 0 ≤ fold < k; the same for the same seed. Fails unless every fold gets a row.
pub fn folds(n: usize, k: usize, deal: Deal<'_>, seed: u64) -> Result<Vec<u32>> {
    if k < 2 || k > n {
        return Err(Error::option("folds", k, format!("at least 2 and at most the number of rows, {n}")));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut fold = vec![0u32; n];
    match deal {
        Deal::Plain => {
            let mut rows: Vec<u32> = (0..n as u32).collect();
            rows.shuffle(&mut rng);
            rows.iter().enumerate().for_each(|(at, &row)| fold[row as usize] = (at % k) as u32);
        }
        Deal::Stratified(classes) => {
            let count = classes.iter().max().map_or(0, |c| *c as usize + 1);
            // Each class continues at the fold after the last one used, so that fold sizes differ by one row at most.
            let mut next = 0;
            for class in 0..count {
                let mut rows: Vec<u32> = (0..n as u32).filter(|&row| classes[row as usize] as usize == class).collect();
                rows.shuffle(&mut rng);
                for row in rows {
                    fold[row as usize] = (next % k) as u32;
                    next += 1;
                }
            }
        }
        Deal::Grouped(groups) => {
            let count = groups.iter().max().map_or(0, |g| *g as usize + 1);
            let mut sizes = vec![0usize; count];
            groups.iter().for_each(|&g| sizes[g as usize] += 1);
            let mut order: Vec<usize> = (0..count).filter(|&g| sizes[g] > 0).collect();
            if order.len() < k {
                return Err(Error::option("folds", k, format!("at most the number of groups, {}", order.len())));
            }
            order.shuffle(&mut rng);
            order.sort_by_key(|&g| std::cmp::Reverse(sizes[g]));
            let (mut of, mut filled) = (vec![0u32; count], vec![0usize; k]);
            for g in order {
                let least = (0..k).min_by_key(|&f| filled[f]).unwrap_or(0);
                of[g] = least as u32;
                filled[least] += sizes[g];
            }
            groups.iter().zip(&mut fold).for_each(|(&g, fold)| *fold = of[g as usize]);
        }
    }
    Ok(fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(fold: &[u32], k: usize) -> Vec<usize> {
        (0..k).map(|f| fold.iter().filter(|&&g| g as usize == f).count()).collect()
    }

    #[test]
    fn folds_are_even_seeded_and_keep_their_promise() {
        let classes: Vec<u32> = (0..103).map(|i| u32::from(i % 10 == 0)).collect();
        for deal in [Deal::Plain, Deal::Stratified(&classes)] {
            let fold = folds(103, 5, deal, 7).unwrap();
            assert_eq!(fold, folds(103, 5, deal, 7).unwrap());
            assert_ne!(fold, folds(103, 5, deal, 8).unwrap());
            let mut found = sizes(&fold, 5);
            found.sort_unstable();
            assert_eq!(found, [20, 20, 21, 21, 21]);
        }
        let fold = folds(103, 5, Deal::Stratified(&classes), 1).unwrap();
        for f in 0..5 {
            let rare = (0..103).filter(|&i| fold[i] == f && classes[i] == 1).count();
            assert!((2..=3).contains(&rare));
        }
        let groups: Vec<u32> = (0..60).map(|i| i / 7).collect();
        let fold = folds(60, 3, Deal::Grouped(&groups), 3).unwrap();
        for i in 1..60 {
            assert!(groups[i] != groups[i - 1] || fold[i] == fold[i - 1]);
        }
        assert!(sizes(&fold, 3).iter().all(|&s| (14..=25).contains(&s)));
        assert!(folds(60, 10, Deal::Grouped(&groups), 3).is_err());
        assert!(folds(3, 4, Deal::Plain, 0).is_err() && folds(3, 1, Deal::Plain, 0).is_err());
    }
}
