//! Recurrent layers.

use sardonyx_tensor::DataType::Int32;

use crate::def::OpDef;
use crate::facts::{
    FLOATS, FLOATS_IR4, float, floats, input, int, output, string, strings, types,
    without_attribute,
};
use crate::typeset::TypeSet;

pub(crate) static GRU: OpDef = OpDef::new("GRU")
    .about("A recurrent layer of gated units with an update and a reset gate; forwards, backwards or both.")
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("R", "T"),
            input("B", "T").optional(),
            input("sequence_lens", "T1").optional(),
            input("initial_h", "T").optional(),
            output("Y", "T").optional(),
            output("Y_h", "T"),
            floats("activation_alpha"),
            floats("activation_beta"),
            strings("activations"),
            float("clip"),
            string("direction").or_string("foward"),
            int("hidden_size"),
            int("output_sequence").or(0),
            types("T", FLOATS),
            types("T1", TypeSet::tensors(&[Int32])),
        ],
    )
    .since(
        3,
        &[
            output("Y_h", "T").optional(),
            string("direction").or_string("forward"),
            int("linear_before_reset").or(0),
        ],
    )
    .since(7, &[without_attribute("output_sequence")])
    .since(
        14,
        &[
            input("X", "T").differentiable(),
            input("W", "T").differentiable(),
            input("R", "T").differentiable(),
            input("B", "T").optional().differentiable(),
            input("sequence_lens", "T1").optional().non_differentiable(),
            input("initial_h", "T").optional().non_differentiable(),
            output("Y", "T").optional().differentiable(),
            output("Y_h", "T").optional().differentiable(),
            int("layout").or(0),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static LSTM: OpDef = OpDef::new("LSTM")
    .about("A recurrent layer of long short-term memory: cells with input, output and forget gates, and peepholes if \
         wanted; forwards, backwards or both.")
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("R", "T"),
            input("B", "T").optional(),
            input("sequence_lens", "T1").optional(),
            input("initial_h", "T").optional(),
            input("initial_c", "T").optional(),
            input("P", "T").optional(),
            output("Y", "T").optional(),
            output("Y_h", "T").optional(),
            output("Y_c", "T").optional(),
            floats("activation_alpha"),
            floats("activation_beta"),
            strings("activations"),
            float("clip"),
            string("direction").or_string("forward"),
            int("hidden_size"),
            int("input_forget").or(0),
            int("output_sequence").or(0),
            types("T", FLOATS),
            types("T1", TypeSet::tensors(&[Int32])),
        ],
    )
    .since(7, &[without_attribute("output_sequence")])
    .since(
        14,
        &[
            input("X", "T").differentiable(),
            input("W", "T").differentiable(),
            input("R", "T").differentiable(),
            input("B", "T").optional().differentiable(),
            input("sequence_lens", "T1").optional().non_differentiable(),
            input("initial_h", "T").optional().non_differentiable(),
            input("initial_c", "T").optional().non_differentiable(),
            input("P", "T").optional().differentiable(),
            output("Y", "T").optional().differentiable(),
            output("Y_h", "T").optional().differentiable(),
            output("Y_c", "T").optional().differentiable(),
            int("layout").or(0),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static RNN: OpDef = OpDef::new("RNN")
    .about("A recurrent layer of the simplest kind: one activation of a sum of input and state; forwards, backwards or \
         both.")
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("R", "T"),
            input("B", "T").optional(),
            input("sequence_lens", "T1").optional(),
            input("initial_h", "T").optional(),
            output("Y", "T").optional(),
            output("Y_h", "T").optional(),
            floats("activation_alpha"),
            floats("activation_beta"),
            strings("activations").or_strings(&["Tanh", "Tanh"]),
            float("clip"),
            string("direction").or_string("forward"),
            int("hidden_size"),
            int("output_sequence").or(0),
            types("T", FLOATS),
            types("T1", TypeSet::tensors(&[Int32])),
        ],
    )
    .since(7, &[without_attribute("output_sequence")])
    .since(
        14,
        &[
            input("X", "T").differentiable(),
            input("W", "T").differentiable(),
            input("R", "T").differentiable(),
            input("B", "T").optional().differentiable(),
            input("sequence_lens", "T1").optional().non_differentiable(),
            input("initial_h", "T").optional().non_differentiable(),
            output("Y", "T").optional().differentiable(),
            output("Y_h", "T").optional().differentiable(),
            int("layout").or(0),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);
