//! Target versions of a conversion.

use std::collections::BTreeMap;

use sardonyx_model::{normalize_domain, shown_domain};
use sardonyx_ops::Registry;

/// Release of the standard, with its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Release {
    /// Number without a patch level, such as `1.16`. The patch release 1.1.2 is an entry of its
    /// own, as it has other versions.
    pub name: &'static str,
    /// Level of the last patch release, such as 2 for `1.16.2`.
    pub last_patch: u32,
    /// Version of the format.
    pub ir_version: i64,
    /// Versions of operator sets by domain, `ai.onnx` being empty.
    pub opsets: &'static [(&'static str, u32)],
}

/// Builds the list of releases from rows with the number, the last patch level, the version of the
/// format, and the versions of the operator sets. Source: the table of releases in the standard's
/// document on versioning.
macro_rules! releases {
    ($($name:literal $patch:literal $ir:literal $(($domain:literal $version:literal))+;)+) => {
        &[$(Release { name: $name, last_patch: $patch, ir_version: $ir, opsets: &[$(($domain, $version)),+] }),+]
    };
}

/// All releases, oldest first.
pub const RELEASES: &[Release] = releases! {
    "1.0" 1 3 ("" 1) ("ai.onnx.ml" 1);
    "1.1" 1 3 ("" 5) ("ai.onnx.ml" 1);
    "1.1.2" 0 3 ("" 6) ("ai.onnx.ml" 1);
    "1.2" 3 3 ("" 7) ("ai.onnx.ml" 1);
    "1.3" 0 3 ("" 8) ("ai.onnx.ml" 1);
    "1.4" 1 4 ("" 9) ("ai.onnx.ml" 1);
    "1.5" 0 5 ("" 10) ("ai.onnx.ml" 1);
    "1.6" 0 6 ("" 11) ("ai.onnx.ml" 2);
    "1.7" 0 7 ("" 12) ("ai.onnx.ml" 2) ("ai.onnx.preview.training" 1);
    "1.8" 1 7 ("" 13) ("ai.onnx.ml" 2) ("ai.onnx.preview.training" 1);
    "1.9" 0 7 ("" 14) ("ai.onnx.ml" 2) ("ai.onnx.preview.training" 1);
    "1.10" 2 8 ("" 15) ("ai.onnx.ml" 2) ("ai.onnx.preview.training" 1);
    "1.11" 0 8 ("" 16) ("ai.onnx.ml" 3) ("ai.onnx.preview.training" 1);
    "1.12" 0 8 ("" 17) ("ai.onnx.ml" 3) ("ai.onnx.preview.training" 1);
    "1.13" 1 8 ("" 18) ("ai.onnx.ml" 3) ("ai.onnx.preview.training" 1);
    "1.14" 1 9 ("" 19) ("ai.onnx.ml" 3) ("ai.onnx.preview.training" 1);
    "1.15" 0 9 ("" 20) ("ai.onnx.ml" 4) ("ai.onnx.preview.training" 1);
    "1.16" 2 10 ("" 21) ("ai.onnx.ml" 5) ("ai.onnx.preview.training" 1);
    "1.17" 0 10 ("" 22) ("ai.onnx.ml" 5) ("ai.onnx.preview.training" 1);
    "1.18" 0 11 ("" 23) ("ai.onnx.ml" 5) ("ai.onnx.preview.training" 1);
    "1.19" 1 12 ("" 24) ("ai.onnx.ml" 5) ("ai.onnx.preview.training" 1);
    "1.20" 1 13 ("" 25) ("ai.onnx.ml" 5) ("ai.onnx.preview.training" 1);
    "1.21" 0 13 ("" 26) ("ai.onnx.ml" 5) ("ai.onnx.preview.training" 1);
    "1.22" 0 13 ("" 27) ("ai.onnx.ml" 5) ("ai.onnx.preview.training" 1);
    "1.23" 2 14 ("" 28) ("ai.onnx.ml" 5) ("ai.onnx.preview.training" 1);
};

