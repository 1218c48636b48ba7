"""Models divided among several devices."""

from __future__ import annotations

import warnings
from typing import Any

from sardonyx._core import session as _session


def shard(
    model: Any,
    devices: int | None = None,
    *,
    tensor: bool = False,
    pipeline: bool = False,
    batch: bool = False,
    name: str | None = None,
    dims: dict[str, int] | None = None,
    local: bool = False,
    configuration: str | None = None,
    collectives: str = "microsoft",
) -> Any:
    """The model with annotations that divide it among ``devices``; with ``local``, a list of models, one for each rank.

    It does what the command ``sardonyx shard`` does. ``model`` is what ``Session`` opens: a path, bytes, or an object with
    ``SerializeToString``; each answer is an object of the same class, or bytes. What a model at a path has in data files is
    inside the answer. Annotations do not change results: :class:`sardonyx.distributed.Worker` uses them, ``Session`` does not.

    ``tensor`` splits products with constant matrices of at least 4096 elements, and tables of at least 1048576 elements; this is
    the default. ``pipeline`` divides the nodes into one stage for each device. ``batch`` splits the first axis of the inputs.
    ``name`` is the name of the configuration; by default ``tensor-N``, ``pipeline-N`` or ``batch-N``. ``dims`` are sizes that the
    model leaves open, by name: for the annotations it is enough that they are typical ones.

    With ``local``, the model of each rank has ordinary nodes on parts, and ``collectives`` of an engine between them: those of
    ``microsoft`` (ONNX Runtime) or ``tensorrt``. :class:`sardonyx.distributed.Rank` runs it. Its sizes are fixed, so ``dims`` must
    name all that are open; ``x[0]`` stands for a size without a name. Without ``devices``, the annotations of the model are used,
    those of ``configuration`` if it has several.

    Warns if the devices would have nothing to do apart. Raises ``sardonyx.Error`` with the code ``argument`` if options contradict
    each other or do not match the model.
    """
    arguments = {
        "devices": devices,
        "tensor": tensor,
        "pipeline": pipeline,
        "batch": batch,
        "name": name,
        "local": local,
        "configuration": configuration,
        "collectives": collectives,
    }
    models, undivided = _session.shard(model, arguments, dims)
    if undivided is not None:
        warnings.warn(f"the model is not divided: {undivided}", stacklevel=2)
    return models if local else models[0]
