//! Tests casts between all pairs of types, and the edge cases of each rule.

use half::{bf16, f16};
use sardonyx_tensor::{
    Bool8, CastOptions, Complex64, Complex128, DataType, Element, StringArray, Tensor,
    TensorErrorKind, cast, cast_slices,
};

fn to<S: Element, T: Element>(source: &[S]) -> Vec<T> {
    let tensor = Tensor::from_slice([source.len()], source).unwrap();
    cast(&tensor, T::DATA_TYPE, CastOptions::default()).unwrap().to_vec().unwrap()
}

fn strings(source: &[&str]) -> Tensor {
    Tensor::from(StringArray::from_iter(source))
}

fn parse<T: Element>(source: &str) -> Result<T, TensorErrorKind> {
    let tensor =
        cast(&strings(&[source]), T::DATA_TYPE, CastOptions::default()).map_err(|e| e.kind())?;
    Ok(tensor.item().unwrap())
}

/// Checks that 0 and 1 survive all pairs of types, at every alignment of the chunks. Excludes
/// float8e8m0, which has no 0.
#[test]
fn every_pair_keeps_zero_and_one() {
    let numbers = |t: &DataType| !matches!(t, DataType::Float8e8m0);
    for elems in [0, 1, 3, 511, 512, 513, 1030] {
        let pattern: Vec<f32> = (0..elems).map(|i| (i % 3 == 1) as u8 as f32).collect();
        let base = Tensor::from_vec([elems], pattern).unwrap();
        for from in DataType::ALL.into_iter().filter(numbers) {
            let source = cast(&base, from, CastOptions::default()).unwrap();
            for target in DataType::ALL.into_iter().filter(numbers) {
                let result = cast(&source, target, CastOptions::default());
                if from.is_complex() && !target.is_complex() && target != DataType::String {
                    assert!(result.is_err(), "{from} to {target}");
                    continue;
                }
                // Only complex text fails, as it cannot be parsed.
                let result = result.unwrap();
                assert_eq!((result.data_type(), result.dims()), (target, &[elems][..]));
                if from.is_complex() || target.is_complex() || target == DataType::String {
                    continue;
                }
                let back = cast(&result, DataType::Float, CastOptions::default()).unwrap();
                assert_eq!(back, base, "{from} to {target}, {elems} elements");
            }
        }
    }
}

#[test]
fn floats_to_integers_truncate() {
    assert_eq!(to::<f32, i32>(&[1.9, -1.9, -0.0, 2147483520.0]), [1, -1, 0, 2147483520]);
    assert_eq!(to::<f64, i64>(&[-2.5, 9007199254740993.0]), [-2, 9007199254740992]);
    assert_eq!(to::<f16, u8>(&[f16::from_f32(200.5)]), [200]);
    assert_eq!(to::<bf16, i16>(&[bf16::from_f32(-3.5)]), [-3]);
    // Out of range, with the results of NumPy on x86.
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 300.7, -1.9, 3e9, -3e9, 65537.5];
    const MIN: i32 = i32::MIN;
    assert_eq!(to::<f64, i32>(&odd), [MIN, MIN, MIN, 300, -1, MIN, MIN, 65537]);
    assert_eq!(to::<f64, i8>(&odd), [0, 0, 0, 44, -1, 0, 0, 1]);
    assert_eq!(to::<f64, u8>(&odd), [0, 0, 0, 44, 255, 0, 0, 1]);
    assert_eq!(to::<f64, i16>(&odd), [0, 0, 0, 300, -1, 0, 0, 1]);
    assert_eq!(
        to::<f64, i64>(&[f64::NAN, 1e19, -1e19, -3e9]),
        [i64::MIN, i64::MIN, i64::MIN, -3_000_000_000]
    );
    assert_eq!(to::<f32, u64>(&[1e19, -1.9, f32::INFINITY]), [9999999980506447872, u64::MAX, 0]);
    assert_eq!(to::<f64, u32>(&[3e9, -1.9]), [3_000_000_000, u32::MAX]);
}

