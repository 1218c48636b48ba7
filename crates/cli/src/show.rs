//! Values as text and as JSON of bounded length.

use std::fmt::Write;

use sardonyx::tool::{CastOptions, Class, cast};
use sardonyx::{DataType, Tensor, Value};
use serde_json::{Number, json};

use crate::escape::escape_controls;
use crate::failure::Failure;
use crate::human::{self, Align, pad};

/// Maximum number of rows along the last axis of a tensor that are printed.
const SHOWN_ROWS: usize = 8;
/// Maximum number of elements of a row of a tensor that are printed.
const SHOWN_ELEMENTS: usize = 8;
/// Largest tensor, in elements, whose minimum, maximum and mean are computed.
const SUMMARY_ELEMENTS: usize = 1 << 24;

/// Formats the name, type, shape and first elements of a value.
pub(crate) fn value_text(name: &str, value: &Value) -> Result<String, Failure> {
    match value {
        Value::Tensor(tensor) => tensor_text(name, tensor),
        Value::Sequence(items) => {
            let mut text = format!(
                "{name}: {} of {}\n",
                value.value_type(),
                human::format_count(items.len(), "item")
            );
            for (i, item) in items.items().iter().take(SHOWN_ROWS).enumerate() {
                text += &indent(&value_text(&format!("[{i}]"), item)?);
            }
            if items.len() > SHOWN_ROWS {
                let _ = writeln!(text, "  ... and {} more", items.len() - SHOWN_ROWS);
            }
            Ok(text)
        }
        Value::Map(map) => {
            let mut text = format!(
                "{name}: {} of {}\n",
                value.value_type(),
                match map.entries().len() {
                    1 => "1 entry".to_string(),
                    entries => format!("{entries} entries"),
                }
            );
            for (key, item) in map.entries().iter().take(SHOWN_ROWS) {
                text += &indent(&value_text(&key_text(key), item)?);
            }
            if map.entries().len() > SHOWN_ROWS {
                let _ = writeln!(text, "  ... and {} more", map.entries().len() - SHOWN_ROWS);
            }
            Ok(text)
        }
        Value::Optional(_, Some(inner)) => value_text(name, inner),
        Value::Optional(..) => Ok(format!("{name}: empty {}\n", value.value_type())),
        Value::Opaque(_) => Ok(format!("{name}: {}\n", value.value_type())),
        Value::Sparse(sparse) => {
            let head = format!(
                "{name}: {} {:?} with {} values\n",
                value.value_type(),
                sparse.dims(),
                sparse.values().len()
            );
            Ok(head
                + &indent(&tensor_text("indices", sparse.indices())?)
                + &indent(&tensor_text("values", sparse.values())?))
        }
    }
}

/// Formats the key of a map, with strings in quotes.
fn key_text(key: &sardonyx::value::MapKey) -> String {
    match key {
        sardonyx::value::MapKey::Signed(key) => key.to_string(),
        sardonyx::value::MapKey::Unsigned(key) => key.to_string(),
        sardonyx::value::MapKey::String(key) => format!("{:?}", String::from_utf8_lossy(key)),
    }
}

/// Indents all lines by two blanks.
fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Formats the name, type, shape and first elements of a tensor.
fn tensor_text(name: &str, tensor: &Tensor) -> Result<String, Failure> {
    let mut text = format!("{name}: {}{}\n", tensor.data_type(), dims_text(tensor.dims()));
    if tensor.is_empty() {
        text += "  no elements\n";
        return Ok(text);
    }
    let width = tensor.dims().last().copied().unwrap_or(1);
    let rows = tensor.len() / width;
    let mut cells = Vec::new();
    for row in 0..rows.min(SHOWN_ROWS) {
        cells.push(format_elements(tensor, row * width, width.min(SHOWN_ELEMENTS))?);
    }
    let widest = cells.iter().flatten().map(|cell| human::measure_width(cell)).max().unwrap_or(0);
    for (row, cells) in cells.iter().enumerate() {
        let index =
            if tensor.rank() > 1 { format_row_index(tensor.dims(), row) } else { String::new() };
        let more = if width > SHOWN_ELEMENTS { " …" } else { "" };
        let cells: Vec<String> = cells.iter().map(|cell| pad(cell, widest, Align::Right)).collect();
        let _ = writeln!(text, "  {index}{}{more}", cells.join(" "));
    }
    if rows > SHOWN_ROWS {
        let _ = writeln!(text, "  ... and {} more rows", rows - SHOWN_ROWS);
    }
    if rows > SHOWN_ROWS || width > SHOWN_ELEMENTS {
        text += &format_summary(tensor)?;
    }
    Ok(text)
}

