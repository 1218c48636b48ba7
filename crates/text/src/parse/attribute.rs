//! Parses attributes and their values.

use sardonyx_model::{Attribute, AttributeId, AttributeValue, GraphId, NodeId, Symbol};
use sardonyx_proto::AttributeType;
use smallvec::SmallVec;

use super::tensor::is_boolean_word;
use super::types::{advice_on_type, advice_on_types};
use super::{NO_LAST_COMMA, Name, Parse, Parser};
use crate::cursor::starts_word;
use crate::numbers::{self, Literal, NumberError};
use crate::tree::SyntaxKind;
use crate::words::{
    ATTRIBUTE_NOTES, ATTRIBUTE_TYPES, NODE_NOTES, attribute_type, attribute_word, element_of,
    element_type, is_float_word, list_of,
};

/// Node that an attribute belongs to, and that node's graph, which its own graphs see.
type Place = Option<(GraphId, NodeId)>;

impl<'a> Parser<'_, 'a> {
    /// Parses the attributes of a node.
    pub(super) fn parse_attributes(&mut self, graph: GraphId, node: NodeId) -> Parse {
        let start = self.cursor.pos;
        let mut attributes: SmallVec<[AttributeId; 8]> = SmallVec::new();
        let read = self.parse_list_of(b'<', b'>', "`<`", Self::at_attribute_start, |parser| {
            let at = parser.next_offset();
            let mut attribute = Attribute::default();
            parser.parse_attribute(&mut attribute, Some((graph, node)))?;
            let added = parser.build.add_attribute(attribute, at);
            attributes.push(parser.check_built(added)?);
            Ok(())
        });
        self.build.set_attributes(node, &attributes);
        read?;
        if attributes.is_empty() {
            let end = self.cursor.token_end();
            return self.fail_with(
                start..end,
                "an attribute list must not be empty",
                "remove the `<>`",
            );
        }
        Ok(())
    }

    /// Parses `name[: type][= value] [annotations]`.
    pub(super) fn parse_attribute(&mut self, attribute: &mut Attribute, place: Place) -> Parse {
        let part = self.open(SyntaxKind::Attribute);
        let named = self.open(SyntaxKind::Definition);
        let name = match self.parse_maybe_word() {
            Some(word) => Some(Name::Here(word)),
            None if matches!(self.cursor.byte(), b'0'..=b'9' | b'-') => {
                return self.fail_expected_attribute();
            }
            None => self.parse_maybe_name("the name of an attribute")?,
        };
        self.close(named);
        attribute.name = match name {
            Some(name) => Some(self.intern_frequent(&name)?),
            None => None,
        };
        let typed = self.cursor.next() == b':';
        if typed {
            self.cursor.pos += 1;
            attribute.ty = self.parse_attribute_type(attribute.name)?;
        }
        if self.cursor.next() == b'=' {
            self.cursor.pos += 1;
            self.parse_attribute_value(attribute, typed, place)?;
        } else if !typed {
            let what = "`=` or `:` after the name of an attribute";
            return if self.cursor.token_end() == self.cursor.pos {
                self.fail_expected_name(what)
            } else {
                self.fail_expected(what)
            };
        }
        if self.at_notes() {
            self.parse_attribute_notes(attribute, place)?;
        }
        self.close(part);
        Ok(())
    }

    /// Reports a number in place of an attribute.
    #[cold]
    fn fail_expected_attribute<T>(&mut self) -> Parse<T> {
        let (span, _) = self.describe_token();
        let what = "the name of an attribute";
        match numbers::scan(&self.cursor.text[span]) {
            Ok(_) => self.fail_expected_with(
                what,
                "write lists in brackets, [1, 5]; decimal numbers have a point, 1.5",
            ),
            Err(_) => self.fail_expected_name(what),
        }
    }

    /// Parses the type after `:`: a word, `?` for none, or `?99` for a number without a word.
    fn parse_attribute_type(&mut self, name: Option<Symbol>) -> Parse<Option<AttributeType>> {
        self.cursor.next();
        if self.cursor.byte() == b'?' {
            self.cursor.pos += 1;
            if !matches!(self.cursor.byte(), b'0'..=b'9' | b'-') {
                return Ok(None);
            }
            let at = self.cursor.pos;
            let number = self.parse_integer("a number")?;
            return match i32::try_from(number) {
                Ok(number) => Ok(Some(AttributeType(number))),
                Err(_) => self.fail(at..self.cursor.pos, "attribute types must fit into 32 bits"),
            };
        }
        let word = self.cursor.peek_word().unwrap_or_default();
        if let Some(ty) = attribute_type(word) {
            self.cursor.pos += word.len();
            return Ok(Some(ty));
        }
        self.fail_expected_type(word, name)
    }

    #[cold]
    fn fail_expected_type<T>(&mut self, word: &[u8], name: Option<Symbol>) -> Parse<T> {
        let words: Vec<&str> = ATTRIBUTE_TYPES.iter().map(|(word, ..)| *word).collect();
        let note = name.is_some_and(|name| {
            let name = self.build.model.text(name);
            NODE_NOTES.iter().any(|note| note.as_bytes() == name)
        });
        let help = match (word, crate::words::nearest(word, &words)) {
            (b"", _) if note => "annotations begin with `@<`".to_string(),
            (b"", _) => "write the value after `=`: name = 1, or name: int = 1".to_string(),
            (b"bool" | b"boolean", _) => "booleans have type `int`: 0 or 1".to_string(),
            (b"integer", _) => "did you mean `int`?".to_string(),
            (_, Some(near)) => format!("did you mean `{near}`?"),
            _ => match element_type(word) {
                Some(ty) if ty.is_float() => "floats have type `float`".to_string(),
                Some(ty) if !ty.is_complex() => "integers have type `int`".to_string(),
                _ => format!("the types are {}", crate::words::join_words(&words)),
            },
        };
        self.fail_expected_with("the type of an attribute", help)
    }

    fn parse_attribute_value(
        &mut self,
        attribute: &mut Attribute,
        typed: bool,
        place: Place,
    ) -> Parse {
        if self.cursor.next() == b'@' {
            self.cursor.pos += 1;
            let name = self.parse_part(SyntaxKind::Reference, |parser| {
                parser.parse_name("the name of a parameter")
            })?;
            let symbol = self.intern_name(&name)?;
            attribute.set_ref_attr_name(symbol, self.build.model.text(symbol));
            return Ok(());
        }
        let wanted = attribute.ty;
        if let Some(value) = self.parse_usual_number(wanted) {
            attribute.values.push(value);
            return Ok(());
        }
        let start = self.cursor.pos;
        let value = self.parse_value(wanted, place)?;
        match (wanted, value) {
            (_, Value::Some(value)) => {
                if !typed {
                    attribute.ty = Some(value.ty());
                }
                attribute.values.push(value);
            }
            // An empty list has no field; its type must be declared.
            (Some(ty), Value::Empty) if element_of(ty).is_some() => {}
            (_, Value::Empty) => {
                let end = self.cursor.token_end();
                return self.fail_with(
                    start..end,
                    "an empty list has no type",
                    "write the type: name: ints = []",
                );
            }
        }
        Ok(())
    }

    /// Parses a number of the declared type, the most common value. Returns `None` if the value
    /// needs a closer look.
    #[inline]
    fn parse_usual_number(&mut self, wanted: Option<AttributeType>) -> Option<AttributeValue> {
        if !matches!(self.cursor.byte(), b'0'..=b'9' | b'-') {
            return None;
        }
        let text = &self.cursor.text[self.cursor.pos..];
        let (value, length) = match wanted? {
            AttributeType::INT => {
                let (value, length) = numbers::read_i64(text).ok()?;
                (AttributeValue::Int(value), length)
            }
            AttributeType::FLOAT => {
                let (value, length) = numbers::read_f32(text).ok()?;
                (AttributeValue::Float(value), length)
            }
            _ => return None,
        };
        let part = self.open(SyntaxKind::Literal);
        self.cursor.pos += length;
        self.close(part);
        Some(value)
    }

    /// Parses a value of the type `wanted`, or of any type.
    fn parse_value(&mut self, wanted: Option<AttributeType>, place: Place) -> Parse<Value> {
        if self.cursor.next() == b'[' {
            return self.parse_list_value(wanted, place);
        }
        if let Some(ty) = wanted
            && let Some(element) = element_of(ty)
        {
            let word = attribute_word(ty).unwrap_or_default();
            let what = format!("a list, as the type is `{word}`");
            let help = match element {
                AttributeType::INT | AttributeType::FLOAT => "write lists in brackets: [1, 2]",
                _ => "write lists in brackets",
            };
            return self.fail_expected_with(&what, help);
        }
        self.parse_single(wanted, place).map(Value::Some)
    }

    /// Parses a single value. Its notation determines its type, which must be the wanted one.
    fn parse_single(
        &mut self,
        wanted: Option<AttributeType>,
        place: Place,
    ) -> Parse<AttributeValue> {
        let byte = self.cursor.next();
        let kind = match self.recognize_kind(byte, wanted) {
            Some(kind) => kind,
            None => {
                return match byte {
                    b'.' | b'+' => self.fail_number(NumberError::NoDigits, "a value"),
                    b'{' => self.fail_expected_with(
                        "a value",
                        "a tensor begins with its type: float[2] {1, 2}",
                    ),
                    _ => self.fail_expected("a value"),
                };
            }
        };
        if kind == AttributeType::GRAPH && starts_word(byte) && !self.at_graph_name() {
            return self.fail_expected_value(wanted);
        }
        // An integer is accepted as a float.
        let kind = match (wanted, kind) {
            (Some(AttributeType::FLOAT), AttributeType::INT) => AttributeType::FLOAT,
            _ => kind,
        };
        if let Some(wanted) = wanted
            && wanted != kind
            && wanted != AttributeType::UNDEFINED
            && attribute_word(wanted).is_some()
        {
            return self.fail_wrong_kind(wanted, kind);
        }
        if kind == AttributeType::GRAPH {
            let (parent, owner) = (place.map(|p| p.0), place.map(|p| p.1));
            return Ok(AttributeValue::Graph(self.parse_graph(owner, parent)?));
        }
        self.parse_flat(kind)
    }

    /// Parses a value that contains no graph. Not inlined, as its variables would take stack space
    /// at each nesting level.
    #[inline(never)]
    fn parse_flat(&mut self, kind: AttributeType) -> Parse<AttributeValue> {
        Ok(match kind {
            AttributeType::INT => AttributeValue::Int(
                self.parse_part(SyntaxKind::Literal, |p| p.parse_integer("a number"))?,
            ),
            AttributeType::FLOAT => AttributeValue::Float(
                self.parse_part(SyntaxKind::Literal, |p| p.parse_float("a number"))?,
            ),
            AttributeType::STRING => AttributeValue::String(
                self.parse_part(SyntaxKind::Literal, Self::parse_string_span)?,
            ),
            AttributeType::SPARSE_TENSOR => {
                AttributeValue::SparseTensor(Box::new(self.parse_sparse_tensor()?))
            }
            AttributeType::TENSOR => AttributeValue::Tensor(Box::new(self.parse_tensor()?)),
            _ => AttributeValue::Type(Box::new(self.parse_type_proto()?)),
        })
    }

    /// Returns the type of the value that begins here with `byte`, as far as it can be recognized;
    /// `None` if no value begins here.
    fn recognize_kind(&mut self, byte: u8, wanted: Option<AttributeType>) -> Option<AttributeType> {
        if self.at_quoted() {
            // The name of a graph may be quoted as well.
            let mut probe = self.cursor.clone();
            if byte == b'x' {
                probe.pos += 1;
            }
            let graph = wanted != Some(AttributeType::STRING)
                && probe.eat_quoted().is_some()
                && matches!(probe.next(), b'(');
            return Some(if graph { AttributeType::GRAPH } else { AttributeType::STRING });
        }
        if byte.is_ascii_digit() || byte == b'-' {
            return Some(match wanted {
                // An integer is a float as well.
                Some(AttributeType::FLOAT) => AttributeType::FLOAT,
                _ => self.recognize_number(),
            });
        }
        if self.at_type() {
            if self.at_sparse() {
                return Some(AttributeType::SPARSE_TENSOR);
            }
            return Some(match wanted {
                Some(AttributeType::TYPE_PROTO) => AttributeType::TYPE_PROTO,
                Some(AttributeType::TENSOR) => AttributeType::TENSOR,
                _ if self.at_tensor() => AttributeType::TENSOR,
                _ => AttributeType::TYPE_PROTO,
            });
        }
        if byte == b'?' {
            return Some(AttributeType::GRAPH);
        }
        if !starts_word(byte) {
            return None;
        }
        if wanted == Some(AttributeType::SPARSE_TENSOR) {
            return Some(AttributeType::SPARSE_TENSOR);
        }
        let word = self.cursor.peek_word().unwrap_or_default();
        if is_float_word(word) {
            return Some(AttributeType::FLOAT);
        }
        Some(AttributeType::GRAPH)
    }

    /// Whether the word at this position is the name of a graph: inputs or the arrow follow.
    fn at_graph_name(&self) -> bool {
        let mut probe = self.cursor.clone();
        if probe.byte() == b'x' && probe.byte_at(1) == b'"' {
            return true;
        }
        probe.eat_word();
        matches!(probe.next(), b'(' | b'=')
    }

    /// Reports a word that is not a value.
    #[cold]
    fn fail_expected_value<T>(&mut self, wanted: Option<AttributeType>) -> Parse<T> {
        let word = self.cursor.peek_word().unwrap_or_default();
        let mut probe = self.cursor.clone();
        probe.eat_word();
        let tensor = matches!(probe.next(), b'[' | b'{');
        let shown = match self.find_odd_name() {
            Some(name) => name,
            None => sardonyx_proto::shown(word).to_string(),
        };
        let what = match wanted.and_then(attribute_word) {
            Some(word) => format!("a value of type `{word}`"),
            None => "a value".to_string(),
        };
        let help = match wanted {
            _ if is_boolean_word(word) => "write booleans as 0 or 1".to_string(),
            _ if tensor => advice_on_type(word).unwrap_or_else(advice_on_types),
            None | Some(AttributeType::STRING) => format!("write strings in quotes: \"{shown}\""),
            Some(AttributeType::GRAPH) => {
                format!("a graph has inputs and outputs: {shown} () => (y) {{ ... }}")
            }
            _ => return self.fail_expected(&what),
        };
        self.fail_expected_with(&what, help)
    }

    fn recognize_number(&self) -> AttributeType {
        // Fast path: most numbers are integers of a few digits.
        let text = &self.cursor.text[self.cursor.pos..];
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 && matches!(text.get(digits), Some(b',' | b'>' | b' ')) {
            return AttributeType::INT;
        }
        match numbers::scan(text) {
            Ok((Literal::Float, _)) | Err(NumberError::NanBits) => AttributeType::FLOAT,
            // The reader of the number reports the error.
            _ => AttributeType::INT,
        }
    }

    /// Whether the type that begins here is followed by a name or values, and so begins a tensor.
    fn at_tensor(&mut self) -> bool {
        let mut probe = self.cursor.clone();
        if probe.byte() == b'?' {
            probe.pos += 1;
            while crate::cursor::continues_word(probe.byte()) || probe.byte() == b'-' {
                probe.pos += 1;
            }
        } else {
            let word = probe.eat_word().unwrap_or_default();
            if element_type(word).is_none() {
                return false;
            }
        }
        if probe.next() == b'[' {
            loop {
                let byte = probe.next();
                if probe.at_end() {
                    return false;
                }
                if byte == b'"' {
                    if probe.eat_quoted().is_none() {
                        return false;
                    }
                    continue;
                }
                probe.pos += 1;
                if byte == b']' {
                    break;
                }
            }
        }
        let byte = probe.next();
        starts_word(byte) || matches!(byte, b'{' | b'=' | b'"' | b'?')
    }

    #[cold]
    fn fail_wrong_kind<T>(&mut self, wanted: AttributeType, kind: AttributeType) -> Parse<T> {
        let (span, found) = self.describe_token();
        let of = |ty| attribute_word(ty).unwrap_or_default();
        let kind = if self.at_sparse() { AttributeType::SPARSE_TENSOR } else { kind };
        let message = match kind {
            AttributeType::INT | AttributeType::FLOAT | AttributeType::STRING => format!(
                "expected a value of type `{}`, found {found}, which is of type `{}`",
                of(wanted),
                of(kind)
            ),
            // The next token is only the start of the value.
            _ => format!(
                "expected a value of type `{}`, found one of type `{}`",
                of(wanted),
                of(kind)
            ),
        };
        let help = match (wanted, kind) {
            (AttributeType::INT, AttributeType::FLOAT) => {
                "write it as an integer, or change the type to `float`"
            }
            (AttributeType::INT | AttributeType::FLOAT, AttributeType::STRING) => {
                "write numbers without quotes"
            }
            (AttributeType::STRING, _) => "write strings in quotes",
            (AttributeType::TENSOR, AttributeType::INT | AttributeType::FLOAT) => {
                "a tensor begins with its type: float {1.5}"
            }
            (AttributeType::SPARSE_TENSOR, _) => {
                "it is written sparse(float[3, 4], float[2] {1, 2}, int64[2] {0, 11})"
            }
            _ => return self.fail(span, message),
        };
        self.fail_with(span, message, help)
    }

    /// Parses values in brackets. Without a declared type, the first value determines it.
    fn parse_list_value(&mut self, wanted: Option<AttributeType>, place: Place) -> Parse<Value> {
        let mut element = match wanted {
            None | Some(AttributeType::UNDEFINED) => None,
            Some(ty) => match element_of(ty) {
                Some(element) => Some(element),
                None => {
                    let word = attribute_word(ty).unwrap_or_default();
                    let what = format!("a single value, as the type is `{word}`");
                    let help = match list_of(ty).and_then(attribute_word) {
                        Some(list) => format!("the type of a list is `{list}`"),
                        None => "remove the brackets".into(),
                    };
                    return self.fail_expected_with(&what, help);
                }
            },
        };
        let numbers =
            matches!(element, None | Some(AttributeType::INT) | Some(AttributeType::FLOAT));
        if numbers && let Some(value) = self.parse_number_list(element)? {
            return Ok(value);
        }
        let mut values: SmallVec<[AttributeValue; 4]> = SmallVec::new();
        self.parse_list(b'[', b']', "`[`", |parser| {
            if parser.cursor.next() == b'@' {
                return parser.fail_reference_in_list();
            }
            let value = parser.parse_single(element, place)?;
            element.get_or_insert(value.ty());
            values.push(value);
            Ok(())
        })?;
        Ok(join_values(values))
    }

    #[cold]
    fn fail_reference_in_list<T>(&mut self) -> Parse<T> {
        let at = self.cursor.pos;
        self.fail_with(
            at..at + 1,
            "a reference cannot be in a list",
            "a reference replaces a whole attribute: name: ints = @parameter",
        )
    }

    /// Parses a list of numbers, by far the most frequent and longest one. Returns `None` and does
    /// not move for other lists.
    fn parse_number_list(&mut self, element: Option<AttributeType>) -> Parse<Option<Value>> {
        let start = self.cursor.pos;
        let mut probe = self.cursor.clone();
        probe.pos += 1;
        let first = probe.next();
        let word = probe.peek_word().unwrap_or_default();
        if !(first.is_ascii_digit() || first == b'-' || is_float_word(word)) {
            return Ok(None);
        }
        let floats = match element {
            Some(ty) => ty == AttributeType::FLOAT,
            None => matches!(numbers::scan(&probe.text[probe.pos..]), Ok((Literal::Float, _))),
        };
        let part = self.open(SyntaxKind::Literal);
        let mut rest = self.cursor.clone();
        rest.pos += 1;
        let (mut float_list, mut int_list) = (Vec::new(), Vec::new());
        let result = loop {
            rest.next();
            let text = &rest.text[rest.pos..];
            let read = if floats {
                numbers::read_f32(text).map(|(value, length)| {
                    float_list.push(value);
                    length
                })
            } else {
                numbers::read_i64(text).map(|(value, length)| {
                    int_list.push(value);
                    length
                })
            };
            match read {
                Ok(length) => rest.pos += length,
                Err(error) => break Err(error),
            }
            match rest.next() {
                b',' => rest.pos += 1,
                b']' => {
                    rest.pos += 1;
                    break Ok(());
                }
                byte => {
                    self.cursor = rest;
                    let what = "`,` or `]` after a value";
                    // A list of numbers cannot continue after these signs.
                    if matches!(byte, b'>' | b')' | b'}') {
                        let help = self.advice_on_opened(start, b']');
                        return self.fail_expected_with(what, help);
                    }
                    return self.fail_expected(what);
                }
            }
        };
        self.cursor = rest;
        if let Err(error) = result {
            let (span, _) = self.describe_token();
            if error == NumberError::NotInteger && element.is_none() {
                return self.fail_with(
                    span,
                    "expected an integer, as the list begins with one",
                    "write the first value with a point, or the type: name: floats = [1, 2.5]",
                );
            }
            let byte = self.cursor.next();
            if error == NumberError::NoDigits && byte == b'@' {
                return self.fail_reference_in_list();
            }
            if error == NumberError::NoDigits && byte == b']' {
                return self.fail_expected_with("a value", NO_LAST_COMMA);
            }
            if error == NumberError::NoDigits && byte == b'"' && element.is_none() {
                return self.fail_expected("a number, as the list begins with one");
            }
            return self.fail_number(error, "a value");
        }
        self.close(part);
        let bytes = (float_list.len() * 4 + int_list.len() * 8) as u64;
        let counted = self.build.count_bytes(bytes, start as u64);
        self.check_built(counted)?;
        Ok(Some(Value::Some(if floats {
            AttributeValue::Floats(float_list)
        } else {
            AttributeValue::Ints(int_list)
        })))
    }

    fn parse_attribute_notes(&mut self, attribute: &mut Attribute, place: Place) -> Parse {
        self.parse_notes(ATTRIBUTE_NOTES, |parser, key| {
            let ty = match key {
                b"doc_string" => {
                    attribute.extras_mut().doc_string = Some(parser.parse_text_symbol()?);
                    return Ok(());
                }
                b"unknown" => {
                    attribute.extras_mut().unknown = parser.parse_unknown()?;
                    return Ok(());
                }
                b"f" => AttributeType::FLOAT,
                b"i" => AttributeType::INT,
                b"s" => AttributeType::STRING,
                b"t" => AttributeType::TENSOR,
                b"g" => AttributeType::GRAPH,
                b"tp" => AttributeType::TYPE_PROTO,
                // The other keys are the names of the types.
                _ => attribute_type(key).unwrap_or(AttributeType::UNDEFINED),
            };
            if let Value::Some(value) = parser.parse_value(Some(ty), place)? {
                let number = value.number();
                let at = attribute.values.partition_point(|other| other.number() < number);
                attribute.values.insert(at, value);
            }
            Ok(())
        })
    }
}

