//! Python function `sardonyx.shard`: adds device configurations to a model, or writes a model for
//! each rank, like the command `sardonyx shard`. The Python package declares the options with their
//! defaults and passes them as a dict.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sardonyx::Model;
use sardonyx::device::{Division, ShardOptions};
use sardonyx::tool::ModelExt;
use sardonyx::tool::shard::{Collectives, RankOptions};

use super::errors::{ArgumentProblem, to_exception};
use super::opened::{find_parser, open_model, to_argument_form};
use super::settings::parse_dims;

/// Arguments of `sardonyx.shard`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ShardArguments {
    devices: Option<usize>,
    tensor: bool,
    pipeline: bool,
    batch: bool,
    name: Option<String>,
    local: bool,
    configuration: Option<String>,
    collectives: String,
}

/// Validated options of `sardonyx.shard`.
struct ShardRequest {
    /// Name of the configuration to add and its number of devices; `None` to add none.
    added: Option<(String, usize)>,
    /// Sharding strategy of the added configuration: tensors, a pipeline, or the batch.
    division: Division,
    /// Dialect of the collective operators in the models of ranks; `None` to make no such models.
    local: Option<Collectives>,
    /// Configuration of the model that the models of ranks implement.
    configuration: Option<String>,
    /// Sizes of symbolic dimensions, by name.
    sizes: Vec<(String, usize)>,
}

/// Greatest number of devices of a configuration.
const MOST_DEVICES: usize = 1024;

/// Returns the annotated model, or the models of all ranks, and the reason if the devices cannot
/// share the work (else None).
#[pyfunction]
#[pyo3(signature = (model, arguments, dims, /))]
pub(crate) fn shard<'py>(
    model: &Bound<'py, PyAny>,
    arguments: ShardArguments,
    dims: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Vec<Bound<'py, PyAny>>, Option<String>)> {
    let py = model.py();
    let mut wanted = arguments.validate().map_err(|wrong| wrong.into_exception(py))?;
    wanted.sizes = parse_dims(dims)?;
    let class = find_parser(model)?;
    let (model, source) = open_model(model)?;
    let made = py.detach(|| wanted.make_models(&model));
    let (models, undivided) = made.map_err(|error| to_exception(py, &error))?;
    let models =
        models.into_iter().map(|model| to_argument_form(py, model, &source, class.as_ref()));
    Ok((models.collect::<PyResult<_>>()?, undivided))
}

impl ShardArguments {
    /// Validates the arguments against each other and converts them to a request.
    ///
    /// # Errors
    ///
    /// Options that exclude each other, an unknown name, or a number of devices out of range.
    fn validate(self) -> Result<ShardRequest, ArgumentProblem> {
        let (division, kind) = match (self.tensor, self.pipeline, self.batch) {
            (_, false, false) => (Division::Tensor, "tensor"),
            (false, true, false) => (Division::Pipeline, "pipeline"),
            (false, false, true) => (Division::Batch, "batch"),
            _ => return Err("at most one of tensor, pipeline and batch may be True".into()),
        };
        let added = match self.devices {
            Some(devices) if !(2..=MOST_DEVICES).contains(&devices) => {
                let what = format!("devices must be from 2 to {MOST_DEVICES}, not {devices}");
                return Err(what.into());
            }
            Some(_) if self.configuration.is_some() => {
                let wrong = ArgumentProblem::from("devices and configuration exclude each other");
                return Err(wrong.with_help(
                    "devices adds a configuration: set its name with the argument name",
                ));
            }
            Some(devices) => {
                Some((self.name.unwrap_or_else(|| format!("{kind}-{devices}")), devices))
            }
            None if !self.local => {
                let wrong = ArgumentProblem::from("the number of devices is not given");
                return Err(wrong.with_help(
                    "give the number of devices, or use local=True for an annotated model",
                ));
            }
            None if self.tensor || self.pipeline || self.batch || self.name.is_some() => {
                return Err("tensor, pipeline, batch and name need devices".into());
            }
            None => None,
        };
        let collectives = match self.collectives.as_str() {
            "microsoft" => Collectives::Microsoft,
            "tensorrt" => Collectives::TensorRt,
            other => {
                return Err(ArgumentProblem::unknown_value(
                    "collectives",
                    other,
                    &["microsoft", "tensorrt"],
                ));
            }
        };
        if !self.local && (self.configuration.is_some() || collectives != Collectives::Microsoft) {
            return Err("configuration and collectives need local=True".into());
        }
        Ok(ShardRequest {
            added,
            division,
            local: self.local.then_some(collectives),
            configuration: self.configuration,
            sizes: Vec::new(),
        })
    }
}

impl ShardRequest {
    /// Returns one annotated model, or the models of all ranks, and the reason if the model cannot
    /// be divided.
    fn make_models(&self, model: &Model) -> Result<(Vec<Model>, Option<String>), sardonyx::Error> {
        let (annotated, undivided) = match &self.added {
            Some((name, devices)) => {
                let options = ShardOptions::new(self.division, *devices).configuration(name);
                let options = self
                    .sizes
                    .iter()
                    .fold(options, |options, (name, size)| options.dim(name, *size));
                let (annotated, report) = model.shard(&options)?;
                let undivided = model.explain_undivided(&report, self.division);
                (Some(annotated), undivided.map(|why| format!("{why}; {}", self.find_advice())))
            }
            None => (None, None),
        };
        let annotated = annotated.unwrap_or_else(|| model.clone());
        let Some(collectives) = self.local else { return Ok((vec![annotated], undivided)) };
        let mut options = RankOptions::new(collectives);
        if let Some(name) =
            self.added.as_ref().map(|(name, _)| name).or(self.configuration.as_ref())
        {
            options = options.configuration(name);
        }
        for (name, size) in &self.sizes {
            options = options.dim(name, *size);
        }
        let ranks = annotated.rank_models(&options)?;
        let models = (0..ranks.count()).map(|rank| ranks.model(rank));
        Ok((models.collect::<Result<_, _>>()?, undivided))
    }

    /// Returns the advice for a model that this sharding strategy cannot divide.
    fn find_advice(&self) -> &'static str {
        match self.division {
            Division::Tensor => {
                "use batch=True to divide the examples, or pipeline=True to divide the nodes"
            }
            Division::Pipeline => "use batch=True to divide the examples",
            Division::Batch => "use tensor=True or pipeline=True",
        }
    }
}
