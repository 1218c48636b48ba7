//! Inputs under `fuzz/corpus`, made here and saved there by `--write-corpus`.
//!
//! The inputs are small, so that many mutations can be checked in a second, and together contain
//! every message, field and form that is read. Failing inputs that fuzzing finds are added to the
//! directories by hand, under a name that describes the fault.

use std::io::Cursor;

use sardonyx_formats::npz::{self, Packing};
use sardonyx_formats::safetensors;
use sardonyx_model::{Model, write_value};
use sardonyx_proto::{FieldKind, Label, MESSAGES, MessageDef};
use sardonyx_tensor::{
    Buffer, DataType, Map, MapKey, Sequence, Sparse, StringArray, Tensor, TensorError,
    Value as TensorValue, ValueType, npy,
};
use sardonyx_text::{ParseOptions, PrintOptions, model_to_text, parse_model};

use crate::Property;
use crate::random::Random;
use crate::texts::MESSAGE;
use crate::wire_tree::{Record, Value, bytes, message, number, write};

/// Error while seeds are made, which is a mistake in this file.
type Failure = Box<dyn std::error::Error>;

/// Name and content of a file.
pub type Seed = (String, Vec<u8>);

/// Makes the inputs of a property.
///
/// # Errors
/// If a library refuses a value of this file.
pub fn make(property: &Property) -> Result<Vec<Seed>, Failure> {
    Ok(match property.name {
        "proto_read" => add_selectors(make_messages(), |index| vec![index, 2]),
        "proto_roundtrip" => {
            let mut seeds = add_selectors(make_messages(), |index| vec![index]);
            let models = make_models().into_iter();
            seeds.extend(models.map(|(name, model)| (name, [vec![0], model].concat())));
            seeds
        }
        "model_read" => [make_models(), make_invalid_models()].concat(),
        "check" | "infer" => {
            [make_models(), make_invalid_models(), make_notation_models()?].concat()
        }
        "value_files" => make_value_files()?,
        "external" => make_external_models(),
        "npy" => make_arrays()?,
        "npz" => make_archives()?,
        "safetensors" => make_safetensors()?,
        "json" => [make_messages_of_forms()?, make_json()].concat(),
        "notation_read" => add_selectors(make_texts()?, |index| vec![index]),
        "notation_roundtrip" => {
            let everything = convert_notation("everything", MODEL)?;
            [make_models(), vec![everything]].concat()
        }
        "operators" => vec![("any".to_string(), make_choices(0, |choice| choice as u8))],
        "programs" | "parts" | "simplify" => make_programs(),
        "session" => {
            let mut seeds = [make_models(), make_notation_models()?].concat();
            for (name, choices) in make_programs() {
                seeds.push((name, crate::programs::make_model(&choices[..120]).to_bytes()));
            }
            seeds
        }
        "text_format" => [make_messages_of_forms()?, make_text_format()].concat(),
        _ => Vec::new(),
    })
}

/// Makes bytes that choose nodes.
fn make_choices(index: u64, map: fn(usize) -> u8) -> Vec<u8> {
    let mut random = Random::new(22, index);
    (0..400).map(|_| map(random.below(256))).collect()
}

/// Makes choices, some of which lead to certain nodes more often than others.
fn make_programs() -> Vec<Seed> {
    let rows: [(&str, fn(usize) -> u8); 4] = [
        ("any", |choice| choice as u8),
        ("graphs", |choice| if choice % 3 == 0 { 17 + choice as u8 % 3 } else { choice as u8 }),
        ("sequences", |choice| if choice % 2 == 0 { 10 + choice as u8 % 6 } else { choice as u8 }),
        ("loops", |choice| if choice % 4 == 0 { 18 } else { choice as u8 % 20 }),
    ];
    let of = |(index, (name, map)): (usize, (&str, fn(usize) -> u8))| {
        (name.to_string(), make_choices(index as u64, map))
    };
    rows.into_iter().enumerate().map(of).collect()
}

fn add_selectors(seeds: Vec<Seed>, selector: impl Fn(u8) -> Vec<u8>) -> Vec<Seed> {
    let numbered = (0u8..).zip(seeds);
    numbered.map(|(index, (name, content))| (name, [selector(index), content].concat())).collect()
}

/// Makes every message with each of its fields, lists in both forms, and an unknown field.
fn make_messages() -> Vec<Seed> {
    let named = |def: &&MessageDef| (def.name.to_string(), write(&fields(def, 1)));
    MESSAGES.iter().map(named).collect()
}

