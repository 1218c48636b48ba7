//! The operators and functions that nodes call, looked up once for each name.

use std::borrow::Cow;

use hashbrown::HashMap;
use sardonyx_model::{Model, NodeId, OperatorSetId, Symbol};
use sardonyx_ops::{AttrType, Attribute, InferFn, OpDef, OpRef, Registry, Schema};

use super::Style;
use super::reference::weaken;
use crate::resolve::Resolved;

/// Owner of the imports of operator sets: the model, or a function.
type Scope = Option<usize>;

/// Key of a callee: scope of the imports, domain, and operator.
type CalleeKey = (Scope, Option<Symbol>, Option<Symbol>);

/// Domain, name and overload of a function; empty texts are `None`.
type FunctionKey = (Option<Symbol>, Option<Symbol>, Option<Symbol>);

/// Callee of a node, by domain and operator.
#[derive(Clone, Copy)]
pub(super) struct Callee<'a> {
    /// Unique number.
    pub(super) number: u32,
    pub(super) schema: Option<&'a Schema>,
    /// Definition, for an operator of the standard.
    pub(super) operator: Option<&'static OpDef>,
    pub(super) rule: Option<InferFn>,
    /// Function, if it has been determined.
    function: Option<usize>,
    /// Whether the operator set is imported, in any version.
    pub(super) is_imported: bool,
    /// Whether attributes are graphs.
    pub(super) has_graphs: bool,
    /// Inputs whose integers determine shapes.
    pub(super) deciding: &'static [usize],
    /// Facts that the reference implementation does not derive, in its style.
    pub(super) weaker: weaken::Rows,
}

impl<'a> Callee<'a> {
    fn new(registry: &Registry, schema: Option<&'a Schema>, opset: u32, style: Style) -> Self {
        let operator = schema.and_then(|schema| registry.definition(schema));
        let is_graph =
            |attribute: &Attribute| matches!(attribute.ty, AttrType::Graph | AttrType::Graphs);
        let mut callee = Callee {
            number: 0,
            schema,
            operator,
            rule: operator.and_then(|operator| operator.inference_at(opset)),
            function: None,
            is_imported: opset != 0,
            has_graphs: schema.is_some_and(|schema| schema.attributes.iter().any(is_graph)),
            deciding: operator.map_or(&[], OpDef::deciding_inputs),
            weaker: weaken::Rows::NONE,
        };
        if style.is_reference() {
            callee.use_reference_rule();
        }
        callee
    }

    /// Makes the callee of a schema's operator, as one node of it sees it.
    pub(super) fn of_schema(registry: &Registry, schema: &'a Schema, style: Style) -> Self {
        Callee::new(registry, Some(schema), schema.since, style)
    }

    /// Makes the callee of a function of the model, by its position.
    pub(super) fn of_function(registry: &Registry, function: usize, style: Style) -> Self {
        Callee { function: Some(function), ..Callee::new(registry, None, 1, style) }
    }

    /// Replaces the operator's rule by that of the reference implementation, if that has its own or
    /// none, and records the facts that it does not derive.
    fn use_reference_rule(&mut self) {
        let (Some(operator), Some(schema)) = (self.operator, self.schema) else {
            return;
        };
        if !operator.has_reference_rule(schema.since) {
            (self.rule, self.deciding) = (None, &[]);
            return;
        }
        self.rule = operator.reference_inference_at(schema.since);
        self.weaker = weaken::Rows::new(operator, schema.since);
    }
}

/// Callees that were looked up so far.
pub(super) struct Callees<'a> {
    model: &'a Model,
    pub(super) registry: &'a Registry,
    style: Style,
    /// Operators of nodes, where resolving has found them.
    resolved: Option<&'a Resolved>,
    /// Callees by the number of the operator in `resolved`.
    of_resolved: Vec<Option<Callee<'a>>>,
    by_name: HashMap<CalleeKey, Callee<'a>>,
    imports: HashMap<Scope, std::collections::HashMap<Cow<'a, str>, i64>>,
    functions: HashMap<FunctionKey, usize>,
    empty: Option<Symbol>,
}

