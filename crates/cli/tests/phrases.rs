//! Checks that texts for users have none of the phrases in `tests/phrases.txt`, which are not
//! idiomatic English.

use std::fs;
use std::path::{Path, PathBuf};

/// Phrase with the reason why it is in the list.
struct Phrase {
    text: String,
    reason: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn phrases() -> Vec<Phrase> {
    let list = fs::read_to_string(root().join("tests/phrases.txt")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (text, reason) =
                line.split_once('\t').unwrap_or_else(|| panic!("no reason: {line}"));
            assert!(!text.is_empty() && !reason.is_empty(), "{line}");
            Phrase { text: text.to_string(), reason: reason.to_string() }
        })
        .collect()
}

/// Whether a text contains the phrase as whole words.
fn has(text: &str, phrase: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(phrase).any(|(at, found)| {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        !before.ends_with(is_letter) && !after.starts_with(is_letter)
    })
}

/// Returns the texts of a source file that users can read, with their line numbers: its string
/// literals, and its doc comments if `is_help`. Skips the tests at the end of the file.
fn texts_of_source(source: &str, is_help: bool) -> Vec<(usize, String)> {
    let mut texts = Vec::new();
    let mut help = String::new();
    let mut literal: Option<(usize, String)> = None;
    for (index, line) in source.lines().enumerate() {
        let number = index + 1;
        let trimmed = line.trim_start();
        if trimmed.starts_with("#[cfg(test)]") {
            break;
        }
        if literal.is_none() && trimmed.starts_with("//") {
            if is_help && let Some(words) = trimmed.strip_prefix("/// ") {
                help = format!("{help} {words}");
            }
            continue;
        }
        if !help.is_empty() {
            texts.push((number, std::mem::take(&mut help)));
        }
        strings_of_line(line, number, &mut literal, &mut texts);
    }
    texts
}

/// Adds the string literals that end in a line to `texts`. One that continues on the next line is
/// kept in `literal`.
fn strings_of_line(
    line: &str,
    number: usize,
    literal: &mut Option<(usize, String)>,
    texts: &mut Vec<(usize, String)>,
) {
    let mut rest = if literal.is_some() { line.trim_start().chars() } else { line.chars() };
    while let Some(c) = rest.next() {
        let Some((_, text)) = literal else {
            if c == '"' {
                *literal = Some((number, String::new()));
            }
            continue;
        };
        match c {
            '\\' => text.extend(rest.next()),
            '"' => texts.extend(literal.take()),
            _ => text.push(c),
        }
    }
}

fn files(directory: &Path, suffix: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, suffix, found);
        } else if path.to_string_lossy().ends_with(suffix) {
            found.push(path);
        }
    }
}

/// Returns a line with place, phrase and reason for each phrase of the list in `texts`.
fn complaints(name: &str, texts: &[(usize, String)], phrases: &[Phrase]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, text) in texts {
        for phrase in phrases.iter().filter(|phrase| has(text, &phrase.text)) {
            complaints.push(format!("{name}:{line}: '{}': {}", phrase.text, phrase.reason));
        }
    }
    complaints
}

#[test]
fn what_users_read_has_none_of_the_phrases() {
    let (root, phrases) = (root(), phrases());
    let mut all = Vec::new();
    let mut sources = Vec::new();
    for krate in fs::read_dir(root.join("crates")).unwrap() {
        let source = krate.unwrap().path().join("src");
        if source.is_dir() {
            files(&source, ".rs", &mut sources);
        }
    }
    assert!(sources.len() > 500, "{} sources", sources.len());
    for path in sources.iter().filter(|path| !path.ends_with("tests.rs")) {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let is_help = name.starts_with("crates/cli/");
        let texts = texts_of_source(&fs::read_to_string(path).unwrap(), is_help);
        all.extend(complaints(&name, &texts, &phrases));
    }
    let mut documents = vec![root.join("README.md")];
    files(&root.join("docs"), ".md", &mut documents);
    for path in documents.iter().filter(|path| !path.starts_with(root.join("docs/decisions"))) {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.to_string()));
        all.extend(complaints(&name, &lines.collect::<Vec<_>>(), &phrases));
    }
    assert!(all.is_empty(), "{} places:\n{}", all.len(), all.join("\n"));
}

#[test]
fn a_phrase_is_found_where_users_would_read_it() {
    let source = "\
        //! this is no help\n\
        /// Say what it\n\
        /// is no use\n\
        let a = \"this is \\\n\
            no model\";\n\
        let b = \"this is none\"; // this is no string\n\
        #[cfg(test)]\n\
        let c = \"this is no text\";\n";
    let phrases = [Phrase { text: "is no".to_string(), reason: "bad".to_string() }];
    let places = |is_help| complaints("a.rs", &texts_of_source(source, is_help), &phrases);
    assert_eq!(places(true), ["a.rs:4: 'is no': bad", "a.rs:4: 'is no': bad"]);
    assert_eq!(places(false), ["a.rs:4: 'is no': bad"]);
    assert!(has("what is no more", "is no") && !has("what is not", "is no"));
}
