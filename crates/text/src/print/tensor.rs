//! Prints tensors and their values.

use sardonyx_model::{NoExternalData, Span, SparseTensorProto, TensorProto, TypedRun};
use sardonyx_proto::{
    self as proto, DataLocation, Reader, TensorField, TypedField, push_varint, varint_len,
};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast, packed, shape::stored_elems};
use smallvec::SmallVec;

use super::{Notes, Placed, Printer, Weights, is_free_word};
use crate::layout;
use crate::numbers::{self, Print, Wrap};
use crate::parse::entry_range;

/// Number of values that never fit into a line.
const LINE: usize = layout::WIDTH / 3 + 1;

/// Wrapping of literals on one line of any length.
const FLAT: Wrap = Wrap { column: 0, indent: 0, width: usize::MAX, gap: 2 };
/// Wrapping of literals on one line without blanks.
const TIGHT: Wrap = Wrap { gap: 1, ..FLAT };

/// Values as literals.
enum Literals {
    /// Little-endian numbers of the model that are printed directly: type of the literals, and
    /// range of the bytes.
    Bytes(Width, Span),
    /// Numbers that had to be computed.
    Ints(Vec<i64>),
    Unsigned(Vec<u64>),
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
    Texts(Vec<Span>),
}

#[derive(Clone, Copy)]
enum Width {
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

impl Width {
    /// Returns the layout in raw bytes of numbers that have literals.
    fn for_numbers(data_type: DataType) -> Option<Width> {
        Some(match data_type {
            DataType::Float | DataType::Complex64 => Width::F32,
            DataType::Double | DataType::Complex128 => Width::F64,
            DataType::Int8 => Width::I8,
            DataType::Int16 => Width::I16,
            DataType::Int32 => Width::I32,
            DataType::Int64 => Width::I64,
            DataType::Uint8 => Width::U8,
            DataType::Uint16 => Width::U16,
            DataType::Uint32 => Width::U32,
            DataType::Uint64 => Width::U64,
            _ => return None,
        })
    }
}

impl Printer<'_, '_, '_> {
    /// Writes a constant of a graph; with `own_lines`, its values may take several lines.
    pub(super) fn write_initializer(&mut self, tensor: &TensorProto, own_lines: bool) {
        let model = self.model;
        let place = &|| format!("initializer {}", model.display(tensor.name));
        let known = tensor.data_type.and_then(DataType::from_number).is_some();
        if known || self.is_full() {
            self.write_element_type(tensor.data_type);
            self.write_dims(&tensor.dims);
            self.push(" ");
        }
        match tensor.name {
            Some(name) => self.write_name(name),
            None if self.is_full() => self.push("?"),
            None => {
                self.left_out.add("tensors without a name, which becomes empty", place);
                self.push("\"\"");
            }
        }
        let before = self.out.len();
        self.push(" = ");
        if !self.write_constant(tensor, own_lines, place) {
            // Without values, the text would be the type of a value.
            self.out.truncate(before);
        }
    }

    /// Writes the tensor of an attribute; writes nothing if this form cannot express it. Returns
    /// whether it could have annotations, but has none.
    pub(super) fn write_attribute_tensor(
        &mut self,
        tensor: &TensorProto,
        place: &dyn Fn() -> String,
    ) -> bool {
        let start = self.out.len();
        self.write_element_type(tensor.data_type);
        self.write_dims(&tensor.dims);
        let name = self.model.maybe_text(tensor.name);
        let left_out = match name {
            None => (!self.is_full()).then_some("tensors without a name, which becomes empty"),
            Some(b"") if !self.is_full() => None,
            Some(name) if !self.is_full() && !is_free_word(name) => {
                Some("names of tensors in attributes that are no identifiers")
            }
            Some(_) => {
                self.push(" ");
                self.write_maybe_name(tensor.name);
                None
            }
        };
        self.push(" = ");
        let mark = self.out.len();
        if !self.write_constant(tensor, false, place) {
            self.out.truncate(start);
            return false;
        }
        if let Some(what) = left_out {
            self.left_out.add_harmless(what, place);
        }
        // Braces need no `=`.
        let named = name.is_some_and(|name| !name.is_empty() || self.is_full());
        if !named && self.out.get(mark) == Some(&b'{') {
            self.out.drain(mark - 2..mark);
        }
        !self.tensor_has_notes(tensor)
    }

