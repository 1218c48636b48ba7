//! Norms over windows.

use super::average_pool;
use super::global_pool;
use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, float, input, int, ints, output, string, types};

pub(crate) static GLOBAL_LP_POOL: OpDef = OpDef::new("GlobalLpPool")
    .about("The p-norm over all places of each channel.")
    .since(1, &[input("X", "T"), output("Y", "T"), float("p").or_float(2.0), types("T", FLOATS)])
    .since(
        2,
        &[input("X", "T").differentiable(), output("Y", "T").differentiable(), int("p").or(2)],
    )
    .since(22, &[types("T", FLOATS_IR4)])
    .infer(global_pool::infer)
    .infer_as_reference(global_pool::infer_as_reference)
    .without_reference_rule(&[1]);

pub(crate) static LP_POOL: OpDef = OpDef::new("LpPool")
    .about("The p-norm over a window that moves along all axes behind the channels.")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            string("auto_pad").or_string("NOTSET"),
            ints("kernel_shape"),
            float("p").or_float(2.0),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(2, &[ints("kernel_shape").required(), int("p").or(2)])
    .since(11, &[input("X", "T").differentiable(), output("Y", "T").differentiable()])
    .since(18, &[int("ceil_mode").or(0), ints("dilations")])
    .since(22, &[types("T", FLOATS_IR4)])
    .infer(average_pool::infer)
    .without_reference_rule(&[1]);

#[cfg(test)]
mod tests {
    use super::{GLOBAL_LP_POOL, LP_POOL};
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
}
