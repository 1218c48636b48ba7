//! Rust examples of README.md and docs/. The test `docs.rs` checks that the pages show the code
//! between `begin` and `end`.

#![allow(clippy::unwrap_used)] // a panic is the report

use std::path::Path;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

/// Changes to the top of the repository, from which the examples name their files.
fn at_the_top() {
    std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
}

mod allocator {
    // begin
    #[global_allocator]
    static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;
    // end
}

/// Appears in README.md.
#[test]
fn a_model_runs() -> Result {
    at_the_top();
    // begin
    use sardonyx::{Model, RunOptions, Session, Tensor};

    let model = Model::open("examples/digits/digits.onnx")?;
    let session = Session::new(&model)?;
    let image = Tensor::from_vec([1, 1, 8, 8], vec![0.0f32; 64])?;
    let outputs = session.run([("image", image)], &RunOptions::default())?;
    println!("{}", outputs.tensor("probabilities")?);
    // end
    Ok(())
}

/// Appears in docs/getting-started.md.
#[test]
fn a_session_tells_its_inputs() -> Result {
    at_the_top();
    // begin
    use sardonyx::{Model, RunOptions, Session, Tensor};

    let model = Model::open("examples/digits/digits.onnx")?;
    let session = Session::new(&model)?;
    println!("{}", session.describe_inputs());
    let image = Tensor::from_vec([1, 1, 8, 8], vec![0.0f32; 64])?;
    let outputs = session.run([("image", image)], &RunOptions::default())?;
    let probabilities = outputs.tensor("probabilities")?;
    assert_eq!(probabilities.dims(), [1, 10]);
    // end
    Ok(())
}

/// Appears in docs/security.md.
#[test]
fn limits_hold_a_run() -> Result {
    at_the_top();
    // begin
    use std::time::{Duration, Instant};

    use sardonyx::io::{Access, ReadLimits};
    use sardonyx::{ErrorKind, OpenOptions, RunOptions, Session, Tensor};

    let limits = ReadLimits { memory: 4 << 20, depth: 100, ..ReadLimits::default() };
    let model = OpenOptions::new()
        .access(Access::Read)
        .follow_links(false)
        .limits(limits)
        .open("examples/digits/digits.onnx")?;
    let session = Session::builder(&model).memory_limit(64 << 20).build()?;
    let options = RunOptions::new()
        .deadline(Instant::now() + Duration::from_secs(10))
        .iteration_limit(1_000_000);
    let image = Tensor::from_vec([1, 1, 8, 8], vec![0.0f32; 64])?;
    match session.run([("image", image)], &options) {
        Ok(outputs) => println!("{}", outputs.tensor("probabilities")?),
        Err(error) if error.kind() == ErrorKind::Stopped => println!("it took too long"),
        Err(error) => return Err(error.into()),
    }
    // end
    Ok(())
}

/// Appears in docs/rust.md, in the part about threads.
#[test]
fn threads_share_a_session() -> Result {
    at_the_top();
    // begin
    use sardonyx::{Model, RunOptions, Session, Tensor};

    let model = Model::open("examples/digits/digits.onnx")?;
    let session = Session::builder(&model).threads(2).dim("N", 1).build()?;
    let image = Tensor::from_vec([1, 1, 8, 8], vec![0.0f32; 64])?;
    std::thread::scope(|scope| {
        let run = || session.run([("image", image.clone())], &RunOptions::default());
        let runs = [0, 1].map(|_| scope.spawn(run));
        for run in runs {
            let outputs = run.join().expect("the thread does not panic")?;
            println!("{}", outputs.tensor("probabilities")?);
        }
        Ok::<(), sardonyx::Error>(())
    })?;
    // end
    Ok(())
}

/// Appears in docs/rust.md, in the part about memory.
#[test]
fn a_run_uses_memory_of_the_caller() -> Result {
    at_the_top();
    // begin
    use sardonyx::{Model, RunOptions, Session, TensorView, TensorViewMut};

    let model = Model::open("examples/digits/digits.onnx")?;
    let session = Session::new(&model)?;
    let pixels = [0.0f32; 64];
    let mut probabilities = [0.0f32; 10];
    let image = TensorView::from_slice([1, 1, 8, 8], &pixels)?;
    let output = TensorViewMut::from_slice([1, 10], &mut probabilities)?;
    let mut outputs = [("probabilities", output)];
    session.run_into(&[("image", image)], &mut outputs, &RunOptions::default())?;
    assert!(probabilities.iter().all(|probability| *probability > 0.0));
    // end
    Ok(())
}

