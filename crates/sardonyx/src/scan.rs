//! Security scan of untrusted model files: reports properties that make a file dangerous to open,
//! without running the model. Opens only the model file and, within its directory, its data files.
//!
//! The scan walks the bytes along the table of protobuf fields ([`wire`]), then checks data files,
//! nodes, functions and graphs. The model checker finds some of the problems, such as inconsistent
//! tensors and duplicate names; the scan reports them under codes of its own.
//! Weights are not read. The cost of a hostile file is bounded: nesting depth and message count are
//! limited before memory is allocated, and findings are limited for each code.

mod calls;
mod codes;
mod graphs;
mod location;
mod nodes;
mod places;
mod report;
mod sidecars;
mod tensors;
mod wire;

use std::io::Read;
use std::path::{Path, PathBuf};

use sardonyx_model as graph;
use sardonyx_model::ReadLimits;
use sardonyx_passes::check::Levels;
use sardonyx_passes::codes::CODES;
use sardonyx_passes::{CheckOptions, CheckPart, Severity, check_part};
use sardonyx_tensor::Buffer;

use crate::error::Error;
use crate::external::DataFiles;
use crate::inspect::OperatorSet;
use crate::load::{OpenOptions, Refusal, Source, read_graph};
use crate::open::Access;
use crate::sniff::recognise;

use places::{StoredTensor, show_symbol, visit_tensors};
use report::Findings;
pub use report::{ScanFacts, ScanFinding, ScanReport, ScannedDomain, ScannedFile};
use sidecars::Sidecars;

/// Options of a security scan: the files that the scan reads, and the limits above which it reports
/// sizes.
///
/// ```
/// use sardonyx::check::ScanOptions;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let report = ScanOptions::new().checksums(true).scan(path)?;
/// assert_eq!(report.errors, 0);
/// assert_eq!(report.facts.graphs, 1);
/// # Ok::<(), sardonyx::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ScanOptions {
    checksums: bool,
    open: OpenOptions,
    limits: ReadLimits,
    messages: u64,
    elements: u64,
    sparse_ratio: u64,
    sparse_elements: u64,
    expanded_nodes: u64,
    per_code: usize,
}

impl Default for ScanOptions {
    fn default() -> ScanOptions {
        ScanOptions {
            checksums: false,
            open: OpenOptions::new().data_access(Access::Read),
            limits: ReadLimits::default(),
            messages: 1 << 22,
            elements: 1 << 28,
            sparse_ratio: 1000,
            sparse_elements: 1 << 28,
            expanded_nodes: 1 << 24,
            per_code: 20,
        }
    }
}

impl ScanOptions {
    /// Makes the default scan options: data files are not read, only their sizes are checked, and
    /// ordinary models stay within all limits.
    pub fn new() -> ScanOptions {
        ScanOptions::default()
    }

    /// Sets whether the scan reads data files to compare their SHA-1 with the `checksum` in the
    /// model. Off by default.
    pub fn checksums(mut self, checksums: bool) -> ScanOptions {
        self.checksums = checksums;
        self
    }

    /// Sets whether the scan memory-maps the model file, as by default, or reads it into memory.
    pub fn access(mut self, access: Access) -> ScanOptions {
        self.open = self.open.access(access);
        self
    }

