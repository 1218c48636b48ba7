//! Graph of the modules of a crate, by the paths that their code names.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust_source::code_only;

/// A path in pieces: of a module, or of an item in one.
pub(crate) type Path = Vec<String>;

/// Modules that each module uses, tests included, where both have a file of their own. The root of
/// the crate is left out, which declares all of them; its re-exports count as the original.
pub(crate) struct ModuleGraph(BTreeMap<Path, BTreeSet<Path>>);

impl ModuleGraph {
    /// Builds the graph of a crate from its sources, by path below `src`, such as `nn/conv.rs`.
    pub(crate) fn new(sources: &BTreeMap<String, String>) -> ModuleGraph {
        let sources: BTreeMap<Path, Vec<Named>> =
            sources.iter().map(|(file, source)| (module_of(file), collect_paths(source))).collect();
        let exported: BTreeMap<String, Path> = match sources.get(&Path::new()) {
            Some(root) => aliases(&Path::new(), root, &sources),
            None => BTreeMap::new(),
        };
        let edges = sources.iter().filter(|(module, _)| !module.is_empty());
        let edges = edges.map(|(module, found)| {
            let aliases = aliases(module, found, &sources);
            let full = found.iter().filter_map(|named| named.absolute(module, &sources, &aliases));
            let used = full.filter_map(|path| {
                let path = match path.first().and_then(|first| exported.get(first)) {
                    Some(item) if !sources.contains_key(&path[..1]) => item.clone(),
                    _ => path,
                };
                file_of(&path, &sources).filter(|used| used != module)
            });
            (module.clone(), used.collect())
        });
        ModuleGraph(edges.collect())
    }

    /// Finds the modules that a module uses, over any number of steps, and that use it.
    pub(crate) fn circle_with(&self, module: &[String]) -> Vec<String> {
        let uses = self.reach(module, |from| self.0.get(from).into_iter().flatten().collect());
        let used_by = self.reach(module, |to| {
            self.0.iter().filter(|(_, used)| used.contains(to)).map(|(from, _)| from).collect()
        });
        uses.intersection(&used_by).map(|module| module.join("::")).collect()
    }

    /// Joins each directory and its file into one module.
    pub(crate) fn of_directories(self) -> ModuleGraph {
        let mut directories: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
        for (module, used) in self.0 {
            let directory = module[..1].to_vec();
            let used = used.into_iter().map(|path| path[..1].to_vec());
            let used: Vec<Path> = used.filter(|used| *used != directory).collect();
            directories.entry(directory).or_default().extend(used);
        }
        ModuleGraph(directories)
    }

    /// Finds modules that use each other, over any number of steps: the first by name of each
    /// cycle, and the others.
    pub(crate) fn circles(&self) -> Vec<(String, Vec<String>)> {
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for module in self.0.keys() {
            let name = module.join("::");
            let others = self.circle_with(module);
            if !others.is_empty() && seen.insert(name.clone()) {
                seen.extend(others.iter().cloned());
                circles.push((name, others));
            }
        }
        circles
    }

    fn reach<'a>(
        &'a self,
        from: &[String],
        next: impl Fn(&[String]) -> Vec<&'a Path>,
    ) -> BTreeSet<&'a Path> {
        let mut found = BTreeSet::new();
        let mut pending = next(from);
        while let Some(module) = pending.pop() {
            if module[..] != *from && found.insert(module) {
                pending.extend(next(module));
            }
        }
        found
    }
}

fn module_of(file: &str) -> Path {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').filter(|part| *part != "lib").map(str::to_string).collect()
}

/// Returns the nearest module with a file around an item; nothing for an item outside of modules.
fn file_of(path: &[String], sources: &BTreeMap<Path, Vec<Named>>) -> Option<Path> {
    let lengths = (1..=path.len()).rev();
    lengths
        .map(|length| &path[..length])
        .find(|path| sources.contains_key(*path))
        .map(<[_]>::to_vec)
}

/// A path as a file names it.
#[derive(Debug, PartialEq)]
struct Named {
    parts: Path,
    /// Number of inline modules around it.
    depth: usize,
    /// The name that a `use` gives it.
    alias: Option<String>,
}

impl Named {
    /// Resolves a path from the root of the crate; nothing if it leads to another crate.
    fn absolute(
        &self,
        module: &[String],
        sources: &BTreeMap<Path, Vec<Named>>,
        aliases: &BTreeMap<String, Path>,
    ) -> Option<Path> {
        let first = self.parts.first()?;
        let (start, rest) = match first.as_str() {
            "crate" => (Path::new(), &self.parts[1..]),
            "self" | "super" => {
                let up = self.parts.iter().take_while(|part| *part == "super").count();
                let rest = &self.parts[up.max(1)..];
                let up = up.saturating_sub(self.depth);
                (module[..module.len().saturating_sub(up)].to_vec(), rest)
            }
            _ => {
                let child: Path = module.iter().chain([first]).cloned().collect();
                if sources.contains_key(&child) {
                    (child, &self.parts[1..])
                } else {
                    (aliases.get(first)?.clone(), &self.parts[1..])
                }
            }
        };
        Some(start.into_iter().chain(rest.iter().cloned()).collect())
    }
}

/// Resolves the names that a file imports.
fn aliases(
    module: &[String],
    found: &[Named],
    sources: &BTreeMap<Path, Vec<Named>>,
) -> BTreeMap<String, Path> {
    let none = BTreeMap::new();
    let aliases = found
        .iter()
        .filter_map(|named| Some((named.alias.clone()?, named.absolute(module, sources, &none)?)));
    aliases.collect()
}

