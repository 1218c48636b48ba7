//! Runs the examples in README.md and the pages of docs/, and compares their output with the pages.
//!
//! A block of kind `console` is run line by line. A line with `$` is a shell command; the lines
//! below it are the expected stdout and stderr. The exit code must be 0, or that in a comment at
//! the end of the command: `$ sardonyx check bad.onnx # exit code 1`. A line `…` stands for any
//! lines, and `…` in a line for any text. In a block of kind `console varies` numbers such as times
//! may differ.
//!
//! A block whose kind is followed by a file name, such as `text model.onnxtxt`, is written to that
//! file. All blocks of a page share a directory with links to `examples` and `tests` of the
//! repository. Blocks of kind `rust` must be in `book.rs`, which is compiled and run; blocks of
//! kind `python` are run by `crates/python/tests/test_docs.py`. A block of kind `py` is an excerpt
//! of a program in `examples/distributed`, which has tests of its own.
//!
//! With `BLESS=1` in the environment, the output of commands is written into the pages.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Placeholder for any lines, or any text in a line, of expected output.
const ANYTHING: &str = "…";

/// Kinds of blocks that are not run here: commands that change the machine, input of other
/// programs, and descriptions of formats.
const NOT_RUN: &[&str] = &["sh", "yaml", "toml", "text", "python", "rust"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns README.md and the pages of docs/, without pages that tasks generate from tested sources.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let entries = fs::read_dir(root.join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|suffix| suffix == "md"));
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