    /// Sets the directory of the data files. The default is the directory of the model file; models
    /// in memory and streams have none.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> ScanOptions {
        self.open = self.open.directory(directory);
        self
    }

    /// Sets the nesting depth and the memory of the graph structure above which a model file is
    /// rejected. The defaults are those of [`ReadLimits`].
    pub fn limits(mut self, limits: ReadLimits) -> ScanOptions {
        self.limits = limits;
        self
    }

    /// Sets the number of protobuf messages above which a model file is rejected. The default is
    /// 2^22 messages, which take about one gigabyte of memory.
    pub fn max_messages(mut self, messages: u64) -> ScanOptions {
        self.messages = messages;
        self
    }

    /// Sets the maximum number of bytes that the scan reads from a file or stream into memory.
    /// Unlimited by default. Mapped files are not limited, as they take no memory.
    pub fn max_bytes(mut self, bytes: u64) -> ScanOptions {
        self.open = self.open.max_bytes(bytes);
        self
    }

    /// Sets the number of elements that a node may create without reading them from the file, and
    /// the number of iterations of a loop, above which a node is reported. The default is 2^28.
    pub fn max_elements(mut self, elements: u64) -> ScanOptions {
        self.elements = elements;
        self
    }

    /// Sets the limits of sparse tensors: a sparse tensor is reported if it represents more than
    /// `elements` elements, and more than `ratio` times as many as it stores. The defaults are a
    /// ratio of 1000 and 2^28 elements.
    pub fn max_sparse(mut self, ratio: u64, elements: u64) -> ScanOptions {
        self.sparse_ratio = ratio;
        self.sparse_elements = elements;
        self
    }

    /// Sets the number of nodes, after inlining all functions, above which a model is reported. The
    /// default is 2^24.
    pub fn max_expanded_nodes(mut self, nodes: u64) -> ScanOptions {
        self.expanded_nodes = nodes;
        self
    }

    /// Sets the maximum number of findings of each code that the report lists; more findings are
    /// only counted. The default is 20.
    pub fn findings_per_code(mut self, findings: usize) -> ScanOptions {
        self.per_code = findings;
        self
    }

    /// Scans a model file for security problems, and checks the sizes of its data files. A file
    /// that is not a model gives a finding, not an error.
    ///
    /// ```
    /// use sardonyx::check::ScanOptions;
    ///
    /// # let name = format!("sardonyx-scan-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// # std::fs::create_dir_all(&directory).unwrap();
    /// # let path = directory.join("page.onnx");
    /// # std::fs::write(&path, b"<html>404</html>").unwrap();
    /// let report = ScanOptions::new().scan(&path)?;
    /// assert_eq!(report.findings[0].code, "not-a-model");
    /// # std::fs::remove_dir_all(directory).unwrap();
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot be read.
    pub fn scan(&self, path: impl AsRef<Path>) -> Result<ScanReport, Error> {
        Ok(scan_source(self.open.open_source(path.as_ref())?, self))
    }

    /// Scans a model in memory for security problems. Data files of the model are checked only with
    /// [`ScanOptions::directory`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the directory cannot be opened.
    pub fn scan_bytes(&self, bytes: impl Into<Buffer>) -> Result<ScanReport, Error> {
        Ok(scan_source(self.open.source_from_bytes(bytes.into())?, self))
    }

    /// Reads a model from a stream into memory, and scans it for security problems like
    /// [`scan_bytes`](ScanOptions::scan_bytes).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if reading fails, or the stream has more than
    /// [`ScanOptions::max_bytes`].
    pub fn scan_reader(&self, reader: impl Read) -> Result<ScanReport, Error> {
        Ok(scan_source(self.open.source_from_reader(reader)?, self))
    }
}

impl ScanOptions {
    /// Makes options for the model checker that enable only the codes that a scan reports too.
    fn to_check_options(&self) -> CheckOptions {
        let mut levels = Levels::default();
        for code in CODES.iter().filter(|code| codes::from_checker(code).is_none()) {
            // Cannot fail: each name is that of a code.
            let _ = levels.allow(code.name);
        }
        CheckOptions { levels, per_code: self.per_code, ..CheckOptions::default() }
    }
}

