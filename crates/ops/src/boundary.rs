//! Differences between two neighbouring versions of an operator that stop a node from meaning the
//! same in both, as the schemas show them.
//!
//! Without an adapter, an older node is taken to mean the same in the newer version. That fails for
//! a node that uses a removed feature, lacks a required one, or relies on a default that changed.

use crate::def::OpDef;
use crate::schema::Schema;

/// Properties of nodes that cannot cross between two versions of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// Attributes that the newer version lacks or has with another type.
    pub gone: Vec<&'static str>,
    /// Attributes whose absence means something else in the newer version or is not allowed there.
    pub changed_defaults: Vec<&'static str>,
    /// Least and greatest number of inputs of the newer version, if that excludes numbers of the
    /// older one.
    pub inputs: Option<(usize, Option<usize>)>,
    /// Least and greatest number of outputs of the newer version, if that excludes numbers of the
    /// older one.
    pub outputs: Option<(usize, Option<usize>)>,
}

impl Boundary {
    fn between(older: &Schema, newer: &Schema) -> Boundary {
        let mut boundary = Boundary {
            gone: Vec::new(),
            changed_defaults: Vec::new(),
            inputs: narrower(older.input_count(), newer.input_count()),
            outputs: narrower(older.output_count(), newer.output_count()),
        };
        for attribute in &older.attributes {
            match newer.attribute(attribute.name) {
                Some(now) if now.ty == attribute.ty => {
                    let is_same = now.default == attribute.default;
                    if !attribute.required && (now.required || !is_same) {
                        boundary.changed_defaults.push(attribute.name);
                    }
                }
                _ => boundary.gone.push(attribute.name),
            }
        }
        let added = newer.attributes.iter();
        let added = added.filter(|now| now.required && older.attribute(now.name).is_none());
        boundary.changed_defaults.extend(added.map(|attribute| attribute.name));
        boundary
    }

    fn stops_none(&self) -> bool {
        self.gone.is_empty()
            && self.changed_defaults.is_empty()
            && self.inputs.is_none()
            && self.outputs.is_none()
    }
}

/// Returns the newer range if it excludes a number of the older one.
fn narrower(
    older: (usize, Option<usize>),
    newer: (usize, Option<usize>),
) -> Option<(usize, Option<usize>)> {
    let most = |count: (usize, Option<usize>)| count.1.unwrap_or(usize::MAX);
    (newer.0 > older.0 || most(newer) < most(older)).then_some(newer)
}

impl OpDef {
    /// Returns the properties that stop nodes of the version before `since`. `None` if there are
    /// none, if an adapter stands there, or if it is the first version.
    pub fn unadapted_boundary(&self, since: u32) -> Option<Boundary> {
        let before = since.checked_sub(1)?;
        if self.adapter_at(before, since).is_some() {
            return None;
        }
        let boundary = Boundary::between(&self.schema_at(before)?, &self.schema_at(since)?);
        (!boundary.stops_none()).then_some(boundary)
    }
}
