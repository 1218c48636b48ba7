//! Linear models and support vector machines.
//!
//! Scores of float inputs are computed in f32, those of other inputs in f64; the output is f32.

use sardonyx_kernels::ml::{
    KernelFunction, Pairs, PostTransform, Score, Sigmoids, Sums, SupportVectors, pair_count,
};
use sardonyx_kernels::number::{Arith, Number};
use sardonyx_kernels::reduce::{Extreme, Ties};
use sardonyx_kernels::{Ended, Exec, FeatureLoops, Loops, ScoreLoops, ml};
use sardonyx_tensor::{DataType, Element};

use super::attributes::{floats, ints, known_features, post_transform, reals, rows_and_columns};
use super::labels::Labels;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::scratch::Contents;

/// Attribute with integer labels.
const CLASSES: &str = "classlabels_ints";

/// Type of scores.
trait ScoreType: ScoreLoops + Loops + Element {
    /// Writes the index of the first greatest score of each row of `width`. NaN is above all.
    fn best_score(
        exec: &Exec<'_>,
        width: usize,
        scores: &[Self],
        best: &mut [i64],
    ) -> Result<(), Ended> {
        Self::arg_extreme(
            exec,
            Extreme::Max,
            Ties::First,
            [best.len(), width, 1].into(),
            scores,
            best,
        )
    }
}

impl<T: ScoreLoops + Loops + Element> ScoreType for T {}

/// Converts the input to the type of scores, unless it has it.
fn real_features<'a, T: FeatureLoops + Element>(
    call: &Call<'a>,
) -> Result<Contents<'a, T::Real>, KernelError>
where
    T::Real: ScoreType,
{
    if T::DATA_TYPE == <T::Real as Element>::DATA_TYPE {
        return Ok(Contents::Borrowed(call.slice::<T::Real>(0)?));
    }
    let x = call.slice::<T>(0)?;
    let mut made = call.scratch::<T::Real>(x.len())?;
    T::to_reals(call.exec, x, &mut made)?;
    Ok(Contents::Made(made))
}

/// Computes scores `[rows, width]` of an output, in its memory if the types are equal.
fn with_scores<R: ScoreType>(
    call: &mut Call<'_>,
    index: usize,
    dims: [usize; 2],
    compute: impl FnOnce(&Exec<'_>, &mut [R]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let exec = call.exec;
    let is_wanted = call.has_output(index);
    if is_wanted && R::DATA_TYPE == DataType::Float {
        return compute(exec, call.output_slice::<R>(index, &dims)?);
    }
    let mut scores = call.scratch::<R>(dims[0].saturating_mul(dims[1]))?;
    compute(exec, &mut scores)?;
    if is_wanted {
        R::to_singles(exec, &scores, call.output_slice::<f32>(index, &dims)?)?;
    }
    Ok(())
}

/// Transforms scores and writes the index of the greatest one of each row to `best`. Ranks after
/// the transform, unless that keeps the order and could only make scores equal.
fn rank<R: ScoreType>(
    exec: &Exec<'_>,
    how: PostTransform,
    width: usize,
    scores: &mut [R],
    best: &mut [i64],
) -> Result<(), Ended> {
    if how.keeps_order() {
        R::best_score(exec, width, scores, best)?;
        R::post_transform(exec, how, width, scores)
    } else {
        R::post_transform(exec, how, width, scores)?;
        R::best_score(exec, width, scores, best)
    }
}

/// Binds `LinearClassifier`.
pub(crate) fn bind_linear_classifier(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let how = post_transform(site)?;
    let labels = Labels::read(site, CLASSES)?;
    let (coefficients, intercepts) = (floats(site, "coefficients")?, floats(site, "intercepts")?);
    if coefficients.is_empty() {
        fail!("attribute 'coefficients' has no elements");
    }
    let sums = match (intercepts.len(), known_features(site)) {
        (0, None) => None,
        (0, Some(features)) => Some(coefficients.len() / features.max(1)),
        (sums, features) => {
            check_coefficients(coefficients.len(), sums, features)?;
            Some(sums)
        }
    };
    if let Some(sums) = sums {
        check_labels(&labels, sums)?;
    }
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => LinearClassifier::<T> {
        how,
        single: Labels::read(site, CLASSES)?.with_other(),
        labels,
        coefficients: reals(&coefficients),
        intercepts: reals(&intercepts),
    })
}