    fn write_dims(&mut self, dims: &[i64]) {
        if dims.is_empty() {
            return;
        }
        self.push("[");
        numbers::push_list(&mut self.out, dims.iter().copied(), FLAT);
        self.push("]");
    }

    /// Writes `sparse(type, values, indices)`.
    pub(super) fn write_sparse_tensor(&mut self, sparse: &SparseTensorProto) {
        let place = &|| "sparse tensor".to_string();
        self.push("sparse(");
        let elem = sparse.values.as_ref().and_then(|values| values.data_type);
        self.write_element_type(elem);
        self.write_dims(&sparse.dims);
        if sparse.values.is_some() || sparse.indices.is_some() {
            self.push(", ");
        }
        match &sparse.values {
            Some(values) => {
                self.write_attribute_tensor(values, place);
            }
            None if sparse.indices.is_some() => self.push("?"),
            None => {}
        }
        if let Some(indices) = &sparse.indices {
            self.push(", ");
            self.write_attribute_tensor(indices, place);
        }
        self.push(")");
        self.write_unknown_notes(&sparse.unknown, place);
    }

    /// Writes the values of a tensor, and its annotations. Returns whether this form can express
    /// them.
    fn write_constant(
        &mut self,
        tensor: &TensorProto,
        own_lines: bool,
        place: &dyn Fn() -> String,
    ) -> bool {
        if !self.is_full() {
            return self.write_portable_constant(tensor, own_lines, place);
        }
        let own_lines = own_lines && !self.tensor_has_notes(tensor);
        let external = tensor.data_location == Some(DataLocation::EXTERNAL);
        let (mut raw_shown, mut typed_shown) = (false, false);
        if external {
            self.write_pairs(&tensor.external_data, place);
        } else if let Some(raw) = tensor.raw_data {
            raw_shown = true;
            self.push("raw ");
            match self.raw_literals(tensor, raw) {
                Some(literals) if self.stays_inline(raw) => {
                    self.write_literals(&literals, own_lines)
                }
                _ => self.write_payload(raw),
            }
        } else if let [run, ..] = tensor.typed[..] {
            typed_shown = true;
            let long = !self.stays_inline(run.records);
            match self.typed_literals(tensor) {
                Some(literals) if !long => self.write_literals(&literals, own_lines),
                _ if long && tensor.typed.len() == 1 => {
                    self.push("fields ");
                    self.write_payload(run.records);
                }
                _ => {
                    self.push("fields ");
                    self.write_records(&tensor.typed);
                }
            }
        } else if self.count_elements(tensor) == Some(0) {
            self.push("{}");
        } else {
            self.push("?");
        }
        self.write_tensor_notes(tensor, external, raw_shown, typed_shown, place);
        true
    }

