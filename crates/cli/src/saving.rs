//! Writing a changed model: its destination, the notes about it, and the JSON answer.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use sardonyx::io::{ModelFormat, SaveReport, Weights};
use sardonyx::tool::ModelExt;
use sardonyx::tool::shard::PrivateDirectory;
use sardonyx::{ErrorKind, Model, SaveOptions};
use serde_json::json;

use crate::data_files::DataFiles;
use crate::failure::Failure;
use crate::files::{self, Protected};
use crate::human::{format_bytes, format_count};
use crate::model_arg::{ModelArg, is_stdin};
use crate::objects::merge_objects;
use crate::terminal::Terminal;

/// Options for writing a changed model.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// File to write, or - for stdout. The file extension selects the format: .onnx (binary),
    /// .onnxtxt, .json or .onnxjson, .textproto; with another one the model is binary
    #[arg(short, long, value_name = "FILE", conflicts_with = "in_place")]
    output: Option<PathBuf>,
    /// Format of the written file, whatever its extension
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "in_place")]
    form: Option<ModelForm>,
    /// Replace MODEL, atomically, when the new model is complete
    #[arg(long)]
    in_place: bool,
    /// If FILE exists, also remove its data files, unless another model uses them. By default they
    /// are kept
    #[arg(long)]
    replace: bool,
    /// Flush everything to disk, so that a power failure leaves either the old or the new model
    #[arg(long)]
    sync: bool,
    /// Print in JSON what was written
    #[arg(long)]
    pub(crate) json: bool,
}

/// Model format by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ModelForm {
    /// Binary
    Onnx,
    /// ONNX text, with all values
    Onnxtxt,
    /// Protobuf JSON
    Json,
    /// Protobuf text format
    Textproto,
}

impl ModelForm {
    /// Returns the model format of this name.
    pub(crate) fn to_format(self) -> ModelFormat {
        match self {
            ModelForm::Onnx => ModelFormat::Binary,
            ModelForm::Onnxtxt => ModelFormat::Notation,
            ModelForm::Json => ModelFormat::Json,
            ModelForm::Textproto => ModelFormat::TextFormat,
        }
    }
}

/// Destination that a command writes a file to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    File(PathBuf),
    Stdout,
}

/// Returns the destination that a path on the command line names, where `-` stands for stdout.
/// Refuses devices and pipes, because the written file would replace them.
pub(crate) fn parse_target(path: &Path) -> Result<Target, Failure> {
    if is_stdin(path) {
        return Ok(Target::Stdout);
    }
    match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => {
            let message = format!("'{}' is not a regular file", path.display());
            Err(Failure::new(message).help("give a file, or - for stdout"))
        }
        _ => Ok(Target::File(path.to_path_buf())),
    }
}

/// Model that was written, with its data files.
pub(crate) struct Saved {
    target: Target,
    report: SaveReport,
    /// Locations of the data files of the input model that the written model also refers to.
    uses: Vec<String>,
}

impl Args {
    /// Whether `--output` or `--in-place` is given.
    pub(crate) fn is_wanted(&self) -> bool {
        self.in_place || self.output.is_some()
    }

    /// Returns the destination of the written model: `--output`, or the input file with
    /// `--in-place`. Fails if writing to it would replace another file that the command reads.
    pub(crate) fn target(&self, arg: &ModelArg, model: &Model) -> Result<Target, Failure> {
        if self.in_place {
            return if arg.is_stdin() {
                Err(Failure::new("a model from stdin cannot be replaced in place")
                    .help("pass the model as a file, or give --output FILE"))
            } else {
                Ok(Target::File(arg.path.clone()))
            };
        }
        self.target_at(self.output.as_deref(), arg, model)
    }

    /// Whether `--replace` is given.
    pub(crate) fn replaces_data(&self) -> bool {
        self.replace
    }

