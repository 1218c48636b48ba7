//! `Tokenizer`: splits strings into tokens. It has a kernel and no function.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{input, int, output, string, strings, types};
use crate::infer::{Infer, InferError};
use crate::typeset::TypeSet;

pub(crate) static TOKENIZER: OpDef = OpDef::new("Tokenizer")
    .domain(DOMAIN)
    .about("Splits strings into tokens along a new last axis, at separators or by a regular expression \
         that matches tokens.")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            int("mark").required(),
            int("mincharnum").required(),
            string("pad_value").required(),
            strings("separators"),
            string("tokenexp"),
            types("T", TypeSet::tensors(&[DataType::String])),
        ],
    )
    .infer(infer);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if let Some(rank) = cx.rank(0).filter(|rank| !(1..=2).contains(rank)) {
        return cx.fail(format_args!("the input must have rank 1 or 2, not {rank}"));
    }
    // Without strings the last axis counts tokens, and no axis is added.
    let shape = cx.shape(0).map(|shape| {
        let (kept, added) = if shape.contains(&Dim::Known(0)) {
            (&shape[..shape.len() - 1], Dim::Known(0))
        } else {
            (&shape[..], Dim::Unknown)
        };
        kept.iter().cloned().chain([added]).collect()
    });
    cx.set_tensor(0, Some(DataType::String), shape);
    Ok(())
}