/// Value after `=`.
enum Value {
    Some(AttributeValue),
    /// `[]`
    Empty,
}

/// Converts values of one type to a list.
fn join_values(values: SmallVec<[AttributeValue; 4]>) -> Value {
    /// Converts values of one variant to a list variant.
    macro_rules! list {
        ($single:ident $list:ident $convert:expr) => {
            AttributeValue::$list(
                values
                    .into_iter()
                    .filter_map(|value| match value {
                        AttributeValue::$single(value) => Some($convert(value)),
                        _ => None,
                    })
                    .collect(),
            )
        };
    }
    Value::Some(match values.first() {
        None => return Value::Empty,
        Some(AttributeValue::Float(_)) => list!(Float Floats |value| value),
        Some(AttributeValue::Int(_)) => list!(Int Ints |value| value),
        Some(AttributeValue::String(_)) => list!(String Strings |value| value),
        Some(AttributeValue::Tensor(_)) => list!(Tensor Tensors |value: Box<_>| *value),
        Some(AttributeValue::Graph(_)) => list!(Graph Graphs |value| value),
        Some(AttributeValue::Type(_)) => list!(Type Types |value: Box<_>| *value),
        Some(AttributeValue::SparseTensor(_)) => {
            list!(SparseTensor SparseTensors |value: Box<_>| *value)
        }
        // Values in lists are single.
        Some(_) => return Value::Empty,
    })
}
