//! Property: any text is a message or an error; a message that was read comes back from its JSON.

use sardonyx_formats::json;

use crate::texts::{self, Form, forms};

const FORMS: &[Form] = forms!(json, 2, options);

/// With other characters as escape sequences, and as they are.
fn options(way: usize) -> json::WriteOptions {
    json::WriteOptions { ascii: way == 0, ..json::WriteOptions::default() }
}

/// Reads the text, or writes the message, and goes back and forth.
pub(crate) fn check(input: &[u8]) {
    texts::check(FORMS, input);
}
