//! Peak of the memory that a piece of work uses. Only Linux reports it; elsewhere the functions
//! return `None`.

use std::fs;

/// Starts a new measurement with the current use as the peak. Returns that use in bytes.
pub fn reset_peak() -> Option<u64> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    read_status("VmRSS:")
}

/// Returns the highest use since [`reset_peak`] in bytes.
pub fn peak() -> Option<u64> {
    read_status("VmHWM:")
}

fn read_status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_vector_raises_the_peak() {
        let Some(before) = reset_peak() else { return };
        drop(std::hint::black_box(vec![1u8; 32 << 20]));
        let most = peak().unwrap();
        assert!(most >= before + (30 << 20), "{before} {most}");
    }
}
