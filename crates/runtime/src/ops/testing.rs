//! One node, bound and run, for the tests of bindings.

use std::borrow::Cow;

use sardonyx_kernels::{Exec, Isa, Pool};
use sardonyx_model::Type;
use sardonyx_ops::{AttrValue, AttributeView, Attributes, Registry};
use sardonyx_tensor::{Element, Tensor, Value};

use super::{lower, select};
use crate::SharedWeights;
use crate::account::Account;
use crate::error::BindError;
use crate::kernel::{Call, Operand, Site, SiteInput, Target};
use crate::program::Slot;
use crate::weights::{Elements, Packer, Weight};

struct Given<'a>(&'a [(&'a str, AttrValue<'static>)]);

impl Attributes for Given<'_> {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let (_, value) = self.0.iter().find(|(given, _)| *given == name)?;
        Some(value.clone())
    }
}

/// The first outputs of an operator in its newest form, or what it says against the inputs.
pub(crate) fn run(
    op: &str,
    attributes: &[(&str, AttrValue<'static>)],
    inputs: &[Option<&Tensor>],
    outputs: usize,
) -> Result<Vec<Tensor>, String> {
    run_with_constants(op, attributes, inputs, &[], outputs)
}

/// The same where the inputs at some positions are constants, which kernels may pack.
pub(crate) fn run_with_constants(
    op: &str,
    attributes: &[(&str, AttrValue<'static>)],
    inputs: &[Option<&Tensor>],
    constants: &[usize],
    outputs: usize,
) -> Result<Vec<Tensor>, String> {
    let registry = Registry::standard();
    let schema = registry.schema("", op, u32::MAX).expect("a standard operator");
    let (shared, account) = (SharedWeights::default(), Account::new(None, 0));
    let given = Given(attributes);
    let ty = |tensor: &Tensor| Type::tensor(tensor.data_type(), tensor.dims().iter().copied());
    let site = Site {
        attributes: AttributeView::new(schema, &given),
        inputs: inputs
            .iter()
            .enumerate()
            .map(|(index, input)| {
                input.map(|tensor| {
                    let constant = constants.contains(&index).then_some(tensor);
                    let weight = constant.map(|constant| Weight {
                        data_type: constant.data_type(),
                        dims: constant.dims(),
                        elements: Elements::All(constant),
                        stored: true,
                    });
                    let ty = Some(Cow::Owned(ty(tensor)));
                    SiteInput { slot: Slot(index as u32), ty, constant, weight }
                })
            })
            .collect(),
        outputs: (0..outputs).map(|_| true).collect(),
        isa: Isa::detect(),
        precision: crate::Precision::Exact,
        exact_up_to: 0,
        weights: &Packer::new(&shared, &account, false),
    };
    let operation = lower(schema, &site);
    let selected = operation.and_then(|op| Ok((select(&op, schema, &site)?, op.operands())));
    let (selected, slots) = selected.map_err(|error| match error {
        BindError::Unsupported(why) | BindError::Invalid(why) => why,
    })?;
    let operands = slots.iter().enumerate().map(|(position, slot)| {
        match slot.and_then(|slot| inputs[slot.index()]) {
            Some(tensor) if !selected.packed.contains(&position) => Operand::Tensor(tensor.view()),
            _ => Operand::Absent,
        }
    });
    let mut call = Call {
        operands: operands.collect(),
        targets: (0..outputs).map(|_| Target::Owned(None)).collect(),
        over: None,
        exec: &Exec { pool: Pool::global(), isa: Isa::detect() },
        random: crate::random::Draws::default(),
        memory: None,
        account: &account,
    };
    selected.kernel.run(&mut call).map_err(|error| error.to_string())?;
    let outputs = call.targets.into_iter().map(|target| match target {
        Target::Owned(Some(Value::Tensor(tensor))) => Ok(tensor),
        _ => Err("an output is missing".to_string()),
    });
    outputs.collect()
}

/// A tensor written down as dimensions and elements.
#[track_caller]
pub(crate) fn tensor<T: Element>(dims: &[usize], elements: &[T]) -> Tensor {
    Tensor::from_slice(dims, elements).expect("as many elements as the dimensions say")
}
