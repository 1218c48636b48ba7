//! Runs one session on inputs of several sizes, then builds a session with a fixed batch size.

use std::error::Error;

use sardonyx::{ErrorKind, Model, RunOptions, Session, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::from_text(
        "<ir_version: 10, opset_import: [\"\": 21]>
         mean_of_tokens (float[batch, tokens, 4] x) => (float[batch, 4] y)
             <int64[1] axes = {1}> { y = ReduceMean <keepdims = 0> (x, axes) }",
    )?;
    let options = RunOptions::default();

    // `batch` and `tokens` are symbolic sizes: each run may have other ones.
    let session = Session::new(&model)?;
    println!("input: {}", session.input("x")?);
    for (batch, tokens) in [(1, 3), (2, 5), (4, 1)] {
        let x = Tensor::from_vec([batch, tokens, 4], vec![1.5f32; batch * tokens * 4])?;
        let outputs = session.run([("x", x)], &options)?;
        let y = outputs.tensor("y")?;
        println!("{tokens} tokens: {:?}", y.dims());
        assert_eq!(y.dims(), [batch, 4]);
    }

    // With a fixed batch, memory and kernels are planned for that size; inputs of another batch are
    // errors.
    let single = Session::builder(&model).dim("batch", 1).build()?;
    let x = Tensor::from_vec([2, 1, 4], vec![0f32; 8])?;
    let error = single.run([("x", x)], &options).expect_err("the batch is fixed");
    assert_eq!(error.kind(), ErrorKind::Input);
    println!("{error}");
    Ok(())
}
