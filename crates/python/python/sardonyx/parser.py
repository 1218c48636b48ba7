"""From text to messages: each function gives whether that went well, what is wrong, and the message."""

from sardonyx._core.parser import parse_function, parse_graph, parse_model, parse_node

__all__ = ["parse_function", "parse_graph", "parse_model", "parse_node"]
