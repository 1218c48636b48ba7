//! Tests of gradients whose results are masked and whose inputs are 0, constant, infinite or NaN.
//!
//! The blocks of `tests/gradients` run at random inputs, with a random mask of their result that
//! hides all non-finite elements. The loss is then finite, and its gradient must be finite wherever
//! differences show that it exists. `GRADIENT_DRAWS=200` sets the number of draws for each block,
//! and prints the seed, which `GRADIENT_SEED` sets.

use std::cell::Cell;
use std::time::SystemTime;

use sardonyx::value::Bool8;
use sardonyx::{Session, Tensor, Value};

use super::{Block, Known, Order, Random, check_all, flat};

/// Draws for each block unless `GRADIENT_DRAWS` is set.
const FEW: usize = 3;

/// Elements of the inputs that are differentiated in each draw.
const LOOKED_AT: usize = 8;

/// Tolerance of a derivative, relative to it or to 1, in addition to rounding errors of
/// differences.
const TOLERANCE: f64 = 2e-5;

/// Maximum distance of the left and the right slope, and of slopes for several step sizes, at a
/// point with a derivative, relative to the derivative or to 1.
const SMOOTH: f64 = 1e-3;

/// Power of 2 by which directions are scaled if products with them overflow.
const TINY: f64 = f64::MIN_POSITIVE * (1u64 << 52) as f64;

/// Values of an element that are tried besides its own: one for each piece of a piecewise function.
const PIECES: [f64; 10] = [-1000.0, -3.3, -1.7, -0.6, -0.2, 0.4, 0.9, 1.7, 3.2, 1000.0];

/// Reads the number of draws and the seed from the environment.
fn read_settings() -> (usize, u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let draws = number("GRADIENT_DRAWS");
    let seed = number("GRADIENT_SEED").unwrap_or_else(|| match draws {
        None => 1,
        Some(_) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(1, |now| now.as_secs())
        }
    });
    if let Some(draws) = draws {
        println!("GRADIENT_DRAWS={draws} GRADIENT_SEED={seed}");
    }
    (draws.map_or(FEW, |draws| draws as usize), seed)
}

impl Random {
    fn next_below(&mut self, end: usize) -> usize {
        ((self.next() * end as f64) as usize).min(end.saturating_sub(1))
    }

    fn happens(&mut self, chance: f64) -> bool {
        self.next() < chance
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.next_below(list.len())]
    }
}

/// Returns the positions of the elements of a random line along an axis.
fn line(dims: &[usize], axis: usize, random: &mut Random) -> Vec<usize> {
    let after: usize = dims[axis + 1..].iter().product();
    let before: usize = dims[..axis].iter().product();
    let start = random.next_below(before) * dims[axis] * after + random.next_below(after);
    (0..dims[axis]).map(|step| start + step * after).collect()
}

/// Sets elements of an input to zero, to one value, to infinity or to NaN.
fn disturb(elements: &mut [f64], dims: &[usize], random: &mut Random) {
    if elements.is_empty() {
        return;
    }
    for index in (1..elements.len()).rev() {
        elements.swap(index, random.next_below(index + 1));
    }
    let places = match dims.len() {
        0 => vec![0],
        _ if random.happens(0.3) => (0..elements.len()).collect(),
        rank => line(dims, random.next_below(rank), random),
    };
    match random.next_below(8) {
        0 | 1 => elements.iter_mut().filter(|_| random.happens(0.4)).for_each(|x| *x = 0.0),
        2 => places.iter().for_each(|place| elements[*place] = 0.0),
        3 => {
            let value = random.one_of(elements);
            places.iter().for_each(|place| elements[*place] = value);
        }
        4 => places.iter().for_each(|place| elements[*place] = f64::NEG_INFINITY),
        5 | 6 => {
            let place = random.next_below(elements.len());
            let wild = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1000.0, -1000.0];
            elements[place] = random.one_of(&wild);
        }
        _ => {}
    }
}

