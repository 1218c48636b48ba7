//! Operators with inner graphs: `If`, `Loop`, `Scan`.

pub(crate) mod infer;

use sardonyx_model::{Dim, Type, ValueId};
use sardonyx_tensor::DataType::{Bool, Int64};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::downward::from_front;
use crate::facts::{
    ALL, ALL_IR4, ALL_IR9, ALL_IR10, ALL_IR11, ALL_IR12, ALL_IR13, graph, input, inputs, int, ints,
    note, outputs, types, without_attribute, without_input, without_types,
};
use crate::tensor::squeeze::SQUEEZE;
use crate::tensor::transpose::TRANSPOSE;
use crate::tensor::unsqueeze::UNSQUEEZE;
use crate::typeset::TypeSet;

/// Makes the set of types that graphs take and return: tensors, and sequences and optionals of
/// these. Sequences in optionals never gained the newer element types.
const fn carried_types(tensors: TypeSet) -> TypeSet {
    tensors
        .and(tensors.as_sequences())
        .and(tensors.as_optionals())
        .and(ALL_IR4.as_sequences().as_optionals())
}

pub static IF: OpDef = OpDef::new("If")
    .about("Runs `then_branch` if `cond` is true and `else_branch` otherwise. The outputs of the node \
         are those of the branch that ran; the other branch is not evaluated. A branch has no \
         inputs of its own: it reads values of the enclosing graphs by name. Both branches need the \
         same number of outputs with the same types; shapes may differ.")
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
    .since(11, &[note("The branches may return different shapes.")])
    .same_up()
    .since(13, &[types("V", ALL.and(ALL.as_sequences()))])
    .widens()
    .since(16, &[types("V", carried_types(ALL_IR4))])
    .widens()
    .since(19, &[types("V", carried_types(ALL_IR9))])
    .widens()
    .since(21, &[types("V", carried_types(ALL_IR10))])
    .widens()
    .since(23, &[types("V", carried_types(ALL_IR11))])
    .widens()
    .since(24, &[types("V", carried_types(ALL_IR12))])
    .widens()
    .since(25, &[types("V", carried_types(ALL_IR13))])
    .widens()
    .infer(infer::if_)
    .adapter(11, 10, demand_same_shapes)
    .infer_as_reference(infer::if_as_reference);

pub static LOOP: OpDef = OpDef::new("Loop")
    .about("Runs a graph repeatedly, at most `M` times and as long as the loop condition is true. \
         Without `M` only the condition ends the loop; without `cond` only `M` does. The body \
         receives the iteration number, the condition and the loop-carried values. It returns the \
         next condition, the next loop-carried values and the scan outputs, which are stacked along \
         a new first axis. After 0 iterations the loop-carried values are returned unchanged and \
         the scan outputs have size 0 on that axis.")
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
    .same_up()
    .since(13, &[types("V", ALL.and(ALL.as_sequences()))])
    .widens()
    .since(
        16,
        &[types("V", carried_types(ALL_IR4))],
    )
    .widens()
    .since(
        19,
        &[types("V", carried_types(ALL_IR9))],
    )
    .widens()
    .since(
        21,
        &[types("V", carried_types(ALL_IR10))],
    )
    .widens()
    .since(
        23,
        &[types("V", carried_types(ALL_IR11))],
    )
    .widens()
    .since(
        24,
        &[types("V", carried_types(ALL_IR12))],
    )
    .widens()
    .since(
        25,
        &[types("V", carried_types(ALL_IR13))],
    )
    .widens()
    .infer(infer::loop_)
    .adapter(11, 10, |cx| {
        if cx.input_count() < 3 {
            return Err(cx.refuse("a loop of that version carries at least one value"));
        }
        Ok(())
    })
    .infer_as_reference(infer::loop_as_reference);

