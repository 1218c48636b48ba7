//! Values at the border of a model: what is given becomes what kernels read, and what kernels make
//! becomes what the model declares.
//!
//! Kernels read dense tensors whose elements lie at addresses of their type. So sparse tensors
//! become dense as they come in, and an output that is declared sparse becomes sparse as it goes
//! out. Optionals and sequences with nothing in them take on the declared type: nobody can tell
//! what they do not hold.

use std::mem::{replace, take};

use sardonyx_model::{DimValue, Model, Symbol, Type, TypeKind, TypeProto, ValueInfo};
use sardonyx_tensor::{
    DataType, Map, Sequence, Sparse, Tensor, TensorView, Value, ValueType, ViewData, shape,
};

use crate::account::Account;
use crate::error::{KernelError, fail};
use crate::memory::Held;

/// Limit: a sparse tensor that stands for more elements than this, and for more than
/// [`DENSE_RATIO`] times those it stores, is a few bytes made to take all memory. Kernels want the
/// whole tensor.
const DENSE_ELEMENTS: usize = 1 << 28;
const DENSE_RATIO: usize = 1000;

/// Refuses a sparse tensor that stands for too much to become dense.
pub(crate) fn demand_density(sparse: &Sparse) -> Result<(), KernelError> {
    let elems = sparse.dims().iter().product::<usize>();
    let stored = sparse.values().len();
    if elems > DENSE_ELEMENTS && elems / DENSE_RATIO > stored {
        fail!("{stored} values are stored for {elems} elements, which is not allowed");
    }
    Ok(())
}

/// Whether the address is one of elements of the type.
pub(crate) fn is_aligned(data_type: DataType, bytes: &[u8]) -> bool {
    let element = data_type.bits().unwrap_or(8) / 8;
    bytes.as_ptr().addr().is_multiple_of(element.clamp(1, 8))
}

/// Whether kernels can read elements where they are.
pub(crate) fn lies_well(view: &TensorView<'_>) -> bool {
    match view.data() {
        ViewData::Bytes(_) => {
            view.contiguous_bytes().is_some_and(|bytes| is_aligned(view.data_type(), bytes))
        }
        ViewData::Strings(_) => view.is_contiguous(),
    }
}

/// What an optional input is that is not given.
pub(crate) fn absent(ty: Option<&Type>) -> Held<'static> {
    match ty {
        // Of elements that nobody knows there are none either.
        Some(Type::Optional(inner)) => match inner.value_type_or(Some(DataType::Float)) {
            Some(element) => Held::Value(Value::none(element), 0),
            None => Held::Nothing,
        },
        _ => Held::Nothing,
    }
}

/// Brings a value that fits the declared type into the form that kernels read. Copies are counted
/// in the account before they are made, and in the value.
pub(crate) fn admit(
    value: &mut Held<'_>,
    declared: Option<&Type>,
    account: &Account,
) -> Result<(), KernelError> {
    let before = account.taken();
    let admitted = match value {
        Held::Input(view) => {
            let is_wrapped = matches!(declared, Some(Type::Optional(_)));
            if lies_well(view) && !is_wrapped {
                return Ok(());
            }
            let copy = Value::Tensor(copied(view, account)?);
            if is_wrapped { Value::some(copy) } else { copy }
        }
        Held::Value(value, _) if !is_ready(value, declared) => {
            let value = replace(value, Value::none(ValueType::Tensor(DataType::Float)));
            ready(value, declared, account)?
        }
        Held::Borrowed(value) if !is_ready(value, declared) => {
            ready(value.clone(), declared, account)?
        }
        _ => return Ok(()),
    };
    *value = Held::Value(admitted, account.taken().saturating_sub(before));
    Ok(())
}

/// Whether a value is in the form that kernels read.
fn is_ready(value: &Value, declared: Option<&Type>) -> bool {
    match (value, declared) {
        (Value::Tensor(tensor), _) => lies_well(&tensor.view()),
        (Value::Sparse(_), _) => false,
        (Value::Sequence(sequence), _) => {
            let inner = inner_of(declared);
            let is_typed = !sequence.is_empty() || has_element(declared, sequence.element());
            is_typed && sequence.items().iter().all(|item| is_ready(item, inner))
        }
        (Value::Map(map), _) => {
            let inner = inner_of(declared);
            map.entries().iter().all(|(_, value)| is_ready(value, inner))
        }
        (Value::Optional(element, None), _) => has_element(declared, element),
        (Value::Optional(_, Some(held)), _) => is_ready(held, inner_of(declared)),
        (Value::Opaque(_), _) => true,
    }
}

