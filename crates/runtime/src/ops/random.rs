//! Random numbers: uniform and normal distributions, Bernoulli trials, multinomial samples.

use std::fmt::Display;
use std::marker::PhantomData;

use sardonyx_kernels::number::Number;
use sardonyx_kernels::random;
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, cast_slices};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::ops::math::for_element;

/// Binds `RandomUniform`.
pub(crate) fn bind_uniform(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind_drawn(site, uniform(site), fixed_shape(site)?)
}

/// Binds `RandomUniformLike`.
pub(crate) fn bind_uniform_like(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind_drawn(site, uniform(site), None)
}

/// Binds `RandomNormal`.
pub(crate) fn bind_normal(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind_drawn(site, normal(site), fixed_shape(site)?)
}

/// Binds `RandomNormalLike`.
pub(crate) fn bind_normal_like(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind_drawn(site, normal(site), None)
}

/// Binds `Bernoulli`.
pub(crate) fn bind_bernoulli(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (seed, from) = (float_seed(site)?, site.elem(0)?);
    let to = elem_attribute(site)?.unwrap_or(from);
    for_element!(
        site, from, floats,
        T => Bernoulli::<T> { seed, to, elements: PhantomData }
    )
}

/// Binds `Multinomial`.
pub(crate) fn bind_multinomial(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let seed = float_seed(site)?;
    let samples = site.need_int("sample_size")?;
    let Ok(samples) = usize::try_from(samples) else {
        return Err(BindError::Invalid(format!("sample_size is {samples}")));
    };
    let to = elem_attribute(site)?.unwrap_or(DataType::Int32);
    if ![DataType::Int32, DataType::Int64].contains(&to) {
        return site.unsupported_type(to);
    }
    for_element!(
        site, site.elem(0)?, floats,
        T => Multinomial::<T> { seed, samples, to, elements: PhantomData }
    )
}

/// Distribution of random numbers.
#[derive(Clone, Copy)]
enum Distribution {
    Uniform { range: f64, low: f64 },
    Normal { scale: f64, mean: f64 },
}

fn uniform(site: &Site<'_>) -> Distribution {
    let [low, high] = [("low", 0.0), ("high", 1.0)]
        .map(|(name, default)| f64::from(site.float(name).unwrap_or(default)));
    // The difference is taken in double, as in the reference evaluator.
    Distribution::Uniform { range: high - low, low }
}

fn normal(site: &Site<'_>) -> Distribution {
    let [mean, scale] = [("mean", 0.0), ("scale", 1.0)]
        .map(|(name, default)| f64::from(site.float(name).unwrap_or(default)));
    Distribution::Normal { scale, mean }
}

/// Returns the optional attribute `dtype`.
fn elem_attribute(site: &Site<'_>) -> Result<Option<DataType>, BindError> {
    let Some(number) = site.int("dtype") else {
        return Ok(None);
    };
    match i32::try_from(number).ok().and_then(DataType::from_number) {
        Some(elem) => Ok(Some(elem)),
        None => Err(BindError::Invalid(format!(
            "attribute 'dtype' is {number}, which is not an element type"
        ))),
    }
}

fn fixed_shape(site: &Site<'_>) -> Result<Option<Dims>, BindError> {
    let Some(shape) = site.ints("shape") else {
        return Err(BindError::Invalid("attribute 'shape' is missing".to_string()));
    };
    let dims = shape.iter().map(|size| usize::try_from(*size)).collect::<Result<_, _>>();
    let dims = dims.map_err(|_| BindError::Invalid(format!("shape {shape:?} has a negative size")));
    Ok(Some(dims?))
}

fn bind_drawn(
    site: &Site<'_>,
    distribution: Distribution,
    dims: Option<Dims>,
) -> Result<Box<dyn Kernel>, BindError> {
    let seed = float_seed(site)?;
    let elem = match elem_attribute(site)? {
        Some(elem) => elem,
        None => site.elem(0)?,
    };
    for_element!(
        site, elem, floats,
        T => Drawn::<T> { seed, distribution: round_bounds::<T>(distribution), dims, elements: PhantomData }
    )
}

