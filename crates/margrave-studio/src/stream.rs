//! The event stream of a session over HTTP: one JSON object a line, for as long as the client listens.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query as QueryPart, RawPathParams, State};
use axum::http::{HeaderValue, Response, header};
use serde_json::json;
use tokio::sync::mpsc;

use crate::answer::respond;
use crate::session::{Session, Shared};

/// Longest time between two lines.
const PING: Duration = Duration::from_secs(4);

/// Lines that are written as a client reads them.
struct Lines(mpsc::Receiver<Bytes>);

impl futures_core::Stream for Lines {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}

/// Counts an open stream while it lives.
struct OpenStream(Shared);

impl OpenStream {
    fn new(app: Shared) -> Self {
        app.streams.fetch_add(1, Ordering::Relaxed);
        Self(app)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.touch();
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) async fn events(
    State(app): State<Shared>,
    parts: RawPathParams,
    QueryPart(query): QueryPart<HashMap<String, String>>,
) -> Response<Body> {
    let id = parts.iter().find(|(key, _)| *key == "session").map_or("", |(_, value)| value);
    let session = match app.session(id) {
        Ok(session) => session,
        Err(refusal) => return respond(Err(refusal)),
    };
    let from = query.get("from").and_then(|text| text.parse::<u64>().ok());
    let (sender, receiver) = mpsc::channel(16);
    let open = OpenStream::new(app);
    tokio::spawn(async move { follow(&open, &session, from, &sender).await });
    let mut response = Response::new(Body::from_stream(Lines(receiver)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}

/// Sends events until the client has gone away or the server closes.
async fn follow(open: &OpenStream, session: &Arc<Session>, from: Option<u64>, sender: &mpsc::Sender<Bytes>) {
    let mut newest = session.events.watch();
    let mut last = from;
    loop {
        newest.mark_unchanged();
        match last.and_then(|seq| session.events.after(seq)) {
            Some(found) => {
                for (seq, line) in found {
                    if sender.send(Bytes::copy_from_slice(line.as_bytes())).await.is_err() {
                        return;
                    }
                    last = Some(seq);
                }
            }
            None => {
                let own = session.clone();
                let Ok(state) = tokio::task::spawn_blocking(move || own.state()).await else { return };
                last = state["seq"].as_u64();
                let line = json!({ "type": "state", "seq": last, "state": state });
                if sender.send(format!("{line}\n").into()).await.is_err() {
                    return;
                }
            }
        }
        if open.0.closing.load(Ordering::Relaxed) || session.has_ended() {
            return;
        }
        match tokio::time::timeout(PING, newest.changed()).await {
            Ok(Ok(())) => {}
            // The session has ended.
            Ok(Err(_)) => return,
            Err(_) => {
                if sender.send(Bytes::from_static(b"{\"type\":\"ping\"}\n")).await.is_err() {
                    return;
                }
            }
        }
    }
}
