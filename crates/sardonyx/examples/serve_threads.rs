//! Serves requests from several threads with one session, each with a time limit.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use sardonyx::{ErrorKind, Model, RunOptions, Session, StopFlag, Tensor};

/// Runs the model for one request, and returns the probability of the first class. Returns `None`
/// if the run exceeded its time limit of 5 seconds or was cancelled.
fn answer_request(
    session: &Session,
    brightness: f32,
    stop: &StopFlag,
) -> Result<Option<f32>, sardonyx::Error> {
    let options = RunOptions::new().deadline(Instant::now() + Duration::from_secs(5)).stop(stop);
    let image = Tensor::from_vec([1, 1, 8, 8], vec![brightness; 64])?;
    match session.run([("image", image)], &options) {
        Ok(outputs) => Ok(Some(outputs.tensor("probabilities")?.as_slice::<f32>()?[0])),
        Err(error) if error.kind() == ErrorKind::Stopped => Ok(None),
        Err(error) => Err(error),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    // One thread per run: parallel requests keep all cores busy already.
    let session = Session::builder(&Model::open(path)?).threads(1).build()?;
    // A program raises this flag at shutdown to cancel the runs of all threads.
    let stop = StopFlag::new();

    let workers: Vec<_> = (0..8)
        .map(|worker| {
            // A clone is cheap: it refers to the same session.
            let (session, stop) = (session.clone(), stop.clone());
            thread::spawn(move || {
                let requests = (0..10).map(|request| (worker * 10 + request) as f32 / 80.0);
                requests.map(|brightness| answer_request(&session, brightness, &stop)).collect()
            })
        })
        .collect();
    let mut answers: Vec<Option<f32>> = Vec::new();
    for worker in workers {
        let found: Result<Vec<_>, sardonyx::Error> = worker.join().expect("no thread panics");
        answers.extend(found?);
    }
    println!("{} answers", answers.iter().flatten().count());
    assert_eq!(answers.len(), 80);
    Ok(())
}
