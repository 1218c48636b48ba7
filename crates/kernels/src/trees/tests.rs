use super::*;
use crate::ml::PostTransform;

/// Pseudorandom numbers: a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn draw_below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    /// Returns one of few values, so that many are equal.
    fn value(&mut self) -> f64 {
        const OTHERS: [f64; 5] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
        match self.draw_below(12) {
            0 => OTHERS[self.draw_below(5)],
            _ => (self.draw_below(17) as f64 - 8.0) / 4.0,
        }
    }
}

/// Sizes and kinds of random trees.
#[derive(Clone, Copy, Debug)]
struct Kinds {
    trees: usize,
    depth: usize,
    features: usize,
    targets: usize,
    /// Number of kinds of tests, at least 1: `Less` and those after it.
    tests: usize,
    is_wide: bool,
}

fn random(kinds: Kinds, numbers: &mut Numbers) -> Ensemble {
    let mut made = Ensemble {
        leaves: vec![0],
        targets: kinds.targets,
        is_wide: kinds.is_wide,
        is_whole: true,
        ..Ensemble::default()
    };
    for _ in 0..kinds.trees {
        let root = subtree(&mut made, kinds, kinds.depth, numbers);
        made.roots.push(root);
    }
    made
}

fn subtree(made: &mut Ensemble, kinds: Kinds, depth: usize, numbers: &mut Numbers) -> Next {
    if depth == 0 || numbers.draw_below(8) == 0 {
        for _ in 0..numbers.draw_below(3) {
            let weight = (numbers.value(), numbers.draw_below(1000) as f64 / 7.0 - 60.0);
            let weight = if weight.0.is_infinite() { weight.0 } else { weight.1 };
            made.weights.push((numbers.draw_below(kinds.targets), weight));
        }
        made.leaves.push(made.weights.len());
        return Next::Leaf(made.leaves.len() - 2);
    }
    let test = match numbers.draw_below(kinds.tests) {
        0 => Test::Less,
        1 => Test::LessOrEqual,
        2 => Test::Greater,
        3 => Test::GreaterOrEqual,
        4 => Test::Equal,
        5 => Test::NotEqual,
        _ => {
            let from = made.members.len();
            for _ in 0..numbers.draw_below(6) {
                made.members.push(numbers.value());
            }
            Test::Member(from, made.members.len())
        }
    };
    let split = Split {
        feature: numbers.draw_below(kinds.features) * 3 + 1,
        test,
        threshold: numbers.value(),
        missing: numbers.draw_below(2) == 0,
        on_true: Next::Leaf(0),
        on_false: Next::Leaf(0),
    };
    let place = made.splits.len();
    made.splits.push(split);
    made.splits[place].on_true = subtree(made, kinds, depth - 1, numbers);
    made.splits[place].on_false = subtree(made, kinds, depth - 1, numbers);
    Next::Split(place)
}

/// Returns the leaf that a row leads to.
fn naive_leaf(ensemble: &Ensemble, next: Next, x: &[f64]) -> usize {
    let split = match next {
        Next::Leaf(leaf) => return leaf,
        Next::Split(place) => &ensemble.splits[place],
    };
    let (x_here, threshold) = (x[split.feature], split.threshold);
    let holds = match split.test {
        _ if x_here.is_nan() => split.missing,
        Test::Less => x_here < threshold,
        Test::LessOrEqual => x_here <= threshold,
        Test::Greater => x_here > threshold,
        Test::GreaterOrEqual => x_here >= threshold,
        Test::Equal => x_here == threshold,
        Test::NotEqual => x_here != threshold,
        Test::Member(from, to) => ensemble.members[from..to].contains(&x_here),
    };
    naive_leaf(ensemble, if holds { split.on_true } else { split.on_false }, x)
}

