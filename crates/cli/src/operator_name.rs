//! Names of operators in messages and answers.

/// Returns `DOMAIN.NAME` of an operator, or the name alone in the default domain.
pub(crate) fn qualified_name(domain: &str, name: &str) -> String {
    if domain.is_empty() { name.to_string() } else { format!("{domain}.{name}") }
}