/// Refuses coefficients that are not one per feature and sum.
fn check_coefficients(len: usize, sums: usize, features: Option<usize>) -> Result<(), KernelError> {
    let fits = match features {
        Some(features) => features.checked_mul(sums) == Some(len),
        None => sums > 0 && len.is_multiple_of(sums),
    };
    if !fits {
        let features = features.map_or("any".to_string(), |features| features.to_string());
        fail!(
            "attribute 'coefficients' has {len} elements, not {sums} for each of {features} features"
        );
    }
    Ok(())
}

/// Refuses labels, if there are any, that are not one per sum. One sum separates two classes.
fn check_labels(labels: &Labels, sums: usize) -> Result<(), KernelError> {
    let fits = match labels.len() {
        0 => true,
        1 | 2 if sums == 1 => true,
        len => len == sums,
    };
    if !fits {
        fail!("the node has {} class labels for {sums} sums", labels.len());
    }
    Ok(())
}

struct LinearClassifier<T: Number> {
    how: PostTransform,
    labels: Labels,
    /// Labels for one sum and one class.
    single: Labels,
    /// Coefficients, one row for each sum.
    coefficients: Vec<T::Real>,
    intercepts: Vec<T::Real>,
}

impl<T: FeatureLoops + Element> Kernel for LinearClassifier<T>
where
    T::Real: ScoreType,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [rows, features] = rows_and_columns(call.tensor(0)?.dims())?;
        let sums = match self.intercepts.len() {
            0 => self.coefficients.len() / features.max(1),
            sums => sums,
        };
        check_coefficients(self.coefficients.len(), sums, Some(features))?;
        check_labels(&self.labels, sums)?;
        let is_mirrored = sums == 1 && self.labels.len() == 2;
        let width = if is_mirrored { 2 } else { sums };
        let x = real_features::<T>(call)?;
        let sizes = Sums { rows, features, sums, pitch: width };
        call.reserve(T::Real::sums_scratch(call.exec, sizes, &x, &self.coefficients))?;
        let zeros = call.scratch::<T::Real>(sums)?;
        let bias = if self.intercepts.is_empty() { &zeros[..] } else { &self.intercepts };
        let mut best = call.scratch::<i64>(rows)?;
        with_scores(call, 1, [rows, width], |exec, scores: &mut [T::Real]| {
            let to = scores.get_mut(width - sums..).unwrap_or_default();
            T::Real::sums(exec, sizes, &x, &self.coefficients, bias, to)?;
            if is_mirrored {
                T::Real::mirror_scores(exec, scores)?;
            }
            if width == 1 {
                T::Real::post_transform(exec, self.how, 1, scores)?;
                let least = if self.how == PostTransform::None { 0.0 } else { 0.5 };
                ml::map(exec.pool, 2, scores, &mut best, |score| {
                    i64::from(score.to_f64() >= least)
                })?;
            } else {
                rank(exec, self.how, width, scores, &mut best)?;
            }
            Ok(())
        })?;
        let labels = if width == 1 { &self.single } else { &self.labels };
        labels.write(call, &best)
    }

    fn describe(&self) -> String {
        format!("classification by weighted sums of {}", T::DATA_TYPE)
    }
}

/// Binds `LinearRegressor`.
pub(crate) fn bind_linear_regressor(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let how = post_transform(site)?;
    let (coefficients, intercepts) = (floats(site, "coefficients")?, floats(site, "intercepts")?);
    let given = site.need_int("targets")?;
    let Some(targets) = usize::try_from(given).ok().filter(|targets| *targets > 0) else {
        fail!("attribute 'targets' is {given}, but must be greater than 0");
    };
    check_coefficients(coefficients.len(), targets, known_features(site))?;
    if ![0, targets].contains(&intercepts.len()) {
        fail!("attribute 'intercepts' has {} elements for {targets} targets", intercepts.len());
    }
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => LinearRegressor::<T> {
        how,
        targets,
        coefficients: reals(&coefficients),
        intercepts: reals(&intercepts),
    })
}

struct LinearRegressor<T: Number> {
    how: PostTransform,
    targets: usize,
    /// Coefficients, one row for each target.
    coefficients: Vec<T::Real>,
    intercepts: Vec<T::Real>,
}

