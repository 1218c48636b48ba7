//! Does a model follow the rules of the standard? All findings at once, each with its place, the
//! rule and advice.
//!
//! ```
//! use sardonyx::{Model, check};
//!
//! let model = Model::from_text(
//!     "<ir_version: 10, opset_import: [\"\": 21]>
//!      g (float[N] x) => (float[N] y) { y = Relu <alpha = 1> (z) }",
//! )?;
//! let report = model.check(&check::CheckOptions::new());
//! let codes: Vec<&str> = report.findings.iter().map(|found| found.code.name).collect();
//! assert_eq!(codes[..2], ["undefined-value", "unknown-attribute"]);
//! assert_eq!(report.errors, 2);
//! println!("{}", model.render_finding(&report.findings[0], "model.onnx"));
//! # Ok::<(), sardonyx::Error>(())
//! ```

pub(crate) mod document;
pub(crate) mod excerpt;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use sardonyx_model::{AttributeId, NodeId, TensorId};
use sardonyx_passes as passes;
use sardonyx_passes::check::{CODES, Document, OperatorSet, UnknownCode, codes};

use sardonyx_passes::{CheckPart, Findings, Spot};

pub use crate::scan::{
    ScanFacts, ScanFinding, ScanOptions, ScanReport, ScannedDomain, ScannedFile,
};
#[doc(inline)]
pub use sardonyx_passes::{CheckReport, Code, Finding, Place, Severity};

use crate::error::{Error, ErrorKind};
use crate::external::Missed;
use crate::model::Model;
use document::{document_bytes, not_a};
use excerpt::excerpt;

/// What is checked, and how strictly.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    passes: passes::CheckOptions,
    without_files: bool,
    types: bool,
}

impl CheckOptions {
    /// Makes the defaults: all rules but those about types, each finding at the severity of its
    /// [`Code`], at most 20 findings of a code.
    pub fn new() -> CheckOptions {
        CheckOptions::default()
    }

    /// Counts everything one level worse, and says what is passed over in silence otherwise.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> CheckOptions {
        self.passes.levels.strict = strict;
        self
    }

    /// Says nothing about a code: its name, the id of a requirement, or `warnings` or `notes` for
    /// all of that level.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if there is no such code.
    pub fn allow(mut self, name: &str) -> Result<CheckOptions, Error> {
        self.passes.levels.allow(name).map_err(unknown_code)?;
        Ok(self)
    }

    /// Counts a code as an error; names as for [`allow`](CheckOptions::allow).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if there is no such code.
    pub fn deny(mut self, name: &str) -> Result<CheckOptions, Error> {
        self.passes.levels.deny(name).map_err(unknown_code)?;
        Ok(self)
    }

    /// Whether only that is said for which the checker of the `onnx` package refuses a model as
    /// well: with [`types`](CheckOptions::types) what its full check refuses it for.
    #[must_use]
    pub fn like_onnx(mut self, like_onnx: bool) -> CheckOptions {
        self.passes.levels.shared_only = like_onnx;
        if like_onnx {
            self.passes.registry = self.passes.registry.without_microsoft();
        }
        self
    }

    /// Whether operators outside of the standard's domains are errors.
    #[must_use]
    pub fn custom_domains(mut self, custom_domains: bool) -> CheckOptions {
        self.passes.custom_domains = custom_domains;
        self
    }

    /// Whether functions may import other versions of operator sets than the model, whatever that
    /// changes.
    #[must_use]
    pub fn skip_opset_compatibility(mut self, skip: bool) -> CheckOptions {
        self.passes.skip_opset_compatibility = skip;
        self
    }

    /// Whether the files beside the model are left alone. Otherwise they are looked up, but not
    /// read.
    #[must_use]
    pub fn without_files(mut self, without: bool) -> CheckOptions {
        self.without_files = without;
        self
    }

    /// Infers types and shapes as well, if `types`, and reports contradictions, like `sardonyx
    /// check --full`. Off by default. A model with other errors is not inferred.
    #[must_use]
    pub fn types(mut self, types: bool) -> CheckOptions {
        self.types = types;
        self
    }

    /// Lists at most `count` findings of each code, by default 20; the rest is counted in
    /// [`CheckReport::more`]. `usize::MAX` lists all.
    #[must_use]
    pub fn per_code(mut self, count: usize) -> CheckOptions {
        self.passes.per_code = count;
        self
    }

    /// Makes the operators known that a document of an operator set lists, by name: what else is in
    /// its domain does not exist then. The document may be in any form that models may be in, but
    /// for the notation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it is no such
    /// document, or if a check of it finds errors.
    pub fn operator_set(mut self, path: impl AsRef<Path>) -> Result<CheckOptions, Error> {
        let path = path.as_ref();
        let bytes = document_bytes(path, Document::OperatorSet)?;
        let broken = |error: sardonyx_proto::Error| not_a(Document::OperatorSet, path, &error);
        let report = passes::check::check_document(&bytes, Document::OperatorSet, &self.passes);
        let report = report.map_err(broken)?;
        if let Some(found) = report.findings.first().filter(|_| report.errors > 0) {
            return Err(not_a(Document::OperatorSet, path, found));
        }
        let set = OperatorSet::read(&bytes).map_err(broken)?;
        self.passes.operator_sets.push(set);
        Ok(self)
    }

    /// The operators that exist: the standard's, and those that were registered.
    #[must_use]
    #[doc(hidden)]
    pub fn registry(mut self, registry: sardonyx_ops::Registry) -> CheckOptions {
        self.passes.registry = registry;
        self
    }
}

