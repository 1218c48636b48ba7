//! Gradients where results are masked and inputs are 0, constant, infinite or NaN.
//!
//! The blocks of `tests/gradients`, at drawn inputs and with a drawn mask of their result that
//! hides all that is not finite: the loss is finite then, and so must be its gradient where it has
//! one. That is known from differences. `GRADIENT_DRAWS=200` draws so often for each block, and
//! prints the seed, which `GRADIENT_SEED` sets.

use std::time::SystemTime;

use sardonyx::{Bool8, Session, Tensor, Value};

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

/// Operators of which no input is infinite or NaN, as guards of whole filters and operands are
/// coarser than what each element takes part in: a tap that is not finite reaches some outputs
/// only. A region with such a corner, or a place there, has no slope; infinite powers have several
/// limits; and the kernel of Attention skips hidden keys, which its function multiplies by 0.
const FINITE: [&str; 7] =
    ["Attention", "Conv", "ConvTranspose", "Einsum", "GridSample", "Pow", "RoiAlign"];

/// Operators whose second gradients are not compared: those of products in which several factors
/// are 0 leave some out.
const ONCE: [&str; 4] = ["CumProd", "ReduceProd", "ScatterElements", "ScatterND"];

/// Operators whose gradients go elsewhere for NaN, which is no place in an image and on no side of
/// 0, or by blocks that choose another branch then.
const ELSEWHERE: [&str; 5] = ["GridSample", "Loop", "PRelu", "Relu", "Sqrt"];

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

impl Around<'_> {
    /// Its derivative, and what that may be off, where it has one; `None` where nothing shows that.
    fn slope(&self) -> Option<(f64, f64)> {
        if !self.at.is_finite() {
            // Of an infinite input only independence shows.
            let depends = |other: f64| (self.function)(other) != Some(self.value);
            return (![0.4, -1.7, 3.2].into_iter().any(depends)).then_some((0.0, 0.0));
        }
        let unit = self.at.abs().max(1.0);
        let mut found: Option<f64> = None;
        let mut noise = 0.0;
        for step in [1e-4 * unit, 1e-5 * unit] {
            let (above, below) =
                ((self.function)(self.at + step)?, (self.function)(self.at - step)?);
            let [right, left] = [(above - self.value) / step, (self.value - below) / step];
            let slope = (above - below) / (2.0 * step);
            noise = 1e-14 * self.magnitude / step;
            let apart = |a: f64, b: f64| {
                let off = (a - b).abs();
                off.is_nan() || off > SMOOTH * slope.abs().max(1.0) + noise
            };
            if apart(right, left) || found.is_some_and(|found| apart(found, slope)) {
                return None;
            }
            found = Some(slope);
        }
        found.map(|slope| (slope, TOLERANCE * slope.abs().max(1.0) + noise))
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
        let is_once = block.is_once || ONCE.contains(&block.operator.as_str());
        let second = (!is_once).then(|| session(Order::Second)).transpose()?;
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
    let outputs = session.run(inputs).ok()?;
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
            if FINITE.contains(&block.operator.as_str()) {
                let wild = elements.iter_mut().filter(|element| !element.is_finite());
                wild.for_each(|element| *element = 0.0);
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
        let mask = draw_mask(&y, &dims, random);
        let weights = random.within(-1.0, 1.0, y.len());
        let mut others = truths;
        others.push(("mask".to_string(), truth_values(&dims, &mask)));
        others.push(("weights".to_string(), tensor(&dims, &weights)));
        Some(Drawn { block, at, others, mask, weights })
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
            if off.is_nan() || off > tolerance {
                let name = &self.block.varied()[place.0].name;
                return Err(format!(
                    "by element {} of {name}: {found} is not {slope}\n  {:?}\n  mask {:?}",
                    place.1, self.at, self.mask
                ));
            }
            compared += 1;
        }
        Ok(compared)
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
        let directions = self.block.varied().into_iter().zip(&along);
        let directions =
            directions.map(|(input, along)| (format!("v_{}", input.name), input.tensor(along)));
        let others: Vec<_> = self.others.iter().cloned().chain(directions).collect();
        let found = self.block.run(session, &self.at, &others)?;
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
    let totals = std::cell::Cell::new([0; 3]);
    check_all(|block| {
        let block = Block { is_masked: true, ..block.clone() };
        let sessions = Sessions::new(&block)?;
        let mut random = Random(seed ^ ((block.line as u64) << 32));
        let (mut drawn, mut refused, mut compared) = (0, 0, [0, 0]);
        while drawn < draws && refused <= 10 * draws {
            let Some(draw) = Drawn::new(&block, &sessions, &mut random) else {
                refused += 1;
                continue;
            };
            drawn += 1;
            let elements = draw.check(&sessions, &mut random);
            let elements = elements.map_err(|why| format!("seed {seed}, draw {drawn}: {why}"))?;
            compared = [compared[0] + elements[0], compared[1] + elements[1]];
        }
        if draws > FEW {
            println!(
                "{}: {drawn} draws, {refused} refused, {compared:?} elements compared",
                block.operator
            );
        }
        let [all, first, second] = totals.get();
        totals.set([all + drawn, first + compared[0], second + compared[1]]);
        if drawn < draws { Err(format!("{drawn} draws of {draws} ran")) } else { Ok(()) }
    });
    let [drawn, first, second] = totals.get();
    println!("{drawn} draws: {first} elements of gradients and {second} of second ones compared");
}

