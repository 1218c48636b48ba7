//! The location of a data file as text: what no file beside the model is called, on any system.

use super::codes::{self, Code};

/// The mark with which a runtime says that an offset is an address in its own memory.
const ADDRESS_MARK: &str = "_ORT_MEM_ADDR_";

/// What is wrong with a location, in words that go after it. Whatever
/// [`check_location`](crate::external::check_location) refuses has an error here.
pub(super) fn problems(location: &[u8]) -> Vec<(&'static Code, String)> {
    let Ok(text) = std::str::from_utf8(location) else {
        return vec![(&codes::LOCATION_NOT_UTF8, "is not UTF-8".to_string())];
    };
    let mut found = Vec::new();
    let mut add = |code: &'static Code, what: &str| found.push((code, what.to_string()));
    if text.is_empty() {
        add(&codes::LOCATION_EMPTY, "is empty");
    }
    if text.starts_with('#') || text.contains(ADDRESS_MARK) {
        let what = "refers to memory of the program that wrote the model";
        add(&codes::LOCATION_ADDRESS, what);
    }
    if text.contains('\0') {
        add(&codes::LOCATION_NUL, "contains a NUL character");
    }
    if is_absolute(location) {
        add(&codes::LOCATION_ABSOLUTE, "is an absolute path");
    }
    if text.split(['/', '\\']).any(|part| part == "..") {
        add(&codes::LOCATION_ESCAPES, "has a '..' part");
    }
    if text.contains("://") {
        add(&codes::LOCATION_URL, "is a network address");
    }
    if text.contains('\\') {
        add(&codes::LOCATION_BACKSLASH, "contains a backslash");
    }
    if text.chars().any(|c| c.is_control() && c != '\0') {
        add(&codes::LOCATION_CONTROL, "contains a control character");
    }
    if text.split(['/', '\\']).any(is_reserved) {
        add(&codes::LOCATION_RESERVED, "is a reserved name on Windows");
    }
    found
}

fn is_absolute(location: &[u8]) -> bool {
    let drive =
        location.first().is_some_and(u8::is_ascii_alphabetic) && location.get(1) == Some(&b':');
    drive || matches!(location.first(), Some(b'/' | b'\\'))
}

/// Names that Windows takes for a device, for a stream of another file, or for the same name
/// without its end.
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

/// A location without the spellings that mean nothing: `./a//b` and `a/b` are one file.
pub(super) fn normal(location: &str) -> String {
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
            let found = problems(location);
            let names: Vec<&str> = found.iter().map(|(code, _)| code.name).collect();
            let shown = String::from_utf8_lossy(location);
            assert_eq!(names, expected, "{shown:?}");
            let errors = |code: &Code| code.severity == Severity::Error;
            if check_location(&shown).is_err() {
                assert!(found.iter().any(|(code, _)| errors(code)), "{shown:?}");
            }
        }
    }

    #[test]
    fn spellings_of_one_path_are_one() {
        for spelling in ["a/b", "./a/b", "a//b", "a/./b", "a/b/"] {
            assert_eq!(normal(spelling), "a/b");
        }
    }
}