/// Rounds the bounds to the element type, as numpy computes with them. It has no bfloat16, whose
/// bounds stay doubles.
fn round_bounds<T: Number + Element>(distribution: Distribution) -> Distribution {
    let round = |bound: f64| match T::DATA_TYPE {
        DataType::Bfloat16 => bound,
        _ => T::from_f64(bound).to_f64(),
    };
    match distribution {
        Distribution::Uniform { range, low } => {
            Distribution::Uniform { range: round(range), low: round(low) }
        }
        Distribution::Normal { scale, mean } => {
            Distribution::Normal { scale: round(scale), mean: round(mean) }
        }
    }
}

/// Returns the attribute `seed` if it is a float: truncated; NaN means no seed.
pub(crate) fn float_seed(site: &Site<'_>) -> Result<Option<u32>, BindError> {
    match site.float("seed") {
        None => Ok(None),
        Some(seed) if seed.is_nan() => Ok(None),
        // -0.5 truncates to zero.
        Some(seed) if seed > -1.0 && f64::from(seed) < SEEDS => Ok(Some(seed as u32)),
        Some(seed) => Err(refuse_seed(seed)),
    }
}

/// Returns the attribute `seed` if it is an integer.
pub(crate) fn int_seed(site: &Site<'_>) -> Result<Option<u32>, BindError> {
    let seed = site.int("seed");
    seed.map(|seed| u32::try_from(seed).map_err(|_| refuse_seed(seed))).transpose()
}

/// Number of seeds.
const SEEDS: f64 = (1u64 << 32) as f64;

fn refuse_seed(seed: impl Display) -> BindError {
    BindError::Invalid(format!("attribute 'seed' is {seed}, but must be from 0 to {}", u32::MAX))
}

/// Describes the generator for profiles.
pub(crate) fn describe_generator(what: &str, seed: Option<u32>) -> String {
    match seed {
        Some(seed) => format!("{what}, mt19937 with seed {seed}"),
        None => format!("{what}, philox"),
    }
}

struct Drawn<T> {
    seed: Option<u32>,
    distribution: Distribution,
    /// Dimensions of the output; `None` for those of the input.
    dims: Option<Dims>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Number + Element> Kernel for Drawn<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, generator) = (call.exec, call.random.generator(self.seed));
        let out = match &self.dims {
            Some(dims) => call.output_slice::<T>(0, dims)?,
            None => {
                let dims = Dims::from(call.tensor(0)?.dims());
                call.output_slice::<T>(0, &dims)?
            }
        };
        match self.distribution {
            Distribution::Uniform { range, low } => {
                random::uniform(exec, generator, range, low, out)?;
            }
            Distribution::Normal { scale, mean } => {
                random::normal(exec, generator, scale, mean, out)?;
            }
        }
        Ok(())
    }

    fn memory(&self) -> MemoryRules {
        // Only the shape of the input is read.
        MemoryRules { strided: Inputs::ALL, unaligned: Inputs::ALL, ..MemoryRules::default() }
    }

    fn describe(&self) -> String {
        let what = match self.distribution {
            Distribution::Uniform { .. } => "uniform",
            Distribution::Normal { .. } => "normal",
        };
        describe_generator(&format!("{what} {}", T::DATA_TYPE), self.seed)
    }
}

struct Bernoulli<T> {
    seed: Option<u32>,
    to: DataType,
    elements: PhantomData<fn() -> T>,
}

impl<T: Number + Element> Kernel for Bernoulli<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, generator) = (call.exec, call.random.generator(self.seed));
        let dims = Dims::from(call.tensor(0)?.dims());
        let p = call.slice::<T>(0)?;
        let mut drawn = call.scratch::<u8>(p.len())?;
        random::bernoulli(exec, generator, p, &mut drawn).map_err(|failure| {
            KernelError::from_failure(failure, |index| {
                format!("element {index} is {:?}, which is not a probability from 0 to 1", p[index])
            })
        })?;
        let mut output = call.output(0, self.to, &dims)?;
        let (options, len) = (CastOptions::default(), drawn.len());
        cast_slices(DataType::Bool, &drawn, self.to, output.bytes_mut(), len, options)?;
        Ok(())
    }

    fn describe(&self) -> String {
        describe_generator(&format!("trials of {}", T::DATA_TYPE), self.seed)
    }
}

