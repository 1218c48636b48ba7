//! Models with collective operators, run by several ranks with a session each.

use std::sync::Arc;
use std::time::Duration;

use sardonyx::device::{Threads, Transport, TransportSettings};
use sardonyx::tool::SessionBuilderExt;
use sardonyx::{Error, ErrorKind, Model, Outputs, Session, Tensor};

const HEADER: &str = "<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1]>";

fn model(graph: &str) -> Model {
    Model::from_text(&format!("{HEADER} {graph}")).unwrap()
}

/// Runs a model on all ranks, each with its own input, and returns their results.
fn run_ranks(
    models: &[Model],
    input: impl Fn(usize) -> Tensor + Sync,
) -> Vec<Result<Outputs, Error>> {
    let settings = TransportSettings { deadline: Duration::from_secs(20) };
    let ranks = Threads::new(models.len(), &settings);
    std::thread::scope(|scope| {
        let ranks = ranks.into_iter().zip(models).map(|(rank, model)| {
            let input = &input;
            scope.spawn(move || {
                let number = rank.number();
                let builder = Session::builder(model).threads(1).transport(Arc::new(rank));
                let session = builder.build()?;
                // The second run uses the tags of the first one again.
                session.run([("x", input(number))], &Default::default())?;
                session.run([("x", input(number))], &Default::default())
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn floats(outputs: &Outputs, name: &str) -> Vec<f32> {
    outputs.tensor(name).unwrap().as_slice::<f32>().unwrap().to_vec()
}

/// Makes the matrix `[[0, 1], [2, 3]]`, plus 10 times the rank.
fn square(rank: usize) -> Tensor {
    let first = 10.0 * rank as f32;
    Tensor::from_vec([2, 2], vec![first, first + 1.0, first + 2.0, first + 3.0]).unwrap()
}

#[test]
fn each_collective_gives_what_it_says() {
    let dist = |operation: &str, more: &str| {
        format!(
            "y = DistCollective <collective_operation = \"{operation}\", nb_rank = 2{more}> (x)"
        )
    };
    let rows: &[(&str, [&[f32]; 2])] = &[
        ("y = com.microsoft.AllReduce (x)", [&[10.0, 12.0, 14.0, 16.0]; 2]),
        (
            "y = com.microsoft.AllGather <axis = 0, group_size = 2> (x)",
            [&[0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]; 2],
        ),
        (
            "y = com.microsoft.AllGather <axis = 1, group_size = 2> (x)",
            [&[0.0, 1.0, 10.0, 11.0, 2.0, 3.0, 12.0, 13.0]; 2],
        ),
        (
            "y = com.microsoft.AllGather <axis = -1, group_size = 2> (x)",
            [&[0.0, 1.0, 10.0, 11.0, 2.0, 3.0, 12.0, 13.0]; 2],
        ),
        (
            "y = com.microsoft.AllToAll <group_size = 2> (x)",
            [&[0.0, 1.0, 10.0, 11.0], &[2.0, 3.0, 12.0, 13.0]],
        ),
        (&dist("all_reduce", ", reduce_op = \"max\""), [&[10.0, 11.0, 12.0, 13.0]; 2]),
        (&dist("ALL_REDUCE", ", reduce_op = \"PROD\""), [&[0.0, 11.0, 24.0, 39.0]; 2]),
        (
            &dist("all_gather", ", groups = [0, 1], group_size = 2"),
            [&[0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]; 2],
        ),
        (&dist("reduce_scatter", ", reduce_op = \"sum\""), [&[10.0, 12.0], &[14.0, 16.0]]),
        (&dist("all_to_all", ""), [&[0.0, 1.0, 10.0, 11.0], &[2.0, 3.0, 12.0, 13.0]]),
        (&dist("broadcast", ", root = 1"), [&[10.0, 11.0, 12.0, 13.0]; 2]),
    ];
    for (node, expected) in rows {
        let model = model(&format!("g (float[2, 2] x) => (float[M, N] y) {{ {node} }}"));
        let found = run_ranks(&[model.clone(), model], square);
        for (found, expected) in found.into_iter().zip(expected) {
            assert_eq!(floats(&found.unwrap(), "y"), *expected, "{node}");
        }
    }
}

#[test]
fn several_tensors_and_other_types_go_together() {
    let model = model(
        "g (float[2, 2] x) => (float[2, 2] a, float[2, 2] b, int64[2, 4] c, bool[4, 2] d) {
             h = Cast <to = 10> (x)
             i = Cast <to = 7> (x)
             j = Cast <to = 9> (x)
             twice = Add (x, x)
             s, a = com.microsoft.AllReduce (x, twice)
             halves = com.microsoft.AllReduce (h)
             b = Cast <to = 1> (halves)
             c = com.microsoft.AllGather <axis = 1, group_size = 2> (i)
             d = com.microsoft.AllGather <axis = 0, group_size = 2> (j)
         }",
    );
    for found in run_ranks(&[model.clone(), model], square) {
        let found = found.unwrap();
        assert_eq!(floats(&found, "a"), [20.0, 24.0, 28.0, 32.0]);
        assert_eq!(floats(&found, "b"), [10.0, 12.0, 14.0, 16.0]);
        let ints = found.tensor("c").unwrap().as_slice::<i64>().unwrap();
        assert_eq!(ints, [0, 1, 10, 11, 2, 3, 12, 13]);
        assert_eq!(found.tensor("d").unwrap().dims(), [4, 2]);
    }
}

#[test]
fn groups_of_ranks_work_beside_each_other() {
    let group = |ranks: &str| {
        model(&format!(
            "g (float[2, 2] x) => (float[2, 2] y) {{
                 own = DistCollective <collective_operation = \"all_reduce\", reduce_op = \"sum\",
                     nb_rank = 2, groups = [{ranks}], group_size = 2> (x)
                 y = DistCollective <collective_operation = \"all_reduce\", reduce_op = \"max\",
                     nb_rank = 4> (own)
             }}"
        ))
    };
    let models = [group("0, 2"), group("1, 3"), group("0, 2"), group("1, 3")];
    for found in run_ranks(&models, square) {
        assert_eq!(floats(&found.unwrap(), "y"), [40.0, 42.0, 44.0, 46.0]);
    }
}

#[test]
fn collectives_in_branches_loops_and_functions_run_as_often_as_these() {
    let model = Model::from_text(
        "<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1, \"own\": 1]>
         g (float[2, 2] x) => (float[2, 2] y) {
             three = Constant <value_int = 3> ()
             yes = Constant <value_int = 1> ()
             go = Cast <to = 9> (yes)
             z = Loop (three, go, x) <body = body (int64 i, bool c, float[2, 2] v) => (bool d, float[2, 2] w) {
                 d = Identity (c)
                 w = com.microsoft.AllReduce (v)
             }>
             y = own.Total (z)
         }
         <domain: \"own\", opset_import: [\"\": 21, \"com.microsoft\": 1]>
         Total (x) => (y) { y = com.microsoft.AllReduce (x) }",
    )
    .unwrap();
    for found in run_ranks(&[model.clone(), model], square) {
        assert_eq!(floats(&found.unwrap(), "y"), [80.0, 96.0, 112.0, 128.0]);
    }
}

#[test]
fn a_rank_alone_needs_nobody() {
    let model = model("g (float[2, 2] x) => (float[2, 2] y) { y = com.microsoft.AllReduce (x) }");
    let found = run_ranks(&[model], square);
    assert_eq!(floats(found[0].as_ref().unwrap(), "y"), [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn without_other_ranks_it_is_said_what_is_needed() {
    let model = model("g (float[2, 2] x) => (float[2, 2] y) { y = com.microsoft.AllReduce (x) }");
    let error = Session::new(&model).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let why = error.unsupported_operators().iter().map(ToString::to_string).collect::<String>();
    assert!(why.contains("--processes") && why.contains("SessionBuilder::transport"), "{why}");
    // Such a session describes the model but cannot run it.
    let session = Session::builder(&model).inspect_only().build().unwrap();
    assert!(session.run([("x", square(0))], &Default::default()).is_err());
}

#[test]
fn what_does_not_fit_together_is_refused_on_all_ranks() {
    let gather = |axis: i64, ranks: i64| {
        model(&format!(
            "g (float[2, 2] x) => (float[M, N] y) {{
                 y = com.microsoft.AllGather <axis = {axis}, group_size = {ranks}> (x)
             }}"
        ))
    };
    let dist = |more: &str| {
        model(&format!(
            "g (float[2, 2] x) => (float[M, N] y) {{ y = DistCollective <{more}> (x) }}"
        ))
    };
    let rows: &[([Model; 2], ErrorKind, &str)] = &[
        (
            [gather(0, 3), gather(0, 3)],
            ErrorKind::Input,
            "is for 3 ranks, but 2 ranks run the model",
        ),
        ([gather(0, 2), gather(1, 2)], ErrorKind::Worker, "disagree"),
        (
            [gather(0, 2), model("g (float[2, 2] x) => (float[2, 2] y) { y = Neg (x) }")],
            ErrorKind::Worker,
            "disagree",
        ),
        (
            [(); 2].map(|()| dist("collective_operation = \"gather\", nb_rank = 2, root = 0")),
            ErrorKind::Unsupported,
            "has the operation 'gather', which is not supported",
        ),
        (
            [(); 2].map(|()| {
                dist("collective_operation = \"all_reduce\", reduce_op = \"avg\", nb_rank = 2")
            }),
            ErrorKind::Unsupported,
            "the reduction 'avg'",
        ),
        (
            [(); 2].map(|()| {
                dist("collective_operation = \"all_gather\", nb_rank = 2, groups = [0, 7]")
            }),
            ErrorKind::Input,
            "the ranks [0, 7], which are not ranks below 2",
        ),
    ];
    for (models, kind, message) in rows {
        for found in run_ranks(models, square) {
            let error = found.unwrap_err();
            let is_told = error.kind() == ErrorKind::Worker;
            assert!(error.kind() == *kind || is_told, "{error}: {:?}", error.kind());
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    let model = model("g (float[N, 2] x) => (float[N, 2] y) { y = com.microsoft.AllReduce (x) }");
    let found = run_ranks(&[model.clone(), model], |rank| {
        Tensor::from_vec([2, 2 + rank], vec![0f32; 4 + 2 * rank]).unwrap()
    });
    let messages: Vec<String> = found.into_iter().map(|one| one.unwrap_err().to_string()).collect();
    assert!(messages[1].contains("'x'"), "{messages:?}");
    assert!(messages[0].contains("worker 1") && messages[0].contains("'x'"), "{messages:?}");
}

#[test]
fn all_ranks_draw_the_same_numbers() {
    let model = model(
        "g (float[2, 2] x) => (float[2, 2] y, float[2, 2] own) {
             own = RandomNormalLike (x)
             y = com.microsoft.AllReduce (own)
         }",
    );
    let found = run_ranks(&[model.clone(), model], square);
    let of = |rank: usize, name: &str| floats(found[rank].as_ref().unwrap(), name);
    assert_eq!(of(0, "own"), of(1, "own"));
    let twice: Vec<f32> = of(0, "own").iter().map(|value| 2.0 * value).collect();
    assert_eq!(of(0, "y"), twice);
}
