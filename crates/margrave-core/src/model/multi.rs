//! Several binary machines as one classifier: which class wins.
//!
//! One-vs-one has a machine for each pair of classes i < j, whose score is > 0 for j; the class with the most votes wins,
//! the first of them on a tie, as in LIBSVM. One-vs-rest has one machine per class; the largest score wins, the first
//! on a tie. The machine of Crammer and Singer has one score per class from a single problem; again the largest wins.

use serde::{Deserialize, Serialize};

use super::expansion::pairs;

/// How predictions follow from the outputs of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// One output: two classes, one number, or inside and outside.
    #[default]
    One,
    /// One machine per pair of classes.
    OneVsOne,
    /// One machine per class.
    OneVsRest,
    /// One machine for all classes at once, with one score per class (Crammer and Singer).
    CrammerSinger,
    /// Several targets: one regression per target, over the same centres.
    Outputs,
}

impl Scheme {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::One => "one",
            Scheme::OneVsOne => "ovo",
            Scheme::OneVsRest => "ovr",
            Scheme::CrammerSinger => "crammer-singer",
            Scheme::Outputs => "outputs",
        }
    }

    /// Number of machines for `classes` classes (or that many targets), each with its own proof.
    pub fn machines(self, classes: usize) -> usize {
        match self {
            Scheme::One | Scheme::CrammerSinger => 1,
            Scheme::OneVsOne | Scheme::OneVsRest | Scheme::Outputs => self.outputs(classes),
        }
    }

    /// Number of scores of a point for `classes` classes (or that many targets).
    pub fn outputs(self, classes: usize) -> usize {
        match self {
            Scheme::One => 1,
            Scheme::OneVsOne => classes * classes.saturating_sub(1) / 2,
            Scheme::OneVsRest | Scheme::CrammerSinger | Scheme::Outputs => classes,
        }
    }
}

/// The votes for each class, from the scores of all pairs.
pub fn votes(classes: usize, scores: &[f64], votes: &mut [u32]) {
    votes.fill(0);
    for ((i, j), z) in pairs(classes).zip(scores) {
        votes[if *z > 0.0 { j } else { i }] += 1;
    }
}

/// The class with the most votes, the first on a tie.
pub fn by_votes(classes: usize, scores: &[f64], scratch: &mut [u32]) -> u32 {
    votes(classes, scores, scratch);
    let mut best = 0;
    for class in 1..classes {
        if scratch[class] > scratch[best] {
            best = class;
        }
    }
    best as u32
}

/// The class with the largest score, the first on a tie.
pub fn by_score(scores: &[f64]) -> u32 {
    let mut best = 0;
    for class in 1..scores.len() {
        if scores[class] > scores[best] {
            best = class;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn winners_by_hand() {
        let mut scratch = [0; 3];
        // (0,1) → 1, (0,2) → 0, (1,2) → 2: a cycle, so the first class wins.
        assert_eq!(by_votes(3, &[1.0, -1.0, 1.0], &mut scratch), 0);
        assert_eq!(scratch, [1, 1, 1]);
        // (0,1) → 1, (0,2) → 2, (1,2) → 1.
        assert_eq!(by_votes(3, &[1.0, 1.0, -1.0], &mut scratch), 1);
        assert_eq!(by_score(&[0.5, 2.0, 2.0]), 1);
        assert_eq!(Scheme::OneVsOne.machines(26), 325);
        assert_eq!((Scheme::CrammerSinger.machines(26), Scheme::CrammerSinger.outputs(26)), (1, 26));
    }
}