/// Scans a model file whose bytes are in memory or mapped.
fn scan_source(source: Source, options: &ScanOptions) -> ScanReport {
    let bytes = &source.bytes;
    let mut facts = ScanFacts { size: bytes.len() as u64, ..ScanFacts::default() };
    let mut found = Findings::new(options.per_code);
    if bytes.is_empty() {
        found.add(&codes::EMPTY, || (String::new(), "the file is empty".to_string()));
        return found.into_report(facts);
    }
    let binary = match source.to_binary(options.limits) {
        Ok(binary) => binary,
        Err(error) => {
            let message = format!("the file is not an ONNX model: {}", error.message());
            return report_no_model(message, options, facts);
        }
    };
    if facts.size > i32::MAX as u64 {
        found.add(&codes::LARGE_FILE, || {
            (String::new(), format!("the model file has {} bytes, at least 2 GiB", bytes.len()))
        });
    }
    let walked = wire::walk(binary.as_slice(), options, &mut found);
    facts.messages = walked.messages;
    facts.depth = walked.depth;
    if !walked.complete {
        // In a file of another format, the first malformed byte is of no interest.
        return match describe_format(bytes.as_slice()) {
            Some(message) => report_no_model(message, options, facts),
            None => found.into_report(facts),
        };
    }
    let model = match read_graph(binary, options.limits, false) {
        Ok(model) => model,
        Err(Refusal::Damaged(error)) => {
            let code = match error.kind() {
                graph::ErrorKind::TooMuchStructure { .. } => &codes::TOO_MANY_MESSAGES,
                graph::ErrorKind::TypeTooDeep { .. } => &codes::TOO_DEEP,
                _ => &codes::MALFORMED,
            };
            found.add(code, || (format!("byte {}", error.offset()), error.to_string()));
            return found.into_report(facts);
        }
        Err(refusal @ (Refusal::Empty | Refusal::NoGraph)) => {
            let message = describe_format(bytes.as_slice()).unwrap_or_else(|| refusal.to_string());
            return report_no_model(message, options, facts);
        }
    };
    gather_facts(&model, &mut facts);
    for part in [CheckPart::Tensors, CheckPart::Definitions] {
        found.add_checked(&model, &check_part(&model, part, &options.to_check_options()));
    }
    check_tensors(&model, &source.data, options, &mut facts, &mut found);
    nodes::check(&model, options, &mut facts, &mut found);
    calls::check(&model, options, &mut found);
    graphs::check(&model, &mut found);
    found.into_report(facts)
}

/// Makes the report of a file that is not a model: a single finding with the given message.
fn report_no_model(message: String, options: &ScanOptions, facts: ScanFacts) -> ScanReport {
    let mut found = Findings::new(options.per_code);
    found.add(&codes::NOT_A_MODEL, || (String::new(), message));
    found.into_report(facts)
}

/// Returns a message that names the format of a file that is not a model, such as HTML or a zip
/// archive, by its first bytes; `None` for an unknown format.
fn describe_format(bytes: &[u8]) -> Option<String> {
    recognise(bytes).map(|(what, _)| format!("the file is {what}, not an ONNX model"))
}

/// Records versions, producer and numbers of graphs, nodes and functions of a model.
fn gather_facts(model: &graph::Model, facts: &mut ScanFacts) {
    /// Maximum number of imported operator sets in the report.
    const LISTED: usize = 1000;
    let header = &model.header;
    facts.ir_version = header.ir_version;
    let imports = header.opset_import.iter().take(LISTED);
    facts.opsets = imports
        .map(|import| OperatorSet {
            domain: sardonyx_proto::shown(nodes::read_name(model, import.domain)),
            version: import.version.unwrap_or(0),
        })
        .collect();
    facts.producer_name = show_symbol(model, header.producer_name);
    facts.producer_version = show_symbol(model, header.producer_version);
    facts.graphs = model.graphs().count() as u64;
    facts.nodes = model.graphs().map(|(_, graph)| graph.nodes.len() as u64).sum();
    facts.functions = model.functions.len() as u64;
}

/// Checks all stored tensors of a model, and the data files that they refer to.
fn check_tensors(
    model: &graph::Model,
    data: &DataFiles,
    options: &ScanOptions,
    facts: &mut ScanFacts,
    found: &mut Findings,
) {
    let mut sidecars = Sidecars::new(model);
    visit_tensors(model, |next| match next {
        StoredTensor::Sparse(stored) => tensors::check_sparse(model, &stored, options, found),
        StoredTensor::Dense(stored) => {
            let tensor = stored.tensor;
            facts.tensors += 1;
            let typed: u64 = tensor.typed.iter().map(|run| run.records.len).sum();
            facts.inside_bytes += typed + tensor.raw_data.map_or(0, |raw| raw.len);
            let claim = tensors::check(model, &stored, found);
            if tensor.is_external() {
                sidecars.add(&stored, claim, found);
            }
        }
    });
    sidecars.finish(data, options, facts, found);
}
