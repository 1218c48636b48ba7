"""Comparison of two models by the values that they compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sardonyx._core import session as _session

if TYPE_CHECKING:
    from sardonyx.typing import ModelLike

# Any: values are whatever numpy takes, and the result is JSON.

def compare(
    model: ModelLike,
    other: ModelLike | Mapping[str, Any] | None,
    inputs: Mapping[str, Any] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    all: bool = False,
    bisect: bool = False,
    seed: int = 0,
    dims: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Runs two models on the same inputs and finds the first value that differs.

    Each model is a path, bytes, or an object with ``SerializeToString``. ``other`` may also be a dict of stored values by name,
    such as those of another runtime, or None, which compares the model with itself computed in double. Values are matched by
    name, by what computes them, and by position. The models run in turn, in segments, so that only live values are in memory.

    ``inputs`` has values of the first model's inputs; the others are drawn from ``seed``, with ``dims`` as the sizes of symbolic
    dimensions. Without ``rtol`` and ``atol``, elements of float and double may differ by 1e-3 of the element plus 1e-4 of the
    largest element of the tensor; shorter floats by more, integers not. ``all`` compares the values after the first difference
    too and lists them. ``bisect`` follows a differing output backwards, by runs of both models, which takes the memory of one
    usual run.

    Returns a dict in the form that ``sardonyx compare --json`` prints: ``first`` is the first value that differs, or None,
    ``part`` the smallest parts of both models that compute it from values that agree, ``compared`` and ``differing`` are
    numbers of values, and ``values`` lists all compared values if ``all`` is True.

    Raises ``sardonyx.Error`` if a model cannot be run, or if inputs do not fit.
    """
    import json

    arguments: dict[str, object] = {
        "rtol": rtol,
        "atol": atol,
        "seed": seed,
        "all": all,
        "bisect": bisect,
    }
    stored = dict(other) if isinstance(other, Mapping) else other
    answer = json.loads(_session.compare(model, stored, inputs, dims, arguments))
    found: dict[str, Any] = answer["comparison"]
    if all:
        found["values"] = answer["values"]
    return found
