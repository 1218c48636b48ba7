//! Inspects intermediate values of a model: prints their inferred types, and adds two intermediate
//! values to the outputs of a run.

use std::error::Error;

use sardonyx::infer::InferOptions;
use sardonyx::{Model, RunOptions, Session, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    let model = Model::open(path)?;

    let inferred = model.infer(&InferOptions::default());
    for value in inferred.values(&model) {
        match value.ty {
            Some(ty) => println!("{}: {ty}", value.name),
            None => println!("{}: unknown", value.name),
        }
    }

    // Adds intermediate values as outputs. The session computes them as the model defines them,
    // even if it would have fused their nodes.
    let watched = model.with_outputs(["relu1", "flat"])?;
    let session = Session::new(&watched)?;
    let image = Tensor::from_vec([1, 1, 8, 8], vec![0.5f32; 64])?;
    let outputs = session.run([("image", image)], &RunOptions::default())?;
    let relu = outputs.tensor("relu1")?.as_slice::<f32>()?;
    let dead = relu.iter().filter(|element| **element == 0.0).count();
    println!("relu1: {dead} of {} elements are 0", relu.len());
    assert!(relu.iter().all(|element| *element >= 0.0));
    assert_eq!(outputs.tensor("flat")?.dims(), [1, 1024]);
    Ok(())
}
