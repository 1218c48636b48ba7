//! The options of a session, and making one.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use sardonyx::device::{DeviceOptions, DeviceSession};
use sardonyx::io::Access;
use sardonyx::run::{Optimization, Precision};
use sardonyx::tool::{ModelExt, SessionBuilderExt};
use sardonyx::{
    ErrorKind, Model, OpenOptions, Port, Session, SessionBuilder, Trainer, TrainerBuilder, Type,
};

use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::timing::{millis, timed};
use crate::{ModelArg, human, symbols};

/// How a model is made ready to run.
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
    #[arg(long, value_name = "REWRITE", value_parser = rewrite_names())]
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

/// Notes what the model has that its version of the format does not allow, and that counts all the
/// same.
pub(crate) fn note_tolerated(model: &Model, terminal: &Terminal) {
    for finding in model.find_tolerated() {
        terminal.note(&finding.fact);
    }
}

/// Sizes of dimensions that the model leaves open.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct SizeArgs {
    /// Set the size of a symbolic dimension of the inputs for all runs. INPUT[AXIS], such as x[0],
    /// sets a dimension without a name, for inputs that are filled
    #[arg(long, alias = "dim", value_name = "NAME=SIZE", value_parser = symbols::parse)]
    set: Vec<(String, i64)>,
}

/// What `--set` says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sizes {
    /// Sizes by name, which the session fixes.
    pub(crate) fixed: Vec<(String, usize)>,
    /// Sizes that have no name in the file, for inputs that are filled.
    pub(crate) open: Vec<OpenSize>,
}

/// The size of a dimension that has no name in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenSize {
    pub(crate) input: String,
    pub(crate) axis: usize,
    pub(crate) size: usize,
}

impl OpenSize {
    /// The dimension that `INPUT[AXIS]` means, which must be open; `None` for any other name.
    pub(crate) fn of(inputs: &[Port], name: &str, size: usize) -> Result<Option<Self>, Failure> {
        let port = input_and_axis(name).and_then(|(input, axis)| {
            let port = inputs.iter().find(|port| port.name() == input)?;
            Some((port, axis))
        });
        let Some((port, axis)) = port else { return Ok(None) };
        match port.ty().and_then(Type::shape).and_then(|shape| shape.get(axis)) {
            Some(dim) if dim.is_unknown() => {
                Ok(Some(OpenSize { input: port.name().to_string(), axis, size }))
            }
            Some(dim) => {
                let failure = Failure::new(format!("dimension {axis} of '{port}' is {dim}"));
                Err(match dim.as_symbol() {
                    Some(symbol) => failure.help(format!("set it by name: {symbol}={size}")),
                    None => failure.help("only dimensions without a fixed size can be set"),
                })
            }
            None => Err(Failure::new(format!("the input '{port}' has no known dimension {axis}"))),
        }
    }
}

/// `INPUT[AXIS]`
fn input_and_axis(text: &str) -> Option<(&str, usize)> {
    let (input, axis) = text.strip_suffix(']')?.rsplit_once('[')?;
    Some((input, axis.parse().ok()?))
}

/// A model that is ready to run.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) session: Session,
    pub(crate) sizes: Sizes,
    /// The model with training information, if `model` is one of its training steps.
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
    /// What `--set` says of this model.
    pub(crate) fn of(&self, model: &Model) -> Result<Sizes, Failure> {
        let mut sizes = Sizes::default();
        let inputs = model.inputs();
        for (name, size) in &self.set {
            let size = usize::try_from(*size).unwrap_or(usize::MAX);
            match OpenSize::of(&inputs, name, size)? {
                Some(open) => sizes.open.push(open),
                None => sizes.fixed.push((name.clone(), size)),
            }
        }
        Ok(sizes)
    }
}

impl SessionArgs {
    /// The seed that was given.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Opens the model and makes it ready, telling the curious how long that took. The session is
    /// only to look at, if `only_looks`.
    pub(crate) fn open(
        &self,
        model: &ModelArg,
        only_looks: bool,
        terminal: &Terminal,
    ) -> Result<Opened, Failure> {
        self.open_for((model, None), terminal, &|builder| {
            if only_looks { builder.only_look() } else { builder }
        })
    }

