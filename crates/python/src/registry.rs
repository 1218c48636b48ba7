//! Registry of operators, shared by the whole process.
//!
//! Readers take a snapshot, which increments two reference counts; a writer replaces the whole
//! value. The lock is never held while Python code may run.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use pyo3::PyErr;
use sardonyx::tool::schema::{Registry, Schema};

use crate::defs::description::{self, Description};
use crate::shape_inference::Functions;

/// Operator schemas, and the descriptions and inference functions that Python code registered with
/// them.
#[derive(Clone)]
pub(crate) struct Operators {
    /// Schemas of all standard and registered operators.
    pub(crate) registry: Registry,
    /// Descriptions of the operators that Python code registered.
    described: Arc<HashMap<Key, Arc<Description>>>,
}

/// Domain, name and version of an operator.
pub(crate) type Key = (&'static str, &'static str, u32);

/// Domain that the onnx package lists although no operator belongs to it.
const TRAINING: &str = "ai.onnx.training";

/// Current operator registry of the process.
static OPERATORS: LazyLock<RwLock<Operators>> = LazyLock::new(|| {
    let mut registry = Registry::standard();
    registry.set_versions(TRAINING, 1, 1).expect("1 to 1 is a range of versions");
    RwLock::new(Operators { registry, described: Arc::default() })
});

/// Returns a copy of the operator registry that later registrations do not affect.
pub(crate) fn take_snapshot() -> Operators {
    // A panic of a writer leaves the old value, so poisoning is ignored.
    OPERATORS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Applies `update` to a copy of the operator registry, and publishes the copy if `update`
/// succeeds.
pub(crate) fn update_registry<E>(
    update: impl FnOnce(&mut Operators) -> Result<(), E>,
) -> Result<(), E> {
    let mut operators = OPERATORS.write().unwrap_or_else(PoisonError::into_inner);
    let mut changed = operators.clone();
    update(&mut changed)?;
    let before = std::mem::replace(&mut *operators, changed);
    drop(operators);
    // May finalize Python objects, whose code could wait for the lock.
    drop(before);
    Ok(())
}

impl Operators {
    /// Returns the description of the newest version of an operator up to `version` (of all
    /// versions by default); `None` if the version does not exist.
    pub(crate) fn find(
        &self,
        name: &str,
        version: Option<i64>,
        domain: &str,
    ) -> Option<Arc<Description>> {
        // Numbers above all versions select the newest one; negative numbers select none.
        let version = version.unwrap_or(i64::from(u32::MAX)).min(u32::MAX.into());
        let opset = u32::try_from(version).ok()?;
        self.registry.schema(domain, name, opset).map(|schema| self.describe(schema))
    }

    /// Returns the description of an operator schema, from the Python code that registered it or
    /// from the ONNX standard.
    pub(crate) fn describe(&self, schema: &Schema) -> Arc<Description> {
        let key = (schema.domain, schema.name, schema.since);
        match self.described.get(&key) {
            Some(found) => Arc::clone(found),
            None => description::from_standard(schema),
        }
    }

    /// Adds the operator of a description to this registry if it is missing or different, and
    /// returns the registry with the operator's schema.
    ///
    /// # Errors
    ///
    /// The errors of [`Description::to_schema`].
    pub(crate) fn with_operator(
        mut self,
        description: &Description,
    ) -> Result<(Operators, Schema), PyErr> {
        let since = u32::try_from(description.since).unwrap_or(0);
        let (domain, name) = (description.domain.as_str(), description.name.as_str());
        let found = self.registry.schema(domain, name, since);
        if let Some(schema) = found.filter(|schema| schema.since == since)
            && description.standard.is_some()
        {
            let schema = schema.clone();
            return Ok((self, schema));
        }
        let schema = description.to_schema(since)?;
        // Errors are ignored: an operator that cannot be registered is still known by the schema
        // that is returned.
        if self.registry.versions(domain).is_none_or(|(_, newest)| newest < since) {
            let _ = self.registry.set_versions(domain, 1, since);
        }
        let _ = self.registry.remove(domain, name, since);
        let _ = self.registry.register(schema.clone());
        Ok((self, schema))
    }

    /// Collects the inference functions of registered Python operators, and the function of the
    /// operator `one`, which need not be registered.
    pub(crate) fn collect_functions(&self, one: Option<(&Description, &Schema)>) -> Functions {
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

    /// Stores the description of an operator that Python code registered.
    pub(crate) fn store_description(&mut self, key: Key, description: Arc<Description>) {
        Arc::make_mut(&mut self.described).insert(key, description);
    }

    /// Removes the description of an operator that Python code registered.
    pub(crate) fn remove_description(&mut self, domain: &str, name: &str, since: u32) {
        if self.described.contains_key(&(domain, name, since)) {
            Arc::make_mut(&mut self.described).retain(|key, _| *key != (domain, name, since));
        }
    }
}