    fn write_tensor_notes(
        &mut self,
        tensor: &TensorProto,
        external: bool,
        raw_shown: bool,
        typed_shown: bool,
        place: &dyn Fn() -> String,
    ) {
        let mut notes = Notes::default();
        if let Some(segment) = &tensor.segment
            && self.begin_note(&mut notes, "segment", "segments of tensors", place)
        {
            self.push("{");
            let mut first = true;
            for (key, value) in [("begin", segment.begin), ("end", segment.end)] {
                if let Some(value) = value {
                    self.write_separator(&mut first);
                    self.push(key);
                    self.push(": ");
                    self.write_integer(value);
                }
            }
            if !segment.unknown.is_empty() {
                self.write_separator(&mut first);
                self.push("unknown: ");
                self.write_unknown_list(&segment.unknown);
            }
            self.push("}");
        }
        let second = "second values of a tensor";
        if let Some(raw) = tensor.raw_data
            && !raw_shown
            && self.begin_note(&mut notes, "raw_data", second, place)
        {
            self.write_payload(raw);
        }
        if !tensor.typed.is_empty()
            && !typed_shown
            && self.begin_note(&mut notes, "fields", second, place)
        {
            self.write_records(&tensor.typed);
        }
        self.write_doc_note(&mut notes, tensor.doc_string, place);
        if !tensor.external_data.is_empty()
            && !external
            && self.begin_harmless_note(&mut notes, "external_data", "unused external data", place)
        {
            self.write_pairs(&tensor.external_data, place);
        }
        if let Some(location) = tensor.data_location
            && !external
            && self.begin_harmless_note(&mut notes, "data_location", "data locations", place)
        {
            self.write_integer(location.0.into());
        }
        self.write_metadata_note(&mut notes, &tensor.metadata_props, place);
        self.write_unknown(&mut notes, "unknown", &tensor.unknown, place);
        self.end_notes(notes);
    }

    fn tensor_has_notes(&self, tensor: &TensorProto) -> bool {
        let external = tensor.data_location == Some(DataLocation::EXTERNAL);
        let values = [external, tensor.raw_data.is_some(), !tensor.typed.is_empty()];
        let several = values.iter().filter(|some| **some).count() > 1;
        several
            || tensor.segment.is_some()
            || tensor.doc_string.is_some()
            || (!external && !tensor.external_data.is_empty())
            || (!external && tensor.data_location.is_some())
            || !tensor.metadata_props.is_empty()
            || !tensor.unknown.is_empty()
    }

    /// Whether values are written into the text.
    fn stays_inline(&self, payload: Span) -> bool {
        matches!(self.weights, Weights::Inline) || payload.len <= self.inline_bytes
    }

    /// Writes bytes, or a reference to their location.
    fn write_payload(&mut self, span: Span) {
        if self.stays_inline(span) {
            return self.write_hexadecimal(self.model.bytes(span));
        }
        match &mut self.weights {
            Weights::Placed(payloads) => match payloads.place(self.model, span) {
                None => self.write_hexadecimal(self.model.bytes(span)),
                Some(placed) => self.write_reference(&placed, span.len),
            },
            Weights::Elided(digest) => {
                // The word `raw` or `fields` before an elided payload has no meaning.
                let digest = digest(self.model.bytes(span));
                self.retract("raw ");
                self.retract("fields ");
                self.left_out.add("values of large tensors", || "as asked".to_string());
                self.push("elided ");
                self.write_quoted(digest.as_bytes());
            }
            Weights::Inline => {}
        }
    }

    /// Writes the location of values outside the text, with the digests that verify them.
    fn write_reference(&mut self, placed: &Placed, length: u64) {
        self.push("[\"location\": ");
        self.write_quoted(placed.location.as_bytes());
        if let Some(tensor) = &placed.tensor {
            self.push(", \"tensor\": ");
            self.write_quoted(tensor);
        }
        self.push(", \"offset\": \"");
        numbers::push_u64(&mut self.out, placed.offset);
        self.push("\", \"length\": \"");
        numbers::push_u64(&mut self.out, length);
        self.push("\"");
        if !self.files_in_header {
            let mut files = self.files.iter();
            let file = files.find(|(location, _)| *location == placed.location);
            if let Some(digest) = file.map(|(_, digest)| digest.clone()) {
                self.push(", \"file_digest\": ");
                self.write_quoted(digest.as_bytes());
            }
        }
        if let Some(digest) = &placed.sha256 {
            self.push(", \"sha256\": ");
            self.write_quoted(digest.as_bytes());
        }
        self.push("]");
    }

