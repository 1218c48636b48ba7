//! Checks that models survive printing and parsing, and that every part of the notation can be
//! parsed alone.

use std::fs;
use std::path::Path;

use sardonyx_model::Model;
use sardonyx_tensor::Buffer;
use sardonyx_text::{
    ParseOptions, PrintOptions, PrintPart, TextForm, TextPart, format, model_to_text, parse_model,
    parse_part, part_to_text,
};

/// Reads the seed models of the fuzzer: small ones, and one with every field.
fn models() -> Vec<(String, Model)> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/notation_roundtrip");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let model = Model::read(Buffer::from_vec(fs::read(&path).unwrap())).unwrap();
        (path.file_name().unwrap().to_string_lossy().into_owned(), model)
    };
    files.map(read).collect()
}

fn parse(text: &[u8]) -> Model {
    let parsed = parse_model(Buffer::from_vec(text.to_vec()), ParseOptions::default());
    match parsed {
        Ok(parsed) => parsed.model,
        Err(error) => panic!("{error}\n{}", String::from_utf8_lossy(text)),
    }
}

#[test]
fn models_come_back_from_their_text() {
    // TEXT-34+
    for (name, model) in models() {
        let (text, left_out) = model_to_text(&model, PrintOptions::default()).unwrap();
        assert!(left_out.is_empty(), "{name}: {left_out}");
        assert!(parse(&text).to_bytes() == model.to_bytes(), "{name}");
        let formatted = format(Buffer::from_vec(text.clone())).unwrap();
        assert!(formatted == text, "{name}: formatting changes it");
    }
}

#[test]
fn a_portable_text_says_what_it_leaves_out() {
    // TEXT-34-
    let models = models();
    let (_, everything) = models.iter().find(|(name, _)| name == "everything").unwrap();
    let portable = || PrintOptions { form: TextForm::Portable, ..PrintOptions::default() };
    let (text, left_out) = model_to_text(everything, portable()).unwrap();
    let kinds: Vec<&str> = left_out.kinds().iter().map(|kind| kind.what).collect();
    for kind in [
        "documentation",
        "metadata",
        "device configurations",
        "quantization annotations",
        "sparse initializers",
        "training steps",
        "unknown fields",
    ] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
    // A portable text that is parsed and printed again leaves nothing more out.
    let (again, left_out) = model_to_text(&parse(&text), portable()).unwrap();
    assert!(left_out.is_empty(), "{left_out}");
    assert!(again == text);
}

#[test]
fn every_part_is_read_alone_and_to_its_end() {
    // TEXT-39+-
    let rows = [
        (TextPart::Model, "<ir_version: 10> g (x) => (y) { y = A(x) }", "%"),
        (TextPart::Graph, "g (float[N] x) => (y) { y = A(x) }", "%"),
        (TextPart::Function, "f <a> (x) => (y) { y = A<a = @a>(x) }", "g () => () {} %"),
        (TextPart::Node, "[n] y = d.A:o <k = 1> (x)", "g () => () { % }"),
        (TextPart::Attribute, "k: ints = [1, 2]", "g () => () { y = A<%>() }"),
        (TextPart::Tensor, "float[2] {1, 2}", "g () => () { y = A<t = %>() }"),
        (TextPart::Type, "seq(float[N])", "g (% x) => () {}"),
    ];
    for (part, text, place) in rows {
        let read = |text: &str| {
            let text = Buffer::from_vec(text.as_bytes().to_vec());
            parse_part(part, text, ParseOptions::default())
        };
        // The part equals that message in a model that is parsed as a whole.
        let part = read(text).unwrap();
        let whole = parse(place.replace('%', text).as_bytes()).to_bytes();
        let is_there = whole.windows(part.len()).any(|window| window == part);
        assert!(part.len() > 4 && is_there, "{text}: {part:x?} in {whole:x?}");
        let error = read(&format!("{text} ]")).unwrap_err();
        assert!(error.to_string().contains("found `]`"), "{error}");
    }
}

#[test]
fn parts_are_printed_alone() {
    let model =
        parse(b"g (x) => (y) { y = A(x) [n] z = B(y) } <domain: \"d\"> f (x) => (y) { y = A(x) }");
    let nodes = &model.main_graph().unwrap().nodes;
    let print = |part| {
        let (text, _) = part_to_text(&model, part, PrintOptions::default()).unwrap();
        String::from_utf8(text).unwrap()
    };
    assert_eq!(print(PrintPart::Node(nodes[1])), "[n] z = \"\".B(y)\n");
    assert_eq!(
        print(PrintPart::Function(0)),
        "<\n  domain: \"d\"\n>\nf (x) => (y) {\n  y = \"\".A(x)\n}\n"
    );
    assert!(part_to_text(&model, PrintPart::Function(1), PrintOptions::default()).is_err());
}
