//! Sizes that a plan leaves open: expressions over symbols of the inputs of the model.
//!
//! A plan holds for all sizes of the axes that it does not split. They change the number of bytes
//! that devices hold and send, but not the parts of devices, senders and receivers.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Dim, Formulas, Model, NodeId, Shape, Type};
use sardonyx_ops::Sizes;
use sardonyx_passes::{Conditions, FactorSize, annotations};
use sardonyx_proto::shown;
use sardonyx_tensor::DataType;

use crate::options::ShardOptions;
use crate::plan::Plan;
use crate::prepare::Prepared;

/// Assumed size of a symbol when values are compared by their size.
const NOMINAL_SIZE: i64 = 64;

/// Returns the element type and the sizes of a tensor. The sizes are `None` unless each is a number
/// or an expression over `symbols`.
pub(crate) fn tensor(ty: &Type, symbols: &HashSet<String>) -> Option<(DataType, Option<Shape>)> {
    let elem = ty.elem()?;
    let is_usable = |dim: &Dim| match dim {
        Dim::Known(size) => *size >= 0,
        Dim::Unknown => false,
        Dim::Expr(_) => dim.symbols().iter().all(|name| symbols.contains(name)),
    };
    let dims = ty.shape().filter(|shape| shape.iter().all(is_usable));
    Some((elem, dims.map(|shape| shape.iter().cloned().collect())))
}

/// Replaces open sizes by 1. Axes of open size are never split, so that the parts of devices do not
/// depend on the number.
pub(crate) fn stand_in(dims: &[Dim]) -> Sizes {
    dims.iter().map(|dim| dim.size().unwrap_or(1)).collect()
}

/// Estimates a size to compare values: symbols count as [`NOMINAL_SIZE`], and so does an unknown
/// size.
pub(crate) fn nominal(dim: &Dim) -> u64 {
    let number = dim.substitute(&|_| Some(Dim::Known(NOMINAL_SIZE))).known();
    number.map_or(NOMINAL_SIZE.unsigned_abs(), |number| u64::try_from(number).unwrap_or(0))
}

/// Returns the size of `elements` elements in bytes.
pub(crate) fn bytes_of(elements: &Dim, elem: DataType) -> Dim {
    elements.mul(&elem.bits().unwrap_or(0).into()).ceil_div(&Dim::Known(8))
}

/// Returns the symbols in the shapes of the main graph's inputs.
pub(crate) fn symbols_of_inputs(prepared: &Prepared) -> HashSet<String> {
    let model = prepared.resolved.model();
    let inputs = model.graph(prepared.resolved.main()).inputs.iter();
    let types = inputs.filter_map(|info| prepared.types.ty(info.value?));
    types.flat_map(|ty| ty.shape().into_iter().flatten()).flat_map(Dim::symbols).collect()
}

/// Returns the symbols whose sizes annotations need: symbols in the sizes of axes that they split,
/// and symbols that they name as sizes of factors.
pub(crate) fn needed(prepared: &Prepared, symbols: &HashSet<String>) -> BTreeSet<String> {
    let model = prepared.resolved.model();
    let mut found = BTreeSet::new();
    let graphs = prepared.resolved.graphs().iter();
    let nodes = graphs.flat_map(|graph| prepared.resolved.order_of(*graph)).copied();
    for node in nodes {
        let name = prepared.configuration.as_bytes();
        let Some(annotation) = annotations(model, node).find(|one| one.configuration == name)
        else {
            continue;
        };
        for spec in annotation.specs.iter().filter(|spec| !spec.dims.is_empty()) {
            let factors = spec.dims.iter().flat_map(|dim| &dim.factors);
            found.extend(factors.filter_map(|factor| match factor.size {
                Some(FactorSize::Param(name)) => Some(shown(name).to_string()),
                _ => None,
            }));
            let shape = shape_of(model, prepared, node, spec.tensor);
            let rank = shape.as_ref().map_or(0, |shape| shape.len() as i64);
            for axis in spec.dims.iter().filter_map(|dim| dim.axis) {
                let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok();
                let size = axis.and_then(|axis| shape.as_ref()?.get(axis));
                found.extend(size.into_iter().flat_map(Dim::symbols));
            }
        }
    }
    found.retain(|name| symbols.contains(name));
    found
}

/// Returns the shape of the operand of a node with a name.
fn shape_of(model: &Model, prepared: &Prepared, node: NodeId, name: &[u8]) -> Option<Vec<Dim>> {
    let operands = model.inputs(node).chain(model.outputs(node).iter().copied()).flatten();
    let mut named = operands.filter(|value| model.text(model.value(*value).name) == name);
    Some(prepared.types.ty(named.next()?)?.shape()?.to_vec())
}

/// Sizes of symbols in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers(HashMap<String, i64>);

impl Numbers {
    /// Returns the sizes of a tensor; `None` if one is not known.
    pub fn of(&self, dims: &[Dim]) -> Option<Sizes> {
        let number = |name: &str| self.0.get(name).copied().map(Dim::Known);
        dims.iter().map(|dim| dim.size().or_else(|| dim.substitute(&number).size())).collect()
    }
}

impl FromIterator<(String, i64)> for Numbers {
    fn from_iter<I: IntoIterator<Item = (String, i64)>>(numbers: I) -> Numbers {
        Numbers(numbers.into_iter().collect())
    }
}

/// Conditions on the sizes of open symbols under which a plan holds.
#[derive(Debug)]
pub(crate) struct Scope {
    symbols: Vec<String>,
    formulas: Formulas,
    conditions: Conditions,
}

impl Scope {
    /// Derives the conditions under which the inferred types hold. `None` if `options.open` is
    /// `None`, or if the conditions take too long to derive.
    pub(crate) fn new(prepared: &Prepared, options: ShardOptions<'_>) -> Option<Arc<Scope>> {
        let symbols: Vec<String> = options.open?.iter().map(|(name, _)| name.clone()).collect();
        let mut formulas = Formulas::new(symbols.iter().map(String::as_str));
        let values = prepared.resolved.model().value_count();
        let conditions = Conditions::new(&prepared.types, values, &mut formulas)?;
        Some(Arc::new(Scope { symbols, formulas, conditions }))
    }
}

impl Plan {
    /// Whether the plan holds for these sizes of its symbols.
    pub fn holds(&self, numbers: &Numbers) -> bool {
        let number = |name: &String| numbers.0.get(name).copied();
        if self.sizes.iter().any(|(name, size)| number(name) != Some(*size)) {
            return false;
        }
        let Some(scope) = &self.scope else { return false };
        let sizes: Option<Vec<i64>> = scope.symbols.iter().map(number).collect();
        let computed = sizes.and_then(|sizes| scope.formulas.compute(&sizes));
        computed.is_some_and(|computed| scope.conditions.hold(&computed))
    }
}

/// Replaces symbols in types by their sizes.
pub(crate) fn with_numbers(types: &[Option<Type>], sizes: &[(String, i64)]) -> Vec<Option<Type>> {
    let number = |name: &str| {
        let found = sizes.iter().find(|(known, _)| known == name);
        found.map(|(_, size)| Dim::Known(*size))
    };
    types.iter().map(|ty| ty.as_ref().map(|ty| ty.substitute(&number))).collect()
}
