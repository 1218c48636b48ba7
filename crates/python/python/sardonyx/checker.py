"""Checks whether models, and parts of models, conform to the ONNX standard.

Each function returns None for a conforming message, and raises :class:`ValidationError` with all findings, one a line,
for others. Messages are objects, such as ``onnx.ModelProto``, or bytes.
"""

from __future__ import annotations

import typing as _t

from sardonyx import _core, _messages
from sardonyx._core import checker as _checker
from sardonyx._core.checker import CheckerContext, LexicalScopeContext, ValidationError

if _t.TYPE_CHECKING:
    from typing_extensions import Buffer

    from sardonyx.typing import Message, ModelLike, StrPath

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


def check_model(
    model: ModelLike,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Checks a model: a ModelProto, its bytes, or the path of its file.

    The data files of a model are found only if its path is given, as they are looked up beside it. ``full_check`` also infers
    types and shapes, and raises ``shape_inference.InferenceError`` for contradictions.
    ``skip_opset_compatibility_check`` accepts functions that import other versions of operator sets than the model.
    ``check_custom_domain`` refuses unknown operators in all domains, not only in those of the standard.
    """
    options = (full_check, skip_opset_compatibility_check, check_custom_domain)
    if _messages.is_path(model):
        _checker.check_model_path(_messages.file_path(model), *options)
    else:
        _checker.check_model(_messages.model_content(model), *options)


def check_model_path(
    path: StrPath,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Checks a model file and its data files. The options are those of :func:`check_model`."""
    options = (full_check, skip_opset_compatibility_check, check_custom_domain)
    _checker.check_model_path(_messages.file_path(path), *options)


def check_value_info(value_info: Buffer | Message, checker_context: CheckerContext | None = None) -> None:
    """Checks a ValueInfoProto, without a context as part of a model of the newest versions."""
    content = _messages.serialized(value_info, "ValueInfoProto")
    _checker.check_value_info(content, _context_or_newest(checker_context))


def check_tensor(tensor: Buffer | Message, checker_context: CheckerContext | None = None) -> None:
    """Checks a TensorProto, without a context as part of a model of the newest versions."""
    _checker.check_tensor(_messages.serialized(tensor, "TensorProto"), _context_or_newest(checker_context))


def check_sparse_tensor(
    sparse_tensor: Buffer | Message, checker_context: CheckerContext | None = None
) -> None:
    """Checks a SparseTensorProto, without a context as part of a model of the newest versions."""
    content = _messages.serialized(sparse_tensor, "SparseTensorProto")
    _checker.check_sparse_tensor(content, _context_or_newest(checker_context))


def check_attribute(
    attribute: Buffer | Message,
    checker_context: CheckerContext | None = None,
    lexical_scope_context: LexicalScopeContext | None = None,
) -> None:
    """Checks an AttributeProto, without a context as part of a model of the newest versions."""
    content = _messages.serialized(attribute, "AttributeProto")
    _checker.check_attribute(content, _context_or_newest(checker_context), _scope_or_empty(lexical_scope_context))


def check_node(
    node: Buffer | Message,
    checker_context: CheckerContext | None = None,
    lexical_scope_context: LexicalScopeContext | None = None,
) -> None:
    """Checks a NodeProto, without a context as part of a model of the newest versions."""
    content = _messages.serialized(node, "NodeProto")
    _checker.check_node(content, _context_or_newest(checker_context), _scope_or_empty(lexical_scope_context))


def check_function(
    function: Buffer | Message,
    checker_context: CheckerContext | None = None,
    lexical_scope_context: LexicalScopeContext | None = None,
) -> None:
    """Checks a FunctionProto, without a context as part of a model of the newest versions."""
    content = _messages.serialized(function, "FunctionProto")
    _checker.check_function(content, _context_or_newest(checker_context), _scope_or_empty(lexical_scope_context))


def check_graph(
    graph: Buffer | Message,
    checker_context: CheckerContext | None = None,
    lexical_scope_context: LexicalScopeContext | None = None,
) -> None:
    """Checks a GraphProto, without a context as part of a model of the newest versions."""
    content = _messages.serialized(graph, "GraphProto")
    _checker.check_graph(content, _context_or_newest(checker_context), _scope_or_empty(lexical_scope_context))


def _context_or_newest(context: CheckerContext | None) -> CheckerContext:
    """Returns ``context``, or one with the newest IR version and the newest version of every operator set."""
    if context is not None:
        return context
    context = CheckerContext()
    context.ir_version = _core.IR_VERSION
    versions = _core.defs.schema_version_map()
    context.opset_imports = {domain: newest for domain, (_, newest) in versions.items()}
    return context


def _scope_or_empty(context: LexicalScopeContext | None) -> LexicalScopeContext:
    return LexicalScopeContext() if context is None else context
