//! Operators of ai.onnx.ml.

mod attributes;
pub(super) mod features;
pub(super) mod maps;
pub(super) mod models;
mod table;
pub(super) mod trees;
