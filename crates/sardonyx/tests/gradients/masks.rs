//! Gradients where results are masked and inputs are 0, constant, infinite or NaN.
//!
//! The blocks of `tests/gradients`, at drawn inputs and with a drawn mask of their result that
//! hides all that is not finite: the loss is finite then, and so must be its gradient where it has
//! one. That is known from differences. `GRADIENT_DRAWS=200` draws so often for each block, and
//! prints the seed, which `GRADIENT_SEED` sets.

use std::cell::Cell;
use std::time::SystemTime;

use sardonyx::value::Bool8;
use sardonyx::{Session, Tensor, Value};

use super::{Block, Known, Order, Random, check_all, flat};

/// Draws for each block in a usual run of tests.
const FEW: usize = 3;

/// Elements of the inputs that are looked at in each draw.
const LOOKED_AT: usize = 8;

/// The error of a derivative in parts of it or of 1, beside what rounding does to differences.
const TOLERANCE: f64 = 2e-5;

/// The distance of slopes on both sides, and of those of steps of several sizes, at most where
/// there is a derivative, in parts of it or of 1.
const SMOOTH: f64 = 1e-3;

/// A power of 2 by which directions are scaled where products with them overflow.
const TINY: f64 = f64::MIN_POSITIVE * (1u64 << 52) as f64;

/// Values of an element that are tried beside its own: one for each piece of a function that
/// chooses by it.
const PIECES: [f64; 10] = [-1000.0, -3.3, -1.7, -0.6, -0.2, 0.4, 0.9, 1.7, 3.2, 1000.0];

