//! Test support: binds one node and runs it.

use std::borrow::Cow;
use std::sync::Arc;

use allocation_counter::measure;
use sardonyx_kernels::{Exec, Isa, Pool};
use sardonyx_model::Type;
use sardonyx_ops::{AttrValue, AttributeView, Attributes, Registry};
use sardonyx_tensor::{DataType, Dims, Element, StringArray, Tensor, Value};

use super::{lower, select};
use crate::SharedWeights;
use crate::account::Account;
use crate::error::BindError;
use crate::images::ImageDecoder;
use crate::kernel::{Call, Kernel, Operand, Site, SiteInput, SiteOrders, Target};
use crate::program::Slot;
use crate::weights::{Elements, Packer, Weight};

struct Given<'a>(&'a [(&'a str, AttrValue<'static>)]);

impl Attributes for Given<'_> {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let (_, value) = self.0.iter().find(|(given, _)| *given == name)?;
        Some(value.clone())
    }
}

/// Makes an attribute that is a list of floats.
pub(crate) fn floats(name: &'static str, list: &[f32]) -> (&'static str, AttrValue<'static>) {
    (name, AttrValue::Floats(list.to_vec().into()))
}

/// Makes an attribute that is a list of integers.
pub(crate) fn ints(name: &'static str, list: &[i64]) -> (&'static str, AttrValue<'static>) {
    (name, AttrValue::Ints(list.to_vec().into()))
}

/// Makes an attribute that is a list of strings.
pub(crate) fn texts(name: &'static str, list: &[&str]) -> (&'static str, AttrValue<'static>) {
    (name, AttrValue::Strings(list.iter().map(|text| text.as_bytes().to_vec().into()).collect()))
}

/// Makes an attribute that is a string.
pub(crate) fn text(name: &'static str, text: &str) -> (&'static str, AttrValue<'static>) {
    (name, AttrValue::String(text.as_bytes().to_vec().into()))
}

/// Makes a tensor of strings.
pub(crate) fn strings<S: AsRef<[u8]>>(dims: &[usize], texts: &[S]) -> Tensor {
    Tensor::from_strings(dims, texts.iter().collect::<StringArray>()).unwrap()
}

/// Makes a tensor of bytes, signed or not, that covers all values, and lists its elements.
pub(crate) fn any_bytes(dims: &[usize], signed: bool, salt: usize) -> (Tensor, Vec<i32>) {
    let len = dims.iter().product::<usize>();
    let bits: Vec<u8> = (0..len).map(|i| ((i + salt) * 89 % 257) as u8).collect();
    if signed {
        let bytes: Vec<i8> = bits.iter().map(|x| x.cast_signed()).collect();
        (tensor(dims, &bytes), bytes.iter().map(|x| i32::from(*x)).collect())
    } else {
        (tensor(dims, &bits), bits.iter().map(|x| i32::from(*x)).collect())
    }
}

