//! All tests of the public interface in one program, which is linked once rather than once for every file.

mod every_machine;
mod fit;
mod linear_machines;
mod rare_classes;
mod several_classes;
mod several_targets;
mod tune;
mod verdict;

/// A file beside this one that nobody lists here would never run.
#[test]
fn every_file_of_tests_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let this = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).expect("the folder of this file exists") {
        let name = entry.expect("a readable entry").file_name().into_string().expect("names are UTF-8");
        // `arrays` needs a feature and is a program of its own.
        let own = ["main", "arrays"];
        if let Some(module) = name.strip_suffix(".rs").filter(|module| !own.contains(module)) {
            assert!(this.contains(&format!("\nmod {module};\n")), "add 'mod {module};' to tests/main.rs");
        }
    }
}
