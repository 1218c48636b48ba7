//! Operators that make, move and describe elements without arithmetic.
//!
//! Most of them also pass on known integers, so that shapes stay known through chains such as
//! `Shape -> Slice -> Concat -> Reshape`.

pub(crate) mod cast;
pub(crate) mod cast_like;
pub(crate) mod concat;
pub(crate) mod constant;
pub(crate) mod constant_of_shape;
pub(crate) mod expand;
pub(crate) mod flatten;
pub(crate) mod gather;
pub(crate) mod gather_elements;
pub(crate) mod generate;
pub(crate) mod gradients;
pub(crate) mod identity;
pub(crate) mod pad;
pub(crate) mod rearrange;
pub(crate) mod reshape;
pub(crate) mod scatter;
pub(crate) mod select;
pub(crate) mod shape;
pub(crate) mod size;
pub(crate) mod slice;
pub(crate) mod split;
pub(crate) mod squeeze;
pub(crate) mod transpose;
pub(crate) mod unsqueeze;
pub(crate) mod where_;

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;

use crate::adapt::{Adapt, Refusal};
use crate::attributes::Attributes;
use crate::infer::Infer;
use crate::known::MAX_KNOWN;
use crate::typeset::TypeSet;

const INT64: TypeSet = TypeSet::tensors(&[DataType::Int64]);
const INDICES: TypeSet = TypeSet::tensors(&[DataType::Int32, DataType::Int64]);

/// Expands to the facts of a version that only widens one type variable.
macro_rules! widened {
    ($variable:literal, $types:expr) => {
        &[$crate::facts::types($variable, $types)]
    };
}
use widened;

/// Multiplies dimensions.
pub(crate) fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
    dims.into_iter().fold(Dim::Known(1), |product, dim| product.mul(dim))
}

/// Returns a shape of which only the rank is known.
fn unknown_dims(rank: usize) -> Shape {
    std::iter::repeat_n(Dim::Unknown, rank).collect()
}

/// Returns the number of elements of an input that is a vector, even if its elements are unknown.
pub(crate) fn vector_len(cx: &Infer<'_>, index: usize) -> Option<usize> {
    match (cx.known_ints(index), cx.shape(index).map(|shape| &shape[..])) {
        (Some(values), _) => Some(values.len()),
        // A greater length does not describe a shape and would only cost memory.
        (None, Some([len])) => len.size().filter(|len| *len <= MAX_KNOWN),
        _ => None,
    }
}

/// Axes that are an attribute in old versions and the input `index` in newer ones.
enum Axes {
    /// The node has none.
    Absent,
    /// The axes are unknown. Holds their number, if that is known.
    Unknown(Option<usize>),
    Known(Vec<i64>),
}

fn axes(cx: &Infer<'_>, index: usize) -> Axes {
    if let Some(axes) = cx.ints("axes").or_else(|| cx.constant_ints(index)) {
        Axes::Known(axes)
    } else if cx.has_input(index) {
        Axes::Unknown(vector_len(cx, index))
    } else {
        Axes::Absent
    }
}

/// Turns an attribute of integers into the input `index`. An absent attribute becomes an absent
/// input.
fn ints_to_input(cx: &mut Adapt<'_>, attribute: &str, index: usize) -> Result<(), Refusal> {
    if let Some(values) = cx.ints(attribute) {
        cx.remove(attribute);
        let values = cx.add_ints(&values);
        cx.set_input(index, Some(values));
    }
    Ok(())
}

/// Tables of inputs and inferred outputs, for this family and for `nn`.
#[cfg(test)]
pub(crate) mod testing {
    use std::borrow::Cow;

    use sardonyx_model::{AttributeValue, MadeNodes, Model, NodeBuilder, Type};
    use sardonyx_tensor::{Buffer, Tensor};

    use crate::known::Known;
    use crate::math::testing::{infer, infer_some, ty, value};
    use crate::{Adapt, Assumption, AttrValue, OpDef};

    /// Infers the types of the outputs and returns them or the error as text. Inputs are types such
    /// as `float[2, N]`, or values such as `=[0, -1]` and `~[0.5]` (floats), or `_` for an absent
    /// one.
    pub(crate) fn outputs(
        def: &OpDef,
        opset: u32,
        attributes: &[(&'static str, AttrValue<'static>)],
        inputs: &str,
        count: usize,
    ) -> String {
        let inputs: Vec<&str> =
            inputs.split(';').map(str::trim).filter(|input| !input.is_empty()).collect();
        let known: Vec<_> = inputs
            .iter()
            .map(|input| match input.strip_prefix('=') {
                Some(text) => value(text),
                None => input.strip_prefix('~').map(floats),
            })
            .collect();
        let present: Vec<bool> = inputs.iter().map(|input| *input != "_").collect();
        let types: Vec<_> = inputs
            .iter()
            .zip(&known)
            .map(|(input, known)| match known {
                Some(known) => type_of(known),
                None if *input == "_" => None,
                None => ty(input),
            })
            .collect();
        match infer_some(def, opset, attributes, &types, &known, &present, count) {
            Ok((types, _)) => {
                let show = |ty: &Option<Type>| ty.as_ref().map_or("-".to_string(), Type::to_string);
                types.iter().map(show).collect::<Vec<_>>().join("; ")
            }
            Err(error) => error.to_string(),
        }
    }

    fn type_of(known: &Known) -> Option<Type> {
        Some(Type::tensor(known.elem(), known.dims().iter().copied()))
    }

