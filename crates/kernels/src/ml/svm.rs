//! Support vector machines: kernels of examples and support vectors, a decision for each pair of
//! classes, and class probabilities from those of pairs.

use super::{Score, Shared, Sums};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::{Arith, Math};
use sardonyx_simd::{Ended, Level, Loop};

/// Kernel: similarity of an example `x` and a support vector `v`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelFunction {
    /// `x . v`
    Linear,
    /// `(gamma x . v + coef0) ^ degree`
    Poly { gamma: f32, coef0: f32, degree: i32 },
    /// `exp(-gamma |x - v|^2)`
    Rbf { gamma: f32 },
    /// `tanh(gamma x . v + coef0)`
    Sigmoid { gamma: f32, coef0: f32 },
}

/// Support vectors that examples are compared with.
#[derive(Clone, Copy, Debug)]
pub struct SupportVectors<'a, T> {
    /// Rows of features.
    pub vectors: &'a [T],
    /// A zero for each vector: bias of the product of examples and vectors.
    pub zeros: &'a [T],
}

/// Returns the number of pairs of classes: one decision each.
pub fn pair_count(classes: usize) -> usize {
    classes * classes.saturating_sub(1) / 2
}

/// Returns the position of the pair of classes `i < j` in the order (0, 1), (0, 2), .., (1, 2), ..
fn pair(classes: usize, i: usize, j: usize) -> usize {
    i * (2 * classes - i - 1) / 2 + j - i - 1
}

/// Computes kernels: `y[r, v]` is that of example `x[r]` and vector `v`. `x` has dims `[rows,
/// features]`, `vectors` has dims `[count, features]`, and `zeros` is a bias of 0 for each vector.
///
/// # Panics
///
/// If lengths do not fit the sizes, or `sizes.pitch` is not `sizes.sums`.
pub fn similarities<T: Score>(
    exec: &Exec<'_>,
    kernel: KernelFunction,
    sizes: Sums,
    x: &[T],
    SupportVectors { vectors, zeros }: SupportVectors<'_, T>,
    y: &mut [T],
) -> Result<(), Ended> {
    let (features, count) = (sizes.features, sizes.sums);
    assert_eq!(x.len(), sizes.rows * features, "the input has other dims");
    assert_eq!(vectors.len(), count * features, "the vectors have other dims");
    assert_eq!((y.len(), sizes.pitch), (sizes.rows * count, count), "the output has other dims");
    if y.is_empty() {
        return Ok(());
    }
    let level = Level::new(exec.isa);
    if let KernelFunction::Rbf { gamma } = kernel {
        let gamma = T::from_f64(f64::from(gamma));
        return rows(exec.pool, y, count, count * (features + 8), |first, y| {
            let x = &x[first * features..];
            T::run(level, Rbf { gamma, features, count, x, vectors, y });
        });
    }
    T::sums(exec, sizes, x, vectors, zeros, y)?;
    if kernel != KernelFunction::Linear {
        rows(exec.pool, y, count, 16 * count, |_, y| T::run(level, ProductKernels { kernel, y }))?;
    }
    Ok(())
}

/// Loop of [`KernelFunction::Rbf`].
struct Rbf<'a, T> {
    gamma: T,
    features: usize,
    count: usize,
    x: &'a [T],
    vectors: &'a [T],
    y: &'a mut [T],
}

impl<T: Math> Loop for Rbf<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (row, y) in self.y.chunks_exact_mut(self.count).enumerate() {
            let x = &self.x[row * self.features..][..self.features];
            for (at, y) in y.iter_mut().enumerate() {
                let vector = &self.vectors[at * self.features..][..self.features];
                *y = squared_distance::<T, FMA>(x, vector);
            }
            for y in y {
                *y = y.mul(self.gamma).neg().exp::<FMA>();
            }
        }
    }
}

/// Computes the squared distance, with eight partial sums so that vectors can be used.
#[inline(always)]
fn squared_distance<T: Math, const FMA: bool>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::ZERO; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            let difference = a[lane].sub(b[lane]);
            sums[lane] = difference.mul_add::<FMA>(difference, sums[lane]);
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        let difference = a.sub(*b);
        sums[lane] = difference.mul_add::<FMA>(difference, sums[lane]);
    }
    sums.into_iter().fold(T::ZERO, Arith::add)
}

/// Loop of kernels that are functions of the scalar product.
struct ProductKernels<'a, T> {
    kernel: KernelFunction,
    y: &'a mut [T],
}

impl<T: Math> Loop for ProductKernels<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let to_number = |x: f32| T::from_f64(f64::from(x));
        match self.kernel {
            KernelFunction::Linear | KernelFunction::Rbf { .. } => {}
            KernelFunction::Poly { gamma, coef0, degree } => {
                let (gamma, coef0) = (to_number(gamma), to_number(coef0));
                for y in self.y {
                    *y = power(y.mul(gamma).add(coef0), degree);
                }
            }
            KernelFunction::Sigmoid { gamma, coef0 } => {
                let (gamma, coef0) = (to_number(gamma), to_number(coef0));
                for y in self.y {
                    *y = y.mul(gamma).add(coef0).tanh::<FMA>();
                }
            }
        }
    }
}

