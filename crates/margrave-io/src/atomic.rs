//! Files that are either whole or not there.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::{ReadError, Result};

/// Writes `path` through `write`, so that nobody ever sees a part of it: the bytes go to a temporary file in the same
/// directory, reach the disk, and then take the name. If anything fails, an earlier file of that name is untouched.
///
/// A path that exists and is not a plain file (`/dev/stdout`, a pipe) is written directly.
pub fn write_atomic(path: impl AsRef<Path>, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let path = path.as_ref();
    let fail = |source| ReadError::Io { file: path.to_string_lossy().into_owned(), doing: "write it", source };
    if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let mut writer = BufWriter::new(File::options().write(true).open(path).map_err(fail)?);
        return write(&mut writer).and_then(|()| writer.flush()).map_err(fail);
    }
    // A link keeps pointing to the file that is replaced.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".margrave-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are private by default; this one becomes an ordinary file, or keeps the mode of the old one.
        let mode = target.metadata().map_or(0o666, |m| m.permissions().mode() & 0o777);
        builder.permissions(std::fs::Permissions::from_mode(mode));
    }
    let file = builder.tempfile_in(directory).map_err(fail)?;
    let mut writer = BufWriter::with_capacity(1 << 16, file);
    write(&mut writer).map_err(fail)?;
    let file = writer.into_inner().map_err(|e| fail(e.into_error()))?;
    file.as_file().sync_all().map_err(fail)?;
    file.persist(&target).map_err(|e| fail(e.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_atomic(&path, |w| w.write_all(b"one")).unwrap();
        let e = write_atomic(&path, |w| {
            w.write_all(b"two")?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(e.unwrap_err().to_string().contains("a.txt"));
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        write_atomic(&path, |w| w.write_all(b"three")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write_atomic(dir.path().join("no/such"), |_| Ok(())).is_err());
    }
}