/// The type of what a value of a type holds.
fn inner_of(declared: Option<&Type>) -> Option<&Type> {
    match declared? {
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => Some(inner),
        Type::Tensor(_) | Type::SparseTensor(_) | Type::Opaque { .. } => None,
    }
}

/// The type of what is not there: the declared one, if that is known.
fn element_of(declared: Option<&Type>, found: &ValueType) -> ValueType {
    let known = inner_of(declared).and_then(Type::value_type);
    dense_type(known.as_ref().unwrap_or(found))
}

/// Whether [`element_of`] is what was found.
fn has_element(declared: Option<&Type>, found: &ValueType) -> bool {
    element_of(declared, found) == *found
}

/// A type with dense tensors in the place of sparse ones.
pub(crate) fn dense_type(ty: &ValueType) -> ValueType {
    let boxed = |ty: &ValueType| Box::new(dense_type(ty));
    match ty {
        ValueType::Tensor(elem) | ValueType::Sparse(elem) => ValueType::Tensor(*elem),
        ValueType::Sequence(inner) => ValueType::Sequence(boxed(inner)),
        ValueType::Map(key, inner) => ValueType::Map(*key, boxed(inner)),
        ValueType::Optional(inner) => ValueType::Optional(boxed(inner)),
        ValueType::Opaque(_) => ty.clone(),
    }
}

/// A value in the form that kernels read.
fn ready(value: Value, declared: Option<&Type>, account: &Account) -> Result<Value, KernelError> {
    let inner = inner_of(declared);
    Ok(match value {
        Value::Tensor(tensor) if lies_well(&tensor.view()) => Value::Tensor(tensor),
        Value::Tensor(tensor) => Value::Tensor(copied(&tensor.view(), account)?),
        Value::Sparse(sparse) => Value::Tensor(dense(&sparse, account)?),
        Value::Sequence(sequence) => {
            let element = sequence.element();
            let mut settled = Sequence::new(if sequence.is_empty() {
                element_of(declared, element)
            } else {
                dense_type(element)
            });
            for item in sequence.into_items() {
                settled.push(ready(item, inner, account)?)?;
            }
            Value::Sequence(settled)
        }
        Value::Map(map) => {
            let mut settled = Map::new(map.key_type(), dense_type(map.element()))?;
            for (key, value) in map.entries() {
                settled.push(key.clone(), ready(value.clone(), inner, account)?)?;
            }
            Value::Map(settled)
        }
        Value::Optional(element, None) => Value::none(element_of(declared, &element)),
        Value::Optional(_, Some(held)) => Value::some(ready(*held, inner, account)?),
        Value::Opaque(opaque) => Value::Opaque(opaque),
    })
}

/// A dense copy in memory of its own, counted before it is made.
fn copied(view: &TensorView<'_>, account: &Account) -> Result<Tensor, KernelError> {
    // Only a copy tells how long its strings are together.
    let known = view.data_type().storage_bytes(view.len());
    account.charge(known.unwrap_or(0))?;
    let copy = view.to_tensor()?;
    account.charge(copy.held_bytes().saturating_sub(known.unwrap_or(0)))?;
    Ok(copy)
}

/// The whole of a sparse tensor, counted before it is made.
fn dense(sparse: &Sparse, account: &Account) -> Result<Tensor, KernelError> {
    demand_density(sparse)?;
    let elems = shape::elems(sparse.dims())?;
    let width = sparse.values().data_type().storage_bytes(elems);
    // Strings that are not stored are empty, and have an end each.
    let ends = elems.saturating_mul(size_of::<usize>());
    account.charge(width.unwrap_or_else(|| ends.saturating_add(sparse.values().held_bytes())))?;
    Ok(sparse.to_dense()?)
}

