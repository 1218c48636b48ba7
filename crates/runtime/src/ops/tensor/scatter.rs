//! Writing elements by index.

use std::marker::PhantomData;

use sardonyx_kernels::Pool;
use sardonyx_kernels::copy::{self, IndexOutOfRange, Plain, ScatterInto};
use sardonyx_kernels::number::{Arith, Number};
use sardonyx_tensor::{Dims, Element, TensorView, shape::normalize_axis};

use super::gather_elements::{Indices, check_elements};
use super::moves::{Movement, dense, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, MemoryRules, Operand, Site, Target};
use crate::ops::math::for_element;

/// `ScatterElements`
pub(crate) fn bind_scatter_elements(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, Where::Elements(site.need_int("axis")?))
}

/// `ScatterND`
pub(crate) fn bind_scatter_nd(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, Where::Tuples)
}

fn bind(site: &Site<'_>, at: Where) -> Result<Box<dyn Kernel>, BindError> {
    let reduction = match site.string("reduction").as_deref() {
        None | Some("none") => {
            let elem = site.elem(0)?;
            // Elements below one byte are unpacked first, and strings are in nobody's memory.
            let in_place = elem.bits().is_some_and(|bits| bits >= 8);
            return Ok(Box::new(Scatter { at, in_place }));
        }
        Some("add") => Reduction::Add,
        Some("mul") => Reduction::Mul,
        Some("max") => Reduction::Max,
        Some("min") => Reduction::Min,
        Some(other) => {
            return Err(BindError::Invalid(format!(
                "attribute 'reduction' is '{other}', not none, add, mul, max or min"
            )));
        }
    };
    for_element!(
        site, site.elem(0)?, numeric,
        T => Reduce::<T> { at, reduction, elements: PhantomData }
    )
}

/// How indices say where an update goes.
#[derive(Clone, Copy)]
enum Where {
    /// One index replaces the position on the axis.
    Elements(i64),
    /// The last axis of the indices is a tuple.
    Tuples,
}

#[derive(Clone, Copy, Debug)]
enum Reduction {
    Add,
    Mul,
    Max,
    Min,
}

impl Reduction {
    fn into<T: Number>(self) -> ScatterInto<T> {
        match self {
            Reduction::Add => |old, new| T::narrow(old.widen().add(new.widen())),
            Reduction::Mul => |old, new| T::narrow(old.widen().mul(new.widen())),
            Reduction::Max => |old, new| T::narrow(Arith::max(old.widen(), new.widen())),
            Reduction::Min => |old, new| T::narrow(Arith::min(old.widen(), new.widen())),
        }
    }
}

/// Indices that fit the dimensions of data and updates.
struct Places<'a> {
    dims: Dims,
    index_dims: Dims,
    by: By<'a>,
}

