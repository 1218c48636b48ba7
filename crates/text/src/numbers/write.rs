//! Writes literals: the shortest digits that read back as the same number, in the layout of
//! `std::to_chars` of C++17.
//!
//! This is the shorter one of fixed and scientific notation, fixed if both have the same length; an
//! exponent has a sign and at least two digits; integral values have no point. So `0.0001` is
//! written `1e-04`, and `100000` as a float `1e+05`.
//!
//! A literal is composed in a window of fixed size: its bytes are stored as whole words, and only
//! its length determines the valid ones. For `f32` between 1e-4 and 1e5, the range of most weights,
//! the digits come from exact integer arithmetic: in units of its last possible digit, such a value
//! is an integer of 54 bits divided by a power of two. All other floats get their digits from the
//! crate `zmij`.

/// Notation of a float.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatForm {
    /// The shortest literal: 1 is `1`.
    Shortest,
    /// Always as a float literal: 1 is `1.0`.
    Float,
}

pub(crate) fn push_i64(out: &mut Vec<u8>, value: i64) {
    push(out, value, FloatForm::Shortest);
}

pub(crate) fn push_u64(out: &mut Vec<u8>, value: u64) {
    push(out, value, FloatForm::Shortest);
}

pub(crate) fn push_f32(out: &mut Vec<u8>, value: f32, form: FloatForm) {
    push(out, value, form);
}

pub(crate) fn push_f64(out: &mut Vec<u8>, value: f64, form: FloatForm) {
    push(out, value, form);
}

fn push<T: Print>(out: &mut Vec<u8>, value: T, form: FloatForm) {
    let mut window = [0; WINDOW];
    let length = value.print(form, &mut window);
    out.extend_from_slice(&window[..length]);
}

/// Start of a list in its line, and limits of its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrap {
    /// Number of bytes in the line before the first number.
    pub(crate) column: usize,
    /// Number of blanks before the first number of each further line.
    pub(crate) indent: usize,
    /// Maximum length of a line in bytes, including the comma or bracket after its last number.
    pub(crate) width: usize,
    /// Distance in bytes from a comma to the next number: 2 with a blank; 1 without, and then lines
    /// are not broken.
    pub(crate) gap: usize,
}

/// Appends the numbers, separated by commas and blanks or line breaks, and returns the column after
/// the last one.
///
/// The first number is never preceded by a line break.
pub(crate) fn push_list<T: Print>(
    out: &mut Vec<u8>,
    values: impl IntoIterator<Item = T>,
    wrap: Wrap,
) -> usize {
    let mut values = values.into_iter();
    let Some(first) = values.next() else {
        return wrap.column;
    };
    let mut at = out.len();
    // Maximum size of a number with a line break before it.
    let room = ROOM + wrap.indent;
    // Makes room for many numbers at once; the rest is truncated at the end.
    let step = room + 16 * values.size_hint().0.min(255);
    out.resize(at + room, 0);
    let length = first.print(FloatForm::Shortest, part(out, at));
    at += length;
    let mut column = wrap.column + length;
    loop {
        out.resize(at + step, 0);
        let last = out.len() - room;
        let buffer = out.as_mut_slice();
        while at <= last {
            let Some(value) = values.next() else {
                out.truncate(at);
                return column;
            };
            let room: &mut [u8; ROOM] = part(buffer, at);
            *part(room, 0) = *b", ";
            let length = value.print(FloatForm::Shortest, part(room, wrap.gap));
            at += wrap.gap + length;
            column += wrap.gap + length;
            if column >= wrap.width {
                break_line(buffer, at - length, wrap.indent);
                at += wrap.indent;
                column = wrap.indent + length;
            }
        }
    }
}

/// Appends numbers in little-endian order, like [`push_list`]. Ignores an incomplete number at the
/// end.
pub(crate) fn push_le_list<T: Print>(out: &mut Vec<u8>, bytes: &[u8], wrap: Wrap) -> usize {
    push_list(out, T::from_le(bytes), wrap)
}

/// Size in bytes of the window for one literal: the longest has 25 bytes, and stores of whole words
/// exceed it slightly.
const WINDOW: usize = 32;

/// Buffer for one literal.
pub(crate) type Window = [u8; WINDOW];

/// Size in bytes that a list needs per number: a separator and a window.
const ROOM: usize = 2 + WINDOW;

