//! `cargo xtask tidy`: the rules of the workspace that cargo and clippy do not know.
//!
//! Above all the direction of dependencies between crates. Every finding names the place and the
//! rule.

use crate::Result;
use crate::module_graph::ModuleGraph;
use crate::rust_source::{code_only, lines_with_word};
use crate::voice::{self, Voice};
use crate::workspace::{cargo, files, packages, readable_path, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crates of ours that a crate may use: those to its left in ARCHITECTURE.md's picture, never
/// the other way. `xtask` and the tests may use everything.
const MAY_USE: &[(&str, &[&str])] = &[
    ("sardonyx-proto", &[]),
    ("sardonyx-tensor", &[]),
    ("sardonyx-model", &["sardonyx-proto", "sardonyx-tensor"]),
    ("sardonyx-text", &["sardonyx-proto", "sardonyx-tensor", "sardonyx-model"]),
    ("sardonyx-ops", &["sardonyx-proto", "sardonyx-tensor", "sardonyx-model"]),
    (
        "sardonyx-passes",
        &["sardonyx-proto", "sardonyx-tensor", "sardonyx-model", "sardonyx-text", "sardonyx-ops"],
    ),
    (
        "sardonyx-shard",
        &["sardonyx-proto", "sardonyx-tensor", "sardonyx-model", "sardonyx-ops", "sardonyx-passes"],
    ),
    ("sardonyx-simd", &[]),
    ("sardonyx-elementwise", &["sardonyx-simd"]),
    ("sardonyx-gemm", &["sardonyx-simd", "sardonyx-elementwise"]),
    ("sardonyx-kernels", &["sardonyx-simd", "sardonyx-elementwise", "sardonyx-gemm"]),
    ("sardonyx-devices", &["sardonyx-tensor"]),
    (
        "sardonyx-runtime",
        &[
            "sardonyx-proto",
            "sardonyx-tensor",
            "sardonyx-model",
            "sardonyx-ops",
            "sardonyx-passes",
            "sardonyx-kernels",
        ],
    ),
    ("sardonyx-formats", &["sardonyx-proto", "sardonyx-tensor"]),
    (
        "sardonyx",
        &[
            "sardonyx-formats",
            "sardonyx-proto",
            "sardonyx-tensor",
            "sardonyx-model",
            "sardonyx-text",
            "sardonyx-ops",
            "sardonyx-passes",
            "sardonyx-shard",
            "sardonyx-kernels",
            "sardonyx-devices",
            "sardonyx-runtime",
        ],
    ),
    ("sardonyx-ort", &["sardonyx"]),
    ("sardonyx-capi", &["sardonyx", "sardonyx-ort"]),
    ("sardonyx-libonnxruntime", &["sardonyx-capi"]),
    ("ort-sardonyx", &["sardonyx-capi"]),
    ("sardonyx-c", &["sardonyx"]),
    ("sardonyx-generate", &["sardonyx"]),
    ("sardonyx-cli", &["sardonyx", "sardonyx-generate"]),
    ("sardonyx-python", &["sardonyx", "sardonyx-generate", "sardonyx-ort"]),
];
/// The crate that programs use.
const FRONT: &str = "sardonyx";
/// Crates that products may name: the front, and what products share over it.
const SHARED: &[&str] = &[FRONT, "sardonyx-generate", "sardonyx-ort"];
const MAY_USE_ALL: &[&str] = &["xtask", "sardonyx-tests", "sardonyx-fuzz"];

/// Crates of shipped programs. They use the library like every program: manifests and sources
/// name no other crate of ours.
const PRODUCTS: &[&str] = &[
    "crates/cli/src",
    "crates/generate/src",
    "crates/python/src",
    "crates/ort/src",
    "crates/capi/src",
    "crates/c/src",
];

/// The only places for `unsafe`.
const UNSAFE_PLACES: &[&str] = &[
    "crates/simd/",
    "crates/elementwise/",
    "crates/gemm/",
    "crates/kernels/",
    "crates/tensor/",
    "crates/c/",
    "crates/capi/",
    "crates/libonnxruntime/",
    "crates/ort-sardonyx/src/lib.rs",
    "crates/devices/src/mpi/library.rs",
    "crates/python/src/session/memory",
    "crates/sardonyx/src/large_pages.rs",
    "crates/sardonyx/src/mapping.rs",
];

/// The list of operators, and where the definitions are that it lists: they are given the list
/// where they need it.
const REGISTRY: (&str, &str) = ("crates/ops/src", "registry");

/// The sources whose modules are in layers: what a module uses does not use it, over any number of
/// steps. A directory counts with its file.
const LAYERED: &[&str] = &["crates/passes/src", "crates/runtime/src"];

/// Modules of a layered source that use each other, because their jobs do: a body that is inlined
/// is converted to the versions around it, and a node without an adapter is converted by inlining
/// its body.
const MUTUAL: &[&str] = &["align", "convert", "inline"];

/// Identifiers that have given way to the words of the field, and these.
const RETIRED: &[(&str, &str)] = &[
    ("absorbed", "fused"),
    ("absorbing", "fusing"),
    ("behind", "after"),
    ("folder", "directory"),
    ("folders", "directories"),
    ("picture", "image"),
    ("pictures", "images"),
    ("skips", "residual_norm"),
    ("stretch", "broadcast"),
    ("stretched", "broadcast"),
    ("stretches", "broadcasts"),
    ("tails", "epilogue"),
    ("turned", "transposed, rotated or converted"),
    ("unread", "dead"),
];

/// Names that describe no content.
const EMPTY_NAMES: &[&str] = &["utils", "util", "helpers", "misc", "common"];

/// Documents whose links and paths must lead somewhere.
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];

