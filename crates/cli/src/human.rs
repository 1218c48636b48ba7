//! Numbers, sizes and tables in the notation that users read and type.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::escape::escape_controls;

/// Maximum width of a metadata value or a documentation string on a terminal, in columns.
const TEXT_COLUMNS: usize = 100;
/// Maximum width of a table cell on a terminal, in columns.
const CELL_COLUMNS: usize = 60;
/// Maximum width to which the cells of a table are padded, in columns. A longer cell, which is cut
/// only on terminals, shifts the rest of its own row to the right, and no other row.
const PADDED_COLUMNS: usize = 200;

/// Returns the width of `text` on a terminal, in columns.
pub(crate) fn measure_width(text: &str) -> usize {
    // Nearly all texts are ASCII, where a character is a column.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) { text.len() } else { text.width() }
}

/// Converts `text` to one line of known width: a line break becomes `⏎`, a tab `\t`, and control
/// characters are escaped.
pub(crate) fn to_one_line(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'\n' | b'\r' | b'\t')) {
        return escape_controls(text);
    }
    let line = text.replace("\r\n", "\n").replace(['\n', '\r'], "⏎");
    escape_controls(&line.replace('\t', "\\t")).into_owned().into()
}

/// Whether stdout is a terminal. Cached, because tables check it for each of their cells.
fn stdout_is_terminal() -> bool {
    static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stdout().is_terminal());
    *IS_TERMINAL
}

/// Shortens `text` to at most `columns` columns, which must be at least 3. Cuts out the middle,
/// because names in models differ at their ends.
pub(crate) fn shorten(text: &str, columns: usize) -> Cow<'_, str> {
    if measure_width(text) <= columns {
        return text.into();
    }
    let end = (columns - 1) / 2;
    let beginning = count_fitting_bytes(text.chars(), columns - 1 - end);
    let end = count_fitting_bytes(text.chars().rev(), end);
    // A combining mark belongs to the character before it, which is cut out.
    let end = text[text.len() - end..].trim_start_matches(|c: char| c.width() == Some(0));
    format!("{}…{end}", &text[..beginning]).into()
}

/// Returns the number of bytes of the leading `characters` that fit into `columns` columns of a
/// terminal.
fn count_fitting_bytes(characters: impl Iterator<Item = char>, columns: usize) -> usize {
    let mut used = 0;
    let fitting = characters.take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    fitting.map(char::len_utf8).sum()
}

/// Formats `text` as one line for stdout, cut to [`TEXT_COLUMNS`] columns if stdout is a terminal.
pub(crate) fn cut_line(text: &str) -> String {
    cut_to(text, TEXT_COLUMNS, stdout_is_terminal()).into_owned()
}

/// Formats `text` as one line for stderr, cut to [`TEXT_COLUMNS`] columns if stderr is a terminal.
pub(crate) fn cut_note(text: &str) -> String {
    cut_to(text, TEXT_COLUMNS, io::stderr().is_terminal()).into_owned()
}

/// Formats `text` as one line, cut to `columns` columns if `on_terminal`.
fn cut_to(text: &str, columns: usize, on_terminal: bool) -> Cow<'_, str> {
    let line = to_one_line(text);
    if on_terminal && measure_width(&line) > columns {
        shorten(&line, columns).into_owned().into()
    } else {
        line
    }
}

/// Formats a number with thousands separators, such as `1,234,567`.
pub(crate) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of bytes in the largest decimal unit in which the number is at least 1, such as
/// `134 kB`.
pub(crate) fn format_bytes(count: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} bytes");
    }
    let mut value = count as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    if value < 9.95 {
        format!("{value:.1} {}", units[unit])
    } else {
        format!("{value:.0} {}", units[unit])
    }
}

/// Formats a number with its noun in the singular or plural, such as `1 tensor` or `2 tensors`.
pub(crate) fn format_count(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {what}{s}", group_digits(number as u64))
}

/// Parses an option's value that must be a whole number of at least 1.
pub(crate) fn parse_positive(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("expected a whole number of at least 1".to_string()),
    }
}

/// Parses an option's value that is a size in bytes: `4096`, `64K` and `64KiB` (units of 1024), or
/// `64kB` (units of 1000).
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_size(text)
        .ok_or_else(|| format!("expected a size such as 4096, 64K, 1.5M or 2G, not '{text}'"))
}

