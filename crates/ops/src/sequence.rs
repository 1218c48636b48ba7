//! Sequences of tensors.

use sardonyx_model::Type;
use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{ALL, ALL_IR4, graph, input, inputs, int, output, outputs, types};
use crate::function::{Expand, type_text};
use crate::typeset::TypeSet;

pub(crate) static CONCAT_FROM_SEQUENCE: OpDef = OpDef::new("ConcatFromSequence")
    .about("Joins the tensors of a sequence along an axis, or along a new one.")
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
    );

pub(crate) static SEQUENCE_AT: OpDef = OpDef::new("SequenceAt")
    .about("The tensor at a position of a sequence; negative ones count from the end.")
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
    );

pub(crate) static SEQUENCE_CONSTRUCT: OpDef = OpDef::new("SequenceConstruct")
    .about("A sequence of the tensors given.")
    .since(
        11,
        &[
            inputs("inputs", "T"),
            output("output_sequence", "S"),
            types("T", ALL),
            types("S", ALL.as_sequences()),
        ],
    );

pub(crate) static SEQUENCE_EMPTY: OpDef = OpDef::new("SequenceEmpty")
    .about("A sequence of nothing yet, of an element type.")
    .since(
        11,
        &[
            output("output", "S"),
            int("dtype"),
            types("S", ALL.as_sequences()),
        ],
    );

pub(crate) static SEQUENCE_ERASE: OpDef = OpDef::new("SequenceErase")
    .about("A sequence without the tensor at a position, or without the last one.")
    .since(
        11,
        &[
            input("input_sequence", "S"),
            input("position", "I").optional(),
            output("output_sequence", "S"),
            types("S", ALL.as_sequences()),
            types("I", TypeSet::tensors(&[Int32, Int64])),
        ],
    );

pub(crate) static SEQUENCE_INSERT: OpDef = OpDef::new("SequenceInsert")
    .about("A sequence with a tensor put in before a position, or at the end.")
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
    );

pub(crate) static SEQUENCE_LENGTH: OpDef = OpDef::new("SequenceLength")
    .about("Number of tensors in a sequence.")
    .since(
        11,
        &[
            input("input_sequence", "S"),
            output("length", "I"),
            types("S", ALL.as_sequences()),
            types("I", TypeSet::tensors(&[Int64])),
        ],
    );

pub(crate) static SEQUENCE_MAP: OpDef = OpDef::new("SequenceMap")
    .about("Runs a graph for each tensor of a sequence, and gives sequences of what it gives.")
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
    .body_from(17, map);

pub(crate) static SPLIT_TO_SEQUENCE: OpDef = OpDef::new("SplitToSequence")
    .about(
        "Cuts a tensor along an axis into a sequence, into pieces of given lengths or of length 1.",
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
    .since(
        24,
        &[types("T", ALL_IR4), types("S", ALL_IR4.as_sequences())],
    );

/// A loop over the positions of the sequence, which grows one sequence for each output.
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
