//! Conversion of values at the border of a model: inputs to the form that kernels read, outputs to
//! the declared form.
//!
//! Kernels read dense tensors whose elements are aligned to their type. So sparse inputs become
//! dense, and an output that is declared sparse becomes sparse. Empty optionals and sequences take
//! on the declared element type, as no item shows theirs.

use std::mem::{replace, take};

use sardonyx_model::{DimValue, Model, Symbol, Type, TypeKind, TypeProto, ValueInfo};
use sardonyx_tensor::{
    DataType, Map, Sequence, Sparse, Tensor, TensorView, Value, ValueType, ViewData, shape,
};

use crate::account::Account;
use crate::error::{KernelError, fail};
use crate::memory::Held;

/// Limit: elements of a sparse tensor that becomes dense, unless it stores at least one in
/// [`DENSE_RATIO`] of them. Kernels read the whole tensor, so a few bytes could demand all memory.
const DENSE_ELEMENTS: usize = 1 << 28;
const DENSE_RATIO: usize = 1000;

/// Refuses a sparse tensor whose dense form exceeds [`DENSE_ELEMENTS`] and [`DENSE_RATIO`].
pub(crate) fn demand_density(sparse: &Sparse) -> Result<(), KernelError> {
    let elems = sparse.dims().iter().product::<usize>();
    let stored = sparse.values().len();
    if elems > DENSE_ELEMENTS && elems / DENSE_RATIO > stored {
        fail!("{stored} values are stored for {elems} elements, which is not allowed");
    }
    Ok(())
}

/// Whether the address of `bytes` is aligned to elements of the type.
pub(crate) fn is_aligned(data_type: DataType, bytes: &[u8]) -> bool {
    // All sizes of elements are powers of two. A division takes longer than a short step.
    let element = (data_type.bits().unwrap_or(8) / 8).clamp(1, 8);
    bytes.as_ptr().addr() & (element - 1) == 0
}

/// Whether kernels can read the elements in place: contiguous and aligned.
pub(crate) fn lies_well(view: &TensorView<'_>) -> bool {
    match view.data() {
        ViewData::Bytes(_) => {
            view.contiguous_bytes().is_some_and(|bytes| is_aligned(view.data_type(), bytes))
        }
        ViewData::Strings(_) => view.is_contiguous(),
    }
}

/// Returns the value of a missing optional input.
pub(crate) fn absent(ty: Option<&Type>) -> Held<'static> {
    match ty {
        // An element type that is not declared has no empty optional.
        Some(Type::Optional(inner)) => match inner.value_type_or(Some(DataType::Float)) {
            Some(element) => Held::Value(Value::none(element), 0),
            None => Held::Nothing,
        },
        _ => Held::Nothing,
    }
}

