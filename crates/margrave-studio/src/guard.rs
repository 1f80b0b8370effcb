//! The outermost layer: nothing passes that is not allowed here.
//!
//! A page of another site can make a browser send requests to this server, and a name of another site can be made to lead to
//! 127.0.0.1. So the `Host` must be ours, an `Origin` must be ours, a request that another site caused is refused, and
//! everything but the embedded files of the page needs the token, which only the page that was opened with it knows.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::Next;

use crate::answer::{Refusal, respond};
use crate::assets;
use crate::routes::{body_limit, too_large};
use crate::session::Shared;

/// What the page may load and connect to: this server alone.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                 img-src 'self' blob:; frame-ancestors 'none'";

/// Whether two texts are equal, in a time that does not depend on where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// The only value of a header; `Err` if there are several or it is not text.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        _ => Err(()),
    }
}

/// Why a request is refused, if it is.
fn check(app: &Shared, request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let host = single(headers, header::HOST).ok().flatten();
    // A full URL in the request line names a host as well.
    let named = request.uri().authority().map(|authority| authority.as_str());
    if host.is_none_or(|host| !app.is_own_host(host)) || named.is_some_and(|host| !app.is_own_host(host)) {
        return Err(Refusal::new(421, "forbidden", "this server answers to 127.0.0.1 and localhost only")
            .hint("through an ssh tunnel use the same port on both sides: ssh -L PORT:127.0.0.1:PORT HOST"));
    }
    let foreign = || Err(Refusal::new(403, "forbidden", "the request comes from another site"));
    match single(headers, header::ORIGIN) {
        Ok(None) => {}
        Ok(Some(origin)) if origin.strip_prefix("http://").is_some_and(|host| app.is_own_host(host)) => {}
        _ => return foreign(),
    }
    match single(headers, HeaderName::from_static("sec-fetch-site")) {
        Ok(None | Some("same-origin" | "none")) => Ok(()),
        _ => foreign(),
    }
}

/// Whether the request has the token.
fn has_token(app: &Shared, headers: &HeaderMap) -> bool {
    let given = single(headers, header::AUTHORIZATION).ok().flatten();
    given.and_then(|text| text.strip_prefix("Bearer ")).is_some_and(|token| same(token.as_bytes(), app.token()))
}

/// The embedded file a request asks for.
fn asset(request: &Request) -> Option<Response<Body>> {
    let (get, head) = (request.method() == Method::GET, request.method() == Method::HEAD);
    if !get && !head {
        return None;
    }
    if let Some((name, bytes)) = assets::from_disk(request.uri().path()) {
        let mut response = Response::new(Body::from(bytes));
        let media = HeaderValue::from_static(assets::media_type(&name));
        response.headers_mut().insert(header::CONTENT_TYPE, media);
        return Some(response);
    }
    let asset = assets::find(request.uri().path())?;
    let known = request.headers().get(header::IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == asset.tag.as_bytes());
    let mut response = Response::new(if head || known { Body::empty() } else { Body::from(asset.bytes) });
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(assets::media_type(asset.name)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ETAG, HeaderValue::from_static(asset.tag));
    Some(response)
}

/// Refuses a body that is announced to be too large before any of it is read.
fn announced(request: &Request) -> Result<(), Refusal> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let limit = body_limit(request.uri().path());
    match length.and_then(|length| length.parse::<u64>().ok()) {
        Some(length) if length > limit as u64 => Err(too_large(limit)),
        _ => Ok(()),
    }
}

/// The layer itself.
pub(crate) async fn guard(State(app): State<Shared>, request: Request, next: Next) -> Response<Body> {
    let mut response = match check(&app, &request) {
        Err(refusal) => respond(Err(refusal)),
        Ok(()) => match asset(&request) {
            Some(response) => response,
            None if has_token(&app, request.headers()) => {
                app.touch();
                match announced(&request) {
                    Ok(()) => next.run(request).await,
                    Err(refusal) => respond(Err(refusal)),
                }
            }
            None => respond(Err(Refusal::new(401, "unauthorized", "the token is missing or wrong")
                .hint("open the address that the program printed"))),
        },
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let own = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(own, HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        for other in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert!(!same(b"abc", other));
        }
    }
}
