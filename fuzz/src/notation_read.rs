//! Property: any text is a model or a list of errors; a model that was read is equal after a round
//! trip through its text, and formatting keeps the meaning of a text.

use sardonyx_model::{ExternalData, Model, ReadLimits};
use sardonyx_tensor::Buffer;
use sardonyx_text::{
    ParseOptions, PrintOptions, TextForm, TextPart, format, model_to_text, parse_model, parse_part,
    syntax_tree,
};

const PARTS: [TextPart; 7] = [
    TextPart::Model,
    TextPart::Graph,
    TextPart::Function,
    TextPart::Node,
    TextPart::Attribute,
    TextPart::Tensor,
    TextPart::Type,
];

/// Reads the text as the part that the first byte chooses. Text of a model is also printed and
/// formatted.
pub(crate) fn check(input: &[u8]) {
    let Some((selector, text)) = input.split_first() else {
        return;
    };
    let text = Buffer::from_vec(text.to_vec());
    let (tree, found) = syntax_tree(&text);
    for part in tree.parts() {
        assert!(part.span.end <= text.len() && part.span.start <= part.span.end);
    }
    let part = PARTS[usize::from(*selector) % PARTS.len()];
    match parse_part(part, text.clone(), ParseOptions::default()) {
        Ok(_) => {}
        Err(error) => {
            assert!(!error.diagnostics().is_empty());
            for diagnostic in error.diagnostics() {
                assert!(diagnostic.span.end <= text.len(), "{diagnostic:?}");
                assert!(error.position(diagnostic).line >= 1);
            }
            assert!(error.to_string().len() < 200 * 2000, "an error is for a screen");
        }
    }
    let small = ParseOptions {
        limits: ReadLimits { depth: 24, memory: 6_000, expansion: 0 },
        ..ParseOptions::default()
    };
    let under_limits = parse_model(text.clone(), small);
    let Ok(parsed) = parse_model(text.clone(), ParseOptions::default()) else {
        assert!(under_limits.is_err(), "limits made it readable");
        // A text without an error in the syntax tree fails only if a data file is missing.
        let with_files = ParseOptions { external: &AnyFile, ..ParseOptions::default() };
        assert!(!found.is_empty() || parse_model(text, with_files).is_ok());
        return;
    };
    assert_round_trip(&parsed.model);
    let formatted = format(text).expect("what can be read can be formatted");
    let again = format(Buffer::from_vec(formatted.clone())).expect("a formatted text can be read");
    assert_equal_text(&formatted, &again, "formatting twice");
    let meant = parse(formatted.clone());
    assert!(
        meant.to_bytes() == parsed.model.to_bytes(),
        "formatting changed the meaning of\n{}",
        to_text(&formatted)
    );
}

/// Data files of which each exists and is empty.
struct AnyFile;

impl ExternalData for AnyFile {
    fn load(&self, _: &str, _: u64, _: Option<u64>) -> Result<Buffer, String> {
        Ok(Buffer::empty())
    }
}

/// Asserts that a model is equal after a round trip through its text.
pub(crate) fn assert_round_trip(model: &Model) {
    let (text, left_out) = model_to_text(model, PrintOptions::default()).expect("into memory");
    assert!(left_out.is_empty(), "{left_out}");
    let again = parse(text.clone());
    assert!(
        again.to_bytes() == model.to_bytes(),
        "the model is another one after\n{}",
        to_text(&text)
    );
    let formatted = format(Buffer::from_vec(text.clone())).expect("it was read");
    assert_equal_text(&text, &formatted, "formatting what was printed");
    let portable = PrintOptions { form: TextForm::Portable, ..PrintOptions::default() };
    let (portable, _) = model_to_text(model, portable).expect("into memory");
    // A portable text leaves out what the reference cannot represent, but the rest can be read.
    parse(portable);
}

/// Asserts that two texts are equal. Shows the first line that differs otherwise.
fn assert_equal_text(before: &[u8], after: &[u8], step: &str) {
    let (before, after) = (to_text(before), to_text(after));
    let mut lines = before.lines().zip(after.lines()).enumerate();
    if let Some((number, (before, after))) = lines.find(|(_, (before, after))| before != after) {
        panic!("{step} changes line {}:\n{before}\n{after}", number + 1);
    }
    assert_eq!(before.len(), after.len(), "{step} changes the end");
}

fn parse(text: Vec<u8>) -> Model {
    match parse_model(Buffer::from_vec(text.clone()), ParseOptions::default()) {
        Ok(parsed) => parsed.model,
        Err(error) => panic!("{error}\nin\n{}", to_text(&text)),
    }
}

fn to_text(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
