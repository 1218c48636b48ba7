//! Linear quantization of floats by scale and zero point, and its inverse.
//!
//! Quotients are clamped before they are rounded: the limits are integers, so the order does not
//! matter, and rounded values are small. Adding and subtracting a number whose last bit has value 1
//! then rounds to the nearest integer, ties to even, on all machines.

use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use super::{Codes, Spread};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{ranges, rows};
use sardonyx_simd::number::{
    Math, Number, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, to_f32_odd,
};
use sardonyx_simd::{Ended, Level, Loop};

/// Scales and zero points of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Scaling<'a, R = f32> {
    /// Elements that each scale belongs to.
    pub spread: Spread,
    /// Scales, as many as [`Spread::scales`] returns.
    pub scales: &'a [R],
    /// Zero points: none, one for all, or as many as scales.
    pub zeros: &'a [R],
}

/// Precision that a quotient is rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Type in which the quotient is computed.
    Same,
    F16,
    Bf16,
}

impl Precision {
    /// Rounds `x` to the nearest number of the precision.
    #[inline(always)]
    pub fn round(self, x: f32) -> f32 {
        match self {
            Precision::Same => x,
            Precision::F16 => f16_to_f32(f32_to_f16(x)),
            Precision::Bf16 => bf16_to_f32(f32_to_bf16(x)),
        }
    }
}

/// Integer type of fewer than 22 bits that floats are quantized to.
pub trait Code: Number {
    /// Converts the lowest bits to an integer.
    fn of_low_bits(bits: u32) -> Self;
}

/// Number type that is dequantized.
pub trait Stored: Number {
    /// Converts the number to f32.
    fn to_f32(self) -> f32;
}

/// Float type that is divided.
pub trait Dividend: Math {
    /// Converts the float to f32 such that rounding once more, to half as many bits, gives the same
    /// result as rounding once (round to odd for f64).
    fn to_narrower(self) -> f32;
}

macro_rules! codes {
    ($($t:ty)*) => {$(
        impl Code for $t {
            #[inline(always)]
            fn of_low_bits(bits: u32) -> $t { bits as $t }
        }
    )*};
}

macro_rules! stored {
    ($($t:ty)*) => {$(
        impl Stored for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 { self as f32 }
        }
    )*};
}

codes!(i8 u8 i16 u16);
stored!(i8 u8 i16 u16 i32 f32);

impl Dividend for f32 {
    #[inline(always)]
    fn to_narrower(self) -> f32 {
        self
    }
}

impl Dividend for f64 {
    #[inline(always)]
    fn to_narrower(self) -> f32 {
        to_f32_odd(self)
    }
}

impl<R> Scaling<'_, R> {
    /// Checks the numbers of scales and zero points for a tensor of so many elements.
    ///
    /// # Panics
    ///
    /// If the numbers do not fit the spread.
    fn check(&self, elements: usize) {
        self.spread.check(elements);
        assert_eq!(self.scales.len(), self.spread.scales(), "scales of {:?}", self.spread);
        let zeros = self.zeros.len();
        assert!(zeros <= 1 || zeros == self.scales.len(), "{zeros} zero points");
    }
}

/// Conversion of an element by a scale and a zero point.
trait Each<R>: Copy + Sync {
    /// Type of the elements.
    type From: Copy + Sync;
    /// Type of the results.
    type To: Send;
    /// Converts one element.
    fn convert(self, x: Self::From, scale: R, zero: R) -> Self::To;
}

/// Loop that converts elements.
struct Run<'a, E: Each<R>, R> {
    scaling: &'a Scaling<'a, R>,
    each: E,
    /// Index in the tensor of the first element of `x`.
    start: usize,
    x: &'a [E::From],
    out: &'a mut [E::To],
}

