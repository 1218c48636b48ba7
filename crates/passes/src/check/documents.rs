//! Rules about files of the standard that are not models, and about stored values. Those about
//! operator sets are in `operator_set`.

use sardonyx_model::Model;
use sardonyx_proto::{
    DataType, Error, MapField, MapProto, OptionalElemType, OptionalField, OptionalProto, Reader,
    SequenceElemType, SequenceField, SequenceProto, SparseTensorField, TensorField,
};

use super::operator_set::OperatorSet;
use super::value_info::{element_name, is_key_type};
use super::{CheckOptions, count};
use crate::codes;
use crate::finding::{CheckReport, Code, Findings, Spot, SpotPart};

/// Kind of a file of the standard that is not a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    /// List of operators: `OperatorSetProto`.
    OperatorSet,
    /// Stored sequence: `SequenceProto`.
    Sequence,
    /// Stored map: `MapProto`.
    Map,
    /// Stored value that may be absent: `OptionalProto`.
    Optional,
}

/// Checks a file that is not a model, in its binary form.
///
/// # Errors
///
/// The bytes are not such a message.
pub fn check_document(
    bytes: &[u8],
    document: Document,
    options: &CheckOptions,
) -> Result<CheckReport, Error> {
    let mut judge = Judge {
        options,
        found: Findings::new(options.per_code),
        nothing: Model::default(),
        top: WHOLE,
    };
    match document {
        Document::OperatorSet => {
            let set = OperatorSet::read(bytes)?;
            judge.operator_set(&set);
        }
        Document::Sequence => judge.value(Stored::Sequence(Reader::new(bytes)))?,
        Document::Map => judge.value(Stored::Map(Reader::new(bytes)))?,
        Document::Optional => judge.value(Stored::Optional(Reader::new(bytes)))?,
    }
    Ok(judge.found.report())
}

/// Spot of the file as a whole.
pub(super) const WHOLE: Spot = Spot { part: SpotPart::Document, ..Spot::MODEL };

