//! `sardonyx print`: conversion of a model to ONNX text.

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use sardonyx::Model;
use sardonyx::text::{LeftOut, PrintOptions};
use sardonyx::tool::TextForm;

use crate::data_files::DataFiles;
use crate::failure::Failure;
use crate::human;
use crate::model_arg::ModelArg;
use crate::saving::{self, Target};
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Print a model as text
///
/// The text is complete: `sardonyx parse` converts it back to the same bytes. Values of more than
/// 128 bytes stay in the model file, and the text refers to them, so keep both files in the same
/// directory. If the text is written to another directory (-o), the values are copied to a file
/// beside it, also those in data files.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// File to write, or - for stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Write text that the onnx package can read, with all values. Reports what is omitted, and
    /// exits with 1 if the meaning changes
    #[arg(long)]
    portable: bool,
    /// Print digests instead of large values. For reading and comparing only; the text cannot be
    /// parsed
    #[arg(long)]
    no_weights: bool,
    /// Write tensors of up to SIZE into the text, such as 4K [default: 128 bytes]. `all` writes all
    /// values into the text, also those in data files
    #[arg(long, value_name = "SIZE", value_parser = parse_inline_limit)]
    inline: Option<u64>,
    /// Write the SHA-256 of values outside of the text; it is verified when the text is parsed
    #[arg(long, conflicts_with_all = ["portable", "no_weights"])]
    digest: bool,
    /// Copy large values to a file beside the text even if the text could refer to the model file
    #[arg(long, conflicts_with_all = ["portable", "no_weights"])]
    sidecar: bool,
    /// Print only nodes with this name, in all graphs and functions. May be repeated
    #[arg(long, value_name = "NAME")]
    node: Vec<String>,
    /// Print only nodes of the main graph at these positions: 3, 10..20, 10.., ..5. May be repeated
    #[arg(long, value_name = "RANGE", value_parser = parse_range)]
    range: Vec<Range<usize>>,
    /// Print only functions with this name. May be repeated
    #[arg(long, value_name = "NAME")]
    function: Vec<String>,
}

/// Parses the value of `--inline`: a size in bytes, or `all`.
fn parse_inline_limit(text: &str) -> Result<u64, String> {
    match text {
        "all" => Ok(u64::MAX),
        _ => human::parse_bytes(text),
    }
}

/// Parses a range of node positions: `3`, `10..20`, `10..` or `..5`.
fn parse_range(text: &str) -> Result<Range<usize>, String> {
    match text.split_once("..") {
        Some((start, end)) => Ok(parse_position(start, 0)?..parse_position(end, usize::MAX)?),
        None => {
            let at = parse_position(text, 0)?;
            Ok(at..at.saturating_add(1))
        }
    }
}

/// Parses one end of a range of positions; an empty text stands for `default`.
fn parse_position(text: &str, default: usize) -> Result<usize, String> {
    match text {
        "" => Ok(default),
        _ => text.parse().map_err(|_| format!("'{text}' is not the position of a node")),
    }
}

/// Runs `sardonyx print`. With `--portable`, a text with another meaning than the model is a
/// finding.
pub(crate) fn print(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = saving::parse_target(&args.output)?;
    if let Target::File(path) = &target {
        saving::protect_inputs(&args.model, &model, &[]).check(path)?;
    }
    let model = if args.has_to_copy_data(&model, &target) {
        model.with_values_inside().map_err(|error| saving::at_model(&args.model, error))?
    } else {
        model
    };
    let options = args.build_options(&target);
    let only_parts = !args.node.is_empty() || !args.range.is_empty() || !args.function.is_empty();
    let left_out = if only_parts {
        let (text, left_out) = args.print_parts(&options, &model)?;
        match &target {
            Target::Stdout => io::stdout().lock().write_all(&text)?,
            Target::File(path) => {
                crate::files::write(path, |file| Ok(file.write_all(&text)?))?;
            }
        }
        left_out
    } else {
        match &target {
            Target::Stdout => {
                let mut stdout = io::BufWriter::new(io::stdout().lock());
                let left_out = options.print(&model, &mut stdout)?;
                stdout.flush()?;
                left_out
            }
            Target::File(path) => {
                let sidecar = args.inline != Some(u64::MAX) && !args.portable;
                options.save(&model, path, sidecar)?
            }
        }
    };
    if args.portable && !left_out.is_empty() {
        let lines: Vec<String> = left_out.to_string().lines().map(String::from).collect();
        saving::note_left_out(&lines, terminal);
        if left_out.changes_meaning() {
            return Ok(Verdict::Findings);
        }
    }
    Ok(Verdict::Fine)
}

