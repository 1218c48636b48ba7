//! Recurrent layers: `GRU`, `LSTM`, `RNN`.

pub(crate) mod steps;

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::Int32;

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::cost::{Counted, elements};
use crate::def::OpDef;
use crate::facts::{
    FLOATS, FLOATS_IR4, float, floats, input, int, output, string, strings, types,
    without_attribute,
};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::sharding::layers;
use crate::tensor::transpose::TRANSPOSE;
use crate::typeset::TypeSet;

pub static GRU: OpDef = OpDef::new("GRU")
    .about(
        "Gated recurrent unit (GRU) layer, forward, reverse or bidirectional. Gates: update `z`, \
         reset `r`, hidden `h`. `z = f(X·Wz^T + H·Rz^T + Wbz + Rbz)` and likewise `r`; the \
         candidate is `h = g(X·Wh^T + (r ∘ H)·Rh^T + Rbh + Wbh)`, or with `r ∘ (H·Rh^T + Rbh)` if \
         `linear_before_reset` is 1. The new state is `(1 - z) ∘ h + z ∘ H`.",
    )
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
            string("direction").or_word("foward"),
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
            string("direction").or_word("forward"),
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
    .same_up()
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .differs(lengths_differ)
    .adapter(2, 3, spell_direction)
    .adapter(3, 2, write_direction)
    .adapter(6, 7, drop_output_sequence)
    .adapter(7, 6, |cx| {
        cx.set("output_sequence", 1);
        Ok(())
    })
    .adapter(14, 13, transpose_batch)
    .cost(multiply_adds)
    .gradient_by(steps::build_gated)
    .without_reference_rule(&[1])
    .split_by(layers::recurrent);

pub static LSTM: OpDef = OpDef::new("LSTM")
    .about(
        "Long short-term memory (LSTM) layer, forward, reverse or bidirectional. Gates: input `i`, \
         output `o`, forget `f`, cell `c`. `i = f(X·Wi^T + H·Ri^T + Pi ∘ C + Wbi + Rbi)`, likewise \
         `f`, and `o` with the new cell in place of `C`; the candidate is `c = g(X·Wc^T + H·Rc^T + \
         Wbc + Rbc)`. The new cell is `f ∘ C + i ∘ c`, the new state `o ∘ h(new cell)`.",
    )
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
            string("direction").or_word("forward"),
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
    .same_up()
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .differs(lengths_differ)
    .adapter(6, 7, drop_output_sequence)
    .adapter(7, 6, |cx| {
        cx.set("output_sequence", 1);
        Ok(())
    })
    .adapter(14, 13, transpose_batch)
    .cost(multiply_adds)
    .gradient_by(steps::build_memory)
    .split_by(layers::recurrent);

pub static RNN: OpDef = OpDef::new("RNN")
    .about(
        "Simple recurrent layer (Elman RNN), forward, reverse or bidirectional. The new state is \
         `f(X·W^T + H·R^T + Wb + Rb)`.",
    )
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
            string("direction").or_word("forward"),
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
    .same_up()
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .differs(lengths_differ)
    .adapter(6, 7, drop_output_sequence)
    .adapter(7, 6, |cx| {
        cx.set("output_sequence", 1);
        Ok(())
    })
    .adapter(14, 13, transpose_batch)
    .cost(multiply_adds)
    .gradient_by(steps::build_plain)
    .split_by(layers::recurrent);

/// Writes the direction, since the default of version 1 is not a valid word.
fn write_direction(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if !cx.has("direction") {
        cx.set("direction", "forward");
    }
    Ok(())
}

/// Transposes operands of layout 1, whose batch comes first, since older versions have no layout.
fn transpose_batch(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.int("layout").unwrap_or(0) == 0 {
        return Ok(());
    }
    cx.remove("layout");
    let swap_batch = [("perm", AttrValue::from(&[1i64, 0, 2][..]))];
    for index in [X, INITIAL[0], INITIAL[1]] {
        if let Some(value) = cx.input(index) {
            let transposed = cx.before(TRANSPOSE.name, &[Some(value)], &swap_batch);
            cx.set_input(index, Some(transposed));
        }
    }
    for (output, order) in [(0, &[2i64, 0, 1, 3][..]), (1, &[1, 0, 2]), (2, &[1, 0, 2])] {
        if cx.has_output(output) {
            cx.after(output, TRANSPOSE.name, &[], &[("perm", AttrValue::from(order))]);
        }
    }
    Ok(())
}

/// Indices of inputs; only LSTM has a cell.
const X: usize = 0;
const W: usize = 1;
const R: usize = 2;
const LENGTHS: usize = 4;
const INITIAL: [usize; 2] = [5, 6];

