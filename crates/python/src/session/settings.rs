//! How sessions and trainers are made: the options that both take.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sardonyx::{Precision, SessionBuilder};

use super::errors::wrong_argument;
use super::take::shown;

/// How a session is made, or the sessions of a trainer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) threads: Option<usize>,
    pub(crate) precision: Precision,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) dims: Vec<(String, usize)>,
    pub(crate) seed: Option<u64>,
    /// Whether names in `dims` that no input has are left out instead of refused.
    pub(crate) ignores_other_dims: bool,
}

impl Settings {
    /// Settings of what a caller says.
    ///
    /// # Errors
    ///
    /// No threads, a precision that does not exist, sizes that are none.
    pub(crate) fn new(
        py: Python<'_>,
        threads: Option<usize>,
        precision: &str,
        memory_limit: Option<usize>,
        dims: Option<&Bound<'_, PyDict>>,
        seed: Option<u64>,
    ) -> PyResult<Settings> {
        let precision = match precision {
            "exact" => Precision::Exact,
            "fast" => Precision::Fast,
            other => {
                let what = format!("precision is '{other}', which does not exist");
                return Err(wrong_argument(py, what, Some("use 'exact' or 'fast'")));
            }
        };
        if threads == Some(0) {
            let help = "leave it out for one thread for each processor";
            return Err(wrong_argument(py, "threads must be 1 or more, not 0", Some(help)));
        }
        let dims = sizes(dims)?;
        let ignores_other_dims = false;
        Ok(Settings { threads, precision, memory_limit, dims, seed, ignores_other_dims })
    }

    /// A builder with these settings.
    pub(crate) fn applied<'m>(&self, mut builder: SessionBuilder<'m>) -> SessionBuilder<'m> {
        builder = builder.precision(self.precision);
        if let Some(threads) = self.threads.or_else(threads_of_environment) {
            builder = builder.threads(threads);
        }
        if let Some(bytes) = self.memory_limit {
            builder = builder.memory_limit(bytes);
        }
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        for (name, size) in &self.dims {
            builder = builder.dim(name, *size);
        }
        builder
    }

    /// How exact products are: `exact` or `fast`.
    pub(crate) fn precision_name(&self) -> &'static str {
        match self.precision {
            Precision::Exact => "exact",
            Precision::Fast => "fast",
        }
    }

    /// The settings as keywords of the class that takes them.
    pub(crate) fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        keywords.set_item("threads", self.threads)?;
        keywords.set_item("precision", self.precision_name())?;
        keywords.set_item("memory_limit", self.memory_limit)?;
        keywords.set_item("seed", self.seed)?;
        let dims = PyDict::new(py);
        for (name, size) in &self.dims {
            dims.set_item(name, size)?;
        }
        keywords.set_item("dims", dims)?;
        Ok(keywords)
    }
}

/// Sizes by name, of a dict.
pub(crate) fn sizes(dims: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, usize)>> {
    let Some(dims) = dims else { return Ok(Vec::new()) };
    let mut pairs = Vec::new();
    for pair in dims.items().iter() {
        let (name, size): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let made = name.extract::<String>().ok().zip(size.extract::<usize>().ok());
        let Some(pair) = made else {
            let what = format!(
                "dims holds {}: {}, which is not a name with a size of 0 or more",
                shown(&name),
                shown(&size)
            );
            let help = "give a number for the name of each size: dims={'batch': 8}";
            return Err(wrong_argument(dims.py(), what, Some(help)));
        };
        pairs.push(pair);
    }
    Ok(pairs)
}

/// How many threads the environment asks for, and not more than there are processors: the first
/// number of `OMP_NUM_THREADS`, which may be a list.
fn threads_of_environment() -> Option<usize> {
    let text = std::env::var("OMP_NUM_THREADS").ok()?;
    let threads: usize = text.split(',').next()?.trim().parse().ok()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (threads > 0).then_some(threads.min(processors))
}
