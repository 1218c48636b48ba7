//! Tests of the standard's rules for files and versions, on files that the tests write.

// In a test, a panic is the report.

use std::fs;

use sardonyx::check::ScanOptions;
use sardonyx::edit::StripOptions;
use sardonyx::inspect::TensorStorage;
use sardonyx::io::{Weights, read_value, write_value};
use sardonyx::tool::{NEWEST_IR_VERSION, format_version, parse_version};
use sardonyx::{ErrorKind, Model, OpenOptions, SaveOptions, Session, Tensor, Type, Value};
use sardonyx_model::TensorType;
use sardonyx_proto::{
    Encode, Encoder, Limits, OperatorSetField, OperatorSetProto, OperatorStatus, Reader, attribute,
    device_configuration, encode_to_vec, function, graph, model, node, operator, operator_set,
    operator_set_id, rewrite, string_string_entry, tensor, tensor_type, training_info, type_,
    value_info,
};
use sardonyx_tensor::{Complex64, Complex128, DataType};

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");

struct Message<F>(F);

impl<F: Fn(&mut Encoder<'_>)> Encode for Message<F> {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        (self.0)(out);
    }
}

fn bytes(fields: impl Fn(&mut Encoder<'_>)) -> Vec<u8> {
    encode_to_vec(&Message(fields))
}

/// Makes a model with these fields, in any order, and checks that writing it is stable.
fn open(fields: impl Fn(&mut Encoder<'_>)) -> Model {
    let model = Model::from_bytes(bytes(fields)).unwrap();
    let written = model.to_bytes();
    let again = Model::from_bytes(written.clone()).unwrap();
    assert!(again.to_bytes() == written);
    again
}

/// Writes the graph `y = op(x)`.
fn one_node(out: &mut Encoder<'_>, domain: &str, op: &str) {
    out.put_message(graph::Node, |out| {
        out.put(node::Input, b"x");
        out.put(node::Output, b"y");
        out.put(node::OpType, op.as_bytes());
        if !domain.is_empty() {
            out.put(node::Domain, domain.as_bytes());
        }
    });
    out.put(graph::Name, b"g");
    out.put_message(graph::Input, |out| info(out, "x"));
    out.put_message(graph::Output, |out| info(out, "y"));
}

fn info(out: &mut Encoder<'_>, name: &str) {
    out.put(value_info::Name, name.as_bytes());
    out.put_message(value_info::Type, |out| {
        out.put_message(type_::TensorType, |out| out.put(tensor_type::ElemType, 1));
    });
}

fn import(out: &mut Encoder<'_>, domain: &str, version: i64) {
    out.put_message(model::OpsetImport, |out| {
        out.put(operator_set_id::Domain, domain.as_bytes());
        out.put(operator_set_id::Version, version);
    });
}

/// Makes a model of one Relu with additional fields.
fn relu(ir_version: i64, rest: impl Fn(&mut Encoder<'_>)) -> Model {
    open(|out| {
        out.put(model::IrVersion, ir_version);
        out.put_message(model::Graph, |out| one_node(out, "", "Relu"));
        import(out, "", 13);
        rest(out);
    })
}

fn run(model: &Model) -> Result<Vec<f32>, sardonyx::Error> {
    let x = Tensor::from_vec([2], vec![-1.0f32, 2.0]).unwrap();
    let outputs =
        Session::builder(model).threads(1).build()?.run([("x", x)], &Default::default())?;
    Ok(outputs.tensor("y")?.to_vec::<f32>().unwrap())
}

#[test]
fn a_file_is_one_model() {
    // MODEL-01+-, MODEL-11+-, OPSET-08-
    let bare_graph = bytes(|out| one_node(out, "", "Relu"));
    let operator_set = bytes(|out| {
        out.put(operator_set::Magic, b"ONNXOPSET");
        out.put(operator_set::IrVersion, 8);
        out.put(operator_set::OpsetVersion, 1);
    });
    let headless = bytes(|out| out.put(model::IrVersion, 8));
    for wrong in [bare_graph, operator_set, headless, b"ir_version: 8".to_vec()] {
        let error = Model::from_bytes(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{error}");
    }
    // A lenient reader accepts the bytes, but a session needs a graph.
    let headless = bytes(|out| {
        out.put(model::IrVersion, 8);
        import(out, "", 13);
    });
    let lenient = OpenOptions::new().lenient(true).from_bytes(headless).unwrap();
    let error = Session::new(&lenient).unwrap_err();
    assert!(error.to_string().contains("graph"), "{error}");
    assert_eq!(run(&relu(8, |_| {})).unwrap(), [0.0, 2.0]);
}

#[test]
fn headers_are_read_without_running_the_model() {
    // MODEL-05, MODEL-09, MODEL-10, MODEL-24+-, MODEL-25+, META-03+, META-13+, VER-08+
    let doc = "# Title\n\n*Markdown*, `code`\r\n";
    let model = open(|out| {
        out.put(model::IrVersion, 10);
        out.put(model::ProducerName, b"pytorch");
        out.put(model::ProducerVersion, b"2.9");
        out.put(model::Domain, b"org.example");
        out.put(model::ModelVersion, 0x0001_0002_0000_0159);
        out.put(model::DocString, doc.as_bytes());
        out.put_message(model::Graph, |out| {
            one_node(out, "com.acme", "Unheard");
            out.put_message(graph::Initializer, |out| {
                out.put(tensor::Dims, &[1 << 20][..]);
                out.put(tensor::DataType, 1);
                out.put(tensor::Name, b"w");
                out.put_message(tensor::ExternalData, |out| {
                    out.put(string_string_entry::Key, b"location");
                    out.put(string_string_entry::Value, b"not there");
                });
                out.put(tensor::DataLocation, sardonyx_proto::DataLocation::EXTERNAL);
            });
        });
        import(out, "com.acme", 1);
        out.put_message(model::MetadataProps, |out| {
            out.put(string_string_entry::Key, b"model_author");
            out.put(string_string_entry::Value, b"Ada, Grace");
        });
    });
    assert_eq!(model.ir_version(), Some(10));
    assert_eq!((&*model.producer_name(), &*model.producer_version()), ("pytorch", "2.9"));
    let identity = (model.domain(), model.model_version(), model.graph_name());
    assert_eq!(identity, ("org.example".into(), Some(0x0001_0002_0000_0159), "g".into()));
    assert_eq!(model.doc(), doc);
    assert_eq!(model.metadata_value("model_author").as_deref(), Some("Ada, Grace"));
    assert_eq!(model.opsets()[0].domain, "com.acme");
    assert_eq!(model.unsupported_operators().len(), 1);
    for version in [0, 7, -1, i64::MAX] {
        let model = relu(8, |out| out.put(model::ModelVersion, version));
        assert_eq!(model.model_version(), Some(version));
    }
}

#[test]
fn invalid_text_is_kept_and_reported() {
    // MODEL-05-: field 2 as a number is not a producer
    let number = relu(8, |out| out.put_records(b"\x10\x07"));
    assert_eq!(number.producer_name(), "");
    // MODEL-10-: invalid UTF-8 is kept and reported
    let broken = relu(8, |out| out.put(model::DocString, b"caf\xe9"));
    let report = ScanOptions::new().scan_bytes(broken.to_bytes()).unwrap();
    let codes: Vec<&str> = report.findings.iter().map(|found| found.code).collect();
    assert_eq!(codes, ["invalid-utf8"]);
}

#[test]
fn versions_of_models_are_numbers_or_three_in_one() {
    // VER-04+-, VER-05+-, VER-06+-, VER-07+-
    let rows = [
        ("1.2.345", Some(0x0001_0002_0000_0159)),
        ("0.1.0", Some(1 << 32)),
        ("7", Some(7)),
        ("0.0.7", None),
        ("1.65536.0", None),
        ("1.2.3-rc1", None),
        ("1.2.3+build", None),
        ("1.2", None),
    ];
    for (text, version) in rows {
        assert_eq!(parse_version(text), version, "{text}");
        if let Some(version) = version {
            assert_eq!(format_version(version), text);
        }
    }
}

#[test]
fn versions_of_the_format_are_numbers_with_an_end() {
    // VER-01, VER-02+, MODEL-03, VER-14
    let mut model = relu(8, |_| {});
    for version in [0, -1, NEWEST_IR_VERSION + 1] {
        let error = model.set_ir_version(version).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    for version in [9, 10, NEWEST_IR_VERSION] {
        model.set_ir_version(version).unwrap();
        assert_eq!(model.ir_version(), Some(version));
    }
    // Newer versions than the newest known one are read and written unchanged.
    assert_eq!(relu(NEWEST_IR_VERSION + 1, |_| {}).ir_version(), Some(NEWEST_IR_VERSION + 1));
}

#[test]
fn a_model_needs_the_version_of_its_newest_feature() {
    // MODEL-12, MODEL-13, MODEL-14, VER-10, VER-23, META-04
    let model = relu(NEWEST_IR_VERSION, |out| {
        write_training(out);
        write_function(out);
        write_devices(out);
    });
    assert_eq!((model.training_steps(), model.device_configurations().len()), (1, 2));
    assert_eq!(model.functions().len(), 1);
    let rows: [(&str, Model, i64); 5] = [
        ("training", relu(14, write_training), 7),
        ("functions", relu(14, write_function), 8),
        ("devices", relu(14, write_devices), 11),
        ("float8", open(write_float8_model), 9),
        ("metadata of a node", open(write_node_metadata_model), 10),
    ];
    for (what, mut model, first) in rows {
        let error = model.set_ir_version(first - 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
        assert!(error.to_string().contains(&first.to_string()), "{what}: {error}");
        model.set_ir_version(first).unwrap();
    }
}

fn write_function(out: &mut Encoder<'_>) {
    out.put_message(model::Functions, |out| {
        out.put(function::Name, b"F");
        out.put(function::Domain, b"com.acme");
    });
}

fn write_training(out: &mut Encoder<'_>) {
    out.put_message(model::TrainingInfo, |_| {});
}

fn write_devices(out: &mut Encoder<'_>) {
    for name in ["gpu0", "gpu1"] {
        out.put_message(model::Configuration, |out| {
            out.put(device_configuration::Name, name.as_bytes());
            out.put(device_configuration::NumDevices, 2);
        });
    }
}

fn write_float8_model(out: &mut Encoder<'_>) {
    out.put(model::IrVersion, NEWEST_IR_VERSION);
    out.put_message(model::Graph, |out| {
        one_node(out, "", "Relu");
        out.put_message(graph::Initializer, |out| {
            out.put(tensor::Dims, &[1][..]);
            out.put(tensor::DataType, DataType::Float8e4m3fn.number());
            out.put(tensor::Name, b"w");
            out.put(tensor::RawData, &[0x38]);
        });
    });
    import(out, "", 13);
}

fn write_node_metadata_model(out: &mut Encoder<'_>) {
    out.put(model::IrVersion, NEWEST_IR_VERSION);
    out.put_message(model::Graph, |out| {
        out.put_message(graph::Node, |out| {
            out.put(node::OpType, b"Relu");
            out.put_message(node::MetadataProps, |out| {
                out.put(string_string_entry::Key, b"com.acme.k")
            });
        });
        out.put(graph::Name, b"g");
    });
    import(out, "", 13);
}

#[test]
fn training_information_does_not_affect_a_run() {
    // MODEL-17+-, MODEL-27, META-07
    let plain = run(&relu(8, |_| {})).unwrap();
    let mut model = relu(8, |out| {
        out.put_message(model::TrainingInfo, |out| {
            out.put_message(training_info::UpdateBinding, |out| {
                out.put(string_string_entry::Key, b"no such initializer");
                out.put(string_string_entry::Value, b"no such output");
            });
        });
        out.put_message(model::MetadataProps, |out| {
            out.put(string_string_entry::Key, b"com.acme.threads");
            out.put(string_string_entry::Value, b"99");
        });
    });
    assert_eq!(run(&model).unwrap(), plain);
    let options = StripOptions { training: true, metadata: true, ..StripOptions::default() };
    let report = model.strip(&options).unwrap();
    assert_eq!((report.training, report.metadata), (1, 1));
    assert_eq!(run(&model).unwrap(), plain);
    assert!(model.to_bytes() == relu(8, |_| {}).to_bytes());
}

#[test]
fn metadata_of_every_element_are_kept_and_have_no_effect() {
    // META-04+-, META-07+: metadata below the model need version 10
    let props =
        |used: bool| if used { "@<metadata_props: [\"com.acme.threads\": \"9\"]>" } else { "" };
    let model = |ir_version: i64, chosen: Option<usize>| {
        let at = |place: usize| props(chosen == Some(place));
        let header =
            if chosen == Some(9) { ", metadata_props: [\"com.acme.threads\": \"9\"]" } else { "" };
        let function =
            if chosen == Some(8) { ", metadata_props: [\"com.acme.threads\": \"9\"]" } else { "" };
        Model::from_text(&format!(
            "<notation: \"full\", ir_version: {ir_version}, opset_import: [\"\": 20, \"local\": 1]{header}>
             g (bool c, float[2] x {}) => (float[2] y {}) <float[2] w = {{1, 2}} {}, float[2] a {}> {} {{
               a = Mul(x, w) {}
               k = Constant<value: tensor = float[2] k = {{3, 4}} {}>()
               b = local.f(a)
               y = If<
                 then_branch: graph = t () => (p) {} {{ p = Add(b, k) }},
                 else_branch: graph = e () => (q) {{ q = Neg(b) }}
               >(c)
             }}
             <domain: \"local\", opset_import: [\"\": 20]{function}>
             f (m) => (n) {{ n = Exp(m) }}",
            at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)
        ))
        .unwrap()
    };
    let run = |model: &Model| {
        let c = Tensor::from_bools([], &[true]).unwrap();
        let x = Tensor::from_vec([2], vec![-1.0f32, 0.5]).unwrap();
        let outputs = Session::builder(model)
            .threads(1)
            .build()
            .unwrap()
            .run([("c", c), ("x", x)], &Default::default());
        outputs.unwrap().tensor("y").unwrap().to_vec::<f32>().unwrap()
    };
    let has_finding = |model: &Model| {
        let report = model.check(&sardonyx::check::CheckOptions::new());
        assert_eq!(report.errors, 0, "{:?}", report.findings);
        report.findings.iter().any(|finding| finding.code.name == "ir-version-too-old")
    };
    let plain = model(10, None);
    assert!(!has_finding(&plain) && !has_finding(&model(9, None)));
    let wanted = run(&plain);
    for place in 0..10 {
        let mut with = model(10, Some(place));
        assert!(!has_finding(&with), "{place}");
        assert_eq!(run(&with), wanted, "{place}");
        let written = with.to_bytes();
        let key = b"com.acme.threads";
        assert!(written.windows(key.len()).any(|window| window == key), "{place}");
        assert!(Model::from_bytes(written.clone()).unwrap().to_bytes() == written, "{place}");
        // Metadata of the model itself exists since version 1.
        let is_below = place != 9;
        assert_eq!(has_finding(&model(9, Some(place))), is_below, "{place}");
        assert_eq!(with.set_ir_version(9).is_err(), is_below, "{place}");
        let options = StripOptions { metadata: true, ..StripOptions::default() };
        assert_eq!(model(10, Some(place)).strip(&options).unwrap().metadata, 1, "{place}");
    }
}

#[test]
fn operator_sets_are_imported_by_domain() {
    // MODEL-26, OPSET-02-, OPSET-07+-, VER-12+-, VER-13+
    let with = |ir_version: i64, node_domain: &'static str, imports: &'static [(&str, i64)]| {
        open(move |out| {
            out.put(model::IrVersion, ir_version);
            out.put_message(model::Graph, |out| one_node(out, node_domain, "Relu"));
            for (domain, version) in imports {
                import(out, domain, *version);
            }
        })
    };
    let fine = [
        with(8, "", &[("ai.onnx", 13)]),
        with(8, "ai.onnx", &[("", 13)]),
        // Before IR version 3, models had no imports and used version 1.
        with(2, "", &[]),
        // Unknown fields are ignored.
        relu(8, |out| out.put_records(b"\xfa\x3e\x03new")),
    ];
    for model in fine {
        assert_eq!(run(&model).unwrap(), [0.0, 2.0]);
    }
    let wrong =
        [with(8, "", &[("com.acme", 1)]), with(8, "ai.onnx ", &[("", 13)]), with(8, "", &[])];
    for model in wrong {
        assert!(run(&model).is_err());
    }
}

#[test]
fn before_version_4_initializers_are_inputs() {
    // VER-24+
    let model = |ir_version: i64| {
        open(|out| {
            out.put(model::IrVersion, ir_version);
            out.put_message(model::Graph, |out| {
                out.put_message(graph::Node, |out| {
                    out.put(node::Input, b"x");
                    out.put(node::Input, b"w");
                    out.put(node::Output, b"y");
                    out.put(node::OpType, b"Add");
                });
                out.put(graph::Name, b"g");
                out.put_message(graph::Initializer, |out| {
                    out.put(tensor::Dims, &[1][..]);
                    out.put(tensor::DataType, 1);
                    out.put(tensor::Name, b"w");
                    out.put(tensor::RawData, &1f32.to_le_bytes());
                });
                out.put_message(graph::Input, |out| info(out, "x"));
                out.put_message(graph::Input, |out| info(out, "w"));
                out.put_message(graph::Output, |out| info(out, "y"));
            });
            import(out, "", 13);
        })
    };
    for ir_version in [3, 4] {
        assert_eq!(run(&model(ir_version)).unwrap(), [0.0, 3.0]);
    }
}

#[test]
fn operator_set_documents_come_back() {
    // OPSET-08+, OPSET-11+-, OPSET-19+-, OPSET-23+, OPSET-24
    for ir_version in [8, 1 << 31, (1 << 32) + 1, 1 << 40, i64::MAX, -1, i64::MIN] {
        let document = operator_set_of_version(ir_version);
        let again = rewrite::<OperatorSetProto>(&document, Limits::default()).unwrap();
        assert!(again == document, "{ir_version}");
        let fields = Reader::<OperatorSetProto>::new(&document);
        let read: Vec<i64> = fields
            .filter_map(|field| match field.unwrap() {
                OperatorSetField::IrVersion(version) => Some(version),
                _ => None,
            })
            .collect();
        assert_eq!(read, [ir_version]);
    }
}

fn operator_set_of_version(ir_version: i64) -> Vec<u8> {
    bytes(|out| {
        out.put(operator_set::Magic, b"ONNXOPSET");
        out.put(operator_set::IrVersion, ir_version);
        out.put(operator_set::OpsetVersion, 3);
        out.put(operator_set::DocString, b"*all* of them");
        for status in [0, 1, 77] {
            out.put_message(operator_set::Operator, |out| {
                out.put(operator::OpType, b"Op");
                out.put(operator::SinceVersion, 3);
                out.put(operator::Status, OperatorStatus(status));
                out.put(operator::DocString, b"**one**");
            });
        }
    })
}

/// Makes a model with one tensor `w`.
fn with_tensor(fields: impl Fn(&mut Encoder<'_>)) -> Model {
    open(|out| {
        out.put(model::IrVersion, NEWEST_IR_VERSION);
        out.put_message(model::Graph, |out| {
            one_node(out, "", "Relu");
            out.put_message(graph::Initializer, |out| fields(out));
        });
        import(out, "", 13);
    })
}

fn value(model: &Model) -> Result<Tensor, sardonyx::Error> {
    model.value_of(&model.tensors()[0])
}

#[test]
fn stored_tensors_are_read_by_their_fields() {
    // TENSOR-27+, TENSOR-31+: no dims mean a scalar
    let scalar = with_tensor(|out| {
        out.put(tensor::DataType, 1);
        out.put(tensor::Name, b"w");
        out.put(tensor::RawData, &2f32.to_le_bytes());
        out.put(tensor::DocString, b"a *scalar*");
        out.put_message(tensor::MetadataProps, |out| {
            out.put(string_string_entry::Key, b"com.acme.k")
        });
    });
    let written = scalar.to_bytes();
    for kept in [&b"\x62\x0aa *scalar*"[..], b"com.acme.k"] {
        assert!(written.windows(kept.len()).any(|window| window == kept), "{kept:x?}");
    }
    let found = value(&scalar).unwrap();
    assert_eq!((found.dims(), found.to_vec::<f32>().unwrap()), (&[][..], vec![2.0]));
    // TENSOR-25+: the real part comes first, in raw data and in lists, when reading and when
    // writing
    const PARTS: [u8; 8] = [0, 0, 0x80, 0x3f, 0, 0, 0, 0x40];
    for is_raw in [true, false] {
        let complex = with_tensor(|out| {
            out.put(tensor::Dims, &[1][..]);
            out.put(tensor::DataType, DataType::Complex64.number());
            if is_raw {
                out.put(tensor::Name, b"w");
                out.put(tensor::RawData, &PARTS);
            } else {
                out.put_packed(tensor::FloatData, &PARTS);
                out.put(tensor::Name, b"w");
            }
        });
        let found = value(&complex).unwrap();
        assert_eq!(found.to_vec::<Complex64>().unwrap(), [Complex64 { re: 1.0, im: 2.0 }]);
    }
    let parts = [Complex128 { re: 1.0, im: -2.0 }];
    let tensor = Value::Tensor(Tensor::from_slice([1], &parts).unwrap());
    let file = write_value(&tensor, "w").unwrap();
    let wanted: Vec<u8> = [1f64, -2.0].iter().flat_map(|part| part.to_le_bytes()).collect();
    assert!(file.windows(16).any(|window| window == wanted), "{file:x?}");
    // WIRE-28-
    const ONE: [u8; 4] = 1f32.to_le_bytes();
    let both = with_tensor(|out| {
        out.put(tensor::Dims, &[1][..]);
        out.put(tensor::DataType, 1);
        out.put_packed(tensor::FloatData, &ONE);
        out.put(tensor::Name, b"w");
        out.put(tensor::RawData, &2f32.to_le_bytes());
    });
    let error = value(&both).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn payloads_are_not_copied_and_read_from_any_thread() {
    // WIRE-29+-, WIRE-30+
    let buffer = sardonyx::value::Buffer::from_vec(fs::read(DIGITS).unwrap());
    let model = Model::from_bytes(buffer.clone()).unwrap();
    let tensors = model.tensors();
    let whole = buffer.as_slice().as_ptr_range();
    let values = |model: &Model| -> Vec<Tensor> {
        tensors.iter().map(|tensor| model.value_of(tensor).unwrap()).collect()
    };
    let here = values(&model);
    for (tensor, value) in tensors.iter().zip(&here) {
        assert_eq!(tensor.storage, TensorStorage::Raw);
        assert!(whole.contains(&value.bytes().as_ptr()), "{}", tensor.name);
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..4).map(|_| scope.spawn(|| values(&model))).collect();
        for other in others {
            for (a, b) in here.iter().zip(other.join().unwrap()) {
                assert!(a.bytes() == b.bytes());
            }
        }
    });
}

#[test]
fn written_values_are_raw_data_inside_and_outside() {
    // WIRE-38+, TENSOR-42+: also for 6-bit floats
    for (data_type, dims) in [(DataType::Float, 3), (DataType::Float6e2m3, 3)] {
        let tensor = Tensor::zeros(data_type, [dims]).unwrap();
        let file = write_value(&Value::Tensor(tensor.clone()), "w").unwrap();
        let model = with_tensor(|out| out.copy_records(&file));
        assert_eq!(model.tensors()[0].storage, TensorStorage::Raw, "{data_type:?}");
        let ty = Type::Tensor(TensorType { elem: Some(data_type), shape: None });
        let Value::Tensor(again) = read_value(file, &ty).unwrap() else {
            panic!("a tensor is a tensor");
        };
        assert!(again.bytes() == tensor.bytes());
    }
    // EXT-13+, META-06+: 4-bit elements are packed in a data file as in the model, and no metadata
    // is added
    let inside = with_tensor(|out| {
        out.put(tensor::Dims, &[5][..]);
        out.put(tensor::DataType, DataType::Int4.number());
        out.put(tensor::Name, b"w");
        out.put(tensor::RawData, &[0x21, 0x43, 0x05]);
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.onnx");
    let options = SaveOptions::new().weights(Weights::Outside).threshold(0);
    options.save(&inside, &path).unwrap();
    assert_eq!(fs::read(directory.path().join("m.onnx.data")).unwrap(), [0x21, 0x43, 0x05]);
    let outside = Model::open(&path).unwrap();
    assert!(value(&outside).unwrap().bytes() == value(&inside).unwrap().bytes());
    assert!(outside.metadata().is_empty());
}

#[test]
fn attributes_hold_values_of_their_type() {
    // TENSOR-28: a tensor in an attribute needs no name
    let model = open(|out| {
        out.put(model::IrVersion, 8);
        out.put_message(model::Graph, |out| {
            out.put_message(graph::Node, |out| {
                out.put(node::Output, b"y");
                out.put(node::OpType, b"Constant");
                out.put_message(node::Attribute, |out| {
                    out.put(attribute::Name, b"value");
                    out.put_message(attribute::T, |out| {
                        out.put(tensor::Dims, &[2][..]);
                        out.put(tensor::DataType, 1);
                        out.put(tensor::RawData, &[0; 8]);
                    });
                    out.put(attribute::Type, sardonyx_proto::AttributeType::TENSOR);
                });
            });
            out.put(graph::Name, b"g");
            out.put_message(graph::Output, |out| info(out, "y"));
        });
        import(out, "", 13);
    });
    let no_inputs: [(&str, Tensor); 0] = [];
    let outputs = Session::new(&model).unwrap().run(no_inputs, &Default::default()).unwrap();
    assert_eq!(outputs.tensor("y").unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
}

fn parse(text: &str) -> Model {
    Model::from_bytes(text.as_bytes().to_vec()).unwrap()
}

/// Runs a model on inputs `x` and `z`, and returns its output `y`.
fn run_both(text: &str, x: &[f32], z: &[f32]) -> Vec<f32> {
    let session = Session::builder(&parse(text)).threads(1).build().unwrap();
    let tensor = |values: &[f32]| Tensor::from_vec([values.len()], values.to_vec()).unwrap();
    let inputs = [("x", tensor(x)), ("z", tensor(z))];
    let outputs = session.run(inputs, &Default::default()).unwrap();
    outputs.tensor("y").unwrap().to_vec::<f32>().unwrap()
}

const HEADER: &str = "<ir_version: 10, opset_import: [\"\": 21]>\n";

#[test]
fn operands_have_places_and_attributes_have_names() {
    // NODE-05+-: attributes have any order, operands are positional
    let graph =
        |node: &str| format!("{HEADER}g (float[N] x, float[N] z) => (float[N] y) {{ {node} }}");
    let gemm = |attributes: &str| {
        graph(&format!(
            "s = Constant<value_ints = [1, -1]>() a = Reshape(x, s) b = Reshape(z, s) \
             c = Gemm<{attributes}>(a, b) f = Constant<value_ints = [-1]>() y = Reshape(c, f)"
        ))
    };
    let one = run_both(&gemm("alpha = 2.0, transB = 1"), &[1.0, 2.0], &[3.0, 4.0]);
    let other = run_both(&gemm("transB = 1, alpha = 2.0"), &[1.0, 2.0], &[3.0, 4.0]);
    assert_eq!((one, other), (vec![22.0], vec![22.0]));
    let difference = graph("y = Sub(x, z)");
    assert_eq!(run_both(&difference, &[5.0], &[3.0]), [2.0]);
    assert_eq!(run_both(&graph("y = Sub(z, x)"), &[5.0], &[3.0]), [-2.0]);
    // NODE-20+: each run takes operands from the caller.
    assert_eq!(run_both(&difference, &[8.0], &[1.0]), [7.0]);
    // OPSET-22-: the shape of Reshape is an operand; an attribute of this name is not allowed.
    let confused = parse(&graph("y = Reshape<shape = [2, 2]>(x)"));
    assert!(Session::new(&confused).is_err());
}

#[test]
fn attributes_are_fixed_when_a_model_is_made() {
    // NODE-25+, ATTR-13+: an attribute is equal for all inputs, and cannot refer to a value
    let leaky = |alpha: &str| {
        format!(
            "{HEADER}g (float[N] x, float[N] z) => (float[N] y) {{ y = LeakyRelu<alpha: float = {alpha}>(x) }}"
        )
    };
    for x in [-1.0, -2.0, -4.0] {
        assert_eq!(run_both(&leaky("0.5"), &[x], &[9.0]), [x / 2.0]);
    }
    let error = Session::new(&parse(&leaky("@z"))).unwrap_err();
    assert!(error.to_string().contains("of a function"), "{error}");
}

#[test]
fn unnamed_results_are_not_returned() {
    // NODE-14+-, NODE-16-: with a mask, without one, and with an empty name for it
    let dropout = |outputs: &str| {
        format!("{HEADER}g (float[N] x, float[N] z) => (float[N] y) {{ {outputs} = Dropout(x) }}")
    };
    let x = [1.0, -2.0, 3.0];
    for outputs in ["y", "y, mask", "y, \"\""] {
        assert_eq!(run_both(&dropout(outputs), &x, &x), x, "{outputs}");
        let model = parse(&dropout(outputs));
        let session = Session::new(&model).unwrap();
        let names: Vec<&str> = session.outputs().iter().map(|port| port.name()).collect();
        assert_eq!(names, ["y"]);
        let x = Tensor::from_vec([3], x.to_vec()).unwrap();
        let found = session.run([("x", x.clone()), ("z", x)], &Default::default()).unwrap();
        assert_eq!(found.names().collect::<Vec<_>>(), ["y"]);
    }
}

#[test]
fn the_order_of_constants_has_no_effect() {
    // GRAPH-09+
    let constants = ["float[1] a = {2}", "float[1] b = {10}", "float[1] c = {3}"];
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let list = order.map(|index| constants[index]).join(", ");
        let text = format!(
            "{HEADER}g (float[N] x, float[N] z) => (float[N] y) <{list}> {{ p = Mul(x, a) q = Add(p, b) y = Div(q, c) }}"
        );
        assert_eq!(run_both(&text, &[1.0, 10.0], &[0.0, 0.0]), [4.0, 10.0], "{list}");
    }
}
