//! Annotations for several devices, and models of ranks: what the command `shard` does. The package
//! says which options there are and what they are by default, and gives them as a dict.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sardonyx::Model;
use sardonyx::device::{Division, ShardOptions};
use sardonyx::tool::ModelExt;
use sardonyx::tool::shard::{Collectives, RankOptions};

use super::errors::{Wrong, raised};
use super::opened::{as_given, class_of, opened};
use super::settings::sizes;

/// The options of `sardonyx.shard`.
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

/// What is to be done with a model.
struct Wanted {
    /// The configuration to add: its name, and for how many devices.
    added: Option<(String, usize)>,
    division: Division,
    /// The collectives of the models of ranks, if those are wanted.
    local: Option<Collectives>,
    /// The configuration of the model that they are made for.
    configuration: Option<String>,
    sizes: Vec<(String, usize)>,
}

/// Greatest number of devices of a configuration.
const MOST_DEVICES: usize = 1024;

/// The annotated model, or the models of all ranks, and why devices have nothing to do apart, if
/// that is so.
#[pyfunction]
#[pyo3(signature = (model, arguments, dims, /))]
pub(crate) fn shard<'py>(
    model: &Bound<'py, PyAny>,
    arguments: ShardArguments,
    dims: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Vec<Bound<'py, PyAny>>, Option<String>)> {
    let py = model.py();
    let mut wanted = arguments.wanted().map_err(|wrong| wrong.raised(py))?;
    wanted.sizes = sizes(dims)?;
    let class = class_of(model)?;
    let (model, source) = opened(model)?;
    let made = py.detach(|| wanted.models(&model));
    let (models, undivided) = made.map_err(|error| raised(py, &error))?;
    let models = models.into_iter().map(|model| as_given(py, model, &source, class.as_ref()));
    Ok((models.collect::<PyResult<_>>()?, undivided))
}

impl ShardArguments {
    fn wanted(self) -> Result<Wanted, Wrong> {
        let (division, kind) = match (self.tensor, self.pipeline, self.batch) {
            (_, false, false) => (Division::Tensor, "tensor"),
            (false, true, false) => (Division::Pipeline, "pipeline"),
            (false, false, true) => (Division::Batch, "batch"),
            _ => return Err("more than one of tensor, pipeline and batch is True".into()),
        };
        let added = match self.devices {
            Some(devices) if !(2..=MOST_DEVICES).contains(&devices) => {
                let what = format!("devices must be from 2 to {MOST_DEVICES}, not {devices}");
                return Err(what.into());
            }
            Some(_) if self.configuration.is_some() => {
                let wrong = Wrong::from("devices and configuration are both given");
                return Err(wrong.help("devices adds a configuration, whose name is 'name'"));
            }
            Some(devices) => {
                Some((self.name.unwrap_or_else(|| format!("{kind}-{devices}")), devices))
            }
            None if !self.local => {
                let wrong = Wrong::from("devices is not given");
                return Err(wrong.help(
                    "say how many devices there are, or use local=True for a model that is annotated",
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
            other => return Err(Wrong::unknown("collectives", other, &["microsoft", "tensorrt"])),
        };
        if !self.local && (self.configuration.is_some() || collectives != Collectives::Microsoft) {
            return Err("configuration and collectives need local=True".into());
        }
        Ok(Wanted {
            added,
            division,
            local: self.local.then_some(collectives),
            configuration: self.configuration,
            sizes: Vec::new(),
        })
    }
}

impl Wanted {
    /// One model, or those of all ranks, and why devices have nothing to do apart.
    fn models(&self, model: &Model) -> Result<(Vec<Model>, Option<String>), sardonyx::Error> {
        let (annotated, undivided) = match &self.added {
            Some((name, devices)) => {
                let options = ShardOptions::new(self.division, *devices).configuration(name);
                let options = self
                    .sizes
                    .iter()
                    .fold(options, |options, (name, size)| options.dim(name, *size));
                let (annotated, report) = model.shard(&options)?;
                let undivided = model.explain_undivided(&report, self.division);
                (Some(annotated), undivided.map(|why| format!("{why}; {}", self.instead())))
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

    /// What to do if the model is not divided.
    fn instead(&self) -> &'static str {
        match self.division {
            Division::Tensor => "use batch=True to divide the examples, or pipeline=True the nodes",
            Division::Pipeline => "use batch=True to divide the examples",
            Division::Batch => "use tensor=True or pipeline=True",
        }
    }
}
