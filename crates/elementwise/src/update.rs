//! Several functions of the elements at one index, with several results, in one pass over memory. A
//! result may replace an operand: steps of optimizers update weights and states so.
//!
//! Elements are processed in tiles that stay in the first-level cache. All functions work on a
//! tile, with the loops that they have elsewhere, before any result of it is written: results are
//! bit-identical to those of separate calls.

use std::array;

use super::binary::{Binary, BinaryElement};
use super::broadcast::Operand;
use super::unary::{Unary, UnaryElement};
use sardonyx_simd::Level;
use sardonyx_simd::chunks::{Shared, elements};
use sardonyx_simd::{Ended, Exec};

/// Limit: most results.
pub const MAX_RESULTS: usize = 4;

/// Limit: most values of a tile that are live at one time, besides the operands.
const PLACES: usize = 12;

/// Cache: elements of a tile on the stack. The tiles of all places fit a first-level cache of 32
/// KB.
const TILE: usize = 512;

/// Function of one or two elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    Unary(Unary),
    Binary(Binary),
}

/// Function and its arguments. Argument numbers count operands first, then earlier functions. The
/// second is ignored by a function of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Applied {
    pub function: Function,
    pub reads: [usize; 2],
}

/// Returns the argument numbers that the function reads.
impl Applied {
    fn reads(&self) -> &[usize] {
        match self.function {
            Function::Unary(_) => &self.reads[..1],
            Function::Binary(_) => &self.reads,
        }
    }

    /// Estimates the cost of one element, in cheap operations.
    fn work(&self) -> usize {
        match self.function {
            Function::Unary(op) => op.work(),
            Function::Binary(op) => op.work(),
        }
    }
}

/// Operand of an update.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a, T> {
    /// One element, repeated.
    One(T),
    /// Slice of elements.
    All(&'a [T]),
    /// Old elements of the result with this index.
    Result(usize),
}

/// Argument of a function.
#[derive(Clone, Copy, Debug)]
enum Read {
    Operand(usize),
    Place(usize),
}

/// Functions in order of execution, with a place (a tile on the stack) for the value of each.
#[derive(Debug)]
pub struct Update {
    /// Number of operands.
    operands: usize,
    steps: Vec<Step>,
    /// Places of the results after all functions.
    results: Vec<usize>,
    /// Estimated cost of one element, in cheap operations.
    work: usize,
}

/// Function with its arguments and the place of its value.
#[derive(Debug)]
struct Step {
    function: Function,
    reads: [Read; 2],
    place: usize,
}

