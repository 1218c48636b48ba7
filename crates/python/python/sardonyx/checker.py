"""Whether a model, or a part of one, keeps to the standard."""

from sardonyx._core.checker import (
    CheckerContext,
    LexicalScopeContext,
    ValidationError,
    check_attribute,
    check_function,
    check_graph,
    check_model,
    check_model_path,
    check_node,
    check_sparse_tensor,
    check_tensor,
    check_value_info,
)

__all__ = [
    "CheckerContext",
    "LexicalScopeContext",
    "ValidationError",
    "check_attribute",
    "check_function",
    "check_graph",
    "check_model",
    "check_model_path",
    "check_node",
    "check_sparse_tensor",
    "check_tensor",
    "check_value_info",
]
