//! Sizes that artefacts may have, so that what makes them larger is seen in the change that does.
//!
//! A limit is a little above the size of the day. A change that needs more raises it, with the
//! reason in its commit; one that saves lowers it.

use crate::Result;
use crate::workspace::readable_path;
use std::fs;
use std::path::Path;

/// File whose size has a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Artefact {
    /// The static command, with the profile `dist`.
    Command,
    /// The wheel, with the profile `dist`.
    Wheel,
    /// The wheel that CI builds, with the profile `dev`.
    DevWheel,
}

impl Artefact {
    /// Returns the largest size, in MB.
    const fn limit(self) -> f64 {
        match self {
            Artefact::Command => 36.0,
            Artefact::Wheel => 18.0,
            Artefact::DevWheel => 17.0,
        }
    }
}

/// Prints the size of an artefact, and fails if it is above the limit.
pub(crate) fn check(artefact: Artefact, path: &Path) -> Result {
    let size = fs::metadata(path)?.len() as f64 / 1e6;
    let name = readable_path(path);
    let limit = artefact.limit();
    println!("  {name}: {size:.1} MB, at most {limit:.1}");
    if size > limit {
        let file = "xtask/src/sizes.rs";
        return Err(format!("{name} has {size:.1} MB; {file} allows {limit:.1}").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_limit_is_refused() {
        let path = std::env::temp_dir().join(format!("sardonyx-size-{}", std::process::id()));
        let limit = Artefact::Command.limit() as u64 * 1_000_000;
        // Without blocks on the disk.
        let file = fs::File::create(&path).unwrap();
        file.set_len(limit).unwrap();
        let fits = check(Artefact::Command, &path);
        file.set_len(limit + 1).unwrap();
        let refused = check(Artefact::Command, &path);
        fs::remove_file(&path).unwrap();
        assert!(fits.is_ok());
        assert!(refused.unwrap_err().to_string().contains("MB; xtask/src/sizes.rs allows"));
    }
}
