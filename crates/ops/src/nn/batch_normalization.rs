//! `BatchNormalization`: scales each channel to mean 0 and variance 1, then scales and shifts it.
//!
//! Since 1; 6 drops the hint `consumed_inputs`; 7 drops `is_test`, since more than one output now
//! means training; 9 drops `spatial`, since statistics are always per channel; 14 adds
//! `training_mode`, renames the statistics, drops the saved ones and adds bfloat16; 15 lets scale
//! and statistics have types of their own.

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
    .adapter(13, 14, write_training_mode)
    .adapter(14, 13, |cx| {
        if cx.int("training_mode").unwrap_or(0) != 0 {
            return Err(
                cx.refuse("training_mode is 1, and older versions have other outputs in training")
            );
        }
        if statistics_are_read(cx) {
            return Err(cx.refuse("its statistics are used, but without training_mode they are not computed"));
        }
        // Named outputs would mean training there.
        keep_outputs(cx, 1);
        Ok(())
    })
    .without_reference_rule(&[1])
    .gradient(gradients::batch_normalization)
    .split_by(layers::batch_normalization);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    // Statistics per element do not have the shape of the channels.
    if cx.int("spatial") == Some(0) {
        return same_as_first(cx);
    }
    let channels = count_channels(cx, 1..5)?;
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

