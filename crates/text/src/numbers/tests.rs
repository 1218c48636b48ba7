//! Compares literals with the standard library, with tables from `std::to_chars`, and with each
//! other.

use super::read::Number;
use super::*;

/// Random numbers (xorshift64*) from a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn next_below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn digits(&mut self, count: u64) -> String {
        (0..count).map(|_| char::from(b'0' + self.next_below(10) as u8)).collect()
    }
}

fn f32_text(value: f32, form: FloatForm) -> String {
    let mut out = Vec::new();
    push_f32(&mut out, value, form);
    String::from_utf8(out).unwrap()
}

fn f64_text(value: f64, form: FloatForm) -> String {
    let mut out = Vec::new();
    push_f64(&mut out, value, form);
    String::from_utf8(out).unwrap()
}

fn list<T: Number>(text: &str) -> Result<(Vec<T>, ListEnd), ListError> {
    let mut values = Vec::new();
    let end = read_list(text.as_bytes(), |value| {
        values.push(value);
        Ok(())
    })?;
    Ok((values, end))
}

/// Checks a literal alone, with text after it, and in lists, which take another fast path.
fn check_float(literal: &str) {
    let wanted32: f32 = literal.parse().unwrap();
    let wanted64: f64 = literal.parse().unwrap();
    for after in ["", ",", "}", " ", ", 1.25, 0.5, 17, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}"] {
        let text = format!("{literal}{after}");
        match read_f32(text.as_bytes()) {
            Ok((value, length)) => {
                assert_eq!(value.to_bits(), wanted32.to_bits(), "{text}");
                assert_eq!(length, literal.len(), "{text}");
            }
            Err(error) => {
                assert_eq!(error, NumberError::OutOfRange, "{text}");
                assert!(wanted32.is_infinite(), "{text}");
            }
        }
        match read_f64(text.as_bytes()) {
            Ok((value, length)) => {
                assert_eq!(value.to_bits(), wanted64.to_bits(), "{text}");
                assert_eq!(length, literal.len(), "{text}");
            }
            Err(error) => {
                assert_eq!(error, NumberError::OutOfRange, "{text}");
                assert!(wanted64.is_infinite(), "{text}");
            }
        }
    }
    let text = format!("{literal}, {literal} ,\n# 1, 2\n {literal},1}} and so on, up to the end");
    if wanted32.is_finite() {
        let (values, end) = list::<f32>(&text).unwrap();
        let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
        let wanted = wanted32.to_bits();
        assert_eq!(bits, [wanted, wanted, wanted, 1f32.to_bits()], "{text}");
        assert_eq!(Some(end.position), text.find('}'));
    }
    if wanted64.is_finite() {
        let (values, _) = list::<f64>(&text).unwrap();
        let bits: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
        let wanted = wanted64.to_bits();
        assert_eq!(bits, [wanted, wanted, wanted, 1f64.to_bits()], "{text}");
    }
}

#[test]
fn kinds_and_ends_of_literals() {
    use Literal::{Float, Int};
    for (text, wanted) in [
        ("0", (Int, 1)),
        ("-0", (Int, 2)),
        ("007", (Int, 3)),
        ("12, 13", (Int, 2)),
        ("12345678901234567890123]", (Int, 23)),
        ("1.", (Float, 2)),
        ("1. ", (Float, 2)),
        ("-1.5e3>", (Float, 6)),
        ("1e5", (Float, 3)),
        ("1E-05#", (Float, 5)),
        ("1.e+0}", (Float, 5)),
        ("inf", (Float, 3)),
        ("-INF,", (Float, 4)),
        ("Infinity", (Float, 8)),
        ("NaN", (Float, 3)),
        ("-nan ", (Float, 4)),
        ("nan(7fc00001),", (Float, 13)),
        ("1\u{e9}", (Int, 1)),
    ] {
        assert_eq!(scan(text.as_bytes()), Ok(wanted), "{text}");
    }
}

