//! Device sessions over several workers, each with some of the devices.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use sardonyx::device::{
    DeviceOptions, DeviceSession, Division, OutputPart, Results, ShardOptions, Transport,
    TransportSettings,
};
use sardonyx::tool::shard::EXCHANGE;
use sardonyx::{
    DataType, ErrorKind, Model, RunOptions, Session, StopFlag, Tensor, TensorViewMut, Type,
};
use sardonyx_devices::{Delayed, Endpoint, Group, Notice, Reduction, Tag, Threads, TransportError};

const PRODUCTS: &str = "<ir_version: 11, opset_import: [\"\": 21]>
    g (float[N, 64] x) => (float[N, 64] y, float[N, 64] z) {
        a = MatMul (x, v)
        b = Relu (a)
        y = MatMul (b, w)
        z = Neg (x)
    }";

/// Makes a model with two products, annotated for four devices.
fn products(division: Division) -> Model {
    with_weights(PRODUCTS).shard(&ShardOptions::new(division, 4).configuration("c")).unwrap().0
}

/// Parses a model and adds matrices `v` and `w` of 64 rows and columns.
fn with_weights(text: &str) -> Model {
    let weights = |name: &str, seed: u32| {
        let values = (0..64 * 64u32).map(|i| ((i * 37 + seed * 11) % 17) as f32 / 16.0 - 0.5);
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        format!("float[64, 64] {name} = {{{}}}", values.join(", "))
    };
    let initializers = format!("<{}, {}>\n{{", weights("v", 1), weights("w", 2));
    Model::from_text(&text.replacen('{', &initializers, 1)).unwrap()
}

fn input(rows: usize) -> Tensor {
    let values = (0..rows * 64).map(|i| (i % 13) as f32 / 8.0 - 0.75).collect();
    Tensor::from_vec([rows, 64], values).unwrap()
}

/// Makes the sessions of all workers, connected by threads.
fn sessions(
    model: &Model,
    workers: usize,
    with: impl Fn(usize, DeviceOptions) -> DeviceOptions + Sync,
) -> Vec<Result<DeviceSession, sardonyx::Error>> {
    let settings = TransportSettings { deadline: settings_deadline() };
    sessions_over(model, Threads::new(workers, &settings), with)
}

