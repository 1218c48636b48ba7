//! Names of operators and their domains in messages and answers.

/// Returns the name of an operator domain: `ai.onnx` for the default domain, which is empty in
/// files.
pub(crate) fn domain_name(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

/// Returns `DOMAIN.NAME`, or the name alone in the default domain.
pub(crate) fn qualified_name(domain: &str, name: &str) -> String {
    if domain.is_empty() { name.to_string() } else { format!("{domain}.{name}") }
}