/// Formats the sizes of a tensor's dimensions, such as `[2, 3]`; empty for a scalar.
fn dims_text(dims: &[usize]) -> String {
    if dims.is_empty() { String::new() } else { format!("{dims:?}") }
}

/// Formats the index of a row along the last axis, such as `[0, 3, :]`.
fn format_row_index(dims: &[usize], row: usize) -> String {
    let mut rest = row;
    let mut index: Vec<String> = dims[..dims.len() - 1]
        .iter()
        .rev()
        .map(|dim| {
            let at = rest % dim;
            rest /= dim;
            at.to_string()
        })
        .collect();
    index.reverse();
    format!("[{}, :] ", index.join(", "))
}

/// Formats the smallest, the largest and the mean element of a tensor of numbers. Empty for other
/// element types, and for more than [`SUMMARY_ELEMENTS`].
fn format_summary(tensor: &Tensor) -> Result<String, Failure> {
    let class = tensor.data_type().class();
    if !matches!(class, Class::Float | Class::Signed | Class::Unsigned)
        || tensor.len() > SUMMARY_ELEMENTS
    {
        return Ok(String::new());
    }
    let values = cast(tensor, DataType::Double, CastOptions::default())?.to_vec::<f64>()?;
    let nan = values.iter().filter(|x| x.is_nan()).count();
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mean =
        values.iter().filter(|x| !x.is_nan()).sum::<f64>() / (values.len() - nan).max(1) as f64;
    let nan = if nan > 0 { format!(", {nan} not a number") } else { String::new() };
    Ok(format!(
        "  min {}, max {}, mean {}{nan}\n",
        format_number(min),
        format_number(max),
        format_number(mean)
    ))
}

/// Formats a number with about six significant digits.
pub(crate) fn format_number(x: f64) -> String {
    match x.abs() {
        size if !size.is_finite() => x.to_string(),
        0.0 => "0".to_string(),
        size if (1e-3..1e7).contains(&size) => {
            let decimals = (5 - size.log10().floor() as i32).max(0) as usize;
            let text = format!("{x:.decimals$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_string()
            } else {
                text
            }
        }
        _ => format!("{x:.5e}"),
    }
}

/// Formats `count` consecutive elements from the index `start` on, with strings in quotes and cut
/// after 60 characters.
fn format_elements(tensor: &Tensor, start: usize, count: usize) -> Result<Vec<String>, Failure> {
    let texts = elements_to_text(tensor, start, count)?;
    if tensor.data_type() != DataType::String {
        return Ok(texts);
    }
    let quoted = texts.iter().map(|text| match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    });
    Ok(quoted.collect())
}

