//! `cargo xtask thresholds`: writes docs/thresholds.md, every constant that decides how kernels and
//! engine order, cut or choose work, from the documentation of the constants.
//!
//! The documentation of each constant opens with its kind, one of [`KINDS`]. A constant without a
//! kind, a share of a cache without a comment, or a page that is out of date fails the check.

use crate::Result;
use crate::rust_source::{code_only, has_word, test_code};
use crate::workspace::{files, readable_path, root};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Write the page about thresholds, or check that it is up to date.
#[derive(clap::Args)]
pub(crate) struct Thresholds {
    /// Fail if the file is not what would be written.
    #[arg(long)]
    check: bool,
}

const PAGE: &str = "docs/thresholds.md";

/// Sources whose constants have a kind.
const SOURCES: [&str; 5] = [
    "crates/simd/src",
    "crates/elementwise/src",
    "crates/gemm/src",
    "crates/kernels/src",
    "crates/runtime/src",
];

/// Sources of operators, where a constant below [`MOST_POSITIONS`] is the position of an input,
/// output or attribute.
const OPERATORS: &str = "crates/runtime/src/ops/";
const MOST_POSITIONS: u64 = 10;

/// Sources that only measure the machine.
const MEASURES: &str = "crates/kernels/src/peak.rs";

/// Types of the constants that must have a kind. Most others are bit patterns and coefficients.
const TYPES: [&str; 4] = ["usize", "isize", "i64", "Duration"];

/// Purpose of a constant.
struct Kind {
    name: &'static str,
    /// Effects of a change of such a constant; empty for facts.
    about: &'static str,
}

/// Kinds in the order of the page. The last one is for facts of formats and algorithms, which the
/// page leaves out.
const KINDS: [Kind; 7] = [
    Kind {
        name: "Sums",
        about: "They decide the order of additions, or between two algorithms that round \
                differently, and so the bits of results. They are the same on every machine, for \
                any number of threads and any cache. A change needs the error bounds of \
                [Accuracy](accuracy.md) to be measured again.",
    },
    Kind {
        name: "Cache",
        about: "They fit memory into a cache, but are constant: arrays on the stack, or sizes that \
                suit every first-level cache. Sizes that depend on the machine are \
                [shares](#shares-of-caches).",
    },
    Kind {
        name: "Work",
        about: "They cut work for threads, or weigh it: the least work of a parallel region, units \
                per thread, costs of operations in units of a cheap one.",
    },
    Kind {
        name: "Choice",
        about: "They are where one way of computing becomes faster than another, which gives the same results.",
    },
    Kind {
        name: "Geometry",
        about: "They follow from registers, instructions and cache lines: sides of tiles, lanes, \
                rows in flight, distances of prefetches.",
    },
    Kind { name: "Limit", about: "They bound memory, stack, time or the sizes that are accepted." },
    Kind { name: "Value", about: "" },
];

pub(crate) fn run(task: &Thresholds) -> Result {
    let mut found = Found::default();
    for directory in SOURCES {
        found.read_directory(&root().join(directory))?;
    }
    if !found.faults.is_empty() {
        return Err(found.faults.join("\n").into());
    }
    let page = found.to_page();
    if !task.check {
        return Ok(fs::write(root().join(PAGE), page)?);
    }
    match fs::read_to_string(root().join(PAGE)) {
        Ok(text) if text == page => Ok(()),
        _ => Err(format!("{PAGE} is out of date: cargo xtask thresholds").into()),
    }
}

/// Constants and shares of caches in the order of files.
#[derive(Default)]
struct Found {
    thresholds: Vec<Threshold>,
    shares: Vec<Share>,
    /// Violations of the rules, one line each.
    faults: Vec<String>,
}

/// A constant that has a kind.
#[derive(Clone)]
struct Threshold {
    path: String,
    name: String,
    /// The expression of the source.
    value: String,
    kind: &'static str,
    reason: String,
}

/// A part of a cache that a function blocks its loops for.
struct Share {
    path: String,
    function: String,
    /// Such as `1/2 of own`.
    part: String,
    reason: String,
}

/// Most lines between a share and the comment above it.
const REACH: usize = 6;

