//! The word lists of `tests/voice`.

use crate::Result;
use crate::workspace::root;
use std::collections::BTreeSet;
use std::fs;

/// A text that is to be avoided and the form that replaces it.
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) better: String,
}

/// A text that is right in one file, or everywhere with the path `*`.
pub(crate) struct Exception {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Lists that the measures are taken with.
pub(crate) struct Lists {
    /// First words of documentation that name no thing and no action.
    pub(crate) openings: Vec<Entry>,
    /// Words and phrases for comments.
    pub(crate) words: Vec<Entry>,
    /// Irregular participles, adverbs and prepositions, which are not the name of a function.
    pub(crate) names: Vec<Entry>,
    /// Words that end like a verb in the third person and are none.
    pub(crate) not_verbs: BTreeSet<String>,
    /// False alarms, each with its reason.
    pub(crate) exceptions: Vec<Exception>,
}

impl Lists {
    /// Reads the files of `tests/voice`.
    ///
    /// # Errors
    ///
    /// A file is missing, or a line lacks the better form or the reason.
    pub(crate) fn read() -> Result<Lists> {
        let exceptions = rows::<3>("exceptions.tsv")?;
        let not_verbs = rows::<1>("not-verbs.txt")?.into_iter().flatten();
        Ok(Lists {
            openings: entries("openings.tsv")?,
            words: entries("words.tsv")?,
            names: entries("names.tsv")?,
            not_verbs: not_verbs.collect(),
            exceptions: exceptions
                .into_iter()
                .map(|[path, text, _reason]| Exception { path, text })
                .collect(),
        })
    }

    /// Finds the exception for `text` in the file `path`.
    pub(crate) fn exception(&self, path: &str, text: &str) -> Option<usize> {
        let mut exceptions = self.exceptions.iter();
        exceptions.position(|known| known.text == text && (known.path == path || known.path == "*"))
    }
}

fn entries(name: &str) -> Result<Vec<Entry>> {
    let rows = rows::<2>(name)?.into_iter();
    Ok(rows.map(|[text, better]| Entry { text, better }).collect())
}

/// Reads a file whose columns are separated by tabs; `#` begins a comment line.
fn rows<const COLUMNS: usize>(name: &str) -> Result<Vec<[String; COLUMNS]>> {
    let place = format!("tests/voice/{name}");
    let text =
        fs::read_to_string(root().join(&place)).map_err(|error| format!("{place}: {error}"))?;
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    let rows = lines.map(|(index, line)| {
        let columns: Vec<String> = line.split('\t').map(str::to_string).collect();
        if columns.iter().any(String::is_empty) {
            return Err(format!("{place}:{}: an empty column", index + 1).into());
        }
        <[String; COLUMNS]>::try_from(columns).map_err(|columns| {
            format!("{place}:{}: expected {COLUMNS} columns, found {}", index + 1, columns.len())
                .into()
        })
    });
    rows.collect()
}