    /// The same for a model that is changed first, and with more options.
    pub(crate) fn open_changed<T>(
        &self,
        model: &ModelArg,
        how: &dyn for<'m> Fn(SessionBuilder<'m>) -> SessionBuilder<'m>,
        terminal: &Terminal,
        change: impl FnOnce(Model) -> Result<(Model, T), Failure>,
    ) -> Result<(Opened, T), Failure> {
        let (opened, opening) = timed(|| self.open_file(model));
        let (changed, found) = change(opened?)?;
        let opened = self.prepare((model, changed, opening), terminal, how)?;
        Ok((opened, found))
    }

    /// The same for the training step of an entry of the model, if one is given.
    pub(crate) fn open_step(
        &self,
        model: (&ModelArg, Option<usize>),
        terminal: &Terminal,
    ) -> Result<Opened, Failure> {
        self.open_for(model, terminal, &|builder| builder)
    }

    /// Opens the model and says what it becomes, without computing or packing anything large. The
    /// program is printed `after` a rewrite.
    pub(crate) fn look(
        &self,
        model: (&ModelArg, Option<usize>),
        after: Option<&str>,
        terminal: &Terminal,
    ) -> Result<Opened, Failure> {
        self.open_for(model, terminal, &|builder| match after {
            Some(after) => builder.only_look().print_after(after),
            None => builder.only_look(),
        })
    }

    /// Opens the model without making it ready.
    fn open_file(&self, model: &ModelArg) -> Result<Model, Failure> {
        let access = if self.mapped { Access::Share } else { Access::Map };
        model.open_with(OpenOptions::new().access(access))
    }

    fn open_for(
        &self,
        (model, step): (&ModelArg, Option<usize>),
        terminal: &Terminal,
        how: &dyn for<'m> Fn(SessionBuilder<'m>) -> SessionBuilder<'m>,
    ) -> Result<Opened, Failure> {
        let (opened, opening) = timed(|| self.open_file(model));
        let (opened, trained) = match (opened?, step) {
            (model, Some(entry)) => (model.training_step(entry)?, Some(model)),
            (model, None) => (model, None),
        };
        let opened = self.prepare((model, opened, opening), terminal, how)?;
        Ok(Opened { trained, ..opened })
    }

    /// Makes a model ready that took some time to open.
    fn prepare(
        &self,
        (model, opened, opening): (&ModelArg, Model, Duration),
        terminal: &Terminal,
        how: &dyn for<'m> Fn(SessionBuilder<'m>) -> SessionBuilder<'m>,
    ) -> Result<Opened, Failure> {
        // The model is looked at after runs, which may take long.
        let opened = opened.with_own_structure()?;
        let sizes = self.sizes.of(&opened)?;
        let spinner = terminal.progress("preparing", None);
        let (session, preparing) = timed(|| how(self.builder(&opened, &sizes)).build());
        spinner.finish_and_clear();
        let session = session.map_err(|error| {
            let from_stdin = model.is_stdin();
            let has_no_directory = from_stdin && error.kind() == ErrorKind::ExternalData;
            let failure = Failure::from(error);
            match (from_stdin, has_no_directory) {
                (_, true) => {
                    failure.help("pass the model as a file in the directory of its data files")
                }
                (true, false) => failure,
                (false, _) => failure.at(model.name()),
            }
        })?;
        note_tolerated(&opened, terminal);
        terminal.detail(&format!(
            "opened in {:.3} ms, prepared in {:.3} ms, {} threads",
            millis(opening),
            millis(preparing),
            session.threads()
        ));
        Ok(Opened { model: opened, session, sizes, trained: None })
    }

    /// The model on the devices of one of its configurations.
    pub(crate) fn on_devices(
        &self,
        model: &Model,
        sizes: &Sizes,
        options: DeviceOptions,
    ) -> Result<DeviceSession, Failure> {
        Ok(self.builder(model, sizes).devices(options)?)
    }

    /// A trainer with these options.
    pub(crate) fn trainer<'m>(&self, model: &'m Model) -> Result<TrainerBuilder<'m>, Failure> {
        if self.mapped {
            let failure = Failure::new("--mapped is for runs: training keeps a copy of the model");
            return Err(failure.help("remove --mapped"));
        }
        let sizes = self.sizes.of(model)?;
        Ok(Trainer::builder(model).session(|_| self.builder(model, &sizes)))
    }

    fn builder<'m>(&self, model: &'m Model, sizes: &Sizes) -> SessionBuilder<'m> {
        let mut builder = Session::builder(model)
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
        for (name, size) in &sizes.fixed {
            builder = builder.dim(name, *size);
        }
        for name in &self.without_rewrite {
            builder = builder.without_rewrite(name);
        }
        builder
    }
}

/// The names of all rewrites.
fn rewrite_names() -> PossibleValuesParser {
    PossibleValuesParser::new(sardonyx::tool::rewrites().map(|(name, _)| name))
}

/// More threads than any machine has are a slip, and each costs memory.
pub(crate) fn parse_threads(arg: &str) -> Result<usize, String> {
    match arg.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("expected a number from 1 to 1024".to_string()),
    }
}
