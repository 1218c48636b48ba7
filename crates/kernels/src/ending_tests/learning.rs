//! Kernels of attention and recurrent layers, of classical machine learning, of training, and of
//! random numbers.

use sardonyx_elementwise::Unary;

use crate::attention::{Attention, Heads, HeadsMut, Sizes, attention, attention_doubles};
use crate::gemm::{MatRef, Rhs};
use crate::ml::{
    self, FeatureScale, KernelFunction, Pairs, PostTransform, RowNorm, Sigmoids, Sums,
    SupportVectors, couple, decide, similarities, weigh,
};
use crate::optimizer::{Optimizer, Step, Weights, step};
use crate::random::{
    Generator, Mt19937, Philox, SampleDims, bernoulli, dropout, multinomial, normal, uniform,
};
use crate::recurrent::{self, Cell, Gate, Input, Layer, Pass, Sequences, recur};
use crate::trees::{
    Aggregate, Ensemble, Finish, Next, Outputs, Rows, Scores, Split, Test, TreeMemory, Trees,
};

use super::{Case, MANY, case, floats};

/// Returns the floats that most cases read.
fn x() -> Vec<f32> {
    floats(MANY)
}

pub(super) fn cases() -> Vec<Case> {
    [layer_cases(), feature_cases(), machine_cases(), training_cases(), random_cases()]
        .into_iter()
        .flatten()
        .collect()
}

/// Strides of four heads of 64 rows of 32 features.
const HEADS: [usize; 4] = [4 * 64 * 32, 64 * 32, 32, 1];

/// Returns the attention of heads to themselves.
fn self_attention<T>(data: &[T]) -> Attention<'_, T> {
    let heads = || Heads { data, strides: HEADS };
    Attention {
        sizes: Sizes {
            batch: 1,
            heads: 4,
            shared_heads: 4,
            queries: 64,
            keys: 64,
            features: 32,
            value_features: 32,
        },
        q: heads(),
        k: heads(),
        v: heads(),
        mask: None,
        scale: 0.2,
        softcap: 0.0,
        window: crate::attention::NO_WINDOW,
        blind_is_zero: false,
    }
}

fn layer_cases() -> Vec<Case> {
    vec![
        case("kernels/attention attention", 4 * 64 * 32, |exec, y: &mut [f32]| {
            let x = floats(4 * 64 * 32);
            attention(exec, &self_attention(&x), HeadsMut { data: y, strides: HEADS })
        }),
        case("kernels/attention/doubles attention_doubles", 4 * 64 * 32, |exec, y: &mut [f64]| {
            let x: Vec<f64> = floats(4 * 64 * 32).into_iter().map(f64::from).collect();
            attention_doubles(exec, &self_attention(&x), HeadsMut { data: y, strides: HEADS })
        }),
        case("kernels/recurrent recur", 5 * 8 * 64, |exec, y: &mut [f32]| {
            let (weights, inputs) = (floats(64 * 64), floats(5 * 8 * 64));
            let state = Rhs::Plain(MatRef::row_major(&weights, 64, 64));
            let layer =
                Layer { cell: Cell::Plain { function: Gate::Of(Unary::Tanh), state }, clip: None };
            let sequences = Sequences { steps: 5, batch: 8, hidden: 64, lengths: None };
            let (strides, mut h) = ([8 * 64, 64], vec![0.0; 8 * 64]);
            let mut scratch = vec![f32::NAN; layer.cell.scratch_len(8, 64)];
            let input = Input {
                x: MatRef::row_major(&inputs, 5 * 8, 64),
                weights: state,
                bias: None,
                product: &mut vec![f32::NAN; 5 * 8 * 64],
            };
            let pass = Pass { layer, backwards: false, input, h: &mut h, c: &mut [] };
            let outputs = recurrent::Outputs { y, strides, pass_stride: 0 };
            recur(exec, &sequences, [8, 1], &mut [pass], Some(outputs), &mut scratch)
        }),
    ]
}

fn feature_cases() -> Vec<Case> {
    vec![
        case("kernels/ml scale", MANY, move |exec, y: &mut [f32]| {
            let (offsets, factors) = (floats(100), floats(100));
            ml::scale(exec, 100, FeatureScale { offsets: &offsets, factors: &factors }, &x(), y)
        }),
        case("kernels/ml normalize", MANY, move |exec, y: &mut [f32]| {
            ml::normalize(exec, RowNorm::L2, 100, &x(), y)
        }),
        case("kernels/ml binarize", MANY, move |exec, y: &mut [f32]| {
            ml::binarize(exec, 0.5, &x(), y)
        }),
        case("kernels/ml impute", MANY, move |exec, y: &mut [f32]| {
            ml::impute(exec, 100, 0.0, &floats(100), &x(), y)
        }),
        case("kernels/ml map", MANY, move |exec, y: &mut [f32]| {
            ml::map(exec.pool, 2, &x(), y, |x| x + 1.0)
        }),
        case("kernels/ml fill", MANY, |exec, y: &mut [f32]| {
            ml::fill(exec.pool, 2, y, |at| at as f32)
        }),
        case("kernels/ml one_hot", MANY, |exec, y: &mut [f32]| {
            let places: Vec<u32> = (0..MANY as u32 / 100).map(|at| at % 100).collect();
            ml::one_hot(exec.pool, 100, &places, y)
        }),
        case("kernels/ml look_up", MANY, |exec, y: &mut [f32]| {
            let places: Vec<u32> = (0..MANY as u32).map(|at| at % 100).collect();
            ml::look_up(exec.pool, &floats(100), &places, y)
        }),
        case("kernels/ml place_columns", MANY, move |exec, y: &mut [f32]| {
            let range = ml::ColumnRange { width: 100, start: 0, count: 100 };
            ml::place_columns(exec, 100, range, &x(), y)
        }),
        case("kernels/ml post_transform", MANY, move |exec, y: &mut [f32]| {
            y.copy_from_slice(&x());
            ml::post_transform(exec, PostTransform::Softmax, 100, y)
        }),
        case("kernels/ml mirror", MANY, move |exec, y: &mut [f32]| {
            y.copy_from_slice(&x());
            ml::mirror(exec, y)
        }),
        case("kernels/ml to_singles", MANY, |exec, y: &mut [f32]| {
            let x: Vec<f64> = floats(MANY).into_iter().map(f64::from).collect();
            ml::to_singles(exec, &x, y)
        }),
    ]
}