impl<'a> Callees<'a> {
    pub(super) fn new(
        model: &'a Model,
        registry: &'a Registry,
        resolved: Option<&'a Resolved>,
        style: Style,
    ) -> Self {
        let empty = model.symbol(b"");
        let some = |symbol: Option<Symbol>| symbol.filter(|symbol| Some(*symbol) != empty);
        let functions = model.functions.iter().enumerate();
        let functions = functions.map(|(index, function)| {
            let domain = some(function.domain);
            ((domain, function.name, some(function.overload)), index)
        });
        Callees {
            model,
            registry,
            style,
            resolved,
            of_resolved: Vec::new(),
            by_name: HashMap::new(),
            imports: HashMap::new(),
            // The first function of a name counts.
            functions: functions.rev().collect(),
            empty,
        }
    }

    /// Forgets the functions of the model, so that calls of them have no rule.
    pub(super) fn forget_functions(&mut self) {
        self.functions.clear();
    }

    /// Finds the callee of a node that stands in the model or in a body of a function.
    pub(super) fn find(&mut self, node: NodeId, scope: Scope) -> Callee<'a> {
        if let Some(resolved) = self.resolved
            && let Some(op) = resolved.op_id(node)
        {
            if self.of_resolved.len() <= op.index() {
                self.of_resolved.resize(op.index() + 1, None);
            }
            let (registry, style) = (self.registry, self.style);
            return *self.of_resolved[op.index()].get_or_insert_with(|| {
                let OpRef { schema, opset, .. } = resolved.op_of_id(op);
                // Callees by name have odd numbers.
                let number = 2 * op.index() as u32;
                Callee { number, ..Callee::new(registry, Some(schema), opset, style) }
            });
        }
        let found = self.model.node(node);
        let key = (scope, found.domain, found.op_type);
        if let Some(callee) = self.by_name.get(&key) {
            return *callee;
        }
        let number = 2 * self.by_name.len() as u32 + 1;
        let callee = Callee { number, ..self.look_up(node, scope) };
        self.by_name.insert(key, callee);
        callee
    }

    /// Returns the function of the model that a node calls.
    pub(super) fn function_of(&self, node: NodeId, callee: &Callee<'_>) -> Option<usize> {
        let found = self.model.node(node);
        let some = |symbol: Option<Symbol>| symbol.filter(|symbol| Some(*symbol) != self.empty);
        let key = (some(found.domain), found.op_type, some(found.overload));
        callee.function.or(self.functions.get(&key).copied())
    }

    fn look_up(&mut self, node: NodeId, scope: Scope) -> Callee<'a> {
        let (model, style) = (self.model, self.style);
        let imports = self.imports.entry(scope).or_insert_with(|| {
            let imports: &[OperatorSetId] = match scope {
                None => &model.header.opset_import,
                Some(function) => &model.functions[function].opset_import,
            };
            if imports.is_empty() && !style.assumes_imports() {
                std::collections::HashMap::new()
            } else {
                model.opsets_in(imports)
            }
        });
        let domain = model.domain_of(node);
        let opset = imports.get(&domain).copied();
        let is_imported = opset.is_some();
        let opset = u32::try_from(opset.unwrap_or(0)).unwrap_or(0);
        let name = model.display(model.node(node).op_type);
        let schema = self.registry.schema(&domain, &name, opset).filter(|schema| {
            !self.registry.is_added(schema)
                || style.knows_added_operators() && !self.is_name_of_function(node, &domain)
        });
        let mut callee = Callee::new(self.registry, schema, opset, style);
        // The reference implementation knows no operators of version 0, as it knows none of other
        // domains, but does not call that a missing import.
        callee.is_imported |= is_imported && style.is_reference();
        callee
    }

    /// Whether a function of the model has the domain and the name of a node's operator, whatever
    /// its overload: it takes the place of an operator that is not the standard's.
    fn is_name_of_function(&self, node: NodeId, domain: &str) -> bool {
        let op_type = self.model.node(node).op_type;
        self.model.functions.iter().any(|function| {
            function.name == op_type && self.model.display(function.domain) == domain
        })
    }
}