/// Runs the newest form of an operator and returns the first outputs, or the error. The domain
/// precedes the operator's name, unless it is ai.onnx.
pub(crate) fn run(
    op: &str,
    attributes: &[(&str, AttrValue<'static>)],
    inputs: &[Option<&Tensor>],
    outputs: usize,
) -> Result<Vec<Tensor>, String> {
    run_with_constants(op, attributes, inputs, &[], outputs)
}

/// Runs an operator, with constants at some inputs, which kernels may pack.
pub(crate) fn run_with_constants(
    op: &str,
    attributes: &[(&str, AttrValue<'static>)],
    inputs: &[Option<&Tensor>],
    constants: &[usize],
    outputs: usize,
) -> Result<Vec<Tensor>, String> {
    let (domain, op) = op.rsplit_once('.').unwrap_or(("", op));
    run_of((domain, op, u32::MAX), attributes, inputs, constants, outputs)
}

/// Runs a version of an operator of a domain.
pub(crate) fn run_of(
    operator: (&str, &str, u32),
    attributes: &[(&str, AttrValue<'static>)],
    inputs: &[Option<&Tensor>],
    constants: &[usize],
    outputs: usize,
) -> Result<Vec<Tensor>, String> {
    run_in(operator, attributes, inputs, constants, outputs, None)
}

/// Runs an operator of one input in a session with an image decoder.
pub(crate) fn run_with_images(
    op: &str,
    attributes: &[(&str, AttrValue<'static>)],
    input: &Tensor,
    images: &Arc<dyn ImageDecoder>,
) -> Result<Vec<Tensor>, String> {
    run_in(("", op, u32::MAX), attributes, &[Some(input)], &[], 1, Some(images))
}

fn run_in(
    (domain, op, version): (&str, &str, u32),
    attributes: &[(&str, AttrValue<'static>)],
    inputs: &[Option<&Tensor>],
    constants: &[usize],
    outputs: usize,
    images: Option<&Arc<dyn ImageDecoder>>,
) -> Result<Vec<Tensor>, String> {
    let registry = Registry::with_microsoft();
    let schema = registry.schema(domain, op, version).expect("a known operator");
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
        rank: None,
        isa: Isa::detect(),
        precision: crate::Precision::Exact,
        orders: SiteOrders::default(),
        exact_up_to: 0,
        weights: &Packer::new(&shared, &account, false),
        images,
    };
    let operation = lower(schema, &site);
    let selected = operation.and_then(|op| Ok((select(&op, schema, &site)?, op.operands())));
    let (selected, slots) = selected.map_err(|error| match error {
        BindError::Unsupported(why) | BindError::Invalid(why) => why,
    })?;
    let operands = slots.iter().enumerate().map(|(position, slot)| {
        slot.and_then(|slot| inputs[slot.index()]).filter(|_| !selected.packed.contains(&position))
    });
    let operands: Vec<Option<&Tensor>> = operands.collect();
    let (exec, kernel) = (Exec::new(Pool::global(), Isa::detect()), selected.kernel);
    let targets = (0..outputs).map(|_| Target::Owned(None));
    let mut first = call(&operands, targets, &exec, &account);
    kernel.run(&mut first).map_err(|error| error.to_string())?;
    let outputs = first.targets.into_iter().map(|target| match target {
        Target::Owned(Some(Value::Tensor(tensor))) => Ok(tensor),
        _ => Err("an output is missing".to_string()),
    });
    let outputs = outputs.collect::<Result<Vec<Tensor>, String>>()?;
    if outputs.iter().all(|output| output.data_type() != DataType::String) {
        // Weights that are not constant are packed in each call, and convolutions list their sizes,
        // those of `Conv` in memory only where there are more than three axes. A decoder of images
        // is not this crate's.
        let is_listed = outputs.iter().any(|y| y.dims().len() > 5);
        let allocates = ["ConvTranspose", "GRU", "ImageDecoder", "LSTM", "RNN"].contains(&op)
            || (op == "Conv" && is_listed);
        let planned = Planned { op, kernel: &*kernel, allocates };
        planned.check(&operands, &outputs, &exec);
    }
    Ok(outputs)
}

/// A kernel that runs into memory that is planned for its outputs, as in the iterations of a loop.
struct Planned<'a> {
    op: &'a str,
    kernel: &'a dyn Kernel,
    /// Whether each call allocates.
    allocates: bool,
}

impl Planned<'_> {
    /// Checks that the kernel gives the same as before, and that it allocates nothing from the
    /// second time on.
    fn check(&self, operands: &[Option<&Tensor>], outputs: &[Tensor], exec: &Exec<'_>) {
        let &Planned { op, kernel, allocates } = self;
        let account = Account::new(None, 0);
        let dims: Vec<Dims> = outputs.iter().map(|output| output.dims().into()).collect();
        let zeros = outputs.iter().map(|output| Tensor::zeros(output.data_type(), output.dims()));
        let mut memory: Vec<Tensor> = zeros.map(|zeros| zeros.expect("a little memory")).collect();
        for round in 0..2 {
            let targets = memory.iter_mut().zip(&dims).map(|(tensor, dims)| Target::Planned {
                data_type: tensor.data_type(),
                dims,
                bytes: tensor.bytes_mut().expect("its own bytes"),
                laid: None,
            });
            let mut call = call(operands, targets, exec, &account);
            let mut result = Ok(());
            let count = measure(|| result = kernel.run(&mut call)).count_total;
            result.unwrap_or_else(|error| panic!("{op} into planned memory: {}", error));
            assert!(count == 0 || round == 0 || allocates, "{op} allocates {count} times");
        }
        for (found, expected) in memory.iter().zip(outputs) {
            assert!(
                found.bit_eq(expected),
                "{op} gives {found:?} into planned memory, not {expected:?}"
            );
        }
    }
}

fn call<'a>(
    operands: &[Option<&'a Tensor>],
    targets: impl Iterator<Item = Target<'a>>,
    exec: &'a Exec<'a>,
    account: &'a Account,
) -> Call<'a> {
    let operands = operands.iter().map(|operand| match operand {
        Some(tensor) => Operand::Tensor(tensor.view()),
        None => Operand::Absent,
    });
    Call {
        operands: operands.collect(),
        targets: targets.collect(),
        over: None,
        exec,
        random: crate::random::Draws::default(),
        memory: None,
        account,
    }
}

/// Makes a tensor from dimensions and elements.
#[track_caller]
pub(crate) fn tensor<T: Element>(dims: &[usize], elements: &[T]) -> Tensor {
    Tensor::from_slice(dims, elements).expect("as many elements as the dimensions say")
}
