//! Trainings from the first request to the last event.

use serde_json::{Value, json};

use crate::common::{doubles, start};

#[test]
fn a_training_is_streamed_and_certified() {
    let server = start();
    let session = server.session(json!({ "example": "heart" }));
    let mut events = server.events(&session, None);
    let state = events.next("state");
    assert_eq!(state["state"]["data"]["n"], 270);
    let run = server.post(&format!("{session}/train"), json!({ "settings": { "C": 10.0 } }))["run"].clone();
    let begin = events.next("begin");
    assert_eq!((&begin["run"], &begin["n"]), (&run, &json!(270)));
    let model = events.next("model");
    let done = events.next("done")["run"].clone();
    assert_eq!(done["status"], "optimal");
    assert_eq!(model["certificate"], done["certificate"]);
    assert_eq!(done["settings"]["C"], 10.0);
    // A client that comes later gets what it missed.
    let mut later = server.events(&session, state["seq"].as_u64());
    assert_eq!(later.next("done")["run"]["run"], run);
    assert_eq!(server.get(&session)["current"], run);
}

#[test]
fn the_certificate_is_that_of_verify_to_the_last_digit() {
    let server = start();
    let cases = [
        ("heart", json!({})),
        ("iris", json!({ "C": 3.0 })),
        ("iris", json!({ "kernel": { "name": "linear" }, "multiclass": "ovr" })),
        ("housing", json!({ "scale": "standard", "C": 5.0 })),
        ("moons", json!({ "loss": "logistic" })),
        ("outlier", json!({ "loss": "sigmoid:eta=2", "kernel": { "name": "linear" } })),
        ("rings", json!({ "task": "novelty", "nu": 0.2 })),
        ("blobs", json!({ "nu": 0.4 })),
    ];
    for (example, settings) in cases {
        let session = server.session(json!({ "example": example }));
        let run = server.train(&session, json!({ "settings": settings }));
        assert_eq!(run["status"], "optimal", "{example} {settings}: {run}");
        let mut shown = run["certificate"].clone();
        let verified = server.post(&format!("{session}/runs/current/verify"), json!({}));
        shown.as_object_mut().expect("an object").remove("text");
        // Only the training knows what a convex start reached.
        if let Some(start) = shown.pointer_mut("/machines/0/start_objective") {
            *start = Value::Null;
        }
        assert_eq!(shown, verified, "{example} {settings}");
    }
}

#[test]
fn stepping_goes_on_with_the_same_run_until_it_is_optimal() {
    let server = start();
    for solver in ["smo", "irwls", "decomposition"] {
        let session = server.session(json!({ "example": "blobs" }));
        let settings = json!({ "solver": solver, "kernel": { "name": "linear" }, "C": 0.5 });
        let step = json!({ "settings": settings, "mode": "step", "steps": 1 });
        let first = server.train(&session, step.clone());
        let second = server.train(&session, step);
        assert_eq!(first["run"], second["run"], "{solver}");
        assert!(second["model_version"].as_u64() > first["model_version"].as_u64(), "{solver}");
        let iterations = |run: &Value| run["summary"]["iterations"].as_u64().expect("a number");
        assert!(iterations(&second) > iterations(&first), "{solver}");
        // No step is in the trace twice.
        let trace = server.call("GET", &format!("{session}/runs/current/trace"), None).body;
        assert!(doubles(&trace, "iteration").windows(2).all(|w| w[0] <= w[1]), "{solver}");
        let end = server.train(&session, json!({ "settings": settings, "mode": "resume" }));
        assert_eq!((&end["run"], &end["status"]), (&first["run"], &json!("optimal")), "{solver}");
        let gap = |run: &Value| run["certificate"]["relative_gap"].as_f64().unwrap_or(f64::INFINITY);
        assert!(gap(&end) <= gap(&first), "{solver}: {} {}", gap(&end), gap(&first));
        let polished = server.train(&session, json!({ "settings": settings, "mode": "polish" }));
        if solver != "smo" {
            assert!(gap(&polished) <= 1e-9, "{solver}: {}", gap(&polished));
        }
    }
}

