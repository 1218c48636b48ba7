//! Types and dimensions.

use sardonyx_model::{DimProto, DimValue, ShapeProto, TypeKind, TypeProto, Unknowns};
use smallvec::SmallVec;

use super::{Name, Parse, Parser};
use crate::tree::SyntaxKind;
use crate::words::{DIMENSION_NOTES, TYPE_NOTES, element_type, is_type_word};

/// What stands in brackets behind an element type.
pub(super) enum Brackets {
    /// None: a scalar.
    Missing,
    /// Empty ones: any rank.
    Empty,
    /// With dimensions.
    Dimensions,
}

impl<'a> Parser<'_, 'a> {
    /// Whether a `?` that stands here begins a type: that of an element type by number (`?77`), of none (`?_`), or of a
    /// type of no kind (`?()`).
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

    pub(super) fn type_proto(&mut self) -> Parse<TypeProto> {
        let part = self.open(SyntaxKind::Type);
        let at = self.offset();
        let counted = self.build.count::<TypeProto>(at);
        self.built(counted)?;
        let Some(levels) = self.type_levels.checked_sub(1) else {
            let at = at as usize;
            self.cursor.pos = self.cursor.text.len();
            let message = format!(
                "types are nested more than {} levels deep",
                sardonyx_model::TYPE_LEVELS
            );
            return self.fail(at..at + 1, message);
        };
        self.type_levels = levels;
        let kind = self.type_kind();
        self.type_levels += 1;
        let mut ty = TypeProto {
            kind: kind?,
            ..TypeProto::default()
        };
        if self.at_notes() {
            self.type_notes(&mut ty)?;
        }
        self.close(part);
        Ok(ty)
    }

    fn type_kind(&mut self) -> Parse<Option<TypeKind>> {
        self.cursor.next();
        let start = self.cursor.pos;
        if self.cursor.byte() == b'?' && self.cursor.byte_at(1) == b'(' {
            self.cursor.pos += 2;
            self.expect(b')', "`)`")?;
            return Ok(None);
        }
        let word = self.cursor.peek_word().unwrap_or_default();
        let constructor = |parser: &mut Self| {
            parser.cursor.pos = start + word.len();
            let what = format!("`(` behind `{}`", String::from_utf8_lossy(word));
            parser.expect(b'(', &what)
        };
        let kind = match word {
            b"seq" => {
                constructor(self)?;
                let elem_type = self.maybe_type()?;
                TypeKind::Sequence {
                    elem_type,
                    unknown: Unknowns::default(),
                }
            }
            b"optional" => {
                constructor(self)?;
                let elem_type = self.maybe_type()?;
                TypeKind::Optional {
                    elem_type,
                    unknown: Unknowns::default(),
                }
            }
            b"map" => {
                constructor(self)?;
                let key_type = self.element_type("the type of the keys")?;
                let value_type = if self.cursor.eat(b',') {
                    Some(Box::new(self.type_proto()?))
                } else {
                    None
                };
                TypeKind::Map {
                    key_type,
                    value_type,
                    unknown: Unknowns::default(),
                }
            }
            b"sparse_tensor" => {
                constructor(self)?;
                let elem_type = self.element_type("an element type")?;
                let shape = self.shape()?;
                TypeKind::SparseTensor {
                    elem_type,
                    shape,
                    unknown: Unknowns::default(),
                }
            }
            b"opaque" => {
                constructor(self)?;
                self.opaque()?
            }
            _ => {
                let elem_type = self.element_type("a type")?;
                let shape = self.shape()?;
                return Ok(Some(TypeKind::Tensor {
                    elem_type,
                    shape,
                    unknown: Unknowns::default(),
                }));
            }
        };
        self.expect(b')', "`)`")?;
        Ok(Some(kind))
    }

    /// A type in parentheses, or nothing.
    fn maybe_type(&mut self) -> Parse<Option<Box<TypeProto>>> {
        if self.cursor.next() == b')' {
            return Ok(None);
        }
        Ok(Some(Box::new(self.type_proto()?)))
    }

    /// An element type: its name, or `?77` for the number 77, or `?_` for none.
    pub(super) fn element_type(&mut self, what: &str) -> Parse<Option<i32>> {
        self.cursor.next();
        let start = self.cursor.pos;
        if self.at_type_sign() && self.cursor.byte_at(1) != b'(' {
            self.cursor.pos += 1;
            if self.cursor.byte() == b'_' {
                self.cursor.pos += 1;
                return Ok(None);
            }
            return match i32::try_from(self.integer("a number")?) {
                Ok(number) => Ok(Some(number)),
                Err(_) => {
                    let end = self.cursor.token_end();
                    self.fail(start..end, "numbers of element types have 32 bits")
                }
            };
        }
        let word = self.cursor.peek_word().unwrap_or_default();
        let Some(elem) = element_type(word) else {
            let names: Vec<&str> = sardonyx_tensor::DataType::ALL
                .iter()
                .map(|ty| ty.name())
                .collect();
            return match (word, crate::words::nearest(word, &names)) {
                (b"", _) => self.expected(what),
                // What other languages call them.
                (b"float32" | b"f32", _) => self.expected_with(what, "it is called `float`"),
                (b"float64" | b"f64", _) => self.expected_with(what, "it is called `double`"),
                (b"str", _) => self.expected_with(what, "it is called `string`"),
                (_, Some(near)) => self.expected_with(what, format!("did you mean `{near}`?")),
                _ => self.expected(what),
            };
        };
        self.cursor.pos += word.len();
        Ok(Some(elem.number()))
    }

    /// The brackets behind an element type, if there are any: none means a scalar, empty ones any rank.
    fn shape(&mut self) -> Parse<Option<ShapeProto>> {
        let mut shape = ShapeProto::default();
        let brackets = self.dimensions(|parser, dim| {
            shape.dims.push(dim);
            let _ = parser;
            Ok(())
        })?;
        Ok((!matches!(brackets, Brackets::Empty)).then_some(shape))
    }

    /// The dimensions in brackets, each given to `each`.
    fn dimensions(
        &mut self,
        mut each: impl FnMut(&mut Self, DimProto) -> Parse,
    ) -> Parse<Brackets> {
        if self.cursor.next() != b'[' {
            return Ok(Brackets::Missing);
        }
        let mut count = 0;
        self.list(b'[', b']', "`[`", |parser| {
            count += 1;
            let at = parser.offset();
            let counted = parser.build.count::<(DimProto, sardonyx_model::Dim)>(at);
            parser.built(counted)?;
            let dim = parser.dimension()?;
            each(parser, dim)
        })?;
        Ok(if count == 0 {
            Brackets::Empty
        } else {
            Brackets::Dimensions
        })
    }

    /// The dimensions of a tensor with values, which are numbers.
    pub(super) fn tensor_dimensions(&mut self) -> Parse<SmallVec<[i64; 4]>> {
        let start = self.cursor.pos;
        let mut dims = SmallVec::new();
        let brackets = self.dimensions(|parser, dim| match dim.value {
            Some(DimValue::Value(number)) => {
                dims.push(number);
                Ok(())
            }
            _ => {
                let end = parser.cursor.token_end();
                parser.fail(
                    end - 1..end,
                    "the dimensions of a tensor with values are numbers",
                )
            }
        })?;
        if matches!(brackets, Brackets::Empty) {
            let end = self.cursor.token_end();
            return self.fail_with(
                start..end,
                "a tensor with values has a rank",
                "leave the brackets out for a scalar",
            );
        }
        Ok(dims)
    }

    fn dimension(&mut self) -> Parse<DimProto> {
        let part = self.open(SyntaxKind::Dimension);
        let byte = self.cursor.next();
        let value = match byte {
            b'?' => {
                self.cursor.pos += 1;
                None
            }
            b'0'..=b'9' | b'-' => Some(DimValue::Value(self.integer("a dimension")?)),
            _ => {
                let name = self.name("a dimension: a number, a name or `?`")?;
                Some(DimValue::Param(self.symbol(&name)?))
            }
        };
        let mut dim = DimProto {
            value,
            ..DimProto::default()
        };
        if self.at_notes() {
            self.notes(DIMENSION_NOTES, |parser, key| {
                match key {
                    b"denotation" => dim.denotation = Some(parser.text_symbol()?),
                    _ => dim.unknown = parser.unknown()?,
                }
                Ok(())
            })?;
        }
        self.close(part);
        Ok(dim)
    }

    /// `domain, name`, `name` or nothing.
    fn opaque(&mut self) -> Parse<TypeKind> {
        let mut names: SmallVec<[Option<sardonyx_model::Symbol>; 2]> = SmallVec::new();
        while self.cursor.next() != b')' && names.len() < 2 {
            let name = self.dotted()?;
            names.push(self.maybe_symbol(name)?);
            if !self.cursor.eat(b',') {
                break;
            }
        }
        let name = names.pop().flatten();
        Ok(TypeKind::Opaque {
            domain: names.pop().flatten(),
            name,
            unknown: Unknowns::default(),
        })
    }

    /// Words joined by dots, as one name; or a name in quotes, or `?`.
    fn dotted(&mut self) -> Parse<Option<Name<'a>>> {
        let first = self.maybe_name("a name")?;
        let Some(first) = first else {
            return Ok(None);
        };
        if self.cursor.next() != b'.' {
            return Ok(Some(first));
        }
        let mut joined = first.bytes().to_vec();
        while self.cursor.eat(b'.') {
            joined.push(b'.');
            joined.extend_from_slice(self.name("a name behind the dot")?.bytes());
        }
        Ok(Some(Name::Own(joined)))
    }

    fn type_notes(&mut self, ty: &mut TypeProto) -> Parse {
        self.notes(TYPE_NOTES, |parser, key| {
            let at = parser.cursor.pos;
            match key {
                b"denotation" => ty.denotation = Some(parser.text_symbol()?),
                b"unknown" => ty.unknown = parser.unknown()?,
                _ => {
                    let found = parser.unknown()?;
                    let place = match (&mut ty.kind, key) {
                        (
                            Some(
                                TypeKind::Tensor {
                                    shape: Some(shape), ..
                                }
                                | TypeKind::SparseTensor {
                                    shape: Some(shape), ..
                                },
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
