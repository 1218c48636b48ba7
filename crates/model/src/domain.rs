//! Spellings of the default operator domain: empty, or `ai.onnx`.

/// Name of the default operator domain.
const DEFAULT: &str = "ai.onnx";

/// Returns the name of an operator domain in messages: `ai.onnx` for the default domain, which is
/// empty in most files.
pub fn shown_domain(domain: &str) -> &str {
    if domain.is_empty() { DEFAULT } else { domain }
}

/// Returns an operator domain in the spelling of the registry: empty for `ai.onnx`.
pub fn normalize_domain(domain: &str) -> &str {
    if domain == DEFAULT { "" } else { domain }
}
