//! Floats of 4, 6 and 8 bits: decodes each code, and encodes numbers as the nearest code.
//!
//! A format is a row of facts ([`FloatFormat`]), for which there is one decoder and one encoder.
//! The encoder takes a number as `significand * 2^exponent` with a 64-bit significand, which
//! represents every f32, f64, i64 and u64 exactly, so there is exactly one rounding for any source.
//! (The reference rounds f64 and wide integers to f32 first and is off by one code on some ties; we
//! differ on purpose.)
//!
//! float8e8m0 is a bare exponent without sign and zero, and has its own rounding rules; it is at
//! the end.
//!
//! Sources: the tables in the ONNX documentation of Cast and of float4, float6 and float8; the OCP
//! microscaling document.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// Rounding mode of float8e8m0; the other formats always round to nearest, ties to even.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoundMode {
    /// Towards the larger power of two.
    #[default]
    Up,
    /// Towards the smaller power of two.
    Down,
    /// To the nearer power of two by value; halfway (1.5 times a power) goes up.
    Nearest,
}

impl RoundMode {
    /// Parses the attribute `round_mode` of Cast.
    pub fn from_name(name: &str) -> Option<RoundMode> {
        match name {
            "up" => Some(RoundMode::Up),
            "down" => Some(RoundMode::Down),
            "nearest" => Some(RoundMode::Nearest),
            _ => None,
        }
    }
}

/// Number as sign and magnitude.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    negative: bool,
    magnitude: Magnitude,
}

/// Magnitude of a number: `significand * 2^exponent`, exactly, or a special value.
#[derive(Clone, Copy)]
enum Magnitude {
    Finite { significand: u64, exponent: i32 },
    Infinite,
    Nan,
}

impl Parts {
    #[inline]
    pub(crate) fn from_f32(x: f32) -> Parts {
        let bits = x.to_bits();
        Self::from_fields(
            (bits & 0x7F_FFFF) as u64,
            (bits >> 23 & 0xFF) as i32,
            0xFF,
            23,
            127,
            bits >> 31 != 0,
        )
    }

    #[inline]
    pub(crate) fn from_f64(x: f64) -> Parts {
        let bits = x.to_bits();
        let exponent = (bits >> 52 & 0x7FF) as i32;
        Self::from_fields(bits & ((1 << 52) - 1), exponent, 0x7FF, 52, 1023, bits >> 63 != 0)
    }

    #[inline]
    fn from_fields(
        mantissa: u64,
        exponent: i32,
        top: i32,
        mantissa_bits: i32,
        bias: i32,
        negative: bool,
    ) -> Parts {
        let magnitude = if exponent == top {
            if mantissa == 0 { Magnitude::Infinite } else { Magnitude::Nan }
        } else {
            let hidden = if exponent == 0 { 0 } else { 1u64 << mantissa_bits };
            Magnitude::Finite {
                significand: mantissa | hidden,
                exponent: exponent.max(1) - bias - mantissa_bits,
            }
        };
        Parts { negative, magnitude }
    }

    #[inline]
    pub(crate) fn from_i64(x: i64) -> Parts {
        Parts {
            negative: x < 0,
            magnitude: Magnitude::Finite { significand: x.unsigned_abs(), exponent: 0 },
        }
    }

    #[inline]
    pub(crate) fn from_u64(x: u64) -> Parts {
        Parts { negative: false, magnitude: Magnitude::Finite { significand: x, exponent: 0 } }
    }
}

/// Use of the codes beyond the largest finite number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinity after the largest number, NaN after it.
    InfAndNan { inf: u16, nan: u16 },
    /// NaN in both signs, no infinity.
    Nan { nan: u16 },
    /// One NaN, in place of negative zero; no infinity ("fnuz").
    NanForNegativeZero,
    /// Numbers only; a NaN becomes this code, without its sign.
    NumbersOnly { nan_becomes: u16 },
}

/// Float format with a sign bit, of up to 16 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloatFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    /// Code of the largest finite number.
    max: u16,
    special: Special,
}

