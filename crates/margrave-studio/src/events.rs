//! The event stream of a session: the last events are kept, and any number of clients read them at their own pace.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

/// Events that are kept for clients that reconnect.
const KEPT: usize = 1000;
/// Bytes of all kept events.
const KEPT_BYTES: usize = 4 << 20;

struct Ring {
    kept: VecDeque<(u64, Arc<str>)>,
    bytes: usize,
    last: u64,
}

/// The events of a session.
pub(crate) struct Events {
    ring: Mutex<Ring>,
    newest: watch::Sender<u64>,
}

impl Default for Events {
    fn default() -> Self {
        let ring = Ring { kept: VecDeque::new(), bytes: 0, last: 0 };
        Self { ring: Mutex::new(ring), newest: watch::Sender::new(0) }
    }
}

impl Events {
    fn ring(&self) -> std::sync::MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event: an object, to which type and number are added.
    pub(crate) fn send(&self, kind: &str, event: Value) {
        let mut ring = self.ring();
        ring.last += 1;
        let seq = ring.last;
        let mut object = json!({ "type": kind, "seq": seq });
        if let (Some(object), Value::Object(event)) = (object.as_object_mut(), event) {
            object.extend(event);
        }
        let line: Arc<str> = format!("{object}\n").into();
        ring.bytes += line.len();
        ring.kept.push_back((seq, line));
        while ring.kept.len() > KEPT || ring.bytes > KEPT_BYTES && ring.kept.len() > 1 {
            if let Some((_, old)) = ring.kept.pop_front() {
                ring.bytes -= old.len();
            }
        }
        drop(ring);
        self.newest.send_replace(seq);
    }

    /// The number of the last event.
    pub(crate) fn last(&self) -> u64 {
        self.ring().last
    }

    /// The events after number `seq`; `None` if some of them are no longer kept, or `seq` is not of this stream.
    pub(crate) fn after(&self, seq: u64) -> Option<Vec<(u64, Arc<str>)>> {
        let ring = self.ring();
        let first = ring.kept.front().map_or(ring.last + 1, |(at, _)| *at);
        if seq > ring.last || seq + 1 < first {
            return None;
        }
        Some(ring.kept.iter().filter(|(at, _)| *at > seq).cloned().collect())
    }

    /// Tells when there are new events.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_events_are_dropped_and_missing_ones_are_noticed() {
        let events = Events::default();
        assert_eq!(events.after(0), Some(vec![]));
        assert_eq!(events.after(1), None);
        for k in 0..KEPT + 10 {
            events.send("step", json!({ "k": k }));
        }
        assert_eq!(events.after(0), None);
        let last = events.last();
        assert_eq!(last, KEPT as u64 + 10);
        let tail = events.after(last - 2).unwrap();
        assert_eq!(tail.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [last - 1, last]);
        let line: Value = serde_json::from_str(&tail[1].1).unwrap();
        assert_eq!(line, json!({ "type": "step", "seq": last, "k": KEPT + 9 }));
    }

    #[test]
    fn memory_is_bounded_by_bytes() {
        let events = Events::default();
        let long = "x".repeat(KEPT_BYTES / 4);
        (0..50).for_each(|_| events.send("big", json!({ "text": long })));
        assert!(events.ring().bytes <= KEPT_BYTES && events.ring().kept.len() <= 4);
    }
}
