//! Annotations that split the batch.

use std::collections::BTreeSet;

use hashbrown::HashSet;
use sardonyx_model::{Dim, ValueId, ValueInfo};
use sardonyx_passes::{ShardedDim, ShardingSpec, SimpleShardedDim};

use super::Annotations;
use crate::options::ShardError;

impl Annotations<'_> {
    /// Annotates nodes so that they read the first axis of batched inputs in parts, one for each
    /// device. Returns the number of these inputs.
    pub(super) fn split_batch(&mut self) -> Result<usize, ShardError> {
        let devices = self.devices;
        let Some(main) = self.model.main_graph() else { return Ok(0) };
        let constants: HashSet<ValueId> =
            main.initializers.iter().filter_map(|initializer| initializer.value).collect();
        let first_axis = |info: &ValueInfo| {
            let ty = self.model.type_of(info.ty.as_ref()?)?;
            let axis = ty.shape()?.first()?.clone();
            info.value.filter(|value| !constants.contains(value)).map(|value| (value, axis))
        };
        let inputs: Vec<(ValueId, Dim)> = main.inputs.iter().filter_map(first_axis).collect();
        let Some((_, batch)) = inputs.first().cloned() else {
            let why = "the model has no input with a batch axis: no shape of an input is declared";
            return Err(ShardError::Configuration(why.into()));
        };
        let split: Vec<ValueId> =
            inputs.into_iter().filter(|(_, axis)| *axis == batch).map(|(value, _)| value).collect();
        let nodes = main.nodes.clone();
        for node in nodes {
            let read: BTreeSet<ValueId> =
                self.model.inputs(node).flatten().filter(|value| split.contains(value)).collect();
            if read.is_empty() {
                continue;
            }
            let tensors: Vec<Vec<u8>> = read
                .into_iter()
                .map(|value| self.model.text(self.model.value(value).name).to_vec())
                .collect();
            let spec = |tensor| {
                let parts =
                    SimpleShardedDim { size: None, num_shards: i64::try_from(devices).ok() };
                ShardingSpec {
                    tensor,
                    devices: (0..devices).filter_map(|device| i64::try_from(device).ok()).collect(),
                    dims: vec![ShardedDim { axis: Some(0), factors: vec![parts] }],
                    ..ShardingSpec::default()
                }
            };
            let specs = tensors.iter().map(|tensor| spec(&tensor[..])).collect();
            self.annotate(node, specs, None);
        }
        Ok(split.len())
    }
}
