//! Do the inputs of a run fit the model? Answers in the caller's terms, before anything runs.

use std::collections::HashMap;
use std::fmt::Write;

use sardonyx_model::{Dim, TensorType, Type};
use sardonyx_tensor::{Value, ValueType};

use crate::error::{Error, ErrorKind};
use crate::port::Port;
use sardonyx_proto::closest;

/// Checks names, types and shapes; wraps what goes into an input of optional type. `fixed` says
/// which sizes the model itself leaves open and the session does not.
pub(crate) fn check_inputs(
    ports: &[Port],
    inputs: &mut [(String, Value)],
    fixed: &str,
) -> Result<(), Error> {
    let by_name: HashMap<&str, &Port> = ports.iter().map(|port| (port.name(), port)).collect();
    let mut given: HashMap<String, ()> = HashMap::new();
    let mut symbols = Symbols::default();
    for (name, value) in inputs.iter_mut() {
        let Some(port) = by_name.get(name.as_str()) else {
            let error = Error::new(ErrorKind::Input, format!("the model has no input '{name}'"));
            return Err(match closest(name, by_name.keys().copied()) {
                Some(near) => error.with_help(format!("did you mean '{near}'?\n{}", wanted(ports))),
                None => error.with_help(wanted(ports)),
            });
        };
        if given.insert(name.clone(), ()).is_some() {
            return Err(Error::new(ErrorKind::Input, format!("the input '{name}' is given twice")));
        }
        let Some(ty) = port.ty() else { continue };
        if let (Type::Optional(_), false) = (ty, matches!(value, Value::Optional(..))) {
            let inner = std::mem::replace(
                value,
                Value::none(ValueType::Tensor(sardonyx_tensor::DataType::Float)),
            );
            *value = Value::some(inner);
        }
        fits(name, value, ty, &mut symbols).map_err(|what| {
            let wanted = match fixed {
                "" => wanted(ports),
                fixed => format!("{}\nfixed when the session was made: {fixed}", wanted(ports)),
            };
            Error::new(ErrorKind::Input, format!("the input '{name}' {what}")).with_help(wanted)
        })?;
    }
    let missing: Vec<&str> = ports
        .iter()
        .filter(|port| port.is_required() && !given.contains_key(port.name()))
        .map(Port::name)
        .collect();
    match missing.len() {
        0 => Ok(()),
        1 => Err(format!("the input '{}' is missing", missing[0])),
        n if n <= 5 => Err(format!("the inputs '{}' are missing", missing.join("', '"))),
        n => Err(format!(
            "the inputs '{}' and {} more are missing",
            missing[..5].join("', '"),
            n - 5
        )),
    }
    .map_err(|what| Error::new(ErrorKind::Input, what).with_help(wanted(ports)))
}

/// What the model wants, one input per line.
fn wanted(ports: &[Port]) -> String {
    const SHOWN: usize = 12;
    let required: Vec<&Port> = ports.iter().filter(|port| port.is_required()).collect();
    if required.is_empty() {
        return "the model needs no inputs".to_string();
    }
    let mut text = String::from("the model wants");
    for port in required.iter().take(SHOWN) {
        let _ = write!(text, "\n  {port}");
    }
    if required.len() > SHOWN {
        let _ = write!(text, "\n  … and {} more", required.len() - SHOWN);
    }
    text
}

/// Sizes that named dims have taken, with the input that said so first.
type Symbols = HashMap<String, (usize, String)>;

fn fits(name: &str, value: &Value, ty: &Type, symbols: &mut Symbols) -> Result<(), String> {
    let other_kind = || format!("is of type {}, but the model wants {ty}", value.value_type());
    match (value, ty) {
        (Value::Tensor(tensor), Type::Tensor(wanted)) => {
            if wanted.elem.is_some_and(|elem| elem != tensor.data_type()) {
                return Err(format!(
                    "has elements of type {}, but the model wants {ty}",
                    tensor.data_type()
                ));
            }
            dims_fit(name, tensor.dims(), wanted, symbols)
        }
        (Value::Sparse(sparse), Type::SparseTensor(wanted)) => {
            if wanted.elem.is_some_and(|elem| elem != sparse.values().data_type()) {
                return Err(other_kind());
            }
            dims_fit(name, sparse.dims(), wanted, symbols)
        }
        (Value::Optional(element, _), Type::Optional(inner)) if same_kind(element, inner) => Ok(()),
        (Value::Sequence(items), Type::Sequence(inner)) if same_kind(items.element(), inner) => {
            Ok(())
        }
        (Value::Map(entries), Type::Map(key, inner))
            if entries.key_type() == *key && same_kind(entries.element(), inner) =>
        {
            Ok(())
        }
        _ => Err(other_kind()),
    }
}

