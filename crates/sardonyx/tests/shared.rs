//! Sessions that share threads, memory or themselves.

use std::sync::{Arc, Mutex};

use sardonyx::ops::OperatorCall;
use sardonyx::run::{MemoryBudget, ThreadPool};
use sardonyx::{ErrorKind, Model, RunOptions, Session, Tensor};

fn model(body: &str) -> Model {
    let text = "<ir_version: 10, opset_import: [\"\": 21, \"com.example\": 1]>";
    Model::from_text(&format!("{text} {body}")).unwrap()
}

/// Elements of the inputs below: 64 KiB.
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

/// A run that another one calls takes memory beside it.
#[test]
fn two_sessions_take_memory_of_one_budget() {
    let budget = MemoryBudget::new(5 * SIZE * 4 / 2);
    // Two values of 64 KiB each at a time: one between the nodes, and the output.
    let small = model("g (float[N] x) => (float[N] y) { a = Exp (x) b = Erf (a) y = Neg (b) }");
    let inner = Session::builder(&small).memory_budget(&budget).build().unwrap();
    let before = budget.used();
    inner.run([("x", x())], &RunOptions::default()).unwrap();
    assert_eq!(budget.used(), before);

    let outer = model(
        "g (float[N] x) => (float[N] z) {
             a = Exp (x)
             b = com.example.Within (a)
             z = Add (a, b)
         }",
    );
    let found = Arc::new(Mutex::new(None));
    let within = {
        let (inner, budget, found) = (inner.clone(), budget.clone(), Arc::clone(&found));
        move |call: &mut OperatorCall<'_, '_>| {
            let ran = inner.run([("x", x())], &RunOptions::default()).map(drop);
            *found.lock().unwrap() = Some((ran.map_err(|error| error.kind()), budget.used()));
            call.output_slice::<f32>(0, &[SIZE])?.fill(1.0);
            Ok(())
        }
    };
    let builder = Session::builder(&outer).operator("com.example", "Within", within);
    let session = builder.memory_budget(&budget).build().unwrap();
    let outputs = session.run([("x", x())], &RunOptions::default()).unwrap();
    let (ran, used) = found.lock().unwrap().take().unwrap();
    assert_eq!(ran, Err(ErrorKind::Run));
    assert!((SIZE * 4..=budget.limit()).contains(&used), "{used}");
    // Outputs belong to the caller, and the other session has the budget for itself again.
    assert_eq!(budget.used(), before);
    inner.run([("x", x())], &RunOptions::default()).unwrap();
    assert_eq!(outputs.tensor("z").unwrap().dims(), [SIZE]);
}

/// Constants that a session computes count until it is dropped.
#[test]
fn a_session_returns_its_part_of_a_budget() {
    let text = "g (float x) => (float[16384] y) {
        size = Constant <value_ints: ints = [16384]> ()
        ones = ConstantOfShape (size)
        e = Exp (ones)
        y = Add (e, x)
    }";
    let budget = MemoryBudget::new(3 * SIZE * 4 / 2);
    let build = || Session::builder(&model(text)).memory_budget(&budget).build();
    let session = build().unwrap();
    let used = budget.used();
    assert!(used >= SIZE * 4, "{used}");
    let again = build();
    // A constant that does not fit is computed in each run instead, which then fails.
    let ran = again
        .and_then(|session| session.run([("x", Tensor::scalar(1f32))], &RunOptions::default()));
    assert!(ran.is_err());
    drop(session);
    assert_eq!(budget.used(), 0);
    build().unwrap();
}
