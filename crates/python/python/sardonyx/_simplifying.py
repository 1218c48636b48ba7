"""Simplification of models: the same results with fewer nodes."""

from __future__ import annotations

import typing as _t

from sardonyx import _messages
from sardonyx._core import simplifier as _simplifier

if _t.TYPE_CHECKING:
    from collections.abc import Sequence

    from sardonyx._messages import BytesSource, M
    from sardonyx.typing import Message, ModelLike


@_t.overload
def simplify(
    model: M, *, level: str = "exact", grow: int | None = None, without: Sequence[str] = (), verify: bool = True
) -> M: ...
@_t.overload
def simplify(
    model: BytesSource, *, level: str = "exact", grow: int | None = None, without: Sequence[str] = (), verify: bool = True
) -> bytes: ...
def simplify(
    model: ModelLike,
    *,
    level: str = "exact",
    grow: int | None = None,
    without: Sequence[str] = (),
    verify: bool = True,
) -> bytes | Message:
    """Replaces a model by one that computes the same with fewer nodes, at the same versions of operator sets.

    The model is a path, bytes, or an object with ``SerializeToString``. The result is an object of the same class, or bytes
    for bytes and for a path. Values in the data files of a model at a path are copied into it. Inputs, outputs, their types and
    metadata stay.

    At the level ``exact`` results keep their bits; at ``close`` floating-point operations are merged, so that results change by
    rounding. ``grow`` bounds by how many bytes computed constants may make the model larger: by default a hundredth of its constants,
    but at least 16 KiB and at most 1 MiB. ``without`` names rules that are left out. Each rewrite is run on drawn values, before and
    after, and left out if the results differ, unless ``verify`` is False.

    Raises ValueError for a level or a rule that does not exist, and RuntimeError for a model that cannot run.
    """
    content = _messages.model_content(model)
    simplified = _simplifier.simplify(content, level, grow, list(without), verify)
    return _messages.like(model, simplified)
