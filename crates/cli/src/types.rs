//! Types of values in the notation of the ONNX standard: `tensor(float)`, `seq(tensor(int64))`,
//! `map(string,tensor(float))`.

use sardonyx::tool::suggest;
use sardonyx::{DataType, Type};

/// Maximum nesting depth of a type. Protects the recursive parser from a stack overflow.
const MAX_DEPTH: usize = 16;

/// Parses the notation of a type. The name of an element type alone stands for a tensor, and
/// NumPy's names for element types are accepted.
pub(crate) fn parse_type(text: &str) -> Result<Type, String> {
    let (ty, rest) = parse_leading_type(text, 0)?;
    match rest.trim() {
        "" => Ok(ty),
        rest => Err(format!("unexpected '{rest}' after the type")),
    }
}

/// Parses ONNX's or NumPy's name of an element type, such as `float` or `float32`.
pub(crate) fn parse_element(name: &str) -> Result<DataType, String> {
    let plain = match name {
        "float32" => "float",
        "float64" => "double",
        other => other,
    };
    DataType::from_name(plain).ok_or_else(|| {
        let names = DataType::ALL.iter().map(|known| known.name());
        match suggest::closest(name, names) {
            Some(near) => format!("unknown element type '{name}'; did you mean '{near}'?"),
            None => {
                let names: Vec<&str> = DataType::ALL.iter().map(|known| known.name()).collect();
                format!("unknown element type '{name}'; element types are {}", names.join(", "))
            }
        }
    })
}

/// Parses a type at the beginning of a text, and returns it with the rest of the text. `depth` is
/// the number of enclosing types.
fn parse_leading_type(text: &str, depth: usize) -> Result<(Type, &str), String> {
    if depth > MAX_DEPTH {
        return Err("the type is nested too deeply".to_string());
    }
    let (name, rest) = split_word(text);
    let Some(inside) = rest.strip_prefix('(') else {
        return Ok((Type::unranked(parse_element(name)?), rest));
    };
    let (ty, rest) = match name {
        "tensor" => {
            let (name, rest) = split_word(inside);
            (Type::unranked(parse_element(name)?), rest)
        }
        "sparse_tensor" => {
            let (name, rest) = split_word(inside);
            let tensor =
                sardonyx::value::TensorType { elem: Some(parse_element(name)?), shape: None };
            (Type::SparseTensor(tensor), rest)
        }
        "seq" => {
            let (inner, rest) = parse_leading_type(inside, depth + 1)?;
            (Type::Sequence(Box::new(inner)), rest)
        }
        "optional" => {
            let (inner, rest) = parse_leading_type(inside, depth + 1)?;
            (Type::Optional(Box::new(inner)), rest)
        }
        "map" => {
            let (key, rest) = split_word(inside);
            let rest = rest
                .strip_prefix(',')
                .ok_or("expected a comma and the type of the values after the type of the keys")?;
            let (inner, rest) = parse_leading_type(rest, depth + 1)?;
            (Type::Map(parse_element(key)?, Box::new(inner)), rest)
        }
        other => {
            return Err(format!(
                "'{other}(…)' is not a type; types are tensor(…), sparse_tensor(…), seq(…), map(…,…) and optional(…)"
            ));
        }
    };
    match rest.trim_start().strip_prefix(')') {
        Some(rest) => Ok((ty, rest)),
        None => Err("missing ')'".to_string()),
    }
}

/// Splits a text after the word at its beginning, and skips blanks around the word.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read() {
        let rows = [
            ("float16", "float16[...]"),
            ("tensor(float32)", "float[...]"),
            ("seq(tensor(int64))", "seq(int64[...])"),
            ("map( string , tensor(float) )", "map(string, float[...])"),
            ("optional(seq(int8))", "optional(seq(int8[...]))"),
            ("sparse_tensor(double)", "sparse_tensor(double[...])"),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_type(text).unwrap().to_string(), expected, "{text}");
        }
        let deep = format!("{}float{}", "seq(".repeat(20), ")".repeat(20));
        let rows = [
            ("flaot", "did you mean 'float'"),
            ("seq(float", "missing ')'"),
            ("map(string)", "comma"),
            ("list(float)", "not a type"),
            ("float float", "unexpected 'float'"),
            ("", "unknown element type"),
            (&deep, "too deeply"),
        ];
        for (text, words) in rows {
            let error = parse_type(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
