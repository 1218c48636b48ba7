//! The options of a session, and making one.

use sardonyx::{ErrorKind, Model, Optimization, Precision, Session};

use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::timing::{millis, timed};
use crate::{ModelArg, human, symbols};

/// How a model is made ready to run.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct SessionArgs {
    /// Threads to use; by default one per processor
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    /// How much of the graph may change on the way
    #[arg(long, value_enum, default_value_t = Level::All, value_name = "LEVEL")]
    optimization: Level,
    /// How exact products are
    #[arg(long, value_enum, default_value_t = Exactness::Exact, value_name = "KIND")]
    precision: Exactness,
    /// Refuse to take more memory than this, beyond what the file stores
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    memory_limit: Option<u64>,
    /// Fix the size of a named dimension of the inputs for all runs
    #[arg(long, value_name = "NAME=SIZE", value_parser = symbols::parse)]
    set: Vec<(String, i64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    /// Every node runs as it is written
    Off,
    /// What depends on constants only is computed ahead of time
    Basic,
    /// Nodes that compute the same are done once, and nodes are fused, as well
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Exactness {
    /// In the type of the operands
    Exact,
    /// Large constant matrices are rounded to 16 bits, and products with many rows to bfloat16 where that is faster
    Fast,
}

impl SessionArgs {
    /// Opens the model and makes it ready, telling the curious how long that took.
    pub(crate) fn open(
        &self,
        model: &ModelArg,
        terminal: &Terminal,
    ) -> Result<(Model, Session), Failure> {
        self.open_for(model, terminal, false)
    }

    /// Opens the model and says what it becomes, without computing or packing anything large.
    pub(crate) fn look(
        &self,
        model: &ModelArg,
        terminal: &Terminal,
    ) -> Result<(Model, Session), Failure> {
        self.open_for(model, terminal, true)
    }

    fn open_for(
        &self,
        model: &ModelArg,
        terminal: &Terminal,
        only_look: bool,
    ) -> Result<(Model, Session), Failure> {
        let (opened, opening) = timed(|| model.open());
        let opened = opened?;
        let spinner = terminal.progress("preparing", None);
        let (session, preparing) = timed(|| self.build(&opened, only_look));
        spinner.finish_and_clear();
        let session = session.map_err(|error| {
            let from_stdin = model.is_stdin();
            let has_no_folder = from_stdin && error.kind() == ErrorKind::ExternalData;
            let failure = Failure::from(error);
            match (from_stdin, has_no_folder) {
                (_, true) => {
                    failure.help("give the model as a file, in the folder of its data files")
                }
                (true, false) => failure,
                (false, _) => failure.at(model.name()),
            }
        })?;
        terminal.detail(&format!(
            "opened in {:.3} ms, prepared in {:.3} ms, {} threads",
            millis(opening),
            millis(preparing),
            session.threads()
        ));
        Ok((opened, session))
    }

    fn build(&self, model: &Model, only_look: bool) -> Result<Session, sardonyx::Error> {
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
        if only_look {
            builder = builder.only_look();
        }
        for (name, size) in &self.set {
            builder = builder.dim(name, usize::try_from(*size).unwrap_or(usize::MAX));
        }
        builder.build()
    }
}

/// More threads than any machine has are a slip, and each costs memory.
pub(crate) fn parse_threads(arg: &str) -> Result<usize, String> {
    match arg.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("expected a number from 1 to 1024".to_string()),
    }
}
