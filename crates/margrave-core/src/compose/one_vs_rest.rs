//! One machine per class, against all others.

use super::Part;

/// The parts of all classes in order, each over all rows: samples of the class have target +1. `codes` holds the class of
/// each row.
pub fn parts(classes: usize, codes: &[u32]) -> Vec<Part> {
    let side = |class: usize| codes.iter().map(|&code| if code as usize == class { 1.0 } else { -1.0 }).collect();
    (0..classes).map(|class| Part { rows: (0..codes.len() as u32).collect(), targets: side(class) }).collect()
}

/// The targets of all classes together, n × classes row-major: for solvers that train several targets at once.
pub fn targets(classes: usize, codes: &[u32]) -> Vec<f64> {
    let mut targets = vec![-1.0; codes.len() * classes];
    codes.iter().enumerate().for_each(|(row, &code)| targets[row * classes + code as usize] = 1.0);
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_against_the_rest() {
        let codes = [1, 0, 2];
        assert_eq!(parts(3, &codes)[1].targets, [1.0, -1.0, -1.0]);
        assert_eq!(targets(3, &codes), [-1.0, 1.0, -1.0, 1.0, -1.0, -1.0, -1.0, -1.0, 1.0]);
    }
}
