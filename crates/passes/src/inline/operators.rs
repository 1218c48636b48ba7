//! Inlining of operators of the standard: replaces their nodes by the bodies of their functions.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use sardonyx_model::{Model, NodeId, Type, ValueId};
use sardonyx_ops::OpRef;

use super::imports::{Conflict, Imports, Versions};
use super::plans::roots;
use super::{InlineRefusal, Job, WithoutBody};
use crate::align::convert_bodies;
use crate::codes;
use crate::expand::{self, BodyKey, CallFunction, Scratch, function_for};
use crate::finding::place_of_node;
use crate::infer::{InferOptions, Inference, infer_everywhere};
use crate::order::nodes_of_tree;
use crate::resolve::Scope;

/// Node to be replaced by a body.
struct Wanted {
    node: NodeId,
    op: OpRef,
    /// Body: index of a function at the end of the model.
    function: usize,
}

/// Nodes to be replaced in a scope.
struct InScope {
    scope: Scope,
    imports: Imports,
    nodes: Vec<Wanted>,
    /// Reason why a body is not equivalent in the scope, if it is not, for each body.
    conflicts: HashMap<usize, Option<Conflict>>,
}

/// Bodies that were read. Many nodes share few bodies.
#[derive(Default)]
struct Read {
    bodies: HashMap<BodyKey, usize>,
    scratch: Scratch,
    /// Bodies to be converted: for each target version, the copy of each body.
    converted: BTreeMap<Versions, HashMap<usize, usize>>,
}

