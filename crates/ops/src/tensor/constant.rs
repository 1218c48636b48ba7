//! `Constant`: a value stored in the graph.
//!
//! Since 1; 9 takes every type; 11 adds `sparse_value`, of several attributes exactly one must be
//! there; 12 adds the short forms `value_float` to `value_strings`; 13 adds bfloat16; 19 adds 8-bit
//! floats; 21 adds 4-bit integers; 23 adds the 4-bit float; 24 adds the power-of-two scale; 25 adds
//! 2-bit integers.

use sardonyx_tensor::{CastOptions, DataType, StringArray, Tensor, cast};

use super::widened;
use crate::AttrValue;
use crate::attributes::Attributes;
use crate::facts::*;
use crate::known::Known;
use crate::tensor::cast::CAST;
use crate::{Adapt, Infer, InferError, OpDef, Refusal};

pub static CONSTANT: OpDef = OpDef::new("Constant")
    .about(
        "Produces a constant tensor from an attribute. Exactly one of the value attributes must be \
         present.",
    )
    .since(1, &[output("output", "T"), tensor("value").required(), types("T", FLOATS)])
    .since(9, widened!("T", ALL))
    .same_up()
    .since(11, &[sparse_tensor("sparse_value"), tensor("value")])
    .same_up()
    .since(
        12,
        &[
            float("value_float"),
            floats("value_floats"),
            int("value_int"),
            ints("value_ints"),
            string("value_string"),
            strings("value_strings"),
        ],
    )
    .same_up()
    .since(13, widened!("T", ALL_IR4))
    .widens()
    .since(19, widened!("T", ALL_IR9))
    .widens()
    .since(21, widened!("T", ALL_IR10))
    .widens()
    .since(23, widened!("T", ALL_IR11))
    .widens()
    .since(24, widened!("T", ALL_IR12))
    .widens()
    .since(25, widened!("T", ALL_IR13))
    .widens()
    .infer(infer)
    .adapter(9, 8, store_as_float)
    .adapter(11, 10, write_dense)
    .adapter(12, 11, write_value);

const FORMS: [&str; 8] = [
    "sparse_value",
    "value",
    "value_float",
    "value_floats",
    "value_int",
    "value_ints",
    "value_string",
    "value_strings",
];

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let given: Vec<_> =
        FORMS.iter().filter_map(|name| Some((*name, cx.attribute(name)?))).collect();
    let value = match &given[..] {
        [(_, value)] => value,
        [] => return cx.fail("no value attribute is present"),
        [(first, _), (second, _), ..] => {
            return cx.fail(format_args!("the node has both {first} and {second}"));
        }
    };
    if let AttrValue::Unread(ty) = value {
        cx.set(0, ty.clone());
    }
    // An attribute that no rule can read, such as a sparse tensor, leaves the output unknown.
    if let Some(tensor) = to_tensor(value) {
        let dims = tensor.dims().iter().map(|size| (*size).into()).collect();
        cx.set_tensor(0, Some(tensor.data_type()), Some(dims));
        cx.set_known(0, Known::Tensor(tensor));
    }
    Ok(())
}

fn to_tensor(value: &AttrValue<'_>) -> Option<Tensor> {
    let texts = |texts: &[&[u8]], dims: &[usize]| {
        let mut array = StringArray::new();
        texts.iter().for_each(|text| array.push(text));
        Tensor::from_strings(dims, array).ok()
    };
    match value {
        AttrValue::Tensor(tensor) => Some(tensor.clone()),
        AttrValue::Float(value) => Some(Tensor::scalar(*value)),
        AttrValue::Floats(values) => Tensor::from_slice([values.len()], values).ok(),
        AttrValue::Int(value) => Some(Tensor::scalar(*value)),
        AttrValue::Ints(values) => Tensor::from_slice([values.len()], values).ok(),
        AttrValue::String(text) => texts(&[text], &[]),
        AttrValue::Strings(all) => {
            texts(&all.iter().map(|text| &text[..]).collect::<Vec<_>>(), &[all.len()])
        }
        AttrValue::Unread(_) | AttrValue::Graph(_) | AttrValue::Type(_) | AttrValue::Other => None,
    }
}

