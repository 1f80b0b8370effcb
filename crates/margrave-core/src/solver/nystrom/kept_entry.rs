//! How entries of rows that are kept are stored.

use crate::linalg::sweep::Entry;
use crate::linalg::vectorised::{Vectorised, vectorised};

/// The largest integer used.
const LARGEST: f32 = 32_767.0;
/// 1.5·2²³: between 2²³ and 2²⁴ numbers in single precision are the integers.
const ROUNDING: f32 = 12_582_912.0;

/// A stored entry: the value is a multiple of a step that its row has.
pub(super) trait KeptEntry: Entry {
    /// Stores a row; returns its step.
    fn keep(row: &[f32], to: &mut [Self]) -> f64;
}

impl KeptEntry for f32 {
    fn keep(row: &[f32], to: &mut [f32]) -> f64 {
        to.copy_from_slice(row);
        1.0
    }
}

/// Accurate to half a step, 1/65 534 of the largest entry of the row. These errors are independent of each other: in a sum over n
/// rows they grow with √n, where what counts grows with n.
impl KeptEntry for i16 {
    fn keep(row: &[f32], to: &mut [i16]) -> f64 {
        vectorised(Round { row, to })
    }
}

struct Round<'a> {
    row: &'a [f32],
    to: &'a mut [i16],
}

impl Vectorised for Round<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut largest = [0f32; 16];
        let (whole, rest) = self.row.as_chunks::<16>();
        for part in whole {
            (0..16).for_each(|l| largest[l] = if part[l].abs() > largest[l] { part[l].abs() } else { largest[l] });
        }
        let largest = largest.iter().chain(rest).fold(0f32, |most, v| most.max(v.abs()));
        let gain = if largest > 0.0 { LARGEST / largest } else { 0.0 };
        for (to, v) in self.to.iter_mut().zip(self.row) {
            // Rounds to the nearest integer, which is then in the lowest bits. (A conversion that saturates is done one by one.)
            *to = (v * gain + ROUNDING).to_bits() as i16;
        }
        f64::from(largest) / f64::from(LARGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_within_half_a_step() {
        for n in [1, 15, 16, 100] {
            let row: Vec<f32> = (0..n).map(|i| 3.0 * (0.7 * i as f32).sin()).collect();
            let mut kept = vec![0i16; n];
            let step = i16::keep(&row, &mut kept);
            let largest = row.iter().fold(0f32, |m, v| m.max(v.abs()));
            assert!((step * 32_767.0 - f64::from(largest)).abs() < 1e-6);
            for (v, k) in row.iter().zip(&kept) {
                assert!((f64::from(*v) - step * k.wide()).abs() <= 0.501 * step, "{v} {k}");
            }
        }
        assert_eq!(i16::keep(&[0.0; 3], &mut [0; 3]), 0.0);
    }
}
