//! Denotations of dimensions (`DATA_BATCH` and others): those of the values between nodes, and
//! their agreement with the expectations of operators.
//!
//! Nothing here runs unless the file denotes a dimension. Then the rule of an operator is applied a
//! second time, to inputs whose sizes are distinct symbols: the symbols in the sizes of an output
//! show which dimensions it comes from.

use hashbrown::HashMap;
use sardonyx_model::{
    Dim, GraphId, Model, NodeAttributes, NodeId, Symbol, TensorType, Type, TypeKind, TypeProto,
    ValueId,
};
use sardonyx_ops::operators::IF;
use sardonyx_ops::{Format, Known, OpDef, RuleOutcome};
use sardonyx_proto::shown;
use smallvec::SmallVec;

use super::callees::Callee;
use super::engine::Engine;
use super::problems::MOST_LISTED;
use super::rulebook::Given;
use super::{Problem, ProblemKind};
use crate::codes;
use crate::finding::Spot;

/// Denotation of each dimension.
pub(super) type Denotations = SmallVec<[Option<Symbol>; 4]>;

/// Maximum number of inputs of a node that passes denotations on: joining the sizes of many inputs
/// takes quadratic time.
const MOST_INPUTS: usize = 64;

/// Returns the denotations in a declared type, if it has any. An empty text denotes nothing.
pub(super) fn declared_denotations(model: &Model, ty: &TypeProto) -> Option<Denotations> {
    let shape = match ty.kind.as_ref()? {
        TypeKind::Tensor { shape, .. } | TypeKind::SparseTensor { shape, .. } => shape.as_ref()?,
        _ => return None,
    };
    if shape.dims.iter().all(|dim| dim.denotation.is_none()) {
        return None;
    }
    let says = |denotation: &Symbol| !model.text(*denotation).is_empty();
    let found: Denotations = shape.dims.iter().map(|dim| dim.denotation.filter(says)).collect();
    found.iter().any(Option::is_some).then_some(found)
}

impl<'a> Engine<'a> {
    /// Propagates denotations through a graph whose types are known.
    pub(super) fn denote(&mut self, id: GraphId) {
        if self.enter().is_err() {
            return;
        }
        let order = self.order(id);
        let nodes = &self.model.graph(id).nodes;
        for node in order.as_deref().unwrap_or(nodes) {
            self.denote_node(*node);
        }
        self.depth -= 1;
    }

    fn denote_node(&mut self, node: NodeId) {
        let model = self.model;
        let graphs: SmallVec<[GraphId; 2]> = model
            .attributes(node)
            .iter()
            .flat_map(|attribute| model.attribute(*attribute).graphs())
            .collect();
        for graph in &graphs {
            self.denote(*graph);
        }
        let inputs: SmallVec<[Option<ValueId>; 6]> = model.inputs(node).collect();
        let is_denoted = |value: &Option<ValueId>| {
            value.is_some_and(|value| self.found.denotations.contains_key(&value))
        };
        let some_denoted = inputs.iter().any(is_denoted);
        if !some_denoted && graphs.is_empty() {
            return;
        }
        let callee = self.callee(node);
        let operator = callee.operator;
        if !graphs.is_empty() {
            // Outputs of `If` have the denotations of its branches; values that a loop carries may
            // differ between iterations.
            if operator.is_some_and(|operator| operator.is(&IF)) {
                self.join_branches(node, &graphs);
            }
            return;
        }
        if let Some(formats) = operator.and_then(OpDef::formats) {
            for (index, format) in formats {
                if let Some(value) = inputs.get(*index).copied().flatten() {
                    self.expect(node, operator.map_or("", |op| op.name), *index, value, *format);
                }
            }
            // Filters do not determine the result, which has the format of the first input.
            let first = inputs.first().copied().flatten();
            if let Some(found) = first.and_then(|value| self.found.denotations.get(&value)) {
                let found = found.clone();
                for value in model.outputs(node).iter().flatten() {
                    self.put(*value, &found);
                }
            }
            return;
        }
        if inputs.len() > MOST_INPUTS {
            return;
        }
        for (index, denotations) in self.propagate(node, &callee, &inputs) {
            if let Some(value) = model.outputs(node)[index] {
                self.put(value, &denotations);
            }
        }
    }

