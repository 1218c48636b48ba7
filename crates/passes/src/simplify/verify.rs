//! Local verification: the nodes of a rewrite, before and after, are run on values drawn for what
//! flows into them. Its cost goes with what changes, and a rewrite that fails is known.

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Dim, Model, Type, ValueId};
use sardonyx_ops::{Known, Registry};
use sardonyx_tensor::{DataType, Tensor};

use super::region::{Change, Pair};
use super::rule::{SimplifyLevel, SimplifyRule};
use super::{Evaluate, SimplifyOptions};
use crate::cost::{Sum, cost};
use crate::infer::InferOptions;

/// Sizes that symbols stand for, in turn: different ones, those that divide by 8, and 1.
const SIZES: [[i64; 4]; 3] = [[2, 3, 5, 4], [8, 8, 8, 8], [1, 1, 1, 1]];
/// Sizes that stand for large ones which nothing in a rewrite depends on.
const SMALL_SIZES: [i64; 4] = [3, 5, 7, 6];
/// Size from which a smaller one may stand for it.
const LARGE_SIZE: i64 = 9;
/// Most elements of the drawn values of a rewrite; one with more is not run.
const MOST_DRAWN: u64 = 1 << 19;
/// Most elements of the values that the nodes of a rewrite compute.
const MOST_COMPUTED: u64 = 1 << 20;
/// Multiply-adds in the time that an element takes: it is drawn or computed, and compared.
const ELEMENT_WORK: u64 = 16;
/// Most bytes of the constants of a rewrite; more are not run, as sessions pack weights.
const MOST_BYTES: u64 = 1 << 25;
/// Most multiply-adds of all rewrites that are run, before and after each: a fraction of a second.
const MOST_WORK: u64 = 1 << 28;
/// Bytes of constants whose values distinguish rewrites. Of larger ones, types and shapes do.
const SMALL: u64 = 1 << 12;
/// Allowed difference of `close` results, relative to the largest number.
const CLOSE: f64 = 1e-3;
/// Keys of rewrites that are remembered, so that equal ones are run once.
const MOST_REMEMBERED: usize = 4096;

/// Result of a verification.
pub(super) enum Verdict {
    /// Both gave the same.
    Same,
    /// The nodes cannot be run by themselves, or types are unknown.
    Unknown,
    /// The results differ, in these words.
    Differs(String),
}

