"""Functions on model files, in the form of ``onnx.utils``."""

from __future__ import annotations

import os as _os
import typing as _t

from sardonyx import _messages
from sardonyx import checker as _checker
from sardonyx._core import session as _session

if _t.TYPE_CHECKING:
    from collections.abc import Sequence

    from sardonyx.typing import StrPath

__all__ = ["extract_model"]


def extract_model(
    input_path: StrPath,
    output_path: StrPath,
    input_names: Sequence[str],
    output_names: Sequence[str],
    check_model: bool = True,
    infer_shapes: bool = True,
) -> None:
    """Writes the part of a model file between two lists of values as a model file.

    Takes the arguments of ``onnx.utils.extract_model``. ``check_model`` checks both models; the new model is always checked for
    errors that the old one does not have. Types of inputs and outputs that the model does not declare are inferred in any case;
    ``infer_shapes`` exists for callers of that function. A part that reads inputs of the model beyond ``input_names`` raises ValueError, as do
    names that the model does not have and names that are listed twice. Values in data files are copied to a data file beside
    the new model. :func:`sardonyx.extract` has more selections and takes models in memory.
    """
    source, target = _messages.file_path(input_path), _messages.file_path(output_path)
    if not _os.path.exists(source):
        raise ValueError(f"input_path is {source!r}, which does not exist")
    if not target:
        raise ValueError("output_path is empty")
    inputs = _messages.names(input_names, "input_names")
    outputs = _messages.names(output_names, "output_names")
    for argument, names in (("input_names", inputs), ("output_names", outputs)):
        if not names:
            raise ValueError(f"{argument} is empty")
    if check_model:
        _checker.check_model(source)
    added, refusal = _session.extract_file(source, target, inputs, outputs)
    if refusal is not None:
        raise ValueError(refusal)
    if added:
        raise ValueError(f"the part also reads inputs that input_names does not list: {', '.join(added)}")
    if check_model:
        _checker.check_model(target)
