//! BatchNormalization: each channel to mean 0 and variance 1, then scaled and shifted.
//!
//! Since 1; 6 drops the hint `consumed_inputs`; 7 drops `is_test`, more than one output now means
//! training; 9 drops `spatial`, statistics are always per channel; 14 has `training_mode` for it,
//! names the statistics otherwise, drops the saved ones and adds bfloat16; 15 lets scale and
//! statistics have types of their own.

use std::ops::Range;

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use crate::attributes::{AttrValue, Attributes};
use crate::facts::*;
use crate::math::consumed_inputs;
use crate::nn::gradients;
use crate::rules::same_as_first;
use crate::sharding::layers;
use crate::{Adapt, Assumption, Infer, InferError, OpDef, Refusal};

pub static BATCH_NORMALIZATION: OpDef = OpDef::new("BatchNormalization")
    .about("Batch normalization of each channel: `Y = (X - mean) / sqrt(var + epsilon) * scale + B`. \
         In inference the mean and variance are inputs. In training they are those of the batch, \
         and the outputs include the updated running mean and variance: `running * momentum + batch \
         * (1 - momentum)`. Training is selected by `training_mode` since version 14; before, by \
         `is_test` (up to version 6) or the number of outputs.")
    .since(
        1,
        &[
            input("X", "T"),
            input("scale", "T"),
            input("B", "T"),
            input("mean", "T"),
            input("var", "T"),
            output("Y", "T"),
            output("mean", "T").optional(),
            output("var", "T").optional(),
            output("saved_mean", "T").optional(),
            output("saved_var", "T").optional(),
            ints("consumed_inputs").required(),
            float("epsilon").or_float(1e-5),
            int("is_test").or(0),
            float("momentum").or_float(0.9),
            int("spatial").or(1),
            types("T", FLOATS),
        ],
    )
    .since(6, &[without_attribute("consumed_inputs")])
    .since(7, &[without_attribute("is_test")])
    .since(
        9,
        &[
            input("X", "T").differentiable(),
            input("scale", "T").differentiable(),
            input("B", "T").differentiable(),
            input("mean", "T").differentiable(),
            input("var", "T").differentiable(),
            output("Y", "T").differentiable(),
            output("mean", "T").optional().non_differentiable(),
            output("var", "T").optional().non_differentiable(),
            output("saved_mean", "T").optional().non_differentiable(),
            output("saved_var", "T").optional().non_differentiable(),
            without_attribute("spatial"),
        ],
    )
    .same_down()
    .since_anew(
        14,
        &[
            input("X", "T").differentiable(),
            input("scale", "T").differentiable(),
            input("B", "T").differentiable(),
            input("input_mean", "U").differentiable(),
            input("input_var", "U").differentiable(),
            output("Y", "T").differentiable(),
            output("running_mean", "U").optional().non_differentiable(),
            output("running_var", "U").optional().non_differentiable(),
            float("epsilon").or_float(1e-5),
            float("momentum").or_float(0.9),
            int("training_mode").or(0),
            types("T", FLOATS_IR4),
            types("U", FLOATS_IR4),
        ],
    )
    .since(
        15,
        &[
            input("scale", "T1").differentiable(),
            input("B", "T1").differentiable(),
            input("input_mean", "T2").differentiable(),
            input("input_var", "T2").differentiable(),
            output("running_mean", "T2").optional().non_differentiable(),
            output("running_var", "T2").optional().non_differentiable(),
            without_types("U"),
            types("T1", FLOATS_IR4),
            types("T2", FLOATS_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .adapter(5, 6, consumed_inputs::remove)
    .adapter(6, 5, |cx| {
        cx.set("consumed_inputs", &[0i64, 0, 0, 1, 1][..]);
        Ok(())
    })
    .adapter(6, 7, drop_is_test)
    .adapter(7, 6, write_is_test)
    .adapter(8, 9, drop_spatial)
    .adapter(13, 14, training_mode)
    .adapter(14, 13, |cx| {
        if cx.int("training_mode").unwrap_or(0) != 0 {
            return Err(
                cx.refuse("training_mode is 1, and older versions have other outputs in training")
            );
        }
        if statistics_are_read(cx) {
            return Err(cx.refuse("its statistics are used, but without training_mode they are not computed"));
        }
        // Named ones would mean training there.
        keep_outputs(cx, 1);
        Ok(())
    })
    .without_reference_rule(&[1])
    .gradient(gradients::batch_normalization)
    .split_by(layers::batch_normalization);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    // Statistics per element have no common shape with the channels.
    if cx.int("spatial") == Some(0) {
        return same_as_first(cx);
    }
    let channels = per_channel(cx, 1..5)?;
    match (cx.since() >= 14, cx.int("training_mode"), cx.output_count()) {
        (false, ..) => {}
        (_, Some(0), 2..) => return cx.fail("without training_mode there is one output"),
        (_, None | Some(0), _) | (_, _, 3) => {}
        (_, _, found) => {
            return cx.fail(format_args!("training_mode requires 3 outputs, not {found}"));
        }
    }
    same_as_first(cx)?;
    for output in 1..cx.output_count() {
        cx.set_tensor(output, cx.elem(3), Some([channels.clone()].into_iter().collect()));
    }
    Ok(())
}

/// Demands that these inputs are vectors with one element per channel of the first, and returns the
/// channels.
pub(super) fn per_channel(cx: &Infer<'_>, inputs: Range<usize>) -> Result<Dim, InferError> {
    let mut channels = match cx.shape(0) {
        // One axis is the batch, of one channel.
        Some(shape) if shape.len() == 1 => Dim::Known(1),
        Some(shape) if shape.is_empty() => return cx.fail("input 0 must have an axis, not rank 0"),
        Some(shape) => shape[1].clone(),
        None => Dim::Unknown,
    };
    for index in inputs {
        cx.demand_rank(index, 1)?;
        if let Some(shape) = cx.shape(index) {
            channels = cx.same_dim(
                &channels,
                &shape[0],
                format_args!("channels of inputs 0 and {index}"),
            )?;
        }
    }
    Ok(channels)
}

/// From 7 on the number of outputs tells training from inference.
fn drop_is_test(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let trains = cx.int("is_test").unwrap_or(0) == 0;
    if trains && cx.runs() {
        // Version 14 can ask for it, whichever outputs are read.
        cx.remove("is_test");
        cx.set("training_mode", 1);
        return Ok(());
    }
    if trains {
        let why = "is_test = 0 means training, and versions 7 to 13 say nothing exact about that";
        cx.demand(Assumption::Inference, why)?;
    }
    if statistics_are_read(cx) {
        return Err(cx.refuse("its statistics are used, but with is_test only Y is computed"));
    }
    cx.remove("is_test");
    keep_outputs(cx, 1);
    Ok(())
}

/// Version 6 says by an attribute what the number of outputs says from 7 on. In training Y is the
/// same; how it changes the statistics neither version says exactly.
fn write_is_test(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if statistics_are_read(cx) {
        return Err(cx.refuse(
            "its statistics are used, which version 6 may compute differently; only Y can be converted",
        ));
    }
    let is_test = !trains(cx);
    if is_test {
        keep_outputs(cx, 1);
    }
    cx.set("is_test", i64::from(is_test));
    Ok(())
}

/// Whether a node of versions 7 to 13 is one of training: its number of outputs says so, whether or
/// not anybody reads them. Old exporters also name outputs that mean nothing, so it may be granted
/// that those which nobody reads are not there.
fn trains(cx: &Adapt<'_>) -> bool {
    let is_named = (1..cx.output_count()).any(|output| cx.has_output(output));
    is_named && (statistics_are_read(cx) || !cx.assume(Assumption::Inference))
}

fn statistics_are_read(cx: &Adapt<'_>) -> bool {
    (1..cx.output_count()).any(|output| cx.is_used(output))
}

/// Leaves all outputs but the first ones out.
fn keep_outputs(cx: &mut Adapt<'_>, count: usize) {
    for output in (count..cx.output_count()).rev() {
        cx.drop_output(output);
    }
}

/// Without `spatial`, statistics are per channel. With one axis besides the batch that was always
/// the same. To run, all other axes become one.
fn drop_spatial(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let is_of_elements = cx.int("spatial") == Some(0) && cx.rank(0) != Some(2);
    if is_of_elements && cx.runs() {
        elements_as_channels(cx);
    } else if is_of_elements {
        return Err(cx.refuse("spatial = 0 (statistics per element) has no equivalent in version 9 unless the input has rank 2"));
    }
    cx.remove("spatial");
    Ok(())
}

/// Makes an example of the batch a vector, whose elements are the channels, and gives the results
/// their shapes back.
fn elements_as_channels(cx: &mut Adapt<'_>) {
    let along = |axis: i64| [("axis", AttrValue::Int(axis))];
    let x = cx.input(0);
    let shape = cx.before("Shape", &[x], &[]);
    let shape_of_one = cx.before("Shape", &[cx.input(3)], &[]);
    let flat = cx.before("Flatten", &[x], &along(1));
    cx.set_input(0, Some(flat));
    for index in 1..5 {
        let row = cx.before("Flatten", &[cx.input(index)], &along(0));
        let axes = [("axes", AttrValue::from(&[0i64]))];
        let vector = cx.before("Squeeze", &[Some(row)], &axes);
        cx.set_input(index, Some(vector));
    }
    // A size of 0 is one, which version 14 of `Reshape` can say.
    let reshape = [("allowzero", AttrValue::Int(1))];
    for output in (0..cx.output_count()).rev() {
        let shape = if output == 0 { shape } else { shape_of_one };
        cx.after(output, "Reshape", &[Some(shape)], &reshape);
    }
}

/// What the number of outputs said, an attribute says now. The update rule of the running
/// statistics is the same. An attribute that is there already comes from a version before 7.
fn training_mode(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let training = cx.has("training_mode") || trains(cx);
    if training {
        cx.set("training_mode", 1);
    }
    // Exporters name them whether or not anybody reads them.
    if (3..cx.output_count()).any(|output| cx.is_used(output)) {
        if !cx.runs() {
            return Err(cx.refuse("version 14 has no outputs for the saved mean and variance"));
        }
        saved_statistics(cx)?;
    }
    keep_outputs(cx, if training { 3 } else { 1 });
    if training && cx.runs() {
        cx.fill_outputs(3);
    }
    Ok(())
}

/// Lets other nodes compute mean and variance of the batch, which are taken to be what versions
/// before 14 save.
fn saved_statistics(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let Some(elem) = cx.input_type(0).and_then(|ty| ty.elem()) else {
        return Err(cx.refuse(
            "its saved statistics are used, and the element type of the input is unknown",
        ));
    };
    let mut x = cx.input(0);
    let rank = cx.rank(0).unwrap_or_else(|| {
        let sizes = cx.add_ints(&[0, 0, -1]);
        x = Some(cx.before("Reshape", &[x, Some(sizes)], &[]));
        3
    });
    let axes: Vec<i64> = (0..rank as i64).filter(|axis| *axis != 1).collect();
    let over = |keepdims: i64| {
        [("axes", AttrValue::from(&axes[..])), ("keepdims", AttrValue::Int(keepdims))]
    };
    let to = |elem: DataType| [("to", AttrValue::Int(elem.number().into()))];
    let wide = cx.before("Cast", &[x], &to(DataType::Double));
    let mean = cx.before("ReduceMean", &[Some(wide)], &over(1));
    let distance = cx.before("Sub", &[Some(wide), Some(mean)], &[]);
    let square = cx.before("Mul", &[Some(distance), Some(distance)], &[]);
    for (output, values) in [(3, wide), (4, square)] {
        if cx.is_used(output) {
            let saved = cx.before("ReduceMean", &[Some(values)], &over(0));
            let saved = cx.before("Cast", &[Some(saved)], &to(elem));
            cx.hand_over(output, saved);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::BATCH_NORMALIZATION;
    use crate::Assumption;
    use crate::AttrValue::Int;
    use crate::math::testing::adapted;
    use crate::tensor::testing::{check, crossed_outputs, outputs};
    use sardonyx_model::AttrValue;

    #[test]
    fn channels_agree() {
        let statistics = |c: &str| format!("float[{c}]; float[{c}]; float[{c}]; float[{c}]");
        let rows = [
            (format!("float[N, 3, H, W]; {}", statistics("3")), "float[N, 3, H, W]"),
            (format!("float[N]; {}", statistics("1")), "float[N]"),
            (format!("float[...]; {}", statistics("3")), "float[...]"),
            (format!("float[N, C, H]; {}", statistics("?")), "float[N, C, H]"),
            (
                format!("float[N, 3]; {}", statistics("4")),
                "BatchNormalization: channels of inputs 0 and 1 differ (3 and 4)",
            ),
            (
                "float[N, 3]; float[3, 3]; -; -; -".to_string(),
                "BatchNormalization: input 1 must have rank 1, not 2",
            ),
        ];
        for opset in [1, 6, 7, 9, 14, 15] {
            for (inputs, expected) in &rows {
                check(&BATCH_NORMALIZATION, opset, &[(&[], inputs, expected)]);
            }
        }
        // Statistics per element.
        check(
            &BATCH_NORMALIZATION,
            7,
            &[(&[("spatial", Int(0))], "float[N, 3, 4]; float[3, 4]; -; -; -", "float[N, 3, 4]")],
        );
    }

    #[test]
    fn training_has_more_outputs() {
        let inputs = "float16[N, 3, H]; float[3]; float[3]; double[3]; double[3]";
        let infer = |attributes: &[_]| outputs(&BATCH_NORMALIZATION, 15, attributes, inputs, 3);
        assert_eq!(infer(&[("training_mode", Int(1))]), "float16[N, 3, H]; double[3]; double[3]");
        assert_eq!(infer(&[]), "BatchNormalization: without training_mode there is one output");
        assert_eq!(
            outputs(&BATCH_NORMALIZATION, 14, &[("training_mode", Int(1))], inputs, 1),
            "BatchNormalization: training_mode requires 3 outputs, not 1"
        );
    }

    #[test]
    fn only_what_keeps_its_meaning_moves() {
        let adapted = |from, attributes: &[_]| {
            adapted(&BATCH_NORMALIZATION, from, attributes, "float[N, 3, H]; float[3]; float[3]")
        };
        let node = "y = BatchNormalization(a, b, c)";
        assert_eq!(adapted(5, &[("consumed_inputs", AttrValue::from(&[0]))]), node);
        assert_eq!(adapted(6, &[("is_test", Int(1))]), node);
        assert!(adapted(6, &[]).starts_with("BatchNormalization: is_test = 0 means training"));
        assert_eq!(adapted(8, &[("spatial", Int(1))]), node);
        assert!(adapted(8, &[("spatial", Int(0))]).contains("unless the input has rank 2"));
        assert_eq!(adapted(13, &[]), node);
    }

    #[test]
    fn more_outputs_mean_training() {
        assert_eq!(
            crate::tensor::testing::adapted_outputs(&BATCH_NORMALIZATION, 13, 3),
            "training_mode=1, 3 outputs"
        );
        assert_eq!(
            crate::tensor::testing::adapted_outputs(&BATCH_NORMALIZATION, 13, 5),
            "training_mode=1, 3 outputs",
            "saved statistics that nobody reads are dropped"
        );
    }

    #[test]
    fn outputs_that_nobody_reads_need_not_mean_training() {
        let inference: &[Assumption] = &[Assumption::Inference];
        let is_test = |value| vec![("is_test", Int(value))];
        let refused = "BatchNormalization: its statistics are used, but ";
        let rows: [(_, _, _, &[usize], _, _); 12] = [
            // Version 6 says it.
            ((6, 7), is_test(1), 5, &[0], &[][..], "1 outputs"),
            ((6, 7), is_test(1), 5, &[0, 2], &[], refused),
            ((6, 7), is_test(0), 5, &[0], &[], "BatchNormalization: is_test = 0 means training"),
            ((6, 7), is_test(0), 5, &[0], inference, "1 outputs"),
            ((6, 7), is_test(0), 5, &[0, 1], inference, refused),
            // From 7 on their number does.
            ((7, 6), vec![], 1, &[0], &[], "is_test=1, 1 outputs"),
            ((7, 6), vec![], 5, &[0], &[], "is_test=0, 5 outputs"),
            ((7, 6), vec![], 5, &[0], inference, "is_test=1, 1 outputs"),
            ((7, 6), vec![], 5, &[0, 1], inference, "BatchNormalization: its statistics are used"),
            ((14, 13), vec![], 3, &[0], &[], "1 outputs"),
            ((13, 14), vec![], 5, &[0], inference, "1 outputs"),
            ((13, 14), vec![], 5, &[0, 1], inference, "training_mode=1, 3 outputs"),
        ];
        for (versions, attributes, outputs, read, granted, expected) in rows {
            let found = crossed_outputs(
                &BATCH_NORMALIZATION,
                versions,
                &attributes,
                outputs,
                read,
                granted,
            );
            assert!(found.starts_with(expected), "{versions:?} {attributes:?} {read:?}: {found}");
        }
    }
}
