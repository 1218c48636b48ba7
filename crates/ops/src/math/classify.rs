//! `IsInf` and `IsNaN`: tests of single elements.

use sardonyx_tensor::DataType::{
    Bfloat16, Bool, Double, Float, Float8e4m3fn, Float8e4m3fnuz, Float8e5m2, Float8e5m2fnuz,
    Float16,
};

use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, input, int, output, types};
use crate::rules::broadcast_to_bool;
use crate::sharding::elements;
use crate::typeset::TypeSet;

pub(crate) static IS_INF: OpDef = OpDef::new("IsInf")
    .about("Tests each element for infinity. `detect_positive` and `detect_negative` select which sign \
         counts.")
    .since(
        10,
        &[
            input("X", "T1").non_differentiable(),
            output("Y", "T2").non_differentiable(),
            int("detect_negative").or(1),
            int("detect_positive").or(1),
            types("T1", TypeSet::tensors(&[Float, Double])),
            types("T2", TypeSet::tensors(&[Bool])),
        ],
    )
    .since(
        20,
        &[types(
            "T1",
            TypeSet::tensors(&[
                Float16,
                Float,
                Double,
                Bfloat16,
                Float8e4m3fn,
                Float8e4m3fnuz,
                Float8e5m2,
                Float8e5m2fnuz,
            ]),
        )],
    )
    .widens()
    .infer(broadcast_to_bool)
    .split_by(elements::elementwise);

pub static IS_NAN: OpDef = OpDef::new("IsNaN")
    .about("Tests each element for NaN (not a number).")
    .since(
        9,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            types("T1", FLOATS),
            types("T2", TypeSet::tensors(&[Bool])),
        ],
    )
    .since(
        13,
        &[
            input("X", "T1").non_differentiable(),
            output("Y", "T2").non_differentiable(),
            types("T1", FLOATS_IR4),
        ],
    )
    .widens()
    .since(
        20,
        &[types(
            "T1",
            TypeSet::tensors(&[
                Float16,
                Float,
                Double,
                Bfloat16,
                Float8e4m3fn,
                Float8e4m3fnuz,
                Float8e5m2,
                Float8e5m2fnuz,
            ]),
        )],
    )
    .widens()
    .infer(broadcast_to_bool)
    .split_by(elements::elementwise);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::testing::check;

    #[test]
    fn outputs_have_the_shape_of_the_input() {
        for def in [&IS_INF, &IS_NAN] {
            for version in def.versions() {
                let rows = [(&[][..], "float[N, 2, ?]", "bool[N, 2, ?]"), (&[], "-", "bool[...]")];
                check(def, version.since, &rows);
            }
        }
    }
}