/// Returns the first `N` bytes at `at`, which the caller has checked to exist.
#[inline(always)]
fn part<const N: usize>(bytes: &mut [u8], at: usize) -> &mut [u8; N] {
    bytes[at..].first_chunk_mut().expect("room was made for a whole window")
}

/// Replaces the blank before the literal at `at` by a line break and an indent.
#[cold]
fn break_line(buffer: &mut [u8], at: usize, indent: usize) {
    let literal = *part::<WINDOW>(buffer, at);
    buffer[at - 1] = b'\n';
    // Excess bytes are overwritten by the literal.
    for start in (at..at + indent).step_by(8) {
        *part(buffer, start) = [b' '; 8];
    }
    *part(buffer, at + indent) = literal;
}

/// Number that can be written.
pub(crate) trait Print: Copy {
    /// Writes the literal to the start of the window and returns its length. The bytes after it are
    /// undefined.
    fn print(self, form: FloatForm, window: &mut Window) -> usize;

    /// Iterates over the numbers that `bytes` holds in little-endian order.
    fn from_le(bytes: &[u8]) -> impl Iterator<Item = Self>;
}

macro_rules! from_le {
    ($type:ty) => {
        #[inline(always)]
        fn from_le(bytes: &[u8]) -> impl Iterator<Item = Self> {
            let (chunks, _) = bytes.as_chunks();
            chunks.iter().map(|chunk| <$type>::from_le_bytes(*chunk))
        }
    };
}

// Integers.

macro_rules! print_integers {
    ($($type:ty: $unsigned:ty, $print:ident;)*) => {$(
        impl Print for $type {
            #[inline(always)]
            fn print(self, _: FloatForm, window: &mut Window) -> usize {
                #[allow(unused_comparisons)]
                let negative = self < 0;
                let bits = self as $unsigned;
                let size = if negative { bits.wrapping_neg() } else { bits };
                // The digits overwrite the sign of a non-negative number.
                window[0] = b'-';
                $print(size.into(), window, usize::from(negative))
            }

            from_le!($type);
        }
    )*};
}

print_integers! {
    i8: u8, print_small_size;
    i16: u16, print_small_size;
    i32: u32, print_small_size;
    i64: u64, print_size;
    u8: u8, print_small_size;
    u16: u16, print_small_size;
    u32: u32, print_small_size;
    u64: u64, print_size;
}

const ZEROS: u64 = 0x3030_3030_3030_3030;
const TEN_TO_8: u64 = 100_000_000;
const TEN_TO_16: u64 = TEN_TO_8 * TEN_TO_8;

/// Splits a number below 10^8 into its eight digits, one per byte with the first one lowest.
#[inline(always)]
fn eight_digits(value: u32) -> u64 {
    // Each step computes all its quotients by one multiplication, and places each below its
    // remainder.
    let high = value / 10_000;
    let fours = u64::from(high) | u64::from(value - 10_000 * high) << 32;
    let high = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = high | (fours - 100 * high) << 16;
    let high = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    high | (pairs - 10 * high) << 8
}

/// Two digits of each number below 100. The other entries let a seven-bit index skip the bounds
/// check.
static PAIRS: [[u8; 2]; 128] = {
    let mut pairs = [[0; 2]; 128];
    let mut index = 0;
    while index < pairs.len() {
        pairs[index] = [b'0' + (index / 10) as u8, b'0' + (index % 10) as u8];
        index += 1;
    }
    pairs
};

/// Splits a number below 10^4 into its four digits, in ASCII.
#[inline(always)]
fn four_digits(value: u32) -> [[u8; 2]; 2] {
    let high = (value * 10_486) >> 20;
    let low = value - 100 * high;
    [PAIRS[high as usize & 127], PAIRS[low as usize & 127]]
}

/// Writes a number without a sign at `at`, 0 or 1, and returns its end.
#[inline(always)]
fn print_size(size: u64, window: &mut Window, at: usize) -> usize {
    if size < TEN_TO_8 {
        return print_up_to_eight(size as u32, window, at);
    }
    if size < TEN_TO_16 {
        let high = size / TEN_TO_8;
        let at = print_up_to_eight(high as u32, window, at);
        return print_eight((size - TEN_TO_8 * high) as u32, window, at);
    }
    let high = size / TEN_TO_16;
    let rest = size - TEN_TO_16 * high;
    let middle = rest / TEN_TO_8;
    let at = print_up_to_four(high as u32, window, at);
    let at = print_eight(middle as u32, window, at);
    print_eight((rest - TEN_TO_8 * middle) as u32, window, at)
}

