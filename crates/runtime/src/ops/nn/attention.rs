//! Attention, and what goes with it.

pub(crate) mod dot_product;
pub(crate) mod rotary;