/// Checks that inputs are vectors with one element per channel of the first input, and returns the
/// number of channels.
pub(super) fn count_channels(cx: &Infer<'_>, inputs: Range<usize>) -> Result<Dim, InferError> {
    let mut channels = match cx.shape(0) {
        // A single axis is the batch, with one channel.
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

/// Removes `is_test`: since version 7 the number of outputs distinguishes training from inference.
fn drop_is_test(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let trains = cx.int("is_test").unwrap_or(0) == 0;
    if trains && cx.runs() {
        // Version 14 has an attribute for training, whichever outputs have readers.
        cx.remove("is_test");
        cx.set("training_mode", 1);
        return Ok(());
    }
    if trains {
        let why = "is_test = 0 means training, which versions 7 to 13 do not define exactly";
        cx.demand(Assumption::Inference, why)?;
    }
    if statistics_are_read(cx) {
        return Err(cx.refuse("its statistics are used, but with is_test only Y is computed"));
    }
    cx.remove("is_test");
    keep_outputs(cx, 1);
    Ok(())
}

/// Writes `is_test` from the number of outputs, since version 6 has the attribute for it. Y is
/// equal in training; how exactly the statistics change is not defined by either version.
fn write_is_test(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if statistics_are_read(cx) {
        return Err(cx.refuse(
            "its statistics are used, which version 6 may compute differently; only Y can be converted",
        ));
    }
    let is_test = !is_training(cx);
    if is_test {
        keep_outputs(cx, 1);
    }
    cx.set("is_test", i64::from(is_test));
    Ok(())
}

/// Whether a node of versions 7 to 13 trains, which follows from its number of outputs, with or
/// without readers. Some exporters name outputs without a meaning, so the caller may grant that
/// outputs without readers do not exist.
fn is_training(cx: &Adapt<'_>) -> bool {
    let is_named = (1..cx.output_count()).any(|output| cx.has_output(output));
    is_named && (statistics_are_read(cx) || !cx.assume(Assumption::Inference))
}

fn statistics_are_read(cx: &Adapt<'_>) -> bool {
    (1..cx.output_count()).any(|output| cx.is_used(output))
}

/// Keeps only the first `count` outputs.
fn keep_outputs(cx: &mut Adapt<'_>, count: usize) {
    for output in (count..cx.output_count()).rev() {
        cx.drop_output(output);
    }
}

/// Removes `spatial`: later statistics are always per channel, which is equivalent with one axis
/// besides the batch. In order to run, joins all other axes into one.
fn drop_spatial(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let is_of_elements = cx.int("spatial") == Some(0) && cx.rank(0) != Some(2);
    if is_of_elements && cx.runs() {
        turn_elements_into_channels(cx);
    } else if is_of_elements {
        return Err(cx.refuse(
            "spatial = 0 (statistics per element) has no equivalent in version 9 \
             unless the input has rank 2",
        ));
    }
    cx.remove("spatial");
    Ok(())
}

/// Turns each example of the batch into a vector, whose elements are the channels, and restores the
/// shapes of the results.
fn turn_elements_into_channels(cx: &mut Adapt<'_>) {
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
    // A size of 0 stays 0, which `Reshape` can express since version 14.
    let reshape = [("allowzero", AttrValue::Int(1))];
    for output in (0..cx.output_count()).rev() {
        let shape = if output == 0 { shape } else { shape_of_one };
        cx.after(output, "Reshape", &[Some(shape)], &reshape);
    }
}

/// Sets `training_mode` if the number of outputs meant training before. The update rule of the
/// running statistics is unchanged. An existing attribute comes from a version before 7.
fn write_training_mode(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let training = cx.has("training_mode") || is_training(cx);
    if training {
        cx.set("training_mode", 1);
    }
    // Exporters name them with or without readers.
    if (3..cx.output_count()).any(|output| cx.is_used(output)) {
        if !cx.runs() {
            return Err(cx.refuse("version 14 has no outputs for the saved mean and variance"));
        }
        compute_saved_statistics(cx)?;
    }
    keep_outputs(cx, if training { 3 } else { 1 });
    if training && cx.runs() {
        cx.fill_outputs(3);
    }
    Ok(())
}

/// Adds nodes that compute mean and variance of the batch, which versions before 14 are taken to
/// save.
fn compute_saved_statistics(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
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
    use crate::math::testing::raise_version;
    use crate::tensor::testing::{check, cross_outputs, outputs};
    use sardonyx_model::AttrValue;

    #[test]
    fn statistics_have_one_element_per_channel() {
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
    fn only_equivalent_nodes_cross_versions() {
        let raise_version = |from, attributes: &[_]| {
            raise_version(
                &BATCH_NORMALIZATION,
                from,
                attributes,
                "float[N, 3, H]; float[3]; float[3]",
            )
        };
        let node = "y = BatchNormalization(a, b, c)";
        assert_eq!(raise_version(5, &[("consumed_inputs", AttrValue::from(&[0]))]), node);
        assert_eq!(raise_version(6, &[("is_test", Int(1))]), node);
        assert!(
            raise_version(6, &[]).starts_with("BatchNormalization: is_test = 0 means training")
        );
        assert_eq!(raise_version(8, &[("spatial", Int(1))]), node);
        assert!(raise_version(8, &[("spatial", Int(0))]).contains("unless the input has rank 2"));
        assert_eq!(raise_version(13, &[]), node);
    }

    #[test]
    fn more_outputs_mean_training() {
        assert_eq!(
            crate::tensor::testing::raise_outputs(&BATCH_NORMALIZATION, 13, 3),
            "training_mode=1, 3 outputs"
        );
        assert_eq!(
            crate::tensor::testing::raise_outputs(&BATCH_NORMALIZATION, 13, 5),
            "training_mode=1, 3 outputs",
            "unused saved statistics are dropped"
        );
    }

    #[test]
    fn outputs_without_readers_need_not_mean_training() {
        let inference: &[Assumption] = &[Assumption::Inference];
        let is_test = |value| vec![("is_test", Int(value))];
        let refused = "BatchNormalization: its statistics are used, but ";
        let rows: [(_, _, _, &[usize], _, _); 12] = [
            // Version 6 has an attribute for it.
            ((6, 7), is_test(1), 5, &[0], &[][..], "1 outputs"),
            ((6, 7), is_test(1), 5, &[0, 2], &[], refused),
            ((6, 7), is_test(0), 5, &[0], &[], "BatchNormalization: is_test = 0 means training"),
            ((6, 7), is_test(0), 5, &[0], inference, "1 outputs"),
            ((6, 7), is_test(0), 5, &[0, 1], inference, refused),
            // Since version 7 the number of outputs decides.
            ((7, 6), vec![], 1, &[0], &[], "is_test=1, 1 outputs"),
            ((7, 6), vec![], 5, &[0], &[], "is_test=0, 5 outputs"),
            ((7, 6), vec![], 5, &[0], inference, "is_test=1, 1 outputs"),
            ((7, 6), vec![], 5, &[0, 1], inference, "BatchNormalization: its statistics are used"),
            ((14, 13), vec![], 3, &[0], &[], "1 outputs"),
            ((13, 14), vec![], 5, &[0], inference, "1 outputs"),
            ((13, 14), vec![], 5, &[0, 1], inference, "training_mode=1, 3 outputs"),
        ];
        for ((from, to), attributes, outputs, read, granted, expected) in rows {
            let found =
                cross_outputs(&BATCH_NORMALIZATION, from, to, &attributes, outputs, read, granted);
            let case = format!("{from} to {to} {attributes:?} {read:?}");
            assert!(found.starts_with(expected), "{case}: {found}");
        }
    }
}
