//! Checks that inference with a symbol for every size agrees with inference with numbers for every
//! value, under the conditions that the first lists.

use std::collections::HashMap;
use std::fs;

use hashbrown::HashSet;
use sardonyx_model::{Dim, Id, Model, Type, ValueId};
use sardonyx_ops::{Demand, Known, Registry};
use sardonyx_passes::{InferOptions, Inference, Resolved, infer, resolve};
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_model};

/// Outcomes of inferring a model both ways, for several sizes.
#[derive(Debug, Default)]
struct Tally {
    /// Number of sizes for which the conditions hold.
    alike: usize,
    /// Number of sizes for which one does not, or a tensor is empty.
    refused: usize,
    /// Number of values for which numbers determine more than symbols.
    more: usize,
    /// Sizes that inference with numbers refuses although no condition does.
    missed: Vec<String>,
}

/// Assignment of symbols: one for every axis of every input, or one for all axes of equal size.
#[derive(Clone, Copy, PartialEq)]
enum Symbols {
    ByAxis,
    BySize,
}

/// Returns the types of the inputs with symbols for sizes, and the initial number of each symbol.
fn make_symbolic(resolved: &Resolved, symbols: Symbols) -> (Vec<Option<Type>>, Vec<i64>) {
    let model = resolved.model();
    let mut numbers: Vec<i64> = Vec::new();
    let mut named: HashMap<Dim, i64> = HashMap::new();
    let mut types = Vec::new();
    for info in &model.graph(resolved.main()).inputs {
        let ty = info.ty.as_ref().and_then(|ty| model.type_of(ty));
        let Some(Type::Tensor(tensor)) = &ty else {
            types.push(None);
            continue;
        };
        let (Some(elem), Some(shape)) = (tensor.elem, &tensor.shape) else {
            types.push(None);
            continue;
        };
        let dims = shape.iter().map(|dim| {
            let next = 2 + named.len() as i64;
            let number = match dim {
                Dim::Known(number) => *number,
                Dim::Unknown => 2,
                dim => *named.entry(dim.clone()).or_insert(next),
            };
            let found = numbers.iter().position(|known| *known == number);
            let symbol = match found.filter(|_| symbols == Symbols::BySize) {
                Some(symbol) => symbol,
                None => {
                    numbers.push(number);
                    numbers.len() - 1
                }
            };
            Dim::symbol(&format!(" {symbol}"))
        });
        types.push(Some(Type::tensor(elem, dims)));
    }
    (types, numbers)
}

fn evaluate(dim: &Dim, numbers: &[i64]) -> Dim {
    dim.substitute(&|name| {
        let symbol: usize = name.strip_prefix(' ')?.parse().ok()?;
        Some(Dim::Known(numbers[symbol]))
    })
}

fn holds(demand: &Demand, numbers: &[i64]) -> bool {
    let number = |dim: &Dim| evaluate(dim, numbers).known();
    match demand {
        Demand::Equal(a, b) => number(a).is_some() && number(a) == number(b),
        Demand::Broadcast(a, b) => match (number(a), number(b)) {
            (Some(a), Some(b)) => a == b || a == 1 || b == 1,
            _ => false,
        },
        Demand::BroadcastTo(from, to) => number(from) == Some(1) || number(from) == number(to),
        Demand::NotNegative(dim) => number(dim).is_some_and(|number| number >= 0),
    }
}

fn compare(name: &str, resolved: &Resolved, symbols: Symbols, tally: &mut Tally) {
    let (types, base) = make_symbolic(resolved, symbols);
    let sizes: HashSet<String> = (0..base.len()).map(|symbol| format!(" {symbol}")).collect();
    let options = InferOptions { inputs: &types, sizes: Some(&sizes), ..InferOptions::default() };
    let Ok(general) = infer(resolved, options) else {
        return;
    };
    let mut sets = vec![base.clone(), base.iter().map(|size| size * 2).collect()];
    sets.push(vec![1; base.len()]);
    sets.push(vec![3; base.len()]);
    for symbol in 0..base.len().min(12) {
        for size in [base[symbol] + 1, base[symbol] - 1, 1, 2 * base[symbol], 0] {
            let mut set = base.clone();
            set[symbol] = size;
            sets.push(set);
        }
    }
    for set in sets {
        if set.iter().any(|size| *size < 0) {
            continue;
        }
        agree(name, resolved, &types, &general, &set, tally);
    }
}