impl<T: FeatureLoops + Element> Kernel for LinearRegressor<T>
where
    T::Real: ScoreType,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [rows, features] = rows_and_columns(call.tensor(0)?.dims())?;
        let targets = self.targets;
        check_coefficients(self.coefficients.len(), targets, Some(features))?;
        let x = real_features::<T>(call)?;
        let sizes = Sums { rows, features, sums: targets, pitch: targets };
        call.reserve(T::Real::sums_scratch(call.exec, sizes, &x, &self.coefficients))?;
        let zeros =
            call.scratch::<T::Real>(if self.intercepts.is_empty() { targets } else { 0 })?;
        let bias = if self.intercepts.is_empty() { &zeros[..] } else { &self.intercepts };
        with_scores(call, 0, [rows, targets], |exec, scores: &mut [T::Real]| {
            T::Real::sums(exec, sizes, &x, &self.coefficients, bias, scores)?;
            T::Real::post_transform(exec, self.how, targets, scores)?;
            Ok(())
        })
    }

    fn describe(&self) -> String {
        format!("weighted sums of {}", T::DATA_TYPE)
    }
}

/// Returns the kernel function of `kernel_type` and `kernel_params`: gamma, coef0 and degree.
fn kernel_function(site: &Site<'_>) -> Result<KernelFunction, BindError> {
    let [gamma, coef0, degree] = match floats(site, "kernel_params")?[..] {
        [] => [0.0; 3],
        [gamma, coef0, degree] => [gamma, coef0, degree],
        ref other => fail!(
            "attribute 'kernel_params' has {} elements, not gamma, coef0 and degree",
            other.len()
        ),
    };
    let functions = [
        ("LINEAR", KernelFunction::Linear),
        ("POLY", KernelFunction::Poly { gamma, coef0, degree: degree as i32 }),
        ("RBF", KernelFunction::Rbf { gamma }),
        ("SIGMOID", KernelFunction::Sigmoid { gamma, coef0 }),
    ];
    site.find_named("kernel_type", &functions)
}

/// Support vectors and the kernel function that compares rows with them.
struct Vectors<R> {
    kernel: KernelFunction,
    count: usize,
    features: usize,
    /// Vectors `[count, features]`.
    vectors: Vec<R>,
    zeros: Vec<R>,
}

/// Limit: elements of scratch memory for a block of rows.
const BLOCK: usize = 1 << 17;

impl<R: ScoreType> Vectors<R> {
    fn new(site: &Site<'_>, count: usize) -> Result<Vectors<R>, BindError> {
        let vectors = floats(site, "support_vectors")?;
        if count == 0 || !vectors.len().is_multiple_of(count) {
            fail!(
                "attribute 'support_vectors' has {} elements, which cannot be divided into {count} vectors",
                vectors.len()
            );
        }
        let features = vectors.len() / count;
        if let Some(found) = known_features(site) {
            check_features("support_vectors", features, found)?;
        }
        Ok(Vectors {
            kernel: kernel_function(site)?,
            count,
            features,
            vectors: reals(&vectors),
            zeros: vec![R::ZERO; count],
        })
    }

    /// Returns the number of rows of a block, if each needs `more` elements besides its
    /// similarities.
    fn rows_at_a_time(&self, rows: usize, more: usize) -> usize {
        (BLOCK / self.count.saturating_add(more)).clamp(1, rows.max(1))
    }

    fn compare(&self, exec: &Exec<'_>, x: &[R], similarities: &mut [R]) -> Result<(), Ended> {
        let rows = similarities.len() / self.count;
        let sizes = Sums { rows, features: self.features, sums: self.count, pitch: self.count };
        let vectors = SupportVectors { vectors: &self.vectors, zeros: &self.zeros };
        R::similarities(exec, self.kernel, sizes, x, vectors, similarities)
    }

    /// Returns the scratch memory in bytes that comparing some rows takes at most.
    fn scratch(&self, exec: &Exec<'_>, rows: usize, x: &[R]) -> usize {
        let sizes = Sums { rows, features: self.features, sums: self.count, pitch: self.count };
        R::sums_scratch(exec, sizes, x, &self.vectors)
    }
}

fn check_features(name: &str, of_attribute: usize, found: usize) -> Result<(), KernelError> {
    if of_attribute != found {
        fail!("attribute '{name}' is for {of_attribute} features, but the input has {found}");
    }
    Ok(())
}

/// Returns the floats of an attribute that must have `count` of them.
fn read_exactly(site: &Site<'_>, name: &str, count: usize) -> Result<Vec<f32>, BindError> {
    let list = floats(site, name)?;
    if list.len() != count {
        fail!("attribute '{name}' has {} elements, not {count}", list.len());
    }
    Ok(list)
}