pub(super) struct Verifier<'a> {
    evaluate: Option<&'a dyn Evaluate>,
    registry: &'a Registry,
    /// Keys of rewrites that gave the same results.
    seen: HashSet<Vec<u8>>,
    /// Multiply-adds that are yet to be run at most.
    left: u64,
    random: u64,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(options: &SimplifyOptions<'a>, registry: &'a Registry) -> Verifier<'a> {
        Verifier {
            evaluate: options.evaluate,
            registry,
            seen: HashSet::new(),
            left: MOST_WORK,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Runs the nodes of a rewrite before and after on drawn inputs.
    pub(super) fn verify(&mut self, change: &Change<'_>, rule: SimplifyRule) -> Verdict {
        for sizes in SIZES {
            let symbols = Symbols { sizes, numbers: HashMap::new(), smaller: HashMap::new() };
            // Fewer elements show the same, as long as both run: most of the work of a rewrite is
            // the size of an image, of a sequence or of a batch, which no constant depends on.
            if let Some(symbols) = symbols.with_smaller(change)
                && let Some(Verdict::Same) = self.verify_at(change, rule, symbols)
            {
                return Verdict::Same;
            }
            if let Some(verdict) = self.verify_at(change, rule, symbols) {
                return verdict;
            }
        }
        Verdict::Unknown
    }

    /// Runs the nodes at some sizes. `None` if the nodes do not take them.
    fn verify_at(
        &mut self,
        change: &Change<'_>,
        rule: SimplifyRule,
        mut symbols: Symbols,
    ) -> Option<Verdict> {
        let Some(evaluate) = self.evaluate else { return Some(Verdict::Unknown) };
        let Some(types) = symbols.resolve_inputs(change) else { return Some(Verdict::Unknown) };
        let drawn = types.iter().map(|(_, ty)| count_elements(ty)).sum::<Option<u64>>();
        let Some(drawn) = drawn.filter(|count| *count <= MOST_DRAWN) else {
            return Some(Verdict::Unknown);
        };
        let Some(pair) = change.models(&types) else { return Some(Verdict::Unknown) };
        if pair.size() > MOST_BYTES {
            return Some(Verdict::Unknown);
        }
        let key = make_key(&pair);
        if self.seen.contains(&key) {
            return Some(Verdict::Same);
        }
        let work = self.count_work(&pair.before, drawn);
        let Some(left) = work.and_then(|work| self.left.checked_sub(work)) else {
            return Some(Verdict::Unknown);
        };
        let is_exact = rule.level == SimplifyLevel::Exact;
        let drawn = types.iter().map(|(value, ty)| {
            let known = change.inference.known(*value);
            let known = known.and_then(|known| symbols.resolve_value(known));
            if known.is_some() || change.decides_shapes(*value) {
                return known;
            }
            self.draw(ty, is_exact)
        });
        let Some(drawn) = drawn.collect::<Option<Vec<Tensor>>>() else {
            return Some(Verdict::Unknown);
        };
        self.left = left;
        let wanted = evaluate.evaluate(pair.before, drawn.clone()).ok()?;
        if !symbols.smaller.is_empty() && wanted.iter().any(|result| result.is_empty()) {
            // Nothing is left of an axis to compare.
            return None;
        }
        let found = match evaluate.evaluate(pair.after, drawn) {
            Ok(found) => found,
            Err(why) => return Some(Verdict::Differs(format!("the new nodes fail: {why}"))),
        };
        for (wanted, found) in wanted.iter().zip(&found) {
            if let Some(why) = find_difference(wanted, found, is_exact) {
                return Some(Verdict::Differs(why));
            }
        }
        if self.seen.len() < MOST_REMEMBERED {
            self.seen.insert(key);
        }
        Some(Verdict::Same)
    }

    /// Counts the multiply-adds of the nodes of a rewrite, and the time of its elements as
    /// multiply-adds. `None` if there are too many elements.
    fn count_work(&self, nodes: &Model, drawn: u64) -> Option<u64> {
        let work = cost(nodes, self.registry, InferOptions::default()).total;
        let known = |sum: &Sum| sum.known.known().and_then(|number| u64::try_from(number).ok());
        let computed = known(&work.elements).unwrap_or(drawn);
        if computed > MOST_COMPUTED {
            return None;
        }
        known(&work.multiply_adds)?.checked_add((computed + drawn) * ELEMENT_WORK)
    }

    /// Draws a value of a type. If bits are compared, zeros of both signs, infinities and NaN are
    /// among floats.
    fn draw(&mut self, ty: &Type, has_special: bool) -> Option<Tensor> {
        let count = usize::try_from(count_elements(ty)?).ok()?;
        let dims = ty.shape()?.iter().map(Dim::size).collect::<Option<Vec<usize>>>()?;
        let elem = ty.elem()?;
        let floats = (0..count).map(|index| self.draw_float(index, has_special));
        if elem == DataType::Float {
            return Tensor::from_vec(&dims[..], floats.map(|x| x as f32).collect::<Vec<f32>>())
                .ok();
        }
        if elem.is_float() {
            let numbers: Vec<f64> = floats.collect();
            let wide = Tensor::from_vec(&dims[..], numbers).ok()?;
            return sardonyx_tensor::cast(&wide, elem, sardonyx_tensor::CastOptions::default())
                .ok();
        }
        if elem == DataType::Bool || elem.is_integer() {
            let numbers: Vec<i64> = (0..count).map(|_| (self.next() >> 63) as i64).collect();
            let wide = Tensor::from_vec(&dims[..], numbers).ok()?;
            return sardonyx_tensor::cast(&wide, elem, sardonyx_tensor::CastOptions::default())
                .ok();
        }
        None
    }

    /// Draws a float between -2 and 2, or a special one at some positions.
    fn draw_float(&mut self, index: usize, has_special: bool) -> f64 {
        match index % 16 {
            3 if has_special => 0.0,
            5 if has_special => -0.0,
            7 if has_special => f64::NAN,
            9 if has_special => f64::INFINITY,
            11 if has_special => f64::NEG_INFINITY,
            _ => (self.next() as f64 / u64::MAX as f64 - 0.5) * 4.0,
        }
    }

    /// Draws the next number of an xorshift generator: Marsaglia, "Xorshift RNGs" (2003).
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Makes a key of a rewrite: its nodes, types and constants.
fn make_key(pair: &Pair) -> Vec<u8> {
    let mut key = Vec::new();
    for model in [&pair.before, &pair.after] {
        let mut small = model.clone();
        if let Some(main) = small.main {
            small.retain_initializers(main, |model, found| {
                let bytes = model.implied_bytes(&found.tensor);
                let is_small = bytes.is_some_and(|bytes| bytes <= SMALL);
                if !is_small {
                    key.extend(found.tensor.data_type.unwrap_or(0).to_le_bytes());
                    found.tensor.dims.iter().for_each(|dim| key.extend(dim.to_le_bytes()));
                }
                is_small
            });
        }
        key.extend(small.to_bytes());
    }
    key
}

/// Numbers that symbols and large sizes stand for.
#[derive(Clone)]
struct Symbols {
    sizes: [i64; 4],
    numbers: HashMap<String, i64>,
    /// Small sizes by the large ones that they replace.
    smaller: HashMap<i64, i64>,
}

impl Symbols {
    /// Lets small sizes stand for large sizes of the inputs, each in all of its places. Keeps sizes
    /// that constants of the nodes have, and sizes of axes along which nodes may have positions.
    /// `None` if nothing else is large.
    fn with_smaller(&self, change: &Change<'_>) -> Option<Symbols> {
        let mut symbols = self.clone();
        let types = symbols.resolve_inputs(change)?;
        let sizes = types.iter().filter_map(|(_, ty)| ty.shape()).flatten();
        let sizes: BTreeSet<i64> = sizes.filter_map(Dim::known).collect();
        sizes.last().filter(|size| **size >= LARGE_SIZE)?;
        let mut kept = change.models(&types)?.numbers();
        for (value, _) in &types {
            let known = change.inference.known(*value).and_then(Known::elements);
            let known = known.into_iter().flatten().filter_map(|dim| symbols.resolve(&dim));
            kept.elements.extend(known);
        }
        let free = SMALL_SIZES.iter().filter(|size| !sizes.contains(*size) && !kept.has(**size));
        let large = sizes
            .range(LARGE_SIZE..)
            .filter(|size| !kept.has(**size) && !kept.has_position(&(LARGE_SIZE..=**size)));
        symbols.smaller = large.copied().zip(free.copied()).collect();
        (!symbols.smaller.is_empty()).then_some(symbols)
    }

    /// Returns the values that flow into a change, with their types.
    fn resolve_inputs(&mut self, change: &Change<'_>) -> Option<Vec<(ValueId, Type)>> {
        let inputs = change.inputs().into_iter();
        inputs.map(|value| Some((value, self.resolve_type(change.inference.ty(value)?)?))).collect()
    }

    /// Returns a dimension with numbers in the place of symbols.
    fn resolve(&mut self, dim: &Dim) -> Option<i64> {
        for name in dim.symbols() {
            let next = self.sizes[self.numbers.len() % self.sizes.len()];
            self.numbers.entry(name).or_insert(next);
        }
        let numbers = &self.numbers;
        let size = dim.substitute(&|name| numbers.get(name).copied().map(Dim::Known)).known()?;
        Some(self.smaller.get(&size).copied().unwrap_or(size))
    }

    /// Returns a type with numbers in the place of symbols.
    fn resolve_type(&mut self, ty: &Type) -> Option<Type> {
        let dims = ty.shape()?.iter().map(|dim| self.resolve(dim));
        let dims = dims.map(|dim| dim.filter(|dim| *dim >= 0)).collect::<Option<Vec<i64>>>()?;
        Some(Type::tensor(ty.elem()?, dims))
    }

    /// Returns a known value with numbers in the place of symbols.
    fn resolve_value(&mut self, known: &Known) -> Option<Tensor> {
        let numbers = known.elements()?.into_iter().map(|dim| self.resolve(&dim));
        let numbers = numbers.collect::<Option<Vec<i64>>>()?;
        let wide = Tensor::from_vec(known.dims(), numbers).ok()?;
        let options = sardonyx_tensor::CastOptions::default();
        sardonyx_tensor::cast(&wide, known.elem(), options).ok()
    }
}

/// Counts the elements of a type of known sizes.
fn count_elements(ty: &Type) -> Option<u64> {
    let mut sizes = ty.shape()?.iter().map(|dim| u64::try_from(dim.known()?).ok());
    sizes.try_fold(1u64, |product, size| product.checked_mul(size?))
}

/// Describes how two results differ.
fn find_difference(wanted: &Tensor, found: &Tensor, is_exact: bool) -> Option<String> {
    if wanted.dims() != found.dims() || wanted.data_type() != found.data_type() {
        return Some(format!(
            "the type is {} of shape {:?} and not {} of shape {:?}",
            found.data_type(),
            found.dims(),
            wanted.data_type(),
            wanted.dims()
        ));
    }
    if is_exact || !wanted.data_type().is_float() {
        return (!wanted.bit_eq(found)).then(|| "bits differ".to_string());
    }
    let finite = widen(wanted)?.filter(|x| x.is_finite());
    let limit = CLOSE * finite.fold(0.0f64, |most, x| most.max(x.abs())).max(1e-3);
    let (wanted, found) = widen(wanted)?.zip(widen(found)?).find(|(wanted, found)| {
        let same = wanted == found || wanted.is_nan() && found.is_nan();
        !same && ((wanted - found).abs() > limit || wanted.is_nan() || found.is_nan())
    })?;
    Some(format!("a result is {found} and not {wanted}"))
}

/// Converts the elements of a tensor to double, those of float one at a time.
fn widen(tensor: &Tensor) -> Option<Box<dyn Iterator<Item = f64> + '_>> {
    if let Ok(floats) = tensor.as_slice::<f32>() {
        return Some(Box::new(floats.iter().copied().map(f64::from)));
    }
    let options = sardonyx_tensor::CastOptions::default();
    let wide = sardonyx_tensor::cast(tensor, DataType::Double, options).ok()?;
    Some(Box::new(wide.to_vec::<f64>().ok()?.into_iter()))
}
