//! The differences between the two styles of inference, each as a question with its reason.
//!
//! The walk is the same for both; where the reference implementation decides otherwise, the walk
//! asks one of these questions. Rules that it lacks or weakens are data: see
//! [`weaken`](super::reference::weaken).

use sardonyx_model::{Dim, Type};

use super::Style;

impl Style {
    pub(super) fn is_reference(self) -> bool {
        matches!(self, Style::Reference { .. })
    }

    fn is_algebra(self) -> bool {
        !self.is_reference()
    }

    /// Whether names that nothing defines are listed; the reference implementation passes over
    /// them.
    pub(super) fn lists_undefined_names(self) -> bool {
        self.is_algebra()
    }

    /// Whether the meanings of dimensions are followed through nodes.
    pub(super) fn follows_denotations(self) -> bool {
        self.is_algebra()
    }

    /// Whether nodes are visited after those that make what they read. The reference implementation
    /// visits them in the order of the file.
    pub(super) fn sorts_nodes(self) -> bool {
        self.is_algebra()
    }

    /// Whether a node that is given the same as one before may take that one's result. The
    /// reference implementation looks at how constants are stored, which is not compared.
    pub(super) fn reuses_results(self) -> bool {
        self.is_algebra()
    }

    /// Whether sparse constants are tensors to the nodes that read them. The reference
    /// implementation hands them on as they are stored.
    pub(super) fn sees_sparse_constants_whole(self) -> bool {
        self.is_algebra()
    }

    /// Whether sparse defaults of inputs are compared with the declarations of these.
    pub(super) fn compares_sparse_defaults(self) -> bool {
        self.is_algebra()
    }

    /// Whether `value_info` of a function holds in a call. The reference implementation does not
    /// read it, since functions take other types in every call.
    pub(super) fn reads_declarations_in_calls(self) -> bool {
        self.is_algebra()
    }

    /// Whether two declarations of one value are compared with each other.
    pub(super) fn compares_declarations(self) -> bool {
        self.is_algebra()
    }

    /// Whether declarations of elements that the standard does not define count as declarations,
    /// which contradict every other type.
    pub(super) fn notices_undefined_elements(self) -> bool {
        self.is_reference()
    }

    /// Whether what the file declares takes precedence over the type of a constant, or of what a
    /// node makes, where both fit.
    pub(super) fn prefers_declarations(self) -> bool {
        self.is_reference()
    }

    /// Whether the value of a constant that is an input as well stays unknown, since a caller may
    /// replace it by anything that the input allows.
    pub(super) fn lets_callers_replace_defaults(self) -> bool {
        self.is_algebra()
    }

    /// Whether open sizes of inputs get names, so that they can be followed.
    pub(super) fn names_open_inputs(self) -> bool {
        self.is_algebra()
    }

    /// Reads a size that a file declares as a number. Negative sizes mean "any" as a rule; the
    /// reference implementation compares them like others.
    pub(super) fn declared_number(self, size: i64) -> Dim {
        match self {
            Style::Algebra if size < 0 => Dim::Unknown,
            Style::Algebra | Style::Reference { .. } => Dim::Known(size),
        }
    }

    /// Reads a size that a file declares as a text, with `numbers` for symbols in it. The reference
    /// implementation takes every text as one name.
    pub(super) fn declared_text(self, text: &str, numbers: &[(String, i64)]) -> Dim {
        match self {
            Style::Algebra => Dim::parse(text).substitute(&|symbol| {
                let found = numbers.iter().find(|(name, _)| name == symbol);
                found.map(|(_, size)| Dim::Known(*size))
            }),
            Style::Reference { .. } if text.is_empty() => Dim::Unknown,
            Style::Reference { .. } => Dim::symbol(text),
        }
    }

    /// Whether an inferred size is one that nothing is known of. The reference implementation
    /// knows numbers and names alone.
    pub(super) fn leaves_open(self, dim: &Dim) -> bool {
        match dim {
            Dim::Unknown => true,
            Dim::Expr(_) => self.is_reference() && dim.as_symbol().is_none(),
            Dim::Known(_) => false,
        }
    }

    /// Whether open sizes in sequences and maps get names. One name means that all tensors in it
    /// are alike, which the reference implementation does not mind.
    pub(super) fn names_sizes_of_elements(self) -> bool {
        self.is_reference()
    }

    /// Whether equal sizes are learned from nodes and put in the place of each other.
    pub(super) fn learns_equalities(self) -> bool {
        self.is_algebra()
    }

    /// Whether the values that shapes are made of are followed through nodes other than constants.
    pub(super) fn follows_values(self) -> bool {
        matches!(self, Style::Algebra | Style::Reference { data_prop: true })
    }

    /// Whether reasons are noted for what stays open.
    pub(super) fn explains(self) -> bool {
        self.is_algebra()
    }

    /// Whether a model without imports has those of its time. Old models may lack them; the
    /// reference implementation then infers nothing.
    pub(super) fn assumes_imports(self) -> bool {
        self.is_algebra()
    }

    /// Whether operators beyond the standard's, which the registry adds, have rules.
    pub(super) fn knows_added_operators(self) -> bool {
        self.is_algebra()
    }

    /// Whether inputs of a call beyond those of the function are an error.
    pub(super) fn refuses_inputs_beyond(self) -> bool {
        self.is_algebra()
    }

    /// Whether outputs of a function beyond those of the call are an error. The reference
    /// implementation passes over them only where their types are unknown.
    pub(super) fn refuses_outputs_beyond(self) -> bool {
        self.is_reference()
    }

    /// Whether the result of a node counts although its operands are not what the operator takes.
    pub(super) fn keeps_results_of_misfits(self) -> bool {
        self.is_algebra()
    }

    /// Joins the `found` and the `declared` type of a value; `None` where they contradict each
    /// other.
    pub(super) fn join(self, found: &Type, declared: &Type) -> Option<Type> {
        if self.prefers_declarations() { declared.merge(found) } else { found.merge(declared) }
    }
}