/// Writes a number of 32 bits like [`print_size`], with less work if all bits are used.
#[inline(always)]
fn print_small_size(size: u32, window: &mut Window, at: usize) -> usize {
    if size < TEN_TO_8 as u32 {
        return print_up_to_eight(size, window, at);
    }
    // At most 42.
    let high = size / TEN_TO_8 as u32;
    let zeros = usize::from(high < 10);
    let pair = PAIRS[high as usize & 127];
    window[at & 1] = pair[zeros];
    window[(at & 1) + 1] = pair[1];
    print_eight(size - TEN_TO_8 as u32 * high, window, at + 2 - zeros)
}

#[inline(always)]
fn print_up_to_eight(size: u32, window: &mut Window, at: usize) -> usize {
    let digits = eight_digits(size);
    // The last digit stays, so that 0 has one.
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    *part(window, at & 15) = ((digits | ZEROS) >> (8 * zeros)).to_le_bytes();
    at + 8 - zeros as usize
}

#[inline(always)]
fn print_up_to_four(size: u32, window: &mut Window, at: usize) -> usize {
    let [high, low] = four_digits(size);
    let digits = u32::from(u16::from_le_bytes(high)) | u32::from(u16::from_le_bytes(low)) << 16;
    let zeros = ((digits ^ ZEROS as u32) | 1 << 24).trailing_zeros() / 8;
    *part(window, at & 15) = (digits >> (8 * zeros)).to_le_bytes();
    at + 4 - zeros as usize
}

#[inline(always)]
fn print_eight(size: u32, window: &mut Window, at: usize) -> usize {
    // The number divided by 10^6, with 32 bits after the point. The first two digits precede the
    // point; each multiplication by 100 moves the next two before it. The factor is 2^48 / 10^6;
    // its rounding and the addition compensate for the truncation.
    let mut fixed = ((u64::from(size) * 281_474_977) >> 16) + 1;
    let target: &mut [u8; 8] = part(window, at & 15);
    for pair in 0..4 {
        *part(target, 2 * pair) = PAIRS[(fixed >> 32) as usize & 127];
        fixed = (fixed & 0xffff_ffff) * 100;
    }
    at + 8
}

// Floats.

impl Print for f32 {
    #[inline(always)]
    fn print(self, form: FloatForm, window: &mut Window) -> usize {
        match print_common(self, form, window) {
            Some(length) => length,
            None => print_any(self, form, window),
        }
    }

    from_le!(f32);
}

impl Print for f64 {
    #[inline(always)]
    fn print(self, form: FloatForm, window: &mut Window) -> usize {
        print_any(self, form, window)
    }

    from_le!(f64);
}

/// Range of magnitudes for which [`print_common`] finds the digits. The first digit of the smallest
/// one has the place 10^-4; up to the largest one, no integer is shorter in scientific notation.
const COMMON_LOW: f32 = 1e-4;
const COMMON_HIGH: f32 = 1e5;
const LOWEST_EXPONENT: u32 = COMMON_LOW.to_bits() >> 23;
const EXPONENTS: usize = ((COMMON_HIGH.to_bits() >> 23) - LOWEST_EXPONENT + 1) as usize;

/// Decimal scale of the floats `significand * 2^power` of one binary exponent. Their last digit has
/// the place `10^place`, the largest one that does not exceed the distance of two neighbours.
#[derive(Clone, Copy)]
struct Scale {
    /// A quarter of that distance in units of `10^place`, times 2^32; exact.
    quarter: u64,
    /// Number of these units from which on there is one more digit.
    longer: u32,
}

/// DigitLayout of digits whose first one has the place `10^exponent`.
#[derive(Clone, Copy)]
struct DigitLayout {
    /// Mask of the digits before the point, among the first eight.
    whole: u64,
    /// The point, with the zeros around it.
    point: u64,
    /// Factor that moves the other digits to their position after the point.
    shift: u64,
    /// Number of bytes that the factor moves them by.
    rest: u8,
    /// Factor that extends the number to nine digits.
    fill: u32,
    /// Number of digits before the point; 0 if there is only a zero.
    integral: u8,
    /// Difference between the length and the number of digits, if there is a point.
    extra: u8,
}

static SCALES: [Scale; 32] = make_scales().0;
/// Two layouts per scale; the second one is for numbers with one more digit.
static LAYOUTS: [DigitLayout; 64] = make_scales().1;

