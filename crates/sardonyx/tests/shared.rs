//! Tests of sessions that share threads, memory budgets or their state.

use std::sync::{Arc, Mutex};

use allocation_counter::measure;
use sardonyx::ops::OperatorCall;
use sardonyx::run::{MemoryBudget, ThreadPool};
use sardonyx::tool::SessionExt;
use sardonyx::{DataType, ErrorKind, Model, RunOptions, Session, Tensor};

fn model(body: &str) -> Model {
    let text = "<ir_version: 10, opset_import: [\"\": 21, \"com.example\": 1]>";
    Model::from_text(&format!("{text} {body}")).unwrap()
}

/// Number of elements of the inputs: 64 KiB.
const SIZE: usize = 1 << 14;

fn x() -> Tensor {
    Tensor::from_vec([SIZE], (0..SIZE).map(|i| i as f32).collect::<Vec<_>>()).unwrap()
}

#[test]
fn clones_are_one_session() {
    let session = Session::new(&model("g (float[N] x) => (float[N] y) { y = Neg (x) }")).unwrap();
    let wanted = session.run([("x", x())], &RunOptions::default()).unwrap();
    let threads = [0, 1].map(|_| {
        let session = session.clone();
        std::thread::spawn(move || session.run([("x", x())], &RunOptions::default()).unwrap())
    });
    drop(session);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), wanted);
    }
}

/// Checks that a run does not copy names: it allocates equally for names of one letter and of a
/// thousand.
#[test]
fn names_are_not_copied() {
    let allocated = |name: &str| {
        let text =
            format!("g (float[4] {name}) => (float[4] y{name}) {{ y{name} = Neg ({name}) }}");
        let session = Session::builder(&model(&text)).threads(1).build().unwrap();
        let (x, options) = (Tensor::from_slice([4], &[1f32; 4]).unwrap(), RunOptions::default());
        let run = || session.run([(name, x.clone())], &options).unwrap();
        (0..3).for_each(|_| drop(run()));
        let measured = measure(|| drop(run()));
        (measured.count_total, measured.bytes_total)
    };
    assert_eq!(allocated("x"), allocated(&"x".repeat(1000)));
}

#[test]
fn two_sessions_run_on_one_pool() {
    let pool = ThreadPool::new(3);
    let text = "g (float[N] x) => (float[N] y, float[N] z) { y = Exp (x) z = Erf (x) }";
    let model = model(text);
    let wanted = Session::builder(&model).threads(1).build().unwrap();
    let wanted = wanted.run([("x", x())], &RunOptions::default()).unwrap();
    let all = Session::builder(&model).thread_pool(&pool).build().unwrap();
    let two = Session::builder(&model).thread_pool(&pool).threads(2).build().unwrap();
    assert_eq!((all.threads(), two.threads()), (3, 2));
    drop(pool);
    std::thread::scope(|scope| {
        for session in [&all, &two] {
            scope.spawn(|| {
                for _ in 0..20 {
                    let found = session.run([("x", x())], &RunOptions::default()).unwrap();
                    assert_eq!(found, wanted);
                }
            });
        }
    });
}

/// Checks that a run inside another one, which together exceed a budget, fails, although the budget
/// is enough for it alone.
#[test]
fn two_sessions_take_memory_of_one_budget() {
    // The caller keeps `x`, so the run cannot overwrite it in place.
    let (x, large) = (x(), Tensor::zeros(DataType::Float, [SIZE * 8]).unwrap());
    let small = model("g (float[N] x) => (float[N] y) { a = Exp (x) b = Erf (a) y = Neg (b) }");
    let inner = |budget: &MemoryBudget| {
        Session::builder(&small).threads(1).memory_budget(budget).build().unwrap()
    };
    let run = {
        let large = large.clone();
        move |session: &Session| session.run([("x", large.clone())], &RunOptions::default())
    };
    let enough = (1..).map(|n| n << 14).map(MemoryBudget::new);
    let budget = enough.into_iter().find(|budget| run(&inner(budget)).is_ok()).unwrap();
    assert!(budget.limit() >= SIZE * 8 * 4, "{budget:?}");
    assert_eq!(budget.used(), 0);

    let outer = model(
        "g (float[N] x) => (float[N] z) {
             a = Exp (x)
             b = com.example.Within (a)
             z = Add (a, b)
         }",
    );
    let found = Arc::new(Mutex::new(None));
    let inner = inner(&budget);
    let within = {
        let (inner, budget, found, run) =
            (inner.clone(), budget.clone(), Arc::clone(&found), run.clone());
        move |call: &mut OperatorCall<'_, '_>| {
            let ran = run(&inner).map(drop).map_err(|error| error.kind());
            *found.lock().unwrap() = Some((ran, budget.used()));
            call.output_slice::<f32>(0, &[SIZE])?.fill(1.0);
            Ok(())
        }
    };
    let builder = Session::builder(&outer).operator("com.example", "Within", within);
    let session = builder.threads(1).memory_budget(&budget).build().unwrap();
    let outputs = session.run([("x", x.clone())], &RunOptions::default()).unwrap();
    let (ran, used) = found.lock().unwrap().take().unwrap();
    assert_eq!(ran, Err(ErrorKind::Run));
    assert!((SIZE * 4..=budget.limit()).contains(&used), "{used}");
    // Outputs belong to the caller, so the whole budget is free again.
    assert_eq!(budget.used(), 0);
    run(&inner).unwrap();
    assert_eq!(outputs.tensor("z").unwrap().dims(), [SIZE]);
}

/// Checks that constants which a session computes count towards its budget until it is dropped.
#[test]
fn a_session_returns_its_part_of_a_budget() {
    let text = "g (float x) => (float[16384] y) {
        start = Constant <value_float = 0.0> ()
        limit = Constant <value_float = 16384.0> ()
        delta = Constant <value_float = 1.0> ()
        r = Range (start, limit, delta)
        y = Add (r, x)
    }";
    let budget = MemoryBudget::new(3 * SIZE * 4 / 2);
    let build = || Session::builder(&model(text)).threads(1).memory_budget(&budget).build();
    let session = build().unwrap();
    assert!(session.report().made_bytes >= SIZE * 4);
    assert_eq!(budget.used(), session.report().made_bytes);
    // A constant that does not fit is computed in each run, and then the run fails.
    let x = [("x", Tensor::scalar(1f32))];
    assert!(build().and_then(|session| session.run(x, &RunOptions::default())).is_err());
    drop(session);
    assert_eq!(budget.used(), 0);
    build().unwrap();
}