/// Draws a mask of the elements of a result that count in the loss. Non-finite elements never
/// count.
fn draw_mask(y: &[f64], dims: &[usize], random: &mut Random) -> Vec<bool> {
    let mut mask = vec![true; y.len()];
    match random.next_below(5) {
        0 => {}
        1 => mask.iter_mut().for_each(|counts| *counts = random.happens(0.5)),
        2 | 3 if !dims.is_empty() && !y.is_empty() => {
            for place in line(dims, random.next_below(dims.len()), random) {
                mask[place] = false;
            }
        }
        _ => {
            let chance = random.one_of(&[0.0, 0.2, 0.8]);
            mask.iter_mut().for_each(|counts| *counts = random.happens(chance));
        }
    }
    mask.iter_mut().zip(y).for_each(|(counts, y)| *counts &= y.is_finite());
    mask
}

/// Function of one number, and the point at which it is differentiated.
struct Around<'f> {
    at: f64,
    value: f64,
    function: &'f dyn Fn(f64) -> Option<f64>,
    /// Sum of the magnitudes of the terms that the function adds up.
    magnitude: f64,
}

/// Slopes from differences to both sides of a point.
struct Sides {
    slope: f64,
    /// Difference of the right and the left slope.
    kink: f64,
    /// Rounding error of the slopes.
    noise: f64,
}

/// Derivative by one element, and its error bound.
#[derive(Clone, Copy)]
struct Slope {
    slope: f64,
    tolerance: f64,
}

/// Sum of terms, and the sum of their magnitudes, to which its rounding error is proportional.
#[derive(Clone, Copy)]
struct Sum {
    value: f64,
    magnitude: f64,
}

impl Sum {
    fn new(terms: impl Iterator<Item = f64>) -> Sum {
        let (mut value, mut magnitude) = (0.0, 0.0);
        for term in terms {
            value += term;
            magnitude += term.abs();
        }
        Sum { value, magnitude }
    }
}

/// Index of an element in the inputs of a block.
#[derive(Clone, Copy, PartialEq)]
struct ElementIndex {
    input: usize,
    element: usize,
}

impl Around<'_> {
    /// Returns the derivative; `None` if the function has none or differences do not show it.
    fn slope(&self) -> Option<Slope> {
        if !self.at.is_finite() {
            // For an infinite input, only independence can be shown.
            let mut others = [0.4, -1.7, 3.2].into_iter();
            let tolerance = 1e-14 * self.magnitude.max(1.0);
            let is_constant = others.all(|other| (self.function)(other) == Some(self.value));
            return is_constant.then_some(Slope { slope: 0.0, tolerance });
        }
        let unit = self.at.abs().max(1.0);
        let (far, near) = (self.sides(1e-4 * unit)?, self.sides(1e-5 * unit)?);
        let limit = SMOOTH * near.slope.abs().max(1.0) + near.noise;
        let changes = (far.slope - near.slope).abs();
        if far.kink.is_nan() || far.kink.abs() > limit || near.kink.abs() > limit || changes > limit
        {
            return None;
        }
        let tolerance = TOLERANCE * near.slope.abs().max(1.0) + near.noise;
        // With smaller steps, the slopes of both sides converge, except at a kink.
        if (near.kink - far.kink / 10.0).abs() > tolerance {
            return None;
        }
        // The error of a slope is proportional to the step or to its square.
        Some(Slope { slope: near.slope, tolerance: tolerance + changes / 8.0 })
    }

    /// Whether a gradient is the slope for much shorter steps. Where slopes are very large, the
    /// usual steps span whole waves and see only their mean.
    fn is_slope_of_short_steps(&self, found: f64) -> bool {
        let Some(short) = self.sides(1e-8 * self.at.abs().max(1.0)) else { return false };
        let limit = SMOOTH * short.slope.abs();
        short.noise < limit / 10.0 && (short.slope - found).abs() <= limit
    }

    /// Computes the slopes to both sides.
    fn sides(&self, step: f64) -> Option<Sides> {
        let (above, below) = ((self.function)(self.at + step)?, (self.function)(self.at - step)?);
        let [right, left] = [(above - self.value) / step, (self.value - below) / step];
        let noise = 1e-14 * self.magnitude / step;
        Some(Sides { slope: (above - below) / (2.0 * step), kink: right - left, noise })
    }
}

