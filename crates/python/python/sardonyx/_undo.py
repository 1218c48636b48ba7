"""What takes the place of another package until it is undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound="Undoable")


class Undoable:
    """A change that can be undone. A context manager; leaving it undoes the change."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def undo(self) -> None:
        """Undo the change. Calling it again has no effect."""
        undo, self._undo = self._undo, lambda: None
        undo()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()
