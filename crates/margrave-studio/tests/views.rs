//! Views of data and models.

use serde_json::{Value, json};

use crate::common::{bytes_of, floats, header, start};

#[test]
fn the_plane_shows_the_scores_of_the_model() {
    let server = start();
    let session = server.session(json!({ "example": "moons" }));
    let bare = server.call("GET", &format!("{session}/plane"), None).body;
    assert!(header(&bare)["run"].is_null() && header(&bare)["arrays"].get("grid").is_none());
    assert_eq!(floats(&bare, "px").len(), 300);
    server.train(&session, json!({ "settings": { "kernel": { "name": "rbf", "gamma": 2.0 } } }));
    let body = server.call("GET", &format!("{session}/plane?nx=64&ny=48"), None).body;
    let head = header(&body);
    assert_eq!((&head["nx"], &head["ny"], &head["levels"]), (&json!(64), &json!(48), &json!([-1.0, 0.0, 1.0])));
    let (grid, px, py, score) =
        (floats(&body, "grid"), floats(&body, "px"), floats(&body, "py"), floats(&body, "score"));
    assert_eq!(grid.len(), 64 * 48);
    // The cell a sample lies in has nearly its score, and its sign away from the boundary.
    let window: Vec<f64> =
        head["window"].as_array().expect("four").iter().map(|v| v.as_f64().expect("a number")).collect();
    for at in 0..300 {
        let i = ((f64::from(px[at]) - window[0]) / (window[1] - window[0]) * 64.0) as usize;
        let j = ((f64::from(py[at]) - window[2]) / (window[3] - window[2]) * 48.0) as usize;
        assert!((grid[j * 64 + i] - score[at]).abs() < 0.4, "{} {}", grid[j * 64 + i], score[at]);
    }
    // Kinds agree with β: bounded ones are at C = 1.
    let (kinds, beta) = (bytes_of(&body, "kind"), floats(&body, "beta"));
    for (kind, beta) in kinds.iter().zip(&beta) {
        let expected = if *beta == 0.0 {
            0
        } else if beta.abs() >= 1.0 {
            2
        } else {
            1
        };
        assert_eq!(*kind, expected, "{beta}");
    }
    assert!(kinds.contains(&1) && kinds.contains(&2));
    // The smallest margin is that of the sample that is furthest on the wrong side.
    let classes = bytes_of(&body, "class");
    let worst =
        score.iter().zip(&classes).map(|(z, class)| if *class == 1 { *z } else { -*z }).fold(f32::MAX, f32::min);
    let margins = server.get(&format!("{session}/runs/current/margins"));
    let least = margins["below"][0]["margin"].as_f64().expect("a margin");
    assert!((least as f32 - worst).abs() < 1e-6, "{least} {worst}");
    let summary = server.get(&format!("{session}/runs/current"))["summary"]["support_vectors"].clone();
    assert_eq!(json!(kinds.iter().filter(|kind| **kind > 0).count()), summary);
}

#[test]
fn planes_of_more_features_hold_the_others() {
    let server = start();
    let session = server.session(json!({ "example": "heart" }));
    server.train(&session, json!({}));
    let row = server.call("GET", &format!("{session}/plane?x=7&y=9&held=row:5&nx=8&ny=8"), None).body;
    let mean = server.call("GET", &format!("{session}/plane?x=7&y=9&nx=8&ny=8"), None).body;
    assert_eq!(header(&row)["held"], json!({ "row": 5 }));
    assert_ne!(floats(&row, "grid"), floats(&mean, "grid"));
    let components = server.call("GET", &format!("{session}/plane?axes=kpca&nx=8&ny=8"), None).body;
    let share = header(&components)["explained"].as_f64().expect("a share");
    assert!(share > 0.0 && share <= 1.0);
    for bad in ["x=99", "held=row:999", "held=some", "axes=sky", "nx=a", "x0=3&x1=2", "output=4"] {
        assert_eq!(server.call("GET", &format!("{session}/plane?{bad}"), None).status, 400, "{bad}");
    }
}

