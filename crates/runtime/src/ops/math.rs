//! Pointwise arithmetic, comparison, logic and activations; matrix products; operations along one
//! axis.

pub(crate) mod binary;
pub(crate) mod classify;
pub(crate) mod clip;
pub(crate) mod cumulative;
pub(crate) mod einsum;
pub(crate) mod fused_pointwise;
pub(crate) mod gated;
pub(crate) mod gemm;
pub(crate) mod linear;
pub(crate) mod matmul;
#[cfg(feature = "quantization")]
pub(crate) mod matmul_integer;
pub(crate) mod over_images;
pub(crate) mod pointwise;
pub(crate) mod prelu;
pub(crate) mod scalars;
pub(crate) mod softmax;
pub(crate) mod unary;
pub(crate) mod update;
pub(crate) mod variadic;

use sardonyx_kernels::elementwise::{MAX_RANK, broadcast_strides};
use sardonyx_tensor::Dims;
use sardonyx_tensor::shape::broadcast_dims;

use crate::error::{KernelError, fail};
use crate::kernel::{Call, Target};

/// Makes a kernel for the Rust type of an element type.
///
/// `for_element!(site, elem, [f32, f64], T => Negate::<T>::new())` becomes a match with one arm per
/// type, the first being `DataType::Float => Ok(Box::new(Negate::<f32>::new()))`; other element
/// types are [unsupported](crate::kernel::Site::unsupported_type). A word instead of the list
/// stands for a set of types of the standard. A function cannot do this, as the kernel's type
/// differs between arms.
macro_rules! for_element {
    ($site:expr, $elem:expr, floats, $T:ident => $kernel:expr) => {
        for_element!($site, $elem, [f32, f64, half::f16, half::bf16], $T => $kernel)
    };
    ($site:expr, $elem:expr, integers, $T:ident => $kernel:expr) => {
        for_element!($site, $elem, [i8, i16, i32, i64, u8, u16, u32, u64], $T => $kernel)
    };
    ($site:expr, $elem:expr, signed, $T:ident => $kernel:expr) => {
        for_element!($site, $elem, [f32, f64, half::f16, half::bf16, i8, i16, i32, i64], $T => $kernel)
    };
    ($site:expr, $elem:expr, high_precision, $T:ident => $kernel:expr) => {
        for_element!($site, $elem, [f32, f64, half::f16, half::bf16, i32, i64, u32, u64], $T => $kernel)
    };
    ($site:expr, $elem:expr, numeric, $T:ident => $kernel:expr) => {
        for_element!(
            $site, $elem, [f32, f64, half::f16, half::bf16, i8, i16, i32, i64, u8, u16, u32, u64], $T => $kernel
        )
    };
    ($site:expr, $elem:expr, [$($t:ty),*], $T:ident => $kernel:expr) => {
        match $elem {
            $(<$t as sardonyx_tensor::Element>::DATA_TYPE => {
                type $T = $t;
                Ok(Box::new($kernel))
            })*
            other => $site.unsupported_type(other),
        }
    };
}
pub(crate) use for_element;

/// Two operands broadcast to common dimensions.
struct Pair {
    dims: Dims,
    a: Dims,
    b: Dims,
}

impl Pair {
    /// Broadcasts both inputs.
    fn new(call: &Call<'_>) -> Result<Pair, KernelError> {
        let (a, b) = (call.tensor(0)?.dims(), call.tensor(1)?.dims());
        let dims = broadcast_dims(&[a, b])?;
        Ok(Pair { a: steps(a, &dims)?, b: steps(b, &dims)?, dims })
    }
}

/// Returns the distance of neighbours of a dense operand along each dimension of the output, in
/// elements; 0 where it is broadcast.
pub(super) fn steps(from: &[usize], to: &[usize]) -> Result<Dims, KernelError> {
    if to.len() > MAX_RANK {
        fail!("the rank is {}; at most {MAX_RANK} is supported", to.len());
    }
    let mut steps = Dims::from_elem(0, to.len());
    match broadcast_strides(from, to, &mut steps) {
        Some(()) => Ok(steps),
        None => fail!("{from:?} does not broadcast to {to:?}"),
    }
}