#[test]
fn other_texts_are_no_literals() {
    use NumberError::{EmptyExponent, Malformed, NanBits, NoDigits};
    for (text, wanted) in [
        ("", NoDigits),
        ("-", NoDigits),
        ("--1", NoDigits),
        ("+1", NoDigits),
        (".5", NoDigits),
        ("-.5", NoDigits),
        ("e5", NoDigits),
        ("in", NoDigits),
        (",", NoDigits),
        ("}", NoDigits),
        ("\u{ff11}", NoDigits),
        ("1e", EmptyExponent),
        ("1.5e+,", EmptyExponent),
        ("1e-x", EmptyExponent),
        ("12abc", Malformed),
        ("0x10", Malformed),
        ("1_000", Malformed),
        ("1.2.3", Malformed),
        ("1e5.0", Malformed),
        ("1e5e5", Malformed),
        ("inf9", Malformed),
        ("info", Malformed),
        ("nan_", Malformed),
        ("infinityx", Malformed),
        ("nan(7fc00001)x", Malformed),
        ("nan()", NanBits),
        ("nan(7fc00001", NanBits),
        ("nan(xyz)", NanBits),
        ("-nan(7fc00001)", NanBits),
        ("nan(12345678123456781)", NanBits),
    ] {
        assert_eq!(scan(text.as_bytes()), Err(wanted), "{text}");
        assert_eq!(read_f32(text.as_bytes()), Err(wanted), "{text}");
        assert_eq!(read_f64(text.as_bytes()), Err(wanted), "{text}");
        // Padded, so that the fast path of lists applies.
        let padded = format!("{text}, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}");
        assert!(text == "}" || list::<f32>(&padded).is_err(), "{padded}");
    }
}

#[test]
fn integers() {
    use NumberError::{Malformed, Negative, NoDigits, NotInteger, OutOfRange};
    for (text, signed, unsigned) in [
        ("0", Ok(0), Ok(0)),
        ("-0", Ok(0), Err(Negative)),
        ("-5", Ok(-5), Err(Negative)),
        ("00000000000000000000000012", Ok(12), Ok(12)),
        ("12345678", Ok(12345678), Ok(12345678)),
        ("123456789", Ok(123456789), Ok(123456789)),
        ("1234567890123456", Ok(1234567890123456), Ok(1234567890123456)),
        ("9223372036854775807", Ok(i64::MAX), Ok(i64::MAX as u64)),
        ("9223372036854775808", Err(OutOfRange), Ok(1 << 63)),
        ("-9223372036854775808", Ok(i64::MIN), Err(Negative)),
        ("-9223372036854775809", Err(OutOfRange), Err(Negative)),
        ("18446744073709551615", Err(OutOfRange), Ok(u64::MAX)),
        ("18446744073709551616", Err(OutOfRange), Err(OutOfRange)),
        ("99999999999999999999", Err(OutOfRange), Err(OutOfRange)),
        ("999999999999999999999", Err(OutOfRange), Err(OutOfRange)),
        ("1.0", Err(NotInteger), Err(NotInteger)),
        ("1e5", Err(NotInteger), Err(NotInteger)),
        ("inf", Err(NotInteger), Err(NotInteger)),
        ("1.x", Err(Malformed), Err(Malformed)),
        ("12345678x", Err(Malformed), Err(Malformed)),
        ("", Err(NoDigits), Err(NoDigits)),
        ("--1", Err(NoDigits), Err(Negative)),
        ("x", Err(NoDigits), Err(NoDigits)),
    ] {
        for after in ["", ",", "}", ", 12345678901234567890123456789012345, 7}"] {
            let literal = format!("{text}{after}");
            let length = text.len();
            assert_eq!(
                read_i64(literal.as_bytes()),
                signed.map(|value: i64| (value, length)),
                "{literal}"
            );
            assert_eq!(
                read_u64(literal.as_bytes()),
                unsigned.map(|value| (value, length)),
                "{literal}"
            );
        }
        let literal = format!("{text}, 1234567890123456789012345678901234567890");
        let mut first = None;
        let end = read_list(literal.as_bytes(), |value: i64| {
            first = Some(value);
            Ok(())
        });
        assert_eq!(first, signed.ok(), "{literal}");
        assert!(end.is_err());
    }
}

