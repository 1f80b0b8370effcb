//! Atomic file writes.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use crate::error::{ReadError, Result};

/// Prefix and suffix of the names of temporary files, around the process id.
const PREFIX: &str = ".margrave-";
const SUFFIX: &str = ".tmp";

/// On file systems without locks, a temporary file counts as abandoned if it was not modified for this long.
const ABANDONED: Duration = Duration::from_secs(600);

fn refuse(path: &Path) -> impl Fn(io::Error) -> ReadError + '_ {
    |source| ReadError::Io { file: path.to_string_lossy().into_owned(), doing: "write it", source }
}

/// Why no file can be made in a folder, and what to do. Errors of temporary files name the temporary file, which the user has
/// not heard of.
fn no_room(directory: &Path, error: &io::Error) -> io::Error {
    let folder = directory.display();
    let text = match error.kind() {
        io::ErrorKind::NotFound => format!("the folder {folder} does not exist: create it, or name another"),
        io::ErrorKind::NotADirectory => format!("{folder} is not a folder: name another"),
        io::ErrorKind::PermissionDenied => format!("files cannot be made in the folder {folder}: name another"),
        other => format!("no file can be made in the folder {folder}: {other}"),
    };
    io::Error::new(error.kind(), text)
}

/// Writes `path` atomically through `write`: the bytes go to a temporary file in the same directory, are synced to
/// disk, and the file is then renamed. If anything fails, an existing file of that name is unchanged. Temporary files
/// left in the directory by killed processes are removed.
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

/// Fails if [`write_atomic`] cannot write `path` for a reason that can be checked in advance: its folder is missing or
/// not writable, or it is itself a folder. Leaves no files behind.
pub fn check_writable(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let fail = refuse(path);
    match path.metadata() {
        Ok(m) if m.is_dir() => {
            return Err(fail(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder: name a file")));
        }
        // Opening a pipe would block until it has a reader.
        Ok(m) if !m.is_file() => return Ok(()),
        _ => {}
    }
    let target = replaced(path);
    temporary(&target, directory(&target)).map(drop).map_err(fail)
}

/// The file that a path refers to: symbolic links are followed, so that a link is kept and its target is replaced.
fn replaced(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn directory(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A temporary file beside `target`, locked while it is open, so that other processes see that it is in use.
fn temporary(target: &Path, directory: &Path) -> io::Result<NamedTempFile> {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are private by default; this one gets the default mode, or the mode of the file it replaces.
        let mode = target.metadata().map_or(0o666, |m| m.permissions().mode() & 0o777);
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = target;
    loop {
        let file = builder.tempfile_in(directory).map_err(|error| no_room(directory, &error))?;
        // Without support for locks, age decides (see `remove_abandoned`).
        let _ = file.as_file().lock();
        // Another process may have removed it between its creation and the lock.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes temporary files of killed processes: those without a lock.
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
            // The lock is still held here. A file that cannot be removed is harmless.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_no_file() {
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
    fn abandoned_temporary_files_are_removed_and_active_ones_are_kept() {
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
    fn unwritable_paths_are_detected_in_advance() {
        let dir = tempfile::tempdir().unwrap();
        check_writable(dir.path().join("a.txt")).unwrap();
        assert!(check_writable(dir.path()).is_err());
        assert!(check_writable(dir.path().join("no/such")).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