impl Job<'_> {
    /// Inlines nodes of operators, but not the nodes of their bodies. Returns whether there were
    /// any.
    pub(super) fn operators(
        &mut self,
        wanted: &dyn Fn(NodeId, OpRef) -> bool,
        scopes: &[Scope],
    ) -> Result<bool, InlineRefusal> {
        let types = infer_everywhere(&self.model, self.registry, InferOptions::default());
        let before = self.model.functions.len();
        let mut read = Read::default();
        let mut found = Vec::new();
        for scope in scopes {
            found.push(self.find_wanted(wanted, *scope, &types, &mut read)?);
        }
        let refusals = self.convert(&read);
        let mut calls = Vec::new();
        for InScope { scope, mut imports, nodes, mut conflicts } in found {
            for Wanted { node, op, function } in nodes {
                let conflict = conflicts
                    .entry(function)
                    .or_insert_with(|| self.conflict(&mut imports, function));
                if let Some(conflict) = conflict {
                    let why = match refusals.get(&function) {
                        Some(refusal) => format!("{}: {refusal}", conflict.why),
                        None => conflict.why.clone(),
                    };
                    self.left.insert(node);
                    self.refuse(node, &codes::FUNCTION_OPSET_MISMATCH, why);
                    continue;
                }
                let size = expand::count_expected(&self.model, &|_| None, &[(node, function)]);
                self.expect(size.nodes)?;
                expand::give_defaults(&mut self.model, node, op);
                calls.push((node, function));
            }
            self.import(scope, imports.added);
        }
        let are_some = !calls.is_empty();
        self.expanded.extend(calls.iter().map(|(node, _)| *node));
        for misfit in self.replace(calls) {
            self.expanded.remove(&misfit);
        }
        self.made.place(&mut self.model);
        expand::forget_bodies(&mut self.model, before);
        self.model.functions.truncate(before);
        Ok(are_some)
    }

    /// Returns the nodes of a scope to be inlined, with their bodies.
    fn find_wanted(
        &mut self,
        wanted: &dyn Fn(NodeId, OpRef) -> bool,
        scope: Scope,
        types: &Inference,
        read: &mut Read,
    ) -> Result<InScope, InlineRefusal> {
        let registry = self.registry;
        let imports = Imports::of(&self.model, scope);
        let mut found = InScope { scope, imports, nodes: Vec::new(), conflicts: HashMap::new() };
        let roots = roots(&self.model, scope).into_iter();
        let nodes = roots.flat_map(|root| nodes_of_tree(&self.model, root));
        let nodes: Vec<NodeId> = nodes.filter(|node| !self.left.contains(node)).collect();
        for node in nodes {
            let op = found.imports.operator(&self.model, registry, node);
            let Some(op) = op.filter(|op| wanted(node, *op)) else { continue };
            if self.called_by(node).is_some() {
                continue;
            }
            let model = &self.model;
            let ty = |value: Option<ValueId>| types.ty(value?).cloned();
            let inputs: Vec<Option<Type>> = model.inputs(node).map(ty).collect();
            let op_of = |node| found.imports.operator(model, registry, node);
            let scratch = &mut read.scratch;
            let body = match open_attribute(model, node, op) {
                Some(attribute) => Err(format!(
                    "its attribute '{attribute}' refers to a function attribute that may have no value"
                )),
                None => function_for(model, registry, scratch, node, &inputs, op, &op_of),
            };
            let body = match body {
                Ok(body) => body,
                Err(why) => {
                    self.has_no_body(node, op, why);
                    continue;
                }
            };
            let function = self.body(node, &body, read)?;
            let function = self.body_that_fits(node, &body, function, &mut found, read)?;
            found.nodes.push(Wanted { node, op, function });
        }
        Ok(found)
    }

    /// Returns the body itself, or a copy to be converted to the versions of the scope.
    fn body_that_fits(
        &mut self,
        node: NodeId,
        body: &CallFunction,
        function: usize,
        found: &mut InScope,
        read: &mut Read,
    ) -> Result<usize, InlineRefusal> {
        let conflict = found
            .conflicts
            .entry(function)
            .or_insert_with(|| self.conflict(&mut found.imports, function));
        let wanted = match conflict {
            Some(conflict) if self.options.convert && !conflict.wanted.is_empty() => {
                conflict.wanted.clone()
            }
            _ => return Ok(function),
        };
        if let Some(converted) = read.converted.get(&wanted).and_then(|of| of.get(&function)) {
            return Ok(*converted);
        }
        let converted = self.read_body(node, body)?;
        read.converted.entry(wanted).or_default().insert(function, converted);
        Ok(converted)
    }

    /// Returns the reason why a body is not equivalent in a scope, if it is not.
    fn conflict(&self, imports: &mut Imports, function: usize) -> Option<Conflict> {
        imports.take(&self.model, self.registry, self.functions, function, |_| false).err()
    }

    /// Converts bodies. Returns the reasons for bodies that cannot be converted.
    fn convert(&mut self, read: &Read) -> HashMap<usize, String> {
        let mut refusals = HashMap::new();
        for (versions, bodies) in &read.converted {
            let mut bodies: Vec<usize> = bodies.values().copied().collect();
            bodies.sort_unstable();
            for (function, refusal) in
                convert_bodies(&mut self.model, self.registry, versions, &bodies)
            {
                refusals.entry(function).or_insert(refusal.fact);
            }
        }
        refusals
    }

    /// Returns the body for a node. Nodes with equal bodies share one.
    fn body(
        &mut self,
        node: NodeId,
        body: &CallFunction,
        read: &mut Read,
    ) -> Result<usize, InlineRefusal> {
        match read.bodies.entry(body.key()) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(vacant) => Ok(*vacant.insert(self.read_body(node, body)?)),
        }
    }

    /// Adds the body of an operator to the functions of the model, and returns its index.
    fn read_body(&mut self, node: NodeId, body: &CallFunction) -> Result<usize, InlineRefusal> {
        match expand::read_body(&mut self.model, body) {
            Ok(()) => Ok(self.model.functions.len() - 1),
            Err(fact) => {
                self.refuse(node, &codes::MALFORMED_NODE, fact);
                Err(InlineRefusal::Findings(std::mem::take(&mut self.refused)))
            }
        }
    }

    /// Records a node that has no body.
    fn has_no_body(&mut self, node: NodeId, op: OpRef, why: String) {
        self.left.insert(node);
        let (domain, name) = (op.def.domain, op.def.name);
        let all = &mut self.report.without_body;
        let known = all
            .iter_mut()
            .find(|known| known.name == name && known.domain == domain && known.why == why);
        match known {
            Some(known) => known.nodes += 1,
            None => all.push(WithoutBody {
                domain: domain.to_string(),
                name: name.to_string(),
                nodes: 1,
                has_function: !op.def.functions_of(op.schema.since).is_empty(),
                first: place_of_node(self.original, self.made.origin(node)),
                why,
            }),
        }
    }
}

/// Returns an attribute of a node that refers to an attribute without a value in some calls of the
/// function around the node, if the attribute has a default or decides on the body.
fn open_attribute<'a>(model: &Model, node: NodeId, op: OpRef) -> Option<&'a str> {
    let depends = op.def.functions_of(op.schema.since).iter().any(|function| function.needs_call);
    let mut attributes = op.schema.attributes.iter();
    let open = attributes.find(|found| {
        let given = model.attribute_of(node, found.name).filter(|_| !found.required);
        let matters = depends || found.default.is_some();
        matters && given.is_some_and(|given| model.may_have_no_value(node, given))
    });
    open.map(|found| found.name)
}
