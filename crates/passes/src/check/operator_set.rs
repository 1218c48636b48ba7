//! Documents of operator sets, which list operators by name, and the rules about them.

use hashbrown::HashSet;
use sardonyx_proto::{
    Error, FunctionField, OperatorField, OperatorSetField, OperatorSetProto, OperatorStatus,
    Reader, shown,
};

use super::documents::{Judge, WHOLE};
use crate::codes;

/// Text that documents of operator sets begin with.
pub const OPERATOR_SET_MAGIC: &[u8] = b"ONNXOPSET";

/// Document of an operator set, which lists operators without their parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorSet {
    /// First bytes of the document; [`OPERATOR_SET_MAGIC`] in every valid one.
    pub magic: Vec<u8>,
    /// Version of the format. It has 32 bits according to the documents of the standard and 64 in
    /// the schema; 64 are read.
    pub ir_version: Option<i64>,
    /// Domain of the set.
    pub domain: String,
    /// Version of the set.
    pub version: i64,
    /// Operators, followed by functions.
    pub operators: Vec<DeclaredOperator>,
}

/// Operator of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredOperator {
    /// Name.
    pub name: String,
    /// Version of the set that introduced it. Functions do not declare one, so theirs is that of
    /// the set.
    pub since: i64,
    /// Its status, as a number: `EXPERIMENTAL` 0 or `STABLE` 1. Absent means experimental.
    pub status: i32,
    /// Whether it is in the list of functions.
    pub is_function: bool,
}

impl OperatorSet {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// The bytes are not such a message.
    pub fn read(bytes: &[u8]) -> Result<OperatorSet, Error> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut set = OperatorSet::default();
        let mut functions = Vec::new();
        for field in Reader::<OperatorSetProto>::new(bytes) {
            match field? {
                OperatorSetField::Magic(magic) => set.magic = magic.bytes.to_vec(),
                OperatorSetField::IrVersion(version) => set.ir_version = Some(version),
                OperatorSetField::Domain(domain) => set.domain = text(domain.bytes),
                OperatorSetField::OpsetVersion(version) => set.version = version,
                OperatorSetField::Operator(reader) => {
                    let mut operator = DeclaredOperator::default();
                    for field in reader {
                        match field? {
                            OperatorField::OpType(name) => operator.name = text(name.bytes),
                            OperatorField::SinceVersion(since) => operator.since = since,
                            OperatorField::Status(status) => operator.status = status.0,
                            OperatorField::DocString(_) | OperatorField::Unknown(_) => {}
                        }
                    }
                    set.operators.push(operator);
                }
                OperatorSetField::Functions(reader) => {
                    let mut function = DeclaredOperator {
                        status: OperatorStatus::STABLE.0,
                        is_function: true,
                        ..DeclaredOperator::default()
                    };
                    for field in reader {
                        if let FunctionField::Name(name) = field? {
                            function.name = text(name.bytes);
                        }
                    }
                    functions.push(function);
                }
                OperatorSetField::IrVersionPrerelease(_)
                | OperatorSetField::DocString(_)
                | OperatorSetField::IrBuildMetadata(_)
                | OperatorSetField::Unknown(_) => {}
            }
        }
        for function in &mut functions {
            function.since = set.version;
        }
        set.operators.append(&mut functions);
        Ok(set)
    }

    /// Returns the operator that a node calls by `name` at a version of the set; otherwise the
    /// first version that has it.
    pub(super) fn operator(
        &self,
        name: &str,
        version: i64,
    ) -> Result<&DeclaredOperator, Option<i64>> {
        let named = || self.operators.iter().filter(|found| found.name == name);
        let known = named().filter(|found| found.since <= version);
        known.max_by_key(|found| found.since).ok_or_else(|| named().map(|found| found.since).min())
    }
}

impl Judge<'_> {
    /// Checks a document.
    pub(super) fn operator_set(&mut self, set: &OperatorSet) {
        if set.magic != OPERATOR_SET_MAGIC {
            self.add(&codes::BAD_MAGIC, WHOLE.field("magic"), || {
                format!("invalid magic: the file begins with '{}'", shown(&set.magic))
            });
        }
        if set.domain.is_empty() {
            self.add(&codes::SET_WITHOUT_DOMAIN, WHOLE.field("domain"), || {
                "the operator set has no domain".into()
            });
        }
        if set.version < 1 {
            self.add(&codes::SET_WITHOUT_VERSION, WHOLE.field("opset_version"), || {
                format!("invalid version: {}", set.version)
            });
        }
        let mut seen = HashSet::new();
        let mut functions = 0;
        for (index, operator) in set.operators.iter().enumerate() {
            let spot = if operator.is_function {
                WHOLE.item("functions", functions)
            } else {
                WHOLE.item("operator", index)
            };
            functions += usize::from(operator.is_function);
            let name = || shown(operator.name.as_bytes());
            if operator.name.is_empty() {
                self.add(&codes::DECLARED_WITHOUT_NAME, spot, || "the name is missing".into());
            } else if !seen.insert((&operator.name, operator.since)) {
                self.add(&codes::DECLARED_TWICE, spot, || {
                    format!("'{}' is declared twice for version {}", name(), operator.since)
                });
            }
            if operator.since < 1 && !operator.is_function {
                self.add(&codes::DECLARED_TOO_LATE, spot, || {
                    format!("'{}' has no since_version", name())
                });
            } else if operator.since > set.version {
                self.add(&codes::DECLARED_TOO_LATE, spot, || {
                    format!(
                        "'{}' has since_version {}, but the operator set has version {}",
                        name(),
                        operator.since,
                        set.version
                    )
                });
            }
            if OperatorStatus(operator.status).name().is_none() {
                self.add(&codes::UNKNOWN_STATUS, spot, || {
                    format!("the status of '{}' is {}", name(), operator.status)
                });
            }
        }
    }
}
