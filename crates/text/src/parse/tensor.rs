//! Parses tensors and their values, given in braces, as bytes, or in a file.

use std::ops::RangeInclusive;

use sardonyx_model::{
    DimValue, Entry, Segment, Span, SparseTensorProto, StoredValues, TensorProto, TypeKind,
    TypedRun, Unknowns, ValueInfo,
};
use sardonyx_proto::{DataLocation, TypedField};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast, packed, shape::stored_elems};
use smallvec::SmallVec;

use super::types::{ADVICE_ON_RANK, NO_RANK, SYMBOLIC_DIMENSION};
use super::{Failed, NO_LAST_COMMA, Name, Parse, Parser};
use crate::numbers::{
    self, ListEnd, ListError, ListProblem, NumberError, read_floats, read_list, read_signed,
    read_signed_varints, read_unsigned, read_unsigned_varints,
};
use crate::tree::SyntaxKind;
use crate::words::{STORAGE_WORDS, TENSOR_NOTES};

/// Number of bytes reserved before a payload for its tag and length.
const HEAD: usize = 16;

impl<'a> Parser<'_, 'a> {
    /// Parses `type [name] [=] values [annotations]`.
    pub(super) fn parse_tensor(&mut self) -> Parse<TensorProto> {
        let part = self.open(SyntaxKind::Tensor);
        let at = self.next_offset();
        let data_type = self.parse_element_type("the type of a tensor")?;
        let dims = self.parse_tensor_dimensions()?;
        let tensor = self.parse_tensor_behind_type(data_type, dims, at)?;
        self.close(part);
        Ok(tensor)
    }

    /// Parses `[name] [=] values [annotations]`.
    pub(super) fn parse_tensor_behind_type(
        &mut self,
        data_type: Option<i32>,
        dims: SmallVec<[i64; 4]>,
        at: u64,
    ) -> Parse<TensorProto> {
        let counted = self.build.count::<TensorProto>(at);
        self.check_built(counted)?;
        let mut tensor = TensorProto { data_type, dims, ..TensorProto::default() };
        let byte = self.cursor.next();
        if self.at_quoted() || crate::cursor::starts_word(byte) {
            let name = self.parse_name("the name of a tensor")?;
            tensor.name = Some(self.intern_name(&name)?);
        } else if !self.eat_absent() && !self.full {
            // The parser of the `onnx` package stores an empty name.
            tensor.name = Some(self.intern_empty());
        }
        let equals = self.cursor.next() == b'=';
        if equals {
            self.cursor.pos += 1;
        }
        self.parse_constant(&mut tensor, equals)?;
        Ok(tensor)
    }

    /// Parses the constant after a value info and `=`.
    pub(super) fn parse_initializer(&mut self, info: &ValueInfo, at: u64) -> Parse<TensorProto> {
        let counted = self.build.count::<TensorProto>(at);
        self.check_built(counted)?;
        let span = at as usize..self.cursor.token_end();
        let mut tensor = TensorProto { name: info.name, ..TensorProto::default() };
        match info.ty.as_ref().map(|ty| &ty.kind) {
            None => {
                return self.fail_with(
                    span,
                    "a constant has a type",
                    "write it before the name: float[2] w = {1, 2}",
                );
            }
            Some(Some(TypeKind::Tensor { elem_type, shape, .. })) => {
                tensor.data_type = *elem_type;
                let Some(shape) = shape else {
                    return self.fail_with(span, NO_RANK, ADVICE_ON_RANK);
                };
                for dim in &shape.dims {
                    let Some(DimValue::Value(number)) = dim.value else {
                        let span = self.find_symbolic_dimension(span);
                        return self.fail(span, SYMBOLIC_DIMENSION);
                    };
                    tensor.dims.push(number);
                }
            }
            Some(_) => {
                return self.fail_with(
                    span,
                    "a constant is a tensor",
                    "sparse ones are written sparse(float[3, 4], values, indices)",
                );
            }
        }
        self.cursor.pos += 1;
        self.in_initializer = true;
        let constant = self.parse_constant(&mut tensor, true);
        self.in_initializer = false;
        constant.map(|()| tensor)
    }

    /// Parses the values of a tensor, and its annotations. Without `=` there may be none.
    fn parse_constant(&mut self, tensor: &mut TensorProto, equals: bool) -> Parse {
        let part = self.open(SyntaxKind::Values);
        match self.cursor.next() {
            b'{' => self.parse_braces(tensor)?,
            b'[' => {
                if self.has_number_in_brackets() {
                    return self.fail_expected_with(
                        "the values of a tensor in braces",
                        "values stand in braces, {1, 2}; in brackets stands the file that they are in",
                    );
                }
                let entries = self.parse_pairs()?;
                tensor.external_data = entries;
                tensor.data_location = Some(DataLocation::EXTERNAL);
            }
            b'?' if equals => self.cursor.pos += 1,
            _ => {
                let word = self.cursor.peek_word().unwrap_or_default();
                let known = equals && STORAGE_WORDS.iter().any(|known| known.as_bytes() == word);
                if known {
                    self.cursor.pos += word.len();
                    self.parse_stored_values(tensor, word)?;
                } else if equals {
                    let help = match crate::words::nearest(word, STORAGE_WORDS) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "values stand in braces, {1, 2}; those in a file are [\"location\": \"...\"]".into(),
                    };
                    return self.fail_expected_with("the values of a tensor", help);
                }
            }
        }
        self.close(part);
        if self.at_notes() {
            self.parse_tensor_notes(tensor)?;
        }
        Ok(())
    }

    /// Whether the brackets at this position contain a number.
    fn has_number_in_brackets(&self) -> bool {
        let mut probe = self.cursor.clone();
        probe.eat(b'[') && matches!(probe.next(), b'0'..=b'9' | b'-')
    }

    /// Parses the values after `raw`, `fields` or `elided`.
    fn parse_stored_values(&mut self, tensor: &mut TensorProto, word: &[u8]) -> Parse {
        let start = self.cursor.pos - word.len();
        match (word, self.cursor.next()) {
            (b"elided", _) => {
                if self.at_quoted() {
                    self.parse_quoted()?;
                }
                let end = self.cursor.token_end();
                self.fail_with(
                    start..end,
                    "the values of this tensor were left out when the text was printed",
                    "print the model again, with its weights",
                )
            }
            (b"raw", b'{') => self.parse_raw_braces(tensor),
            (b"raw", _) => {
                let bytes = self.parse_bytes(tensor, false)?;
                tensor.raw_data = Some(bytes);
                Ok(())
            }
            _ => {
                let records = self.parse_bytes(tensor, true)?;
                self.add_records(tensor, records, start)
            }
        }
    }

    /// Parses the bytes of a tensor, or a reference to a file: records of a typed list if `typed`,
    /// otherwise `raw_data`.
    fn parse_bytes(&mut self, tensor: &TensorProto, typed: bool) -> Parse<Span> {
        if self.cursor.next() == b'[' {
            let start = self.cursor.pos;
            let entries = self.parse_pairs()?;
            let end = self.cursor.token_end();
            return self.load_bytes(tensor, typed, entries, start..end);
        }
        let text = self.parse_string("bytes, as x\"00ff\", or the file they are in")?;
        Ok(self.keep_name(text))
    }

    /// Loads bytes of a tensor from a file.
    fn load_bytes(
        &mut self,
        tensor: &TensorProto,
        typed: bool,
        entries: Vec<Entry>,
        span: std::ops::Range<usize>,
    ) -> Parse<Span> {
        let holder = TensorProto { external_data: entries, ..TensorProto::default() };
        let model = &self.build.model;
        let entry = |key: &[u8]| {
            let mut entries = holder.external_data.iter();
            let found = entries.find(|entry| model.maybe_text(entry.key) == Some(key))?;
            model.maybe_text(found.value)
        };
        let digest = |key| entry(key).map(|text| String::from_utf8_lossy(text).into_owned());
        let reference = match model.external_reference(&holder) {
            Ok(reference) => reference,
            Err(message) => return self.fail(span, message),
        };
        let (own, sha256) = (digest(b"file_digest"), digest(b"sha256"));
        let listed = || {
            let mut files = self.files.iter();
            let listed = files.find(|(location, _)| *location == reference.location);
            listed.map(|(_, digest)| digest.clone())
        };
        let file_digest = own.or_else(listed);
        let path = entry(b"tensor").map(<[u8]>::to_vec);
        let wanted = StoredValues {
            location: &reference.location,
            offset: reference.offset,
            length: reference.length,
            tensor: path.as_deref(),
            initializer: if self.in_initializer && self.in_main_graph {
                model.maybe_text(tensor.name)
            } else {
                None
            },
            file_digest: file_digest.as_deref(),
            sha256: sha256.as_deref(),
            typed,
            data_type: tensor.data_type,
            dims: &tensor.dims,
        };
        let loaded = self.external.load_stored(&wanted);
        match loaded {
            Ok(buffer) => {
                if file_digest.is_none() && sha256.is_none() && !self.warned_of_files {
                    self.warned_of_files = true;
                    self.warn(
                        span,
                        format!(
                            "the text does not say what '{}' was like when the text was made, so whether these are the right values cannot be checked",
                            reference.location
                        ),
                        Some("print the model again: texts of this release say it"),
                    );
                }
                Ok(self.build.model.add_bytes(buffer))
            }
            Err(fault) => {
                if fault.is_of_file {
                    if self.faulty_files.contains(&reference.location) {
                        return Err(Failed);
                    }
                    self.faulty_files.push(reference.location);
                }
                self.report(span, fault.message, fault.help);
                Err(Failed)
            }
        }
    }

    /// Adds records of typed lists without decoding them.
    fn add_records(&mut self, tensor: &mut TensorProto, records: Span, at: usize) -> Parse {
        // The builder's pool cannot be read through the model yet.
        let Some(runs) = self.build.with_bytes(records, super::message::split_typed_runs) else {
            let end = self.cursor.token_end();
            return self.fail(at..end, "these bytes are no records of a tensor's typed fields");
        };
        for (number, range) in runs {
            let records = Span {
                source: records.source,
                offset: records.offset + range.start as u64,
                len: (range.end - range.start) as u64,
            };
            tensor.typed.push(TypedRun { number, records });
        }
        Ok(())
    }

    fn parse_tensor_notes(&mut self, tensor: &mut TensorProto) -> Parse {
        self.parse_notes(TENSOR_NOTES, |parser, key| {
            let at = parser.cursor.pos;
            match key {
                b"doc_string" => tensor.doc_string = Some(parser.parse_text_symbol()?),
                b"metadata_props" => tensor.metadata_props.extend(parser.parse_pairs()?),
                b"external_data" => tensor.external_data.extend(parser.parse_pairs()?),
                b"data_location" => {
                    let number = parser.parse_integer("a number")?;
                    let Ok(number) = i32::try_from(number) else {
                        return parser.fail(at..parser.cursor.pos, "a data location has 32 bits");
                    };
                    tensor.data_location = Some(DataLocation(number));
                }
                b"raw_data" => tensor.raw_data = Some(parser.parse_bytes(tensor, false)?),
                b"fields" => {
                    let records = parser.parse_bytes(tensor, true)?;
                    parser.add_records(tensor, records, at)?;
                    tensor.typed.sort_by_key(|run| run.number);
                }
                b"segment" => {
                    let mut segment = Segment::default();
                    let keys = &["begin", "end", "unknown"];
                    parser.parse_key_list(b'{', b'}', keys, &mut |parser, key| {
                        match key {
                            b"begin" => segment.begin = Some(parser.parse_integer("a number")?),
                            b"end" => segment.end = Some(parser.parse_integer("a number")?),
                            _ => segment.unknown = parser.parse_unknown()?,
                        }
                        Ok(())
                    })?;
                    tensor.segment = Some(segment);
                }
                _ => tensor.unknown = parser.parse_unknown()?,
            }
            Ok(())
        })
    }

    /// Whether a sparse tensor comes next: the word and a parenthesis.
    pub(super) fn at_sparse(&mut self) -> bool {
        if self.cursor.next() != b's' || self.cursor.peek_word() != Some(b"sparse") {
            return false;
        }
        let mut probe = self.cursor.clone();
        probe.eat_word();
        probe.next() == b'('
    }

    /// Parses `sparse(type, values, indices)`.
    pub(super) fn parse_sparse_tensor(&mut self) -> Parse<SparseTensorProto> {
        let part = self.open(SyntaxKind::SparseTensor);
        let at = self.next_offset();
        let counted = self.build.count::<SparseTensorProto>(at);
        self.check_built(counted)?;
        let word = self.parse_word("`sparse`")?;
        if word.bytes != b"sparse" {
            let start = word.offset as usize;
            return self.fail_with(
                start..start + word.bytes.len(),
                "expected a sparse tensor",
                "it is written sparse(float[3, 4], float[2] {1, 2}, int64[2] {0, 11})",
            );
        }
        self.expect(b'(', "`(`")?;
        let elem_at = self.next_offset() as usize;
        let elem = self.parse_element_type("the type of the sparse tensor")?;
        let mut sparse = SparseTensorProto {
            dims: self.parse_tensor_dimensions()?,
            ..SparseTensorProto::default()
        };
        let elem_end = self.cursor.token_end();
        if self.cursor.eat(b',') {
            if !self.eat_absent() {
                let values = self.parse_tensor()?;
                if values.data_type != elem {
                    return self.fail(
                        elem_at..elem_end,
                        "this is another element type than that of the values",
                    );
                }
                sparse.values = Some(values);
            }
            if self.cursor.eat(b',') {
                sparse.indices = Some(self.parse_tensor()?);
            }
        }
        self.expect(b')', "`)` after the indices")?;
        if self.at_notes() {
            let mut unknown = Unknowns::default();
            self.parse_unknown_notes(&mut unknown)?;
            sparse.unknown = unknown;
        }
        self.close(part);
        Ok(sparse)
    }

    /// Parses the entries of a typed list.
    fn parse_braces(&mut self, tensor: &mut TensorProto) -> Parse {
        let opened = self.cursor.pos;
        let data_type = self.parse_literal_type(tensor, opened)?;
        let field = sardonyx_proto::DataType(data_type.number()).typed_field();
        let field = field.unwrap_or(TypedField::Int32);
        self.numbers.clear();
        self.numbers.resize(HEAD, 0);
        let target = LiteralTarget { data_type, count: Count::Entries };
        let entries = match field {
            TypedField::String => self.parse_strings()?,
            TypedField::Float => self.parse_literals(target, read_floats::<f32>)?,
            TypedField::Double => self.parse_literals(target, read_floats::<f64>)?,
            TypedField::Int64 => self.parse_literals(target, |text, out| {
                read_signed_varints(text, i64::MIN..=i64::MAX, out)
            })?,
            TypedField::Uint64 => {
                let max =
                    if data_type == DataType::Uint32 { u64::from(u32::MAX) } else { u64::MAX };
                self.parse_literals(target, |text, out| read_unsigned_varints(text, max, out))?
            }
            TypedField::Int32 => {
                let range = entry_range(data_type);
                self.parse_literals(target, |text, out| {
                    read_signed_varints(text, range.clone(), out)
                })?
            }
        };
        self.check_count(tensor, data_type, entries, opened, Count::Entries)?;
        if entries == 0 {
            return Ok(());
        }
        let number = field_number(field);
        let records = if field == TypedField::String {
            self.take_numbers(HEAD)
        } else {
            // Writes the tag and the length before the payload.
            let mut head: SmallVec<[u8; HEAD]> = SmallVec::new();
            head.push((number << 3 | 2) as u8);
            let mut length = (self.numbers.len() - HEAD) as u64;
            while length >= 0x80 {
                head.push(length as u8 | 0x80);
                length >>= 7;
            }
            head.push(length as u8);
            let start = HEAD - head.len();
            self.numbers[start..HEAD].copy_from_slice(&head);
            self.take_numbers(start)
        };
        tensor.typed.push(TypedRun { number, records });
        Ok(())
    }

    /// Parses the elements of `raw_data`.
    fn parse_raw_braces(&mut self, tensor: &mut TensorProto) -> Parse {
        let opened = self.cursor.pos;
        let data_type = self.parse_literal_type(tensor, opened)?;
        let count = self.parse_raw_literals(data_type)?;
        self.check_count(tensor, data_type, count, opened, Count::Elements)?;
        tensor.raw_data = Some(self.take_numbers(0));
        Ok(())
    }

    /// Reads the elements into `numbers`; returns their number.
    fn parse_raw_literals(&mut self, data_type: DataType) -> Parse<usize> {
        let opened = self.cursor.pos;
        let target = LiteralTarget { data_type, count: Count::Elements };
        self.numbers.clear();
        let signed = |bits: u32| -(1i64 << (bits - 1))..=(1i64 << (bits - 1)) - 1;
        let count = match data_type {
            DataType::String => {
                return self.fail_with(
                    opened..opened + 1,
                    "strings cannot be stored in raw_data",
                    "leave `raw` out",
                );
            }
            DataType::Float | DataType::Complex64 => {
                self.parse_literals(target, read_floats::<f32>)?
            }
            DataType::Double | DataType::Complex128 => {
                self.parse_literals(target, read_floats::<f64>)?
            }
            DataType::Int8 => {
                self.parse_literals(target, |text, out| read_signed::<1>(text, signed(8), out))?
            }
            DataType::Int16 => {
                self.parse_literals(target, |text, out| read_signed::<2>(text, signed(16), out))?
            }
            DataType::Int32 => {
                self.parse_literals(target, |text, out| read_signed::<4>(text, signed(32), out))?
            }
            DataType::Int64 => self.parse_literals(target, |text, out| {
                read_signed::<8>(text, i64::MIN..=i64::MAX, out)
            })?,
            DataType::Bool => {
                self.parse_literals(target, |text, out| read_unsigned::<1>(text, 1, out))?
            }
            DataType::Uint8 => {
                self.parse_literals(target, |text, out| read_unsigned::<1>(text, 0xff, out))?
            }
            DataType::Uint16 => {
                self.parse_literals(target, |text, out| read_unsigned::<2>(text, 0xffff, out))?
            }
            DataType::Uint32 => self.parse_literals(target, |text, out| {
                read_unsigned::<4>(text, u32::MAX.into(), out)
            })?,
            DataType::Uint64 => {
                self.parse_literals(target, |text, out| read_unsigned::<8>(text, u64::MAX, out))?
            }
            DataType::Int4 | DataType::Int2 | DataType::Uint4 | DataType::Uint2 => {
                let bits = data_type.bits().unwrap_or(4);
                let range =
                    if data_type.is_signed() { signed(bits as u32) } else { 0..=(1 << bits) - 1 };
                let count = self.parse_literals(target, |text, out| {
                    read_signed::<1>(text, range.clone(), out)
                })?;
                let mask = (1u8 << bits) - 1;
                let codes: Vec<u8> = self.numbers.iter().map(|code| code & mask).collect();
                let mut bytes = vec![0; data_type.storage_bytes(count).unwrap_or(0)];
                if packed::pack_from_codes(&codes, bits, &mut bytes).is_err() {
                    return self.fail(opened..opened + 1, "these values cannot be packed");
                }
                self.numbers = bytes;
                count
            }
            // Floats of fewer than 32 bits.
            _ => {
                let mut values: Vec<f32> = Vec::new();
                let count = self.parse_literals(target, |text, _| {
                    read_list(text, |value: f32| {
                        values.push(value);
                        Ok(())
                    })
                })?;
                let Some(bytes) = narrow(&values, data_type) else {
                    let index =
                        values.iter().position(|value| narrow(&[*value], data_type).is_none());
                    let index = index.unwrap_or(0);
                    let message = format!(
                        "value {} of {} is out of range for {}",
                        index + 1,
                        values.len(),
                        data_type.name()
                    );
                    return self.fail(opened..self.cursor.pos, message);
                };
                self.numbers = bytes;
                count
            }
        };
        Ok(count)
    }

    /// Returns the element type of literals.
    fn parse_literal_type(&mut self, tensor: &TensorProto, at: usize) -> Parse<DataType> {
        match tensor.data_type.and_then(DataType::from_number) {
            Some(data_type) => Ok(data_type),
            None => self.fail_with(
                at..at + 1,
                "there are no literals for an element type without a name",
                "write its bytes: raw x\"00ff\"",
            ),
        }
    }

    /// Reads the literals between the braces at this position; returns their number. `target`
    /// describes them for advice.
    fn parse_literals(
        &mut self,
        target: LiteralTarget,
        read: impl FnOnce(&[u8], &mut Vec<u8>) -> Result<ListEnd, ListError>,
    ) -> Parse<usize> {
        let start = self.cursor.pos + 1;
        match read(&self.cursor.text[start..], &mut self.numbers) {
            Ok(end) => {
                self.cursor.pos = start + end.position + 1;
                Ok(end.count)
            }
            Err(error) => {
                self.cursor.pos = start + error.position;
                let result = self.fail_in_list(error.problem);
                // The other errors do not depend on the type.
                if let ListProblem::Number(
                    NumberError::OutOfRange | NumberError::Negative | NumberError::NotInteger,
                ) = error.problem
                {
                    match target.count {
                        Count::Entries => self.explain_entries(target.data_type),
                        Count::Elements => self.explain_range(target.data_type),
                    }
                }
                result
            }
        }
    }

    #[cold]
    fn fail_in_list<T>(&mut self, problem: ListProblem) -> Parse<T> {
        match problem {
            ListProblem::Number(error) => self.fail_number(error, "a value"),
            // The cursor is after the comma that precedes the missing value.
            ListProblem::MissingValue if self.cursor.next() == b'}' => {
                self.fail_expected_with("a value", NO_LAST_COMMA)
            }
            ListProblem::MissingValue => self.fail_expected("a value"),
            ListProblem::ExpectedCommaOrBrace => self.fail_expected("`,` or `}` after a value"),
        }
    }

    /// Adds advice about the entries of a narrow type to the error that was just reported.
    #[cold]
    fn explain_entries(&mut self, data_type: DataType) {
        let advice = match data_type {
            DataType::Bool => "write booleans as 0 or 1".to_string(),
            DataType::String => return,
            DataType::Float | DataType::Double | DataType::Complex64 | DataType::Complex128 => {
                return self.explain_range(data_type);
            }
            _ if data_type.is_packed() => {
                "these are bytes, each with several elements; write elements after `= raw`: int4[3] w = raw {1, -2, 3}"
                    .to_string()
            }
            _ if data_type.is_float() => format!(
                "these are bit patterns; write values after `= raw`: {}[1] w = raw {{1.5}}",
                data_type.name()
            ),
            _ => return self.explain_range(data_type),
        };
        self.advise(advice);
    }

    /// Adds the range of a type to the error that was just reported.
    #[cold]
    fn explain_range(&mut self, data_type: DataType) {
        let name = data_type.name();
        let bits = data_type.bits().unwrap_or(8);
        self.advise(match data_type {
            DataType::Bool => "write booleans as 0 or 1".to_string(),
            DataType::String => return,
            DataType::Float | DataType::Complex64 => {
                format!("values of type {name} are numbers up to {:e}", f32::MAX)
            }
            DataType::Double | DataType::Complex128 => {
                format!("values of type {name} are numbers up to {:e}", f64::MAX)
            }
            _ if data_type.is_float() => return,
            _ if data_type.is_signed() => {
                let high = (1i128 << (bits - 1)) - 1;
                format!("values of type {name} are integers from {} to {high}", -high - 1)
            }
            _ => {
                let high = (1i128 << bits) - 1;
                format!("values of type {name} are integers from 0 to {high}")
            }
        });
    }

    /// Parses quoted texts between the braces at this position, as records.
    fn parse_strings(&mut self) -> Parse<usize> {
        let mut count = 0;
        self.parse_list(b'{', b'}', "`{`", |parser| {
            let text = parser.parse_string("a text in quotes")?;
            count += 1;
            let bytes = text.bytes();
            parser.numbers.push(0x32);
            sardonyx_proto::push_varint(&mut parser.numbers, bytes.len() as u64);
            parser.numbers.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(count)
    }

    /// Moves the payload from `start` on into the model.
    fn take_numbers(&mut self, start: usize) -> Span {
        /// Size in bytes below which a copy costs less than an allocation.
        const SMALL: usize = 16 << 10;
        if self.numbers.len() <= SMALL {
            return self.build.keep(&self.numbers[start..]);
        }
        let numbers = std::mem::take(&mut self.numbers);
        self.build.keep_vec(numbers, start)
    }

    /// Compares the number of literals with the dimensions.
    fn check_count(
        &mut self,
        tensor: &TensorProto,
        data_type: DataType,
        found: usize,
        opened: usize,
        count: Count,
    ) -> Parse {
        let dims: Option<SmallVec<[usize; 6]>> =
            tensor.dims.iter().map(|dim| usize::try_from(*dim).ok()).collect();
        let end = self.cursor.token_end();
        let Some(elements) = dims.and_then(|dims| stored_elems(&dims).ok()) else {
            return self.fail(opened..end, "the dimensions of this tensor make no sense");
        };
        let per_element = if data_type.is_complex() { 2 } else { 1 };
        let wanted = elements.saturating_mul(per_element);
        if found == wanted {
            return Ok(());
        }
        if count == Count::Entries && data_type.is_packed() {
            let bytes = data_type.storage_bytes(elements).unwrap_or(wanted);
            if found != bytes {
                let message = format!(
                    "{} for {elements} elements of type {}, which take {bytes}",
                    crate::plural(found, "byte"),
                    data_type.name()
                );
                self.warn(
                    opened..opened + 1,
                    message,
                    Some("in plain braces stand packed bytes; write elements after `= raw`"),
                );
            }
            return Ok(());
        }
        let message = format!("{}, but the shape asks for {wanted}", crate::plural(found, "value"));
        if found == 0 && count == Count::Entries {
            // The `onnx` package prints such tensors after their values were removed.
            self.warn(opened..end, message, Some("a tensor without values says so: `= ?`"));
            return Ok(());
        }
        if self.any_count {
            self.warn(opened..end, message, None);
            return Ok(());
        }
        self.fail(opened..end, message)
    }

    /// Parses an integer.
    pub(super) fn parse_integer(&mut self, what: &str) -> Parse<i64> {
        self.cursor.next();
        let start = self.cursor.pos;
        match numbers::read_i64(&self.cursor.text[start..]) {
            Ok((value, length)) => {
                self.cursor.pos += length;
                Ok(value)
            }
            Err(error) => {
                let result = self.fail_number(error, what);
                if error == NumberError::OutOfRange {
                    self.advise("integers have 64 bits and a sign");
                }
                result
            }
        }
    }

    /// Parses a float; an integer literal is accepted as well.
    pub(super) fn parse_float(&mut self, what: &str) -> Parse<f32> {
        self.cursor.next();
        let start = self.cursor.pos;
        match numbers::read_f32(&self.cursor.text[start..]) {
            Ok((value, length)) => {
                self.cursor.pos += length;
                Ok(value)
            }
            Err(error) => {
                let result = self.fail_number(error, what);
                if error == NumberError::OutOfRange {
                    self.explain_range(DataType::Float);
                }
                result
            }
        }
    }

    #[cold]
    pub(super) fn fail_number<T>(&mut self, error: NumberError, what: &str) -> Parse<T> {
        let (span, found) = self.describe_token();
        let bytes = &self.cursor.text[span.clone()];
        match error {
            NumberError::NoDigits => match bytes.first() {
                Some(b'.') => self.fail_expected_with(what, "a number begins with a digit: 0.5"),
                Some(b'+') => self.fail_expected_with(what, "numbers have no `+` before them"),
                Some(b'-') => self.fail_expected_with(
                    what,
                    "a number follows its `-` directly, and begins with a digit",
                ),
                Some(b'"') => self.fail_expected_with(what, "write numbers without quotes"),
                _ if is_boolean_word(bytes) => {
                    self.fail_expected_with(what, "write booleans as 0 or 1")
                }
                _ => self.fail_expected(what),
            },
            NumberError::EmptyExponent => {
                self.fail(span, format!("the exponent of {found} has no digits"))
            }
            NumberError::Malformed if bytes.starts_with(b"0x") || bytes.starts_with(b"0X") => {
                self.fail_with(span, format!("{found} is not a number"), "numbers are decimal")
            }
            NumberError::Malformed => self.fail(span, format!("{found} is not a number")),
            NumberError::OutOfRange => self.fail(span, format!("{found} is out of range")),
            NumberError::Negative => {
                self.fail(span, format!("{found} is negative, but the type has no sign"))
            }
            NumberError::NotInteger => {
                self.fail(span, format!("expected an integer, found {found}"))
            }
            NumberError::NanBits => self.fail_with(
                self.extend_to_parentheses(span),
                "these are not the bits of a NaN of this type",
                "all bits are written, in hexadecimal digits: nan(7fc00001)",
            ),
        }
    }

    /// Extends the range of a word by parentheses that follow it directly.
    fn extend_to_parentheses(&self, span: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let rest = &self.cursor.text[span.end..];
        let inside = |byte: &&u8| **byte == b'(' || crate::cursor::continues_word(**byte);
        let length = rest.iter().take_while(inside).count();
        let closed = usize::from(rest.get(length) == Some(&b')'));
        span.start..span.end + length + closed
    }

    /// Parses the bytes or text of an attribute.
    pub(super) fn parse_string_span(&mut self) -> Parse<Span> {
        let text: Name<'a> = self.parse_string("a text in quotes")?;
        Ok(self.keep_name(text))
    }
}

/// Whether a word is a boolean literal of other languages.
pub(super) fn is_boolean_word(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"true") || word.eq_ignore_ascii_case(b"false")
}

