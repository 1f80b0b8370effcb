//! Examples: three embedded files, and small planes made from a seed.

use margrave::engine::data::{Dataset, Points, Targets};
use margrave::engine::problem::Task;
use margrave::io::{Loaded, ReadOptions};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::answer::Refusal;

const HEART: &[u8] = include_bytes!("../data/heart_scale.svm");
const IRIS: &[u8] = include_bytes!("../data/iris.csv");
const HOUSING: &[u8] = include_bytes!("../data/housing.csv");

/// An example of the list.
pub(crate) struct Example {
    pub(crate) id: &'static str,
    title: &'static str,
    pub(crate) task: Task,
    n: usize,
    d: usize,
    about: &'static str,
    licence: &'static str,
    /// Name of the data and, for files, the content.
    pub(crate) file: &'static str,
    content: Option<&'static [u8]>,
}

const MADE: &str = "made here from a seed";

pub(crate) const EXAMPLES: [Example; 9] = [
    Example {
        id: "heart",
        title: "Heart disease",
        task: Task::Classify,
        n: 270,
        d: 13,
        about: "270 patients, 13 measurements scaled to [−1, 1]; 1 is disease (Statlog)",
        licence: "as shipped with LIBSVM, BSD-3-Clause",
        file: "heart_scale.svm",
        content: Some(HEART),
    },
    Example {
        id: "iris",
        title: "Iris",
        task: Task::Classify,
        n: 150,
        d: 4,
        about: "three species, four lengths in cm (Fisher 1936)",
        licence: "UCI repository, CC BY 4.0",
        file: "iris.csv",
        content: Some(IRIS),
    },
    Example {
        id: "housing",
        title: "Boston housing",
        task: Task::Regress,
        n: 506,
        d: 13,
        about: "median value of homes by town, 1970 census (Harrison and Rubinfeld 1978); known for a column on race",
        licence: "StatLib, public",
        file: "housing.csv",
        content: Some(HOUSING),
    },
    made("moons", "Two moons", Task::Classify, 300, "two interleaved half circles with noise"),
    made("blobs", "Two clouds", Task::Classify, 120, "two normal distributions that overlap a little"),
    made("outlier", "Clouds and one outlier", Task::Classify, 81, "two clouds, and one sample far on the wrong side"),
    made("rings", "Rings", Task::Classify, 300, "a disc and a ring around it"),
    made("sine", "A noisy sine", Task::Regress, 200, "y = sin(x) + noise over two features, the second of no use"),
    made(
        "moons2000",
        "Two moons, 2 000 samples",
        Task::Classify,
        2000,
        "the moons at a size at which solvers have work to do",
    ),
];

const fn made(id: &'static str, title: &'static str, task: Task, n: usize, about: &'static str) -> Example {
    Example { id, title, task, n, d: 2, about, licence: MADE, file: id, content: None }
}

impl Example {
    pub(crate) fn find(id: &str) -> Result<&'static Example, Refusal> {
        let known = || EXAMPLES.iter().map(|example| example.id).collect::<Vec<_>>().join(", ");
        EXAMPLES
            .iter()
            .find(|example| example.id == id)
            .ok_or_else(|| Refusal::not_found(format!("there is no example {id:?}; there are {}", known())))
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "id": self.id, "title": self.title, "task": self.task, "n": self.n, "d": self.d,
            "about": self.about, "licence": self.licence,
        })
    }

    /// The data.
    pub(crate) fn load(&self, threads: usize) -> Result<Loaded, Refusal> {
        match self.content {
            Some(bytes) => {
                let options = ReadOptions { threads, ..ReadOptions::default() };
                Ok(margrave::io::read_bytes(bytes, self.file, &options)?)
            }
            None => {
                let (x, y) = plane(self.id, self.n);
                crate::data::plain(Dataset::new(Points::dense_f64(self.n, 2, x)?, Targets::Real(y))?)
            }
        }
    }
}

/// Random numbers of an example.
struct Random(ChaCha8Rng);

impl Random {
    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Points of the plane with their labels ±1 or targets.
fn plane(id: &str, n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut random = Random(ChaCha8Rng::seed_from_u64(7));
    let (mut x, mut y) = (Vec::with_capacity(2 * n), Vec::with_capacity(n));
    // Six decimals: what a saved file would hold.
    let round = |v: f64| (v * 1e6).round() / 1e6;
    for i in 0..n {
        let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
        let (point, target) = match id {
            "moons" | "moons2000" => {
                let angle = std::f64::consts::PI * random.unit();
                let (a, b) =
                    if sign > 0.0 { (angle.cos(), angle.sin()) } else { (1.0 - angle.cos(), 0.5 - angle.sin()) };
                ([a + 0.2 * random.normal(), b + 0.2 * random.normal()], sign)
            }
            "rings" => {
                let radius = if sign > 0.0 { 0.9 * random.unit().sqrt() } else { 1.3 + 0.6 * random.unit() };
                let angle = std::f64::consts::TAU * random.unit();
                ([radius * angle.cos(), radius * angle.sin()], sign)
            }
            "sine" => {
                let at = 8.0 * random.unit() - 4.0;
                ([at, 4.0 * random.unit() - 2.0], at.sin() + 0.15 * random.normal())
            }
            "outlier" if i + 1 == n => ([-5.0, 4.0], 1.0),
            "outlier" => ([1.6 * sign + 0.6 * random.normal(), 0.6 * random.normal()], sign),
            _ => ([1.2 * sign + 0.8 * random.normal(), 0.6 * sign + 0.8 * random.normal()], sign),
        };
        x.extend(point.map(round));
        y.push(round(target));
    }
    (x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_have_the_sizes_they_claim() {
        for example in &EXAMPLES {
            let loaded = example.load(1).unwrap();
            assert_eq!((loaded.data.len(), loaded.data.points.dims()), (example.n, example.d), "{}", example.id);
            assert_eq!(loaded.data.targets.looks_like_classes(), example.task == Task::Classify, "{}", example.id);
        }
        assert!(Example::find("nothing").is_err());
    }
}
