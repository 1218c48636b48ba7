//! Documents of operator sets: which operators there are, by name, and the rules about that.

use hashbrown::HashSet;
use sardonyx_proto::{
    Error, FunctionField, OperatorField, OperatorSetField, OperatorSetProto, OperatorStatus,
    Reader, shown,
};

use super::documents::{Judge, WHOLE};
use crate::codes;

/// The text that documents of operator sets begin with.
pub const OPERATOR_SET_MAGIC: &[u8] = b"ONNXOPSET";

/// A document of an operator set, which says what operators there are, but not what they take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorSet {
    /// What it begins with; it is [`OPERATOR_SET_MAGIC`] in every valid document.
    pub magic: Vec<u8>,
    /// Version of the format. The documents of the standard say that it has 32 bits, the schema 64;
    /// 64 are read.
    pub ir_version: Option<i64>,
    /// Its domain.
    pub domain: String,
    /// Its version.
    pub version: i64,
    /// Its operators, and then its functions.
    pub operators: Vec<DeclaredOperator>,
}

/// An operator of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredOperator {
    /// Name.
    pub name: String,
    /// The version of the set that brought it. Functions do not say it; then it is that of the set.
    pub since: i64,
    /// Its status, as a number: `EXPERIMENTAL` 0 or `STABLE` 1. Absent means experimental.
    pub status: i32,
    /// Whether it stands among the functions.
    pub is_function: bool,
}

impl OperatorSet {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// The bytes are no such message.
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

    /// The operator that a node means which calls `name` at a version of the set; otherwise the
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
    /// Judges a document.
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
