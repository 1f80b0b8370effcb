//! The tour: data and settings for pictures of the five papers, on live code.

use serde_json::{Value, json};

/// The stations.
pub(crate) fn stations() -> Value {
    json!({ "stations": [margin(), smo(), irwls(), sigmoid(), path()] })
}

fn margin() -> Value {
    json!({
        "id": "margin",
        "title": "The margin and its support vectors",
        "paper": "Lecture notes on support vector machines (paper 004 of the papers folder)",
        "text": [
            "Two clouds that overlap a little, a linear kernel, the hinge loss. The line is the boundary, the dashed lines are the margins y·z = 1.",
            "The KKT conditions sort the samples: outside the margin β = 0, on it 0 < |β| < C (free), inside it or on the wrong side |β| = C (bounded). Move a sample across the margin and see its kind change.",
            "C weighs the losses against the width of the margin: with a small C many samples hold a wide margin, with a large C few hold a narrow one.",
        ],
        "source": { "example": "blobs" },
        "settings": { "kernel": { "name": "linear" }, "C": 1.0, "solver": "decomposition", "gap": 1e-6 },
        "plane": { "x": 0, "y": 1 },
        "show": ["plane", "margins", "bracket"],
        "actions": [
            { "label": "C = 0.01", "settings": { "C": 0.01 } },
            { "label": "C = 1", "settings": { "C": 1.0 } },
            { "label": "C = 100", "settings": { "C": 100.0 } },
            { "label": "RBF kernel", "settings": { "kernel": { "name": "rbf", "gamma": 1.0 } } },
        ],
    })
}

fn smo() -> Value {
    json!({
        "id": "smo",
        "title": "SMO, step by step",
        "paper": "Lecture notes on support vector machines (paper 004), Algorithm 1; On the convergence of SVMTorch (paper 001)",
        "text": [
            "Sequential minimal optimisation changes two β at a time, the fewest that keep Σβ = 0. This is the algorithm as the notes print it: a sample that violates its KKT condition, and a random partner.",
            "Press Step: one sweep over the samples, then a certified look at where it stands. Primal and dual close on each other from above and from below; what lies between them is what is still unknown.",
            "Finish lets the library's own solver do the same problem: it picks pairs by second order and ends with Newton steps.",
        ],
        "source": { "example": "blobs" },
        "settings": { "kernel": { "name": "linear" }, "C": 1.0, "solver": "smo" },
        "plane": { "x": 0, "y": 1 },
        "show": ["plane", "bracket"],
        "actions": [
            { "label": "Step", "train": { "mode": "step", "steps": 1 } },
            { "label": "Ten steps", "train": { "mode": "step", "steps": 10 } },
            { "label": "Finish", "settings": { "solver": "decomposition", "gap": 1e-6 } },
        ],
    })
}

fn irwls() -> Value {
    json!({
        "id": "irwls",
        "title": "Weighted least squares, again and again",
        "paper": "Convergence of the IRWLS procedure to the SVM solution (paper 000), Figure 2",
        "text": [
            "IRWLS replaces the hinge by a parabola for every sample, with the same slope at the present score. The first round weighs all samples alike: the least-squares machine.",
            "Then the weights follow the samples: large near the margin, falling as 1/u inside it, zero outside. Choose a sample to see its weight, and the loss view for the curve it is read from.",
            "A few steps later the boundary no longer moves, and the certificate says how far it can be from the best.",
        ],
        "source": { "example": "moons" },
        "settings": { "kernel": { "name": "rbf", "gamma": 1.0 }, "C": 1.0, "solver": "irwls" },
        "plane": { "x": 0, "y": 1 },
        "show": ["plane", "bracket", "loss"],
        "actions": [
            { "label": "Step", "train": { "mode": "step", "steps": 1 } },
            { "label": "Play", "train": { "mode": "resume" } },
            { "label": "Logistic loss", "settings": { "loss": "logistic" } },
        ],
    })
}

fn sigmoid() -> Value {
    json!({
        "id": "sigmoid",
        "title": "A sigmoid against the hinge, with one outlier",
        "paper": "Empirical risk minimization for support vector classifiers (paper 002)",
        "text": [
            "One sample of the right class lies far on the wrong side. The hinge grows without limit, so a single sample bends the boundary.",
            "The sigmoid loss levels off: it nearly counts errors, and an error that cannot be repaired costs no more by being far away.",
            "The price is convexity. There is no duality gap for such a loss, and the certificate says so: it measures how close the point is to stationary instead.",
        ],
        "source": { "example": "outlier" },
        "settings": { "kernel": { "name": "linear" }, "C": 10.0, "loss": "hinge" },
        "plane": { "x": 0, "y": 1 },
        "show": ["plane", "loss", "margins"],
        "actions": [
            { "label": "Hinge", "settings": { "loss": "hinge" } },
            { "label": "Sigmoid", "settings": { "loss": "sigmoid:eta=2", "anneal": 3 } },
            { "label": "Ramp", "settings": { "loss": "ramp:limit=2", "anneal": 3 } },
        ],
    })
}

fn path() -> Value {
    json!({
        "id": "path",
        "title": "Every λ from one decomposition",
        "paper": "Regularized least squares and support vector machines (paper 003)",
        "text": [
            "For the square loss one eigendecomposition of K gives the solution for every λ, and the exact leave-one-out error of each.",
            "Small λ follows the noise, large λ flattens everything; the leave-one-out curve has its minimum between them. Degrees of freedom count how much of the data the machine uses.",
            "Click a λ to train that machine.",
        ],
        "source": { "example": "sine" },
        "settings": { "task": "regress", "kernel": { "name": "rbf", "gamma": 1.0 }, "loss": "square", "C": 10.0 },
        "plane": { "x": 0, "y": 1 },
        "show": ["path", "plane", "margins"],
        "actions": [
            { "label": "λ-path", "path": true },
            { "label": "C = 0.01", "settings": { "C": 0.01 } },
            { "label": "C = 10", "settings": { "C": 10.0 } },
            { "label": "C = 10⁶", "settings": { "C": 1e6 } },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Reading};
    use crate::settings::Settings;
    use margrave::{Cancel, Threads};

    #[test]
    fn every_station_and_action_can_be_trained() {
        let tour = stations();
        for station in tour["stations"].as_array().unwrap() {
            let source = serde_json::from_value(station["source"].clone()).unwrap();
            let data = Data::open(source, &Reading::default(), None, None, 1, 1).unwrap();
            let base = station["settings"].clone();
            let mut all = vec![base.clone()];
            for action in station["actions"].as_array().unwrap() {
                let mut merged = base.clone();
                if let Some(more) = action["settings"].as_object() {
                    more.iter().for_each(|(key, value)| merged[key] = value.clone());
                }
                all.push(merged);
            }
            for value in all {
                let settings = Settings::read(Some(&value), &data).unwrap();
                let svm = settings.svm(&data, &Threads::one(), &Cancel::new()).unwrap();
                svm.plan(&data.loaded.data).unwrap_or_else(|e| panic!("{}: {value}: {e}", station["id"]));
            }
        }
    }
}