/// Parses a size with an optional unit into bytes; `None` if `text` has no number, an unknown unit
/// or a fraction of a byte.
fn parse_size(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (power, base) = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => (0, 1024u64),
        "k" | "kib" => (1, 1024),
        "m" | "mib" => (2, 1024),
        "g" | "gib" => (3, 1024),
        "t" | "tib" => (4, 1024),
        "kb" => (1, 1000),
        "mb" => (2, 1000),
        "gb" => (3, 1000),
        "tb" => (4, 1000),
        _ => return None,
    };
    let scale = base.pow(power);
    if let Ok(number) = number.parse::<u64>() {
        return number.checked_mul(scale);
    }
    let bytes = number.parse::<f64>().ok()? * scale as f64;
    // From 2^53 on the product is not exact, and no file is that large.
    (bytes < (1u64 << 53) as f64 && bytes.fract() == 0.0).then_some(bytes as u64)
}

/// Parses the number of an option that may be given without its number. The argument parser takes
/// the next argument for the number, so the error advises to put the option after the files.
pub(crate) fn parse_optional(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|_| {
        "expected a whole number; without a number, the option goes after the files".to_string()
    })?;
    if range.contains(&number) {
        Ok(number)
    } else {
        Err(format!("expected a number from {} to {}", range.start(), range.end()))
    }
}

/// Alignment of the cells of a table column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Formats a table for stdout: rows in aligned columns below their headings. Leaves out columns in
/// which all cells are empty.
pub(crate) fn format_columns<C: AsRef<str>>(
    headings: &[(&str, Align)],
    rows: &[impl AsRef<[C]>],
) -> String {
    format_table(headings, rows, CELL_COLUMNS, stdout_is_terminal())
}

/// Pads names to the width of the longest name. If stdout is a terminal, first cuts each name to at
/// most `columns` columns.
pub(crate) fn pad_names<'a>(names: impl Iterator<Item = &'a str>, columns: usize) -> Vec<String> {
    let on_terminal = stdout_is_terminal();
    let names: Vec<Cow<'_, str>> = names.map(|name| cut_to(name, columns, on_terminal)).collect();
    let widest = measure_column(names.iter().map(|name| name.as_ref().into()));
    names.iter().map(|name| pad(name, widest, Align::Left)).collect()
}

/// Returns the width of a table column, in columns of the terminal: the width of its widest cell,
/// without cells wider than [`PADDED_COLUMNS`].
fn measure_column<'a>(cells: impl Iterator<Item = Cow<'a, str>>) -> usize {
    let widths = cells.map(|cell| measure_width(&cell));
    widths.filter(|width| *width <= PADDED_COLUMNS).max().unwrap_or(0)
}

/// Formats a table like [`format_columns`], with cells cut to `columns` columns if `on_terminal`.
fn format_table<C: AsRef<str>>(
    headings: &[(&str, Align)],
    rows: &[impl AsRef<[C]>],
    columns: usize,
    on_terminal: bool,
) -> String {
    let cells = |column: usize| rows.iter().map(move |row| row.as_ref()[column].as_ref());
    let cell = |text| cut_to(text, columns, on_terminal);
    // Indices of the columns with content, and their widths.
    let shown: Vec<(usize, usize)> = (0..headings.len())
        .filter(|column| cells(*column).any(|cell| !cell.is_empty()))
        .map(|column| {
            let lines = std::iter::once(headings[column].0).chain(cells(column));
            (column, measure_column(lines.map(cell)))
        })
        .collect();
    let mut out = String::new();
    for row in std::iter::once(None).chain(rows.iter().map(Some)) {
        let start = out.len();
        for (index, (column, width)) in shown.iter().enumerate() {
            if index > 0 {
                out += "  ";
            }
            let (heading, align) = headings[*column];
            let text = row.map_or(heading.into(), |row| cell(row.as_ref()[*column].as_ref()));
            push_padded(&mut out, &text, *width, align);
        }
        out.truncate(start + out[start..].trim_end().len());
        out.push('\n');
    }
    out
}

/// Pads `text` with blanks to a width of `columns` columns of a terminal.
pub(crate) fn pad(text: &str, columns: usize, align: Align) -> String {
    let mut out = String::new();
    push_padded(&mut out, text, columns, align);
    out
}

/// Appends `text` to `out`, padded with blanks to a width of `columns` columns of a terminal.
fn push_padded(out: &mut String, text: &str, columns: usize, align: Align) {
    const BLANKS: &str = "                                ";
    let mut blanks = columns.saturating_sub(measure_width(text));
    if align == Align::Left {
        *out += text;
    }
    while blanks > 0 {
        let next = blanks.min(BLANKS.len());
        *out += &BLANKS[..next];
        blanks -= next;
    }
    if align == Align::Right {
        *out += text;
    }
}

