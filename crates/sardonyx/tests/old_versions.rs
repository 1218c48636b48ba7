//! Runs models of old operator sets, and compares them with models of the newest one. Nodes without
//! an exact equivalent are errors when the session is built.

use sardonyx::{Model, Session, Tensor, Value};

/// Runs a graph whose inputs are float tensors, and formats all outputs as text.
fn run(opset: u32, graph: &str) -> Result<String, String> {
    let text = format!("<ir_version: 8, opset_import: [\"\": {opset}]> {graph}");
    let model = Model::from_text(&text).unwrap_or_else(|error| panic!("{error}"));
    let session = Session::new(&model).map_err(|error| error.to_string())?;
    let inputs = session.inputs().iter().map(|port| {
        let shape = port.ty().unwrap().shape().unwrap();
        let dims: Vec<usize> = shape.iter().map(|dim| dim.size().unwrap()).collect();
        // Values are neither sorted nor distinct, so that ties and order matter.
        let values = (0..dims.iter().product::<usize>()).map(|index| (index * 7 % 11) as f32);
        let tensor = Tensor::from_vec(dims, values.collect::<Vec<_>>()).unwrap();
        (port.name().to_string(), Value::Tensor(tensor))
    });
    let inputs: Vec<_> = inputs.collect();
    // A session that was built must run.
    let outputs = session.run(inputs, &Default::default()).unwrap();
    let values = outputs.iter().map(|(_, value)| {
        let tensor = value.as_tensor().unwrap();
        match tensor.as_slice::<i64>() {
            Ok(values) => format!("{:?} {values:?}", tensor.dims()),
            Err(_) => format!("{:?} {:?}", tensor.dims(), tensor.as_slice::<f32>().unwrap()),
        }
    });
    Ok(values.collect::<Vec<_>>().join("; "))
}

#[test]
fn old_forms_run_as_the_newest_ones_do() {
    let rows = [
        (
            1,
            "g (float[3, 4] x) => (float[3, 2] v, int64[3, 2] i) { v, i = TopK <k = 2> (x) }",
            "g (float[3, 4] x) => (float[3, 2] v, int64[3, 2] i)
             <int64[1] k = {2}> { v, i = TopK (x, k) }",
        ),
        (
            9,
            "g (float[3, 4] x) => (float[1, 4] v, int64[1, 4] i) { v, i = TopK <k = 1, axis = 0> (x) }",
            "g (float[3, 4] x) => (float[1, 4] v, int64[1, 4] i)
             <int64[1] k = {1}> { v, i = TopK <axis = 0> (x, k) }",
        ),
        (
            1,
            "g (float[2, 3] x) => (float[2, 9] y) <float t = {3}, float[1] a = {1}> { y = Tile (x, t, a) }",
            "g (float[2, 3] x) => (float[2, 9] y) <int64[2] r = {1, 3}> { y = Tile (x, r) }",
        ),
        (
            5,
            "g (float[2, 3] x) => (float[4, 3] y) {
                 t = Constant <value = float {2}> ()
                 a = Constant <value = float {0}> ()
                 y = Tile (x, t, a)
             }",
            "g (float[2, 3] x) => (float[4, 3] y) <int64[2] r = {2, 1}> { y = Tile (x, r) }",
        ),
        (
            18,
            "g (float[2, 6, 2] x, float[3] s, float[3] b) => (float[2, 6, 2] y) {
                 y = GroupNormalization <num_groups = 3> (x, s, b)
             }",
            "g (float[2, 6, 2] x, float[3] s, float[3] b) => (float[2, 6, 2] y)
             <int64[6] by = {0, 0, 1, 1, 2, 2}> {
                 scale = Gather (s, by)
                 bias = Gather (b, by)
                 y = GroupNormalization <num_groups = 3> (x, scale, bias)
             }",
        ),
        (
            20,
            "g (float[2, 3, 4] x) => (float[2, 3, 4] y) <float[3] s = {1, 2, 3}, float[3] b = {4, 5, 6}> {
                 y = GroupNormalization <num_groups = 3, epsilon = 0.5> (x, s, b)
             }",
            "g (float[2, 3, 4] x) => (float[2, 3, 4] y) <float[3] s = {1, 2, 3}, float[3] b = {4, 5, 6}> {
                 y = GroupNormalization <num_groups = 3, epsilon = 0.5> (x, s, b)
             }",
        ),
        (
            9,
            "g (float[3, 4] x, float[1, 2] u) => (float[3, 4] y) <int64[1, 2] at = {3, 1}> {
                 y = Scatter <axis = 1> (x, at, u)
             }",
            "g (float[3, 4] x, float[1, 2] u) => (float[3, 4] y) <int64[1, 2] at = {3, 1}> {
                 y = ScatterElements <axis = 1> (x, at, u)
             }",
        ),
    ];
    for (opset, old, new) in rows {
        let newest = run(22, new).unwrap();
        assert_eq!(run(opset, old), Ok(newest), "{opset}: {old}");
    }
}

#[test]
fn old_forms_without_an_exact_equivalent_are_refused_before_a_session_is_made() {
    let rows = [(
        1,
        "g (float[2, 3] x) => (float[] y) <float t = {1.5}, float a = {1}> { y = Tile (x, t, a) }",
        "tiles is not one non-negative integer",
    )];
    for (opset, graph, expected) in rows {
        let error = run(opset, graph).unwrap_err();
        assert!(error.contains(expected), "{opset}: {graph}: {error}");
    }
}

/// Checks the error for models that need more than 64 dimensions: time and memory must not grow
/// with that number.
#[test]
fn ranks_are_bounded() {
    let axes: Vec<String> = (0..100_000).map(|axis| axis.to_string()).collect();
    let axes = format!(
        "g (float[1] x) => (float[] y) <int64[100000] a = {{{}}}> {{ y = Unsqueeze (x, a) }}",
        axes.join(", ")
    );
    let few = axes_of(64);
    let rows = [
        (axes.as_str(), "the rank is 100001, but a tensor has at most 64 dimensions"),
        (few.as_str(), "output 0 has 65 dimensions; at most 64 are supported"),
    ];
    for (graph, expected) in rows {
        let text = format!("<ir_version: 8, opset_import: [\"\": 21]> {graph}");
        let model = Model::from_text(&text).unwrap();
        let error = match Session::new(&model) {
            Err(error) => error.to_string(),
            Ok(session) => {
                let x = Tensor::from_vec([1], vec![1.0f32]).unwrap();
                session.run([("x", x)], &Default::default()).unwrap_err().to_string()
            }
        };
        assert!(error.contains(expected), "{error}");
    }
    let most = axes_of(63);
    let text = format!("<ir_version: 8, opset_import: [\"\": 21]> {most}");
    let session = Session::new(&Model::from_text(&text).unwrap()).unwrap();
    let x = Tensor::from_vec([1], vec![1.0f32]).unwrap();
    let outputs = session.run([("x", x)], &Default::default()).unwrap();
    assert_eq!(outputs.tensor("y").unwrap().dims(), [1; 64]);
}

fn axes_of(count: usize) -> String {
    let axes: Vec<String> = (0..count).map(|axis| axis.to_string()).collect();
    let axes = axes.join(", ");
    format!(
        "g (float[1] x) => (float[] y) <int64[{count}] a = {{{axes}}}> {{ y = Unsqueeze (x, a) }}"
    )
}
