//! Initial values of weights.
//!
//! He: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", ICCV 2015. Xavier: Glorot, Bengio,
//! "Understanding the difficulty of training deep feedforward neural networks", AISTATS 2010.

use std::str::FromStr;

use sardonyx_proto::suggest::hint;

use sardonyx_model::{AttrValue, GraphId, Model, ValueId};
use sardonyx_ops::scalar;
use sardonyx_tensor::{DataType, Tensor};

use super::variables::{Role, Variable};

/// Initial values of the weights, before the first step. With all variants except
/// [`Keep`](Initialization::Keep), biases are 0 and scales of normalizations 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Initialization {
    /// The values in the model.
    #[default]
    Keep,
    /// Normal distribution of variance 2/n, where n is the number of inputs of each output (He et
    /// al., 2015).
    He,
    /// Uniform distribution between ±√(6/(n+m)), where each output is a sum over n inputs, and each
    /// input goes into m outputs (Glorot and Bengio, 2010).
    Xavier,
    /// Uniform distribution between minus this value and this value.
    Uniform(f64),
}

impl FromStr for Initialization {
    type Err = String;

    /// Parses `keep`, `he`, `xavier`, or `uniform:` with a bound, such as `uniform:0.1`.
    fn from_str(text: &str) -> Result<Initialization, String> {
        match text {
            "keep" => Ok(Initialization::Keep),
            "he" => Ok(Initialization::He),
            "xavier" => Ok(Initialization::Xavier),
            _ => {
                let bound = text.strip_prefix("uniform:");
                let bound = bound.and_then(|bound| bound.parse::<f64>().ok());
                let bound = bound.filter(|bound| bound.is_finite() && *bound > 0.0);
                bound.map(Initialization::Uniform).ok_or_else(|| {
                    let name = text.split(':').next().unwrap_or_default();
                    let near = hint(name, ["keep", "he", "xavier", "uniform:BOUND"]);
                    format!(
                        "not one of keep, he, xavier and uniform:BOUND with a bound above 0{near}"
                    )
                })
            }
        }
    }
}

impl Initialization {
    /// Returns the version of `ai.onnx` that the graph needs: 9 added ConstantOfShape.
    pub(super) fn opset(self) -> u32 {
        if self == Initialization::Keep { 1 } else { 9 }
    }
}

/// Initial values of a variable.
#[derive(Debug, Clone)]
pub(super) struct Beginning {
    name: String,
    elem: DataType,
    dims: Vec<usize>,
    how: Distribution,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Distribution {
    Constant(f64),
    Normal(f64),
    Uniform(f64),
}

/// Chooses the distribution of the initial values of variables.
pub(super) fn plan(initialization: Initialization, variables: &[Variable]) -> Vec<Beginning> {
    let how = |variable: &Variable| {
        let Role::Product { inputs, outputs } = variable.role else {
            let is_scale = variable.role == Role::Scale;
            return Distribution::Constant(f64::from(u8::from(is_scale)));
        };
        let (inputs, outputs) = (inputs.max(1) as f64, outputs.max(1) as f64);
        match initialization {
            Initialization::Keep => Distribution::Constant(0.0),
            Initialization::He => Distribution::Normal((2.0 / inputs).sqrt()),
            Initialization::Xavier => Distribution::Uniform((6.0 / (inputs + outputs)).sqrt()),
            Initialization::Uniform(bound) => Distribution::Uniform(bound),
        }
    };
    if initialization == Initialization::Keep {
        return Vec::new();
    }
    let beginning = |variable: &Variable| Beginning {
        name: variable.name.clone(),
        elem: variable.elem,
        dims: variable.dims.clone(),
        how: how(variable),
    };
    variables.iter().map(beginning).collect()
}

/// Builds the graph that computes initial values, and returns it with pairs of a variable and an
/// output of the graph.
pub(super) fn build(
    model: &mut Model,
    beginnings: &[Beginning],
) -> (Option<GraphId>, Vec<(String, String)>) {
    if beginnings.is_empty() {
        return (None, Vec::new());
    }
    let graph = model.add_graph("initialization");
    let mut bindings = Vec::new();
    for beginning in beginnings {
        let value = first_values(model, graph, beginning);
        let name = model.free_name(&format!("{}_initial", beginning.name));
        model.rename_value(value, name);
        model.add_graph_output(graph, value);
        let ty = sardonyx_model::Type::Tensor(sardonyx_model::TensorType {
            elem: Some(beginning.elem),
            shape: Some(
                beginning
                    .dims
                    .iter()
                    .map(|size| sardonyx_model::Dim::Known(*size as i64))
                    .collect(),
            ),
        });
        let declared = crate::infer::declaration(model, &ty);
        if let Some(info) = model.graph_mut(graph).outputs.last_mut() {
            info.ty = Some(declared);
        }
        bindings.push((beginning.name.clone(), model.display(Some(name)).into_owned()));
    }
    (Some(graph), bindings)
}

fn first_values(model: &mut Model, graph: GraphId, beginning: &Beginning) -> ValueId {
    let sizes: Vec<i64> = beginning.dims.iter().map(|size| *size as i64).collect();
    // Random operators have bfloat16 only since version 22: floats are drawn and cast.
    let is_drawn = !matches!(beginning.how, Distribution::Constant(_));
    let drawn = match beginning.elem {
        DataType::Bfloat16 if is_drawn => DataType::Float,
        elem => elem,
    };
    let make = |model: &mut Model,
                op: &str,
                inputs: &[Option<ValueId>],
                attributes: &[(&str, AttrValue<'_>)]| {
        let node = model.add_node(graph, op, "", inputs, 1);
        for (name, value) in attributes {
            model.set_attribute(node, name, value.clone());
        }
        model.outputs(node)[0].expect("the node has one output")
    };
    let random = |kind: [(&'static str, f64); 2]| {
        let mut attributes = vec![
            ("dtype", AttrValue::Int(drawn.number().into())),
            ("shape", AttrValue::from(&sizes[..])),
        ];
        attributes.extend(kind.map(|(name, value)| (name, AttrValue::Float(value as f32))));
        attributes
    };
    let value = match beginning.how {
        Distribution::Constant(value) => {
            let shape = Tensor::from_slice([sizes.len()], &sizes).expect("as many as it has");
            let shape = model.add_initializer(graph, "shape", &shape);
            let value = scalar(beginning.elem, value).reshape([1]).expect("one element");
            let value = AttrValue::Tensor(value);
            make(model, "ConstantOfShape", &[Some(shape)], &[("value", value)])
        }
        Distribution::Normal(deviation) => {
            let attributes = random([("mean", 0.0), ("scale", deviation)]);
            make(model, "RandomNormal", &[], &attributes)
        }
        Distribution::Uniform(bound) => {
            let attributes = random([("low", -bound), ("high", bound)]);
            make(model, "RandomUniform", &[], &attributes)
        }
    };
    if drawn == beginning.elem {
        return value;
    }
    let to = [("to", AttrValue::Int(beginning.elem.number().into()))];
    make(model, "Cast", &[Some(value)], &to)
}
