//! Arithmetic, comparison, logic and activations element by element; matrix products; what works along one axis.

pub(crate) mod binary;
pub(crate) mod clip;
pub(crate) mod gemm;
pub(crate) mod matmul;
pub(crate) mod prelu;
pub(crate) mod softmax;
pub(crate) mod unary;
pub(crate) mod variadic;

use sardonyx_kernels::elementwise::{MAX_RANK, broadcast_strides};
use sardonyx_tensor::Dims;
use sardonyx_tensor::shape::broadcast_dims;

use crate::kernel::{Call, KernelError, Target, fail};

/// Makes a kernel for the Rust type that an element type has.
///
/// `for_element!(site, elem, [f32, f64], T => Negate::<T>::new())` becomes a match with one arm per type,
/// `DataType::Float => Ok(Box::new(Negate::<f32>::new()))` being the first; other element types are
/// [unsupported](crate::kernel::Site::unsupported_type). A word instead of the list stands for a set of types as the
/// standard has it. No function could do that: the type of the kernel differs from arm to arm.
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

/// Two operands stretched to common dimensions.
struct Pair {
    dims: Dims,
    a: Dims,
    b: Dims,
}

impl Pair {
    /// Both inputs stretch.
    fn of(call: &Call<'_>) -> Result<Pair, KernelError> {
        let (a, b) = (call.tensor(0)?.dims(), call.tensor(1)?.dims());
        let dims = broadcast_dims(&[a, b])?;
        Ok(Pair {
            a: steps(a, &dims)?,
            b: steps(b, &dims)?,
            dims,
        })
    }
}

/// How many elements apart the neighbours of a dense operand are along each dimension of the output; 0 where it repeats.
fn steps(from: &[usize], to: &[usize]) -> Result<Dims, KernelError> {
    if to.len() > MAX_RANK {
        fail!(
            "the rank is {}, but at most {MAX_RANK} is implemented",
            to.len()
        );
    }
    let mut steps = Dims::from_elem(0, to.len());
    match broadcast_strides(from, to, &mut steps) {
        Some(()) => Ok(steps),
        None => fail!("{from:?} does not broadcast to {to:?}"),
    }
}

/// The dimensions of the first output where it has the memory of an input.
fn dims_in_place<'a>(call: &Call<'a>) -> Result<&'a Dims, KernelError> {
    match call.targets.first() {
        Some(Target::Planned { dims, .. }) => Ok(dims),
        _ => fail!("an output in place has no memory"),
    }
}
