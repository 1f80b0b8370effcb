//! A loss of scores that have a fixed part: ℓ(yᵢ, z + gᵢ).
//!
//! A block of variables is minimised with all others fixed. What those contribute to the score of sample i is gᵢ, and what is
//! left is a problem of the same form: h(β) gains gᵢ·β. The target of a sample is its number in the block, from which y and g are
//! looked up, because a loss is a function of a target and a score alone.

use super::{DualTerm, Loss, Properties, Reweight};

/// ℓ(yᵢ, z + gᵢ), a function of i and z.
pub struct Offset<'a> {
    loss: &'a dyn Loss,
    targets: &'a [f64],
    offsets: &'a [f64],
}

impl<'a> Offset<'a> {
    /// `targets` are yᵢ, `offsets` gᵢ; as many of one as of the other.
    pub fn new(loss: &'a dyn Loss, targets: &'a [f64], offsets: &'a [f64]) -> Self {
        Self { loss, targets, offsets }
    }

    /// The targets of the problem: the numbers of the samples.
    pub fn numbers(&self) -> Vec<f64> {
        (0..self.targets.len()).map(|i| i as f64).collect()
    }

    fn at(&self, number: f64) -> (f64, f64) {
        let i = number as usize;
        (self.targets.get(i).copied().unwrap_or(f64::NAN), self.offsets.get(i).copied().unwrap_or(f64::NAN))
    }
}

impl Loss for Offset<'_> {
    fn name(&self) -> String {
        self.loss.name()
    }
    fn value(&self, number: f64, z: f64) -> f64 {
        let (y, g) = self.at(number);
        self.loss.value(y, z + g)
    }
    fn slope(&self, number: f64, z: f64) -> f64 {
        let (y, g) = self.at(number);
        self.loss.slope(y, z + g)
    }
    fn conjugate(&self, number: f64, u: f64) -> Option<f64> {
        let (y, g) = self.at(number);
        self.loss.conjugate(y, u).map(|value| value - u * g)
    }
    fn domain(&self, number: f64) -> (f64, f64) {
        self.loss.domain(self.at(number).0)
    }
    fn reweight(&self, number: f64, z: f64, cap: f64) -> Reweight {
        let (y, g) = self.at(number);
        let found = self.loss.reweight(y, z + g, cap);
        Reweight { target: found.target - g, ..found }
    }
    fn curvature(&self, number: f64, z: f64, step: f64) -> f64 {
        let (y, g) = self.at(number);
        self.loss.curvature(y, z + g, step)
    }
    fn slope_and_curvature(&self, number: f64, z: f64, step: f64) -> (f64, f64) {
        let (y, g) = self.at(number);
        self.loss.slope_and_curvature(y, z + g, step)
    }
    fn sharp(&self) -> bool {
        self.loss.sharp()
    }
    fn dual(&self, number: f64, c: f64) -> Option<DualTerm> {
        let (y, g) = self.at(number);
        self.loss.dual(y, c).map(|term| DualTerm { p: term.p + g, ..term })
    }
    fn excess(&self, number: f64, z: f64, u: f64) -> Option<f64> {
        let (y, g) = self.at(number);
        self.loss.excess(y, z + g, u)
    }
    fn properties(&self) -> Properties {
        self.loss.properties()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::LossSpec;

    #[test]
    fn the_views_of_a_shifted_loss_agree() {
        let (targets, offsets) = ([1.0, -1.0, 1.0], [0.3, -0.4, 0.0]);
        for name in ["hinge", "squared-hinge", "logistic", "epsilon:epsilon=0.1", "huber:delta=0.5"] {
            let loss = name.parse::<LossSpec>().unwrap().build().unwrap();
            let shifted = Offset::new(loss.as_ref(), &targets, &offsets);
            for (number, z) in shifted.numbers().into_iter().zip([0.2, -1.7, 0.9]) {
                let u = shifted.slope(number, z);
                // u is a slope at z: the Fenchel–Young term vanishes, and conjugate and dual term say so too.
                let conjugate = shifted.conjugate(number, u).unwrap();
                assert!((shifted.value(number, z) + conjugate - u * z).abs() < 1e-12, "{name} {number}");
                assert!(shifted.excess(number, z, u).unwrap().abs() < 1e-12, "{name} {number}");
                if let Some(term) = shifted.dual(number, 2.0) {
                    let beta = -2.0 * u;
                    assert!((term.value(beta) - 2.0 * conjugate).abs() < 1e-12, "{name} {number}");
                }
            }
        }
    }
}