#[test]
fn integers_wrap() {
    assert_eq!(to::<i16, i8>(&[200, -129]), [-56, 127]);
    assert_eq!(to::<i64, u32>(&[-1, 1 << 32]), [u32::MAX, 0]);
    assert_eq!(to::<u64, i64>(&[u64::MAX]), [-1]);
    assert_eq!(to::<u32, i64>(&[u32::MAX]), [4294967295]);
    assert_eq!(to::<i32, u64>(&[-1]), [u64::MAX]);
    // TYPE-04+
    assert_eq!(to::<u64, f64>(&[u64::MAX]), [18446744073709551615.0]);
    assert_eq!(to::<i64, f32>(&[(1 << 40) + (1 << 16) + 1]), [((1u64 << 40) + (1 << 17)) as f32]);
    let int4 = cast(
        &Tensor::from_slice([5], &[7i32, 8, -9, 100, -1]).unwrap(),
        DataType::Int4,
        CastOptions::default(),
    );
    let back = cast(&int4.unwrap(), DataType::Int32, CastOptions::default()).unwrap();
    assert_eq!(back.to_vec::<i32>().unwrap(), [7, -8, 7, 4, -1]); // TYPE-13
}

#[test]
fn truth() {
    let flags = to::<f32, Bool8>(&[0.0, -0.0, 0.1, f32::NAN, -5.0]);
    assert_eq!(flags.iter().map(|b| b.0).collect::<Vec<_>>(), [0, 0, 1, 1, 1]);
    assert_eq!(to::<i64, Bool8>(&[1 << 40, 0])[0].0, 1);
    // TYPE-07-: any byte but 0 is true.
    assert_eq!(to::<Bool8, f32>(&[Bool8(2), Bool8(0)]), [1.0, 0.0]);
}

