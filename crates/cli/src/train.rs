//! `sardonyx train`: runs the training steps that a model contains.

mod data;

use std::path::PathBuf;
use std::time::Duration;

use sardonyx::device::DeviceOptions;
use sardonyx::io::Weights;
use sardonyx::tool::{CastOptions, ModelExt, cast};
use sardonyx::{DataType, Error, Model, Outputs, SaveOptions, Trainer};
use serde_json::json;

use crate::failure::Failure;
use crate::files::{self, Protected};
use crate::human::{format_count, parse_positive};
use crate::model_arg::ModelArg;
use crate::saving;
use crate::session::SessionArgs;
use crate::stopping::{self, StopArgs};
use crate::terminal::Terminal;
use data::Data;

/// Train a model with the training information that it contains
///
/// Each step runs the main graph and then the algorithms of all entries, and assigns their results
/// to state variables. Scalar outputs, such as a loss, are shown for each step. On Ctrl-C, when the
/// process is terminated (SIGTERM), or if a step fails, what has been trained so far is saved.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Input data: a .npz file with an array for each input, or a directory of .npy files
    #[arg(long, value_name = "FILE|DIRECTORY")]
    data: Option<PathBuf>,
    /// Convert arrays to the element types that the model expects
    #[arg(long)]
    cast: bool,
    /// Split the data along the first axis into batches of N examples; by default each step gets
    /// all data
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    batch: Option<u64>,
    /// Pass this input to each step whole, without splitting it into batches. May be repeated.
    /// Scalars are never split
    #[arg(long, value_name = "INPUT", requires = "batch")]
    whole: Vec<String>,
    /// Number of steps; by default those of --epochs
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    steps: Option<u64>,
    /// Number of passes over the data; one that an earlier command with --state began is finished
    /// and counts [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    epochs: Option<u64>,
    /// Learning rate of the steps: the value of their input 'learning_rate', which `sardonyx
    /// add-training` adds. By default the one that was given to add-training
    #[arg(long, value_name = "NUMBER", value_parser = parse_rate)]
    learning_rate: Option<f64>,
    /// Run only the algorithm of this entry of the training information, from 0; by default all
    #[arg(long, value_name = "I")]
    entry: Option<usize>,
    /// Shuffle the examples in each epoch; --seed sets the order
    #[arg(long, requires = "batch")]
    shuffle: bool,
    /// Start from the initialization that the model describes instead of the stored values
    #[arg(long)]
    initialize: bool,
    /// After each epoch, show the mean outputs of steps on these data, without training on them
    #[arg(long, value_name = "FILE|DIRECTORY")]
    eval: Option<PathBuf>,
    /// File of the training state, .npz or .safetensors: read at the start if it exists, written at
    /// the end. Training goes on where it was, also in the data
    #[arg(long, value_name = "FILE", conflicts_with = "initialize")]
    state: Option<PathBuf>,
    /// Write the trained model without training information
    #[arg(long)]
    inference: bool,
    /// Show only every Nth step; 0 shows none
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: u64,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    session: SessionArgs,
    /// Run steps on the devices of a configuration of the model: each is a thread with its part of
    /// the model and of the state. The results are the same, except for the rounding of sums.
    /// --threads counts the threads of each device; by default the processors are divided among the
    /// devices
    #[arg(long)]
    devices: bool,
    /// Name of the device configuration; by default the only one of the model
    #[arg(long, value_name = "NAME", requires = "devices")]
    configuration: Option<String>,
    /// Seconds that a device waits for a message of another one
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "devices", value_parser = parse_positive)]
    device_timeout: u64,
    #[command(flatten)]
    stopping: StopArgs,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.train/1";

/// Learning rate above which a note warns, because a larger rate is mostly a mistake.
const LARGE_RATE: f64 = 10.0;

