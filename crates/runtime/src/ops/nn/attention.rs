//! Attention and rotary embeddings.

pub(crate) mod dot_product;
pub(crate) mod rotary;
