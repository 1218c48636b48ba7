//! Adds a training step to a model, trains it, and saves the optimizer state and the trained model.

use std::error::Error;

use sardonyx::train::{Loss, OptimizerKind, TrainingOptions};
use sardonyx::{Model, RunOptions, Tensor, Trainer};

fn main() -> Result<(), Box<dyn Error>> {
    // y = x * w + b
    let model = Model::from_text(
        "<ir_version: 10, opset_import: [\"\": 21]>
         line (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}, float[1] b = {0}> {
             y = Gemm (x, w, b)
         }",
    )?;
    let loss = Loss::SquaredError { output: None };
    let options = TrainingOptions::new(loss).optimizer(OptimizerKind::adam(), 0.1);
    let (training, report) = model.add_training(&options)?;
    println!("trains {:?}", report.variables);

    let mut trainer = Trainer::new(&training)?;
    let x = Tensor::from_vec([4, 1], vec![-1f32, 0.0, 1.0, 2.0])?;
    let target = Tensor::from_vec([4, 1], vec![-1f32, 1.0, 3.0, 5.0])?;
    for _ in 0..400 {
        let inputs = [("x", x.clone()), ("target", target.clone())];
        trainer.step(0, inputs, &RunOptions::default())?;
    }
    let w: f32 = trainer.variable("w")?.item()?;
    println!("w = {w:.3}");
    assert!((w - 2.0).abs() < 1e-2);

    // Training can resume from the state; the exported model has the trained weights, for
    // inference.
    let directory = std::env::temp_dir().join(format!("trained-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    trainer.save(directory.join("state.safetensors"))?;
    trainer.export_inference()?.save(directory.join("line.onnx"))?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
