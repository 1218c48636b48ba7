//! Options of compilation and of runs.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use sardonyx_kernels::{Caches, Isa};

use crate::account::MemoryBudget;
use crate::custom::CustomOperators;
use crate::error::CompileError;
use crate::images::ImageDecoder;
use crate::precision::Precision;
use crate::program::StatePorts;
use crate::run::StepEvent;
use crate::stop::StopFlag;
use crate::thread_pool::ThreadPool;
use crate::weights::SharedWeights;

/// Options of compilation. Start from the default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Number of threads, the calling one included; `None` for one per available processor.
    pub threads: Option<usize>,
    /// Instruction set; `None` for [`Isa::from_environment`].
    pub isa: Option<Isa>,
    /// Pool of threads that sessions share; `None` for the one of the process. A run uses at most
    /// [`Options::threads`] of them.
    pub pool: Option<ThreadPool>,
    /// Extent to which the graph is rewritten.
    pub optimization: Optimization,
    /// Precision of products.
    pub precision: Precision,
    /// Maximum number of bytes that a session and one run of it use together: for values computed
    /// ahead of time, packed forms of constants that the file does not store, values between inputs
    /// and outputs, outputs, and scratch memory. Stored constants do not count, packed or not, nor
    /// do operands that single products and convolutions pack while they run. A run that would
    /// exceed the limit fails before it allocates. `None` for no limit.
    pub memory_limit: Option<usize>,
    /// Budget of memory that several sessions and their runs share.
    pub memory_budget: Option<MemoryBudget>,
    /// Seed for random operators without a `seed` attribute. Each run draws new numbers; sessions
    /// of a model with equal seeds draw equal numbers in their first run, in their second, and so
    /// on. `None` for a seed from the system.
    pub seed: Option<u64>,
    /// Whether the sizes in the model are those of the runs, even if the model accepts others.
    /// Always true for the sizes in `dims`.
    pub has_sizes_of_runs: bool,
    /// Whether the session is only inspected: nothing large is computed, copied or packed, and runs
    /// fail.
    pub only_looks: bool,
    /// Whether constants that kernels read unpacked stay in mapped files, which processes share.
    /// The files must then not change or shrink while the session lives. Otherwise they are copied,
    /// and mapped files are not read after the session is made.
    pub keeps_mapped: bool,
    /// Packed weights shared with other sessions of the model.
    pub weights: SharedWeights,
    /// Custom operators.
    pub operators: Arc<CustomOperators>,
    /// Decoder for `ImageDecoder`. Without one, models with that operator are refused.
    pub images: Option<Arc<dyn ImageDecoder>>,
    /// Sizes of symbolic dimensions of the inputs, fixed for all runs.
    pub dims: Vec<(String, i64)>,
    /// Names of [rewrites](crate::rewrites) to leave out.
    pub without: Vec<String>,
    /// Rewrite after which the program is printed; `dead` is the last.
    pub print_after: Option<String>,
    /// State variables. Runs that [begin](crate::Session::begin) and end separately may change them
    /// in place. Invalid indices, and ports that belong to another pair, are ignored.
    pub state: Vec<StatePorts>,
}

/// Extent to which the graph is rewritten before it runs. Every level keeps results within the
/// tolerance of [`Precision::Exact`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Optimization {
    /// Runs every node as it is written, except nodes whose outputs type inference already knows.
    Off,
    /// Also computes nodes that depend only on constants when the session is built.
    Basic,
    /// Also merges duplicate nodes and fuses nodes.
    #[default]
    All,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: None,
            isa: None,
            pool: None,
            optimization: Optimization::All,
            precision: Precision::Exact,
            memory_limit: None,
            memory_budget: None,
            seed: None,
            only_looks: false,
            keeps_mapped: false,
            has_sizes_of_runs: false,
            weights: SharedWeights::default(),
            operators: Arc::default(),
            images: None,
            dims: Vec::new(),
            without: Vec::new(),
            print_after: None,
            state: Vec::new(),
        }
    }
}

