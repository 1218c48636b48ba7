//! Moving data: shapes, copies, types.

pub(crate) mod reshape;