/// Checks that inference with these numbers agrees.
fn agree(
    name: &str,
    resolved: &Resolved,
    types: &[Option<Type>],
    general: &Inference,
    numbers: &[i64],
    tally: &mut Tally,
) {
    let model = resolved.model();
    let values = (0..model.value_count()).map(ValueId::new);
    let empty = values.clone().filter_map(|value| general.ty(value)?.shape()).flatten();
    let mut sizes = empty.filter(|dim| dim.known().is_none()).map(|dim| evaluate(dim, numbers));
    let is_empty = sizes.any(|dim| dim.known().is_some_and(|size| size < 1));
    if is_empty || !general.demands().iter().all(|demand| holds(demand, numbers)) {
        tally.refused += 1;
        return;
    }
    let given: Vec<Option<Type>> = types
        .iter()
        .map(|ty| {
            let ty = ty.as_ref()?;
            let dims = ty.shape()?.iter().map(|dim| evaluate(dim, numbers));
            Some(Type::tensor(ty.elem()?, dims))
        })
        .collect();
    let options = InferOptions { inputs: &given, ..InferOptions::default() };
    let found = match infer(resolved, options) {
        Ok(found) => found,
        Err(findings) => {
            let why = findings.first().map(|finding| finding.fact.clone());
            tally.missed.push(format!("{name} {numbers:?}: {}", why.unwrap_or_default()));
            return;
        }
    };
    tally.alike += 1;
    for value in values {
        let place =
            || format!("{name}: {}, {numbers:?}", model.display(Some(model.value(value).name)));
        let shape = |inference: &Inference| inference.ty(value)?.shape().cloned();
        match (shape(general), shape(&found)) {
            (Some(dims), Some(expected)) => {
                assert_eq!(dims.len(), expected.len(), "{}", place());
                for (dim, expected) in dims.iter().zip(&expected) {
                    match evaluate(dim, numbers) {
                        Dim::Known(number) => {
                            assert_eq!(Some(number), expected.known(), "{dim} of {}", place());
                        }
                        _ => tally.more += usize::from(expected.known().is_some()),
                    }
                }
            }
            (None, Some(_)) => tally.more += 1,
            (Some(dims), None) => {
                let numbers = dims.iter().all(|dim| evaluate(dim, numbers).known().is_some());
                assert!(!numbers, "{} has a shape only with symbols", place());
            }
            (None, None) => {}
        }
        let ints = |known: Option<&Known>| known.and_then(Known::elements);
        match (ints(general.known(value)), ints(found.known(value))) {
            (Some(elements), Some(expected)) => {
                for (element, expected) in elements.iter().zip(&expected) {
                    if let (Dim::Known(number), Some(expected)) =
                        (evaluate(element, numbers), expected.known())
                    {
                        assert_eq!(number, expected, "{element} in {}", place());
                    }
                }
            }
            (None, Some(_)) => tally.more += 1,
            _ => {}
        }
    }
}

fn check(name: &str, model: Model, tally: &mut Tally) {
    let Ok(resolved) = resolve(model, Registry::standard()) else {
        return;
    };
    compare(name, &resolved, Symbols::ByAxis, tally);
    compare(name, &resolved, Symbols::BySize, tally);
}

fn parse(text: String) -> Option<Model> {
    let text = Buffer::from_vec(text.into_bytes());
    Some(parse_model(text, ParseOptions::default()).ok()?.model)
}