/// Stores numbers of a type that the older version lacks as 64-bit floats, and casts them.
fn store_as_float(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let Some(AttrValue::Tensor(tensor)) = cx.attribute("value") else {
        return Err(cx.refuse("its value cannot be read"));
    };
    let elem = tensor.data_type();
    if matches!(elem, DataType::Float16 | DataType::Float | DataType::Double) {
        return Ok(());
    }
    let options = CastOptions::default();
    let wide = cast(&tensor, DataType::Double, options).ok();
    let again = wide.as_ref().and_then(|wide| cast(wide, elem, options).ok());
    match wide.filter(|_| again.is_some_and(|again| again == tensor)) {
        Some(wide) => {
            cx.set("value", AttrValue::Tensor(wide));
            cx.after(0, CAST.name, &[], &[("to", AttrValue::Int(elem.number().into()))]);
            Ok(())
        }
        None => Err(cx.refuse(format_args!(
            "its value has type {elem}, which version 1 does not support and 64-bit floats cannot represent"
        ))),
    }
}

/// Maximum number of elements for which a sparse tensor is made dense, since a small file may
/// declare many.
const MOST_DENSE: usize = 1 << 24;

/// Replaces a sparse tensor by a dense one.
fn write_dense(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if !cx.has("sparse_value") {
        return Ok(());
    }
    match cx.attribute("sparse_value") {
        Some(AttrValue::Tensor(dense)) if dense.len() <= MOST_DENSE => {
            cx.remove("sparse_value");
            cx.set("value", AttrValue::Tensor(dense));
            Ok(())
        }
        Some(AttrValue::Tensor(dense)) => Err(cx.refuse(format_args!(
            "its sparse value has {} elements, more than the maximum of {MOST_DENSE}",
            dense.len()
        ))),
        _ => Err(cx.refuse("its sparse value cannot be read")),
    }
}

/// Replaces a short form by a tensor.
fn write_value(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let short = FORMS.iter().copied().filter(|name| name.starts_with("value_"));
    let Some(name) = short.into_iter().find(|name| cx.has(name)) else { return Ok(()) };
    let Some(tensor) = cx.attribute(name).and_then(|value| to_tensor(&value)) else {
        return Err(cx.refuse(format_args!("{name} cannot be read")));
    };
    cx.remove(name);
    cx.set("value", AttrValue::Tensor(tensor));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::math::testing::{infer, lower_version};
    use crate::tensor::testing::ints;

    #[test]
    fn every_form_is_a_tensor() {
        let rows = [
            (
                (
                    "value",
                    AttrValue::Tensor(
                        Tensor::from_vec([1, 2], vec![1u8, 2]).expect("the sizes fit"),
                    ),
                ),
                "uint8[1, 2]",
            ),
            (("value_int", AttrValue::Int(5)), "int64"),
            (("value_ints", ints(&[5, 6])), "int64[2]"),
            (("value_float", AttrValue::Float(0.5)), "float"),
            (("value_floats", AttrValue::Floats(Cow::Borrowed(&[]))), "float[0]"),
            (("value_string", AttrValue::String(Cow::Borrowed(b"x"))), "string"),
            (
                (
                    "value_strings",
                    AttrValue::Strings(vec![Cow::Borrowed(b"x"), Cow::Borrowed(b"")]),
                ),
                "string[2]",
            ),
        ];
        for (attribute, expected) in rows {
            let (types, values) =
                infer(&CONSTANT, 13, &[attribute], &[], &[], 1).expect("no contradiction");
            assert_eq!(types[0].as_ref().expect("a type").to_string(), expected);
            assert!(matches!(&values[0], Some(Known::Tensor(_))), "{expected}");
        }
    }

    #[test]
    fn sparse_values_are_written_out() {
        let dense = Tensor::from_vec([2], vec![0f32, 3.0]).expect("the sizes fit");
        let found =
            lower_version(&CONSTANT, 11, &[("sparse_value", AttrValue::Tensor(dense))], "_");
        assert!(found.contains("Constant(-) value=") && !found.contains("sparse"), "{found}");
        let found = lower_version(&CONSTANT, 11, &[("sparse_value", AttrValue::Int(1))], "_");
        assert_eq!(found, "Constant: its sparse value cannot be read");
    }

    #[test]
    fn a_node_has_exactly_one_value() {
        let fails = |attributes: &[_]| {
            infer(&CONSTANT, 13, attributes, &[], &[], 1)
                .map(|_| ())
                .expect_err("a contradiction")
                .to_string()
        };
        assert_eq!(fails(&[]), "Constant: no value attribute is present");
        let both = [("value_int", AttrValue::Int(5)), ("value_ints", ints(&[5]))];
        assert_eq!(fails(&both), "Constant: the node has both value_int and value_ints");
        // Nothing is inferred about an attribute that cannot be read.
        let (types, _) = infer(&CONSTANT, 13, &[("sparse_value", AttrValue::Other)], &[], &[], 1)
            .expect("no contradiction");
        assert_eq!(types[0], None);
    }
}