impl<E: Each<R>, R: Number> Loop for Run<'_, E, R> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Run { scaling: &Scaling { spread, scales, zeros }, each, start, x, out } = self;
        let end = start + out.len();
        let mut at = start;
        while at < end {
            let piece = spread.piece(at, end);
            let part = at - start..at - start + piece.len;
            let pairs = out[part.clone()].iter_mut().zip(&x[part]);
            let places = piece.first..piece.first + if piece.varies { piece.len } else { 1 };
            let scales = &scales[places.clone()];
            let zero = match zeros {
                [] => R::ZERO,
                [one] => *one,
                several => several[piece.first],
            };
            if !piece.varies {
                let scale = scales[0];
                pairs.for_each(|(y, x)| *y = each.convert(*x, scale, zero));
            } else if zeros.len() > 1 {
                let both = scales.iter().zip(&zeros[places]);
                pairs
                    .zip(both)
                    .for_each(|((y, x), (scale, zero))| *y = each.convert(*x, *scale, *zero));
            } else {
                pairs.zip(scales).for_each(|((y, x), scale)| *y = each.convert(*x, *scale, zero));
            }
            at += piece.len;
        }
    }
}

/// Converts all elements, divided between threads.
fn run<E: Each<R>, R: Number>(
    exec: &Exec<'_>,
    scaling: &Scaling<'_, R>,
    each: E,
    x: &[E::From],
    out: &mut [E::To],
) -> Result<(), Ended> {
    scaling.check(out.len());
    assert_eq!(x.len(), out.len(), "as many elements before as after");
    let level = Level::new(exec.isa);
    rows(exec.pool, out, 1, 2, |start, out| {
        level.run(Run { scaling, each, start, x: &x[start..start + out.len()], out })
    })
}

/// Value: number whose last bit has value 1, as in all its sums with integers of fewer than 22
/// bits.
const ONES: f32 = 12_582_912.0;

/// Conversion that rounds quotients to integers, adds zero points, and clamps to limits.
#[derive(Clone, Copy)]
struct ToCodes<T> {
    low: f32,
    high: f32,
    codes: PhantomData<T>,
}

impl<T: Code> Each<f32> for ToCodes<T> {
    type From = f32;
    type To = T;

    #[inline(always)]
    fn convert(self, x: f32, scale: f32, zero: f32) -> T {
        let (low, high, quotient) = (self.low - zero, self.high - zero, x / scale);
        let quotient = if quotient > low { quotient } else { low };
        let quotient = if quotient < high { quotient } else { high };
        let sum = (quotient + ONES) - ONES + zero;
        T::of_low_bits((sum + ONES).to_bits().wrapping_sub(ONES.to_bits()))
    }
}

/// Quantizes floats: `x / scale` is rounded to the nearest integer, ties to even, the zero point is
/// added, and the sum is clamped to the range of the type. NaN becomes the lowest integer. Zero
/// points are integers of the type.
///
/// # Panics
///
/// If lengths do not fit, or this machine lacks the instruction set.
pub fn quantize<T: Code>(
    exec: &Exec<'_>,
    scaling: &Scaling<'_>,
    x: &[f32],
    out: &mut [T],
) -> Result<(), Ended> {
    let limit = |limit: T| limit.to_f64() as f32;
    let codes = PhantomData;
    let each = ToCodes::<T> { low: limit(T::LOWEST), high: limit(T::HIGHEST), codes };
    run(exec, scaling, each, x, out)
}

/// Cache: elements that are converted at a time if several codes share a byte; a multiple of the
/// codes in a byte.
const TILE: usize = 512;

/// Loop that quantizes to codes that share bytes.
struct RunPacked<'a> {
    scaling: &'a Scaling<'a>,
    each: ToCodes<u8>,
    /// Number of bits of a code.
    bits: usize,
    /// Index in the tensor of the first element of `x`.
    start: usize,
    x: &'a [f32],
    out: &'a mut [u8],
}

impl Loop for RunPacked<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let RunPacked { scaling, each, bits, start, x, out } = self;
        let tiles = x.chunks(TILE).zip(out.chunks_mut(TILE * bits / 8));
        for (tile, (x, out)) in tiles.enumerate() {
            let mut codes = [0u8; TILE];
            let start = start + tile * TILE;
            Run { scaling, each, start, x, out: &mut codes[..x.len()] }.run::<FMA>();
            // The codes after the last one are zeros.
            if bits == 4 {
                for (byte, codes) in out.iter_mut().zip(codes.chunks_exact(2)) {
                    *byte = codes[0] & 15 | codes[1] << 4;
                }
            } else {
                for (byte, codes) in out.iter_mut().zip(codes.chunks_exact(4)) {
                    *byte =
                        codes[0] & 3 | (codes[1] & 3) << 2 | (codes[2] & 3) << 4 | codes[3] << 6;
                }
            }
        }
    }
}