/// Makes the sessions of all workers, connected by `transports`.
fn sessions_over<T: Transport + 'static>(
    model: &Model,
    transports: Vec<T>,
    with: impl Fn(usize, DeviceOptions) -> DeviceOptions + Sync,
) -> Vec<Result<DeviceSession, sardonyx::Error>> {
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

/// Calls `work` with the session of worker 0 while all other workers serve, and returns the results
/// with which these end.
fn with_workers(
    sessions: Vec<Result<DeviceSession, sardonyx::Error>>,
    work: impl FnOnce(&DeviceSession),
) -> Vec<Result<(), sardonyx::Error>> {
    let mut sessions = sessions.into_iter().map(Result::unwrap);
    let first = sessions.next().unwrap();
    std::thread::scope(|scope| {
        let others: Vec<_> = sessions
            .map(|session| scope.spawn(move || session.serve(&StopFlag::new(), |_| ())))
            .collect();
        work(&first);
        drop(first);
        others.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Spreads four devices over one to six workers, and compares many runs, with new sizes and with
/// several inputs at once, with those of one session (DIST-30).
#[test]
fn devices_are_spread_over_workers() {
    for division in [Division::Tensor, Division::Pipeline] {
        let model = products(division);
        let whole = Session::new(&model).unwrap();
        for workers in 1..=6 {
            let ended = with_workers(sessions(&model, workers, |_, options| options), |session| {
                assert_eq!(session.device_count(), 4);
                for rows in [1, 3, 1, 5, 2, 7, 3] {
                    let wanted = whole.run([("x", input(rows))], &RunOptions::default()).unwrap();
                    let found = session.run([("x", input(rows))], &RunOptions::default()).unwrap();
                    assert_eq!(found.names().collect::<Vec<_>>(), ["y", "z"]);
                    assert_eq!(wanted.tensor("z").unwrap(), found.tensor("z").unwrap());
                    let tensors = [&wanted, &found].map(|one| one.tensor("y").unwrap());
                    let [wanted, found] = tensors.map(|one| one.to_vec::<f32>().unwrap());
                    for (wanted, found) in wanted.iter().zip(&found) {
                        assert!((wanted - found).abs() < 1e-5, "{wanted} {found}");
                    }
                }
                let runs = (1..20).map(|rows| [("x", input(rows % 4 + 1))]);
                let found = session.run_many(runs, &RunOptions::default()).unwrap();
                for (rows, found) in (1..20).zip(found) {
                    let wanted =
                        whole.run([("x", input(rows % 4 + 1))], &RunOptions::default()).unwrap();
                    assert_eq!(wanted.tensor("z").unwrap(), found.tensor("z").unwrap());
                }
            });
            assert!(ended.iter().all(Result::is_ok), "{workers} workers: {ended:?}");
        }
    }
}

/// Checks that the seed of a run reaches all devices, also those of other workers.
#[test]
fn runs_of_one_seed_draw_the_same_numbers() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[4, 64] x) => (float[4, 64] y, float[4, 64] r, float[4, 64] s) {
            r = RandomUniformLike (x)
            a = MatMul (r, v)
            b = MatMul (a, w)
            s = RandomUniformLike (b)
            y = Add (b, s)
        }";
    let model = with_weights(text).shard(&ShardOptions::new(Division::Pipeline, 2)).unwrap().0;
    let mut all = Vec::new();
    for workers in [1, 2] {
        let ended = with_workers(sessions(&model, workers, |_, options| options), |session| {
            let run = |options: &RunOptions<'_>| session.run([("x", input(4))], options).unwrap();
            let seven = RunOptions::new().seed(7);
            let found = run(&seven);
            assert_eq!(found, run(&seven));
            assert_ne!(found["s"], run(&RunOptions::default())["s"]);
            assert_ne!(found["s"], found["r"]);
            all.push(found);
        });
        assert!(ended.iter().all(Result::is_ok), "{workers} workers: {ended:?}");
    }
    assert_eq!(all[0], all[1]);
}

/// Checks that a watched run reports each step of all devices once, in one process and in several,
/// with the traffic of exchanges as planned.
#[test]
fn steps_of_all_devices_are_told() {
    let model = products(Division::Tensor);
    for workers in [1, 2, 4] {
        let ended = with_workers(sessions(&model, workers, |_, options| options), |session| {
            let types = [("x".to_string(), Type::tensor(DataType::Float, [5i64, 64]))];
            let parts = session.parts(&types).unwrap();
            for _ in 0..2 {
                let found = session.run_watched([("x", input(5))], &RunOptions::default()).unwrap();
                let (outputs, devices) = found;
                assert_eq!(outputs.tensor("y").unwrap().dims(), [5, 64]);
                assert_eq!(devices.len(), 4);
                let mut sent = 0;
                for (number, (part, device)) in parts.iter().zip(&devices).enumerate() {
                    assert_eq!((part.device, device.device), (number, number));
                    assert!(!device.took.is_zero());
                    for event in &device.events {
                        let is_exchange = part.steps[event.step.step].op == EXCHANGE;
                        assert_eq!(is_exchange, event.exchanged.is_some());
                        let waited = event.exchanged.map(|one| one.waited).unwrap_or_default();
                        assert!(waited <= event.step.took);
                        sent += event.exchanged.map_or(0, |one| one.sent.bytes);
                    }
                    let views = part.details.steps.iter().filter(|step| step.is_view).count();
                    assert_eq!(device.events.len() + views, part.steps.len());
                }
                let plan = session.plan(&[("x", types[0].1.clone())]).unwrap();
                assert_eq!(i64::try_from(sent).ok(), plan.bytes().known());
            }
        });
        assert!(ended.iter().all(Result::is_ok), "{workers} workers: {ended:?}");
    }
}

/// Checks that all workers receive the outputs in the order of runs, and none of a failed run.
#[test]
fn results_go_to_all_workers_if_they_ask_for_them() {
    let model = rows();
    let whole = Session::new(&model).unwrap();
    let at = [0, 9, 3, 1, 7, 2];
    let good = at.iter().filter(|at| **at < 4);
    let wanted: Vec<_> =
        good.map(|at| whole.run(row(2.0, *at), &RunOptions::default()).unwrap()).collect();
    let mut made = sessions(&model, 3, |_, options| options.results(Results::All))
        .into_iter()
        .map(Result::unwrap);
    let first = made.next().unwrap();
    std::thread::scope(|scope| {
        let others: Vec<_> = made
            .map(|session| {
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    session.serve(&StopFlag::new(), |outputs| taken.push(outputs)).unwrap();
                    taken
                })
            })
            .collect();
        let found: Vec<_> = at
            .iter()
            .filter_map(|at| first.run(row(2.0, *at), &RunOptions::default()).ok())
            .collect();
        assert_eq!(found, wanted);
        drop(first);
        for other in others {
            assert_eq!(other.join().unwrap(), wanted);
        }
    });
    // Workers with different options are rejected.
    let different =
        sessions(
            &model,
            3,
            |number, options| {
                if number == 1 { options.results(Results::All) } else { options }
            },
        );
    for session in different {
        let error = session.unwrap_err();
        assert!(error.to_string().contains("results to all workers"), "{error}");
    }
}

