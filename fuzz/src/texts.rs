//! Shared checks of the two text forms of messages: from text to a message and back, over some
//! message types.
//!
//! The first byte of an input chooses the message type. Its highest bit chooses whether the rest is
//! text or a message.

use sardonyx_formats::{Error, LeftOut, Limits};

/// Bit that marks an input as a message instead of text.
pub(crate) const MESSAGE: u8 = 0x80;

/// Reader and writer of one message type.
pub(crate) struct Form {
    pub(crate) read: fn(&[u8], Limits) -> Result<Vec<u8>, Error>,
    /// Writer that takes the number of a way in which the form may be written.
    pub(crate) write: fn(&[u8], usize) -> Result<(Vec<u8>, LeftOut), Error>,
    /// Number of ways.
    pub(crate) ways: usize,
}

/// Reads the text or writes the message and checks the round trip.
pub(crate) fn check(forms: &[Form], input: &[u8]) {
    let Some((which, rest)) = input.split_first() else {
        return;
    };
    let form = &forms[(which & !MESSAGE) as usize % forms.len()];
    if which & MESSAGE == 0 {
        match (form.read)(rest, Limits::default()) {
            Ok(bytes) => check_canonical(form, &bytes),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        // A limit may refuse a text but not change its message.
        if let Ok(bytes) = (form.read)(rest, Limits { depth: 4 }) {
            let unlimited = (form.read)(rest, Limits::default());
            assert!(unlimited.is_ok_and(|unlimited| unlimited == bytes));
        }
        return;
    }
    match (form.write)(rest, 0) {
        Ok((text, _)) => {
            let bytes =
                (form.read)(&text, Limits::default()).expect("what was written can be read");
            check_canonical(form, &bytes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks the round trip of a message of the reader, which is in canonical order and so keeps its
/// bytes.
fn check_canonical(form: &Form, bytes: &[u8]) {
    for way in 0..form.ways {
        let (text, left_out) = (form.write)(bytes, way).expect("what was read can be written");
        assert_eq!(left_out.unknown_fields, 0, "{left_out:?}");
        let again = (form.read)(&text, Limits::default()).expect("what was written can be read");
        // A text can hold `-nan`, but protobuf writes every NaN as `nan`.
        if left_out.nan_payloads == 0 {
            assert!(again == bytes, "{}", String::from_utf8_lossy(&text));
        }
    }
}

/// Makes the list of [`Form`]s over the message types that are checked, as in `forms!(json, 2,
/// options)`.
macro_rules! forms {
    ($form:ident, $ways:expr, $options:expr) => {{
        use sardonyx_proto::{
            AttributeProto, GraphProto, ModelProto, NodeProto, SequenceProto, TensorProto,
            TypeProto,
        };
        macro_rules! of {
            ($message:ty) => {
                crate::texts::Form {
                    read: $form::read::<$message>,
                    write: |bytes, way| {
                        let mut text = Vec::new();
                        let left_out = $form::write::<$message>(bytes, $options(way), &mut text)?;
                        Ok((text, left_out))
                    },
                    ways: $ways,
                }
            };
        }
        &[
            of!(ModelProto),
            of!(GraphProto),
            of!(NodeProto),
            of!(AttributeProto),
            of!(TensorProto),
            of!(TypeProto),
            of!(SequenceProto),
        ]
    }};
}
pub(crate) use forms;