#[test]
fn a_long_training_shows_models_stops_and_resumes() {
    let server = start();
    // Two overlapping clouds and a large C: a problem that takes a while.
    let points: Vec<[f64; 3]> = (0..6000)
        .map(|i| {
            let (a, b) = ((f64::from(i) * 0.754_877).fract(), (f64::from(i) * 0.569_84).fract());
            [a, b, if (f64::from(i) * 0.618_034).fract() < 0.5 { 1.0 } else { -1.0 }]
        })
        .collect();
    let session = server.session(json!({ "painted": { "task": "classify", "points": points } }));
    let mut events = server.events(&session, None);
    let settings = json!({ "C": 1e4, "kernel": { "name": "rbf", "gamma": 30.0 }, "gap": 1e-7 });
    let run =
        server.post(&format!("{session}/train"), json!({ "settings": settings, "part_seconds": 0.03 }))["run"].clone();
    let model = events.next("model");
    assert_eq!((&model["run"], &model["final"]), (&run, &json!(false)), "the training was over too soon for this test");
    // The server answers while all cores train.
    assert_eq!(server.call("GET", &format!("{session}/plane?nx=16&ny=16"), None).status, 200);
    server.post(&format!("{session}/stop"), json!({}));
    let done = server.finished(&session, &run);
    assert_eq!(done["status"], "interrupted");
    assert!(done["certificate"]["gap"].is_number());
    // A client that goes away stops nothing.
    let again = server
        .post(&format!("{session}/train"), json!({ "settings": settings, "mode": "resume", "part_seconds": 0.03 }));
    assert_eq!(again["run"], run);
    drop(events);
    let version = done["model_version"].as_u64();
    server.until(&format!("{session}/runs/{run}"), |run| run["model_version"].as_u64() > version);
    // Another training takes its place at once.
    let easy = server.train(&session, json!({ "settings": { "C": 1e-3, "kernel": { "name": "linear" } } }));
    assert_eq!(easy["status"], "optimal");
    let given_up = server.get(&format!("{session}/runs/{run}"));
    assert_eq!(given_up["status"], "interrupted");
    assert!(given_up["certificate"]["gap"].is_number(), "the last certified model stays");
}

#[test]
fn a_slider_supersedes_its_own_requests() {
    let server = start();
    let session = server.session(json!({ "example": "moons2000" }));
    let mut last = Value::Null;
    for k in 0..30 {
        let settings = json!({ "C": 2f64.powi(k % 10), "kernel": { "name": "rbf", "gamma": 1.0 } });
        last = server.post(&format!("{session}/train"), json!({ "settings": settings }))["run"].clone();
        // A run can be asked for as soon as it has a number, even if the engine has not begun it.
        assert_eq!(server.get(&format!("{session}/runs/{last}"))["run"], last);
    }
    let run = server.finished(&session, &last);
    assert_eq!(run["status"], "optimal");
    let state = server.get(&session);
    assert_eq!(state["current"], last);
    let runs = state["runs"].as_array().expect("runs");
    let fine = |run: &Value| run["status"] == "optimal" || run["status"] == "interrupted";
    assert!(runs.iter().all(fine), "{runs:?}");
}

#[test]
fn warm_starts_reach_the_optimum_of_the_new_problem() {
    let server = start();
    let session = server.session(json!({ "example": "heart" }));
    let settings = json!({ "C": 7.0, "kernel": { "name": "rbf", "gamma": 0.2 }, "gap": 1e-8 });
    server.train(&session, json!({ "settings": { "C": 0.3 } }));
    let warm = server.train(&session, json!({ "settings": settings }));
    let cold = server.train(&session, json!({ "settings": settings, "start": "cold" }));
    assert!(warm["started_from"].is_number() && cold["started_from"].is_null());
    let primal = |run: &Value| run["certificate"]["primal"].as_f64().expect("a number");
    assert!((primal(&warm) - primal(&cold)).abs() <= 1e-7 * primal(&cold));
    let from = server.train(&session, json!({ "settings": settings, "start": { "run": 1 } }));
    assert_eq!(from["started_from"], 1);
}

#[test]
fn old_models_are_dropped_and_views_say_so() {
    let server = start();
    let session = server.session(json!({ "example": "blobs" }));
    for k in 0..25 {
        server.train(&session, json!({ "settings": { "C": 1.0 + f64::from(k) } }));
    }
    let runs = server.get(&format!("{session}/runs"));
    let kept: Vec<bool> = runs["runs"].as_array().expect("runs").iter().map(|r| r["kept"] == true).collect();
    assert_eq!((kept.len(), kept.iter().filter(|k| **k).count()), (25, 20));
    let answer = server.call("GET", &format!("{session}/runs/1/margins"), None);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("gone")));
    // The proof stays listed.
    assert!(server.get(&format!("{session}/runs/1"))["certificate"]["gap"].is_number());
}

