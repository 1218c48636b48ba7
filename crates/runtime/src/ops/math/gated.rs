//! Swish and SwiGLU: an input multiplied by a gate.

use sardonyx_kernels::Loops;
use sardonyx_kernels::elementwise::{Binary, Side, Unary};
use sardonyx_tensor::Element;
use smallvec::smallvec;

use super::for_element;
use super::fused_pointwise::{self, FusedPointwise};
use super::pointwise::{self, FLOATS};
use super::unary::number;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program::{Link, Op, Pointwise, same_shape};

/// Lowers `Swish`.
pub(crate) fn lower_swish(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(site, FLOATS, Unary::Swish { alpha: number(site, "alpha")? })
}

/// Lowers `SwiGLU` of inputs whose shapes are certainly equal. Others are compared in every run.
pub(crate) fn lower_swiglu(site: &Site<'_>) -> Result<Op, BindError> {
    let is_same = match (site.shape(0), site.shape(1)) {
        (Some(a), Some(b)) => same_shape(a, b),
        _ => false,
    };
    if !is_same {
        return Ok(Op::opaque(site));
    }
    let elem = site.elem(0)?;
    if !FLOATS.contains(&elem) {
        return site.unsupported_type(elem);
    }
    let gate = Link::Unary(Unary::Swish { alpha: number(site, "alpha")? });
    let links = smallvec![gate, Link::Binary { op: Binary::Mul, side: Side::Left, other: 1 }];
    let operands = smallvec![site.slot(0)?, site.slot(1)?];
    Ok(Op::Pointwise(Box::new(Pointwise { elem, links, operands })))
}

/// Binds `SwiGLU` of inputs whose shapes are known only at run time.
pub(crate) fn bind_swiglu(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let gate = Unary::Swish { alpha: number(site, "alpha")? };
    for_element!(site, site.elem(0)?, floats, T => Gated(FusedPointwise::<T>::new(vec![
        fused_pointwise::Link::Unary(gate),
        fused_pointwise::Link::Binary { op: Binary::Mul, side: Side::Left, other: 1 },
    ])))
}

/// Pointwise operators on two inputs that do not broadcast.
struct Gated<T>(FusedPointwise<T>);

impl<T: Loops + Element> Kernel for Gated<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (a, b) = (call.tensor(0)?.dims(), call.tensor(1)?.dims());
        if a != b {
            fail!("inputs 0 and 1 are {a:?} and {b:?}, but must have one shape");
        }
        self.0.run(call)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Float;

    use crate::ops::testing::{run, tensor};

    #[test]
    fn swish() {
        let x = tensor(&[4], &[-3f32, 0.0, 1.0, f32::INFINITY]);
        let found = run("Swish", &[("alpha", Float(2.0))], &[Some(&x)], 1).unwrap();
        let expected = [-3.0 / (1.0 + 6f32.exp()), 0.0, 1.0 / (1.0 + (-2f32).exp()), f32::INFINITY];
        for (found, expected) in found[0].to_vec::<f32>().unwrap().iter().zip(expected) {
            let close = (found - expected).abs() <= 4.0 * f32::EPSILON * expected.abs();
            assert!(close || *found == expected, "{found} {expected}");
        }
        let halves = tensor(&[1], &[half::f16::ONE]);
        let found = run("Swish", &[], &[Some(&halves)], 1).unwrap();
        assert_eq!(found[0], tensor(&[1], &[half::f16::from_f32(0.731_058_6)]));
    }

    #[test]
    fn swiglu() {
        // SHAPE-09, SHAPE-20
        let (a, b) = (tensor(&[2], &[0.0f32, 2.0]), tensor(&[2], &[5.0f32, 3.0]));
        let found = run("SwiGLU", &[], &[Some(&a), Some(&b)], 1).unwrap();
        let [none, some] = *found[0].as_slice::<f32>().unwrap() else { panic!("two elements") };
        assert!(none == 0.0 && (some - 6.0 / (1.0 + (-2.0f32).exp())).abs() < 1e-6, "{some}");
        let found = run("SwiGLU", &[("alpha", Float(0.0))], &[Some(&a), Some(&b)], 1).unwrap();
        assert_eq!(found[0].as_slice::<f32>().unwrap(), [0.0, 3.0]);
    }
}
