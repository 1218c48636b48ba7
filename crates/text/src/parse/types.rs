//! Parses types and dimensions.

use std::ops::Range;

use sardonyx_model::{DimProto, DimValue, ShapeProto, TypeKind, TypeProto, Unknowns};
use smallvec::SmallVec;

use super::{Failed, NO_LAST_COMMA, Name, Parse, Parser};
use crate::tree::SyntaxKind;
use crate::words::{DIMENSION_NOTES, TYPE_CONSTRUCTORS, TYPE_NOTES, element_type, is_type_word};

/// Errors about the type of a tensor that has values.
pub(super) const SYMBOLIC_DIMENSION: &str = "the dimensions of a tensor with values are numbers";
pub(super) const NO_RANK: &str = "a tensor with values has a rank";
pub(super) const ADVICE_ON_RANK: &str =
    "write the dimensions, float[2], or remove the brackets for a scalar";

/// Returns advice about a word that is not a type but resembles one.
pub(super) fn advice_on_type(word: &[u8]) -> Option<String> {
    // Names of types in other languages.
    let called = match &word.to_ascii_lowercase()[..] {
        b"float32" | b"f32" => "it is called `float`",
        b"float64" | b"f64" => "it is called `double`",
        b"half" | b"f16" => "it is called `float16`",
        b"int" | b"integer" => "integers are `int32` or `int64`",
        b"long" => "it is called `int64`",
        b"byte" => "it is called `uint8`",
        b"boolean" => "it is called `bool`",
        b"str" | b"text" => "it is called `string`",
        b"sequence" | b"list" => "it is called `seq`",
        b"dict" => "it is called `map`",
        b"tensor" => "the type of a tensor is that of its elements: float[2, 3]",
        lower => {
            let mut names: Vec<&str> =
                sardonyx_tensor::DataType::ALL.iter().map(|ty| ty.name()).collect();
            names.extend(TYPE_CONSTRUCTORS);
            let near = crate::words::nearest(lower, &names)?;
            return Some(format!("did you mean `{near}`?"));
        }
    };
    Some(called.to_string())
}

/// Returns advice that lists all types.
pub(super) fn advice_on_types() -> String {
    let mut names: Vec<&str> = sardonyx_tensor::DataType::ALL.iter().map(|ty| ty.name()).collect();
    names.extend(TYPE_CONSTRUCTORS);
    format!("the types are {}", crate::words::join_words(&names))
}

/// Brackets after an element type.
pub(super) enum Brackets {
    /// No brackets: a scalar.
    Missing,
    /// Empty brackets: any rank.
    Empty,
    /// Brackets with dimensions.
    Dimensions,
}

