//! Advice on the version number of a changed model, by the standard's advice on versions of shared
//! models.

use super::{GraphDiff, ModelDiff, NodeChangeKind};

/// The part of a semantic version that a change asks to raise. Ordered by how much it means for
/// callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Impact {
    /// No part: names inside the model, documentation and the like.
    #[default]
    None,
    /// The patch: the model computes other values, in another way or more exactly, with the same
    /// inputs and outputs.
    Patch,
    /// The minor version: callers of the first model can call the second one.
    Minor,
    /// The major version: callers of the first model may fail with the second one.
    Major,
}

impl Impact {
    /// Returns `none`, `patch`, `minor` or `major`.
    pub fn name(self) -> &'static str {
        match self {
            Impact::None => "none",
            Impact::Patch => "patch",
            Impact::Minor => "minor",
            Impact::Major => "major",
        }
    }
}

/// Advice on `model_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct VersionAdvice {
    /// The part of the version to raise.
    pub impact: Impact,
    /// The version of the first model.
    pub before: i64,
    /// The version of the second model.
    pub after: i64,
    /// The lowest version that the second model should have; `None` if there is none above the
    /// first one.
    pub advised: Option<i64>,
    /// Whether the version of the second model is at least the advised one.
    pub is_followed: bool,
}

/// Judges all differences. The version is a plain number, which any change but that of names and
/// documentation raises, or a packed semantic version.
pub(super) fn advise(diff: &ModelDiff, before: Option<i64>, after: Option<i64>) -> VersionAdvice {
    let (before, after) = (before.unwrap_or(0), after.unwrap_or(0));
    let ports = diff.ports.iter().map(|change| change.impact);
    let inner = diff.graphs.iter().any(changes_results)
        || !diff.parts.is_empty()
        || !diff.imports.is_empty()
        || diff.header.iter().any(|change| change.field == "ir_version");
    let inner = if inner { Impact::Patch } else { Impact::None };
    let impact = ports.max().unwrap_or_default().max(inner);
    let advised = raise(before, impact);
    VersionAdvice {
        impact,
        before,
        after,
        advised,
        is_followed: impact == Impact::None || advised.is_some_and(|lowest| after >= lowest),
    }
}

/// Whether a graph may compute something else, or in another way.
fn changes_results(graph: &GraphDiff) -> bool {
    let nodes = graph.nodes.iter().any(|change| {
        matches!(
            change.kind,
            NodeChangeKind::Added | NodeChangeKind::Removed | NodeChangeKind::Changed
        )
    });
    let constants = graph.constants.iter().any(|change| {
        let is_in_both = change.before.is_some() && change.after.is_some();
        !is_in_both || !change.content.is_none()
    });
    let ports = graph.ports.iter().any(|change| change.impact > Impact::None);
    nodes || constants || ports || !graph.outputs.is_empty()
}

/// Raises a version to the lowest one that shows the impact.
fn raise(version: i64, impact: Impact) -> Option<i64> {
    if impact == Impact::None {
        return Some(version);
    }
    if !is_semantic(version) {
        return version.checked_add(1);
    }
    let step: i64 = match impact {
        Impact::Major => 1 << 48,
        Impact::Minor => 1 << 32,
        Impact::None | Impact::Patch => 1,
    };
    (version / step).checked_add(1)?.checked_mul(step)
}

/// Whether a version is packed of major, minor and patch: one of the first two is not zero then.
fn is_semantic(version: i64) -> bool {
    version >= 1 << 32
}

/// Formats a version of a model or an operator set for display. ONNX versions are plain numbers, or
/// semantic versions whose three numbers are packed into one.
pub fn format_version(version: i64) -> String {
    if version >> 32 == 0 || version < 0 {
        return version.to_string();
    }
    format!("{}.{}.{}", version >> 48, (version >> 32) & 0xffff, version & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::format_version;

    #[test]
    fn versions_are_packed_or_plain() {
        let rows = [
            (0, "0"),
            (21, "21"),
            (i64::MAX, "32767.65535.4294967295"),
            (-1, "-1"),
            (1 << 32, "0.1.0"),
        ];
        for (version, expected) in rows {
            assert_eq!(format_version(version), expected);
        }
    }
}