const fn make_scales() -> ([Scale; 32], [DigitLayout; 64]) {
    let mut scales = [Scale { quarter: 0, longer: 0 }; 32];
    let mut layouts = [make_layout(0, 9); 64];
    let mut index = 0;
    while index < EXPONENTS {
        let power = (LOWEST_EXPONENT + index as u32) as i32 - 150;
        // The distance of two neighbours, 2^power, is below 1. Each step multiplies it by 10 until
        // it is not.
        let mut place = 0;
        let mut five = 1u64;
        while five.ilog2() as i32 - place + power < 0 {
            place -= 1;
            five *= 5;
        }
        let quarter = five << (30 - place + power);
        let digits = ((quarter << 25) >> 32).ilog10() + 1;
        let exponent = place + digits as i32 - 1;
        scales[index] = Scale { quarter, longer: 10u32.pow(digits) };
        layouts[2 * index] = make_layout(exponent, digits);
        layouts[2 * index + 1] = make_layout(exponent + 1, digits + 1);
        index += 1;
    }
    (scales, layouts)
}

const fn make_layout(exponent: i32, digits: u32) -> DigitLayout {
    // The largest floats of an exponent may have no number with one more digit.
    let fill = if digits > 9 { 0 } else { 10u32.pow(9 - digits) };
    if exponent < 0 {
        let zeros = exponent.unsigned_abs();
        DigitLayout {
            whole: 0,
            point: u64::from_le_bytes(*b"0.000000") & ((1 << (8 * (zeros + 1))) - 1),
            shift: 1 << (8 * (zeros + 1)),
            fill,
            rest: zeros as u8 + 1,
            integral: 0,
            extra: zeros as u8 + 1,
        }
    } else {
        let whole = exponent as u32 + 1;
        DigitLayout {
            whole: (1 << (8 * whole)) - 1,
            point: (b'.' as u64) << (8 * whole),
            shift: 1 << 8,
            fill,
            rest: 1,
            integral: whole as u8,
            extra: 1,
        }
    }
}

/// Writes an `f32` of a common magnitude, unless it is shorter in scientific notation.
///
/// The digits follow R. Giulietti, "The Schubfach way to render doubles" (2020): among the decimal
/// numbers with the last place of its [`Scale`] that round to the float, one that ends with a zero
/// if there is one, else the nearest.
#[inline(always)]
fn print_common(value: f32, form: FloatForm, window: &mut Window) -> Option<usize> {
    let bits = value.to_bits();
    let size = bits & (u32::MAX >> 1);
    if !(COMMON_LOW.to_bits()..COMMON_HIGH.to_bits()).contains(&size) {
        return None;
    }
    let index = ((size >> 23) - LOWEST_EXPONENT) as usize & 31;
    let Scale { quarter, longer } = SCALES[index];
    let fraction = size & 0x7f_ffff;

    // Distances in units times 2^32. A decimal number rounds to the float if it is nearer than half
    // the distance to the neighbour, or at exactly this distance if the float is even. The
    // neighbour below a power of two is only half as far away.
    let scaled = u64::from(4 * (fraction | 0x80_0000)) * quarter;
    let even = u64::from(!size & 1);
    let reach_up = 2 * quarter + even;
    let reach_down = ((2 * quarter) >> u32::from(fraction == 0)) + even;
    let floor = (scaled >> 32) as u32;
    let tens = floor / 10 * 10;
    let above_tens = scaled - (u64::from(tens) << 32);
    let below_tens = (10 << 32) - above_tens;
    let above_floor = scaled & 0xffff_ffff;
    let nearest = floor + u32::from(above_floor + u64::from(floor & 1) > 1 << 31);
    let upper = if below_tens < reach_up { tens + 10 } else { nearest };
    let digits = if above_tens < reach_down { tens } else { upper };

    let layout = &LAYOUTS[2 * index + usize::from(digits >= longer)];
    let digits = digits * layout.fill;
    let first = digits / 10;
    let last = digits - 10 * first;
    let first = eight_digits(first);
    // The lowest byte is the first digit, so the highest nonzero byte is the last digit that is not
    // a trailing zero.
    let count = (first | 1).ilog2() as usize / 8 + 1;
    let count = if last > 0 { 9 } else { count };
    let first = first | ZEROS;
    let last = last as u8 | b'0';
    if count == 1 && layout.extra == 5 {
        return None;
    }

    window[0] = b'-';
    let start = (bits >> 31) as usize;
    let after = (start + usize::from(layout.rest)) & 15;
    *part(window, after) = first.to_le_bytes();
    window[after + 8] = last;
    // The next store restores the part that it overwrites.
    let whole = first & layout.whole;
    let point = whole | layout.point | (first - whole).wrapping_mul(layout.shift);
    *part(window, start) = point.to_le_bytes();
    let (integral, extra) = (usize::from(layout.integral), usize::from(layout.extra));
    let length = if count > integral {
        count + extra
    } else if form == FloatForm::Float {
        integral + 2
    } else {
        integral
    };
    Some(start + length)
}

