//! `sardonyx graph`: pictures of models.

use crate::support::{Files, digits_model, sardonyx};

/// Returns a model of many equal layers as text.
fn deep(layers: usize) -> Vec<u8> {
    let mut nodes = "h0 = Cos (x) ".to_string();
    for layer in 0..layers {
        let from = format!("h{layer}");
        nodes += &format!(
            "[l{layer}_mul] a{layer} = Mul ({from}, w) [l{layer}_exp] b{layer} = Exp (a{layer})
             [l{layer}_abs] c{layer} = Abs (b{layer}) [l{layer}_add] h{} = Add (c{layer}, {from})\n",
            layer + 1
        );
    }
    format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
         deep (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ {nodes} y = Neg (h{layers}) }}"
    )
    .into_bytes()
}

#[test]
fn the_suffix_selects_the_format_of_a_picture() {
    let files = Files::new(&[]);
    let draw = |name: &str| {
        let path = files.path(name);
        let answer = sardonyx(&["graph", &digits_model(), "-o", &path]);
        assert_eq!(answer.stderr, format!("wrote {path}\n"));
        assert_eq!(answer.good(), "");
        String::from_utf8(files.read(name)).unwrap()
    };
    let svg = draw("digits.svg");
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    for words in
        [">Conv<", ">conv1<", ">image<", "conv1.weight: float[16, 1, 3, 3]", "→ float[N, 10]"]
    {
        assert!(svg.contains(words), "lacks {words}: {svg}");
    }
    let html = draw("digits.html");
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<svg xmlns="));
    for place in ["@SVG@", "@TITLE@", "@DETAILS@", "http://", "https://"] {
        let html = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!html.contains(place), "{place}");
    }
    let details = html.split_once("id=\"details\">").unwrap().1.split_once("</script>").unwrap().0;
    let details: serde_json::Value = serde_json::from_str(details).unwrap();
    assert_eq!(details.as_array().unwrap().len(), svg.matches("data-vertex=").count());
    assert_eq!(details[0][0], serde_json::json!(["operator", "Conv"]));
    let dot = draw("digits.dot");
    assert!(dot.starts_with("digraph ") && dot.contains("v0 -> v1"), "{dot}");
    assert_eq!(sardonyx(&["graph", &digits_model(), "-o", "-"]).good(), dot);
    sardonyx(&["graph", &digits_model(), "-o", &files.path("digits.png")])
        .fails_with(&["selects no format", ".svg"]);
    sardonyx(&["graph", &files.path("digits.svg"), "-o", "-"]).fails_with(&["digits.svg"]);
}

#[test]
fn repeated_layers_are_drawn_once() {
    let files = Files::new(&[("deep.onnxtxt", deep(30)), ("short.onnxtxt", deep(3))]);
    let boxes = |model: &str, more: &[&str]| {
        let text = files.run("graph", model, &[&["-o", "-"], more].concat()).good();
        (text.matches("[label=").count(), text.matches("× ").count())
    };
    // The four nodes of a layer, the nodes before and after the layers, the input and the output.
    assert_eq!(boxes("deep.onnxtxt", &[]), (8, 4));
    assert_eq!(boxes("deep.onnxtxt", &["--fold", "never"]), (124, 0));
    assert_eq!(boxes("short.onnxtxt", &[]), (16, 0));
    assert_eq!(boxes("short.onnxtxt", &["--fold", "always"]), (8, 4));
    let text = files.run("graph", "deep.onnxtxt", &["-o", "-"]).good();
    assert!(text.contains("Mul × 30\\nl0_mul"), "{text}");
}

#[test]
fn a_part_of_a_large_model_is_drawn_around_a_node() {
    let files = Files::new(&[("deep.onnxtxt", deep(120))]);
    let whole = files.run("graph", "deep.onnxtxt", &["-o", "-", "--fold", "never"]);
    whole.fails_with(&["484 boxes", "the maximum is 400", "--around"]);
    let around = |node: &str, depth: &str| {
        let args = ["-o", "-", "--around", node, "--depth", depth];
        files.run("graph", "deep.onnxtxt", &args)
    };
    let text = around("l7_exp", "1").good();
    for words in ["Mul\\nl7_mul", "Exp\\nl7_exp", "Abs\\nl7_abs", "… h7", "… 1 reader"] {
        assert!(text.contains(words), "lacks {words}: {text}");
    }
    assert_eq!(text.matches("[label=").count(), 5);
    // A node is also found by an output, and by its position.
    assert_eq!(around("b7", "1").good(), text);
    assert_eq!(around("30", "1").good(), text);
    around("l7_ex", "1").fails_with(&["the main graph has no node or value 'l7_ex'", "'l7_exp'"]);
    around("l7_exp", "1000").fails_with(&["boxes", "lower --depth"]);
}