/// Computes the values of a row by the definition.
fn naive(ensemble: &Ensemble, finish: &Finish, x: &[f64]) -> Vec<f64> {
    let start = match finish.aggregate {
        Aggregate::Min => finish.greatest,
        Aggregate::Max => -finish.greatest,
        _ => 0.0,
    };
    let mut row = vec![start; ensemble.targets];
    for root in &ensemble.roots {
        let leaf = naive_leaf(ensemble, *root, x);
        for (target, weight) in &ensemble.weights[ensemble.leaves[leaf]..ensemble.leaves[leaf + 1]]
        {
            row[*target] = match finish.aggregate {
                Aggregate::Min => row[*target].min(*weight),
                Aggregate::Max => row[*target].max(*weight),
                _ => row[*target] + weight,
            };
        }
    }
    for (target, number) in row.iter_mut().enumerate() {
        if finish.aggregate == Aggregate::Average {
            *number /= ensemble.roots.len() as f64;
        }
        *number += finish.bases.get(target).copied().unwrap_or(0.0);
    }
    row
}

fn finish(aggregate: Aggregate) -> Finish {
    Finish {
        aggregate,
        bases: Vec::new(),
        transform: PostTransform::None,
        is_binary: false,
        greatest: f32::MAX.into(),
    }
}

fn predict(
    trees: &Trees,
    threads: usize,
    dims: RowDims,
    x: Rows<'_>,
    finish: &Finish,
) -> (Vec<f64>, Vec<i64>) {
    let pool = Pool::new(threads);
    let [keys, sums] = trees.scratch(&pool, dims.count);
    let (mut keys, mut sums) = (vec![u64::MAX; keys], vec![f64::NAN; sums]);
    let mut scores = vec![f64::NAN; dims.count * finish.columns(trees.targets)];
    let mut best = vec![-1; dims.count];
    let out = Outputs { scores: Scores::Double(&mut scores), best: Some(&mut best) };
    let exec = Exec::new(&pool, sardonyx_simd::Isa::detect());
    let memory = TreeMemory { keys: &mut keys, sums: &mut sums };
    trees.predict(&exec, dims, x, finish, out, memory).unwrap();
    (scores, best)
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    // One NaN is like another.
    numbers.iter().map(|number| if number.is_nan() { 1 } else { number.to_bits() }).collect()
}

#[test]
fn as_the_naive_walk() {
    let mut numbers = Numbers(11);
    // (trees, greatest depth, features, targets, kinds of tests)
    let shapes = [
        (1, 0, 1, 1, 1),
        (1, 1, 1, 1, 1),
        (3, 2, 2, 2, 4),
        (20, 9, 5, 1, 4),
        (9, 6, 3, 3, 7),
        (30, 4, 40, 4, 7),
        (17, 13, 4, 1, 2),
        (0, 0, 1, 2, 1),
        (60, 5, 9, 600, 4),
    ];
    for (round, (trees, depth, features, targets, tests)) in shapes.into_iter().enumerate() {
        for (rows, is_wide) in
            [(0, false), (1, true), (2, false), (7, true), (13, false), (700, true)]
        {
            let kinds = Kinds { trees, depth, features, targets, tests, is_wide };
            let ensemble = random(kinds, &mut numbers);
            let trees = Trees::grow(&ensemble).unwrap();
            let columns = 3 * features + 2;
            let x: Vec<f64> = (0..rows * columns).map(|_| numbers.value()).collect();
            let single: Vec<f32> = x.iter().map(|x| *x as f32).collect();
            let half: Vec<f16> = x.iter().map(|x| f16::from_f64(*x)).collect();
            let mut finish = finish(match round % 4 {
                0 => Aggregate::Average,
                1 => Aggregate::Sum,
                2 => Aggregate::Min,
                _ => Aggregate::Max,
            });
            if rows > 5 {
                finish.bases = (0..targets).map(|target| target as f64 + 0.3).collect();
            }
            let expected: Vec<f64> = (0..rows)
                .flat_map(|row| naive(&ensemble, &finish, &x[row * columns..][..columns]))
                .collect();
            for threads in [1, 3] {
                for x in [Rows::Single(&single), Rows::Half(&half), Rows::Double(&x)] {
                    let (found, _) = predict(&trees, threads, [rows, columns].into(), x, &finish);
                    assert_eq!(bits(&found), bits(&expected), "{kinds:?} {rows} {threads}");
                }
            }
        }
    }
}

