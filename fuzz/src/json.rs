//! Property: any text is a message or an error, and a message that was read is equal after a round
//! trip through its JSON.

use sardonyx_formats::json;

use crate::texts::{self, Form, forms};

const FORMS: &[Form] = forms!(json, 2, choose_options);

/// Returns options that write characters outside ASCII as escape sequences or as they are.
fn choose_options(way: usize) -> json::WriteOptions {
    json::WriteOptions { ascii: way == 0, ..json::WriteOptions::default() }
}

/// Reads the text or writes the message and checks the round trip.
pub(crate) fn check(input: &[u8]) {
    texts::check(FORMS, input);
}
