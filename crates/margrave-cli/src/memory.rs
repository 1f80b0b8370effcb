//! The peak memory of this process.

/// Peak resident memory in bytes, where the system reports it.
pub(crate) fn peak_bytes() -> Option<u64> {
    // VmHWM is the high-water mark of the resident set, in kB.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_is_at_least_what_was_touched() {
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        assert!(super::peak_bytes().is_some_and(|peak| peak > block.len() as u64));
    }
}