impl Model {
    /// Checks the model; see [`check`](mod@crate::check).
    ///
    /// Weights are not read, except those of the few types whose rules are about values. Of a model
    /// that was opened from a file, the data files beside it are looked up as well.
    pub fn check(&self, options: &CheckOptions) -> CheckReport {
        let mut report = passes::check(&self.graph, &options.passes);
        if options.types && report.errors == 0 {
            report = join(report, passes::check_types(&self.graph, &options.passes));
        } else if !options.passes.levels.shared_only {
            report = join(report, self.check_differences(options));
        }
        if options.without_files || !self.data.has_place() {
            return report;
        }
        let mut files = Findings::new(options.passes.per_code);
        self.check_files(options, &mut files);
        join(report, files.report())
    }

    /// Violations of the standard that a session accepts, because real files have them: an IR
    /// version that is not known, imports below IR version 3, initializers below version 4 that are
    /// no inputs. Looks at no node.
    ///
    /// ```
    /// # use sardonyx::tool::ModelExt;
    /// let text = "<ir_version: 99, opset_import: [\"\": 21]>
    ///     g (float[N] x) => (float[N] y) { y = Abs (x) }";
    /// let found = sardonyx::Model::from_text(text)?.tolerated();
    /// assert_eq!(found[0].code.name, "newer-ir-version");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub(crate) fn tolerated(&self) -> Vec<Finding> {
        passes::tolerated(&self.graph)
    }

    /// Checks a part of the model by itself. Files are left alone.
    pub(crate) fn check_part(&self, part: CheckPart, options: &CheckOptions) -> CheckReport {
        passes::check_part(&self.graph, part, &options.passes)
    }

    /// Nodes that other runtimes compute differently, as far as the file says.
    fn check_differences(&self, options: &CheckOptions) -> CheckReport {
        let mut found = Findings::new(options.passes.per_code);
        let inferred = passes::find_differences(&self.graph, &options.passes.registry);
        inferred.differences(&self.graph, &mut found, |code| options.passes.levels.of(code));
        found.report()
    }

    /// Whether the data files that tensors name are there and long enough.
    fn check_files(&self, options: &CheckOptions, found: &mut Findings) {
        let model = &self.graph;
        // What is wrong with each file, in words, or its size.
        let mut files: HashMap<String, Result<u64, String>> = HashMap::new();
        let (users, mut missing) = (self.external_files(), HashSet::new());
        // By file: the tensor that reaches furthest, where it ends, whether its length is given.
        let mut last: HashMap<String, (u64, TensorId, bool)> = HashMap::new();
        let mut owners = None;
        for id in model.tensors() {
            let tensor = model.stored(id);
            if !tensor.is_external() {
                continue;
            }
            let Ok(reference) = model.external_reference(tensor) else {
                continue;
            };
            // What is wrong with the location by itself has been said.
            if passes::payload::bad_location(reference.location.as_bytes()).is_some()
                || reference.location.is_empty()
                || reference.location.starts_with('#')
            {
                continue;
            }
            let size = files.entry(reference.location.clone()).or_insert_with(|| {
                match self.data.look(&reference.location) {
                    Ok(file) => Ok(file.len),
                    // A resolver has no files to look at.
                    Err(Missed::Missing(looked)) if looked.is_empty() => {
                        self.data.size(&reference.location)
                    }
                    Err(missed) => Err(missed.words(&reference.location)),
                }
            });
            let mut add = |code: &'static Code, fact: String| {
                if let Some(severity) = options.passes.levels.of(code) {
                    let owners = owners.get_or_insert_with(|| self.owners());
                    let spot = spot_of(id, owners);
                    found.add(model, code, severity, spot, || (fact, "".into()));
                }
            };
            match size {
                // Said once, for the first of the tensors.
                Err(why) => {
                    if missing.insert(reference.location.clone()) {
                        let users = users.iter().find(|file| file.location == reference.location);
                        let fact = match users.map_or(1, |file| file.tensors) {
                            1 => why.clone(),
                            tensors => format!("{why}; {tensors} tensors have their values there"),
                        };
                        add(&codes::DATA_FILE_MISSING, fact);
                    }
                }
                Ok(size) => {
                    let length = reference.length.or_else(|| model.implied_bytes(tensor));
                    let end = reference.offset.checked_add(length.unwrap_or(0));
                    if end.is_none_or(|end| end > *size) {
                        let fact = format!(
                            "its {} bytes at {} are beyond the end of '{}', which has {size} bytes",
                            length.unwrap_or(0),
                            reference.offset,
                            sardonyx_proto::shown(reference.location.as_bytes())
                        );
                        add(&codes::DATA_FILE_TOO_SHORT, fact);
                    } else if let (Some(end), Some(_)) = (end, length) {
                        let found = (end, id, reference.length.is_some());
                        let last = last.entry(reference.location).or_insert(found);
                        if end > last.0 {
                            *last = found;
                        }
                    }
                }
            }
        }
        let Some(severity) = options.passes.levels.of(&codes::SURPLUS_EXTERNAL) else {
            return;
        };
        let size = |location: &String| files.get(location)?.as_ref().ok().copied();
        let mut surplus: Vec<(TensorId, String)> = Vec::new();
        for (location, (end, id, is_given)) in &last {
            if let Some(size) = size(location).filter(|size| !is_given && size > end) {
                let rest = size - self.offset_of(*id);
                let fact = format!(
                    "type and shape require {} bytes, but the rest of '{}' has {rest}",
                    rest - (size - end),
                    sardonyx_proto::shown(location.as_bytes())
                );
                surplus.push((*id, fact));
            }
        }
        // In the order of the names of the files.
        surplus.sort_by(|a, b| a.1.cmp(&b.1));
        for (id, fact) in surplus {
            let owners = owners.get_or_insert_with(|| self.owners());
            let code = &codes::SURPLUS_EXTERNAL;
            found.add(model, code, severity, spot_of(id, owners), || (fact, "".into()));
        }
    }

    /// Where the values of an external tensor begin in their file.
    fn offset_of(&self, id: TensorId) -> u64 {
        self.graph.external_reference(self.graph.stored(id)).map_or(0, |found| found.offset)
    }

    /// Which node an attribute belongs to, and at which position.
    fn owners(&self) -> HashMap<AttributeId, (NodeId, usize)> {
        let model = &self.graph;
        let nodes = model.graphs().flat_map(|(_, graph)| &graph.nodes);
        nodes
            .flat_map(|node| {
                let attributes = model.attributes(*node).iter().enumerate();
                attributes.map(|(index, id)| (*id, (*node, index)))
            })
            .collect()
    }
}

