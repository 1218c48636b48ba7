//! Parts of a message that a text cannot express.

/// Parts of a message that were left out because the form cannot express them. A converter of files
/// should report them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of fields outside the table, or with a wire type outside the table.
    pub unknown_fields: u64,
    /// First [`MAX_LISTED`](Self::MAX_LISTED) of the unknown fields.
    pub first: Vec<UnknownField>,
    /// Number of NaN values whose sign or payload is not that of the default NaN, which readers
    /// return for them.
    pub nan_payloads: u64,
}

/// Field that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// Path of its message, such as `graph.node[3]`. Empty at the outermost level.
    pub place: String,
    /// Number of the field.
    pub number: u32,
    /// Offset in bytes from the start of the message.
    pub offset: u64,
}

impl LeftOut {
    /// Maximum number of unknown fields that are listed; further ones are only counted.
    pub const MAX_LISTED: usize = 20;

    /// Whether the text expresses the whole message.
    pub fn is_empty(&self) -> bool {
        self.unknown_fields == 0 && self.nan_payloads == 0
    }
}
