//! Inputs and outputs of a model in onnxruntime's terms, and checks that the inputs of a run are
//! complete.

use sardonyx::value::TensorType;
use sardonyx::{DataType, Dim, ErrorKind, Port, Type};

use crate::error::Error;
use crate::status::Status;

/// Kind of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Input that callers pass.
    Input,
    /// Initializer that callers may replace.
    OverridableInitializer,
}

/// Size of an axis of an input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Size {
    /// A number.
    Known(i64),
    /// Text of the model, perhaps a name.
    Text(String),
    /// Size that the model leaves out.
    Unknown,
}

/// Returns the kind of an input: an input with a default is an initializer that callers may
/// replace, unless its type is optional.
pub fn input_kind(port: &Port) -> InputKind {
    if port.is_required() || matches!(port.ty(), Some(Type::Optional(_))) {
        InputKind::Input
    } else {
        InputKind::OverridableInitializer
    }
}

/// Formats the type of a value without sizes, such as `seq(tensor(float))`.
pub fn type_name(ty: &Type) -> String {
    let elem = |tensor: &TensorType| tensor.elem.map_or("undefined", DataType::name);
    match ty {
        Type::Tensor(tensor) => format!("tensor({})", elem(tensor)),
        Type::SparseTensor(tensor) => format!("sparse_tensor({})", elem(tensor)),
        Type::Sequence(inner) => format!("seq({})", type_name(inner)),
        Type::Map(key, inner) => format!("map({},{})", key.name(), type_name(inner)),
        Type::Optional(inner) => format!("optional({})", type_name(inner)),
        Type::Opaque { domain, name } => format!("opaque({domain},{name})"),
    }
}

/// Returns the type of a tensor, or of an optional tensor.
pub fn tensor_type(ty: &Type) -> Option<&TensorType> {
    match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => Some(tensor),
        Type::Optional(inner) => tensor_type(inner),
        Type::Sequence(_) | Type::Map(..) | Type::Opaque { .. } => None,
    }
}

/// Returns the sizes of an input or output; none if it is not a tensor or has no declared rank.
///
/// `marks` are texts of the model that are not names, such as `?`, each with its axis.
pub fn sizes(port: &Port, marks: &[(usize, String)]) -> Vec<Size> {
    let shape = port.ty().and_then(tensor_type).and_then(|tensor| tensor.shape.as_ref());
    let dims = shape.into_iter().flatten().enumerate();
    let size = |(axis, dim): (usize, &Dim)| match (dim, dim.as_symbol()) {
        (Dim::Known(size), _) => Size::Known(*size),
        (_, Some(name)) => Size::Text(name.to_string()),
        _ => match marks.iter().find(|(marked, _)| *marked == axis) {
            Some((_, text)) => Size::Text(text.clone()),
            None => Size::Unknown,
        },
    };
    dims.map(size).collect()
}

/// Returns the names of the sizes that inputs or outputs leave open.
pub fn size_names(ports: &[Port]) -> Vec<String> {
    let mut names = Vec::new();
    for port in ports {
        let Some(ty) = port.ty() else { continue };
        let mut ty = ty.clone();
        ty.for_each_dim(&mut |dim| names.extend(dim.as_symbol().map(str::to_string)));
    }
    names
}

