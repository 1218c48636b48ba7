"""Changes of the running interpreter that can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class Undoable:
    """A change that can be undone. As a context manager, it undoes the change at the end of the block."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def undo(self) -> None:
        """Undoes the change. Further calls have no effect."""
        undo, self._undo = self._undo, _do_nothing
        undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def _do_nothing() -> None:
    pass
