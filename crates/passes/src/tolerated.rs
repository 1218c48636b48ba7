//! Violations of the standard that do not prevent a model from running.

use sardonyx_model::{Model, Producer};

use crate::codes;
use crate::finding::{Finding, Spot};
use crate::ir_version::{IMPORTS, NEWEST_IR_VERSION, PLAIN_INITIALIZERS};

/// Lists the parts of a model that its version of the format does not allow but that run, because
/// real files have them: an unknown version, imports before version 3, and initializers that are
/// not inputs before they could be. Visits no node.
pub fn tolerated(model: &Model) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(version) = model.header.ir_version else { return found };
    if version > NEWEST_IR_VERSION {
        let fact = format!(
            "the model has IR version {version}, and the newest known version is \
             {NEWEST_IR_VERSION}: fields that later versions added are ignored"
        );
        let spot = Spot::MODEL.field("ir_version");
        found.push(Finding::new(model, &codes::NEWER_IR_VERSION, spot, fact));
    }
    if version < IMPORTS && !model.header.opset_import.is_empty() {
        let fact = format!(
            "IR version {version} does not support opset_import; the imports of the model count all \
             the same"
        );
        let spot = Spot::MODEL.field("opset_import");
        found.push(Finding::new(model, &codes::OPSET_IMPORT_TOO_EARLY, spot, fact));
    }
    if version < PLAIN_INITIALIZERS {
        found.extend(plain_initializers(model, version));
    }
    found
}

/// Returns a finding of the first initializer that is not an input, with the number of all of them.
fn plain_initializers(model: &Model, version: i64) -> Option<Finding> {
    let all = model.graphs().flat_map(|(id, graph)| {
        let constants = graph.initializers.iter().enumerate();
        constants.map(move |(index, initializer)| (id, index, initializer))
    });
    let mut plain = all.filter(|(.., initializer)| {
        let producer = initializer.value.map(|value| model.value(value).producer);
        matches!(producer, Some(Producer::Initializer(_)))
    });
    let (graph, index, first) = plain.next()?;
    let name = sardonyx_proto::shown(model.maybe_text(first.tensor.name).unwrap_or_default());
    let which = match plain.count() {
        0 => format!("'{name}' is none, and is a constant"),
        others => format!("'{name}' and {others} more are none, and are constants"),
    };
    let fact = format!(
        "IR version {version} requires initializers to be inputs of their graph; {which} all the same"
    );
    let spot = Spot::graph(graph).item("initializer", index);
    Some(Finding::new(model, &codes::INITIALIZER_NOT_INPUT, spot, fact))
}
