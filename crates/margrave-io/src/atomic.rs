//! Files that are either whole or not there.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use crate::error::{ReadError, Result};

/// How the names of temporary files begin and end; the process's number stands between.
const PREFIX: &str = ".margrave-";
const SUFFIX: &str = ".tmp";

/// Where a file system cannot lock, a temporary file is abandoned once nothing was written to it for this long.
const ABANDONED: Duration = Duration::from_secs(600);

fn refuse(path: &Path) -> impl Fn(io::Error) -> ReadError + '_ {
    |source| ReadError::Io { file: path.to_string_lossy().into_owned(), doing: "write it", source }
}

/// Writes `path` through `write`, so that nobody ever sees a part of it: the bytes go to a temporary file in the same
/// directory, reach the disk, and then take the name. If anything fails, an earlier file of that name is untouched.
/// Temporary files that killed processes left in the directory are removed.
///
/// A path that exists and is not a plain file (`/dev/stdout`, a pipe) is written directly.
pub fn write_atomic(path: impl AsRef<Path>, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let path = path.as_ref();
    let fail = refuse(path);
    if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let mut writer = BufWriter::new(File::options().write(true).open(path).map_err(&fail)?);
        return write(&mut writer).and_then(|()| writer.flush()).map_err(fail);
    }
    let target = replaced(path);
    let directory = directory(&target);
    remove_abandoned(directory);
    let file = temporary(&target, directory).map_err(&fail)?;
    let mut writer = BufWriter::with_capacity(1 << 16, file);
    write(&mut writer).map_err(&fail)?;
    let file = writer.into_inner().map_err(|e| fail(e.into_error()))?;
    file.as_file().sync_all().map_err(&fail)?;
    file.persist(&target).map_err(|e| fail(e.error))?;
    Ok(())
}

/// Fails if [`write_atomic`] could not write `path` for a reason that is known beforehand: its folder is missing or cannot be
/// written to, or it is itself a folder. Leaves nothing behind.
pub fn check_writable(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let fail = refuse(path);
    match path.metadata() {
        Ok(m) if m.is_dir() => return Err(fail(io::ErrorKind::IsADirectory.into())),
        // Opening a pipe would wait for its reader.
        Ok(m) if !m.is_file() => return Ok(()),
        _ => {}
    }
    let target = replaced(path);
    temporary(&target, directory(&target)).map(drop).map_err(fail)
}

/// The file that a path names: a link keeps pointing to the file that is replaced.
fn replaced(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn directory(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A temporary file beside `target`, locked for as long as it is open, so that others see that somebody writes it.
fn temporary(target: &Path, directory: &Path) -> io::Result<NamedTempFile> {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are private by default; this one becomes an ordinary file, or keeps the mode of the old one.
        let mode = target.metadata().map_or(0o666, |m| m.permissions().mode() & 0o777);
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = target;
    loop {
        let file = builder.tempfile_in(directory)?;
        // Where locks are not supported, age decides (see `remove_abandoned`).
        let _ = file.as_file().lock();
        // Another process may have removed it between its creation and the lock.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes temporary files of processes that were killed: those nobody holds a lock on.
fn remove_abandoned(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !plain || !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        let old = |m: fs::Metadata| m.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        let abandoned = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(_)) => file.metadata().ok().and_then(old).is_some_and(|age| age > ABANDONED),
        };
        if abandoned {
            // The lock is still held here. One that cannot be removed harms nobody.
            let _ = fs::remove_file(entry.path());
        }
    }
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
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write_atomic(&path, |w| w.write_all(b"three")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write_atomic(dir.path().join("no/such"), |_| Ok(())).is_err());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(".margrave-AbCdEf.tmp");
        fs::write(&left, b"half a model").unwrap();
        let other = dir.path().join(".margrave-notes.txt");
        fs::write(&other, b"not ours").unwrap();
        let written = temporary(&dir.path().join("live.txt"), dir.path()).unwrap();
        write_atomic(dir.path().join("a.txt"), |w| w.write_all(b"one")).unwrap();
        assert!(!left.exists() && other.exists());
        assert!(written.path().exists(), "a file that is being written was removed");
        written.persist(dir.path().join("live.txt")).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_known_beforehand() {
        let dir = tempfile::tempdir().unwrap();
        check_writable(dir.path().join("a.txt")).unwrap();
        assert!(check_writable(dir.path()).is_err());
        assert!(check_writable(dir.path().join("no/such")).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