    /// Makes a constant vector of floats from text such as `[1.0, 2.5]`.
    fn floats(text: &str) -> Known {
        let numbers: Vec<f32> = text
            .trim_matches(['[', ']'])
            .split(',')
            .map(str::trim)
            .filter(|number| !number.is_empty())
            .map(|number| number.parse().expect("a number"))
            .collect();
        let tensor = Tensor::from_vec(&[numbers.len()][..], numbers);
        Known::Tensor(tensor.expect("as many elements as the size"))
    }

    /// Makes an attribute of integers.
    pub(crate) fn ints(values: &'static [i64]) -> AttrValue<'static> {
        AttrValue::Ints(Cow::Borrowed(values))
    }

    /// Makes an attribute that is a word.
    pub(crate) fn word(text: &'static str) -> AttrValue<'static> {
        AttrValue::String(Cow::Borrowed(text.as_bytes()))
    }

    /// Checks rows of attributes, inputs and the expected type of the only output.
    pub(crate) fn check(
        def: &OpDef,
        opset: u32,
        rows: &[(&[(&'static str, AttrValue<'static>)], &str, &str)],
    ) {
        for (attributes, inputs, expected) in rows {
            let found = outputs(def, opset, attributes, inputs, 1);
            assert_eq!(found, *expected, "{} {opset} {attributes:?} of {inputs}", def.name);
        }
    }

    /// Applies the adapter to the next version to a node with `outputs` outputs. Returns its
    /// integer attributes and its number of outputs.
    pub(crate) fn raise_outputs(def: &OpDef, from: u32, outputs: usize) -> String {
        cross_outputs(def, from, from + 1, &[], outputs, &[], &[])
    }

    /// Applies an adapter to a node with attributes, with `outputs` outputs of which some have
    /// readers, under granted assumptions. Returns its integer attributes and its number of
    /// outputs.
    pub(crate) fn cross_outputs(
        def: &OpDef,
        from: u32,
        to: u32,
        attributes: &[(&str, AttrValue<'static>)],
        outputs: usize,
        read: &[usize],
        granted: &[Assumption],
    ) -> String {
        let mut model = Model::read(Buffer::from_vec(vec![0x3a, 0]))
            .expect("a model with a graph of no fields");
        let graph = model.graphs().next().expect("the graph").0;
        let node = model.add_node(graph, def.name, "", &[], outputs);
        for index in read {
            model.add_node(graph, "Identity", "", &[model.outputs(node)[*index]], 1);
        }
        for (name, value) in attributes {
            model.set_attribute(node, name, value.clone());
        }
        let adapter = def.adapter_at(from, to).expect("the adapter");
        let mut made = MadeNodes::default();
        let build = NodeBuilder::new(&mut model, &mut made, node);
        let types = std::collections::HashMap::new();
        if let Err(refusal) = adapter(&mut Adapt::new(build, &types).with_granted(granted)) {
            return format!("{}: {refusal}", def.name);
        }
        let mut text = String::new();
        for id in model.attributes(node) {
            let attribute = model.attribute(*id);
            if let Some(AttributeValue::Int(value)) = attribute.value() {
                text += &format!("{}={value}, ", model.display(attribute.name));
            }
        }
        text + &format!("{} outputs", model.outputs(node).iter().flatten().count())
    }

    /// Checks SHAPE-16: unknown types and unknown ranks of inputs are not errors in any version.
    #[test]
    fn unknown_inputs_are_not_errors() {
        let all: [(&OpDef, usize); 26] = [
            (&crate::nn::average_pool::AVERAGE_POOL, 1),
            (&crate::nn::batch_normalization::BATCH_NORMALIZATION, 5),
            (&super::cast::CAST, 1),
            (&super::concat::CONCAT, 2),
            (&super::constant_of_shape::CONSTANT_OF_SHAPE, 1),
            (&crate::nn::conv::CONV, 3),
            (&crate::nn::dropout::DROPOUT, 1),
            (&super::expand::EXPAND, 2),
            (&super::flatten::FLATTEN, 1),
            (&super::gather::GATHER, 2),
            (&crate::nn::global_pool::GLOBAL_AVERAGE_POOL, 1),
            (&crate::nn::global_pool::GLOBAL_MAX_POOL, 1),
            (&super::identity::IDENTITY, 1),
            (&crate::nn::instance_normalization::INSTANCE_NORMALIZATION, 3),
            (&crate::nn::lrn::LRN, 1),
            (&crate::nn::max_pool::MAX_POOL, 1),
            (&super::pad::PAD, 4),
            (&super::reshape::RESHAPE, 2),
            (&super::shape::SHAPE, 1),
            (&super::size::SIZE, 1),
            (&super::slice::SLICE, 5),
            (&super::split::SPLIT, 2),
            (&super::squeeze::SQUEEZE, 2),
            (&super::transpose::TRANSPOSE, 1),
            (&super::unsqueeze::UNSQUEEZE, 2),
            (&super::where_::WHERE, 3),
        ];
        for (def, inputs) in all {
            for version in def.versions() {
                for input in ["-", "float[...]", "?[...]", "float[?, ?, ?, ?]"] {
                    // Inputs after the first describe shapes and axes; their rank is right or
                    // unknown.
                    let rest = if input == "-" { "-" } else { "?[...]" };
                    let texts: Vec<&str> = std::iter::once(input)
                        .chain(std::iter::repeat_n(rest, inputs - 1))
                        .collect();
                    let types: Vec<Option<Type>> = texts.iter().map(|text| ty(text)).collect();
                    if let Err(error) = infer(def, version.since, &[], &types, &[], 1) {
                        // An input that must be a vector got four axes.
                        assert!(
                            input == "float[?, ?, ?, ?]" && error.0.contains("must have rank 1"),
                            "{} {} of {texts:?}: {error}",
                            def.name,
                            version.since
                        );
                    }
                }
            }
        }
    }
}
