//! All tests of the public interface in one program, which is linked once rather than once for every file.

mod agreement;
mod approximate;
mod chains;
mod elsewhere;
mod endings;
mod gram;
mod gram_paths;
mod gram_properties;
mod hard_cases;
mod linear;
mod linear_crammer_singer;
mod linear_family;
mod linear_starts;
mod on_device;
mod orders;
mod partitions;
mod purity;
mod set_newton;

/// A file beside this one that nobody lists here would never run.
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