/// Returns a tree of one comparison: `x` leads to 1 if it holds, to 0 if not.
fn one(test: Test, threshold: f64, missing: bool, is_wide: bool) -> Ensemble {
    Ensemble {
        splits: vec![Split {
            feature: 0,
            test,
            threshold,
            missing,
            on_true: Next::Leaf(1),
            on_false: Next::Leaf(0),
        }],
        members: vec![],
        leaves: vec![0, 1, 2],
        weights: vec![(0, 0.0), (0, 1.0)],
        roots: vec![Next::Split(0)],
        targets: 1,
        is_wide,
        is_whole: true,
    }
}

#[test]
fn integers_and_precision() {
    let big = (1i64 << 24) + 1;
    let predict_one = |ensemble: &Ensemble, x: Rows<'_>| {
        predict(&Trees::grow(ensemble).unwrap(), 1, [1, 1].into(), x, &finish(Aggregate::Sum)).0[0]
    };
    let wide = one(Test::Equal, big as f64, false, true);
    assert_eq!(predict_one(&wide, Rows::Long(&[big])), 1.0);
    assert_eq!(predict_one(&wide, Rows::Short(&[big as i32])), 1.0);
    assert_eq!(predict_one(&wide, Rows::Long(&[big - 1])), 0.0);
    // The neighbours of a threshold, and the ends.
    for value in [0.1f32, -0.1, f32::MAX, f32::MIN, f32::MIN_POSITIVE, -1e-45] {
        for (x, expected) in [(value.next_down(), 0.0), (value, 1.0), (value.next_up(), 1.0)] {
            for is_wide in [false, true] {
                let ensemble = one(Test::GreaterOrEqual, value.into(), true, is_wide);
                assert_eq!(predict_one(&ensemble, Rows::Single(&[x])), expected, "{x} {value}");
            }
        }
    }
    // Halfway between two floats of 32 bits.
    let halfway = (f64::from(0.1f32) + f64::from(0.1f32.next_up())) / 2.0;
    let ensemble = one(Test::Less, halfway, false, true);
    assert_eq!(predict_one(&ensemble, Rows::Single(&[0.1])), 1.0);
    assert_eq!(predict_one(&ensemble, Rows::Single(&[0.1f32.next_up()])), 0.0);
}

#[test]
fn ends() {
    let e = 1f64.exp();
    let odd = e / (1.0 + e);
    // (weights, transform, whether two classes, scores, best)
    let rows: [(&[f64], PostTransform, bool, &[f64], i64); 13] = [
        (&[0.2, 0.7, 0.7], PostTransform::None, false, &[0.2, 0.7, 0.7], 1),
        (&[1.0, 2.0], PostTransform::Softmax, false, &[1.0 - odd, odd], 1),
        (&[0.0, 1.0], PostTransform::SoftmaxZero, false, &[0.0, 1.0], 1),
        (&[0.0, 0.0], PostTransform::SoftmaxZero, false, &[0.5, 0.5], 0),
        (&[1.0, -1.0], PostTransform::Logistic, false, &[odd, 1.0 - odd], 0),
        (&[0.5, 1.0, 0.0], PostTransform::Probit, false, &[0.0, 0.0, 0.0], 0),
        (&[0.975], PostTransform::Probit, false, &[1.959964], 0),
        (&[0.3], PostTransform::None, true, &[0.7, 0.3], 0),
        (&[0.5], PostTransform::None, true, &[0.5, 0.5], 0),
        (&[0.6], PostTransform::None, true, &[0.4, 0.6], 1),
        (&[0.5], PostTransform::Softmax, true, &[1.0 - odd, odd], 1),
        (&[-1.0], PostTransform::Logistic, true, &[odd, 1.0 - odd], 0),
        (&[1.5, 0.5], PostTransform::Probit, false, &[f64::NAN, 0.0], 0),
    ];
    for (weights, transform, is_binary, expected, best) in rows {
        let leaf = Ensemble {
            leaves: vec![0, weights.len()],
            weights: weights.iter().copied().enumerate().collect(),
            roots: vec![Next::Leaf(0)],
            targets: weights.len(),
            ..Ensemble::default()
        };
        let trees = Trees::grow(&leaf).unwrap();
        let finish = Finish { transform, is_binary, ..finish(Aggregate::Sum) };
        // No feature is read, so rows may have none.
        let (scores, found) = predict(&trees, 1, [2, 0].into(), Rows::Single(&[]), &finish);
        assert_eq!(found, [best, best], "{weights:?} {transform:?}");
        for (score, expected) in scores.iter().zip(expected.iter().chain(expected)) {
            let close = (score - expected).abs() < 2e-3 * expected.abs() + 1e-12;
            assert!(close || score.is_nan() && expected.is_nan(), "{weights:?} {scores:?}");
        }
    }
}