fn fields(def: &MessageDef, depth: usize) -> Vec<Record> {
    let mut records = Vec::new();
    for field in def.fields {
        let value = match field.kind {
            FieldKind::Int64 | FieldKind::Int32 | FieldKind::Uint64 | FieldKind::Enum(_) => {
                Value::Varint(3)
            }
            FieldKind::Float => Value::Fixed32(1.5f32.to_le_bytes()),
            FieldKind::Double => Value::Fixed64(2.5f64.to_le_bytes()),
            FieldKind::Text => Value::Bytes(b"ab".to_vec()),
            FieldKind::Blob => Value::Bytes(b"\x00\xff\x80\x01".to_vec()),
            FieldKind::Message(inner) if depth > 0 => Value::Message(fields(inner(), depth - 1)),
            FieldKind::Message(_) => Value::Bytes(Vec::new()),
        };
        let one = |value| Record { number: field.number, value };
        if field.label == Label::Packed
            || field.label == Label::Repeated && !matches!(value, Value::Message(_))
        {
            let packed = match &value {
                Value::Varint(_) => vec![1, 0x80, 0x01, 2],
                Value::Fixed32(bytes) => bytes.repeat(2),
                Value::Fixed64(bytes) => bytes.repeat(2),
                _ => b"second".to_vec(),
            };
            records.push(one(Value::Bytes(packed)));
        }
        records.push(one(value));
    }
    if depth > 0 {
        records.push(number(999, 7));
    }
    records
}

/// Makes texts in the notation: the small models, and one text of each part.
fn make_texts() -> Result<Vec<Seed>, Failure> {
    let mut seeds: Vec<Seed> = vec![
        ("model".into(), MODEL.into()),
        (
            "graph".into(),
            "g (float x, y = {}) => (seq(float[?]) z) <float w = {1}> {z = A(,x)}".into(),
        ),
        (
            "function".into(),
            "<domain: \"d\", overload: \"o\"> f <a, b: int = 3> (x, float y) => (z) {}".into(),
        ),
        (
            "node".into(),
            "[n] y, z = a.b.C:d <k: floats = [1, 2.5], g = h () => () {}> (x, \"\", \"q r\")"
                .into(),
        ),
        (
            "attribute".into(),
            "a: tensors = [int64[2] {1, -2}, string[1] n = {\"s\"}] @<doc_string: \"d\">".into(),
        ),
        ("tensor".into(), "float16[3] w = raw {1.5, -inf, nan}".into()),
        (
            "type".into(),
            "map(int64, optional(sparse_tensor(float[N @<denotation: \"d\">, ?, \"a b\", 2])))"
                .into(),
        ),
    ];
    for (name, model) in make_models() {
        let model = Model::read(Buffer::from_vec(model))?;
        let (text, _) = model_to_text(&model, PrintOptions::default())?;
        seeds.push((name, text));
    }
    Ok(seeds)
}

/// Text that contains every construct of the notation.
const MODEL: &str = r#"# A comment
<ir_version: 10, opset_import: ["": 21, "local": 1], metadata_props: ["k": "v"], notation: "full">
main (float[N, 3] x, ?77[2] odd @<doc_string: "d">) => (float y) <
  float[2] w = raw {1, 2.5}, float[1] f = fields x"22040000803f", double[1] d = {1e-300},
  sparse(float[9], float[1] s = {1}, int64[1] {3}), float[N] t, int4[3] p = raw {1, -2, 7},
  float[1] e = ["location": "file"] @<unknown: [1: x"b83e05"]>
> @<quantization_annotation: ["w": ["SCALE_TENSOR": "s"]], metadata_props: [?: "v", "k": ?]> {
  [n] a, , "b c" = local.f:o <k: ints = [1, 2], r: float = @p, t: type_proto = seq(float)> (x, w)
  y = If(a) <then_branch = g () => (z) { z = "".Neg(a) # comment
  }> @<device_configurations: [{configuration_id: "c", pipeline_stage: 2}]>
  = "odd op"(x"ff00", "")
}
<domain: "local", opset_import: ["": 21]>
f <p, q: float = 1.5> (x, float[2] v) => (y) <float u> { y = Mul<e = nan(7fc00001), s = "\"\\">(x, v) }
@<training_info: [{initialization: i () => () {}, update_binding: ["a": "b"]}]>
"#;