#[test]
fn several_classes_have_regions_and_several_machines() {
    let server = start();
    let session = server.session(json!({ "example": "iris" }));
    server.train(&session, json!({}));
    let body = server.call("GET", &format!("{session}/plane?x=2&y=3&nx=32&ny=32&held=row:60&output=1"), None).body;
    let labels = bytes_of(&body, "label");
    assert!((0..3u8).all(|class| labels.contains(&class)));
    assert!(floats(&body, "grid").iter().all(|lead| *lead >= 0.0));
    assert_eq!(header(&body)["outputs"], 3);
    let margins = server.get(&format!("{session}/runs/current/margins?bins=20"));
    let total: u64 = margins["series"]
        .as_array()
        .expect("classes")
        .iter()
        .flat_map(|s| s["counts"].as_array().expect("counts"))
        .map(|c| c.as_u64().expect("a count"))
        .sum();
    assert_eq!((total, margins["edges"].as_array().map(Vec::len)), (150, Some(21)));
}

#[test]
fn no_view_is_larger_than_two_megabytes() {
    let server = start();
    // 120 000 rows of two features, as a file.
    let rows: String = (0..120_000u32)
        .map(|i| {
            let (a, b) = ((f64::from(i) * 0.754_877).fract(), (f64::from(i) * 0.569_84).fract());
            format!("{a:.4},{b:.4},{}\n", u8::from(a + b > 1.0))
        })
        .collect();
    let session = server.session(json!({ "example": "blobs" }));
    server.send("POST", &format!("{session}/upload?name=many.csv"), rows.as_bytes());
    server.until(&session, |state| state["data"]["name"] == "many.csv");
    server.train(&session, json!({ "settings": { "kernel": { "name": "linear" } } }));
    for path in
        ["plane?nx=256&ny=256&points=20000", "runs/current/trace?points=20000", "runs/current/margins?bins=400", ""]
    {
        let path = format!("{session}/{path}");
        let answer = server.call("GET", path.trim_end_matches('/'), None);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.body.len() <= 2_000_000, "{path}: {}", answer.body.len());
    }
}

#[test]
fn a_sample_has_its_row_and_its_place() {
    let server = start();
    let session = server.session(json!({ "example": "housing" }));
    let bare = server.get(&format!("{session}/rows/3"));
    assert!(bare["model"].is_null());
    assert_eq!((&bare["features"][5]["name"], &bare["target"]), (&json!("rm"), &json!("33.4")));
    server.train(&session, json!({ "settings": { "scale": "standard" } }));
    let row = server.get(&format!("{session}/rows/3"));
    let model = &row["model"];
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!((number(&model["margin"]) - (33.4 - number(&model["score"][0]))).abs() < 1e-12);
    assert!((number(&model["loss"]) - (number(&model["margin"]).abs() - 0.1).max(0.0)).abs() < 1e-12);
    assert_eq!(server.call("GET", &format!("{session}/rows/506"), None).status, 404);
    assert_eq!(server.call("GET", &format!("{session}/rows/x"), None).status, 400);
    // The worst samples are those of the certificate.
    let margins = server.get(&format!("{session}/runs/current/margins"));
    let proof = server.get(&format!("{session}/runs/current"))["certificate"]["machines"][0]["worst"].clone();
    assert_eq!(margins["worst"].as_array().map(Vec::len), proof.as_array().map(Vec::len));
}

