//! Operators of ai.onnx.ml.

pub(super) mod trees;
