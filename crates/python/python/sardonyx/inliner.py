"""Replaces calls of functions by the bodies of the functions. Models are paths, objects such as ``onnx.ModelProto``, or bytes.

The result is an object of the same class, or bytes for bytes and for a path. Values in the data files of a model at a path
are copied into it.

Names of values stay; values from a body are prefixed with the name of the call. Functions that are no longer called are
removed. Recursive functions raise ``checker.ValidationError``.
"""

from __future__ import annotations

import typing as _t

from sardonyx import _messages
from sardonyx._core import inliner as _inliner

if _t.TYPE_CHECKING:
    from collections.abc import Sequence

    from sardonyx._messages import BytesSource, M
    from sardonyx.typing import Message, ModelLike

__all__ = ["inline_local_functions", "inline_selected_functions"]


@_t.overload
def inline_local_functions(model: M, convert_version: bool = False) -> M: ...
@_t.overload
def inline_local_functions(model: BytesSource, convert_version: bool = False) -> bytes: ...
def inline_local_functions(model: ModelLike, convert_version: bool = False) -> bytes | Message:
    """Inlines all functions of a model.

    Calls of functions that import other versions of operator sets stay where an operator differs between the versions.
    ``convert_version`` converts such functions first, as far as an exact equivalent exists.
    """
    content = _messages.model_content(model)
    return _messages.like(model, _inliner.inline_local_functions(content, convert_version))


@_t.overload
def inline_selected_functions(
    model: M,
    function_ids: Sequence[tuple[str, str]],
    exclude: bool = False,
    inline_schema_functions: bool = False,
) -> M: ...
@_t.overload
def inline_selected_functions(
    model: BytesSource,
    function_ids: Sequence[tuple[str, str]],
    exclude: bool = False,
    inline_schema_functions: bool = False,
) -> bytes: ...
def inline_selected_functions(
    model: ModelLike,
    function_ids: Sequence[tuple[str, str]],
    exclude: bool = False,
    inline_schema_functions: bool = False,
) -> bytes | Message:
    """Inlines the functions that ``function_ids`` lists by domain and name, or with ``exclude`` all others.

    ``inline_schema_functions`` extends the selection to operators that the standard defines by other operators. A function
    whose operators differ between its versions of operator sets and the model's raises RuntimeError.
    """
    content = _messages.model_content(model)
    inline = (
        _inliner.inline_selected_functions2
        if inline_schema_functions
        else _inliner.inline_selected_functions
    )
    return _messages.like(model, inline(content, function_ids, exclude))