/// NaN in place of an element must make NaN of all gradients that change with it, where the result
/// becomes NaN as well and all of it counts: guards against masked results filter nothing else.
#[test]
fn nan_reaches_the_gradients_that_depend_on_it() {
    let seen = std::cell::Cell::new(0);
    check_all(|block| {
        if ELSEWHERE.contains(&block.operator.as_str()) {
            return Ok(());
        }
        let sessions = Sessions::new(&Block { is_once: true, ..block.clone() })?;
        let mut random = Random(block.line as u64);
        let at = block.elements();
        let (y, dims) = result(block, &sessions.value, &at, &[]).ok_or("the block does not run")?;
        let weights = random.within(0.5, 1.0, y.len());
        let others = [("weights".to_string(), tensor(&dims, &weights))];
        let count: usize = at.iter().map(Vec::len).sum();
        let places = at.iter().enumerate();
        let places: Vec<(usize, usize)> =
            places.flat_map(|(input, of)| (0..of.len()).map(move |place| (input, place))).collect();
        for _ in 0..FEW.min(places.len()) {
            let (input, element) = random.one_of(&places);
            let gradient = |value: f64| -> Result<Vec<f64>, String> {
                let mut at = at.clone();
                at[input][element] = value;
                let mut found = block.run(&sessions.first, &at, &others)?;
                found.truncate(count);
                Ok(found)
            };
            let x = at[input][element];
            let (before, after) = (gradient(x)?, gradient(x + 1e-4 * x.abs().max(1.0))?);
            let mut spoiled = at.clone();
            spoiled[input][element] = f64::NAN;
            let Some((y, _)) = result(block, &sessions.value, &spoiled, &[]) else { continue };
            if !y.iter().any(|y| y.is_nan()) {
                continue;
            }
            let found = gradient(f64::NAN)?;
            for place in 0..count {
                let change = (after[place] - before[place]).abs();
                if change < 1e-7 {
                    continue;
                }
                seen.set(seen.get() + 1);
                if found[place].is_finite() {
                    return Err(format!(
                        "NaN as element {element} of input {input} leaves {} at place {place}",
                        found[place]
                    ));
                }
            }
        }
        Ok(())
    });
    assert!(seen.get() > 1000 || std::env::var("GRADIENTS").is_ok(), "{} seen", seen.get());
}