pub(crate) const FLOAT8E4M3FN: FloatFormat = FloatFormat {
    exponent_bits: 4,
    mantissa_bits: 3,
    bias: 7,
    max: 0x7E,
    special: Special::Nan { nan: 0x7F },
};
pub(crate) const FLOAT8E4M3FNUZ: FloatFormat = FloatFormat {
    exponent_bits: 4,
    mantissa_bits: 3,
    bias: 8,
    max: 0x7F,
    special: Special::NanForNegativeZero,
};
pub(crate) const FLOAT8E5M2: FloatFormat = FloatFormat {
    exponent_bits: 5,
    mantissa_bits: 2,
    bias: 15,
    max: 0x7B,
    special: Special::InfAndNan { inf: 0x7C, nan: 0x7E },
};
pub(crate) const FLOAT8E5M2FNUZ: FloatFormat = FloatFormat {
    exponent_bits: 5,
    mantissa_bits: 2,
    bias: 16,
    max: 0x7F,
    special: Special::NanForNegativeZero,
};
// According to the documentation of float4, NaN becomes 6; in the released node tests of Cast,
// which hold the results of the reference, it becomes -0. Implementations are measured by the
// tests.
pub(crate) const FLOAT4E2M1: FloatFormat = FloatFormat {
    exponent_bits: 2,
    mantissa_bits: 1,
    bias: 1,
    max: 0x7,
    special: Special::NumbersOnly { nan_becomes: 0x8 },
};
// No node test covers NaN to float6; according to the documentation it is the largest number
// (TYPE-30).
pub(crate) const FLOAT6E2M3: FloatFormat = FloatFormat {
    exponent_bits: 2,
    mantissa_bits: 3,
    bias: 1,
    max: 0x1F,
    special: Special::NumbersOnly { nan_becomes: 0x1F },
};
pub(crate) const FLOAT6E3M2: FloatFormat = FloatFormat {
    exponent_bits: 3,
    mantissa_bits: 2,
    bias: 3,
    max: 0x1F,
    special: Special::NumbersOnly { nan_becomes: 0x1F },
};
// The 16-bit formats serve sources wider than f32, which must not be rounded twice.
pub(crate) const FLOAT16: FloatFormat = FloatFormat {
    exponent_bits: 5,
    mantissa_bits: 10,
    bias: 15,
    max: 0x7BFF,
    special: Special::InfAndNan { inf: 0x7C00, nan: 0x7E00 },
};
pub(crate) const BFLOAT16: FloatFormat = FloatFormat {
    exponent_bits: 8,
    mantissa_bits: 7,
    bias: 127,
    max: 0x7F7F,
    special: Special::InfAndNan { inf: 0x7F80, nan: 0x7FC0 },
};

impl FloatFormat {
    const fn sign(&self) -> u16 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// Returns the value of a code of at most 8 bits; bits beyond the format are ignored. Exact, as
    /// f32 represents every such value.
    pub(crate) const fn decode(&self, code: u8) -> f32 {
        let sign = self.sign();
        let code = code as u16 & (sign | (sign - 1));
        let negative = if code & sign != 0 { 1u32 << 31 } else { 0 };
        let magnitude = code & (sign - 1);
        match self.special {
            Special::InfAndNan { inf, .. } if magnitude == inf => {
                return f32::from_bits(negative | 0x7F80_0000);
            }
            Special::NanForNegativeZero if code == sign => return f32::from_bits(0x7FC0_0000),
            Special::NanForNegativeZero | Special::NumbersOnly { .. } => {}
            _ if magnitude > self.max => return f32::from_bits(negative | 0x7FC0_0000),
            _ => {}
        }
        let field = (magnitude >> self.mantissa_bits) as i32;
        let mantissa = (magnitude & ((1 << self.mantissa_bits) - 1)) as u32;
        let (significand, field) =
            if field == 0 { (mantissa, 1) } else { (mantissa | 1 << self.mantissa_bits, field) };
        if significand == 0 {
            return f32::from_bits(negative);
        }
        // Normalizes: all these values are normal numbers of f32.
        let top = significand.ilog2();
        let exponent = field - self.bias - self.mantissa_bits as i32 + top as i32;
        let fraction = (significand << (23 - top)) & 0x7F_FFFF;
        f32::from_bits(negative | ((exponent + 127) as u32) << 23 | fraction)
    }

