//! Converts elements to text and back like Cast: the shortest digits that parse to the same number,
//! in Python's notation.
//!
//! Numbers are printed like in Python: `1.0`, `-0.0`, `1e-05`, `1e+16`, `nan`, `inf`, `True`. For
//! every width, plain notation is used from 1e-4 to below 1e16. (NumPy now switches to exponents at
//! 1e6 for float32; the standard requires plain notation, so the classic bounds are kept.)

use std::fmt::Write;

use half::{bf16, f16};

use crate::element::{Class, DataType};
use crate::error::{TensorError, err};
use crate::packed;
use crate::small_float::SmallFloat;

/// Formats the element at `index` of `bytes`, which is not a string.
///
/// # Panics
/// If `bytes` is too short.
pub(crate) fn format_element(data_type: DataType, bytes: &[u8], index: usize) -> String {
    macro_rules! read {
        ($t:ty) => {{
            const WIDTH: usize = size_of::<$t>();
            bytemuck::pod_read_unaligned::<$t>(&bytes[index * WIDTH..(index + 1) * WIDTH])
        }};
    }
    match data_type {
        DataType::Float => format_f32(read!(f32)),
        DataType::Double => format_f64(read!(f64)),
        DataType::Float16 => {
            let x = read!(f16);
            format_shortest(x.to_f32(), |y| f16::from_f32(y) == x)
        }
        DataType::Bfloat16 => {
            let x = read!(bf16);
            format_shortest(x.to_f32(), |y| bf16::from_f32(y) == x)
        }
        DataType::Int8 => read!(i8).to_string(),
        DataType::Int16 => read!(i16).to_string(),
        DataType::Int32 => read!(i32).to_string(),
        DataType::Int64 => read!(i64).to_string(),
        DataType::Uint8 => read!(u8).to_string(),
        DataType::Uint16 => read!(u16).to_string(),
        DataType::Uint32 => read!(u32).to_string(),
        DataType::Uint64 => read!(u64).to_string(),
        DataType::Bool => if bytes[index] != 0 { "True" } else { "False" }.to_owned(),
        DataType::Complex64 => {
            let x = read!(crate::Complex64);
            format_complex(format_f32(x.re), format_f32(x.im))
        }
        DataType::Complex128 => {
            let x = read!(crate::Complex128);
            format_complex(format_f64(x.re), format_f64(x.im))
        }
        DataType::Float8e4m3fn => format_f32(crate::Float8e4m3fn(bytes[index]).to_f32()),
        DataType::Float8e4m3fnuz => format_f32(crate::Float8e4m3fnuz(bytes[index]).to_f32()),
        DataType::Float8e5m2 => format_f32(crate::Float8e5m2(bytes[index]).to_f32()),
        DataType::Float8e5m2fnuz => format_f32(crate::Float8e5m2fnuz(bytes[index]).to_f32()),
        DataType::Float8e8m0 => format_f32(crate::Float8e8m0(bytes[index]).to_f32()),
        DataType::Uint4
        | DataType::Int4
        | DataType::Uint2
        | DataType::Int2
        | DataType::Float4e2m1
        | DataType::Float6e2m3
        | DataType::Float6e3m2 => {
            let code = packed::get(bytes, data_type.bits().unwrap_or(8), index);
            let value = packed::code_to_f32(data_type, code).unwrap_or(f32::NAN);
            match data_type.class() {
                Class::Float => format_f32(value),
                _ => (value as i32).to_string(),
            }
        }
        DataType::String => String::new(),
    }
}

/// Number parsed from text: an integer if it is written as one, so that 64-bit integers stay exact.
pub(crate) enum Number {
    /// Integer of at least the ranges of `i64` and `u64`.
    Integer(i128),
    /// Any other number.
    Real(f64),
}

/// Parses a decimal number: `3`, `3.14`, `1e-5`, `1E8`, `.5`, and `inf`, `infinity`, `nan` in any
/// case, with an optional sign. Surrounding white space is skipped.
pub(crate) fn parse_number(string: &[u8]) -> Result<Number, TensorError> {
    let text = trim(string)?;
    if let Ok(integer) = text.parse() {
        return Ok(Number::Integer(integer));
    }
    Ok(Number::Real(parse_real(text)?))
}

/// Parses a number like [`parse_number`], rounded to f32 once.
pub(crate) fn parse_f32(string: &[u8]) -> Result<f32, TensorError> {
    parse_real(trim(string)?)
}

/// Parses a number like [`parse_number`], rounded to f64 once.
pub(crate) fn parse_f64(string: &[u8]) -> Result<f64, TensorError> {
    parse_real(trim(string)?)
}

/// Parses a boolean: `true` and `false` in any case, or a number, which is true unless zero.
pub(crate) fn parse_bool(string: &[u8]) -> Result<bool, TensorError> {
    let text = trim(string)?;
    if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
        return Ok(text.eq_ignore_ascii_case("true"));
    }
    Ok(parse_real::<f64>(text)? != 0.0)
}

