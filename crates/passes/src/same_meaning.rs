//! Comparison of the meaning of nodes of an operator in two versions of an operator set.

use sardonyx_ops::Registry;

/// Returns the reason for which a node of an operator may have another meaning in another version,
/// independent of its attributes and inputs.
pub(crate) fn change(
    registry: &Registry,
    domain: &str,
    name: &str,
    from: i64,
    to: i64,
) -> Option<String> {
    if from == to {
        return None;
    }
    let schema = |version: i64| {
        let version = u32::try_from(version).unwrap_or(0);
        registry.schema(domain, name, version).map(|schema| schema.since)
    };
    let (Some(before), Some(after)) = (schema(from), schema(to)) else {
        let versions = [from, to].map(|version| u32::try_from(version).unwrap_or(0));
        if was_added_before(registry, domain, name, versions) {
            return None;
        }
        return Some(match registry.operator(domain, name) {
            Some(_) => format!("{name} does not exist in both versions"),
            None => format!("it is unknown whether {name} is the same in both versions"),
        });
    };
    let operator = registry.operator(domain, name)?;
    // Newer forms mostly allow more without other changes.
    let mut between = operator.versions().map(|version| version.since);
    let is_same = before == after
        || before < after
            && between.all(|since| {
                !(before + 1..=after).contains(&since)
                    || operator.adapter_at(since - 1, since).is_none()
                        && operator.unadapted_boundary(since).is_none()
            });
    (!is_same).then(|| format!("{name} differs between the versions"))
}

/// Returns whether a node of the default domain is one of ONNX Runtime's in a version where the
/// standard lacks its operator, and has the same meaning in another version, from either source.
pub(crate) fn was_added_before(
    registry: &Registry,
    domain: &str,
    name: &str,
    versions: [u32; 2],
) -> bool {
    let registry = registry.clone().including_microsoft();
    let [before, after] = versions.map(|version| registry.schema(domain, name, version));
    let is_added = before.is_some_and(|before| registry.is_added(before));
    domain.is_empty() && is_added && after.is_some()
}
