//! Property: any text is a message or an error; a message that was read comes back from its text
//! format.

use sardonyx_formats::text_format;

use crate::texts::{self, Form, forms};

const FORMS: &[Form] = forms!(text_format, 1, options);

fn options(_: usize) -> text_format::WriteOptions {
    text_format::WriteOptions::default()
}

/// Reads the text, or writes the message, and goes back and forth.
pub(crate) fn check(input: &[u8]) {
    texts::check(FORMS, input);
}
