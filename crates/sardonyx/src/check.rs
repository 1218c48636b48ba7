//! Checks whether models follow the ONNX standard, and compares models. A report lists all
//! findings, each with its place, the rule and advice; [`diff`] lists differences.
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

pub mod diff;
pub(crate) mod document;
pub(crate) mod excerpt;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use sardonyx_model::{AttributeId, NodeId, TensorId};
use sardonyx_passes as passes;
use sardonyx_passes::check::{Document, OperatorSet, UnknownCode};
use sardonyx_passes::codes::{self, CODES};

use sardonyx_passes::{CheckPart, Findings, Spot};

pub use crate::compare::{CompareOptions, ComparedValue, Comparison, DivergingPart};
pub use crate::filling::{Fill, FillOptions};
pub use crate::scan::{
    ScanFacts, ScanFinding, ScanOptions, ScanReport, ScannedDomain, ScannedFile,
};
pub use crate::verify::{FailedRun, Verified, VerifyOptions};
#[doc(inline)]
pub use sardonyx_passes::{CheckReport, Code, Finding, Place, Severity};

use crate::error::{Error, ErrorKind};
use crate::external::OpenFailure;
use crate::model::Model;
use document::{document_error, read_document};
use excerpt::extract_excerpt;

/// Rules that [`Model::check`] applies, and the severity of their findings.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    passes: passes::CheckOptions,
    skip_data_files: bool,
    types: bool,
}

impl CheckOptions {
    /// Creates the default options: all rules except those about types, each finding with the
    /// severity of its [`Code`], and at most 20 findings per code.
    pub fn new() -> CheckOptions {
        CheckOptions::default()
    }

    /// Sets whether the severity of every finding is raised by one level, and pedantic findings,
    /// which are left out otherwise, are reported as notes. Off by default.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> CheckOptions {
        self.passes.levels.strict = strict;
        self
    }

    /// Suppresses findings. `name` is the name of a finding code, the id of a requirement, or
    /// `warnings` or `notes` for all codes of that severity.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if no code or requirement has this name.
    pub fn allow(mut self, name: &str) -> Result<CheckOptions, Error> {
        self.passes.levels.allow(name).map_err(unknown_code_error)?;
        Ok(self)
    }

    /// Reports findings as errors. `name` is the name of a finding code, the id of a requirement,
    /// or `warnings` or `notes` for all codes of that severity.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if no code or requirement has this name.
    pub fn deny(mut self, name: &str) -> Result<CheckOptions, Error> {
        self.passes.levels.deny(name).map_err(unknown_code_error)?;
        Ok(self)
    }

    /// Sets whether the report is limited to findings for which the checker of the `onnx` package
    /// rejects a model too. With [`types`](CheckOptions::types), findings of that checker's
    /// `full_check` count too.
    #[must_use]
    pub fn like_onnx(mut self, like_onnx: bool) -> CheckOptions {
        self.passes.levels.shared_only = like_onnx;
        if like_onnx {
            self.passes.registry = self.passes.registry.without_microsoft();
        }
        self
    }

    /// Sets whether unknown operators in domains outside of the ONNX standard are errors. Off by
    /// default.
    #[must_use]
    pub fn custom_domains(mut self, custom_domains: bool) -> CheckOptions {
        self.passes.custom_domains = custom_domains;
        self
    }

    /// Sets whether functions may import another version of an operator set than the model, even if
    /// operators in the functions differ between the two versions. Off by default.
    #[must_use]
    pub fn skip_opset_compatibility(mut self, skip: bool) -> CheckOptions {
        self.passes.skip_opset_compatibility = skip;
        self
    }

    /// Sets whether the check that external data files exist and are long enough for their tensors
    /// is skipped. Off by default. The content of data files is never read.
    #[must_use]
    pub fn skip_data_files(mut self, skip: bool) -> CheckOptions {
        self.skip_data_files = skip;
        self
    }

    /// Sets whether types and shapes are inferred and contradictions between them are reported,
    /// like `sardonyx check --full`. Off by default. Types are not inferred if the model has other
    /// errors.
    #[must_use]
    pub fn types(mut self, types: bool) -> CheckOptions {
        self.types = types;
        self
    }

    /// Lists at most `count` findings per code, by default 20. [`CheckReport::more`] counts the
    /// findings that are not listed. `usize::MAX` lists all.
    #[must_use]
    pub fn per_code(mut self, count: usize) -> CheckOptions {
        self.passes.per_code = count;
        self
    }

    /// Adds the operators that a file with an `OperatorSetProto` lists to the known operators.
    /// Nodes are checked only by operator name: other operators in the domain of the operator set
    /// are unknown. The file may have any format of models except ONNX text.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if the file is not an
    /// operator set or a check of the operator set finds errors.
    pub fn operator_set(mut self, path: impl AsRef<Path>) -> Result<CheckOptions, Error> {
        let path = path.as_ref();
        let bytes = read_document(path, Document::OperatorSet)?;
        let broken =
            |error: sardonyx_proto::Error| document_error(Document::OperatorSet, path, &error);
        let report = passes::check::check_document(&bytes, Document::OperatorSet, &self.passes);
        let report = report.map_err(broken)?;
        if let Some(found) = report.findings.first().filter(|_| report.errors > 0) {
            return Err(document_error(Document::OperatorSet, path, found));
        }
        let set = OperatorSet::read(&bytes).map_err(broken)?;
        self.passes.operator_sets.push(set);
        Ok(self)
    }

    /// Sets the registry of known operators: operators of the standard and operators that the
    /// program adds.
    #[must_use]
    #[doc(hidden)]
    pub fn registry(mut self, registry: sardonyx_ops::Registry) -> CheckOptions {
        self.passes.registry = registry;
        self
    }
}

