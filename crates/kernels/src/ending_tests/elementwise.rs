//! Kernels of `sardonyx-elementwise`.

use half::f16;
use half::slice::HalfBitsSliceExt;

use crate::elementwise::{
    Applied, Binary, Bitwise, Compare, Function, Link, Logic, Side, Source, Strided, Unary, Update,
    binary, binary_in_place, bitwise, clip, clip_in_place, compare, is_inf, is_nan, logic, narrow,
    not, pointwise, pointwise_in_place, range, select, unary, unary_in_place, update, widen,
};
use crate::quantized::{
    Codes, Columns, Factors, Precision, Scales, Scaling, Slices, Spread, Zeros, dequantize,
    dequantize_packed, divide, limits, quantize, quantize_packed, requantize,
};

use super::{Case, MANY, case, floats};

/// Returns the floats that most cases read.
fn x() -> Vec<f32> {
    floats(MANY)
}

pub(super) fn cases() -> Vec<Case> {
    [operation_cases(), quantization_cases()].into_iter().flatten().collect()
}

fn operation_cases() -> Vec<Case> {
    let bytes = || -> Vec<u8> { (0..MANY).map(|at| (at % 3) as u8).collect() };
    vec![
        case("elementwise/binary binary", MANY, move |exec, y: &mut [f32]| {
            let x = x();
            binary(exec, Binary::Mul, &[MANY], Strided::flat(&x), Strided::flat(&x), y)
        }),
        case("elementwise/binary binary_in_place", MANY, move |exec, y: &mut [f32]| {
            let x = x();
            y.copy_from_slice(&x);
            binary_in_place(exec, Binary::Add, Side::Left, &[MANY], y, Strided::flat(&x))
        }),
        case("elementwise/compare compare", MANY, move |exec, y: &mut [u8]| {
            let (a, b) = (x(), x());
            compare(exec, Compare::Less, &[MANY], Strided::flat(&a), Strided::flat(&b), y)
        }),
        case("elementwise/compare logic", MANY, move |exec, y: &mut [u8]| {
            let x = bytes();
            logic(exec, Logic::Xor, &[MANY], Strided::flat(&x), Strided::flat(&x), y)
        }),
        case("elementwise/compare bitwise", MANY, move |exec, y: &mut [u8]| {
            let x = bytes();
            bitwise(exec, Bitwise::Or, &[MANY], Strided::flat(&x), Strided::flat(&x), y)
        }),
        case("elementwise/compare not", MANY, move |exec, y: &mut [u8]| {
            not(exec.pool, &bytes(), y)
        }),
        case("elementwise/compare is_nan", MANY, move |exec, y: &mut [u8]| {
            is_nan(exec.pool, &x(), y)
        }),
        case("elementwise/compare is_inf", MANY, move |exec, y: &mut [u8]| {
            is_inf(exec.pool, true, true, &x(), y)
        }),
        case("elementwise/compare select", MANY, move |exec, y: &mut [f32]| {
            let (flags, x) = (bytes(), x());
            let [a, b] = [Strided::flat(&x), Strided::flat(&x)];
            select(exec.pool, &[MANY], Strided::flat(&flags), a, b, y)
        }),
        case("elementwise/halves widen", MANY, move |exec, y: &mut [f32]| {
            let x: Vec<f16> = x().into_iter().map(f16::from_f32).collect();
            widen(exec, &x, y)
        }),
        case("elementwise/halves narrow", MANY, move |exec, y: &mut [u16]| {
            narrow::<f16>(exec, &x(), y.reinterpret_cast_mut())
        }),
        case("elementwise/pointwise pointwise", MANY, move |exec, y: &mut [f32]| {
            let links = [Link::Unary(Unary::Abs), Link::Clip { low: 0.1, high: 0.5 }];
            pointwise(exec, &[MANY], Strided::flat(&x()), &links, y)
        }),
        case("elementwise/pointwise pointwise_in_place", MANY, move |exec, y: &mut [f32]| {
            y.copy_from_slice(&x());
            pointwise_in_place(exec, &[MANY], &[Link::Unary(Unary::Abs)], y)
        }),
        case("elementwise/range range", MANY, |exec, y: &mut [f32]| range(exec, 1.0, 0.5, y)),
        case("elementwise/unary unary", MANY, move |exec, y: &mut [f32]| {
            unary(exec, Unary::Exp, &x(), y)
        }),
        case("elementwise/unary unary_in_place", MANY, move |exec, y: &mut [f32]| {
            y.copy_from_slice(&x());
            unary_in_place(exec, Unary::Exp, y)
        }),
        case("elementwise/unary clip", MANY, move |exec, y: &mut [f32]| {
            clip(exec, -0.5, 0.5, &x(), y)
        }),
        case("elementwise/unary clip_in_place", MANY, move |exec, y: &mut [f32]| {
            y.copy_from_slice(&x());
            clip_in_place(exec, -0.5, 0.5, y)
        }),
        case("elementwise/update update", MANY, move |exec, y: &mut [f32]| {
            let applied = Applied { function: Function::Binary(Binary::Add), reads: [0, 1] };
            let functions = Update::new(2, &[applied], &[2]).unwrap();
            y.copy_from_slice(&x());
            let gradients = x();
            let sources = [Source::Result(0), Source::All(&gradients)];
            update(exec, &functions, &sources, &mut [y])
        }),
    ]
}

