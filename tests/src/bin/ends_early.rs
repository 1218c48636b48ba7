//! Ends runs that take seconds or never end, in one of several ways: `ends_early PLACE WAY`. A test
//! compiles this program with `panic = "abort"`, where unwinding would end the process.
//!
//! Prints `running` once the run begins, and then the error. Exit codes: 0 for a run that was
//! stopped, 1 for one that was not, or that failed otherwise.

use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use sardonyx::device::{DeviceOptions, Division, ShardOptions};
use sardonyx::{ErrorKind, Model, Outputs, RunOptions, Session, StopFlag, Tensor, Trainer};

/// Time after which the run ends.
const AFTER: Duration = Duration::from_millis(300);
/// Rows and columns of matrices whose product takes seconds.
const SIDE: usize = 4096;

const LOOP: &str = "<ir_version: 10, opset_import: [\"\": 21]>
    g (float x) => (float y) {
        y = Loop (, , x) <
            body = iteration (int64 i, bool c, float v) => (bool d, float w) {
                d = Constant <value = bool {1}> ()
                w = Add (v, v)
            }>
    }";

const PRODUCT: &str = "<ir_version: 11, opset_import: [\"\": 21]>
    g (float[4096, 4096] x) => (float[4096, 4096] y) {
        a = MatMul (x, x)
        b = MatMul (a, x)
        y = Neg (b)
    }";

const TRAINING: &str = "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21]>
    g (float[1] x) => (float[1] y) <float[1] w = {1}> {
        y = Mul (x, w)
    }
    @<training_info: [{
        algorithm: descent (float[4096, 4096] big) => (float loss, float[1] w1) {
            a = MatMul (big, big)
            b = MatMul (a, big)
            loss = ReduceSum <keepdims: int = 0> (b)
            w1 = Sub (w, loss)
        },
        update_binding: [\"w\": \"w1\"]
    }]>";

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, way] = &arguments[..] else {
        eprintln!(
            "usage: ends_early (loop|product|threads|training|devices) (deadline|flag|interrupt)"
        );
        return ExitCode::from(2);
    };
    match run(place, way) {
        Ok(Ok(_)) => eprintln!("the run came to its end"),
        Ok(Err(error)) => {
            eprintln!("{error}");
            if error.kind() == ErrorKind::Stopped {
                return ExitCode::SUCCESS;
            }
        }
        Err(failure) => eprintln!("{failure}"),
    }
    ExitCode::FAILURE
}

/// Prepares a run and returns its result.
fn run(place: &str, way: &str) -> Result<Result<Outputs, sardonyx::Error>, Failure> {
    let matrix = || Tensor::from_vec([SIDE, SIDE], vec![0.5f32; SIDE * SIDE]);
    Ok(match place {
        "loop" => {
            let session = Session::builder(&Model::from_text(LOOP)?).threads(1).build()?;
            session.run([("x", Tensor::scalar(1f32))], &options(way)?)
        }
        "product" | "threads" => {
            let threads = if place == "threads" { 2 } else { 1 };
            let session = Session::builder(&Model::from_text(PRODUCT)?).threads(threads).build()?;
            let x = matrix()?;
            session.run([("x", x)], &options(way)?)
        }
        "training" => {
            let mut trainer = Trainer::new(&Model::from_text(TRAINING)?)?;
            let big = matrix()?;
            let x = Tensor::from_vec([1], vec![1f32])?;
            trainer.step(0, [("x", x), ("big", big)], &options(way)?)
        }
        "devices" => {
            let model = Model::from_text(PRODUCT)?;
            let (model, _) = model.shard(&ShardOptions::new(Division::Pipeline, 2))?;
            let session = Session::builder(&model).devices(DeviceOptions::new())?;
            let x = matrix()?;
            session.run([("x", x)], &options(way)?)
        }
        other => return Err(format!("unknown place `{other}`").into()),
    })
}

/// Returns options that end a run that begins now.
fn options(way: &str) -> Result<RunOptions<'static>, Failure> {
    let options = match way {
        "deadline" => RunOptions::new().deadline(Instant::now() + AFTER),
        "flag" => {
            let flag = StopFlag::new();
            let options = RunOptions::new().stop(&flag);
            thread::spawn(move || {
                thread::sleep(AFTER);
                flag.stop();
            });
            options
        }
        "interrupt" => {
            let flag = StopFlag::new();
            let options = RunOptions::new().stop(&flag);
            ctrlc::set_handler(move || flag.stop())?;
            options
        }
        other => return Err(format!("unknown way `{other}`").into()),
    };
    println!("running");
    Ok(options)
}
