//! `Clip`: elements below `min` become `min`, elements above `max` become `max`.
//!
//! Since 1, with the limits as attributes; 6 drops `consumed_inputs` and writes the limits of
//! float32 down as defaults; 11 takes the limits as optional inputs; 12 adds integers; 13 adds
//! bfloat16.

use sardonyx_tensor::{DataType, Tensor, f16};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::Attributes;
use crate::def::OpDef;
use crate::downward::{constant, exact_float};
use crate::facts::{
    FLOATS, NUMERIC, NUMERIC_IR4, float, input, ints, output, types, without_attribute,
};
use crate::function::Expand;
use crate::infer::{Infer, InferError};
use crate::math::gradients;
use crate::math::{consumed_inputs, shape_values};
use crate::rules;
use crate::sharding::elements;

pub static CLIP: OpDef = OpDef::new("Clip")
    .about(
        "Limits each element to the range from `min` to `max`: `Y = min(max(X, min), max)`. If \
         `min` is greater than `max`, every element becomes `max`. NaN stays NaN.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            output("output", "T"),
            float("min"),
            float("max"),
            ints("consumed_inputs"),
            types("T", FLOATS),
        ],
    )
    .since(
        6,
        &[
            float("min").or_float(f32::MIN),
            float("max").or_float(f32::MAX),
            without_attribute("consumed_inputs"),
        ],
    )
    .since(
        11,
        &[
            input("min", "T").optional(),
            input("max", "T").optional(),
            without_attribute("min"),
            without_attribute("max"),
        ],
    )
    .since(12, &[types("T", NUMERIC)])
    .widens()
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            input("min", "T").optional().non_differentiable(),
            input("max", "T").optional().non_differentiable(),
            output("output", "T").differentiable(),
            types("T", NUMERIC_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .adapter(5, 6, same_limits)
    .adapter(6, 5, write_limits)
    .adapter(10, 11, limits_as_inputs)
    .adapter(11, 10, limits_as_attributes)
    .body_from(13, body)
    .without_reference_rule(&[1])
    .gradient(gradients::clip)
    .split_by(elements::elementwise);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    rules::same_as_first(cx)?;
    let mut limits = (1..cx.input_count()).filter(|limit| cx.has_input(*limit));
    if cx.since() >= 11 && limits.all(|limit| cx.known_value(limit).is_some()) {
        let limit = |index: usize| shape_values::of_input(cx, index)?.values.pop();
        let (least, most) = (limit(1), limit(2));
        shape_values::map(cx, |value| {
            let not_below = least.as_ref().map(|least| value.larger(least));
            let value = not_below.unwrap_or_else(|| value.clone());
            most.as_ref().map_or(value.clone(), |most| value.smaller(most))
        });
    }
    Ok(())
}

fn body(cx: &Expand<'_>) -> Option<String> {
    let limit = |index: usize, name: &'static str, scalar: &'static str| {
        // A vector of one element is also accepted as a limit, but would give a scalar its axis.
        let is_vector = match (cx.rank(0), cx.rank(index)) {
            (Some(0), rank) => rank != Some(0),
            (None, rank) => rank == Some(1),
            (Some(_), _) => false,
        };
        if is_vector {
            (scalar, format!("{scalar} = Squeeze ({name})\n"))
        } else {
            (name, String::new())
        }
    };
    let ((min, least), (max, most)) = (limit(1, "min", "least"), limit(2, "max", "most"));
    Some(match (cx.has_input(1), cx.has_input(2)) {
        (false, false) => "output = Identity (input)".to_string(),
        (true, false) => format!(
            "{least}below = Less (input, {min})
            output = Where (below, {min}, input)"
        ),
        (false, true) => format!(
            "{most}above = Less ({max}, input)
            output = Where (above, {max}, input)"
        ),
        (true, true) => format!(
            "{least}{most}below = Less (input, {min})
            not_below = Where (below, {min}, input)
            above = Less ({max}, not_below)
            output = Where (above, {max}, not_below)"
        ),
    })
}

/// Writes the limits that a node of version 1 lacks: it has none by default, while version 6 limits
/// to the range of float32.
fn same_limits(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    for (name, none) in [("min", f32::NEG_INFINITY), ("max", f32::INFINITY)] {
        if !cx.has(name) {
            cx.set(name, none);
        }
    }
    consumed_inputs::remove(cx)
}