fn quantization_cases() -> Vec<Case> {
    const SCALING: Scaling<'static> =
        Scaling { spread: Spread::One, scales: &[0.01], zeros: &[3.0] };
    fn codes(bytes: &[u8]) -> Codes<'_> {
        Codes { bytes, bits: 4, signed: false }
    }
    vec![
        case("elementwise/quantized dequantize", 256 * 256, move |exec, y: &mut [f32]| {
            let (bytes, scales) = (vec![0x5a; 256 * 128], floats(256 * 8));
            let zeros = Zeros::One(2.0);
            let columns = Columns {
                codes: codes(&bytes),
                depth: 256,
                block: 32,
                scales: &scales,
                zeros,
                groups: &[],
            };
            columns.dequantize(exec, 0, y)
        }),
        case("elementwise/quantized gather", 200 * 256, move |exec, y: &mut [f32]| {
            let (bytes, scales) = (vec![0x5a; 50 * 128], floats(50 * 8));
            let slices = Slices {
                codes: codes(&bytes),
                taken: [1, 50, 256],
                cut: [50, 256, 1],
                block: 32,
                scales: Scales::Floats(&scales),
                zeros: Zeros::One(2.0),
            };
            slices.gather(exec, &super::indices(200, 50), y)
        }),
        case("elementwise/quantized/linear quantize", MANY, move |exec, y: &mut [u8]| {
            quantize(exec, &SCALING, &x(), y)
        }),
        case(
            "elementwise/quantized/linear quantize_packed",
            MANY / 2,
            move |exec, y: &mut [u8]| quantize_packed(exec, &SCALING, (4, false), &x(), y),
        ),
        case("elementwise/quantized/linear dequantize", MANY, |exec, y: &mut [f32]| {
            dequantize(exec, &SCALING, &[7u8; MANY], y)
        }),
        case("elementwise/quantized/linear dequantize_packed", MANY, move |exec, y: &mut [f32]| {
            dequantize_packed(exec, &SCALING, codes(&[0x5a; MANY / 2]), y)
        }),
        case("elementwise/quantized/linear divide", MANY, move |exec, y: &mut [f32]| {
            divide(exec, &Scaling { zeros: &[], ..SCALING }, Precision::Same, &x(), y)
        }),
        case("elementwise/quantized/linear limits", 2, move |exec, y: &mut [f32]| {
            limits(exec, &x()).map(|found| y.copy_from_slice(&found))
        }),
        case("elementwise/quantized/requantize requantize", MANY, |exec, y: &mut [u8]| {
            let sums: Vec<i32> = (0..MANY as i32).collect();
            let factors =
                Factors { rows: &[0.1], columns: &[0.2], result: 3.0, precision: Precision::Same };
            requantize(exec, &factors, 5, 100, &sums, y)
        }),
    ]
}
