//! Texts on the command line, or in a file with one on each line.

use std::io::{self, Read};
use std::path::PathBuf;

use crate::failure::Failure;

/// Texts that a command takes.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct TextArgs {
    /// Texts; without one, each line of stdin is a text
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// File with a text on each line, in place of texts as arguments
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    lines: Option<PathBuf>,
}

/// Maximum size of a file of texts in bytes.
const MAX_BYTES: u64 = 1 << 30;

impl TextArgs {
    /// Returns the texts of the arguments, of the file, or of stdin.
    pub(crate) fn read(&self) -> Result<Vec<String>, Failure> {
        if !self.texts.is_empty() {
            return Ok(self.texts.clone());
        }
        let mut text = String::new();
        let (read, name) = match &self.lines {
            Some(path) => {
                let name = path.display().to_string();
                let file = std::fs::File::open(path);
                (file.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text)), name)
            }
            None => (
                io::stdin().take(MAX_BYTES).read_to_string(&mut text),
                "standard input".to_string(),
            ),
        };
        read.map_err(|error| {
            Failure::new(format!("cannot be read: {error}")).code(sardonyx::ErrorKind::Io).at(name)
        })?;
        Ok(text.lines().map(str::to_string).collect())
    }
}