#[test]
fn faults() {
    let (leaf, to) = (Next::Leaf(0), Next::Split);
    // (splits, roots, fault)
    let rows: [(&[[Next; 2]], &[Next], Fault); 5] = [
        (&[[leaf, to(0)]], &[to(0)], Fault::TwoWays(0)),
        (&[[leaf, to(1)], [to(0), leaf]], &[to(0)], Fault::TwoWays(0)),
        (&[[to(1), to(1)], [leaf, leaf]], &[to(0)], Fault::TwoWays(1)),
        (&[[leaf, leaf]], &[to(0), to(0)], Fault::TwoWays(0)),
        (&[[leaf, leaf], [leaf, leaf]], &[to(0)], Fault::NoWay(1)),
    ];
    for (splits, roots, fault) in rows {
        let given = splits.iter().map(|[on_true, on_false]| Split {
            feature: 0,
            test: Test::Less,
            threshold: 0.0,
            missing: false,
            on_true: *on_true,
            on_false: *on_false,
        });
        let ensemble = Ensemble {
            splits: given.collect(),
            leaves: vec![0, 1],
            weights: vec![(0, 1.0)],
            roots: roots.to_vec(),
            targets: 1,
            is_whole: true,
            ..Ensemble::default()
        };
        assert_eq!(Trees::grow(&ensemble).unwrap_err(), fault, "{splits:?}");
    }
}

/// Predicts with trees that fill several blocks, all of whose paths are long.
#[test]
fn full_trees_over_many_rows() {
    let mut numbers = Numbers(5);
    let (rows, features) = (300, 28);
    for (trees, depth) in [(6, 12), (60, 6)] {
        let mut ensemble =
            Ensemble { leaves: vec![0], targets: 1, is_whole: true, ..Ensemble::default() };
        for _ in 0..trees {
            let root = full(&mut ensemble, depth, features, &mut numbers);
            ensemble.roots.push(root);
        }
        let grown = Trees::grow(&ensemble).unwrap();
        let x: Vec<f32> =
            (0..rows * features).map(|_| numbers.draw_below(1 << 20) as f32).collect();
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let finish = finish(Aggregate::Sum);
        let (found, _) = predict(&grown, 1, [rows, features].into(), Rows::Single(&x), &finish);
        let plain: Vec<f64> =
            wide.chunks_exact(features).flat_map(|x| naive(&ensemble, &finish, x)).collect();
        assert_eq!(bits(&found), bits(&plain), "{trees} trees of depth {depth}");
    }
}

fn full(made: &mut Ensemble, depth: usize, features: usize, numbers: &mut Numbers) -> Next {
    if depth == 0 {
        made.weights.push((0, numbers.draw_below(1000) as f64 / 7.0));
        made.leaves.push(made.weights.len());
        return Next::Leaf(made.leaves.len() - 2);
    }
    let place = made.splits.len();
    made.splits.push(Split {
        feature: numbers.draw_below(features),
        test: Test::LessOrEqual,
        threshold: numbers.draw_below(1 << 20) as f64,
        missing: false,
        on_true: Next::Leaf(0),
        on_false: Next::Leaf(0),
    });
    made.splits[place].on_true = full(made, depth - 1, features, numbers);
    made.splits[place].on_false = full(made, depth - 1, features, numbers);
    Next::Split(place)
}
