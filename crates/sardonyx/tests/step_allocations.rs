//! Checks that repeated training steps allocate nothing.

use allocation_counter::measure;
use sardonyx::train::{Loss, OptimizerKind, TrainingOptions};
use sardonyx::{Model, Tensor, TensorViewMut, Trainer};

/// Makes a model with random weights from -0.1 to 0.1 of these names and dimensions. `before` is
/// the text before the weights.
fn model(before: &str, weights: &[(&str, &[usize])], nodes: &str) -> Model {
    let mut state = 1u32;
    let mut numbers = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(state >> 8) / f64::from(1 << 24) / 5.0 - 0.1).to_string()
    });
    let mut initializers = Vec::new();
    for (name, dims) in weights {
        let numbers: Vec<String> = numbers.by_ref().take(dims.iter().product()).collect();
        initializers.push(format!("float{dims:?} {name} = {{{}}}", numbers.join(", ")));
    }
    Model::from_text(&format!("{before} <{}> {{ {nodes} }}", initializers.join(", "))).unwrap()
}

/// Makes a network of matrix products with an embedding.
fn text_network() -> Model {
    model(
        "<ir_version: 8, opset_import: [\"\": 20]> g (int64[N, 6] x) => (float[N, 5] scores)",
        &[
            ("words", &[30, 16]),
            ("q", &[16, 16]),
            ("k", &[16, 16]),
            ("s", &[16]),
            ("t", &[16]),
            ("v", &[16, 5]),
        ],
        "e = Gather (words, x)
         l = LayerNormalization (e, s, t)
         a = MatMul (l, q)
         b = MatMul (l, k)
         bt = Transpose <perm = [0, 2, 1]> (b)
         ab = MatMul (a, bt)
         m = Softmax (ab)
         o = MatMul (m, l)
         g = Gelu (o)
         axis = Constant <value_ints: ints = [1]> ()
         mean = ReduceMean <keepdims = 0> (g, axis)
         scores = MatMul (mean, v)",
    )
}

/// Makes a network of convolutions with several strides, normalization and pooling.
fn image_network() -> Model {
    model(
        "<ir_version: 8, opset_import: [\"\": 17]> g (float[N, 3, 8, 8] x) => (float[N, 5] scores)",
        &[
            ("w", &[16, 3, 3, 3]),
            ("b", &[16]),
            ("w2", &[64, 16, 3, 3]),
            ("w3", &[64, 16, 1, 1]),
            ("s", &[64]),
            ("t", &[64]),
            ("mean", &[64]),
            ("v", &[5, 256]),
            ("c", &[5]),
        ],
        "h = Conv <pads = [1, 1, 1, 1]> (x, w, b)
         r = Relu (h)
         h2 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (r, w2)
         h3 = Conv <strides = [2, 2]> (r, w3)
         var = Exp (mean)
         n = BatchNormalization (h2, s, t, mean, var)
         sum = Add (n, h3)
         r2 = Relu (sum)
         p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r2)
         f = Flatten (p)
         scores = Gemm <transB = 1> (f, v, c)",
    )
}

/// Counts the allocations of a step after three others, and their bytes.
fn count_allocations(
    model: &Model,
    x: &Tensor,
    options: &TrainingOptions,
    threads: usize,
) -> (u64, u64) {
    let (model, _) = model.add_training(options).unwrap();
    let mut trainer = Trainer::builder(&model).threads(threads).build().unwrap();
    let labels = Tensor::from_slice([4], &[0i64, 4, 2, 1]).unwrap();
    let mut losses = [0f32; 4];
    let mut step = |loss: &mut f32| {
        let inputs = [("x", x.view()), ("label", labels.view())];
        let memory = TensorViewMut::from_slice([], std::slice::from_mut(loss)).unwrap();
        trainer.step_into(0, &inputs, &mut [("loss", memory)], &Default::default()).unwrap();
    };
    losses[..3].iter_mut().for_each(&mut step);
    let asked = measure(|| step(&mut losses[3]));
    assert!(losses[3] < losses[0], "{losses:?}");
    (asked.count_total, asked.bytes_total)
}

#[test]
fn after_three_steps_nothing_is_allocated() {
    let pixels: Vec<f32> = (0..4 * 3 * 64).map(|i| (i * 7 % 11) as f32 / 11.0 - 0.5).collect();
    let images = Tensor::from_vec([4, 3, 8, 8], pixels).unwrap();
    let words: Vec<i64> = (0..24).map(|i| i * 7 % 30).collect();
    let words = Tensor::from_vec([4, 6], words).unwrap();
    let loss =
        || TrainingOptions::new(Loss::CrossEntropy { output: None, axis: None, ignored: None });
    let adam = OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decoupled: false };
    let kinds = [
        ("SGD", loss().optimizer(OptimizerKind::Sgd, 0.01)),
        ("Adam", loss().optimizer(adam, 0.001)),
    ];
    for (name, options) in kinds {
        for threads in [1, 2] {
            let what = format!("{name} with {threads} threads");
            for (network, model, x) in
                [("words", text_network(), &words), ("images", image_network(), &images)]
            {
                let asked = count_allocations(&model, x, &options, threads);
                assert_eq!(asked, (0, 0), "calls and bytes: {network}, {what}");
            }
        }
    }
}