    /// Records the denotations of a value's dimensions. Declared ones stay.
    fn put(&mut self, value: ValueId, denotations: &[Option<Symbol>]) {
        let rank = self.rank(value);
        if rank != Some(denotations.len()) || denotations.iter().all(Option::is_none) {
            return;
        }
        let entry = self.found.denotations.entry(value);
        let kept = entry.or_insert_with(|| denotations.into());
        for (kept, new) in kept.iter_mut().zip(denotations) {
            *kept = kept.or(*new);
        }
    }

    fn rank(&self, value: ValueId) -> Option<usize> {
        match self.found.ty(value)? {
            Type::Tensor(tensor) | Type::SparseTensor(tensor) => Some(tensor.shape.as_ref()?.len()),
            _ => None,
        }
    }

    /// Records the denotations of outputs of `If` on which all branches agree.
    fn join_branches(&mut self, node: NodeId, graphs: &[GraphId]) {
        let model = self.model;
        for (index, value) in model.outputs(node).iter().enumerate() {
            let Some(value) = *value else { continue };
            let mut branches = graphs.iter().map(|graph| {
                let info = model.graph(*graph).outputs.get(index)?;
                self.found.denotations.get(&info.value?)
            });
            let Some(Some(mut joined)) = branches.next().map(Option::<&Denotations>::cloned) else {
                continue;
            };
            for branch in branches {
                for (axis, joined) in joined.iter_mut().enumerate() {
                    let other = branch.and_then(|branch| *branch.get(axis)?);
                    *joined = joined.filter(|joined| other == Some(*joined));
                }
            }
            self.put(value, &joined);
        }
    }

    /// Reports an input whose dimensions have other denotations than an operator expects.
    fn expect(&mut self, node: NodeId, name: &str, index: usize, value: ValueId, format: Format) {
        let Some(found) = self.found.denotations.get(&value) else {
            return;
        };
        let model = self.model;
        let differs = |(axis, found): (usize, &Option<Symbol>)| {
            found.is_some_and(|found| model.text(found) != format.of(axis).as_bytes())
        };
        if !self.options.check_types
            || !found.iter().enumerate().any(differs)
            || self.found.problems.len() >= MOST_LISTED
        {
            return;
        }
        let outcome: Vec<String> = found
            .iter()
            .map(|found| found.map_or("?".into(), |found| shown(model.text(found))))
            .collect();
        let expected: Vec<&str> = (0..found.len()).map(|axis| format.of(axis)).collect();
        let problem = Problem {
            spot: Spot::node(node),
            kind: ProblemKind::Denotation,
            fact: format!(
                "the dimensions of input {index} are denoted [{}], but {name} expects [{}]",
                outcome.join(", "),
                expected.join(", ")
            ),
            advice: codes::DENOTATION_MISMATCH.help.into(),
        };
        self.found.add_problem(problem);
    }

    /// Returns the denotations that the dimensions of each output get from the inputs.
    fn propagate(
        &mut self,
        node: NodeId,
        callee: &Callee<'a>,
        inputs: &[Option<ValueId>],
    ) -> Vec<(usize, Denotations)> {
        let mut marks = Marks::default();
        let types: SmallVec<[Option<Type>; 6]> = inputs
            .iter()
            .map(|value| {
                let value = (*value)?;
                let denotations = self.found.denotations.get(&value);
                Some(marks.on(self.found.ty(value)?, denotations))
            })
            .collect();
        let Some(outcome) = self.infer_marked(node, callee, inputs, &types) else {
            return Vec::new();
        };
        marks.join(&outcome.equal);
        let mut found = Vec::new();
        for (index, ty) in outcome.types.iter().enumerate() {
            if let Some(Type::Tensor(TensorType { shape: Some(shape), .. })) = ty {
                found.push((index, shape.iter().map(|dim| marks.find(dim)).collect()));
            }
        }
        found
    }

