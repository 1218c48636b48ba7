//! Attributes and their values.

use sardonyx_model::{Attribute, AttributeId, AttributeValue, GraphId, NodeId, Symbol};
use sardonyx_proto::AttributeType;
use smallvec::SmallVec;

use super::tensor::is_truth;
use super::types::{advice_on_type, advice_on_types};
use super::{NO_LAST_COMMA, Name, Parse, Parser};
use crate::cursor::starts_word;
use crate::numbers::{self, Literal, NumberError};
use crate::tree::SyntaxKind;
use crate::words::{
    ATTRIBUTE_NOTES, ATTRIBUTE_TYPES, NODE_NOTES, attribute_type, attribute_word, element_of,
    element_type, is_float_word, list_of,
};

/// The node that an attribute belongs to, and that node's graph, which its own graphs see.
type Place = Option<(GraphId, NodeId)>;

impl<'a> Parser<'_, 'a> {
    /// The attributes of a node.
    pub(super) fn attributes(&mut self, graph: GraphId, node: NodeId) -> Parse {
        let start = self.cursor.pos;
        let mut attributes: SmallVec<[AttributeId; 8]> = SmallVec::new();
        let read = self.list_of(b'<', b'>', "`<`", Self::at_attribute_start, |parser| {
            let at = parser.offset();
            let mut attribute = Attribute::default();
            parser.attribute(&mut attribute, Some((graph, node)))?;
            let added = parser.build.add_attribute(attribute, at);
            attributes.push(parser.built(added)?);
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

    /// `name[: type][= value] [notes]`
    pub(super) fn attribute(&mut self, attribute: &mut Attribute, place: Place) -> Parse {
        let part = self.open(SyntaxKind::Attribute);
        let named = self.open(SyntaxKind::Definition);
        let name = match self.maybe_word() {
            Some(word) => Some(Name::Here(word)),
            None if matches!(self.cursor.byte(), b'0'..=b'9' | b'-') => {
                return self.expected_attribute();
            }
            None => self.maybe_name("the name of an attribute")?,
        };
        self.close(named);
        attribute.name = match name {
            Some(name) => Some(self.frequent_symbol(&name)?),
            None => None,
        };
        let typed = self.cursor.next() == b':';
        if typed {
            self.cursor.pos += 1;
            attribute.ty = self.attribute_type(attribute.name)?;
        }
        if self.cursor.next() == b'=' {
            self.cursor.pos += 1;
            self.attribute_value(attribute, typed, place)?;
        } else if !typed {
            let what = "`=` or `:` after the name of an attribute";
            return if self.cursor.token_end() == self.cursor.pos {
                self.expected_name(what)
            } else {
                self.expected(what)
            };
        }
        if self.at_notes() {
            self.attribute_notes(attribute, place)?;
        }
        self.close(part);
        Ok(())
    }

    /// An error about a number in place of an attribute.
    #[cold]
    fn expected_attribute<T>(&mut self) -> Parse<T> {
        let (span, _) = self.token();
        let what = "the name of an attribute";
        match numbers::scan(&self.cursor.text[span]) {
            Ok(_) => self.expected_with(
                what,
                "write lists in brackets, [1, 5]; decimal numbers have a point, 1.5",
            ),
            Err(_) => self.expected_name(what),
        }
    }

    /// The word after `:` and the name; `?` for none, `?99` for a number without a word.
    fn attribute_type(&mut self, name: Option<Symbol>) -> Parse<Option<AttributeType>> {
        self.cursor.next();
        if self.cursor.byte() == b'?' {
            self.cursor.pos += 1;
            if !matches!(self.cursor.byte(), b'0'..=b'9' | b'-') {
                return Ok(None);
            }
            let at = self.cursor.pos;
            let number = self.integer("a number")?;
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
        self.expected_type(word, name)
    }

    #[cold]
    fn expected_type<T>(&mut self, word: &[u8], name: Option<Symbol>) -> Parse<T> {
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
                _ => format!("the types are {}", crate::words::listed(&words)),
            },
        };
        self.expected_with("the type of an attribute", help)
    }

    fn attribute_value(&mut self, attribute: &mut Attribute, typed: bool, place: Place) -> Parse {
        if self.cursor.next() == b'@' {
            self.cursor.pos += 1;
            let name =
                self.part(SyntaxKind::Reference, |parser| parser.name("the name of a parameter"))?;
            let symbol = self.symbol(&name)?;
            attribute.set_ref_attr_name(symbol, self.build.model.text(symbol));
            return Ok(());
        }
        let wanted = attribute.ty;
        if let Some(value) = self.usual_number(wanted) {
            attribute.values.push(value);
            return Ok(());
        }
        let start = self.cursor.pos;
        let value = self.value(wanted, place)?;
        match (wanted, value) {
            (_, Value::Some(value)) => {
                if !typed {
                    attribute.ty = Some(value.ty());
                }
                attribute.values.push(value);
            }
            // An empty list has no field; which type it has must be said.
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

    /// A number of the wanted type, which most values are. `None` if a closer look is needed.
    #[inline]
    fn usual_number(&mut self, wanted: Option<AttributeType>) -> Option<AttributeValue> {
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

    /// A value of a type, or of any.
    fn value(&mut self, wanted: Option<AttributeType>, place: Place) -> Parse<Value> {
        if self.cursor.next() == b'[' {
            return self.list_value(wanted, place);
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
            return self.expected_with(&what, help);
        }
        self.single(wanted, place).map(Value::Some)
    }

    /// One value. Its kind follows from how it is written, and has to be the wanted one.
    fn single(&mut self, wanted: Option<AttributeType>, place: Place) -> Parse<AttributeValue> {
        let byte = self.cursor.next();
        let kind = match self.kind_here(byte, wanted) {
            Some(kind) => kind,
            None => {
                return match byte {
                    b'.' | b'+' => self.number_error(NumberError::NoDigits, "a value"),
                    b'{' => self
                        .expected_with("a value", "a tensor begins with its type: float[2] {1, 2}"),
                    _ => self.expected("a value"),
                };
            }
        };
        if kind == AttributeType::GRAPH && starts_word(byte) && !self.graph_here() {
            return self.expected_value(wanted);
        }
        // An integer is a float where one is wanted.
        let kind = match (wanted, kind) {
            (Some(AttributeType::FLOAT), AttributeType::INT) => AttributeType::FLOAT,
            _ => kind,
        };
        if let Some(wanted) = wanted
            && wanted != kind
            && wanted != AttributeType::UNDEFINED
            && attribute_word(wanted).is_some()
        {
            return self.wrong_kind(wanted, kind);
        }
        if kind == AttributeType::GRAPH {
            let (parent, owner) = (place.map(|p| p.0), place.map(|p| p.1));
            return Ok(AttributeValue::Graph(self.graph(owner, parent)?));
        }
        self.flat(kind)
    }

    /// A value that has no graph in it. Inlined, its variables would take stack for each level of
    /// nesting.
    #[inline(never)]
    fn flat(&mut self, kind: AttributeType) -> Parse<AttributeValue> {
        Ok(match kind {
            AttributeType::INT => {
                AttributeValue::Int(self.part(SyntaxKind::Literal, |p| p.integer("a number"))?)
            }
            AttributeType::FLOAT => {
                AttributeValue::Float(self.part(SyntaxKind::Literal, |p| p.float("a number"))?)
            }
            AttributeType::STRING => {
                AttributeValue::String(self.part(SyntaxKind::Literal, Self::string_span)?)
            }
            AttributeType::SPARSE_TENSOR => {
                AttributeValue::SparseTensor(Box::new(self.sparse_tensor()?))
            }
            AttributeType::TENSOR => AttributeValue::Tensor(Box::new(self.tensor()?)),
            _ => AttributeValue::Type(Box::new(self.type_proto()?)),
        })
    }

    /// What kind of value begins here with a byte, as far as that can be seen; `None` if no value
    /// does.
    fn kind_here(&mut self, byte: u8, wanted: Option<AttributeType>) -> Option<AttributeType> {
        if self.at_quoted() {
            // The name of a graph may stand in quotes as well.
            let mut probe = self.cursor.clone();
            if byte == b'x' {
                probe.pos += 1;
            }
            let graph = wanted != Some(AttributeType::STRING)
                && probe.quoted().is_some()
                && matches!(probe.next(), b'(');
            return Some(if graph { AttributeType::GRAPH } else { AttributeType::STRING });
        }
        if byte.is_ascii_digit() || byte == b'-' {
            return Some(match wanted {
                // An integer is one as well.
                Some(AttributeType::FLOAT) => AttributeType::FLOAT,
                _ => self.number_kind(),
            });
        }
        if self.at_type() {
            if self.at_sparse() {
                return Some(AttributeType::SPARSE_TENSOR);
            }
            return Some(match wanted {
                Some(AttributeType::TYPE_PROTO) => AttributeType::TYPE_PROTO,
                Some(AttributeType::TENSOR) => AttributeType::TENSOR,
                _ if self.tensor_here() => AttributeType::TENSOR,
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

    /// Whether the word that stands here is the name of a graph: its inputs or the arrow follow.
    fn graph_here(&self) -> bool {
        let mut probe = self.cursor.clone();
        if probe.byte() == b'x' && probe.byte_at(1) == b'"' {
            return true;
        }
        probe.word();
        matches!(probe.next(), b'(' | b'=')
    }

    /// An error about a word that is no value.
    #[cold]
    fn expected_value<T>(&mut self, wanted: Option<AttributeType>) -> Parse<T> {
        let word = self.cursor.peek_word().unwrap_or_default();
        let mut probe = self.cursor.clone();
        probe.word();
        let tensor = matches!(probe.next(), b'[' | b'{');
        let shown = match self.odd_name() {
            Some(name) => name,
            None => sardonyx_proto::shown(word).to_string(),
        };
        let what = match wanted.and_then(attribute_word) {
            Some(word) => format!("a value of type `{word}`"),
            None => "a value".to_string(),
        };
        let help = match wanted {
            _ if is_truth(word) => "write booleans as 0 or 1".to_string(),
            _ if tensor => advice_on_type(word).unwrap_or_else(advice_on_types),
            None | Some(AttributeType::STRING) => format!("write strings in quotes: \"{shown}\""),
            Some(AttributeType::GRAPH) => {
                format!("a graph has inputs and outputs: {shown} () => (y) {{ ... }}")
            }
            _ => return self.expected(&what),
        };
        self.expected_with(&what, help)
    }

    fn number_kind(&self) -> AttributeType {
        // Most are integers of a few digits.
        let text = &self.cursor.text[self.cursor.pos..];
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 && matches!(text.get(digits), Some(b',' | b'>' | b' ')) {
            return AttributeType::INT;
        }
        match numbers::scan(text) {
            Ok((Literal::Float, _)) | Err(NumberError::NanBits) => AttributeType::FLOAT,
            // What is wrong with it, whoever reads it will say.
            _ => AttributeType::INT,
        }
    }

    /// Whether the type that begins here has a name or values after it, and so is that of a
    /// tensor.
    fn tensor_here(&mut self) -> bool {
        let mut probe = self.cursor.clone();
        if probe.byte() == b'?' {
            probe.pos += 1;
            while crate::cursor::continues_word(probe.byte()) || probe.byte() == b'-' {
                probe.pos += 1;
            }
        } else {
            let word = probe.word().unwrap_or_default();
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
                    if probe.quoted().is_none() {
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
    fn wrong_kind<T>(&mut self, wanted: AttributeType, kind: AttributeType) -> Parse<T> {
        let (span, found) = self.token();
        let of = |ty| attribute_word(ty).unwrap_or_default();
        let kind = if self.at_sparse() { AttributeType::SPARSE_TENSOR } else { kind };
        let message = match kind {
            AttributeType::INT | AttributeType::FLOAT | AttributeType::STRING => format!(
                "expected a value of type `{}`, found {found}, which is of type `{}`",
                of(wanted),
                of(kind)
            ),
            // The next token is only its beginning.
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

    /// Values in brackets. Without a type, the first one decides.
    fn list_value(&mut self, wanted: Option<AttributeType>, place: Place) -> Parse<Value> {
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
                    return self.expected_with(&what, help);
                }
            },
        };
        let numbers =
            matches!(element, None | Some(AttributeType::INT) | Some(AttributeType::FLOAT));
        if numbers && let Some(value) = self.number_list(element)? {
            return Ok(value);
        }
        let mut values: SmallVec<[AttributeValue; 4]> = SmallVec::new();
        self.list(b'[', b']', "`[`", |parser| {
            if parser.cursor.next() == b'@' {
                return parser.reference_in_list();
            }
            let value = parser.single(element, place)?;
            element.get_or_insert(value.ty());
            values.push(value);
            Ok(())
        })?;
        Ok(joined(values))
    }

    #[cold]
    fn reference_in_list<T>(&mut self) -> Parse<T> {
        let at = self.cursor.pos;
        self.fail_with(
            at..at + 1,
            "a reference cannot be in a list",
            "a reference replaces a whole attribute: name: ints = @parameter",
        )
    }

    /// A list of numbers, by far the most frequent and longest one. `None` if it is another one;
    /// then the cursor stays.
    fn number_list(&mut self, element: Option<AttributeType>) -> Parse<Option<Value>> {
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
                    // After it, no list of numbers goes on.
                    if matches!(byte, b'>' | b')' | b'}') {
                        let help = self.advice_on_opened(start, b']');
                        return self.expected_with(what, help);
                    }
                    return self.expected(what);
                }
            }
        };
        self.cursor = rest;
        if let Err(error) = result {
            let (span, _) = self.token();
            if error == NumberError::NotInteger && element.is_none() {
                return self.fail_with(
                    span,
                    "expected an integer, as the list begins with one",
                    "write the first value with a point, or the type: name: floats = [1, 2.5]",
                );
            }
            let byte = self.cursor.next();
            if error == NumberError::NoDigits && byte == b'@' {
                return self.reference_in_list();
            }
            if error == NumberError::NoDigits && byte == b']' {
                return self.expected_with("a value", NO_LAST_COMMA);
            }
            if error == NumberError::NoDigits && byte == b'"' && element.is_none() {
                return self.expected("a number, as the list begins with one");
            }
            return self.number_error(error, "a value");
        }
        self.close(part);
        let bytes = (float_list.len() * 4 + int_list.len() * 8) as u64;
        let counted = self.build.count_bytes(bytes, start as u64);
        self.built(counted)?;
        Ok(Some(Value::Some(if floats {
            AttributeValue::Floats(float_list)
        } else {
            AttributeValue::Ints(int_list)
        })))
    }

    fn attribute_notes(&mut self, attribute: &mut Attribute, place: Place) -> Parse {
        self.notes(ATTRIBUTE_NOTES, |parser, key| {
            let ty = match key {
                b"doc_string" => {
                    attribute.extras_mut().doc_string = Some(parser.text_symbol()?);
                    return Ok(());
                }
                b"unknown" => {
                    attribute.extras_mut().unknown = parser.unknown()?;
                    return Ok(());
                }
                b"f" => AttributeType::FLOAT,
                b"i" => AttributeType::INT,
                b"s" => AttributeType::STRING,
                b"t" => AttributeType::TENSOR,
                b"g" => AttributeType::GRAPH,
                b"tp" => AttributeType::TYPE_PROTO,
                // The others are called like the types.
                _ => attribute_type(key).unwrap_or(AttributeType::UNDEFINED),
            };
            if let Value::Some(value) = parser.value(Some(ty), place)? {
                let number = value.number();
                let at = attribute.values.partition_point(|other| other.number() < number);
                attribute.values.insert(at, value);
            }
            Ok(())
        })
    }
}

/// What stands after `=`.
enum Value {
    Some(AttributeValue),
    /// `[]`
    Empty,
}

/// Values of one kind as a list.
fn joined(values: SmallVec<[AttributeValue; 4]>) -> Value {
    /// The content of all values, which are of one variant, as another variant.
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
