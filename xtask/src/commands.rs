//! `cargo xtask commands`: writes docs/commands.md, every command with every option, from what
//! `--help` of the command prints, and the graph that README.md shows.

use crate::Result;
use crate::shell;
use crate::workspace::{PROFILE, artifacts, build_release, root};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Write the page about commands and README.md's picture, or check that they are up to date.
#[derive(clap::Args)]
pub(crate) struct Commands {
    /// Fail if a file differs from the one that would be written.
    #[arg(long)]
    check: bool,
}

/// Files that are written.
const PAGE: &str = "docs/commands.md";
const PICTURE: &str = "docs/digits.svg";

/// The page of the manual about each command, in the order of the reference.
const PAGES: &[(&str, &str)] = &[
    ("models", "getting-started.md#the-command"),
    ("info", "inspecting.md#what-is-it-info"),
    ("ls", "inspecting.md#which-weights-ls-and-cat"),
    ("cat", "inspecting.md#which-weights-ls-and-cat"),
    ("graph", "inspecting.md#a-picture-graph"),
    ("infer", "inspecting.md#types-and-shapes-infer"),
    ("cost", "inspecting.md#what-does-it-cost-cost"),
    ("hash", "inspecting.md#the-same-content-hash"),
    ("features", "rust.md#only-what-your-models-need-features"),
    ("diff", "inspecting.md#what-changed-diff"),
    ("ops", "inspecting.md#operators-ops"),
    ("save", "files.md#formats"),
    ("externalize", "files.md#weights-outside-of-the-model"),
    ("pack", "files.md#weights-outside-of-the-model"),
    ("set", "files.md#changing-a-model"),
    ("strip", "files.md#changing-a-model"),
    ("extract", "files.md#a-part-of-a-model-extract"),
    ("reduce", "files.md#a-small-example-of-a-problem-reduce"),
    ("compare", "inspecting.md#where-do-results-differ-compare"),
    ("simplify", "simplifying.md"),
    ("print", "files.md#models-as-text"),
    ("parse", "files.md#models-as-text"),
    ("fmt", "files.md#one-layout-and-git"),
    ("check", "ci.md#check-a-model"),
    ("explain", "running.md#what-a-session-does-to-a-model-explain"),
    ("convert", "conversion.md#operator-set-versions-convert"),
    ("inline", "conversion.md#inlining-functions"),
    ("run", "running.md#run-a-model"),
    ("bench", "running.md#measure-bench"),
    ("profile", "running.md#where-the-time-goes-profile"),
    ("generate", "generating.md#generate-text-generate"),
    ("embed", "generating.md#vectors-embed"),
    ("classify", "generating.md#labels-pairs-and-spans-classify"),
    ("train", "training.md#run-training-train"),
    ("add-training", "training.md#add-training-add-training"),
    ("differentiate", "training.md#gradients-differentiate"),
    ("shard", "devices.md#annotate-a-model-shard"),
    ("scan", "security.md#before-opening-scan"),
    ("completions", "getting-started.md#install"),
    ("man", "getting-started.md#install"),
];

/// Options that many commands have, listed once: the heading, the option by which a command is
/// known to have all of them, and the options.
const SHARED: &[(&str, &str, &[&str])] = &[
    ("Options of all commands", "--color", &["--color", "--quiet", "--verbose", "--help"]),
    ("Options of commands that open a model", "--max-structure", &["--max-structure"]),
    (
        "Options of commands that write a model",
        "--sync",
        &["--output", "--form", "--in-place", "--replace", "--sync"],
    ),
];

pub(crate) fn run(task: &Commands) -> Result {
    let program = build_release("sardonyx", &[(PROFILE, "dev")])?;
    for (name, text) in [(PAGE, page(&program)?), (PICTURE, draw_picture(&program)?)] {
        let path = root().join(name);
        if !task.check {
            fs::write(path, text)?;
        } else if !fs::read_to_string(path).is_ok_and(|found| found == text) {
            return Err(format!("{name} is out of date: cargo xtask commands").into());
        }
    }
    Ok(())
}

/// Draws the model of README.md's first command.
fn draw_picture(program: &Path) -> Result<String> {
    let file = artifacts("commands").join("graph.svg");
    fs::create_dir_all(artifacts("commands"))?;
    let mut command = Command::new(program);
    command.current_dir(root()).args([
        "graph",
        "--quiet",
        "examples/digits/digits.onnx",
        "--output",
    ]);
    shell::output(command.arg(&file))?;
    Ok(fs::read_to_string(file)?)
}

