//! Converts a model to an older operator set version, saves the converted model, and compares its
//! outputs with those of the original.

use std::error::Error;

use sardonyx::convert::{ConvertOptions, Target};
use sardonyx::value::Tolerance;
use sardonyx::{Model, RunOptions, Session, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    let model = Model::open(path)?;
    let (older, report) = model.convert(&ConvertOptions::new(Target::new().opset("", 11)))?;
    for operator in &report.operators {
        println!("{}: {} nodes rewritten", operator.op, operator.rewritten);
    }

    // Saving is atomic: an existing file is replaced only once the new one is complete.
    let file = std::env::temp_dir().join(format!("digits-11-{}.onnx", std::process::id()));
    older.save(&file)?;

    let image = Tensor::from_vec([1, 1, 8, 8], (0..64).map(|i| i as f32 / 64.0).collect())?;
    let inputs = [("image", image)];
    let before = Session::new(&model)?.run(inputs.clone(), &RunOptions::default())?;
    let after = Session::new(&Model::open(&file)?)?.run(inputs, &RunOptions::default())?;
    std::fs::remove_file(&file)?;
    for (name, value) in before.iter() {
        let other = after.get(name).ok_or("the converted model lacks an output")?;
        value.compare(other, Tolerance::NODE_TESTS)?;
        println!("{name}: equal");
    }
    Ok(())
}