/// Compares names in natural order, in which digits count as numbers: `layer.2` comes before
/// `layer.10`.
pub(crate) fn compare_names(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (m, n) = (count_leading_digits(left), count_leading_digits(right));
        let order = if m > 0 && n > 0 {
            let (x, y) = (left[..m].trim_start_matches('0'), right[..n].trim_start_matches('0'));
            (left, right) = (&left[m..], &right[n..]);
            x.len().cmp(&y.len()).then(x.cmp(y))
        } else {
            let mut chars = (left.chars(), right.chars());
            let next = (chars.0.next(), chars.1.next());
            (left, right) = (chars.0.as_str(), chars.1.as_str());
            match next {
                // Names that differ only in leading zeros have an order, too.
                (None, None) => return a.cmp(b),
                (x, y) => x.cmp(&y),
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Counts the digits at the beginning of `text`.
fn count_leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_bytes_rounded() {
        let rows = [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")];
        rows.iter().for_each(|(number, expected)| assert_eq!(group_digits(*number), *expected));
        let rows = [
            (999, "999 bytes"),
            (1000, "1.0 kB"),
            (134_184, "134 kB"),
            (999_600, "1.0 MB"),
            (25_600_000_000, "26 GB"),
        ];
        rows.iter().for_each(|(number, expected)| assert_eq!(format_bytes(*number), *expected));
    }

    #[test]
    fn the_middle_of_long_texts_is_left_out() {
        assert_eq!(to_one_line("a\nb\r\nc\td\u{1b}"), "a⏎b⏎c\\td\\u{1b}");
        let rows = [
            ("layer.0.weight", 14, "layer.0.weight"),
            ("layer.0.weight", 13, "layer.…weight"),
            ("layer.0.weight", 4, "la…t"),
            // Characters that are two columns wide, and one without width.
            ("漢字漢字漢字", 8, "漢字…字"),
            ("e\u{301}e\u{301}e\u{301}e\u{301}", 3, "e\u{301}…e\u{301}"),
        ];
        for (text, columns, expected) in rows {
            let found = shorten(text, columns);
            assert_eq!(found, expected, "{text} in {columns}");
            assert!(measure_width(&found) <= columns, "{found}");
        }
    }

    #[test]
    fn names_are_cut_only_on_terminals() {
        let headings = [("name", Align::Left), ("bytes", Align::Right)];
        let names = ["漢字", "e\u{301}", "a\nb", &"x".repeat(30), &"y".repeat(300)];
        let rows: Vec<Vec<String>> =
            names.iter().map(|name| vec![name.to_string(), "12".to_string()]).collect();
        let widths = |on_terminal| -> Vec<usize> {
            let text = format_table(&headings, &rows, 20, on_terminal);
            text.lines().map(measure_width).collect()
        };
        assert_eq!(widths(true), [27; 6]);
        // A cell that is wider than `PADDED_COLUMNS` does not widen its column.
        assert_eq!(widths(false), [37, 37, 37, 37, 37, 307]);
        let whole = format_table(&headings, &rows, 20, false);
        assert!(whole.contains(names[4]) && !whole.contains('…'));
    }

    #[test]
    fn sizes_are_parsed_with_units() {
        let rows = [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("64K", Some(65536)),
            ("64 KiB", Some(65536)),
            ("1kB", Some(1000)),
            ("1.5M", Some(1_572_864)),
            ("2g", Some(2 << 30)),
            ("0.5", None),
            ("", None),
            ("K", None),
            ("-1", None),
            ("1.2.3K", None),
            ("1X", None),
            ("99999999999T", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_bytes(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let headings = [("name", Align::Left), ("bytes", Align::Right), ("place", Align::Left)];
        let rows = [
            vec!["w".to_string(), "12".to_string(), String::new()],
            vec!["bias".to_string(), "1000000".to_string(), String::new()],
        ];
        assert_eq!(
            format_columns(&headings, &rows),
            "name    bytes\nw          12\nbias  1000000\n"
        );
    }

    #[test]
    fn names_are_compared_in_natural_order() {
        let mut names = ["a10", "a2", "a", "b1", "a02", "a1b"];
        names.sort_by(|a, b| compare_names(a, b));
        assert_eq!(names, ["a", "a1b", "a02", "a2", "a10", "b1"]);
    }
}
