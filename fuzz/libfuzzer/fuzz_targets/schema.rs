#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = margrave_fuzz::target("schema") {
        (target.run)(bytes);
    }
});
