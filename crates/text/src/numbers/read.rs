//! Reads literals.
//!
//! Digits are found and converted eight at a time in a 64-bit word. A decimal number `w * 10^q` is
//! converted to a float by one multiplication by a 64-bit approximation of `5^q`, as in D. Lemire,
//! "Number parsing at a gigabyte per second" (2021), after an idea of M. Eisel: the product is
//! known to within an interval, and both ends round alike unless the interval contains the midpoint
//! between two floats. If it does (in one of 500 random cases for `f64`, almost only for true ties
//! for `f32`), or if there are more than 19 digits or a large exponent, the standard library parses
//! the literal.

use super::{Literal, NumberError};

/// Returns the type and the length of the number literal at the start of `text`.
pub(crate) fn scan(text: &[u8]) -> Result<(Literal, usize), NumberError> {
    let start = usize::from(text.first() == Some(&b'-'));
    let mut at = start + count_digits(text, start);
    if at == start {
        let end = find_word_end(text, start)?;
        return check_end(text, end).map(|end| (Literal::Float, end));
    }
    let mut kind = Literal::Int;
    if text.get(at) == Some(&b'.') {
        kind = Literal::Float;
        at += 1;
        at += count_digits(text, at);
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        kind = Literal::Float;
        at += 1;
        at += usize::from(matches!(text.get(at), Some(b'+' | b'-')));
        let digits = count_digits(text, at);
        if digits == 0 {
            return Err(NumberError::EmptyExponent);
        }
        at += digits;
    }
    check_end(text, at).map(|end| (kind, end))
}

/// Parses an integer literal and returns it with its length. `-0` is 0.
pub(crate) fn read_i64(text: &[u8]) -> Result<(i64, usize), NumberError> {
    i64::read_at(text, 0)
}

/// Parses an integer literal without a sign and returns it with its length.
pub(crate) fn read_u64(text: &[u8]) -> Result<(u64, usize), NumberError> {
    u64::read_at(text, 0)
}

/// Parses a literal as the nearest `f32` (ties to even) and returns it with its length.
pub(crate) fn read_f32(text: &[u8]) -> Result<(f32, usize), NumberError> {
    f32::read_at(text, 0)
}

/// Parses a literal as the nearest `f64` (ties to even) and returns it with its length.
pub(crate) fn read_f64(text: &[u8]) -> Result<(f64, usize), NumberError> {
    f64::read_at(text, 0)
}

/// Type of parsed literals: `i64`, `u64`, `f32` or `f64`.
pub(crate) trait Number: Copy {
    /// Parses the literal at `at` and returns the number with the position after it.
    fn read_at(text: &[u8], at: usize) -> Result<(Self, usize), NumberError>;

    /// Parses the literal at the start of the window on the fast path and returns the number with
    /// its length, if it has a common form and is followed by a comma.
    fn read_usual(window: &Window) -> Option<(Self, usize)>;
}

// Words of eight digits.

const ZEROS: u64 = 0x3030_3030_3030_3030;

const POW10: [u64; 20] = {
    let mut powers = [1; 20];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = 10 * powers[index - 1];
        index += 1;
    }
    powers
};

/// Size of a window in bytes: a common literal and a few more.
pub(super) const WINDOW: usize = 32;

/// Bytes from the start of a literal.
pub(super) type Window = [u8; WINDOW];

#[inline(always)]
pub(super) fn window(text: &[u8], at: usize) -> Option<&Window> {
    text.get(at..)?.first_chunk()
}

