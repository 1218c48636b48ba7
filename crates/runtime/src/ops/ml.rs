//! Operators of the domain ai.onnx.ml.

mod attributes;
pub(super) mod features;
mod labels;
pub(super) mod maps;
pub(super) mod models;
mod table;
pub(super) mod trees;

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::tensor;

    /// Returns a tensor in each of the types that features have.
    pub(super) fn each_type(dims: &[usize], list: &[i32]) -> [Tensor; 4] {
        let cast = |to| sardonyx_tensor::cast(&tensor(dims, list), to, Default::default()).unwrap();
        use sardonyx_tensor::DataType::{Double, Float, Int32, Int64};
        [cast(Float), cast(Double), cast(Int32), cast(Int64)]
    }
}
