//! Boundaries between two versions of an operator, as the schemas show them: which nodes cannot
//! mean the same in both versions as they stand.
//!
//! Where no adapter says otherwise, an older node is taken to mean the same in the newer version.
//! These are the nodes for which that cannot be: they have what is gone, lack what is needed, or
//! leave out what has another default now.

use crate::def::OpDef;
use crate::schema::Schema;

/// A boundary between two versions of an operator, as far as it stops nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// Attributes that the newer version does not have, or has with another type.
    pub gone: Vec<&'static str>,
    /// Attributes that mean something else in the newer version if they are left out, or may not be
    /// left out.
    pub changed_defaults: Vec<&'static str>,
    /// Fewest and most inputs of the newer version, if the older one has other numbers.
    pub inputs: Option<(usize, Option<usize>)>,
    /// Fewest and most outputs of the newer version, if the older one has other numbers.
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

/// How many there may be now, if that leaves some of the old numbers out.
fn narrower(
    older: (usize, Option<usize>),
    newer: (usize, Option<usize>),
) -> Option<(usize, Option<usize>)> {
    let most = |count: (usize, Option<usize>)| count.1.unwrap_or(usize::MAX);
    (newer.0 > older.0 || most(newer) < most(older)).then_some(newer)
}

impl OpDef {
    /// What the version that came with an opset version stops, next to the version before it.
    /// `None` if that is nothing, if an adapter stands there, or if it is the first version.
    pub fn unadapted_boundary(&self, since: u32) -> Option<Boundary> {
        let before = since.checked_sub(1)?;
        if self.adapter_at(before, since).is_some() {
            return None;
        }
        let boundary = Boundary::between(&self.schema_at(before)?, &self.schema_at(since)?);
        (!boundary.stops_none()).then_some(boundary)
    }
}
