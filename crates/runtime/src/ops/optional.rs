//! Optional, OptionalGetElement and OptionalHasElement.

use sardonyx_model::Type;
use sardonyx_ops::AttrValue;
use sardonyx_tensor::{Bool8, Value, ValueType};

use super::tensor::moves::copy_view;
use super::tensor::reshape::lower_identity;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Operand, Site};
use crate::program::Op;

/// Binds `Optional`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    if site.has_input(0) {
        return Ok(Box::new(Optional { nothing: None }));
    }
    let Some(AttrValue::Type(ty)) = site.attributes.get("type") else {
        let fact = "neither an input nor the attribute 'type' is given";
        return Err(BindError::Invalid(fact.to_string()));
    };
    match ty.value_type() {
        Some(ty) => Ok(Box::new(Optional { nothing: Some(ty) })),
        None => Err(BindError::Unsupported(format!("type not implemented: optional({ty})"))),
    }
}

/// Lowers `OptionalGetElement`. A tensor is passed on.
pub(crate) fn lower_get_element(site: &Site<'_>) -> Result<Op, BindError> {
    let input = site.inputs.first().and_then(Option::as_ref);
    match input.and_then(|input| input.ty.as_deref()) {
        // A tensor is passed on.
        Some(Type::Tensor(_)) => lower_identity(site),
        _ => Ok(Op::opaque(site)),
    }
}

/// Binds `OptionalGetElement` of a value that may be an optional.
pub(crate) fn bind_get_element(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(GetElement))
}

/// Binds `OptionalHasElement`.
pub(crate) fn bind_has_element(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(HasElement))
}

struct Optional {
    /// Type of the empty optional, if the node has no input.
    nothing: Option<ValueType>,
}

impl Kernel for Optional {
    fn memory(&self) -> MemoryRules {
        MemoryRules { takes: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let made = match &self.nothing {
            Some(ty) => Value::none(ty.clone()),
            None => Value::some(call.take(0)?),
        };
        call.set_output(0, made)
    }

    fn describe(&self) -> String {
        "wrap".to_string()
    }
}

struct GetElement;

impl Kernel for GetElement {
    fn memory(&self) -> MemoryRules {
        MemoryRules { takes: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if let Some(Operand::Tensor(view)) = call.operands.first() {
            let view = view.clone();
            return copy_view(call, 0, &view, view.dims());
        }
        match call.take(0)? {
            Value::Optional(_, Some(element)) => call.set_output(0, *element),
            nothing @ Value::Optional(_, None) => {
                fail!("the optional is empty: {}", nothing.value_type())
            }
            other => call.set_output(0, other),
        }
    }

    fn describe(&self) -> String {
        "unwrap".to_string()
    }
}

struct HasElement;

impl Kernel for HasElement {
    fn memory(&self) -> MemoryRules {
        MemoryRules {
            strided: Inputs::from_positions(&[0]),
            unaligned: Inputs::from_positions(&[0]),
            ..Default::default()
        }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let has = match call.value(0) {
            Some(Value::Optional(_, held)) => held.is_some(),
            // A value of any other type counts as an element.
            _ => call.has_input(0),
        };
        call.output_slice::<Bool8>(0, &[])?.fill(Bool8::from(has));
        Ok(())
    }

    fn describe(&self) -> String {
        "look".to_string()
    }
}
