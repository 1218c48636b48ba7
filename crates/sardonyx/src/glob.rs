//! Patterns for names: `*` for any characters, `?` for one, everything else for itself.

/// A pattern for whole names. Upper and lower case differ, as in names.
///
/// ```
/// let glob = sardonyx::tool::Glob::parse("layer.*.weight")?;
/// assert!(glob.matches("layer.10.weight"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone)]
pub struct Glob(Vec<char>);

impl Glob {
    /// Whether a text means more than itself.
    pub fn is_pattern(text: &str) -> bool {
        text.contains(['*', '?'])
    }

    /// A pattern. Every text is one.
    ///
    /// # Errors
    ///
    /// None; the form is that of parsers of command lines.
    pub fn parse(text: &str) -> Result<Glob, String> {
        Ok(Glob(text.chars().collect()))
    }

    /// The pattern as it is written.
    pub fn text(&self) -> String {
        self.0.iter().collect()
    }

    /// Whether the whole name fits.
    pub fn matches(&self, name: &str) -> bool {
        let pattern = &self.0;
        let name: Vec<char> = name.chars().collect();
        let (mut p, mut n) = (0, 0);
        // The last `*` and how much of the name it has taken so far. Only that one ever has to take
        // more, so the work is bounded by the product of both lengths.
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
