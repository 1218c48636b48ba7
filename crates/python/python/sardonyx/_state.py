"""The state of a trainer as a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sardonyx.typing import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sardonyx._core.session import Snapshot


class State(Mapping[str, Value]):
    """A snapshot of the state variables of a trainer, by name. Later training steps do not change it.

    Each lookup returns a new array, so writing to one changes neither the snapshot nor the trainer;
    :meth:`sardonyx.Trainer.set_state` changes the trainer.
    """

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, name: str) -> Value:
        return self._snapshot.value(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._snapshot.names())

    def __len__(self) -> int:
        return len(self._snapshot.names())

    def __contains__(self, name: object) -> bool:
        return name in self._snapshot.names()

    @property
    def types(self) -> dict[str, str]:
        """ONNX types of the variables by name, such as ``float[2, 3]``."""
        return dict(zip(self._snapshot.names(), self._snapshot.types(), strict=True))

    def __repr__(self) -> str:
        return "State(" + ", ".join(f"{name}: {type}" for name, type in self.types.items()) + ")"
