//! `sardonyx print`: a model as text.

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use sardonyx::Model;
use sardonyx::text::{LeftOut, PrintOptions};
use sardonyx::tool::TextForm;

use crate::data_files::DataFiles;
use crate::failure::Failure;
use crate::saving::{self, Target};
use crate::terminal::Terminal;
use crate::{ModelArg, Verdict, human};

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
    #[arg(long, value_name = "SIZE", value_parser = parse_inline)]
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

fn parse_inline(text: &str) -> Result<u64, String> {
    match text {
        "all" => Ok(u64::MAX),
        _ => human::parse_bytes(text),
    }
}

fn parse_range(text: &str) -> Result<Range<usize>, String> {
    let number = |text: &str, absent| match text {
        "" => Ok(absent),
        _ => text.parse::<usize>().map_err(|_| format!("'{text}' is not a position")),
    };
    match text.split_once("..") {
        Some((start, end)) => Ok(number(start, 0)?..number(end, usize::MAX)?),
        None => {
            let at = number(text, 0)?;
            Ok(at..at.saturating_add(1))
        }
    }
}

pub(crate) fn print(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = saving::target_of(&args.output)?;
    if let Target::File(path) = &target {
        saving::protect_inputs(&args.model, &model, &[]).check(path)?;
    }
    let model = if args.takes_data_files(&model, &target) {
        model.with_values_inside().map_err(|error| saving::at_model(&args.model, error))?
    } else {
        model
    };
    let options = args.options(&target);
    let only_parts = !args.node.is_empty() || !args.range.is_empty() || !args.function.is_empty();
    let left_out = if only_parts {
        let (text, left_out) = args.parts(&options, &model)?;
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
        saving::left_out(&lines, terminal);
        if left_out.changes_meaning() {
            return Ok(Verdict::Findings);
        }
    }
    Ok(Verdict::Fine)
}

impl Args {
    /// Whether values in data files go into the text, or into a file beside it: if that is asked
    /// for, or if the text could not refer to them.
    fn takes_data_files(&self, model: &Model, target: &Target) -> bool {
        let files = model.external_files();
        if files.is_empty() || self.no_weights {
            return false;
        }
        if self.portable || self.sidecar || self.inline == Some(u64::MAX) {
            return true;
        }
        let Target::File(text) = target else {
            // It belongs beside the model.
            return false;
        };
        if self.model.is_stdin() {
            return false;
        }
        let directory = directory_of(text);
        if fs::canonicalize(directory).ok() != fs::canonicalize(directory_of(&self.model.path)).ok()
        {
            return true;
        }
        // A model that is a link may have its data files beside the file that it leads to.
        let data = DataFiles::new(&self.model);
        files.iter().map(|file| file.location.as_str()).any(|location| {
            !directory.join(location).is_file() && !data.paths([location]).is_empty()
        })
    }

    fn options(&self, target: &Target) -> PrintOptions {
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
        match location(&self.model, target) {
            Some(location) => options.refer_to(location),
            None => options,
        }
    }

    fn parts(&self, options: &PrintOptions, model: &Model) -> Result<(Vec<u8>, LeftOut), Failure> {
        let mut text = Vec::new();
        let mut left_out = LeftOut::default();
        let mut add = |found: (Vec<u8>, LeftOut), what: &dyn Fn() -> Failure| {
            if found.0.is_empty() {
                return Err(what());
            }
            text.extend_from_slice(&found.0);
            left_out.join(found.1);
            Ok(())
        };
        for name in &self.function {
            add(options.print_functions(model, name)?, &|| {
                Failure::new(format!("the model has no function '{name}'"))
                    .help("sardonyx info lists its functions")
            })?;
        }
        for name in &self.node {
            add(options.print_nodes(model, name)?, &|| {
                Failure::new(format!("the model has no node '{name}'"))
                    .help("use --range to select nodes by position")
            })?;
        }
        for range in &self.range {
            add(options.print_range(model, range.clone())?, &|| {
                let count = model.node_count();
                Failure::new(format!("no nodes at {}..{}", range.start, range.end)).help(format!(
                    "use positions in the main graph, which has {}",
                    human::count(count, "node")
                ))
            })?;
        }
        Ok((text, left_out))
    }
}

/// The directory that a file is in.
fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// What the model's file is called from the directory of the text; `None` if it lies outside of it.
fn location(model: &ModelArg, target: &Target) -> Option<String> {
    if model.is_stdin() {
        return None;
    }
    let Target::File(text) = target else {
        // It belongs beside the model.
        return Some(model.path.file_name()?.to_str()?.to_string());
    };
    // The name by which the file was given, in its real directory: a link stays one.
    let parent = fs::canonicalize(directory_of(&model.path)).ok()?;
    let inside = parent.strip_prefix(fs::canonicalize(directory_of(text)).ok()?).ok()?;
    let location = inside.join(model.path.file_name()?);
    let parts: Option<Vec<&str>> =
        location.components().map(|part| part.as_os_str().to_str()).collect();
    Some(parts?.join("/"))
}
