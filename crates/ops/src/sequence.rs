//! Operators on sequences of tensors, such as `SequenceAt`, `SequenceMap` and `SplitToSequence`.

mod gradients;
pub(crate) mod items;

use sardonyx_model::{Dim, Shape, TensorType, Type};
use sardonyx_tensor::DataType;
use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{ALL, ALL_IR4, graph, input, inputs, int, output, outputs, types};
use crate::function::{Expand, type_text};
use crate::infer::{Infer, InferError};
use crate::math::shape_values::of_input;
use crate::rules::{common_shape, elem_attribute, same_as_first};
use crate::typeset::TypeSet;

pub(crate) static CONCAT_FROM_SEQUENCE: OpDef = OpDef::new("ConcatFromSequence")
    .about(
        "Concatenates the tensors of a sequence along an axis, or stacks them along a new one. An \
         empty sequence is an error.",
    )
    .since(
        11,
        &[
            input("input_sequence", "S"),
            output("concat_result", "T"),
            int("axis").required(),
            int("new_axis").or(0),
            types("S", ALL.as_sequences()),
            types("T", ALL),
        ],
    )
    .infer(concat_from_sequence)
    .gradient(gradients::concat);

pub static SEQUENCE_AT: OpDef = OpDef::new("SequenceAt")
    .about("Returns the tensor at a position of a sequence.")
    .since(
        11,
        &[
            input("input_sequence", "S"),
            input("position", "I"),
            output("tensor", "T"),
            types("S", ALL.as_sequences()),
            types("T", ALL),
            types("I", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .infer(at)
    .gradient(gradients::at);

pub static SEQUENCE_CONSTRUCT: OpDef = OpDef::new("SequenceConstruct")
    .about("Creates a sequence of tensors of the same element type.")
    .since(
        11,
        &[
            inputs("inputs", "T"),
            output("output_sequence", "S"),
            types("T", ALL),
            types("S", ALL.as_sequences()),
        ],
    )
    .infer(construct)
    .infer_as_reference(construct_as_reference)
    .gradient(gradients::construct);

pub(crate) static SEQUENCE_EMPTY: OpDef = OpDef::new("SequenceEmpty")
    .about("Creates an empty sequence of tensors.")
    .since(11, &[output("output", "S"), int("dtype"), types("S", ALL.as_sequences())])
    .infer(empty);

pub(crate) static SEQUENCE_ERASE: OpDef = OpDef::new("SequenceErase")
    .about("Removes the tensor at a position of a sequence.")
    .since(
        11,
        &[
            input("input_sequence", "S"),
            input("position", "I").optional(),
            output("output_sequence", "S"),
            types("S", ALL.as_sequences()),
            types("I", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .infer(same_as_first)
    .gradient(gradients::erase);

pub static SEQUENCE_INSERT: OpDef = OpDef::new("SequenceInsert")
    .about("Inserts a tensor into a sequence, before a position or at the end.")
    .since(
        11,
        &[
            input("input_sequence", "S"),
            input("tensor", "T"),
            input("position", "I").optional(),
            output("output_sequence", "S"),
            types("T", ALL),
            types("S", ALL.as_sequences()),
            types("I", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .infer(insert)
    .gradient(gradients::insert);

pub static SEQUENCE_LENGTH: OpDef = OpDef::new("SequenceLength")
    .about("Number of tensors in a sequence, as a scalar.")
    .since(
        11,
        &[
            input("input_sequence", "S"),
            output("length", "I"),
            types("S", ALL.as_sequences()),
            types("I", TypeSet::tensors(&[Int64])),
        ],
    )
    .infer(length);

pub(crate) static SEQUENCE_MAP: OpDef = OpDef::new("SequenceMap")
    .about(
        "Applies a graph to each tensor of a sequence and collects the results in sequences. All \
         sequence inputs must have the same length.",
    )
    .since(
        17,
        &[
            input("input_sequence", "S"),
            inputs("additional_inputs", "V").mixed(0),
            outputs("out_sequence", "S").mixed(1),
            graph("body").required(),
            types("S", ALL.as_sequences()),
            types("V", ALL.and(ALL.as_sequences())),
        ],
    )
    .infer(crate::control::infer::sequence_map)
    .infer_as_reference(crate::control::infer::sequence_map_as_reference)
    .body_from(17, map);

pub static SPLIT_TO_SEQUENCE: OpDef = OpDef::new("SplitToSequence")
    .about(
        "Splits a tensor along an axis into a sequence of tensors. Without `split` the parts have \
         size 1. With a scalar `split` all parts have that size, but the last may be smaller. With \
         a 1-D `split` the parts have the sizes that it lists.",
    )
    .since(
        11,
        &[
            input("input", "T"),
            input("split", "I").optional(),
            output("output_sequence", "S"),
            int("axis").or(0),
            int("keepdims").or(1),
            types("T", ALL),
            types("I", TypeSet::tensors(&[Int32, Int64])),
            types("S", ALL.as_sequences()),
        ],
    )
    .since(24, &[types("T", ALL_IR4), types("S", ALL_IR4.as_sequences())])
    .widens()
    .infer(split_to_sequence)
    .gradient(gradients::split);

/// Builds a loop over the positions of the sequence, which grows one sequence for each output.
fn map(cx: &Expand<'_>) -> Option<String> {
    let body = cx.graph("body", "body_")?;
    let called = |count: usize, has: &dyn Fn(usize) -> bool| count > 0 && (0..count).all(has);
    if !called(body.inputs.len(), &|index| cx.has_input(index))
        || !called(body.outputs.len(), &|index| cx.has_output(index))
        || !matches!(cx.input_type(0), Some(Type::Sequence(_)))
    {
        return None;
    }
    let mut text = "length = SequenceLength (input_sequence)
        go_on = Constant <value = bool {1}> ()\n"
        .to_string();
    let (mut empties, mut results) = (String::new(), String::new());
    let (mut states, mut grown) = (String::new(), String::new());
    let mut inserts = String::new();
    for (index, (output, ty)) in body.outputs.iter().zip(&body.output_types).enumerate() {
        let ty = ty.as_ref()?.as_tensor()?;
        let (elem, seq) = (ty.elem?.number(), type_text(ty)?);
        text += &format!("empty_{index} = SequenceEmpty <dtype = {elem}> ()\n");
        empties += &format!(", empty_{index}");
        results += &format!("{}out_sequence_{index}", if index > 0 { ", " } else { "" });
        states += &format!(", seq({seq}) so_far_{index}");
        grown += &format!(", seq({seq}) grown_{index}");
        inserts += &format!("grown_{index} = SequenceInsert (so_far_{index}, {output})\n");
    }
    let mut elements = String::new();
    for (index, input) in body.inputs.iter().enumerate() {
        let name = match index {
            0 => "input_sequence".to_string(),
            _ => format!("additional_inputs_{index}"),
        };
        elements += &match cx.input_type(index) {
            Some(Type::Sequence(_)) => format!("{input} = SequenceAt ({name}, position)\n"),
            _ => format!("{input} = Identity ({name})\n"),
        };
    }
    let nodes = &body.nodes;
    Some(format!(
        "{text}
        {results} = Loop (length, go_on{empties}) <
            body = each (int64 position, bool go_on_in{states}) => (bool go_on_out{grown}) {{
                go_on_out = Identity (go_on_in)
                {elements}
                {nodes}
                {inserts}
            }}
        >"
    ))
}

fn sequence_of(tensor: TensorType) -> Type {
    Type::Sequence(Box::new(Type::Tensor(tensor)))
}

/// Returns the type of the tensors in an input that is a sequence.
fn elements<'a>(cx: &Infer<'a>, index: usize) -> Option<&'a TensorType> {
    match cx.input(index)? {
        Type::Sequence(element) => element.as_tensor(),
        _ => None,
    }
}

/// Returns the element type that tensors in one sequence must share.
fn same_elem(
    cx: &Infer<'_>,
    a: Option<DataType>,
    b: Option<DataType>,
) -> Result<Option<DataType>, InferError> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => cx.fail(format_args!(
            "a sequence has one element type, not {} and {}",
            a.name(),
            b.name()
        )),
        _ => Ok(a.or(b)),
    }
}

const DIFFERENT: &str = "the sizes of tensors in a sequence, which may differ";

/// Infers like the reference implementation, which refuses inputs without a type, and a node
/// without inputs.
fn construct_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let mut inputs = 0..cx.input_count().max(1);
    if let Some(index) = inputs.find(|index| cx.input(*index).is_none()) {
        return cx.fail(format_args!("the type of input {index} is unknown"));
    }
    construct(cx)
}

fn construct(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let mut elem = None;
    let mut shape = cx.shape(0).cloned();
    for index in 0..cx.input_count() {
        elem = same_elem(cx, elem, cx.elem(index))?;
        shape = match (shape, cx.shape(index)) {
            (Some(shape), Some(next)) => common_shape(&shape, next),
            _ => None,
        };
    }
    cx.set(0, sequence_of(TensorType { elem, shape }));
    cx.set_reason(0, DIFFERENT);
    Ok(())
}

fn insert(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let (before, new) = (elements(cx, 0), cx.tensor(1));
    let elem = same_elem(cx, before.and_then(|t| t.elem), new.and_then(|t| t.elem))?;
    let shape = match (before.and_then(|t| t.shape.as_ref()), cx.shape(1)) {
        (Some(before), Some(new)) => common_shape(before, new),
        _ => None,
    };
    cx.set(0, sequence_of(TensorType { elem, shape }));
    cx.set_reason(0, DIFFERENT);
    Ok(())
}

fn empty(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = elem_attribute(cx, "dtype")?.unwrap_or(DataType::Float);
    let shape = None;
    cx.set(0, sequence_of(TensorType { elem: Some(elem), shape }));
    Ok(())
}

fn at(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let (elem, shape) = elements(cx, 0).map_or((None, None), |t| (t.elem, t.shape.clone()));
    cx.set_tensor(0, elem, shape);
    Ok(())
}

fn length(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.set_tensor(0, Some(Int64), Some(Shape::new()));
    Ok(())
}

fn concat_from_sequence(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let new_axis = match cx.int("new_axis") {
        None | Some(0) => false,
        Some(1) => true,
        Some(other) => return cx.fail(format_args!("new_axis must be 0 or 1, not {other}")),
    };
    let element = elements(cx, 0);
    let mut shape = element.and_then(|t| t.shape.clone());
    if let Some(sizes) = &mut shape {
        let Some(axis) = cx.int("axis") else {
            return cx.fail("attribute 'axis' is missing");
        };
        let axis = cx.axis(axis, sizes.len() + usize::from(new_axis))?;
        if new_axis {
            sizes.insert(axis, Dim::Unknown);
        } else {
            sizes[axis] = Dim::Unknown;
        }
    }
    cx.set_tensor(0, element.and_then(|t| t.elem), shape);
    cx.set_reason(0, "the number of tensors in the sequence");
    Ok(())
}

fn split_to_sequence(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = cx.elem(0);
    let mut shape = cx.shape(0).cloned();
    if let Some(sizes) = &mut shape {
        let axis = cx.axis(cx.int("axis").unwrap_or(0), sizes.len())?;
        if cx.has_input(1) {
            sizes[axis] = piece(cx, &sizes[axis], axis)?;
        } else if cx.int("keepdims").unwrap_or(1) == 0 {
            sizes.remove(axis);
        } else {
            sizes[axis] = Dim::Known(1);
        }
    }
    cx.set(0, sequence_of(TensorType { elem, shape }));
    cx.set_reason(0, DIFFERENT);
    Ok(())
}

/// Returns the length of the pieces of an axis, if all pieces have the same one.
fn piece(cx: &Infer<'_>, whole: &Dim, axis: usize) -> Result<Dim, InferError> {
    let Some(split) = of_input(cx, 1) else {
        return Ok(Dim::Unknown);
    };
    match (&split.dims[..], &split.values[..]) {
        ([], [Dim::Known(length)]) if *length < 1 => {
            cx.fail(format_args!("the length of a part must be greater than zero, not {length}"))
        }
        ([], [length]) => {
            let comes_out = whole.exact_div(length).is_some();
            Ok(if comes_out { length.clone() } else { Dim::Unknown })
        }
        (_, []) => cx.fail("split is empty"),
        (_, [first, rest @ ..]) => {
            if let Some(length) = split.values.iter().find(|l| l.known().is_some_and(|l| l < 0)) {
                return cx.fail(format_args!("the length of a part is negative: {length}"));
            }
            let sum = rest.iter().fold(first.clone(), |sum, length| sum.add(length));
            if whole.surely_differs(&sum) {
                return cx.fail(format_args!(
                    "the parts have {sum} elements in total, but axis {axis} has {whole}"
                ));
            }
            let same = rest.iter().all(|length| length.surely_equals(first));
            Ok(if same { first.clone() } else { Dim::Unknown })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::tensor::testing::check;

    #[test]
    fn tensors_of_a_sequence_share_a_type() {
        // SHAPE-16
        check(
            &SEQUENCE_CONSTRUCT,
            11,
            &[
                (&[], "float[2, 3, N]; float[2, 5, N]", "seq(float[2, ?, N])"),
                (&[], "float[2, 3]; float[2]", "seq(float[...])"),
                (&[], "float[2]; -", "seq(float[...])"),
                (&[], "float[2]", "seq(float[2])"),
                (
                    &[],
                    "float[2]; int64[2]",
                    "SequenceConstruct: a sequence has one element type, not float and int64",
                ),
            ],
        );
        check(
            &SEQUENCE_INSERT,
            11,
            &[
                (&[], "seq(float[2, N]); float[2, N]; int64", "seq(float[2, N])"),
                (&[], "seq(float[2, 3]); float[2, 4]", "seq(float[2, ?])"),
                (&[], "seq(float[...]); float[2]", "seq(float[...])"),
                (&[], "-; float[2]", "seq(float[...])"),
                (
                    &[],
                    "seq(float[2]); int8[2]",
                    "SequenceInsert: a sequence has one element type, not float and int8",
                ),
            ],
        );
        check(&SEQUENCE_ERASE, 11, &[(&[], "seq(float[2]); int64", "seq(float[2])")]);
        check(
            &SEQUENCE_AT,
            11,
            &[(&[], "seq(float[2, ?]); int64", "float[2, ?]"), (&[], "-; int64", "?[...]")],
        );
        check(&SEQUENCE_LENGTH, 11, &[(&[], "-", "int64")]);
        check(
            &SEQUENCE_EMPTY,
            11,
            &[
                (&[], "", "seq(float[...])"),
                (&[("dtype", Int(7))], "", "seq(int64[...])"),
                (&[("dtype", Int(70))], "", "SequenceEmpty: dtype = 70 is not an element type"),
            ],
        );
    }

    #[test]
    fn sequences_are_joined() {
        let axis = |axis| ("axis", Int(axis));
        let new = ("new_axis", Int(1));
        check(
            &CONCAT_FROM_SEQUENCE,
            11,
            &[
                (&[axis(-3)], "seq(float[2, 3, N])", "float[?, 3, N]"),
                (&[axis(-1), new.clone()], "seq(float[2, N])", "float[2, N, ?]"),
                (&[axis(0), new.clone()], "seq(float)", "float[?]"),
                (&[axis(0)], "seq(float[...])", "float[...]"),
                (&[axis(0)], "-", "?[...]"),
                (
                    &[axis(3), new],
                    "seq(float[2, N])",
                    "ConcatFromSequence: axis 3 is out of range for rank 3",
                ),
                (
                    &[axis(2)],
                    "seq(float[2, N])",
                    "ConcatFromSequence: axis 2 is out of range for rank 2",
                ),
                (
                    &[axis(0), ("new_axis", Int(2))],
                    "seq(float[2, N])",
                    "ConcatFromSequence: new_axis must be 0 or 1, not 2",
                ),
                (&[], "seq(float[2, N])", "ConcatFromSequence: attribute 'axis' is missing"),
            ],
        );
    }

    #[test]
    fn tensors_are_cut() {
        check(
            &SPLIT_TO_SEQUENCE,
            11,
            &[
                (&[], "float[N, 4]", "seq(float[1, 4])"),
                (&[("axis", Int(-1))], "float[N, 4]", "seq(float[N, 1])"),
                (&[("keepdims", Int(0))], "float[N, 4]", "seq(float[4])"),
                (&[("keepdims", Int(0))], "float[6, 4]; =[3, 3]", "seq(float[3, 4])"),
                (&[], "float[6, 4]; =2", "seq(float[2, 4])"),
                (&[], "float[6, 4]; =4", "seq(float[?, 4])"),
                (&[], "float[N, 4]; =2", "seq(float[?, 4])"),
                (&[], "float[6, 4]; =[2, 1, 3]", "seq(float[?, 4])"),
                (&[], "float[6]; int64", "seq(float[?])"),
                (&[], "-; =2", "seq(?[...])"),
                (
                    &[],
                    "float[6]; =0",
                    "SplitToSequence: the length of a part must be greater than zero, not 0",
                ),
                (
                    &[],
                    "float[6]; =[2, 3]",
                    "SplitToSequence: the parts have 5 elements in total, but axis 0 has 6",
                ),
                (&[], "float[6]; =[]", "SplitToSequence: split is empty"),
                (
                    &[],
                    "float[6]; =[7, -1]",
                    "SplitToSequence: the length of a part is negative: -1",
                ),
                (
                    &[("axis", Int(1))],
                    "float[6]",
                    "SplitToSequence: axis 1 is out of range for rank 1",
                ),
            ],
        );
    }
}
