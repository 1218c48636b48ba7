//! A tree of spans: which part of a text is what. For editors and for the formatter.

use std::ops::Range;

/// What a part of a text is.
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
    /// The values of a tensor, in braces or wherever they lie.
    Values,
    /// A sparse tensor.
    SparseTensor,
    /// The name that something is given.
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

/// The parts of a text. Part 0 is the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyntaxTree {
    parts: Vec<SyntaxPart>,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyntaxPart {
    /// What it is.
    pub kind: SyntaxKind,
    /// Where it stands, in bytes from the start of the text, without blanks around it.
    pub span: Range<usize>,
    /// The smallest part around it.
    pub parent: Option<usize>,
    /// The first part after it that is not in it.
    pub end: usize,
}

impl SyntaxTree {
    /// All parts, each before those in it, in the order of the text.
    pub fn parts(&self) -> &[SyntaxPart] {
        &self.parts
    }

    /// The parts directly in one.
    pub fn children(&self, part: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.parts.get(part).map_or(0, |found| found.end);
        let mut next = part + 1;
        std::iter::from_fn(move || {
            let child = (next < end).then_some(next)?;
            next = self.parts[child].end;
            Some(child)
        })
    }

    /// The smallest part around a byte.
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

    /// Ends a part; gives the one around it.
    pub(crate) fn close(&mut self, part: usize, end: usize) -> Option<usize> {
        let count = self.parts.len();
        let closed = &mut self.parts[part];
        closed.span.end = end.max(closed.span.start);
        closed.end = count;
        closed.parent
    }
}
