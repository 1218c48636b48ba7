//! `cargo xtask api`: the public interface of the library as a file, so that it grows by decision.
//!
//! rustdoc describes the crates in JSON, a form that only unstable options give. They are switched
//! on for rustdoc alone: build scripts of other crates run again when `RUSTC_BOOTSTRAP` appears.

mod documented;
mod interface;
mod signature;

use crate::workspace::{cargo, packages, readable_path, root};
use crate::{Result, shell};
use documented::Documented;
use interface::Interface;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::process::{Command, ExitCode};

/// Compare the public interface of the library with crates/sardonyx/tests/public-api.txt.
#[derive(clap::Args)]
pub(crate) struct Api {
    /// Fail if the interface differs from the file.
    #[arg(long, conflicts_with = "bless")]
    check: bool,
    /// Rewrite the file to the interface that was found.
    #[arg(long)]
    bless: bool,
    /// Print items that signatures mention and users cannot name.
    #[arg(long)]
    unnamed: bool,
}

const FILE: &str = "crates/sardonyx/tests/public-api.txt";

/// The crate whose interface is promised.
const FRONT: &str = "sardonyx";

/// The variable that makes this program call rustdoc, which it names.
pub(crate) const RUSTDOC: &str = "SARDONYX_XTASK_RUSTDOC";

pub(crate) fn run(task: &Api) -> Result {
    let interface = Interface::read(&document()?)?;
    let counts = describe_counts(&interface);
    println!("{counts}");
    if task.unnamed {
        for name in &interface.unnamed {
            println!("  {name}");
        }
    }
    let path = root().join(FILE);
    if task.bless {
        fs::write(&path, render(&interface))?;
    }
    if !task.check {
        return Ok(());
    }
    let text =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", readable_path(&path)))?;
    let differences = compare(&text, &render(&interface));
    if differences.is_empty() {
        return Ok(());
    }
    for difference in &differences {
        println!("{difference}");
    }
    let advice = "If the change is meant, run `cargo xtask api --bless`, and say in CHANGELOG.md \
         what users gain or lose";
    Err(format!("the public interface differs from {FILE}. {advice}").into())
}

