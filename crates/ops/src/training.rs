//! Operators of training steps: `ai.onnx.preview.training`.

use sardonyx_tensor::DataType::{Double, Float, Int64};

use crate::def::OpDef;
use crate::facts::{ALL, FLOATS, float, input, inputs, outputs, string, strings, types};
use crate::typeset::TypeSet;

pub(crate) static ADAGRAD: OpDef = OpDef::new("Adagrad")
    .about("A step of Adagrad: each weight moves by its gradient over the root of the sum of squares of its gradients so \
         far.")
    .domain("ai.onnx.preview.training")
    .since(
        1,
        &[
            input("R", "T1"),
            input("T", "T2"),
            inputs("inputs", "T3").mixed(1),
            outputs("outputs", "T3").mixed(1),
            float("decay_factor").or_float(0.0),
            float("epsilon").or_float(1e-06),
            float("norm_coefficient").or_float(0.0),
            types("T1", TypeSet::tensors(&[Float, Double])),
            types("T2", TypeSet::tensors(&[Int64])),
            types("T3", TypeSet::tensors(&[Float, Double])),
        ],
    );

pub(crate) static ADAM: OpDef = OpDef::new("Adam")
    .about("A step of Adam: each weight moves by a running mean of its gradients over the root of one of their squares.").domain("ai.onnx.preview.training").since(
    1,
    &[
        input("R", "T1"),
        input("T", "T2"),
        inputs("inputs", "T3").mixed(1),
        outputs("outputs", "T3").mixed(1),
        float("alpha").or_float(0.9),
        float("beta").or_float(0.999),
        float("epsilon").or_float(1e-06),
        float("norm_coefficient").or_float(0.0),
        float("norm_coefficient_post").or_float(0.0),
        types("T1", TypeSet::tensors(&[Float, Double])),
        types("T2", TypeSet::tensors(&[Int64])),
        types("T3", TypeSet::tensors(&[Float, Double])),
    ],
);

pub(crate) static GRADIENT: OpDef = OpDef::new("Gradient")
    .about("Derivatives of one value with respect to others, computed from the graph around.")
    .domain("ai.onnx.preview.training")
    .since(
        1,
        &[
            inputs("Inputs", "T1").mixed(1),
            outputs("Outputs", "T2").mixed(1),
            strings("xs").required(),
            string("y").required(),
            strings("zs"),
            types("T1", ALL),
            types("T2", FLOATS),
        ],
    );

pub(crate) static MOMENTUM: OpDef = OpDef::new("Momentum")
    .about("A step of gradient descent with momentum, the usual one or Nesterov's.")
    .domain("ai.onnx.preview.training")
    .since(
        1,
        &[
            input("R", "T1"),
            input("T", "T2"),
            inputs("inputs", "T3").mixed(1),
            outputs("outputs", "T3").mixed(1),
            float("alpha").required(),
            float("beta").required(),
            string("mode").required(),
            float("norm_coefficient").required(),
            types("T1", TypeSet::tensors(&[Float, Double])),
            types("T2", TypeSet::tensors(&[Int64])),
            types("T3", TypeSet::tensors(&[Float, Double])),
        ],
    );