/// Returns the dimensions of the first output, if it reuses the memory of an input.
fn dims_in_place<'a>(call: &Call<'a>) -> Result<&'a Dims, KernelError> {
    match call.targets.first() {
        Some(Target::Planned { dims, .. }) => Ok(dims),
        _ => fail!("an output in place has no memory"),
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_kernels::elementwise::Binary;
    use sardonyx_kernels::{Exec, Isa, Pool};
    use sardonyx_tensor::{Element, Tensor, Value};

    use super::*;
    use crate::kernel::{Kernel, Operand};

    /// Runs a kernel on tensors, over the memory of the input at `over` if there is one.
    fn run<T: Element>(kernel: &dyn Kernel, inputs: &[&Tensor], over: Option<usize>) -> Vec<T> {
        let mut memory = over.map(|over| inputs[over].to_vec::<T>().unwrap());
        let dims = over.map(|over| Dims::from(inputs[over].dims()));
        let target = match (&mut memory, &dims) {
            (Some(memory), Some(dims)) => Target::Planned {
                data_type: T::DATA_TYPE,
                dims,
                bytes: bytemuck::cast_slice_mut(memory),
                laid: None,
            },
            _ => Target::Owned(None),
        };
        let operands = inputs.iter().enumerate().map(|(index, input)| match over {
            Some(over) if over == index => Operand::InPlace,
            _ => Operand::Tensor(input.view()),
        });
        let mut call = Call {
            operands: operands.collect(),
            targets: [target].into_iter().collect(),
            over,
            exec: &Exec::new(Pool::serial(), Isa::detect()),
            random: crate::random::Draws::default(),
            memory: None,
            account: &crate::account::Account::new(None, 0),
        };
        kernel.run(&mut call).unwrap();
        match call.targets.remove(0) {
            Target::Owned(Some(Value::Tensor(tensor))) => tensor.to_vec::<T>().unwrap(),
            Target::Planned { bytes, .. } => bytemuck::cast_slice(bytes).to_vec(),
            _ => panic!("no output"),
        }
    }

    #[test]
    fn in_place_gives_the_same() {
        let a = Tensor::from_vec([2, 2], vec![1.0f32, -2.0, 3.0, -4.0]).unwrap();
        let b = Tensor::from_vec([2, 2], vec![0.5f32, 7.0, -8.0, 2.0]).unwrap();
        let row = Tensor::from_vec([2], vec![10.0f32, 3.0]).unwrap();
        let both: [&[&Tensor]; 3] = [&[&a, &b], &[&a, &row], &[&row, &a]];
        for op in [Binary::Sub, Binary::Div, Binary::PRelu] {
            let kernel = binary::Arithmetic::<f32>::new(op);
            for inputs in both {
                let expected = run::<f32>(&kernel, inputs, None);
                for over in (0..2).filter(|over| inputs[*over].rank() == 2) {
                    assert_eq!(
                        run::<f32>(&kernel, inputs, Some(over)),
                        expected,
                        "{op:?} {inputs:?} {over}"
                    );
                }
            }
        }
        for op in [Binary::Add, Binary::Max] {
            let kernel = variadic::Variadic::<f32>::new(op);
            for inputs in [&[&a][..], &[&a, &b, &row], &[&row, &b, &a, &a]] {
                let expected = run::<f32>(&kernel, inputs, None);
                for over in (0..inputs.len().min(2)).filter(|over| inputs[*over].rank() == 2) {
                    assert_eq!(
                        run::<f32>(&kernel, inputs, Some(over)),
                        expected,
                        "{op:?} {inputs:?} {over}"
                    );
                }
            }
        }
    }

    #[test]
    fn exponents_of_another_type() {
        let bases = Tensor::from_vec([3], vec![4i32, -3, 2]).unwrap();
        let power = |exponent: Tensor| {
            run::<i32>(&binary::MixedPower::<i32>::new(), &[&bases, &exponent], None)
        };
        assert_eq!(power(Tensor::scalar(3.0f32)), [64, -27, 8]);
        assert_eq!(power(Tensor::from_vec([3], vec![0.5f32, 2.0, 1.5]).unwrap()), [2, 9, 2]);
        assert_eq!(power(Tensor::scalar(2u8)), [16, 9, 4]);
    }
}