fn machine_cases() -> Vec<Case> {
    let similar = |kernel: KernelFunction| {
        case("kernels/ml/svm similarities", 400 * 60, move |exec, y: &mut [f32]| {
            let sizes = Sums { rows: 400, features: 20, sums: 60, pitch: 60 };
            let (vectors, zeros) = (floats(60 * 20), [0.0; 60]);
            similarities(
                exec,
                kernel,
                sizes,
                &floats(400 * 20),
                SupportVectors { vectors: &vectors, zeros: &zeros },
                y,
            )
        })
    };
    vec![
        similar(KernelFunction::Rbf { gamma: 0.5 }),
        similar(KernelFunction::Sigmoid { gamma: 0.5, coef0: 0.1 }),
        case("kernels/ml/svm weigh", 600, |exec, y: &mut [f32]| {
            weigh(exec, &floats(60), 0.5, &floats(600 * 60), y)
        }),
        case("kernels/ml/svm decide", 400 * 3, |exec, y: &mut [f32]| {
            let (coefficients, constants) = (floats(2 * 60), floats(3));
            let pairs = Pairs {
                per_class: &[20, 20, 20],
                coefficients: &coefficients,
                constants: &constants,
            };
            decide(exec, &pairs, &floats(400 * 60), y, &mut [0; 400])
        }),
        case("kernels/ml/svm couple", 400 * 3, |exec, y: &mut [f32]| {
            let mut work = vec![f64::NAN; 400 * (3 + 9)];
            let sigmoids = Sigmoids { a: &[1.0; 3], b: &[0.1; 3] };
            couple(exec, 3, sigmoids, &floats(400 * 3), &mut work, y)
        }),
        case("kernels/trees predict", 5000, |exec, y: &mut [f32]| {
            let splits = (0..10).map(|tree| Split {
                feature: tree % 4,
                test: Test::Less,
                threshold: 0.1,
                missing: false,
                on_true: Next::Leaf(0),
                on_false: Next::Leaf(1),
            });
            let trees = Trees::grow(&Ensemble {
                splits: splits.collect(),
                members: vec![],
                leaves: vec![0, 1, 2],
                weights: vec![(0, 0.5), (0, -0.25)],
                roots: (0..10).map(Next::Split).collect(),
                targets: 1,
                is_wide: false,
                is_whole: true,
            });
            let trees = trees.expect("the trees are sound");
            let finish = Finish {
                aggregate: Aggregate::Sum,
                bases: vec![],
                transform: PostTransform::None,
                is_binary: false,
                greatest: f64::from(f32::MAX),
            };
            let [keys, sums] = trees.scratch(exec.pool, 5000);
            let (mut keys, mut sums) = (vec![u64::MAX; keys], vec![f64::NAN; sums]);
            let out = Outputs { scores: Scores::Single(y), best: None };
            let x = floats(5000 * 4);
            let scratch = TreeMemory { keys: &mut keys, sums: &mut sums };
            trees.predict(exec, [5000, 4].into(), Rows::Single(&x), &finish, out, scratch)
        }),
    ]
}

fn training_cases() -> Vec<Case> {
    vec![case("kernels/optimizer step", MANY, |exec, y: &mut [f32]| {
        let (x, mut states) = (floats(MANY), vec![f32::NAN; MANY]);
        let zeros = vec![0.0; MANY];
        step(
            exec,
            Step { optimizer: Optimizer::Adagrad { epsilon: 1e-6 }, rate: 0.1, norm: 0.01 },
            Weights {
                old: &x,
                new: y,
                gradients: &x,
                old_states: [&zeros, &[]],
                new_states: [&mut states, &mut []],
            },
        )
    })]
}

fn random_cases() -> Vec<Case> {
    let mt = || Generator::Mt19937(Mt19937::new(5));
    let philox = || Generator::Philox(Philox::new(5, [1, 2, 3, 4]));
    vec![
        case("kernels/random uniform", MANY, move |exec, y: &mut [f32]| {
            uniform(exec, philox(), 1.0, 0.0, y)
        }),
        case("kernels/random normal", MANY, move |exec, y: &mut [f32]| {
            normal(exec, mt(), 1.0, 0.0, y)
        }),
        case("kernels/random bernoulli", MANY, move |exec, y: &mut [u8]| {
            bernoulli(exec, philox(), &[0.5f32; MANY], y)
        }),
        case("kernels/random dropout", MANY, move |exec, y: &mut [f32]| {
            dropout(exec, mt(), 0.25, 1.5, &floats(MANY), y, None::<&mut [u8]>)
        }),
        case("kernels/random multinomial", MANY, move |exec, y: &mut [i32]| {
            let dims = SampleDims { rows: 500, classes: 10, samples: 100 };
            multinomial(exec, philox(), &floats(500 * 10), dims, y)
        }),
    ]
}
