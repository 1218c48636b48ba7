"""From messages to text. Messages are objects, such as ``onnx.ModelProto``, or bytes; a model may be a path, too."""

from __future__ import annotations

from sardonyx._core import printer as _printer
from sardonyx._messages import Path, Serialized, model_content, serialized

__all__ = ["function_to_text", "graph_to_text", "model_to_text", "node_to_text"]


def model_to_text(model: Serialized | Path) -> str:
    """A ModelProto in the notation, or the model at a path with the values of its data files."""
    return _printer.model_to_text(model_content(model))


def graph_to_text(graph: Serialized) -> str:
    """A GraphProto in the notation."""
    return _printer.graph_to_text(serialized(graph, "GraphProto"))


def function_to_text(function: Serialized) -> str:
    """A FunctionProto in the notation."""
    return _printer.function_to_text(serialized(function, "FunctionProto"))


def node_to_text(node: Serialized) -> str:
    """A NodeProto in the notation."""
    return _printer.node_to_text(serialized(node, "NodeProto"))