/// Runs `sardonyx train`. Saves the state and the model even if a later step fails.
pub(crate) fn train(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let model = args.model.open()?;
    let target = match (args.saving.is_wanted(), &args.state) {
        (false, Some(_)) => None,
        _ => Some(args.saving.target(&args.model, &model)?),
    };
    args.check_places(&model, target.as_ref())?;
    let mut trainer = args.build_trainer(&model)?;
    args.check_writing(&trainer, target.as_ref())?;
    let entries = match args.entry {
        Some(entry) => vec![entry],
        None => (0..trainer.entries()).collect(),
    };
    let data = Data::read(args.data.as_deref(), &trainer, &entries, args.cast)?;
    let mut data = data.split_into_batches(args.batch, &args.whole, &trainer, &entries)?;
    if let Some(rate) = args.learning_rate {
        data.set_learning_rate(rate, &trainer, &entries)?;
        if rate > LARGE_RATE {
            terminal.note(&format!(
                "the learning rate {rate:?} is large: most models need a rate below 1"
            ));
        }
    }
    let eval = match &args.eval {
        Some(path) => {
            let data = Data::read(Some(path), &trainer, &entries, args.cast)?;
            Some(data.split_into_batches(args.batch, &args.whole, &trainer, &entries)?)
        }
        None => None,
    };
    for warning in trainer.warnings() {
        terminal.note(warning);
    }
    args.load_state(&mut trainer, &model, &data, terminal)?;
    if let Some(left) = data.count_left_out() {
        let left = format_count(left, "example");
        terminal.note(&format!("{left} of each epoch are omitted: an input has a fixed size"));
    }
    let mut course = Course {
        args,
        trainer,
        entries,
        terminal,
        steps: 0,
        history: Vec::new(),
        means: Vec::new(),
        not_finite: None,
    };
    stopping::catch_termination();
    let ended = course.run(&data, eval.as_ref());
    if ended.is_err() && course.steps == 0 {
        return ended;
    }
    course.save(&model, target, ended)
}

/// Parses a learning rate: a finite number of at least 0.
fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate < 0.0 => {
            Err("a learning rate is not negative: steps would increase the loss".to_string())
        }
        Ok(rate) if rate.is_finite() => Ok(rate),
        _ => Err("a learning rate is a number, such as 0.001".to_string()),
    }
}

impl Args {
    /// Refuses outputs that would overwrite an input, before training begins.
    fn check_places(&self, model: &Model, target: Option<&saving::Target>) -> Result<(), Failure> {
        let mut data = Vec::new();
        for path in self.data.iter().chain(&self.eval) {
            data.extend(data::list_files(path)?);
        }
        let inputs = saving::protect_inputs(&self.model, model, &data);
        if let Some(state) = &self.state {
            inputs.check(state)?;
            if state.is_dir() {
                let message = format!("'{}' is a directory", state.display());
                return Err(Failure::new(message).help("give a .npz or .safetensors file"));
            }
            files::check_parent(state)?;
        }
        let Some(saving::Target::File(path)) = target else { return Ok(()) };
        if self.state.as_deref().is_some_and(|state| files::is_same_place(state, path)) {
            let message =
                format!("'{}' would be the file of both the state and the model", path.display());
            return Err(
                Failure::new(message).help("choose another file for the model with --output")
            );
        }
        // The model is not among the protected files, because --in-place replaces it.
        let mut read = Protected::default();
        data.iter().chain(&self.state).for_each(|path| read.add(path));
        read.check(path)
    }

    /// Refuses outputs that cannot be written, before training begins.
    fn check_writing(
        &self,
        trainer: &Trainer,
        target: Option<&saving::Target>,
    ) -> Result<(), Failure> {
        if let Some(state) = &self.state {
            trainer.check_save(state)?;
        }
        match target {
            Some(saving::Target::File(path)) => files::check_writable(path),
            _ => Ok(()),
        }
    }

    /// Builds a trainer whose steps return the outputs that may be shown.
    fn build_trainer(&self, model: &Model) -> Result<Trainer, Failure> {
        let mut builder = self.session.build_trainer(model)?.outputs(find_outputs_to_show(model));
        if self.devices {
            let deadline = Duration::from_secs(self.device_timeout);
            let options = DeviceOptions::new().deadline(deadline);
            builder = builder.devices(match &self.configuration {
                Some(name) => options.configuration(name),
                None => options,
            });
        }
        builder.build().map_err(|error| saving::at_model(&self.model, error))
    }

