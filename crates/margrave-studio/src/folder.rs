//! The opened folder: the only place files are read from.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use crate::answer::Refusal;

/// Most entries of a folder that are listed.
const MOST_ENTRIES: usize = 500;

/// A folder whose files may be opened, and nothing outside it.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Absolute, without symbolic links.
    root: PathBuf,
}

fn refused(path: &str, why: &str) -> Refusal {
    Refusal::new(400, "bad_path", format!("{path:?}: {why}")).hint("name a file below the opened folder, without ..")
}

impl Folder {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let root = path.canonicalize()?;
        match root.is_dir() {
            true => Ok(Self { root }),
            false => Err(std::io::Error::new(std::io::ErrorKind::NotADirectory, "not a folder")),
        }
    }

    /// Its own name.
    pub(crate) fn name(&self) -> String {
        self.root.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// The path of a file or folder below this one. Absolute paths, `..`, hidden names and symbolic links are refused.
    pub(crate) fn resolve(&self, path: &str) -> Result<PathBuf, Refusal> {
        if path.contains(['\0', '\\']) || path.contains(':') && cfg!(windows) {
            return Err(refused(path, "this is not a plain relative path"));
        }
        let mut whole = self.root.clone();
        for part in Path::new(path).components() {
            let Component::Normal(name) = part else {
                return Err(refused(path, "only paths below the opened folder are allowed"));
            };
            if name.to_string_lossy().starts_with('.') {
                return Err(refused(path, "hidden files are not opened"));
            }
            whole.push(name);
            let kind = fs::symlink_metadata(&whole).map_err(|_| refused(path, "there is no such file"))?.file_type();
            if !kind.is_dir() && !kind.is_file() {
                return Err(refused(path, "symbolic links and special files are not opened"));
            }
        }
        // Between the checks and now a folder may have been replaced.
        let real = whole.canonicalize().map_err(|_| refused(path, "there is no such file"))?;
        match real.starts_with(&self.root) {
            true => Ok(real),
            false => Err(refused(path, "only paths below the opened folder are allowed")),
        }
    }

    /// The files and folders in a folder below this one.
    pub(crate) fn list(&self, path: &str) -> Result<Value, Refusal> {
        let folder = self.resolve(path)?;
        let entries = fs::read_dir(&folder).map_err(|_| refused(path, "this is not a folder that can be read"))?;
        let (mut found, mut truncated) = (Vec::new(), false);
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // `DirEntry::metadata` does not follow links.
            let Ok(metadata) = entry.metadata() else { continue };
            if name.starts_with('.') || !(metadata.is_file() || metadata.is_dir()) {
                continue;
            }
            if found.len() == MOST_ENTRIES {
                truncated = true;
                break;
            }
            found.push((metadata.is_file(), name, metadata.len()));
        }
        found.sort();
        let entry = |(file, name, bytes): &(bool, String, u64)| match file {
            true => json!({ "name": name, "kind": "file", "bytes": bytes }),
            false => json!({ "name": name, "kind": "folder" }),
        };
        let entries: Vec<Value> = found.iter().map(entry).collect();
        Ok(json!({ "path": path, "entries": entries, "truncated": truncated }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_below_the_folder_are_resolved() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret.csv"), "1,2\n").unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("deep")).unwrap();
        fs::write(root.join("deep/a.csv"), "1,2\n").unwrap();
        fs::write(root.join(".hidden"), "").unwrap();
        let folder = Folder::open(&root).unwrap();
        assert!(folder.resolve("deep/a.csv").is_ok() && folder.resolve("").is_ok() && folder.resolve("deep").is_ok());
        let absolute = outside.path().join("secret.csv");
        let mut bad = vec![
            "../secret.csv".to_owned(),
            "deep/../../secret.csv".into(),
            "deep/..".into(),
            "/etc/passwd".into(),
            absolute.display().to_string(),
            ".hidden".into(),
            "deep/none.csv".into(),
            "a\0b".into(),
            "..\\secret.csv".into(),
        ];
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(outside.path(), root.join("link")).unwrap();
            std::os::unix::fs::symlink(&absolute, root.join("file_link.csv")).unwrap();
            bad.extend(["link/secret.csv".to_owned(), "link".into(), "file_link.csv".into()]);
        }
        bad.iter().for_each(|path| assert_eq!(folder.resolve(path).map_err(|r| r.code), Err("bad_path"), "{path}"));
        let list = folder.list("").unwrap();
        assert_eq!(list["entries"], json!([{ "name": "deep", "kind": "folder" }]));
        assert_eq!(folder.list("deep").unwrap()["entries"][0]["name"], "a.csv");
        assert!(folder.list("deep/a.csv").is_err() && folder.list("..").is_err());
    }
}