    fn retract(&mut self, text: &str) {
        if self.out.ends_with(text.as_bytes()) {
            self.out.truncate(self.out.len() - text.len());
        }
    }

    /// Writes the records of typed lists without decoding them.
    fn write_records(&mut self, runs: &[TypedRun]) {
        let mut bytes = Vec::new();
        for run in runs {
            bytes.extend_from_slice(self.model.bytes(run.records));
        }
        self.write_hexadecimal(&bytes);
    }

    // Literals.

    fn write_literals(&mut self, literals: &Literals, own_lines: bool) {
        self.push("{");
        let bytes = |span: &Span| self.model.bytes(*span);
        macro_rules! bulk {
            ($type:ty, $span:expr) => {{
                let bytes = bytes($span);
                let count = bytes.len() / size_of::<$type>();
                let wrap = self.begin_numbers(count, own_lines);
                numbers::push_le_list::<$type>(&mut self.out, bytes, wrap);
                self.end_numbers(count, own_lines);
            }};
        }
        match literals {
            Literals::Bytes(width, span) => match width {
                Width::F32 => bulk!(f32, span),
                Width::F64 => bulk!(f64, span),
                Width::I8 => bulk!(i8, span),
                Width::I16 => bulk!(i16, span),
                Width::I32 => bulk!(i32, span),
                Width::I64 => bulk!(i64, span),
                Width::U8 => bulk!(u8, span),
                Width::U16 => bulk!(u16, span),
                Width::U32 => bulk!(u32, span),
                Width::U64 => bulk!(u64, span),
            },
            Literals::Ints(values) => self.write_number_list(values, own_lines),
            Literals::Unsigned(values) => self.write_number_list(values, own_lines),
            Literals::Floats(values) => self.write_number_list(values, own_lines),
            Literals::Doubles(values) => self.write_number_list(values, own_lines),
            Literals::Texts(texts) => {
                let mut first = true;
                for text in texts {
                    self.write_separator(&mut first);
                    self.write_quoted(self.model.bytes(*text));
                }
            }
        }
        self.push("}");
    }

    fn write_number_list<T: Print>(&mut self, values: &[T], own_lines: bool) {
        let wrap = self.begin_numbers(values.len(), own_lines);
        numbers::push_list(&mut self.out, values.iter().copied(), wrap);
        self.end_numbers(values.len(), own_lines);
    }

    /// Begins a list of numbers; if it does not fit into the line, on lines of its own where this
    /// is allowed.
    fn begin_numbers(&mut self, count: usize, own_lines: bool) -> Wrap {
        if self.like_onnx {
            return TIGHT;
        }
        if !own_lines || count < LINE {
            return FLAT;
        }
        let indent = self.indent + layout::INDENT;
        self.out.push(b'\n');
        self.out.resize(self.out.len() + indent, b' ');
        Wrap { column: indent, indent, width: layout::WIDTH, gap: 2 }
    }