    /// Loads or initializes the state that training begins with.
    fn load_state(
        &self,
        trainer: &mut Trainer,
        model: &Model,
        data: &Data,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let has_initialization =
            model.training_entries().iter().any(|entry| entry.initialization.is_some());
        match &self.state {
            Some(path) if path.exists() => {
                trainer.load(path)?;
                let place = format_position(trainer, data);
                terminal.remark(&format!("starting from the state in {}{place}", path.display()));
                if let Some(seed) = self.session.seed().filter(|seed| *seed != trainer.seed()) {
                    terminal.note(&format!(
                        "--seed {seed} is not used: training goes on with the seed {} of the state",
                        trainer.seed()
                    ));
                }
            }
            _ if self.initialize => trainer.initialize(&self.stopping.to_run_options())?,
            _ if has_initialization => terminal.note(
                "training starts from the stored values; --initialize starts from the model's initialization",
            ),
            _ => {}
        }
        Ok(())
    }
}

/// Formats the position in the data at which training goes on, for the end of a line. Empty at the
/// start of the data.
fn format_position(trainer: &Trainer, data: &Data) -> String {
    let Position { epoch, taken } = Position::from_trainer(trainer, data);
    let epochs = format_count(usize::try_from(epoch).unwrap_or(usize::MAX), "epoch");
    match (epoch, taken) {
        (0, 0) => String::new(),
        (_, 0) => format!(", after {epochs}"),
        (0, _) => format!(", after {}", format_count(taken, "example")),
        _ => format!(", after {epochs} and {}", format_count(taken, "example")),
    }
}

/// Returns the names of the outputs of training steps that are not assigned to state variables.
pub(crate) fn find_outputs_to_show(model: &Model) -> Vec<String> {
    let entries = model.training_entries();
    let bindings = entries.iter().flat_map(|entry| &entry.update_binding);
    let assigned: Vec<&String> = bindings.map(|(_, value)| value).collect();
    let main = model.outputs().into_iter().map(|port| port.name().to_string());
    let outputs = entries.iter().flat_map(|entry| entry.outputs.iter().cloned()).chain(main);
    outputs.filter(|name| !assigned.contains(&name)).collect()
}

/// Outputs with one element, by name.
type Numbers = Vec<(String, f64)>;

/// Position of training in the data: the epoch and the examples of it.
struct Position {
    epoch: u64,
    /// Number of examples of the epoch that have been used. At least one batch of the epoch is
    /// left.
    taken: usize,
}

impl Position {
    /// Returns the position of a trainer in the data. The state of the trainer may come from other
    /// data, so the position may move to the next epoch of `data`.
    fn from_trainer(trainer: &Trainer, data: &Data) -> Position {
        let known = trainer.data_position();
        let mut position = Position { epoch: known.epochs, taken: 0 };
        position.advance(usize::try_from(known.examples).unwrap_or(usize::MAX), data);
        position
    }

    /// Moves the position by `examples` examples, and to the next epoch if the epoch has no batch
    /// left.
    fn advance(&mut self, examples: usize, data: &Data) {
        self.taken = self.taken.saturating_add(examples);
        if data.count_batches_after(self.taken) == 0 {
            (self.epoch, self.taken) = (self.epoch.saturating_add(1), 0);
        }
    }
}

/// Scalar outputs of one entry of the training information in a step, or their means over an
/// evaluation.
struct Record {
    /// Number of training steps that had run.
    step: u64,
    /// Index of the entry of the training information.
    entry: usize,
    numbers: Numbers,
}

impl Record {
    /// Converts the outputs of an entry to JSON.
    fn json(&self) -> serde_json::Value {
        let numbers = self.numbers.iter().map(|(name, number)| (name.clone(), json!(number)));
        let numbers: serde_json::Map<_, _> = numbers.collect();
        json!({"step": self.step, "entry": self.entry, "outputs": numbers})
    }
}

/// Scalar output that is NaN or infinite.
struct NotFinite {
    /// Number of the training step, from 1.
    step: u64,
    entry: usize,
    output: String,
}

/// Training run of the command, with its results so far.
struct Course<'a> {
    args: &'a Args,
    trainer: Trainer,
    /// Entries of the training information whose algorithms a step runs.
    entries: Vec<usize>,
    terminal: &'a Terminal,
    /// Number of training steps that have run.
    steps: u64,
    /// Outputs of the steps that were shown on the terminal.
    history: Vec<Record>,
    /// Mean outputs of each evaluation.
    means: Vec<Record>,
    /// First output that was NaN or infinite.
    not_finite: Option<NotFinite>,
}