/// Checks that models of any size are folded into at most 400 boxes: by the names of nodes, by
/// their order, and with all inputs or outputs in one box.
#[test]
fn large_models_are_folded_until_they_fit() {
    // A sequence of operators in which hardly any part repeats.
    let operator = |at: usize| {
        ["Neg", "Exp", "Abs", "Relu", "Tanh"]
            [((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 97 % 5]
    };
    let chain = |count: usize, name: &dyn Fn(usize) -> String| {
        let mut text =
            "<ir_version: 10, opset_import: [\"\": 21]>\ng (float[2] v0) => (float[2] y) {"
                .to_string();
        for at in 0..count {
            let (name, operator) = (name(at), operator(at));
            text += &format!("[\"{name}\"] v{} = {operator} (v{at})\n", at + 1);
        }
        (text + &format!("y = Identity (v{count}) }}")).into_bytes()
    };
    let scoped = |at: usize| format!("/body/stage.{}/block.{}/op{at}", at / 300, at / 10);
    let ends: String = (0..900).map(|at| format!("o{at} = {} (i{at})\n", operator(at))).collect();
    let list = |name: &str| (0..900).map(|at| format!("float[2] {name}{at}")).collect::<Vec<_>>();
    let wide = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>\ng ({}) => ({}) {{ {ends} }}",
        list("i").join(", "),
        list("o").join(", ")
    );
    let files = Files::new(&[
        ("scoped.onnxtxt", chain(1200, &scoped)),
        ("plain.onnxtxt", chain(1500, &|at| format!("n{at}"))),
        ("wide.onnxtxt", wide.into_bytes()),
    ]);
    let run = |model: &str| {
        let answer = files.run("graph", model, &["-o", "-"]);
        assert!(answer.stderr.contains("nodes share boxes"), "{model}: {}", answer.stderr);
        let text = answer.good();
        let boxes = text.matches("[label=").count();
        assert!((40..=400).contains(&boxes), "{model}: {boxes}");
        text
    };
    let text = run("scoped.onnxtxt");
    assert!(text.contains("nodes\\n/body/stage.3/block.119"), "{text}");
    let text = run("plain.onnxtxt");
    // Each box has an edge to the next one, except between repetitions.
    assert!(text.matches(" -> ").count() + 40 > text.matches("[label=").count(), "{text}");
    let text = run("wide.onnxtxt");
    assert!(text.contains(" inputs") && text.contains(" outputs"), "{text}");
    for form in ["picture.svg", "picture.html"] {
        files.run("graph", "plain.onnxtxt", &["-o", &files.path(form)]).good();
    }
    files
        .run("graph", "plain.onnxtxt", &["-o", "-", "--fold", "never"])
        .fails_with(&["the maximum is 400"]);
}

/// Checks that names are escaped in SVG, HTML and DOT.
#[test]
fn names_in_pictures_are_escaped() {
    let name = "</script><img src=x onerror=alert(1)>&'";
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
         \"{name}\" (float[2] \"{name}\") => (float[2] y) {{ [\"{name}\"] y = Relu (\"{name}\") }}"
    );
    let files = Files::new(&[("odd.onnxtxt", text.into())]);
    for form in ["odd.svg", "odd.html", "odd.dot"] {
        files.run("graph", "odd.onnxtxt", &["-o", &files.path(form)]).good();
        let text = String::from_utf8(files.read(form)).unwrap();
        assert!(form.ends_with("dot") || !text.contains("<img"), "{text}");
    }
    let html = String::from_utf8(files.read("odd.html")).unwrap();
    assert_eq!(html.matches("</script>").count(), 2);
    let dot = String::from_utf8(files.read("odd.dot")).unwrap();
    assert!(dot.contains(name), "{dot}");
}
