//! Edits that preserve nodes, and the rules that each can break.

use crate::codes::{self, CODES};
use crate::finding::Code;
use crate::strip::StripOptions;

/// Change of a model that preserves its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Edit {
    /// The declared version of an operator set changes, and so the operators of nodes.
    OperatorSets,
    /// The version of the file format changes.
    IrVersion,
    /// The metadata of the model changes.
    Metadata,
    /// Initializers without a reader are removed.
    UnusedInitializers,
    /// Training information is removed.
    Training,
    /// Texts without a reference are removed: documentation, names of nodes, metadata.
    Texts,
    /// Types of intermediate values are removed.
    Types,
}

/// Rules that depend on the IR version.
const OF_IR_VERSION: &[&Code] = &[
    &codes::NO_IR_VERSION,
    &codes::NEWER_IR_VERSION,
    &codes::NO_OPSET_IMPORT,
    &codes::OPSET_IMPORT_TOO_EARLY,
    &codes::OPSET_NOT_IMPORTED,
    &codes::INITIALIZER_NOT_INPUT,
    &codes::INITIALIZED_SUBGRAPH_INPUT,
    &codes::PASSED_CONSTANT_INPUT,
    &codes::SUBGRAPH_INPUTS,
    &codes::UNTYPED_ATTRIBUTE,
    &codes::UNDEFINED_VALUE,
    &codes::UNDEFINED_OUTPUT,
    // Readers of older versions ignore functions.
    &codes::TOO_MANY_FUNCTIONS,
    &codes::NAMELESS_FUNCTION,
    &codes::DUPLICATE_FUNCTION,
    &codes::RECURSIVE_FUNCTION,
    &codes::FUNCTION_OPSET_MISMATCH,
    &codes::DUPLICATE_FUNCTION_ATTRIBUTE,
    &codes::ATTRIBUTE_WITH_AND_WITHOUT_DEFAULT,
    &codes::UNDEFINED_FUNCTION_OUTPUT,
    &codes::UNKNOWN_OVERLOAD,
    &codes::CALL_ARGUMENTS,
    &codes::CALL_WITHOUT_INPUT,
];

/// Rules about keys of metadata.
const OF_METADATA: &[&Code] = &[&codes::DUPLICATE_METADATA];

/// Rules about names that become undefined when an initializer is removed.
const OF_INITIALIZERS: &[&Code] = &[
    &codes::UNDEFINED_VALUE,
    &codes::UNDEFINED_OUTPUT,
    &codes::BINDING_TARGET,
    &codes::BINDING_SOURCE,
];

impl Edit {
    /// Returns the edits of stripping a model.
    pub fn of_strip(options: &StripOptions) -> Vec<Edit> {
        let edits = [
            (Edit::Texts, options.docs || options.names || options.metadata),
            (Edit::UnusedInitializers, options.unused_initializers),
            (Edit::Training, options.training),
            (Edit::Types, options.inferred_types),
        ];
        edits.into_iter().filter_map(|(edit, is_made)| is_made.then_some(edit)).collect()
    }

    /// Whether nodes may call other operators afterwards, so that all rules, types and shapes are
    /// checked.
    pub fn changes_operators(self) -> bool {
        self == Edit::OperatorSets
    }

    /// Whether the edit can only break rules about the header, or none.
    pub(crate) fn is_of_header(self) -> bool {
        self == Edit::Metadata || self.rules().is_empty()
    }

    /// Returns the rules that the edit can break, unless it [changes
    /// operators](Edit::changes_operators).
    pub fn rules(self) -> &'static [&'static Code] {
        match self {
            Edit::OperatorSets => CODES,
            Edit::IrVersion => OF_IR_VERSION,
            Edit::Metadata => OF_METADATA,
            Edit::UnusedInitializers => OF_INITIALIZERS,
            Edit::Training | Edit::Texts | Edit::Types => &[],
        }
    }
}
