"""From text to messages, as bytes: ``onnx.ModelProto.FromString(parse_model(text))`` makes an object of them."""

from __future__ import annotations

from typing import NamedTuple

from sardonyx._core.parser import _parse
from sardonyx._messages import text as _text

__all__ = [
    "Diagnostic",
    "ParseError",
    "parse_function",
    "parse_graph",
    "parse_model",
    "parse_node",
]


class Diagnostic(NamedTuple):
    """Something that is wrong with a text."""

    is_error: bool
    """Whether the text has no meaning; otherwise it has one, but probably not the one that was wanted."""
    line: int
    """Line of the text, from 1."""
    column: int
    """Column in that line, from 1, in characters."""
    message: str
    """What is wrong."""
    help: str | None
    """What to do about it."""


class ParseError(ValueError):
    """A text cannot be read.

    As text it shows every diagnostic with its line; :attr:`diagnostics` has them one by one.
    """

    diagnostics: list[Diagnostic]
    """Everything that is wrong, in the order of the text. At least one of them is an error."""

    def __init__(self, shown: str, diagnostics: list[Diagnostic]) -> None:
        super().__init__(shown, diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return self.args[0]

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
    """A model in the notation as a serialized ModelProto. Raises :class:`ParseError`."""
    return _read("model", text)


def parse_graph(text: str) -> bytes:
    """A graph in the notation as a serialized GraphProto. Raises :class:`ParseError`."""
    return _read("graph", text)


def parse_function(text: str) -> bytes:
    """A function in the notation as a serialized FunctionProto. Raises :class:`ParseError`."""
    return _read("function", text)


def parse_node(text: str) -> bytes:
    """A node in the notation as a serialized NodeProto. Raises :class:`ParseError`."""
    return _read("node", text)


def _read(part: str, text: str) -> bytes:
    message, shown, wrong = _parse(part, _text(text))
    if message is None:
        raise ParseError(shown, [Diagnostic(*found) for found in wrong])
    return message