pub(crate) fn run(voice: &Voice) -> Result {
    if voice.is_report() {
        return voice.report();
    }
    let mut findings = Vec::new();
    crate_graph(&mut findings)?;
    rust_files(&mut findings)?;
    products_use_the_front(&mut findings)?;
    products_share_crates(&mut findings)?;
    registry_is_above(&mut findings)?;
    layers_have_no_circles(&mut findings)?;
    crate_docs(&mut findings)?;
    reasons_for_dependencies(&fs::read_to_string(root().join("Cargo.toml"))?, &mut findings);
    links(&mut findings);
    voice::check(&mut findings)?;
    if findings.is_empty() {
        println!("tidy: nothing found");
        return Ok(());
    }
    for finding in &findings {
        println!("{finding}");
    }
    Err(format!("tidy: {} findings", findings.len()).into())
}

fn crate_graph(findings: &mut Vec<String>) -> Result {
    let packages = packages()?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        if MAY_USE_ALL.contains(&name) {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            findings.push(format!(
                "{name}: a new crate needs a line in xtask/src/tidy.rs that says what it may use"
            ));
            continue;
        };
        let used = package["dependencies"].as_array().into_iter().flatten();
        // Tests may use inner crates; products may not.
        let used = used.filter(|dependency| dependency["kind"] != "dev");
        for used in used.filter_map(|dependency| dependency["name"].as_str()) {
            if names.contains(&used) && !allowed.contains(&used) {
                findings.push(format!("{name}: must not use {used}"));
            }
        }
    }
    Ok(())
}

/// Checks that crates below both products have the same features in both, so that the second that
/// is built compiles none of them again.
fn products_share_crates(findings: &mut Vec<String>) -> Result {
    let [command, wheel] = [features_below("sardonyx-cli")?, features_below("sardonyx-python")?];
    findings.extend(different_features(&command, &wheel));
    Ok(())
}

/// Feature lists of each crate and version. A crate that build programs use too can have two.
type Features = BTreeMap<String, BTreeSet<String>>;

fn features_below(product: &str) -> Result<Features> {
    let output = cargo()
        .args(["tree", "--package", product, "--edges", "normal,build"])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p}\t{f}"])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let mut features = Features::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let (package, list) = line.split_once('\t').unwrap_or((line, ""));
        features.entry(package.to_string()).or_default().insert(list.to_string());
    }
    Ok(features)
}