/// Appears in docs/rust.md, in the part about state.
#[test]
fn a_state_stays_between_runs() -> Result {
    // begin
    use sardonyx::{Model, RunOptions, Session, Tensor};

    let model = Model::from_text(
        "<ir_version: 11, opset_import: [\"\": 21]>
         g (float[n, 2] x, float[p, 2] past) => (float[n, q] scores, float[q, 2] present) {
             present = Concat <axis = 0> (past, x)
             columns = Transpose (present)
             scores = MatMul (x, columns)
         }",
    )?;
    let session = Session::new(&model)?;
    let mut state = session.state().capacity(1000).build()?;
    for row in [[1.0f32, 2.0], [3.0, 4.0]] {
        let x = Tensor::from_slice([1, 2], &row)?;
        state.run([("x", x)], &RunOptions::default())?;
        assert_eq!(state.copied_bytes(), 0);
    }
    let mut other = state.clone();
    state.truncate(1)?;
    let x = Tensor::from_slice([1, 2], &[0.0f32, 1.0])?;
    let outputs = state.run([("x", x.clone())], &RunOptions::default())?;
    assert_eq!(outputs.tensor("scores")?.to_vec::<f32>()?, [2.0, 1.0]);
    let outputs = other.run([("x", x)], &RunOptions::default())?;
    assert_eq!(outputs.tensor("scores")?.to_vec::<f32>()?, [2.0, 4.0, 1.0]);
    // end
    Ok(())
}

/// Appears in docs/rust.md, in the part about custom operators.
#[test]
fn an_operator_is_code_of_the_program() -> Result {
    // begin
    use sardonyx::ops::OperatorCall;
    use sardonyx::{Model, RunOptions, Session, Tensor};

    let model = Model::from_text(
        "<ir_version: 10, opset_import: [\"com.example\": 1]>
         g (float[N] x) => (float s) { s = com.example.Total (x) }",
    )?;
    let total = |call: &mut OperatorCall<'_, '_>| {
        let sum = call.slice::<f32>(0)?.iter().sum();
        call.output_slice::<f32>(0, &[])?[0] = sum;
        Ok(())
    };
    let session = Session::builder(&model).operator("com.example", "Total", total).build()?;
    let x = Tensor::from_vec([3], vec![1f32, 2.0, 4.0])?;
    let outputs = session.run([("x", x)], &RunOptions::default())?;
    assert_eq!(outputs.tensor("s")?.as_slice::<f32>()?, [7.0]);
    // end
    Ok(())
}

/// Appears in docs/from-tract-rten-ort.md.
#[test]
fn a_model_runs_in_four_lines() -> Result {
    at_the_top();
    // begin
    use sardonyx::{Model, RunOptions, Session, Tensor};

    let session = Session::new(&Model::open("examples/digits/digits.onnx")?)?;
    let image = Tensor::from_vec([1, 1, 8, 8], vec![0.5f32; 64])?;
    let outputs = session.run([("image", image)], &RunOptions::default())?;
    assert_eq!(outputs.tensor("probabilities")?.as_slice::<f32>()?.len(), 10);
    // end
    Ok(())
}

/// Appears in docs/rust.md, in the part about checking and converting.
#[test]
fn a_model_is_checked_and_converted() -> Result {
    at_the_top();
    // begin
    use sardonyx::Model;
    use sardonyx::check::CheckOptions;
    use sardonyx::convert::{ConvertOptions, Target};

    let model = Model::open("examples/digits/digits.onnx")?;
    let report = model.check(&CheckOptions::new());
    assert_eq!(report.errors, 0);
    let target = Target::new().opset("", 13);
    let (older, _) = model.convert(&ConvertOptions::new(target))?;
    assert_eq!(older.opsets()[0].version, 13);
    assert!(older.to_text().contains("Softmax"));
    // end
    Ok(())
}

/// Appears in docs/generating.md.
#[cfg(feature = "generate")]
#[test]
fn directories_give_texts_and_vectors() -> Result {
    at_the_top();
    // begin
    use sardonyx_generate::{EmbedOptions, Embedder, Generator, Message};

    let generator = Generator::open("tests/generate/tiny-gpt2")?;
    let mut options = generator.options();
    options.max_new_tokens = Some(8);
    let prompt = generator.encode_chat(&[Message::new("user", "Hello")])?;
    for piece in generator.stream(&prompt, &options)? {
        print!("{}", piece?.text);
    }

    let embedder = Embedder::open("tests/generate/tiny-bert")?;
    let vectors = embedder.embed(&["one", "two"], &EmbedOptions::default())?;
    assert_eq!(vectors.len(), 2);
    // end
    Ok(())
}