/// Properties of `f32` and `f64` that [`print_any`] needs.
trait Float: zmij::Float + Copy {
    /// Returns whether the number is negative, and its magnitude if it is finite.
    fn parts(self) -> (bool, Option<Self>);
    fn is_within(self, low: f32, high: f32) -> bool;
    /// Returns the bits of a NaN, and whether it is the canonical one but for the sign.
    fn nan(self) -> Option<(u64, bool)>;
    /// Returns the magnitude of an integer so large that not every integer of its size is a float.
    fn large_integer(self) -> Option<u128>;
}

macro_rules! float {
    ($type:ty) => {
        impl Float for $type {
            fn parts(self) -> (bool, Option<Self>) {
                let size = self.abs();
                (self.is_sign_negative(), size.is_finite().then_some(size))
            }

            fn is_within(self, low: f32, high: f32) -> bool {
                (<$type>::from(low)..<$type>::from(high)).contains(&self)
            }

            fn nan(self) -> Option<(u64, bool)> {
                let quiet = <$type>::INFINITY.to_bits() | 1 << (<$type>::MANTISSA_DIGITS - 2);
                let plain = self.to_bits() & !(-0.0 as $type).to_bits() == quiet;
                self.is_nan().then_some((self.to_bits().into(), plain))
            }

            fn large_integer(self) -> Option<u128> {
                let size = self.abs();
                let exact = (1u64 << <$type>::MANTISSA_DIGITS) as $type;
                // Numbers of more than 22 digits are always shorter in scientific notation.
                (size > exact && size < 1e22).then_some(size as u128)
            }
        }
    };
}

float!(f32);
float!(f64);

/// Writes any float.
#[inline(never)]
fn print_any<F: Float>(value: F, form: FloatForm, window: &mut Window) -> usize {
    let mut text = Text { window, length: 0 };
    let (negative, size) = value.parts();
    let nan = value.nan();
    if let Some((bits, false)) = nan {
        text.push(b"nan(");
        let digits = 16 - bits.leading_zeros() / 4;
        for digit in (0..digits).rev() {
            text.push(&[b"0123456789abcdef"[(bits >> (4 * digit) & 15) as usize]]);
        }
        text.push(b")");
        return text.length;
    }
    if negative {
        text.push(b"-");
    }
    let Some(size) = size else {
        text.push(if nan.is_some() { b"nan" } else { b"inf" });
        return text.length;
    };

    let mut buffer = zmij::Buffer::new();
    let shortest = buffer.format_finite(size).as_bytes();
    // In this range the crate uses the required notation.
    if size.is_within(1e-3, 1e5) {
        let integral = shortest.strip_suffix(b".0");
        text.push(match form {
            FloatForm::Shortest => integral.unwrap_or(shortest),
            FloatForm::Float => shortest,
        });
        return text.length;
    }
    if size.is_within(f32::MIN_POSITIVE, 9e-7)
        && let Some((digits, exponent)) = split_exponent(shortest)
    {
        text.push(digits);
        text.push(b"e-");
        if exponent.len() < 2 {
            text.push(b"0");
        }
        text.push(exponent);
        return text.length;
    }
    let decimal = Decimal::parse(shortest);
    let digits = &decimal.digits[..decimal.count];
    let exponent_length = if decimal.exponent.abs() < 100 { 4 } else { 5 };
    let scientific = digits.len() + usize::from(digits.len() > 1) + exponent_length;
    // Number of digits before the point, if there are any.
    let whole = usize::try_from(decimal.exponent + 1).unwrap_or(0);
    let fixed = if decimal.exponent < 0 {
        digits.len() + 1 + decimal.exponent.unsigned_abs() as usize
    } else if digits.len() > whole {
        digits.len() + 1
    } else {
        whole
    };
    if fixed > scientific {
        push_scientific(&mut text, &decimal);
    } else {
        push_fixed(&mut text, &decimal, value, form);
    }
    text.length
}