fn different_features(command: &Features, wheel: &Features) -> Vec<String> {
    let shared =
        command.iter().filter_map(|(package, own)| Some((package, own, wheel.get(package)?)));
    let different = shared.filter(|(_, own, others)| own != others);
    different
        .map(|(package, own, others)| {
            let [own, others] = [own, others].map(|lists| Vec::from_iter(lists.clone()).join(" / "));
            format!(
                "{package}: built twice, with the features [{own}] below crates/cli and [{others}] below \
                 crates/python; name the missing ones in the other manifest"
            )
        })
        .collect()
}

/// Checks that sources of products use the front alone. Their manifests are checked with the
/// graph of crates; what a test may use beyond that, their sources do not.
fn products_use_the_front(findings: &mut Vec<String>) -> Result {
    let inner: Vec<String> = MAY_USE
        .iter()
        .filter(|(name, _)| !SHARED.contains(name))
        .map(|(name, _)| name.replace('-', "_"))
        .collect();
    for directory in PRODUCTS {
        for path in files(&root().join(directory), &[".rs"])? {
            let source = fs::read_to_string(&path)?;
            for (line, name) in inner_crates(&source, &inner) {
                let name = name.replace('_', "-");
                // A program uses the library beside it.
                if *directory == format!("crates/{}/src", name.trim_start_matches("sardonyx-")) {
                    continue;
                }
                findings.push(format!(
                    "{}:{line}: {name} is a part of `{FRONT}`, which is to be used instead",
                    readable_path(&path)
                ));
            }
        }
    }
    Ok(())
}

/// Finds the crates that a source names, with the lines, counted from 1.
fn inner_crates<'n>(source: &str, names: &'n [String]) -> Vec<(usize, &'n str)> {
    let code = code_only(source);
    let found = names.iter().flat_map(|name| {
        let lines = lines_with_word(&code, name);
        lines.map(move |line| (line, name.as_str()))
    });
    let mut found: Vec<(usize, &str)> = found.collect();
    found.sort_unstable();
    found
}

/// Checks that definitions of operators do not use the list, which uses all of them.
fn registry_is_above(findings: &mut Vec<String>) -> Result {
    let (directory, registry) = REGISTRY;
    let circle = modules_of(directory)?.circle_with(&[registry.to_string()]);
    if !circle.is_empty() {
        findings.push(format!(
            "{directory}: files that `{registry}` uses must not use it: {}",
            circle.join(", ")
        ));
    }
    Ok(())
}

fn layers_have_no_circles(findings: &mut Vec<String>) -> Result {
    for directory in LAYERED {
        for (module, others) in modules_of(directory)?.of_directories().circles() {
            let is_mutual = |module: &String| MUTUAL.contains(&module.as_str());
            if is_mutual(&module) && others.iter().all(is_mutual) {
                continue;
            }
            let others = others.join(", ");
            findings.push(format!("{directory}: `{module}` uses modules that use it: {others}"));
        }
    }
    Ok(())
}

/// Reads the module graph of the sources in a directory.
fn modules_of(directory: &str) -> Result<ModuleGraph> {
    let directory = root().join(directory);
    let mut sources = BTreeMap::new();
    for path in files(&directory, &[".rs"])? {
        let name = path.strip_prefix(&directory)?.display().to_string();
        sources.insert(name, fs::read_to_string(&path)?);
    }
    Ok(ModuleGraph::new(&sources))
}