    /// Returns the path of `--output`; `None` without the option.
    pub(crate) fn output(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// Returns the destination of a model that is written to `path`. Fails without a path, and if
    /// writing would replace a file that the command reads.
    pub(crate) fn target_at(
        &self,
        path: Option<&Path>,
        arg: &ModelArg,
        model: &Model,
    ) -> Result<Target, Failure> {
        let path = path.ok_or_else(|| {
            Failure::new("no output file is given").help("give -o FILE or --in-place")
        })?;
        let target = parse_target(path)?;
        match &target {
            Target::Stdout => check_stdout(self.json, self.form.map(ModelForm::to_format))?,
            Target::File(path) => {
                let mut input = Protected::default();
                input.add(&arg.path);
                if input.check(path).is_err() {
                    let message = format!("the output '{}' is also the input file", path.display());
                    return Err(Failure::new(message)
                        .help("to replace the input file, use --in-place instead of --output"));
                }
                protect_data(arg, model).check(path)?;
                files::check_model_path(path)?;
            }
        }
        Ok(target)
    }

    /// Writes a model to `target`. Sets the format, the storage of weights and syncing in
    /// `options`.
    pub(crate) fn save(
        &self,
        arg: &ModelArg,
        model: &Model,
        options: SaveOptions,
        weights: Weights,
        target: Target,
        terminal: &Terminal,
    ) -> Result<Saved, Failure> {
        let options = options.weights(weights).sync(self.sync).replace(self.replace);
        let form = self.form.map(ModelForm::to_format);
        let options = match form {
            Some(form) => options.form(form),
            None => options,
        };
        if let Target::File(path) = &target
            && form.is_none()
            && self.output.is_some()
            && path.extension().is_some()
            && ModelFormat::from_path(path).is_none()
        {
            terminal.note(&format!(
                "the extension of '{}' selects no format: the model is written as binary ONNX; \
                 --form or .onnxtxt, .json, .textproto select another",
                path.display()
            ));
        }
        let report = match &target {
            Target::File(path) => save_to_file(arg, model, options, path, terminal),
            Target::Stdout => {
                let form = form.unwrap_or(ModelFormat::Binary);
                save_to_stdout(arg, model, options, weights, form, terminal)
            }
        }?;
        // A model that is written beside the old one keeps referring to its data files, which both
        // need from then on.
        let shares = self.output.is_some() && weights == Weights::Keep && report.files.is_empty();
        let uses = match &target {
            Target::File(_) if shares => {
                model.external_files().into_iter().map(|file| file.location).collect()
            }
            _ => Vec::new(),
        };
        Ok(Saved { target, report, uses })
    }
}

/// Collects the files that a command reads, so that it does not overwrite them: the model, its data
/// files, files that an ONNX text refers to, and `files`.
pub(crate) fn protect_inputs(arg: &ModelArg, model: &Model, files: &[PathBuf]) -> Protected {
    let mut protected = protect_data(arg, model);
    protected.add(&arg.path);
    let referred = model.list_text_sources();
    files.iter().chain(&referred).for_each(|file| protected.add(file));
    protected
}

/// Collects the data files of a model, so that a command does not overwrite them.
pub(crate) fn protect_data(arg: &ModelArg, model: &Model) -> Protected {
    let mut protected = Protected::default();
    let files = model.external_files();
    let locations = files.iter().map(|file| file.location.as_str());
    for path in DataFiles::new(arg).find_paths(locations) {
        protected.add(&path);
    }
    protected
}

/// Fails if stdout cannot take a model: with `--json` the answer goes there, and a terminal cannot
/// show binary data. A model is binary unless `form` is a text format.
pub(crate) fn check_stdout(json: bool, form: Option<ModelFormat>) -> Result<(), Failure> {
    if json {
        return Err(Failure::new("--json and the output cannot both be written to stdout")
            .help("give --output FILE, or remove --json"));
    }
    let is_text = form.is_some_and(|form| form != ModelFormat::Binary);
    if io::stdout().is_terminal() && !is_text {
        Err(Failure::new("binary data cannot be written to stdout, which is a terminal")
            .help("give --output FILE, or pipe the output to another program"))
    } else {
        Ok(())
    }
}

/// Saves a model to a file, and shows a progress bar.
pub(crate) fn save_to_file(
    arg: &ModelArg,
    model: &Model,
    options: SaveOptions,
    path: &Path,
    terminal: &Terminal,
) -> Result<SaveReport, Failure> {
    let bar = terminal.progress_bytes("writing", 0);
    let shown = bar.clone();
    let saved = options
        .progress(move |done, total| {
            shown.set_length(total);
            shown.set_position(done);
        })
        .save(model, path);
    bar.finish_and_clear();
    saved.map_err(|error| at_model(arg, error))
}

/// Writes a model to stdout. References to data files are unchanged, because the directory that the
/// output ends up in is unknown.
pub(crate) fn save_to_stdout(
    arg: &ModelArg,
    model: &Model,
    options: SaveOptions,
    weights: Weights,
    form: ModelFormat,
    terminal: &Terminal,
) -> Result<SaveReport, Failure> {
    let stays_outside = weights == Weights::Keep && !model.external_files().is_empty();
    if form == ModelFormat::Binary && weights == Weights::Keep {
        if stays_outside {
            terminal
                .note("values stay in data files; the written model needs these files beside it");
        }
        let mut report = SaveReport::default();
        let mut stdout = io::stdout().lock();
        report.bytes = model.write_to(&mut stdout)?;
        stdout.flush()?;
        return Ok(report);
    }
    if stays_outside {
        return Err(Failure::new(
            "the model has values in data files, which the output format cannot refer to",
        )
        .help("give --output FILE, or copy the values into the model first: sardonyx pack"));
    }
    let directory = PrivateDirectory::new().map_err(|error| {
        files::io_failure("cannot create a directory in", &std::env::temp_dir(), &error)
    })?;
    let path = directory.path().join("model");
    let report = save_to_file(arg, model, options.form(form), &path, terminal)?;
    let mut file =
        File::open(&path).map_err(|error| files::io_failure("cannot read", &path, &error))?;
    let mut stdout = io::stdout().lock();
    io::copy(&mut file, &mut stdout)?;
    stdout.flush()?;
    Ok(report)
}

/// Converts an error about a model to a failure that names the model. A model on stdin has no
/// directory with data files, so missing data files get advice.
pub(crate) fn at_model(arg: &ModelArg, error: sardonyx::Error) -> Failure {
    let kind = error.kind();
    let failure = Failure::from(error);
    match (kind, arg.is_stdin()) {
        (ErrorKind::ExternalData, true) => failure
            .at("standard input")
            .help("pass the model as a file in the directory of its data files"),
        (ErrorKind::ExternalData | ErrorKind::Invalid, _) => failure.at(arg.name()),
        _ => failure,
    }
}

impl Saved {
    /// Creates the record of a written model that shares no data files with the input model.
    pub(crate) fn new(target: Target, report: SaveReport) -> Saved {
        Saved { target, report, uses: Vec::new() }
    }