    /// Returns the code nearest to a number, ties to even. With `saturate`, numbers that are too
    /// large, including infinities, become the largest number, otherwise infinity or NaN, depending
    /// on the format; formats of numbers only always saturate.
    #[inline]
    pub(crate) fn encode(&self, number: Parts, saturate: bool) -> u16 {
        let sign = if number.negative { self.sign() } else { 0 };
        let magnitude = match number.magnitude {
            Magnitude::Nan => {
                return match self.special {
                    Special::InfAndNan { nan, .. } | Special::Nan { nan } => sign | nan,
                    Special::NanForNegativeZero => self.sign(),
                    Special::NumbersOnly { nan_becomes } => nan_becomes,
                };
            }
            Magnitude::Infinite => u64::MAX,
            Magnitude::Finite { significand, exponent } => self.round(significand, exponent),
        };
        if magnitude > self.max as u64 {
            return match self.special {
                _ if saturate => sign | self.max,
                Special::InfAndNan { inf, .. } => sign | inf,
                Special::Nan { nan } => sign | nan,
                Special::NanForNegativeZero => self.sign(),
                Special::NumbersOnly { .. } => sign | self.max,
            };
        }
        match self.special {
            Special::NanForNegativeZero if magnitude == 0 => 0,
            _ => sign | magnitude as u16,
        }
    }

    /// Returns the code of `significand * 2^exponent` as if the codes were unlimited.
    #[inline]
    fn round(&self, significand: u64, exponent: i32) -> u64 {
        if significand == 0 {
            return 0;
        }
        let min_exponent = 1 - self.bias;
        let e = significand.ilog2() as i32 + exponent;
        // Distance of neighbouring codes around the number.
        let step = e.max(min_exponent) - self.mantissa_bits as i32;
        let shift = step - exponent;
        let steps = match shift {
            // At most `mantissa_bits + 1` bits result, by the choice of `step`.
            ..=0 => significand << -shift,
            1..=63 => {
                let (floor, rest) = (significand >> shift, significand & ((1 << shift) - 1));
                let half = 1u64 << (shift - 1);
                floor + (rest > half || rest == half && floor & 1 == 1) as u64
            }
            // The step is 2^64 in units of the significand: only more than half of it rounds up,
            // and ties go to 0.
            64 => (significand > 1 << 63) as u64,
            65.. => 0,
        };
        // Codes of one sign are ordered like their values, so a carry into the exponent field is
        // correct. The hidden bit of normal numbers adds 1 to the field.
        (((e - min_exponent).max(0) as u64) << self.mantissa_bits) + steps
    }

    const fn table<const N: usize>(&self) -> [f32; N] {
        let mut table = [0.0; N];
        let mut code = 0;
        while code < N {
            table[code] = self.decode(code as u8);
            code += 1;
        }
        table
    }
}

/// 8-bit float type.
pub trait SmallFloat: Copy {
    /// Value of every code.
    const VALUES: &'static [f32; 256];

    /// Returns the bit pattern.
    fn to_bits(self) -> u8;

    /// Creates a value from a bit pattern; all are valid.
    fn from_bits(bits: u8) -> Self;

    /// Rounds to the nearest value, like Cast with `saturate` (see
    /// [`CastOptions`](crate::CastOptions)).
    fn from_f32(x: f32, saturate: bool) -> Self;

    /// Rounds to the nearest value like [`SmallFloat::from_f32`], from f64 in one step.
    fn from_f64(x: f64, saturate: bool) -> Self;

    /// Returns the exact value.
    #[inline]
    fn to_f32(self) -> f32 {
        Self::VALUES[self.to_bits() as usize]
    }
}

macro_rules! float8 {
    ($($(#[$doc:meta])* $name:ident $format:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(pub u8);

        impl SmallFloat for $name {
            const VALUES: &'static [f32; 256] = &$format.table::<256>();

            #[inline]
            fn to_bits(self) -> u8 {
                self.0
            }

            #[inline]
            fn from_bits(bits: u8) -> Self {
                $name(bits)
            }

            #[inline]
            fn from_f32(x: f32, saturate: bool) -> Self {
                $name($format.encode(Parts::from_f32(x), saturate) as u8)
            }

            #[inline]
            fn from_f64(x: f64, saturate: bool) -> Self {
                $name($format.encode(Parts::from_f64(x), saturate) as u8)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.to_f32())
            }
        }
    )*};
}

