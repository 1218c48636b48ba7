//! Automatic sharding: annotates a model so that its nodes are divided among devices.

use sardonyx_ops::Registry;
use sardonyx_shard::{Division, ShardError, ShardReport, suggest};

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::results::InvalidResult;

/// Options of [`Model::shard`].
///
/// ```
/// use sardonyx::device::{DeviceOptions, Division, ShardOptions};
///
/// // The stages of a pipeline on two devices, for batches of 8.
/// let options = ShardOptions::new(Division::Pipeline, 2).dim("N", 8);
/// ```
#[derive(Debug, Clone)]
pub struct ShardOptions {
    division: Division,
    devices: usize,
    configuration: Option<String>,
    sizes: Vec<(String, i64)>,
}

impl ShardOptions {
    /// Makes options that divide a model among `devices` devices.
    pub fn new(division: Division, devices: usize) -> ShardOptions {
        ShardOptions { division, devices, configuration: None, sizes: Vec::new() }
    }

    /// Sets the name of the device configuration that [`Model::shard`] adds. The default consists
    /// of the division and the number of devices, such as `tensor-4`.
    #[must_use]
    pub fn configuration(mut self, name: impl Into<String>) -> Self {
        self.configuration = Some(name.into());
        self
    }

    /// Sets the size that is assumed for a symbolic dimension when work is balanced among devices.
    /// A dimension without a symbol is named by input and axis, such as `x[0]`. Sizes that are not
    /// set are assumed to be 64, or another size that the model accepts.
    #[must_use]
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> Self {
        self.sizes.push((name.into(), i64::try_from(size).unwrap_or(i64::MAX)));
        self
    }

    /// Returns the name of the device configuration that [`Model::shard`] adds.
    pub fn name(&self) -> String {
        let division = match self.division {
            Division::Tensor => "tensor",
            Division::Pipeline => "pipeline",
            Division::Batch => "batch",
        };
        self.configuration.clone().unwrap_or_else(|| format!("{division}-{}", self.devices))
    }
}

impl Model {
    /// Returns the name and the number of devices of a device configuration. If `configuration` is
    /// `None`, the model must have exactly one configuration.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the model has no such configuration, or has several and no name
    /// is given.
    pub fn devices_of(&self, configuration: Option<&str>) -> Result<(String, usize), Error> {
        sardonyx_shard::chosen_configuration(&self.graph, configuration)
            .map_err(|error| shard_error(error, self))
    }

    /// Returns a copy of the model with an additional device configuration, whose annotations
    /// divide the nodes among the devices, and a report on the division. Function calls are inlined
    /// as far as possible.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the model already has a configuration of this name, or has no
    /// dimension for which a size is set; [`ErrorKind::Invalid`] if the model cannot be run.
    pub fn shard(&self, options: &ShardOptions) -> Result<(Model, ShardReport), Error> {
        check_sizes(self, &options.sizes)?;
        let registry = Registry::with_microsoft();
        let symbols = &options.sizes;
        let shard_options = sardonyx_shard::ShardOptions { symbols, ..Default::default() };
        let configuration = (&*options.name(), options.devices);
        suggest(&self.graph, &registry, configuration, options.division, shard_options)
            .map(|(graph, report)| (self.with_graph(graph), report))
            .map_err(|error| shard_error(error, self))
    }

    /// Explains why [`Model::shard`], which returned `report`, found no work to divide among the
    /// devices; `None` if the devices share the work.
    pub(crate) fn explain_undivided(
        &self,
        report: &ShardReport,
        division: Division,
    ) -> Option<String> {
        let ShardReport { columns, rows, whole, tables, stages, .. } = report;
        match division {
            Division::Tensor if columns + rows + tables > 0 => None,
            Division::Tensor if *whole == 0 => Some(
                "no MatMul or Gemm of the main graph has a constant matrix of at least 4096 \
                 elements, and no Gather has a constant table of at least 1048576 elements"
                    .to_string(),
            ),
            Division::Tensor => Some(
                "the results of all products with large constant matrices are needed whole by the \
                 nodes that read them"
                    .to_string(),
            ),
            Division::Pipeline => match stages.iter().filter(|work| **work > 0).count() {
                0 => Some(
                    "no node has multiply-adds, by which nodes are divided into stages".to_string(),
                ),
                1 => Some("all multiply-adds are in one stage".to_string()),
                _ => None,
            },
            Division::Batch => {
                let inputs = self.inputs();
                let mut axes =
                    inputs.iter().filter_map(|port| Some((port, port.ty()?.shape()?.first()?)));
                let (port, batch) = axes.next()?;
                let name = port.name();
                match batch.known().filter(|size| *size < 2) {
                    Some(size) => Some(format!(
                        "the first axis of '{name}' has the fixed size {size} (a name instead of it \
                         leaves the size open)"
                    )),
                    None => (report.in_parts == 0)
                        .then(|| format!("no node computes a part of the examples of '{name}'")),
                }
            }
        }
    }
}

/// Checks that each name in `sizes` is a symbolic dimension of the model, or `INPUT[AXIS]` for a
/// dimension without a symbol.
pub(super) fn check_sizes(model: &Model, sizes: &[(String, i64)]) -> Result<(), Error> {
    let inputs = model.inputs();
    let mut symbols = Vec::with_capacity(sizes.len());
    for (name, size) in sizes {
        let place = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
        if !place.is_some_and(|(input, _)| inputs.iter().any(|port| port.name() == input)) {
            symbols.push((name.clone(), *size));
        }
    }
    let checked = sardonyx_runtime::check_dims(&model.graph, &symbols);
    checked.map_err(|error| Error::new(ErrorKind::Argument, error.to_string()))
}

/// Converts an error of the sharding planner into the library's error.
pub(super) fn shard_error(error: ShardError, model: &Model) -> Error {
    match error {
        ShardError::Configuration(why) => {
            let error = Error::new(ErrorKind::Argument, why);
            if sardonyx_passes::configurations(&model.graph).is_empty() {
                return error.with_help("`sardonyx shard` adds a device configuration");
            }
            error
        }
        ShardError::Invalid(findings) => crate::session::compile_error(
            sardonyx_runtime::CompileError::Invalid(findings),
            &crate::external::WatchedFiles::new(&model.data),
            model,
        ),
        ShardError::Rejected(rejected) => InvalidResult::new(model, *rejected).into(),
    }
}
