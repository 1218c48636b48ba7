//! Cases on disk: `<kind>/<case>/model.onnx`, `case.json` and
//! `test_data_set_<n>/{input,output}_<m>.pb`.

use sardonyx_tensor::Tolerance;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Model with its data.
#[derive(Debug, Clone)]
pub struct Case {
    /// Kind, such as `node` or `simple`.
    pub kind: String,
    /// Unique name, such as `node/test_abs`, as in the expectations.
    pub id: String,
    /// Directory of the files.
    pub directory: PathBuf,
}

/// Bytes of a data set, in the order of the graph's inputs and outputs. An input that is left out
/// is empty.
#[derive(Debug)]
pub struct DataSet {
    pub inputs: Vec<Vec<u8>>,
    pub outputs: Vec<Vec<u8>>,
}

/// Finds all cases under `directory`, sorted by id.
pub fn find(directory: &Path) -> io::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for kind in directories(directory)? {
        for directory in directories(&kind)? {
            let (kind, name) = (name_of(&kind), name_of(&directory));
            cases.push(Case { id: format!("{kind}/{name}"), kind, directory });
        }
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(cases)
}

impl Case {
    /// Returns the case in a directory. Its kind is the name of the parent directory.
    pub fn at(directory: &Path) -> Case {
        let kind = directory.parent().map(name_of).unwrap_or_default();
        Case {
            id: format!("{kind}/{}", name_of(directory)),
            kind,
            directory: directory.to_path_buf(),
        }
    }

    pub fn model(&self) -> PathBuf {
        self.directory.join("model.onnx")
    }

    /// Reads the tolerance of `case.json`, with the reference runner's defaults for missing values.
    pub fn tolerance(&self) -> io::Result<Tolerance> {
        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(self.directory.join("case.json"))?)?;
        let Tolerance { rtol, atol } = Tolerance::NODE_TESTS;
        Ok(Tolerance {
            rtol: json["rtol"].as_f64().unwrap_or(rtol),
            atol: json["atol"].as_f64().unwrap_or(atol),
        })
    }

    pub fn data_sets(&self) -> io::Result<Vec<DataSet>> {
        let mut sets = Vec::new();
        for directory in directories(&self.directory)? {
            sets.push(DataSet {
                inputs: read_files(&directory, "input")?,
                outputs: read_files(&directory, "output")?,
            });
        }
        Ok(sets)
    }
}

/// Reads `input_0.pb`, `input_1.pb` and so on, up to the first that does not exist.
fn read_files(directory: &Path, role: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    loop {
        match fs::read(directory.join(format!("{role}_{}.pb", files.len()))) {
            Ok(bytes) => files.push(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(error),
        }
    }
}

fn directories(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
