//! Definitions that others compare with: [`OpDef::is`](crate::OpDef::is) tells whether a node calls
//! one of them. What is true of an operator itself is a fact in its definition.

pub use crate::control::{IF, LOOP, SCAN};
pub use crate::math::binary::{ADD, MUL, SUB};
pub use crate::math::gemm::GEMM;
pub use crate::math::matmul::MATMUL;
pub use crate::nn::attention::FLEX_ATTENTION;
pub use crate::sequence::SEQUENCE_INSERT;
pub use crate::tensor::cast::CAST;
pub use crate::tensor::constant::CONSTANT;
pub use crate::tensor::transpose::TRANSPOSE;