/// Sizes of [`Caches`](sardonyx_kernels::Caches) with the methods that return shares of them.
const METHODS: [(&str, &str); 3] =
    [("near", "near_floats"), ("own", "own_floats"), ("own", "own_bytes")];

impl Found {
    fn read_directory(&mut self, directory: &Path) -> Result {
        let mut sources = Vec::new();
        let mut tests = BTreeSet::new();
        for path in files(directory, &[".rs"])? {
            let text = fs::read_to_string(&path)?;
            let children = path.with_extension("");
            let is_root = path.file_name().is_some_and(|name| name == "lib.rs");
            let children = if is_root { directory } else { &children };
            let (_, modules) = test_code(&code_only(&text));
            tests.extend(modules.iter().map(|module| children.join(module)));
            sources.push((path, text));
        }
        for (path, text) in sources {
            let name = readable_path(&path);
            let is_test = path.with_extension("").ancestors().any(|module| tests.contains(module));
            if !is_test && name != MEASURES {
                self.read_source(&name, &text);
            }
        }
        Ok(())
    }

    fn read_source(&mut self, path: &str, text: &str) {
        let source = SourceLines::new(text);
        let mut before: Option<Threshold> = None;
        for index in 0..source.code.len() {
            let Some(constant) = source.constant(index) else {
                before = None;
                continue;
            };
            let documentation = source.documentation(index);
            let (kind, reason) = match (&before, split_kind(&documentation)) {
                (Some(before), _) if documentation.is_empty() => {
                    (before.kind, before.reason.clone())
                }
                (_, Some(found)) => found,
                (_, None) => {
                    if constant.needs_kind && !is_position(path, &constant.value) {
                        let kinds = KINDS.map(|kind| kind.name).join(", ");
                        self.faults.push(format!(
                            "{path}:{}: the documentation of `{}` does not open with its kind and a colon: {kinds}",
                            index + 1,
                            constant.name
                        ));
                    }
                    continue;
                }
            };
            let threshold = Threshold {
                path: path.to_string(),
                name: constant.name,
                value: constant.value,
                kind,
                reason,
            };
            before = Some(threshold.clone());
            self.thresholds.push(threshold);
        }
        self.read_shares(path, &source);
    }

    fn read_shares(&mut self, path: &str, source: &SourceLines<'_>) {
        for (index, line) in source.code.iter().enumerate() {
            for (cache, method) in METHODS {
                for call in line.split(&format!(".{method}(")).skip(1) {
                    let Some((part, reason)) = part_of(call).zip(source.comment_above(index))
                    else {
                        self.faults.push(format!(
                            "{path}:{}: `{method}` needs two numbers and a comment above that has the reason",
                            index + 1
                        ));
                        continue;
                    };
                    self.shares.push(Share {
                        path: path.to_string(),
                        function: source.function_around(index),
                        part: format!("{part} of {cache}"),
                        reason,
                    });
                }
            }
            for cache in ["near", "own", "shared"] {
                let field = format!("caches.{cache}");
                if has_word(line, &field) {
                    self.faults.push(format!(
                        "{path}:{}: `{field}` is a whole cache: call the method for a share",
                        index + 1
                    ));
                }
            }
        }
    }

    fn to_page(&self) -> String {
        let mut page = String::from(
            "# Thresholds\n\n\
             Generated by `cargo xtask thresholds` from the documentation of the constants; do not edit.\n\n\
             For engineers: the constants that decide how kernels and engine order, cut and choose \
             work, and what may change with them. The documentation of each opens with its kind. \
             `cargo xtask thresholds --check` fails for a constant without one.\n\n\
             ## Shares of caches\n\n\
             Blocks whose size depends on the machine. `near` is the first-level cache of a core, \
             `own` the second-level cache, or the core's share of it. \
             `SARDONYX_CACHES=32K,512K,4M` overrides what the machine reports. Results have the \
             same bits for all sizes.\n\n\
             | function | share | reason |\n\
             | --- | --- | --- |\n",
        );
        for share in &self.shares {
            let Share { path, function, part, reason } = share;
            let _ = writeln!(
                page,
                "| `{function}`, [{}](../{path}) | {part} | {reason} |",
                short(path)
            );
        }
        for kind in KINDS.iter().filter(|kind| !kind.about.is_empty()) {
            let of_kind = self.thresholds.iter().filter(|threshold| threshold.kind == kind.name);
            let _ = write!(
                page,
                "\n## {}\n\n{} constants. {}\n\n| constant | value | reason |\n| --- | --- | --- |\n",
                kind.name,
                of_kind.clone().count(),
                kind.about
            );
            for Threshold { path, name, value, reason, .. } in of_kind {
                let file = short(path);
                let _ = writeln!(page, "| `{name}`, [{file}](../{path}) | `{value}` | {reason} |");
            }
        }
        page
    }
}

