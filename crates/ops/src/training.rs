//! Operators of `ai.onnx.preview.training`: `Gradient` and the optimizers `Adagrad`, `Adam` and
//! `Momentum`.

use sardonyx_tensor::DataType::{Double, Float, Int64};

use crate::attributes::AttrValue;
use crate::def::OpDef;
use crate::facts::{ALL, FLOATS, float, input, inputs, outputs, string, strings, types};
use crate::infer::{Infer, InferError};
use crate::rules::same_shape;
use crate::typeset::TypeSet;

pub(crate) static ADAGRAD: OpDef = OpDef::new("Adagrad")
    .about(
        "One step of the Adagrad optimizer. With `r = R / (1 + T * decay_factor)` and the gradient \
         `g = G + norm_coefficient * X`: `H_new = H + g^2`, `X_new = X - r * g / (sqrt(H_new) + \
         epsilon)`.",
    )
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
    )
    .infer(infer_adagrad);

pub(crate) static ADAM: OpDef = OpDef::new("Adam")
    .about(
        "One step of the Adam optimizer. With the gradient `g = G + norm_coefficient * X`: `V_new \
         = alpha * V + (1 - alpha) * g`, `H_new = beta * H + (1 - beta) * g^2`, `X_new = X - r * \
         V_new / (sqrt(H_new) + epsilon)`. `r` is `R`, or `R * sqrt(1 - beta^T) / (1 - alpha^T)` \
         if `T` is greater than 0. `X_new` is then scaled by `1 - norm_coefficient_post`.",
    )
    .domain("ai.onnx.preview.training")
    .since(
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
    )
    .infer(infer_adam);

pub static GRADIENT: OpDef = OpDef::new("Gradient")
    .about(
        "Partial derivatives of one tensor with respect to others, computed by automatic \
         differentiation of the graph that contains the node.",
    )
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
    )
    .infer(infer_gradient)
    .without_reference_rule(&[1]);

pub(crate) static MOMENTUM: OpDef = OpDef::new("Momentum")
    .about("One step of stochastic gradient descent with momentum, standard or Nesterov. With the \
         gradient `g = G + norm_coefficient * X` and `b = beta`, or 1 if `T` is 0: `V_new = alpha * \
         V + b * g`. Standard: `X_new = X - R * V_new`. Nesterov: `X_new = X - R * (g + alpha * \
         V_new)`.")
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
    )
    .infer(infer_momentum);

fn infer_adagrad(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_step(cx, 1)
}

fn infer_momentum(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_step(cx, 1)
}

fn infer_adam(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_step(cx, 2)
}

/// Infers an optimizer step. Inputs are the learning rate, the number of steps so far, then all
/// weights, all gradients and `states` times as many states. Outputs are the weights and the states
/// with unchanged types.
fn infer_step(cx: &mut Infer<'_>, states: usize) -> Result<(), InferError> {
    const FIRST: usize = 2;
    let parts = 2 + states;
    let given = cx.input_count().saturating_sub(FIRST);
    if !given.is_multiple_of(parts) {
        return cx.fail(format_args!(
            "{given} tensors cannot be divided into weights with as many gradients and {states} times as many states"
        ));
    }
    cx.demand_rank(0, 0)?;
    cx.demand_rank(1, 0)?;
    let weights = given / parts;
    for index in 0..weights {
        let input = |part: usize| FIRST + part * weights + index;
        let shape = same_shape(cx, &(0..parts).map(input).collect::<Vec<_>>())?;
        cx.set_tensor(index, cx.elem(input(0)), shape.clone());
        for state in 0..states {
            let elem = cx.elem(input(2 + state));
            cx.set_tensor((1 + state) * weights + index, elem, shape.clone());
        }
    }
    Ok(())
}

/// Infers derivatives, each with the type of its variable: the first inputs, one for each name in
/// `xs`.
fn infer_gradient(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let Some(AttrValue::Strings(names)) = cx.attribute("xs") else {
        return Ok(());
    };
    for index in 0..names.len().min(cx.output_count()) {
        if let Some(ty) = cx.input(index) {
            cx.set(index, ty.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::testing::outputs;

    #[test]
    fn weights_and_states_keep_their_types() {
        for def in [&ADAGRAD, &MOMENTUM] {
            let infer = |inputs: &str, count| outputs(def, 1, &[], inputs, count);
            assert_eq!(
                infer("float; int64; float[2, N]; float[2, ?]; double[?, 3]", 2),
                "float[2, 3]; double[2, 3]"
            );
            assert_eq!(
                infer("float; int64; float[1]; float[2, 3]; float[1]; float[2, 3]; float[1]; -", 4),
                "float[1]; float[2, 3]; float[1]; ?[2, 3]"
            );
            assert_eq!(
                infer("float; int64; float[1]; float[1]", 2),
                format!(
                    "{}: 2 tensors cannot be divided into weights with as many gradients and 1 times as many states",
                    def.name
                )
            );
            assert_eq!(
                infer("float; int64; float[1]; float[2]; float[1]", 2),
                format!("{}: sizes of axis 0 of inputs 2 and 3 differ (1 and 2)", def.name)
            );
        }
        assert_eq!(
            outputs(&ADAM, 1, &[], "float; int64; float[N]; -; -; double[...]", 3),
            "float[N]; ?[N]; double[N]"
        );
        assert_eq!(outputs(&ADAM, 1, &[], "-", 1), "-");
    }

    #[test]
    fn derivatives_have_the_types_of_variables() {
        let xs = [("xs", AttrValue::Strings(vec![b"a"[..].into(), b"b"[..].into()]))];
        assert_eq!(
            outputs(&GRADIENT, 1, &xs, "float[N, 2]; double; int64[3]", 3),
            "float[N, 2]; double; -"
        );
        assert_eq!(outputs(&GRADIENT, 1, &[], "float[N, 2]", 1), "-");
    }
}
