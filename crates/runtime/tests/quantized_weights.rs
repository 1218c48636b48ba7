//! Tests of weights in few bits: products read constant matrices as they are quantized, and results
//! are those of matrices that are dequantized first.

use sardonyx_model::NoExternalData;
use sardonyx_runtime::{Options, Precision, Session};
use sardonyx_tensor::{Buffer, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

use crate::both_ways::{Both, check, complete, inputs};

const SIZES: [&[(&str, usize)]; 4] = [&[("N", 1)], &[("N", 3)], &[("N", 40)], &[("N", 0)]];

/// Lists `count` integers of a type of `bits`.
fn list_codes(count: usize, bits: u32, signed: bool) -> String {
    let span = 1i64 << bits;
    let low = if signed { -span / 2 } else { 0 };
    let codes = (0..count as i64).map(|at| (low + (at * 89 + at / 7) % span).to_string());
    format!("raw {{{}}}", codes.collect::<Vec<_>>().join(", "))
}

/// Lists `count` scales.
fn list_scales(count: usize) -> String {
    let scales = (0..count).map(|at| (0.001 + 0.0001 * (at % 13) as f32).to_string());
    scales.collect::<Vec<_>>().join(", ")
}

/// Form of the weights of a graph.
struct Weights {
    elem: &'static str,
    bits: u32,
    signed: bool,
    dims: [usize; 2],
    scales: &'static str,
    attributes: &'static str,
    has_zeros: bool,
}

impl Weights {
    /// Makes a graph that multiplies 160 elements of `x` with the weights in `d`.
    fn graph(&self, product: &str) -> String {
        let Weights { elem, bits, signed, dims: [rows, cols], scales, attributes, has_zeros } =
            self;
        let count = match *scales {
            "" => 1,
            dims => dims.split(',').map(|size| size.trim().parse::<usize>().unwrap()).product(),
        };
        let dims = if scales.is_empty() { String::new() } else { format!("[{scales}]") };
        let zeros = if *has_zeros {
            format!(", {elem}{dims} z = {}", list_codes(count, *bits, *signed))
        } else {
            String::new()
        };
        let inputs = if *has_zeros { "w, s, z" } else { "w, s" };
        format!(
            "g (float[N, 160] x, float[N, 128] r, float[128] b) => (y) \
             <{elem}[{rows}, {cols}] w = {}, float{dims} s = {{{}}}{zeros}> \
             {{ d = DequantizeLinear {attributes} ({inputs}) {product} }}",
            list_codes(rows * cols, *bits, *signed),
            list_scales(count),
        )
    }
}

/// Checks that no step dequantizes, and the results.
#[track_caller]
fn check_packed(graph: &str, bits: u32) {
    let both = check(graph, &SIZES, 1e-5);
    let form = format!("packed B of {bits} bits");
    let listing = both.listing();
    assert!(!both.ops().contains(&"DequantizeLinear"), "{listing}");
    assert!(listing.contains(&form), "{listing}");
}

#[test]
fn matrices_in_all_forms() {
    let product = "p = MatMul (x, d) h = Add (p, b) y = Add (h, r)";
    for (elem, bits, signed) in
        [("int8", 8, true), ("uint8", 8, false), ("int4", 4, true), ("uint4", 4, false)]
    {
        for (scales, attributes, has_zeros) in [
            ("", "", false),
            ("", "", true),
            ("128", "<axis = 1>", true),
            ("128", "<axis = -1>", false),
            ("5, 128", "<axis = 0, block_size = 32>", true),
            ("3, 128", "<axis = -2, block_size = 64>", false),
        ] {
            let dims = [160, 128];
            let weights = Weights { elem, bits, signed, dims, scales, attributes, has_zeros };
            check_packed(&weights.graph(product), bits);
        }
    }
}

#[test]
fn transposes_in_all_forms() {
    for (scales, attributes, has_zeros) in [
        ("", "", true),
        ("128", "<axis = 0>", true),
        ("128, 5", "<axis = 1, block_size = 32>", true),
        ("128, 2", "<axis = 1, block_size = 128>", false),
    ] {
        for product in [
            "p = Gemm <transB = 1> (x, d) y = Relu (p)",
            "p = Gemm <transB = 1> (x, d, b) y = Add (p, r)",
        ] {
            let dims = [128, 160];
            let (elem, bits, signed) = ("int4", 4, true);
            let weights = Weights { elem, bits, signed, dims, scales, attributes, has_zeros };
            // C is an input of the graph, of which folding knows nothing.
            let both = check(&weights.graph(product), &SIZES, 1e-5);
            let is_left = product.contains("d, b");
            assert_eq!(
                both.listing().contains("packed B of 4 bits"),
                !is_left,
                "{}",
                both.listing()
            );
        }
    }
}

/// Checks scales that products have no form for: weights are dequantized ahead of time.
#[test]
fn other_scales_are_folded() {
    for (scales, attributes) in [
        ("160", "<axis = 0>"),
        ("160, 4", "<axis = 1, block_size = 32>"),
        ("80, 128", "<axis = 0, block_size = 2>"),
    ] {
        let weights = Weights {
            elem: "int8",
            bits: 8,
            signed: true,
            dims: [160, 128],
            scales,
            attributes,
            has_zeros: false,
        };
        let both: Both = check(&weights.graph("y = MatMul (x, d)"), &SIZES, 1e-5);
        assert!(!both.ops().contains(&"DequantizeLinear"), "{}", both.listing());
        assert!(!both.listing().contains("bits"), "{}", both.listing());
    }
}

/// Checks that one matrix is packed once for two products, and kept in floats for another reader.
#[test]
fn readers_share_weights() {
    let weights = Weights {
        elem: "int8",
        bits: 8,
        signed: true,
        dims: [160, 128],
        scales: "128",
        attributes: "",
        has_zeros: false,
    };
    check_packed(
        &weights.graph("p = MatMul (x, d) t = Tanh (x) q = MatMul (t, d) y = Add (p, q)"),
        8,
    );
    let both =
        check(&weights.graph("p = MatMul (x, d) q = ReduceSum (d) y = Add (p, q)"), &SIZES, 1e-5);
    assert!(!both.listing().contains("bits"), "{}", both.listing());
}

fn compile_with(text: &str, precision: Precision) -> Session {
    let bytes = Buffer::from(text.as_bytes().to_vec());
    let model = parse_model(bytes, ParseOptions::default()).unwrap().model;
    let mut options = Options::with_threads(1);
    options.precision = precision;
    Session::compile(&model, &NoExternalData, &options).unwrap()
}

fn floats(outputs: &[(String, Value)], name: &str) -> Vec<f32> {
    let (_, value) = outputs.iter().find(|(other, _)| other == name).unwrap();
    value.as_tensor().unwrap().to_vec::<f32>().unwrap()
}

/// Checks that fast products round inputs to 8 bits, but the smallest, and that errors are within
/// a 254th of the largest input times the magnitudes of the weights.
#[test]
fn fast_products_round_inputs_to_8_bits() {
    let weights = Weights {
        elem: "int4",
        bits: 4,
        signed: true,
        dims: [160, 128],
        scales: "5, 128",
        attributes: "<axis = 0, block_size = 32>",
        has_zeros: false,
    };
    let few: Vec<String> = (0..480).map(|at| (at * 7 % 255 - 127).to_string()).collect();
    let text = complete(&weights.graph(&format!(
        "p = MatMul (x, d) y = Add (p, b) w2 = Constant <value = int8[160, 3] {{{}}}> () \
         s2 = Constant <value = float {{0.01}}> () e = DequantizeLinear (w2, s2) z = MatMul (x, e)",
        few.join(", ")
    )));
    let text = text.replace("=> (y)", "=> (y, z)");
    let exact = compile_with(&text, Precision::Exact);
    let fast = compile_with(&text, Precision::Fast);
    for (session, count) in [(&exact, 0), (&fast, 1)] {
        let steps = session.steps();
        let in_bytes = steps.iter().filter(|step| step.kernel.contains("A in 8 bits"));
        assert_eq!(in_bytes.count(), count, "{steps:#?}");
    }
    for rows in [1, 40] {
        let given = inputs(&exact, &[("N", rows)], 3);
        let exact = exact.run(given.clone()).unwrap();
        let fast = fast.run(given).unwrap();
        let pairs = floats(&exact, "y").into_iter().zip(floats(&fast, "y"));
        let most = pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        // Inputs are at most 1, codes at most 8, and scales at most 0.0022.
        assert!(most > 0.0 && most < 160.0 / 254.0 * 8.0 * 0.0022, "{most}");
        assert_eq!(floats(&exact, "z"), floats(&fast, "z"));
    }
}

/// Checks look-ups in tables of few bits, and that a product with the same table shares its packed
/// form.
#[test]
fn tables_are_read_in_their_bits() {
    let sizes: [&[(&str, usize)]; 3] = [&[("N", 1)], &[("N", 7)], &[("N", 0)]];
    for (elem, bits, signed) in [("int8", 8, true), ("uint8", 8, false), ("int4", 4, true)] {
        for (scales, attributes, has_zeros) in [
            ("", "", true),
            ("128", "<axis = 0>", true),
            ("128", "<axis = -2>", false),
            ("128, 5", "<axis = 1, block_size = 32>", true),
            ("128, 2", "<axis = 1, block_size = 128>", false),
        ] {
            let dims = [128, 160];
            let weights = Weights { elem, bits, signed, dims, scales, attributes, has_zeros };
            for (product, form) in [
                ("y = Relu (t)", "bits in blocks of"),
                ("p = Gemm <transB = 1> (x, d) y = Relu (p)", "packed with a product"),
                ("q = Transpose (d) y = Relu (q)", ""),
            ] {
                let graph = weights.graph(&format!(
                    "n = Constant <value = int64 {{128}}> () m = Mod (i, n) \
                     t = Gather (d, m) {product}"
                ));
                let graph = graph.replace("=> (y)", "=> (t, y)").replace("g (", "g (int64[N] i, ");
                let both = check(&graph, &sizes, 1e-5);
                let listing = both.listing();
                assert!(!both.ops().contains(&"DequantizeLinear"), "{listing}");
                let is_found = both.fused.steps().iter().any(|step| {
                    step.op == "Gather"
                        && step.kernel.contains("bits")
                        && step.kernel.contains(form)
                });
                assert_eq!(is_found, !form.is_empty(), "{form}: {listing}");
                let packed = listing.contains("packed B of");
                assert_eq!(packed, form.starts_with("packed"), "{listing}");
                if packed {
                    let kept = both.fused.report().kept_bytes;
                    assert!(kept < 128 * 160 * bits as usize / 8, "{kept} bytes: {listing}");
                }
            }
        }
    }
}

#[test]
fn places_outside_of_a_table_are_refused() {
    let weights = Weights {
        elem: "int4",
        bits: 4,
        signed: true,
        dims: [128, 160],
        scales: "128",
        attributes: "<axis = 0>",
        has_zeros: false,
    };
    for product in
        ["y = Gather (d, i)", "t = Gather (d, i) p = Gemm <transB = 1> (t, d) y = Abs (p)"]
    {
        let graph = weights.graph(product).replace("g (", "g (int64[N] i, ");
        let both = Both::new(&graph);
        for index in [128i64, -129, i64::MIN] {
            let mut given = both.inputs(&[("N", 1)], 1);
            let tensor = Tensor::from_vec([1], vec![index]).unwrap();
            given[0].1 = Value::from(tensor);
            let error = both.fused.run(given).unwrap_err().to_string();
            let wanted = format!("index {index} is outside of a dimension of size 128");
            assert!(error.contains(&wanted), "{error}");
        }
    }
}