struct Multinomial<T> {
    seed: Option<u32>,
    samples: usize,
    to: DataType,
    elements: PhantomData<fn() -> T>,
}

impl<T: Number + Element> Multinomial<T> {
    fn draw<I: Number + Element>(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, generator) = (call.exec, call.random.generator(self.seed));
        let logits = call.slice::<T>(0)?;
        let &[rows, classes] = call.tensor(0)?.dims() else {
            fail!("the input has rank {}, not 2", call.tensor(0)?.rank());
        };
        let out = call.output_slice::<I>(0, &[rows, self.samples])?;
        let sizes = random::SampleDims { rows, classes, samples: self.samples };
        random::multinomial(exec, generator, logits, sizes, out).map_err(|failure| {
            let what =
                "has a NaN or infinite log-probability, or no class with a probability above 0";
            KernelError::from_failure(failure, |row| format!("row {row} {what}"))
        })
    }
}

impl<T: Number + Element> Kernel for Multinomial<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match self.to {
            DataType::Int64 => self.draw::<i64>(call),
            _ => self.draw::<i32>(call),
        }
    }

    fn describe(&self) -> String {
        describe_generator(&format!("classes by {}", T::DATA_TYPE), self.seed)
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use sardonyx_ops::AttrValue::{Float, Int, Ints};
    use sardonyx_tensor::{Bool8, Tensor};

    use crate::ops::testing::{run, tensor};

    fn one(
        op: &str,
        attributes: &[(&str, sardonyx_ops::AttrValue<'static>)],
        inputs: &[Option<&Tensor>],
    ) -> Result<Tensor, String> {
        run(op, attributes, inputs, 1).map(|mut found| found.remove(0))
    }

    #[test]
    fn numbers_of_numpy_in_every_type() {
        // `RandomState(7)`, as the reference evaluator scales its numbers.
        let (low, high) = (("low", Float(-1.1)), ("high", Float(3.3)));
        let shape = ("shape", Ints(vec![3, 1].into()));
        let seed = ("seed", Float(7.9));
        let uniform = |elem: i64| {
            let attributes =
                [low.clone(), high.clone(), shape.clone(), seed.clone(), ("dtype", Int(elem))];
            let found = one("RandomUniform", &attributes, &[]).unwrap();
            let like = Tensor::from_vec([3, 1], vec![1i64; 3]).unwrap();
            let attributes = [low.clone(), high.clone(), seed.clone(), ("dtype", Int(elem))];
            assert_eq!(one("RandomUniformLike", &attributes, &[Some(&like)]).unwrap(), found);
            found
        };
        let numbers = [-0.7642435431480408, 2.3316426277160645, 0.82900071144104];
        assert_eq!(uniform(1), tensor(&[3, 1], &numbers.map(|x| x as f32)));
        let numbers = [-0.7642435524157778, 2.3316426434199333, 0.829000584045583];
        assert_eq!(uniform(11), tensor(&[3, 1], &numbers));
        let numbers = [-0.763671875, 2.330078125, 0.8291015625].map(f16::from_f64);
        assert_eq!(uniform(10), tensor(&[3, 1], &numbers));
        let numbers = [-0.765625, 2.34375, 0.8203125].map(bf16::from_f64);
        assert_eq!(uniform(16), tensor(&[3, 1], &numbers));
        let attributes = [("mean", Float(0.3)), ("scale", Float(2.7)), seed.clone()];
        let numbers = [4.86328125, -0.9580078125, 0.388671875].map(f16::from_f64);
        let like = tensor(&[3], &[f16::ONE; 3]);
        let found = one("RandomNormalLike", &attributes, &[Some(&like)]).unwrap();
        assert_eq!(found, tensor(&[3], &numbers));
        let attributes = [attributes.to_vec(), vec![("dtype", Int(10)), shape]].concat();
        let found = one("RandomNormal", &attributes, &[]).unwrap();
        assert_eq!(found, tensor(&[3, 1], &numbers));
    }

    #[test]
    fn trials_in_every_type() {
        // `RandomState(3).binomial(1, p)`
        let p = [0.0, 1.0, 0.5, 0.25, 0.75, 0.1, 0.9, 0.3, 0.6, 0.45];
        let expected = [0u8, 1, 0, 0, 0, 0, 1, 0, 1, 0];
        let seed = ("seed", Float(3.0));
        let p64 = tensor(&[10], &p);
        assert_eq!(
            one("Bernoulli", std::slice::from_ref(&seed), &[Some(&p64)]).unwrap(),
            tensor(&[10], &expected.map(f64::from))
        );
        let of = |p: &Tensor, elem: i64| {
            one("Bernoulli", &[seed.clone(), ("dtype", Int(elem))], &[Some(p)]).unwrap()
        };
        for p in [
            p64,
            tensor(&[10], &p.map(|p| p as f32)),
            tensor(&[10], &p.map(f16::from_f64)),
            tensor(&[10], &p.map(bf16::from_f64)),
        ] {
            assert_eq!(of(&p, 9), tensor(&[10], &expected.map(Bool8)));
            assert_eq!(of(&p, 2), tensor(&[10], &expected));
            assert_eq!(of(&p, 7), tensor(&[10], &expected.map(i64::from)));
            assert_eq!(of(&p, 10), tensor(&[10], &expected.map(|x| f16::from_f32(x.into()))));
        }
        let refused = one("Bernoulli", &[], &[Some(&tensor(&[2], &[0.5f32, 1.5]))]);
        let refusal = "element 1 is 1.5, which is not a probability from 0 to 1";
        assert_eq!(refused.unwrap_err(), refusal);
    }

    #[test]
    fn classes_in_both_types() {
        // `searchsorted(cumsum(exp(x - x.max())), u * total, side="right")`, u of `RandomState(5)`.
        let none = f32::NEG_INFINITY;
        let logits =
            tensor(&[3, 4], &[0.0, 1.0, 2.0, none, 3.0, 3.0, 3.0, 3.0, -5.0, 0.0, -5.0, -5.0f32]);
        let expected = [[1, 2, 1, 2, 2, 2, 2, 2i32], [1, 0, 0, 2, 1, 0, 3, 1], [1; 8]].concat();
        let attributes = [("seed", Float(5.0)), ("sample_size", Int(8))];
        let found = one("Multinomial", &attributes, &[Some(&logits)]).unwrap();
        assert_eq!(found, tensor(&[3, 8], &expected));
        let attributes = [attributes.to_vec(), vec![("dtype", Int(7))]].concat();
        let found = one("Multinomial", &attributes, &[Some(&logits)]).unwrap();
        let expected: Vec<i64> = expected.into_iter().map(i64::from).collect();
        assert_eq!(found, tensor(&[3, 8], &expected));
        let refused = one("Multinomial", &[], &[Some(&tensor(&[1, 2], &[none, none]))]);
        assert!(refused.unwrap_err().starts_with("row 0 has a NaN or infinite log-probability"));
    }

    #[test]
    fn seeds() {
        let of = |seed: f32| {
            let shape = ("shape", Ints(vec![4].into()));
            one("RandomUniform", &[shape, ("seed", Float(seed))], &[])
        };
        assert_eq!(of(-0.5).unwrap(), of(0.0).unwrap());
        assert_ne!(of(f32::NAN).unwrap(), of(0.0).unwrap());
        for seed in [-1.0, 4_294_967_296.0, f32::INFINITY, f32::NEG_INFINITY] {
            let refusal = of(seed).unwrap_err();
            assert!(refusal.starts_with("attribute 'seed' is "), "{refusal}");
        }
        let last = of(4_294_967_040.0).unwrap();
        assert_ne!(last, of(0.0).unwrap());
        let shape = ("shape", Ints(vec![4, -1].into()));
        let refusal = one("RandomNormal", &[shape], &[]).unwrap_err();
        assert_eq!(refusal, "shape [4, -1] has a negative size");
    }
}
