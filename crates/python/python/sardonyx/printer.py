"""From messages to text."""

from sardonyx._core.printer import (
    function_to_text,
    graph_to_text,
    model_to_text,
    node_to_text,
)

__all__ = ["function_to_text", "graph_to_text", "model_to_text", "node_to_text"]
