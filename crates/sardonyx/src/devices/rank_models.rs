//! Export of a sharded model as one model file for each rank, with the collectives of an engine.

use sardonyx_model::{Dim, Type};
use sardonyx_ops::Registry;
use sardonyx_passes::{ConvertOptions, Target, convert};
use sardonyx_shard::{
    Collectives, Device, OutputsAt, Plan, RankError, ShardOptions, lower_ir_version,
    prepare_to_shard, shard,
};

use super::shard::{self, shard_error};
use crate::error::{Error, ErrorKind};
use crate::external::WatchedFiles;
use crate::model::Model;
use sardonyx_passes::JobKind;

/// Options of `Model::rank_models`: device configuration, collective operators and input sizes.
#[derive(Debug, Clone)]
pub struct RankOptions {
    configuration: Option<String>,
    collectives: Collectives,
    sizes: Vec<(String, i64)>,
    inputs: Vec<(String, Type)>,
}

impl RankOptions {
    /// Makes options that use the only device configuration of a model, and the collective
    /// operators of an inference engine.
    pub fn new(collectives: Collectives) -> RankOptions {
        RankOptions { configuration: None, collectives, sizes: Vec::new(), inputs: Vec::new() }
    }

    /// Chooses a device configuration of the model by name.
    #[must_use]
    pub fn configuration(mut self, name: impl Into<String>) -> Self {
        self.configuration = Some(name.into());
        self
    }

    /// Sets the size of a symbolic dimension of an input. A dimension without a symbol is named by
    /// input and axis, such as `x[0]`.
    #[must_use]
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> Self {
        self.sizes.push((name.into(), i64::try_from(size).unwrap_or(i64::MAX)));
        self
    }

    /// Sets the type of a graph input, which replaces the declared type.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, ty: Type) -> Self {
        self.inputs.push((name.into(), ty));
        self
    }
}

impl RankOptions {
    /// Replaces open dimensions in the type of an input by the sizes that the options set.
    fn set_sizes(&self, input: &str, mut ty: Type) -> Type {
        let mut axis = 0;
        ty.for_each_dim(&mut |dim| {
            if dim.is_unknown()
                && let Some(size) = self.find_size(&format!("{input}[{axis}]"))
            {
                *dim = size;
            }
            axis += 1;
        });
        ty.substitute(&|name: &str| self.find_size(name))
    }

    /// Returns the size that the options set for a symbol or for `INPUT[AXIS]`; `None` if unset.
    fn find_size(&self, name: &str) -> Option<Dim> {
        let known = self.sizes.iter().find(|(known, _)| known == name);
        known.map(|(_, size)| Dim::Known(*size))
    }
}

/// A model that is divided among the ranks of a device configuration, from which
/// [`RankModels::model`] makes the model of each rank.
#[derive(Debug, Clone)]
pub struct RankModels {
    model: Model,
    plan: Plan,
    collectives: Collectives,
    /// Version of the ONNX operator set that the model imports.
    opset: Option<u32>,
}

