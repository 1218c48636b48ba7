//! Checks of a data file's location as text, by the path rules of all operating systems.

use super::codes::{self, Code};

/// Marker of ONNX Runtime for tensors whose offset is an address in the memory of the process.
const ADDRESS_MARK: &str = "_ORT_MEM_ADDR_";

/// Finds the problems of a data file's location, each with a predicate such as "is empty". Every
/// location that [`check_location`](crate::external::check_location) rejects has an error.
pub(super) fn find_problems(location: &[u8]) -> Vec<(&'static Code, &'static str)> {
    let Ok(text) = std::str::from_utf8(location) else {
        return vec![(&codes::LOCATION_NOT_UTF8, "is not UTF-8")];
    };
    let mut found: Vec<(&'static Code, &'static str)> = Vec::new();
    if text.is_empty() {
        found.push((&codes::LOCATION_EMPTY, "is empty"));
    }
    if text.starts_with('#') || text.contains(ADDRESS_MARK) {
        let what = "refers to memory of the program that wrote the model";
        found.push((&codes::LOCATION_ADDRESS, what));
    }
    if text.contains('\0') {
        found.push((&codes::LOCATION_NUL, "contains a NUL character"));
    }
    if is_absolute(location) {
        found.push((&codes::LOCATION_ABSOLUTE, "is an absolute path"));
    }
    if text.split(['/', '\\']).any(|part| part == "..") {
        found.push((&codes::LOCATION_ESCAPES, "has a '..' part"));
    }
    if text.contains("://") {
        found.push((&codes::LOCATION_URL, "is a network address"));
    }
    if text.contains('\\') {
        found.push((&codes::LOCATION_BACKSLASH, "contains a backslash"));
    }
    if text.chars().any(|c| c.is_control() && c != '\0') {
        found.push((&codes::LOCATION_CONTROL, "contains a control character"));
    }
    if text.split(['/', '\\']).any(is_reserved) {
        found.push((&codes::LOCATION_RESERVED, "is a reserved name on Windows"));
    }
    found
}

/// Whether a location is an absolute path on Unix or Windows, or names a drive.
fn is_absolute(location: &[u8]) -> bool {
    let drive =
        location.first().is_some_and(u8::is_ascii_alphabetic) && location.get(1) == Some(&b':');
    drive || matches!(location.first(), Some(b'/' | b'\\'))
}

/// Whether Windows treats a path component specially: as a device (`NUL`), as a stream of another
/// file (`a:b`), or as the name without its trailing dots and spaces.
fn is_reserved(part: &str) -> bool {
    const DEVICES: [&str; 8] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "COM", "LPT"];
    let stem = part.split(['.', ':']).next().unwrap_or(part).trim_end();
    let device = DEVICES.iter().any(|device| match *device {
        "COM" | "LPT" => stem.get(..3).zip(stem.get(3..)).is_some_and(|(start, number)| {
            let numbers = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "¹", "²", "³"];
            start.eq_ignore_ascii_case(device) && numbers.contains(&number)
        }),
        _ => stem.eq_ignore_ascii_case(device),
    });
    let ends = part.ends_with(['.', ' ']) && part != "." && part != "..";
    device || ends || part.contains([':', '*', '?', '"', '<', '>', '|'])
}

/// Normalizes a data file's location, so that spellings of one path are equal: `./a//b` becomes
/// `a/b`.
pub(super) fn normalize(location: &str) -> String {
    let parts = location.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external::check_location;
    use sardonyx_passes::Severity;

    #[test]
    fn locations_are_judged_by_the_rules_of_every_system() {
        // EXT-02, EXT-09+, EXT-10, EXT-25+, EXT-26
        let rows: [(&[u8], &[&str]); 24] = [
            (b"w.bin", &[]),
            ("données/w.bin".as_bytes(), &[]),
            (b"./w..bin", &[]),
            (b"comb/con1.bin", &[]),
            (b"", &["location-empty"]),
            (b"/etc/passwd", &["location-absolute"]),
            (b"\\\\host\\w", &["location-absolute", "location-backslash"]),
            (b"C:w.bin", &["location-absolute", "location-reserved"]),
            (b"../w.bin", &["location-escapes"]),
            (b"a/../w.bin", &["location-escapes"]),
            (b"a\\..\\w", &["location-escapes", "location-backslash"]),
            (b"#mem", &["location-address"]),
            (b"*/_ORT_MEM_ADDR_/*", &["location-address", "location-reserved"]),
            (b"a\0b", &["location-nul"]),
            (b"a\nb", &["location-control"]),
            (b"\xff", &["location-not-utf8"]),
            (b"a\\b", &["location-backslash"]),
            (b"NUL", &["location-reserved"]),
            (b"sub/aux.bin", &["location-reserved"]),
            (b"com1.data", &["location-reserved"]),
            ("lpt²".as_bytes(), &["location-reserved"]),
            (b"w.bin:stream", &["location-reserved"]),
            (b"w.bin.", &["location-reserved"]),
            (b"https://host/w", &["location-url", "location-reserved"]),
        ];
        for (location, expected) in rows {
            let found = find_problems(location);
            let names: Vec<&str> = found.iter().map(|(code, _)| code.name).collect();
            let shown = String::from_utf8_lossy(location);
            assert_eq!(names, expected, "{shown:?}");
            if check_location(&shown).is_err() {
                let mut codes = found.iter().map(|(code, _)| code);
                assert!(codes.any(|code| code.severity == Severity::Error), "{shown:?}");
            }
        }
    }

    #[test]
    fn spellings_of_one_path_are_one() {
        for spelling in ["a/b", "./a/b", "a//b", "a/./b", "a/b/"] {
            assert_eq!(normalize(spelling), "a/b");
        }
    }
}
