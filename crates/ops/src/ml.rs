//! The operators of `ai.onnx.ml`: what comes before, after and instead of networks.

pub(crate) mod features;
pub(crate) mod maps;
pub(crate) mod models;
