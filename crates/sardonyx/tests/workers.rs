//! Models whose devices are spread over several workers, each with a session of its own.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use sardonyx::devices::{Division, Limits, Settings, Transport};
use sardonyx::{DeviceOptions, DeviceSession, ErrorKind, Model, Session, Tensor};
use sardonyx_devices::Threads;

const PRODUCTS: &str = "<ir_version: 11, opset_import: [\"\": 21]>
    g (float[N, 64] x) => (float[N, 64] y, float[N, 64] z) {
        a = MatMul (x, v)
        b = Relu (a)
        y = MatMul (b, w)
        z = Neg (x)
    }";

/// A model with two products, annotated for four devices.
fn products(division: Division) -> Model {
    let weights = |name: &str, seed: u32| {
        let values = (0..64 * 64u32).map(|i| ((i * 37 + seed * 11) % 17) as f32 / 16.0 - 0.5);
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        format!("float[64, 64] {name} = {{{}}}", values.join(", "))
    };
    let initializers = format!("<{}, {}>\n{{", weights("v", 1), weights("w", 2));
    let text = PRODUCTS.replacen('{', &initializers, 1);
    let model = Model::from_text(&text).unwrap();
    model.shard(("c", 4), division, &[]).unwrap().0
}

fn input(rows: usize) -> Tensor {
    let values = (0..rows * 64).map(|i| (i % 13) as f32 / 8.0 - 0.75).collect();
    Tensor::from_vec([rows, 64], values).unwrap()
}