/// Sections of the `--help` of one command.
#[derive(Default)]
struct Help {
    /// Paragraphs.
    about: Vec<String>,
    usage: String,
    /// Arguments, then options.
    entries: Vec<Entry>,
}

/// An argument or option.
#[derive(Default, Clone, PartialEq, Eq)]
struct Entry {
    /// Spelling on the command line, such as `-o, --output <FILE>`.
    spelling: String,
    paragraphs: Vec<String>,
    /// Values that it may have, with what they mean.
    values: Vec<(String, String)>,
}

impl Entry {
    fn is(&self, option: &str) -> bool {
        self.spelling.split([' ', ',']).any(|word| word == option)
    }
}

/// Lines of an option begin with at most so many blanks; lines that go on with its text have more.
const MOST_INDENT: usize = 6;

impl Help {
    /// Reads what was printed, in the form with a text below each option or beside it.
    fn parse(text: &str) -> Help {
        let mut help = Help::default();
        let mut in_usage = false;
        let mut new_paragraph = true;
        let mut in_values = false;
        for line in text.lines() {
            let words = line.trim();
            let indent = line.len() - line.trim_start().len();
            if let Some(usage) = line.strip_prefix("Usage: ") {
                in_usage = true;
                help.usage = usage.to_string();
            } else if words.is_empty() {
                (new_paragraph, in_values) = (true, false);
                in_usage &= help.usage.is_empty();
            } else if indent == 0 && matches!(words, "Arguments:" | "Options:") {
                in_usage = false;
            } else if in_usage {
                help.usage = format!("{} {words}", help.usage);
            } else if help.usage.is_empty() {
                add(&mut help.about, words, &mut new_paragraph);
            } else if indent <= MOST_INDENT && words.starts_with(['-', '<', '[']) {
                let (spelling, text) = words.split_once("  ").unwrap_or((words, ""));
                let mut entry = Entry { spelling: spelling.to_string(), ..Entry::default() };
                (new_paragraph, in_values) = (true, false);
                if !text.is_empty() {
                    add(&mut entry.paragraphs, text.trim_start(), &mut new_paragraph);
                }
                help.entries.push(entry);
            } else if let Some(entry) = help.entries.last_mut() {
                match words.strip_prefix("- ") {
                    _ if words == "Possible values:" => in_values = true,
                    Some(value) if in_values => {
                        let (name, text) = value.split_once(':').unwrap_or((value, ""));
                        entry.values.push((name.to_string(), text.trim_start().to_string()));
                    }
                    _ if in_values => {
                        if let Some((_, text)) = entry.values.last_mut() {
                            *text = format!("{text} {words}");
                        }
                    }
                    _ => {
                        // Text in brackets belongs to the paragraph before it.
                        new_paragraph &= !words.starts_with('[') || entry.paragraphs.is_empty();
                        add(&mut entry.paragraphs, words, &mut new_paragraph);
                    }
                }
            }
        }
        help
    }
}

/// Adds a line to the last paragraph, or begins a new one.
fn add(paragraphs: &mut Vec<String>, line: &str, new_paragraph: &mut bool) {
    match paragraphs.last_mut() {
        Some(last) if !*new_paragraph => *last = format!("{last} {line}"),
        _ => paragraphs.push(line.to_string()),
    }
    *new_paragraph = false;
}

fn help(program: &Path, arguments: &[&str]) -> Result<String> {
    shell::output(Command::new(program).args(arguments).env("NO_COLOR", "1").env("COLUMNS", "100"))
}

/// Lists the commands of the program, without `help`.
fn names(overview: &str) -> Vec<&str> {
    let lines = overview.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let lines = lines.filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| !line.starts_with(' '));
    names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").collect()
}

fn page(program: &Path) -> Result<String> {
    let overview = help(program, &["--help"])?;
    let names = names(&overview);
    if let Some(name) = names.iter().find(|name| PAGES.iter().all(|(known, _)| known != *name)) {
        return Err(format!("xtask/src/commands.rs does not say which page is about {name}").into());
    }
    let mut helps = Vec::new();
    for (name, link) in PAGES {
        helps.push((*name, *link, Help::parse(&help(program, &[name, "--help"])?)));
    }
    Ok(render(&helps))
}

