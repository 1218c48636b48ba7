//! Options that sessions and trainers share.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sardonyx::SessionBuilder;
use sardonyx::run::Precision;

use super::errors::argument_error;
use super::take::shorten_repr;

/// Options of a session, or of the sessions of a trainer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// Number of threads of a run; `None` for the default.
    pub(crate) threads: Option<usize>,
    /// Precision of matrix products.
    pub(crate) precision: Precision,
    /// Maximum number of bytes that the session and one run use together.
    pub(crate) memory_limit: Option<usize>,
    /// Sizes of symbolic dimensions, by name.
    pub(crate) dims: Vec<(String, usize)>,
    /// Seed of random operators without an attribute `seed`; `None` for new numbers in each run.
    pub(crate) seed: Option<u64>,
    /// Whether sizes of axes were fixed by their denotation, such as `DATA_BATCH`.
    pub(crate) has_denoted_sizes: bool,
    /// Whether weights stay in memory-mapped files.
    pub(crate) mapped: bool,
}

impl Settings {
    /// Converts the arguments that the Python constructors of sessions and trainers share.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` if `threads` is less than 1, `memory_limit` is negative, `seed` is not in
    /// 0..2**64, `precision` is unknown, or `dims` is not a dict of names and sizes.
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
                return Err(argument_error(py, what, Some("use 'exact' or 'fast'")));
            }
        };
        if let Some(threads) = threads.filter(|threads| *threads < 1) {
            let what = format!("threads must be 1 or more, not {threads}");
            let help = "leave threads out for one thread for each processor";
            return Err(argument_error(py, what, Some(help)));
        }
        if let Some(bytes) = memory_limit.filter(|bytes| *bytes < 0) {
            let what = format!("memory_limit must be 0 or more bytes, not {bytes}");
            return Err(argument_error(py, what, Some("leave memory_limit out for no limit")));
        }
        let seed = seed.map(|seed| {
            u64::try_from(seed).map_err(|_| {
                let what = format!("seed must be from 0 to 2**64 - 1, not {seed}");
                argument_error(py, what, None)
            })
        });
        let (threads, memory_limit) =
            (threads.map(saturate_count), memory_limit.map(saturate_count));
        let dims = parse_dims(dims)?;
        let seed = seed.transpose()?;
        Ok(Settings { threads, precision, memory_limit, dims, seed, ..Settings::default() })
    }

    /// Sets these options on a session builder.
    pub(crate) fn apply_to<'m>(&self, mut builder: SessionBuilder<'m>) -> SessionBuilder<'m> {
        builder = builder.precision(self.precision);
        if let Some(threads) = self.threads.or_else(read_thread_count) {
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

    /// Whether symbolic dimensions of the model were given fixed sizes.
    pub(crate) fn has_fixed_sizes(&self) -> bool {
        !self.dims.is_empty() || self.has_denoted_sizes
    }

    /// Returns the precision of matrix products in the spelling of the argument `precision`:
    /// `exact` or `fast`.
    pub(crate) fn precision_name(&self) -> &'static str {
        match self.precision {
            Precision::Exact => "exact",
            Precision::Fast => "fast",
        }
    }

    /// Returns the options as keyword arguments of the Python constructor, for pickling.
    pub(crate) fn to_keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
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

/// Converts a count of 0 or more; a count above `usize::MAX` becomes `usize::MAX`.
fn saturate_count(count: i128) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Converts the argument `dims`, a dict of dimension names and sizes.
///
/// # Errors
///
/// `sardonyx.Error` if a key is not a str or a value not an int of 0 or more.
pub(crate) fn parse_dims(dims: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, usize)>> {
    let Some(dims) = dims else { return Ok(Vec::new()) };
    let mut pairs = Vec::new();
    for pair in dims.items().iter() {
        let (name, size): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let made = name.extract::<String>().ok().zip(size.extract::<usize>().ok());
        let Some(pair) = made else {
            let what = format!(
                "dims holds {}: {}, which is not a name with a size of 0 or more",
                shorten_repr(&name),
                shorten_repr(&size)
            );
            let help = "give each dimension name a size: dims={'batch': 8}";
            return Err(argument_error(dims.py(), what, Some(help)));
        };
        pairs.push(pair);
    }
    Ok(pairs)
}

/// Returns the first number in the environment variable `OMP_NUM_THREADS`, which may be a list, but
/// at most the number of processors.
fn read_thread_count() -> Option<usize> {
    let text = std::env::var("OMP_NUM_THREADS").ok()?;
    let threads: usize = text.split(',').next()?.trim().parse().ok()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (threads > 0).then_some(threads.min(processors))
}