/// Raises `base` to an integer power, by repeated squaring.
#[inline(always)]
fn power<T: Math>(base: T, exponent: i32) -> T {
    let (mut square, mut left, mut power) = (base, exponent.unsigned_abs(), T::ONE);
    while left > 0 {
        if left & 1 == 1 {
            power = power.mul(square);
        }
        square = square.mul(square);
        left >>= 1;
    }
    if exponent < 0 { T::ONE.div(power) } else { power }
}

/// Computes one decision for each row: `y[r]` is the weighted sum of the similarities of row `r`,
/// plus a constant.
///
/// # Panics
///
/// If lengths do not fit each other.
pub fn weigh<T: Math>(
    exec: &Exec<'_>,
    weights: &[T],
    constant: T,
    similarities: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let count = weights.len();
    assert_eq!(similarities.len(), y.len() * count, "similarities of each row");
    rows(exec.pool, y, 1, 2 * count, |first, y| {
        for (row, y) in y.iter_mut().enumerate() {
            let similarities = &similarities[(first + row) * count..][..count];
            *y = T::from_f64(constant.to_f64() + sum_products(weights, similarities));
        }
    })
}

/// Sums the products of weights and similarities in f64.
#[inline(always)]
fn sum_products<T: Math>(weights: &[T], similarities: &[T]) -> f64 {
    weights.iter().zip(similarities).map(|(a, b)| a.to_f64() * b.to_f64()).sum()
}

/// Machines that separate pairs of classes and share support vectors, which are sorted by class.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a, T> {
    /// Number of support vectors of each class.
    pub per_class: &'a [usize],
    /// Coefficients `[classes - 1, vectors]`: the one of a vector of class `c` against class `d` is
    /// in row `d`, or in row `d - 1` if `d > c`.
    pub coefficients: &'a [T],
    /// Constant of each pair.
    pub constants: &'a [T],
}

/// Computes the decisions of all pairs, `[rows, pairs]`, and the class with most votes of each row.
/// A positive decision is a vote for the first class of its pair. `similarities` has dims `[rows,
/// vectors]`.
///
/// # Panics
///
/// If lengths do not fit each other.
pub fn decide<T: Math>(
    exec: &Exec<'_>,
    pairs: &Pairs<'_, T>,
    similarities: &[T],
    decisions: &mut [T],
    best: &mut [i64],
) -> Result<(), Ended> {
    let classes = pairs.per_class.len();
    let (vectors, count) = (pairs.per_class.iter().sum::<usize>(), pair_count(classes));
    assert_eq!(pairs.coefficients.len(), (classes - 1) * vectors, "coefficients of each pair");
    assert_eq!(similarities.len(), best.len() * vectors, "similarities of each row");
    assert_eq!(decisions.len(), best.len() * count, "decisions of each row");
    assert!(pairs.constants.len() >= count, "a constant for each pair");
    let shared = Shared::new(best);
    rows(exec.pool, decisions, count, 2 * classes * vectors, |first, decisions| {
        for (row, decisions) in decisions.chunks_exact_mut(count).enumerate() {
            let row = first + row;
            decide_row(pairs, &similarities[row * vectors..][..vectors], decisions);
            // SAFETY: each row is in one chunk only.
            let best = unsafe { shared.part(row, 1) };
            best[0] = most_voted(classes, decisions) as i64;
        }
    })
}

/// Computes the decisions of one row.
fn decide_row<T: Math>(pairs: &Pairs<'_, T>, similarities: &[T], decisions: &mut [T]) {
    let vectors = similarities.len();
    let (mut start_i, mut at) = (0, 0);
    for (i, count_i) in pairs.per_class.iter().enumerate() {
        let mut start_j = start_i + count_i;
        for (j, count_j) in pairs.per_class.iter().enumerate().skip(i + 1) {
            let of_i = &pairs.coefficients[(j - 1) * vectors + start_i..][..*count_i];
            let of_j = &pairs.coefficients[i * vectors + start_j..][..*count_j];
            let sum = sum_products(of_i, &similarities[start_i..])
                + sum_products(of_j, &similarities[start_j..]);
            decisions[at] = T::from_f64(pairs.constants[at].to_f64() + sum);
            start_j += count_j;
            at += 1;
        }
        start_i += count_i;
    }
}