/// Quantizes floats like [`quantize`], to integers of 2 or 4 bits that are packed from the lowest
/// bits of each byte on. The rest of the last byte is 0.
///
/// # Panics
///
/// If lengths do not fit, `bits` is neither 2 nor 4, or this machine lacks the instruction set.
pub fn quantize_packed(
    exec: &Exec<'_>,
    scaling: &Scaling<'_>,
    (bits, signed): (usize, bool),
    x: &[f32],
    out: &mut [u8],
) -> Result<(), Ended> {
    assert!(bits == 2 || bits == 4, "codes of {bits} bits");
    scaling.check(x.len());
    let per_byte = 8 / bits;
    assert_eq!(out.len(), x.len().div_ceil(per_byte), "bytes for {} codes", x.len());
    let count = (1 << bits) as f32;
    let low = if signed { -count / 2.0 } else { 0.0 };
    let each = ToCodes { low, high: low + count - 1.0, codes: PhantomData };
    let level = Level::new(exec.isa);
    rows(exec.pool, out, 1, 2 * per_byte, |first, out| {
        let start = first * per_byte;
        let x = &x[start..x.len().min(start + out.len() * per_byte)];
        level.run(RunPacked { scaling, each, bits, start, x, out });
    })
}

/// Conversion of codes to floats.
#[derive(Clone, Copy)]
struct FromCodes<T>(PhantomData<T>);

impl<T: Stored> Each<f32> for FromCodes<T> {
    type From = T;
    type To = f32;

    #[inline(always)]
    fn convert(self, x: T, scale: f32, zero: f32) -> f32 {
        (x.to_f32() - zero) * scale
    }
}

/// Dequantizes numbers: `(x - zero point) * scale`.
///
/// # Panics
///
/// If lengths do not fit, or this machine lacks the instruction set.
pub fn dequantize<T: Stored>(
    exec: &Exec<'_>,
    scaling: &Scaling<'_>,
    x: &[T],
    out: &mut [f32],
) -> Result<(), Ended> {
    run(exec, scaling, FromCodes::<T>(PhantomData), x, out)
}

/// Loop that dequantizes codes that share bytes.
struct RunShared<'a> {
    scaling: &'a Scaling<'a>,
    codes: Codes<'a>,
    start: usize,
    out: &'a mut [f32],
}

impl Loop for RunShared<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let RunShared { scaling, codes, start, out } = self;
        let each = FromCodes::<i8>(PhantomData);
        // All tiles but the first begin at a byte boundary.
        let per_byte = 8 / codes.bits;
        let head = (start.next_multiple_of(per_byte) - start).min(out.len());
        let (head, rest) = out.split_at_mut(head);
        let mut at = start;
        for out in std::iter::once(head).chain(rest.chunks_mut(TILE)) {
            let mut unpacked = [0i8; TILE];
            let unpacked = &mut unpacked[..out.len()];
            let (first, whole) = (at / per_byte, out.len() / per_byte);
            let whole = if at.is_multiple_of(per_byte) { whole } else { 0 };
            let bytes = &codes.bytes[first..first + whole];
            match (codes.bits, codes.signed) {
                (4, true) => {
                    unpack::<2>(bytes, unpacked, |byte, place| byte << (4 - 4 * place) >> 4)
                }
                (4, false) => {
                    unpack::<2>(bytes, unpacked, |byte, place| byte >> (4 * place) & 15);
                }
                (_, true) => {
                    unpack::<4>(bytes, unpacked, |byte, place| byte << (6 - 2 * place) >> 6)
                }
                (_, false) => unpack::<4>(bytes, unpacked, |byte, place| byte >> (2 * place) & 3),
            }
            for (place, code) in unpacked.iter_mut().enumerate().skip(whole * per_byte) {
                *code = codes.get(at + place) as i8;
            }
            let len = out.len();
            Run { scaling, each, start: at, x: unpacked, out }.run::<FMA>();
            at += len;
        }
    }
}

