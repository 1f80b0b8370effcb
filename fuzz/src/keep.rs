//! The input at hand, kept so that it can be saved when the process is about to end.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

struct Current {
    folder: PathBuf,
    target: String,
    input: Vec<u8>,
}

static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

/// Says what is run next, and where to save it if the process has to end.
pub(crate) fn now(folder: &Path, target: &str, input: &[u8]) {
    let mut current = CURRENT.lock().unwrap_or_else(|e| e.into_inner());
    match current.as_mut() {
        Some(current) if current.target == target => {
            current.input.clear();
            current.input.extend_from_slice(input);
        }
        _ => {
            *current = Some(Current { folder: folder.to_owned(), target: target.to_owned(), input: input.to_vec() });
        }
    }
}

/// Saves an input; its path.
pub(crate) fn save(folder: &Path, target: &str, input: &[u8]) -> PathBuf {
    // FNV-1a: the same input has the same name.
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    let path = folder.join(format!("{target}-{hash:016x}"));
    let _ = std::fs::create_dir_all(folder);
    let _ = std::fs::write(&path, input);
    path
}

/// Saves the input at hand because the process may end at once.
pub(crate) fn abort_note(why: &str) {
    // Called by the allocator: a lock that is held means that it is called from here.
    if let Ok(current) = CURRENT.try_lock()
        && let Some(current) = current.as_ref()
    {
        let path = save(&current.folder, &current.target, &current.input);
        crate::say(&format!("{}: {why}: {}", current.target, path.display()));
    }
}
