//! Is a file safe to open? Looks at a model without running it, without believing it, and without
//! opening anything but the model and, within its directory, its data files.
//!
//! One pass over the bytes along the table of fields ([`wire`]), then over data files, nodes,
//! functions and graphs. What the checker finds as well, such as tensors that contradict themselves
//! and names that are defined twice, is asked of it, and called here what it means for a reader.
//! Weights are not read. What a hostile file can cost is bounded: the depth and number of messages
//! before anything is built from them, and the findings of each kind.

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
use sardonyx_passes::check::{CODES, Levels};
use sardonyx_passes::{CheckOptions, CheckPart, Severity, check_part};
use sardonyx_tensor::Buffer;

use crate::error::Error;
use crate::external::DataFiles;
use crate::inspect::OperatorSet;
use crate::load::{OpenOptions, Refusal, Source, read_graph};
use crate::open::Access;
use crate::sniff::recognise;

use places::{Found, each_tensor, shown_symbol};
use report::Findings;
pub use report::{ScanFacts, ScanFinding, ScanReport, ScannedDomain, ScannedFile};
use sidecars::Sidecars;

/// What a scan looks at, and from when on it calls something large.
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
    /// The defaults: only sizes of data files are looked at, limits that honest models stay within.
    pub fn new() -> ScanOptions {
        ScanOptions::default()
    }

    /// Whether data files are read to compare them with the SHA-1 that the model gives for them.
    pub fn checksums(mut self, checksums: bool) -> ScanOptions {
        self.checksums = checksums;
        self
    }

    /// Whether the model file is mapped or read.
    pub fn access(mut self, access: Access) -> ScanOptions {
        self.open = self.open.access(access);
        self
    }

    /// The directory, instead of that of the model file, in which data files are looked for.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> ScanOptions {
        self.open = self.open.directory(directory);
        self
    }

    /// Depth of nesting and memory for the structure from which on the file is refused.
    pub fn limits(mut self, limits: ReadLimits) -> ScanOptions {
        self.limits = limits;
        self
    }

    /// Messages in a file from which on it is refused. The default is 2^22, which costs about a
    /// gigabyte of memory.
    pub fn max_messages(mut self, messages: u64) -> ScanOptions {
        self.messages = messages;
        self
    }

    /// The most bytes that are read from a stream into memory. Mapping is not limited, it takes
    /// none.
    pub fn max_bytes(mut self, bytes: u64) -> ScanOptions {
        self.open = self.open.max_bytes(bytes);
        self
    }

    /// Elements that the file does not store and a node may make, and rounds of a loop. The default
    /// is 2^28.
    pub fn max_elements(mut self, elements: u64) -> ScanOptions {
        self.elements = elements;
        self
    }

    /// A sparse tensor is told of if it stands for more than `elements` elements and for more than
    /// `ratio` times those that it stores. The defaults are 1000 and 2^28.
    pub fn max_sparse(mut self, ratio: u64, elements: u64) -> ScanOptions {
        self.sparse_ratio = ratio;
        self.sparse_elements = elements;
        self
    }

    /// Nodes that the model may have once its functions are expanded. The default is 2^24.
    pub fn max_expanded_nodes(mut self, nodes: u64) -> ScanOptions {
        self.expanded_nodes = nodes;
        self
    }

    /// Findings of each code that are listed; the rest is counted. The default is 20.
    pub fn findings_per_code(mut self, findings: usize) -> ScanOptions {
        self.per_code = findings;
        self
    }

    /// Scans a model file and, as far as their sizes go, its data files. A file that is no model is
    /// a finding, not an error.
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
        Ok(examine(self.open.source(path.as_ref())?, self))
    }

    /// Scans the bytes of a model. Data files are looked for only with [`ScanOptions::directory`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if that directory cannot be used.
    pub fn scan_bytes(&self, bytes: impl Into<Buffer>) -> Result<ScanReport, Error> {
        Ok(examine(self.open.source_of_bytes(bytes.into())?, self))
    }

    /// Scans a model from a stream; see [`scan_bytes`](ScanOptions::scan_bytes).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if reading fails, or there are more bytes than
    /// [`ScanOptions::max_bytes`].
    pub fn scan_reader(&self, reader: impl Read) -> Result<ScanReport, Error> {
        Ok(examine(self.open.source_of_reader(reader)?, self))
    }
}

