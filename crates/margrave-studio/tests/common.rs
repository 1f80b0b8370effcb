//! A server on a free port, and a client that says exactly what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use margrave::io::Loaded;
use margrave::{Cancel, Certificate, Dataset, Fit, Svm, Threads};
use margrave_studio::{End, Evaluated, Options, PredictedSet, Presenter, Problem, ReportRequest, Server};
use serde_json::{Value, json};

/// Results as plain JSON.
struct Plain;

impl Presenter for Plain {
    fn fit(&self, fit: &Fit, _: &Loaded, name: &str) -> Value {
        json!({ "data": name, "solver": fit.model().solver, "seconds": {}, "support_vectors": fit.totals().support_vectors })
    }

    fn certificates(&self, certificates: &[Certificate]) -> Value {
        let one = &certificates[0];
        json!({ "primal": one.primal(), "dual": one.dual(), "gap": one.gap(), "relative_gap": one.relative_gap(),
            "violation": one.violation(), "machines": certificates })
    }

    fn certificate_rows(&self, certificates: &[Certificate]) -> Vec<(String, String)> {
        vec![("machines".to_owned(), certificates.len().to_string())]
    }

    fn evaluate(&self, _: &Svm, fit: &Fit, data: &Dataset) -> Result<Evaluated, Problem> {
        let failed = |e: margrave::Error| Problem { message: e.to_string(), hint: None };
        let predictions = fit.predict(&data.points).map_err(failed)?;
        let set = PredictedSet { name: "training", quality: json!({}), predictions, scores: None, probabilities: None };
        Ok(Evaluated { how: "the training data".into(), folds: None, sets: vec![set] })
    }

    fn report(&self, request: &ReportRequest<'_>) -> Result<String, Problem> {
        Ok(format!("<!doctype html><title>{}</title><pre>{}</pre>", request.name, request.command))
    }
}

/// A running server.
pub(crate) struct Running {
    pub(crate) port: u16,
    pub(crate) token: String,
    stop: Cancel,
    thread: Option<JoinHandle<End>>,
}

pub(crate) fn start_with(data: Option<&Path>, folder: Option<&Path>, idle: Duration) -> Running {
    let stop = Cancel::new();
    let options = Options {
        data: data.map(Path::to_owned),
        folder: folder.map(Path::to_owned),
        port: 0,
        idle,
        threads: Threads::new(2),
        stop: stop.clone(),
    };
    let server = Server::bind(options, Arc::new(Plain)).expect("a free port");
    let (port, token) = (server.port(), server.token().to_owned());
    let thread = std::thread::spawn(move || server.run().expect("the server runs"));
    Running { port, token, stop, thread: Some(thread) }
}

pub(crate) fn start() -> Running {
    start_with(None, None, Duration::from_secs(600))
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }
}

fn read(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some((key, value)) = line.trim_end().split_once(": ") {
            headers.push((key.to_lowercase(), value.to_owned()));
        }
    }
    let mut body = Vec::new();
    let _ = reader.read_to_end(&mut body);
    Answer { status, headers, body }
}