#[test]
fn special_floats_survive() {
    let odd = [f32::INFINITY, -f32::INFINITY, -0.0, f32::from_bits(1)];
    let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&to::<f32, f64>(&odd)), bits(&odd.map(f64::from)));
    assert!(to::<f32, f16>(&[f32::NAN])[0].is_nan() && to::<f64, bf16>(&[f64::NAN])[0].is_nan());
    assert_eq!(to::<f64, f32>(&[1e300, -1e300]), [f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!(to::<f32, f16>(&[65520.0, 65519.0]).map_each(f16::to_f32), [f32::INFINITY, 65504.0]);
    // TYPE-09+: 8 bits of exponent, 7 of fraction
    let rows = [
        (0x3f80, 1.0),
        (0xc0a0, -5.0),
        (0x8000, -0.0),
        (0x0080, f32::MIN_POSITIVE),
        (0x0001, f32::from_bits(0x1_0000)),
        (0x7f7f, f32::from_bits(0x7f7f_0000)),
        (0xff80, f32::NEG_INFINITY),
    ];
    for (code, number) in rows {
        let found = to::<bf16, f32>(&[bf16::from_bits(code)])[0];
        assert_eq!(found.to_bits(), number.to_bits(), "{code:04x}");
        assert_eq!(to::<f32, bf16>(&[number])[0].to_bits(), code);
        assert_eq!(to::<f64, bf16>(&[f64::from(number)])[0].to_bits(), code);
    }
    assert_eq!(to::<f64, f16>(&[-0.0, 5.960464477539063e-8]).map_each(f16::to_bits), [0x8000, 1]);
}

#[test]
fn ieee_numbers_come_back() {
    // TYPE-08+: to a wider type and back: zeros, the smallest and largest subnormals and normals,
    // infinities, and quiet NaNs with their sign and payload
    let halves: Vec<u16> = (0..=u16::MAX).filter(|bits| bits & 0x7fff <= 0x7c00).collect();
    let source: Vec<f16> = halves.iter().map(|bits| f16::from_bits(*bits)).collect();
    let floats = to::<f16, f32>(&source);
    let doubles = to::<f16, f64>(&source);
    for (index, bits) in halves.iter().enumerate() {
        // Formula of the format: a fraction of 10 bits below an exponent of 5.
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 => f64::INFINITY,
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        };
        let wanted = if bits >> 15 == 1 { -magnitude } else { magnitude };
        assert_eq!(doubles[index].to_bits(), wanted.to_bits(), "{bits:04x}");
        assert_eq!(f64::from(floats[index]).to_bits(), wanted.to_bits(), "{bits:04x}");
    }
    let back = to::<f32, f16>(&floats).map_each(f16::to_bits);
    assert_eq!(back, halves);
    assert_eq!(to::<f64, f16>(&doubles).map_each(f16::to_bits), halves);
    let floats: Vec<f32> = [
        0u32,
        0x8000_0000,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x3f80_0001,
    ]
    .map(f32::from_bits)
    .to_vec();
    let doubles = to::<f32, f64>(&floats);
    assert_eq!(doubles[2].to_bits(), 2f64.powi(-149).to_bits());
    assert_eq!(doubles[4].to_bits(), (8_388_607.0 * 2f64.powi(-149)).to_bits());
    let bits = |floats: Vec<f32>| floats.map_each(f32::to_bits);
    assert_eq!(bits(to::<f64, f32>(&doubles)), bits(floats));
    // Subnormals of float64 are kept without a conversion, and become 0 in narrower types.
    let smallest = [f64::from_bits(1), -f64::from_bits(1), f64::from_bits(0x000f_ffff_ffff_ffff)];
    let kept = to::<f64, f64>(&smallest).map_each(f64::to_bits);
    assert_eq!(kept, smallest.map(f64::to_bits));
    assert_eq!(to::<f64, f32>(&smallest).map_each(f32::to_bits), [0, 0x8000_0000, 0]);
    let text = cast(
        &Tensor::from_slice([3], &smallest).unwrap(),
        DataType::String,
        CastOptions::default(),
    );
    let again = cast(&text.unwrap(), DataType::Double, CastOptions::default()).unwrap();
    assert_eq!(again.to_vec::<f64>().unwrap().map_each(f64::to_bits), smallest.map(f64::to_bits));
    for payload in [0x7fc0_0000, 0xffc0_0000, 0x7fc0_2000, 0x7fff_e000] {
        let nan = [f32::from_bits(payload)];
        let (double, half) = (to::<f32, f64>(&nan), to::<f32, f16>(&nan));
        assert_eq!(to::<f64, f32>(&double)[0].to_bits(), payload, "{payload:08x}");
        assert_eq!(to::<f16, f32>(&half)[0].to_bits(), payload, "{payload:08x}");
    }
}

trait MapEach<T> {
    fn map_each<U>(self, f: impl Fn(T) -> U) -> Vec<U>;
}

impl<T> MapEach<T> for Vec<T> {
    fn map_each<U>(self, f: impl Fn(T) -> U) -> Vec<U> {
        self.into_iter().map(f).collect()
    }
}

#[test]
fn complex() {
    let one = [Complex64 { re: 1.5, im: -2.0 }];
    assert_eq!(to::<Complex64, Complex128>(&one), [Complex128 { re: 1.5, im: -2.0 }]);
    assert_eq!(to::<i32, Complex64>(&[3]), [Complex64 { re: 3.0, im: 0.0 }]);
    let tensor = Tensor::from_slice([1], &one).unwrap();
    assert_eq!(
        cast(&tensor, DataType::Float, CastOptions::default()).unwrap_err().kind(),
        TensorErrorKind::Unsupported
    );
}

