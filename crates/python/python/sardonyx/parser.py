"""Parses text to serialized messages: ``onnx.ModelProto.FromString(parse_model(text))`` makes an object of one."""

from __future__ import annotations

import typing as _t

from sardonyx import _messages
from sardonyx._core.parser import _parse

__all__ = [
    "Diagnostic",
    "ParseError",
    "parse_function",
    "parse_graph",
    "parse_model",
    "parse_node",
]


class Diagnostic(_t.NamedTuple):
    """A finding of the parser about a text."""

    is_error: bool
    """Whether the text cannot be parsed; False for a warning about a probable mistake."""
    line: int
    """Line of the text, from 1."""
    column: int
    """Column in that line, from 1, in characters."""
    message: str
    """Description of the finding."""
    help: str | None
    """Advice on how to correct the text, if there is any."""


class ParseError(ValueError):
    """Raised for a text that cannot be parsed.

    As a str it shows every diagnostic with its line of the text; :attr:`diagnostics` lists them.
    """

    diagnostics: list[Diagnostic]
    """Findings in the order of the text, at least one of them an error."""

    def __init__(self, shown: str, diagnostics: list[Diagnostic]) -> None:
        super().__init__(shown, diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        shown: str = self.args[0]
        return shown

    @property
    def line(self) -> int:
        """Line of the first error, from 1."""
        return self._first().line

    @property
    def column(self) -> int:
        """Column of the first error, from 1, in characters."""
        return self._first().column

    def _first(self) -> Diagnostic:
        return next(found for found in self.diagnostics if found.is_error)


def parse_model(text: str) -> bytes:
    """Parses a model in the notation to a serialized ModelProto. Raises :class:`ParseError`."""
    return _parse_part("model", text)


def parse_graph(text: str) -> bytes:
    """Parses a graph in the notation to a serialized GraphProto. Raises :class:`ParseError`."""
    return _parse_part("graph", text)


def parse_function(text: str) -> bytes:
    """Parses a function in the notation to a serialized FunctionProto. Raises :class:`ParseError`."""
    return _parse_part("function", text)


def parse_node(text: str) -> bytes:
    """Parses a node in the notation to a serialized NodeProto. Raises :class:`ParseError`."""
    return _parse_part("node", text)


def _parse_part(part: str, text: str) -> bytes:
    message, shown, wrong = _parse(part, _messages.text(text))
    if message is None:
        raise ParseError(shown, [Diagnostic(*found) for found in wrong])
    return message
