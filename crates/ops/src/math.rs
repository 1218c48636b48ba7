//! Elementwise arithmetic, comparison, logic and activations; matrix products; operators along one
//! axis.

pub(crate) mod binary;
pub(crate) mod classify;
pub(crate) mod clip;
pub(crate) mod consumed_inputs;
pub(crate) mod cumulative;
pub(crate) mod einsum;
pub(crate) mod floats_only;
pub(crate) mod gated;
pub(crate) mod gemm;
pub(crate) mod gradients;
pub(crate) mod legacy_broadcast;
pub(crate) mod linear;
pub(crate) mod linear_gradients;
pub(crate) mod matmul;
pub(crate) mod prelu;
pub(crate) mod shape_values;
mod shift;
pub(crate) mod softmax;
pub(crate) mod unary;
pub(crate) mod variadic;

/// Types and values as text, so that tests of inference are tables.
#[cfg(test)]
pub(crate) mod testing {
    use std::collections::HashMap;

    use sardonyx_model::{
        AttrValue, Dim, MadeNodes, Model, NoExternalData, NodeBuilder, NodeId, Shape, TensorType,
        Type, ValueId,
    };
    use sardonyx_tensor::{Buffer, DataType, Tensor};

    use crate::adapt::Adapt;
    use crate::attributes::Attributes;
    use crate::def::OpDef;
    use crate::infer::{Infer, InferError, Present};
    use crate::known::{Dims, Known};

