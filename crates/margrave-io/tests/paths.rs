//! Files by path.

use std::io::Write;

use margrave_io::ReadOptions;

#[test]
fn files_and_directories_by_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.svm");
    let missing = margrave_io::load(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(missing.contains("a.svm: cannot open it"), "{missing}");
    std::fs::File::create(&path).unwrap().write_all(b"1 1:1\n2 1:2").unwrap();
    assert_eq!(margrave_io::load(&path, &ReadOptions::default()).unwrap().data.len(), 2);
    let folder = margrave_io::load(dir.path(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(folder.contains("directory"), "{folder}");
}
