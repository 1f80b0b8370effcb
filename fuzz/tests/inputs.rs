//! Every seed and every input that once failed, and a short seeded run of each target.

use margrave_fuzz::{Files, Options, TARGETS, check, fuzz};

#[test]
fn seeds_and_regressions() {
    for target in TARGETS {
        let seeds = Files::of("seeds", target.name);
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for (path, bytes) in seeds.into_iter().chain(Files::of("regressions", target.name)) {
            let answer = check(target, &bytes);
            assert!(answer.is_ok(), "{}: {answer:?}", path.display());
        }
    }
    // Damage without a checksum in the way.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let failures = tempfile::tempdir().expect("a folder");
    for target in TARGETS {
        let options = Options { runs: 2_000, seed: 14, failures: failures.path().to_owned() };
        let report = pool.install(|| fuzz(target, &options));
        assert!(report.failures.is_empty(), "{}: {:?}", target.name, report.failures);
        assert!(report.answers > 1, "{}: every input has the same answer", target.name);
    }
}