/// Calls rustdoc with unstable options allowed: what cargo starts in place of rustdoc.
pub(crate) fn wrap_rustdoc(rustdoc: &OsStr) -> Result<ExitCode> {
    let mut command = Command::new(rustdoc);
    command.env("RUSTC_BOOTSTRAP", "1").args(std::env::args_os().skip(1));
    let status = command.status().map_err(|error| format!("cannot start rustdoc: {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Has rustdoc describe the front and all crates of ours below it, the front first.
fn document() -> Result<Vec<Documented>> {
    let packages = packages()?;
    let front = packages.iter().find(|package| package["name"] == FRONT);
    let front = front.ok_or_else(|| format!("the workspace has no package {FRONT}"))?;
    let mut names: Vec<&str> = vec![FRONT];
    let mut next = 0;
    while let Some(name) = names.get(next) {
        let package = packages.iter().find(|package| package["name"] == *name);
        let used = package.and_then(|package| package["dependencies"].as_array());
        for dependency in used.into_iter().flatten().filter(|used| used["kind"].is_null()) {
            let ours = packages.iter().find(|package| package["name"] == dependency["name"]);
            let ours = ours.and_then(|package| package["name"].as_str());
            names.extend(ours.filter(|name| !names.contains(name)));
        }
        next += 1;
    }
    let features = front["features"].as_object().into_iter().flat_map(|features| features.keys());
    let features: Vec<String> = features.map(|name| format!("{FRONT}/{name}")).collect();

    let mut command = cargo();
    command.args(["doc", "--no-deps", "--lib", "--quiet"]);
    command.args(names.iter().flat_map(|name| ["--package", name]));
    command.args(["--features", &features.join(",")]);
    // The flags are part of what cargo compares, so pages of `cargo doc` do not count as these.
    command.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow");
    command.env(RUSTDOC, std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into()));
    command.env("RUSTDOC", std::env::current_exe()?);
    shell::run(&mut command)?;
    let directory = doc_directory()?;
    let read = names.iter().map(|name| {
        let library = name.replace('-', "_");
        Documented::read(&directory.join(format!("{library}.json")), &library)
    });
    read.collect()
}

/// Returns the directory of cargo's documentation.
fn doc_directory() -> Result<std::path::PathBuf> {
    let metadata = cargo().args(["metadata", "--format-version=1", "--no-deps"]).output()?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout)?;
    let target = metadata["target_directory"].as_str().ok_or("cargo names no target directory")?;
    Ok(std::path::Path::new(target).join("doc"))
}

const HEAD: &str = "\
# The public interface of the crate `sardonyx`, one item a line. `{ .. }` stands for private fields,
# and after a method of a trait for a body that types may replace. Hidden items are left out.
# `cargo xtask api --check` fails if an item differs, `cargo xtask api --bless` renews the file.
";

fn render(interface: &Interface) -> String {
    let mut text = HEAD.to_string();
    for line in &interface.lines {
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn describe_counts(interface: &Interface) -> String {
    let all: usize = interface.names.values().sum();
    let at_root = interface.names.get("").copied().unwrap_or_default();
    let modules = interface.names.keys().filter(|name| !name.is_empty()).count();
    format!(
        "public interface: {all} names, {at_root} at the root, the others in {modules} modules; {} \
         items, {} in signatures only",
        interface.lines.len(),
        interface.unnamed.len()
    )
}

/// Lists lines that one text has and the other lacks, in the order of the file, as `diff` marks
/// them.
fn compare(old: &str, new: &str) -> Vec<String> {
    let [old_lines, new_lines] = [old, new].map(|text| BTreeSet::from_iter(text.lines()));
    let gone = old.lines().filter(|line| !new_lines.contains(line)).map(|line| format!("- {line}"));
    let added =
        new.lines().filter(|line| !old_lines.contains(line)).map(|line| format!("+ {line}"));
    gone.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::artifacts;

    /// Two crates, of which the first shows parts of the second.
    const INNER: &str = "
        mod hidden { #[derive(Clone)] pub struct Moved<'a, T: Send = u8> { pub a: &'a [T], b: u8 } }
        pub use hidden::Moved;
        pub struct Unnamed;
        impl<'a, T: Send> Moved<'a, T> {
            pub fn get(&self, at: impl Fn(&str) -> Option<T> + 'a) -> Result<&'a T, std::io::Error> { loop {} }
            #[doc(hidden)] pub fn secret(&self) {}
        }
        impl Moved<'_, u16> { pub const fn wide(self) -> Unnamed { Unnamed } }
        impl<'a> From<Moved<'a>> for Vec<u8> { fn from(_: Moved<'a>) -> Vec<u8> { Vec::new() } }
        pub mod more { pub fn all() {} pub trait Own: Sync { const N: usize; fn f(self: Box<Self>) {} }
            impl Own for u8 { const N: usize = 1; } }
    ";
    const OUTER: &str = "
        pub use inner::{Moved, more::Own};
        pub mod deep { pub use inner::Moved as Again; pub use inner::more::*; pub use std::rc::Rc; }
        #[non_exhaustive] pub enum Choice { A(u8), B { x: std::rc::Rc<str> } }
        impl Iterator for Choice { type Item = u8; fn next(&mut self) -> Option<u8> { None } }
        #[doc(hidden)] pub mod tool { pub fn gone() {} }
        pub type Short<T> = Result<T, Box<dyn std::error::Error + Send + 'static>>;
        #[deprecated] pub static OLD: &str = \"\";
        pub fn tupled(x: (u8,), y: [u8; 3], z: *const u8, f: fn(&str)) -> impl Iterator<Item = u8> { [].into_iter() }
    ";
    const LINES: &str = "\
#[non_exhaustive] enum Choice
impl !Send + !Sync + Iterator for Choice
variant Choice::A(u8)
variant Choice::B { x: Rc<str> }
struct Moved<'a, T: Send = u8> { .. }
impl<'a, T: Clone + Send> Clone for Moved<'a, T>
impl<'a> From<Moved<'a>> for Vec<u8>
field Moved::a: &'a [T]
fn Moved::get(&self, at: impl Fn(&str) -> Option<T> + 'a) -> Result<&'a T, io::Error> in impl<'a, T: Send> Moved<'a, T>
const fn Moved::wide(self) -> inner::Unnamed in impl Moved<'_, u16>
#[deprecated] static OLD: &str
trait Own: Sync
impl Own for u8
const Own::N: usize
fn Own::f(self: Box<Self>) { .. }
type Short<T> = Result<T, Box<dyn error::Error + Send + 'static>>
mod deep
use deep::Again = Moved
use deep::Own = Own
use deep::Rc = Rc
fn deep::all()
fn tupled(x: (u8,), y: [u8; 3], z: *const u8, f: fn(&str)) -> impl Iterator<Item = u8>
";

    fn rustdoc(name: &str, source: &str, arguments: &[&str]) -> Documented {
        let directory = artifacts("api-test");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{name}.rs")), source).unwrap();
        let file = format!("{name}.rs");
        let call = |program: &str, more: &[&str]| {
            let mut command = Command::new(program);
            command.current_dir(&directory).env("RUSTC_BOOTSTRAP", "1");
            command.args(["--edition=2024", "--crate-type=lib", "--cap-lints=allow", &file]);
            shell::run(command.args(more).args(arguments)).unwrap();
        };
        call("rustc", &["--emit=metadata"]);
        call("rustdoc", &["-Zunstable-options", "--output-format=json", "-o", "doc"]);
        Documented::read(&directory.join(format!("doc/{name}.json")), name).unwrap()
    }

    #[test]
    fn an_interface_has_a_line_for_each_item() {
        let inner = rustdoc("inner", INNER, &[]);
        let outer = rustdoc("outer", OUTER, &["--extern=inner=libinner.rmeta"]);
        let interface = Interface::read(&[outer, inner]).unwrap();
        assert_eq!(interface.lines.join("\n") + "\n", LINES);
        assert_eq!(Vec::from_iter(&interface.unnamed), ["inner::Unnamed"]);
        let counts: Vec<(&str, usize)> =
            interface.names.iter().map(|(module, names)| (module.as_str(), *names)).collect();
        assert_eq!(counts, [("", 6), ("deep", 4)]);
    }

    #[test]
    fn a_form_that_is_not_known_is_refused() {
        let json = serde_json::json!({"format_version": 1, "paths": {}});
        let error = Documented::new(json, "x").err().unwrap().to_string();
        assert!(error.contains("wrote form 1"), "{error}");
    }

    #[test]
    fn differences_are_lines_that_came_or_went() {
        let found = compare("fn a()\nfn b()\nfn c()\n", "fn a()\nfn c()\nfn d()\n");
        assert_eq!(found, ["- fn b()", "+ fn d()"]);
    }
}
