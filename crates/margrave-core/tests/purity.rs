//! The engine never prints, reads a file or asks the environment, and depends on few crates. This test keeps it so.

use std::path::{Path, PathBuf};

/// What margrave-core may depend on. A new entry needs a reason in ARCHITECTURE.md.
const ALLOWED: &[&str] = &["faer", "rand", "rand_chacha", "serde"];

/// Macros and functions that speak to the world.
const FORBIDDEN_CALLS: &[&str] = &[
    "println!",
    "eprintln!",
    "print!",
    "eprint!",
    "dbg!",
    "env!",
    "option_env!",
    "stdin()",
    "stdout()",
    "stderr()",
    "File::",
    "OpenOptions::",
    "Command::",
];

/// Modules of `std` that speak to the world.
const FORBIDDEN_MODULES: &[&str] = &["fs", "env", "process", "net", "os"];

/// The source without comments and without `#[cfg(test)] mod … { … }`.
fn code_only(source: &str) -> String {
    let mut text = String::new();
    let mut rest = source;
    while let Some(at) = rest.find("/*") {
        // Block comments are rare; a "/*" inside a string would only hide code, and then the lint below still sees it.
        text.push_str(&rest[..at]);
        rest = rest[at..].find("*/").map_or("", |end| &rest[at + end + 2..]);
    }
    text.push_str(rest);
    let text: String = text.lines().map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n").collect();
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        let after = &rest[at..];
        let open = after.find('{').unwrap_or(after.len());
        if after.find(';').is_some_and(|semicolon| semicolon < open) {
            rest = &after[after.find(';').unwrap_or(0) + 1..];
            continue;
        }
        let mut depth = 0usize;
        let mut end = after.len();
        for (i, c) in after.char_indices().skip_while(|(i, _)| *i < open) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = i + 1;
                break;
            }
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` occurs in `text` and is not the end of a longer name.
fn has(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| !text[..at].chars().next_back().is_some_and(is_word))
}

fn violations(source: &str) -> Vec<String> {
    let code = code_only(source);
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        for call in FORBIDDEN_CALLS {
            if has(line, call) {
                found.push(format!("line ~{}: {call}", number + 1));
            }
        }
        for module in FORBIDDEN_MODULES {
            let grouped = line.trim_start().starts_with("use std::{")
                && line.split(|c: char| !is_word(c)).any(|name| name == *module);
            if has(line, &format!("std::{module}")) || has(line, &format!("{module}::")) || grouped {
                found.push(format!("line ~{}: std::{module}", number + 1));
            }
        }
    }
    found
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the source folder is readable") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tests") {
                sources(&path, into);
            }
        } else if path.extension().is_some_and(|e| e == "rs") && path.file_name().is_some_and(|name| name != "tests.rs")
        {
            into.push(path);
        }
    }
}

#[test]
fn the_engine_does_not_touch_the_world() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    assert!(files.len() > 20, "only {} source files found: is the scan looking in the right place?", files.len());
    let mut found = Vec::new();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("a readable source file");
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        found.extend(violations(&source).into_iter().map(|what| format!("{name}, {what}")));
    }
    assert!(found.is_empty(), "margrave-core must not print, read files or ask the environment:\n{}", found.join("\n"));
}

#[test]
fn the_engine_depends_on_little() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let mut section = String::new();
    let mut seen = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
            // [dependencies.NAME] and [target.….dependencies]
            if let Some(name) = section.strip_prefix("dependencies.") {
                seen.push(name.to_owned());
            }
            assert!(
                !section.starts_with("target.") && !section.starts_with("build-dependencies"),
                "margrave-core has the section [{section}]: it builds the same everywhere, without a build script"
            );
        } else if section == "dependencies" && line.contains('=') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or("").to_owned();
            seen.push(name);
        }
    }
    assert!(seen.contains(&"faer".to_owned()), "the manifest was not understood: {seen:?}");
    let extra: Vec<_> = seen.iter().filter(|name| !ALLOWED.contains(&name.as_str())).collect();
    assert!(extra.is_empty(), "margrave-core depends on {extra:?}, which are not on the allow-list of this test");
}

#[test]
fn the_scan_sees_what_it_should_and_only_that() {
    for bad in [
        "fn f() { println!(\"x\"); }",
        "use std::fs;",
        "use std::{fmt, env};",
        "let f = File::open(p);",
        "let p = std::env::var(\"X\");",
        "#[cfg(test)]\nmod tests { fn f() { if a { b() } } }\nfn g() { eprintln!(); }",
    ] {
        assert!(!violations(bad).is_empty(), "missed: {bad}");
    }
    for good in [
        "// println! is not used\n/// nor std::fs",
        "write!(f, \"x\")",
        "#[cfg(test)]\nmod tests { fn f() { println!(\"{}\", { 1 }); } }",
        "#[cfg(test)]\nmod tests;\nfn sprint() {}",
        "let offs = x; refs::y();",
    ] {
        assert!(violations(good).is_empty(), "false alarm: {good}: {:?}", violations(good));
    }
}
