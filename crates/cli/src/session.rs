//! Options of a session, and opening models with them.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use sardonyx::check::FillOptions;
use sardonyx::device::{DeviceOptions, DeviceSession};
use sardonyx::io::Access;
use sardonyx::run::{Optimization, Precision};
use sardonyx::tool::filling::OpenDim;
use sardonyx::tool::{ModelExt, SessionBuilderExt};
use sardonyx::{ErrorKind, Model, OpenOptions, Session, SessionBuilder, Trainer, TrainerBuilder};

use crate::failure::Failure;
use crate::model_arg::ModelArg;
use crate::terminal::Terminal;
use crate::timing::{time_call, to_millis};
use crate::{human, symbols};

/// Options for preparing a model to run.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct SessionArgs {
    /// Number of threads; by default one per processor
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    /// Optimization level of the graph
    #[arg(long, value_enum, default_value_t = Level::All, value_name = "LEVEL")]
    optimization: Level,
    /// Skip a rewrite of the program. May be repeated
    #[arg(long, value_name = "REWRITE", value_parser = make_rewrite_parser())]
    without_rewrite: Vec<String>,
    /// Arithmetic of matrix products
    #[arg(long, value_enum, default_value_t = Exactness::Exact, value_name = "KIND")]
    precision: Exactness,
    /// Maximum memory in addition to the values stored in the file, such as 512M; by default no
    /// limit
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    memory_limit: Option<u64>,
    /// Seed of random operators that have no seed attribute; by default random
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Keep weights in the mapped files, which processes share, instead of copying them. Each run
    /// first checks that the files have not changed
    #[arg(long)]
    mapped: bool,
    /// Refuse a model whose IR version is newer than the newest known one. By default it runs with
    /// a note, without the fields that are not known
    #[arg(long)]
    refuse_newer_ir: bool,
    #[command(flatten)]
    sizes: SizeArgs,
}

/// Notes on the terminal which parts of the model its IR version does not allow, but which take
/// effect all the same.
pub(crate) fn note_tolerated(model: &Model, terminal: &Terminal) {
    for finding in model.find_tolerated_violations() {
        terminal.note(&finding.fact);
    }
}

/// Sizes of dimensions that the model leaves open.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct SizeArgs {
    /// Set the size of a symbolic dimension of the inputs for all runs. INPUT[AXIS], such as x[0],
    /// sets a dimension without a name, for inputs that are filled
    #[arg(long, alias = "dim", value_name = "NAME=SIZE", value_parser = symbols::parse_size)]
    set: Vec<(String, i64)>,
}

/// Sizes of dimensions that `--set` gives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sizes {
    /// Sizes of symbolic dimensions by name, which the session fixes.
    pub(crate) fixed: Vec<(String, usize)>,
    /// Sizes of unnamed dimensions of inputs that are filled.
    pub(crate) open: Vec<OpenDim>,
}

/// Opened model with a session for it.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) session: Session,
    pub(crate) sizes: Sizes,
    /// Model with the training information if `model` is one of its training steps, else `None`.
    pub(crate) trained: Option<Model>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    /// Run every node as written
    Off,
    /// Constant folding
    Basic,
    /// Constant folding, common subexpression elimination and fusion
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Exactness {
    /// Compute in the type of the operands
    Exact,
    /// Round large constant matrices to 16 bits, and use bfloat16 for products with many rows where
    /// that is faster
    Fast,
}

impl SizeArgs {
    /// Resolves the names of `--set` to symbolic dimensions and dimensions of graph inputs. Fails
    /// if a dimension of an input cannot be set.
    pub(crate) fn resolve(&self, model: &Model) -> Result<Sizes, Failure> {
        let mut sizes = Sizes::default();
        let inputs = model.inputs();
        for (name, size) in &self.set {
            let size = usize::try_from(*size).unwrap_or(usize::MAX);
            match symbols::find_open_dim(&inputs, name, size)? {
                Some(open) => sizes.open.push(open),
                None => sizes.fixed.push((name.clone(), size)),
            }
        }
        Ok(sizes)
    }
}

impl Sizes {
    /// Returns options that fill inputs with these sizes.
    pub(crate) fn to_fill_options(&self) -> FillOptions {
        let mut options = FillOptions::new();
        for (name, size) in &self.fixed {
            options = options.dim(name, *size);
        }
        for OpenDim { input, axis, size } in &self.open {
            options = options.open_dim(input, *axis, *size);
        }
        options
    }
}

impl SessionArgs {
    /// Returns the value of `--seed`; `None` without the option.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Opens the model and prepares a session, and reports the times with `--verbose`. With
    /// `only_looks` the session can be inspected, but not run.
    pub(crate) fn open(
        &self,
        model: &ModelArg,
        only_looks: bool,
        terminal: &Terminal,
    ) -> Result<Opened, Failure> {
        self.open_with(model, None, terminal, &|builder| {
            if only_looks { builder.inspect_only() } else { builder }
        })
    }

