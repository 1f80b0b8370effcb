//! One machine per pair of classes.

use super::Part;
use crate::model::pairs;

/// The parts of all pairs i < j in order: samples of i have target −1, of j +1. `codes` holds the class of each row.
pub fn parts(classes: usize, codes: &[u32]) -> Vec<Part> {
    let mut rows_of = vec![Vec::new(); classes];
    codes.iter().enumerate().for_each(|(row, &code)| rows_of[code as usize].push(row as u32));
    pairs(classes)
        .map(|(i, j)| {
            let (mut first, mut second) = (rows_of[i].as_slice(), rows_of[j].as_slice());
            let (mut rows, mut targets) = (Vec::new(), Vec::new());
            rows.reserve_exact(first.len() + second.len());
            targets.reserve_exact(first.len() + second.len());
            // Both lists ascend, and so does their union.
            while let Some(row) = first.first().into_iter().chain(second.first()).min().copied() {
                let of_first = first.first() == Some(&row);
                let list = if of_first { &mut first } else { &mut second };
                *list = &list[1..];
                rows.push(row);
                targets.push(if of_first { -1.0 } else { 1.0 });
            }
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