impl Options {
    /// Whether inner graphs may contradict the sizes of the model, as these are those of some runs:
    /// a branch for other sizes is not taken then.
    pub(crate) fn inner_may_contradict(&self) -> bool {
        self.has_sizes_of_runs || !self.dims.is_empty()
    }

    /// Makes default options with a number of threads.
    pub fn with_threads(threads: usize) -> Self {
        Options { threads: Some(threads), ..Options::default() }
    }

    /// Returns the instruction set that a session would use.
    ///
    /// # Errors
    ///
    /// [`CompileError::Option`] if `SARDONYX_ISA` has an unknown name, or if `SARDONYX_CACHES` is
    /// malformed, which would otherwise go unnoticed.
    pub fn chosen_isa(&self) -> Result<Isa, CompileError> {
        Caches::from_environment().map_err(|error| CompileError::Option(error.to_string()))?;
        match self.isa {
            Some(isa) => Ok(isa),
            None => {
                Isa::from_environment().map_err(|error| CompileError::Option(error.to_string()))
            }
        }
    }
}

/// Limits, seed and observer of a run. By default a run has none of them. A cancelled run
/// fails with an error of the kind `Stopped`. Options are passed by reference, so one value serves
/// any number of runs.
///
/// The limits are tested before each step and each iteration of every graph. Except for the number
/// of iterations, they are also tested within long steps, such as matrix products, convolutions,
/// element-wise functions, sorting and scattering. Other steps run to their end.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RunOptions<'a> {
    /// Flag that cancels the run when it is raised. The run then fails.
    pub stop: Option<StopFlag>,
    /// Time at which the run is cancelled.
    pub deadline: Option<Instant>,
    /// Maximum number of iterations of all loops and scans in the run, in total.
    pub iteration_limit: Option<u64>,
    /// Seed of this run for random operators without a `seed` attribute, in place of the session's.
    /// Runs of one model with equal seeds draw equal numbers.
    pub seed: Option<u64>,
    /// Function that cancels the run by returning true. The thread that runs the model calls it
    /// whenever the other limits are tested. Runs on several devices do not call it, because
    /// devices have their own threads.
    pub asks: Option<&'a dyn Fn() -> bool>,
    /// Function that the thread that runs the model calls after every step.
    pub watch: Option<&'a dyn Fn(StepEvent)>,
}

impl<'a> RunOptions<'a> {
    /// Makes options without limits, seed and observer.
    pub fn new() -> RunOptions<'a> {
        RunOptions::default()
    }

    /// Cancels the run when `flag` is raised.
    #[must_use]
    pub fn stop(self, flag: &StopFlag) -> Self {
        RunOptions { stop: Some(flag.clone()), ..self }
    }

    /// Cancels the run at a time.
    #[must_use]
    pub fn deadline(self, deadline: Instant) -> Self {
        RunOptions { deadline: Some(deadline), ..self }
    }

    /// Cancels the run after `iterations` iterations of all loops and scans, in total.
    #[must_use]
    pub fn iteration_limit(self, iterations: u64) -> Self {
        RunOptions { iteration_limit: Some(iterations), ..self }
    }

    /// Sets the seed of this run for random operators without a `seed` attribute. Runs of one model
    /// with equal seeds draw equal numbers.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        RunOptions { seed: Some(seed), ..self }
    }

    /// Cancels the run once `ends` returns true. It is called before each step, each iteration and
    /// within long steps, so it must be fast. Runs on several devices do not call it.
    #[must_use]
    pub fn asks(self, ends: &'a dyn Fn() -> bool) -> Self {
        RunOptions { asks: Some(ends), ..self }
    }

    /// Calls `watch` after every step with its index and times.
    #[must_use]
    pub fn watch(self, watch: &'a dyn Fn(StepEvent)) -> Self {
        RunOptions { watch: Some(watch), ..self }
    }
}

impl fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("stop", &self.stop)
            .field("deadline", &self.deadline)
            .field("iteration_limit", &self.iteration_limit)
            .field("seed", &self.seed)
            .field("asks", &self.asks.is_some())
            .field("watch", &self.watch.is_some())
            .finish()
    }
}
