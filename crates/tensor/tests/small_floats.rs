//! Tests every code of the small floats, and thousands of numbers on and near ties, against tables
//! that `golden/generate.py` made from the ONNX reference.

use sardonyx_tensor::{CastOptions, DataType, Element, RoundMode, Tensor, cast};

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect())
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word, 16).unwrap()
}

fn convert<T: Element>(numbers: &[T], to: DataType, options: CastOptions) -> Vec<u8> {
    let tensor = Tensor::from_slice([numbers.len()], numbers).unwrap();
    cast(&tensor, to, options).unwrap().to_codes().unwrap()
}

/// Checks the value of every code. TYPE-10+-, TYPE-11+, TYPE-12+, TYPE-30+
#[test]
fn all_codes_decode() {
    let mut codes_seen = 0;
    for row in rows(include_str!("golden/decode.txt")) {
        let data_type = DataType::from_name(row[0]).unwrap();
        let first: u8 = row[1].parse().unwrap();
        let codes: Vec<u8> = (0..row.len() as u8 - 2).map(|i| first + i).collect();
        let tensor = Tensor::from_codes(data_type, [codes.len()], &codes).unwrap();
        let got = cast(&tensor, DataType::Float, CastOptions::default()).unwrap();
        for ((got, want), code) in
            got.to_vec::<f32>().unwrap().into_iter().zip(&row[2..]).zip(codes)
        {
            let want = f32::from_bits(hex(want) as u32);
            let same = if want.is_nan() { got.is_nan() } else { got.to_bits() == want.to_bits() };
            assert!(same, "{data_type} code {code}: {got:?}, not {want:?}");
            codes_seen += 1;
        }
    }
    assert_eq!(codes_seen, 5 * 256 + 2 * 64 + 16);
}

#[test]
fn f32_encodes() {
    let mut rows = rows(include_str!("golden/encode.txt"));
    let columns = rows.next().unwrap();
    let rows: Vec<Vec<u64>> = rows.map(|row| row.into_iter().map(hex).collect()).collect();
    let numbers: Vec<f32> = rows.iter().map(|row| f32::from_bits(row[0] as u32)).collect();
    let exact: Vec<f64> = numbers.iter().map(|&x| x.into()).collect();
    for (k, column) in columns.iter().enumerate().skip(1) {
        let (name, how) = column.split_once('/').unwrap();
        let data_type = DataType::from_name(name).unwrap();
        let options = CastOptions {
            saturate: how.starts_with("saturate"),
            round_mode: how
                .split_once(',')
                .map_or(RoundMode::Up, |(_, mode)| RoundMode::from_name(mode).unwrap()),
        };
        let got = convert(&numbers, data_type, options);
        for (row, got) in rows.iter().zip(&got) {
            let number = f32::from_bits(row[0] as u32);
            assert_eq!(
                *got as u64, row[k],
                "{number:?} ({:08x}) to {column}: {got:02x}, not {:02x}",
                row[0], row[k]
            );
        }
        assert_eq!(convert(&exact, data_type, options), got, "{column} from f64");
    }
}

#[test]
fn f64_rounds_once() {
    for row in rows(include_str!("golden/encode64.txt")) {
        let data_type = DataType::from_name(row[0]).unwrap();
        let number = f64::from_bits(hex(row[1]));
        let got = convert(&[number], data_type, CastOptions::default());
        assert_eq!(got[0] as u64, hex(row[2]), "{number:?} to {data_type}");
    }
}

#[test]
fn wide_integers_round_once() {
    let plain = CastOptions { saturate: false, ..CastOptions::default() };
    // 1.0625 * 2^40 is a tie of e8 formats with 3 mantissa bits; one more must round up, although
    // f32 cannot represent the difference.
    let e5m2 = |x: i64| convert(&[x], DataType::Float8e5m2, plain)[0];
    assert_eq!([e5m2(9), e5m2(-9), e5m2(11), e5m2(1 << 40)], [0x48, 0xC8, 0x4A, 0x7C]);
    let bf16 = |x: i64| {
        let tensor = cast(&Tensor::scalar(x), DataType::Bfloat16, plain).unwrap();
        tensor.item::<half::bf16>().unwrap().to_f64()
    };
    let (low, high) = ((1i64 << 54) as f64, ((1i64 << 54) + (1 << 47)) as f64);
    assert_eq!(bf16((1 << 54) + (1 << 46)), low);
    assert_eq!(bf16((1 << 54) + (1 << 46) + 1), high);
    let f16 = cast(&Tensor::scalar(u64::MAX), DataType::Float16, plain).unwrap();
    assert!(f16.item::<half::f16>().unwrap().is_infinite());
    // 2049 and a small fraction: in f32 it would be a tie and round to 2048.
    let f16 = cast(&Tensor::scalar(2049.0 + 1e-10), DataType::Float16, plain).unwrap();
    assert_eq!(f16.item::<half::f16>().unwrap().to_f64(), 2050.0);
}

/// Checks that NaNs of any sign and payload become the largest 6-bit float, and infinities the
/// largest of their sign, saturated or not, according to the documents of Cast. TYPE-30-
#[test]
fn floats_without_nan_take_their_largest_number() {
    for (data_type, largest) in [(DataType::Float6e2m3, 0x1f), (DataType::Float6e3m2, 0x1f)] {
        for saturate in [true, false] {
            let options = CastOptions { saturate, ..CastOptions::default() };
            for nan in [0x7fc0_0000u32, 0x7fff_ffff, 0x7f80_0001] {
                assert_eq!(
                    convert(&[f32::from_bits(nan)], data_type, options),
                    [largest],
                    "{nan:x}"
                );
            }
            assert_eq!(convert(&[f64::NAN], data_type, options), [largest]);
            let numbers = [f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30];
            let found = convert(&numbers, data_type, options);
            assert_eq!(found, [largest, largest | 0x20, largest, largest | 0x20]);
        }
    }
}

/// Checks that every value of every small float survives each wider type.
#[test]
fn values_survive_wider_types() {
    for from in DataType::ALL.into_iter().filter(|t| t.is_float() && t.bits() <= Some(8)) {
        let codes: Vec<u8> = (0..1u16 << from.bits().unwrap()).map(|c| c as u8).collect();
        let source = Tensor::from_codes(from, [codes.len()], &codes).unwrap();
        for through in [DataType::Float, DataType::Double, DataType::Bfloat16, DataType::Float16] {
            if through == DataType::Float16 && from == DataType::Float8e8m0 {
                continue; // its range is that of bfloat16
            }
            let wide = cast(&source, through, CastOptions::default()).unwrap();
            let back = cast(&wide, from, CastOptions::default()).unwrap().to_codes().unwrap();
            let floats = cast(&source, DataType::Float, CastOptions::default())
                .unwrap()
                .to_vec::<f32>()
                .unwrap();
            for ((code, back), value) in codes.iter().zip(back).zip(floats) {
                // Infinity saturates by default, and NaNs may change.
                assert!(
                    *code == back || !value.is_finite(),
                    "{from} {code:02x} through {through}: {back:02x}"
                );
            }
        }
    }
}