/// A block with random inputs and a random mask.
struct Drawn<'a> {
    block: &'a Block,
    at: Vec<Vec<f64>>,
    /// Boolean inputs of the block, the mask and the weights of the loss.
    others: Vec<(String, Value)>,
    mask: Vec<bool>,
    weights: Vec<f64>,
    /// Number of elements that were skipped because slopes jump.
    jumped: Cell<usize>,
}

/// Sessions of a block for its value, its gradient and its second gradient.
struct Sessions {
    value: Session,
    first: Session,
    second: Option<Session>,
}

impl Sessions {
    fn new(block: &Block) -> Result<Sessions, String> {
        let value = block.session(Order::Zero, Known::Shapes)?;
        let first = block.session(Order::First, Known::Shapes)?;
        let second =
            if block.is_once { None } else { Some(block.session(Order::Second, Known::Shapes)?) };
        Ok(Sessions { value, first, second })
    }
}

/// Runs a block and returns the elements of its result and their dimensions; `None` if it fails.
fn result(
    block: &Block,
    session: &Session,
    at: &[Vec<f64>],
    truths: &[(String, Value)],
) -> Option<(Vec<f64>, Vec<usize>)> {
    let inputs = block.varied_inputs().into_iter().zip(at);
    let inputs = inputs.map(|(input, at)| (input.name.clone(), input.tensor(at)));
    let inputs: Vec<(String, Value)> = inputs.chain(truths.iter().cloned()).collect();
    let inputs = inputs.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let outputs = session.run(inputs, &Default::default()).ok()?;
    let dims = outputs.tensor("y").ok()?.dims().to_vec();
    Some((flat(&outputs), dims))
}

fn tensor(dims: &[usize], elements: &[f64]) -> Value {
    Value::Tensor(Tensor::from_slice(dims, elements).unwrap())
}

fn truth_values(dims: &[usize], elements: &[bool]) -> Value {
    let elements: Vec<Bool8> = elements.iter().map(|element| Bool8::from(*element)).collect();
    Value::Tensor(Tensor::from_slice(dims, &elements).unwrap())
}