/// Converts a value that fits the declared type to the form that kernels read. Charges copies
/// before they are made, and adds them to the value.
pub(crate) fn admit(
    value: &mut Held<'_>,
    declared: Option<&Type>,
    account: &Account,
) -> Result<(), KernelError> {
    let before = account.charged_bytes();
    let admitted = match value {
        Held::Input(view) => {
            let is_wrapped = matches!(declared, Some(Type::Optional(_)));
            if lies_well(view) && !is_wrapped {
                return Ok(());
            }
            let copy = Value::Tensor(copy(view, account)?);
            if is_wrapped { Value::some(copy) } else { copy }
        }
        Held::Value(value, _) if !is_ready(value, declared) => {
            let value = replace(value, Value::none(ValueType::Tensor(DataType::Float)));
            convert(value, declared, account)?
        }
        Held::Borrowed(value) if !is_ready(value, declared) => {
            convert(value.clone(), declared, account)?
        }
        _ => return Ok(()),
    };
    *value = Held::Value(admitted, account.charged_bytes().saturating_sub(before));
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

/// Returns the declared type of the items within a sequence, optional or map.
fn inner_of(declared: Option<&Type>) -> Option<&Type> {
    match declared? {
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => Some(inner),
        Type::Tensor(_) | Type::SparseTensor(_) | Type::Opaque { .. } => None,
    }
}

/// Returns the element type of an empty value: the declared one if known, else `found`.
fn element_of(declared: Option<&Type>, found: &ValueType) -> ValueType {
    let known = inner_of(declared).and_then(Type::value_type);
    dense_type(known.as_ref().unwrap_or(found))
}

/// Whether the element type of an empty value is the declared one.
fn has_element(declared: Option<&Type>, found: &ValueType) -> bool {
    element_of(declared, found) == *found
}

/// Replaces sparse tensors in a type by dense ones.
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

/// Converts a value to the form that kernels read.
fn convert(value: Value, declared: Option<&Type>, account: &Account) -> Result<Value, KernelError> {
    let inner = inner_of(declared);
    Ok(match value {
        Value::Tensor(tensor) if lies_well(&tensor.view()) => Value::Tensor(tensor),
        Value::Tensor(tensor) => Value::Tensor(copy(&tensor.view(), account)?),
        Value::Sparse(sparse) => Value::Tensor(make_dense(&sparse, account)?),
        Value::Sequence(sequence) => {
            let element = sequence.element();
            let mut settled = Sequence::new(if sequence.is_empty() {
                element_of(declared, element)
            } else {
                dense_type(element)
            });
            for item in sequence.into_items() {
                settled.push(convert(item, inner, account)?)?;
            }
            Value::Sequence(settled)
        }
        Value::Map(map) => {
            let mut settled = Map::new(map.key_type(), dense_type(map.element()))?;
            for (key, value) in map.entries() {
                settled.push(key.clone(), convert(value.clone(), inner, account)?)?;
            }
            Value::Map(settled)
        }
        Value::Optional(element, None) => Value::none(element_of(declared, &element)),
        Value::Optional(_, Some(held)) => Value::some(convert(*held, inner, account)?),
        Value::Opaque(opaque) => Value::Opaque(opaque),
    })
}

/// Copies a view into memory of its own, charged before it is allocated.
fn copy(view: &TensorView<'_>, account: &Account) -> Result<Tensor, KernelError> {
    // The total length of strings is known only after the copy.
    let known = view.data_type().storage_bytes(view.len());
    account.charge(known.unwrap_or(0))?;
    let copy = view.to_tensor()?;
    account.charge(copy.held_bytes().saturating_sub(known.unwrap_or(0)))?;
    Ok(copy)
}

/// Makes a sparse tensor dense. Charges the memory before it is allocated.
fn make_dense(sparse: &Sparse, account: &Account) -> Result<Tensor, KernelError> {
    demand_density(sparse)?;
    let elems = shape::elems(sparse.dims())?;
    let width = sparse.values().data_type().storage_bytes(elems);
    // Each missing string takes its end offset only.
    let ends = elems.saturating_mul(size_of::<usize>());
    account.charge(width.unwrap_or_else(|| ends.saturating_add(sparse.values().held_bytes())))?;
    Ok(sparse.to_dense()?)
}

/// Converts an output to the declared type.
pub(crate) fn convert_output(
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
            // Upper bound: each element with its position, as an index and as a number.
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
                made.push(convert_output(item, inner, account)?)?;
            }
            Value::Sequence(made)
        }
        (Value::Optional(_, Some(held)), _) => Value::some(convert_output(*held, inner, account)?),
        (value, _) => value,
    })
}

/// Whether a type is a sparse tensor or contains one.
pub(crate) fn has_sparse(ty: &Type) -> bool {
    matches!(ty, Type::SparseTensor(_)) || inner_of(Some(ty)).is_some_and(has_sparse)
}

/// Returns the model with the types that kernels see, or `None` if they do not differ: inputs and
/// outputs are dense, and items of sequences and maps lose symbolic sizes, as items may differ in
/// size. Sizes that are `fixed` stay.
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

/// Returns a declared type with the changes of [`as_run`], or `None` if it has none.
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

/// Changes a type to the one that kernels see, and returns whether it differs.
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