/// Shortens the path of a source to crate and file.
fn short(path: &str) -> String {
    path.trim_start_matches("crates/").replacen("/src/", "/", 1)
}

/// Reads the numerator and the denominator that a call begins with, as a fraction.
fn part_of(call: &str) -> Option<String> {
    let (arguments, _) = call.split_once(')')?;
    let (numerator, denominator) = arguments.split_once(", ")?;
    let [numerator, denominator]: [u32; 2] = [numerator.parse().ok()?, denominator.parse().ok()?];
    Some(if denominator == 1 {
        numerator.to_string()
    } else {
        format!("{numerator}/{denominator}")
    })
}

/// Whether a constant is the position of an input, output or attribute of an operator.
fn is_position(path: &str, value: &str) -> bool {
    path.starts_with(OPERATORS) && value.parse().is_ok_and(|value: u64| value < MOST_POSITIONS)
}

/// Splits the kind off the documentation of a constant; the rest opens with a capital letter.
fn split_kind(documentation: &str) -> Option<(&'static str, String)> {
    let (name, rest) = documentation.split_once(": ")?;
    let kind = KINDS.iter().find(|kind| kind.name == name)?;
    Some((kind.name, capitalize(rest)))
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// Definition of a constant.
struct Constant {
    name: String,
    /// The expression of the source.
    value: String,
    needs_kind: bool,
}

/// Lines of a source file, and the same lines of its code without comments, literals and tests.
struct SourceLines<'a> {
    text: Vec<&'a str>,
    code: Vec<String>,
}