fn limits_as_inputs(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let elem = cx.input_type(0).and_then(|ty| ty.elem());
    let mut limits = [None, None];
    for (limit, (name, default)) in limits.iter_mut().zip([("min", f32::MIN), ("max", f32::MAX)]) {
        // An absent limit means the limit of the element type. For double that is wider than the
        // default of version 6.
        let narrow = matches!(elem, None | Some(DataType::Double)).then_some(default);
        let Some(value) = cx.float(name).or(narrow) else {
            continue;
        };
        *limit = Some(match elem {
            Some(DataType::Float) => Tensor::scalar(value),
            Some(DataType::Double) => Tensor::scalar(f64::from(value)),
            Some(DataType::Float16) => Tensor::scalar(f16::from_f32(value)),
            _ => {
                return Err(
                    cx.refuse("limits as inputs require the element type, which is unknown")
                );
            }
        });
    }
    for ((name, index), limit) in [("min", 1), ("max", 2)].into_iter().zip(limits) {
        cx.remove(name);
        if let Some(limit) = limit {
            let limit = cx.add_constant(limit);
            cx.set_input(index, Some(limit));
        }
    }
    Ok(())
}

/// Writes the default limits of version 6, since version 1 has none.
fn write_limits(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    for (name, default) in [("min", f32::MIN), ("max", f32::MAX)] {
        if !cx.has(name) {
            cx.set(name, default);
        }
    }
    Ok(())
}

fn limits_as_attributes(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let elem = cx.input_type(0).and_then(|ty| ty.elem());
    let limits = [("min", 1, f32::NEG_INFINITY), ("max", 2, f32::INFINITY)];
    let mut limits = limits.map(|(name, index, none)| (name, index, none, None));
    for (name, index, none, limit) in &mut limits {
        let Some(value) = constant(cx, *index, *name)? else {
            // The defaults of version 6 are the limits of float32, which do not affect narrower
            // types.
            if !matches!(elem, Some(DataType::Float | DataType::Float16)) {
                *limit = Some(*none);
            }
            continue;
        };
        let value = exact_float(&value);
        *limit =
            Some(value.ok_or_else(|| {
                cx.refuse(format_args!("{name} does not fit into a 32-bit float"))
            })?);
    }
    cx.keep_inputs(1);
    for (name, _, _, limit) in limits {
        if let Some(limit) = limit {
            cx.set(name, limit);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sardonyx_model::AttrValue::Float;

    use super::*;
    use crate::math::testing::{infer_type, infer_value, raise_version};

    #[test]
    fn the_output_is_like_the_input() {
        // SHAPE-16, NODE-13, NODE-15
        for inputs in ["float[2, N]; float; float", "float[2, N]; -; float", "float[2, N]"] {
            assert_eq!(infer_type(&CLIP, 13, &[], inputs), "float[2, N]");
        }
        assert_eq!(infer_type(&CLIP, 6, &[], "double[...]"), "double[...]");
        assert_eq!(infer_type(&CLIP, 11, &[], "-; float"), "-");
        assert_eq!(infer_value(&CLIP, 13, &[], "[N, -3, 9]; 0; 4"), "[min(4, N), 0, 4]");
    }

    #[test]
    fn limits_become_inputs() {
        let (zero, six) = (("min", Float(0.0)), ("max", Float(6.0)));
        let rows = [
            (vec![zero.clone(), six.clone()], "float[N]", "y = Clip(a, 0.0, 6.0)"),
            (vec![zero.clone()], "float[N]", "y = Clip(a, 0.0)"),
            (vec![six.clone()], "float[N]", "y = Clip(a, -, 6.0)"),
            (vec![zero.clone(), six], "float16[N]", "y = Clip(a, float16, float16)"),
            (vec![], "float[...]", "y = Clip(a)"),
            (vec![zero], "double", "y = Clip(a, 0.0, 3.4028234663852886e38)"),
            (vec![], "-", "Clip: limits as inputs require the element type, which is unknown"),
        ];
        for (attributes, input, expected) in rows {
            assert_eq!(
                raise_version(&CLIP, 10, &attributes, input),
                expected,
                "{attributes:?} {input}"
            );
        }
    }

    #[test]
    fn defaults_appear() {
        let hint = ("consumed_inputs", sardonyx_model::AttrValue::from(&[0]));
        assert_eq!(raise_version(&CLIP, 5, &[hint], "float[N]"), "y = Clip(a) min=-inf max=inf");
        let one = [("min", Float(0.0))];
        assert_eq!(raise_version(&CLIP, 5, &one, "double[N]"), "y = Clip(a) min=0 max=inf");
        let limits = [("min", Float(0.0)), ("max", Float(1.0))];
        assert_eq!(raise_version(&CLIP, 5, &limits, "double[N]"), "y = Clip(a) min=0 max=1");
    }
}
