//! Names of the functions that a client calls, recorded with the feature `trace`.

/// Records the name of a function of the table.
#[cfg(not(feature = "trace"))]
pub(crate) fn record(_: &str) {}

/// Records the name of a function of the table: appends it to the file that the environment
/// variable `SARDONYX_CAPI_TRACE` names, once for each process.
#[cfg(feature = "trace")]
pub(crate) fn record(name: &str) {
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::sync::{Mutex, PoisonError};

    static NAMES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if !names.insert(name.to_string()) {
        return;
    }
    let Some(path) = std::env::var_os("SARDONYX_CAPI_TRACE") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Ok(mut file) = file {
        let _ = writeln!(file, "{name}");
    }
}
