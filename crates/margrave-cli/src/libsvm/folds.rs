//! The folds of LIBSVM: the same random numbers, used in the same way, so that cross-validation prints the same number.

/// The C library's `rand()` with its default seed 1: an additive lagged generator, xᵢ = xᵢ₋₃ + xᵢ₋₃₁, of which the top
/// 31 bits are used.
pub(super) struct CRandom {
    state: Vec<u32>,
    at: usize,
}

impl CRandom {
    pub(super) fn new() -> Self {
        let mut state = vec![1u32];
        for i in 1..31 {
            let next = 16807 * i64::from(state[i - 1] as i32) % 2_147_483_647;
            state.push(if next < 0 { next + 2_147_483_647 } else { next } as u32);
        }
        let mut this = Self { state, at: 3 };
        (0..310).for_each(|_| {
            this.next();
        });
        this
    }

    pub(super) fn next(&mut self) -> usize {
        let before = self.state[(self.at + 28) % 31];
        let sum = self.state[self.at].wrapping_add(before);
        self.state[self.at] = sum;
        self.at = (self.at + 1) % 31;
        (sum >> 1) as usize
    }
}

/// Labels in the order of their first occurrence, but +1 before −1 if there are no others; and the class of each row.
pub(super) fn classes(labels: &[i64]) -> (Vec<i64>, Vec<usize>) {
    let mut order: Vec<i64> = Vec::new();
    for label in labels {
        if !order.contains(label) {
            order.push(*label);
        }
    }
    if order == [-1, 1] {
        order.reverse();
    }
    let class = |label: &i64| order.iter().position(|known| known == label).unwrap_or(0);
    let codes = labels.iter().map(class).collect();
    (order, codes)
}

/// All rows in the order of their folds, and where each fold begins; stratified if classes are given.
pub(super) fn split(n: usize, folds: usize, codes: Option<&[usize]>) -> (Vec<u32>, Vec<usize>) {
    let mut random = CRandom::new();
    let mut shuffle = |rows: &mut [u32]| {
        for i in 0..rows.len() {
            let j = i + random.next() % (rows.len() - i);
            rows.swap(i, j);
        }
    };
    let Some(codes) = codes.filter(|_| folds < n) else {
        let mut rows: Vec<u32> = (0..n as u32).collect();
        shuffle(&mut rows);
        return (rows, (0..=folds).map(|fold| fold * n / folds).collect());
    };
    let count = codes.iter().max().map_or(0, |c| c + 1);
    let mut parts: Vec<Vec<u32>> = vec![Vec::new(); folds];
    for class in 0..count {
        let mut rows: Vec<u32> = (0..n as u32).filter(|&row| codes[row as usize] == class).collect();
        shuffle(&mut rows);
        for (fold, parts) in parts.iter_mut().enumerate() {
            parts.extend_from_slice(&rows[fold * rows.len() / folds..(fold + 1) * rows.len() / folds]);
        }
    }
    let mut starts = vec![0];
    parts.iter().for_each(|fold| starts.push(starts[starts.len() - 1] + fold.len()));
    (parts.concat(), starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_random_numbers_of_the_c_library() {
        let mut random = CRandom::new();
        // The first numbers rand() gives in every program that does not call srand().
        let first: Vec<usize> = (0..5).map(|_| random.next()).collect();
        assert_eq!(first, [1804289383, 846930886, 1681692777, 1714636915, 1957747793]);
    }

    #[test]
    fn every_row_is_in_one_fold() {
        let codes: Vec<usize> = (0..50).map(|i| i % 3).collect();
        for given in [None, Some(codes.as_slice())] {
            let (rows, starts) = split(50, 4, given);
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<u32>>());
            assert_eq!((starts.len(), starts[0], starts[4]), (5, 0, 50));
        }
        assert_eq!(classes(&[-1, 1, 1]), (vec![1, -1], vec![1, 0, 0]));
        assert_eq!(classes(&[3, 1, 3]), (vec![3, 1], vec![0, 1, 0]));
    }
}
