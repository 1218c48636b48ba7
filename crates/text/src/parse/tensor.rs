//! Tensors and their values, wherever these stand: in braces, as bytes, in a file.

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

/// Room before a payload for its tag and length.
const HEAD: usize = 16;

impl<'a> Parser<'_, 'a> {
    /// `type [name] [=] values [notes]`
    pub(super) fn tensor(&mut self) -> Parse<TensorProto> {
        let part = self.open(SyntaxKind::Tensor);
        let at = self.offset();
        let data_type = self.element_type("the type of a tensor")?;
        let dims = self.tensor_dimensions()?;
        let tensor = self.tensor_behind_type(data_type, dims, at)?;
        self.close(part);
        Ok(tensor)
    }

    /// `[name] [=] values [notes]`
    pub(super) fn tensor_behind_type(
        &mut self,
        data_type: Option<i32>,
        dims: SmallVec<[i64; 4]>,
        at: u64,
    ) -> Parse<TensorProto> {
        let counted = self.build.count::<TensorProto>(at);
        self.built(counted)?;
        let mut tensor = TensorProto { data_type, dims, ..TensorProto::default() };
        let byte = self.cursor.next();
        if self.at_quoted() || crate::cursor::starts_word(byte) {
            let name = self.name("the name of a tensor")?;
            tensor.name = Some(self.symbol(&name)?);
        } else if !self.absent() && !self.full {
            // As the onnx package reads it.
            tensor.name = Some(self.empty_symbol());
        }
        let equals = self.cursor.next() == b'=';
        if equals {
            self.cursor.pos += 1;
        }
        self.constant(&mut tensor, equals)?;
        Ok(tensor)
    }

    /// The constant that a value info with `=` after it declares.
    pub(super) fn initializer(&mut self, info: &ValueInfo, at: u64) -> Parse<TensorProto> {
        let counted = self.build.count::<TensorProto>(at);
        self.built(counted)?;
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
                        let span = self.symbolic_dimension(span);
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
        let constant = self.constant(&mut tensor, true);
        self.in_initializer = false;
        constant.map(|()| tensor)
    }

    /// The values of a tensor, and notes. Without `=` there may be none.
    fn constant(&mut self, tensor: &mut TensorProto, equals: bool) -> Parse {
        let part = self.open(SyntaxKind::Values);
        match self.cursor.next() {
            b'{' => self.braces(tensor)?,
            b'[' => {
                if self.number_in_brackets() {
                    return self.expected_with(
                        "the values of a tensor in braces",
                        "values stand in braces, {1, 2}; in brackets stands the file that they are in",
                    );
                }
                let entries = self.pairs()?;
                tensor.external_data = entries;
                tensor.data_location = Some(DataLocation::EXTERNAL);
            }
            b'?' if equals => self.cursor.pos += 1,
            _ => {
                let word = self.cursor.peek_word().unwrap_or_default();
                let known = equals && STORAGE_WORDS.iter().any(|known| known.as_bytes() == word);
                if known {
                    self.cursor.pos += word.len();
                    self.stored(tensor, word)?;
                } else if equals {
                    let help = match crate::words::nearest(word, STORAGE_WORDS) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "values stand in braces, {1, 2}; those in a file are [\"location\": \"...\"]".into(),
                    };
                    return self.expected_with("the values of a tensor", help);
                }
            }
        }
        self.close(part);
        if self.at_notes() {
            self.tensor_notes(tensor)?;
        }
        Ok(())
    }

    /// Whether the brackets that are opened here have a number in them.
    fn number_in_brackets(&self) -> bool {
        let mut probe = self.cursor.clone();
        probe.eat(b'[') && matches!(probe.next(), b'0'..=b'9' | b'-')
    }

    /// What stands after `raw`, `fields` or `elided`.
    fn stored(&mut self, tensor: &mut TensorProto, word: &[u8]) -> Parse {
        let start = self.cursor.pos - word.len();
        match (word, self.cursor.next()) {
            (b"elided", _) => {
                if self.at_quoted() {
                    self.quoted()?;
                }
                let end = self.cursor.token_end();
                self.fail_with(
                    start..end,
                    "the values of this tensor were left out when the text was printed",
                    "print the model again, with its weights",
                )
            }
            (b"raw", b'{') => self.raw_braces(tensor),
            (b"raw", _) => {
                let bytes = self.bytes(tensor, false)?;
                tensor.raw_data = Some(bytes);
                Ok(())
            }
            _ => {
                let records = self.bytes(tensor, true)?;
                self.add_records(tensor, records, start)
            }
        }
    }

    /// Bytes of a tensor, written down or in a file: records of a typed list if `typed`, `raw_data`
    /// otherwise.
    fn bytes(&mut self, tensor: &TensorProto, typed: bool) -> Parse<Span> {
        if self.cursor.next() == b'[' {
            let start = self.cursor.pos;
            let entries = self.pairs()?;
            let end = self.cursor.token_end();
            return self.load(tensor, typed, entries, start..end);
        }
        let text = self.string("bytes, as x\"00ff\", or the file they are in")?;
        Ok(self.kept(text))
    }

    /// Loads bytes of a tensor from a file.
    fn load(
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

    /// Records of typed lists as they are.
    fn add_records(&mut self, tensor: &mut TensorProto, records: Span, at: usize) -> Parse {
        // The pool's bytes are not at hand yet, so they are looked at in the text or the file.
        let Some(runs) = self.build.with_bytes(records, super::message::typed_runs) else {
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

    fn tensor_notes(&mut self, tensor: &mut TensorProto) -> Parse {
        self.notes(TENSOR_NOTES, |parser, key| {
            let at = parser.cursor.pos;
            match key {
                b"doc_string" => tensor.doc_string = Some(parser.text_symbol()?),
                b"metadata_props" => tensor.metadata_props.extend(parser.pairs()?),
                b"external_data" => tensor.external_data.extend(parser.pairs()?),
                b"data_location" => {
                    let number = parser.integer("a number")?;
                    let Ok(number) = i32::try_from(number) else {
                        return parser.fail(at..parser.cursor.pos, "a data location has 32 bits");
                    };
                    tensor.data_location = Some(DataLocation(number));
                }
                b"raw_data" => tensor.raw_data = Some(parser.bytes(tensor, false)?),
                b"fields" => {
                    let records = parser.bytes(tensor, true)?;
                    parser.add_records(tensor, records, at)?;
                    tensor.typed.sort_by_key(|run| run.number);
                }
                b"segment" => {
                    let mut segment = Segment::default();
                    let keys = &["begin", "end", "unknown"];
                    parser.key_list(b'{', b'}', keys, &mut |parser, key| {
                        match key {
                            b"begin" => segment.begin = Some(parser.integer("a number")?),
                            b"end" => segment.end = Some(parser.integer("a number")?),
                            _ => segment.unknown = parser.unknown()?,
                        }
                        Ok(())
                    })?;
                    tensor.segment = Some(segment);
                }
                _ => tensor.unknown = parser.unknown()?,
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
        probe.word();
        probe.next() == b'('
    }

    /// `sparse(type, values, indices)`
    pub(super) fn sparse_tensor(&mut self) -> Parse<SparseTensorProto> {
        let part = self.open(SyntaxKind::SparseTensor);
        let at = self.offset();
        let counted = self.build.count::<SparseTensorProto>(at);
        self.built(counted)?;
        let word = self.word("`sparse`")?;
        if word.bytes != b"sparse" {
            let start = word.offset as usize;
            return self.fail_with(
                start..start + word.bytes.len(),
                "expected a sparse tensor",
                "it is written sparse(float[3, 4], float[2] {1, 2}, int64[2] {0, 11})",
            );
        }
        self.expect(b'(', "`(`")?;
        let elem_at = self.offset() as usize;
        let elem = self.element_type("the type of the sparse tensor")?;
        let mut sparse =
            SparseTensorProto { dims: self.tensor_dimensions()?, ..SparseTensorProto::default() };
        let elem_end = self.cursor.token_end();
        if self.cursor.eat(b',') {
            if !self.absent() {
                let values = self.tensor()?;
                if values.data_type != elem {
                    return self.fail(
                        elem_at..elem_end,
                        "this is another element type than that of the values",
                    );
                }
                sparse.values = Some(values);
            }
            if self.cursor.eat(b',') {
                sparse.indices = Some(self.tensor()?);
            }
        }
        self.expect(b')', "`)` after the indices")?;
        if self.at_notes() {
            let mut unknown = Unknowns::default();
            self.unknown_notes(&mut unknown)?;
            sparse.unknown = unknown;
        }
        self.close(part);
        Ok(sparse)
    }

    /// The entries of a typed list.
    fn braces(&mut self, tensor: &mut TensorProto) -> Parse {
        let opened = self.cursor.pos;
        let data_type = self.literal_type(tensor, opened)?;
        let field = sardonyx_proto::DataType(data_type.number()).typed_field();
        let field = field.unwrap_or(TypedField::Int32);
        self.numbers.clear();
        self.numbers.resize(HEAD, 0);
        let of = (data_type, Count::Entries);
        let entries = match field {
            TypedField::String => self.strings()?,
            TypedField::Float => self.literals(of, read_floats::<f32>)?,
            TypedField::Double => self.literals(of, read_floats::<f64>)?,
            TypedField::Int64 => {
                self.literals(of, |text, out| read_signed_varints(text, i64::MIN..=i64::MAX, out))?
            }
            TypedField::Uint64 => {
                let max =
                    if data_type == DataType::Uint32 { u64::from(u32::MAX) } else { u64::MAX };
                self.literals(of, |text, out| read_unsigned_varints(text, max, out))?
            }
            TypedField::Int32 => {
                let range = entry_range(data_type);
                self.literals(of, |text, out| read_signed_varints(text, range.clone(), out))?
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
            // The tag and the length stand before the payload.
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

    /// The elements of `raw_data`.
    fn raw_braces(&mut self, tensor: &mut TensorProto) -> Parse {
        let opened = self.cursor.pos;
        let data_type = self.literal_type(tensor, opened)?;
        let count = self.raw_literals(data_type)?;
        self.check_count(tensor, data_type, count, opened, Count::Elements)?;
        tensor.raw_data = Some(self.take_numbers(0));
        Ok(())
    }

    /// Reads the elements into `numbers`; gives how many there are.
    fn raw_literals(&mut self, data_type: DataType) -> Parse<usize> {
        let opened = self.cursor.pos;
        let of = (data_type, Count::Elements);
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
            DataType::Float | DataType::Complex64 => self.literals(of, read_floats::<f32>)?,
            DataType::Double | DataType::Complex128 => self.literals(of, read_floats::<f64>)?,
            DataType::Int8 => {
                self.literals(of, |text, out| read_signed::<1>(text, signed(8), out))?
            }
            DataType::Int16 => {
                self.literals(of, |text, out| read_signed::<2>(text, signed(16), out))?
            }
            DataType::Int32 => {
                self.literals(of, |text, out| read_signed::<4>(text, signed(32), out))?
            }
            DataType::Int64 => {
                self.literals(of, |text, out| read_signed::<8>(text, i64::MIN..=i64::MAX, out))?
            }
            DataType::Bool => self.literals(of, |text, out| read_unsigned::<1>(text, 1, out))?,
            DataType::Uint8 => {
                self.literals(of, |text, out| read_unsigned::<1>(text, 0xff, out))?
            }
            DataType::Uint16 => {
                self.literals(of, |text, out| read_unsigned::<2>(text, 0xffff, out))?
            }
            DataType::Uint32 => {
                self.literals(of, |text, out| read_unsigned::<4>(text, u32::MAX.into(), out))?
            }
            DataType::Uint64 => {
                self.literals(of, |text, out| read_unsigned::<8>(text, u64::MAX, out))?
            }
            DataType::Int4 | DataType::Int2 | DataType::Uint4 | DataType::Uint2 => {
                let bits = data_type.bits().unwrap_or(4);
                let range =
                    if data_type.is_signed() { signed(bits as u32) } else { 0..=(1 << bits) - 1 };
                let count =
                    self.literals(of, |text, out| read_signed::<1>(text, range.clone(), out))?;
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
                let count = self.literals(of, |text, _| {
                    read_list(text, |value: f32| {
                        values.push(value);
                        Ok(())
                    })
                })?;
                let Some(bytes) = narrow(&values, data_type) else {
                    let fits = |value: &f32| narrow(&[*value], data_type).is_some();
                    let index = values.iter().position(|value| !fits(value)).unwrap_or(0);
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

    /// The element type of literals.
    fn literal_type(&mut self, tensor: &TensorProto, at: usize) -> Parse<DataType> {
        match tensor.data_type.and_then(DataType::from_number) {
            Some(data_type) => Ok(data_type),
            None => self.fail_with(
                at..at + 1,
                "there are no literals for an element type without a name",
                "write its bytes: raw x\"00ff\"",
            ),
        }
    }

    /// Reads the literals between the braces that are opened here; gives how many there are. `of`
    /// says what they are, for advice.
    fn literals(
        &mut self,
        of: (DataType, Count),
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
                let result = self.list_error(error.problem);
                // The other errors are not about the type.
                if let ListProblem::Number(
                    NumberError::OutOfRange | NumberError::Negative | NumberError::NotInteger,
                ) = error.problem
                {
                    match of {
                        (data_type, Count::Entries) => self.explain_entries(data_type),
                        (data_type, Count::Elements) => self.explain_range(data_type),
                    }
                }
                result
            }
        }
    }

    #[cold]
    fn list_error<T>(&mut self, problem: ListProblem) -> Parse<T> {
        match problem {
            ListProblem::Number(error) => self.number_error(error, "a value"),
            // The comma before it is gone over.
            ListProblem::MissingValue if self.cursor.next() == b'}' => {
                self.expected_with("a value", NO_LAST_COMMA)
            }
            ListProblem::MissingValue => self.expected("a value"),
            ListProblem::ExpectedCommaOrBrace => self.expected("`,` or `}` after a value"),
        }
    }

    /// Adds what a user of a narrow type needs to know to the error that was just reported.
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

    /// Adds which values a type has to the error that was just reported.
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

    /// Texts between the braces that are opened here, as records.
    fn strings(&mut self) -> Parse<usize> {
        let mut count = 0;
        self.list(b'{', b'}', "`{`", |parser| {
            let text = parser.string("a text in quotes")?;
            count += 1;
            let bytes = text.bytes();
            parser.numbers.push(0x32);
            sardonyx_proto::push_varint(&mut parser.numbers, bytes.len() as u64);
            parser.numbers.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(count)
    }

    /// The payload that was read, as bytes of the model from `start` on.
    fn take_numbers(&mut self, start: usize) -> Span {
        /// Below this, a copy costs less than memory of its own.
        const SMALL: usize = 16 << 10;
        if self.numbers.len() <= SMALL {
            return self.build.keep(&self.numbers[start..]);
        }
        let numbers = std::mem::take(&mut self.numbers);
        self.build.keep_vec(numbers, start)
    }

    /// Compares the number of literals with what the dimensions ask for.
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
            // What the onnx package prints for a tensor whose values were taken out.
            self.warn(opened..end, message, Some("a tensor without values says so: `= ?`"));
            return Ok(());
        }
        if self.any_count {
            self.warn(opened..end, message, None);
            return Ok(());
        }
        self.fail(opened..end, message)
    }

    /// An integer.
    pub(super) fn integer(&mut self, what: &str) -> Parse<i64> {
        self.cursor.next();
        let start = self.cursor.pos;
        match numbers::read_i64(&self.cursor.text[start..]) {
            Ok((value, length)) => {
                self.cursor.pos += length;
                Ok(value)
            }
            Err(error) => {
                let result = self.number_error(error, what);
                if error == NumberError::OutOfRange {
                    self.advise("integers have 64 bits and a sign");
                }
                result
            }
        }
    }

    /// A float; an integer literal is one as well.
    pub(super) fn float(&mut self, what: &str) -> Parse<f32> {
        self.cursor.next();
        let start = self.cursor.pos;
        match numbers::read_f32(&self.cursor.text[start..]) {
            Ok((value, length)) => {
                self.cursor.pos += length;
                Ok(value)
            }
            Err(error) => {
                let result = self.number_error(error, what);
                if error == NumberError::OutOfRange {
                    self.explain_range(DataType::Float);
                }
                result
            }
        }
    }

    #[cold]
    pub(super) fn number_error<T>(&mut self, error: NumberError, what: &str) -> Parse<T> {
        let (span, found) = self.token();
        let bytes = &self.cursor.text[span.clone()];
        match error {
            NumberError::NoDigits => match bytes.first() {
                Some(b'.') => self.expected_with(what, "a number begins with a digit: 0.5"),
                Some(b'+') => self.expected_with(what, "numbers have no `+` before them"),
                Some(b'-') => self.expected_with(
                    what,
                    "a number follows its `-` directly, and begins with a digit",
                ),
                Some(b'"') => self.expected_with(what, "write numbers without quotes"),
                _ if is_truth(bytes) => self.expected_with(what, "write booleans as 0 or 1"),
                _ => self.expected(what),
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
                self.with_parentheses(span),
                "these are not the bits of a NaN of this type",
                "all bits are written, in hexadecimal digits: nan(7fc00001)",
            ),
        }
    }

    /// A word, and what stands in parentheses directly after it.
    fn with_parentheses(&self, span: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let rest = &self.cursor.text[span.end..];
        let inside = |byte: &&u8| **byte == b'(' || crate::cursor::continues_word(**byte);
        let length = rest.iter().take_while(inside).count();
        let closed = usize::from(rest.get(length) == Some(&b')'));
        span.start..span.end + length + closed
    }

    /// Bytes or text of an attribute.
    pub(super) fn string_span(&mut self) -> Parse<Span> {
        let text: Name<'a> = self.string("a text in quotes")?;
        Ok(self.kept(text))
    }
}

/// Whether a word is a truth value in other languages.
pub(super) fn is_truth(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"true") || word.eq_ignore_ascii_case(b"false")
}

/// What the literals of a tensor stand for.
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

/// What an entry of `int32_data` may be. Types of fewer than 8 bits are packed, so an entry is a
/// byte.
pub(crate) fn entry_range(data_type: DataType) -> RangeInclusive<i64> {
    match data_type {
        DataType::Int32 => i32::MIN.into()..=i32::MAX.into(),
        DataType::Int16 => i16::MIN.into()..=i16::MAX.into(),
        DataType::Int8 => i8::MIN.into()..=i8::MAX.into(),
        DataType::Bool => 0..=1,
        DataType::Uint16 | DataType::Float16 | DataType::Bfloat16 => 0..=0xffff,
        // Some write one signed element per entry.
        DataType::Int4 | DataType::Int2 => -0x80..=0xff,
        _ => 0..=0xff,
    }
}

/// Values as the nearest ones of a type of fewer than 32 bits; `None` if a finite one is too large.
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
