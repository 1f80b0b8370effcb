//! Nothing passes the outermost layer that is not allowed there.

use std::time::Duration;

use margrave_studio::{End, ROUTES};
use serde_json::json;

use crate::common::{Answer, Running, start, start_with};

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"];
const PUBLIC: [&str; 2] = ["/", "/index.html"];

/// A way in that must be closed, and the answer it gets.
struct Attack {
    name: &'static str,
    headers: Vec<(&'static str, String)>,
    status: u16,
    /// Whether the files of the page are refused as well.
    even_public: bool,
}

fn attacks(server: &Running) -> Vec<Attack> {
    let (host, token) = (server.host(), server.token.clone());
    let own = || ("Host", host.clone());
    let bearer = || ("Authorization", format!("Bearer {token}"));
    let origin = || ("Origin", format!("http://{host}"));
    let mut changed = token.clone();
    let last = changed.pop().expect("a token");
    changed.push(if last == '0' { '1' } else { '0' });
    let attack = |name, headers, status, even_public| Attack { name, headers, status, even_public };
    let with = |name, extra: (&'static str, &str), status| {
        attack(name, vec![own(), bearer(), (extra.0, extra.1.to_owned())], status, true)
    };
    let foreign = |name, foreign: String| attack(name, vec![("Host", foreign), bearer(), origin()], 421, true);
    let port = server.port;
    let wrong = |name, value: String| attack(name, vec![own(), origin(), ("Authorization", value)], 401, false);
    vec![
        attack("no token", vec![own()], 401, false),
        wrong("wrong token", format!("Bearer {changed}")),
        wrong("half a token", format!("Bearer {}", &token[..16])),
        wrong("longer token", format!("Bearer {token}0")),
        wrong("empty token", "Bearer ".into()),
        wrong("another scheme", format!("Basic {token}")),
        wrong("bare token", token.clone()),
        attack("token in a cookie", vec![own(), ("Cookie", format!("token={token}"))], 401, false),
        attack("two tokens", vec![own(), bearer(), ("Authorization", "Bearer 0".into())], 401, false),
        foreign("foreign host", format!("evil.example:{port}")),
        foreign("foreign host with ours in it", format!("127.0.0.1.evil.example:{port}")),
        foreign("another port", "127.0.0.1:1".into()),
        foreign("no port", "127.0.0.1".into()),
        foreign("another address of this computer", format!("127.0.0.2:{port}")),
        foreign("all addresses", format!("0.0.0.0:{port}")),
        attack("no host", vec![bearer()], 421, true),
        attack("two hosts", vec![own(), ("Host", "evil.example".into()), bearer()], 421, true),
        with("foreign origin", ("Origin", "https://evil.example"), 403),
        with("no origin of a sandbox", ("Origin", "null"), 403),
        with("the origin of another port", ("Origin", "http://127.0.0.1:1"), 403),
        attack("our host by https", vec![own(), bearer(), ("Origin", format!("https://{host}"))], 403, true),
        attack("two origins", vec![own(), bearer(), origin(), ("Origin", "https://evil.example".into())], 403, true),
        with("cross-site", ("Sec-Fetch-Site", "cross-site"), 403),
        with("same-site", ("Sec-Fetch-Site", "same-site"), 403),
    ]
}

#[track_caller]
fn check_headers(answer: &Answer, what: &str) {
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; \
                  frame-ancestors 'none'";
    assert_eq!(answer.header("content-security-policy"), Some(policy), "{what}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{what}");
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{what}");
    assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{what}");
    assert!(answer.header("cache-control").is_some(), "{what}");
    let open = ["access-control-allow-origin", "access-control-allow-headers", "set-cookie"];
    assert!(open.iter().all(|name| answer.header(name).is_none()), "{what}: {:?}", answer.headers);
}

#[test]
fn every_route_and_method_is_closed_to_everyone_else() {
    let server = start();
    let session = server.session(json!({ "example": "blobs" }));
    let name = session.rsplit('/').next().expect("a name");
    server.train(&session, json!({}));
    let paths =
        ROUTES.iter().map(|route| route.path.replace("{session}", name).replace("{run}", "1").replace("{row}", "0"));
    let mut paths: Vec<String> = paths.collect();
    paths.sort();
    paths.dedup();
    paths.extend(PUBLIC.map(str::to_owned));
    paths.extend(["/api", "/api/", "/api/nothing", "/nothing.js", "/../Cargo.toml", "//"].map(str::to_owned));
    let before = server.get(&session);
    for attack in attacks(&server) {
        let headers: Vec<(&str, &str)> = attack.headers.iter().map(|(key, value)| (*key, value.as_str())).collect();
        for path in &paths {
            for method in METHODS {
                let what = format!("{}: {method} {path}", attack.name);
                let answer = server.request(method, path, &headers, b"{}");
                let public = PUBLIC.contains(&path.as_str()) && matches!(method, "GET" | "HEAD") && !attack.even_public;
                let expected = if public { 200 } else { attack.status };
                assert_eq!(answer.status, expected, "{what}");
                check_headers(&answer, &what);
            }
        }
    }
    // Nothing has happened.
    let after = server.get(&session);
    assert_eq!(after["runs"].as_array().map(Vec::len), before["runs"].as_array().map(Vec::len));
    assert_eq!((&after["data"], &after["current"]), (&before["data"], &before["current"]));
    assert_eq!(server.get("/api/sessions")["sessions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn with_the_token_routes_answer_and_others_do_not_exist() {
    let server = start();
    let session = server.session(json!({ "example": "blobs" }));
    let name = session.rsplit('/').next().expect("a name");
    server.train(&session, json!({}));
    for route in ROUTES {
        let path = route.path.replace("{session}", name).replace("{run}", "1").replace("{row}", "0");
        for method in METHODS {
            let known = ROUTES.iter().any(|other| other.path == route.path && other.method == method);
            if known || method == "HEAD" || path.ends_with("/events") {
                continue;
            }
            let answer = server.call(method, &path, None);
            assert_eq!(answer.status, 405, "{method} {path}");
            check_headers(&answer, &path);
        }
    }
    for path in ["/api/nothing", "/nothing.js", "/api/sessions/x/y/z"] {
        assert_eq!(server.call("GET", path, None).status, 404, "{path}");
    }
    // The page itself, by the name of the computer as well.
    for host in [server.host(), format!("localhost:{}", server.port)] {
        let page = server.request("GET", "/", &[("Host", &host)], b"");
        assert_eq!(page.status, 200);
        assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")));
        let tag = page.header("etag").expect("a tag").to_owned();
        let again = server.request("GET", "/", &[("Host", &host), ("If-None-Match", &tag)], b"");
        assert_eq!((again.status, again.body.len()), (304, 0));
    }
}

#[test]
fn large_bodies_are_refused() {
    let server = start();
    let session = server.session(json!({ "example": "blobs" }));
    let large = vec![b' '; (1 << 20) + 1];
    for path in ["/api/loss", "/api/sessions", &format!("{session}/train"), &format!("{session}/edit")] {
        assert_eq!(server.send("POST", path, &large).status, 413, "{path}");
    }
    // An upload may be larger, up to its own limit, which is not read.
    let claim = format!(
        "POST {session}/upload?name=a.csv HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: 999999999999\r\n\
         Connection: close\r\n\r\n",
        server.host(),
        server.token
    );
    assert_eq!(server.raw(claim.as_bytes()).status, 413);
    assert_eq!(server.send("POST", &format!("{session}/upload?name=a.csv"), &large).status, 202);
}

#[test]
fn files_outside_the_folder_are_not_opened() {
    let outside = tempfile::tempdir().expect("a folder");
    let root = outside.path().join("root");
    std::fs::create_dir(&root).expect("a folder");
    std::fs::write(outside.path().join("secret.csv"), "1,2,0\n3,4,1\n").expect("a file");
    std::fs::write(root.join("a.csv"), "x,y,c\n1,2,0\n3,4,1\n2,2,0\n5,4,1\n").expect("a file");
    let server = start_with(Some(&root.join("a.csv")), None, Duration::from_secs(600));
    assert_eq!(server.get("/api/hello")["start"], json!({ "path": "a.csv" }));
    let state = server.post("/api/sessions", json!({}));
    let session = format!("/api/sessions/{}", state["session"].as_str().expect("a name"));
    assert_eq!(server.until(&session, |state| !state["data"].is_null())["data"]["n"], 4);
    let mut bad =
        vec!["../secret.csv", "/etc/passwd", "..", "a/../../secret.csv", "a.csv/../../secret.csv", "none.csv"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(outside.path().join("secret.csv"), root.join("link.csv")).expect("a link");
        std::os::unix::fs::symlink(outside.path(), root.join("up")).expect("a link");
        bad.extend(["link.csv", "up/secret.csv", "up"]);
    }
    for path in bad {
        let answer = server.call("POST", &format!("{session}/data"), Some(json!({ "source": { "path": path } })));
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("bad_path")), "{path}");
    }
    for path in ["..", "%2e%2e", "../..", "%2Fetc", "up"] {
        assert_eq!(server.call("GET", &format!("/api/files?path={path}"), None).status, 400, "{path}");
    }
    let names = server.get("/api/files")["entries"].clone();
    assert_eq!(names, json!([{ "name": "a.csv", "kind": "file", "bytes": 30 }]));
    // Without a folder nothing can be opened by path.
    let bare = start();
    assert_eq!(bare.call("GET", "/api/files", None).status, 404);
    let at = bare.session(json!({ "example": "blobs" }));
    bare.post(&format!("{at}/data"), json!({ "source": { "path": "a.csv" } }));
    let state = bare.until(&at, |state| state["loading"].is_null());
    assert_eq!(state["failed"]["code"], "bad_path");
}

#[test]
fn a_server_that_nobody_uses_ends() {
    let server = start_with(None, None, Duration::from_millis(300));
    assert_eq!(server.call("GET", "/api/hello", None).status, 200);
    assert_eq!(server.end(), End::Idle);
}

#[test]
fn tokens_differ_from_one_server_to_the_next() {
    let (a, b) = (start(), start());
    assert_ne!(a.token, b.token);
    assert_eq!(a.token.len(), 32);
    assert!(a.token.bytes().all(|byte| byte.is_ascii_hexdigit()));
}