/// A session of each worker.
fn sessions(
    model: &Model,
    workers: usize,
    with: impl Fn(usize, DeviceOptions) -> DeviceOptions + Sync,
) -> Vec<Result<DeviceSession, sardonyx::Error>> {
    let settings = Settings { deadline: Duration::from_secs(20) };
    let transports = Threads::new(workers, &settings);
    std::thread::scope(|scope| {
        let made = transports.into_iter().map(|transport| {
            let with = &with;
            scope.spawn(move || {
                let number = transport.number();
                let options = DeviceOptions::new().deadline(settings_deadline());
                let options = with(number, options.transport(Arc::new(transport)));
                Session::builder(model).threads(1).devices(options)
            })
        });
        let made: Vec<_> = made.collect();
        made.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn settings_deadline() -> Duration {
    Duration::from_secs(20)
}

/// Serves on all workers but the first, on which it does what is asked for, and gives what the
/// others end with.
fn with_workers(
    sessions: Vec<Result<DeviceSession, sardonyx::Error>>,
    work: impl FnOnce(&DeviceSession),
) -> Vec<Result<(), sardonyx::Error>> {
    let mut sessions = sessions.into_iter().map(Result::unwrap);
    let first = sessions.next().unwrap();
    std::thread::scope(|scope| {
        let others: Vec<_> = sessions.map(|session| scope.spawn(move || session.serve())).collect();
        work(&first);
        drop(first);
        others.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// DIST-30: four devices on one to six workers give what one session gives, run after run, with
/// inputs of new sizes, and several inputs at once.
#[test]
fn devices_are_spread_over_workers() {
    for division in [Division::Tensor, Division::Pipeline] {
        let model = products(division);
        let whole = Session::new(&model).unwrap();
        for workers in 1..=6 {
            let ended = with_workers(sessions(&model, workers, |_, options| options), |session| {
                assert_eq!(session.device_count(), 4);
                for rows in [1, 3, 1, 5, 2, 7, 3] {
                    let wanted = whole.run([("x", input(rows))]).unwrap();
                    let found = session.run([("x", input(rows))]).unwrap();
                    assert_eq!(found.names().collect::<Vec<_>>(), ["y", "z"]);
                    assert_eq!(wanted.tensor("z").unwrap(), found.tensor("z").unwrap());
                    let tensors = [&wanted, &found].map(|one| one.tensor("y").unwrap());
                    let [wanted, found] = tensors.map(|one| one.to_vec::<f32>().unwrap());
                    for (wanted, found) in wanted.iter().zip(&found) {
                        assert!((wanted - found).abs() < 1e-5, "{wanted} {found}");
                    }
                }
                let runs = (1..20).map(|rows| [("x", input(rows % 4 + 1))]);
                let found = session.run_many(runs, &Limits::default()).unwrap();
                for (rows, found) in (1..20).zip(found) {
                    let wanted = whole.run([("x", input(rows % 4 + 1))]).unwrap();
                    assert_eq!(wanted.tensor("z").unwrap(), found.tensor("z").unwrap());
                }
            });
            assert!(ended.iter().all(Result::is_ok), "{workers} workers: {ended:?}");
        }
    }
}

/// DIST-31: workers that are about to run different things all say so, before anything runs.
#[test]
fn workers_agree_first() {
    let (one, other) = (products(Division::Tensor), products(Division::Pipeline));
    let settings = Settings { deadline: Duration::from_secs(20) };
    let errors: Vec<sardonyx::Error> = std::thread::scope(|scope| {
        let made: Vec<_> = Threads::new(2, &settings)
            .into_iter()
            .zip([&one, &other])
            .map(|(transport, model)| {
                let options = DeviceOptions::new().transport(Arc::new(transport));
                scope.spawn(move || Session::builder(model).devices(options).unwrap_err())
            })
            .collect();
        made.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Worker);
        assert!(error.to_string().contains("workers 0 and 1 disagree"), "{error}");
        assert!(error.to_string().contains("model "), "{error}");
    }
}

/// An input that worker 0 refuses ends nothing; a node that fails at another worker ends all, and
/// its worker is named.
#[test]
fn failures_name_their_worker() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[4] x, int64[1] at) => (float[1] y) {
            a = Neg (x) @<device_configurations: [{configuration_id: \"c\", pipeline_stage: 0}]>
            y = Gather (a, at) @<
                device_configurations: [{configuration_id: \"c\", pipeline_stage: 1}]
            >
        }
        @<configuration: [{name: \"c\", num_devices: 2}]>";
    let model = Model::from_text(text).unwrap();
    let x = || Tensor::from_vec([4], vec![1f32, 2.0, 3.0, 4.0]).unwrap();
    let at = |index: i64| Tensor::from_vec([1], vec![index]).unwrap();
    let ended = with_workers(sessions(&model, 2, |_, options| options), |session| {
        let error = session.run([("x", x())]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        let y = session.run([("x", x()), ("at", at(1))]).unwrap();
        assert_eq!(y.tensor("y").unwrap().to_vec::<f32>().unwrap(), [-2.0]);
        let error = session.run([("x", x()), ("at", at(7))]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Worker);
        assert!(error.to_string().contains("worker 1 failed"), "{error}");
        assert!(error.to_string().contains("Gather"), "{error}");
        // The workers cannot be connected anew.
        let error = session.run([("x", x()), ("at", at(1))]).unwrap_err();
        assert!(error.to_string().contains("worker 1 failed"), "{error}");
        assert_eq!(session.serve().unwrap_err().kind(), ErrorKind::Input);
    });
    let error = ended[0].as_ref().unwrap_err();
    // Its own error.
    assert_eq!(error.kind(), ErrorKind::Run);
    assert!(error.to_string().contains("Gather"), "{error}");
}

/// Inputs that are refused after others have begun: the outputs of those do not turn up later.
#[test]
fn runs_that_have_begun_are_finished() {
    let model = products(Division::Pipeline);
    let whole = Session::new(&model).unwrap();
    let ended = with_workers(sessions(&model, 2, |_, options| options), |session| {
        let wrong = ("no such input", input(1));
        let runs = [vec![("x", input(2))], vec![("x", input(2))], vec![wrong]];
        let error = session.run_many(runs, &Limits::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        let wanted = whole.run([("x", input(5))]).unwrap();
        let found = session.run([("x", input(5))]).unwrap();
        assert_eq!(wanted.tensor("y").unwrap(), found.tensor("y").unwrap());
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

/// Random numbers are those that all devices draw, whatever worker they belong to; what is no
/// tensor goes to its reader whole, and comes back.
#[test]
fn values_of_all_kinds_come_and_go() {
    let text = "<ir_version: 11, opset_import: [\"\": 22]>
        g (seq(float[N]) s, string[M] t) => (float[8] r, seq(float[N]) u, string[M] v) {
            r = RandomUniform <shape = [8]> ()
            zero = Constant <value_int = 0> ()
            u = SequenceErase (s, zero)
            v = Identity (t)
        }";
    let model = Model::from_text(text).unwrap();
    let (model, _) = model.shard(("c", 3), Division::Pipeline, &[]).unwrap();
    let sequence = || {
        let tensor = |n: f32| Tensor::from_vec([2], vec![n, n + 1.0]).unwrap();
        let mut sequence =
            sardonyx::Sequence::new(sardonyx::ValueType::Tensor(sardonyx::DataType::Float));
        sequence.push(tensor(1.0).into()).unwrap();
        sequence.push(tensor(5.0).into()).unwrap();
        sardonyx::Value::Sequence(sequence)
    };
    let strings =
        || sardonyx::Value::from(Tensor::from(sardonyx::StringArray::from_iter(["a", "\u{e4}"])));
    let ended = with_workers(sessions(&model, 3, |_, options| options), |session| {
        let run = || session.run([("s", sequence()), ("t", strings())]).unwrap();
        let (first, second) = (run(), run());
        assert_eq!(first.get("v"), Some(&strings()));
        let sardonyx::Value::Sequence(left) = first.get("u").unwrap() else {
            panic!("no sequence")
        };
        assert_eq!(left.len(), 1);
        assert_ne!(first.tensor("r").unwrap(), second.tensor("r").unwrap());
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

/// A time at which runs end is one for all workers.
#[test]
fn limits_end_runs() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float x) => (float y) {
            a = Neg (x)
            y = Loop (, , a) <
                body = turn (int64 i, bool c, float v) => (bool d, float w) {
                    d = Constant <value = bool {1}> ()
                    w = Add (v, v)
                }>
        }";
    let model = Model::from_text(text).unwrap();
    let (model, _) = model.shard(("c", 2), Division::Tensor, &[]).unwrap();
    let run = |session: &DeviceSession| {
        let mut limits = Limits::default();
        limits.deadline = Some(Instant::now() + Duration::from_millis(50));
        session.run_many([[("x", Tensor::scalar(1f32))]], &limits).unwrap_err()
    };
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    assert_eq!(run(&session).kind(), ErrorKind::Stopped);
    with_workers(sessions(&model, 2, |_, options| options), |session| {
        assert_eq!(run(session).kind(), ErrorKind::Stopped);
    });
}
