//! Attributes that a call gives to the nodes of a function.

use sardonyx_model::{Function, Model};
use sardonyx_ops::{AttrValue, Attributes};

use crate::attributes::{NodeAttributes, value_of};

/// What a call says about the attributes of a function: its own values, else the defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bindings(Vec<(Vec<u8>, AttrValue<'static>)>);

impl Bindings {
    /// For a call whose attributes are these.
    pub(super) fn of_call(
        model: &Model,
        function: &Function,
        call: &NodeAttributes<'_>,
    ) -> Bindings {
        let mut bindings = Vec::new();
        let defaults = function.attribute_protos.iter();
        let defaults = defaults.filter_map(|default| Some((default.name?, Some(default))));
        let required = function.attributes.iter().map(|name| (*name, None));
        for (name, default) in required.chain(defaults) {
            let text = model.text(name);
            let given = std::str::from_utf8(text).ok();
            let given = given.and_then(|name| call.attribute(name));
            let value = given.or_else(|| value_of(model, default?, None));
            if let Some(value) = value {
                bindings.push((text.to_vec(), value.into_owned()));
            }
        }
        Bindings(bindings)
    }

    /// The value that a reference stands for; `None` if the call gives none.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&AttrValue<'static>> {
        let found = self.0.iter().find(|(bound, _)| bound == name);
        found.map(|(_, value)| value)
    }
}
