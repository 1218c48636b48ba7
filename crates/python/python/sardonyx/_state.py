"""The state of a trainer as a mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sardonyx._core.session import Snapshot


class State(Mapping[str, Any]):
    """The values of state variables at one moment, by name. Later steps do not change it.

    Each look-up makes an array of its own, so writing to one changes nothing else: that is what
    :meth:`sardonyx.Trainer.set_state` does.
    """

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, name: str) -> Any:
        return self._snapshot.value(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._snapshot.names())

    def __len__(self) -> int:
        return len(self._snapshot.names())

    def __contains__(self, name: object) -> bool:
        return name in self._snapshot.names()

    @property
    def types(self) -> dict[str, str]:
        """The types of the variables in ONNX text, such as ``float[2, 3]``, by name."""
        return dict(zip(self._snapshot.names(), self._snapshot.types(), strict=True))

    def __repr__(self) -> str:
        return "State(" + ", ".join(f"{name}: {type}" for name, type in self.types.items()) + ")"