enum By<'a> {
    Elements(usize, Indices<'a>),
    Tuples(usize, &'a [i64]),
}

impl<'a> Places<'a> {
    fn of(call: &Call<'a>, at: Where, dims: Dims) -> Result<Places<'a>, KernelError> {
        let index_dims = Dims::from(call.tensor(1)?.dims());
        let update_dims = call.tensor(2)?.dims();
        let by = match at {
            Where::Elements(axis) => {
                let axis = normalize_axis(axis, dims.len())?;
                check_elements(&dims, &index_dims, axis)?;
                if update_dims != &index_dims[..] {
                    fail!(
                        "the updates have dimensions {update_dims:?}, the indices {index_dims:?}"
                    );
                }
                By::Elements(axis, Indices::of(call, 1)?)
            }
            Where::Tuples => {
                let [outer @ .., depth] = &index_dims[..] else {
                    fail!("the indices must not be a scalar");
                };
                if *depth == 0 || *depth > dims.len() {
                    fail!(
                        "tuples have {depth} indices, but there are {} dimensions to index",
                        dims.len()
                    );
                }
                let expected: Dims = outer.iter().chain(&dims[*depth..]).copied().collect();
                if update_dims != &expected[..] {
                    fail!("the updates have dimensions {update_dims:?}, not {expected:?}");
                }
                By::Tuples(*depth, call.slice(1)?)
            }
        };
        Ok(Places { dims, index_dims, by })
    }

    /// Writes the updates into the data.
    fn scatter<T: Plain>(
        &self,
        into: ScatterInto<T>,
        updates: &[T],
        y: &mut [T],
    ) -> Result<(), KernelError> {
        let (dims, index_dims) = (&self.dims, &self.index_dims);
        let written: Result<(), IndexOutOfRange> = match &self.by {
            By::Elements(axis, Indices::Short(indices)) => {
                copy::scatter_elements(into, *axis, dims, index_dims, indices, updates, y)
            }
            By::Elements(axis, Indices::Long(indices)) => {
                copy::scatter_elements(into, *axis, dims, index_dims, indices, updates, y)
            }
            By::Tuples(depth, indices) => copy::scatter_nd(into, dims, *depth, indices, updates, y),
        };
        written.map_err(|error| {
            KernelError(match &self.by {
                By::Elements(axis, _) => format!("axis {axis}: {error}"),
                By::Tuples(..) => error.to_string(),
            })
        })
    }
}

/// Updates replace what was there, whatever the type.
struct Scatter {
    at: Where,
    in_place: bool,
}

impl Kernel for Scatter {
    fn memory(&self) -> MemoryRules {
        let in_place: &[usize] = if self.in_place { &[0] } else { &[] };
        MemoryRules { in_place, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if call.over == Some(0) {
            let updates = call.tensor(2)?.clone();
            let places = Places::of(call, self.at, planned_dims(call)?)?;
            return match updates.data_type().bits() {
                Some(8) => over::<1>(call, &places, &updates),
                Some(16) => over::<2>(call, &places, &updates),
                Some(32) => over::<4>(call, &places, &updates),
                Some(64) => over::<8>(call, &places, &updates),
                Some(128) => over::<16>(call, &places, &updates),
                _ => fail!("type {} cannot be written in place", updates.data_type()),
            };
        }
        let (data, updates) = (call.tensor(0)?.clone(), call.tensor(2)?.clone());
        let dims = Dims::from(data.dims());
        let places = Places::of(call, self.at, dims.clone())?;
        move_elements(call, 0, &dims, &[data, updates], &places)
    }

    fn describe(&self) -> String {
        "scatter".to_string()
    }
}

impl Movement for Places<'_> {
    fn run<T: Plain>(&self, _: &Pool, sources: &[&[T]], out: &mut [T]) -> Result<(), KernelError> {
        out.copy_from_slice(sources[0]);
        self.scatter(|_, update| update, sources[1], out)
    }
}

/// The dimensions of the output where it has the memory of the data.
fn planned_dims(call: &Call<'_>) -> Result<Dims, KernelError> {
    match call.targets.first() {
        Some(Target::Planned { dims, .. }) => Ok((*dims).clone()),
        _ => fail!("an output in place has no memory"),
    }
}

/// Elements of `WIDTH` bytes that the output has already.
fn over<const WIDTH: usize>(
    call: &mut Call<'_>,
    places: &Places<'_>,
    updates: &TensorView<'_>,
) -> Result<(), KernelError>
where
    [u8; WIDTH]: Plain,
{
    let updates = dense(call, updates)?;
    let Some(Target::Planned { bytes, .. }) = call.targets.first_mut() else {
        fail!("an output in place has no memory");
    };
    let (updates, y) = (updates.as_chunks::<WIDTH>().0, bytes.as_chunks_mut::<WIDTH>().0);
    places.scatter(|_, update| update, updates, y)
}

/// Updates are combined with what was there.
struct Reduce<T> {
    at: Where,
    reduction: Reduction,
    elements: PhantomData<fn() -> T>,
}

impl<T: Number + Element> Kernel for Reduce<T> {
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[0], ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let updates = call.slice::<T>(2)?;
        let in_place = matches!(call.operands.first(), Some(Operand::InPlace));
        let dims = if in_place { planned_dims(call)? } else { call.tensor(0)?.dims().into() };
        let places = Places::of(call, self.at, dims)?;
        let into = self.reduction.into::<T>();
        if in_place {
            return match call.in_place::<T>()? {
                Some((_, y)) => places.scatter(into, updates, y),
                None => fail!("an output in place has no memory"),
            };
        }
        let data = call.slice::<T>(0)?;
        let y = call.output_slice::<T>(0, &places.dims)?;
        y.copy_from_slice(data);
        places.scatter(into, updates, y)
    }

    fn describe(&self) -> String {
        format!("scatter with {:?} of {}", self.reduction, T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_kernels::{Exec, Isa};
    use sardonyx_ops::AttrValue::{self, Int};
    use sardonyx_tensor::{StringArray, Tensor};
    use smallvec::smallvec;

    use super::*;
    use crate::ops::testing::{run, tensor};

    fn reduction(name: &'static str) -> (&'static str, AttrValue<'static>) {
        ("reduction", AttrValue::String(name.as_bytes().into()))
    }

    #[test]
    fn elements() {
        let data = tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let indices = tensor(&[1, 3], &[0i32, -1, -1]);
        let updates = tensor(&[1, 3], &[10f32, 20.0, 7.0]);
        let inputs = [Some(&data), Some(&indices), Some(&updates)];
        for (name, expected) in [
            ("none", [10f32, 2.0, 7.0, 4.0, 5.0, 6.0]),
            ("add", [11.0, 2.0, 30.0, 4.0, 5.0, 6.0]),
            ("mul", [10.0, 2.0, 420.0, 4.0, 5.0, 6.0]),
            ("max", [10.0, 2.0, 20.0, 4.0, 5.0, 6.0]),
            ("min", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ] {
            let attributes = [("axis", Int(1)), reduction(name)];
            let found = run("ScatterElements", &attributes, &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 3], &expected), "{name}");
        }
        for (axis, indices, updates, refusal) in [
            (
                1,
                tensor(&[1, 1], &[3i64]),
                tensor(&[1, 1], &[0f32]),
                "axis 1: index 3 is outside of a dimension of size 3",
            ),
            (
                0,
                tensor(&[1, 4], &[0i64; 4]),
                tensor(&[1, 4], &[0f32; 4]),
                "axis 1 has size 4 in the indices, but 3 in the data",
            ),
            (
                0,
                tensor(&[1, 1], &[0i64]),
                tensor(&[1, 2], &[0f32; 2]),
                "the updates have dimensions [1, 2], the indices [1, 1]",
            ),
        ] {
            let inputs = [Some(&data), Some(&indices), Some(&updates)];
            let found = run("ScatterElements", &[("axis", Int(axis))], &inputs, 1);
            assert_eq!(found.unwrap_err(), refusal);
        }
    }

    #[test]
    fn tuples() {
        let data = tensor(&[2, 2], &[1i8, 2, 3, 4]);
        let indices = tensor(&[2, 1], &[1i64, -1]);
        let updates = tensor(&[2, 2], &[5i8, 6, 7, -8]);
        let inputs = [Some(&data), Some(&indices), Some(&updates)];
        for (name, expected) in [
            ("none", [1i8, 2, 7, -8]),
            ("add", [1, 2, 15, 2]),
            ("mul", [1, 2, 105, 64]),
            ("max", [1, 2, 7, 6]),
            ("min", [1, 2, 3, -8]),
        ] {
            let found = run("ScatterND", &[reduction(name)], &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 2], &expected), "{name}");
        }
        let strings = |texts: &[&str]| {
            Tensor::from_strings([texts.len()], texts.iter().collect::<StringArray>()).unwrap()
        };
        let one = tensor(&[1, 1], &[-1i64]);
        let inputs = [Some(&strings(&["a", "b"])), Some(&one), Some(&strings(&["c"]))];
        let found = run("ScatterND", &[], &inputs, 1).unwrap();
        assert_eq!(found[0], strings(&["a", "c"]));

        for (indices, updates, refusal) in [
            (
                tensor(&[1, 2], &[0i64, 2]),
                tensor(&[1], &[0i8]),
                "index 2 is outside of a dimension of size 2",
            ),
            (
                tensor(&[1, 3], &[0i64; 3]),
                tensor(&[1], &[0i8]),
                "tuples have 3 indices, but there are 2 dimensions to index",
            ),
            (
                tensor(&[1, 1], &[0i64]),
                tensor(&[1], &[0i8]),
                "the updates have dimensions [1], not [1, 2]",
            ),
        ] {
            let inputs = [Some(&data), Some(&indices), Some(&updates)];
            assert_eq!(run("ScatterND", &[], &inputs, 1).unwrap_err(), refusal);
        }
        let inputs = [Some(&data), Some(&indices), Some(&updates)];
        let found = run("ScatterND", &[reduction("xor")], &inputs, 1);
        assert!(found.unwrap_err().contains("'xor'"));
    }

    #[test]
    fn over_the_data() {
        let indices = tensor(&[1, 1], &[1i64]);
        let updates = tensor(&[1, 2], &[5i16, 6]);
        let kernels: [(Box<dyn Kernel>, [i16; 4]); 2] = [
            (Box::new(Scatter { at: Where::Tuples, in_place: true }), [1, 2, 5, 6]),
            (
                Box::new(Reduce::<i16> {
                    at: Where::Tuples,
                    reduction: Reduction::Add,
                    elements: PhantomData,
                }),
                [1, 2, 8, 10],
            ),
        ];
        for (kernel, expected) in kernels {
            let mut memory = [1i16, 2, 3, 4];
            let dims = Dims::from_slice(&[2, 2]);
            let mut call = Call {
                operands: smallvec![
                    Operand::InPlace,
                    Operand::Tensor(indices.view()),
                    Operand::Tensor(updates.view()),
                ],
                targets: smallvec![Target::Planned {
                    data_type: i16::DATA_TYPE,
                    dims: &dims,
                    bytes: bytemuck::cast_slice_mut(&mut memory),
                    laid: None,
                }],
                over: Some(0),
                exec: &Exec { pool: Pool::global(), isa: Isa::detect() },
                random: crate::random::Draws::default(),
                memory: None,
                account: &crate::account::Account::new(None, 0),
            };
            kernel.run(&mut call).unwrap();
            drop(call);
            assert_eq!(memory, expected);
        }
    }
}