impl Running {
    /// Sends bytes as they are.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        // A server that has refused need not read the rest.
        let _ = stream.write_all(bytes);
        read(stream)
    }

    /// A request with these headers and no others but those HTTP needs.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        headers.iter().for_each(|(key, value)| text += &format!("{key}: {value}\r\n"));
        text += &format!("Content-Length: {}\r\n\r\n", body.len());
        self.raw(&[text.as_bytes(), body].concat())
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A request of the page.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map_or(vec![], |body| body.to_string().into_bytes());
        self.send(method, path, &body)
    }

    /// The same with a body of bytes.
    pub(crate) fn send(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let (host, bearer) = (self.host(), format!("Bearer {}", self.token));
        let own = format!("http://{host}");
        let headers =
            [("Host", host.as_str()), ("Authorization", &bearer), ("Origin", &own), ("Sec-Fetch-Site", "same-origin")];
        self.request(method, path, &headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.call("GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.call("POST", path, Some(body));
        assert!(answer.status < 300, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// A session with a source, loaded; its address.
    pub(crate) fn session(&self, source: Value) -> String {
        let state = self.post("/api/sessions", json!({ "source": source }));
        let at = format!("/api/sessions/{}", state["session"].as_str().expect("a name"));
        let state = self.until(&at, |state| state["loading"].is_null());
        assert!(state["failed"].is_null(), "{}", state["failed"]);
        at
    }

    /// Asks again until something holds.
    pub(crate) fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.get(path);
            if holds(&found) {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "waited too long: {found}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Trains and waits; the run.
    pub(crate) fn train(&self, session: &str, request: Value) -> Value {
        let run = self.post(&format!("{session}/train"), request)["run"].clone();
        self.finished(session, &run)
    }

    /// Waits for a run.
    pub(crate) fn finished(&self, session: &str, run: &Value) -> Value {
        let state = self.until(session, |state| {
            let runs = state["runs"].as_array().expect("runs");
            state["job"].is_null() && runs.iter().any(|r| r["run"] == *run && r["status"] != "running")
        });
        state["runs"].as_array().expect("runs").iter().find(|r| r["run"] == *run).expect("the run").clone()
    }

    /// Opens the event stream.
    pub(crate) fn events(&self, session: &str, from: Option<u64>) -> Events {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let query = from.map_or(String::new(), |from| format!("?from={from}"));
        let text = format!(
            "GET {session}/events{query} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.host(),
            self.token
        );
        stream.write_all(text.as_bytes()).expect("a request");
        Events(BufReader::new(stream))
    }

    /// Waits for the server to end by itself.
    pub(crate) fn end(mut self) -> End {
        self.thread.take().expect("a thread").join().expect("the server ends")
    }
}

/// An open event stream.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    /// The next event of a type.
    pub(crate) fn next(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("a line") > 0, "the stream ended before {kind}");
            // Headers and sizes of chunks are not JSON objects.
            if line.starts_with('{') {
                let event: Value = serde_json::from_str(&line).expect("an event is a line");
                if event["type"] == kind {
                    return event;
                }
            }
        }
    }
}

/// The header of a binary answer, and its arrays by name.
pub(crate) fn header(bytes: &[u8]) -> Value {
    assert_eq!(&bytes[..4], b"MGA1");
    let length = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
    serde_json::from_slice(&bytes[8..8 + length]).expect("a header")
}

/// An array of single-precision numbers of a binary answer.
pub(crate) fn floats(bytes: &[u8], name: &str) -> Vec<f32> {
    let length = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
    let place = &header(bytes)["arrays"][name];
    assert_eq!(place["type"], "f32", "{name}");
    let (offset, count) = (place["offset"].as_u64().expect("offset"), place["count"].as_u64().expect("count"));
    let from = 8 + length + offset as usize;
    let part = &bytes[from..from + 4 * count as usize];
    part.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect()
}

/// An array of bytes of a binary answer.
pub(crate) fn bytes_of(bytes: &[u8], name: &str) -> Vec<u8> {
    let length = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
    let place = &header(bytes)["arrays"][name];
    let (offset, count) = (place["offset"].as_u64().expect("offset"), place["count"].as_u64().expect("count"));
    bytes[8 + length + offset as usize..][..count as usize].to_vec()
}

/// An array of double-precision numbers of a binary answer.
pub(crate) fn doubles(bytes: &[u8], name: &str) -> Vec<f64> {
    let length = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
    let place = &header(bytes)["arrays"][name];
    assert_eq!(place["type"], "f64", "{name}");
    let (offset, count) = (place["offset"].as_u64().expect("offset"), place["count"].as_u64().expect("count"));
    let from = 8 + length + offset as usize;
    let part = &bytes[from..from + 8 * count as usize];
    part.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect()
}