/// Writes the codes of each byte; `code` extracts the one at a position in a byte.
#[inline(always)]
fn unpack<const PER_BYTE: usize>(bytes: &[u8], out: &mut [i8], code: impl Fn(i8, usize) -> i8) {
    for (codes, byte) in out.chunks_exact_mut(PER_BYTE).zip(bytes) {
        for (place, out) in codes.iter_mut().enumerate() {
            *out = code(byte.cast_signed(), place);
        }
    }
}

/// Dequantizes numbers like [`dequantize`], from integers of 2 or 4 bits.
///
/// # Panics
///
/// If lengths do not fit, codes have neither 2 nor 4 bits, or this machine lacks the instruction
/// set.
pub fn dequantize_packed(
    exec: &Exec<'_>,
    scaling: &Scaling<'_>,
    codes: Codes<'_>,
    out: &mut [f32],
) -> Result<(), Ended> {
    assert!(codes.bits == 2 || codes.bits == 4, "codes of {} bits", codes.bits);
    scaling.check(out.len());
    assert_eq!(codes.bytes.len(), out.len().div_ceil(8 / codes.bits), "{} codes", out.len());
    let level = Level::new(exec.isa);
    rows(exec.pool, out, 1, 2, |start, out| {
        level.run(RunShared { scaling, codes, start, out });
    })
}

/// Conversion that divides in a precision, and adds zero points.
#[derive(Clone, Copy)]
struct Divide<R>(Precision, PhantomData<R>);

impl<R: Dividend> Each<R> for Divide<R> {
    type From = R;
    type To = f32;

    #[inline(always)]
    fn convert(self, x: R, scale: R, zero: R) -> f32 {
        let quotient = self.0.round(x.div(scale).to_narrower());
        self.0.round(quotient + zero.to_narrower())
    }
}

/// Divides numbers: `x / scale` is rounded to `precision`, and so is its sum with the zero point,
/// if there is one. Quotients of f64 are rounded such that rounding them once more, to half as many
/// bits, gives the same result as rounding once.
///
/// # Panics
///
/// If lengths do not fit, or this machine lacks the instruction set.
pub fn divide<R: Dividend>(
    exec: &Exec<'_>,
    scaling: &Scaling<'_, R>,
    precision: Precision,
    x: &[R],
    out: &mut [f32],
) -> Result<(), Ended> {
    // Adding -0 keeps the sign of a zero.
    let nothing = [R::ZERO.neg()];
    let zeros = if scaling.zeros.is_empty() { &nothing } else { scaling.zeros };
    run(exec, &Scaling { zeros, ..*scaling }, Divide(precision, PhantomData), x, out)
}

/// Loop that returns the least and the greatest of some numbers and 0, or NaN for both if a number
/// is NaN.
struct Limits<'a>(&'a [f32]);

impl Loop for Limits<'_> {
    type Out = [f32; 2];

    #[inline(always)]
    fn run<const FMA: bool>(self) -> [f32; 2] {
        /// Geometry: numbers that are compared at a time, as the compiler does not reorder
        /// comparisons of floats.
        const LANES: usize = 64;
        let (mut low, mut high, mut is_nan) = ([0f32; LANES], [0f32; LANES], [0u32; LANES]);
        for chunk in self.0.chunks(LANES) {
            let limits = low.iter_mut().zip(&mut high).zip(&mut is_nan);
            for (x, ((low, high), is_nan)) in chunk.iter().zip(limits) {
                *low = if *x < *low { *x } else { *low };
                *high = if *x > *high { *x } else { *high };
                *is_nan |= u32::from(x.is_nan());
            }
        }
        if is_nan.contains(&1) {
            return [f32::NAN; 2];
        }
        [low.into_iter().fold(0.0, f32::min), high.into_iter().fold(0.0, f32::max)]
    }
}

