//! Syntax tree of a text, for editors and for the formatter.

use std::ops::Range;

/// Kind of a part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntaxKind {
    /// The whole text.
    Model,
    /// `<key: value, …>` of the model or a function.
    Header,
    /// A graph.
    Graph,
    /// A function.
    Function,
    /// An operator set with its version.
    OperatorSet,
    /// A key with a value.
    Pair,
    /// Name and type of a value, or a constant.
    ValueInfo,
    /// A parameter of a function.
    Parameter,
    /// A node.
    Node,
    /// The operator or function that a node calls, with domain and overload.
    Callee,
    /// An attribute.
    Attribute,
    /// A type.
    Type,
    /// A dimension.
    Dimension,
    /// A tensor with its values.
    Tensor,
    /// The values of a tensor, in braces or at another location.
    Values,
    /// A sparse tensor.
    SparseTensor,
    /// The name in a definition.
    Definition,
    /// The name of a value that is read.
    Reference,
    /// A number or a text.
    Literal,
    /// A message without a syntax of its own.
    Message,
    /// `@<key: value, …>`.
    Notes,
}

/// Parts of a text. Part 0 is the whole text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyntaxTree {
    parts: Vec<SyntaxPart>,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyntaxPart {
    /// Kind of the part.
    pub kind: SyntaxKind,
    /// Byte range in the text, without surrounding blanks.
    pub span: Range<usize>,
    /// Smallest enclosing part.
    pub parent: Option<usize>,
    /// Index of the next part that is not inside this one.
    pub end: usize,
}

impl SyntaxTree {
    /// Returns all parts in the order of the text, each before the parts inside it.
    pub fn parts(&self) -> &[SyntaxPart] {
        &self.parts
    }

    /// Iterates over the parts directly inside a part.
    pub fn children(&self, part: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.parts.get(part).map_or(0, |found| found.end);
        let mut next = part + 1;
        std::iter::from_fn(move || {
            let child = (next < end).then_some(next)?;
            next = self.parts[child].end;
            Some(child)
        })
    }

    /// Returns the smallest part that contains the byte at `offset`.
    pub fn at(&self, offset: usize) -> Option<usize> {
        let covers = |part: usize| {
            let span = &self.parts[part].span;
            span.start <= offset && offset < span.end
        };
        let mut found = (!self.parts.is_empty() && covers(0)).then_some(0)?;
        while let Some(child) = self.children(found).find(|child| covers(*child)) {
            found = child;
        }
        Some(found)
    }

    pub(crate) fn open(&mut self, kind: SyntaxKind, start: usize, parent: Option<usize>) -> usize {
        self.parts.push(SyntaxPart { kind, span: start..start, parent, end: 0 });
        self.parts.len() - 1
    }

    /// Closes a part; returns the enclosing one.
    pub(crate) fn close(&mut self, part: usize, end: usize) -> Option<usize> {
        let count = self.parts.len();
        let closed = &mut self.parts[part];
        closed.span.end = end.max(closed.span.start);
        closed.end = count;
        closed.parent
    }
}
