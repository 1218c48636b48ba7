//! `DynamicQuantizeLSTM`: an LSTM with quantized weights, which ONNX Runtime's dynamic quantization
//! makes of any LSTM.

use sardonyx_tensor::DataType::{Float, Int32};

use super::DOMAIN;
use super::linear::BYTES;
use crate::def::OpDef;
use crate::facts::{float, floats, input, int, output, string, strings, types};
use crate::nn::recurrent::{infer_layer, multiply_adds, steps};
use crate::typeset::TypeSet;

pub(crate) static DYNAMIC_QUANTIZE_LSTM: OpDef = OpDef::new("DynamicQuantizeLSTM")
    .domain(DOMAIN)
    .about(
        "`LSTM` with quantized weights, whose rows are inputs. The input is quantized as a whole, \
         the state in each step, with one scale and one zero point for the batch.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T2"),
            input("R", "T2"),
            input("B", "T").optional(),
            input("sequence_lens", "T1").optional(),
            input("initial_h", "T").optional(),
            input("initial_c", "T").optional(),
            input("P", "T").optional(),
            input("W_scale", "T"),
            input("W_zero_point", "T2"),
            input("R_scale", "T"),
            input("R_zero_point", "T2"),
            output("Y", "T").optional(),
            output("Y_h", "T").optional(),
            output("Y_c", "T").optional(),
            floats("activation_alpha"),
            floats("activation_beta"),
            strings("activations"),
            float("clip"),
            string("direction").or_word("forward"),
            int("hidden_size"),
            int("input_forget").or(0),
            types("T", TypeSet::tensors(&[Float])),
            types("T1", TypeSet::tensors(&[Int32])),
            types("T2", BYTES),
        ],
    )
    .infer(|cx| infer_layer(cx, 1))
    .body_or_reason(1, steps::build_quantized_memory)
    .cost(multiply_adds);
