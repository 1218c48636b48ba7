//! What a text cannot say about a message.

/// What was left out because the form has no way to express it. Whoever converts a file should tell
/// its owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// How many fields outside the table, or with a wire type outside the table.
    pub unknown_fields: u64,
    /// The first [`MAX_LISTED`](Self::MAX_LISTED) of them.
    pub first: Vec<UnknownField>,
    /// How many NaN values whose sign or payload is not that of the usual NaN, as which they are
    /// read again.
    pub nan_payloads: u64,
}

/// A field that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// The message that has it, such as `graph.node[3]`. Empty at the outermost level.
    pub place: String,
    /// Its number.
    pub number: u32,
    /// Where it begins, in bytes from the start of the message.
    pub offset: u64,
}

impl LeftOut {
    /// This many unknown fields are listed; the others are only counted.
    pub const MAX_LISTED: usize = 20;

    /// Whether the text says everything.
    pub fn is_empty(&self) -> bool {
        self.unknown_fields == 0 && self.nan_payloads == 0
    }
}
