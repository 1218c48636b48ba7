//! Property: a model can be compiled and run or returns an error that gives the reason, within
//! limits of memory, time and iterations, for any bytes. Two sessions give equal results.
//!
//! The inputs are small tensors of the declared types, with chosen sizes where the model leaves
//! them open.

use std::time::{Duration, Instant};

use sardonyx::value::{Map, Opaque, Sequence, TensorType};
use sardonyx::{
    Dim, ErrorKind, Model, Outputs, RunOptions, Session, Tensor, Type, Value, ValueType,
};

const MEMORY: usize = 16 << 20;
/// Most elements of an input.
const ELEMENTS: usize = 1 << 12;
/// Limit of the iterations of all loops of a run.
const ITERATIONS: u64 = 200;
/// Time after which a run ends before its next step.
const DEADLINE: Duration = Duration::from_millis(300);
/// Time that the runs may take: no step of a model within the memory limit takes longer, also
/// without optimisation.
const LONGEST: Duration = Duration::from_secs(30);

/// Runs the bytes as a model.
pub(crate) fn check(input: &[u8]) {
    let Ok(model) = Model::from_bytes(input.to_vec()) else {
        return;
    };
    let began = Instant::now();
    let session = match Session::builder(&model).threads(1).memory_limit(MEMORY).seed(1).build() {
        Ok(session) => session,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.kind() != ErrorKind::Internal, "{error}");
            return;
        }
    };
    let again = Session::builder(&model).threads(1).memory_limit(MEMORY).seed(1).build();
    let again = again.expect("what was compiled once compiles again");
    if let (Some(a), Some(b)) = (run(&session), run(&again)) {
        for ((name, a), (_, b)) in a.iter().zip(b.iter()) {
            assert_eq!(format!("{a:?}"), format!("{b:?}"), "'{name}'");
        }
    }
    assert!(began.elapsed() < LONGEST, "it took {:?}", began.elapsed());
}

/// Runs a session. Returns the outputs if the run succeeds.
fn run(session: &Session) -> Option<Outputs> {
    let mut inputs = Vec::new();
    for port in session.inputs().iter().filter(|port| port.is_required()) {
        inputs.push((port.name().to_string(), make_value(port.ty()?)?));
    }
    let options = RunOptions::new().iteration_limit(ITERATIONS).deadline(Instant::now() + DEADLINE);
    match session.run(inputs, &options) {
        Ok(outputs) => Some(outputs),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            // The inputs fit the declared types, so these kinds would be a fault of the session.
            let kind = error.kind();
            assert!(!matches!(kind, ErrorKind::Output | ErrorKind::Internal), "{error}");
            None
        }
    }
}

/// Makes a small value of a type.
fn make_value(ty: &Type) -> Option<Value> {
    Some(match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => make_tensor(tensor)?.into(),
        Type::Sequence(inner) => {
            let item = make_value(inner)?;
            let mut items = Sequence::new(item.value_type());
            items.push(item.clone()).ok()?;
            items.push(item).ok()?;
            items.into()
        }
        Type::Map(key, inner) => Map::new(*key, make_value(inner)?.value_type()).ok()?.into(),
        Type::Optional(inner) => Value::some(make_value(inner)?),
        Type::Opaque { domain, name } => Opaque::new(domain, name, 0, ()).into(),
    })
    .filter(|value: &Value| !matches!(value.value_type(), ValueType::Sparse(_)))
}

fn make_tensor(tensor: &TensorType) -> Option<Tensor> {
    let open = |index: usize, dim: &Dim| dim.size().unwrap_or(1 + index % 3);
    let shape = tensor.shape.iter().flat_map(|shape| shape.iter().enumerate());
    let dims: Vec<usize> = shape.map(|(index, dim)| open(index, dim)).collect();
    let elems = dims.iter().try_fold(1usize, |elems, dim| elems.checked_mul(*dim))?;
    let elem = tensor.elem?;
    if elems > ELEMENTS {
        return None;
    }
    let mut made = Tensor::zeros(elem, &dims).ok()?;
    // Fill in small numbers, among them 0 and 1. Strings stay empty.
    if elem.bits().is_some_and(|bits| bits % 8 == 0) {
        let width = elem.bits()? / 8;
        let bytes = made.bytes_mut().ok()?;
        for (index, element) in bytes.chunks_mut(width).enumerate() {
            element[0] = if elem.name() == "bool" { index as u8 % 2 } else { index as u8 % 5 };
        }
    }
    Some(made)
}