/// Runs repeatedly on inputs and outputs in the caller's memory, with other sizes in between.
#[test]
fn runs_use_memory_of_the_caller() {
    let model = products(Division::Tensor);
    let whole = Session::new(&model).unwrap();
    let ended = with_workers(sessions(&model, 2, |_, options| options), |session| {
        let into = |rows: usize, name: &str, room: usize| {
            let x = input(rows);
            let mut found = vec![0.0f32; room * 64];
            let memory = TensorViewMut::from_slice([room, 64], &mut found).unwrap();
            let inputs = [("x", x.view())];
            session.run_into(&inputs, &mut [(name, memory)], &RunOptions::default()).map(|()| found)
        };
        for rows in [3, 3, 1, 3] {
            let wanted = whole.run([("x", input(rows))], &RunOptions::default()).unwrap();
            assert_eq!(
                into(rows, "z", rows).unwrap(),
                wanted.tensor("z").unwrap().to_vec::<f32>().unwrap()
            );
        }
        let error = into(3, "z", 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains("'z'"), "{error}");
        assert!(into(3, "w", 3).unwrap_err().to_string().contains("no output 'w'"));
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

/// Assembles an output from the shards of all devices, which must not overlap.
fn join_parts(parts: &[OutputPart], name: &str) -> Tensor {
    let parts: Vec<_> = parts.iter().filter(|part| part.output == name).collect();
    let dims = parts[0].dims.clone();
    let [rows, columns] = *dims else { panic!("{dims:?}") };
    let mut all = vec![f32::NAN; rows * columns];
    for part in parts {
        let indices = part.ranges.iter().map(|axis| axis.iter().flat_map(Clone::clone).collect());
        let indices: Vec<Vec<usize>> = indices.collect();
        let values = part.value.as_tensor().unwrap();
        assert_eq!(values.dims(), [indices[0].len(), indices[1].len()]);
        let places = indices[0].iter().flat_map(|row| indices[1].iter().map(move |at| (row, at)));
        for ((row, at), value) in places.zip(values.as_slice::<f32>().unwrap()) {
            all[row * columns + at] = *value;
        }
    }
    assert!(all.iter().all(|value| !value.is_nan()));
    Tensor::from_vec(dims, all).unwrap()
}

/// Checks that outputs stay on their devices, on any number of workers, and that failed runs hand
/// out no shards.
#[test]
fn outputs_stay_on_the_devices() {
    let text = r#"<ir_version: 11, opset_import: ["": 21]>
        g (float[N, 64] x, int64 at) => (float[N, 64] y, float[N, 64] z)
        {
            a = MatMul (x, v) @<device_configurations: [{configuration_id: "c", sharding_spec: [
                {tensor_name: "v", device: [3, 1, 0, 2],
                 sharded_dim: [{axis: 1, simple_sharding: [{num_shards: 4}]}]}]}]>
            y = Tanh (a)
            r = Gather (x, at)
            z = Add (x, r)
        }
        @<configuration: [{name: "c", num_devices: 4}]>"#;
    let model = with_weights(text);
    let whole = Session::new(&model).unwrap();
    let runs = [(3, 0i64), (1, 5), (5, 4), (2, 1), (7, 7), (3, 2)];
    let inputs = |(rows, at)| [("x", input(rows)), ("at", Tensor::scalar(at))];
    let good: Vec<_> = runs.iter().filter(|(rows, at)| (*at as usize) < *rows).collect();
    for workers in 1..=5 {
        let mut made = sessions(&model, workers, |_, options| options.results(Results::Split))
            .into_iter()
            .map(Result::unwrap);
        let first = made.next().unwrap();
        let all = std::thread::scope(|scope| {
            let others: Vec<_> = made
                .map(|session| {
                    scope.spawn(move || {
                        let mut taken = Vec::new();
                        session.serve_split(&StopFlag::new(), |parts| taken.push(parts)).unwrap();
                        taken
                    })
                })
                .collect();
            let mut own = Vec::new();
            for run in runs {
                own.extend(first.run_split([inputs(run)], &RunOptions::default()));
            }
            let many = good.iter().map(|run| inputs(**run));
            own.extend(
                first.run_split(many, &RunOptions::default()).unwrap().into_iter().map(|p| vec![p]),
            );
            let refused = first.run(inputs(runs[0]), &RunOptions::default()).unwrap_err();
            assert!(refused.to_string().contains("on the devices"), "{refused}");
            drop(first);
            let mut all: Vec<Vec<OutputPart>> =
                own.into_iter().map(|parts| parts.into_iter().flatten().collect()).collect();
            for other in others {
                let taken = other.join().unwrap();
                if !taken.is_empty() {
                    assert_eq!(taken.len(), all.len());
                    all.iter_mut().zip(taken).for_each(|(all, own)| all.extend(own));
                }
            }
            all
        });
        assert_eq!(all.len(), 2 * good.len());
        for (parts, run) in all.iter().zip(good.iter().chain(&good)) {
            let wanted = whole.run(inputs(**run), &RunOptions::default()).unwrap();
            let shards = parts.iter().filter(|part| part.output == "y" && !part.is_whole());
            assert_eq!(shards.count(), 4);
            for name in ["y", "z"] {
                let (found, wanted) = (join_parts(parts, name), wanted.tensor(name).unwrap());
                let (found, wanted) = (found.to_vec::<f32>().unwrap(), wanted.to_vec().unwrap());
                let mut pairs = found.iter().zip(&wanted);
                assert!(
                    pairs.all(|(a, b): (&f32, &f32)| (a - b).abs() < 1e-5),
                    "{found:?} {wanted:?}"
                );
            }
        }
    }
}

/// Checks that all workers report a difference of models or options before anything runs (DIST-31).
#[test]
fn workers_agree_first() {
    let (one, other) = (products(Division::Tensor), products(Division::Pipeline));
    let settings = TransportSettings { deadline: Duration::from_secs(20) };
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

/// Makes a model of two stages, which gathers rows of the negated input at given indices.
fn rows() -> Model {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[4] x, int64[1] at) => (float[1] y) {
            a = Neg (x) @<device_configurations: [{configuration_id: \"c\", pipeline_stage: 0}]>
            b = Gather (a, at) @<
                device_configurations: [{configuration_id: \"c\", pipeline_stage: 1}]
            >
            y = Exp (b) @<device_configurations: [{configuration_id: \"c\", pipeline_stage: 2}]>
        }
        @<configuration: [{name: \"c\", num_devices: 3}]>";
    Model::from_text(text).unwrap()
}

fn row(x: f32, at: i64) -> [(&'static str, Tensor); 2] {
    let x = Tensor::from_vec([4], vec![x, x + 1.0, x + 2.0, x + 3.0]).unwrap();
    [("x", x), ("at", Tensor::from_vec([1], vec![at]).unwrap())]
}

/// Checks that an input that worker 0 rejects ends no run, and that a node that fails on another
/// worker ends only its own run, with an error that names worker and node.
#[test]
fn failures_name_their_worker() {
    let ended = with_workers(sessions(&rows(), 3, |_, options| options), |session| {
        let error = session.run([row(1.0, 0)[0].clone()], &RunOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        for at in [1, 7, 2, 9, 8, 3] {
            let found = session.run(row(1.0, at), &RunOptions::default());
            if at < 4 {
                let y = found.unwrap().tensor("y").unwrap().to_vec::<f32>().unwrap();
                assert_eq!(y, [(-(1.0 + at as f32)).exp()]);
                continue;
            }
            let error = found.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Worker);
            assert!(error.to_string().contains("worker 1 failed"), "{error}");
            assert!(error.to_string().contains("Gather"), "{error}");
        }
        assert_eq!(session.serve(&StopFlag::new(), |_| ()).unwrap_err().kind(), ErrorKind::Input);
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

/// Checks that a call with several runs ends with the error of the one that fails, and that late
/// messages of its runs do not reach the next call.
#[test]
fn a_run_that_fails_leaves_nothing_to_others() {
    let model = rows();
    let whole = Session::new(&model).unwrap();
    for workers in 0..=4 {
        let check = |session: &DeviceSession| {
            for round in 0..40 {
                let bad = round % 7;
                let mut runs = Vec::new();
                for run in 0..6 {
                    let at = if run == bad && round % 2 == 0 { 4 } else { run as i64 % 4 };
                    runs.push(row((10 * round + run) as f32 / 64.0, at));
                }
                let found = session.run_many(runs.clone(), &RunOptions::default());
                if bad < 6 && round % 2 == 0 {
                    let error = found.unwrap_err().to_string();
                    assert!(error.contains("Gather") && error.contains('4'), "{error}");
                    continue;
                }
                for (inputs, found) in runs.into_iter().zip(found.unwrap()) {
                    let wanted = whole.run(inputs, &RunOptions::default()).unwrap();
                    assert_eq!(wanted.tensor("y").unwrap(), found.tensor("y").unwrap());
                }
            }
        };
        if workers == 0 {
            check(&Session::builder(&model).devices(DeviceOptions::new()).unwrap());
            continue;
        }
        let settings = TransportSettings { deadline: settings_deadline() };
        let transports = Threads::new(workers, &settings).into_iter();
        let seed = workers as u64;
        let late = transports.map(|one| Delayed::new(one, seed, Duration::from_micros(400)));
        let sessions = sessions_over(&model, late.collect(), |_, options| options);
        let ended = with_workers(sessions, check);
        assert!(ended.iter().all(Result::is_ok), "{workers} workers: {ended:?}");
    }
}

/// Transport whose all-reduce blocks until all workers have called it and cannot be cancelled, as
/// in an MPI library.
#[derive(Debug)]
struct Meeting {
    inner: Threads,
    all: Arc<Barrier>,
}

impl Transport for Meeting {
    fn endpoint(&self) -> &Endpoint {
        self.inner.endpoint()
    }

    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        self.inner.post(to, tag, bytes)
    }

    fn tell(&self, notice: Notice<'_>) {
        self.inner.tell(notice);
    }

    fn waits_for_all(&self, _: Group<'_>, _: Reduction, _: DataType, _: usize) -> bool {
        true
    }

    fn all_reduce(
        &self,
        group: Group<'_>,
        reduction: Reduction,
        data_type: DataType,
        data: &mut [u8],
    ) -> Result<(), TransportError> {
        self.all.wait();
        let group = Group { tag: 1 << 20, ..group };
        let reduced = self.inner.all_reduce(group, reduction, data_type, data);
        self.all.wait();
        reduced
    }
}

/// Checks that a worker whose run fails still takes part in the remaining library reductions:
/// device 1 fails before the first sum, in which device 0 blocks.
#[test]
fn a_run_that_fails_keeps_nobody_waiting_in_a_library() {
    let on = |specs: &str| {
        format!("@<device_configurations: [{{configuration_id: \"c\", sharding_spec: [{specs}]}}]>")
    };
    let split = on("{tensor_name: \"v\", device: [0, 1], sharded_dim:
        [{axis: 1, simple_sharding: [{num_shards: 2}]}]}");
    let second = on("{tensor_name: \"x\", device: [1]}, {tensor_name: \"z\", device: [1]}");
    let text = format!(
        "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[N, 64] x, int64[1] at) => (float[N, 64] y, float[1, 64] z) {{
            z = Gather (x, at) {second}
            p = MatMul (x, v) {split}
            q = Relu (p)
            r = MatMul (q, w)
            a = MatMul (r, v) {split}
            b = Relu (a)
            s = MatMul (b, w)
            c = MatMul (s, v) {split}
            d = Relu (c)
            y = MatMul (d, w)
        }}
        @<configuration: [{{name: \"c\", num_devices: 2}}]>"
    );
    let model = with_weights(&text);
    let all = Arc::new(Barrier::new(2));
    let settings = TransportSettings { deadline: settings_deadline() };
    let transports = Threads::new(2, &settings).into_iter();
    let transports = transports.map(|inner| Meeting { inner, all: all.clone() }).collect();
    let ended = with_workers(sessions_over(&model, transports, |_, options| options), |session| {
        for at in [0i64, 9, 1, 8, 7, 2] {
            let inputs = [("x", input(5)), ("at", Tensor::from_vec([1], vec![at]).unwrap())];
            let found = session.run(inputs, &RunOptions::default());
            if at < 5 {
                assert_eq!(found.unwrap().tensor("z").unwrap().dims(), [1, 64]);
                let plan = session.last_plan().unwrap().text();
                assert_eq!(plan.matches("2 partial sums whole on 0 1 -> whole on 0 1").count(), 2);
            } else {
                let error = found.unwrap_err().to_string();
                assert!(error.contains("worker 1 failed") && error.contains("Gather"), "{error}");
            }
        }
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

/// Checks that runs that have begun are finished when later inputs are rejected, so that the next
/// call does not receive their outputs.
#[test]
fn runs_that_have_begun_are_finished() {
    let model = products(Division::Pipeline);
    let whole = Session::new(&model).unwrap();
    let ended = with_workers(sessions(&model, 2, |_, options| options), |session| {
        let wrong = ("no such input", input(1));
        let runs = [vec![("x", input(2))], vec![("x", input(2))], vec![wrong]];
        let error = session.run_many(runs, &RunOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        let wanted = whole.run([("x", input(5))], &RunOptions::default()).unwrap();
        let found = session.run([("x", input(5))], &RunOptions::default()).unwrap();
        assert_eq!(wanted.tensor("y").unwrap(), found.tensor("y").unwrap());
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

/// Checks that all devices draw equal random numbers on any worker, and that values other than
/// tensors are sent whole and returned.
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
    let (model, _) =
        model.shard(&ShardOptions::new(Division::Pipeline, 3).configuration("c")).unwrap();
    let sequence = || {
        let tensor = |n: f32| Tensor::from_vec([2], vec![n, n + 1.0]).unwrap();
        let mut sequence =
            sardonyx::value::Sequence::new(sardonyx::ValueType::Tensor(DataType::Float));
        sequence.push(tensor(1.0).into()).unwrap();
        sequence.push(tensor(5.0).into()).unwrap();
        sardonyx::Value::Sequence(sequence)
    };
    let strings = || {
        sardonyx::Value::from(Tensor::from(sardonyx::value::StringArray::from_iter([
            "a", "\u{e4}",
        ])))
    };
    let ended = with_workers(sessions(&model, 3, |_, options| options), |session| {
        let run =
            || session.run([("s", sequence()), ("t", strings())], &RunOptions::default()).unwrap();
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

/// Checks that a deadline or stop flag ends the run of all workers.
#[test]
fn limits_end_runs() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float x) => (float y) {
            a = Neg (x)
            y = Loop (, , a) <
                body = iteration (int64 i, bool c, float v) => (bool d, float w) {
                    d = Constant <value = bool {1}> ()
                    w = Add (v, v)
                }>
        }";
    let model = Model::from_text(text).unwrap();
    let (model, _) =
        model.shard(&ShardOptions::new(Division::Tensor, 2).configuration("c")).unwrap();
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    let ends = |session: &DeviceSession| {
        for _ in 0..3 {
            let mut options = RunOptions::default();
            options.deadline = Some(Instant::now() + Duration::from_millis(50));
            let error = session.run_many([[("x", Tensor::scalar(1f32))]], &options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
        }
        // A stop flag of this worker alone ends the run of all.
        let mut options = RunOptions::default();
        let stop = StopFlag::new();
        options.stop = Some(stop.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                stop.stop();
            });
            let error = session.run_many([[("x", Tensor::scalar(1f32))]], &options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
        });
    };
    ends(&session);
    let ended = with_workers(sessions(&model, 2, |_, options| options), ends);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}