impl Course<'_> {
    /// Runs the training steps, beginning at the trainer's position in the data.
    fn run(&mut self, data: &Data, eval: Option<&Data>) -> Result<(), Failure> {
        let mut position = Position::from_trainer(&self.trainer, data);
        let first = data.count_batches_after(position.taken) as u64;
        let steps = match (self.args.steps, self.args.epochs.unwrap_or(1)) {
            (Some(steps), _) => steps,
            (None, epochs) => {
                (epochs - 1).saturating_mul(data.count_batches() as u64).saturating_add(first)
            }
        };
        let seed = self.args.shuffle.then_some(self.trainer.seed());
        let bar = self.terminal.progress("training", Some(steps));
        while self.steps < steps {
            let examples = data.order_examples(seed, position.epoch);
            let epoch = position.epoch;
            while self.steps < steps && position.epoch == epoch {
                let inputs = data.make_batch(&examples, position.taken)?;
                self.run_step(&inputs)?;
                position.advance(inputs.examples(), data);
                self.trainer.set_data_position(position.epoch, position.taken as u64);
                bar.inc(1);
            }
            if let Some(eval) = eval {
                self.evaluate(eval)?;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Runs one training step of `--entry`, or of all entries, and shows its scalar outputs.
    fn run_step(&mut self, inputs: &data::Inputs) -> Result<(), Error> {
        let options = self.args.stopping.to_run_options();
        let returned = match self.args.entry {
            Some(entry) => {
                let inputs = inputs.for_entry(&self.trainer, entry)?;
                vec![self.trainer.step(entry, inputs, &options)?]
            }
            None => self.trainer.iterate(inputs.to_values(), &options)?,
        };
        self.steps += 1;
        let is_shown = self.args.every > 0 && self.steps.is_multiple_of(self.args.every);
        for (entry, outputs) in self.entries.clone().into_iter().zip(&returned) {
            let numbers = find_numbers(outputs);
            self.check_finite(entry, &numbers);
            if is_shown {
                self.show_numbers(&format!("step {}", self.steps), entry, &numbers);
                self.history.push(Record { step: self.steps, entry, numbers });
            }
        }
        Ok(())
    }

    /// Warns of the first output that is NaN or infinite. Later steps do not train: they mostly
    /// make every weight NaN.
    fn check_finite(&mut self, entry: usize, numbers: &Numbers) {
        let Some((name, number)) = numbers.iter().find(|(_, number)| !number.is_finite()) else {
            return;
        };
        if self.not_finite.is_some() {
            return;
        }
        let step = self.steps;
        let advice = if step == 1 {
            "check the data and the stored weights for NaN and infinity"
        } else {
            "use a lower --learning-rate, or `sardonyx add-training --clip-norm`, and check the data"
        };
        let what = if number.is_nan() { "NaN" } else { "infinite" };
        self.terminal.note(&format!(
            "the output '{name}' is {what} from step {step} on, and later steps do not train; {advice}"
        ));
        self.not_finite = Some(NotFinite { step, entry, output: name.clone() });
    }

    /// Shows the mean outputs of steps over `data`, without training on it.
    fn evaluate(&mut self, data: &Data) -> Result<(), Failure> {
        let examples = data.order_examples(None, 0);
        for entry in self.entries.clone() {
            let mut sums: Numbers = Vec::new();
            let mut weight = 0.0;
            let mut taken = 0;
            while data.count_batches_after(taken) > 0 {
                let inputs = data.make_batch(&examples, taken)?;
                taken += inputs.examples();
                let options = self.args.stopping.to_run_options();
                let given = inputs.for_entry(&self.trainer, entry)?;
                let outputs = self.trainer.evaluate(entry, given, &options)?;
                let size = inputs.examples() as f64;
                weight += size;
                for (index, (name, number)) in find_numbers(&outputs).into_iter().enumerate() {
                    match sums.get_mut(index) {
                        Some((_, sum)) => *sum += number * size,
                        None => sums.push((name, number * size)),
                    }
                }
            }
            sums.iter_mut().for_each(|(_, sum)| *sum /= weight);
            self.show_numbers(&format!("evaluation after step {}", self.steps), entry, &sums);
            self.means.push(Record { step: self.steps, entry, numbers: sums });
        }
        Ok(())
    }

    /// Prints the scalar outputs of an entry as one line on stderr.
    fn show_numbers(&self, what: &str, entry: usize, numbers: &Numbers) {
        if numbers.is_empty() {
            return;
        }
        let numbers: Vec<String> =
            numbers.iter().map(|(name, number)| format!("{name} {}", *number as f32)).collect();
        let numbers = numbers.join(", ");
        match self.trainer.entries() {
            1 => self.terminal.remark(&format!("{what}: {numbers}")),
            _ => self.terminal.remark(&format!("{what}, entry {entry}: {numbers}")),
        }
    }

    /// Writes the state and the model after training, each even if the other cannot be written.
    /// Returns the failure that ended training, or else the first failure of writing.
    fn save(
        self,
        model: &Model,
        target: Option<saving::Target>,
        ended: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Course { args, terminal, .. } = &self;
        if ended.is_err() {
            let steps = format_count(usize::try_from(self.steps).unwrap_or(usize::MAX), "step");
            terminal.remark(&format!("training ended after {steps}"));
        }
        let state = self.save_state(model);
        let saved = target.map(|target| self.save_model(target)).transpose();
        // With a JSON answer, the written files are part of it.
        let is_answered = args.saving.json && ended.is_ok() && state.is_ok();
        if let (false, Ok(Some(saved))) = (is_answered, &saved) {
            saved.print(terminal);
        }
        let state = match &saved {
            Ok(Some(_)) if !args.inference => state.map_err(|failure| {
                failure
                    .help_if_none("the written model has the trained values of the state variables")
            }),
            _ => state,
        };
        let (saved, unsaved) = match saved {
            Ok(saved) => (saved, None),
            Err(failure) => (None, Some(failure)),
        };
        // The first failure is the result of the command, the others are printed.
        let mut failures = ended.err().into_iter().chain(state.err()).chain(unsaved);
        if let Some(first) = failures.next() {
            failures.for_each(|failure| terminal.print_failure(&failure));
            return Err(first);
        }
        if args.saving.json {
            return terminal.json(&self.to_json(saved.as_ref()), true);
        }
        Ok(())
    }

    /// Writes the training state to the file of `--state`, if given.
    fn save_state(&self, model: &Model) -> Result<(), Failure> {
        let Course { args, trainer, terminal, .. } = self;
        if let Some(path) = &args.state {
            saving::protect_inputs(&args.model, model, &[]).check(path)?;
            trainer.save(path)?;
            terminal.remark(&format!("wrote {}", path.display()));
        }
        Ok(())
    }

    /// Writes the trained model, with `--inference` without training information.
    fn save_model(&self, target: saving::Target) -> Result<saving::Saved, Failure> {
        let Course { args, trainer, terminal, .. } = self;
        let trained =
            if args.inference { trainer.export_inference()? } else { trainer.export()? };
        args.saving.save(&args.model, &trained, SaveOptions::new(), Weights::Keep, target, terminal)
    }

    /// Converts the results of training to the JSON answer.
    fn to_json(&self, saved: Option<&saving::Saved>) -> serde_json::Value {
        json!({
            "schema": SCHEMA,
            "model": self.args.model.name(),
            "steps": self.steps,
            "seed": self.trainer.seed(),
            "history": self.history.iter().map(Record::json).collect::<Vec<_>>(),
            "evaluations": self.means.iter().map(Record::json).collect::<Vec<_>>(),
            "not_finite": self.not_finite.as_ref().map(|lost| {
                json!({"step": lost.step, "entry": lost.entry, "output": lost.output})
            }),
            "state": self.args.state,
            "saved": saved.map(saving::Saved::json),
        })
    }
}

/// Returns the outputs with one element, as numbers.
fn find_numbers(outputs: &Outputs) -> Numbers {
    let numbers = outputs.iter().filter_map(|(name, value)| {
        let tensor = value.as_tensor().filter(|tensor| tensor.len() == 1)?;
        let number = cast(tensor, DataType::Double, CastOptions::default()).ok()?;
        Some((name.to_string(), number.reshape([]).ok()?.item::<f64>().ok()?))
    });
    numbers.collect()
}
