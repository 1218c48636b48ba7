//! How sessions and trainers are made: the options that both take.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sardonyx::SessionBuilder;
use sardonyx::run::Precision;

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
    /// Whether sizes of the model were fixed by denotation.
    pub(crate) has_denoted_sizes: bool,
    /// Whether weights stay in mapped files.
    pub(crate) mapped: bool,
}

impl Settings {
    /// Settings of what a caller says.
    ///
    /// # Errors
    ///
    /// Fewer than one thread, less than no memory, a seed that is none, a precision that does not
    /// exist, sizes that are none.
    pub(crate) fn new(
        py: Python<'_>,
        threads: Option<i128>,
        precision: &str,
        memory_limit: Option<i128>,
        dims: Option<&Bound<'_, PyDict>>,
        seed: Option<i128>,
    ) -> PyResult<Settings> {
        let precision = match precision {
            "exact" => Precision::Exact,
            "fast" => Precision::Fast,
            other => {
                let what = format!("precision is '{other}', which does not exist");
                return Err(wrong_argument(py, what, Some("use 'exact' or 'fast'")));
            }
        };
        if let Some(threads) = threads.filter(|threads| *threads < 1) {
            let what = format!("threads must be 1 or more, not {threads}");
            let help = "leave it out for one thread for each processor";
            return Err(wrong_argument(py, what, Some(help)));
        }
        if let Some(bytes) = memory_limit.filter(|bytes| *bytes < 0) {
            let what = format!("memory_limit must be 0 or more bytes, not {bytes}");
            return Err(wrong_argument(py, what, Some("leave it out for no limit")));
        }
        let seed = seed.map(|seed| {
            let what = || format!("seed must be from 0 to 2**64 - 1, not {seed}");
            u64::try_from(seed).map_err(|_| wrong_argument(py, what(), None))
        });
        // More than can be counted is as good as no bound.
        let count = |number: i128| usize::try_from(number).unwrap_or(usize::MAX);
        let (threads, memory_limit) = (threads.map(count), memory_limit.map(count));
        let dims = sizes(dims)?;
        let seed = seed.transpose()?;
        Ok(Settings { threads, precision, memory_limit, dims, seed, ..Settings::default() })
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

    /// Whether sizes are fixed that the model leaves open.
    pub(crate) fn has_fixed_sizes(&self) -> bool {
        !self.dims.is_empty() || self.has_denoted_sizes
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
        if self.mapped {
            keywords.set_item("mapped", true)?;
        }
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