impl<'a> Drawn<'a> {
    /// Draws inputs and a mask; `None` if the block does not run with them.
    fn new(block: &'a Block, sessions: &Sessions, random: &mut Random) -> Option<Drawn<'a>> {
        let mut at = block.elements();
        for (elements, input) in at.iter_mut().zip(block.varied_inputs()) {
            if random.happens(0.7) {
                disturb(elements, &input.dims, random);
            }
        }
        let mut truths = Vec::new();
        for input in block.inputs.iter().filter(|input| input.is_of_truths()) {
            let count = input.dims.iter().product();
            let chance = random.one_of(&[0.2, 0.5, 0.8]);
            let drawn: Vec<bool> = (0..count).map(|_| random.happens(chance)).collect();
            truths.push((input.name.clone(), truth_values(&input.dims, &drawn)));
        }
        let given = result(block, &sessions.value, &at, &[])?;
        let (y, dims) = match result(block, &sessions.value, &at, &truths) {
            // Booleans that select elements may change the shape; those are not used.
            Some((y, dims)) if dims == given.1 && random.happens(0.7) => (y, dims),
            _ => {
                truths.clear();
                given
            }
        };
        let mut mask = draw_mask(&y, &dims, random);
        let weights = random.range(-1.0, 1.0, y.len());
        let mut others = truths;
        others.push(("mask".to_string(), truth_values(&dims, &mask)));
        others.push(("weights".to_string(), tensor(&dims, &weights)));
        // Where an operator computes less than the nodes by which it is differentiated, its result
        // may be finite where its function is not: a kernel skips what that multiplies by 0.
        let count = at.iter().map(Vec::len).sum();
        let beside = block.run(&sessions.first, &at, &others).ok()?.split_off(count);
        mask.iter_mut().zip(&beside).for_each(|(counts, y)| *counts &= y.is_finite());
        let place = others.len() - 2;
        others[place].1 = truth_values(&dims, &mask);
        Some(Drawn { block, at, others, mask, weights, jumped: Cell::new(0) })
    }

    fn truths(&self) -> &[(String, Value)] {
        &self.others[..self.others.len() - 2]
    }

    /// Computes the loss; `None` if it is not finite.
    fn loss(&self, sessions: &Sessions, at: &[Vec<f64>]) -> Option<Sum> {
        let (y, _) = result(self.block, &sessions.value, at, self.truths())?;
        if y.len() != self.mask.len() {
            return None;
        }
        let counted = y.iter().zip(&self.weights).zip(&self.mask).filter(|(_, counts)| **counts);
        let loss = Sum::new(counted.map(|((y, weight), _)| y * weight));
        loss.value.is_finite().then_some(loss)
    }

    /// Selects random elements to be differentiated, non-finite ones first because they are rare.
    fn choose_elements(&self, random: &mut Random) -> Vec<ElementIndex> {
        let mut all = element_indices(&self.at);
        for index in (1..all.len()).rev() {
            all.swap(index, random.next_below(index + 1));
        }
        all.sort_by_key(|index| self.value_of(*index).is_finite());
        all.truncate(LOOKED_AT);
        all
    }

    fn value_of(&self, index: ElementIndex) -> f64 {
        self.at[index.input][index.element]
    }

    /// Returns the position of an element in the concatenated gradients.
    fn position(&self, index: ElementIndex) -> usize {
        self.at[..index.input].iter().map(Vec::len).sum::<usize>() + index.element
    }

    fn with_value(&self, index: ElementIndex, value: f64) -> Vec<Vec<f64>> {
        let mut at = self.at.clone();
        at[index.input][index.element] = value;
        at
    }

    /// Compares elements of a gradient with differences of `function`, whose value is `sum`.
    /// Returns the number of compared elements.
    fn compare(
        &self,
        found: &[f64],
        sum: Sum,
        function: &dyn Fn(&[Vec<f64>]) -> Option<f64>,
        random: &mut Random,
    ) -> Result<usize, String> {
        let Sum { value, magnitude } = sum;
        let mut compared = 0;
        for index in self.choose_elements(random) {
            let at = self.value_of(index);
            let along = |x: f64| function(&self.with_value(index, x));
            let around = Around { at, value, function: &along, magnitude };
            let Some(slope) = around.slope() else { continue };
            let found = found[self.position(index)];
            let off = (found - slope.slope).abs();
            if !off.is_nan() && off <= slope.tolerance || around.is_slope_of_short_steps(found) {
                compared += 1;
            } else if self.jumps(index, slope, function, magnitude) {
                self.jumped.set(self.jumped.get() + 1);
            } else {
                let name = &self.block.varied_inputs()[index.input].name;
                return Err(format!(
                    "by element {} of {name}: {found} is not {}\n  {:?}\n  mask {:?}",
                    index.element, slope.slope, self.at, self.mask
                ));
            }
        }
        Ok(compared)
    }

    /// Whether the slope by an element jumps, or does not exist, under small changes of another
    /// element. Where equal elements are sorted, each may have a slope although the function has no
    /// derivative.
    fn jumps(
        &self,
        index: ElementIndex,
        slope: Slope,
        function: &dyn Fn(&[Vec<f64>]) -> Option<f64>,
        magnitude: f64,
    ) -> bool {
        let others = element_indices(&self.at).into_iter();
        let mut others =
            others.filter(|other| *other != index && self.value_of(*other).is_finite());
        others.any(|other| {
            let x = self.value_of(other);
            [-1.0, 1.0].into_iter().any(|side| {
                [1e-2, 1e-3].into_iter().all(|by| {
                    let moved = self.with_value(other, x + side * by * x.abs().max(1.0));
                    let along = |x: f64| {
                        let mut at = moved.clone();
                        at[index.input][index.element] = x;
                        function(&at)
                    };
                    let at = self.value_of(index);
                    let Some(value) = along(at) else { return false };
                    let around = Around { at, value, function: &along, magnitude };
                    let there = around.slope();
                    there.is_none_or(|there| {
                        (there.slope - slope.slope).abs() > 100.0 * slope.tolerance
                    })
                })
            })
        })
    }

    /// Compares first and second gradients. Returns the number of compared elements of each.
    fn check(&self, sessions: &Sessions, random: &mut Random) -> Result<[usize; 2], String> {
        let loss = self.loss(sessions, &self.at).ok_or("the loss is not finite")?;
        let count: usize = self.at.iter().map(Vec::len).sum();
        let gradient = |at: &[Vec<f64>]| -> Result<Vec<f64>, String> {
            let mut found = self.block.run(&sessions.first, at, &self.others)?;
            found.truncate(count);
            Ok(found)
        };
        let found = gradient(&self.at)?;
        let function = |at: &[Vec<f64>]| Some(self.loss(sessions, at)?.value);
        let first = self.compare(&found, loss, &function, random)?;
        let Some(session) = &sessions.second else { return Ok([first, 0]) };
        let along: Vec<Vec<f64>> =
            self.at.iter().map(|at| random.range(-1.0, 1.0, at.len())).collect();
        let value = weighted_sum(&found, &along);
        if !value.value.is_finite() {
            return Ok([first, 0]);
        }
        let run = |scale: f64| {
            let directions = self.block.varied_inputs().into_iter().zip(&along);
            let directions = directions.map(|(input, along)| {
                let along: Vec<f64> = along.iter().map(|along| along * scale).collect();
                (format!("v_{}", input.name), input.tensor(&along))
            });
            let others: Vec<_> = self.others.iter().cloned().chain(directions).collect();
            self.block.run(session, &self.at, &others)
        };
        let mut found = run(1.0)?;
        if found.iter().any(|found| !found.is_finite()) {
            // The second gradient is linear in the directions: scaled down, it does not overflow.
            let tiny = run(TINY)?;
            for (found, tiny) in found.iter_mut().zip(tiny).filter(|(found, _)| !found.is_finite())
            {
                *found = tiny / TINY;
            }
        }
        let function = |at: &[Vec<f64>]| {
            let value = weighted_sum(&gradient(at).ok()?, &along).value;
            value.is_finite().then_some(value)
        };
        let second = self.compare(&found, value, &function, random);
        second.map(|second| [first, second]).map_err(|why| format!("second {why}"))
    }
}

fn weighted_sum(gradient: &[f64], weights: &[Vec<f64>]) -> Sum {
    Sum::new(gradient.iter().zip(weights.iter().flatten()).map(|(x, weight)| x * weight))
}

fn element_indices(elements: &[Vec<f64>]) -> Vec<ElementIndex> {
    let inputs = elements.iter().enumerate();
    let indices = inputs.flat_map(|(input, elements)| {
        (0..elements.len()).map(move |element| ElementIndex { input, element })
    });
    indices.collect()
}

#[test]
fn masked_results_have_finite_gradients() {
    let (draws, seed) = read_settings();
    let totals = Cell::new([0; 4]);
    check_all(|block| {
        let block = Block { is_masked: true, ..block.clone() };
        let sessions = Sessions::new(&block)?;
        let mut random = Random(seed ^ ((block.line as u64) << 32));
        let (mut drawn, mut refused, mut compared, mut jumped) = (0, 0, [0, 0], 0);
        while drawn < draws && refused <= 10 * draws {
            let Some(draw) = Drawn::new(&block, &sessions, &mut random) else {
                refused += 1;
                continue;
            };
            drawn += 1;
            let elements = draw.check(&sessions, &mut random);
            let elements = elements.map_err(|why| format!("seed {seed}, draw {drawn}: {why}"))?;
            compared = [compared[0] + elements[0], compared[1] + elements[1]];
            jumped += draw.jumped.get();
        }
        if draws > FEW {
            println!(
                "{}: {drawn} draws, {refused} refused, {compared:?} elements compared, {jumped} jumps",
                block.operator
            );
        }
        let [all, first, second, jumps] = totals.get();
        totals.set([all + drawn, first + compared[0], second + compared[1], jumps + jumped]);
        if drawn < draws { Err(format!("{drawn} draws of {draws} ran")) } else { Ok(()) }
    });
    let [drawn, first, second, jumps] = totals.get();
    println!(
        "{drawn} draws: {first} elements of gradients and {second} of second ones compared, {jumps} \
         left out where slopes jump"
    );
    assert!(jumps * 1000 <= first + second, "{jumps} left out");
}

/// Checks that NaN in one element makes every gradient NaN that depends on the element, if the
/// result becomes NaN: the guards of masked results must not filter more. Comparisons with NaN are
/// false, so a piecewise function selects one piece for NaN; the gradient of a piece that does not
/// depend on the element is accepted.
#[test]
fn nan_reaches_the_gradients_that_depend_on_it() {
    let seen = Cell::new(0);
    let by_pieces = Cell::new(0);
    check_all(|block| {
        let sessions = Sessions::new(&Block { is_once: true, ..block.clone() })?;
        let mut random = Random(block.line as u64);
        let at = block.elements();
        let (y, dims) = result(block, &sessions.value, &at, &[]).ok_or("the block does not run")?;
        let weights = random.range(0.5, 1.0, y.len());
        let count: usize = at.iter().map(Vec::len).sum();
        let indices = element_indices(&at);
        for _ in 0..FEW.min(indices.len()) {
            let ElementIndex { input, element } = random.one_of(&indices);
            let with = |value: f64| {
                let mut at = at.clone();
                at[input][element] = value;
                at
            };
            let spoiled = result(block, &sessions.value, &with(f64::NAN), &[]);
            let Some((y, _)) = spoiled.filter(|(_, spoiled)| *spoiled == dims) else { continue };
            if !y.iter().any(|y| y.is_nan()) {
                continue;
            }
            let weights = weights.iter().zip(&y);
            let weights: Vec<f64> =
                weights.map(|(weight, y)| if y.is_nan() { *weight } else { 0.0 }).collect();
            let others = [("weights".to_string(), tensor(&dims, &weights))];
            let gradient = |value: f64| -> Result<Vec<f64>, String> {
                let mut found = block.run(&sessions.first, &with(value), &others)?;
                found.truncate(count);
                Ok(found)
            };
            // Returns the gradients at a value, and their change under a small step.
            let around = |x: f64| -> Result<Vec<(f64, f64)>, String> {
                let (before, after) = (gradient(x)?, gradient(x + 1e-4 * x.abs().max(1.0))?);
                Ok(before.iter().zip(&after).map(|(at, after)| (*at, (after - at).abs())).collect())
            };
            let own = around(at[input][element])?;
            let found = gradient(f64::NAN)?;
            let mut pieces: Option<Vec<Vec<(f64, f64)>>> = None;
            for place in (0..count).filter(|place| own[*place].1 >= 1e-7) {
                seen.set(seen.get() + 1);
                if !found[place].is_finite() {
                    continue;
                }
                let pieces = pieces.get_or_insert_with(|| {
                    PIECES.iter().filter_map(|value| around(*value).ok()).collect()
                });
                let is_of_piece = pieces.iter().any(|piece| {
                    let (gradient, change) = piece[place];
                    change < 1e-12 && (gradient - found[place]).abs() < 1e-12
                });
                if !is_of_piece {
                    return Err(format!(
                        "NaN as element {element} of input {input} leaves {} at place {place}",
                        found[place]
                    ));
                }
                by_pieces.set(by_pieces.get() + 1);
            }
        }
        Ok(())
    });
    println!("{} gradients seen, {} of pieces", seen.get(), by_pieces.get());
    if std::env::var("GRADIENTS").is_err() {
        assert!(seen.get() > 1000, "{} seen", seen.get());
        assert!(by_pieces.get() * 20 < seen.get(), "{} of {}", by_pieces.get(), seen.get());
    }
}
