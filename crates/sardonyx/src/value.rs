//! Values other than dense tensors, element types, and comparison of values.

#[doc(inline)]
pub use sardonyx_model::TensorType;
#[doc(inline)]
pub use sardonyx_tensor::{
    Bool8, Buffer, Complex64, Complex128, Map, MapKey, Mismatch, Opaque, OpaqueType, Sequence,
    Sparse, StringArray, TensorError, TensorErrorKind, Tolerance, ViewData, bf16, f16,
};
