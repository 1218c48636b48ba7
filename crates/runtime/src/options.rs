//! How a model is compiled, and how it runs: what callers may choose.

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

/// How a model is compiled. Start from the default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Threads, the calling one included; `None` for one per available processor.
    pub threads: Option<usize>,
    /// Instruction set; `None` for the one of [`Isa::requested`].
    pub isa: Option<Isa>,
    /// Threads that the session shares with others that have the same pool; `None` for those of the
    /// process. No more of them take part in its runs than [`Options::threads`].
    pub pool: Option<ThreadPool>,
    /// How much of the graph may change on the way to a program.
    pub optimization: Optimization,
    /// How exact products are.
    pub precision: Precision,
    /// Bytes that a session and one run of it may take together: for values computed ahead of time,
    /// packed forms of what the file does not store, values between inputs and outputs, outputs,
    /// and scratch memory. What the file stores does not count, packed or not, and neither does
    /// what single products and convolutions pack while they run. A run that needs more of what
    /// counts fails before it takes more. `None` for no limit.
    pub memory_limit: Option<usize>,
    /// Bytes that the sessions with this budget and their runs may take together.
    pub memory_budget: Option<MemoryBudget>,
    /// What operators without an attribute `seed` draw random numbers by, other ones in each run.
    /// Sessions of a model that have the same seed draw the same numbers in their first run, in
    /// their second, and so on. `None` for a seed from the system.
    pub seed: Option<u64>,
    /// Whether the sizes in the model are those of the runs that the session is for, whatever the
    /// model accepts otherwise. Sizes of `dims` are such.
    pub has_sizes_of_runs: bool,
    /// Whether the session is only looked at: nothing large is computed, copied or packed, and runs
    /// fail.
    pub only_looks: bool,
    /// Whether constants that kernels read as they are stay in mapped files, which processes share.
    /// Then nobody may change or shorten the files while the session lives. Otherwise they are
    /// copied, and nothing of a mapped file is read once the session has been made.
    pub keeps_mapped: bool,
    /// Where to find packed weights of other sessions of the model, and to leave them.
    pub weights: SharedWeights,
    /// Operators that the program brings.
    pub operators: Arc<CustomOperators>,
    /// Who decodes the images of `ImageDecoder`. Without one, models with that operator are
    /// refused.
    pub images: Option<Arc<dyn ImageDecoder>>,
    /// Sizes of symbolic dimensions of the inputs, fixed for all runs.
    pub dims: Vec<(String, i64)>,
    /// Names of [rewrites](crate::rewrites) that are left out.
    pub without: Vec<String>,
    /// The rewrite after which the program is printed; `dead` is the last.
    pub print_after: Option<String>,
    /// Values that go from run to run, which runs that [begin](crate::Session::begin) and end may
    /// change where they lie. Numbers that do not exist mean nothing, and neither do ports of which
    /// one is in another pair.
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
    /// Whether nodes in graphs of nodes may contradict the sizes of the model, as these are those
    /// of some runs: a branch that fits others only is not taken then.
    pub(crate) fn inner_may_contradict(&self) -> bool {
        self.has_sizes_of_runs || !self.dims.is_empty()
    }

    /// The default with a number of threads.
    pub fn with_threads(threads: usize) -> Self {
        Options { threads: Some(threads), ..Options::default() }
    }

    /// The instruction set that a session would use.
    ///
    /// # Errors
    ///
    /// [`CompileError::Option`] if `SARDONYX_ISA` names none, or if `SARDONYX_CACHES` is malformed,
    /// which would otherwise go unnoticed.
    pub fn chosen_isa(&self) -> Result<Isa, CompileError> {
        Caches::from_environment().map_err(|error| CompileError::Option(error.to_string()))?;
        match self.isa {
            Some(isa) => Ok(isa),
            None => Isa::requested().map_err(|error| CompileError::Option(error.to_string())),
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