impl Update {
    /// Assigns places to the values of functions of `operands` operands. `results` are numbers of
    /// functions, counted as in [`Applied`]. Returns `None` if `results` is empty or longer than
    /// [`MAX_RESULTS`], a result is not a function, a function reads itself or a later one, or too
    /// many values are live at one time.
    pub fn new(operands: usize, functions: &[Applied], results: &[usize]) -> Option<Update> {
        // Index of the last function that reads each function; results are read at the end.
        let mut last = vec![0; functions.len()];
        for (index, applied) in functions.iter().enumerate() {
            for read in applied.reads() {
                match read.checked_sub(operands) {
                    Some(made) if made >= index => return None,
                    Some(made) => last[made] = index,
                    None => {}
                }
            }
        }
        for result in results {
            *last.get_mut(result.checked_sub(operands)?)? = functions.len();
        }
        if results.is_empty() || results.len() > MAX_RESULTS {
            return None;
        }
        // Function whose value each place holds.
        let mut held: [Option<usize>; PLACES] = [None; PLACES];
        let mut place_of = vec![0; functions.len()];
        let mut steps = Vec::with_capacity(functions.len());
        for (index, applied) in functions.iter().enumerate() {
            let read = |number: usize| match number.checked_sub(operands) {
                Some(made) => Read::Place(*place_of.get(made).unwrap_or(&0)),
                None => Read::Operand(number),
            };
            let reads = applied.reads.map(read);
            let is_free = |of: &Option<usize>| of.is_none_or(|made| last[made] < index);
            let place = held.iter().position(is_free)?;
            held[place] = Some(index);
            place_of[index] = place;
            steps.push(Step { function: applied.function, reads, place });
        }
        let results = results.iter().map(|result| place_of[result - operands]).collect();
        let work = functions.iter().map(Applied::work).sum();
        Some(Update { operands, steps, results, work })
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the list of functions is empty.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Applies the functions to the elements at all indices. Results and slices of operands have one
/// length.
///
/// # Panics
///
/// If lengths differ, or `functions` has other numbers of operands or results.
pub fn update<T: UnaryElement + BinaryElement>(
    exec: &Exec<'_>,
    functions: &Update,
    sources: &[Source<'_, T>],
    results: &mut [&mut [T]],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    assert_eq!(sources.len(), functions.operands, "operands");
    assert_eq!(results.len(), functions.results.len(), "results");
    let len = results.first().map_or(0, |result| result.len());
    let count = results.len();
    let is_whole = |source: &Source<'_, T>| match source {
        Source::One(_) => true,
        Source::All(elements) => elements.len() == len,
        Source::Result(number) => *number < count,
    };
    assert!(sources.iter().all(is_whole), "an operand has another length");
    assert!(results.iter().all(|result| result.len() == len), "a result has another length");
    let mut results = results.iter_mut();
    let results: [Option<Shared<'_, T>>; MAX_RESULTS] =
        array::from_fn(|_| results.next().map(|result| Shared::new(result)));
    let result = |number: usize| results[number].as_ref().expect("a result");
    elements(pool, len, functions.work, |range| {
        let mut places = [[T::default(); TILE]; PLACES];
        for start in range.clone().step_by(TILE) {
            let len = TILE.min(range.end - start);
            for step in &functions.steps {
                let (before, rest) = places.split_at_mut(step.place);
                let (out, after) = rest.split_first_mut().expect("a place");
                let read = |read: Read| match read {
                    Read::Operand(number) => match sources[number] {
                        Source::One(element) => Operand::Constant(element),
                        Source::All(elements) => Operand::Slice(&elements[start..start + len]),
                        // SAFETY: ranges of threads are disjoint, and no part that is written lives
                        // until all functions of a tile have run.
                        Source::Result(number) => unsafe {
                            Operand::Slice(result(number).read(start, len))
                        },
                    },
                    Read::Place(place) if place < step.place => {
                        Operand::Slice(&before[place][..len])
                    }
                    Read::Place(place) => Operand::Slice(&after[place - step.place - 1][..len]),
                };
                apply(level, step, read, &mut out[..len]);
            }
            for (number, place) in functions.results.iter().enumerate() {
                // SAFETY: ranges of threads are disjoint, and no part that is read lives any more.
                let part = unsafe { result(number).part(start, len) };
                part.copy_from_slice(&places[*place][..len]);
            }
        }
    })
}

/// Computes one function of a tile.
fn apply<'a, T: UnaryElement + BinaryElement + 'a>(
    level: Level,
    step: &Step,
    read: impl Fn(Read) -> Operand<'a, T>,
    out: &mut [T],
) {
    let [a, b] = step.reads;
    match (step.function, read(a)) {
        (Function::Binary(op), a) => T::row(level, op, a, read(b), out),
        (Function::Unary(op), Operand::Slice(x)) => T::unary(level, op, x, out),
        (Function::Unary(op), Operand::Constant(x)) => {
            out.fill(x);
            T::unary_in_place(level, op, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Strided, binary, unary};
    use sardonyx_simd::{Isa, Pool};

    fn make_applied(function: Function, a: usize, b: usize) -> Applied {
        Applied { function, reads: [a, b] }
    }

    /// Returns `m' = m * b + g * c; w' = w - sqrt(m') * r`, with operands w, m, g, b, c, r.
    fn functions() -> Update {
        let (add, sub) = (Function::Binary(Binary::Add), Function::Binary(Binary::Sub));
        let mul = Function::Binary(Binary::Mul);
        let functions = [
            make_applied(mul, 1, 3),
            make_applied(mul, 2, 4),
            make_applied(add, 6, 7),
            make_applied(Function::Unary(Unary::Sqrt), 8, usize::MAX),
            make_applied(mul, 9, 5),
            make_applied(sub, 0, 10),
        ];
        Update::new(6, &functions, &[11, 8]).unwrap()
    }

    /// Computes [`functions`] by separate calls.
    fn one_by_one(exec: &Exec<'_>, [w, m, g]: [&[f32]; 3], [b, c, r]: [f32; 3]) -> [Vec<f32>; 2] {
        let len = w.len();
        let two = |op, x: &[f32], y: &[f32]| {
            let mut out = vec![0.0; len];
            let steps = [usize::from(y.len() == len)];
            binary(exec, op, &[len], Strided::new(x, &[1]), Strided::new(y, &steps), &mut out)
                .unwrap();
            out
        };
        let kept = two(Binary::Mul, m, &[b]);
        let moment = two(Binary::Add, &kept, &two(Binary::Mul, g, &[c]));
        let mut root = vec![0.0; len];
        unary(exec, Unary::Sqrt, &moment, &mut root).unwrap();
        [two(Binary::Sub, w, &two(Binary::Mul, &root, &[r])), moment]
    }

    #[test]
    fn results_are_those_of_separate_calls_also_over_operands() {
        let update_code = functions();
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            let exec = Exec::new(&pool, Isa::detect());
            for len in [0, 1, 2, TILE, TILE + 1, 40_000] {
                let numbers = |by: usize| -> Vec<f32> {
                    (0..len).map(|i| (i * by % 101) as f32 / 101.0).collect()
                };
                let (w, m, g) = (numbers(7), numbers(13), numbers(29));
                let factors = [0.9f32, 0.1, 0.25];
                let expected = one_by_one(&exec, [&w, &m, &g], factors);
                let ones = factors.map(Source::One);
                let (mut new_w, mut new_m) = (vec![0.0; len], vec![0.0; len]);
                let sources = [
                    Source::All(&w[..]),
                    Source::All(&m),
                    Source::All(&g),
                    ones[0],
                    ones[1],
                    ones[2],
                ];
                update(&exec, &update_code, &sources, &mut [&mut new_w, &mut new_m]).unwrap();
                assert_eq!([&new_w, &new_m], [&expected[0], &expected[1]], "{len}");
                let (mut new_w, mut new_m) = (w.clone(), m.clone());
                let over = [
                    Source::Result(0),
                    Source::Result(1),
                    Source::All(&g),
                    ones[0],
                    ones[1],
                    ones[2],
                ];
                update(&exec, &update_code, &over, &mut [&mut new_w, &mut new_m]).unwrap();
                assert_eq!([&new_w, &new_m], [&expected[0], &expected[1]], "{len} in place");
            }
        }
    }

    #[test]
    fn places_are_used_again_and_limited() {
        let neg = Function::Unary(Unary::Neg);
        // Each function reads the previous one.
        let chain: Vec<Applied> = (0..100).map(|i| make_applied(neg, i, 0)).collect();
        let chain = Update::new(1, &chain, &[100]).unwrap();
        assert!(chain.steps.iter().all(|step| step.place < 2));
        // All values are live until the end.
        let sum = Function::Binary(Binary::Add);
        let mut wide: Vec<Applied> = (0..PLACES).map(|_| make_applied(neg, 0, 0)).collect();
        let last =
            (2..=PLACES).map(|i| make_applied(sum, i, if i == 2 { 1 } else { PLACES + i - 2 }));
        wide.extend(last);
        assert!(Update::new(1, &wide, &[wide.len()]).is_none(), "a place for each and one more");
        assert!(Update::new(1, &[make_applied(neg, 1, 0)], &[1]).is_none(), "it reads itself");
        assert!(
            Update::new(1, &[make_applied(neg, 0, 0)], &[0]).is_none(),
            "result 0 is the operand, which no function computes"
        );
        assert!(Update::new(1, &[make_applied(neg, 0, 0)], &[]).is_none());
    }
}
