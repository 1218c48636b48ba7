//! Property: any text is a message or an error, and a message that was read is equal after a round
//! trip through its text format.

use sardonyx_formats::text_format;

use crate::texts::{self, Form, forms};

const FORMS: &[Form] = forms!(text_format, 1, choose_options);

fn choose_options(_: usize) -> text_format::WriteOptions {
    text_format::WriteOptions::default()
}

/// Reads the text or writes the message and checks the round trip.
pub(crate) fn check(input: &[u8]) {
    texts::check(FORMS, input);
}