/// Binds `SVMRegressor`.
pub(crate) fn bind_svm_regressor(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let how = post_transform(site)?;
    let given = site.int("n_supports").unwrap_or(0);
    let Ok(count) = usize::try_from(given) else {
        fail!("attribute 'n_supports' is {given}");
    };
    let is_one_class = site.int("one_class").is_some_and(|one_class| one_class != 0);
    let constant = read_exactly(site, "rho", 1)?[0];
    let weights = match count {
        0 => floats(site, "coefficients")?,
        _ => read_exactly(site, "coefficients", count)?,
    };
    if count == 0
        && let Some(features) = known_features(site)
    {
        check_features("coefficients", weights.len(), features)?;
    }
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => SvmRegressor::<T> {
        how,
        is_one_class,
        vectors: if count == 0 { None } else { Some(Vectors::new(site, count)?) },
        weights: reals(&weights),
        constant: <T as Number>::Real::from_f64(f64::from(constant)),
    })
}

struct SvmRegressor<T: Number> {
    how: PostTransform,
    /// Whether the output is 1 for inputs like the training data and -1 for others.
    is_one_class: bool,
    /// Support vectors; `None` for a linear model.
    vectors: Option<Vectors<T::Real>>,
    weights: Vec<T::Real>,
    constant: T::Real,
}

impl<T: FeatureLoops + Element> Kernel for SvmRegressor<T>
where
    T::Real: ScoreType,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [rows, features] = rows_and_columns(call.tensor(0)?.dims())?;
        let (name, expected) = match &self.vectors {
            Some(vectors) => ("support_vectors", vectors.features),
            None => ("coefficients", self.weights.len()),
        };
        check_features(name, expected, features)?;
        let x = real_features::<T>(call)?;
        let at_a_time = self.vectors.as_ref().map_or(1, |all| all.rows_at_a_time(rows, 0));
        let count = self.vectors.as_ref().map_or(0, |all| all.count);
        let mut similarities = call.scratch::<T::Real>(at_a_time.saturating_mul(count))?;
        if let Some(vectors) = &self.vectors {
            let first = &x[..at_a_time.min(rows) * features];
            call.reserve(vectors.scratch(call.exec, at_a_time.min(rows), first))?;
        }
        with_scores(call, 0, [rows, 1], |exec, scores: &mut [T::Real]| {
            match &self.vectors {
                None => {
                    T::Real::weigh_similarities(exec, &self.weights, self.constant, &x, scores)?;
                }
                Some(vectors) => {
                    for (block, scores) in scores.chunks_mut(at_a_time).enumerate() {
                        let x = &x[block * at_a_time * features..][..scores.len() * features];
                        let similarities = &mut similarities[..scores.len() * count];
                        vectors.compare(exec, x, similarities)?;
                        let (weights, constant) = (&self.weights, self.constant);
                        T::Real::weigh_similarities(exec, weights, constant, similarities, scores)?;
                    }
                }
            }
            if self.is_one_class {
                for score in &mut *scores {
                    let is_seen = *score > T::Real::ZERO;
                    *score = if is_seen { T::Real::ONE } else { T::Real::ONE.neg() };
                }
            }
            T::Real::post_transform(exec, self.how, 1, scores)?;
            Ok(())
        })
    }

    fn describe(&self) -> String {
        format!("regression by support vectors of {}", T::DATA_TYPE)
    }
}

/// Binds `SVMClassifier`.
pub(crate) fn bind_svm_classifier(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let counts = ints(site, "vectors_per_class")?;
    let per_class = counts.iter().map(|count| {
        usize::try_from(*count).map_err(|_| {
            BindError::Invalid(format!(
                "attribute 'vectors_per_class' has the invalid element {count}"
            ))
        })
    });
    let per_class = per_class.collect::<Result<Vec<usize>, BindError>>()?;
    let sum = per_class.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    let Some(vectors) = sum else {
        fail!("attribute 'vectors_per_class' has too many vectors");
    };
    if vectors == 0 { bind_linear_machine(site) } else { bind_machine(site, per_class, vectors) }
}

