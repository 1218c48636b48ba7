"""Whether a model, or a part of one, keeps to the standard.

Each function returns nothing if all is well, and raises :class:`ValidationError` with every finding otherwise, a line for
each. Messages are objects, such as ``onnx.ModelProto``, or bytes.
"""

from __future__ import annotations

from sardonyx import _core
from sardonyx._core import defs as _defs
from sardonyx._core.checker import CheckerContext, LexicalScopeContext, ValidationError
from sardonyx._messages import Path, Serialized, file_path, is_path, model_content, serialized

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

_checker = _core.checker


def check_model(
    model: Serialized | Path,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Check a model: a ModelProto, its bytes, or the path of its file.

    Give the path if the model has data files: they are looked for beside it. With full_check, types and shapes are inferred
    as well, and what contradicts itself raises ``shape_inference.InferenceError``. skip_opset_compatibility_check lets
    functions import other versions of operator sets than the model. check_custom_domain demands that operators of all
    domains are known.
    """
    options = (full_check, skip_opset_compatibility_check, check_custom_domain)
    if is_path(model):
        _checker.check_model_path(file_path(model), *options)
    else:
        _checker.check_model(model_content(model), *options)


def check_model_path(
    path: Path,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Check a model file, with its data files."""
    options = (full_check, skip_opset_compatibility_check, check_custom_domain)
    _checker.check_model_path(file_path(path), *options)


def check_value_info(
    value_info: Serialized, checker_context: CheckerContext | None = None
) -> None:
    """Check a ValueInfoProto, by default as part of a model of the newest versions."""
    content = serialized(value_info, "ValueInfoProto")
    _checker.check_value_info(content, _given(checker_context))


def check_tensor(tensor: Serialized, checker_context: CheckerContext | None = None) -> None:
    """Check a TensorProto, by default as part of a model of the newest versions."""
    _checker.check_tensor(serialized(tensor, "TensorProto"), _given(checker_context))


def check_sparse_tensor(
    sparse_tensor: Serialized, checker_context: CheckerContext | None = None
) -> None:
    """Check a SparseTensorProto, by default as part of a model of the newest versions."""
    content = serialized(sparse_tensor, "SparseTensorProto")
    _checker.check_sparse_tensor(content, _given(checker_context))


def check_attribute(
    attribute: Serialized,
    checker_context: CheckerContext | None = None,
    lexical_scope_context: LexicalScopeContext | None = None,
) -> None:
    """Check an AttributeProto, by default as part of a model of the newest versions."""
    content = serialized(attribute, "AttributeProto")
    scope = _scope(lexical_scope_context)
    _checker.check_attribute(content, _given(checker_context), scope)


def check_node(
    node: Serialized,
    checker_context: CheckerContext | None = None,
    lexical_scope_context: LexicalScopeContext | None = None,
) -> None:
    """Check a NodeProto, by default as part of a model of the newest versions."""
    content = serialized(node, "NodeProto")
    scope = _scope(lexical_scope_context)
    _checker.check_node(content, _given(checker_context), scope)


def check_function(
    function: Serialized,
    checker_context: CheckerContext | None = None,
    lexical_scope_context: LexicalScopeContext | None = None,
) -> None:
    """Check a FunctionProto, by default as part of a model of the newest versions."""
    content = serialized(function, "FunctionProto")
    scope = _scope(lexical_scope_context)
    _checker.check_function(content, _given(checker_context), scope)


def check_graph(
    graph: Serialized,
    checker_context: CheckerContext | None = None,
    lexical_scope_context: LexicalScopeContext | None = None,
) -> None:
    """Check a GraphProto, by default as part of a model of the newest versions."""
    content = serialized(graph, "GraphProto")
    scope = _scope(lexical_scope_context)
    _checker.check_graph(content, _given(checker_context), scope)


def _given(context: CheckerContext | None) -> CheckerContext:
    """The context, or that of a model of the newest IR version with the newest version of every operator set."""
    if context is not None:
        return context
    context = CheckerContext()
    context.ir_version = _core.IR_VERSION
    versions = _defs.schema_version_map()
    context.opset_imports = {domain: newest for domain, (_, newest) in versions.items()}
    return context


def _scope(context: LexicalScopeContext | None) -> LexicalScopeContext:
    return LexicalScopeContext() if context is None else context