/// Suggests the code that is most like the unknown one.
fn unknown_code(error: UnknownCode) -> Error {
    let near = sardonyx_proto::closest(&error.0, CODES.iter().map(|code| code.name));
    let help = near.map(|near| format!("did you mean '{near}'?"));
    let failed = Error::new(ErrorKind::Argument, error.to_string()).with_source(error);
    match help {
        Some(help) => failed.with_help(help),
        None => failed,
    }
}

fn spot_of(id: TensorId, owners: &HashMap<AttributeId, (NodeId, usize)>) -> Spot {
    match id {
        TensorId::Initializer(graph, index) => {
            Spot::graph(graph).item("initializer", index as usize)
        }
        TensorId::Sparse(graph, index, _) => {
            Spot::graph(graph).item("sparse_initializer", index as usize)
        }
        TensorId::Attribute(attribute, _) => match owners.get(&attribute) {
            Some((node, index)) => Spot::node(*node).item("attribute", *index),
            None => Spot::MODEL,
        },
        TensorId::Default(function, attribute, _) => {
            Spot::function(function as usize).item("attribute_proto", attribute as usize)
        }
    }
}

fn join(mut report: CheckReport, more: CheckReport) -> CheckReport {
    report.findings.extend(more.findings);
    report.findings.sort_by_key(|found| std::cmp::Reverse(found.severity));
    report.errors += more.errors;
    report.warnings += more.warnings;
    report.notes += more.notes;
    report.more.extend(more.more);
    report.types_checked |= more.types_checked;
    report
}

impl Model {
    /// Renders a finding about this model for people, on several lines: severity, code and fact,
    /// the place in `file` (a name for the message; no file is read), the part of the model with a
    /// mark under it, advice, and the rule.
    pub fn render_finding(&self, finding: &Finding, file: &str) -> String {
        rendering(finding, file, excerpt(self, finding))
    }
}

fn rendering(finding: &Finding, file: &str, excerpt: Option<(String, Range<usize>)>) -> String {
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = write!(
        out,
        "{}[{}]: {}\n  --> {file}: {}",
        finding.severity, finding.code.name, finding.fact, finding.place.words
    );
    if !finding.place.path.is_empty() && finding.place.path != finding.place.words {
        let _ = write!(out, ", {}", finding.place.path);
    }
    if let Some((line, mark)) = excerpt {
        let (line, mark_at, mark_len) = sardonyx_text::marked_line(&line, mark);
        let _ = write!(out, "\n   |\n   | {line}\n   | {:mark_at$}{}", "", "^".repeat(mark_len));
    }
    if !finding.advice.is_empty() {
        let _ = write!(out, "\n   = help: {}", finding.advice);
    }
    if !finding.code.requirement.is_empty() {
        let _ = write!(out, "\n   = rule: {}", finding.code.requirement);
    }
    out
}
