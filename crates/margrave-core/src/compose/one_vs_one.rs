//! One machine per pair of classes.

use super::Part;
use crate::model::pairs;

/// The parts of all pairs i < j in order: samples of i have target −1, of j +1. `codes` holds the class of each row.
pub fn parts(classes: usize, codes: &[u32]) -> Vec<Part> {
    pairs(classes)
        .map(|(i, j)| {
            let of_pair = |&(_, &code): &(usize, &u32)| code as usize == i || code as usize == j;
            let (rows, targets) = codes
                .iter()
                .enumerate()
                .filter(of_pair)
                .map(|(row, &code)| (row as u32, if code as usize == j { 1.0 } else { -1.0 }))
                .unzip();
            Part { rows, targets }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_its_rows() {
        let parts = parts(3, &[2, 0, 1, 0]);
        assert_eq!(parts[0], Part { rows: vec![1, 2, 3], targets: vec![-1.0, 1.0, -1.0] });
        assert_eq!(parts[1], Part { rows: vec![0, 1, 3], targets: vec![1.0, -1.0, -1.0] });
        assert_eq!(parts[2], Part { rows: vec![0, 2], targets: vec![1.0, -1.0] });
    }
}