    /// Attributes of a node, by name.
    pub(crate) struct Given<'a>(pub(crate) &'a [(&'static str, AttrValue<'static>)]);

    impl Attributes for Given<'_> {
        fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
            self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone())
        }
    }

    /// Infers the types and the known values of the outputs of a node.
    pub(crate) fn infer(
        def: &OpDef,
        opset: u32,
        attributes: &[(&'static str, AttrValue<'static>)],
        inputs: &[Option<Type>],
        known: &[Option<Known>],
        outputs: usize,
    ) -> Result<(Vec<Option<Type>>, Vec<Option<Known>>), InferError> {
        infer_some(def, opset, attributes, inputs, known, &vec![true; inputs.len()], outputs)
    }

    /// Infers the types and the known values of the outputs of a node, some of whose inputs may be
    /// absent.
    pub(crate) fn infer_some(
        def: &OpDef,
        opset: u32,
        attributes: &[(&'static str, AttrValue<'static>)],
        inputs: &[Option<Type>],
        known: &[Option<Known>],
        present: &[bool],
        outputs: usize,
    ) -> Result<(Vec<Option<Type>>, Vec<Option<Known>>), InferError> {
        let schema = def.schema_at(opset).expect("the operator exists in this opset version");
        let rule = def.inference_at(opset).expect("the operator has inference");
        let attributes = Given(attributes);
        let has_outputs = vec![true; outputs];
        let inputs: Vec<_> = inputs.iter().map(Option::as_ref).collect();
        let known: Vec<_> = known.iter().map(Option::as_ref).collect();
        let mut cx = Infer::new(&schema, &attributes, &inputs, &known, outputs)
            .with_present(Present { inputs: present, outputs: &has_outputs });
        rule(&mut cx)?;
        let mut outcome = cx.finish();
        outcome.known.resize(outputs, None);
        Ok((outcome.types.into_vec(), outcome.known))
    }

    /// Infers the type of the only output from inputs such as `"float[2, N, ?]; int64"`. Returns it
    /// or the error as text. See [`ty`].
    pub(crate) fn infer_type(
        def: &OpDef,
        opset: u32,
        attributes: &[(&'static str, AttrValue<'static>)],
        inputs: &str,
    ) -> String {
        let inputs: Vec<_> = inputs.split(';').map(ty).collect();
        match infer(def, opset, attributes, &inputs, &[], 1) {
            Ok((types, _)) => types[0].as_ref().map_or("-".to_string(), Type::to_string),
            Err(error) => error.to_string(),
        }
    }

    /// Infers the contents of the only output from inputs with known contents such as `"[2, N];
    /// 3"`. See [`value`].
    pub(crate) fn infer_value(
        def: &OpDef,
        opset: u32,
        attributes: &[(&'static str, AttrValue<'static>)],
        inputs: &str,
    ) -> String {
        let known: Vec<_> = inputs.split(';').map(value).collect();
        let types: Vec<_> = known.iter().map(|known| known.as_ref().map(type_of)).collect();
        match infer(def, opset, attributes, &types, &known, 1) {
            Ok((types, values)) => {
                if let (Some(ty), Some(value)) = (&types[0], &values[0]) {
                    assert!(
                        ty.merge(&type_of(value)).is_some(),
                        "{value:?} is not of the inferred type {ty}"
                    );
                }
                values[0].as_ref().map_or("-".to_string(), show_value)
            }
            Err(error) => error.to_string(),
        }
    }

    /// Applies the adapter from an opset version to the next one. Returns the resulting nodes as
    /// text, each with its inputs (`a`, `b`, `c`, or the value of a constant) and attributes; `y`
    /// is the original output.
    pub(crate) fn raise_version(
        def: &OpDef,
        from: u32,
        attributes: &[(&str, AttrValue<'static>)],
        inputs: &str,
    ) -> String {
        cross_version(def, from, from + 1, attributes, inputs)
    }

    /// Applies the adapter from an opset version to the previous one. Returns the resulting nodes
    /// like [`raise_version`].
    pub(crate) fn lower_version(
        def: &OpDef,
        from: u32,
        attributes: &[(&str, AttrValue<'static>)],
        inputs: &str,
    ) -> String {
        cross_version(def, from, from - 1, attributes, inputs)
    }

    /// Applies an adapter to a node with inputs from text: types, `_` for an absent input, or
    /// constants such as `=[0, 2]`.
    fn cross_version(
        def: &OpDef,
        from: u32,
        to: u32,
        attributes: &[(&str, AttrValue<'static>)],
        inputs: &str,
    ) -> String {
        let empty_graph = Buffer::from_vec(vec![0x3a, 0]);
        let mut model = Model::read(empty_graph).expect("a model with a graph of no fields");
        let graph = model.graphs().next().expect("the graph").0;
        let (mut types, mut names, mut values) = (HashMap::new(), HashMap::new(), Vec::new());
        for (text, name) in inputs.split(';').map(str::trim).zip(["a", "b", "c", "d", "e"]) {
            if text == "_" {
                values.push(None);
                continue;
            }
            if let Some(numbers) = text.strip_prefix('=') {
                let known = value(numbers).expect("a value");
                let tensor = known.to_tensor().expect("numbers");
                values.push(Some(model.add_initializer(graph, name, &tensor)));
                continue;
            }
            let value = model.add_value(graph, name);
            types.insert(value, ty(text));
            names.insert(value, name.to_string());
            values.push(Some(value));
        }
        let node = model.add_node(graph, def.name, "", &values, 1);
        names.insert(model.outputs(node)[0].expect("the output"), "y".to_string());
        for (name, value) in attributes {
            model.set_attribute(node, name, value.clone());
        }
        let adapter = def.adapter_at(from, to).expect("the adapter");
        let mut made = MadeNodes::default();
        let build = NodeBuilder::new(&mut model, &mut made, node);
        if let Err(refusal) = adapter(&mut Adapt::new(build, &types)) {
            return format!("{}: {refusal}", def.name);
        }
        for initializer in &model.graph(graph).initializers {
            let tensor =
                model.tensor(&initializer.tensor, &NoExternalData).expect("a constant in memory");
            names.insert(initializer.value.expect("a constant has a value"), show_tensor(&tensor));
        }
        made.place(&mut model);
        let nodes = &model.graph(graph).nodes;
        nodes.iter().map(|node| show_node(&model, *node, &mut names)).collect::<Vec<_>>().join("; ")
    }

    fn show_node(model: &Model, node: NodeId, names: &mut HashMap<ValueId, String>) -> String {
        let inputs: Vec<_> = model
            .inputs(node)
            .map(|input| {
                input.map_or("-".to_string(), |value| {
                    names.get(&value).expect("made before").clone()
                })
            })
            .collect();
        let output = model.outputs(node)[0].expect("the output");
        let fresh = format!("t{}", names.len());
        let output = names.entry(output).or_insert(fresh);
        let mut text = format!(
            "{output} = {}({})",
            model.display(model.node(node).op_type),
            inputs.join(", ")
        );
        for id in model.attributes(node) {
            let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let value = match model.attribute_value(model.attribute(*id), None) {
                Some(AttrValue::Int(value)) => value.to_string(),
                Some(AttrValue::Float(value)) => value.to_string(),
                Some(AttrValue::Ints(values)) => format!("{values:?}"),
                Some(AttrValue::Floats(values)) => format!("{values:?}"),
                Some(AttrValue::String(text)) => string(&text),
                Some(AttrValue::Strings(texts)) => {
                    format!("{:?}", texts.iter().map(|text| string(text)).collect::<Vec<_>>())
                }
                other => format!("{other:?}"),
            };
            text += &format!(" {}={value}", model.display(model.attribute(*id).name));
        }
        text
    }

    fn show_tensor(tensor: &Tensor) -> String {
        let text = match tensor.data_type() {
            DataType::Int64 => format!("{:?}", tensor.to_vec::<i64>().expect("the type fits")),
            DataType::Float => format!("{:?}", tensor.to_vec::<f32>().expect("the type fits")),
            DataType::Double => format!("{:?}", tensor.to_vec::<f64>().expect("the type fits")),
            other => return other.to_string(),
        };
        if tensor.rank() == 0 { text.trim_matches(['[', ']']).to_string() } else { text }
    }

    /// Parses a type: `float[2, N, ?]`, `float` (a scalar), `float[...]` (any rank), `?[2]` (any
    /// element type), `seq(float[2])`, `optional(float)`, `map(int64, float)`, `-` (unknown).
    pub(crate) fn ty(text: &str) -> Option<Type> {
        let text = text.trim();
        if text == "-" {
            return None;
        }
        if let Some((form, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            let inside = |inner: &str| Box::new(ty(inner).expect("a type inside"));
            return Some(match form {
                "seq" => Type::Sequence(inside(inner)),
                "optional" => Type::Optional(inside(inner)),
                "map" => {
                    let (key, value) = inner.split_once(',').expect("a key and a value");
                    let key = DataType::from_name(key).expect("the name of an element type");
                    Type::Map(key, inside(value))
                }
                _ => panic!("no type is called {form}"),
            });
        }
        let (elem, dims) = text.split_once('[').unwrap_or((text, "]"));
        let elem = match elem {
            "?" => None,
            name => Some(DataType::from_name(name).expect("the name of an element type")),
        };
        let shape = match dims.trim_end_matches(']') {
            "..." => None,
            dims => Some(
                dims.split(',')
                    .map(str::trim)
                    .filter(|dim| !dim.is_empty())
                    .map(dim)
                    .collect::<Shape>(),
            ),
        };
        Some(Type::Tensor(TensorType { elem, shape }))
    }

    /// Parses a known value: `[2, N]`, `[[1], [2]]`, `3` (a scalar), `-` (unknown). The type is
    /// `int64`, or given as in `int32:5`.
    pub(crate) fn value(text: &str) -> Option<Known> {
        let text = text.trim();
        let (elem, text) = match text.split_once(':') {
            Some((name, rest)) => (DataType::from_name(name).expect("an element type"), rest),
            None => (DataType::Int64, text),
        };
        if text == "-" {
            return None;
        }
        let (mut dims, mut values) = (Dims::new(), Vec::new());
        read_array(text, 0, &mut dims, &mut values);
        Some(Known::Ints { elem, dims, values })
    }

    fn read_array(text: &str, rank: usize, dims: &mut Dims, values: &mut Vec<Dim>) {
        let text = text.trim();
        let Some(items) = text.strip_prefix('[') else {
            return values.push(dim(text));
        };
        let items = items.strip_suffix(']').expect("brackets that match");
        let (mut depth, mut start, mut count) = (0, 0, 0);
        if dims.len() == rank {
            dims.push(0);
        }
        for (at, char) in items.char_indices().chain([(items.len(), ',')]) {
            match char {
                '[' => depth += 1,
                ']' => depth -= 1,
                ',' if depth == 0 => {
                    if !items[start..at].trim().is_empty() {
                        read_array(&items[start..at], rank + 1, dims, values);
                        count += 1;
                    }
                    start = at + 1;
                }
                _ => {}
            }
        }
        dims[rank] = count;
    }

    fn dim(text: &str) -> Dim {
        match text.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) if text == "?" => Dim::Unknown,
            Err(_) => Dim::symbol(text),
        }
    }

    fn type_of(known: &Known) -> Type {
        Type::tensor(known.elem(), known.dims().iter().copied())
    }

    fn show_value(known: &Known) -> String {
        let values = known.elements().expect("the tests use numbers");
        show_array(known.dims(), &values)
    }

    fn show_array(dims: &[usize], values: &[Dim]) -> String {
        let Some((count, inner)) = dims.split_first() else {
            return values[0].to_string();
        };
        let part = values.len().checked_div(*count).unwrap_or(0);
        let parts: Vec<String> = (0..*count)
            .map(|index| show_array(inner, &values[index * part..(index + 1) * part]))
            .collect();
        format!("[{}]", parts.join(", "))
    }
}