impl<'a> SourceLines<'a> {
    fn new(text: &'a str) -> SourceLines<'a> {
        let code = code_only(text);
        let (tests, _) = test_code(&code);
        let mut bytes = code.into_bytes();
        for at in tests.into_iter().flatten() {
            if bytes[at] != b'\n' {
                bytes[at] = b' ';
            }
        }
        let code = String::from_utf8_lossy(&bytes).lines().map(str::to_string).collect();
        SourceLines { text: text.lines().collect(), code }
    }

    /// Reads the constant that is defined from a line on. Constants of traits are left out.
    fn constant(&self, index: usize) -> Option<Constant> {
        let (before, definition) = self.code[index].split_once("const ")?;
        let mut words = before.split_whitespace();
        if !words.all(|word| word.starts_with("pub") || word.ends_with(')')) {
            return None;
        }
        let (name, rest) = definition.split_once(": ")?;
        let (ty, first) = rest.split_once(" = ").or_else(|| rest.split_once(" ="))?;
        let element = ty.strip_prefix('[').map_or(ty, |ty| ty.split(';').next().unwrap_or(ty));
        if self.is_in_trait(index) || name.starts_with('$') {
            return None;
        }
        let mut value = first.trim().to_string();
        for line in &self.code[index + 1..] {
            if value.ends_with(';') {
                break;
            }
            value = format!("{value} {}", line.trim()).trim().to_string();
        }
        let value = value.trim_end_matches(';').to_string();
        Some(Constant { name: name.to_string(), value, needs_kind: TYPES.contains(&element) })
    }

    /// Whether a line is directly in a trait or in its implementation for a type.
    fn is_in_trait(&self, index: usize) -> bool {
        let indentation = self.code[index].len() - self.code[index].trim_start().len();
        let opening = self.code[..index].iter().rev().find(|line| {
            line.starts_with(|first: char| first.is_ascii_alphabetic() || first == '}')
        });
        indentation == 4
            && opening.is_some_and(|line| {
                has_word(line, "trait") || line.contains("impl") && has_word(line, "for")
            })
    }

    /// Joins the documentation above a line, attributes skipped.
    fn documentation(&self, index: usize) -> String {
        let above = self.text[..index].iter().rev().map(|line| line.trim_start());
        let mut lines: Vec<&str> = above
            .skip_while(|line| line.starts_with("#["))
            .map_while(|line| line.strip_prefix("///"))
            .collect();
        lines.reverse();
        join(&lines)
    }

    /// Joins the nearest comment above a line, at most [`REACH`] lines away.
    fn comment_above(&self, index: usize) -> Option<String> {
        let above = self.text[..index].iter().rev().map(|line| line.trim_start());
        let distance = above.clone().take(REACH).position(|line| line.starts_with("//"))?;
        let mut lines: Vec<&str> = above
            .skip(distance)
            .map_while(|line| line.strip_prefix("//"))
            .map(|line| line.trim_start_matches('/'))
            .collect();
        lines.reverse();
        Some(join(&lines))
    }

    /// Returns the name of the function around a line.
    fn function_around(&self, index: usize) -> String {
        let above = self.code[..=index].iter().rev();
        let name = above.filter_map(|line| line.split_once("fn ")).map(|(_, rest)| rest).next();
        let name = name.unwrap_or_default().split(['(', '<']).next();
        name.unwrap_or_default().to_string()
    }
}

/// Joins lines of a comment for a cell of a table. Links to items become names.
fn join(lines: &[&str]) -> String {
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    words.join(" ").replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> Found {
        let mut found = Found::default();
        found.read_source(path, text);
        found
    }

    #[test]
    fn a_constant_without_a_kind_is_found() {
        let text = "\
/// Work: rows of a [`Unit`].
const ROWS: usize = 4;
const COLS: usize =
    2 * ROWS;

/// Columns of a block.
const BLOCK: usize = 64;
pub(crate) const SIZES: [usize; 2] = [1, 2];
const SEED: u64 = 7;

impl Number for f32 {
    const LANES: usize = 4;
}

impl Pool {
    /// Limit: most threads.
    pub const MOST: usize = 9;
}

#[cfg(test)]
mod tests {
    const CASES: usize = 3;
}
";
        let found = read("crates/gemm/src/x.rs", text);
        let thresholds = found.thresholds.iter().map(|threshold| {
            let Threshold { name, value, kind, reason, .. } = threshold;
            format!("{name} {value} {kind} {reason}")
        });
        assert_eq!(
            thresholds.collect::<Vec<_>>(),
            [
                "ROWS 4 Work Rows of a `Unit`.",
                "COLS 2 * ROWS Work Rows of a `Unit`.",
                "MOST 9 Limit Most threads."
            ]
        );
        assert_eq!(found.faults.len(), 2, "{:?}", found.faults);
        assert!(
            found.faults[0].starts_with("crates/gemm/src/x.rs:7: the documentation of `BLOCK`")
        );
        assert!(
            found.faults[1].starts_with("crates/gemm/src/x.rs:8: the documentation of `SIZES`")
        );
    }

    #[test]
    fn positions_of_operators_need_no_kind() {
        let text = "const AXIS: usize = 2;\nconst MOST: usize = 10;\n";
        let found = read("crates/runtime/src/ops/x.rs", text);
        assert_eq!(found.faults.len(), 1, "{:?}", found.faults);
        assert!(found.faults[0].contains("`MOST`"));
    }

    #[test]
    fn shares_have_a_reason() {
        let text = "\
/// Cuts.
fn cut(caches: Caches) -> usize {
    // Rows stay in half.
    let rows = caches.own_floats(1, 2);
    let a = 1;
    let b = 1;
    let c = 1;
    let d = 1;
    let e = 1;
    rows + caches.near_floats(2, 1) + caches.own
}
";
        let found = read("crates/gemm/src/x.rs", text);
        let [share] = &found.shares[..] else { panic!("one share has a comment near it") };
        assert_eq!(
            [&share.function, &share.part, &share.reason],
            ["cut", "1/2 of own", "Rows stay in half."]
        );
        assert_eq!(found.faults.len(), 2, "{:?}", found.faults);
        assert!(found.faults[0].contains("`near_floats` needs"));
        assert!(found.faults[1].contains("`caches.own` is a whole cache"));
    }
}
