//! Writing the outputs of a run: a folder of files, or one `.npz`.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sardonyx::npz::Packing;
use sardonyx::{Outputs, Tensor, Value, npy, npz, write_value};

use crate::failure::Failure;
use crate::files::{self, Protected};

/// Writes all outputs; the files written. Tensors become `.npy`, other values and types that NumPy lacks `.pb`.
pub(crate) fn write(
    outputs: &Outputs,
    target: &Path,
    protected: &Protected,
) -> Result<Vec<PathBuf>, Failure> {
    match target
        .extension()
        .is_some_and(|suffix| suffix.eq_ignore_ascii_case("npz"))
    {
        true => write_archive(outputs, target, protected),
        false => write_folder(outputs, target, protected),
    }
}

fn write_archive(
    outputs: &Outputs,
    target: &Path,
    protected: &Protected,
) -> Result<Vec<PathBuf>, Failure> {
    protected.check(target)?;
    let mut arrays: Vec<(&str, &Tensor)> = Vec::new();
    for (name, value) in outputs.iter() {
        let Some(tensor) = value.as_tensor() else {
            let ty = value.value_type();
            return Err(Failure::new(format!(
                "the output '{name}' of type {ty} cannot lie in a .npz file"
            ))
            .help("write to a folder instead: --output DIR"));
        };
        arrays.push((name, tensor));
    }
    files::write(target, |file| {
        match npz::write(file, arrays, Packing::Stored) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::from(error).help("write to a folder instead: --output DIR")),
        }
    })?;
    Ok(vec![target.to_path_buf()])
}

fn write_folder(
    outputs: &Outputs,
    target: &Path,
    protected: &Protected,
) -> Result<Vec<PathBuf>, Failure> {
    if target.is_file() {
        return Err(Failure::new(format!("'{}' is a file", target.display()))
            .help("outputs are written to a folder, or to a file that ends in .npz"));
    }
    let mut taken = HashSet::new();
    let mut contents = Vec::new();
    for (i, (name, value)) in outputs.iter().enumerate() {
        let (bytes, suffix) = match value {
            Value::Tensor(tensor) => match npy::write(tensor) {
                Ok(bytes) => (bytes, "npy"),
                Err(_) => (write_value(value, name), "pb"),
            },
            _ => (write_value(value, name), "pb"),
        };
        let path = target.join(file_name(name, i, suffix, &mut taken));
        protected.check(&path)?;
        contents.push((path, bytes));
    }
    fs::create_dir_all(target)
        .map_err(|error| files::failed("cannot make the folder", target, &error))?;
    for (path, bytes) in &contents {
        files::write(path, |file| Ok(file.write_all(bytes)?))?;
    }
    Ok(contents.into_iter().map(|(path, _)| path).collect())
}

/// A file name for an output. Names in a model may hold anything, so what could lead elsewhere or be illegal somewhere becomes `_`.
fn file_name(name: &str, index: usize, suffix: &str, taken: &mut HashSet<String>) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || matches!(c, '.' | '_' | '-') {
            c
        } else {
            '_'
        }
    };
    let mut stem: String = name.chars().take(80).map(plain).collect();
    if stem.is_empty() || stem.starts_with('.') {
        stem.insert_str(0, &format!("output_{index}"));
    }
    // Some file systems do not tell upper from lower case.
    if !taken.insert(stem.to_lowercase()) {
        stem = format!("{stem}_{index}");
        taken.insert(stem.to_lowercase());
    }
    format!("{stem}.{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_harmless_file_names() {
        let mut taken = HashSet::new();
        let rows = [
            ("y", "y.npy"),
            ("../../etc/x:0", "output_1.._.._etc_x_0.npy"),
            ("Y", "Y_2.npy"),
            ("", "output_3.npy"),
            ("größe", "größe.npy"),
        ];
        for (i, (name, expected)) in rows.iter().enumerate() {
            assert_eq!(file_name(name, i, "npy", &mut taken), *expected);
        }
    }
}
