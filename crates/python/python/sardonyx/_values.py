"""Values of models for which Python has no type."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sardonyx.typing import Value


class SparseTensor(NamedTuple):
    """A tensor that stores only some elements; the others are 0, False or "".

    Outputs that a model declares as sparse are returned in this form. Inputs that a model declares as sparse may have this
    form or be arrays.
    """

    values: Value
    """Stored elements."""
    indices: Value
    """Positions of the stored elements, in row-major order."""
    shape: tuple[int, ...]
    """Shape of the whole tensor."""


class OutputPart(NamedTuple):
    """The part of an output that one device holds after a run of workers with ``results="split"``.

    Devices that hold the same part give it once each.
    """

    device: int
    """Number of the device."""
    shape: tuple[int, ...]
    """Shape of the whole output."""
    ranges: tuple[tuple[tuple[int, int], ...], ...]
    """For each axis, the indices of the part in the whole output, as half-open pairs ``(first, end)``."""
    value: Value
    """Elements of the part."""
