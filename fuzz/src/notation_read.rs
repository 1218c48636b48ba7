//! Property: any text is a model or a list of errors; a model that was read comes back from its
//! text, and formatting changes the look of a text only.

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

/// Reads the text as what the first byte says, and as a model also prints and formats it.
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
        // Who looks at a text for an editor does not miss the files that it names.
        let with_files = ParseOptions { external: &AnyFile, ..ParseOptions::default() };
        assert!(!found.is_empty() || parse_model(text, with_files).is_ok());
        return;
    };
    assert_comes_back(&parsed.model);
    let formatted = format(text).expect("what can be read can be formatted");
    let again = format(Buffer::from_vec(formatted.clone())).expect("a formatted text can be read");
    assert_same(&formatted, &again, "formatting twice");
    let meant = parse(formatted.clone());
    assert!(
        meant.to_bytes() == parsed.model.to_bytes(),
        "formatting changed the meaning of\n{}",
        shown(&formatted)
    );
}

/// Every file is there, and has nothing in it.
struct AnyFile;

impl ExternalData for AnyFile {
    fn load(&self, _: &str, _: u64, _: Option<u64>) -> Result<Buffer, String> {
        Ok(Buffer::empty())
    }
}

/// A model is the same after it was printed and read.
pub(crate) fn assert_comes_back(model: &Model) {
    let (text, left_out) = model_to_text(model, PrintOptions::default()).expect("into memory");
    assert!(left_out.is_empty(), "{left_out}");
    let again = parse(text.clone());
    assert!(
        again.to_bytes() == model.to_bytes(),
        "the model is another one after\n{}",
        shown(&text)
    );
    let formatted = format(Buffer::from_vec(text.clone())).expect("it was read");
    assert_same(&text, &formatted, "formatting what was printed");
    let portable = PrintOptions { form: TextForm::Portable, ..PrintOptions::default() };
    let (portable, _) = model_to_text(model, portable).expect("into memory");
    // The reference cannot hold everything that a portable text leaves out, but what is there can
    // be read.
    parse(portable);
}

/// Two texts are the same; otherwise says in which line they are not.
fn assert_same(before: &[u8], after: &[u8], what: &str) {
    let (before, after) = (shown(before), shown(after));
    let mut lines = before.lines().zip(after.lines()).enumerate();
    if let Some((number, (before, after))) = lines.find(|(_, (before, after))| before != after) {
        panic!("{what} changes line {}:\n{before}\n{after}", number + 1);
    }
    assert_eq!(before.len(), after.len(), "{what} changes the end");
}

fn parse(text: Vec<u8>) -> Model {
    match parse_model(Buffer::from_vec(text.clone()), ParseOptions::default()) {
        Ok(parsed) => parsed.model,
        Err(error) => panic!("{error}\nin\n{}", shown(&text)),
    }
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