/// Binds a classifier without support vectors, which has one sum per class.
fn bind_linear_machine(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (how, labels) = (post_transform(site)?, Labels::read(site, CLASSES)?);
    let (coefficients, rho) = (floats(site, "coefficients")?, floats(site, "rho")?);
    let classes = labels.len().max(1);
    check_coefficients(coefficients.len(), classes, known_features(site))?;
    let Some(constant) = rho.first() else {
        fail!("attribute 'rho' has no elements");
    };
    // A single constant means a single decision, of which the sign is used.
    let has_sign = rho.len() == 1 && classes != 2;
    if has_sign && matches!(&labels, Labels::Texts(labels) if labels.len() < 2) {
        fail!("attribute 'classlabels_strings' has 1 element, but there are two classes");
    }
    let choice = match (has_sign, classes) {
        (true, _) => Choice::Sign,
        (false, 2) if rho.len() == 1 && coefficients.iter().all(|c| *c >= 0.0) => Choice::Half,
        _ => Choice::Best,
    };
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => LinearMachine::<T> {
        how,
        choice,
        labels: match Labels::read(site, CLASSES)? {
            Labels::Ints(_) if has_sign => Labels::Ints(Vec::new()),
            labels => labels,
        },
        coefficients: reals(&coefficients),
        constants: reals(&vec![*constant; classes]),
    })
}

/// Rule by which a linear machine chooses a class.
#[derive(Clone, Copy, PartialEq)]
enum Choice {
    /// The class with the best score.
    Best,
    /// The second class if its score is at least 1/2, else the class with the best score.
    Half,
    /// Class 1 if the best score is positive, else class 0.
    Sign,
}

struct LinearMachine<T: Number> {
    how: PostTransform,
    choice: Choice,
    labels: Labels,
    /// Coefficients, one row for each class.
    coefficients: Vec<T::Real>,
    constants: Vec<T::Real>,
}

impl<T: FeatureLoops + Element> Kernel for LinearMachine<T>
where
    T::Real: ScoreType,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [rows, features] = rows_and_columns(call.tensor(0)?.dims())?;
        let sums = self.constants.len();
        check_coefficients(self.coefficients.len(), sums, Some(features))?;
        let x = real_features::<T>(call)?;
        let sizes = Sums { rows, features, sums, pitch: sums };
        call.reserve(T::Real::sums_scratch(call.exec, sizes, &x, &self.coefficients))?;
        let mut best = call.scratch::<i64>(rows)?;
        with_scores(call, 1, [rows, sums], |exec, scores: &mut [T::Real]| {
            T::Real::sums(exec, sizes, &x, &self.coefficients, &self.constants, scores)?;
            T::Real::best_score(exec, sums, scores, &mut best)?;
            for (best, row) in best.iter_mut().zip(scores.chunks_exact(sums)) {
                let score = row[*best as usize].to_f64();
                match self.choice {
                    Choice::Best => {}
                    Choice::Half if score >= 0.5 => *best = 1,
                    Choice::Half => {}
                    Choice::Sign => *best = i64::from(score > 0.0),
                }
            }
            transform_decisions(exec, self.how, sums, scores)?;
            Ok(())
        })?;
        self.labels.write(call, &best)
    }

    fn describe(&self) -> String {
        format!("linear classification of {}", T::DATA_TYPE)
    }
}

/// Transforms decisions. A single one is kept unless it is a probability, as transforms compare
/// several.
fn transform_decisions<R: ScoreType>(
    exec: &Exec<'_>,
    how: PostTransform,
    width: usize,
    scores: &mut [R],
) -> Result<(), Ended> {
    if width > 1 || how == PostTransform::Probit {
        R::post_transform(exec, how, width, scores)?;
    }
    Ok(())
}

/// Binds a classifier with a machine for each pair of classes.
fn bind_machine(
    site: &Site<'_>,
    per_class: Vec<usize>,
    count: usize,
) -> Result<Box<dyn Kernel>, BindError> {
    let (how, labels) = (post_transform(site)?, Labels::read(site, CLASSES)?);
    let classes = per_class.len();
    if classes < 2 {
        fail!("attribute 'vectors_per_class' has 1 element, but classes are compared in pairs");
    }
    if labels.len() != classes {
        fail!(
            "the node has {} class labels, but attribute 'vectors_per_class' has {classes} elements",
            labels.len()
        );
    }
    let pairs = pair_count(classes);
    let coefficients = read_exactly(site, "coefficients", count.saturating_mul(classes - 1))?;
    let rho = read_exactly(site, "rho", pairs)?;
    let sigmoids = match floats(site, "prob_a")?.len() {
        0 => None,
        _ => Some([read_exactly(site, "prob_a", pairs)?, read_exactly(site, "prob_b", pairs)?]),
    };
    let is_second =
        classes == 2 && sigmoids.is_none() && coefficients.iter().all(|number| *number >= 0.0);
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => Machine::<T> {
        how,
        labels: Labels::read(site, CLASSES)?,
        vectors: Vectors::new(site, count)?,
        per_class,
        coefficients: reals(&coefficients),
        rho: reals(&rho),
        sigmoids,
        is_second,
    })
}

