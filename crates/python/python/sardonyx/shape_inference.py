"""Types and shapes of all values of a model."""

from sardonyx._core.shape_inference import (
    GraphInferencer,
    InferenceContext,
    InferenceError,
    infer_function_output_types,
    infer_shapes,
    infer_shapes_path,
)

__all__ = [
    "GraphInferencer",
    "InferenceContext",
    "InferenceError",
    "infer_function_output_types",
    "infer_shapes",
    "infer_shapes_path",
]