float8! {
    /// Sign, 4 exponent bits, 3 mantissa bits; NaN, no infinity, largest 448. Equality compares
    /// codes.
    Float8e4m3fn FLOAT8E4M3FN
    /// Like [`Float8e4m3fn`], with bias 8, one NaN and no negative zero; largest 240. Equality
    /// compares codes.
    Float8e4m3fnuz FLOAT8E4M3FNUZ
    /// Sign, 5 exponent bits, 2 mantissa bits, NaN and infinity like IEEE formats; largest 57344.
    /// Equality compares codes.
    Float8e5m2 FLOAT8E5M2
    /// Like [`Float8e5m2`], with bias 16, one NaN, no infinity and no negative zero. Equality
    /// compares codes.
    Float8e5m2fnuz FLOAT8E5M2FNUZ
}

/// A power of two from 2^-127 (code 0) to 2^127 (code 254), or NaN (code 255). No sign, no zero, no
/// infinity.
#[derive(Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Float8e8m0(pub u8);

impl Float8e8m0 {
    /// Rounds to a power of two. With `saturate`, zero and numbers below 2^-127 become 2^-127, and
    /// numbers above 2^127, including infinity, become 2^127; without it, all of these become NaN.
    /// NaN stays, and negative numbers, which the standard leaves open, become NaN. Rounding
    /// precedes the range check; -0 counts as 0.
    pub fn from_f32_rounded(x: f32, saturate: bool, mode: RoundMode) -> Float8e8m0 {
        Self::encode(Parts::from_f32(x), saturate, mode)
    }

    #[inline]
    pub(crate) fn encode(number: Parts, saturate: bool, mode: RoundMode) -> Float8e8m0 {
        const NAN: Float8e8m0 = Float8e8m0(255);
        let exponent = match number.magnitude {
            Magnitude::Nan => return NAN,
            Magnitude::Finite { significand: 0, .. } => i32::MIN,
            _ if number.negative => return NAN,
            Magnitude::Infinite => i32::MAX,
            Magnitude::Finite { significand, exponent } => {
                let top = significand.ilog2();
                let fraction = significand ^ (1 << top);
                let up = match mode {
                    RoundMode::Up => fraction != 0,
                    RoundMode::Down => false,
                    // The bit below the top one is the half.
                    RoundMode::Nearest => top > 0 && significand >> (top - 1) & 1 == 1,
                };
                top as i32 + exponent + up as i32
            }
        };
        match exponent {
            -127..=127 => Float8e8m0((exponent + 127) as u8),
            _ if !saturate => NAN,
            ..-127 => Float8e8m0(0),
            _ => Float8e8m0(254),
        }
    }
}

const E8M0_VALUES: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 1;
    while code < 255 {
        table[code] = f32::from_bits((code as u32) << 23);
        code += 1;
    }
    table[0] = f32::from_bits(1 << 22); // 2^-127 is subnormal in f32
    table[255] = f32::from_bits(0x7FC0_0000);
    table
};

impl SmallFloat for Float8e8m0 {
    const VALUES: &'static [f32; 256] = &E8M0_VALUES;

    #[inline]
    fn to_bits(self) -> u8 {
        self.0
    }

    #[inline]
    fn from_bits(bits: u8) -> Self {
        Float8e8m0(bits)
    }

    /// Rounds up, which is the default of Cast.
    fn from_f32(x: f32, saturate: bool) -> Self {
        Self::encode(Parts::from_f32(x), saturate, RoundMode::Up)
    }

    /// Rounds up, which is the default of Cast.
    fn from_f64(x: f64, saturate: bool) -> Self {
        Self::encode(Parts::from_f64(x), saturate, RoundMode::Up)
    }
}

impl fmt::Debug for Float8e8m0 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_f32())
    }
}

pub(crate) static FLOAT4E2M1_VALUES: [f32; 16] = FLOAT4E2M1.table();
pub(crate) static FLOAT6E2M3_VALUES: [f32; 64] = FLOAT6E2M3.table();
pub(crate) static FLOAT6E3M2_VALUES: [f32; 64] = FLOAT6E3M2.table();
