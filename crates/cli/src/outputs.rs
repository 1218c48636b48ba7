//! Writing the outputs of a run to a file, to stdout, or to a directory of files.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sardonyx::io::write_value;
use sardonyx::tool::npy;
use sardonyx::{Outputs, Tensor, Value};

use crate::arrays::{self, Content, Format};
use crate::failure::Failure;
use crate::files::{self, Protected};
use crate::saving::{self, Target};
use crate::terminal::Terminal;

/// Advice for outputs that one file cannot hold. A directory can hold values of all types.
const TO_DIRECTORY: &str = "write the outputs to a directory: --output DIR";

/// Destination of the outputs of a run.
pub(crate) enum Place {
    /// One file in the format that its suffix names, or stdout.
    One(Target, Format),
    /// A directory, with a file for each output.
    Directory(PathBuf),
}

/// File that was written for one or all outputs.
pub(crate) struct WrittenOutput {
    pub(crate) path: PathBuf,
    /// Name of the output in the file; `None` if the file holds several outputs.
    pub(crate) output: Option<String>,
    /// Whether the name of the output was changed to get a valid file name.
    pub(crate) is_renamed: bool,
}

impl Place {
    /// Interprets the argument of `--output`: `-` is stdout, a name with the suffix of an array
    /// file is that file, any other name is a directory.
    pub(crate) fn from_path(path: &Path) -> Result<Place, Failure> {
        if path.is_dir() {
            return Ok(Place::Directory(path.to_path_buf()));
        }
        let target = saving::parse_target(path)?;
        match (&target, Format::from_path(path)) {
            (Target::Stdout, _) => Ok(Place::One(target, Format::Text)),
            (_, Some(format)) => Ok(Place::One(target, format)),
            (_, None) if path.is_file() => {
                let message = format!("'{}' is a file", path.display());
                Err(Failure::new(message).help(
                    "outputs are written to a directory, or to a .npy, .npz, .pb or .csv file",
                ))
            }
            (_, None) => match find_file_suffix(path) {
                Some(suffix) => {
                    let shown = path.display();
                    let failure = Failure::new(format!("outputs are not written as .{suffix}"));
                    Err(failure.at(&shown).help(format!(
                        "use a name that ends in .npy, .npz, .pb or .csv; for a directory of this \
                         name, write '{shown}/'"
                    )))
                }
                None => Ok(Place::Directory(path.to_path_buf())),
            },
        }
    }

    /// Whether the outputs are written to stdout, which then takes no other text.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Place::One(Target::Stdout, _))
    }
}

/// Returns the suffix of a path that looks like a file: up to 8 letters and digits, of which the
/// first is a letter; else `None`. A directory without a slash at its end may be called `run.1`.
fn find_file_suffix(path: &Path) -> Option<&str> {
    if files::ends_as_directory(path) {
        return None;
    }
    let suffix = path.extension()?.to_str()?;
    let is_suffix = suffix.len() <= 8
        && suffix.starts_with(|first: char| first.is_ascii_alphabetic())
        && suffix.chars().all(|each| each.is_ascii_alphanumeric());
    is_suffix.then_some(suffix)
}

/// Writes all outputs of a run to `place`, and returns the written files.
pub(crate) fn write(
    outputs: &Outputs,
    place: &Place,
    protected: &Protected,
    terminal: &Terminal,
) -> Result<Vec<WrittenOutput>, Failure> {
    match place {
        Place::One(target, format) => write_file(outputs, target, *format, protected, terminal),
        Place::Directory(path) => write_directory(outputs, path, protected),
    }
}

/// Writes all outputs to one file or to stdout. Fails if the format cannot hold the outputs.
fn write_file(
    outputs: &Outputs,
    target: &Target,
    format: Format,
    protected: &Protected,
    terminal: &Terminal,
) -> Result<Vec<WrittenOutput>, Failure> {
    if let Target::File(path) = target {
        protected.check(path)?;
    }
    let all: Vec<(&str, &Value)> = outputs.iter().collect();
    match (&all[..], target) {
        // A .pb file holds a sequence or a map whole, in a message of its own type.
        ([(name, value)], Target::File(path))
            if format == Format::Proto && value.as_tensor().is_none() =>
        {
            let bytes = write_value(value, name)?;
            files::write(path, |file| Ok(file.write_all(&bytes)?))?;
        }
        _ => {
            let mut content = Content::default();
            if format.holds_single_tensor() && all.len() != 1 {
                let count = all.len();
                let failure = Failure::new(format!(
                    "the model has {count} outputs, but the file holds one value"
                ));
                return Err(failure.help(
                    if all.iter().all(|(_, value)| value.as_tensor().is_some()) {
                        "write several outputs to a .npz file or a directory: --output DIR"
                    } else {
                        TO_DIRECTORY
                    },
                ));
            }
            for (name, value) in &all {
                let tensors = to_arrays(name, value).filter(|_| {
                    // A format for one value holds no sequence, not even one with a single item.
                    value.as_tensor().is_some() || !format.holds_single_tensor()
                });
                content.tensors.extend(tensors.ok_or_else(|| refuse_type(name, value))?);
            }
            let mut names = HashSet::new();
            for (name, _) in &content.tensors {
                if !names.insert(name) {
                    let message = format!("two arrays in the file would have the name '{name}'");
                    return Err(Failure::new(message).help(TO_DIRECTORY));
                }
            }
            let written = arrays::write(target, format, &content, terminal);
            written.map_err(|failure| failure.help_if_none(TO_DIRECTORY))?;
        }
    }
    Ok(match target {
        Target::Stdout => Vec::new(),
        Target::File(path) => vec![WrittenOutput {
            path: path.clone(),
            output: match &all[..] {
                [(name, _)] => Some(name.to_string()),
                _ => None,
            },
            is_renamed: false,
        }],
    })
}

