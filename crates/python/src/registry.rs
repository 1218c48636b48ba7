//! The one registry of the process.
//!
//! Whoever reads takes a snapshot, which costs two counts; whoever writes replaces what is there.
//! The lock is never held while Python code may run.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use pyo3::PyErr;
use sardonyx::tool::schema::{Registry, Schema};

use crate::defs::description::{self, Description};
use crate::shape_inference::Functions;

/// The operators, and what Python code says of its own beyond their schemas.
#[derive(Clone)]
pub(crate) struct Operators {
    pub(crate) registry: Registry,
    /// Of operators that Python code registered.
    described: Arc<HashMap<Key, Arc<Description>>>,
}

/// Domain, name and version.
pub(crate) type Key = (&'static str, &'static str, u32);

/// A domain that the onnx package knows though it has no operators.
const TRAINING: &str = "ai.onnx.training";

static OPERATORS: LazyLock<RwLock<Operators>> = LazyLock::new(|| {
    let mut registry = Registry::standard();
    registry.set_versions(TRAINING, 1, 1).expect("1 to 1 is a range of versions");
    RwLock::new(Operators { registry, described: Arc::default() })
});

/// What is registered now.
pub(crate) fn snapshot() -> Operators {
    // No writer can leave a half changed value: each replaces the fields with finished ones.
    OPERATORS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Changes what is registered, or leaves it as it is and gives the error.
pub(crate) fn change<E>(change: impl FnOnce(&mut Operators) -> Result<(), E>) -> Result<(), E> {
    let mut operators = OPERATORS.write().unwrap_or_else(PoisonError::into_inner);
    let mut changed = operators.clone();
    change(&mut changed)?;
    let before = std::mem::replace(&mut *operators, changed);
    drop(operators);
    // Objects of Python may go with it, which must not happen under the lock.
    drop(before);
    Ok(())
}

impl Operators {
    /// What an operator says at a version; at its newest one if none is given.
    pub(crate) fn find(
        &self,
        name: &str,
        version: Option<i64>,
        domain: &str,
    ) -> Option<Arc<Description>> {
        // A number beyond all versions means the newest, one below all of them none.
        let version = version.unwrap_or(i64::from(u32::MAX)).min(u32::MAX.into());
        let opset = u32::try_from(version).ok()?;
        self.registry.schema(domain, name, opset).map(|schema| self.describe(schema))
    }

    /// Everything that can be said about a registered schema.
    pub(crate) fn describe(&self, schema: &Schema) -> Arc<Description> {
        let key = (schema.domain, schema.name, schema.since);
        match self.described.get(&key) {
            Some(found) => Arc::clone(found),
            None => description::of_standard(schema),
        }
    }

    /// These operators and a description of one that may be registered or not, as it is, and its
    /// schema.
    ///
    /// # Errors
    ///
    /// Those of [`Description::schema`].
    pub(crate) fn with(mut self, description: &Description) -> Result<(Operators, Schema), PyErr> {
        let since = u32::try_from(description.since).unwrap_or(0);
        let (domain, name) = (description.domain.as_str(), description.name.as_str());
        let found = self.registry.schema(domain, name, since);
        if let Some(schema) = found.filter(|schema| schema.since == since)
            && description.standard.is_some()
        {
            let schema = schema.clone();
            return Ok((self, schema));
        }
        let schema = description.schema(since)?;
        // What is refused here nobody can look up: the operator is known by its schema alone.
        if self.registry.versions(domain).is_none_or(|(_, newest)| newest < since) {
            let _ = self.registry.set_versions(domain, 1, since);
        }
        let _ = self.registry.remove(domain, name, since);
        let _ = self.registry.register(schema.clone());
        Ok((self, schema))
    }

    /// The inference functions of Python code: those of registered operators, and that of one that
    /// may not be registered.
    pub(crate) fn functions(&self, one: Option<(&Description, &Schema)>) -> Functions {
        let registered = self.described.iter();
        let mut functions: Functions = registered
            .filter_map(|(key, found)| Some((*key, Arc::clone(found.inference.as_ref()?))))
            .collect();
        if let Some((description, schema)) = one {
            let key = (schema.domain, schema.name, schema.since);
            match &description.inference {
                Some(function) => functions.insert(key, Arc::clone(function)),
                None => functions.remove(&key),
            };
        }
        functions
    }

    /// Keeps what Python code says about a schema that it registered.
    pub(crate) fn remember(&mut self, key: Key, description: Arc<Description>) {
        Arc::make_mut(&mut self.described).insert(key, description);
    }

    /// Forgets it again.
    pub(crate) fn forget(&mut self, domain: &str, name: &str, since: u32) {
        if self.described.contains_key(&(domain, name, since)) {
            Arc::make_mut(&mut self.described).retain(|key, _| *key != (domain, name, since));
        }
    }
}