    fn end_numbers(&mut self, count: usize, own_lines: bool) {
        if own_lines && count >= LINE && !self.like_onnx {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + self.indent, b' ');
            self.laid_out = true;
        }
    }

    /// Returns the number of elements of a tensor.
    fn count_elements(&self, tensor: &TensorProto) -> Option<usize> {
        DataType::from_number(tensor.data_type?)?;
        let dims: Option<SmallVec<[usize; 6]>> =
            tensor.dims.iter().map(|dim| usize::try_from(*dim).ok()).collect();
        stored_elems(&dims?).ok()
    }

    /// Returns the elements of raw bytes, if they are complete and parsing them gives the same
    /// bytes.
    fn raw_literals(&self, tensor: &TensorProto, raw: Span) -> Option<Literals> {
        let data_type = DataType::from_number(tensor.data_type?)?;
        let count = self.count_elements(tensor)?;
        if data_type.storage_bytes(count)? as u64 != raw.len {
            return None;
        }
        let bytes = self.model.bytes(raw);
        if let Some(width) = Width::for_numbers(data_type) {
            return Some(Literals::Bytes(width, raw));
        }
        let width = match data_type {
            DataType::Bool => {
                if bytes.iter().any(|byte| *byte > 1) {
                    return None;
                }
                Width::U8
            }
            DataType::String => return None,
            _ if !self.stays_inline(raw) => return None,
            DataType::Int4 | DataType::Uint4 | DataType::Int2 | DataType::Uint2 => {
                let bits = data_type.bits()?;
                if !packed::padding_is_zero(bytes, bits, count) {
                    return None;
                }
                let value = |code| packed::code_to_i8(data_type, code).map(i64::from);
                let values: Option<_> = packed::iter(bytes, bits, count).map(value).collect();
                return values.map(Literals::Ints);
            }
            _ => {
                return self.small_floats(data_type, bytes, count).map(Literals::Floats);
            }
        };
        Some(Literals::Bytes(width, raw))
    }

    /// Returns floats of fewer than 32 bits as the shortest numbers that parse to the same bits.
    fn small_floats(&self, data_type: DataType, bytes: &[u8], count: usize) -> Option<Vec<f32>> {
        let buffer = sardonyx_tensor::Buffer::copy_of(bytes).ok()?;
        let narrow = Tensor::from_buffer(data_type, [count], buffer).ok()?;
        let wide = cast(&narrow, DataType::Float, CastOptions::default()).ok()?;
        let exact: Vec<f32> = floats(wide.buffer()?.as_slice()).collect();
        let back = |values: &[f32]| crate::parse::narrow(values, data_type);
        // Some NaNs and nonzero padding bits have no literal.
        if back(&exact)?.as_slice() != bytes {
            return None;
        }
        // Most values keep their bits with fewer digits.
        let mut best = exact.clone();
        for digits in (1..5usize).rev() {
            let rounded: Vec<f32> = exact
                .iter()
                .map(|value| format!("{value:.digits$e}").parse().unwrap_or(*value))
                .collect();
            let Some(read) = back(&rounded) else {
                continue;
            };
            if data_type.is_packed() {
                if read == bytes {
                    best = rounded;
                }
                continue;
            }
            let width = data_type.element_bytes()?;
            let same = read.chunks_exact(width).zip(bytes.chunks_exact(width));
            for ((best, rounded), (read, bytes)) in best.iter_mut().zip(&rounded).zip(same) {
                if read == bytes {
                    *best = *rounded;
                }
            }
        }
        Some(best)
    }

    /// Returns the entries of the typed list of a tensor, if it has a single list with the right
    /// number of entries, encoded like by our writer.
    fn typed_literals(&self, tensor: &TensorProto) -> Option<Literals> {
        let data_type = DataType::from_number(tensor.data_type?)?;
        let field = proto::DataType(data_type.number()).typed_field()?;
        let [run] = tensor.typed[..] else {
            return None;
        };
        let records = self.model.bytes(run.records);
        let elements = self.count_elements(tensor)?;
        if field == TypedField::String {
            return self.text_literals(&run, elements);
        }
        // Tag, length, and then the values.
        let mut head: SmallVec<[u8; 16]> = SmallVec::new();
        head.push((run.number << 3 | 2) as u8);
        let mut length = Vec::new();
        let digits = records.get(1..)?.iter().position(|byte| *byte < 0x80)? + 1;
        let payload = records.len().checked_sub(1 + digits)?;
        push_varint(&mut length, payload as u64);
        head.extend_from_slice(&length);
        if !records.starts_with(&head) || payload == 0 {
            return None;
        }
        let start = head.len();
        let span =
            Span { offset: run.records.offset + start as u64, len: payload as u64, ..run.records };
        let counts = |entries: usize| {
            let per_element = if data_type.is_complex() { 2 } else { 1 };
            entries == elements.saturating_mul(per_element) || data_type.is_packed()
        };
        let bytes = &records[start..];
        let right_field = matches!(
            (field, run.number),
            (TypedField::Float, 4)
                | (TypedField::Int32, 5)
                | (TypedField::Int64, 7)
                | (TypedField::Double, 10)
                | (TypedField::Uint64, 11)
        );
        if !right_field {
            return None;
        }
        match field {
            TypedField::Float => (bytes.len().is_multiple_of(4) && counts(bytes.len() / 4))
                .then_some(Literals::Bytes(Width::F32, span)),
            TypedField::Double => (bytes.len().is_multiple_of(8) && counts(bytes.len() / 8))
                .then_some(Literals::Bytes(Width::F64, span)),
            // A long list that is stored elsewhere is not decoded.
            _ if !self.stays_inline(run.records) => None,
            TypedField::Uint64 => {
                let max = if data_type == DataType::Uint32 { u32::MAX.into() } else { u64::MAX };
                let values = self.varints(records, |field| match field {
                    TensorField::Uint64Data(chunk) => {
                        let mut values = Vec::new();
                        chunk.decode_into(&mut values).ok()?;
                        Some(values)
                    }
                    _ => None,
                })?;
                let written: u64 = values.iter().map(|value| varint_len(*value)).sum();
                let fine = written == payload as u64 && values.iter().all(|value| *value <= max);
                (fine && counts(values.len())).then_some(Literals::Unsigned(values))
            }
            _ => {
                let values = self.varints(records, |field| match field {
                    TensorField::Int64Data(chunk) => {
                        let mut values = Vec::new();
                        chunk.decode_into(&mut values).ok()?;
                        Some(values)
                    }
                    TensorField::Int32Data(chunk) => {
                        let mut values = Vec::new();
                        chunk.decode_into(&mut values).ok()?;
                        Some(values.into_iter().map(i64::from).collect())
                    }
                    _ => None,
                })?;
                let written: u64 = values.iter().map(|value| varint_len(*value as u64)).sum();
                let range = if field == TypedField::Int64 {
                    i64::MIN..=i64::MAX
                } else {
                    entry_range(data_type)
                };
                let fine =
                    written == payload as u64 && values.iter().all(|value| range.contains(value));
                (fine && counts(values.len())).then_some(Literals::Ints(values))
            }
        }
    }

    /// Decodes the only field in some records.
    fn varints<T>(
        &self,
        records: &[u8],
        decode: impl Fn(TensorField<'_>) -> Option<Vec<T>>,
    ) -> Option<Vec<T>> {
        let mut reader = Reader::<proto::TensorProto>::new(records);
        let values = decode(reader.next()?.ok()?)?;
        reader.next().is_none().then_some(values)
    }

    fn text_literals(&self, run: &TypedRun, elements: usize) -> Option<Literals> {
        if run.number != 6 {
            return None;
        }
        let records = self.model.bytes(run.records);
        let mut texts = Vec::new();
        let mut written = 0;
        for field in Reader::<proto::TensorProto>::new(records) {
            let TensorField::StringData(text) = field.ok()? else {
                return None;
            };
            let len = text.bytes.len() as u64;
            written += 1 + varint_len(len) + len;
            texts.push(Span {
                source: run.records.source,
                offset: run.records.offset + text.offset,
                len,
            });
        }
        (written == records.len() as u64 && texts.len() == elements)
            .then_some(Literals::Texts(texts))
    }

    /// Returns texts that have other fields between them, which does not affect their order.
    fn scattered_texts(&self, tensor: &TensorProto, elements: usize) -> Option<Literals> {
        let mut all = Vec::new();
        for run in &tensor.typed {
            let records = self.model.bytes(run.records);
            for field in Reader::<proto::TensorProto>::new(records) {
                let TensorField::StringData(text) = field.ok()? else {
                    return None;
                };
                all.push(Span {
                    source: run.records.source,
                    offset: run.records.offset + text.offset,
                    len: text.bytes.len() as u64,
                });
            }
        }
        (all.len() == elements).then_some(Literals::Texts(all))
    }

    // The portable form.

    fn write_portable_constant(
        &mut self,
        tensor: &TensorProto,
        own_lines: bool,
        place: &dyn Fn() -> String,
    ) -> bool {
        let known = tensor.data_type.and_then(DataType::from_number).is_some();
        let external = tensor.data_location == Some(DataLocation::EXTERNAL);
        if known && external && !tensor.external_data.is_empty() {
            self.write_pairs(&tensor.external_data, place);
            self.write_tensor_notes(tensor, true, false, false, place);
            return true;
        }
        if let Weights::Elided(_) = self.weights
            && tensor.raw_data.map_or(0, |raw| raw.len)
                + tensor.typed.iter().map(|run| run.records.len).sum::<u64>()
                > self.inline_bytes
        {
            self.left_out.add("values of large tensors", place);
            return false;
        }
        let data_type = tensor.data_type.and_then(DataType::from_number);
        let packed = matches!(data_type.and_then(DataType::bits), Some(2 | 4));
        if self.like_onnx && packed {
            self.left_out.add("values of 2 and 4 bits", place);
            self.push("{...}");
            return true;
        }
        let Some((literals, raw)) = self.portable_literals(tensor) else {
            self.left_out.add("tensors whose values have no literals", place);
            return false;
        };
        if raw {
            self.left_out.add_harmless("raw_data, which becomes a typed list", place);
        }
        let literals = match data_type {
            Some(DataType::Bool) => self.normalize_booleans(literals, place),
            _ => self.replace_odd_nans(literals, place),
        };
        self.write_literals(&literals, own_lines);
        self.write_tensor_notes(tensor, false, raw, !raw, place);
        true
    }

    /// Returns the entries of the typed list that holds the values of a tensor, and whether they
    /// are converted from raw bytes.
    fn portable_literals(&self, tensor: &TensorProto) -> Option<(Literals, bool)> {
        let data_type = DataType::from_number(tensor.data_type?)?;
        let elements = self.count_elements(tensor)?;
        let Some(raw) = tensor.raw_data else {
            if tensor.typed.is_empty() {
                return (elements == 0).then(|| (Literals::Ints(Vec::new()), false));
            }
            if let Some(literals) = self.typed_literals(tensor) {
                return Some((literals, false));
            }
            if data_type == DataType::String {
                return self.scattered_texts(tensor, elements).map(|found| (found, false));
            }
            if !self.entries_are_in_range(tensor, data_type) {
                return None;
            }
            let tensor = self.model.tensor(tensor, &NoExternalData).ok()?;
            let bytes = tensor.buffer()?.as_slice();
            return convert_to_entries(data_type, bytes, elements).map(|found| (found, false));
        };
        if data_type.storage_bytes(elements)? as u64 != raw.len {
            return None;
        }
        let width = match (Width::for_numbers(data_type), data_type.bits()) {
            (Some(width), _) => width,
            // Bit patterns.
            (None, Some(16)) => Width::U16,
            (None, Some(8)) => Width::U8,
            _ => {
                let found = convert_to_entries(data_type, self.model.bytes(raw), elements)?;
                return Some((found, true));
            }
        };
        Some((Literals::Bytes(width, raw), true))
    }

    /// Whether the entries of typed lists are in the range of the type. Others would be parsed as
    /// other values.
    fn entries_are_in_range(&self, tensor: &TensorProto, data_type: DataType) -> bool {
        let range = entry_range(data_type);
        let runs = tensor.typed.iter();
        runs.flat_map(|run| Reader::<proto::TensorProto>::new(self.model.bytes(run.records))).all(
            |field| match field {
                Ok(TensorField::Int32Data(chunk)) => {
                    chunk.iter().all(|value| value.is_ok_and(|value| range.contains(&value.into())))
                }
                Ok(TensorField::Uint64Data(chunk)) if data_type == DataType::Uint32 => {
                    chunk.iter().all(|value| value.is_ok_and(|value| value <= u32::MAX.into()))
                }
                Ok(_) => true,
                Err(_) => false,
            },
        )
    }

    /// Normalizes booleans: all bytes other than 0 mean 1.
    fn normalize_booleans(&mut self, literals: Literals, place: &dyn Fn() -> String) -> Literals {
        let values: Vec<i64> = match literals {
            Literals::Bytes(_, span) => {
                let bytes = self.model.bytes(span);
                bytes.iter().map(|byte| i64::from(*byte)).collect()
            }
            Literals::Ints(values) => values,
            other => return other,
        };
        if values.iter().any(|value| !(0..=1).contains(value)) {
            self.left_out.add_harmless("bytes of booleans other than 0 and 1", place);
        }
        Literals::Ints(values.iter().map(|value| i64::from(*value != 0)).collect())
    }

    /// Replaces NaNs that the `onnx` package cannot express: it has one NaN of each sign.
    fn replace_odd_nans(&mut self, literals: Literals, place: &dyn Fn() -> String) -> Literals {
        let plain = match &literals {
            Literals::Bytes(Width::F32, span) => {
                plain_floats(|| floats(self.model.bytes(*span))).map(Literals::Floats)
            }
            Literals::Bytes(Width::F64, span) => {
                plain_doubles(|| doubles(self.model.bytes(*span))).map(Literals::Doubles)
            }
            Literals::Floats(values) => {
                plain_floats(|| values.iter().copied()).map(Literals::Floats)
            }
            Literals::Doubles(values) => {
                plain_doubles(|| values.iter().copied()).map(Literals::Doubles)
            }
            _ => None,
        };
        match plain {
            Some(plain) => {
                self.left_out.add("bits of NaNs", place);
                plain
            }
            None => literals,
        }
    }
}

