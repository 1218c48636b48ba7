//! Checks malicious texts: unbounded nesting, a hundred megabytes of one token, bytes that are not
//! text. Each gives an error or a result, quickly and with little memory. (TEXT-36-)

use sardonyx_tensor::Buffer;
use sardonyx_text::{
    ParseOptions, PrintOptions, TextPart, format, model_to_text, parse_model, parse_part,
    syntax_tree,
};

/// Reads a text in every possible way, on a stack of the usual size of a thread's.
fn survives(text: Vec<u8>) -> Result<(), String> {
    let read = move || {
        let text = Buffer::from_vec(text);
        syntax_tree(&text);
        let formatted = format(text.clone());
        match parse_model(text, ParseOptions::default()) {
            Ok(parsed) => {
                formatted.unwrap();
                model_to_text(&parsed.model, PrintOptions::default()).unwrap();
                Ok(())
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.len() < 100_000, "{} bytes of errors", error.len());
                Err(error)
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(read).unwrap().join().expect("no panic")
}

/// Builds a model around a node.
fn model(inside: &str) -> Vec<u8> {
    format!("<ir_version: 10, opset_import: [\"\": 21]> g (float x) => (y) {{ {inside} }}").into()
}

const DEEP: usize = 100_000;

#[test]
fn nesting_has_an_end() {
    let nested = |open: &str, inside: &str, close: &str| {
        [&open.repeat(DEEP), inside, &close.repeat(DEEP)].concat()
    };
    let rows = [
        ("types", model(&format!("y = A<t = {}>(x)", nested("seq(", "float", ")")))),
        ("types that nothing closes", model(&"y = A<t = seq(".repeat(DEEP))),
        ("graphs", model(&nested("y = If<g = h () => () {", "", "}>(x)"))),
        ("graphs that nothing closes", model(&"y = If<g = h () => () {".repeat(DEEP))),
        ("lists", model(&format!("y = A<a = {}>(x)", nested("[", "1", "]")))),
        ("parentheses", model(&nested("(", "", ")"))),
        ("braces", model(&nested("{", "", "}"))),
        ("brackets", model(&nested("<", "", ">"))),
        ("notes", model(&format!("y = A(x) {}", nested("@<unknown: [", "", "]>")))),
        (
            "messages",
            model(&format!(
                "y = A(x) @<device_configurations: [{}]>",
                nested("{sharding_spec: [", "", "]}")
            )),
        ),
        ("headers", "<".repeat(DEEP).into()),
        ("quotes", "\"".repeat(2 * DEEP + 1).into()),
        ("references", model(&format!("y = A<a = {}b>(x)", "@".repeat(DEEP)))),
        ("attributes", model(&"y = A<a = ".repeat(DEEP))),
    ];
    for (what, text) in rows {
        assert!(survives(text).is_err(), "{what}");
    }
}

#[test]
fn text_may_nest_as_deep_as_a_file() {
    let graphs = 332;
    let open = "y = If<g: graph = h () => () {";
    let inside = [&open.repeat(graphs), "", &"}>(x)".repeat(graphs)].concat();
    survives(model(&inside)).unwrap();
    let types = sardonyx_model::TYPE_LEVELS as usize - 1;
    let ty = [&"seq(".repeat(types), "float", &")".repeat(types)].concat();
    survives(model(&format!("y = A<t: type_proto = {ty}>(x)"))).unwrap();
}

#[test]
fn a_hundred_megabytes_are_not_too_much() {
    let long = |unit: &str, bytes: usize| unit.repeat(bytes / unit.len());
    let literal = |values: String| model(&format!("y = A<v = float[3] {{{values}}}>(x)"));
    let rows = [
        ("a number", literal(long("1", 100 << 20)), false),
        ("fraction", literal(format!("0.{}", long("1", 8 << 20))), false),
        ("exponent", literal(format!("1e{}", long("9", 8 << 20))), false),
        ("numbers", literal(long("1,", 8 << 20)), false),
        ("blanks", literal(long(" ", 8 << 20)), true),
        ("commas", literal(long(",", 8 << 20)), false),
        ("a name", model(&format!("y = A({})", long("n", 8 << 20))), true),
        ("a text", model(&format!("y = A<s = \"{}\">(x)", long("s", 100 << 20))), true),
        ("escapes", model(&format!("y = A<s = \"{}\">(x)", long("\\\\", 8 << 20))), true),
        ("hexadecimal", model(&format!("y = A<s = x\"{}\">(x)", long("00", 8 << 20))), true),
        ("a comment", model(&format!("#{}\n y = A(x)", long("c", 8 << 20))), true),
        ("comments", model(&format!("{} y = A(x)", long("#\n", 4 << 20))), true),
        ("an unknown key", format!("<{}: 1>", long("k", 8 << 20)).into(), false),
        ("one line of errors", model(&long("; ", 2 << 20)), false),
        ("lines of errors", model(&long(";\n", 2 << 20)), false),
        ("broken nodes", model(&long("y = \n", 2 << 20)), false),
        ("dimensions", model(&format!("y = A<t = float[{}1]>(x)", long("1,", 2 << 20))), false),
    ];
    for (what, text, fine) in rows {
        let result = survives(text);
        assert_eq!(result.is_ok(), fine, "{what}: {:?}", result.err());
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_or_kept() {
    // TEXT-25, TEXT-26
    let rows: [(&[u8], bool); 8] = [
        (b"\"\xff\xfe\"", true),
        (b"\"\0\"", true),
        (b"\0", false),
        (b"\xff", false),
        (b"\xc3\x28", false),
        ("\u{e9}".as_bytes(), false),
        ("\"\u{202e}\"".as_bytes(), true),
        (b"x\"f\"", false),
    ];
    for (bytes, fine) in rows {
        let text = [&b"g (x) => (y) { y = A("[..], bytes, b") }"].concat();
        assert_eq!(survives(text.clone()).is_ok(), fine, "{bytes:?}");
        if fine {
            let read = parse_model(Buffer::from_vec(text), ParseOptions::default()).unwrap();
            let (text, _) = model_to_text(&read.model, PrintOptions::default()).unwrap();
            let text = String::from_utf8(text).expect("the full form is UTF-8");
            assert!(!text.contains(['\0', '\u{202e}']));
            let again = parse_model(Buffer::from_vec(text.into()), ParseOptions::default());
            assert_eq!(again.unwrap().model.to_bytes(), read.model.to_bytes());
        }
    }
    for text in [&b""[..], b"\0", b"\xff\xfe<\0", b"#", b"\xef\xbb\xbf", b"?", b"@<>", b"<>"] {
        let _ = survives(text.to_vec());
        for part in
            [TextPart::Graph, TextPart::Node, TextPart::Type, TextPart::Tensor, TextPart::Attribute]
        {
            assert!(
                parse_part(part, Buffer::from_vec(text.to_vec()), ParseOptions::default()).is_err()
            );
        }
    }
}

#[test]
fn structure_is_bounded() {
    // Two bytes become a node of more than a hundred.
    let text = format!("g () => () {{ {} }}", "=a()".repeat(4 << 20));
    let error = survives(text.into_bytes()).unwrap_err();
    assert!(error.contains("memory"), "{error}");
}