#[test]
fn a_search_fills_its_map() {
    let server = start();
    let session = server.session(json!({ "example": "moons" }));
    assert_eq!(server.call("GET", &format!("{session}/tune"), None).status, 404);
    let mut events = server.events(&session, None);
    let grid = json!({ "gamma": [0.1, 1.0, 10.0], "C": [0.5, 5.0] });
    server.post(&format!("{session}/tune"), json!({ "grid": grid, "folds": 3 }));
    let first = events.next("cell");
    assert_eq!((&first["total"], &first["done"]), (&json!(6), &json!(1)));
    assert_eq!(events.next("tuned")["status"], "done");
    let found = server.get(&format!("{session}/tune"));
    assert_eq!(found["axes"], json!({ "x": "C", "y": "gamma" }));
    let cells = found["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 6);
    let score = |cell: &Value| cell["score"].as_f64().expect("a score");
    let top = cells.iter().map(score).fold(0.0, f64::max);
    let best = cells.iter().find(|c| c["x"] == found["best"]["x"] && c["y"] == found["best"]["y"]).expect("the best");
    assert!(score(best) == top && top > 0.9);
    for bad in [json!({}), json!({ "D": [1.0] }), json!({ "C": [] }), json!({ "C": ["x"] }), json!({ "C": 1 })] {
        let answer = server.call("POST", &format!("{session}/tune"), Some(json!({ "grid": bad })));
        assert_eq!(answer.status, 400, "{bad}");
    }
}

#[test]
fn paths_reports_models_and_commands_come_from_the_session() {
    let server = start();
    let session = server.session(json!({ "example": "sine" }));
    let mut events = server.events(&session, None);
    server.post(&format!("{session}/path"), json!({ "lambdas": [1e-3, 1.0, 1e3] }));
    events.next("path");
    let path = server.get(&format!("{session}/path"));
    assert_eq!(path["path"].as_array().map(Vec::len), Some(3));
    assert!(path["best"]["loo_mse"].as_f64().is_some_and(|mse| mse < 0.1));
    server.train(&session, json!({ "settings": { "loss": "square" } }));
    let model = server.call("GET", &format!("{session}/runs/current/model"), None);
    assert_eq!(model.header("content-disposition"), Some("attachment; filename=\"sine.model\""));
    assert!(margrave::io::model::from_bytes(&model.body, "sine.model").is_ok());
    let report = server.call("GET", &format!("{session}/runs/current/report"), None);
    assert!(String::from_utf8_lossy(&report.body).contains("margrave train sine.csv --task regress --loss square"));
    server.post(&format!("{session}/runs/current/evaluate"), json!({}));
    events.next("evaluated");
    let view = server.get(&format!("{session}/runs/current/evaluation"));
    assert_eq!(view["sets"][0]["residuals"]["predicted"].as_array().map(Vec::len), Some(200));
    let copied = server.post(&format!("{session}/copy"), json!({ "settings": { "C": 2.0 } }));
    assert_eq!(copied["command"], "margrave train sine.csv --task regress -C 2");
    let tour = server.get("/api/tour");
    assert_eq!(tour["stations"].as_array().map(Vec::len), Some(5));
    let curve = server.post("/api/loss", json!({ "loss": "huber:delta=1", "y": 0.0 }));
    assert_eq!(curve["name"], "huber:delta=1");
}

#[test]
fn lists_of_many_machines_stay_small() {
    let server = start();
    // Thirty classes: 435 machines.
    let points: Vec<[f64; 3]> =
        (0..120).map(|i| [f64::from(i % 30) + 0.01 * f64::from(i), f64::from(i % 7), f64::from(i % 30)]).collect();
    let session = server.session(json!({ "painted": { "task": "classify", "points": points } }));
    let mut events = server.events(&session, None);
    let mut run = Value::Null;
    for cost in [1.0, 2.0, 3.0] {
        run = server.train(&session, json!({ "settings": { "C": cost } }));
    }
    let machines = |run: &Value| run["certificate"]["machines"].as_array().map(Vec::len);
    assert_eq!((machines(&run), &run["certificate"]["machines_count"]), (Some(10), &json!(435)));
    assert_eq!(machines(&events.next("model")), Some(10));
    let whole = server.get(&format!("{session}/runs/current"));
    assert_eq!((machines(&whole), &whole["certificate"]["machines_count"]), (Some(300), &json!(435)));
    assert!(server.call("GET", &session, None).body.len() < 200_000);
}