/// Converts `count` consecutive elements from the index `start` on to text, with strings whole and
/// without quotes.
pub(crate) fn elements_to_text(
    tensor: &Tensor,
    start: usize,
    count: usize,
) -> Result<Vec<String>, Failure> {
    let part = tensor.view().reshape([tensor.len()])?.slice(0, start, count, 1)?.to_tensor()?;
    let part = cast(&part, DataType::String, CastOptions::default())?;
    let strings = part.strings().into_iter().flat_map(|strings| strings.iter());
    Ok(strings.map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}

/// Calls `line` for each row along the last axis with the index of the row and its elements as
/// text. Converts a bounded number of elements at a time, so that a long row comes in several
/// pieces.
pub(crate) fn for_each_row(
    tensor: &Tensor,
    mut line: impl FnMut(usize, Vec<String>, Piece) -> Result<(), Failure>,
) -> Result<(), Failure> {
    const AT_A_TIME: usize = 1 << 16;
    if tensor.is_empty() {
        return Ok(());
    }
    let width = tensor.dims().last().copied().unwrap_or(1);
    for row in 0..tensor.len() / width {
        let mut column = 0;
        while column < width {
            let count = AT_A_TIME.min(width - column);
            let piece = Piece { is_first: column == 0, is_last: column + count == width };
            line(row, elements_to_text(tensor, row * width + column, count)?, piece)?;
            column += count;
        }
    }
    Ok(())
}

/// Position of a piece of a row within the row.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}

/// Writes the name, type, shape and all elements of a tensor to `sink`.
pub(crate) fn write_tensor(
    sink: &mut dyn std::io::Write,
    name: &str,
    tensor: &Tensor,
) -> Result<(), Failure> {
    let (data_type, dims) = (tensor.data_type(), tensor.dims());
    let title = format!("{name}: {data_type}{}\n", dims_text(dims));
    sink.write_all(escape_controls(&title).as_bytes())?;
    if tensor.is_empty() {
        sink.write_all(b"  no elements\n")?;
    }
    let is_text = data_type == DataType::String;
    for_each_row(tensor, |row, cells, piece| {
        let mut text = if piece.is_first { "  ".to_string() } else { " ".to_string() };
        if piece.is_first && dims.len() > 1 {
            text += &format_row_index(dims, row);
        }
        text += &if is_text {
            let quoted: Vec<String> = cells.iter().map(|cell| format!("{cell:?}")).collect();
            quoted.join(" ")
        } else {
            cells.join(" ")
        };
        if piece.is_last {
            text.push('\n');
        }
        Ok(sink.write_all(text.as_bytes())?)
    })
}

/// Converts a value to JSON with its name, type, shape and elements.
///
/// Elements are a flat list in row-major order. Numbers that JSON lacks are the strings "nan",
/// "inf" and "-inf", complex numbers are strings. A sequence has `items`, a map `entries` with
/// `key` and `value`, an optional a `value` that may be null, and a sparse tensor `indices` and
/// `values`; all of these are objects of this kind. Values other than tensors also have a `text`.
pub(crate) fn value_json(name: &str, value: &Value) -> Result<serde_json::Value, Failure> {
    let mut left = JSON_ELEMENTS;
    let mut json = part_json(name, value, &mut left)?;
    if value.as_tensor().is_none() {
        json["text"] = json!(value_text(name, value)?);
    }
    Ok(json)
}

/// Like [`value_json`], but with at most `left` items and elements, and without `text`. Subtracts
/// the number of added items and elements from `left`.
fn part_json(name: &str, value: &Value, left: &mut usize) -> Result<serde_json::Value, Failure> {
    let ty = value.value_type().to_string();
    Ok(match value {
        Value::Tensor(tensor) => part_tensor_json(name, tensor, left)?,
        Value::Sparse(sparse) => json!({
            "name": name,
            "type": ty,
            "shape": sparse.dims(),
            "indices": part_tensor_json("indices", sparse.indices(), left)?,
            "values": part_tensor_json("values", sparse.values(), left)?,
        }),
        Value::Sequence(sequence) => {
            let mut items = Vec::new();
            for (index, item) in sequence.items().iter().enumerate() {
                if *left == 0 {
                    break;
                }
                *left -= 1;
                items.push(part_json(&index.to_string(), item, left)?);
            }
            let truncated = items.len() < sequence.len();
            json!({
                "name": name,
                "type": ty,
                "length": sequence.len(),
                "truncated": truncated,
                "items": items,
            })
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, item) in map.entries() {
                if *left == 0 {
                    break;
                }
                *left -= 1;
                let key = key_json(key);
                let name = key.as_str().map_or_else(|| key.to_string(), str::to_string);
                entries.push(json!({"key": key, "value": part_json(&name, item, left)?}));
            }
            let truncated = entries.len() < map.entries().len();
            json!({
                "name": name,
                "type": ty,
                "length": map.entries().len(),
                "truncated": truncated,
                "entries": entries,
            })
        }
        Value::Optional(_, held) => {
            let held = held.as_ref().map(|held| part_json(name, held, left)).transpose()?;
            json!({"name": name, "type": ty, "value": held})
        }
        Value::Opaque(_) => json!({"name": name, "type": ty}),
    })
}

