//! Parses versions of models and domains.

/// Parses a version as [`format_version`](crate::tool::format_version) formats it: a plain number,
/// or a semantic version, whose three numbers are packed into one. `None` for any other text.
///
/// ```
/// use sardonyx::tool::parse_version;
///
/// assert_eq!(parse_version("17"), Some(17));
/// assert_eq!(parse_version("1.2.345"), Some((1 << 48) + (2 << 32) + 345));
// Major and minor version must not both be zero: the packed number would look like a plain one.
/// assert_eq!(parse_version("0.0.7"), None);
/// assert_eq!(parse_version("1.2.3-rc1"), None);
/// ```
pub fn parse_version(text: &str) -> Option<i64> {
    let Some((major, rest)) = text.split_once('.') else {
        return text.parse().ok();
    };
    let (minor, patch) = rest.split_once('.')?;
    let mut numbers = [major, minor, patch].into_iter();
    if !numbers.all(|text| text.bytes().all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    let (major, minor): (u16, u16) = (major.parse().ok()?, minor.parse().ok()?);
    let patch: u32 = patch.parse().ok()?;
    if (major, minor) == (0, 0) {
        return None;
    }
    let packed = u64::from(major) << 48 | u64::from(minor) << 32 | u64::from(patch);
    Some(packed as i64)
}