pub static SCAN: OpDef = OpDef::new("Scan")
    .about(
        "Runs a graph once for each slice of one or more scan inputs. State variables are passed \
         from each step to the next. What the body returns beyond the states is stacked into scan \
         outputs. All scan inputs must have the same length on their scan axes; each of them, and \
         each scan output, may be processed from the end. Version 8 works on a batch in axis 0; \
         since version 9 there is no batch axis.",
    )
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
    .since(11, &[note("Negative axes count from the end.")])
    .same_up()
    .since(16, &[types("V", ALL_IR4)])
    .widens()
    .since(19, &[types("V", ALL_IR9)])
    .widens()
    .since(21, &[types("V", ALL_IR10)])
    .widens()
    .since(23, &[types("V", ALL_IR11)])
    .widens()
    .since(24, &[types("V", ALL_IR12)])
    .widens()
    .since(25, &[types("V", ALL_IR13)])
    .widens()
    .infer(infer::scan_8)
    .infer_since(9, infer::scan)
    .adapter(8, 9, scan_batch)
    .adapter(9, 8, make_batch_of_one)
    .adapter(11, 10, count_axes_from_front);

/// Counts axes of scanned operands and outputs from the front, since older versions have no
/// negative axes.
fn count_axes_from_front(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let scanned = cx.int("num_scan_inputs").and_then(|count| usize::try_from(count).ok());
    let Some(states) = scanned.and_then(|scanned| cx.input_count().checked_sub(scanned)) else {
        return Err(cx.refuse("num_scan_inputs is missing, or more than the node has"));
    };
    for (name, is_input) in [("scan_input_axes", true), ("scan_output_axes", false)] {
        let Some(axes) = cx.ints(name).filter(|axes| axes.iter().any(|axis| *axis < 0)) else {
            continue;
        };
        let axes = axes.into_iter().zip(states..).map(|(axis, index)| {
            let ty = if is_input { cx.input_type(index) } else { cx.output_type(index) };
            from_front(cx, name, axis, ty.and_then(|ty| ty.shape()).map(|shape| shape.len()))
        });
        let axes = axes.collect::<Result<Vec<i64>, _>>()?;
        cx.set(name, &axes[..]);
    }
    Ok(())
}

/// Turns a scan of version 8, which scans each example of a batch, into a scan of the batch whose
/// body scans one example.
fn scan_batch(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.input(0).is_some() {
        return Err(
            cx.refuse("sequence_lens ends sequences early, which is not supported in version 9")
        );
    }
    let operands: Vec<_> = (1..cx.input_count()).map(|index| cx.input(index)).collect();
    let directions = cx.ints("directions");
    let Some(count) = i64::try_from(operands.len()).ok().filter(|count| *count > 0) else {
        return Err(cx.refuse("it has nothing to scan"));
    };
    cx.remove("directions");
    if let Some(directions) = directions {
        cx.set("scan_input_directions", &directions[..]);
    }
    cx.set_inputs(&operands);
    cx.wrap("body");
    cx.set("num_scan_inputs", count);
    Ok(())
}

