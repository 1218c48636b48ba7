//! Arithmetic, comparison, logic and activations element by element; matrix products; what works along one axis.

pub mod binary;
pub mod clip;
pub(crate) mod consumed_inputs;
pub(crate) mod floats_only;
pub mod gemm;
pub(crate) mod legacy_broadcast;
pub mod matmul;
pub mod prelu;
pub(crate) mod shape_values;
pub mod softmax;
pub mod unary;
pub mod variadic;

/// Types and values as text, so that the tests of inference are tables.
#[cfg(test)]
pub(crate) mod testing {
    use sardonyx_model::{Dim, Shape, TensorType, Type};
    use sardonyx_tensor::DataType;

    use crate::def::OpDef;
    use crate::infer::{AttrValue, Attributes, Infer, InferError, Known};

    struct Given<'a>(&'a [(&'static str, AttrValue<'static>)]);

    impl Attributes for Given<'_> {
        fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
            self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone())
        }
    }

    /// Types and known values of the outputs of a node.
    pub(crate) fn infer(
        def: &OpDef,
        opset: u32,
        attributes: &[(&'static str, AttrValue<'static>)],
        inputs: &[Option<Type>],
        known: &[Option<Known>],
        outputs: usize,
    ) -> Result<(Vec<Option<Type>>, Vec<Option<Known>>), InferError> {
        let schema = def.schema_at(opset).expect("the operator exists in this opset version");
        let rule = def.inference_at(opset).expect("the operator has inference");
        let attributes = Given(attributes);
        let mut cx = Infer::new(&schema, &attributes, inputs, known, outputs);
        rule(&mut cx)?;
        Ok(cx.finish())
    }

    /// The type of the only output for inputs such as `"float[2, N, ?]; int64"`, or the error, as text. See [`ty`].
    pub(crate) fn inferred(
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

    /// The value of the only output for inputs of known values such as `"[2, N]; 3"`. See [`value`].
    pub(crate) fn propagated(
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
                    assert!(ty.merge(&type_of(value)).is_some(), "{value:?} is not of the inferred type {ty}");
                }
                values[0].as_ref().map_or("-".to_string(), show_value)
            }
            Err(error) => error.to_string(),
        }
    }

    /// A type from text: `float[2, N, ?]`, `float` (a scalar), `float[...]` (any rank), `?[2]` (any element type),
    /// `-` (nothing known).
    pub(crate) fn ty(text: &str) -> Option<Type> {
        let text = text.trim();
        if text == "-" {
            return None;
        }
        let (elem, dims) = text.split_once('[').unwrap_or((text, "]"));
        let elem = match elem {
            "?" => None,
            name => Some(DataType::from_name(name).expect("the name of an element type")),
        };
        let shape = match dims.trim_end_matches(']') {
            "..." => None,
            dims => Some(dims.split(',').map(str::trim).filter(|dim| !dim.is_empty()).map(dim).collect::<Shape>()),
        };
        Some(Type::Tensor(TensorType { elem, shape }))
    }

    /// A known value from text: `[2, N]`, `3` (a scalar), `-` (unknown). Of type int64, or int32 after `i32:`.
    pub(crate) fn value(text: &str) -> Option<Known> {
        let text = text.trim();
        let (elem, text) = match text.strip_prefix("i32:") {
            Some(rest) => (DataType::Int32, rest),
            None => (DataType::Int64, text),
        };
        if text == "-" {
            return None;
        }
        let scalar = !text.starts_with('[');
        let items = text.trim_matches(['[', ']']).split(',').map(str::trim).filter(|item| !item.is_empty());
        Some(Known::Ints { elem, scalar, values: items.map(dim).collect() })
    }

    fn dim(text: &str) -> Dim {
        match text.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) if text == "?" => Dim::Unknown,
            Err(_) => Dim::symbol(text),
        }
    }

    fn type_of(known: &Known) -> Type {
        match known {
            Known::Ints { elem, scalar: true, .. } => Type::tensor(*elem, [] as [Dim; 0]),
            Known::Ints { elem, values, .. } => Type::tensor(*elem, [values.len()]),
            Known::Tensor(tensor) => Type::tensor(tensor.data_type(), tensor.dims().iter().copied()),
        }
    }

    fn show_value(known: &Known) -> String {
        let values = known.ints().expect("the tests use integers");
        if known.is_scalar() { values[0].to_string() } else { format!("{values:?}") }
    }
}
