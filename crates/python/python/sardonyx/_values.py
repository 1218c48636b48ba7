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
