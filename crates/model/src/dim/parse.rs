//! Parser of sizes in files: a name or an expression over names.
//!
//! The standard only has names, but exporters write expressions in their place, and so does this
//! crate. Parsing them preserves the relations between sizes when a model is saved and loaded.

use super::Dim;

/// Nesting depth beyond which an expression is taken as a name.
const DEEPEST: u32 = 16;

/// Texts that exporters write for every unknown size. As names they would make all unknown sizes
/// equal: Paddle2ONNX writes images as `float[?, 3, ?, ?]`, and onnxconverter-common wrote `None`
/// for each unknown size.
const MARKS: [&str; 3] = ["", "?", "None"];

impl Dim {
    /// Parses a size in the notation of ONNX text, an expression such as `past + 1`, `2*N`, `N//2`,
    /// `floor(N/2)` or `max(N, 1)`. A text that is not an expression becomes a symbol of that name,
    /// and one that is not a [name](Self::is_name) becomes unknown.
    ///
    /// ```
    /// use sardonyx_model::Dim;
    ///
    /// assert_eq!(Dim::parse("past + 1"), Dim::symbol("past").add(&Dim::Known(1)));
    /// assert_eq!(Dim::parse("two words").as_symbol(), Some("two words"));
    /// assert!(Dim::parse("?").is_unknown());
    /// ```
    pub fn parse(text: &str) -> Dim {
        if !Dim::is_name(text.as_bytes()) {
            return Dim::Unknown;
        }
        let mut parser = Parser { rest: text, depth: 0 };
        match parser.sum() {
            Some(dim) if parser.rest.trim().is_empty() && !dim.is_unknown() => dim,
            _ => Dim::symbol(text),
        }
    }

    /// Whether a `dim_param` names a size. The empty text, `?`, `None` and negative numbers mark
    /// unknown sizes, which may differ from each other.
    pub fn is_name(text: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(text) else { return true };
        let text = text.trim();
        !MARKS.contains(&text) && !text.parse().is_ok_and(|size: i64| size < 0)
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: u32,
}

impl Parser<'_> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Option<Dim> {
        let negative = self.eat("-");
        let mut sum = self.product()?;
        if negative {
            sum = Dim::Known(0).sub(&sum);
        }
        loop {
            if self.eat("+") {
                sum = sum.add(&self.product()?);
            } else if self.eat("-") {
                sum = sum.sub(&self.product()?);
            } else {
                return Some(sum);
            }
        }
    }

    fn product(&mut self) -> Option<Dim> {
        let mut product = self.operand()?;
        loop {
            if self.eat("//") {
                product = product.floor_div(&self.operand()?);
            } else if self.eat("*") {
                product = product.mul(&self.operand()?);
            } else if self.eat("%") {
                product = product.rem(&self.operand()?);
            } else {
                return Some(product);
            }
        }
    }

    fn operand(&mut self) -> Option<Dim> {
        self.rest = self.rest.trim_start();
        if self.depth >= DEEPEST {
            return None;
        }
        if self.eat("(") {
            let inner = self.parse_nested(Self::sum)?;
            return self.eat(")").then_some(inner);
        }
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().ok().map(Dim::Known);
        }
        if word.is_empty() {
            return None;
        }
        if !rest.starts_with('(') {
            return Some(Dim::symbol(word));
        }
        self.eat("(");
        let result = match word {
            "floor" | "ceil" | "ceiling" => {
                let quotient = self.parse_nested(|parser| {
                    let above = parser.product()?;
                    parser.eat("/").then_some(())?;
                    Some((above, parser.product()?))
                })?;
                match word {
                    "floor" => quotient.0.floor_div(&quotient.1),
                    _ => quotient.0.ceil_div(&quotient.1),
                }
            }
            _ => {
                let combine = match word {
                    "mod" | "Mod" => Dim::rem,
                    "max" | "Max" => Dim::larger,
                    "min" | "Min" => Dim::smaller,
                    "broadcast" => Dim::broadcast,
                    _ => return None,
                };
                let first = self.parse_nested(Self::sum)?;
                self.eat(",").then_some(())?;
                combine(&first, &self.parse_nested(Self::sum)?)
            }
        };
        self.eat(")").then_some(result)
    }

    fn parse_nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_expressions_are_read_back() {
        for text in [
            "N",
            "2*N + 5",
            "N - 1",
            "-N + M",
            "M*N",
            "floor((N + 1)/2)",
            "mod(N, 4)",
            "max(N, M)",
            "min(N + 1, 4)",
            "broadcast(M, N)",
            "2*floor(N/(2*M))",
        ] {
            let read = Dim::parse(text);
            assert_eq!(Dim::parse(&read.to_string()), read, "{text} is {read}");
            assert_ne!(read.as_symbol(), Some(text).filter(|text| text.len() > 1), "{text}");
        }
        assert_eq!(Dim::parse("ceil(N/2)"), Dim::symbol("N").ceil_div(&2i64.into()));
        assert_eq!(Dim::parse("N//2"), Dim::parse("floor(N/2)"));
        assert_eq!(Dim::parse("3*(N+1)"), Dim::parse("3*N + 3"));
    }

    #[test]
    fn other_texts_are_names() {
        let deep = format!("{}N{}", "(".repeat(10_000), ")".repeat(10_000));
        for text in [
            "batch size",
            "N+",
            "f(N)",
            "N/2",
            "a:b",
            "2N",
            "*",
            "??",
            "none",
            "N.size",
            &deep,
            "99999999999999999999",
        ] {
            assert_eq!(Dim::parse(text).as_symbol(), Some(text));
        }
    }

    #[test]
    fn marks_are_unknown() {
        for text in ["", " ", "?", " ? ", "None", "-1", "-2"] {
            assert!(Dim::parse(text).is_unknown(), "{text}");
            assert!(!Dim::is_name(text.as_bytes()), "{text}");
        }
        assert!(Dim::is_name(b"unk__12"));
    }
}
