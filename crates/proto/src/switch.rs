//! Switches that suppress findings and refusals, so that tests can verify that a missing one is
//! noticed.
//!
//! `SARDONYX_TEST_WITHOUT` names the suppressed finding: a code, or a code with the source line
//! that adds the finding, as `CODE@FILE:LINE`. `SARDONYX_TEST_SITES` names a file to which such a
//! line is appended for each finding. Builds without debug assertions support neither, at no cost.

use std::panic::Location;

/// Whether the finding `name` is suppressed at a source line.
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
        // A failed write is not an error here: the test notices the missing line.
        let _ = file.and_then(|mut file| file.write_all(format!("{}\n", place()).as_bytes()));
    }
    WITHOUT.as_ref().is_some_and(|off| off == name || *off == place())
}

/// Whether the finding `name` is suppressed at a source line: never in this build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn is_off(_: &str, _: &Location<'_>) -> bool {
    false
}
