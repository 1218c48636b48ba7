//! Implements `serde::Serialize` for reports. The command uses these implementations for `--json`,
//! so the keys are the same.

mod inspect;

use sardonyx_model::{Dim, Type};
use serde::{Serialize, Serializer};

use crate::check::Severity;
use crate::infer::InferredValue;
use crate::inspect::OperatorSet;
use crate::save::{SaveReport, SavedFile};
use crate::scan::{ScanFacts, ScanFinding, ScanReport, ScannedDomain, ScannedFile};
use crate::train::StateVariable;

/// Writes the keys `domain` (empty for `ai.onnx`) and `version`.
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

/// Writes the keys `location`, `bytes`, `tensors` and `reused`.
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

/// Writes the keys `bytes`, `exceeds_2_gib`, `files`, `removed`, `shared`, `left` and `left_out`.
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

/// Writes the keys `location`, `bytes` (null if the file is missing or was not looked up) and
/// `tensors`.
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

/// Writes the keys `domain`, `operators` (number of distinct ones) and `nodes` (their number).
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

/// Writes each field under its own name, except `size`, which gets the key `bytes`.
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

/// Writes the keys `code`, `severity`, `place`, `message`, `help` and `requirement` (null if none
/// is violated).
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

/// Writes the keys `errors`, `warnings`, `notes`, `facts` and `findings`.
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

/// Writes the keys `graph`, `name`, `made_by`, `type` as text, `elem` and `shape`. An unknown type,
/// element type, shape or dimension is null. A dimension that is an expression is a text.
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

/// Writes the keys `name`, `entry` (null for an initializer of the main graph), `type` (null if the
/// standard does not define it) and `shape`.
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