struct Machine<T: Number> {
    how: PostTransform,
    labels: Labels,
    vectors: Vectors<T::Real>,
    per_class: Vec<usize>,
    coefficients: Vec<T::Real>,
    rho: Vec<T::Real>,
    /// Sigmoid parameters that turn decisions into probabilities, if given.
    sigmoids: Option<[Vec<f32>; 2]>,
    /// Whether all coefficients vote for the second of two classes.
    is_second: bool,
}

/// Scratch memory for a block of rows.
struct Block<'a, R> {
    similarities: &'a mut [R],
    decisions: &'a mut [R],
    work: &'a mut [f64],
}

impl<T: FeatureLoops + Element> Machine<T>
where
    T::Real: ScoreType,
{
    /// Returns the number of scores of a row.
    fn width(&self) -> usize {
        match (&self.sigmoids, self.rho.len()) {
            (Some(_), _) => self.per_class.len(),
            (None, 1) if self.how != PostTransform::Probit => 2,
            (None, pairs) => pairs,
        }
    }

    fn score_block(
        &self,
        exec: &Exec<'_>,
        x: &[T::Real],
        block: Block<'_, T::Real>,
        scores: &mut [T::Real],
        best: &mut [i64],
    ) -> Result<(), Ended> {
        let Block { similarities, decisions, work } = block;
        self.vectors.compare(exec, x, similarities)?;
        let pairs = Pairs {
            per_class: &self.per_class,
            coefficients: &self.coefficients,
            constants: &self.rho,
        };
        T::Real::decide_pairs(exec, &pairs, similarities, decisions, best)?;
        match &self.sigmoids {
            Some([a, b]) => {
                let sigmoids = Sigmoids { a, b };
                let classes = self.per_class.len();
                T::Real::couple_pairs(exec, classes, sigmoids, decisions, work, scores)?;
            }
            None if self.width() == decisions.len() / best.len() => {
                scores.copy_from_slice(decisions);
            }
            None => {
                let pairs = scores.chunks_exact_mut(2).zip(&*decisions);
                pairs.for_each(|(pair, decision)| pair[1] = *decision);
                T::Real::mirror_scores(exec, scores)?;
            }
        }
        Ok(())
    }
}

impl<T: FeatureLoops + Element> Kernel for Machine<T>
where
    T::Real: ScoreType,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [rows, features] = rows_and_columns(call.tensor(0)?.dims())?;
        check_features("support_vectors", self.vectors.features, features)?;
        let (pairs, classes, width) = (self.rho.len(), self.per_class.len(), self.width());
        let per_row = if self.sigmoids.is_some() { pairs + 3 * classes } else { 0 };
        let at_a_time = self.vectors.rows_at_a_time(rows, pairs + per_row);
        let x = real_features::<T>(call)?;
        let first = &x[..at_a_time.min(rows) * features];
        call.reserve(self.vectors.scratch(call.exec, at_a_time.min(rows), first))?;
        let mut similarities =
            call.scratch::<T::Real>(at_a_time.saturating_mul(self.vectors.count))?;
        let mut decisions = call.scratch::<T::Real>(at_a_time.saturating_mul(pairs))?;
        let mut work = call.scratch::<f64>(at_a_time.saturating_mul(per_row))?;
        let mut best = call.scratch::<i64>(rows)?;
        with_scores(call, 1, [rows, width], |exec, scores: &mut [T::Real]| {
            let blocks = scores.chunks_mut(at_a_time * width).zip(best.chunks_mut(at_a_time));
            for (block, (scores, best)) in blocks.enumerate() {
                let x = &x[block * at_a_time * features..][..best.len() * features];
                let block = Block {
                    similarities: &mut similarities[..best.len() * self.vectors.count],
                    decisions: &mut decisions[..best.len() * pairs],
                    work: &mut work,
                };
                self.score_block(exec, x, block, scores, best)?;
            }
            transform_decisions(exec, self.how, width, scores)?;
            Ok(())
        })?;
        if self.is_second {
            best.fill(1);
        }
        self.labels.write(call, &best)
    }

    fn describe(&self) -> String {
        format!("classification by support vectors of {}", T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests;