fn render(helps: &[(&str, &str, Help)]) -> String {
    let mut text = "# Commands\n\n\
        Generated by `cargo xtask commands` from what `--help` prints; do not edit. \
        [Getting started](getting-started.md#what-holds-for-all-commands) says what holds for all commands.\n\n\
        | command | what it does | explained in |\n| --- | --- | --- |\n"
        .to_string();
    for (name, link, help) in helps {
        let page = link.split('#').next().unwrap_or(link);
        let about = help.about.first().map_or("", String::as_str);
        let _ =
            writeln!(text, "| [{name}](#{name}) | {} | [{page}]({link}) |", escape_markdown(about));
    }
    for (heading, sign, options) in SHARED {
        let _ = write!(text, "\n## {heading}\n\n");
        let with_them = helps.iter().find(|(_, _, help)| has(help, sign));
        let entries = with_them.into_iter().flat_map(|(_, _, help)| &help.entries);
        for entry in entries.filter(|entry| options.iter().any(|option| entry.is(option))) {
            render_entry(entry, &mut text);
        }
    }
    for (name, _, help) in helps {
        let _ = write!(text, "\n## {name}\n\n");
        for paragraph in &help.about {
            let _ = write!(text, "{}\n\n", escape_markdown(paragraph));
        }
        let _ = write!(text, "```text\n{}\n```\n\n", help.usage);
        for entry in help.entries.iter().filter(|entry| !is_shared(help, entry)) {
            render_entry(entry, &mut text);
        }
    }
    text
}

fn has(help: &Help, option: &str) -> bool {
    help.entries.iter().any(|entry| entry.is(option))
}

/// Whether an option of a command is listed once for all.
fn is_shared(help: &Help, entry: &Entry) -> bool {
    SHARED
        .iter()
        .any(|(_, sign, options)| has(help, sign) && options.iter().any(|option| entry.is(option)))
}

fn render_entry(entry: &Entry, text: &mut String) {
    let about = entry.paragraphs.iter().map(|paragraph| escape_markdown(paragraph));
    let about = about.collect::<Vec<_>>().join("\n\n  ");
    let _ = writeln!(text, "- `{}`: {about}", entry.spelling);
    for (value, meaning) in &entry.values {
        let meaning = if meaning.is_empty() {
            String::new()
        } else {
            format!(": {}", escape_markdown(meaning))
        };
        let _ = writeln!(text, "  - `{value}`{meaning}");
    }
}

/// Escapes all signs of Markdown but that of code.
fn escape_markdown(text: &str) -> String {
    let mut escaped = String::new();
    let mut in_code = false;
    for c in text.chars() {
        in_code ^= c == '`';
        if !in_code && "*_<|".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_help_are_read() {
        let beside = "\
Say what it is: a *model*
or not

Usage: sardonyx x [OPTIONS] <MODEL>

Arguments:
  <MODEL>  ONNX file

Options:
      --color <WHEN>  When to use
                      color [default: auto]
  -h, --help          Print help
";
        let below = "\
Say what it is: a *model* or not

Usage: sardonyx x [OPTIONS] <MODEL>

Arguments:
  <MODEL>
          ONNX file

Options:
      --color <WHEN>
          When to use color
          
          [default: auto]

  -h, --help
          Print help
";
        for text in [beside, below] {
            let help = Help::parse(text);
            assert_eq!(help.about, ["Say what it is: a *model* or not"]);
            assert_eq!(help.usage, "sardonyx x [OPTIONS] <MODEL>");
            let mut page = String::new();
            help.entries.iter().for_each(|entry| render_entry(entry, &mut page));
            assert_eq!(
                page,
                "- `<MODEL>`: ONNX file\n\
                 - `--color <WHEN>`: When to use color [default: auto]\n\
                 - `-h, --help`: Print help\n"
            );
        }
    }

    #[test]
    fn values_have_their_meanings() {
        let text = "\
About

Usage: x

Options:
      --layout <LAYOUT>
          Order of axes

          Possible values:
          - nchw: Channels
            first
          - nhwc

          [default: nchw]
";
        let help = Help::parse(text);
        let mut page = String::new();
        help.entries.iter().for_each(|entry| render_entry(entry, &mut page));
        assert_eq!(
            page,
            "- `--layout <LAYOUT>`: Order of axes [default: nchw]\n  - `nchw`: Channels first\n  - `nhwc`\n"
        );
    }

    #[test]
    fn commands_are_found() {
        let overview = "About\n\nCommands:\n  info  Say what\n        it is\n  add-training  Add\n  \
             help  Print\n\nOptions:\n  -h\n";
        assert_eq!(names(overview), ["info", "add-training"]);
    }
}
