//! The seven UCI sets of section 4.2, made binary and numeric as the paper describes.

use margrave::engine::data::Points;

use crate::common::Failure;

/// A set: rows of numbers, labels ±1.
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) d: usize,
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
}

impl Set {
    pub(crate) fn len(&self) -> usize {
        self.y.len()
    }

    pub(crate) fn row(&self, i: usize) -> &[f64] {
        &self.x[i * self.d..(i + 1) * self.d]
    }

    /// Some rows, every feature with mean 0 and standard deviation 1 over the rows `train`; a feature constant there becomes 0.
    pub(crate) fn standardised(&self, train: &[usize], rows: &[usize]) -> Result<Subset, Failure> {
        let n = train.len() as f64;
        let mut x = vec![0.0; rows.len() * self.d];
        for k in 0..self.d {
            let mean = train.iter().map(|&i| self.row(i)[k]).sum::<f64>() / n;
            let spread = (train.iter().map(|&i| (self.row(i)[k] - mean).powi(2)).sum::<f64>() / n).sqrt();
            for (r, &i) in rows.iter().enumerate() {
                x[r * self.d + k] = if spread > 0.0 { (self.row(i)[k] - mean) / spread } else { 0.0 };
            }
        }
        Ok(Subset { points: Points::dense_f64(rows.len(), self.d, x)?, y: rows.iter().map(|&i| self.y[i]).collect() })
    }
}

/// Some rows of a set.
pub(crate) struct Subset {
    pub(crate) points: Points,
    pub(crate) y: Vec<f64>,
}

/// Names of the sets, in the paper's order.
pub(crate) const NAMES: [&str; 7] = ["Balance", "Car", "Contraceptive", "Ecoli", "Haberman", "Liver", "Tic-Tac-Toe"];

/// Words of ordered attributes, as natural numbers. "more" and "5more" follow the largest number of their column.
const WORDS: [(&str, f64); 13] = [
    ("small", 1.0),
    ("low", 1.0),
    ("med", 2.0),
    ("big", 3.0),
    ("high", 3.0),
    ("vhigh", 4.0),
    ("5more", 5.0),
    ("more", 6.0),
    // Tic-tac-toe: a blank is halfway between the two players.
    ("o", 1.0),
    ("b", 2.0),
    ("x", 3.0),
    ("true", 1.0),
    ("false", 0.0),
];

/// One of [`NAMES`].
pub(crate) fn load(name: &str) -> Result<Set, Failure> {
    match name {
        "Balance" => read("Balance", include_str!("../data/balance_scale.csv"), |class| match class {
            "L" => Some(1.0),
            "R" => Some(-1.0),
            _ => None,
        }),
        "Car" => read("Car", include_str!("../data/car.csv"), |class| Some(if class == "unacc" { -1.0 } else { 1.0 })),
        "Contraceptive" => {
            read("Contraceptive", include_str!("../data/cmc.csv"), |class| Some(if class == "1" { -1.0 } else { 1.0 }))
        }
        "Ecoli" => ecoli(&["cp"]),
        "Haberman" => {
            read("Haberman", include_str!("../data/haberman.csv"), |class| Some(if class == "1" { 1.0 } else { -1.0 }))
        }
        "Liver" => {
            read("Liver", include_str!("../data/liver_bupa.csv"), |class| Some(if class == "1" { 1.0 } else { -1.0 }))
        }
        "Tic-Tac-Toe" => read("Tic-Tac-Toe", include_str!("../data/tic_tac_toe.csv"), |class| {
            Some(if class == "positive" { 1.0 } else { -1.0 })
        }),
        other => Err(Failure::new(format!("there is no set {other}"))),
    }
}

/// Ecoli with the given classes against the rest: the paper does not say which.
pub(crate) fn ecoli(positive: &[&str]) -> Result<Set, Failure> {
    read("Ecoli", include_str!("../data/ecoli.csv"), |class| Some(if positive.contains(&class) { 1.0 } else { -1.0 }))
}

/// Reads a file with a header, the class last; `None` leaves a row out.
fn read(name: &'static str, text: &str, label: impl Fn(&str) -> Option<f64>) -> Result<Set, Failure> {
    let mut set = Set { name, d: 0, x: Vec::new(), y: Vec::new() };
    for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.trim().split(',').collect();
        let Some((class, values)) = cells.split_last() else { continue };
        let Some(y) = label(class) else { continue };
        set.d = values.len();
        set.y.push(y);
        for cell in values {
            let word = WORDS.iter().find(|(word, _)| word == cell).map(|(_, value)| *value);
            let value = word.or_else(|| cell.parse().ok());
            set.x.push(value.ok_or_else(|| Failure::new(format!("{name}: {cell} is no number")))?);
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_classes_are_those_of_the_paper() {
        let sizes =
            [(576, 4, 288), (1728, 6, 518), (1473, 9, 844), (336, 7, 143), (306, 3, 225), (345, 6, 145), (958, 9, 626)];
        for (name, (n, d, plus)) in NAMES.iter().zip(sizes) {
            let set = load(name).expect("a set");
            assert_eq!((set.len(), set.d), (n, d), "{name}");
            assert_eq!(set.y.iter().filter(|y| **y > 0.0).count(), plus, "{name}");
            assert_eq!(set.x.len(), n * d);
        }
    }
}