/// Checks every model of the examples of inference.
#[test]
fn symbolic_sizes_agree_with_numbers_in_all_examples() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/infer");
    let mut tally = Tally::default();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "onnxtxt") {
            let text = fs::read_to_string(&path).unwrap();
            if let Some(model) = parse(text) {
                check(&path.display().to_string(), model, &mut tally);
            }
        }
    }
    assert!(tally.alike > 100 && tally.refused > 100, "{tally:?}");
}

/// Checks operators whose shapes or conditions are not simply those of the input, each with all its
/// sizes: a condition refuses the sizes that inference refuses, and no size stays unknown that
/// numbers determine.
#[test]
fn conditions_refuse_what_inference_refuses() {
    let bodies = [
        "(float[N, 4] x, float[N, M] y) { z = Add (x, y) }",
        "(float[N, M, 3, K] x, float[N, M, K, 2] y) { z = MatMul (x, y) }",
        "(float[N, M] x, float[M, 5] y, float[K] c) { z = Gemm (x, y, c) }",
        "(float[N, M] x, float[N, K] y) { z = Concat <axis = 1> (x, y) }",
        "(float[N, M, 8] x) { s = Constant <value_ints = [0, -1, 4, 2]> () z = Reshape (x, s) }",
        "(float[N, 6] x) { s = Constant <value_ints = [-1, 4]> () z = Reshape (x, s) }",
        "(float[N, M] x) { s = Shape (x) t = Constant <value_ints = [-1]> () z = Reshape (x, t) w = Reshape (z, s) }",
        "(float[N, M] x) { a = Constant <value_ints = [0]> () z = Squeeze (x, a) }",
        "(float[N, M] x) { z, w = Split <axis = 1, num_outputs = 2> (x) }",
        "(float[N, 5] x) { s = Constant <value_ints = [2, 3]> () z, w = Split <axis = 1> (x, s) }",
        "(float[N, M] x) { i = Constant <value_ints = [2, -1]> () z = Gather <axis = 1> (x, i) }",
        "(float[N, M] x, float[K, 1] y) { s = Shape (x) z = Expand (y, s) }",
        "(float[N, 3, H, W] x, float[8, 3, 3, 3] w) { z = Conv (x, w) }",
        "(float[N, 3, H, W] x) { z = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }",
        "(float[N, M] x, float[M] g, float[K] b) { z = LayerNormalization (x, g, b) }",
        "(float[N, C, H] x, float[C] g, float[C] b) { z = GroupNormalization <num_groups = 2> (x, g, b) }",
        "(float[N, M] x, float[K, L] y) { z = Einsum <equation = \"ij,jk->ik\"> (x, y) }",
        "(float[N, M] x) { s = Constant <value_ints = [1]> () e = Constant <value_ints = [3]> () a \
         = Constant <value_ints = [1]> () z = Slice (x, s, e, a) }",
        "(float[N, M] x) {
            shape = Shape (x) one = Constant <value_ints = [1]> () zero = Constant <value_ints = [0]> ()
            n = Gather (shape, zero) start = Sub (n, one) z = Slice (x, start, n, zero)
        }",
        "(float[N, P, 4] past, float[N, S, 4] new, float[N, T] mask) {
            k = Concat <axis = 1> (past, new) l = ReduceSum <keepdims = 0> (k, a) z = Add (l, mask)
            a = Constant <value_ints = [2]> ()
        }",
    ];
    for body in bodies {
        let (inputs, nodes) = body.split_once('{').unwrap();
        let text = format!(
            "<ir_version: 10, opset_import: [\"\" : 21]>\ng {inputs} => (float[] z) {{ {nodes}"
        );
        let mut tally = Tally::default();
        check(body, parse(text).unwrap(), &mut tally);
        assert!(tally.alike > 1 && tally.more == 0, "{body}: {tally:?}");
        assert_eq!(tally.missed, Vec::<String>::new());
    }
}