    /// Applies the rule of a node to inputs of these types, without listing problems.
    fn infer_marked(
        &mut self,
        node: NodeId,
        callee: &Callee<'a>,
        inputs: &[Option<ValueId>],
        types: &[Option<Type>],
    ) -> Option<RuleOutcome> {
        let known: SmallVec<[Option<Known>; 6]> =
            inputs.iter().map(|value| self.found.known((*value)?).cloned()).collect();
        let present: SmallVec<[bool; 6]> = inputs.iter().map(Option::is_some).collect();
        let attributes = NodeAttributes::in_call(self.model, self.texts, node, None);
        let mut given = Given::new(&present, &attributes);
        given.inputs.extend(types.iter().map(Option::as_ref));
        given.known.extend(known.iter().map(Option::as_ref));
        let listed = (self.found.problems.len(), self.found.unknown.len());
        let results = self.infer_by_walk(node, callee, &given);
        self.found.problems.truncate(listed.0);
        self.found.unknown.truncate(listed.1);
        Some(results.ok()??.outcome)
    }
}

/// Symbols in place of sizes, each with the denotation of its dimension.
#[derive(Default)]
struct Marks(HashMap<String, Mark>);

/// Symbol in place of a size.
#[derive(Clone, Copy)]
struct Mark {
    /// Number of preceding symbols: those of the first input come first.
    order: usize,
    denotation: Option<Symbol>,
}

impl Marks {
    /// Returns a type with a new symbol for each size.
    fn on(&mut self, ty: &Type, denotations: Option<&Denotations>) -> Type {
        let mut ty = ty.clone();
        if let Type::Tensor(tensor) | Type::SparseTensor(tensor) = &mut ty {
            for (axis, dim) in tensor.shape.iter_mut().flatten().enumerate() {
                // A symbol of a file is never a number.
                let order = self.0.len();
                let name = order.to_string();
                *dim = Dim::symbol(&name);
                let denotation = denotations.and_then(|all| *all.get(axis)?);
                self.0.insert(name, Mark { order, denotation });
            }
        }
        ty
    }

    /// Gives dimensions that a node requires to have one size the denotation of the first one that
    /// has any.
    fn join(&mut self, equal: &[(Dim, Dim)]) {
        for (a, b) in equal {
            let (Some(a), Some(b)) = (a.as_symbol(), b.as_symbol()) else {
                continue;
            };
            let (Some(of_a), Some(of_b)) = (self.0.get(a).copied(), self.0.get(b).copied()) else {
                continue;
            };
            let (first, second) = if of_a.order < of_b.order { (of_a, of_b) } else { (of_b, of_a) };
            let denotation = first.denotation.or(second.denotation);
            for (name, mark) in [(a, of_a), (b, of_b)] {
                let order = mark.order;
                self.0.insert(name.to_string(), Mark { order, denotation });
            }
        }
    }

    /// Finds the denotation of a dimension of an output, by the sizes that it is computed from.
    fn find(&self, dim: &Dim) -> Option<Symbol> {
        let symbols = dim.symbols();
        let first = symbols.first()?;
        // It must be one of several sizes, like after broadcasting, not a sum or product of them.
        let same = Dim::symbol(first);
        let is_one_of = dim.substitute(&|_| Some(same.clone())) == same;
        let mut denotations = symbols.iter().map(|name| self.0.get(name)?.denotation);
        if is_one_of {
            let mut denoted = denotations.flatten();
            let first = denoted.next()?;
            return denoted.all(|other| other == first).then_some(first);
        }
        let first = denotations.next()??;
        denotations.all(|other| other == Some(first)).then_some(first)
    }
}