    /// Opens the model, changes it with `change`, and prepares a session for the changed model.
    /// `configure` sets more options of the session.
    pub(crate) fn open_changed<T>(
        &self,
        model: &ModelArg,
        configure: &dyn for<'m> Fn(SessionBuilder<'m>) -> SessionBuilder<'m>,
        terminal: &Terminal,
        change: impl FnOnce(Model) -> Result<(Model, T), Failure>,
    ) -> Result<(Opened, T), Failure> {
        let (opened, opening) = time_call(|| self.open_file(model));
        let (changed, found) = change(opened?)?;
        let opened = self.prepare_session(model, changed, opening, terminal, configure)?;
        Ok((opened, found))
    }

    /// Opens the model and prepares a session for its main graph, or for the training step of the
    /// entry `step`.
    pub(crate) fn open_step(
        &self,
        model: &ModelArg,
        step: Option<usize>,
        terminal: &Terminal,
    ) -> Result<Opened, Failure> {
        self.open_with(model, step, terminal, &|builder| builder)
    }

    /// Opens the model, or the training step of the entry `step`, and prepares a session that can
    /// be inspected, but not run: nothing large is computed or packed. With `after`, its program is
    /// the one after the rewrite of this name.
    pub(crate) fn open_to_inspect(
        &self,
        model: &ModelArg,
        step: Option<usize>,
        after: Option<&str>,
        terminal: &Terminal,
    ) -> Result<Opened, Failure> {
        self.open_with(model, step, terminal, &|builder| match after {
            Some(after) => builder.inspect_only().print_after(after),
            None => builder.inspect_only(),
        })
    }

    /// Opens the model without preparing a session.
    fn open_file(&self, model: &ModelArg) -> Result<Model, Failure> {
        let access = if self.mapped { Access::Share } else { Access::Map };
        model.open_with(OpenOptions::new().access(access))
    }

    /// Opens the model, or the training step of the entry `step`, and prepares a session with the
    /// options that `configure` sets.
    fn open_with(
        &self,
        model: &ModelArg,
        step: Option<usize>,
        terminal: &Terminal,
        configure: &dyn for<'m> Fn(SessionBuilder<'m>) -> SessionBuilder<'m>,
    ) -> Result<Opened, Failure> {
        let (opened, opening) = time_call(|| self.open_file(model));
        let (opened, trained) = match (opened?, step) {
            (model, Some(entry)) => (model.training_step(entry)?, Some(model)),
            (model, None) => (model, None),
        };
        let opened = self.prepare_session(model, opened, opening, terminal, configure)?;
        Ok(Opened { trained, ..opened })
    }

    /// Prepares a session for `model`. `arg` names the model in errors; `opening` is the time that
    /// opening took.
    fn prepare_session(
        &self,
        arg: &ModelArg,
        model: Model,
        opening: Duration,
        terminal: &Terminal,
        configure: &dyn for<'m> Fn(SessionBuilder<'m>) -> SessionBuilder<'m>,
    ) -> Result<Opened, Failure> {
        // The model is read after runs, which may take so long that its file has changed.
        let model = model.with_own_structure()?;
        let sizes = self.sizes.resolve(&model)?;
        let spinner = terminal.progress("preparing", None);
        let (session, preparing) =
            time_call(|| configure(self.make_builder(&model, &sizes)).build());
        spinner.finish_and_clear();
        let session = session.map_err(|error| {
            let from_stdin = arg.is_stdin();
            let has_no_directory = from_stdin && error.kind() == ErrorKind::ExternalData;
            let failure = Failure::from(error);
            match (from_stdin, has_no_directory) {
                (_, true) => {
                    failure.help("pass the model as a file in the directory of its data files")
                }
                (true, false) => failure,
                (false, _) => failure.at(arg.name()),
            }
        })?;
        note_tolerated(&model, terminal);
        terminal.detail(&format!(
            "opened in {:.3} ms, prepared in {:.3} ms, {} threads",
            to_millis(opening),
            to_millis(preparing),
            session.threads()
        ));
        Ok(Opened { model, session, sizes, trained: None })
    }

    /// Prepares the model to run on the devices of one of its device configurations.
    pub(crate) fn prepare_devices(
        &self,
        model: &Model,
        sizes: &Sizes,
        options: DeviceOptions,
    ) -> Result<DeviceSession, Failure> {
        Ok(self.make_builder(model, sizes).devices(options)?)
    }

    /// Creates the builder of a trainer with the session options of the command line. Fails with
    /// `--mapped`.
    pub(crate) fn build_trainer<'m>(
        &self,
        model: &'m Model,
    ) -> Result<TrainerBuilder<'m>, Failure> {
        if self.mapped {
            let failure = Failure::new(
                "--mapped cannot be used for training, which keeps a copy of the model",
            );
            return Err(failure.help("remove --mapped"));
        }
        let sizes = self.sizes.resolve(model)?;
        Ok(Trainer::builder(model).session(|_| self.make_builder(model, &sizes)))
    }

    /// Creates the builder of a session with the options of the command line.
    fn make_builder<'m>(&self, model: &'m Model, sizes: &Sizes) -> SessionBuilder<'m> {
        let builder = self.configure(Session::builder(model));
        let sizes = sizes.fixed.iter();
        sizes.fold(builder, |builder, (name, size)| builder.dim(name, *size))
    }

    /// Sets the options of the command line except sizes.
    pub(crate) fn configure<'m>(&self, builder: SessionBuilder<'m>) -> SessionBuilder<'m> {
        let mut builder = builder
            .optimization(match self.optimization {
                Level::Off => Optimization::Off,
                Level::Basic => Optimization::Basic,
                Level::All => Optimization::All,
            })
            .precision(match self.precision {
                Exactness::Exact => Precision::Exact,
                Exactness::Fast => Precision::Fast,
            });
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(limit) = self.memory_limit {
            builder = builder.memory_limit(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        if self.refuse_newer_ir {
            builder = builder.refuse_newer_ir();
        }
        for name in &self.without_rewrite {
            builder = builder.without_rewrite(name);
        }
        builder
    }
}

/// Returns an argument parser that accepts the names of all rewrites.
fn make_rewrite_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(sardonyx::tool::rewrites().map(|(name, _)| name))
}

/// Parses a number of threads. Refuses more than 1024, as each costs memory and no machine runs so
/// many at once.
pub(crate) fn parse_threads(arg: &str) -> Result<usize, String> {
    match arg.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("expected a number of threads from 1 to 1024".to_string()),
    }
}
