//! `Identity`: returns its input unchanged.
//!
//! Since 1; 13 adds bfloat16; 14 adds sequences; 16 adds optionals; 19 adds 8-bit floats; 21 adds
//! 4-bit integers; 23 adds the 4-bit float; 24 adds the power-of-two scale; 25 adds 2-bit integers.

use super::widened;
use crate::facts::*;
use crate::rules::same_as_first;
use crate::sharding::{Linear, elements};
use crate::tensor::gradients;
use crate::{Infer, InferError, OpDef, TypeSet};

pub static IDENTITY: OpDef = OpDef::new("Identity")
    .about("Returns its input unchanged.")
    .since(1, &[input("input", "T"), output("output", "T"), types("T", ALL)])
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(
        14,
        &[
            input("input", "V").differentiable(),
            output("output", "V").differentiable(),
            without_types("T"),
            types("V", ALL_IR4.and(ALL.as_sequences())),
        ],
    )
    .widens()
    .since(16, widened!("V", ALL_IR4.and(CONTAINERS)))
    .widens()
    .since(19, widened!("V", ALL_IR9.and(CONTAINERS)))
    .widens()
    .since(21, widened!("V", ALL_IR10.and(CONTAINERS)))
    .widens()
    .since(23, widened!("V", ALL_IR11.and(CONTAINERS)))
    .widens()
    .since(24, widened!("V", ALL_IR12.and(CONTAINERS)))
    .widens()
    .since(25, widened!("V", ALL_IR13.and(CONTAINERS)))
    .widens()
    .infer(infer)
    .gradient(gradients::identity)
    .split_by(elements::elements_of_first)
    .linear_in(Linear::First);

/// Sequences and optionals never gained the newer element types.
const CONTAINERS: TypeSet = ALL.as_sequences().and(ALL.and(ALL.as_sequences()).as_optionals());

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if let Some(known) = cx.known_value(0) {
        cx.set_known(0, known.clone());
    }
    same_as_first(cx)
}

#[cfg(test)]
mod tests {
    use super::IDENTITY;
    use crate::math::testing::{infer, infer_value};
    use crate::tensor::testing::check;
    use sardonyx_model::Type;
    use sardonyx_tensor::DataType;

    #[test]
    fn every_type_passes() {
        check(&IDENTITY, 16, &[(&[], "float[N]", "float[N]"), (&[], "-", "-")]);
        assert_eq!(infer_value(&IDENTITY, 16, &[], "[N, 1]"), "[N, 1]");
        let ty =
            Type::Optional(Box::new(Type::Sequence(Box::new(Type::unranked(DataType::Float)))));
        let (types, _) =
            infer(&IDENTITY, 16, &[], &[Some(ty.clone())], &[], 1).expect("no contradiction");
        assert_eq!(types, [Some(ty)]);
    }
}