/// Returns the difference for sequences without elements, whose state the standard leaves open.
fn lengths_differ(cx: &Infer<'_>) -> Option<String> {
    let has_state = cx.has_output(1) || cx.has_output(2);
    let lengths = cx.constant_ints(LENGTHS);
    let may_be_0 = lengths.is_none_or(|lengths| lengths.contains(&0));
    (cx.has_input(LENGTHS) && has_state && may_be_0).then(|| {
        "the final state of a sequence of length 0 is 0, as on ONNX Runtime; other runtimes give the \
         initial state, or that of all elements"
            .to_string()
    })
}

/// Counts all weights once for each step of each element of the batch; the lengths in
/// `sequence_lens` are unknown.
pub(crate) fn multiply_adds(node: &Counted<'_>) -> Option<Dim> {
    let steps = elements(node.shape(0)?.get(..2)?)?;
    Some(steps.mul(&node.elements(1)?.add(&node.elements(2)?)))
}

/// Infers the states of all steps, and the last ones.
fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_layer(cx, 2)
}

/// Infers the outputs of a layer. `input_axis` is the axis of its weights along the inputs. With
/// `layout = 1` the batch comes first.
pub(crate) fn infer_layer(cx: &mut Infer<'_>, input_axis: usize) -> Result<(), InferError> {
    for (input, rank) in [(X, 3), (W, 3), (R, 3), (3, 2), (LENGTHS, 1), (5, 3), (6, 3), (7, 2)] {
        cx.demand_rank(input, rank)?;
    }
    let batch_first = cx.int("layout").is_some_and(|layout| layout != 0);
    let (time, batch) = if batch_first { (1, 0) } else { (0, 1) };
    let [hidden_state, cell] = INITIAL;
    let steps = shared_dim(cx, "steps", &[(X, time)])?;
    let places = [(X, batch), (LENGTHS, 0), (hidden_state, batch), (cell, batch)];
    let batch = shared_dim(cx, "elements of the batch", &places)?;
    shared_dim(cx, "the size of the input", &[(X, 2), (W, input_axis)])?;
    let (directions, hidden) = (directions(cx)?, hidden_size(cx, input_axis)?);
    let (all, last): (Shape, Shape) = if batch_first {
        (
            [&batch, &steps, &directions, &hidden].into_iter().cloned().collect(),
            [&batch, &directions, &hidden].into_iter().cloned().collect(),
        )
    } else {
        (
            [&steps, &directions, &batch, &hidden].into_iter().cloned().collect(),
            [&directions, &batch, &hidden].into_iter().cloned().collect(),
        )
    };
    // In the first versions, the meaning of each output is open without `output_sequence`.
    let is_certain = cx.int("output_sequence").is_none_or(|given| given != 0);
    for output in 0..cx.output_count().min(3) {
        let shape = if output == 0 { &all } else { &last };
        cx.set_tensor(output, cx.elem(X), is_certain.then(|| shape.clone()));
    }
    Ok(())
}

/// Returns the number of directions. The sizes of W and R are not compared, since the reference
/// accepts weights of one direction for both.
fn directions(cx: &Infer<'_>) -> Result<Dim, InferError> {
    // The default of the first version of GRU is misspelt.
    match cx.string("direction").as_deref() {
        Some("forward" | "foward" | "reverse") | None => Ok(Dim::Known(1)),
        Some("bidirectional") => Ok(Dim::Known(2)),
        Some(other) => cx.fail(format_args!("direction has no value \"{other}\"")),
    }
}

fn hidden_size(cx: &Infer<'_>, input_axis: usize) -> Result<Dim, InferError> {
    let [hidden_state, cell] = INITIAL;
    let places = [(R, input_axis), (hidden_state, 2), (cell, 2)];
    let found = shared_dim(cx, "hidden units", &places)?;
    match cx.int("hidden_size") {
        Some(given @ 1..) => {
            cx.same_dim(&Dim::Known(given), &found, "hidden_size and the size of R")
        }
        _ => Ok(found),
    }
}

/// Corrects the misspelt default of the first version.
fn spell_direction(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.string("direction").is_none_or(|direction| direction == "foward") {
        cx.set("direction", "forward");
    }
    Ok(())
}