#[test]
fn mistakes_are_told_with_their_names() {
    let server = start();
    let session = server.session(json!({ "example": "heart" }));
    for (body, code, word) in [
        (json!({ "settings": { "C": -1.0 } }), "bad_settings", "-1"),
        (json!({ "settings": { "loss": "hing" } }), "bad_settings", "hing"),
        (json!({ "settings": { "loss": "epsilon" } }), "bad_settings", "epsilon"),
        (json!({ "settings": { "Q": 1 } }), "bad_settings", "Q"),
        (json!({ "mode": "fly" }), "bad_request", "fly"),
        (json!({ "start": { "walk": 1 } }), "bad_request", "start"),
    ] {
        let answer = server.call("POST", &format!("{session}/train"), Some(body.clone()));
        match answer.status {
            400 => {
                let error = answer.json()["error"].clone();
                assert_eq!(error["code"], code, "{body}: {error}");
                assert!(error["message"].as_str().is_some_and(|m| m.contains(word)), "{body}: {error}");
            }
            // What depends on the data is found when it is trained.
            202 => {
                let run = server.finished(&session, &answer.json()["run"]);
                assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!(code)), "{body}: {run}");
            }
            other => panic!("{body}: {other}"),
        }
    }
    assert_eq!(server.call("GET", "/api/sessions/none", None).status, 404);
    assert_eq!(server.call("GET", &format!("{session}/runs/77/margins"), None).status, 404);
    assert_eq!(server.call("GET", &format!("{session}/runs/x/margins"), None).status, 400);
    assert_eq!(server.send("POST", &format!("{session}/train"), b"{").status, 400);
    let empty = server.post("/api/sessions", json!({}));
    let at = format!("/api/sessions/{}", empty["session"].as_str().expect("a name"));
    assert_eq!(server.call("POST", &format!("{at}/train"), Some(json!({}))).json()["error"]["code"], "no_data");
    assert_eq!(server.call("DELETE", &at, None).status, 204);
    assert_eq!(server.call("GET", &at, None).status, 404);
}

#[test]
fn uploads_and_painted_points_become_data() {
    let server = start();
    let session = server.session(json!({ "painted": { "task": "classify" } }));
    let answer = server.call("POST", &format!("{session}/train"), Some(json!({})));
    let run = server.finished(&session, &answer.json()["run"]);
    assert_eq!(run["status"], "failed");
    let ops = json!([{ "op": "add", "at": [0, 0], "label": 0 }, { "op": "add", "at": [1, 1], "label": 1 },
        { "op": "add", "at": [0, 1], "label": 0 }, { "op": "add", "at": [2, 1], "label": 1 }]);
    let version = server.get(&session)["data"]["version"].clone();
    let data = server.post(&format!("{session}/edit"), json!({ "version": version, "ops": ops }));
    assert_eq!((&data["n"], data["classes"].as_array().map(Vec::len)), (&json!(4), Some(2)));
    let stale = server.call("POST", &format!("{session}/edit"), Some(json!({ "version": version, "ops": [] })));
    assert_eq!((stale.status, &stale.json()["error"]["code"]), (409, &json!("busy")));
    assert_eq!(server.train(&session, json!({}))["status"], "optimal");
    // Saved and uploaded again, the data is the same.
    let saved = server.call("GET", &format!("{session}/data"), None);
    assert_eq!(saved.header("content-disposition"), Some("attachment; filename=\"painted.csv\""));
    server.send("POST", &format!("{session}/upload?name=../../points.csv"), &saved.body);
    let state = server.until(&session, |state| state["loading"].is_null() && state["data"]["name"] == "points.csv");
    assert_eq!((&state["data"]["n"], &state["data"]["task"]), (&json!(4), &json!("classify")));
    server.send("POST", &format!("{session}/upload?name=bad.csv"), b"a,b\n1,\"");
    let state = server.until(&session, |state| state["loading"].is_null());
    assert_eq!(state["failed"]["code"], "bad_data");
    assert_eq!(state["data"]["name"], "points.csv");
}

#[test]
fn many_clients_at_once_get_answers() {
    let server = start();
    let session = server.session(json!({ "example": "moons2000" }));
    server.train(&session, json!({}));
    std::thread::scope(|scope| {
        for k in 0..50 {
            let (server, session) = (&server, &session);
            scope.spawn(move || {
                let mut events = server.events(session, None);
                events.next("state");
                for _ in 0..3 {
                    assert_eq!(server.get(session)["data"]["n"], 2000);
                    let path = format!("{session}/plane?nx=32&ny=32&points={}", 100 + k);
                    assert_eq!(server.call("GET", &path, None).status, 200);
                }
            });
        }
    });
    assert_eq!(server.train(&session, json!({ "settings": { "C": 3.0 } }))["status"], "optimal");
}
