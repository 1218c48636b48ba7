//! Switches that suppress findings and refusals, by which a test sees that others notice a missing
//! one.
//!
//! `SARDONYX_TEST_WITHOUT` names what is suppressed: a code, or a code with the line of source that
//! adds the finding, as `CODE@FILE:LINE`. `SARDONYX_TEST_SITES` names a file to which such a line
//! is appended for each finding. Builds without debug assertions have neither, at no cost.

use std::panic::Location;

/// Whether what is called `name` is suppressed at a line of source.
#[cfg(debug_assertions)]
pub fn is_off(name: &str, site: &Location<'_>) -> bool {
    use std::io::Write;
    use std::sync::LazyLock;

    static WITHOUT: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("SARDONYX_TEST_WITHOUT").ok());
    static SITES: LazyLock<Option<std::ffi::OsString>> =
        LazyLock::new(|| std::env::var_os("SARDONYX_TEST_SITES"));
    let place = || format!("{name}@{}:{}", site.file(), site.line());
    if let Some(path) = &*SITES {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        // The test misses the line if it cannot be written.
        let _ = file.and_then(|mut file| file.write_all(format!("{}\n", place()).as_bytes()));
    }
    WITHOUT.as_ref().is_some_and(|off| off == name || *off == place())
}

/// Whether what is called `name` is suppressed at a line of source: never.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn is_off(_: &str, _: &Location<'_>) -> bool {
    false
}