impl Model {
    /// Divides the model among the devices of one of its configurations, into one model for each
    /// rank: ordinary nodes on shards, connected by the collectives of an engine. All ranks have
    /// the inputs and outputs of the whole model, with fixed sizes.
    ///
    /// ```
    /// use sardonyx::Model;
    /// use sardonyx::tool::ModelExt;
    /// use sardonyx::tool::shard::{Collectives, RankOptions};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 11, opset_import: [\"\": 21]>
    ///      g (float[N] x) => (float[N] y) {
    ///          y = Neg (x) @<device_configurations: [{
    ///              configuration_id: \"pair\",
    ///              sharding_spec: [{tensor_name: \"x\", device: [0, 1], sharded_dim:
    ///                  [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
    ///      }
    ///      @<configuration: [{name: \"pair\", num_devices: 2}]>",
    /// )?;
    /// let ranks = model.rank_models(&RankOptions::new(Collectives::Microsoft).dim("N", 6))?;
    /// assert_eq!(ranks.count(), 2);
    /// assert!(ranks.model(1)?.to_text().contains("com.microsoft.AllGather"));
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a configuration that cannot be chosen, a size for a dimension
    /// that no input has, and an input dimension that stays open; [`ErrorKind::Unsupported`] if the
    /// engine has no collectives for a change of sharding; [`ErrorKind::Invalid`] if the model
    /// cannot be run.
    pub(crate) fn rank_models(&self, options: &RankOptions) -> Result<RankModels, Error> {
        shard::check_sizes(self, &options.sizes)?;
        let registry = Registry::with_microsoft();
        let prepared = prepare_to_shard(&self.graph, &registry);
        let prepared = prepared.map_err(|error| shard_error(error, self))?;
        let mut inputs = Vec::new();
        for info in prepared.main_graph().into_iter().flat_map(|main| &main.inputs) {
            let name = prepared.display(info.name);
            let given = options.inputs.iter().find(|(given, _)| *given == name);
            let ty = match given {
                Some((_, ty)) => Some(ty.clone()),
                None => info.ty.as_ref().and_then(|ty| prepared.type_of(ty)),
            };
            let ty = ty.map(|ty| options.set_sizes(&name, ty));
            if let Some(ty) = &ty {
                check_fixed_sizes(&name, ty)?;
            }
            inputs.push(ty);
        }
        let shard_options = ShardOptions {
            configuration: options.configuration.as_deref(),
            inputs: &inputs,
            symbols: &options.sizes,
            open: None,
            outputs: OutputsAt::All,
            // Engines remove collectives whose results an inner graph does not use, and other ranks
            // would wait for these: inner graphs run whole on each rank.
            whole_bodies: true,
            ..ShardOptions::default()
        };
        let plan = shard(prepared, &registry, shard_options);
        let plan = plan.map_err(|error| shard_error(error, self))?;
        plan.is_expressible(options.collectives)
            .map_err(|why| rank_error(RankError::NotExpressible(why)))?;
        let opset = self.graph.opset("").and_then(|opset| u32::try_from(opset).ok());
        Ok(RankModels { model: self.clone(), plan, collectives: options.collectives, opset })
    }
}

/// Checks that the type of graph input `name` has fixed sizes, from which shard sizes are computed.
fn check_fixed_sizes(name: &str, ty: &Type) -> Result<(), Error> {
    let mut sizes = ty.shape().into_iter().flatten().enumerate();
    let Some((axis, open)) = sizes.find(|(_, size)| size.size().is_none()) else {
        return Ok(());
    };
    let message = format!("dimension {axis} of the input '{name}' is open: {ty}");
    let set = match open.as_symbol() {
        Some(symbol) => symbol.to_string(),
        None => format!("{name}[{axis}]"),
    };
    let help = format!(
        "the model of a rank has fixed sizes: set the open size with --set '{set}=SIZE' (Python: \
         dims={{'{set}': SIZE}}; Rust: RankOptions::dim)"
    );
    Err(Error::new(ErrorKind::Argument, message).with_help(help))
}

/// Converts an error in making the model of a rank into the library's error.
fn rank_error(error: RankError) -> Error {
    match error {
        RankError::NotExpressible(why) => {
            Error::new(ErrorKind::Unsupported, why.what).with_help(why.help)
        }
        RankError::Constant(why) => Error::new(ErrorKind::ExternalData, why),
    }
}

impl RankModels {
    /// Returns the number of ranks among which the model is divided.
    pub fn count(&self) -> usize {
        self.plan.devices()
    }

    /// Returns the sharding plan that the models of the ranks implement.
    #[doc(hidden)]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Makes the model of a rank. The model of the rank imports the operator set versions of the
    /// whole model if all its nodes can be expressed exactly in these versions, else the newest
    /// versions. Reads the constants of which the rank holds a shard.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if `rank` is not below [`RankModels::count`];
    /// [`ErrorKind::ExternalData`] if a constant cannot be read; [`ErrorKind::Invalid`] if the
    /// result has errors that the whole model does not have.
    pub fn model(&self, rank: usize) -> Result<Model, Error> {
        let device = Device::try_from(rank).ok().filter(|_| rank < self.count());
        let device = device.ok_or_else(|| {
            let message =
                format!("rank {rank} does not exist: the model has {} ranks, from 0", self.count());
            Error::new(ErrorKind::Argument, message)
        })?;
        let external = WatchedFiles::new(&self.model.data);
        let graph = self.plan.rank_model(device, self.collectives, &external);
        let mut graph = graph.map_err(rank_error)?;
        if let Some(opset) = self.opset {
            let options = ConvertOptions {
                target: Target::new().opset("", opset),
                expand: true,
                granted: Vec::new(),
                like_reference: false,
            };
            if let Ok(converted) = convert(&graph, &Registry::with_microsoft(), &options) {
                graph = converted.model;
            }
        }
        lower_ir_version(&mut graph);
        self.model.check_untraced_result(JobKind::Shard, self.model.with_graph(graph))
    }
}