/// Returns the values with canonical NaNs, if any of them has another NaN.
fn plain_floats<I: Iterator<Item = f32>>(values: impl Fn() -> I) -> Option<Vec<f32>> {
    values().any(has_odd_nan).then(|| values().map(plain_nan).collect())
}

fn plain_doubles<I: Iterator<Item = f64>>(values: impl Fn() -> I) -> Option<Vec<f64>> {
    let odd = |value: f64| plain_double_nan(value).to_bits() != value.to_bits();
    values().any(odd).then(|| values().map(plain_double_nan).collect())
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

fn doubles(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let (numbers, _) = bytes.as_chunks::<8>();
    numbers.iter().map(|bytes| f64::from_le_bytes(*bytes))
}

/// Whether a value is a NaN other than the canonical one of its sign.
pub(super) fn has_odd_nan(value: f32) -> bool {
    plain_nan(value).to_bits() != value.to_bits()
}

/// Replaces a NaN by the canonical NaN of its sign.
pub(super) fn plain_nan(value: f32) -> f32 {
    if value.is_nan() { f32::from_bits(value.to_bits() & 1 << 31 | 0x7fc0_0000) } else { value }
}

fn plain_double_nan(value: f64) -> f64 {
    if value.is_nan() { f64::from_bits(value.to_bits() & 1 << 63 | 0x7ff8 << 48) } else { value }
}

/// Converts raw bytes to entries of the typed list of a type.
fn convert_to_entries(data_type: DataType, raw: &[u8], elements: usize) -> Option<Literals> {
    let number = proto::DataType(data_type.number());
    let words = proto::encode_typed(number, raw, elements)?;
    Some(match number.typed_field()? {
        TypedField::Float => {
            Literals::Floats(words.iter().map(|word| f32::from_bits(*word as u32)).collect())
        }
        TypedField::Double => {
            Literals::Doubles(words.iter().map(|word| f64::from_bits(*word)).collect())
        }
        TypedField::Uint64 => Literals::Unsigned(words),
        _ => Literals::Ints(words.iter().map(|word| *word as i64).collect()),
    })
}