impl Args {
    /// Whether values in data files are copied into the text or into a file beside it: if an option
    /// requires it, or if the text cannot refer to the data files from its own directory.
    fn has_to_copy_data(&self, model: &Model, target: &Target) -> bool {
        let files = model.external_files();
        if files.is_empty() || self.no_weights {
            return false;
        }
        if self.portable || self.sidecar || self.inline == Some(u64::MAX) {
            return true;
        }
        let Target::File(text) = target else {
            // Text on stdout is meant to be saved in the directory of the model.
            return false;
        };
        if self.model.is_stdin() {
            return false;
        }
        let directory = find_directory(text);
        if fs::canonicalize(directory).ok()
            != fs::canonicalize(find_directory(&self.model.path)).ok()
        {
            return true;
        }
        // The model may be a symlink, with the data files in the directory of its target.
        let data = DataFiles::new(&self.model);
        files.iter().map(|file| file.location.as_str()).any(|location| {
            !directory.join(location).is_file() && !data.find_paths([location]).is_empty()
        })
    }

    /// Builds the options of printing, including whether the text refers to values in the model
    /// file.
    fn build_options(&self, target: &Target) -> PrintOptions {
        let mut options = PrintOptions::new();
        options = options.digests(self.digest);
        if let Some(bytes) = self.inline {
            options = options.inline_bytes(bytes);
        }
        if self.portable {
            options = options.form(TextForm::Portable);
        }
        if self.no_weights {
            return options.without_values();
        }
        if self.portable || self.sidecar {
            return options;
        }
        match find_relative_location(&self.model, target) {
            Some(location) => options.refer_to(location),
            None => options,
        }
    }

    /// Prints the functions and nodes that `--function`, `--node` and `--range` select. Fails if a
    /// name or a range selects none.
    fn print_parts(
        &self,
        options: &PrintOptions,
        model: &Model,
    ) -> Result<(Vec<u8>, LeftOut), Failure> {
        let mut parts = Vec::new();
        for name in &self.function {
            let part = options.print_functions(model, name)?;
            if part.0.is_empty() {
                return Err(Failure::new(format!("the model has no function '{name}'"))
                    .help("`sardonyx info` lists the functions of the model"));
            }
            parts.push(part);
        }
        for name in &self.node {
            let part = options.print_nodes(model, name)?;
            if part.0.is_empty() {
                return Err(Failure::new(format!("the model has no node '{name}'"))
                    .help("use --range to select nodes by position"));
            }
            parts.push(part);
        }
        for range in &self.range {
            let part = options.print_range(model, range.clone())?;
            if part.0.is_empty() {
                let count = human::format_count(model.node_count(), "node");
                return Err(Failure::new(format!(
                    "the main graph has no nodes at {}..{}",
                    range.start, range.end
                ))
                .help(format!("use positions of nodes in the main graph, which has {count}")));
            }
            parts.push(part);
        }
        let mut text = Vec::new();
        let mut left_out = LeftOut::default();
        for (part, omitted) in parts {
            text.extend_from_slice(&part);
            left_out.join(omitted);
        }
        Ok((text, left_out))
    }
}

/// Returns the directory of a file: `.` for a name without a directory.
fn find_directory(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns the path of the model file relative to the directory of the text; `None` if the file is
/// outside of this directory or the model is read from stdin.
fn find_relative_location(model: &ModelArg, target: &Target) -> Option<String> {
    if model.is_stdin() {
        return None;
    }
    let Target::File(text) = target else {
        // Text on stdout is meant to be saved in the directory of the model.
        return Some(model.path.file_name()?.to_str()?.to_string());
    };
    // Only the directory is canonicalized: a model that is a symlink keeps its own name.
    let parent = fs::canonicalize(find_directory(&model.path)).ok()?;
    let inside = parent.strip_prefix(fs::canonicalize(find_directory(text)).ok()?).ok()?;
    let location = inside.join(model.path.file_name()?);
    let parts: Option<Vec<&str>> =
        location.components().map(|part| part.as_os_str().to_str()).collect();
    Some(parts?.join("/"))
}
