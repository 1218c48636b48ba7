//! Whether a body means the same in another place: operator sets and their versions.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Model, NodeId, OperatorSetId};
use sardonyx_ops::{OpRef, Registry};

use super::plans::Functions;
use crate::expand::nodes_of;
use crate::resolve::Scope;

/// The operator sets that count in a scope.
pub(super) struct Imports {
    scope: Scope,
    versions: HashMap<String, i64>,
    /// Those that bodies need and the scope did not have.
    pub(super) added: Vec<OperatorSetId>,
}

/// A body that is to come in the place of calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body {
    /// Position of the function.
    pub(super) function: usize,
    /// Whether it is that of an operator of the standard, whose names all mean operators.
    pub(super) is_operator: bool,
}

impl Imports {
    pub(super) fn of(model: &Model, scope: Scope) -> Imports {
        let sets = match scope {
            None => &model.header.opset_import,
            Some(function) => &model.functions[function].opset_import,
        };
        Imports { scope, versions: versions(model, sets), added: Vec::new() }
    }

    /// The operator that a node calls.
    pub(super) fn operator(
        &self,
        model: &Model,
        registry: &Registry,
        node: NodeId,
    ) -> Option<OpRef> {
        let domain = model.domain_of(node);
        let version = u32::try_from(*self.versions.get(&*domain)?).ok()?;
        registry.op_ref(&domain, &model.display(model.node(node).op_type), version)
    }

    /// Lets a body come here, with the operator sets that it needs. Calls of the functions that are
    /// `inlined` need none.
    ///
    /// # Errors
    ///
    /// Why the body would mean something else.
    pub(super) fn take(
        &mut self,
        model: &Model,
        registry: &Registry,
        functions: &Functions,
        body: Body,
        inlined: &HashSet<usize>,
    ) -> Result<(), String> {
        let sets = &model.functions[body.function].opset_import;
        let own_versions = versions(model, sets);
        let mut seen = HashSet::new();
        let mut added: Vec<OperatorSetId> = Vec::new();
        for node in nodes_of(model, body.function) {
            let found = model.node(node);
            if !seen.insert((found.domain, found.op_type, found.overload)) {
                continue;
            }
            let (domain, name) = (model.domain_of(node), model.display(found.op_type));
            let called = functions.called_by(model, node);
            if called.is_some() && body.is_operator {
                return Err(format!(
                    "its function uses the operator {name}, which the model defines as a function"
                ));
            }
            if called.is_some_and(|called| inlined.contains(&called)) {
                continue;
            }
            let Some(own) = own_versions.get(&*domain).copied() else { continue };
            let here = self.versions.get(&*domain).copied();
            let here = here.or_else(|| {
                let set = added.iter().find(|set| is_of(model, set, &domain));
                set.map(|set| set.version.unwrap_or(0))
            });
            match here {
                None => added.extend(sets.iter().rfind(|set| is_of(model, set, &domain)).cloned()),
                Some(here)
                    if called.is_none() && !means_the_same(registry, &domain, &name, own, here) =>
                {
                    let set = if domain.is_empty() { "ai.onnx" } else { &domain };
                    let around = match self.scope {
                        None => "the model",
                        Some(_) => "the function around the call",
                    };
                    return Err(format!(
                        "its function imports version {own} of '{set}', {around} version {here}, and {name} is not the same in both"
                    ));
                }
                Some(_) => {}
            }
        }
        if !added.is_empty() {
            self.versions.extend(versions(model, &added));
            self.added.extend(added);
        }
        Ok(())
    }
}

/// Whether an operator set is that of a domain, as the registry writes it.
fn is_of(model: &Model, set: &OperatorSetId, domain: &str) -> bool {
    let name = model.display(set.domain);
    name == domain || (domain.is_empty() && name == "ai.onnx")
}

/// Versions by domain.
fn versions(model: &Model, sets: &[OperatorSetId]) -> HashMap<String, i64> {
    let versions = model.opsets_in(sets).into_iter();
    versions.map(|(domain, version)| (domain.into_owned(), version)).collect()
}

/// Whether a node of an operator in one version means the same in another, whatever it has.
fn means_the_same(registry: &Registry, domain: &str, name: &str, from: i64, to: i64) -> bool {
    let schema = |version: i64| {
        let version = u32::try_from(version).unwrap_or(0);
        registry.schema(domain, name, version).map(|schema| schema.since)
    };
    let (before, after) = (schema(from), schema(to));
    if before == after {
        return true;
    }
    let (Some(before), Some(after)) = (before, after) else { return false };
    let Some(operator) = registry.operator(domain, name) else { return false };
    // Newer forms mostly only allow more.
    let between = operator.versions().map(|version| version.since);
    let mut between = between.filter(|since| (before + 1..=after).contains(since));
    before < after
        && between.all(|since| {
            operator.adapter_at(since - 1, since).is_none()
                && operator.unadapted_boundary(since).is_none()
        })
}