/// Stored value that remains to be checked.
enum Stored<'a> {
    Sequence(Reader<'a, SequenceProto>),
    Map(Reader<'a, MapProto>),
    Optional(Reader<'a, OptionalProto>),
}

/// Kind of the elements of a sequence and, for tensors, their element type.
type Element = (&'static str, Option<i32>);

/// Check of a document in progress.
pub(super) struct Judge<'o> {
    options: &'o CheckOptions,
    found: Findings,
    /// Model for the spots of findings. A document has none.
    nothing: Model,
    /// Outermost element of the file that contains the current value.
    top: Spot,
}

impl Judge<'_> {
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn add(&mut self, code: &'static Code, spot: Spot, fact: impl FnOnce() -> String) {
        if let Some(severity) = self.options.levels.of(code) {
            let words = || (fact(), "".into());
            self.found.add(&self.nothing, code, severity, spot, words);
        }
    }

    /// Checks a stored value and all values in it, without recursion; the reader bounds their
    /// depth.
    fn value(&mut self, value: Stored<'_>) -> Result<(), Error> {
        let mut left = vec![(value, WHOLE)];
        while let Some((value, top)) = left.pop() {
            self.top = top;
            let first = left.len();
            match value {
                Stored::Sequence(reader) => self.sequence(reader, &mut left)?,
                Stored::Map(reader) => self.map(reader, &mut left)?,
                Stored::Optional(reader) => self.optional(reader, &mut left)?,
            }
            left[first..].reverse();
        }
        Ok(())
    }

    /// Returns the spot of an element. For deeper ones it is that of the outermost element around
    /// them.
    fn element_spot(&self, field: &'static str, index: usize) -> Spot {
        if self.top == WHOLE { WHOLE.item(field, index) } else { self.top }
    }

    fn sequence<'a>(
        &mut self,
        reader: Reader<'a, SequenceProto>,
        left: &mut Vec<(Stored<'a>, Spot)>,
    ) -> Result<(), Error> {
        let mut announced = None;
        for field in reader {
            if let SequenceField::ElemType(number) = field? {
                announced = Some(number);
            }
        }
        let kind = SequenceElemType(announced.unwrap_or(0));
        let mut other = None;
        let mut element: Option<Element> = None;
        let mut mixed = None;
        let mut count = 0;
        for field in reader {
            let (list, found) = match field? {
                SequenceField::TensorValues(tensor) => {
                    (SequenceElemType::TENSOR, ("tensor", tensor_type(tensor)?))
                }
                SequenceField::SparseTensorValues(sparse) => {
                    let mut elem = None;
                    for field in sparse {
                        if let SparseTensorField::Values(values) = field? {
                            elem = tensor_type(values)?;
                        }
                    }
                    (SequenceElemType::SPARSE_TENSOR, ("sparse tensor", elem))
                }
                SequenceField::SequenceValues(inner) => {
                    left.push((
                        Stored::Sequence(inner),
                        self.element_spot("sequence_values", count),
                    ));
                    (SequenceElemType::SEQUENCE, ("sequence", None))
                }
                SequenceField::MapValues(inner) => {
                    left.push((Stored::Map(inner), self.element_spot("map_values", count)));
                    (SequenceElemType::MAP, ("map", None))
                }
                SequenceField::OptionalValues(inner) => {
                    left.push((
                        Stored::Optional(inner),
                        self.element_spot("optional_values", count),
                    ));
                    (SequenceElemType::OPTIONAL, ("optional", None))
                }
                SequenceField::Name(_) | SequenceField::ElemType(_) | SequenceField::Unknown(_) => {
                    continue;
                }
            };
            if list != kind {
                other.get_or_insert(found.0);
            }
            match element {
                Some(element) if element != found => {
                    mixed.get_or_insert((count, element, found));
                }
                _ => element = Some(found),
            }
            count += 1;
        }
        let top = self.top;
        if let Some(other) = other {
            self.add(&codes::VALUE_OF_OTHER_KIND, top, || {
                let kind = kind_name(kind.0, kind.name());
                format!("a sequence of {kind} contains a {other}")
            });
        } else if announced.is_some() && kind.name().is_none() {
            self.add(&codes::VALUE_OF_OTHER_KIND, top, || {
                format!("invalid element kind of a sequence: {}", kind_name(kind.0, None))
            });
        }
        if let Some((at, element, found)) = mixed {
            self.add(&codes::MIXED_VALUES, top, || {
                format!(
                    "element {at} of a sequence has type {}, but the elements before it have type {}",
                    element_words(found),
                    element_words(element)
                )
            });
        }
        Ok(())
    }

    fn map<'a>(
        &mut self,
        reader: Reader<'a, MapProto>,
        left: &mut Vec<(Stored<'a>, Spot)>,
    ) -> Result<(), Error> {
        let (mut key_type, mut numbers, mut texts, mut values) = (None, 0usize, 0usize, 0usize);
        for field in reader {
            match field? {
                MapField::KeyType(number) => key_type = Some(number),
                MapField::Keys(chunk) => {
                    for number in chunk.iter() {
                        number?;
                        numbers += 1;
                    }
                }
                MapField::StringKeys(_) => texts += 1,
                MapField::Values(inner) => {
                    for field in inner {
                        let is_element = !matches!(
                            field?,
                            SequenceField::Name(_)
                                | SequenceField::ElemType(_)
                                | SequenceField::Unknown(_)
                        );
                        values += usize::from(is_element);
                    }
                    left.push((Stored::Sequence(inner), self.element_spot("values", 0)));
                }
                MapField::Name(_) | MapField::Unknown(_) => {}
            }
        }
        let top = self.top;
        let ty = DataType(key_type.unwrap_or(0));
        if !is_key_type(ty) {
            self.add(&codes::STORED_KEYS, top, || {
                format!("invalid key type of a map: {}", element_name(ty.0))
            });
        }
        if numbers > 0 && texts > 0 {
            self.add(&codes::STORED_KEYS, top, || {
                format!(
                    "a map has both {} and {} as keys",
                    count(numbers as u64, "integer"),
                    count(texts as u64, "string")
                )
            });
        } else if is_key_type(ty)
            && (ty == DataType::STRING && numbers > 0 || ty != DataType::STRING && texts > 0)
        {
            self.add(&codes::STORED_KEYS, top, || {
                let found = if texts > 0 { "strings" } else { "integers" };
                format!(
                    "the key type of a map is {}, but its keys are stored as {found}",
                    element_name(ty.0)
                )
            });
        }
        if numbers + texts != values {
            self.add(&codes::STORED_KEYS, top, || {
                format!("a map has {} keys and {values} values", numbers + texts)
            });
        }
        Ok(())
    }

    fn optional<'a>(
        &mut self,
        reader: Reader<'a, OptionalProto>,
        left: &mut Vec<(Stored<'a>, Spot)>,
    ) -> Result<(), Error> {
        let mut announced = None;
        let mut found: Option<(OptionalElemType, &str)> = None;
        let mut count = 0;
        for field in reader {
            let this = match field? {
                OptionalField::ElemType(number) => {
                    announced = Some(number);
                    continue;
                }
                OptionalField::Name(_) | OptionalField::Unknown(_) => continue,
                OptionalField::TensorValue(_) => (OptionalElemType::TENSOR, "tensor"),
                OptionalField::SparseTensorValue(_) => {
                    (OptionalElemType::SPARSE_TENSOR, "sparse tensor")
                }
                OptionalField::SequenceValue(inner) => {
                    left.push((Stored::Sequence(inner), self.element_spot("sequence_value", 0)));
                    (OptionalElemType::SEQUENCE, "sequence")
                }
                OptionalField::MapValue(inner) => {
                    left.push((Stored::Map(inner), self.element_spot("map_value", 0)));
                    (OptionalElemType::MAP, "map")
                }
                OptionalField::OptionalValue(inner) => {
                    left.push((Stored::Optional(inner), self.element_spot("optional_value", 0)));
                    (OptionalElemType::OPTIONAL, "optional")
                }
            };
            found = Some(this);
            count += 1;
        }
        let top = self.top;
        let kind = OptionalElemType(announced.unwrap_or(0));
        match found {
            _ if count > 1 => self.add(&codes::VALUE_OF_OTHER_KIND, top, || {
                format!("an optional holds {count} values")
            }),
            Some((stored, what)) if stored != kind => {
                self.add(&codes::VALUE_OF_OTHER_KIND, top, || {
                    let kind = kind_name(kind.0, kind.name());
                    format!("an optional of {kind} contains a {what}")
                });
            }
            None if kind.name().is_none() => self.add(&codes::VALUE_OF_OTHER_KIND, top, || {
                format!("invalid element kind of an optional: {}", kind_name(kind.0, None))
            }),
            _ => {}
        }
        Ok(())
    }
}

fn tensor_type(tensor: Reader<'_, sardonyx_proto::TensorProto>) -> Result<Option<i32>, Error> {
    let mut elem = None;
    for field in tensor {
        if let TensorField::DataType(number) = field? {
            elem = Some(number);
        }
    }
    Ok(elem)
}

/// Returns the name of a stored kind.
fn kind_name(number: i32, name: Option<&str>) -> String {
    match (number, name) {
        (0, _) => "nothing".to_string(),
        (_, Some(name)) => format!("{}s", name.to_lowercase().replace('_', " ")),
        (number, None) => format!("kind {number}, which is not defined"),
    }
}

fn element_words((kind, elem): Element) -> String {
    match elem {
        Some(elem) => format!("{kind}({})", element_name(elem).to_lowercase()),
        None => kind.to_string(),
    }
}
