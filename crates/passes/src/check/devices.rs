//! Rules about sections for multiple devices: configurations of the model, and their use by nodes.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{NodeId, Span, Symbol, TypeKind};
use sardonyx_proto::shown;

use super::Checker;
use crate::annotations::{
    Configuration, NodeAnnotation, ShardedDim, ShardingSpec, annotation, configuration,
};
use crate::codes;
use crate::finding::Spot;

/// Configurations of the model by name, with the number of devices if it is declared.
pub(super) type Configurations<'a> = HashMap<&'a [u8], Option<i64>>;

impl<'a> Checker<'a> {
    /// Reads and checks the configurations of the model.
    pub(super) fn configurations(&mut self) {
        let model = self.model;
        let mut known = Configurations::new();
        for (index, span) in model.header.configuration.iter().enumerate() {
            let spot = Spot::MODEL.item("configuration", index);
            let Configuration { name, num_devices: count, devices } =
                configuration(model.bytes(*span));
            let devices = devices.len() as u64;
            if name.is_empty() {
                self.add(&codes::NAMELESS_CONFIGURATION, spot, |_| "the name is missing".into());
            } else if known.contains_key(name) {
                self.add(&codes::DUPLICATE_CONFIGURATION, spot, |_| {
                    format!("duplicate configuration name '{}'", shown(name))
                });
            }
            match count {
                None => self.add(&codes::DEVICE_COUNT, spot, |_| {
                    "the configuration has no number of devices".into()
                }),
                Some(..1) => self.add(&codes::DEVICE_COUNT, spot, |_| {
                    format!("invalid number of devices: {}", count.unwrap_or(0))
                }),
                Some(count) if devices > 0 && devices != count as u64 => {
                    self.add(&codes::DEVICE_NAMES, spot, |_| {
                        format!("{devices} devices are named, but the configuration has {count}")
                    });
                }
                Some(_) => {}
            }
            known.entry(name).or_insert(count);
        }
        self.configurations = known;
    }

    /// Checks the device configurations of a node.
    pub(super) fn devices(&mut self, id: NodeId, spans: &[Span]) {
        if spans.is_empty() {
            return;
        }
        let model = self.model;
        let mut seen = HashSet::new();
        for (index, span) in spans.iter().enumerate() {
            let spot = Spot::node(id).item("device_configurations", index);
            let NodeAnnotation { configuration: name, specs, .. } = annotation(model, *span);
            let configuration = self.configurations.get(name).copied();
            if name.is_empty() {
                self.add(&codes::UNKNOWN_CONFIGURATION, spot, |_| {
                    "no configuration is named".into()
                });
            } else if configuration.is_none() {
                self.add(&codes::UNKNOWN_CONFIGURATION, spot, |_| {
                    format!("the model has no configuration '{}'", shown(name))
                });
            }
            if !seen.insert(name) {
                self.add(&codes::DUPLICATE_CONFIGURATION, spot, |_| {
                    format!("the node refers to the configuration '{}' twice", shown(name))
                });
            }
            let devices = configuration.flatten();
            for spec in &specs {
                self.sharding(id, spec, devices, spot);
            }
        }
    }

    fn sharding(&mut self, id: NodeId, spec: &ShardingSpec<'_>, devices: Option<i64>, spot: Spot) {
        let ShardingSpec { tensor, devices: placed, groups, dims } = spec;
        let model = self.model;
        let operands = model.inputs(id).chain(model.outputs(id).iter().copied());
        let name = operands
            .flatten()
            .map(|value| model.value(value).name)
            .find(|name| model.text(*name) == *tensor);
        if name.is_none() {
            self.add(&codes::SHARDED_TENSOR, spot, |_| match *tensor {
                b"" => "a sharding does not name a tensor".to_string(),
                tensor => {
                    format!("'{}' is neither an input nor an output of the node", shown(tensor))
                }
            });
        }
        let exists = |device: i64| devices.is_none_or(|count| (0..count).contains(&device));
        let mut all: Vec<i64> =
            placed.iter().copied().filter(|device| !groups.contains_key(device)).collect();
        all.extend(groups.values().flatten());
        if let Some(odd) = all.into_iter().find(|device| !exists(*device)) {
            self.add(&codes::UNKNOWN_DEVICE, spot, |_| {
                let count = devices.unwrap_or(0);
                format!("device {odd} is out of range: the configuration has {count}")
            });
        }
        let rank = name.and_then(|name| self.declared_rank(id, name));
        self.sharded_dims(dims, rank, spot);
    }

    fn sharded_dims(&mut self, dims: &[ShardedDim<'_>], rank: Option<i64>, spot: Spot) {
        let mut axes = HashSet::new();
        for dim in dims {
            match (dim.axis, rank) {
                (None, _) => self
                    .add(&codes::SHARDED_AXIS, spot, |_| "a sharding does not name an axis".into()),
                (Some(axis), Some(rank)) if !(-rank..rank).contains(&axis) => {
                    self.add(&codes::SHARDED_AXIS, spot, |_| {
                        format!("axis {axis} is out of range: the tensor has {rank} dimensions")
                    });
                }
                (Some(axis), rank) => {
                    let from_front = match rank {
                        Some(rank) if axis < 0 => axis + rank,
                        _ => axis,
                    };
                    if !axes.insert(from_front) {
                        self.add(&codes::SHARDED_AXIS, spot, |_| {
                            format!("axis {axis} is split twice")
                        });
                    }
                }
            }
            for count in dim.factors.iter().map(|factor| factor.num_shards) {
                if count.is_none_or(|count| count < 1) {
                    self.add(&codes::SHARD_COUNT, spot, |_| match count {
                        None => "a sharding does not have a number of parts".to_string(),
                        Some(count) => format!("invalid number of parts of a sharding: {count}"),
                    });
                }
            }
        }
    }

    /// Returns the number of dimensions of a value of a graph, if the file declares it.
    fn declared_rank(&mut self, id: NodeId, name: Symbol) -> Option<i64> {
        let graph = self.model.node(id).graph;
        let ranks = self.ranks.entry(graph).or_insert_with(|| {
            let graph = self.model.graph(graph);
            let mut ranks = HashMap::new();
            for found in &graph.initializers {
                if let Some(name) = found.tensor.name {
                    ranks.entry(name).or_insert(found.tensor.dims.len() as i64);
                }
            }
            let infos = graph.inputs.iter().chain(&graph.outputs);
            for info in infos.chain(&graph.value_info) {
                let kind = info.ty.as_ref().and_then(|ty| ty.kind.as_ref());
                if let (Some(name), Some(TypeKind::Tensor { shape: Some(shape), .. })) =
                    (info.name, kind)
                {
                    ranks.entry(name).or_insert(shape.dims.len() as i64);
                }
            }
            ranks
        });
        ranks.get(&name).copied()
    }
}
