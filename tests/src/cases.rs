//! Cases on disk: `<kind>/<case>/model.onnx`, `case.json` and
//! `test_data_set_<n>/{input,output}_<m>.pb`.

use sardonyx_tensor::Tolerance;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One model with its data.
#[derive(Debug, Clone)]
pub struct Case {
    /// `node`, `simple`, …
    pub kind: String,
    /// `node/test_abs`: unique, and how people and the expectations name it.
    pub id: String,
    /// Directory of its files.
    pub directory: PathBuf,
}

/// The bytes of one data set, in the order of the graph's inputs and outputs. An input that is left
/// out is empty.
#[derive(Debug)]
pub struct DataSet {
    pub inputs: Vec<Vec<u8>>,
    pub outputs: Vec<Vec<u8>>,
}

/// All cases under `directory`, sorted by id.
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
    /// The case in this directory; its kind is the name of the directory above.
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

    /// Reads the tolerance of `case.json`; the reference runner's defaults where it lacks one.
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
                inputs: numbered(&directory, "input")?,
                outputs: numbered(&directory, "output")?,
            });
        }
        Ok(sets)
    }
}

/// `input_0.pb`, `input_1.pb`, … as far as they go.
fn numbered(directory: &Path, role: &str) -> io::Result<Vec<Vec<u8>>> {
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