/// Converts a tensor to JSON with at most `left` elements, and subtracts the number of these
/// elements from `left`.
fn part_tensor_json(
    name: &str,
    tensor: &Tensor,
    left: &mut usize,
) -> Result<serde_json::Value, Failure> {
    let json = tensor_json(name, tensor, *left)?;
    *left -= tensor.len().min(*left);
    Ok(json)
}

/// Converts the key of a map to JSON.
fn key_json(key: &sardonyx::value::MapKey) -> serde_json::Value {
    match key {
        sardonyx::value::MapKey::Signed(key) => json!(key),
        sardonyx::value::MapKey::Unsigned(key) => json!(key),
        sardonyx::value::MapKey::String(key) => json!(String::from_utf8_lossy(key)),
    }
}

/// Maximum number of elements of a value in a JSON answer, unless an option requests all elements.
/// Larger values are better written to a file.
pub(crate) const JSON_ELEMENTS: usize = 10_000;

/// Converts a tensor to JSON like [`value_json`], but with at most `most` elements.
pub(crate) fn tensor_json(
    name: &str,
    tensor: &Tensor,
    most: usize,
) -> Result<serde_json::Value, Failure> {
    let shown = tensor.len().min(most);
    let values = match tensor.strings() {
        Some(strings) => {
            strings.iter().take(shown).map(|text| json!(String::from_utf8_lossy(text))).collect()
        }
        None if shown == 0 => Vec::new(),
        None => elements_to_text(tensor, 0, shown)?
            .iter()
            .map(|text| element_json(text))
            .collect::<Vec<_>>(),
    };
    Ok(json!({
        "name": name,
        "type": tensor.data_type().name(),
        "shape": tensor.dims(),
        "elements": tensor.len(),
        "truncated": shown < tensor.len(),
        "values": values,
    }))
}

/// Converts a number to JSON: NaN and infinities become strings.
pub(crate) fn number_json(number: f32) -> serde_json::Value {
    let found = Number::from_f64(number.into());
    found.map_or_else(|| json!(number.to_string().to_lowercase()), serde_json::Value::Number)
}

/// Converts an element of a tensor from text to a JSON truth value, number or string.
pub(crate) fn element_json(text: &str) -> serde_json::Value {
    match text {
        "True" => json!(true),
        "False" => json!(false),
        _ => {
            let integer = text
                .parse::<i64>()
                .map(Number::from)
                .or_else(|_| text.parse::<u64>().map(Number::from))
                .ok();
            let number = integer.or_else(|| Number::from_f64(text.parse().ok()?));
            number.map_or_else(|| json!(text), serde_json::Value::Number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_printed_in_rows() {
        let tensor = Tensor::from_vec([2, 2], vec![1.0f32, -2.5, 10.0, f32::NAN]).unwrap();
        assert_eq!(
            tensor_text("y", &tensor).unwrap(),
            "y: float[2, 2]\n  [0, :]  1.0 -2.5\n  [1, :] 10.0  nan\n"
        );
        let scalar = Tensor::scalar(7i64);
        assert_eq!(tensor_text("n", &scalar).unwrap(), "n: int64\n  7\n");
        let empty = Tensor::zeros(DataType::Float, [0, 3]).unwrap();
        assert_eq!(tensor_text("e", &empty).unwrap(), "e: float[0, 3]\n  no elements\n");
    }

    #[test]
    fn large_tensors_stay_small_on_the_screen() {
        let tensor = Tensor::from_vec([100, 100], (0..10_000).collect::<Vec<i32>>()).unwrap();
        let text = tensor_text("y", &tensor).unwrap();
        assert!(text.lines().count() <= 11, "{text}");
        assert!(text.ends_with("min 0, max 9999, mean 4999.5\n"), "{text}");
    }

    #[test]
    fn json_elements_keep_their_kind() {
        let rows = [
            ("1", json!(1)),
            ("-0.5", json!(-0.5)),
            ("1e-05", json!(1e-5)),
            ("True", json!(true)),
            ("nan", json!("nan")),
        ];
        for (text, expected) in rows {
            assert_eq!(element_json(text), expected);
        }
        assert_eq!(element_json("18446744073709551615"), json!(u64::MAX));
        assert_eq!(element_json("inf"), json!("inf"));
    }
}
