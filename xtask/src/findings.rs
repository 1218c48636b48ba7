//! `cargo xtask findings`: writes docs/findings.md, every finding of the checker with an example,
//! from the table of codes and the files of tests/check.

use crate::Result;
use crate::workspace::{files, root, shown};
use sardonyx_passes::check::CODES;
use sardonyx_passes::{Code, Reference, Severity};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Write the page about findings, or check that it is up to date.
#[derive(clap::Args)]
pub(crate) struct Findings {
    /// Fail if the file is not what would be written.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(task: &Findings) -> Result {
    let path = root().join("docs/findings.md");
    let page = page()?;
    if !task.check {
        return Ok(fs::write(path, page)?);
    }
    match fs::read_to_string(path) {
        Ok(found) if found == page => Ok(()),
        _ => Err("docs/findings.md is out of date: cargo xtask findings".into()),
    }
}

/// A file of tests/check and what was said about it.
struct Case {
    path: PathBuf,
    answers: String,
}

impl Case {
    /// The first finding of a code, as it was rendered.
    fn rendered(&self, code: &Code) -> Option<String> {
        let said = format!("[{}]: ", code.name);
        let lines = self.answers.lines();
        let lines: Vec<&str> = lines
            .skip_while(|line| !line.contains(&said))
            .take_while(|line| !line.is_empty())
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// The model without the comments at its top.
    fn text(&self) -> Result<String> {
        let text = String::from_utf8(fs::read(&self.path)?)?;
        let lines: Vec<&str> = text.lines().skip_while(|line| line.starts_with('#')).collect();
        Ok(lines.join("\n"))
    }
}

/// The cases, those first that are called like a code.
fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for path in files(&root().join("tests/check"), &[".onnxtxt", ".txtpb"])? {
        let answers = fs::read_to_string(path.with_extension("out"))?;
        cases.push(Case { path, answers });
    }
    cases.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(cases)
}

/// The case that shows a code best: the one that is called like it, otherwise the first.
fn example<'a>(cases: &'a [Case], code: &Code) -> Option<(&'a Case, String)> {
    let name = code.name.replace('-', "_");
    let called = |case: &&Case| case.path.file_stem().is_some_and(|stem| stem == &*name);
    let mut candidates = cases.iter().filter(called).chain(cases);
    candidates.find_map(|case| Some((case, case.rendered(code)?)))
}

fn page() -> Result<String> {
    let cases = cases()?;
    let mut text = String::new();
    let _ = write!(
        text,
        "# Findings\n\n\
         Written by `cargo xtask findings`; do not edit.\n\n\
         What `sardonyx check` can say, in {count} codes: how bad it is, what it means, what to do, and an example. An error is \
         what the standard forbids; a warning what it advises against, or what tools disagree about; a note is worth knowing. \
         `--allow CODE` silences a code, `--deny CODE` makes it an error; both also take the id of a rule. The same text \
         without the example: `sardonyx explain CODE`.\n\n\
         | code | level | rule |\n\
         | --- | --- | --- |\n",
        count = CODES.len()
    );
    for code in CODES {
        let _ = writeln!(
            text,
            "| [{name}](#{name}) | {} | {} |",
            level(code),
            code.requirement,
            name = code.name,
        );
    }
    for code in CODES {
        let _ = write!(
            text,
            "\n## {}\n\n{}, rule {}. {}\n\n{}\n\nWhat to do: {}.\n",
            code.name,
            capital(level(code)),
            code.requirement,
            match code.reference {
                Reference::Refuses =>
                    "The checker of the `onnx` package refuses such a model, too.",
                Reference::RefusesInFull =>
                    "The checker of the `onnx` package refuses such a model with `full_check=True` only.",
                Reference::Accepts => "The checker of the `onnx` package does not see it.",
            },
            code.about,
            code.help,
        );
        if let Some((case, rendered)) = example(&cases, code) {
            let _ = write!(
                text,
                "\n```text\n{}\n```\n\n```text\n{rendered}\n```\n\nFrom [{path}](../{path}).\n",
                case.text()?,
                path = shown(&case.path),
            );
        }
    }
    Ok(text)
}

fn level(code: &Code) -> &'static str {
    code.severity.map_or("only with --strict", Severity::name)
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
