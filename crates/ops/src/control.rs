//! Operators that run graphs.

pub(crate) mod infer;

use sardonyx_tensor::DataType::{Bool, Int64};

use crate::def::OpDef;
use crate::facts::{
    ALL, ALL_IR4, ALL_IR9, ALL_IR10, ALL_IR11, ALL_IR12, ALL_IR13, graph, input, inputs, int, ints,
    outputs, types, without_attribute, without_input, without_types,
};
use crate::typeset::TypeSet;

/// What graphs take and give: tensors, sequences and optionals of these tensors. Sequences in
/// optionals never gained the newer element types.
const fn carried(tensors: TypeSet) -> TypeSet {
    tensors
        .and(tensors.as_sequences())
        .and(tensors.as_optionals())
        .and(ALL_IR4.as_sequences().as_optionals())
}

pub static IF: OpDef = OpDef::new("If")
    .about("Runs one of two graphs and gives back what it gives back.")
    .since(
        1,
        &[
            input("cond", "B"),
            outputs("outputs", "V").mixed(1),
            graph("else_branch").required(),
            graph("then_branch").required(),
            types("V", ALL),
            types("B", TypeSet::tensors(&[Bool])),
        ],
    )
    .since(11, &[])
    .since(13, &[types("V", ALL.and(ALL.as_sequences()))])
    .since(16, &[types("V", carried(ALL_IR4))])
    .since(19, &[types("V", carried(ALL_IR9))])
    .since(21, &[types("V", carried(ALL_IR10))])
    .since(23, &[types("V", carried(ALL_IR11))])
    .since(24, &[types("V", carried(ALL_IR12))])
    .since(25, &[types("V", carried(ALL_IR13))])
    .infer(infer::if_)
    .infer_as_reference(infer::if_as_reference);

pub static LOOP: OpDef = OpDef::new("Loop")
    .about("Runs a graph again and again, at most so many times, while a condition holds. Values are carried from one \
         run to the next; what each run gives beyond them is stacked.")
    .since(
        1,
        &[
            input("M", "I").optional(),
            input("cond", "B").optional(),
            inputs("v_initial", "V").mixed(1),
            outputs("v_final_and_scan_outputs", "V").mixed(1),
            graph("body").required(),
            types("V", ALL),
            types("I", TypeSet::tensors(&[Int64])),
            types("B", TypeSet::tensors(&[Bool])),
        ],
    )
    .since(11, &[inputs("v_initial", "V").mixed(0)])
    .since(13, &[types("V", ALL.and(ALL.as_sequences()))])
    .since(
        16,
        &[types("V", carried(ALL_IR4))],
    )
    .since(
        19,
        &[types("V", carried(ALL_IR9))],
    )
    .since(
        21,
        &[types("V", carried(ALL_IR10))],
    )
    .since(
        23,
        &[types("V", carried(ALL_IR11))],
    )
    .since(
        24,
        &[types("V", carried(ALL_IR12))],
    )
    .since(
        25,
        &[types("V", carried(ALL_IR13))],
    )
    .infer(infer::loop_)
    .infer_as_reference(infer::loop_as_reference);

pub static SCAN: OpDef = OpDef::new("Scan")
    .about("Runs a graph for each slice of some inputs, in order. States are carried from one slice to the next, and \
         what each run gives beyond them is stacked along an axis.")
    .since(
        8,
        &[
            input("sequence_lens", "I").optional(),
            inputs("initial_state_and_scan_inputs", "V").mixed(1),
            outputs("final_state_and_scan_outputs", "V").mixed(1),
            graph("body").required(),
            ints("directions"),
            int("num_scan_inputs").required(),
            types("I", TypeSet::tensors(&[Int64])),
            types("V", ALL),
        ],
    )
    .since(
        9,
        &[
            without_input("sequence_lens"),
            without_attribute("directions"),
            ints("scan_input_axes"),
            ints("scan_input_directions"),
            ints("scan_output_axes"),
            ints("scan_output_directions"),
            without_types("I"),
        ],
    )
    .since(11, &[])
    .since(16, &[types("V", ALL_IR4)])
    .since(19, &[types("V", ALL_IR9)])
    .since(21, &[types("V", ALL_IR10)])
    .since(23, &[types("V", ALL_IR11)])
    .since(24, &[types("V", ALL_IR12)])
    .since(25, &[types("V", ALL_IR13)])
    .infer(infer::scan_8)
    .infer_since(9, infer::scan);
