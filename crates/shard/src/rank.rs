//! Model of a rank that is written to a file.

use std::fmt;

use hashbrown::HashSet;
use sardonyx_model::{ExternalData, Model, NodeId, Producer, Type, ValueId};
use sardonyx_passes::{declaration, format_needs, ir_version_of_opset};

use crate::collectives::{Collectives, NotExpressible, Spelling};
use crate::form::Device;
use crate::local::Building;
use crate::plan::Plan;

/// Reasons why a rank has no model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankError {
    /// Move that the collectives of the engine cannot express.
    NotExpressible(NotExpressible),
    /// Error message of a constant that cannot be read.
    Constant(String),
}

impl fmt::Display for RankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankError::NotExpressible(why) => write!(f, "{why}"),
            RankError::Constant(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RankError {}

impl Plan {
    /// Builds the model of a rank, with the collectives of an engine. It has the inputs of the
    /// whole model, as whole tensors, and also its outputs as whole tensors if the plan is made
    /// with [`OutputsAt::All`](crate::OutputsAt). Constants are cut to the part that the rank
    /// reads. The result of a collective that the rank does not read becomes an additional output:
    /// engines remove nodes without readers, and the other ranks would wait for this rank.
    ///
    /// # Errors
    ///
    /// A move that the collectives cannot express; a constant that cannot be read.
    pub fn rank_model(
        &self,
        rank: Device,
        collectives: Collectives,
        external: &dyn ExternalData,
    ) -> Result<Model, RankError> {
        self.is_expressible(collectives).map_err(RankError::NotExpressible)?;
        let mut building = Building::new(self, rank);
        building.spelling = Some(Spelling { collectives, external });
        building.nodes();
        building.outputs_of_file();
        building.inputs_of_file();
        building.drop_dead_nodes();
        building.drop_unread_constants();
        building.header_of_file();
        match building.failed {
            None => Ok(building.model),
            Some(why) => Err(RankError::Constant(why)),
        }
    }

    /// Returns the type of a value, with numbers for all known sizes.
    fn type_of(&self, value: ValueId) -> Option<Type> {
        match self.tensor(value) {
            Some((elem, Some(dims))) => Some(Type::tensor(elem, dims)),
            _ => self.typed.ty(value).cloned(),
        }
    }
}

impl Building<'_> {
    /// Sets the outputs of the file: the outputs of the model under their names, then the kept
    /// results of collectives.
    fn outputs_of_file(&mut self) {
        let infos = self.model.graph(self.graph).outputs.clone();
        self.model.retain_outputs(self.graph, |_, _| false);
        let mut given: Vec<ValueId> = Vec::new();
        let outputs = self.plan.outputs.iter().flatten().map(|output| (output.value, output.form));
        for (value, form) in outputs.collect::<Vec<_>>() {
            let mut held = self.held(value, form);
            if held != value {
                let name = self.model.value(value).name;
                let is_made = matches!(self.model.value(held).producer, Producer::Node(..));
                if !is_made || given.contains(&held) {
                    // A constant, an input and an earlier output keep their names.
                    let (_, copy) = self.add("Identity", "", &[Some(held)]);
                    held = copy;
                }
                if self.model.value(held).name != name {
                    let text = self.model.display(Some(name)).into_owned();
                    let other = self.model.free_name(&format!("{text}_part"));
                    self.model.rename_value(value, other);
                    self.model.rename_value(held, name);
                }
            }
            given.push(held);
        }
        let kept = self.kept();
        let kept = kept.into_iter().map(|(value, ty)| (value, None, Some(ty)));
        let own = given.iter().zip(self.plan.outputs.iter().flatten());
        let own = own.enumerate().map(|(index, (held, output))| {
            (*held, infos.get(index).cloned(), self.plan.type_of(output.value))
        });
        for (value, info, ty) in own.chain(kept).collect::<Vec<_>>() {
            self.model.add_graph_output(self.graph, value);
            let ty = ty.map(|ty| declaration(&mut self.model, &ty));
            let Some(output) = self.model.graph_mut(self.graph).outputs.last_mut() else {
                continue;
            };
            if let Some(info) = info {
                let name = output.name;
                *output = info;
                (output.name, output.value) = (name, Some(value));
            }
            output.ty = ty.or(output.ty.take());
        }
    }

    /// Declares inputs with the sizes that the plan assumes.
    fn inputs_of_file(&mut self) {
        let inputs = self.model.graph(self.graph).inputs.iter().map(|info| info.value);
        for (index, value) in inputs.enumerate().collect::<Vec<_>>() {
            let Some(ty) = value.and_then(|value| self.plan.type_of(value)) else { continue };
            let ty = declaration(&mut self.model, &ty);
            if let Some(input) = self.model.graph_mut(self.graph).inputs.get_mut(index) {
                input.ty = Some(ty);
            }
        }
    }

    /// Removes nodes without readers, such as constants that were replaced by their parts.
    fn drop_dead_nodes(&mut self) {
        let nodes = self.model.graph(self.graph).nodes.clone();
        let mut dead: HashSet<NodeId> = HashSet::new();
        for node in nodes.into_iter().rev() {
            let is_needed =
                |value: &ValueId| self.model.is_read(*value) || self.model.value(*value).is_output;
            if !self.model.outputs(node).iter().flatten().any(is_needed) {
                self.model.detach_node(node);
                dead.insert(node);
            }
        }
        self.model.graph_mut(self.graph).nodes.retain(|node| !dead.contains(node));
    }

    /// Copies the header of the model, and removes configurations of devices and annotations.
    fn header_of_file(&mut self) {
        let imports = std::mem::take(&mut self.model.header.opset_import);
        self.model.header = self.plan.model().header.clone();
        self.model.header.opset_import = imports;
        self.model.header.configuration.clear();
        let nodes: Vec<NodeId> =
            self.model.graphs().flat_map(|(_, graph)| graph.nodes.iter().copied()).collect();
        for node in nodes {
            if let Some(extras) = self.model.extras_mut(node) {
                extras.device_configurations.clear();
            }
        }
    }
}

/// Lowers the version of the format to the lowest that a model needs. Annotations for devices may
/// have raised it.
pub fn lower_ir_version(model: &mut Model) {
    let of_opset = model.opset("").and_then(|opset| ir_version_of_opset(b"", opset));
    let (Some(declared), Some(of_opset)) = (model.header.ir_version, of_opset) else { return };
    let least = format_needs(model, of_opset).first().map_or(of_opset, |need| need.ir_version);
    model.header.ir_version = Some(declared.min(least));
}
