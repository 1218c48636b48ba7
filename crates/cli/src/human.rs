//! Numbers, sizes and tables as people read and type them.

/// Characters of a metadata value or documentation that are shown.
const SHOWN_CHARS: usize = 100;
/// No column is padded to more than this; a longer cell pushes its row to the right.
const WIDEST_COLUMN: usize = 60;

/// One line, of bounded length, with the length of what was cut.
pub(crate) fn cut(text: &str) -> String {
    let line = text.replace("\r\n", "\n").replace(['\n', '\r'], "⏎");
    match line.char_indices().nth(SHOWN_CHARS) {
        None => line,
        Some((end, _)) => format!("{}… ({})", &line[..end], bytes(text.len() as u64)),
    }
}

/// 1234567 as 1,234,567.
pub(crate) fn group(number: u64) -> String {
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

/// Bytes in the largest unit that leaves a number of at least 1.
pub(crate) fn bytes(count: u64) -> String {
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
    match value < 9.95 {
        true => format!("{value:.1} {}", units[unit]),
        false => format!("{value:.0} {}", units[unit]),
    }
}

/// "1 tensor", "2 tensors".
pub(crate) fn count(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {what}{s}", group(number as u64))
}

/// A size in bytes as it is typed: `4096`, `64K` and `64KiB` (units of 1024), `64kB` (units of 1000).
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("expected a size such as 4096, 64K, 1.5M or 2G, not '{text}'");
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
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
        _ => return Err(wrong()),
    };
    let scale = base.pow(power);
    match number.parse::<u64>() {
        Ok(number) => number.checked_mul(scale).ok_or_else(wrong),
        Err(_) => {
            let number: f64 = number.parse().map_err(|_| wrong())?;
            let bytes = number * scale as f64;
            // Beyond this the product is not exact, and no file is that large.
            match bytes < (1u64 << 53) as f64 && bytes.fract() == 0.0 {
                true => Ok(bytes as u64),
                false => Err(wrong()),
            }
        }
    }
}

/// Where the cells of a column stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells under their headings. A column without any content is left out.
pub(crate) fn columns(headings: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let shown: Vec<usize> = (0..headings.len())
        .filter(|column| rows.iter().any(|row| !row[*column].is_empty()))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        let heading = headings[column].0.chars().count();
        cells
            .filter(|width| *width <= WIDEST_COLUMN)
            .fold(heading, usize::max)
    };
    let widths: Vec<usize> = shown.iter().map(|column| width(*column)).collect();
    let heading: Vec<String> = headings.iter().map(|(text, _)| text.to_string()).collect();
    let mut out = String::new();
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for (column, width) in shown.iter().zip(&widths) {
            if !line.is_empty() {
                line += "  ";
            }
            line += &match headings[*column].1 {
                Align::Left => format!("{:<width$}", row[*column]),
                Align::Right => format!("{:>width$}", row[*column]),
            };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// The order in which people expect numbered names: `layer.2` before `layer.10`.
pub(crate) fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (m, n) = (digits(left), digits(right));
        let order = if m > 0 && n > 0 {
            let number = |text: &str| text.trim_start_matches('0').to_string();
            let (x, y) = (number(&left[..m]), number(&right[..n]));
            (left, right) = (&left[m..], &right[n..]);
            x.len().cmp(&y.len()).then(x.cmp(&y))
        } else {
            let mut chars = (left.chars(), right.chars());
            let next = (chars.0.next(), chars.1.next());
            (left, right) = (chars.0.as_str(), chars.1.as_str());
            match next {
                // What differs in leading zeros only still has an order.
                (None, None) => return a.cmp(b),
                (x, y) => x.cmp(&y),
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_bytes_rounded() {
        let rows = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1234567, "1,234,567"),
        ];
        rows.iter()
            .for_each(|(number, expected)| assert_eq!(group(*number), *expected));
        let rows = [
            (999, "999 bytes"),
            (1000, "1.0 kB"),
            (134_184, "134 kB"),
            (999_600, "1.0 MB"),
            (25_600_000_000, "26 GB"),
        ];
        rows.iter()
            .for_each(|(number, expected)| assert_eq!(bytes(*number), *expected));
    }

    #[test]
    fn long_texts_are_cut_to_one_line() {
        assert_eq!(cut("a\nb"), "a⏎b");
        let long = cut(&"é".repeat(500));
        assert!(
            long.ends_with("… (1.0 kB)") && long.chars().count() < 120,
            "{long}"
        );
    }

    #[test]
    fn sizes_are_read_as_they_are_typed() {
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
        let headings = [
            ("name", Align::Left),
            ("bytes", Align::Right),
            ("place", Align::Left),
        ];
        let rows = [
            vec!["w".to_string(), "12".to_string(), String::new()],
            vec!["bias".to_string(), "1000000".to_string(), String::new()],
        ];
        assert_eq!(
            columns(&headings, &rows),
            "name    bytes\nw          12\nbias  1000000\n"
        );
    }

    #[test]
    fn numbers_in_names_are_numbers() {
        let mut names = ["a10", "a2", "a", "b1", "a02", "a1b"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["a", "a1b", "a02", "a2", "a10", "b1"]);
    }
}
