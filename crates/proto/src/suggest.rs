//! "Did you mean …?": finds the name closest to one that does not exist.

/// Returns the candidate closest to `wanted` if it is likely a typing error: ignoring case and
/// punctuation, up to a third of the characters differ.
///
/// ```
/// let names = ["input_ids", "attention_mask"];
/// assert_eq!(sardonyx_proto::closest("input-id", names), Some("input_ids"));
/// assert_eq!(sardonyx_proto::closest("pixels", names), None);
/// ```
pub fn closest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = normalize(wanted);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let plain = normalize(candidate);
            let distance = edit_distance(&wanted, &plain);
            let close = distance <= wanted.len().max(plain.len()) / 3;
            (close && !wanted.is_empty()).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Formats the end of a message about an unknown name, `; did you mean 'input_ids'?`, or returns an
/// empty string if no name is similar.
pub fn hint<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match closest(wanted, candidates) {
        Some(near) => format!("; did you mean '{near}'?"),
        None => String::new(),
    }
}

fn normalize(name: &str) -> Vec<char> {
    // Longer names are not typed by hand, and the comparison takes quadratic time.
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(100).collect()
}

/// Counts the insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let names = ["image", "Input3", "x", "data_0"];
        let rows = [
            ("imgae", Some("image")),
            ("Image", Some("image")),
            ("input_3", Some("Input3")),
            ("data0", Some("data_0")),
            ("y", None),
            ("weights", None),
            ("", None),
        ];
        for (wanted, expected) in rows {
            assert_eq!(closest(wanted, names), expected, "{wanted}");
        }
    }
}