#[test]
fn random_integers_read_back() {
    let mut random = Random(1);
    let mut out = Vec::new();
    for _ in 0..200_000 {
        let bits = random.next() >> random.next_below(64);
        for value in [bits as i64, (bits as i64).wrapping_neg()] {
            out.clear();
            push_i64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
            assert_eq!(read_i64(&out), Ok((value, out.len())));
            out.extend_from_slice(b", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}");
            let text = std::str::from_utf8(&out).unwrap();
            assert_eq!(list::<i64>(text).unwrap().0[0], value);
        }
        out.clear();
        push_u64(&mut out, bits);
        assert_eq!(out, bits.to_string().as_bytes());
        assert_eq!(read_u64(&out), Ok((bits, out.len())));
    }
    for length in 0..20 {
        let power = 10u64.pow(length);
        for value in [power - 1, power, power + 1] {
            out.clear();
            push_u64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }
}

#[test]
fn floats_read_like_the_standard_library() {
    for literal in [
        "0",
        "-0",
        "-0.0",
        "0e5",
        "1.",
        "1.5",
        "0.5",
        "16777217",
        "16777217.0",
        "16777219.0",
        "16777217.00000000000000001",
        "1.00000005960464477539062500",
        "1.00000005960464477539062501",
        "1.000000059604644775390625",
        "1.000000178813934326171875",
        "9007199254740993",
        "9007199254740993.0",
        "9007199254740993.00000000000000000001",
        "9007199254740995",
        "123456789",
        "12345678.9",
        "1234567890123456789",
        "12345678901234567890",
        "123456789012345678901234567890",
        "0.000000000000000000000000000000000000001",
        "3.4028235e38",
        "3.40282356e38",
        "3.4028236e38",
        "1e39",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "1e309",
        "1e-45",
        "7e-46",
        "7.006492321624085e-46",
        "1.1754943e-38",
        "1.17549429e-38",
        "4.9e-324",
        "2e-324",
        "2.2250738585072011e-308",
        "1e-400",
        "1e99999999999999999999",
        "0e99999999999999999999",
        "1e-99999999999999999999",
        "1e0000000000000000000001",
        "0.1234567890123456789",
        "9.999999999999999999",
        "9.99999999999999999",
        "00000000000000000001.5",
        "1.50000000000000000000000000000",
    ] {
        check_float(literal);
        check_float(&format!("-{}", literal.trim_start_matches('-')));
    }
}

#[test]
fn random_digits_read_like_the_standard_library() {
    let mut random = Random(2);
    for _ in 0..60_000 {
        let mut literal = String::new();
        if random.next_below(2) == 0 {
            literal.push('-');
        }
        let whole = match random.next_below(4) {
            0 => random.next_below(22) + 1,
            _ => 1,
        };
        literal += &random.digits(whole);
        if random.next_below(8) > 0 {
            let zeros = random.next_below(4) * random.next_below(3);
            let places = random.next_below(22);
            literal.push('.');
            literal += &"0".repeat(zeros as usize);
            literal += &random.digits(places);
        }
        if random.next_below(3) == 0 {
            let exponent = random.next_below(90) as i64 - 45;
            literal += &format!("e{exponent}");
        }
        check_float(&literal);
    }
}

/// Checks the midpoints between two floats, and numbers slightly beside them.
#[test]
fn halves_read_like_the_standard_library() {
    let mut random = Random(3);
    for _ in 0..5_000 {
        // All digits of the midpoint between two neighbours in f32, which is a double.
        let low = f32::from_bits((random.next_below(80 << 23) + (80 << 23)) as u32);
        let high = f32::from_bits(low.to_bits() + 1);
        let middle = format!("{:.170}", (f64::from(low) + f64::from(high)) / 2.0);
        let middle = middle.trim_end_matches('0');
        check_float(middle);
        check_float(&format!("{middle}00000000000000000001"));
        let mut below = middle.to_owned();
        if let Some(digit) = below.pop().and_then(|digit| digit.to_digit(10)) {
            check_float(&format!("{below}{}9", digit - 1));
        }
        // Midpoints between doubles have more digits than a double; some integers beyond 2^53 are
        // midpoints.
        let odd = (1 << 54) + 4 * random.next_below(1 << 50) + 2;
        check_float(&odd.to_string());
        check_float(&format!("{odd}.5"));
    }
}

#[test]
fn words_and_bits_of_nan() {
    let f32_bits = |text: &str| read_f32(text.as_bytes()).map(|(value, _)| value.to_bits());
    let f64_bits = |text: &str| read_f64(text.as_bytes()).map(|(value, _)| value.to_bits());
    assert_eq!(f32_bits("inf"), Ok(0x7f80_0000));
    assert_eq!(f32_bits("-Infinity"), Ok(0xff80_0000));
    assert_eq!(f32_bits("nan"), Ok(0x7fc0_0000));
    assert_eq!(f32_bits("-NaN"), Ok(0xffc0_0000));
    assert_eq!(f32_bits("nan(7fc00001)"), Ok(0x7fc0_0001));
    assert_eq!(f32_bits("nan(FF800001)"), Ok(0xff80_0001));
    for wrong in
        ["nan(0)", "nan(7f800000)", "nan(ff800000)", "nan(17fc00001)", "nan(7ff8000000000001)"]
    {
        assert_eq!(f32_bits(wrong), Err(NumberError::NanBits), "{wrong}");
    }
    assert_eq!(f64_bits("inf"), Ok(0x7ff0_0000_0000_0000));
    assert_eq!(f64_bits("-nan"), Ok(0xfff8_0000_0000_0000));
    assert_eq!(f64_bits("nan(7ff0000000000001)"), Ok(0x7ff0_0000_0000_0001));
    for wrong in ["nan(7fc00001)", "nan(fff0000000000000)"] {
        assert_eq!(f64_bits(wrong), Err(NumberError::NanBits), "{wrong}");
    }
    let (values, _) = list::<f32>("inf, nan,-inf , 1}").unwrap();
    assert_eq!(values.len(), 4);
}

/// Checks the layout against texts written by `std::to_chars` of libstdc++ 12.
#[test]
fn layout_of_floats() {
    for (value, text, float) in [
        (0.0f32, "0", "0.0"),
        (-0.0, "-0", "-0.0"),
        (1.0, "1", "1.0"),
        (-1.0, "-1", "-1.0"),
        (0.001, "0.001", "0.001"),
        (1e-4, "1e-04", "1e-04"),
        (1e-5, "1e-05", "1e-05"),
        (1.5e-4, "0.00015", "0.00015"),
        (1.5e-5, "1.5e-05", "1.5e-05"),
        (1.25e-5, "1.25e-05", "1.25e-05"),
        (10.0, "10", "10.0"),
        (10000.0, "10000", "10000.0"),
        (1e5, "1e+05", "1e+05"),
        (1e6, "1e+06", "1e+06"),
        (120000.0, "120000", "120000.0"),
        (1500000.0, "1500000", "1500000.0"),
        (12000000.0, "1.2e+07", "1.2e+07"),
        (16777216.0, "16777216", "16777216.0"),
        (33554448.0, "33554448", "33554448.0"),
        (8589973504.0, "8589973504", "8589973504.0"),
        (123456790528.0, "123456790528", "123456790528.0"),
        (1e10, "1e+10", "1e+10"),
        (1.25e9, "1.25e+09", "1.25e+09"),
        (99999.99, "99999.99", "99999.99"),
        (99999.0, "99999", "99999.0"),
        (12345.678, "12345.678", "12345.678"),
        (f32::MAX, "3.4028235e+38", "3.4028235e+38"),
        (f32::MIN_POSITIVE, "1.1754944e-38", "1.1754944e-38"),
        (1e-45, "1e-45", "1e-45"),
        (f32::INFINITY, "inf", "inf"),
        (f32::NEG_INFINITY, "-inf", "-inf"),
        (f32::from_bits(0x7fc0_0000), "nan", "nan"),
        (f32::from_bits(0xffc0_0000), "-nan", "-nan"),
        (f32::from_bits(0x7fc0_0001), "nan(7fc00001)", "nan(7fc00001)"),
        (f32::from_bits(0xff80_0001), "nan(ff800001)", "nan(ff800001)"),
    ] {
        assert_eq!(f32_text(value, FloatForm::Shortest), text);
        assert_eq!(f32_text(value, FloatForm::Float), float);
    }
    for (value, text) in [
        (1e22, "1e+22"),
        (1e21, "1e+21"),
        (123456789012345680.0, "123456789012345680"),
        (1234567890123456774144.0, "1234567890123456774144"),
        (0.1, "0.1"),
        (1e-4, "1e-04"),
        (1e100, "1e+100"),
        (1.5e-100, "1.5e-100"),
        (5e-324, "5e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (-0.00012345678901234567, "-0.00012345678901234567"),
        (0.0012345678901234567, "0.0012345678901234567"),
        (f64::from_bits(0x7ff8_0000_0000_0000), "nan"),
        (f64::from_bits(0x7ff0_0000_0000_0001), "nan(7ff0000000000001)"),
    ] {
        assert_eq!(f64_text(value, FloatForm::Shortest), text);
    }
    assert_eq!(f64_text(5.0, FloatForm::Float), "5.0");
    assert_eq!(f64_text(-1234567890123456774144.0, FloatForm::Float), "-1234567890123456774144.0");
}

/// Checks that the value is read back, that there are as few digits as the standard library writes,
/// and that no other notation is shorter.
fn check_written(text: &str, digits: &str, value: f64) {
    let plain = |text: &str| {
        let significand = text.split('e').next().unwrap_or_default();
        let digits: String = significand.chars().filter(char::is_ascii_digit).collect();
        digits.trim_matches('0').to_owned()
    };
    let integral = !text.contains(['e', '.']);
    if !integral || value.abs() < 1e7 {
        // The digits themselves may differ: of two equally near numbers the even one is written,
        // like `to_chars` does.
        assert_eq!(plain(text).len(), plain(digits).len(), "{text} {digits}");
    }
    let count = plain(digits).len().max(1);
    let (_, exponent) = digits.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    let sign = usize::from(value.is_sign_negative());
    let scientific = sign
        + count
        + usize::from(count > 1)
        + 2
        + exponent.unsigned_abs().to_string().len().max(2);
    let whole = (exponent + 1).max(1) as usize;
    let places = (count as i32 - 1 - exponent).max(0) as usize;
    let fixed = sign + whole + places + usize::from(places > 0);
    assert_eq!(text.len(), fixed.min(scientific), "{text}");
    assert_eq!(text.contains('e'), scientific < fixed, "{text}");
}

#[test]
fn all_exponents_of_f32_read_back() {
    let mut random = Random(4);
    for exponent in 0..=0xff_u32 {
        for case in 0..400 {
            let fraction = match case {
                0..=2 => case,
                3 => 0x7f_ffff,
                _ => random.next_below(1 << 23) as u32,
            };
            for sign in [0, 1 << 31] {
                let value = f32::from_bits(sign | exponent << 23 | fraction);
                let text = f32_text(value, FloatForm::Shortest);
                let (back, length) = read_f32(text.as_bytes()).unwrap();
                assert_eq!(back.to_bits(), value.to_bits(), "{text}");
                assert_eq!(length, text.len());
                if value.is_finite() {
                    check_written(&text, &format!("{value:e}"), value.into());
                }
                let text = f32_text(value, FloatForm::Float);
                let (back, _) = read_f32(text.as_bytes()).unwrap();
                assert_eq!(back.to_bits(), value.to_bits(), "{text}");
                assert_eq!(scan(text.as_bytes()), Ok((Literal::Float, text.len())));
            }
        }
    }
}

#[test]
fn random_f64_read_back() {
    let mut random = Random(5);
    for case in 0..60_000 {
        let bits = match case % 3 {
            0 => random.next(),
            1 => random.next() >> 12 | (1003 + random.next_below(100)) << 52,
            _ => ((random.next() >> random.next_below(64)) as f64).to_bits(),
        };
        let value = f64::from_bits(bits);
        let text = f64_text(value, FloatForm::Shortest);
        let (back, length) = read_f64(text.as_bytes()).unwrap();
        assert_eq!(back.to_bits(), bits, "{text}");
        assert_eq!(length, text.len());
        if value.is_finite() {
            check_written(&text, &format!("{value:e}"), value);
        }
        let text = f64_text(value, FloatForm::Float);
        assert_eq!(scan(text.as_bytes()), Ok((Literal::Float, text.len())));
    }
}

#[test]
fn lists_and_their_errors() {
    assert_eq!(list::<i64>(" # empty\n }"), Ok((vec![], ListEnd { count: 0, position: 10 })));
    let (values, end) = list::<i64>("1,2 , 3\n,\t-4,# five, six\n\r\n   7} 8").unwrap();
    assert_eq!(values, [1, 2, 3, -4, 7]);
    assert_eq!((end.count, end.position), (5, 31));

    let number = ListProblem::Number;
    for (text, position, problem) in [
        ("", 0, ListProblem::MissingValue),
        ("1,", 2, ListProblem::MissingValue),
        ("1, }", 3, ListProblem::MissingValue),
        ("1,,2}", 2, ListProblem::MissingValue),
        (",1}", 0, ListProblem::MissingValue),
        ("1", 1, ListProblem::ExpectedCommaOrBrace),
        ("1 2}", 2, ListProblem::ExpectedCommaOrBrace),
        ("1]", 1, ListProblem::ExpectedCommaOrBrace),
        ("1-2}", 1, ListProblem::ExpectedCommaOrBrace),
        ("1 # }", 5, ListProblem::ExpectedCommaOrBrace),
        ("1, 2x}", 3, number(NumberError::Malformed)),
        ("1, x}", 3, number(NumberError::NoDigits)),
        ("1, 2.5}", 3, number(NumberError::NotInteger)),
        ("1, 123456789012345678901}", 3, number(NumberError::OutOfRange)),
    ] {
        for after in ["", " and enough text, 1, for the path, 2, of long lists"] {
            if text.is_empty() || (text.ends_with([',', '1']) && !after.is_empty()) {
                continue;
            }
            let text = format!("{text}{after}");
            let error = list::<i64>(&text).unwrap_err();
            if text.starts_with("1 #") {
                assert_eq!(error.problem, problem);
            } else {
                assert_eq!((error.position, error.problem), (position, problem), "{text}");
            }
        }
    }
}

#[test]
fn ranges_and_encodings_of_integer_lists() {
    let mut out = Vec::new();
    let text = b"0, 127, 128, -1, -128, 16383, 16384, 2147483647, -2147483648}";
    let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
    assert_eq!(read_signed_varints(text, range.clone(), &mut out).map(|end| end.count), Ok(9));
    let mut wanted = Vec::new();
    for value in [0, 127, 128, -1, -128, 16383, 16384, i32::MAX, i32::MIN] {
        varint(i64::from(value) as u64, &mut wanted);
    }
    assert_eq!(out, wanted);

    out.clear();
    read_signed::<4>(text, range, &mut out).unwrap();
    assert_eq!(out[12..16], [0xff; 4]);
    assert_eq!(out.len(), 36);

    out.clear();
    read_signed::<1>(b"-128, 127}", -128..=127, &mut out).unwrap();
    read_unsigned::<2>(b"65535, 1}", 65535, &mut out).unwrap();
    read_unsigned::<8>(b"18446744073709551615}", u64::MAX, &mut out).unwrap();
    assert_eq!(out, [0x80, 0x7f, 0xff, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);

    out.clear();
    read_floats::<f32>(b"1, -2.5}", &mut out).unwrap();
    read_floats::<f64>(b"0.1}", &mut out).unwrap();
    let mut wanted = [1f32.to_le_bytes(), (-2.5f32).to_le_bytes()].concat();
    wanted.extend_from_slice(&0.1f64.to_le_bytes());
    assert_eq!(out, wanted);

    let out_of_range = |position| {
        Err(ListError { position, problem: ListProblem::Number(NumberError::OutOfRange) })
    };
    assert_eq!(read_signed::<1>(b"1, 128}", -128..=127, &mut out), out_of_range(3));
    assert_eq!(read_signed_varints(b"1, -129}", -128..=127, &mut out), out_of_range(3));
    assert_eq!(read_unsigned::<1>(b"256}", 255, &mut out), out_of_range(0));
    assert_eq!(
        read_unsigned_varints(b"4294967296}", u64::from(u32::MAX), &mut out),
        out_of_range(0)
    );
    assert_eq!(
        read_unsigned_varints(b"-1}", 9, &mut out),
        Err(ListError { position: 0, problem: ListProblem::Number(NumberError::Negative) })
    );
}

/// Encodes a varint by its definition, one byte at a time.
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[test]
fn varints_of_all_lengths() {
    let mut random = Random(6);
    let values: Vec<u64> = (0..20_000)
        .map(|_| random.next() >> random.next_below(64))
        .chain((0..64).flat_map(|bit| [1 << bit, (1 << bit) - 1, u64::MAX << bit]))
        .collect();
    let mut text = Vec::new();
    push_list(&mut text, values.iter().copied(), Wrap { column: 0, indent: 2, width: 60, gap: 2 });
    text.push(b'}');
    let (mut out, mut wanted) = (Vec::new(), Vec::new());
    read_unsigned_varints(&text, u64::MAX, &mut out).unwrap();
    for value in values {
        varint(value, &mut wanted);
    }
    assert_eq!(out, wanted);
}

#[test]
fn lists_are_wrapped() {
    let wrap = |column, indent, width| Wrap { column, indent, width, gap: 2 };
    let written = |values: &[i64], wrap| {
        let mut out = b"x".to_vec();
        let column = push_list(&mut out, values.iter().copied(), wrap);
        (String::from_utf8(out).unwrap(), column)
    };
    assert_eq!(written(&[], wrap(7, 2, 10)), ("x".to_owned(), 7));
    assert_eq!(written(&[1, 22, 333], wrap(7, 2, 80)), ("x1, 22, 333".to_owned(), 17));
    // With the comma after it, the 22 just fits.
    assert_eq!(written(&[1, 22, 333, 4], wrap(0, 2, 6)), ("x1, 22,\n  333,\n  4".to_owned(), 3));
    assert_eq!(written(&[1, 22, 333, 4], wrap(0, 2, 5)), ("x1,\n  22,\n  333,\n  4".to_owned(), 3));
    // The indent may exceed the width.
    let (text, column) = written(&[1, 2], wrap(0, 5000, 3));
    assert_eq!((text.len(), column), (5005, 5001));

    // All types, many lines, and an incomplete number at the end.
    fn check<T: Print, const N: usize>(bytes: &[[u8; N]], text: impl Fn([u8; N]) -> String) {
        let mut out = Vec::new();
        let mut flat = bytes.concat();
        if N > 1 {
            flat.push(0);
        }
        let column =
            push_le_list::<T>(&mut out, &flat, Wrap { column: 9, indent: 4, width: 100, gap: 2 });
        let out = String::from_utf8(out).unwrap();
        let wanted: Vec<String> = bytes.iter().map(|bytes| text(*bytes)).collect();
        let got: Vec<&str> = out.split(',').map(str::trim_start).collect();
        assert_eq!(got, wanted);
        for (index, line) in out.lines().enumerate() {
            let start = if index == 0 { 9 } else { 0 };
            assert!(start + line.len() <= 100, "{line}");
            assert!(!line.ends_with(' '));
            assert!(index == 0 || line.starts_with("    ") && line.as_bytes()[4] != b' ');
        }
        // Lines are not broken earlier than needed.
        let lines: Vec<&str> = out.lines().collect();
        for pair in lines[1..].windows(2) {
            let next = pair[1].trim_start().split(',').next().unwrap();
            assert!(pair[0].len() + 1 + next.len() + 1 > 100);
        }
        assert_eq!(column, lines.last().unwrap().len());
    }
    let mut random = Random(7);
    let bytes: Vec<[u8; 8]> =
        (0..3000).map(|_| (random.next() as i64 >> random.next_below(64)).to_le_bytes()).collect();
    let fours: Vec<[u8; 4]> = bytes.iter().map(|bytes| bytes[..4].try_into().unwrap()).collect();
    let twos: Vec<[u8; 2]> = bytes.iter().map(|bytes| bytes[..2].try_into().unwrap()).collect();
    let ones: Vec<[u8; 1]> = bytes.iter().map(|bytes| bytes[..1].try_into().unwrap()).collect();
    check::<i64, 8>(&bytes, |bytes| i64::from_le_bytes(bytes).to_string());
    check::<u64, 8>(&bytes, |bytes| u64::from_le_bytes(bytes).to_string());
    check::<i32, 4>(&fours, |bytes| i32::from_le_bytes(bytes).to_string());
    check::<u32, 4>(&fours, |bytes| u32::from_le_bytes(bytes).to_string());
    check::<i16, 2>(&twos, |bytes| i16::from_le_bytes(bytes).to_string());
    check::<u16, 2>(&twos, |bytes| u16::from_le_bytes(bytes).to_string());
    check::<i8, 1>(&ones, |bytes| i8::from_le_bytes(bytes).to_string());
    check::<u8, 1>(&ones, |bytes| u8::from_le_bytes(bytes).to_string());
    check::<f64, 8>(&bytes, |bytes| f64_text(f64::from_le_bytes(bytes), FloatForm::Shortest));
    check::<f32, 4>(&fours, |bytes| f32_text(f32::from_le_bytes(bytes), FloatForm::Shortest));
}

/// Checks that any text is read without a panic, and that the end of a literal is within the text.
#[test]
fn arbitrary_text() {
    let mut random = Random(8);
    let alphabet = b"0123456789--..eE+naNifty(),} \n#_\xff";
    for _ in 0..200_000 {
        let length = random.next_below(60);
        let text: Vec<u8> = (0..length)
            .map(|_| {
                let count = if random.next_below(2) == 0 { 10 } else { alphabet.len() as u64 };
                alphabet[random.next_below(count) as usize]
            })
            .collect();
        let mut out = Vec::new();
        let ends = [
            scan(&text).map(|(_, end)| end),
            read_i64(&text).map(|(_, end)| end),
            read_u64(&text).map(|(_, end)| end),
            read_f32(&text).map(|(_, end)| end),
            read_f64(&text).map(|(_, end)| end),
        ];
        assert!(ends.iter().flatten().all(|end| *end <= text.len()));
        for result in [
            read_floats::<f32>(&text, &mut out),
            read_floats::<f64>(&text, &mut out),
            read_signed_varints(&text, i64::MIN..=i64::MAX, &mut out),
            read_unsigned_varints(&text, u64::MAX, &mut out),
            read_signed::<2>(&text, -5..=5, &mut out),
        ] {
            match result {
                Ok(end) => assert_eq!(text[end.position], b'}'),
                Err(error) => assert!(error.position <= text.len()),
            }
        }
    }
}