/// Writes the digits with a point after the first, and an exponent.
fn push_scientific(text: &mut Text<'_>, decimal: &Decimal) {
    let digits = &decimal.digits[..decimal.count];
    text.push(&digits[..1]);
    if digits.len() > 1 {
        text.push(b".");
        text.push(&digits[1..]);
    }
    text.push(if decimal.exponent < 0 { b"e-" } else { b"e+" });
    let mut exponent = [0; WINDOW];
    let length = print_size(decimal.exponent.unsigned_abs().into(), &mut exponent, 0);
    if length < 2 {
        text.push(b"0");
    }
    text.push(&exponent[..length]);
}

/// Writes the digits with the point in place, if any digits follow it.
fn push_fixed<F: Float>(text: &mut Text<'_>, decimal: &Decimal, value: F, form: FloatForm) {
    let digits = &decimal.digits[..decimal.count];
    // Number of digits before the point, if there are any.
    let whole = usize::try_from(decimal.exponent + 1).unwrap_or(0);
    if decimal.exponent < 0 {
        text.push(b"0.");
        text.push(&b"0000000000"[..decimal.exponent.unsigned_abs() as usize - 1]);
        text.push(digits);
    } else if digits.len() > whole {
        text.push(&digits[..whole]);
        text.push(b".");
        text.push(&digits[whole..]);
    } else {
        match value.large_integer() {
            // Writes all digits of the value rather than zeros after the shortest ones: equally
            // long, and exact.
            Some(integer) => {
                let mut rest = [0; WINDOW];
                let high = (integer / u128::from(TEN_TO_16)) as u64;
                let low = (integer % u128::from(TEN_TO_16)) as u64;
                let mut length = 0;
                if high > 0 {
                    length = print_size(high, &mut rest, 0);
                    length = print_eight((low / TEN_TO_8) as u32, &mut rest, length);
                    length = print_eight((low % TEN_TO_8) as u32, &mut rest, length);
                } else {
                    length += print_size(low, &mut rest, 0);
                }
                text.push(&rest[..length]);
            }
            None => {
                text.push(digits);
                text.push(&b"0000000000"[..whole - digits.len()]);
            }
        }
        if form == FloatForm::Float {
            text.push(b".0");
        }
    }
}

/// Splits a number at `e-`.
fn split_exponent(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mark = text.iter().rposition(|byte| *byte == b'e')?;
    Some((&text[..mark], text[mark + 1..].strip_prefix(b"-")?))
}

/// Literal under construction.
struct Text<'window> {
    window: &'window mut Window,
    length: usize,
}

impl Text<'_> {
    fn push(&mut self, bytes: &[u8]) {
        self.window[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// ASCII digits without zeros at either end, and the place of the first: 12.5 is `125` and 1. Zero
/// is `0` and 0.
struct Decimal {
    digits: [u8; WINDOW],
    count: usize,
    exponent: i32,
}

impl Decimal {
    /// Parses a number such as `12.5`, `0.0125` or `1e-7`.
    fn parse(text: &[u8]) -> Self {
        let mut decimal = Decimal { digits: [b'0'; WINDOW], count: 0, exponent: -1 };
        let mut point = false;
        let mut rest = text;
        while let [byte, after @ ..] = rest {
            rest = after;
            match byte {
                b'.' => point = true,
                b'e' => break,
                digit => {
                    let started = decimal.count > 0 || *digit != b'0';
                    if started {
                        decimal.digits[decimal.count] = *digit;
                        decimal.count += 1;
                    }
                    // Digits before the point raise the exponent; zeros after the point before the
                    // first digit lower it.
                    if !point && started {
                        decimal.exponent += 1;
                    } else if point && !started {
                        decimal.exponent -= 1;
                    }
                }
            }
        }
        if decimal.count == 0 {
            decimal.count = 1;
            decimal.exponent = 0;
            return decimal;
        }
        while decimal.digits[..decimal.count].ends_with(b"0") {
            decimal.count -= 1;
        }
        let (negative, size) = match rest {
            [b'-', size @ ..] => (true, size),
            [b'+', size @ ..] | size => (false, size),
        };
        let size = size.iter().fold(0, |size, digit| 10 * size + i32::from(digit - b'0'));
        decimal.exponent += if negative { -size } else { size };
        decimal
    }
}