/// Refuses a run without all required inputs. `given` are the names of the passed inputs, and
/// `is_given` returns whether an input has a value.
///
/// # Errors
///
/// If inputs are missing, which the error lists.
pub fn demand_inputs(
    inputs: &[Port],
    given: &[String],
    is_given: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let required = inputs.iter().filter(|port| port.is_required()).map(Port::name);
    let missing: Vec<&str> = required.filter(|name| !is_given(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let listed = |names: String| if names.is_empty() { names } else { format!("'{names}'") };
    let (missing, given) = (listed(missing.join("', '")), listed(given.join("', '")));
    let what = format!("Required inputs ([{missing}]) are missing: the inputs given are [{given}]");
    Err(Error::new(Status::InvalidArgument, ErrorKind::Input, what))
}

/// Whether inputs differ in sizes to which the model gives one name. `dims` returns the sizes of an
/// input, if it is passed and has any.
///
/// onnxruntime runs such inputs, with a warning. In Sardonyx, a session with [independent
/// sizes](sardonyx::Model::forget_size_names) does.
pub fn has_different_sizes(
    inputs: &[Port],
    mut dims: impl FnMut(&Port) -> Option<Vec<usize>>,
) -> bool {
    let mut sizes: Vec<(&str, usize)> = Vec::new();
    for port in inputs {
        let shape = port.ty().and_then(tensor_type).and_then(|tensor| tensor.shape.as_ref());
        let (Some(shape), Some(dims)) = (shape, dims(port)) else { continue };
        for (dim, size) in shape.iter().zip(dims) {
            let Some(name) = dim.as_symbol() else { continue };
            match sizes.iter().find(|(known, _)| *known == name) {
                Some((_, known)) if *known != size => return true,
                Some(_) => {}
                None => sizes.push((name, size)),
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx::Model;
    use sardonyx::tool::ModelExt;

    fn inputs(graph: &str) -> (Model, Vec<Port>) {
        let head = "<ir_version: 8, opset_import: [\"\": 18, \"ai.onnx.ml\": 3]>";
        let model = Model::from_text(&format!("{head} g ({graph}) => (y) {{ y = Relu (x) }}"));
        let model = model.unwrap();
        let inputs = model.inputs();
        (model, inputs)
    }

    #[test]
    fn types_and_sizes_are_those_of_onnxruntime() {
        let (model, ports) = inputs(
            "float[\"?\", 3, N, ?] x, seq(map(int64, float[K])) s, optional(float16[2]) o, float d = {2}",
        );
        let names: Vec<String> = ports.iter().map(|port| type_name(port.ty().unwrap())).collect();
        assert_eq!(
            names,
            [
                "tensor(float)",
                "seq(map(int64,tensor(float)))",
                "optional(tensor(float16))",
                "tensor(float)"
            ]
        );
        let text = |text: &str| Size::Text(text.to_string());
        let found = sizes(&ports[0], &model.list_invalid_symbols("x"));
        assert_eq!(found, [text("?"), Size::Known(3), text("N"), Size::Unknown]);
        assert!(sizes(&ports[1], &[]).is_empty());
        assert_eq!(sizes(&ports[2], &[]), [Size::Known(2)]);
        let kinds: Vec<InputKind> = ports.iter().map(input_kind).collect();
        let (input, other) = (InputKind::Input, InputKind::OverridableInitializer);
        assert_eq!(kinds, [input, input, input, other]);
        assert_eq!(size_names(&ports), ["N", "K"]);
    }

    #[test]
    fn inputs_that_are_missing_are_named() {
        let (_, ports) = inputs("float[N] x, float[M] z, float[1] d = {2}");
        let demand = |given: &[&str]| {
            let names: Vec<String> = given.iter().map(ToString::to_string).collect();
            demand_inputs(&ports, &names, |name| given.contains(&name))
        };
        demand(&["x", "z"]).unwrap();
        let error = demand(&["d"]).unwrap_err();
        assert_eq!(
            error.message,
            "Required inputs (['x', 'z']) are missing: the inputs given are ['d']"
        );
        assert_eq!((error.status, error.kind), (Status::InvalidArgument, ErrorKind::Input));
        assert!(demand(&[]).unwrap_err().message.ends_with("given are []"));
    }

    #[test]
    fn sizes_of_one_name_are_compared() {
        let (_, ports) = inputs("float[N, K] x, float[N] z");
        let differ = |x: Option<[usize; 2]>, z: usize| {
            has_different_sizes(&ports, |port| match port.name() {
                "x" => x.map(Vec::from),
                _ => Some(vec![z]),
            })
        };
        assert!(!differ(Some([2, 3]), 2));
        assert!(differ(Some([2, 3]), 3));
        assert!(!differ(None, 3));
    }
}