/// Valid models with every construct that has rules of its own.
const SOUND: &[(&str, &str)] = &[
    (
        "functions",
        r#"<ir_version: 10, opset_import: ["": 21, "local": 1]>
main (float[4] x, bool c) => (float[4] y) { y = local.outer <alpha = 0.5> (c, x) }
<domain: "local", opset_import: ["": 21, "local": 1]>
outer <alpha> (c, a) => (b) {
  t = LeakyRelu <alpha: float = @alpha> (a)
  b = If (c) <then_branch = yes () => (p) { p = local.inner (t) }, else_branch = no () => (q) { q = Neg (a) }>
}
<domain: "local", opset_import: ["": 21]>
inner <k: int = 3> (a) => (b) { b = Add (a, a) }"#,
    ),
    (
        "stored",
        r#"<ir_version: 14, opset_import: ["": 21]>
main () => (float[2] y) <
  float[2] w = {1, 2}, float6e2m3[3] p = raw {1, 2, 0.5}, string[1] t = {"a"},
  sparse(float[9], float[2] s = {1, 2}, int64[2] {3, 5}),
  float[4] e = ["location": "file", "offset": "0", "length": "16"]
> {
  y = Identity (w)
  c = Constant <sparse_value: sparse_tensor = sparse(float[2, 2], float[2] {1, 2}, int64[2, 2] {0, 1, 1, 0})> () }"#,
    ),
    (
        "steps",
        r#"<ir_version: 11, opset_import: ["": 21], notation: "full">
main (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}, float[N, 4] t>
@<quantization_annotation: ["t": ["SCALE_TENSOR": "w"]]> {
  t = Add (x, w) @<device_configurations: [{configuration_id: "two", sharding_spec: [{
    tensor_name: "x", device: [0, 1], sharded_dim: [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
  y = Relu (t)
}
@<training_info: [{
  initialization: begin () => (float[4] start) { start = Constant <value = float[4] {1, 2, 3, 4}> () },
  algorithm: step () => (float[4] grown) { grown = Neg (w) },
  initialization_binding: ["w": "start"], update_binding: ["w": "grown"]
}], configuration: [{name: "two", num_devices: 2, device: ["a", "b"]}]>"#,
    ),
];

fn make_notation_models() -> Result<Vec<Seed>, Failure> {
    let sound = SOUND.iter().map(|(name, text)| convert_notation(name, text));
    let mut seeds: Vec<Seed> = sound.collect::<Result<_, _>>()?;
    seeds.push(convert_notation("everything", MODEL)?);
    Ok(seeds)
}

fn convert_notation(name: &str, text: &str) -> Result<Seed, Failure> {
    let text = Buffer::from_vec(text.into());
    let model = parse_model(text, ParseOptions::default())?.model;
    Ok((name.into(), model.to_bytes()))
}

/// Makes the value info of a tensor of floats. A negative size becomes a parameter.
fn value_info(name: &str, dims: &[i64]) -> Vec<Record> {
    let dims: Vec<Record> = dims
        .iter()
        .map(|dim| match dim {
            0.. => message(1, vec![number(1, *dim)]),
            _ => message(1, vec![bytes(2, "N")]),
        })
        .collect();
    vec![bytes(1, name), message(2, vec![message(1, vec![number(1, 1), message(2, dims)])])]
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Vec<Record>]) -> Record {
    let mut fields: Vec<Record> = inputs.iter().map(|name| bytes(1, name)).collect();
    fields.extend(outputs.iter().map(|name| bytes(2, name)));
    fields.push(bytes(4, op));
    fields.extend(attributes.iter().map(|attribute| message(5, attribute.clone())));
    message(1, fields)
}

fn attribute(name: &str, ty: i64, value: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let mut fields = vec![bytes(1, name)];
    fields.extend(value);
    fields.push(number(20, ty));
    fields
}

/// Makes a tensor of floats with the fields of `rest`.
fn tensor(name: &str, dims: &[i64], rest: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let mut fields: Vec<Record> = dims.iter().map(|dim| number(1, *dim)).collect();
    fields.push(number(2, 1));
    fields.push(bytes(8, name));
    fields.extend(rest);
    fields
}

fn model(graph: Vec<Record>, rest: Vec<Record>) -> Vec<u8> {
    let opset = message(8, vec![bytes(1, ""), number(2, 23)]);
    write(&[vec![number(1, 10), message(7, graph), opset], rest].concat())
}

/// Makes small models, each with one feature of models.
#[expect(clippy::too_many_lines, reason = "a table")]
fn make_models() -> Vec<Seed> {
    let x = || message(11, value_info("x", &[2, -1]));
    let y = || message(12, value_info("y", &[2, -1]));
    let chain = vec![
        node("Relu", &["x"], &["h"], &[]),
        node("Add", &["h", "w"], &["y"], &[]),
        bytes(2, "chain"),
        message(5, tensor("w", &[2], [bytes(9, [0; 8])])),
        x(),
        y(),
        message(13, value_info("h", &[2, 3])),
    ];
    let branch = |name: &str| {
        vec![node("Neg", &["x"], &[name], &[]), bytes(2, name), message(12, value_info(name, &[2]))]
    };
    let branches = [
        attribute("then_branch", 5, [message(6, branch("a"))]),
        attribute("else_branch", 5, [message(6, branch("b"))]),
    ];
    let subgraphs = vec![node("If", &["c"], &["y"], &branches), bytes(2, "g"), x(), y()];
    let constant = attribute("value", 4, [message(5, tensor("", &[3], [bytes(4, [0; 12])]))]);
    let sparse = vec![
        message(1, tensor("s", &[2], [bytes(9, [0; 8])])),
        message(
            2,
            vec![
                number(1, 2),
                number(2, 7),
                bytes(9, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            ],
        ),
        number(3, 5),
    ];
    let attributes = vec![
        attribute("f", 1, [Record { number: 2, value: Value::Fixed32([0, 0, 128, 63]) }]),
        attribute("i", 2, [number(3, -1)]),
        attribute("s", 3, [bytes(4, "text")]),
        attribute("floats", 6, [bytes(7, [0; 8])]),
        attribute("ints", 7, [number(8, 1), number(8, 300), bytes(8, [1, 2, 3])]),
        attribute("strings", 8, [bytes(9, "a"), bytes(9, "")]),
        attribute("tensors", 9, [message(10, tensor("t", &[1], [bytes(9, [0; 4])]))]),
        attribute("graphs", 10, [message(11, branch("a")), message(11, branch("b"))]),
        attribute("type", 13, [message(14, types(0))]),
        attribute("types", 14, [message(15, types(1)), message(15, types(2))]),
        attribute("sparse", 11, [message(22, sparse.clone())]),
        vec![bytes(1, "ref"), bytes(21, "alpha"), number(20, 1)],
    ];
    let typed = vec![
        message(5, tensor("f", &[2], [bytes(4, [0; 8])])),
        message(
            5,
            vec![number(1, 3), number(2, 3), bytes(8, "i8"), number(5, -1), bytes(5, [1, 2])],
        ),
        message(5, vec![number(1, 3), number(2, 22), bytes(8, "i4"), bytes(5, [0x21, 3])]),
        message(5, vec![number(1, 3), number(2, 27), bytes(8, "f6"), bytes(5, [1, 2, 3])]),
        message(5, vec![number(1, 2), number(2, 8), bytes(6, "one"), bytes(6, ""), bytes(8, "s")]),
        message(5, vec![number(1, 1), number(2, 7), bytes(7, [5]), bytes(8, "i64")]),
        message(5, vec![number(1, 1), number(2, 11), bytes(8, "d"), bytes(10, [0; 8])]),
        message(5, vec![number(1, 1), number(2, 13), bytes(8, "u64"), bytes(11, [9])]),
        message(
            5,
            tensor("seg", &[2], [message(3, vec![number(1, 0), number(2, 2)]), bytes(9, [0; 8])]),
        ),
        message(15, sparse),
    ];
    let function = vec![
        bytes(1, "F"),
        bytes(4, "a"),
        bytes(5, "b"),
        bytes(6, "alpha"),
        Record {
            number: 7,
            ..node(
                "Elu",
                &["a"],
                &["b"],
                &[vec![bytes(1, "alpha"), bytes(21, "alpha"), number(20, 1)]],
            )
        },
        message(9, vec![bytes(1, ""), number(2, 23)]),
        bytes(10, "own"),
        message(11, attribute("beta", 1, [number(3, 1)])),
        message(12, value_info("b", &[2])),
    ];
    let entry = |key: &str, value: &str| vec![bytes(1, key), bytes(2, value)];
    let step = vec![
        message(1, branch("i")),
        message(2, branch("j")),
        message(3, entry("w", "i")),
        message(4, entry("w", "j")),
    ];
    let header = vec![
        bytes(2, "producer"),
        bytes(3, "1.0"),
        bytes(4, "org.example"),
        number(5, 3),
        bytes(6, "about"),
        message(14, entry("key", "value")),
        message(20, step),
        message(25, function),
        message(26, vec![bytes(1, "two"), number(2, 2), bytes(3, "cpu:0")]),
        number(999, 1),
    ];
    let ports =
        (0..6).map(|kind| message(11, vec![bytes(1, format!("p{kind}")), message(2, types(kind))]));
    let quantized = message(14, vec![bytes(1, "x"), message(2, entry("SCALE_TENSOR", "s"))]);
    let seed = |name: &str, content| (name.to_string(), content);
    vec![
        seed("chain", model(chain.clone(), vec![])),
        seed("subgraphs", model(subgraphs, vec![])),
        seed(
            "constant",
            model(vec![node("Constant", &[], &["y"], &[constant]), bytes(2, "g"), y()], vec![]),
        ),
        seed(
            "attributes",
            model(
                vec![
                    node("Own", &["x", "", "x"], &["y", "", "z"], &attributes),
                    bytes(2, "g"),
                    x(),
                    y(),
                ],
                vec![],
            ),
        ),
        seed("tensors", model(typed, vec![])),
        seed(
            "ports",
            model([vec![bytes(2, "g")], ports.collect(), vec![quantized]].concat(), vec![]),
        ),
        seed("header", model(chain, header)),
        seed(
            "names",
            model(
                vec![
                    node("A", &["nobody", "b"], &["a", "a"], &[]),
                    node("B", &["a"], &["b"], &[]),
                    bytes(2, b"\xff\xfe"),
                    message(11, value_info("w", &[])),
                    message(5, tensor("w", &[], [bytes(9, [0; 4])])),
                    message(12, value_info("a", &[])),
                ],
                vec![],
            ),
        ),
    ]
}

/// Makes a type of each kind.
fn types(kind: usize) -> Vec<Record> {
    let tensor = || {
        vec![message(
            1,
            vec![
                number(1, 1),
                message(2, vec![message(1, vec![number(1, 3), bytes(3, "DATA_BATCH")])]),
            ],
        )]
    };
    match kind {
        0 => tensor(),
        1 => vec![message(4, vec![message(1, tensor())])],
        2 => vec![message(5, vec![number(1, 7), message(2, tensor())])],
        3 => vec![message(7, vec![bytes(1, "org"), bytes(2, "thing")])],
        4 => {
            vec![message(8, vec![number(1, 1), message(2, vec![message(1, vec![bytes(2, "N")])])])]
        }
        _ => vec![
            message(9, vec![message(1, vec![message(4, vec![message(1, tensor())])])]),
            bytes(6, "IMAGE"),
        ],
    }
}

/// Makes invalid models with faults that mutations are unlikely to make.
fn make_invalid_models() -> Vec<Seed> {
    let nested =
        |levels: usize, innermost: Vec<Record>, wrap: &dyn Fn(Vec<Record>) -> Vec<Record>| {
            (0..levels).fold(innermost, |inner, _| wrap(inner))
        };
    let graphs = nested(330, vec![bytes(2, "g")], &|inner| {
        vec![node("If", &["c"], &["y"], &[attribute("g", 5, [message(6, inner)])])]
    });
    let types = nested(330, types(0), &|inner| vec![message(9, vec![message(1, inner)])]);
    let groups = [vec![0x0b; 900], vec![0x0c; 900]].concat();
    let bomb = (0..600).map(|_| message(1, vec![])).collect();
    vec![
        ("graphs-330-deep".to_string(), model(graphs, vec![])),
        ("types-330-deep".to_string(), model(vec![message(11, vec![message(2, types)])], vec![])),
        ("groups-900-deep".to_string(), [model(vec![], vec![]), groups].concat()),
        ("empty-nodes".to_string(), model(bomb, vec![])),
        (
            "huge-dims".to_string(),
            model(
                vec![
                    message(5, tensor("w", &[1 << 40], [])),
                    message(5, tensor("v", &[1 << 32, 1 << 32], [bytes(9, [])])),
                    message(5, tensor("u", &[-1], [bytes(9, [0; 4])])),
                ],
                vec![],
            ),
        ),
    ]
}

fn make_value_files() -> Result<Vec<Seed>, Failure> {
    let floats =
        |count: usize| Tensor::from_vec([count], vec![1.5f32; count]).map(TensorValue::from);
    let element = ValueType::Tensor(DataType::Float);
    let tensors = |count: usize| -> Result<TensorValue, TensorError> {
        let mut sequence = Sequence::new(element.clone());
        for n in 0..count {
            sequence.push(floats(n)?)?;
        }
        Ok(sequence.into())
    };
    let sparse = || -> Result<TensorValue, TensorError> {
        let values = Tensor::from_vec([2], vec![1.0f32, 2.0])?;
        let indices = Tensor::from_vec([2], vec![1i64, 4])?;
        Ok(Sparse::new([5], values, indices)?.into())
    };
    let sequence = |items: Vec<TensorValue>| -> Result<TensorValue, TensorError> {
        let mut sequence =
            Sequence::new(items.first().map_or(element.clone(), TensorValue::value_type));
        for item in items {
            sequence.push(item)?;
        }
        Ok(sequence.into())
    };
    let map =
        |key: DataType, entries: Vec<(MapKey, TensorValue)>| -> Result<TensorValue, TensorError> {
            let value = entries.first().map_or(element.clone(), |(_, value)| value.value_type());
            let mut map = Map::new(key, value)?;
            for (key, value) in entries {
                map.push(key, value)?;
            }
            Ok(map.into())
        };
    let text = |text: &str| MapKey::String(text.as_bytes().into());
    let signed = || {
        map(
            DataType::Int64,
            vec![(MapKey::Signed(-1), floats(1)?), (MapKey::Signed(2), floats(0)?)],
        )
    };
    // In the order of the property's types.
    let values = vec![
        floats(3)?,
        sparse()?,
        tensors(3)?,
        sequence(vec![tensors(2)?, tensors(0)?])?,
        sequence(vec![TensorValue::some(floats(1)?), TensorValue::none(element.clone())])?,
        sequence(vec![sparse()?, sparse()?])?,
        signed()?,
        map(DataType::Uint8, vec![(MapKey::Unsigned(255), floats(1)?)])?,
        map(DataType::String, vec![(text("a"), tensors(1)?), (text(""), tensors(2)?)])?,
        sequence(vec![signed()?])?,
        TensorValue::some(floats(1)?),
        TensorValue::some(tensors(2)?),
        TensorValue::some(TensorValue::some(floats(1)?)),
    ];
    let strings: StringArray = ["one", ""].into_iter().collect();
    let strings = write_value(&Tensor::from_strings([2], strings)?.into(), "")?;
    let mut seeds: Vec<Seed> = (0u8..)
        .zip(&values)
        .map(|(index, value)| {
            let file = write_value(value, "x")?;
            Ok((format!("{index:02}"), [vec![index], file].concat()))
        })
        .collect::<Result<_, String>>()?;
    seeds.push(("strings".to_string(), [vec![0], strings].concat()));
    seeds.push(("absent".to_string(), vec![10]));
    // Typed lists, which the writer does not use.
    let typed =
        tensor("t", &[2], [bytes(4, [0; 4]), Record { number: 4, value: Value::Fixed32([0; 4]) }]);
    seeds.push(("typed".to_string(), [vec![0], write(&typed)].concat()));
    Ok(seeds)
}

fn make_external_models() -> Vec<Seed> {
    let entry = |key: &str, value: &str| message(13, vec![bytes(1, key), bytes(2, value)]);
    let with = |entries: Vec<Record>| {
        let rest = [entries, vec![number(14, 1)]].concat();
        model(vec![message(5, tensor("w", &[4], rest))], vec![])
    };
    let at = |location: &str, rest: &[(&str, &str)]| {
        let rest = rest.iter().map(|(key, value)| entry(key, value));
        with([entry("location", location)].into_iter().chain(rest).collect())
    };
    let locations = [
        "w.bin",
        "d/w.bin",
        "./d//w.bin",
        "empty",
        "in",
        "out",
        "up/secret",
        "circle",
        "socket",
        "d",
        "none",
        "../secret",
        "d/../../secret",
        "/etc/passwd",
        "C:\\w.bin",
        "\\\\host\\w.bin",
        "#w",
        "",
        "w.bin\0",
        "d\\w.bin",
        "w.bin/x",
    ];
    let named = locations.iter().enumerate();
    let mut seeds: Vec<Seed> = named
        .map(|(index, location)| {
            (format!("location-{index:02}"), at(location, &[("offset", "8"), ("length", "16")]))
        })
        .collect();
    let rows: [(&str, &[(&str, &str)]); 7] = [
        ("whole", &[]),
        ("checksum", &[("checksum", "da39a3ee5e6b4b0d3255bfef95601890afd80709")]),
        ("offset-at-end", &[("offset", "96"), ("length", "0")]),
        ("offset-beyond-end", &[("offset", "97")]),
        ("overflow", &[("offset", "18446744073709551615"), ("length", "16")]),
        ("no-number", &[("offset", "-1"), ("length", "1e3")]),
        ("twice", &[("location", "d/w.bin"), ("offset", "0"), ("offset", "80"), ("other", "x")]),
    ];
    seeds.extend(rows.map(|(name, rest)| (name.to_string(), at("w.bin", rest))));
    seeds.push(("no-location".to_string(), with(vec![entry("offset", "0")])));
    let constant = tensor("", &[2], [entry("location", "w.bin"), number(14, 1)]);
    let constant = attribute("value", 4, [message(5, constant)]);
    let graph = vec![node("Constant", &[], &["y"], &[constant])];
    seeds.push(("attribute".to_string(), model(graph, vec![])));
    seeds
}

fn make_tensors() -> Result<Vec<(&'static str, Tensor)>, Failure> {
    let strings: StringArray = ["a", "größer"].into_iter().collect();
    Ok(vec![
        ("float", Tensor::from_vec([2, 3], vec![1.0f32, -0.0, f32::NAN, 4.0, 5.0, 6.0])?),
        ("bool", Tensor::from_bools([3], &[true, false, true])?),
        ("scalar", Tensor::scalar(-7i64)),
        ("empty", Tensor::zeros(DataType::Float16, [0, 4])?),
        ("complex", Tensor::zeros(DataType::Complex64, [1, 1, 2])?),
        ("strings", Tensor::from_strings([1, 2], strings)?),
    ])
}

fn make_arrays() -> Result<Vec<Seed>, Failure> {
    let mut seeds = Vec::new();
    for (name, tensor) in make_tensors()? {
        seeds.push((name.to_string(), npy::write(&tensor)?));
    }
    let header = |version: u8, dict: &str, elements: &[u8]| {
        let mut file = vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0];
        match version {
            1 => file.extend((dict.len() as u16).to_le_bytes()),
            _ => file.extend((dict.len() as u32).to_le_bytes()),
        }
        [&file, dict.as_bytes(), elements].concat()
    };
    let rows: [(&str, u8, &str, &[u8]); 6] = [
        (
            "columns",
            1,
            "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 2), }",
            &[0, 1, 0, 2, 0, 3, 0, 4],
        ),
        (
            "version-3",
            3,
            "{'shape': (2L,), 'fortran_order': False, 'descr': '<U2'}\n",
            &[97, 0, 0, 0, 0, 0, 0, 0, 98, 0, 0, 0, 99, 0, 0, 0],
        ),
        ("bytes", 2, "{'descr': '|S3', 'fortran_order': False, 'shape': (1,)}", b"ab\0"),
        ("void", 1, "{'descr': '|V2', 'fortran_order': False, 'shape': (3,)}", &[1; 6]),
        ("pickle", 1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"\x80\x04."),
        ("no-width", 1, "{'descr': '<U0', 'fortran_order': False, 'shape': (4096, 4096)}", b""),
    ];
    seeds.extend(rows.map(|(name, version, dict, elements)| {
        (name.to_string(), header(version, dict, elements))
    }));
    Ok(seeds)
}

fn make_archives() -> Result<Vec<Seed>, Failure> {
    let tensors = make_tensors()?;
    let mut seeds = Vec::new();
    for (packing, word) in [(Packing::Stored, "stored"), (Packing::Deflated, "deflated")] {
        for count in [0, 1, tensors.len()] {
            let pairs = tensors[..count].iter().map(|(name, tensor)| (*name, tensor));
            let file = npz::write(Cursor::new(Vec::new()), pairs, packing)?.into_inner();
            seeds.push((format!("{word}-{count}"), file));
        }
    }
    let zeros = Tensor::zeros(DataType::Float, [1 << 18])?;
    let bomb = npz::write(Cursor::new(Vec::new()), [("zeros", &zeros)], Packing::Deflated)?;
    seeds.push(("zeros".to_string(), bomb.into_inner()));
    Ok(seeds)
}

fn make_safetensors() -> Result<Vec<Seed>, Failure> {
    let mut tensors = make_tensors()?;
    tensors.retain(|(_, tensor)| tensor.strings().is_none());
    tensors.push(("f4", Tensor::zeros(DataType::Float4e2m1, [4])?));
    let mut seeds = Vec::new();
    for count in [0, 1, tensors.len()] {
        let mut file = Vec::new();
        let pairs = tensors[..count].iter().map(|(name, tensor)| (*name, tensor));
        safetensors::write(
            &mut file,
            pairs,
            [("format", "np"), ("größe", "\n")].into_iter().take(count),
        )?;
        seeds.push((format!("tensors-{count}"), file));
    }
    let by_hand = concat!(
        r#"{"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"#,
        r#""a":{"data_offsets":[0,1],"shape":[],"dtype":"I8","more":{"x":[null,1e9]}},"#,
        r#""c":{"dtype":"F64","shape":[0,7],"data_offsets":[3,3]}}"#
    );
    let length = (by_hand.len() as u64).to_le_bytes();
    seeds.push(("by-hand".to_string(), [&length[..], by_hand.as_bytes(), &[1, 2, 3]].concat()));
    Ok(seeds)
}

/// Makes messages for both text forms.
fn make_messages_of_forms() -> Result<Vec<Seed>, Failure> {
    // In the order of the property's types.
    let names = [
        "ModelProto",
        "GraphProto",
        "NodeProto",
        "AttributeProto",
        "TensorProto",
        "TypeProto",
        "SequenceProto",
    ];
    let mut seeds: Vec<Seed> = Vec::new();
    for (index, name) in (0u8..).zip(names) {
        let def = MESSAGES.iter().find(|def| def.name == name).ok_or(name)?;
        let mut fields = fields(def, 1);
        fields.retain(|record| record.number != 999);
        seeds.push((format!("{name}.pb"), [vec![index | MESSAGE], write(&fields)].concat()));
    }
    let models = make_models().into_iter();
    seeds.extend(
        models.map(|(name, model)| (format!("{name}.pb"), [vec![MESSAGE], model].concat())),
    );
    Ok(seeds)
}

fn make_json() -> Vec<Seed> {
    let deep = "{\"sequenceValues\":[".repeat(300) + &"]}".repeat(300);
    let rows: [(&str, u8, &str); 6] = [
        (
            "model",
            0,
            concat!(
                r#"{"irVersion": "10", "graph": {"node": [{"input": ["x"], "output": ["y"], "#,
                r#""op_type": "Relu"}], "name": "g"}, "opsetImport": [{"version": 23}], "#,
                r#""producerName": null}"#
            ),
        ),
        (
            "tensor",
            4,
            concat!(
                r#"{"dims": ["2", 3], "dataType": 1, "#,
                r#""floatData": [1, -0.5, "NaN", "Infinity", 1e-7, 3.4028235e38], "#,
                r#""name": "\u00e9\ud83d\ude00\n", "rawData": "AP8=", "#,
                r#""dataLocation": "EXTERNAL", "doubleData": [], "#,
                r#""uint64Data": ["18446744073709551615"]}"#
            ),
        ),
        (
            "type",
            5,
            concat!(
                r#"{"tensorType": {"elemType": 1, "#,
                r#""shape": {"dim": [{"dimValue": "3"}, {"dimParam": "N"}, {}]}}, "denotation": ""}"#
            ),
        ),
        (
            "attribute",
            3,
            r#"{"name": "a", "type": "INTS", "ints": [1, "2", 3.0, -9223372036854775808]}"#,
        ),
        (
            "escapes",
            2,
            "{\n\t\"docString\" : \"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\uD834\\uDD1E\" ,\"name\":\"\" }",
        ),
        ("deep", 6, &deep),
    ];
    name_texts(&rows, "json")
}

fn make_text_format() -> Vec<Seed> {
    let deep = "sequence_values{".repeat(300) + &"}".repeat(300);
    let rows: [(&str, u8, &str); 6] = [
        (
            "model",
            0,
            "ir_version: 10 # comment\ngraph {\n  node { input: \"x\" input: '' output: \"y\" \
             op_type: \"Relu\" }\n  name: \"g\"\n}\n\
             opset_import < version: 0x17 >; producer_name: 'a' \"b\"",
        ),
        (
            "tensor",
            4,
            "dims: [2, 03], data_type: 1 float_data: [1, -.5, nan, -inf, 1e-7f, 3.4028235e38] \
             name: \"\\303\\251\\x0a\\u00e9\" raw_data: \"\\000\\377\" \
             data_location: EXTERNAL uint64_data: 18446744073709551615",
        ),
        (
            "type",
            5,
            "tensor_type { elem_type: 1 \
             shape { dim { dim_value: 3 } dim { dim_param: \"N\" } dim {} } } denotation: ''",
        ),
        ("attribute", 3, "name: \"a\" type: INTS ints: 1 ints: -0x8000000000000000 ints: [] tp <>"),
        ("escapes", 2, "doc_string: '\\a\\b\\f\\n\\r\\t\\v\\?\\\\\\\'\\\"\\1\\x4' name: \"\""),
        ("deep", 6, &deep),
    ];
    name_texts(&rows, "txt")
}

fn name_texts(rows: &[(&str, u8, &str)], suffix: &str) -> Vec<Seed> {
    let named = rows.iter();
    named
        .map(|(name, index, text)| {
            (format!("{name}.{suffix}"), [&[*index], text.as_bytes()].concat())
        })
        .collect()
}