/// Target versions of a conversion: operator sets and file format. Versions that are not set stay
/// as they are in the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// Versions by domain, with an empty domain for `ai.onnx`. Other operator sets stay.
    opsets: BTreeMap<String, u32>,
    release: Option<&'static Release>,
    ir_version: Option<i64>,
}

impl Target {
    /// Makes a target that sets no version.
    pub fn new() -> Target {
        Target::default()
    }

    /// Sets the version of an operator set. An empty domain means `ai.onnx`.
    #[must_use]
    pub fn opset(mut self, domain: &str, version: u32) -> Target {
        self.opsets.insert(normalize_domain(domain).to_string(), version);
        self
    }

    /// Sets the versions of a release of the standard, such as `1.16` or `1.16.2`: the file format,
    /// and all operator sets of the standard that the model imports, except those that
    /// [`opset`](Target::opset) sets. Returns `None` for an unknown release.
    #[must_use]
    pub fn release(mut self, name: &str) -> Option<Target> {
        let found = |name: &str| RELEASES.iter().find(|release| release.name == name);
        let without_patch = || {
            let (minor, patch) = name.rsplit_once('.')?;
            let is_number = !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit());
            let patch: u32 = patch.parse().ok().filter(|_| is_number)?;
            // The patch release 1.1.2 has no patches.
            let was_released =
                |release: &&Release| patch <= release.last_patch && minor.matches('.').count() == 1;
            found(minor).filter(was_released)
        };
        self.release = Some(found(name).or_else(without_patch)?);
        Some(self)
    }

    /// Sets the version of the file format.
    #[must_use]
    pub fn ir_version(mut self, version: i64) -> Target {
        self.ir_version = Some(version);
        self
    }

    /// Whether the target sets no version.
    pub fn is_empty(&self) -> bool {
        *self == Target::default()
    }

    /// Returns the domains whose versions are set individually.
    pub(super) fn list_named(&self) -> impl Iterator<Item = &str> {
        self.opsets.keys().map(String::as_str)
    }

    /// Returns the target version of an operator set; `None` if it stays.
    pub(super) fn version_of(&self, domain: &str) -> Option<u32> {
        let of_release = || {
            let found = self.release?.opsets.iter().find(|(found, _)| *found == domain)?;
            Some(found.1)
        };
        self.opsets.get(domain).copied().or_else(of_release)
    }

    /// Returns the reason why `domain` is not available in the target release, if it is not.
    pub(super) fn not_in_release(&self, domain: &str) -> Option<String> {
        let release = self.release.filter(|_| self.version_of(domain).is_none())?;
        let has = |release: &Release| release.opsets.iter().any(|(found, _)| *found == domain);
        let first = RELEASES.iter().find(|release| has(release))?;
        Some(format!(
            "release {} does not have the operator set {}, which the model imports; release {} is \
             the first that has it",
            release.name,
            shown_domain(domain),
            first.name
        ))
    }

    /// Returns the target version of the format; `None` if none is set.
    pub(super) fn wanted_ir_version(&self) -> Option<i64> {
        self.ir_version.or_else(|| self.release.map(|release| release.ir_version))
    }

    /// Returns a message about a target version that does not exist, if there is one.
    pub(super) fn unknown(&self, registry: &Registry) -> Option<String> {
        for (domain, version) in &self.opsets {
            let shown = shown_domain(domain);
            let Some((oldest, newest)) = registry.versions(domain) else {
                return Some(format!("the standard has no operator set '{shown}'"));
            };
            if !(oldest..=newest).contains(version) {
                return Some(format!(
                    "the operator set {shown} has no version {version}; versions are {oldest} to {newest}"
                ));
            }
        }
        let newest = crate::NEWEST_IR_VERSION;
        let wrong = self.ir_version.filter(|version| !(3..=newest).contains(version))?;
        Some(format!("cannot convert to IR version {wrong}, only to 3 to {newest}"))
    }
}