fn same_kind(found: &ValueType, wanted: &Type) -> bool {
    match (found, wanted) {
        (ValueType::Tensor(elem), Type::Tensor(t))
        | (ValueType::Sparse(elem), Type::SparseTensor(t)) => t.elem.is_none_or(|e| e == *elem),
        (ValueType::Sequence(found), Type::Sequence(wanted))
        | (ValueType::Optional(found), Type::Optional(wanted)) => same_kind(found, wanted),
        (ValueType::Map(k, found), Type::Map(l, wanted)) => k == l && same_kind(found, wanted),
        _ => false,
    }
}

fn dims_fit(
    name: &str,
    dims: &[usize],
    wanted: &TensorType,
    symbols: &mut Symbols,
) -> Result<(), String> {
    let Some(shape) = &wanted.shape else {
        return Ok(());
    };
    if shape.len() != dims.len() {
        return Err(format!(
            "has {} dimensions, {dims:?}, but the model wants {}: {wanted}",
            dims.len(),
            shape.len()
        ));
    }
    for (axis, (dim, wanted_dim)) in dims.iter().zip(shape).enumerate() {
        match wanted_dim {
            Dim::Known(size) if usize::try_from(*size) != Ok(*dim) => {
                return Err(format!(
                    "has the shape {dims:?}, but the model wants {wanted}: dimension {axis} is {dim}, not {size}"
                ));
            }
            _ => {}
        }
        let Some(symbol) = wanted_dim.as_symbol() else {
            continue;
        };
        match symbols.get(symbol) {
            Some((size, first)) if size != dim => {
                return Err(format!(
                    "has the shape {dims:?}, so {symbol} would be {dim}, but {symbol} is {size} for the input '{first}'"
                ));
            }
            Some(_) => {}
            None => {
                symbols.insert(symbol.to_string(), (*dim, name.to_string()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::{DataType, Tensor};

    use super::*;

    fn port(name: &str, ty: Type) -> Port {
        Port { name: name.to_string(), ty: Some(ty), required: true, doc: String::new() }
    }

    #[test]
    fn what_does_not_fit_is_said_in_the_caller_s_terms() {
        let n = Dim::symbol("N");
        let ports = [
            port("image", Type::tensor(DataType::Float, [n.clone(), 3i64.into()])),
            port("mask", Type::tensor(DataType::Bool, [n])),
        ];
        let floats = |dims: &[usize]| Value::from(Tensor::zeros(DataType::Float, dims).unwrap());
        let bools = |dims: &[usize]| Value::from(Tensor::zeros(DataType::Bool, dims).unwrap());
        let check = |inputs: &[(&str, Value)]| {
            let mut inputs: Vec<_> =
                inputs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
            check_inputs(&ports, &mut inputs, "").map_err(|error| error.to_string())
        };
        assert_eq!(check(&[("image", floats(&[2, 3])), ("mask", bools(&[2]))]), Ok(()));
        let rows: [(&[(&str, Value)], &str); 7] = [
            (&[("imgae", floats(&[2, 3]))], "did you mean 'image'?"),
            (&[("mask", bools(&[2]))], "'image' is missing"),
            (&[], "'image', 'mask' are missing"),
            (
                &[("image", bools(&[2, 3]))],
                "elements of type bool, but the model wants float[N, 3]",
            ),
            (&[("image", floats(&[2]))], "has 1 dimensions, [2]"),
            (&[("image", floats(&[2, 4]))], "dimension 1 is 4, not 3"),
            (&[("image", floats(&[2, 3])), ("mask", bools(&[1]))], "N is 2 for the input 'image'"),
        ];
        for (inputs, expected) in rows {
            let error = check(inputs).unwrap_err();
            assert!(error.contains(expected), "{error}\nlacks {expected}");
        }
    }

    #[test]
    fn optional_inputs_are_wrapped() {
        let ty = Type::Optional(Box::new(Type::unranked(DataType::Int64)));
        let mut inputs = [("o".to_string(), Value::from(Tensor::scalar(1i64)))];
        check_inputs(&[port("o", ty)], &mut inputs, "").unwrap();
        assert_eq!(inputs[0].1, Value::some(Tensor::scalar(1i64).into()));
    }
}