#[test]
fn text_to_numbers() {
    assert_eq!(parse::<f32>("1e-5"), Ok(1e-5));
    assert_eq!(parse::<f32>("0.47892547"), Ok(0.47892547));
    assert_eq!(parse::<f64>("-INF"), Ok(f64::NEG_INFINITY));
    assert!(parse::<f32>("NaN").unwrap().is_nan());
    assert_eq!(parse::<f16>("+INF").unwrap().to_f32(), f32::INFINITY);
    assert_eq!(parse::<i64>("-9223372036854775808"), Ok(i64::MIN));
    assert_eq!(parse::<u64>("18446744073709551615"), Ok(u64::MAX));
    assert_eq!(parse::<i32>("100.5"), Ok(100));
    assert_eq!(parse::<i32>("1E8"), Ok(100_000_000));
    assert_eq!(parse::<u8>("300"), Err(TensorErrorKind::Range));
    assert_eq!(parse::<u8>("-1"), Err(TensorErrorKind::Range));
    assert_eq!(parse::<i64>("1e30"), Err(TensorErrorKind::Range));
    assert_eq!(parse::<i64>("nan"), Err(TensorErrorKind::Range));
    assert_eq!(parse::<f32>("Hello World!"), Err(TensorErrorKind::Parse));
    let error = cast(&strings(&["1", "x"]), DataType::Float, CastOptions::default()).unwrap_err();
    assert_eq!(error.message(), "element 1: the string \"x\" is not a number");
    let long = strings(&["7"; 1030]);
    assert_eq!(
        cast(&long, DataType::Int4, CastOptions::default()).unwrap().to_codes().unwrap(),
        [7; 1030]
    );
}

#[test]
fn numbers_to_text() {
    let text = |t: Tensor| -> Vec<String> {
        let tensor = cast(&t, DataType::String, CastOptions::default()).unwrap();
        tensor.strings().unwrap().iter().map(|s| String::from_utf8(s.to_vec()).unwrap()).collect()
    };
    assert_eq!(
        text(Tensor::from_slice([3], &[1.0f32, 314.15926, f32::NAN]).unwrap()),
        ["1.0", "314.15927", "nan"]
    );
    assert_eq!(text(Tensor::from_slice([2], &[-5i64, 0]).unwrap()), ["-5", "0"]);
    assert_eq!(text(Tensor::from_bools([2], &[true, false]).unwrap()), ["True", "False"]);
    assert_eq!(text(Tensor::from_codes(DataType::Int4, [2], &[15, 7]).unwrap()), ["-1", "7"]);
    assert_eq!(
        text(Tensor::from_codes(DataType::Float4e2m1, [2], &[1, 15]).unwrap()),
        ["0.5", "-6.0"]
    );
}

#[test]
fn slices_of_any_alignment_and_checked_sizes() {
    let mut bytes = vec![0u8];
    [1.5f32, -2.0, 3.0].iter().for_each(|x| bytes.extend(x.to_ne_bytes()));
    let mut out = [0u8; 25];
    let options = CastOptions::default();
    cast_slices(DataType::Float, &bytes[1..], DataType::Int64, &mut out[1..], 3, options).unwrap();
    assert_eq!(out[9..17], (-2i64).to_ne_bytes());
    let mut fails = |from, source: &[u8], to, len: usize, elems| {
        cast_slices(from, source, to, &mut out[..len], elems, options).unwrap_err().kind()
    };
    assert_eq!(fails(DataType::Float, &bytes, DataType::Int64, 24, 3), TensorErrorKind::Size);
    assert_eq!(fails(DataType::Float, &bytes[1..], DataType::Int64, 23, 3), TensorErrorKind::Size);
    assert_eq!(
        fails(DataType::Float, &[], DataType::Int4, 0, usize::MAX),
        TensorErrorKind::Overflow
    );
    assert_eq!(fails(DataType::String, &[], DataType::Int4, 0, 0), TensorErrorKind::Type);
}

#[test]
fn same_type_shares() {
    let tensor = Tensor::from_slice([2], &[1f32, 2.0]).unwrap();
    let same = cast(&tensor, DataType::Float, CastOptions::default()).unwrap();
    assert_eq!(same.bytes().as_ptr(), tensor.bytes().as_ptr());
}