/// Formats a path relative to the top of the repository.
fn relative_path(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Fenced block of a page.
struct Block {
    /// Words after the opening fence.
    kind: Vec<String>,
    /// Number of the first line after the fence, from 0.
    start: usize,
    lines: Vec<String>,
}

impl Block {
    fn is(&self, kind: &str) -> bool {
        self.kind.first().is_some_and(|word| word == kind)
    }

    fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                let kind = kind.split_whitespace().map(str::to_string).collect();
                open = Some(Block { kind, start: index + 1, lines: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.lines.push(line.to_string()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Command of a console block with its expected output.
struct Entry {
    /// Lines of the command, the first with its `$`.
    command: Vec<String>,
    output: Vec<String>,
    /// Number of the command's first line in the block, from 0.
    line: usize,
}

fn entries(block: &Block) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (line, text) in block.lines.iter().enumerate() {
        if text.starts_with("$ ") {
            entries.push(Entry { command: vec![text.clone()], output: Vec::new(), line });
            continue;
        }
        let entry = entries.last_mut().expect("a console block begins with a command");
        let goes_on = entry.output.is_empty()
            && entry.command.last().is_some_and(|line| line.ends_with('\\'));
        let part = if goes_on { &mut entry.command } else { &mut entry.output };
        part.push(text.clone());
    }
    entries
}

impl Entry {
    fn shell_line(&self) -> String {
        self.command.join("\n")[2..].to_string()
    }

    fn exit_code(&self) -> i32 {
        let line = self.shell_line();
        let named = line.rsplit_once("# exit code ").and_then(|(_, code)| code.parse().ok());
        named.unwrap_or(0)
    }

    /// Runs the command, and returns its output in lines with its exit code.
    fn run(&self, directory: &Path) -> (Vec<String>, Option<i32>) {
        let program = Path::new(env!("CARGO_BIN_EXE_sardonyx")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {}\n}} 2>&1", self.shell_line())])
            .current_dir(directory)
            .stdin(Stdio::null())
            .env("PATH", path)
            .env("COLUMNS", "100")
            .env("NO_COLOR", "1")
            .env("HOME", directory)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let text = text.replace(&directory.display().to_string(), ".");
        // Blanks at the ends of lines are removed, because editors remove them in pages, too.
        (text.lines().map(|line| line.trim_end().to_string()).collect(), output.status.code())
    }
}

/// Whether a line matches an expected one, in which `…` stands for any text.
fn line_fits(expected: &str, line: &str) -> bool {
    let Some((before, after)) = expected.split_once(ANYTHING) else { return expected == line };
    let Some(rest) = line.strip_prefix(before) else { return false };
    let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.rev().any(|at| line_fits(after, &rest[at..]))
}

fn lines_fit(expected: &[String], lines: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == ANYTHING => {
            (0..=lines.len()).any(|skipped| lines_fit(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| line_fits(first, line) && lines_fit(rest, others)),
    }
}

/// Masks the numbers in all lines, so that only words are compared.
fn without_numbers(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| mask_numbers(line)).collect()
}

/// Replaces each number by `#`, and several blanks by one.
fn mask_numbers(line: &str) -> String {
    let mut text = String::new();
    let mut is_number = false;
    for c in line.chars() {
        let goes_on = is_number && (c == '.' || c == ',');
        if c.is_ascii_digit() && !is_number {
            text.push('#');
        } else if !c.is_ascii_digit() && !goes_on {
            text.push(c);
        }
        is_number = c.is_ascii_digit() || goes_on;
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Creates an empty directory for the files of a page, with links to the directories that its
/// examples read.
fn directory_of(page: &Path, what: &str) -> PathBuf {
    let name = relative_path(page).replace(['/', '.'], "-");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(what).join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory).unwrap();
    }
    fs::create_dir_all(&directory).unwrap();
    for name in ["examples", "tests"] {
        std::os::unix::fs::symlink(root().join(name), directory.join(name)).unwrap();
    }
    directory.canonicalize().unwrap()
}

/// Runs the examples of a page. Returns the problems, and the page with the output of this run.
fn run_page(page: &Path) -> (Vec<String>, String) {
    let text = fs::read_to_string(page).unwrap();
    let mut lines: Vec<Vec<String>> = text.lines().map(|line| vec![line.to_string()]).collect();
    let mut wrong = Vec::new();
    let directory = directory_of(page, "docs");
    for block in blocks(&text) {
        if !block.is("console") {
            if let Some(problem) = problem_of_block(&block) {
                wrong.push(format!("{}:{}: {problem}", relative_path(page), block.start));
            }
            if let Some(name) = block.kind.get(1) {
                fs::write(directory.join(name), block.text()).unwrap();
            }
            continue;
        }
        let varies = block.kind.get(1).is_some_and(|word| word == "varies");
        for entry in entries(&block) {
            let (printed, code) = entry.run(&directory);
            let place = format!("{}:{}", relative_path(page), block.start + entry.line + 1);
            if code != Some(entry.exit_code()) {
                wrong.push(format!("{place}: exit code {code:?}, and it prints {printed:#?}"));
            }
            let fits = if varies {
                lines_fit(&without_numbers(&entry.output), &without_numbers(&printed))
            } else {
                lines_fit(&entry.output, &printed)
            };
            if !fits {
                wrong.push(format!("{place}: it prints\n{}", printed.join("\n")));
                let first = block.start + entry.line + entry.command.len();
                lines[first - 1].extend(printed);
                lines[first..first + entry.output.len()].iter_mut().for_each(Vec::clear);
            }
        }
    }
    let lines: Vec<String> = lines.concat();
    (wrong, lines.join("\n") + "\n")
}

/// Returns the commands in the text of a page, outside of its blocks, with their line numbers.
fn commands_in_text(page: &str) -> Vec<(usize, &str)> {
    let mut in_block = false;
    let mut commands = Vec::new();
    for (index, line) in page.lines().enumerate() {
        in_block ^= line.starts_with("```");
        if !in_block {
            let spans = line.split('`').skip(1).step_by(2);
            let found = spans.filter(|span| span.starts_with("sardonyx "));
            commands.extend(found.map(|span| (index + 1, span)));
        }
    }
    commands
}

/// Checks that all commands in the answers of questions.md succeed.
#[test]
fn answers_to_questions_run() {
    let page = root().join("docs/questions.md");
    let text = fs::read_to_string(&page).unwrap();
    let directory = directory_of(&page, "answers");
    for block in blocks(&text).iter().filter(|block| block.is("console")) {
        for entry in entries(block) {
            assert_eq!(entry.run(&directory).1, Some(0), "{}", entry.shell_line());
        }
    }
    let commands = commands_in_text(&text);
    assert!(commands.len() >= 60, "{} commands", commands.len());
    let mut wrong = Vec::new();
    for (line, command) in commands {
        let entry = Entry { command: vec![format!("$ {command}")], output: Vec::new(), line: 0 };
        let (printed, code) = entry.run(&directory);
        if code != Some(0) {
            wrong.push(format!(
                "{}:{line}: {command}: {}",
                relative_path(&page),
                printed.join("\n")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a program in `examples/distributed` contains `lines`.
fn is_in_example(lines: &str) -> bool {
    let entries = fs::read_dir(root().join("examples/distributed")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut programs = paths.filter(|path| path.extension().is_some_and(|suffix| suffix == "py"));
    programs.any(|path| fs::read_to_string(path).unwrap().contains(lines))
}

/// Returns the problem of a block that is not run here: its kind is unknown, it has a command that
/// could be run, or it is not an excerpt of an example.
fn problem_of_block(block: &Block) -> Option<String> {
    let Some(kind) = block.kind.first() else { return Some("a block has no kind".to_string()) };
    if kind == "py" {
        let is_in_example = is_in_example(&block.lines.join("\n"));
        return (!is_in_example).then(|| "no program in examples has these lines".to_string());
    }
    if !NOT_RUN.contains(&kind.as_str()) {
        return Some(format!("blocks of kind '{kind}' are not known"));
    }
    let mut lines = block.lines.iter();
    let command = lines.find(|line| line.trim_start().starts_with("sardonyx "));
    let command = command.filter(|_| kind == "sh");
    command.map(|line| format!("'{line}' belongs into a console block, which is run"))
}

#[test]
fn commands_print_what_the_pages_show() {
    let bless = std::env::var_os("BLESS").is_some();
    let pages = pages();
    let answers: Vec<(Vec<String>, String)> = std::thread::scope(|scope| {
        let runs: Vec<_> = pages.iter().map(|page| scope.spawn(|| run_page(page))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let mut report = String::new();
    for (page, (wrong, text)) in pages.iter().zip(answers) {
        if bless && !wrong.is_empty() {
            fs::write(page, text).unwrap();
        }
        for problem in wrong {
            writeln!(report, "{problem}").unwrap();
        }
    }
    // With BLESS=1 the test fails, too, so that the written pages get a review.
    assert!(report.is_empty(), "BLESS=1 writes what is printed into the pages\n{report}");
}

/// Checks that the Rust examples of the pages are those in `book.rs`, which is compiled and run.
#[test]
fn examples_in_rust_are_those_of_the_book() {
    let source = include_str!("book.rs");
    let mut compiled: Vec<String> = Vec::new();
    let mut open = None;
    for line in source.lines() {
        match (line.trim(), &mut open) {
            ("// begin", _) => open = Some(String::new()),
            ("// end", _) => compiled.extend(open.take()),
            (_, Some(text)) => {
                *text += line.strip_prefix("    ").unwrap_or(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    let mut used = BTreeSet::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for block in blocks(&text).iter().filter(|block| block.is("rust")) {
            let found = compiled.iter().position(|example| *example == block.text());
            let place = format!("{}:{}", relative_path(&page), block.start);
            let index = found.unwrap_or_else(|| panic!("{place}: not an example of book.rs"));
            used.insert(index);
        }
    }
    let unused = (0..compiled.len()).find(|index| !used.contains(index));
    assert_eq!(unused.map(|index| &compiled[index]), None, "no page shows this");
}

/// Returns the anchor of a heading in links, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().to_lowercase();
    let letters = letters.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    letters.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_of_pages_have_targets() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, part) = target.split_once('#').unwrap_or((target, ""));
            let path =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let place = format!("{}: {target}", relative_path(&page));
            if !path.exists() {
                wrong.push(format!("{place}: the linked file does not exist"));
            } else if !part.is_empty() {
                let linked = fs::read_to_string(&path).unwrap();
                let headings = linked.lines().filter(|line| line.starts_with('#'));
                if !headings.map(anchor).any(|name| name == part) {
                    wrong.push(format!("{place}: the linked page has no heading with this anchor"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks that README.md has the numbers of docs/coverage.md, which a task generates.
#[test]
fn the_readme_has_the_numbers_of_coverage() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (readme, coverage) = (read("README.md").replace(',', ""), read("docs/coverage.md"));
    // Pairs of words next to a number: in docs/coverage.md and in README.md.
    for (there, here) in [
        (" of the standard's ", "all "),
        (" of them have kernels", " have kernels"),
        (" more are functions of others", " run as functions of others"),
        (" of the 2036 backend cases", " of the 2036 backend cases"),
        (" of 8898 of these cells", " of 8898 pairs"),
    ] {
        let (before, _) = coverage.split_once(there).unwrap_or_else(|| panic!("{there}"));
        let number = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
        assert!(!number.is_empty(), "{there}");
        let wanted = if here.starts_with(' ') {
            format!("{number}{here}")
        } else {
            format!("{here}{number}")
        };
        assert!(readme.contains(&wanted), "README.md does not say '{wanted}'");
    }
}

#[test]
fn placeholders_match_any_text() {
    let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    for (expected, printed, fits) in [
        ("a\nb", "a\nb", true),
        ("a\nb", "a\nc", false),
        ("a", "a\nb", false),
        ("a\n…", "a\nb\nc", true),
        ("…\nc", "a\nb\nc", true),
        ("…\nc", "a\nb", false),
        ("took … ms", "took 2.5 ms", true),
        ("took … ms", "took 2.5 s", false),
    ] {
        assert_eq!(lines_fit(&lines(expected), &lines(printed)), fits, "{expected} {printed}");
    }
    assert_eq!(without_numbers(&lines("p50  1,234.5 ms\nx")), ["p# # ms", "x"]);
}
