"""Values of models that Python has no type for."""

from __future__ import annotations

from typing import Any, NamedTuple


class SparseTensor(NamedTuple):
    """A tensor of which only some elements are given; the others are 0, false or "".

    ``values`` are the elements, ``indices`` their positions in the order of rows, and ``shape`` the sizes of the whole.
    Outputs that a model declares as sparse are returned so, and such inputs may be given so, or as arrays.
    """

    values: Any
    indices: Any
    shape: tuple[int, ...]


class OutputPart(NamedTuple):
    """What a device has of an output after a run of workers that were made with ``results="split"``.

    ``device`` is the number of the device, ``shape`` the sizes of the whole output, and ``value`` what the device has of it.
    ``ranges`` has, for each axis, the indices of that in the whole output, as pairs of the first index and the one after the last.
    Where several devices have the same part, each gives it.
    """

    device: int
    shape: tuple[int, ...]
    ranges: tuple[tuple[tuple[int, int], ...], ...]
    value: Any