/// Returns the arrays that store an output in a file of several arrays: a tensor under its name,
/// the items of a sequence as `NAME.0`, `NAME.1`, and so on. `None` for values of other types, and
/// for an empty sequence, which would leave no trace.
pub(crate) fn to_arrays(name: &str, value: &Value) -> Option<Vec<(String, Tensor)>> {
    match value {
        Value::Tensor(tensor) => Some(vec![(name.to_string(), tensor.clone())]),
        Value::Sequence(sequence) if !sequence.is_empty() => {
            let items = sequence.items().iter().enumerate();
            items
                .map(|(i, item)| Some((format!("{name}.{i}"), item.as_tensor()?.clone())))
                .collect()
        }
        _ => None,
    }
}

/// Returns the failure for an output of a type that only `.pb` files can hold.
fn refuse_type(name: &str, value: &Value) -> Failure {
    let ty = value.value_type();
    let empty = matches!(value, Value::Sequence(sequence) if sequence.is_empty());
    let what = if empty { format!("empty {ty}") } else { format!("of type {ty}") };
    Failure::new(format!("the output '{name}' is {what}, which only .pb files can hold"))
        .help(TO_DIRECTORY)
}

/// Writes a file for each output: tensors become `.npy` files, other values and element types that
/// NumPy lacks `.pb` files.
fn write_directory(
    outputs: &Outputs,
    target: &Path,
    protected: &Protected,
) -> Result<Vec<WrittenOutput>, Failure> {
    let mut contents = Vec::new();
    for ((name, value), stem) in outputs.iter().zip(make_file_stems(outputs.names())) {
        let (bytes, suffix) = match value {
            // A .npy file does not record element types that NumPy lacks.
            Value::Tensor(tensor) if !npy::names_type(tensor.data_type()) => {
                (write_value(value, name)?, "pb")
            }
            Value::Tensor(tensor) => match npy::write(tensor) {
                Ok(bytes) => (bytes, "npy"),
                Err(_) => (write_value(value, name)?, "pb"),
            },
            _ => (write_value(value, name)?, "pb"),
        };
        let path = target.join(format!("{stem}.{suffix}"));
        protected.check(&path)?;
        let written =
            WrittenOutput { path, output: Some(name.to_string()), is_renamed: stem != name };
        contents.push((written, bytes));
    }
    fs::create_dir_all(target)
        .map_err(|error| files::io_failure("cannot create the directory", target, &error))?;
    for (written, bytes) in &contents {
        files::write(&written.path, |file| Ok(file.write_all(bytes)?))?;
    }
    Ok(contents.into_iter().map(|(written, _)| written).collect())
}

/// Returns a unique file name without suffix for each of the output `names`.
pub(crate) fn make_file_stems<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut taken = HashSet::new();
    names.enumerate().map(|(index, name)| make_file_stem(name, index, &mut taken)).collect()
}

/// Returns a unique file name for an output, without suffix. Names in a model may contain anything,
/// so characters that could lead to another directory, or are illegal on some system, become `_`.
fn make_file_stem(name: &str, index: usize, taken: &mut HashSet<String>) -> String {
    let mut stem: String = name
        .chars()
        .take(80)
        .map(|c| if c.is_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' })
        .collect();
    if stem.is_empty() || stem.starts_with('.') {
        stem.insert_str(0, &format!("output_{index}"));
    }
    // Some file systems are not case-sensitive.
    if !taken.insert(stem.to_lowercase()) {
        stem = format!("{stem}_{index}");
        taken.insert(stem.to_lowercase());
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_harmless_file_names() {
        let mut taken = HashSet::new();
        let rows = [
            ("y", "y"),
            ("../../etc/x:0", "output_1.._.._etc_x_0"),
            ("Y", "Y_2"),
            ("", "output_3"),
            ("größe", "größe"),
        ];
        for (i, (name, expected)) in rows.iter().enumerate() {
            assert_eq!(make_file_stem(name, i, &mut taken), *expected);
        }
    }
}
