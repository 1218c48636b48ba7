//! Decimal numbers in the form of protobuf's own tools, so that texts can be compared.
//!
//! A `double` gets the fewest digits that read back as the same number. So does a `float`, but at
//! least six: the smallest one is `1.4013e-45` although `1e-45` would do. Exponents appear below
//! 1e-4 and from 1e16 on.

use std::io::Write;

/// Least number of digits that are tried for a `float`.
const FLOAT_DIGITS: usize = 6;

pub(crate) fn push_integer(out: &mut Vec<u8>, value: impl Into<i128>) {
    let value: i128 = value.into();
    if value < 0 {
        out.push(b'-');
    }
    // All integers of the format have at most 64 bits.
    let mut rest = value.unsigned_abs() as u64;
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[from..]);
}

/// Appends a finite `float`.
pub(crate) fn push_float(out: &mut Vec<u8>, value: f32) {
    let wide = f64::from(value);
    let shortest = Decimal::scan(wide, |text| write!(text, "{value:e}"));
    // Below a power of two, numbers are closer than above it. Only there may the nearest number of
    // that many digits not read back.
    let even_spacing = value.to_bits() & 0x7f_ffff != 0;
    if even_spacing && shortest.len >= FLOAT_DIGITS && !shortest.is_tie(wide) {
        return shortest.push(out);
    }
    for digits in FLOAT_DIGITS..=17 {
        let (decimal, read_back) = Decimal::nearest(wide, digits);
        if read_back as f32 == value {
            return decimal.push(out);
        }
    }
    shortest.push(out);
}

/// Appends a finite `double`.
pub(crate) fn push_double(out: &mut Vec<u8>, value: f64) {
    let mut decimal = Decimal::scan(value, |text| write!(text, "{value:e}"));
    if decimal.is_tie(value) {
        let (nearest, read_back) = Decimal::nearest(value, decimal.len);
        if read_back == value {
            decimal = nearest;
        }
    }
    decimal.push(out);
}

/// Significant digits and the power of ten of the first.
struct Decimal {
    negative: bool,
    digits: [u8; 20],
    /// Number of digits that count: at least one, and without zeros at the end except for zero
    /// itself.
    len: usize,
    exponent: i32,
}

impl Decimal {
    /// Parses the digits of a number that `write` writes in scientific notation, such as
    /// `-1.25e-7`.
    fn scan(value: f64, write: impl FnOnce(&mut &mut [u8]) -> std::io::Result<()>) -> Self {
        // Seventeen digits, a sign, a point and an exponent fit.
        let mut room = [0; 40];
        let mut rest = &mut room[..];
        let _ = write(&mut rest);
        let len = 40 - rest.len();
        let text = &room[..len];
        let split = text.iter().position(|byte| *byte == b'e').unwrap_or(len);
        let (mantissa, exponent) = text.split_at(split);
        let exponent = exponent.get(1..).and_then(parse::<i32>).unwrap_or(0);
        let mut decimal =
            Decimal { negative: value.is_sign_negative(), digits: [b'0'; 20], len: 0, exponent };
        for digit in mantissa.iter().filter(|byte| byte.is_ascii_digit()) {
            decimal.digits[decimal.len] = *digit;
            decimal.len += 1;
        }
        while decimal.len > 1 && decimal.digits[decimal.len - 1] == b'0' {
            decimal.len -= 1;
        }
        decimal
    }

    /// Returns the nearest number with that many digits, the even one of two, and the value that it
    /// reads back as.
    fn nearest(value: f64, digits: usize) -> (Self, f64) {
        let places = digits - 1;
        let decimal = Decimal::scan(value, |text| write!(text, "{value:.places$e}"));
        let mut text = Vec::with_capacity(40);
        decimal.push(&mut text);
        (decimal, parse(&text).unwrap_or(value))
    }

    /// Whether `value` is half way between this number and another with as many digits. Protobuf's
    /// tools take the even one, formatting in Rust the larger one.
    fn is_tie(&self, value: f64) -> bool {
        let places = self.len as i32 - 1 - self.exponent;
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i32 - 1075;
        let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
        // A number with that many binary places has as many decimal ones, and ends in five. Whole
        // numbers are too far from the middle to be rounded from there.
        let exact_places = -(exponent + mantissa.trailing_zeros() as i32);
        places >= 0 && exact_places == places + 1
    }