/// Removes `output_sequence`: without it, the first versions need not return the states of all
/// steps. In order to run, a node returns them if they have a reader.
fn drop_output_sequence(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let is_given = cx.int("output_sequence").is_some_and(|given| given != 0);
    if !is_given && cx.is_used(0) && !cx.runs() {
        return Err(cx.refuse("Y is used, but output_sequence is not 1"));
    }
    cx.remove("output_sequence");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{GRU, LSTM, RNN};
    use crate::AttrValue::Int;
    use crate::tensor::testing::{outputs, word};

    #[test]
    fn states_of_all_steps_and_the_last_ones() {
        // SHAPE-16
        let hidden = || ("hidden_size", Int(4));
        let rows = [
            (vec![hidden()], "float[T, N, 10]; -; -", "float[T, 1, N, 4]; float[1, N, 4]"),
            (
                vec![],
                "float[64, 32, 10]; float[1, 4, 10]; float[1, 4, 4]",
                "float[64, 1, 32, 4]; float[1, 32, 4]",
            ),
            (
                vec![],
                "float[64, N, 10]; -; -; -; int32[32]",
                "float[64, 1, 32, ?]; float[1, 32, ?]",
            ),
            (vec![], "-; -; -; -; -; float[?, 32, 4]", "?[?, 1, 32, 4]; ?[1, 32, 4]"),
            (vec![], "float[...]; -; -", "float[?, 1, ?, ?]; float[1, ?, ?]"),
            (
                vec![hidden(), ("direction", word("bidirectional"))],
                "float[T, N, 10]; -; -",
                "float[T, 2, N, 4]; float[2, N, 4]",
            ),
        ];
        for (attributes, inputs, expected) in &rows {
            for opset in [7, 14, 22] {
                for def in [&GRU, &RNN] {
                    assert_eq!(outputs(def, opset, attributes, inputs, 2), *expected);
                }
                let cell = expected.split("; ").last().expect("two outputs");
                assert_eq!(
                    outputs(&LSTM, opset, attributes, inputs, 3),
                    format!("{expected}; {cell}")
                );
            }
        }
        let layout = [hidden(), ("layout", Int(1))];
        assert_eq!(
            outputs(&RNN, 14, &layout, "float[N, T, 10]; -; -", 2),
            "float[N, T, 1, 4]; float[N, 1, 4]"
        );
        let bidirectional = [hidden(), ("layout", Int(1)), ("direction", word("bidirectional"))];
        assert_eq!(
            outputs(&RNN, 14, &bidirectional, "float[N, T, 10]; float[1, 4, 10]; -", 2),
            "float[N, T, 2, 4]; float[N, 2, 4]"
        );
    }

    #[test]
    fn first_versions_leave_outputs_open() {
        let hidden = || ("hidden_size", Int(4));
        let all = [hidden(), ("output_sequence", Int(1))];
        for (def, opset) in [(&GRU, 1), (&GRU, 3), (&RNN, 1), (&LSTM, 1)] {
            let infer =
                |attributes: &[_]| outputs(def, opset, attributes, "float[T, N, 5]; -; -", 2);
            assert_eq!(infer(&all), "float[T, 1, N, 4]; float[1, N, 4]");
            assert_eq!(infer(&[hidden()]), "float[...]; float[...]");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let rows = [
            ("float[4, 5]; -; -", "LSTM: input 0 must have rank 3, not 2"),
            (
                "float[4, 5, 6]; float[1, 16, 7]; -",
                "LSTM: the size of the input of input 1 and of others differ (6 and 7)",
            ),
            (
                "float[4, 5, 6]; -; float[1, 16, 3]",
                "LSTM: hidden_size and the size of R differ (4 and 3)",
            ),
            (
                "float[4, 5, 6]; -; -; -; int32[6]",
                "LSTM: elements of the batch of input 4 and of others differ (5 and 6)",
            ),
        ];
        for (inputs, expected) in rows {
            for opset in [1, 7, 14] {
                let hidden = [("hidden_size", Int(4))];
                assert_eq!(outputs(&LSTM, opset, &hidden, inputs, 3), expected);
            }
        }
        let sideways = [("direction", word("sideways"))];
        assert_eq!(
            outputs(&GRU, 14, &sideways, "-; -; -", 2),
            "GRU: direction has no value \"sideways\""
        );
    }

    #[test]
    fn states_of_all_steps_need_an_attribute_before_version_7() {
        use crate::AttrValue::Int;
        use crate::math::testing::raise_version;
        let types = "float[S, B, I]; float[1, 4, I]; float[1, 4, 4]";
        for def in [&LSTM, &GRU, &RNN] {
            let name = def.name;
            let asked = raise_version(def, 6, &[("output_sequence", Int(1))], types);
            assert_eq!(asked, format!("y = {name}(a, b, c)"));
            // Y has no reader here, so the node need not return it.
            assert_eq!(raise_version(def, 6, &[], types), format!("y = {name}(a, b, c)"));
        }
        assert_eq!(raise_version(&GRU, 2, &[], types), "y = GRU(a, b, c) direction=forward");
        let backwards = [("direction", "reverse".into())];
        assert_eq!(raise_version(&GRU, 2, &backwards, types), "y = GRU(a, b, c) direction=reverse");
    }
}