/// Element type of literals, and the values that they represent.
#[derive(Clone, Copy)]
struct LiteralTarget {
    data_type: DataType,
    count: Count,
}

/// Values that the literals of a tensor represent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    /// Entries of a typed list.
    Entries,
    /// Elements.
    Elements,
}

fn field_number(field: TypedField) -> u32 {
    match field {
        TypedField::Float => 4,
        TypedField::Int32 => 5,
        TypedField::String => 6,
        TypedField::Int64 => 7,
        TypedField::Double => 10,
        TypedField::Uint64 => 11,
    }
}

/// Returns the range of an entry of `int32_data`. Types of fewer than 8 bits are packed, so an
/// entry is a byte.
pub(crate) fn entry_range(data_type: DataType) -> RangeInclusive<i64> {
    match data_type {
        DataType::Int32 => i32::MIN.into()..=i32::MAX.into(),
        DataType::Int16 => i16::MIN.into()..=i16::MAX.into(),
        DataType::Int8 => i8::MIN.into()..=i8::MAX.into(),
        DataType::Bool => 0..=1,
        DataType::Uint16 | DataType::Float16 | DataType::Bfloat16 => 0..=0xffff,
        // Some writers store one signed element per entry.
        DataType::Int4 | DataType::Int2 => -0x80..=0xff,
        _ => 0..=0xff,
    }
}

/// Rounds values to a type of fewer than 32 bits; `None` if a finite one is too large.
pub(crate) fn narrow(values: &[f32], data_type: DataType) -> Option<Vec<u8>> {
    let wide = Tensor::from_vec([values.len()], values.to_vec()).ok()?;
    let options = CastOptions { saturate: false, ..CastOptions::default() };
    let narrow = cast(&wide, data_type, options).ok()?;
    let back = cast(&narrow, DataType::Float, CastOptions::default()).ok()?;
    let back = back.buffer()?.as_slice();
    let lost = back.chunks_exact(4).zip(values).any(|(bytes, value)| {
        let bytes = bytes.try_into().map(f32::from_le_bytes);
        value.is_finite() && !bytes.is_ok_and(f32::is_finite)
    });
    (!lost).then(|| narrow.buffer().map(|buffer| buffer.as_slice().to_vec()))?
}