/// Finds the first class with the most votes.
fn most_voted<T: Math>(classes: usize, decisions: &[T]) -> usize {
    let count_votes = |class: usize| {
        let lost = (0..class).filter(|i| decisions[pair(classes, *i, class)] > T::ZERO).count();
        let above = class + 1..classes;
        let won = above.filter(|j| decisions[pair(classes, class, *j)] > T::ZERO).count();
        class - lost + won
    };
    let mut most = (0, count_votes(0));
    for class in 1..classes {
        let votes = count_votes(class);
        if votes > most.1 {
            most = (class, votes);
        }
    }
    most.0
}

/// Sigmoid of each pair that turns a decision `d` into a probability: `1 - 1 / (1 + exp(-(a d +
/// b)))`.
#[derive(Clone, Copy, Debug)]
pub struct Sigmoids<'a> {
    pub a: &'a [f32],
    pub b: &'a [f32],
}

/// Computes class probabilities, `[rows, classes]`, from the decisions of pairs, `[rows, pairs]`.
/// `work` has at least `pairs + 3 classes` numbers for each row.
///
/// Uses the second method of T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability Estimates for
/// Multi-class Classification by Pairwise Coupling", JMLR 5, 2004: the `p` that minimizes the sum
/// of `(r_ji p_i - r_ij p_j)^2` over pairs, by the iteration of its Algorithm 2.
///
/// # Panics
///
/// If lengths do not fit each other, or `classes` is 0.
pub fn couple<T: Math>(
    exec: &Exec<'_>,
    classes: usize,
    sigmoids: Sigmoids<'_>,
    decisions: &[T],
    work: &mut [f64],
    y: &mut [T],
) -> Result<(), Ended> {
    let count = pair_count(classes);
    let (per_row, rows_given) = (count + 3 * classes, y.len() / classes);
    assert_eq!(decisions.len(), rows_given * count, "decisions of each row");
    assert!(sigmoids.a.len() >= count && sigmoids.b.len() >= count, "a sigmoid for each pair");
    let work = &mut work[..rows_given * per_row];
    let shared = Shared::new(y);
    rows(exec.pool, work, per_row, 20 * (per_row + classes * classes), |first, work| {
        for (row, work) in work.chunks_exact_mut(per_row).enumerate() {
            let row = first + row;
            let decisions = &decisions[row * count..][..count];
            let (pairs, work) = work.split_at_mut(count);
            for (at, (pair, decision)) in pairs.iter_mut().zip(decisions).enumerate() {
                let score = decision.to_f64() * f64::from(sigmoids.a[at]);
                let tail = (score + f64::from(sigmoids.b[at])).exp();
                *pair = (1.0 / (1.0 + tail)).clamp(LEAST, 1.0 - LEAST);
            }
            let probabilities = iterate_coupling(classes, pairs, work);
            // SAFETY: each row is in one chunk only.
            let y = unsafe { shared.part(row * classes, classes) };
            y.iter_mut().zip(probabilities).for_each(|(y, p)| *y = T::from_f64(*p));
        }
    })
}

/// Value: least distance of the probabilities of pairs from 0 and 1.
const LEAST: f64 = 1e-7;

/// Iterates to the probabilities of classes. With `r_ij` the probability that an example of class
/// `i` or `j` is of class `i`, `Q_tt` is the sum of `r_st^2` over `s`, and `Q_tj` is `-r_jt r_tj`.
/// Recomputes `Q_tj` at each use, which saves a matrix.
fn iterate_coupling<'a>(classes: usize, pairs: &[f64], work: &'a mut [f64]) -> &'a [f64] {
    let probability = |i: usize, j: usize| {
        if i < j { pairs[pair(classes, i, j)] } else { 1.0 - pairs[pair(classes, j, i)] }
    };
    let (diagonal, work) = work.split_at_mut(classes);
    let (p, products) = work.split_at_mut(classes);
    p.fill(1.0 / classes as f64);
    for (t, diagonal) in diagonal.iter_mut().enumerate() {
        *diagonal =
            (0..classes).filter(|s| *s != t).map(|s| probability(s, t) * probability(s, t)).sum();
    }
    let coefficient = |t: usize, j: usize, diagonal: &[f64]| {
        if t == j { diagonal[t] } else { -probability(j, t) * probability(t, j) }
    };
    let enough = 0.005 / classes as f64;
    for _ in 0..classes.max(100) {
        for (t, product) in products.iter_mut().enumerate() {
            *product = (0..classes).map(|j| coefficient(t, j, diagonal) * p[j]).sum();
        }
        let mut whole: f64 = p.iter().zip(&*products).map(|(p, product)| p * product).sum();
        if products.iter().all(|product| (product - whole).abs() < enough) {
            break;
        }
        for t in 0..classes {
            let step = (whole - products[t]) / diagonal[t];
            let norm = 1.0 + step;
            p[t] += step;
            whole = (whole + step * (step * diagonal[t] + 2.0 * products[t])) / (norm * norm);
            for j in 0..classes {
                products[j] = (products[j] + step * coefficient(t, j, diagonal)) / norm;
                p[j] /= norm;
            }
        }
    }
    p
}