fn rust_files(findings: &mut Vec<String>) -> Result {
    for path in files(root(), &[".rs"])? {
        let name = readable_path(&path);
        let parts = path.strip_prefix(root()).unwrap_or(&path).iter();
        for part in parts.filter_map(|part| part.to_str()) {
            let part_name = part.trim_end_matches(".rs");
            if EMPTY_NAMES.contains(&part_name) {
                findings.push(format!("{name}: `{part}` says nothing about what is inside"));
            }
            if let Some((_, new)) = RETIRED.iter().find(|(word, _)| *word == part_name) {
                findings.push(format!("{name}: `{part}` is retired: {new}"));
            }
        }
        if is_module_in_its_directory(&path) {
            findings
                .push(format!("{name}: a module with a directory is a file beside the directory"));
        }
        let source = fs::read_to_string(&path)?;
        for line in long_comments(&source) {
            findings
                .push(format!("{name}:{line}: a comment has at most {COMMENT_COLUMNS} columns"));
        }
        let code = code_only(&source);
        for (line, word, new) in find_retired(&code) {
            findings.push(format!("{name}:{line}: `{word}` is retired: {new}"));
        }
        for unfinished in ["todo", "unimplemented"] {
            for line in lines_with_word(&code, unfinished) {
                if code
                    .lines()
                    .nth(line - 1)
                    .is_some_and(|text| text.contains(&format!("{unfinished}!")))
                {
                    findings.push(format!(
                        "{name}:{line}: `{unfinished}!` is no answer; return an error"
                    ));
                }
            }
        }
        if !UNSAFE_PLACES.iter().any(|place| name.starts_with(place)) {
            for line in lines_with_word(&code, "unsafe") {
                findings.push(format!(
                    "{name}:{line}: `unsafe` belongs into {}",
                    UNSAFE_PLACES.join(", ")
                ));
            }
        }
    }
    Ok(())
}

/// Finds retired identifiers in code: line, counted from 1, and replacement.
fn find_retired(code: &str) -> impl Iterator<Item = (usize, &'static str, &'static str)> {
    RETIRED
        .iter()
        .flat_map(|(word, new)| lines_with_word(code, word).map(move |line| (line, *word, *new)))
}

/// Whether a file is `x/mod.rs` instead of `x.rs`. What tests share must be: cargo takes
/// `tests/x.rs` for a test of its own.
fn is_module_in_its_directory(path: &Path) -> bool {
    let beside = path.parent().and_then(Path::parent);
    path.ends_with("mod.rs") && !beside.is_some_and(|directory| directory.ends_with("tests"))
}

/// Columns of a line that is a comment, as of code.
const COMMENT_COLUMNS: usize = 100;

/// Finds comments that are too long and returns their lines, counted from 1.
fn long_comments(source: &str) -> impl Iterator<Item = usize> {
    let lines = source.lines().enumerate();
    let long = lines.filter(|(_, line)| {
        line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS
    });
    long.map(|(index, _)| index + 1)
}

/// Checks that the first lines of each crate state its purpose.
fn crate_docs(findings: &mut Vec<String>) -> Result {
    for path in files(&root().join("crates"), &["lib.rs", "main.rs"])? {
        let is_crate_root = path.parent().is_some_and(|directory| directory.ends_with("src"));
        if is_crate_root && !fs::read_to_string(&path)?.starts_with("//!") {
            findings.push(format!(
                "{}: starts without saying what the crate is for",
                readable_path(&path)
            ));
        }
    }
    Ok(())
}

/// Checks that each foreign dependency is in a group of lines that opens with a comment, or has one
/// above it.
fn reasons_for_dependencies(manifest: &str, findings: &mut Vec<String>) {
    let mut in_section = false;
    let mut explained = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_section = line == "[workspace.dependencies]";
            explained = false;
        } else if line.is_empty() {
            explained = false;
        } else if line.starts_with('#') {
            explained = true;
        } else if in_section && !explained && !line.contains("path = ") {
            let name = line.split('=').next().unwrap_or_default().trim();
            findings
                .push(format!("Cargo.toml: the dependency {name} has no comment that says why"));
        }
    }
}

fn links(findings: &mut Vec<String>) {
    for document in DOCUMENTS {
        let Ok(text) = fs::read_to_string(root().join(document)) else {
            findings.push(format!("{document} is missing"));
            continue;
        };
        for target in named_paths(&text, root()) {
            if !root().join(&target).exists() {
                findings.push(format!("{document}: {target} does not exist"));
            }
        }
    }
}