impl Model {
    /// Checks the model against the ONNX standard; see [`check`](mod@crate::check).
    ///
    /// Weights are not read, except tensors of the few element types that have rules about their
    /// elements. For a model that was opened from a file, existence and size of its external data
    /// files are checked too.
    pub fn check(&self, options: &CheckOptions) -> CheckReport {
        let mut report = passes::check(&self.graph, &options.passes);
        if options.types && report.errors == 0 {
            report = join_reports(report, passes::check_types(&self.graph, &options.passes));
        } else if !options.passes.levels.shared_only {
            report = join_reports(report, self.check_differences(options));
        }
        if options.skip_data_files || !self.data.can_have_files() {
            return report;
        }
        let mut files = Findings::new(options.passes.per_code);
        self.check_files(options, &mut files);
        join_reports(report, files.report())
    }

    /// Lists violations of the standard that a session accepts because published models have them:
    /// an unknown IR version, imports below IR version 3, and below version 4 initializers that are
    /// not inputs. Checks no nodes.
    ///
    /// ```
    /// # use sardonyx::tool::ModelExt;
    /// let text = "<ir_version: 99, opset_import: [\"\": 21]>
    ///     g (float[N] x) => (float[N] y) { y = Abs (x) }";
    /// let found = sardonyx::Model::from_text(text)?.find_tolerated_violations();
    /// assert_eq!(found[0].code.name, "newer-ir-version");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub(crate) fn find_tolerated_violations(&self) -> Vec<Finding> {
        passes::tolerated(&self.graph)
    }

    /// Checks one part of the model, such as its nodes or initializers, without the rest of the
    /// model. External data files are not checked.
    pub(crate) fn check_part(&self, part: CheckPart, options: &CheckOptions) -> CheckReport {
        passes::check_part(&self.graph, part, &options.passes)
    }

    /// Finds nodes that other runtimes compute differently, as far as inferred types show.
    fn check_differences(&self, options: &CheckOptions) -> CheckReport {
        let mut found = Findings::new(options.passes.per_code);
        let inferred = passes::find_differences(&self.graph, &options.passes.registry);
        inferred.differences(&self.graph, &mut found, |code| options.passes.levels.of(code));
        found.report()
    }

    /// Checks whether the external data files exist and are long enough for their tensors.
    fn check_files(&self, options: &CheckOptions, found: &mut Findings) {
        let model = &self.graph;
        // Size in bytes of each file, or the reason why it cannot be used.
        let mut files: HashMap<String, Result<u64, String>> = HashMap::new();
        let (users, mut missing) = (self.external_files(), HashSet::new());
        // By file: end of the last tensor, that tensor, and whether the model states its length.
        let mut last: HashMap<String, (u64, TensorId, bool)> = HashMap::new();
        let mut owners = None;
        for id in model.tensors() {
            let tensor = model.stored_tensor(id);
            if !tensor.is_external() {
                continue;
            }
            let Ok(reference) = model.external_reference(tensor) else {
                continue;
            };
            // A malformed location has a finding of its own.
            if passes::payload::bad_location(reference.location.as_bytes()).is_some()
                || reference.location.is_empty()
                || reference.location.starts_with('#')
            {
                continue;
            }
            let size = files.entry(reference.location.clone()).or_insert_with(|| {
                match self.data.open(&reference.location) {
                    Ok(file) => Ok(file.len),
                    // A `DataResolver` has no file system to query.
                    Err(OpenFailure::Missing(looked)) if looked.is_empty() => {
                        self.data.find_file_size(&reference.location)
                    }
                    Err(missed) => Err(missed.format_message(&reference.location)),
                }
            });
            let mut add = |code: &'static Code, fact: String| {
                if let Some(severity) = options.passes.levels.of(code) {
                    let owners = owners.get_or_insert_with(|| self.find_attribute_owners());
                    let spot = locate_tensor(id, owners);
                    found.add(model, code, severity, spot, || (fact, "".into()));
                }
            };
            match size {
                // Reported once per file, at the first of its tensors.
                Err(why) => {
                    if missing.insert(reference.location.clone()) {
                        let users = users.iter().find(|file| file.location == reference.location);
                        let fact = match users.map_or(1, |file| file.tensors) {
                            1 => why.clone(),
                            tensors => {
                                format!("{why}; {tensors} tensors have their values in the file")
                            }
                        };
                        add(&codes::DATA_FILE_MISSING, fact);
                    }
                }
                Ok(size) => {
                    let length = reference.length.or_else(|| model.implied_bytes(tensor));
                    let end = reference.offset.checked_add(length.unwrap_or(0));
                    if end.is_none_or(|end| end > *size) {
                        let fact = format!(
                            "{} bytes at offset {} are beyond the end of '{}', which has {size} bytes",
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
        let mut surplus: Vec<(TensorId, String)> = Vec::new();
        for (location, (end, id, has_length)) in &last {
            let size = files.get(location).and_then(|size| size.as_ref().ok().copied());
            if let Some(size) = size.filter(|size| !has_length && size > end) {
                let rest = size - self.find_data_offset(*id);
                let fact = format!(
                    "type and shape require {} bytes, but '{}' has {rest} bytes from the tensor's offset on",
                    rest - (size - end),
                    sardonyx_proto::shown(location.as_bytes())
                );
                surplus.push((*id, fact));
            }
        }
        // Sorted by the text: a hash map has no stable order.
        surplus.sort_by(|a, b| a.1.cmp(&b.1));
        for (id, fact) in surplus {
            let owners = owners.get_or_insert_with(|| self.find_attribute_owners());
            let code = &codes::SURPLUS_EXTERNAL;
            found.add(model, code, severity, locate_tensor(id, owners), || (fact, "".into()));
        }
    }

    /// Returns the offset in bytes of an external tensor in its data file; 0 if the reference to
    /// the file is invalid.
    fn find_data_offset(&self, id: TensorId) -> u64 {
        self.graph.external_reference(self.graph.stored_tensor(id)).map_or(0, |found| found.offset)
    }

    /// Maps each node attribute to its node and to its index in the node's list of attributes.
    fn find_attribute_owners(&self) -> HashMap<AttributeId, (NodeId, usize)> {
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

/// Makes the error for the name of an unknown finding code, and suggests the code with the most
/// similar name.
fn unknown_code_error(error: UnknownCode) -> Error {
    let near = sardonyx_proto::closest(&error.0, CODES.iter().map(|code| code.name));
    let help = near.map(|near| format!("did you mean '{near}'?"));
    let failed = Error::new(ErrorKind::Argument, error.to_string()).with_source(error);
    match help {
        Some(help) => failed.with_help(help),
        None => failed,
    }
}

/// Returns the place of a tensor in the model, for findings. `owners` maps attributes to nodes.
fn locate_tensor(id: TensorId, owners: &HashMap<AttributeId, (NodeId, usize)>) -> Spot {
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

/// Merges two reports: concatenates the findings, sorted by severity, and sums the counts.
fn join_reports(mut report: CheckReport, more: CheckReport) -> CheckReport {
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
    /// Renders a finding about this model on several lines, like a compiler diagnostic: severity,
    /// code and fact; the place in `file` (a name to print; no file is read); the line of ONNX
    /// text, underlined; advice; and the rule.
    pub fn render_finding(&self, finding: &Finding, file: &str) -> String {
        render_with_excerpt(finding, file, extract_excerpt(self, finding))
    }
}

/// Renders a finding on several lines. `excerpt` is a line of ONNX text and the range of bytes to
/// underline.
fn render_with_excerpt(
    finding: &Finding,
    file: &str,
    excerpt: Option<(String, Range<usize>)>,
) -> String {
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