/// Collects paths of at least two parts in a source, and those of `use`.
fn collect_paths(source: &str) -> Vec<Named> {
    let code = code_only(source);
    let mut words = Words { rest: &code, last: "" };
    let (mut found, mut braces, mut modules) = (Vec::new(), 0_usize, Vec::new());
    while let Some(word) = words.next() {
        match word {
            "{" => braces += 1,
            "}" => {
                braces = braces.saturating_sub(1);
                if modules.last() == Some(&braces) {
                    modules.pop();
                }
            }
            "mod" => {
                words.next();
                if words.next() == Some("{") {
                    modules.push(braces);
                    braces += 1;
                }
            }
            "use" => words.tree(&mut Path::new(), modules.len(), true, &mut found),
            _ if is_name(word) => {
                let mut path = vec![word.to_string()];
                words.tree(&mut path, modules.len(), false, &mut found);
            }
            _ => {}
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
}

/// Words and signs of a source, `::` as one.
struct Words<'a> {
    rest: &'a str,
    last: &'a str,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
        let first = rest.chars().next()?;
        let end = match first {
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        Some(&rest[..end])
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.rest = &self.rest.trim_start()[word.len()..];
        self.last = word;
        Some(word)
    }

    /// Reads the rest of a path, or in a `use` of a tree of paths.
    fn tree(&mut self, path: &mut Path, depth: usize, is_use: bool, found: &mut Vec<Named>) {
        let before = path.len();
        loop {
            match self.peek() {
                Some("::") => {
                    self.next();
                }
                Some("{") if is_use => {
                    self.next();
                    while self.peek().is_some_and(|word| word != "}") {
                        self.tree(path, depth, true, found);
                        if self.peek() == Some(",") {
                            self.next();
                        } else if self.peek() != Some("}") {
                            break;
                        }
                    }
                    self.next();
                    path.truncate(before);
                    return;
                }
                Some(word) if is_name(word) && (self.last == "::" || is_use && word != "as") => {
                    self.next();
                    path.push(word.to_string());
                    if is_use && self.peek() != Some("::") {
                        break;
                    }
                }
                _ => break,
            }
        }
        let mut alias = path.last().cloned();
        if is_use && self.peek() == Some("as") {
            self.next();
            alias = self.next().map(str::to_string);
        } else if is_use && self.peek() == Some("*") {
            self.next();
            alias = None;
        }
        if is_use || path.len() > 1 {
            let mut parts = path.clone();
            // `use a::{self}` names `a`.
            if parts.len() > 1 && parts.last().is_some_and(|last| last == "self") {
                parts.pop();
                alias = parts.last().cloned();
            }
            found.push(Named { parts, depth, alias: alias.filter(|_| is_use) });
        }
        path.truncate(before);
    }
}

#[cfg(test)]
mod tests {
    use super::{ModuleGraph, Path};
    use std::collections::BTreeMap;

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let sources: BTreeMap<String, String> =
            files.iter().map(|(file, source)| (file.to_string(), source.to_string())).collect();
        let registry: Path = vec!["registry".into()];
        ModuleGraph::new(&sources).circle_with(&registry)
    }

    #[test]
    fn directories_are_one_module_each() {
        let files = [
            ("lib.rs", "mod plan; mod run; mod ops;"),
            ("plan.rs", "use crate::ops::nn::Conv;"),
            ("ops.rs", "mod nn;"),
            ("ops/nn.rs", "use super::Site; use crate::run::Call;"),
            ("run.rs", "use crate::plan::Plan;"),
        ];
        let sources = |files: &[(&str, &str)]| {
            files.iter().map(|(file, source)| (file.to_string(), source.to_string())).collect()
        };
        let graph = ModuleGraph::new(&sources(&files)).of_directories();
        assert_eq!(graph.circles(), [("ops".to_string(), vec!["plan".to_string(), "run".into()])]);
        let graph = ModuleGraph::new(&sources(&files[..4])).of_directories();
        assert_eq!(graph.circles(), []);
    }

    #[test]
    fn circles_are_found_however_a_path_is_written() {
        let root = ("lib.rs", "mod nn; mod registry; mod def; pub use registry::Registry;");
        let registry =
            ("registry.rs", "use crate::{nn, def::{OpDef}};\nstatic A: O = &nn::conv::C;");
        let quiet = ("def.rs", "// crate::registry\n/// [`crate::Registry`]\npub struct OpDef;");
        let closing = [
            "use crate::Registry;",
            "use crate::{nn, Registry as R};",
            "fn f() { crate::registry::find() }",
            "fn f(r: &crate::Registry) {}",
            "use super::super::registry::{self};",
            "use super::helper::{other, inner::{of}};",
            "mod tests { use super::super::super::registry::*; }",
            "use crate::registry as list;\nfn f() { list::find() }",
        ];
        for source in closing {
            let conv = ("nn/conv.rs", source);
            let helper = ("nn/helper.rs", "use crate::registry::find;");
            let found = circle(&[root, registry, quiet, ("nn.rs", "mod conv;"), helper, conv]);
            let all = if source.contains("helper") {
                vec!["nn::conv", "nn::helper"]
            } else {
                vec!["nn::conv"]
            };
            assert_eq!(found, all, "{source}");
        }
        let open = [
            "use crate::def::OpDef;",
            "mod tests { use super::*; fn f() { registry::find() } }",
            "use sardonyx_model::registry;\nfn f() { registry::find() }",
            "fn f() { let s = \"crate::registry\"; }",
        ];
        for source in open {
            let found = circle(&[root, registry, quiet, ("nn.rs", ""), ("nn/conv.rs", source)]);
            assert!(found.is_empty(), "{source}: {found:?}");
        }
    }
}
