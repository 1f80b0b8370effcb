//! `margrave studio`: the page has the figures of the other commands.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Sandbox, command, heart, margrave};

/// A running studio.
struct Studio {
    child: Child,
    port: u16,
    token: String,
}

impl Drop for Studio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Studio {
    fn start(args: &[&str]) -> Self {
        let mut child = command(&[&["studio", "--no-open", "--json"], args].concat()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output"));
        let mut text = String::new();
        while serde_json::from_str::<Value>(&text).is_err() {
            assert!(lines.read_line(&mut text).expect("a line") > 0, "it ended: {text}");
        }
        let told: Value = serde_json::from_str(&text).expect("one object");
        let port = told["port"].as_u64().expect("a port") as u16;
        let token = told["token"].as_str().expect("a token").to_owned();
        assert_eq!(told["url"], format!("http://127.0.0.1:{port}/#token={token}"));
        Self { child, port, token }
    }

    /// Status and body of the answer to a request of the page.
    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Vec<u8>) {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.port,
            self.token,
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream.write_all(text.as_bytes()).expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("headers") + 4;
        let status = String::from_utf8_lossy(&answer[9..12]).parse().expect("a status");
        (status, answer.split_off(end))
    }

    fn json(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, bytes) = self.ask(method, path, &body);
        assert!(status < 300, "{method} {path}: {status} {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.json("GET", path, Value::Null);
            if holds(&found) {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "waited too long: {found}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn certificates_models_and_reports_are_those_of_the_program() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("heart.svm", std::fs::read(heart()).expect("the data"));
    let studio = Studio::start(&[&data]);
    let opened = studio.json("POST", "/api/sessions", json!({}));
    let session = format!("/api/sessions/{}", opened["session"].as_str().expect("a name"));
    let state = studio.until(&session, |state| !state["data"].is_null());
    assert_eq!((&state["data"]["name"], &state["data"]["n"]), (&json!("heart.svm"), &json!(270)));
    for settings in [
        json!({ "C": 10.0, "kernel": { "name": "rbf", "gamma": 0.1 } }),
        json!({ "kernel": { "name": "linear" }, "gap": 1e-6 }),
        json!({ "scale": "standard", "loss": "squared-hinge", "probability": true }),
        json!({ "loss": "sigmoid:eta=2" }),
    ] {
        let run = studio.json("POST", &format!("{session}/train"), json!({ "settings": settings }))["run"].clone();
        let at = format!("{session}/runs/{run}");
        let run = studio.until(&at, |run| run["status"] != "running");
        assert_eq!(run["status"], "optimal", "{run}");
        let (_, model) = studio.ask("GET", &format!("{at}/model"), &Value::Null);
        let file = sandbox.file("page.model", model);
        let verified = margrave(&["verify", &file, &data, "--json"]).exits(0).json();
        let shown = run["certificate"].as_object().expect("a certificate");
        for (key, value) in shown.iter().filter(|(key, _)| !["text", "start_objective"].contains(&key.as_str())) {
            assert_eq!(verified[key], *value, "{key} of {settings}");
        }
        // For people as well: the same lines.
        let printed = margrave(&["verify", &file, &data]).exits(0).out;
        for line in run["certificate"]["text"].as_array().expect("lines") {
            let (name, value) = (line[0].as_str().expect("a name"), line[1].as_str().expect("a value"));
            let found = printed.lines().any(|own| own.trim().starts_with(name) && own.ends_with(value));
            assert!(found, "{name} {value} is not in\n{printed}");
        }
        // The command that is offered trains the same model.
        let copied = studio.json("POST", &format!("{session}/copy"), json!({ "settings": settings }));
        let words: Vec<&str> = copied["command"].as_str().expect("a command").split(' ').skip(3).collect();
        let trained = sandbox.train(&data, &words).exits(0).json();
        for key in ["primal", "objective"].iter().filter(|key| shown.contains_key(**key)) {
            let (a, b) = (shown[*key].as_f64().expect("a number"), trained[*key].as_f64().expect("a number"));
            assert!((a - b).abs() <= 1e-2 * a.abs(), "{key} of {settings}: {a} {b}");
        }
    }
    studio.json("POST", &format!("{session}/runs/3/evaluate"), json!({}));
    studio.until(&format!("{session}/runs/3"), |run| run["evaluated"] == true);
    let found = studio.json("GET", &format!("{session}/runs/3/evaluation"), Value::Null);
    assert_eq!((&found["folds"], &found["sets"][0]["name"]), (&json!(5), &json!("left out")));
    let counts: u64 = found["sets"][0]["confusion"]
        .as_array()
        .expect("rows")
        .iter()
        .flat_map(|row| row.as_array().expect("counts"))
        .map(|count| count.as_u64().expect("a count"))
        .sum();
    assert_eq!(counts, 270);
    assert_eq!(found["sets"][0]["calibration"]["bins"].as_array().map(Vec::len), Some(10));
    let (status, page) = studio.ask("GET", &format!("{session}/runs/3/report"), &Value::Null);
    let page = String::from_utf8(page).expect("text");
    assert_eq!(status, 200);
    assert!(page.contains("Confusion matrix") && page.contains("margrave train heart.svm --loss squared-hinge"));
    assert!(!page.contains("http://127.0.0.1") && !page.contains(&studio.token));
}

#[test]
fn bad_usage_is_named() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("a.csv", "1,2,0\n3,4,1\n");
    let other = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    for (args, named) in [
        (&["studio", "no/such.csv", "--no-open"][..], "no/such.csv"),
        (&["studio", "--folder", "no/such", "--no-open"], "no/such"),
        (&["studio", "--folder", &data, "--no-open"], "not a folder"),
        (&["studio", &data, "--folder", &other.path("."), "--no-open"], "--folder"),
        (&["studio", "--port", &port, "--no-open"], "another program"),
        (&["studio", "--port", "99999", "--no-open"], "--port"),
        (&["studio", "--idle", "0", "--no-open"], "--idle"),
    ] {
        let ran = margrave(args).exits(2);
        assert!(ran.err.contains(named), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{args:?}");
    }
}

#[test]
fn without_use_it_ends_and_says_why() {
    let ran = margrave(&["studio", "--no-open", "--idle", "0.005"]).exits(0);
    assert!(ran.out.starts_with("Margrave Studio  http://127.0.0.1:"), "{}", ran.out);
    assert!(ran.err.contains("without use"), "{}", ran.err);
}