/// Returns the least and the greatest of some numbers and 0, or NaN for both if a number is NaN.
///
/// # Panics
///
/// If this machine lacks the instruction set.
pub fn limits(exec: &Exec<'_>, x: &[f32]) -> Result<[f32; 2], Ended> {
    let level = Level::new(exec.isa);
    let all = Mutex::new([0f32; 2]);
    ranges(exec.pool, x.len(), 1, |part| {
        let [low, high] = level.run(Limits(&x[part]));
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let [least, greatest] = *all;
        // Zeros have one sign here, and NaN stays, so the order of parts does not matter.
        let is_nan = low.is_nan() || least.is_nan();
        *all = if is_nan { [f32::NAN; 2] } else { [least.min(low), greatest.max(high)] };
    })?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    const HARD: [f32; 16] = [
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        0.499_999_97,
        126.5,
        1e9,
        -1e9,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        65_535.5,
    ];

    /// Calls `f` with each instruction set, on one thread and on several.
    fn on_all_machines(f: impl Fn(&Exec<'_>)) {
        for &isa in Isa::available() {
            for threads in [1, 3] {
                f(&Exec::new(&Pool::new(threads), isa));
            }
        }
    }

    fn floats(len: usize, salt: usize) -> Vec<f32> {
        let random = |i: usize| ((i + salt) * 7919 % 65_537) as f32 / 128.0 - 256.0;
        (0..len).map(|i| if i % 3 == 0 { HARD[(i / 3 + salt) % 16] } else { random(i) }).collect()
    }

    /// Returns spreads and numbers of elements, with sizes 0 and 1 and odd ones.
    fn spreads() -> Vec<(Spread, usize)> {
        let mut spreads: Vec<_> = [0, 1, 5, 513, 70_001].map(|len| (Spread::One, len)).into();
        for sizes in
            [[1, 1, 1], [2, 3, 1], [3, 5, 7], [0, 3, 1], [2, 0, 3], [5, 3, 513], [37, 1031, 1]]
        {
            let len = sizes.iter().product();
            spreads.push((Spread::Slices(sizes), len));
            spreads.extend([1, 2, 16, 99].map(|block| (Spread::Blocks { sizes, block }, len)));
        }
        spreads
    }

    /// Returns the index of an element's scale by the definition.
    fn place(spread: Spread, at: usize) -> usize {
        match spread {
            Spread::One => 0,
            Spread::Slices([_, along, after]) => at / after % along,
            Spread::Blocks { sizes: [_, along, after], block } => {
                let blocks = along.div_ceil(block);
                (at / (along * after) * blocks + at / after % along / block) * after + at % after
            }
        }
    }

    /// Rounds a quotient to the nearest integer, ties to even.
    fn nearest(quotient: f32) -> f64 {
        let quotient = f64::from(quotient);
        let floor = quotient.floor();
        match quotient - floor {
            above if above < 0.5 => floor,
            above if above > 0.5 => floor + 1.0,
            above if above.is_nan() => quotient,
            _ if floor % 2.0 == 0.0 => floor,
            _ => floor + 1.0,
        }
    }

    fn naive(x: f32, scale: f32, zero: f32, low: f64, high: f64) -> f64 {
        let sum = nearest(x / scale) + f64::from(zero);
        if sum.is_nan() { low } else { sum.clamp(low, high) }
    }

    fn check_codes<T: Code>(spread: Spread, x: &[f32], scales: &[f32], zeros: &[f32]) {
        let scaling = Scaling { spread, scales, zeros };
        let zero = |place: usize| zeros.get(place).or(zeros.first()).copied().unwrap_or(0.0);
        let (low, high) = (T::LOWEST.to_f64(), T::HIGHEST.to_f64());
        let want = x.iter().enumerate().map(|(at, x)| {
            let place = place(spread, at);
            naive(*x, scales[place], zero(place), low, high)
        });
        let want: Vec<f64> = want.collect();
        on_all_machines(|exec| {
            let mut out = vec![T::ZERO; x.len()];
            quantize(exec, &scaling, x, &mut out).unwrap();
            assert!(out.iter().zip(&want).all(|(y, want)| y.to_f64() == *want), "{scaling:?}");
        });
    }

    #[test]
    fn codes_of_whole_bytes() {
        for (spread, len) in spreads() {
            let x = floats(len, len);
            let count = spread.scales();
            let scales: Vec<f32> = (0..count).map(|i| [1.0, 0.1, 3.0, -0.7][i % 4]).collect();
            let zeros = |low: i32, high: i32| -> Vec<f32> {
                (0..count as i32).map(|i| [low, high, 3, 0, 1][i as usize % 5] as f32).collect()
            };
            check_codes::<u8>(spread, &x, &scales, &[]);
            check_codes::<u8>(spread, &x, &scales, &zeros(0, 255));
            check_codes::<i8>(spread, &x, &scales, &zeros(-128, 127));
            check_codes::<u16>(spread, &x, &scales, &zeros(0, 65_535));
            check_codes::<i16>(spread, &x, &scales, &zeros(-32_768, 32_767));
            check_codes::<i16>(spread, &x, &scales, &[-32_768.0]);
        }
    }

    #[test]
    fn codes_that_share_bytes() {
        for (spread, len) in spreads() {
            let x = floats(len, len);
            let scales: Vec<f32> = (0..spread.scales()).map(|i| [1.0, 90.0, 30.0][i % 3]).collect();
            for (bits, signed) in [(2, false), (2, true), (4, false), (4, true)] {
                let most = (1i32 << (bits - usize::from(signed))) - 1;
                let least = if signed { -most - 1 } else { 0 };
                let zeros: Vec<f32> = (0..scales.len())
                    .map(|i| if i % 2 == 0 { most } else { least } as f32)
                    .collect();
                let scaling = Scaling { spread, scales: &scales, zeros: &zeros };
                let want: Vec<i32> = (0..len)
                    .map(|at| {
                        let place = place(spread, at);
                        let limits = (f64::from(least), f64::from(most));
                        naive(x[at], scales[place], zeros[place], limits.0, limits.1) as i32
                    })
                    .collect();
                on_all_machines(|exec| {
                    let mut bytes = vec![0xff; len.div_ceil(8 / bits)];
                    quantize_packed(exec, &scaling, (bits, signed), &x, &mut bytes).unwrap();
                    let codes = Codes { bytes: &bytes, bits, signed };
                    let found: Vec<i32> = (0..codes.len()).map(|index| codes.get(index)).collect();
                    assert!(found[..len] == want, "{bits} bits, {signed}, {spread:?}");
                    assert!(found[len..].iter().all(|rest| *rest == 0));
                    // Dequantized again.
                    let mut back = vec![f32::NAN; len];
                    dequantize_packed(exec, &scaling, codes, &mut back).unwrap();
                    let numbers = want.iter().enumerate().map(|(at, code)| {
                        let place = place(spread, at);
                        (*code as f32 - zeros[place]) * scales[place]
                    });
                    assert!(back.iter().copied().eq(numbers), "{bits} bits, {signed}, {spread:?}");
                });
            }
        }
    }

    fn check_numbers<T: Stored>(spread: Spread, x: &[T], value: impl Fn(T) -> f32) {
        let scales: Vec<f32> = (0..spread.scales()).map(|i| [1.0, 0.1, 30.0][i % 3]).collect();
        let many: Vec<f32> = (0..scales.len()).map(|i| (i * 37 % 256) as f32).collect();
        for zeros in [&[][..], &[7.0], &many] {
            let scaling = Scaling { spread, scales: &scales, zeros };
            let zero = |place: usize| zeros.get(place).or(zeros.first()).copied().unwrap_or(0.0);
            let want: Vec<u32> = x
                .iter()
                .enumerate()
                .map(|(at, x)| {
                    let place = place(spread, at);
                    ((value(*x) - zero(place)) * scales[place]).to_bits()
                })
                .collect();
            on_all_machines(|exec| {
                let mut out = vec![0.0; x.len()];
                dequantize(exec, &scaling, x, &mut out).unwrap();
                assert!(out.iter().map(|y| y.to_bits()).eq(want.iter().copied()), "{scaling:?}");
            });
        }
    }

    #[test]
    fn numbers_of_codes() {
        for (spread, len) in spreads() {
            let random = |i: usize| (i * 7919 % 65_537) as i32;
            let of = |f: fn(i32) -> i32| (0..len).map(random).map(f).collect::<Vec<i32>>();
            let x: Vec<i8> = of(|i| i).iter().map(|i| *i as i8).collect();
            check_numbers(spread, &x, f32::from);
            let x: Vec<u8> = of(|i| i).iter().map(|i| *i as u8).collect();
            check_numbers(spread, &x, f32::from);
            let x: Vec<i16> = of(|i| i).iter().map(|i| *i as i16).collect();
            check_numbers(spread, &x, f32::from);
            let x: Vec<u16> = of(|i| i).iter().map(|i| *i as u16).collect();
            check_numbers(spread, &x, f32::from);
            check_numbers(spread, &of(|i| i * 32_767), |x| x as f32);
            let x: Vec<f32> = (0..len).map(|i| i as f32 / 4.0 - 1.0).collect();
            check_numbers(spread, &x, |x| x);
        }
    }

    #[test]
    fn quotients_in_a_precision() {
        let scaling = Scaling { spread: Spread::One, scales: &[3.0], zeros: &[] };
        on_all_machines(|exec| {
            let x = [1.0, -0.0, f32::INFINITY, 3e5];
            for (precision, want) in [
                (Precision::Same, [1.0 / 3.0, -0.0, f32::INFINITY, 1e5]),
                (Precision::F16, [0.333_251_95, -0.0, f32::INFINITY, f32::INFINITY]),
                (Precision::Bf16, [0.333_984_38, -0.0, f32::INFINITY, 99_840.0]),
            ] {
                let mut out = [0.0; 4];
                divide(exec, &scaling, precision, &x, &mut out).unwrap();
                assert_eq!(out.map(f32::to_bits), want.map(f32::to_bits), "{precision:?}");
            }
            // Zero points are added.
            let mut out = [0.0; 2];
            divide(
                exec,
                &Scaling { zeros: &[0.5], ..scaling },
                Precision::Same,
                &[3.0, -0.0],
                &mut out,
            )
            .unwrap();
            assert_eq!(out, [1.5, 0.5]);
            // Just below a tie, where the nearest float is the tie.
            let scaling = Scaling { spread: Spread::One, scales: &[2.0], zeros: &[] };
            let mut out = [0.0; 2];
            let x = [3.0 - 1e-15, 2_147_483_647.0];
            divide(exec, &scaling, Precision::Same, &x, &mut out).unwrap();
            assert!(out[0] < 1.5 && out[0] > 1.499, "{out:?}");
            assert!(out[1] < 1_073_741_824.0, "{out:?}");
        });
    }

    #[test]
    fn limits_of_numbers_and_zero() {
        for len in [0, 1, 5, 64, 65, 200_003] {
            let x: Vec<f32> = (0..len).map(|i| (i * 7919 % 65_537) as f32 - 30_000.5).collect();
            for (sign, place) in [(1.0, None), (-1.0, None), (1.0, Some(len / 2))] {
                let mut x: Vec<f32> = x.iter().map(|x| sign * x.abs()).collect();
                if let Some(nan) = place.and_then(|place| x.get_mut(place)) {
                    *nan = f32::NAN;
                }
                let mut want = [0.0f32; 2];
                if x.iter().any(|x| x.is_nan()) {
                    want = [f32::NAN; 2];
                } else {
                    x.sort_by(f32::total_cmp);
                    want[0] = x.first().map_or(0.0, |least| least.min(0.0));
                    want[1] = x.last().map_or(0.0, |most| most.max(0.0));
                }
                on_all_machines(|exec| {
                    let found = limits(exec, &x).unwrap();
                    assert_eq!(found.map(f32::to_bits), want.map(f32::to_bits), "{len}");
                });
            }
        }
        let exec = Exec::new(Pool::serial(), Isa::Portable);
        assert_eq!(limits(&exec, &[-0.0]).unwrap().map(f32::to_bits), [0; 2]);
    }

    #[test]
    #[should_panic(expected = "2 zero points")]
    fn zero_points_are_one_or_as_many_as_scales() {
        let exec = Exec::new(Pool::serial(), Isa::Portable);
        let spread = Spread::Slices([1, 3, 1]);
        let scaling = Scaling { spread, scales: &[1.0; 3], zeros: &[0.0; 2] };
        quantize::<u8>(&exec, &scaling, &[1.0; 3], &mut [0; 3]).unwrap();
    }
}