    /// Counts the data files that were written or kept for the model.
    pub(crate) fn count_data_files(&self) -> usize {
        self.report.files.len()
    }

    /// Lists on stderr the files that were written, kept or removed, with notes about them.
    pub(crate) fn print(&self, terminal: &Terminal) {
        if let Target::File(path) = &self.target {
            let size = format_bytes(self.report.bytes);
            terminal.remark(&format!("wrote {}, {size}", path.display()));
        }
        let files = self.report.files.iter().map(|file| {
            let what = if file.reused { "kept" } else { "wrote" };
            let (path, size) = (self.path_of(&file.location), format_bytes(file.bytes));
            format!("{what} {path}, {size}: {}", format_count(file.tensors, "tensor"))
        });
        print_first(files, "data file", terminal);
        let uses = self
            .uses
            .iter()
            .map(|location| format!("uses {}, as the old model does", self.path_of(location)));
        print_first(uses, "data file", terminal);
        let removed = self.report.removed.iter();
        let removed = removed.map(|name| format!("removed {name}, which only the old model used"));
        print_first(removed, "removed file", terminal);
        let shared = self.report.shared.iter();
        let shared = shared.map(|name| format!("kept {name}, which another model uses"));
        print_first(shared, "shared file", terminal);
        let left = self.report.left.iter();
        let left = left.map(|name| {
            format!("kept {name}, which the replaced model used; --replace removes it")
        });
        print_first(left, "data file", terminal);
        if self.report.exceeds_2_gib() {
            terminal.note(
                "the model file is larger than 2 GiB, which programs built on libprotobuf cannot read; \
                 sardonyx externalize keeps its values in data files",
            );
        }
        note_left_out(&self.report.left_out, terminal);
    }

    /// Returns the path of a data file at `location` in the directory of the written model.
    fn path_of(&self, location: &str) -> String {
        match &self.target {
            Target::File(path) => path.with_file_name(location).display().to_string(),
            Target::Stdout => location.to_string(),
        }
    }

    /// Converts the destination, sizes and files of the written model to JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let output = match &self.target {
            Target::File(path) => path.display().to_string(),
            Target::Stdout => "-".to_string(),
        };
        merge_objects(json!({"output": output}), json!(self.report))
    }
}

/// Prints the first 10 of `lines` on stderr, and the number of further lines with the noun `what`.
fn print_first(lines: impl ExactSizeIterator<Item = String>, what: &str, terminal: &Terminal) {
    const SHOWN: usize = 10;
    let more = lines.len().saturating_sub(SHOWN);
    lines.take(SHOWN).for_each(|line| terminal.remark(&line));
    if more > 0 {
        terminal.remark(&format!("… and {}", format_count(more, &format!("more {what}"))));
    }
}

/// Notes on the terminal which parts of a model or of values the format of the written file cannot
/// hold.
pub(crate) fn note_left_out(left_out: &[String], terminal: &Terminal) {
    const SHOWN: usize = 10;
    for what in left_out.iter().take(SHOWN) {
        terminal.note(&format!("omitted: {what}"));
    }
    if left_out.len() > SHOWN {
        terminal.note(&format!("omitted: {} more", left_out.len() - SHOWN));
    }
}
