//! All tests of the public interface in one program, which is linked once instead of once per file.

mod any_loss;
mod approximate;
mod check_kernel;
mod common;
mod devices;
mod evaluate;
mod frame;
mod imbalance;
mod liblinear;
mod libsvm;
mod linear;
mod outputs;
mod path;
mod people;
mod several_targets;
mod snapshots;
mod studio;
mod tables;
mod train;
mod tune;
mod verify_libsvm;
mod wide;

/// A file that is not listed here would never run.
#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let this = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).expect("the folder of this file exists") {
        let name = entry.expect("a readable entry").file_name().into_string().expect("names are UTF-8");
        if let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "main") {
            assert!(this.contains(&format!("\nmod {module};\n")), "add 'mod {module};' to tests/main.rs");
        }
    }
}