    fn push(&self, out: &mut Vec<u8>) {
        let digits = &self.digits[..self.len];
        if self.negative {
            out.push(b'-');
        }
        match self.exponent {
            ..-4 | 16.. => {
                out.push(digits[0]);
                if digits.len() > 1 {
                    out.push(b'.');
                    out.extend_from_slice(&digits[1..]);
                }
                let sign = if self.exponent < 0 { '-' } else { '+' };
                let _ = write!(out, "e{sign}{:02}", self.exponent.abs());
            }
            ..0 => {
                out.extend_from_slice(b"0.");
                out.extend((self.exponent + 1..0).map(|_| b'0'));
                out.extend_from_slice(digits);
            }
            exponent => {
                let whole = exponent as usize + 1;
                let (front, back) = digits.split_at(whole.min(digits.len()));
                out.extend_from_slice(front);
                out.extend((front.len()..whole).map(|_| b'0'));
                out.push(b'.');
                out.extend_from_slice(if back.is_empty() { b"0" } else { back });
            }
        }
    }
}

/// Parses a number; `None` if the text is not a number or does not fit.
pub(crate) fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses decimal digits with or without a minus. Fast path for long lists.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i128> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // 19 digits fit in 64 bits; longer texts are rare and take the general path.
    if digits.is_empty() || digits.len() > 19 {
        return parse_radix(digits, 10).map(|value| if negative { -value } else { value });
    }
    let mut value = 0u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    let value = i128::from(value);
    Some(if negative { -value } else { value })
}

/// Parses digits in any base, without a sign.
pub(crate) fn parse_radix(digits: &[u8], radix: u32) -> Option<i128> {
    let text = std::str::from_utf8(digits).ok()?;
    let plain = text.starts_with(|first: char| first.is_digit(radix));
    plain.then(|| i128::from_str_radix(text, radix).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: f32) -> String {
        let mut out = Vec::new();
        push_float(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    fn double(value: f64) -> String {
        let mut out = Vec::new();
        push_double(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_written_as_protobuf_writes_them() {
        let rows = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (1e-6, "1e-06"),
            (1e8, "100000000.0"),
            (16_777_216.0, "16777216.0"),
            (f32::from_bits(0x5a00_0000), "9007199000000000.0"),
            (1e20, "1e+20"),
            (f32::MAX, "3.4028235e+38"),
            (f32::from_bits(1), "1.4013e-45"),
            (10_497.0 / 64.0, "164.01562"),
            (-1.5, "-1.5"),
        ];
        for (value, expected) in rows {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn doubles_are_written_as_protobuf_writes_them() {
        let rows = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (0.1, "0.1"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (12.25, "12.25"),
            (3_157_736_927_565_701.0 / 4.0, "789434231891425.2"),
        ];
        for (value, expected) in rows {
            assert_eq!(double(value), expected);
        }
    }

    #[test]
    fn every_float_comes_back() {
        // A stride through all bit patterns, and all powers of two.
        let strided = (0..40_000u32).map(|index| index.wrapping_mul(107_323));
        let powers = (0..256).map(|exponent| exponent << 23);
        for bits in strided.chain(powers) {
            let value = f32::from_bits(bits);
            if value.is_finite() {
                let back: f64 = float(value).parse().unwrap();
                assert_eq!((back as f32).to_bits(), bits, "{value:e}");
            }
        }
    }

    #[test]
    fn integers() {
        let rows: [(&str, Option<i128>); 9] = [
            ("0", Some(0)),
            ("-5", Some(-5)),
            ("9223372036854775807", Some(i64::MAX.into())),
            ("-9223372036854775808", Some(i64::MIN.into())),
            ("18446744073709551615", Some(u64::MAX.into())),
            ("", None),
            ("-", None),
            ("+1", None),
            ("1x", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text}");
            if let Some(value) = expected {
                let mut out = Vec::new();
                push_integer(&mut out, value);
                assert_eq!(out, text.as_bytes());
            }
        }
    }
}
