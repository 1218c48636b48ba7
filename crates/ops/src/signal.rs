//! Window functions (`BlackmanWindow`, `HammingWindow`, `HannWindow`) and `MelWeightMatrix`.

pub(crate) mod fourier;
mod gradients;

use sardonyx_model::Dim;
use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, NUMERIC_IR4, input, int, output, types};
use crate::infer::{Infer, InferError};
use crate::rules::elem_attribute;
use crate::typeset::TypeSet;

/// Expands to `a - b cos(t) + c cos(2t)` over a full turn, which ends with the last element of the
/// window, or one element after it if the window is periodic.
macro_rules! window {
    ($a:literal, $b:literal, $c:literal) => {
        concat!(
            "a = Constant <value = float {",
            $a,
            "}> ()\n",
            "b = Constant <value = float {",
            $b,
            "}> ()\n",
            "c = Constant <value = float {",
            $c,
            "}> ()\n",
            "zero = Constant <value = float {0}> ()
            one = Constant <value = float {1}> ()
            two = Constant <value = float {2}> ()
            turn = Constant <value = float {6.2831855}> ()
            count = Cast <to = 1> (size)
            less_one = Sub (count, one)
            periodic_int = Constant <value_int: int = @periodic> ()
            periodic = Cast <to = 1> (periodic_int)
            symmetric = Sub (one, periodic)
            if_periodic = Mul (count, periodic)
            if_symmetric = Mul (less_one, symmetric)
            steps = Add (if_periodic, if_symmetric)
            step = Div (turn, steps)
            indices = Range (zero, count, one)
            angles = Mul (indices, step)
            doubled = Mul (angles, two)
            second_wave = Cos (doubled)
            second = Mul (c, second_wave)
            first_wave = Cos (angles)
            first = Mul (b, first_wave)
            lowered = Sub (a, first)
            values = Add (lowered, second)
            output = Cast <to: int = @output_datatype> (values)",
        )
    };
}

pub(crate) static BLACKMAN_WINDOW: OpDef = OpDef::new("BlackmanWindow")
    .about(
        "Blackman window: `0.42 - 0.5 * cos(2 * pi * n / N) + 0.08 * cos(4 * pi * n / N)`. `N` is \
         `size` if `periodic` is 1, else `size - 1`.",
    )
    .since(
        17,
        &[
            input("size", "T1").non_differentiable(),
            output("output", "T2").non_differentiable(),
            int("output_datatype").or(1),
            int("periodic").or(1),
            types("T1", TypeSet::tensors(&[Int32, Int64])),
            types("T2", NUMERIC_IR4),
        ],
    )
    .infer(infer_window)
    .body(&[17], window!("0.42", "0.5", "0.08"));

pub(crate) static HAMMING_WINDOW: OpDef = OpDef::new("HammingWindow")
    .about(
        "Hamming window: `25 / 46 - 21 / 46 * cos(2 * pi * n / N)`. `N` is `size` if `periodic` is \
         1, else `size - 1`.",
    )
    .since(
        17,
        &[
            input("size", "T1").non_differentiable(),
            output("output", "T2").non_differentiable(),
            int("output_datatype").or(1),
            int("periodic").or(1),
            types("T1", TypeSet::tensors(&[Int32, Int64])),
            types("T2", NUMERIC_IR4),
        ],
    )
    .infer(infer_window)
    .body(&[17], window!("0.54347825", "0.45652175", "0"));

pub(crate) static HANN_WINDOW: OpDef = OpDef::new("HannWindow")
    .about(
        "Hann window: `0.5 - 0.5 * cos(2 * pi * n / N)`. `N` is `size` if `periodic` is 1, else \
         `size - 1`.",
    )
    .since(
        17,
        &[
            input("size", "T1").non_differentiable(),
            output("output", "T2").non_differentiable(),
            int("output_datatype").or(1),
            int("periodic").or(1),
            types("T1", TypeSet::tensors(&[Int32, Int64])),
            types("T2", NUMERIC_IR4),
        ],
    )
    .infer(infer_window)
    .body(&[17], window!("0.5", "0.5", "0"));

