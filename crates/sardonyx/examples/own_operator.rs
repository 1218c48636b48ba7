//! Implements an operator that the standard lacks, with an attribute and type inference, and runs a
//! model that uses it.

use std::error::Error;

use sardonyx::ops::{CustomOperator, NodeTypes, OperatorCall, OperatorError, RuleAnswer};
use sardonyx::{Model, RunOptions, Session, Tensor};

/// Operator that keeps the elements above the attribute `threshold` and replaces all others by 0.
struct Threshold;

impl CustomOperator for Threshold {
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
        let threshold = call.attributes().float("threshold").unwrap_or(0.0);
        let dims = call.dims(0)?.to_vec();
        let x = call.slice::<f32>(0)?;
        let y = call.output_slice::<f32>(0, &dims)?;
        for (y, x) in y.iter_mut().zip(x) {
            *y = if *x > threshold { *x } else { 0.0 };
        }
        Ok(())
    }

    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        let Some(x) = node.input(0).cloned() else { return RuleAnswer::NoRule };
        node.set_output(0, x);
        RuleAnswer::Inferred
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::from_text(
        "<ir_version: 10, opset_import: [\"\": 21, \"com.example\": 1]>
         g (float[N] x) => (float[N] y) {
             large = com.example.Threshold <threshold = 1.0> (x)
             y = Neg (large)
         }",
    )?;
    let session =
        Session::builder(&model).operator("com.example", "Threshold", Threshold).build()?;
    let x = Tensor::from_vec([3], vec![0.5f32, 2.0, -3.0])?;
    let outputs = session.run([("x", x)], &RunOptions::default())?;
    let y = outputs.tensor("y")?.as_slice::<f32>()?;
    println!("{y:?}");
    assert_eq!(y, [0.0, -2.0, 0.0]);
    Ok(())
}
