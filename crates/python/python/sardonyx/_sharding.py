"""Division of models among several devices."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal, overload

from sardonyx._core import session as _session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sardonyx._messages import BytesSource, M
    from sardonyx.typing import Message, ModelLike


@overload
def shard(
    model: M,
    devices: int | None = None,
    *,
    tensor: bool = False,
    pipeline: bool = False,
    batch: bool = False,
    name: str | None = None,
    dims: dict[str, int] | None = None,
    local: Literal[False] = False,
    configuration: str | None = None,
    collectives: str = "microsoft",
) -> M: ...
@overload
def shard(
    model: M,
    devices: int | None = None,
    *,
    tensor: bool = False,
    pipeline: bool = False,
    batch: bool = False,
    name: str | None = None,
    dims: dict[str, int] | None = None,
    local: Literal[True],
    configuration: str | None = None,
    collectives: str = "microsoft",
) -> list[M]: ...
@overload
def shard(
    model: BytesSource,
    devices: int | None = None,
    *,
    tensor: bool = False,
    pipeline: bool = False,
    batch: bool = False,
    name: str | None = None,
    dims: dict[str, int] | None = None,
    local: Literal[False] = False,
    configuration: str | None = None,
    collectives: str = "microsoft",
) -> bytes: ...
@overload
def shard(
    model: BytesSource,
    devices: int | None = None,
    *,
    tensor: bool = False,
    pipeline: bool = False,
    batch: bool = False,
    name: str | None = None,
    dims: dict[str, int] | None = None,
    local: Literal[True],
    configuration: str | None = None,
    collectives: str = "microsoft",
) -> list[bytes]: ...
def shard(
    model: ModelLike,
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
) -> bytes | Message | Sequence[bytes | Message]:
    """Adds annotations to a model that divide it among ``devices``; with ``local``, returns a list of models, one for each rank.

    Divides like the command ``sardonyx shard``. ``model`` is a path, bytes, or an object with ``SerializeToString``; the
    result is an object of the same class, or bytes. Values in the data files of a model at a path are copied into it.
    Annotations do not change results: :class:`sardonyx.distributed.Worker` uses them, ``Session`` does not.

    ``tensor`` splits products with constant matrices of at least 4096 elements, and tables of at least 1048576 elements;
    this is the default. ``pipeline`` divides the nodes into one stage for each device. ``batch`` splits the first axis of the
    inputs. ``name`` names the configuration; by default ``tensor-N``, ``pipeline-N`` or ``batch-N``. ``dims`` gives sizes for
    dimensions that the model leaves open, by name; for annotations, typical sizes are enough.

    With ``local``, the model of each rank has ordinary nodes on shards of tensors, connected by ``collectives`` of an engine:
    ``microsoft`` (ONNX Runtime) or ``tensorrt``. :class:`sardonyx.distributed.Rank` runs it. Its sizes are fixed, so ``dims``
    must name all open dimensions; ``x[0]`` stands for a dimension without a name. Without ``devices``, the annotations of the
    model are used; ``configuration`` selects one of several configurations.

    Warns if no node can be divided. Raises ``sardonyx.Error`` with the code ``argument`` if options contradict each other or
    do not match the model.
    """
    arguments: dict[str, object] = {
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
