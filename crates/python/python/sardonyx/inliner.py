"""Calls of functions replaced by what the functions do. Models are paths, objects such as ``onnx.ModelProto``, or
bytes. The answer is an object of the same class, or bytes; what a model at a path has in data files is inside.

Names of values stay; what comes out of a body is called after the call. Functions that nothing calls any more are removed. A
function that calls itself, directly or not, raises ``checker.ValidationError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from sardonyx._core import inliner as _inliner
from sardonyx._messages import Bytes, M, Path, like, model_content

__all__ = ["inline_local_functions", "inline_selected_functions"]


@overload
def inline_local_functions(model: Bytes | Path, convert_version: bool = False) -> bytes: ...
@overload
def inline_local_functions(model: M, convert_version: bool = False) -> M: ...
def inline_local_functions(model: Any, convert_version: bool = False) -> Any:
    """The model without calls of its functions.

    Calls of functions that import other versions of operator sets stay where operators are not the same in both. With
    convert_version such functions are converted first, as far as an exact equivalent exists.
    """
    content = model_content(model)
    return like(model, _inliner.inline_local_functions(content, convert_version))


@overload
def inline_selected_functions(
    model: Bytes | Path,
    function_ids: Sequence[tuple[str, str]],
    exclude: bool = False,
    inline_schema_functions: bool = False,
) -> bytes: ...
@overload
def inline_selected_functions(
    model: M,
    function_ids: Sequence[tuple[str, str]],
    exclude: bool = False,
    inline_schema_functions: bool = False,
) -> M: ...
def inline_selected_functions(
    model: Any,
    function_ids: Sequence[tuple[str, str]],
    exclude: bool = False,
    inline_schema_functions: bool = False,
) -> Any:
    """The model without calls of some functions, each named by domain and name; with exclude, of all others.

    With inline_schema_functions the same counts for operators that the standard defines by other operators. A function whose
    operators are not the same at the versions of the model raises RuntimeError.
    """
    content = model_content(model)
    inline = (
        _inliner.inline_selected_functions2
        if inline_schema_functions
        else _inliner.inline_selected_functions
    )
    return like(model, inline(content, function_ids, exclude))
