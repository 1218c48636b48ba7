//! Rules about stored tensors. Values are read only for rules about them: codes of 6-bit floats,
//! and strings.

use sardonyx_model::{Attribute, AttributeValue, Entry, GraphId, SparseTensorProto, TensorProto};
use sardonyx_proto::{
    DataLocation, DataType, TensorField, Typed, TypedField, find_oversized_entry, shown,
};

use super::{Checker, count};
use crate::codes;
use crate::finding::Spot;
use crate::payload::{
    bad_location, compare, element_count, entries_needed, field_name, for_each_chunk, lists,
    storage_bytes,
};

impl Checker<'_> {
    /// Checks the constants of a graph, each by itself.
    pub(super) fn initializers_alone(&mut self, graph: GraphId) {
        for (index, found) in self.model.graph(graph).initializers.iter().enumerate() {
            self.tensor(&found.tensor, Spot::graph(graph).item("initializer", index));
        }
    }

    /// Checks all stored tensors, in the order of the file.
    pub(super) fn tensors_alone(&mut self) {
        let model = self.model;
        for (id, graph) in model.graphs() {
            self.initializers_alone(id);
            for (index, sparse) in graph.sparse_initializers.iter().enumerate() {
                let spot = Spot::graph(id).item("sparse_initializer", index);
                self.parts_of_sparse(&sparse.tensor, spot);
            }
            for node in &graph.nodes {
                for (index, attribute) in model.attributes(*node).iter().enumerate() {
                    let spot = Spot::node(*node).item("attribute", index);
                    self.tensors_in(model.attribute(*attribute), spot);
                }
            }
        }
        for (function, found) in model.functions.iter().enumerate() {
            for (index, attribute) in found.attribute_protos.iter().enumerate() {
                self.tensors_in(attribute, Spot::function(function).item("attribute_proto", index));
            }
        }
    }

    fn tensors_in(&mut self, attribute: &Attribute, spot: Spot) {
        for value in &attribute.values {
            match value {
                AttributeValue::Tensor(tensor) => self.tensor(tensor, spot),
                AttributeValue::Tensors(list) => {
                    list.iter().for_each(|tensor| self.tensor(tensor, spot));
                }
                AttributeValue::SparseTensor(sparse) => self.parts_of_sparse(sparse, spot),
                AttributeValue::SparseTensors(list) => {
                    list.iter().for_each(|sparse| self.parts_of_sparse(sparse, spot));
                }
                _ => {}
            }
        }
    }

    /// Checks the two tensors of a sparse tensor, without reading indices.
    fn parts_of_sparse(&mut self, sparse: &SparseTensorProto, spot: Spot) {
        self.dims(&sparse.dims, spot);
        for part in [&sparse.values, &sparse.indices].into_iter().flatten() {
            self.tensor(part, spot);
        }
    }

    /// Checks a stored tensor.
    pub(super) fn tensor(&mut self, tensor: &TensorProto, spot: Spot) {
        let elements = self.dims(&tensor.dims, spot);
        let number = tensor.data_type.unwrap_or(0);
        let data_type = DataType(number);
        let known = number != 0 && data_type.name().is_some();
        if !known {
            self.add(&codes::NO_ELEMENT_TYPE, spot, |_| match number {
                0 => "no element type is set".to_string(),
                _ => format!("element type {number} is not defined by the standard"),
            });
        }
        if tensor.segment.is_some() {
            self.add(&codes::SEGMENT, spot, |_| {
                "the tensor is a segment of a larger tensor".into()
            });
        }
        match tensor.data_location {
            Some(DataLocation::EXTERNAL) => self.external(tensor, data_type, elements, spot),
            location => {
                if let Some(odd) = location.filter(|location| *location != DataLocation::DEFAULT) {
                    self.add(&codes::UNKNOWN_DATA_LOCATION, spot, |_| {
                        format!("data location {} is not defined by the standard", odd.0)
                    });
                }
                if known {
                    self.inline(tensor, data_type, elements, spot);
                }
            }
        }
        if !tensor.metadata_props.is_empty() {
            self.keys(&tensor.metadata_props, spot, "metadata_props");
        }
        if tensor.doc_string.is_some() {
            self.check_markup(tensor.doc_string, spot);
        }
    }

    /// Returns the number of elements, if the dimensions are valid.
    pub(super) fn dims(&mut self, dims: &[i64], spot: Spot) -> Option<u64> {
        if let Some(dim) = dims.iter().find(|dim| **dim < 0) {
            self.add(&codes::NEGATIVE_DIM, spot, |_| format!("dimension {dim} is negative"));
            return None;
        }
        let elements = element_count(dims);
        if elements.is_none() {
            self.too_large(spot);
        }
        elements
    }

    fn too_large(&mut self, spot: Spot) {
        self.add(&codes::SIZE_OVERFLOW, spot, |_| "the number of elements overflows".into());
    }

    fn inline(
        &mut self,
        tensor: &TensorProto,
        data_type: DataType,
        elements: Option<u64>,
        spot: Spot,
    ) {
        let lists = lists(self.model, tensor);
        // An empty field counts as an absent one.
        let raw = tensor.raw_data.filter(|raw| raw.len > 0);
        if tensor.skipped.is_some() {
            return;
        }
        if lists.len() + usize::from(raw.is_some()) > 1 {
            self.add(&codes::TWO_PAYLOADS, spot, |_| {
                let raw = raw.map(|_| "raw_data").into_iter();
                let names: Vec<&str> = raw.chain(lists.iter().map(|n| field_name(*n))).collect();
                format!("values are in {}", names.join(" and in "))
            });
            return;
        }
        let expected = data_type.typed_field().map_or("", TypedField::name);
        if raw.is_some() && data_type == DataType::STRING {
            self.add(&codes::STRINGS_IN_RAW, spot, |_| {
                "the tensor has type string and raw_data".into()
            });
            return;
        }
        if let Some(list) = lists.first().filter(|list| field_name(**list) != expected) {
            self.add(&codes::WRONG_LIST, spot, |_| {
                format!(
                    "values are in {}, but those of type {} belong in {expected}",
                    field_name(*list),
                    DataType::name(data_type).unwrap_or_default().to_lowercase(),
                )
            });
            return;
        }
        let Some(elements) = elements else { return };
        if elements == 0 {
            if raw.is_some() || !lists.is_empty() {
                self.add(&codes::DATA_OF_NOTHING, spot, |_| {
                    "the tensor has 0 elements, but values are stored".into()
                });
            }
            return;
        }
        let (present, needed, unit) = match (raw, lists.first()) {
            (Some(raw), _) => {
                let Some(needed) = storage_bytes(data_type, elements) else {
                    return self.too_large(spot);
                };
                (raw.len..=raw.len, needed, "byte")
            }
            (None, Some(_)) => {
                let Some(needed) = entries_needed(data_type, elements) else {
                    return self.too_large(spot);
                };
                let present = crate::payload::entries(self.model, &tensor.typed);
                (present, needed, "entry")
            }
            (None, None) => {
                self.add(&codes::NO_DATA, spot, |_| {
                    format!("the tensor has {} and no values", count(elements, "element"))
                });
                return;
            }
        };
        match compare(&present, needed) {
            std::cmp::Ordering::Less => {
                // The checker of the `onnx` package counts an entry as a whole word of packed
                // elements.
                let words = raw.is_none().then(|| words_of_packed(data_type, elements));
                let code = match words.flatten() {
                    Some(words) if words <= *present.end() => &codes::PACKED_ENTRIES_MISSING,
                    _ => &codes::DATA_TOO_SHORT,
                };
                self.add(code, spot, |_| {
                    format!(
                        "shape and type require {}, but there are {}",
                        count(needed, unit),
                        present.end()
                    )
                });
            }
            std::cmp::Ordering::Greater => {
                self.add(&codes::SURPLUS, spot, |_| {
                    format!(
                        "shape and type require {}, but there are {}",
                        count(needed, unit),
                        present.start()
                    )
                });
            }
            std::cmp::Ordering::Equal => {}
        }
        self.values(tensor, data_type, elements, spot);
    }

    /// Checks the values themselves.
    fn values(&mut self, tensor: &TensorProto, data_type: DataType, elements: u64, spot: Spot) {
        let model = self.model;
        if data_type.bits() == Some(6)
            && self.wants(&codes::PADDING_BITS)
            && let Some(raw) = tensor.raw_data
        {
            // Four elements take three bytes. The last byte follows all whole ones.
            let bits_behind = elements % 4 * 6;
            let used = bits_behind % 8;
            let last = usize::try_from(elements / 4 * 3 + bits_behind / 8);
            let last = last.ok().and_then(|last| model.bytes(raw).get(last));
            if used > 0 && last.is_some_and(|last| last >> used != 0) {
                self.add(&codes::PADDING_BITS, spot, |_| {
                    "the last byte has non-zero padding bits".into()
                });
            }
        }
        let code = match data_type.bits() {
            Some(6) => &codes::SIX_BIT_RANGE,
            _ => &codes::ENTRY_RANGE,
        };
        if self.wants(code) {
            let mut odd = None;
            for_each_chunk(model, &tensor.typed, |field| {
                let chunk = match field {
                    TensorField::Int32Data(chunk) => Typed::Int32(chunk),
                    TensorField::Uint64Data(chunk) => Typed::Uint64(chunk),
                    _ => return,
                };
                // A broken packed list was found when the model was read.
                let found = find_oversized_entry(data_type, chunk).ok().flatten();
                odd = odd.or(found.map(|entry| (chunk.field().name(), entry as i64)));
            });
            if let Some((field, odd)) = odd {
                self.add(code, spot, |_| format!("an entry of {field} is {odd}"));
            }
        }
        if data_type == DataType::STRING && self.wants(&codes::STRING_NOT_UTF8) {
            let mut odd = None;
            let mut index = 0u64;
            for_each_chunk(model, &tensor.typed, |field| {
                if let TensorField::StringData(text) = field {
                    if odd.is_none() && std::str::from_utf8(text.bytes).is_err() {
                        odd = Some((index, shown(text.bytes)));
                    }
                    index += 1;
                }
            });
            if let Some((index, text)) = odd {
                self.add(&codes::STRING_NOT_UTF8, spot, |_| {
                    format!("element {index}, '{text}', is not UTF-8")
                });
            }
        }
    }

    /// Checks the description of values outside of the model. A caller that opens files checks the
    /// files.
    fn external(
        &mut self,
        tensor: &TensorProto,
        data_type: DataType,
        elements: Option<u64>,
        spot: Spot,
    ) {
        let model = self.model;
        if tensor.raw_data.is_some() || !tensor.typed.is_empty() {
            self.add(&codes::EXTERNAL_AND_INLINE, spot, |_| {
                "the values are declared external, but the model has values too".into()
            });
        }
        if data_type == DataType::STRING {
            self.add(&codes::EXTERNAL_STRINGS, spot, |_| {
                "the tensor has type string and external values".into()
            });
        }
        let text = |entry: &Entry| model.maybe_text(entry.value).unwrap_or_default();
        for entry in &tensor.external_data {
            let key = model.maybe_text(entry.key).unwrap_or_default();
            if !matches!(key, b"location" | b"offset" | b"length" | b"checksum" | b"basepath") {
                self.add(&codes::UNKNOWN_EXTERNAL_KEY, spot, |_| {
                    format!("external_data has the key '{}'", shown(key))
                });
            }
            if matches!(key, b"offset" | b"length") {
                self.number(entry, spot);
            }
        }
        self.keys(&tensor.external_data, spot, "external_data");
        // With several locations readers disagree about which one counts, so all of them must be
        // valid.
        let locations = tensor.external_data.iter();
        let mut locations = locations
            .filter(|entry| model.maybe_text(entry.key) == Some(b"location"))
            .map(text)
            .peekable();
        if locations.peek().is_none() {
            self.add(&codes::EXTERNAL_WITHOUT_LOCATION, spot, |_| {
                "the values are external, but no location is set".into()
            });
        }
        for location in locations {
            if location.is_empty() {
                self.add(&codes::EXTERNAL_WITHOUT_LOCATION, spot, |_| {
                    "the values are external, but the location is empty".into()
                });
            } else if let Some(why) = bad_location(location) {
                self.add(&codes::BAD_LOCATION, spot, |_| {
                    format!("values are in the file '{}', which {why}", shown(location))
                });
            }
        }
        let reference = model.external_reference(tensor).ok();
        let length = reference.and_then(|reference| reference.length);
        let needed = elements.and_then(|elements| storage_bytes(data_type, elements));
        if let (Some(length), Some(needed)) = (length, needed)
            && length != needed
        {
            self.add(&codes::LENGTH_MISMATCH, spot, |_| {
                format!("the length is {length} bytes, but type and shape require {needed}")
            });
        }
    }

    fn number(&mut self, entry: &Entry, spot: Spot) {
        let text = |symbol| self.model.maybe_text(symbol).unwrap_or_default();
        let (key, value) = (text(entry.key), text(entry.value));
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().and_then(|v| v.parse::<u64>().ok());
        if !digits || number.is_none() {
            self.add(&codes::BAD_RANGE, spot, |_| {
                format!("invalid {}: '{}'", shown(key), shown(value))
            });
        }
    }
}

/// Returns the number of 32-bit entries that hold all elements of a type of 2 or 4 bits, if each
/// entry is full.
fn words_of_packed(data_type: DataType, elements: u64) -> Option<u64> {
    match data_type.bits() {
        Some(bits @ (2 | 4)) => Some(elements.div_ceil(u64::from(32 / bits))),
        _ => None,
    }
}
