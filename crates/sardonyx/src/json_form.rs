//! Implements `serde::Serialize` for reports. The command prints `--json` with these
//! implementations.

mod compare;
mod inspect;

use sardonyx_model::{Dim, Type};
use serde::{Serialize, Serializer};

use crate::check::Severity;
use crate::infer::InferredValue;
use crate::inspect::OperatorSet;
use crate::save::{SaveReport, SavedFile};
use crate::scan::{ScanFacts, ScanFinding, ScanReport, ScannedDomain, ScannedFile};
use crate::train::StateVariable;

/// Serializes an operator set import with the keys `domain` (empty for `ai.onnx`) and `version`.
impl Serialize for OperatorSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            domain: &'a str,
            version: i64,
        }
        Fields { domain: &self.domain, version: self.version }.serialize(serializer)
    }
}

/// Serializes a saved data file with the keys `location`, `bytes`, `tensors` and `reused`.
impl Serialize for SavedFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            location: &'a str,
            bytes: u64,
            tensors: usize,
            reused: bool,
        }
        let SavedFile { location, bytes, tensors, reused } = self;
        let (bytes, tensors, reused) = (*bytes, *tensors, *reused);
        Fields { location, bytes, tensors, reused }.serialize(serializer)
    }
}

/// Serializes a report on saving a model with the keys `bytes`, `exceeds_2_gib`, `files`,
/// `removed`, `shared`, `left` and `left_out`.
impl Serialize for SaveReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            bytes: u64,
            exceeds_2_gib: bool,
            files: &'a [SavedFile],
            removed: &'a [String],
            shared: &'a [String],
            left: &'a [String],
            left_out: &'a [String],
        }
        let SaveReport { bytes, files, removed, shared, left, left_out } = self;
        let exceeds_2_gib = self.exceeds_2_gib();
        let form = Fields { bytes: *bytes, exceeds_2_gib, files, removed, shared, left, left_out };
        form.serialize(serializer)
    }
}

/// Serializes a scanned data file with the keys `location`, `bytes` (null if the file is missing or
/// was not looked up) and `tensors`.
impl Serialize for ScannedFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            location: &'a str,
            bytes: Option<u64>,
            tensors: u64,
        }
        let form = Fields { location: &self.location, bytes: self.size, tensors: self.tensors };
        form.serialize(serializer)
    }
}

/// Serializes a scanned operator domain with the keys `domain`, `operators` (number of distinct
/// operators) and `nodes` (number of nodes).
impl Serialize for ScannedDomain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            domain: &'a str,
            operators: u64,
            nodes: u64,
        }
        let ScannedDomain { domain, operators, nodes } = self;
        Fields { domain, operators: *operators, nodes: *nodes }.serialize(serializer)
    }
}

/// Serializes the facts of a scan, each field under its own name except `size`, which has the key
/// `bytes`.
impl Serialize for ScanFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            bytes: u64,
            ir_version: Option<i64>,
            opsets: &'a [OperatorSet],
            producer_name: &'a str,
            producer_version: &'a str,
            graphs: u64,
            nodes: u64,
            functions: u64,
            tensors: u64,
            messages: u64,
            depth: u32,
            inside_bytes: u64,
            outside_claimed: u64,
            outside_present: u64,
            data_files: &'a [ScannedFile],
            domains: &'a [ScannedDomain],
        }
        let form = Fields {
            bytes: self.size,
            ir_version: self.ir_version,
            opsets: &self.opsets,
            producer_name: &self.producer_name,
            producer_version: &self.producer_version,
            graphs: self.graphs,
            nodes: self.nodes,
            functions: self.functions,
            tensors: self.tensors,
            messages: self.messages,
            depth: self.depth,
            inside_bytes: self.inside_bytes,
            outside_claimed: self.outside_claimed,
            outside_present: self.outside_present,
            data_files: &self.data_files,
            domains: &self.domains,
        };
        form.serialize(serializer)
    }
}

/// Serializes a finding of a scan with the keys `code`, `severity`, `place`, `message`, `help` and
/// `requirement` (null if no requirement is violated).
impl Serialize for ScanFinding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            code: &'a str,
            severity: Severity,
            place: &'a str,
            message: &'a str,
            help: &'a str,
            requirement: Option<&'a str>,
        }
        let ScanFinding { code, severity, place, message, help, requirement } = self;
        let (severity, requirement) = (*severity, *requirement);
        Fields { code, severity, place, message, help, requirement }.serialize(serializer)
    }
}

/// Serializes the report of a scan with the keys `errors`, `warnings`, `notes`, `facts` and
/// `findings`.
impl Serialize for ScanReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            errors: u64,
            warnings: u64,
            notes: u64,
            facts: &'a ScanFacts,
            findings: &'a [ScanFinding],
        }
        let form = Fields {
            errors: self.errors,
            warnings: self.warnings,
            notes: self.notes,
            facts: &self.facts,
            findings: &self.findings,
        };
        form.serialize(serializer)
    }
}

/// Serializes an inferred value with the keys `graph`, `name`, `made_by`, `type` as text, `elem`
/// and `shape`. An unknown type, element type, shape or dimension is null. A dimension that is an
/// expression is a text.
impl Serialize for InferredValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            graph: &'a str,
            name: &'a str,
            made_by: &'a str,
            #[serde(rename = "type")]
            ty: Option<String>,
            elem: Option<&'static str>,
            shape: Option<&'a [Dim]>,
        }
        let form = Form {
            graph: &self.graph,
            name: &self.name,
            made_by: &self.made_by,
            ty: self.ty.map(Type::to_string),
            elem: self.ty.and_then(Type::elem).map(|elem| elem.name()),
            shape: self.ty.and_then(Type::shape).map(|shape| &shape[..]),
        };
        form.serialize(serializer)
    }
}

/// Serializes a variable of the training state with the keys `name`, `entry` (index of the
/// `TrainingInfoProto` that has the initializer; null for an initializer of the main graph), `type`
/// (null if the standard does not define the element type) and `shape`.
impl Serialize for StateVariable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            name: &'a str,
            entry: Option<usize>,
            #[serde(rename = "type")]
            data_type: Option<&'static str>,
            shape: &'a [i64],
        }
        let form = Form {
            name: &self.name,
            entry: self.entry,
            data_type: self.data_type.map(|data_type| data_type.name()),
            shape: &self.dims,
        };
        form.serialize(serializer)
    }
}
