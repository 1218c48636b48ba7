//! Operator sets that inlined bodies need: whether a body is equivalent at the versions of another
//! scope.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Model, NodeId, OperatorSetId, normalize_domain, shown_domain};
use sardonyx_ops::{OpRef, Registry};

use super::plans::Functions;
use crate::expand::nodes_of;
use crate::resolve::Scope;
use crate::same_meaning::change;

/// Operator sets of a scope.
pub(super) struct Imports {
    scope: Scope,
    versions: HashMap<String, i64>,
    /// Operator sets that bodies need and the scope did not import.
    pub(super) added: Vec<OperatorSetId>,
}

/// Versions of operator sets, by domain.
pub(crate) type Versions = BTreeMap<String, u32>;

/// Reason why a body cannot be inlined in a scope.
#[derive(Debug, Clone)]
pub(super) struct Conflict {
    pub(super) why: String,
    /// Versions of the scope that differ from those of the function. Converted to these versions,
    /// the body may fit.
    pub(super) wanted: Versions,
}

impl Imports {
    pub(super) fn of(model: &Model, scope: Scope) -> Imports {
        Imports { scope, versions: versions_of(model, scope), added: Vec::new() }
    }

    /// Returns the operator that a node calls.
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

    /// Adds the operator sets that the body of a function needs. Calls of functions that are
    /// `inlined` need none.
    ///
    /// # Errors
    ///
    /// The body has operators that differ at the versions of the scope.
    pub(super) fn take(
        &mut self,
        model: &Model,
        registry: &Registry,
        functions: &Functions,
        function: usize,
        inlined: impl Fn(usize) -> bool,
    ) -> Result<(), Conflict> {
        let sets = &model.functions[function].opset_import;
        let own_versions = versions(model, sets);
        let mut seen = HashSet::new();
        let mut added: Vec<OperatorSetId> = Vec::new();
        for node in nodes_of(model, function) {
            let found = model.node(node);
            if !seen.insert((found.domain, found.op_type, found.overload)) {
                continue;
            }
            let (domain, name) = (model.domain_of(node), model.display(found.op_type));
            let called = functions.called_by(node);
            if called.is_some_and(&inlined) {
                continue;
            }
            let Some(own) = own_versions.get(&*domain).copied() else { continue };
            let here = self.versions.get(&*domain).copied();
            let here = here.or_else(|| {
                let set = added.iter().find(|set| is_of(model, set, &domain));
                set.map(|set| set.version.unwrap_or(0))
            });
            let Some(here) = here else {
                added.extend(sets.iter().rfind(|set| is_of(model, set, &domain)).cloned());
                continue;
            };
            let change = match called {
                None => change(registry, &domain, &name, own, here),
                Some(_) => is_operator(registry, &domain, &name, here)
                    .then(|| format!("{name} is an operator there, not the function of that name")),
            };
            if let Some(change) = change {
                let set = shown_domain(&domain);
                let around = match self.scope {
                    None => "the model",
                    Some(_) => "the enclosing function",
                };
                let why = format!(
                    "its function imports version {own} of '{set}', {around} version {here}, and {change}"
                );
                let wanted = self.find_conflicts(registry, &own_versions);
                return Err(Conflict { why, wanted });
            }
        }
        if !added.is_empty() {
            self.versions.extend(versions(model, &added));
            self.added.extend(added);
        }
        Ok(())
    }

    /// Returns the versions of the scope that differ from those of a function.
    fn find_conflicts(&self, registry: &Registry, of_function: &HashMap<String, i64>) -> Versions {
        let others = of_function.iter().filter_map(|(domain, own)| {
            let here = *self.versions.get(domain)?;
            registry.versions(domain)?;
            let wanted = u32::try_from(here).ok()?;
            (here != *own).then(|| (domain.clone(), wanted))
        });
        others.collect()
    }
}

/// Whether an operator set has a domain, in the spelling of the registry.
fn is_of(model: &Model, set: &OperatorSetId, domain: &str) -> bool {
    normalize_domain(&model.display(set.domain)) == domain
}

/// Returns the versions that a scope imports, by domain.
pub(super) fn versions_of(model: &Model, scope: Scope) -> HashMap<String, i64> {
    match scope {
        None => versions(model, &model.header.opset_import),
        Some(function) => versions(model, &model.functions[function].opset_import),
    }
}

/// Returns the versions of operator sets, by domain.
fn versions(model: &Model, sets: &[OperatorSetId]) -> HashMap<String, i64> {
    let versions = model.opsets_in(sets).into_iter();
    versions.map(|(domain, version)| (domain.into_owned(), version)).collect()
}

/// Whether the standard has an operator.
pub(super) fn is_operator(registry: &Registry, domain: &str, name: &str, version: i64) -> bool {
    let version = u32::try_from(version).ok();
    version.is_some_and(|version| registry.op_ref(domain, name, version).is_some())
}
