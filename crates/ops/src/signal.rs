//! Spectra, and the windows for them.

use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, NUMERIC_IR4, input, int, output, types, without_attribute};
use crate::typeset::TypeSet;

/// `a - b cos(t) + c cos(2t)` over a turn, which ends with the first element left out or with the last one of the window.
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
    .about("The Blackman window: a sum of three cosines that is 0 at both ends, to be multiplied with a frame before its \
         spectrum is taken.").since(
    17,
    &[
        input("size", "T1").non_differentiable(),
        output("output", "T2").non_differentiable(),
        int("output_datatype").or(1),
        int("periodic").or(1),
        types("T1", TypeSet::tensors(&[Int32, Int64])),
        types("T2", NUMERIC_IR4),
    ],
).body(&[17], window!("0.42", "0.5", "0.08"));

pub(crate) static DFT: OpDef = OpDef::new("DFT")
    .about("The discrete Fourier transform along one axis, forwards or backwards. Real signals have 1 in the last axis, \
         complex ones 2; of a real signal the half of the spectrum that says everything can be asked for.")
    .since(
        17,
        &[
            input("input", "T1").non_differentiable(),
            input("dft_length", "T2").optional().non_differentiable(),
            output("output", "T1"),
            int("axis").or(1),
            int("inverse").or(0),
            int("onesided").or(0),
            types("T1", FLOATS_IR4),
            types("T2", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        20,
        &[
            input("axis", "tensor(int64)")
                .optional()
                .non_differentiable(),
            without_attribute("axis"),
        ],
    );

pub(crate) static HAMMING_WINDOW: OpDef = OpDef::new("HammingWindow")
    .about("The Hamming window: a raised cosine that does not reach 0 at the ends.")
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
    .body(&[17], window!("0.54347825", "0.45652175", "0"));

pub(crate) static HANN_WINDOW: OpDef = OpDef::new("HannWindow")
    .about("The Hann window: a raised cosine that is 0 at both ends.")
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
    .body(&[17], window!("0.5", "0.5", "0"));

pub(crate) static MEL_WEIGHT_MATRIX: OpDef = OpDef::new("MelWeightMatrix")
    .about("Weights that turn a spectrum into bands of the mel scale, which are as wide as the ear hears them: \
         overlapping triangles.").since(
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
);

pub(crate) static STFT: OpDef = OpDef::new("STFT")
    .about("The short-time Fourier transform: spectra of frames that move along a signal, multiplied by a window first.").since(
    17,
    &[
        input("signal", "T1").non_differentiable(),
        input("frame_step", "T2").non_differentiable(),
        input("window", "T1").optional().non_differentiable(),
        input("frame_length", "T2").optional().non_differentiable(),
        output("output", "T1").non_differentiable(),
        int("onesided").or(1),
        types("T1", FLOATS_IR4),
        types("T2", TypeSet::tensors(&[Int32, Int64])),
    ],
);
