"""Prints messages as text. Messages are objects, such as ``onnx.ModelProto``, or bytes; a model may be a path, too."""

from __future__ import annotations

import typing as _t

from sardonyx import _messages
from sardonyx._core import printer as _printer

if _t.TYPE_CHECKING:
    from typing_extensions import Buffer

    from sardonyx.typing import Message, ModelLike

__all__ = ["function_to_text", "graph_to_text", "model_to_text", "node_to_text"]


def model_to_text(model: ModelLike) -> str:
    """Prints a ModelProto in the notation. Values in the data files of a model at a path are printed inline."""
    return _printer.model_to_text(_messages.model_content(model))


def graph_to_text(graph: Buffer | Message) -> str:
    """Prints a GraphProto in the notation."""
    return _printer.graph_to_text(_messages.serialized(graph, "GraphProto"))


def function_to_text(function: Buffer | Message) -> str:
    """Prints a FunctionProto in the notation."""
    return _printer.function_to_text(_messages.serialized(function, "FunctionProto"))


def node_to_text(node: Buffer | Message) -> str:
    """Prints a NodeProto in the notation."""
    return _printer.node_to_text(_messages.serialized(node, "NodeProto"))
