//! The files of the page, embedded in the program.

/// An embedded file.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Path below `assets/`.
    pub(crate) name: &'static str,
    /// Changes with the content: an ETag.
    pub(crate) tag: &'static str,
    pub(crate) bytes: &'static [u8],
}

const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The file of a path of the URL.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    let name = match path.strip_prefix('/')? {
        "" => "index.html",
        name => name,
    };
    ASSETS.iter().find(|asset| asset.name == name)
}

/// The media type of a file by its name.
pub(crate) fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "json" | "map" => "application/json",
        "woff2" => "font/woff2",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// A file as it is on disk now, for work on the page itself: debug builds with `MARGRAVE_STUDIO_ASSETS` set to a folder.
pub(crate) fn from_disk(path: &str) -> Option<(String, Vec<u8>)> {
    if !cfg!(debug_assertions) {
        return None;
    }
    let root = std::env::var_os("MARGRAVE_STUDIO_ASSETS")?;
    let name = match path.strip_prefix('/')? {
        "" => "index.html",
        name => name,
    };
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.');
    if !name.split('/').all(plain) || name.contains('\\') {
        return None;
    }
    let bytes = std::fs::read(std::path::Path::new(&root).join(name)).ok()?;
    Some((name.to_owned(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_embedded_and_nothing_outside_is_found() {
        assert_eq!(find("/").map(|asset| asset.name), Some("index.html"));
        assert!(find("/index.html").is_some());
        for path in ["", "index.html", "//index.html", "/../Cargo.toml", "/./index.html", "/data/iris.csv"] {
            assert!(find(path).is_none(), "{path}");
        }
        assert!(ASSETS.iter().all(|asset| find(&format!("/{}", asset.name)).is_some()));
        assert_eq!(media_type("js/plane.js"), "text/javascript; charset=utf-8");
    }
}