/// An output as the model declares it.
pub(crate) fn released(
    value: Value,
    declared: Option<&Type>,
    account: &Account,
) -> Result<Value, KernelError> {
    let Some(declared) = declared.filter(|ty| has_sparse(ty)) else {
        return Ok(value);
    };
    let inner = inner_of(Some(declared));
    Ok(match (value, declared) {
        (Value::Tensor(tensor), Type::SparseTensor(_)) => {
            // At most: every element with its position, as an index and as a number.
            let each = size_of::<i64>() + size_of::<usize>();
            let positions = tensor.len().saturating_mul(each);
            account.charge(tensor.held_bytes().saturating_add(positions))?;
            Value::from(Sparse::from_dense(&tensor)?)
        }
        (Value::Sequence(sequence), _) => {
            let mut made = Sequence::new(match inner.and_then(Type::value_type) {
                Some(element) => element,
                None => sequence.element().clone(),
            });
            for item in sequence.into_items() {
                made.push(released(item, inner, account)?)?;
            }
            Value::Sequence(made)
        }
        (Value::Optional(_, Some(held)), _) => Value::some(released(*held, inner, account)?),
        (value, _) => value,
    })
}

/// Whether values of a type are sparse tensors or hold some.
fn has_sparse(ty: &Type) -> bool {
    matches!(ty, Type::SparseTensor(_)) || inner_of(Some(ty)).is_some_and(has_sparse)
}

/// The model as it runs, if that is another: what comes in and goes out is dense, and names of
/// sizes within sequences and maps, whose items differ, say nothing. Sizes that are `fixed` stay.
pub(crate) fn as_run(model: &Model, fixed: &[(String, i64)]) -> Option<Model> {
    let main = model.main?;
    let graph = model.graph(main);
    let changed = |info: &ValueInfo| type_as_run(model, info.ty.as_ref()?, fixed);
    let [inputs, outputs] = [&graph.inputs, &graph.outputs]
        .map(|infos| infos.iter().map(changed).collect::<Vec<Option<TypeProto>>>());
    if inputs.iter().chain(&outputs).all(Option::is_none) {
        return None;
    }
    let mut model = model.clone();
    let graph = model.graph_mut(main);
    let infos = graph.inputs.iter_mut().chain(&mut graph.outputs);
    for (info, changed) in infos.zip(inputs.into_iter().chain(outputs)) {
        if changed.is_some() {
            info.ty = changed;
        }
    }
    Some(model)
}

/// A declared type as [`as_run`] sees it, if that is another.
pub(crate) fn type_as_run(
    model: &Model,
    ty: &TypeProto,
    fixed: &[(String, i64)],
) -> Option<TypeProto> {
    let is_fixed =
        |name: Symbol| fixed.iter().any(|(fixed, _)| fixed.as_bytes() == model.text(name));
    let mut seen = ty.clone();
    see_as_run(&mut seen, false, &is_fixed).then_some(seen)
}

/// Makes a type one that kernels see; whether that changes it.
fn see_as_run(ty: &mut TypeProto, is_item: bool, is_fixed: &dyn Fn(Symbol) -> bool) -> bool {
    let Some(kind) = &mut ty.kind else { return false };
    let inside = |inner: &mut Option<Box<TypeProto>>, is_item: bool| {
        inner.as_deref_mut().is_some_and(|inner| see_as_run(inner, is_item, is_fixed))
    };
    let mut is_changed = false;
    match kind {
        TypeKind::Sequence { elem_type: inner, .. } | TypeKind::Map { value_type: inner, .. } => {
            return inside(inner, true);
        }
        TypeKind::Optional { elem_type: inner, .. } => return inside(inner, is_item),
        TypeKind::Tensor { shape, .. } | TypeKind::SparseTensor { shape, .. } if is_item => {
            for dim in shape.iter_mut().flat_map(|shape| &mut shape.dims) {
                if matches!(dim.value, Some(DimValue::Param(name)) if !is_fixed(name)) {
                    dim.value = None;
                    is_changed = true;
                }
            }
        }
        TypeKind::Tensor { .. } | TypeKind::SparseTensor { .. } | TypeKind::Opaque { .. } => {}
    }
    if let TypeKind::SparseTensor { elem_type, shape, unknown } = kind {
        let (elem_type, shape, unknown) = (*elem_type, take(shape), take(unknown));
        *kind = TypeKind::Tensor { elem_type, shape, unknown };
        is_changed = true;
    }
    is_changed
}