pub(crate) static MEL_WEIGHT_MATRIX: OpDef = OpDef::new("MelWeightMatrix")
    .about(
        "Weights that convert a linear-frequency spectrum to the mel scale. Each column is a \
         triangular filter; the centers are evenly spaced on the mel scale `2595 * log10(1 + f / \
         700)`.",
    )
    .since(
        17,
        &[
            input("num_mel_bins", "T1").non_differentiable(),
            input("dft_length", "T1").non_differentiable(),
            input("sample_rate", "T1").non_differentiable(),
            input("lower_edge_hertz", "T2").non_differentiable(),
            input("upper_edge_hertz", "T2").non_differentiable(),
            output("output", "T3").non_differentiable(),
            int("output_datatype").or(1),
            types("T1", TypeSet::tensors(&[Int32, Int64])),
            types("T2", FLOATS_IR4),
            types("T3", NUMERIC_IR4),
        ],
    )
    .infer(infer_mel_weights);

/// Infers one factor for each of `size` elements.
fn infer_window(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = elem_attribute(cx, "output_datatype")?;
    let size = positive_scalar(cx, 0, "size")?;
    if size.is_unknown() {
        cx.set_reason(0, "the value of size");
    }
    cx.set_tensor(0, elem, Some([size].into_iter().collect()));
    Ok(())
}

/// Infers a row for each frequency of the half spectrum of a real signal, and a column for each
/// band.
fn infer_mel_weights(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = elem_attribute(cx, "output_datatype")?;
    for input in 2..5 {
        cx.demand_rank(input, 0)?;
    }
    let bands = positive_scalar(cx, 0, "num_mel_bins")?;
    let length = positive_scalar(cx, 1, "dft_length")?;
    if bands.is_unknown() || length.is_unknown() {
        cx.set_reason(0, "the values of num_mel_bins and dft_length");
    }
    let shape = [half_spectrum(&length), bands];
    cx.set_tensor(0, elem, Some(shape.into_iter().collect()));
    Ok(())
}

/// Returns the value of an input that is a positive scalar.
fn positive_scalar(cx: &Infer<'_>, input: usize, name: &str) -> Result<Dim, InferError> {
    let value = scalar(cx, input)?;
    match value.known() {
        Some(value) if value < 1 => cx.fail(format_args!("{name} must be positive, not {value}")),
        _ => Ok(value),
    }
}

/// Returns the value of an input that is a scalar.
fn scalar(cx: &Infer<'_>, input: usize) -> Result<Dim, InferError> {
    cx.demand_rank(input, 0)?;
    let value = cx.known_ints(input).and_then(|values| values.into_iter().next());
    Ok(value.unwrap_or(Dim::Unknown))
}

/// Returns the number of frequencies that determine the spectrum of a real signal of this length.
fn half_spectrum(length: &Dim) -> Dim {
    length.floor_div(&Dim::Known(2)).add(&Dim::Known(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttrValue::Int;
    use crate::tensor::testing::check;

    #[test]
    fn windows_have_the_given_size() {
        for def in [&BLACKMAN_WINDOW, &HAMMING_WINDOW, &HANN_WINDOW] {
            check(
                def,
                17,
                &[
                    (&[], "=10", "float[10]"),
                    (&[("output_datatype", Int(11))], "=N", "double[N]"),
                    (&[], "int64", "float[?]"),
                    (&[], "-", "float[?]"),
                    (&[], "=0", &format!("{}: size must be positive, not 0", def.name)),
                    (&[], "=[3]", &format!("{}: input 0 must have rank 0, not 1", def.name)),
                    (
                        &[("output_datatype", Int(-1))],
                        "=3",
                        &format!("{}: output_datatype = -1 is not an element type", def.name),
                    ),
                ],
            );
        }
    }

    #[test]
    fn bands_of_the_mel_scale() {
        check(
            &MEL_WEIGHT_MATRIX,
            17,
            &[
                (&[], "=10; =128; =10; float; float", "float[65, 10]"),
                (&[("output_datatype", Int(11))], "=B; =L; -; -; -", "double[floor(L/2) + 1, B]"),
                (&[], "-; =129; -; -; -", "float[65, ?]"),
                (&[], "=10; =0; -; -; -", "MelWeightMatrix: dft_length must be positive, not 0"),
                (
                    &[],
                    "=10; =8; -; float[1]; -",
                    "MelWeightMatrix: input 3 must have rank 0, not 1",
                ),
            ],
        );
    }
}
