//! Files of a directory as it lies on a hub: which ones exist, and bounded reading of them.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use sardonyx::ErrorKind;
use serde_json::Value;

use crate::error::Error;

/// Maximum size of a configuration file in bytes. Those of hubs have up to 100 kB.
const MAX_CONFIG: u64 = 4 << 20;
/// Maximum size of a tokenizer file in bytes. Those with 256,000 tokens have 35 MB.
pub(crate) const MAX_TOKENIZER: u64 = 256 << 20;
/// Maximum number of entries of a directory that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// Directory with models and what belongs to them.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    /// Returns the files of the directory at `path`.
    ///
    /// # Errors
    ///
    /// If `path` is not a directory.
    pub(crate) fn open(path: &Path) -> Result<Files, Error> {
        if path.is_dir() {
            return Ok(Files { root: path.to_path_buf() });
        }
        let (what, help) = if path.exists() {
            (
                "is a file, not a directory",
                "name the directory that has the model, config.json and tokenizer.json",
            )
        } else {
            (
                "does not exist",
                "models are not downloaded: fetch the directory first, for example with \
                 `hf download NAME --local-dir DIRECTORY`",
            )
        };
        Err(Error::new(ErrorKind::Io, what).at(path).with_help(help))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of a model file that a configuration file names.
    ///
    /// # Errors
    ///
    /// If the name leads out of the directory.
    pub(crate) fn resolve(&self, name: &str) -> Result<PathBuf, Error> {
        let is_inside = Path::new(name)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if is_inside {
            return Ok(self.root.join(name));
        }
        let message = format!("the file name `{}` leaves the directory", shorten(&name.into()));
        Err(Error::invalid(message).at(&self.root))
    }

    /// Returns the path of the file called `name`, if it exists.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.root.join(name);
        path.is_file().then_some(path)
    }

    /// Reads the text of the file called `name`; `None` if it does not exist.
    pub(crate) fn read_text(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(path) = self.find(name) else {
            return Ok(None);
        };
        let bytes = read_bounded(&path, MAX_CONFIG)?;
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| Error::new(ErrorKind::Format, "is not UTF-8").at(&path))
    }

    /// Reads the JSON object in the file called `name`; `None` if it does not exist.
    pub(crate) fn read_json(&self, name: &str) -> Result<Option<Object>, Error> {
        let Some(path) = self.find(name) else {
            return Ok(None);
        };
        Object::read(path).map(Some)
    }

    /// Reads the bytes of `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// If the file does not exist, with advice for the forms that are not read.
    pub(crate) fn read_tokenizer(&self) -> Result<(PathBuf, Vec<u8>), Error> {
        if let Some(path) = self.find("tokenizer.json") {
            let bytes = read_bounded(&path, MAX_TOKENIZER)?;
            return Ok((path, bytes));
        }
        let other = [
            "tokenizer.model",
            "spiece.model",
            "vocab.json",
            "vocab.txt",
            "sentencepiece.bpe.model",
        ];
        let found = other.into_iter().find(|name| self.find(name).is_some());
        let message = match found {
            Some(name) => format!("has {name}, but no tokenizer.json"),
            None => "has no tokenizer.json".to_string(),
        };
        Err(Error::new(ErrorKind::Io, message).at(&self.root).with_help(
            "write tokenizer.json once with Python: \
             `transformers.AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)`; \
             or pass token ids in place of texts",
        ))
    }

    /// Returns the ONNX files of the directory and of its directory `onnx`, as names relative to
    /// the root, sorted.
    pub(crate) fn list_models(&self) -> Vec<String> {
        let mut names = Vec::new();
        for directory in ["", "onnx"] {
            let Ok(entries) = std::fs::read_dir(self.root.join(directory)) else {
                continue;
            };
            for entry in entries.take(MAX_ENTRIES).flatten() {
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                if name.ends_with(".onnx") && entry.path().is_file() {
                    let prefix = if directory.is_empty() { "" } else { "onnx/" };
                    names.push(format!("{prefix}{name}"));
                }
            }
        }
        names.sort();
        names
    }
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
        .map_err(|error| Error::new(ErrorKind::Io, error.to_string()).at(path))?;
    if bytes.len() as u64 > limit {
        let message = format!("is larger than {} MiB, the limit for such files", limit >> 20);
        return Err(Error::new(ErrorKind::Format, message).at(path));
    }
    Ok(bytes)
}

/// JSON object of a file, with accessors whose errors name the file and the key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object {
    path: PathBuf,
    pub(crate) value: serde_json::Map<String, Value>,
}

impl Object {
    /// Reads the JSON object in the file at `path`.
    fn read(path: PathBuf) -> Result<Object, Error> {
        let bytes = read_bounded(&path, MAX_CONFIG)?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(value)) => Ok(Object { path, value }),
            Ok(_) => Err(Error::new(ErrorKind::Format, "is not a JSON object").at(&path)),
            Err(error) => {
                Err(Error::new(ErrorKind::Format, format!("is not JSON: {error}")).at(&path))
            }
        }
    }

    /// Returns the value of `key`; `None` if it is missing or null.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    /// Makes the error for a value of another type or range than `expected`.
    fn misfit(&self, key: &str, expected: &str) -> Error {
        let found = self.value.get(key).map_or(String::new(), shorten);
        Error::invalid(format!("`{key}`: expected {expected}, found {found}")).at(&self.path)
    }

    /// Returns a number of things.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        // Some files write lengths as 1e30, which means no limit.
        if value.as_f64().is_some_and(|value| value >= 1e15) {
            return Ok(None);
        }
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.map(Some).ok_or_else(|| self.misfit(key, "a whole number, at least 0"))
    }

    /// Returns a finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        #[expect(clippy::cast_possible_truncation, reason = "options are computed in f32")]
        let number = value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| self.misfit(key, "a number"))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value.as_bool().map(Some).ok_or_else(|| self.misfit(key, "true or false"))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value.as_str().map(Some).ok_or_else(|| self.misfit(key, "a string"))
    }

    /// Returns token ids: a number or a list of numbers. Negative ones mean that there is none.
    pub(crate) fn ids(&self, key: &str) -> Result<Vec<u32>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let items = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut ids = Vec::new();
        for item in items {
            match item.as_i64() {
                Some(id) if id < 0 => {}
                Some(id) => ids.push(u32::try_from(id).map_err(|_| self.misfit(key, "token ids"))?),
                None => return Err(self.misfit(key, "a token id or a list of them")),
            }
        }
        Ok(ids)
    }

    /// Returns the object at `key`; an empty one if it is missing.
    pub(crate) fn object(&self, key: &str) -> Result<Object, Error> {
        match self.get(key) {
            None => Ok(Object { path: self.path.clone(), ..Object::default() }),
            Some(Value::Object(value)) => {
                Ok(Object { path: self.path.clone(), value: value.clone() })
            }
            Some(_) => Err(self.misfit(key, "an object")),
        }
    }
}

/// Formats a value for an error, cut to 60 characters.
fn shorten(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
