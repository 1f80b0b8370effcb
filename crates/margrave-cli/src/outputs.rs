//! Checks the files of a command before it starts: no output may be an input or another output, and every output must
//! be writable.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A file a command reads.
pub(crate) struct Input<'a> {
    /// The option or argument.
    name: &'a str,
    path: Option<&'a Path>,
    /// The output that may replace it.
    in_place: Option<&'a str>,
}

impl<'a> Input<'a> {
    pub(crate) fn new(name: &'a str, path: impl Into<Option<&'a Path>>) -> Self {
        Self { name, path: path.into(), in_place: None }
    }

    /// An input that is read before anything runs and that `output` may replace, to continue an earlier run in place.
    pub(crate) fn in_place(self, output: &'a str) -> Self {
        Self { in_place: Some(output), ..self }
    }
}

/// The identity of a file: device and inode if it exists, whatever its name; otherwise its path.
#[derive(PartialEq, Eq)]
enum Identity {
    #[cfg(unix)]
    Node(u64, u64),
    Place(PathBuf),
}

/// `None` for what is not a plain file: `/dev/null` may be used several times.
fn identity(path: &Path) -> Option<Identity> {
    match path.metadata() {
        Ok(m) if !m.is_file() => None,
        #[cfg(unix)]
        Ok(m) => {
            use std::os::unix::fs::MetadataExt;
            Some(Identity::Node(m.dev(), m.ino()))
        }
        #[cfg(not(unix))]
        Ok(_) => path.canonicalize().ok().map(Identity::Place),
        Err(_) => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let name = path.file_name()?;
            Some(Identity::Place(parent.canonicalize().ok()?.join(name)))
        }
    }
}

/// Fails if an output (option and path) is an input or another output, by path, symbolic link or hard link, or cannot
/// be written.
pub(crate) fn check(inputs: &[Input<'_>], outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    let stdin = Path::new("/dev/stdin");
    let read: Vec<(&Input<'_>, &Path, Option<Identity>)> = inputs
        .iter()
        .filter_map(|input| input.path.map(|path| (input, path)))
        .map(|(input, path)| (input, path, identity(if path == Path::new("-") { stdin } else { path })))
        .collect();
    let mut written: Vec<(&str, &Path, Option<Identity>)> = Vec::new();
    for (name, path) in outputs.iter().filter_map(|(name, path)| path.map(|path| (*name, path))) {
        let shown = format!("{name} {}", path.display());
        if path == Path::new("-") {
            return Err(Failure::with_hint(
                format!("{shown}: this output must be a file, not -"),
                "name a file; /dev/stdout is standard output, ./- is a file named -",
            ));
        }
        let own = identity(path);
        if own.is_some() {
            if let Some((input, file, _)) =
                read.iter().find(|(input, _, other)| *other == own && input.in_place != Some(name))
            {
                return Err(Failure::with_hint(
                    format!("{shown} would overwrite an input, {} {}", input.name, file.display()),
                    format!("name another file with {name}"),
                ));
            }
            if let Some((other, file, _)) = written.iter().find(|(_, _, other)| *other == own) {
                return Err(Failure::with_hint(
                    format!("{shown} and {other} {} are the same file", file.display()),
                    "give each output its own name",
                ));
            }
        }
        margrave::io::check_writable(path).map_err(|e| Failure::new(format!("{name}: {e}")))?;
        written.push((name, path, own));
    }
    Ok(())
}