impl ScanOptions {
    /// How the checker looks for what is dangerous.
    fn for_checker(&self) -> CheckOptions {
        let mut levels = Levels::default();
        for code in CODES.iter().filter(|code| codes::of_checker(code).is_none()) {
            // All names are those of codes.
            let _ = levels.allow(code.name);
        }
        CheckOptions { levels, per_code: self.per_code, ..CheckOptions::default() }
    }
}

fn examine(source: Source, options: &ScanOptions) -> ScanReport {
    let bytes = &source.bytes;
    let mut facts = ScanFacts { size: bytes.len() as u64, ..ScanFacts::default() };
    let mut found = Findings::new(options.per_code);
    if bytes.is_empty() {
        let message = || "the file is empty".to_string();
        found.add(&codes::EMPTY, || (String::new(), message()));
        return found.report(facts);
    }
    let binary = match source.binary(options.limits) {
        Ok(binary) => binary,
        Err(error) => {
            let message = format!("the file is not an ONNX model: {}", error.message());
            return no_model(message, options, facts);
        }
    };
    if facts.size > i32::MAX as u64 {
        let message = || format!("the file has {} bytes", bytes.len());
        found.add(&codes::LARGE_FILE, || (String::new(), message()));
    }
    let walked = wire::walk(binary.as_slice(), options, &mut found);
    facts.messages = walked.messages;
    facts.depth = walked.depth;
    if !walked.complete {
        // What is no model at all breaks somewhere, and where does not matter.
        return match instead(bytes.as_slice()) {
            Some(message) => no_model(message, options, facts),
            None => found.report(facts),
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
            return found.report(facts);
        }
        Err(refusal @ (Refusal::Empty | Refusal::NoGraph)) => {
            let message = instead(bytes.as_slice()).unwrap_or_else(|| refusal.to_string());
            return no_model(message, options, facts);
        }
    };
    gather_facts(&model, &mut facts);
    for part in [CheckPart::Tensors, CheckPart::Definitions] {
        found.add_checked(&model, &check_part(&model, part, &options.for_checker()));
    }
    check_tensors(&model, &source.data, options, &mut facts, &mut found);
    nodes::check(&model, options, &mut facts, &mut found);
    calls::check(&model, options, &mut found);
    graphs::check(&model, &mut found);
    found.report(facts)
}

/// The only finding there is about something that is no model.
fn no_model(message: String, options: &ScanOptions, facts: ScanFacts) -> ScanReport {
    let mut found = Findings::new(options.per_code);
    found.add(&codes::NOT_A_MODEL, || (String::new(), message));
    found.report(facts)
}

/// What bytes are that are no model.
fn instead(bytes: &[u8]) -> Option<String> {
    recognise(bytes).map(|(what, _)| format!("the file is {what}, not an ONNX model"))
}

fn gather_facts(model: &graph::Model, facts: &mut ScanFacts) {
    /// Operator sets that are listed.
    const LISTED: usize = 1000;
    let header = &model.header;
    facts.ir_version = header.ir_version;
    let imports = header.opset_import.iter().take(LISTED);
    facts.opsets = imports
        .map(|import| OperatorSet {
            domain: sardonyx_proto::shown(nodes::text(model, import.domain)),
            version: import.version.unwrap_or(0),
        })
        .collect();
    facts.producer_name = shown_symbol(model, header.producer_name);
    facts.producer_version = shown_symbol(model, header.producer_version);
    facts.graphs = model.graphs().count() as u64;
    facts.nodes = model.graphs().map(|(_, graph)| graph.nodes.len() as u64).sum();
    facts.functions = model.functions.len() as u64;
}

fn check_tensors(
    model: &graph::Model,
    data: &DataFiles,
    options: &ScanOptions,
    facts: &mut ScanFacts,
    found: &mut Findings,
) {
    let mut sidecars = Sidecars::new(model);
    each_tensor(model, |next| match next {
        Found::Sparse(stored) => tensors::check_sparse(model, &stored, options, found),
        Found::Dense(stored) => {
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
