//! Forms in which devices have each value.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{NodeId, ValueId};

use super::forms::Forms;
use crate::plan::FormId;

/// Forms of the values that are computed or moved so far.
pub(crate) struct Locations {
    /// Forms of values, first the one in which a value is computed.
    forms: HashMap<ValueId, Vec<FormId>>,
    /// Form in which a value is read by default, if it is not the first one.
    preferred: HashMap<ValueId, FormId>,
    /// Values that are computed from constants and read once, with their nodes.
    from_constants: HashMap<ValueId, NodeId>,
    /// Values computed from constants that no node has read so far.
    deferred: HashSet<ValueId>,
}

/// Forms of values before the nodes of a body are placed.
pub(crate) struct Outside {
    forms: HashMap<ValueId, Vec<FormId>>,
    preferred: HashMap<ValueId, FormId>,
}

impl Locations {
    pub(crate) fn new() -> Locations {
        Locations {
            forms: HashMap::new(),
            preferred: HashMap::new(),
            from_constants: HashMap::new(),
            deferred: HashSet::new(),
        }
    }

    /// Returns the forms of a value. Inputs and constants are whole on all devices.
    pub(crate) fn forms(&self, value: ValueId, forms: &Forms) -> Vec<FormId> {
        self.forms.get(&value).cloned().unwrap_or_else(|| vec![forms.everywhere])
    }

    /// Returns the form in which a value is computed. `None` for inputs and constants.
    pub(crate) fn computed(&self, value: ValueId) -> Option<FormId> {
        self.forms.get(&value)?.first().copied()
    }

    /// Returns the form in which a value is read by default: without partial results.
    pub(crate) fn current(&self, value: ValueId, forms: &mut Forms) -> FormId {
        if let Some(preferred) = self.preferred.get(&value) {
            return *preferred;
        }
        let own = self.forms(value, forms);
        let complete = own.iter().find(|form| forms.get(**form).partial().is_none());
        match complete {
            Some(form) => *form,
            None => {
                let combined = forms.get(own[0]).combined();
                forms.number(combined)
            }
        }
    }

    /// Records the form in which a value is computed, or given.
    pub(crate) fn set(&mut self, value: ValueId, form: FormId) {
        self.forms.insert(value, vec![form]);
    }

    /// Records one more form of a value.
    pub(crate) fn add(&mut self, value: ValueId, form: FormId, forms: &Forms) {
        self.forms.entry(value).or_insert_with(|| vec![forms.everywhere]).push(form);
    }

    /// Sets the form in which a value is read by default.
    pub(crate) fn prefer(&mut self, value: ValueId, form: FormId) {
        self.preferred.insert(value, form);
    }

    /// Records that a node computes a value from constants. It is placed when the value is read.
    pub(crate) fn defer(&mut self, value: ValueId, node: NodeId) {
        self.from_constants.insert(value, node);
        self.deferred.insert(value);
    }

    /// Whether a value is computed from constants by a deferred node.
    pub(crate) fn is_from_constants(&self, value: ValueId) -> bool {
        self.from_constants.contains_key(&value)
    }

    /// Returns the deferred node that computes a value, if no node has read the value yet.
    pub(crate) fn take_deferred(&mut self, value: ValueId) -> Option<NodeId> {
        self.deferred.remove(&value).then(|| self.from_constants.get(&value).copied()).flatten()
    }

    /// Returns a copy of the forms, for [`leave`](Self::leave).
    pub(crate) fn enter(&self) -> Outside {
        Outside { forms: self.forms.clone(), preferred: self.preferred.clone() }
    }

    /// Removes the forms that values got in a body: they do not exist after it.
    pub(crate) fn leave(&mut self, outside: Outside) {
        (self.forms, self.preferred) = (outside.forms, outside.preferred);
    }
}