impl<'a> Parser<'_, 'a> {
    /// Whether a `?` at this position begins a type: an element type by number (`?77`), an absent
    /// one (`?_`), or a type without a variant (`?()`).
    pub(super) fn at_type_sign(&self) -> bool {
        self.cursor.byte() == b'?'
            && matches!(self.cursor.byte_at(1), b'0'..=b'9' | b'-' | b'_' | b'(')
    }

    /// Whether a type comes next.
    pub(super) fn at_type(&mut self) -> bool {
        match self.cursor.next() {
            b'?' => self.at_type_sign(),
            b'f' | b'd' | b'b' | b'i' | b'u' | b's' | b'c' | b'm' | b'o' => {
                self.cursor.peek_word().is_some_and(is_type_word)
            }
            _ => false,
        }
    }

    pub(super) fn parse_type_proto(&mut self) -> Parse<TypeProto> {
        let mut ty = TypeProto::default();
        self.parse_type_into(&mut ty)?;
        Ok(ty)
    }

    /// Parses a type into its destination: there is one type per value, and each is large.
    pub(super) fn parse_type_into(&mut self, ty: &mut TypeProto) -> Parse {
        let part = self.open(SyntaxKind::Type);
        let at = self.next_offset();
        let counted = self.build.count::<TypeProto>(at);
        self.check_built(counted)?;
        let Some(levels) = self.type_levels.checked_sub(1) else {
            let at = at as usize;
            self.cursor.pos = self.cursor.text.len();
            let message =
                format!("types are nested more than {} levels deep", sardonyx_model::TYPE_LEVELS);
            return self.fail(at..at + 1, message);
        };
        self.type_levels = levels;
        let kind = self.parse_type_kind(ty);
        self.type_levels += 1;
        kind?;
        if self.at_notes() {
            self.parse_type_notes(ty)?;
        }
        self.close(part);
        Ok(())
    }

    fn parse_type_kind(&mut self, ty: &mut TypeProto) -> Parse {
        self.cursor.next();
        if self.cursor.byte() == b'?' && self.cursor.byte_at(1) == b'(' {
            self.cursor.pos += 2;
            return self.expect(b')', "`)`");
        }
        let word = self.cursor.peek_word().unwrap_or_default();
        if let b"seq" | b"map" | b"optional" | b"opaque" | b"sparse_tensor" = word {
            ty.kind = Some(self.parse_constructed_type(word)?);
            return Ok(());
        }
        let elem_type = self.parse_element_type("a type")?;
        let tensor = ty.kind.insert(TypeKind::Tensor {
            elem_type,
            shape: None,
            unknown: Unknowns::default(),
        });
        match tensor {
            TypeKind::Tensor { shape, .. } => self.parse_shape(shape),
            _ => Ok(()),
        }
    }

    /// Parses a type that begins with `word` and continues in parentheses.
    fn parse_constructed_type(&mut self, word: &[u8]) -> Parse<TypeKind> {
        let start = self.cursor.pos;
        let constructor = |parser: &mut Self| {
            parser.cursor.pos = start + word.len();
            let what = format!("`(` after `{}`", String::from_utf8_lossy(word));
            parser.expect(b'(', &what)
        };
        let kind = match word {
            b"seq" => {
                constructor(self)?;
                let elem_type = self.parse_maybe_type()?;
                TypeKind::Sequence { elem_type, unknown: Unknowns::default() }
            }
            b"optional" => {
                constructor(self)?;
                let elem_type = self.parse_maybe_type()?;
                TypeKind::Optional { elem_type, unknown: Unknowns::default() }
            }
            b"map" => {
                constructor(self)?;
                let key_type =
                    self.parse_element_type("the type of the keys, an integer type or `string`")?;
                let value_type = if self.cursor.eat(b',') {
                    Some(Box::new(self.parse_type_proto()?))
                } else {
                    if self.cursor.next() != b')' {
                        return self.fail_expected("`,` and the type of the values");
                    }
                    None
                };
                TypeKind::Map { key_type, value_type, unknown: Unknowns::default() }
            }
            b"sparse_tensor" => {
                constructor(self)?;
                let elem_type = self.parse_element_type("an element type")?;
                let mut shape = None;
                self.parse_shape(&mut shape)?;
                TypeKind::SparseTensor { elem_type, shape, unknown: Unknowns::default() }
            }
            _ => {
                constructor(self)?;
                self.parse_opaque()?
            }
        };
        if !self.cursor.eat(b')') {
            let what = format!("`)` after what is in `{}(`", String::from_utf8_lossy(word));
            return match word {
                b"opaque" => {
                    self.fail_expected_with(&what, "it has a domain and a name, or a name")
                }
                _ => self.fail_expected(&what),
            };
        }
        Ok(kind)
    }

    /// Parses a type in parentheses, which may be empty.
    fn parse_maybe_type(&mut self) -> Parse<Option<Box<TypeProto>>> {
        if self.cursor.next() == b')' {
            return Ok(None);
        }
        Ok(Some(Box::new(self.parse_type_proto()?)))
    }

    /// Parses an element type: its name, `?77` for the number 77, or `?_` for none.
    pub(super) fn parse_element_type(&mut self, what: &str) -> Parse<Option<i32>> {
        self.cursor.next();
        let start = self.cursor.pos;
        if self.at_type_sign() && self.cursor.byte_at(1) != b'(' {
            self.cursor.pos += 1;
            if self.cursor.byte() == b'_' {
                self.cursor.pos += 1;
                return Ok(None);
            }
            return match i32::try_from(self.parse_integer("a number")?) {
                Ok(number) => Ok(Some(number)),
                Err(_) => {
                    let end = self.cursor.token_end();
                    self.fail(start..end, "numbers of element types have 32 bits")
                }
            };
        }
        let word = self.cursor.peek_word().unwrap_or_default();
        let Some(elem) = element_type(word) else {
            return match advice_on_type(word) {
                _ if word.is_empty() || is_type_word(word) => self.fail_expected(what),
                Some(help) => self.fail_expected_with(what, help),
                None => self.fail_expected_with(what, advice_on_types()),
            };
        };
        self.cursor.pos += word.len();
        Ok(Some(elem.number()))
    }

    /// Parses the optional brackets after an element type. No brackets mean a scalar, empty ones
    /// any rank.
    fn parse_shape(&mut self, into: &mut Option<ShapeProto>) -> Parse {
        let shape = into.insert(ShapeProto::default());
        let brackets = self.parse_dimensions(|_, _, dim| {
            shape.dims.push(dim);
            Ok(())
        })?;
        if matches!(brackets, Brackets::Empty) {
            *into = None;
        }
        Ok(())
    }

    /// Parses the dimensions in brackets and passes each with its offset to `each`.
    fn parse_dimensions(
        &mut self,
        mut each: impl FnMut(&mut Self, usize, DimProto) -> Parse,
    ) -> Parse<Brackets> {
        if self.cursor.next() != b'[' {
            return Ok(Brackets::Missing);
        }
        let start = self.cursor.pos;
        self.cursor.pos += 1;
        if self.cursor.eat(b']') {
            return Ok(Brackets::Empty);
        }
        // Does not use `list`: after a broken dimension it is not certain whether a comma belongs
        // to these brackets.
        loop {
            let at = self.next_offset();
            let counted = self.build.count::<(DimProto, sardonyx_model::Dim)>(at);
            self.check_built(counted)?;
            let dim = self.parse_dimension()?;
            each(self, at as usize, dim)?;
            match self.cursor.next() {
                b',' => self.cursor.pos += 1,
                b']' => {
                    self.cursor.pos += 1;
                    return Ok(Brackets::Dimensions);
                }
                _ => {
                    self.report_missing_separator(start, b']', |_| false);
                    return Err(Failed);
                }
            }
        }
    }

    /// Parses the dimensions of a tensor with values, which must be numbers.
    pub(super) fn parse_tensor_dimensions(&mut self) -> Parse<SmallVec<[i64; 4]>> {
        let start = self.cursor.pos;
        let mut dims = SmallVec::new();
        let brackets = self.parse_dimensions(|parser, start, dim| match dim.value {
            Some(DimValue::Value(number)) => {
                dims.push(number);
                Ok(())
            }
            _ => {
                let end = parser.cursor.token_end();
                parser.fail(start..end, SYMBOLIC_DIMENSION)
            }
        })?;
        if matches!(brackets, Brackets::Empty) {
            let end = self.cursor.token_end();
            return self.fail_with(start..end, NO_RANK, ADVICE_ON_RANK);
        }
        Ok(dims)
    }

    /// Returns the range of the first dimension of a type that is not a number.
    #[cold]
    pub(super) fn find_symbolic_dimension(&self, span: Range<usize>) -> Range<usize> {
        let mut probe = self.cursor.clone();
        probe.pos = span.start;
        probe.next();
        probe.eat_word();
        probe.eat(b'[');
        while probe.pos < span.end {
            let byte = probe.next();
            let start = probe.pos;
            match byte {
                b'"' if probe.eat_quoted().is_some() => return start..probe.pos,
                b'?' => return start..start + 1,
                _ if probe.eat_word().is_some() => return start..probe.pos,
                _ => probe.pos += 1,
            }
            // Digits belong to one token, but not a letter after them.
            while probe.byte().is_ascii_digit() {
                probe.pos += 1;
            }
        }
        span
    }

    fn parse_dimension(&mut self) -> Parse<DimProto> {
        let part = self.open(SyntaxKind::Dimension);
        let byte = self.cursor.next();
        let value = match byte {
            b'?' => {
                self.cursor.pos += 1;
                None
            }
            b'0'..=b'9' | b'-' => Some(DimValue::Value(self.parse_integer("a dimension")?)),
            b']' => {
                return self
                    .fail_expected_with("a dimension: a number, a name or `?`", NO_LAST_COMMA);
            }
            _ => {
                let name = self.parse_name("a dimension: a number, a name or `?`")?;
                if matches!(self.cursor.next(), b'+' | b'-' | b'*' | b'/') {
                    return self.fail_expected_with(
                        "`,` or `]`",
                        "a dimension that is computed stands in quotes: \"N + 1\"",
                    );
                }
                Some(DimValue::Param(self.intern_frequent(&name)?))
            }
        };
        let mut dim = DimProto { value, ..DimProto::default() };
        if self.at_notes() {
            self.parse_notes(DIMENSION_NOTES, |parser, key| {
                match key {
                    b"denotation" => dim.denotation = Some(parser.parse_text_symbol()?),
                    _ => dim.unknown = parser.parse_unknown()?,
                }
                Ok(())
            })?;
        }
        self.close(part);
        Ok(dim)
    }

    /// Parses `domain, name`, `name` or nothing.
    fn parse_opaque(&mut self) -> Parse<TypeKind> {
        let mut names: SmallVec<[Option<sardonyx_model::Symbol>; 2]> = SmallVec::new();
        if self.cursor.next() != b')' {
            let name = self.parse_dotted()?;
            names.push(self.intern_maybe(name)?);
            if self.cursor.eat(b',') {
                let name = self.parse_dotted()?;
                names.push(self.intern_maybe(name)?);
            }
        }
        let name = names.pop().flatten();
        Ok(TypeKind::Opaque { domain: names.pop().flatten(), name, unknown: Unknowns::default() })
    }

    /// Parses words joined by dots as one name, or a quoted name, or `?`.
    fn parse_dotted(&mut self) -> Parse<Option<Name<'a>>> {
        let first = self.parse_maybe_name("a name")?;
        let Some(first) = first else {
            return Ok(None);
        };
        if self.cursor.next() != b'.' {
            return Ok(Some(first));
        }
        let mut joined = first.bytes().to_vec();
        while self.cursor.eat(b'.') {
            joined.push(b'.');
            joined.extend_from_slice(self.parse_name("a name after the dot")?.bytes());
        }
        Ok(Some(Name::Own(joined)))
    }

    fn parse_type_notes(&mut self, ty: &mut TypeProto) -> Parse {
        self.parse_notes(TYPE_NOTES, |parser, key| {
            let at = parser.cursor.pos;
            match key {
                b"denotation" => ty.denotation = Some(parser.parse_text_symbol()?),
                b"unknown" => ty.unknown = parser.parse_unknown()?,
                _ => {
                    let found = parser.parse_unknown()?;
                    let place = match (&mut ty.kind, key) {
                        (
                            Some(
                                TypeKind::Tensor { shape: Some(shape), .. }
                                | TypeKind::SparseTensor { shape: Some(shape), .. },
                            ),
                            b"shape_unknown",
                        ) => &mut shape.unknown,
                        (
                            Some(
                                TypeKind::Tensor { unknown, .. }
                                | TypeKind::SparseTensor { unknown, .. }
                                | TypeKind::Sequence { unknown, .. }
                                | TypeKind::Map { unknown, .. }
                                | TypeKind::Optional { unknown, .. }
                                | TypeKind::Opaque { unknown, .. },
                            ),
                            b"kind_unknown",
                        ) => unknown,
                        _ => {
                            return parser.fail(at..at, "this type has no such part");
                        }
                    };
                    *place = found;
                }
            }
            Ok(())
        })
    }
}