/// Collects relative link targets, and paths in backticks that begin with a directory of the
/// checkout.
fn named_paths(text: &str, root: &Path) -> Vec<String> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter(|target| {
        !target.contains("://") && !target.starts_with(['#', '<']) && !target.starts_with("mailto:")
    });
    let links = links.map(|target| target.split('#').next().unwrap_or_default());

    let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let paths = code
        .filter(|span| span.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)))
        .filter(|span| {
            let first = span.split_once('/').map_or("", |(first, _)| first);
            !first.is_empty()
                && first != "target"
                && first != "."
                && first != ".."
                && root.join(first).is_dir()
        });
    links.chain(paths).filter(|path| !path.is_empty()).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let manifest = "[workspace.dependencies]\nours = { path = \"x\" }\n\n# Numbers.\na = \
             \"1\"\nb = \"1\"\n\nc = \"2\"\n\n[x]\nd = 1\n";
        let mut findings = Vec::new();
        reasons_for_dependencies(manifest, &mut findings);
        assert_eq!(findings, ["Cargo.toml: the dependency c has no comment that says why"]);
    }

    #[test]
    fn modules_in_their_directories_are_found() {
        for (path, found) in [
            ("crates/gemm/src/gemm/mod.rs", true),
            ("crates/gemm/src/gemm.rs", false),
            ("crates/kernels/src/model.rs", false),
            ("crates/cli/tests/support/mod.rs", false),
        ] {
            assert_eq!(is_module_in_its_directory(Path::new(path)), found, "{path}");
        }
    }

    #[test]
    fn long_comments_are_found() {
        let fits = format!("    // {}", "…".repeat(93));
        let long = format!("{fits}\nlet x = 1;\n{fits}.\n");
        assert_eq!(long_comments(&long).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn retired_identifiers_are_found_in_code_only() {
        let source = "// A line that is unread.\nlet text = \"stretched\";\nlet (turned, returned) = (1, 2);\n";
        let code = code_only(source);
        let found: Vec<_> = find_retired(&code).map(|(line, word, _)| (line, word)).collect();
        assert_eq!(found, [(3, "turned")]);
    }

    #[test]
    fn paths_are_found_in_links_and_in_code() {
        let text = "[a](docs/a.md#part) [b](https://x.org/y) `xtask/src/tidy.rs` `xtask/<name>` `f32/f64` [c](#c)";
        assert_eq!(named_paths(text, root()), ["docs/a.md", "xtask/src/tidy.rs"]);
    }

    #[test]
    fn features_that_differ_are_found_in_shared_crates_only() {
        let features = |lists: &[(&str, &str)]| {
            let mut features = Features::new();
            for (package, list) in lists {
                features.entry(package.to_string()).or_default().insert(list.to_string());
            }
            features
        };
        let command = features(&[("syn v3", "full"), ("clap v4", "derive"), ("libc v0", "std")]);
        let wheel = features(&[("syn v3", "full"), ("libc v0", "std"), ("libc v0", "extra")]);
        let found = different_features(&command, &wheel);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("libc v0: built twice, with the features [std] below"));
        assert!(found[0].contains("[extra / std] below crates/python"), "{found:?}");
    }

    #[test]
    fn inner_crates_are_found_in_code_only() {
        let names = ["sardonyx_model", "sardonyx_ops"].map(str::to_string);
        let source = "//! Not sardonyx_model.\nuse sardonyx::tool::schema::Registry;\nuse sardonyx_ops as ops;\n\
                      fn f() { sardonyx_model::read(\"sardonyx_ops\") }\n";
        let found = inner_crates(source, &names);
        assert_eq!(found, [(3, "sardonyx_ops"), (4, "sardonyx_model")]);
    }

    #[test]
    fn products_may_use_the_front_only() {
        for (product, crates) in [("sardonyx-cli", &SHARED[..2]), ("sardonyx-python", SHARED)] {
            let allowed = MAY_USE.iter().find(|(name, _)| *name == product);
            assert_eq!(allowed.map(|(_, allowed)| *allowed), Some(crates), "{product}");
        }
    }

    #[test]
    fn the_allowed_graph_has_no_cycle() {
        for (index, (name, allowed)) in MAY_USE.iter().enumerate() {
            for used in *allowed {
                assert!(
                    MAY_USE[..index].iter().any(|(earlier, _)| earlier == used),
                    "{name} -> {used}"
                );
            }
        }
    }
}
