//! Glob patterns for names of nodes, values and functions.

/// Glob pattern that matches whole names: `*` matches any characters, `?` matches one character,
/// and every other character matches itself. Case-sensitive.
///
/// ```
/// let glob = sardonyx::tool::Glob::parse("layer.*.weight")?;
/// assert!(glob.matches("layer.10.weight"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone)]
pub struct Glob(Vec<char>);

impl Glob {
    /// Whether a text has a wildcard (`*` or `?`), so that it may match names other than itself.
    pub fn is_pattern(text: &str) -> bool {
        text.contains(['*', '?'])
    }

    /// Parses a glob pattern; every text is valid.
    ///
    /// # Errors
    ///
    /// Never fails. Returns a result because command line parsers take fallible functions.
    pub fn parse(text: &str) -> Result<Glob, String> {
        Ok(Glob(text.chars().collect()))
    }

    /// Returns the text that the pattern was parsed from.
    pub fn text(&self) -> String {
        self.0.iter().collect()
    }

    /// Whether the pattern matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        let pattern = &self.0;
        let name: Vec<char> = name.chars().collect();
        let (mut p, mut n) = (0, 0);
        // Position of the last `*`, and the end of its match. Only the last `*` ever backtracks, so
        // the work is bounded by the product of both lengths.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, n));
                    p += 1;
                    continue;
                }
                Some(c) if *c == '?' || *c == name[n] => {
                    p += 1;
                    n += 1;
                    continue;
                }
                _ => {}
            }
            let Some((at, taken)) = star else {
                return false;
            };
            star = Some((at, taken + 1));
            p = at + 1;
            n = taken + 1;
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn stars_and_question_marks() {
        let rows = [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("w", "w", true),
            ("w", "W", false),
            ("w", "w1", false),
            ("w?", "w1", true),
            ("w?", "w", false),
            ("layer.*.weight", "layer.10.weight", true),
            ("layer.*.weight", "layer.10.bias", false),
            ("*.weight", "a.weight.weight", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xbxa", false),
            ("?*?", "a", false),
            ("?*?", "ab", true),
            ("größe?", "größe2", true),
            ("[a]", "[a]", true),
        ];
        for (pattern, name, expected) in rows {
            let glob = Glob::parse(pattern).unwrap();
            assert_eq!(glob.matches(name), expected, "{pattern} {name}");
        }
        let slow = Glob::parse(&"*a".repeat(50)).unwrap();
        assert!(!slow.matches(&"a".repeat(2000).replace("aaaa", "aaab").replace('a', "b")));
    }
}
