//! Tests that all workers learn of a disagreement about the work to run.

use std::thread;

use sardonyx_devices::{Settings, Threads, TransportError, TransportErrorKind, agree};

/// Calls `agree` on each worker with its digest and description, and returns the results.
fn run_agree(statements: &[(u8, &str)]) -> Vec<Result<(), TransportError>> {
    let workers = Threads::new(statements.len(), &Settings::default());
    thread::scope(|scope| {
        let started: Vec<_> = workers
            .iter()
            .zip(statements)
            .map(|(worker, (digest, text))| {
                scope.spawn(move || agree(worker, &[*digest; 32], text))
            })
            .collect();
        started.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn equal_digests_agree() {
    assert_eq!(run_agree(&[(1, "a")]), [Ok(())]);
    // The description is for people and is not compared.
    assert_eq!(run_agree(&[(1, "a.onnx"), (1, "b.onnx"), (1, "")]), [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn a_difference_is_an_error_on_all_with_the_lines_that_differ() {
    let zero = "model bert.onnx\nconfiguration tp4\nversion 1";
    let two = "model bert.onnx\nconfiguration tp2\nversion 1";
    let message = "workers 0 and 2 disagree about what to run. \
                   Worker 0: configuration tp4. Worker 2: configuration tp2";
    for result in run_agree(&[(1, zero), (1, zero), (2, two), (1, zero), (3, "more")]) {
        let error = result.unwrap_err();
        assert_eq!(error.message(), message);
        assert_eq!((error.kind(), error.worker()), (TransportErrorKind::Disagreement, Some(2)));
    }
    let message = "workers 0 and 1 disagree about what to run, which both describe as: model x";
    for result in run_agree(&[(1, "model x"), (2, "model x")]) {
        assert_eq!(result.unwrap_err().message(), message);
    }
}