/// Puts an axis for a batch of size 1 around all operands, since version 8 scans a batch.
fn make_batch_of_one(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let scanned = cx.int("num_scan_inputs").and_then(|count| usize::try_from(count).ok());
    let inputs: Vec<Option<ValueId>> = (0..cx.input_count()).map(|index| cx.input(index)).collect();
    let Some(states) = scanned.and_then(|scanned| inputs.len().checked_sub(scanned)) else {
        return Err(cx.refuse("num_scan_inputs is missing, or more than the node has"));
    };
    let list = |name: &str| cx.ints(name).unwrap_or_default();
    let backwards = list("scan_output_directions").iter().any(|direction| *direction != 0);
    if backwards {
        return Err(cx.refuse("scan outputs in reverse direction are not supported in version 8"));
    }
    let (in_axes, out_axes) = (list("scan_input_axes"), list("scan_output_axes"));
    let directions = list("scan_input_directions");
    for name in
        ["scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions"]
    {
        cx.remove(name);
    }
    if directions.iter().any(|direction| *direction != 0) {
        cx.set("directions", &directions[..]);
    }
    let mut batched = vec![None];
    for (index, input) in inputs.into_iter().enumerate() {
        let axis = index.checked_sub(states).and_then(|index| in_axes.get(index).copied());
        let first = match axis.unwrap_or(0) {
            0 => input,
            axis => {
                let rank = cx.input_type(index).and_then(|ty| ty.shape()).map(|shape| shape.len());
                let Some(order) = rank.and_then(|rank| order_with_first(axis, rank)) else {
                    return Err(
                        cx.refuse("the rank of an input is unknown, or its axis is out of range")
                    );
                };
                Some(cx.before(TRANSPOSE.name, &[input], &[("perm", AttrValue::from(&order[..]))]))
            }
        };
        batched.push(Some(cx.before(UNSQUEEZE.name, &[first], &[("axes", AttrValue::from(&[0]))])));
    }
    for output in 0..cx.output_count() {
        let axis = output.checked_sub(states).and_then(|index| out_axes.get(index).copied());
        if let Some(axis) = axis.filter(|axis| *axis != 0) {
            let rank = cx.output_type(output).and_then(|ty| ty.shape()).map(|shape| shape.len());
            let Some(order) = rank.and_then(|rank| order_with_first(axis, rank)) else {
                return Err(
                    cx.refuse("the rank of an output is unknown, or its axis is out of range")
                );
            };
            let mut back = vec![0i64; order.len()];
            for (place, axis) in order.iter().enumerate() {
                back[*axis as usize] = place as i64;
            }
            cx.after(output, TRANSPOSE.name, &[], &[("perm", AttrValue::from(&back[..]))]);
        }
        cx.after(output, SQUEEZE.name, &[], &[("axes", AttrValue::from(&[0]))]);
    }
    cx.set_inputs(&batched);
    Ok(())
}

/// Returns a permutation that begins with `axis` and keeps the order of the others.
fn order_with_first(axis: i64, rank: usize) -> Option<Vec<i64>> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    let others = (0..rank).filter(|other| *other != axis);
    (0..rank).contains(&axis).then(|| std::iter::once(axis).chain(others).collect())
}

/// Refuses branches that return different shapes, which older versions do not allow.
fn demand_same_shapes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let branch = |name: &str| match cx.attribute(name) {
        Some(AttrValue::Graph(graph)) => Some(cx.types_of_outputs(graph)),
        _ => None,
    };
    let (Some(then), Some(other)) = (branch("then_branch"), branch("else_branch")) else {
        return Err(cx.refuse("a branch is missing"));
    };
    let shape = |ty: &Option<Type>| ty.as_ref().and_then(|ty| ty.shape().cloned());
    let same = |a: &Option<Type>, b: &Option<Type>| {
        let (Some(a), Some(b)) = (shape(a), shape(b)) else { return false };
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b && *a != Dim::Unknown)
    };
    if then.len() != other.len() || !then.iter().zip(&other).all(|(a, b)| same(a, b)) {
        return Err(cx.refuse("its branches return different shapes, or the shapes are unknown"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sardonyx_model::AttrValue::Int;

    use super::SCAN;
    use crate::math::testing::lower_version;
    use crate::tensor::testing::ints;

    #[test]
    fn scanned_axes_count_from_the_front() {
        let axes = |name: &'static str, axes: &'static [i64]| {
            [("num_scan_inputs", Int(1)), (name, ints(axes))]
        };
        let found = |attributes: &[_]| lower_version(&SCAN, 11, attributes, "float; float[2, 3]");
        assert_eq!(
            found(&axes("scan_input_axes", &[-1])),
            "y = Scan(a, b) num_scan_inputs=1 scan_input_axes=[1]"
        );
        assert_eq!(
            found(&axes("scan_output_axes", &[-1])),
            "Scan: scan_output_axes has -1, and the rank is unknown"
        );
    }
}
