//! Lists the files of `assets/`, so that adding one is enough to serve it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// All files below `folder`, sorted, as paths relative to `root`.
fn files(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        match path.is_dir() {
            true => files(root, &path, found)?,
            false => found.push(path.strip_prefix(root).map_err(io::Error::other)?.to_owned()),
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("assets");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("assets.rs");
    println!("cargo:rerun-if-changed=assets");
    let mut found = Vec::new();
    files(&root, &root, &mut found)?;
    let mut text = String::from("&[\n");
    for file in &found {
        println!("cargo:rerun-if-changed=assets/{}", file.display());
        let name = file.to_string_lossy().replace('\\', "/");
        let bytes = fs::read(root.join(file))?;
        // FNV-1a: tells a browser whether its copy is current.
        let tag = bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
        let _ = writeln!(
            text,
            "    Asset {{ name: {name:?}, tag: \"\\\"{tag:016x}\\\"\", bytes: include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/assets/{name}\")) }},"
        );
    }
    text += "]\n";
    fs::write(out, text)
}