/// Returns eight bytes at an offset that is known to be in the window.
#[inline(always)]
fn word(window: &Window, at: usize) -> u64 {
    let at = at & 15;
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&window[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Returns a mask of the high bits of bytes that are not digits: exact up to the first one, 0 if
/// all eight are digits. `distance` is the word with each byte xored with `0`.
#[inline(always)]
fn mask_not_digits(distance: u64) -> u64 {
    // The addition carries only out of bytes that are not digits, and only into later bytes.
    (distance.wrapping_add(0x7676_7676_7676_7676) | distance) & 0x8080_8080_8080_8080
}

/// Combines eight digits, one per byte with the first one lowest, into their number.
#[inline(always)]
fn combine_digits(digits: u64) -> u64 {
    // Combines digits into pairs, pairs into fours, fours into eight.
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    const EVERY_SECOND: u64 = 0x0000_00ff_0000_00ff;
    let first = (pairs & EVERY_SECOND).wrapping_mul(100 + (1_000_000 << 32));
    let second = ((pairs >> 16) & EVERY_SECOND).wrapping_mul(1 + (10_000 << 32));
    first.wrapping_add(second) >> 32
}

/// Returns eight bytes of text, the first one lowest, with zeros after the end.
#[inline(always)]
fn load(text: &[u8], at: usize) -> u64 {
    match text.get(at..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => load_last(text, at),
    }
}

#[cold]
fn load_last(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    let mut bytes = [0; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(bytes)
}

/// Counts the digits at the start of the word, 0 to 8.
#[inline(always)]
fn count_leading_digits(word: u64) -> u32 {
    mask_not_digits(word ^ ZEROS).trailing_zeros() / 8
}

/// Returns the value of the first `count` digits of the word.
#[inline(always)]
fn value_of(word: u64, count: u32) -> u64 {
    // The shift moves zeros in at the low end, where the first digits are.
    combine_digits((word ^ ZEROS).unbounded_shl(64 - 8 * count))
}

/// Counts the digits at `at`.
fn count_digits(text: &[u8], mut at: usize) -> usize {
    let start = at;
    loop {
        let count = count_leading_digits(load(text, at));
        at += count as usize;
        if count < 8 {
            return at - start;
        }
    }
}

/// Reads up to 16 digits at `at` and returns their value and number. 16 can mean that there are
/// more.
#[inline(always)]
fn read_sixteen(text: &[u8], at: usize) -> (u64, u32) {
    let (first, second) = (load(text, at), load(text, at + 8));
    let first_count = count_leading_digits(first);
    let second_count = if first_count == 8 { count_leading_digits(second) } else { 0 };
    let value = value_of(first, first_count) * POW10[second_count as usize]
        + value_of(second, second_count);
    (value, first_count + second_count)
}

/// Whether a byte is not allowed directly after a number.
fn is_part_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')
}

/// Checks that a number can end at `end`, and returns it.
#[inline(always)]
fn check_end(text: &[u8], end: usize) -> Result<usize, NumberError> {
    match text.get(end) {
        Some(b',') | None => Ok(end),
        Some(byte) if is_part_of_word(*byte) => Err(NumberError::Malformed),
        Some(_) => Ok(end),
    }
}

// Integers.

impl Number for i64 {
    #[inline(always)]
    fn read_at(text: &[u8], at: usize) -> Result<(Self, usize), NumberError> {
        let negative = text.get(at) == Some(&b'-');
        let (size, end) = read_size(text, at + usize::from(negative))?;
        match apply_sign(size, negative) {
            Some(value) => Ok((value, end)),
            None => Err(NumberError::OutOfRange),
        }
    }

    #[inline(always)]
    fn read_usual(window: &Window) -> Option<(Self, usize)> {
        let negative = window[0] == b'-';
        let (size, end) = read_usual_size(window, usize::from(negative))?;
        Some((apply_sign(size, negative)?, end))
    }
}

impl Number for u64 {
    #[inline(always)]
    fn read_at(text: &[u8], at: usize) -> Result<(Self, usize), NumberError> {
        match read_size(text, at) {
            Err(NumberError::NoDigits) if text.get(at) == Some(&b'-') => Err(NumberError::Negative),
            read => read,
        }
    }

    #[inline(always)]
    fn read_usual(window: &Window) -> Option<(Self, usize)> {
        read_usual_size(window, 0)
    }
}

/// Applies the sign, or returns `None` if the result exceeds 64 bits.
#[inline(always)]
fn apply_sign(size: u64, negative: bool) -> Option<i64> {
    // The magnitude of the smallest number is one larger than that of the largest.
    if size > i64::MAX as u64 + u64::from(negative) {
        return None;
    }
    let mask = u64::from(negative).wrapping_neg();
    Some((size ^ mask).wrapping_sub(mask) as i64)
}

/// Reads an integer of 1 to 19 digits at `start`, 0 or 1, and returns it with its end, if a comma
/// follows.
#[inline(always)]
fn read_usual_size(window: &Window, start: usize) -> Option<(u64, usize)> {
    let mut at = start;
    let mut size = 0;
    let mut digits = word(window, at) ^ ZEROS;
    let mut other = mask_not_digits(digits);
    if other == 0 {
        at += 8;
        size = combine_digits(digits);
        digits = word(window, at) ^ ZEROS;
        other = mask_not_digits(digits);
        if other == 0 {
            at += 8;
            size = size * POW10[8] + combine_digits(digits);
            // Three more digits always fit.
            let last = [window[at], window[at + 1], window[at + 2], 0, 0, 0, 0, 0];
            digits = u64::from_le_bytes(last) ^ ZEROS;
            other = mask_not_digits(digits);
        }
    }
    // The bit is bit 7 of the first byte that is not a digit.
    let bit = other.trailing_zeros() & 63;
    let count = (bit / 8) as usize;
    let end = at + count;
    if end == start || window[end & 31] != b',' {
        return None;
    }
    let rest = combine_digits((digits << (bit ^ 63)) << 8);
    Some((size * POW10[count] + rest, end))
}

/// Reads an integer literal without a sign and returns it with the position after it.
fn read_size(text: &[u8], start: usize) -> Result<(u64, usize), NumberError> {
    let word = load(text, start);
    let count = count_leading_digits(word);
    let mut size = value_of(word, count);
    let mut end = start + count as usize;
    if count == 8 {
        let (low, count) = read_sixteen(text, end);
        end += count as usize;
        let sum = match POW10.get(count as usize) {
            Some(power) if count < 16 => {
                size.checked_mul(*power).and_then(|size| size.checked_add(low))
            }
            _ => None,
        };
        match sum {
            Some(sum) => size = sum,
            None => return read_long_size(text, start),
        }
    }
    // No further check is needed before these signs.
    if count > 0 && matches!(text.get(end), Some(b',' | b'>' | b']' | b'}' | b' ' | b'\n')) {
        return Ok((size, end));
    }
    check_int_end(text, start)?;
    Ok((size, end))
}

/// Finds the error in an integer that is not followed by a comma, if there is one.
fn check_int_end(text: &[u8], start: usize) -> Result<(), NumberError> {
    // The caller has read the sign; a second one is an error.
    if text.get(start) == Some(&b'-') {
        return Err(NumberError::NoDigits);
    }
    match scan(text.get(start..).unwrap_or_default())? {
        (Literal::Int, _) => Ok(()),
        (Literal::Float, _) => Err(NumberError::NotInteger),
    }
}

/// Reads an integer of at least 20 digits, of which the first ones may be zeros.
#[cold]
fn read_long_size(text: &[u8], start: usize) -> Result<(u64, usize), NumberError> {
    check_int_end(text, start)?;
    let end = start + count_digits(text, start);
    let size = text[start..end]
        .iter()
        .try_fold(0u64, |size, digit| size.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    match size {
        Some(size) => Ok((size, end)),
        None => Err(NumberError::OutOfRange),
    }
}

// Floats.

impl Number for f32 {
    #[inline(always)]
    fn read_at(text: &[u8], at: usize) -> Result<(Self, usize), NumberError> {
        read_float(text, at)
    }

    #[inline(always)]
    fn read_usual(window: &Window) -> Option<(Self, usize)> {
        let (negative, digits, end) = read_usual_decimal::<16>(window)?;
        // The conversion, the constant and the product are each rounded to 53 bits, so the result
        // is off by less than 8 units in the last place. It rounds correctly unless the midpoint
        // between two `f32` is that near.
        let value = digits as i64 as f64 * 1e-16;
        let rest = value.to_bits() as u32 & 0x1fff_ffff;
        if rest.wrapping_sub(0x1000_0000 - 8) <= 16 {
            return None;
        }
        let bits = (value as f32).to_bits() | u32::from(negative) << 31;
        Some((f32::from_bits(bits), end))
    }
}

impl Number for f64 {
    #[inline(always)]
    fn read_at(text: &[u8], at: usize) -> Result<(Self, usize), NumberError> {
        read_float(text, at)
    }

    #[inline(always)]
    fn read_usual(window: &Window) -> Option<(Self, usize)> {
        let (negative, digits, end) = read_usual_decimal::<18>(window)?;
        let bits = nearest::<f64>(digits, -18)? | u64::from(negative) << 63;
        Some((f64::from_bits(bits), end))
    }
}

/// Reads a decimal number with one digit before the point and up to `PLACES` after it, 16 or 18, if
/// a comma follows. Returns whether it is negative, its digits padded to all places, and its end.
#[inline(always)]
fn read_usual_decimal<const PLACES: usize>(window: &Window) -> Option<(bool, u64, usize)> {
    let negative = window[0] == b'-';
    let start = usize::from(negative);
    let whole = window[start].wrapping_sub(b'0');
    if window[start + 1] != b'.' || whole > 9 {
        return None;
    }
    let first = word(window, start + 2) ^ ZEROS;
    let second = word(window, start + 10) ^ ZEROS;
    let first_other = mask_not_digits(first) >> 7;
    let second_other = mask_not_digits(second) >> 7;
    // Masks of the bits below the first byte that is not a digit.
    let first_mask = first_other.wrapping_sub(1) & !first_other;
    let second_mask = second_other.wrapping_sub(1) & !second_other;
    let both = if first_other == 0 { u64::MAX } else { 0 };
    let second_mask = second_mask & both;
    let mut count =
        first_other.trailing_zeros() / 8 + ((second_other.trailing_zeros() / 8) & both as u32);
    let mut digits =
        combine_digits(first & first_mask) * POW10[8] + combine_digits(second & second_mask);
    digits += u64::from(whole) * POW10[16];
    if PLACES == 18 {
        // Products with 0 and 1 instead of conditions, which the compiler would turn into branches.
        let third = window[start + 18].wrapping_sub(b'0');
        let fourth = window[start + 19].wrapping_sub(b'0');
        let third_is = u64::from(count == 16) & u64::from(third <= 9);
        let fourth_is = third_is & u64::from(fourth <= 9);
        let two = 10 * third_is * u64::from(third) + fourth_is * u64::from(fourth);
        digits = digits * 100 + two;
        count += (third_is + fourth_is) as u32;
    }
    let end = start + 2 + count as usize;
    (window[end & 31] == b',').then_some((negative, digits, end))
}

/// Differences between `f32` and `f64`.
trait Float: Copy + std::str::FromStr {
    const BITS: u32;
    /// Bits of the significand, including the hidden one.
    const PRECISION: u32;
    const EXPONENT_BIAS: i32;
    fn from_low_bits(bits: u64) -> Self;
    fn is_finite(self) -> bool;
}

impl Float for f32 {
    const BITS: u32 = 32;
    const PRECISION: u32 = 24;
    const EXPONENT_BIAS: i32 = 127;
    #[inline(always)]
    fn from_low_bits(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Float for f64 {
    const BITS: u32 = 64;
    const PRECISION: u32 = 53;
    const EXPONENT_BIAS: i32 = 1023;
    #[inline(always)]
    fn from_low_bits(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

/// `10^exponent` as `factor * 2^power`, where the highest bit of the factor is set and the factor
/// is rounded down.
#[derive(Clone, Copy)]
struct PowerOfTen {
    factor: u64,
    power: i32,
}

/// Lowest exponent of the table: `5^27` is the largest power of five in 64 bits.
const LOWEST_POWER: i32 = -27;

/// Highest exponent of the table: with a factor of 64 bits, no product exceeds the range of `f32`.
const HIGHEST_POWER: i32 = 19;

static POWERS_OF_TEN: [PowerOfTen; (HIGHEST_POWER - LOWEST_POWER + 1) as usize] = {
    let zero = PowerOfTen { factor: 0, power: 0 };
    let mut powers = [zero; (HIGHEST_POWER - LOWEST_POWER + 1) as usize];
    let mut exponent = LOWEST_POWER;
    while exponent <= HIGHEST_POWER {
        let five = 5u64.pow(exponent.unsigned_abs());
        powers[(exponent - LOWEST_POWER) as usize] = if exponent >= 0 {
            let shift = five.leading_zeros();
            PowerOfTen { factor: five << shift, power: exponent - shift as i32 }
        } else {
            let shift = 63 + (64 - five.leading_zeros());
            PowerOfTen {
                factor: ((1u128 << shift) / five as u128) as u64,
                power: exponent - shift as i32,
            }
        };
        exponent += 1;
    }
    powers
};

/// Returns the bits of the float nearest to `digits * 10^exponent`, without a sign, or `None` if
/// the approximation cannot decide.
#[inline(always)]
fn nearest<F: Float>(digits: u64, exponent: i32) -> Option<u64> {
    let ten = POWERS_OF_TEN.get(exponent.wrapping_sub(LOWEST_POWER) as usize)?;
    let shift = (digits | 1).leading_zeros();
    let product = u128::from(digits << shift) * u128::from(ten.factor);
    // The factor is too small by less than one, so the true product is larger by less than 2^64: in
    // units of 2^64 it is at least `high` and less than `high + 2`.
    let high = (product >> 64) as u64;
    let normal = high.leading_zeros() & 1;
    let drop = 64 - F::PRECISION - normal;
    let rest = high & ((1 << drop) - 1);
    let half = 1u64 << (drop - 1);
    // The rounding is undecided only if the rest can be exactly one half.
    if half.wrapping_sub(rest) <= 1 {
        return None;
    }
    let rounded = (high >> drop) + u64::from(rest > half);
    // The addition carries the hidden bit, and a carry from rounding, into the exponent.
    let biased = ten.power - shift as i32 - normal as i32 + 127 + F::EXPONENT_BIAS;
    let bits = ((biased as u64 - 1) << (F::PRECISION - 1)).wrapping_add(rounded);
    Some(if digits == 0 { 0 } else { bits })
}

fn read_float<F: Float>(text: &[u8], at: usize) -> Result<(F, usize), NumberError> {
    match read_plain_float(text, at) {
        Some(read) => Ok(read),
        None => read_any_float(text, at),
    }
}

/// Parses a float of up to 19 digits with an exponent for which one multiplication suffices.
#[inline(always)]
fn read_plain_float<F: Float>(text: &[u8], at: usize) -> Option<(F, usize)> {
    let negative = text.get(at) == Some(&b'-');
    let start = at + usize::from(negative);
    let (whole, whole_count) = if text.get(start + 1) == Some(&b'.') {
        // Weights usually have one digit before the point; this does not wait for its count.
        let digit = text[start].wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        (u64::from(digit), 1)
    } else {
        let word = load(text, start);
        let count = count_leading_digits(word);
        (value_of(word, count), count)
    };
    if whole_count == 0 {
        return None;
    }
    let mut end = start + whole_count as usize;
    let mut digits = whole;
    let mut exponent = 0;
    if text.get(end) == Some(&b'.') {
        end += 1;
        let (fraction, mut count) = read_sixteen(text, end);
        digits = whole.wrapping_mul(POW10[count as usize]).wrapping_add(fraction);
        end += count as usize;
        if count == 16 {
            let word = load(text, end);
            let more = count_leading_digits(word);
            if more > 2 {
                return None;
            }
            digits = digits.wrapping_mul(POW10[more as usize]).wrapping_add(value_of(word, more));
            count += more;
            end += more as usize;
        }
        // More than 19 digits have overflowed 64 bits.
        if whole_count + count > 19 {
            return None;
        }
        exponent = -(count as i32);
    }
    if text.get(end) != Some(&b',') {
        if matches!(text.get(end), Some(b'e' | b'E')) {
            let (power, after) = read_exponent(text, end + 1)?;
            exponent += power;
            end = after;
        }
        if text.get(end).is_some_and(|byte| is_part_of_word(*byte)) {
            return None;
        }
    }
    let bits = nearest::<F>(digits, exponent)? | u64::from(negative) << (F::BITS - 1);
    Some((F::from_low_bits(bits), end))
}

/// Reads an exponent of up to four digits after the `e` and returns it with the position after it.
fn read_exponent(text: &[u8], at: usize) -> Option<(i32, usize)> {
    let negative = text.get(at) == Some(&b'-');
    let start = at + usize::from(negative || text.get(at) == Some(&b'+'));
    let word = load(text, start);
    let count = count_leading_digits(word);
    if count == 0 || count > 4 {
        return None;
    }
    let size = value_of(word, count) as i32;
    let end = start + count as usize;
    Some((if negative { -size } else { size }, end))
}

/// Parses any literal as a float.
#[cold]
fn read_any_float<F: Float>(text: &[u8], at: usize) -> Result<(F, usize), NumberError> {
    let text = text.get(at..).unwrap_or_default();
    let (_, end) = scan(text)?;
    let literal = &text[..end];
    let start = usize::from(literal.first() == Some(&b'-'));
    if literal.get(start).is_some_and(u8::is_ascii_digit) {
        let value: Option<F> =
            std::str::from_utf8(literal).ok().and_then(|literal| literal.parse().ok());
        return match value {
            Some(value) if value.is_finite() => Ok((value, at + end)),
            _ => Err(NumberError::OutOfRange),
        };
    }
    let exponent = ((1u64 << (F::BITS - F::PRECISION)) - 1) << (F::PRECISION - 1);
    let sign = (start as u64) << (F::BITS - 1);
    let bits = match literal.iter().position(|byte| *byte == b'(') {
        Some(open) => parse_hex(&literal[open + 1..end - 1])
            .filter(|bits| {
                let size = bits & !(1 << (F::BITS - 1));
                (F::BITS == 64 || bits >> 32 == 0) && size > exponent
            })
            .ok_or(NumberError::NanBits)?,
        None if literal[start].eq_ignore_ascii_case(&b'n') => {
            sign | exponent | 1 << (F::PRECISION - 2)
        }
        None => sign | exponent,
    };
    Ok((F::from_low_bits(bits), at + end))
}

/// Parses up to 16 hexadecimal digits.
fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |bits, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(bits << 4 | u64::from(digit))
    })
}

/// Returns the end of the number word at `start`.
fn find_word_end(text: &[u8], start: usize) -> Result<usize, NumberError> {
    let rest = text.get(start..).unwrap_or_default();
    let is =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if is(b"nan") {
        if rest.get(3) != Some(&b'(') {
            return Ok(start + 3);
        }
        let digits = &rest[4..];
        let close = digits.iter().take(17).position(|byte| *byte == b')');
        return match close {
            Some(close) if start == 0 && parse_hex(&digits[..close]).is_some() => {
                Ok(start + 4 + close + 1)
            }
            _ => Err(NumberError::NanBits),
        };
    }
    if is(b"infinity") {
        return Ok(start + 8);
    }
    if is(b"inf") {
        return Ok(start + 3);
    }
    Err(NumberError::NoDigits)
}
