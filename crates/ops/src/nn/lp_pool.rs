//! `LpPool` and `GlobalLpPool`: the norm of the elements in each window.

use sardonyx_tensor::{DataType, Tensor};

use super::average_pool;
use super::global_pool;
use super::gradients;
use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::downward::drop_ones;
use crate::facts::{FLOATS, FLOATS_IR4, float, input, int, ints, output, string, types};
use crate::sharding::layers;

pub(crate) static GLOBAL_LP_POOL: OpDef = OpDef::new("GlobalLpPool")
    .about("Lp norm over all spatial axes of each channel.")
    .since(1, &[input("X", "T"), output("Y", "T"), float("p").or_float(2.0), types("T", FLOATS)])
    .since(
        2,
        &[input("X", "T").differentiable(), output("Y", "T").differentiable(), int("p").or(2)],
    )
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(global_pool::infer)
    .adapter(1, 2, convert_p)
    .adapter(2, 1, float_p)
    .infer_as_reference(global_pool::infer_as_reference)
    .without_reference_rule(&[1])
    .gradient(gradients::global_lp_pool)
    .split_by(layers::pool);

pub(crate) static LP_POOL: OpDef = OpDef::new("LpPool")
    .about("Lp pooling: the Lp norm of each window.")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            string("auto_pad").or_word("NOTSET"),
            ints("kernel_shape"),
            float("p").or_float(2.0),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(2, &[ints("kernel_shape").required(), int("p").or(2)])
    .since(11, &[input("X", "T").differentiable(), output("Y", "T").differentiable()])
    .same()
    .since(18, &[int("ceil_mode").or(0), ints("dilations")])
    .same_up()
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(average_pool::infer)
    .infer_as_reference(average_pool::infer_as_reference)
    .adapter(1, 2, |cx| {
        if !cx.has("kernel_shape") {
            return Err(cx.refuse("kernel_shape is required in version 1"));
        }
        convert_p(cx)
    })
    .adapter(2, 1, float_p)
    .adapter(18, 17, |cx| drop_ones(cx, "dilations"))
    .without_reference_rule(&[1])
    .gradient(gradients::lp_pool)
    .split_by(layers::pool);

/// Turns the exponent from a float into an integer. In order to run, a norm with another exponent
/// is expressed by powers.
fn convert_p(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let Some(p) = cx.float("p") else {
        return Ok(());
    };
    // Above this, floats do not represent all integers.
    if p.fract() != 0.0 || p.abs() > 16_777_216.0 {
        if cx.runs() && p.is_finite() {
            return express_by_powers(cx, p);
        }
        return Err(cx.refuse(format_args!("p = {p} is not an integer, as version 2 requires")));
    }
    cx.set("p", p as i64);
    Ok(())
}

/// Replaces a p-norm by the root of the sum of the powers of absolute values, which is the norm for
/// p = 1.
fn express_by_powers(cx: &mut Adapt<'_>, p: f32) -> Result<(), Refusal> {
    let Some(elem) = cx.input_type(0).and_then(|ty| ty.elem()) else {
        return Err(cx.refuse("powers require the element type of the input, which is unknown"));
    };
    // Powers of 16-bit floats overflow their type.
    let is_narrow = elem == DataType::Float16;
    let exponent = |value: f64| match elem {
        DataType::Double => Tensor::scalar(value),
        _ => Tensor::scalar(value as f32),
    };
    let p = f64::from(p);
    let (power, root) = (cx.add_constant(exponent(p)), cx.add_constant(exponent(1.0 / p)));
    let broadcast = || [("broadcast", AttrValue::Int(1))];
    let mut x = cx.input(0);
    if is_narrow {
        x = Some(cx.before("Cast", &[x], &[("to", AttrValue::from("FLOAT"))]));
    }
    let sizes = cx.before("Abs", &[x], &[]);
    let powers = cx.before("Pow", &[Some(sizes), Some(power)], &broadcast());
    cx.set_input(0, Some(powers));
    cx.set("p", 1);
    if is_narrow {
        cx.after(0, "Cast", &[], &[("to", AttrValue::from("FLOAT16"))]);
    }
    cx.after(0, "Pow", &[Some(root)], &broadcast());
    Ok(())
}

fn float_p(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if let Some(p) = cx.int("p") {
        if p.unsigned_abs() > 16_777_216 {
            return Err(cx.refuse(format_args!("p = {p} is not exact as a float")));
        }
        cx.remove("p");
        cx.set("p", p as f32);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{GLOBAL_LP_POOL, LP_POOL};
    use crate::AttrValue::Float;
    use crate::math::testing::raise_version;
    use crate::tensor::testing::{check, ints};

    #[test]
    fn norms_of_windows() {
        for opset in [1, 2, 11, 18, 22] {
            check(
                &LP_POOL,
                opset,
                &[
                    (
                        &[
                            ("kernel_shape", ints(&[2, 2])),
                            ("pads", ints(&[1, 1, 2, 2])),
                            ("strides", ints(&[2, 2])),
                        ],
                        "float[5, 3, 4, W]",
                        "float[5, 3, 3, floor((W + 1)/2) + 1]",
                    ),
                    (&[], "float[5, 3, 4]", "float[...]"),
                ],
            );
        }
        for opset in [1, 2, 22] {
            let row = [(&[][..], "double[N, C, 4, ?]", "double[N, C, 1, 1]")];
            check(&GLOBAL_LP_POOL, opset, &row);
        }
    }
    #[test]
    fn the_exponent_becomes_an_integer() {
        let window = || ("kernel_shape", ints(&[2]));
        for (p, expected) in [
            (3.0, "y = LpPool(a) kernel_shape=[2] p=3"),
            (2.5, "LpPool: p = 2.5 is not an integer, as version 2 requires"),
            (f32::NAN, "LpPool: p = NaN is not an integer, as version 2 requires"),
        ] {
            let found = raise_version(&LP_POOL, 1, &[window(), ("p", Float(p))], "float[1, 1, 4]");
            assert_eq!(found, expected);
        }
        let found = raise_version(&LP_POOL, 1, &[window()], "float[1, 1, 4]");
        assert_eq!(found, "y = LpPool(a) kernel_shape=[2]");
        assert_eq!(
            raise_version(&LP_POOL, 1, &[], "float[1, 1, 4]"),
            "LpPool: kernel_shape is required in version 1"
        );
        let found = raise_version(&GLOBAL_LP_POOL, 1, &[("p", Float(1.0))], "float[1, 1, 4]");
        assert_eq!(found, "y = GlobalLpPool(a) p=1");
    }
}
