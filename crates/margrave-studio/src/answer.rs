//! Answers and errors.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use margrave::conflict::{OptionName, Spelling};
use serde_json::{Value, json};

use crate::presenter::Problem;

/// An error as the page sees it.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None }
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(400, "bad_request", message)
    }

    pub(crate) fn settings(message: impl Into<String>) -> Self {
        Self::new(400, "bad_settings", message)
    }

    pub(crate) fn data(message: impl Into<String>) -> Self {
        Self::new(400, "bad_data", message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(400, "unsupported", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "not_found", message)
    }

    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(404, "gone", message)
    }

    pub(crate) fn no_data() -> Self {
        Self::new(409, "no_data", "there is no data yet: open a file, an example or a canvas first")
    }

    pub(crate) fn no_model() -> Self {
        Self::new(409, "no_model", "there is no model yet: train first")
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error as JSON, as in answers and events.
    pub(crate) fn json(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "hint": self.hint })
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { status: 400, code: "bad_settings", message: problem.message, hint: problem.hint }
    }
}

/// Options as the page names them: `loss = hinge`.
pub(crate) struct Names;

impl Spelling for Names {
    fn option(&self, option: OptionName, value: Option<&str>) -> String {
        let name = match option {
            OptionName::Cost => "C",
            other => other.name(),
        };
        match value {
            Some(value) => format!("{name} = {value}"),
            None => name.to_owned(),
        }
    }
}

impl From<margrave::Error> for Refusal {
    fn from(error: margrave::Error) -> Self {
        Refusal::settings(error.text(&Names))
    }
}

impl From<margrave::io::ReadError> for Refusal {
    fn from(error: margrave::io::ReadError) -> Self {
        Refusal::data(error.text(&Names))
    }
}

/// A successful answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Json(u16, Value),
    /// A binary view.
    Arrays(Vec<u8>),
    /// A file to save: media type, name, content.
    File(&'static str, String, Vec<u8>),
    Empty(u16),
}

pub(crate) type Outcome = Result<Answer, Refusal>;

/// A JSON answer with status 200.
pub(crate) fn ok(value: Value) -> Outcome {
    Ok(Answer::Json(200, value))
}

fn response(status: u16, media: &str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(media) = HeaderValue::from_str(media) {
        response.headers_mut().insert(header::CONTENT_TYPE, media);
    }
    response
}

/// The answer to an HTTP request.
pub(crate) fn respond(outcome: Outcome) -> Response<Body> {
    match outcome {
        Ok(Answer::Json(status, value)) => response(status, "application/json", value.to_string()),
        Ok(Answer::Arrays(bytes)) => response(200, crate::arrays::MEDIA_TYPE, bytes),
        Ok(Answer::File(media, name, bytes)) => {
            let mut response = response(200, media, bytes);
            let plain: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
            if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{plain}\"")) {
                response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
            }
            response
        }
        Ok(Answer::Empty(status)) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::NO_CONTENT);
            response
        }
        Err(refusal) => response(refusal.status, "application/json", json!({ "error": refusal.json() }).to_string()),
    }
}
