//! The curves of a loss: value, slope, conjugate and IRWLS weight.

use margrave::engine::problem::Task;
use margrave::loss::{Loss, LossSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::data;
use crate::settings::LossText;

/// Most points of a curve.
const MOST_POINTS: usize = 4001;

/// What to draw.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LossRequest {
    loss: LossText,
    #[serde(default)]
    task: Option<String>,
    #[serde(default = "one")]
    y: f64,
    #[serde(default = "usual_range")]
    z: [f64; 2],
    #[serde(default = "usual_points")]
    points: usize,
    #[serde(default = "usual_cap")]
    cap: f64,
}

fn one() -> f64 {
    1.0
}

fn usual_range() -> [f64; 2] {
    [-3.0, 3.0]
}

fn usual_points() -> usize {
    401
}

fn usual_cap() -> f64 {
    1e6
}

/// Numbers as JSON; what is not finite is null.
fn numbers(values: impl Iterator<Item = f64>) -> Value {
    values.map(|v| json!(v)).collect()
}

fn spaced(from: f64, to: f64, count: usize) -> Vec<f64> {
    (0..count).map(|k| from + (to - from) * k as f64 / (count - 1) as f64).collect()
}

/// The curves.
pub(crate) fn curves(request: &LossRequest) -> Result<Value, Refusal> {
    let [from, to] = request.z;
    let count = request.points;
    let finite = [from, to, request.y].iter().all(|v| v.is_finite());
    if !(finite && from < to && request.cap > 0.0) {
        return Err(Refusal::request("z must be two increasing numbers, y a number and cap > 0"));
    }
    if !(2..=MOST_POINTS).contains(&count) {
        return Err(Refusal::request(format!("points must be between 2 and {MOST_POINTS}")));
    }
    let (loss, expression): (std::sync::Arc<dyn Loss>, Option<&str>) = match &request.loss {
        LossText::Spec(text) => (text.parse::<LossSpec>()?.build()?, None),
        LossText::Own(own) => {
            let task = request.task.as_deref().map_or(Ok(Task::Classify), data::task)?;
            (std::sync::Arc::new(own.build(task)?), Some(&own.expression))
        }
    };
    let y = request.y;
    let z = spaced(from, to, count);
    let ys = vec![y; count];
    let (mut value, mut slope) = (vec![0.0; count], vec![0.0; count]);
    loss.values(&ys, &z, &mut value);
    loss.slopes(&ys, &z, &mut slope);
    let quadratic = |z: &f64| loss.reweight(y, *z, request.cap);
    let (low, high) = loss.domain(y);
    let properties = loss.properties();
    // The conjugate is drawn over the slopes that occur in the picture, and a little beyond.
    let (least, most) = data::extent(slope.iter().copied().filter(|s| s.is_finite()));
    let edge = 0.1 * (most - least).max(0.1);
    let u = spaced((least - edge).max(low - edge), (most + edge).min(high + edge), count);
    let mut conjugate = vec![f64::INFINITY; count];
    if properties.convex {
        loss.conjugates(&ys, &u, &mut conjugate);
    }
    let known = properties.convex && conjugate.iter().any(|v| v.is_finite());
    let dual = loss.dual(y, 1.0).map(|h| json!({ "p": h.p, "eps": h.eps, "d": h.d, "lo": h.lo, "hi": h.hi }));
    Ok(json!({
        "name": loss.name(),
        "expression": expression,
        "y": y,
        "z": numbers(z.iter().copied()),
        "value": numbers(value.iter().copied()),
        "slope": numbers(slope.iter().copied()),
        "weight": numbers(z.iter().map(|z| quadratic(z).weight)),
        "target": numbers(z.iter().map(|z| quadratic(z).target)),
        "u": if known { numbers(u.iter().copied()) } else { Value::Null },
        "conjugate": if known { numbers(conjugate.iter().copied()) } else { Value::Null },
        "domain": [low, high],
        "properties": {
            "slope_bounded": properties.slope_bounded,
            "slope_at_zero": properties.slope_at_zero,
            "convex": properties.convex,
            "majorised": properties.majorised,
            "classification": properties.classification,
        },
        "dual": dual,
    }))
}

/// The losses of the library, for the list of the page.
pub(crate) fn list() -> Value {
    let entry = |info: margrave::loss::LossInfo| {
        let parameters: Vec<Value> =
            info.spec.parameters().into_iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
        let convex = info.spec.build().is_ok_and(|loss| loss.properties().convex);
        json!({
            "name": info.spec.name(),
            "spec": info.spec.to_string(),
            "parameters": parameters,
            "about": info.about,
            "classification": info.classification,
            "regression": info.regression,
            "convex": convex,
        })
    };
    LossSpec::all().into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Value, Refusal> {
        curves(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn the_curves_of_the_hinge_are_its_formulas() {
        let hinge = of(r#"{"loss":"hinge","z":[-2,2],"points":5}"#).unwrap();
        assert_eq!(hinge["z"], json!([-2.0, -1.0, 0.0, 1.0, 2.0]));
        assert_eq!(hinge["value"], json!([3.0, 2.0, 1.0, 0.0, 0.0]));
        assert_eq!(hinge["slope"][0], json!(-1.0));
        // L′(u)/u at u = 3.
        assert_eq!(hinge["weight"][0], json!(1.0 / 3.0));
        assert_eq!(hinge["domain"], json!([-1.0, 0.0]));
        assert_eq!(hinge["dual"]["hi"], json!(1.0));
        assert!(hinge["conjugate"].as_array().unwrap().iter().any(|v| v.is_null()));
    }

    #[test]
    fn a_formula_has_the_curves_of_the_loss_it_is() {
        let own = of(r#"{"loss":{"expression":"log(1+exp(-m))"},"points":51}"#).unwrap();
        let known = of(r#"{"loss":"logistic","points":51}"#).unwrap();
        for key in ["value", "slope", "conjugate"] {
            for (a, b) in own[key].as_array().unwrap().iter().zip(known[key].as_array().unwrap()) {
                match (a.as_f64(), b.as_f64()) {
                    (Some(a), Some(b)) => assert!((a - b).abs() < 1e-6, "{key}: {a} {b}"),
                    (a, b) => assert_eq!(a, b, "{key}"),
                }
            }
        }
        assert_eq!(own["properties"]["convex"], json!(true));
        assert!(of(r#"{"loss":{"expression":"1-tanh(m)"}}"#).unwrap()["conjugate"].is_null());
    }

    #[test]
    fn bad_requests_are_refused() {
        for text in [
            r#"{"loss":"nothing"}"#,
            r#"{"loss":"huber:delta=-1"}"#,
            r#"{"loss":"hinge","z":[1,0]}"#,
            r#"{"loss":"hinge","points":1}"#,
            r#"{"loss":"hinge","points":1000000}"#,
            r#"{"loss":{"expression":"q"}}"#,
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