fn trim(string: &[u8]) -> Result<&str, TensorError> {
    match std::str::from_utf8(string) {
        Ok(text) => Ok(text.trim_ascii()),
        Err(_) => err!(Parse, "the string {} is not a number", quote(string)),
    }
}

fn parse_real<F: std::str::FromStr>(text: &str) -> Result<F, TensorError> {
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) => err!(Parse, "the string {} is not a number", quote(text.as_bytes())),
    }
}

fn quote(string: &[u8]) -> String {
    let cut = &string[..string.len().min(40)];
    format!("{:?}{}", String::from_utf8_lossy(cut), if string.len() > 40 { "..." } else { "" })
}

fn format_f32(x: f32) -> String {
    spell(&format!("{x:e}"), x.is_finite())
}

fn format_f64(x: f64) -> String {
    spell(&format!("{x:e}"), x.is_finite())
}

/// Formats a narrow float with the fewest digits for which `same` accepts the parsed number.
fn format_shortest(x: f32, same: impl Fn(f32) -> bool) -> String {
    for digits in 0..8 {
        let text = format!("{x:.digits$e}");
        if text.parse().is_ok_and(&same) {
            return spell(&text, x.is_finite());
        }
    }
    format_f32(x)
}

fn format_complex(re: String, im: String) -> String {
    let short = |s: String| s.strip_suffix(".0").map(str::to_owned).unwrap_or(s);
    let (re, im) = (short(re), short(im));
    let sign = if im.starts_with('-') { "" } else { "+" };
    format!("({re}{sign}{im}j)")
}

/// Converts Rust's `d.ddde-x` to Python's notation.
fn spell(scientific: &str, finite: bool) -> String {
    if !finite {
        return scientific.to_ascii_lowercase();
    }
    let (sign, rest) = match scientific.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", scientific),
    };
    let (mantissa, exponent) = rest.split_once('e').unwrap_or((rest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.replace('.', "");
    let trimmed = digits.trim_end_matches('0');
    let digits = if trimmed.is_empty() { "0" } else { trimmed };
    let mut out = String::from(sign);
    if !(-4..16).contains(&exponent) {
        let (first, fraction) = digits.split_at(1);
        out.push_str(first);
        if !fraction.is_empty() {
            out.push('.');
            out.push_str(fraction);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
    } else if exponent < 0 {
        out.push_str("0.");
        (1..-exponent).for_each(|_| out.push('0'));
        out.push_str(digits);
    } else {
        let whole = exponent as usize + 1;
        let (a, b) = digits.split_at(digits.len().min(whole));
        out.push_str(a);
        (a.len()..whole).for_each(|_| out.push('0'));
        out.push('.');
        out.push_str(if b.is_empty() { "0" } else { b });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_prints_them() {
        for (x, want) in [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (-2.5, "-2.5"),
            (1e-5, "1e-05"),
            (1e-4, "0.0001"),
            (0.00123, "0.00123"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e22, "1.5e+22"),
            (123456789.0, "123456789.0"),
            (314.15926, "314.15926"),
            (5e-324, "5e-324"),
            (f64::NAN, "nan"),
            (-f64::INFINITY, "-inf"),
        ] {
            assert_eq!(format_f64(x), want);
        }
        assert_eq!(format_f32(2.345_678), "2.345678");
        assert_eq!(format_f32(0.47892547), "0.47892547");
        let f16 = |x: f32| format_element(DataType::Float16, &f16::from_f32(x).to_ne_bytes(), 0);
        assert_eq!(
            [f16(0.1), f16(2.34), f16(65504.0), f16(f32::INFINITY)],
            ["0.1", "2.34", "65500.0", "inf"]
        );
        assert_eq!(
            format_element(DataType::Complex64, bytemuck::bytes_of(&[1f32, -2.5]), 0),
            "(1-2.5j)"
        );
    }

    #[test]
    fn numbers_from_text() {
        let real = |s: &str| parse_f64(s.as_bytes()).unwrap();
        assert_eq!(
            [real("2.34"), real("1e-5"), real("1E8"), real(" +.5 ")],
            [2.34, 1e-5, 1e8, 0.5]
        );
        assert_eq!(
            [real("+INF"), real("iNf"), real("-inf")],
            [f64::INFINITY, f64::INFINITY, -f64::INFINITY]
        );
        assert!(real("NaN").is_nan() && real("nan").is_nan());
        assert!(matches!(
            parse_number(b"18446744073709551615"),
            Ok(Number::Integer(18446744073709551615))
        ));
        assert!(matches!(parse_number(b"100.5"), Ok(Number::Real(100.5))));
        for bad in [&b"Hello World!"[..], b"", b"0x10", b"\xff", b"1_000", b"1e"] {
            assert!(parse_number(bad).is_err());
        }
        assert!(
            parse_bool(b"TRUE").unwrap() && !parse_bool(b"0").unwrap() && parse_bool(b"2").unwrap()
        );
    }
}