/// Reads how often and with which seed to draw.
fn settings() -> (usize, u64) {
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
    fn below(&mut self, end: usize) -> usize {
        ((self.next() * end as f64) as usize).min(end.saturating_sub(1))
    }

    fn happens(&mut self, chance: f64) -> bool {
        self.next() < chance
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// A line of a tensor along an axis: places of elements.
fn line(dims: &[usize], axis: usize, random: &mut Random) -> Vec<usize> {
    let after: usize = dims[axis + 1..].iter().product();
    let before: usize = dims[..axis].iter().product();
    let start = random.below(before) * dims[axis] * after + random.below(after);
    (0..dims[axis]).map(|step| start + step * after).collect()
}

/// Changes elements of an input: to zeros, equal ones, infinities and NaN.
fn disturb(elements: &mut [f64], dims: &[usize], random: &mut Random) {
    if elements.is_empty() {
        return;
    }
    for index in (1..elements.len()).rev() {
        elements.swap(index, random.below(index + 1));
    }
    let places = match dims.len() {
        0 => vec![0],
        _ if random.happens(0.3) => (0..elements.len()).collect(),
        rank => line(dims, random.below(rank), random),
    };
    match random.below(8) {
        0 | 1 => elements.iter_mut().filter(|_| random.happens(0.4)).for_each(|x| *x = 0.0),
        2 => places.iter().for_each(|place| elements[*place] = 0.0),
        3 => {
            let value = random.one_of(elements);
            places.iter().for_each(|place| elements[*place] = value);
        }
        4 => places.iter().for_each(|place| elements[*place] = f64::NEG_INFINITY),
        5 | 6 => {
            let place = random.below(elements.len());
            let wild = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1000.0, -1000.0];
            elements[place] = random.one_of(&wild);
        }
        _ => {}
    }
}

/// Draws the elements of a result that count: some, or some lines, and none that is not finite.
fn draw_mask(y: &[f64], dims: &[usize], random: &mut Random) -> Vec<bool> {
    let mut mask = vec![true; y.len()];
    match random.below(5) {
        0 => {}
        1 => mask.iter_mut().for_each(|counts| *counts = random.happens(0.5)),
        2 | 3 if !dims.is_empty() && !y.is_empty() => {
            for place in line(dims, random.below(dims.len()), random) {
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

/// A function of one number, around the place where it is differentiated.
struct Around<'f> {
    at: f64,
    value: f64,
    function: &'f dyn Fn(f64) -> Option<f64>,
    /// The sum of the magnitudes of the terms that it adds up.
    magnitude: f64,
}

/// What differences to both sides say.
struct Sides {
    slope: f64,
    /// The slope to the right less that to the left.
    kink: f64,
    /// What rounding does to slopes.
    noise: f64,
}

impl Around<'_> {
    /// Its derivative, and what that may be off, where it has one; `None` where nothing shows that.
    fn slope(&self) -> Option<(f64, f64)> {
        if !self.at.is_finite() {
            // Of an infinite input only independence shows.
            let depends = |other: f64| (self.function)(other) != Some(self.value);
            let noise = 1e-14 * self.magnitude.max(1.0);
            return (![0.4, -1.7, 3.2].into_iter().any(depends)).then_some((0.0, noise));
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
        // The slopes of both sides come together with the step, but for those of a kink.
        if (near.kink - far.kink / 10.0).abs() > tolerance {
            return None;
        }
        // The error of a slope is in proportion to the step, or to its square.
        Some((near.slope, tolerance + changes / 8.0))
    }

    /// Whether a gradient is the slope of much shorter steps: where slopes are so large that the
    /// usual ones pass over whole waves, they see the mean of these.
    fn is_slope_of_short_steps(&self, found: f64) -> bool {
        let Some(short) = self.sides(1e-8 * self.at.abs().max(1.0)) else { return false };
        let limit = SMOOTH * short.slope.abs();
        short.noise < limit / 10.0 && (short.slope - found).abs() <= limit
    }

    /// Differences to both sides.
    fn sides(&self, step: f64) -> Option<Sides> {
        let (above, below) = ((self.function)(self.at + step)?, (self.function)(self.at - step)?);
        let [right, left] = [(above - self.value) / step, (self.value - below) / step];
        let noise = 1e-14 * self.magnitude / step;
        Some(Sides { slope: (above - below) / (2.0 * step), kink: right - left, noise })
    }
}

/// A block at drawn inputs.
struct Drawn<'a> {
    block: &'a Block,
    at: Vec<Vec<f64>>,
    /// Truth values of the block, the mask and the weights of the loss.
    others: Vec<(String, Value)>,
    mask: Vec<bool>,
    weights: Vec<f64>,
    /// Elements that are left out because slopes jump.
    jumped: Cell<usize>,
}

/// Sessions of a block: its value, its gradient and the gradient of that.
struct Sessions {
    value: Session,
    first: Session,
    second: Option<Session>,
}

impl Sessions {
    fn new(block: &Block) -> Result<Sessions, String> {
        let session = |order| block.session(order, Known::Shapes);
        let (value, first) = (session(Order::Zero)?, session(Order::First)?);
        let second = (!block.is_once).then(|| session(Order::Second)).transpose()?;
        Ok(Sessions { value, first, second })
    }
}

/// The elements of a result and its dimensions; `None` if a run refuses.
fn result(
    block: &Block,
    session: &Session,
    at: &[Vec<f64>],
    truths: &[(String, Value)],
) -> Option<(Vec<f64>, Vec<usize>)> {
    let inputs = block.varied().into_iter().zip(at);
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
    /// `None` where the block refuses what was drawn.
    fn new(block: &'a Block, sessions: &Sessions, random: &mut Random) -> Option<Drawn<'a>> {
        let mut at = block.elements();
        for (elements, input) in at.iter_mut().zip(block.varied()) {
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
            // Truth values that choose elements change the shape.
            Some((y, dims)) if dims == given.1 && random.happens(0.7) => (y, dims),
            _ => {
                truths.clear();
                given
            }
        };
        let mut mask = draw_mask(&y, &dims, random);
        let weights = random.within(-1.0, 1.0, y.len());
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

    /// The loss, and the sum of the magnitudes of its terms; `None` if it is not finite.
    fn loss(&self, sessions: &Sessions, at: &[Vec<f64>]) -> Option<(f64, f64)> {
        let (y, _) = result(self.block, &sessions.value, at, self.truths())?;
        if y.len() != self.mask.len() {
            return None;
        }
        let counted = y.iter().zip(&self.weights).zip(&self.mask).filter(|(_, counts)| **counts);
        let terms: Vec<f64> = counted.map(|((y, weight), _)| y * weight).collect();
        let magnitude = terms.iter().map(|term| term.abs()).sum();
        let loss: f64 = terms.iter().sum();
        loss.is_finite().then_some((loss, magnitude))
    }

    /// Places of elements that are looked at: input and element.
    fn places(&self, random: &mut Random) -> Vec<(usize, usize)> {
        let all = self.at.iter().enumerate();
        let mut all: Vec<(usize, usize)> = all
            .flat_map(|(input, of)| (0..of.len()).map(move |element| (input, element)))
            .collect();
        for index in (1..all.len()).rev() {
            all.swap(index, random.below(index + 1));
        }
        // Elements that are not finite are the rare ones.
        all.sort_by_key(|(input, element)| self.at[*input][*element].is_finite());
        all.truncate(LOOKED_AT);
        all
    }

    /// The place of an element in all gradients one after the other.
    fn position(&self, (input, element): (usize, usize)) -> usize {
        self.at[..input].iter().map(Vec::len).sum::<usize>() + element
    }

    fn with(&self, (input, element): (usize, usize), value: f64) -> Vec<Vec<f64>> {
        let mut at = self.at.clone();
        at[input][element] = value;
        at
    }

    /// Compares elements of a gradient with what differences of `function` say.
    fn compare(
        &self,
        found: &[f64],
        (value, magnitude): (f64, f64),
        function: &dyn Fn(&[Vec<f64>]) -> Option<f64>,
        random: &mut Random,
    ) -> Result<usize, String> {
        let mut compared = 0;
        for place in self.places(random) {
            let at = self.at[place.0][place.1];
            let along = |x: f64| function(&self.with(place, x));
            let around = Around { at, value, function: &along, magnitude };
            let Some((slope, tolerance)) = around.slope() else { continue };
            let found = found[self.position(place)];
            let off = (found - slope).abs();
            if !off.is_nan() && off <= tolerance || around.is_slope_of_short_steps(found) {
                compared += 1;
            } else if self.jumps(place, (slope, tolerance), (function, magnitude)) {
                self.jumped.set(self.jumped.get() + 1);
            } else {
                let name = &self.block.varied()[place.0].name;
                return Err(format!(
                    "by element {} of {name}: {found} is not {slope}\n  {:?}\n  mask {:?}",
                    place.1, self.at, self.mask
                ));
            }
        }
        Ok(compared)
    }

    /// Whether the slope along an element is another one, or none, however little another element
    /// changes: where equal elements are sorted, each can have a slope of its own and the function
    /// no derivative.
    fn jumps(
        &self,
        place: (usize, usize),
        (slope, tolerance): (f64, f64),
        (function, magnitude): (&dyn Fn(&[Vec<f64>]) -> Option<f64>, f64),
    ) -> bool {
        let others = self.at.iter().enumerate().flat_map(|(input, of)| {
            of.iter().enumerate().map(move |(element, x)| ((input, element), *x))
        });
        let mut others = others.filter(|(other, x)| *other != place && x.is_finite());
        others.any(|(other, x)| {
            [-1.0, 1.0].into_iter().any(|side| {
                [1e-2, 1e-3].into_iter().all(|by| {
                    let moved = self.with(other, x + side * by * x.abs().max(1.0));
                    let along = |x: f64| {
                        let mut at = moved.clone();
                        at[place.0][place.1] = x;
                        function(&at)
                    };
                    let at = self.at[place.0][place.1];
                    let Some(value) = along(at) else { return false };
                    let around = Around { at, value, function: &along, magnitude };
                    let there = around.slope();
                    there.is_none_or(|(there, _)| (there - slope).abs() > 100.0 * tolerance)
                })
            })
        })
    }

    /// Compares both gradients; how many elements of each there were to compare.
    fn check(&self, sessions: &Sessions, random: &mut Random) -> Result<[usize; 2], String> {
        let loss = self.loss(sessions, &self.at).ok_or("the loss is not finite")?;
        let count: usize = self.at.iter().map(Vec::len).sum();
        let gradient = |at: &[Vec<f64>]| -> Result<Vec<f64>, String> {
            let mut found = self.block.run(&sessions.first, at, &self.others)?;
            found.truncate(count);
            Ok(found)
        };
        let found = gradient(&self.at)?;
        let first = self.compare(&found, loss, &|at| Some(self.loss(sessions, at)?.0), random)?;
        let Some(session) = &sessions.second else { return Ok([first, 0]) };
        let along: Vec<Vec<f64>> =
            self.at.iter().map(|of| random.within(-1.0, 1.0, of.len())).collect();
        let sum = |gradient: &[f64]| -> (f64, f64) {
            let terms = gradient.iter().zip(along.iter().flatten());
            let terms: Vec<f64> = terms.map(|(gradient, along)| gradient * along).collect();
            (terms.iter().sum(), terms.iter().map(|term| term.abs()).sum())
        };
        let value = sum(&found);
        if !value.0.is_finite() {
            return Ok([first, 0]);
        }
        let run = |scale: f64| {
            let directions = self.block.varied().into_iter().zip(&along);
            let directions = directions.map(|(input, along)| {
                let along: Vec<f64> = along.iter().map(|along| along * scale).collect();
                (format!("v_{}", input.name), input.tensor(&along))
            });
            let others: Vec<_> = self.others.iter().cloned().chain(directions).collect();
            self.block.run(session, &self.at, &others)
        };
        let mut found = run(1.0)?;
        if found.iter().any(|found| !found.is_finite()) {
            // Second gradients are linear in the directions: where a product with those overflows,
            // one with tiny ones does not.
            let tiny = run(TINY)?;
            for (found, tiny) in found.iter_mut().zip(tiny).filter(|(found, _)| !found.is_finite())
            {
                *found = tiny / TINY;
            }
        }
        let function = |at: &[Vec<f64>]| {
            let value = sum(&gradient(at).ok()?).0;
            value.is_finite().then_some(value)
        };
        let second = self.compare(&found, value, &function, random);
        second.map(|second| [first, second]).map_err(|why| format!("second {why}"))
    }
}

#[test]
fn masked_results_have_finite_gradients() {
    let (draws, seed) = settings();
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

/// NaN in place of an element must make NaN of all gradients of results that become NaN as well, if
/// they change with the element: guards against masked results filter nothing else. NaN is on no
/// side of a comparison; a function of several pieces takes one for it, and a gradient that does
/// not change with the element in one of the pieces may be the one of that.
#[test]
fn nan_reaches_the_gradients_that_depend_on_it() {
    let seen = Cell::new(0);
    let by_pieces = Cell::new(0);
    check_all(|block| {
        let sessions = Sessions::new(&Block { is_once: true, ..block.clone() })?;
        let mut random = Random(block.line as u64);
        let at = block.elements();
        let (y, dims) = result(block, &sessions.value, &at, &[]).ok_or("the block does not run")?;
        let weights = random.within(0.5, 1.0, y.len());
        let count: usize = at.iter().map(Vec::len).sum();
        let places = at.iter().enumerate();
        let places: Vec<(usize, usize)> =
            places.flat_map(|(input, of)| (0..of.len()).map(move |place| (input, place))).collect();
        for _ in 0..FEW.min(places.len()) {
            let (input, element) = random.one_of(&places);
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
            // Gradients at a value and how much they change with it.
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
                let is_of_piece = |piece: &Vec<(f64, f64)>| {
                    let (gradient, change) = piece[place];
                    change < 1e-12 && (gradient - found[place]).abs() < 1e-12
                };
                if !pieces.iter().any(is_of_piece) {
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
