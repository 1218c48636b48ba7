"""Parts of models, small examples of problems, and differences between models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from sardonyx import _messages
from sardonyx._core import session as _session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sardonyx._messages import BytesSource, M
    from sardonyx.typing import Message, ModelLike

# Any: a check takes objects of the class of the model, and differences are JSON.


@overload
def extract(
    model: BytesSource,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    *,
    node: str | None = None,
    depth: int = 0,
    inside: str | None = None,
    graph: str | None = None,
) -> bytes: ...
@overload
def extract(
    model: M,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    *,
    node: str | None = None,
    depth: int = 0,
    inside: str | None = None,
    graph: str | None = None,
) -> M: ...
def extract(
    model: ModelLike,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    *,
    node: str | None = None,
    depth: int = 0,
    inside: str | None = None,
    graph: str | None = None,
) -> bytes | Message:
    """Makes a model of a part of a model, with the nodes, constants, functions, imports and annotations that it needs.

    ``model`` is a path, bytes, or an object with ``SerializeToString``; the result is an object of the same class, or bytes.
    ``inputs`` lists the values at which the part begins: inputs, results of nodes or constants, by name or by patterns such as
    ``layer.3.*``; of the values that fit a pattern, those that the part reads become inputs. By default it begins at the inputs
    of the model. ``outputs`` lists the values at which it ends; by default these are the outputs of the model that are computed
    from ``inputs``. Values that the part reads and that are not listed become further inputs.

    ``node`` selects a node instead, by its name, the name of one of its outputs, or its position, with the nodes up to ``depth``
    values before and after it. ``inside`` selects the graph in a node, or the body of the function that it calls; ``graph`` is
    the name of its attribute, such as ``then_branch``, if the node has several. Values of the graphs around become inputs, and
    their constants constants.

    Raises ``sardonyx.Error`` if names do not fit the model, or if the type of an input or output is unknown.
    """
    arguments: dict[str, object] = {
        "inputs": None if inputs is None else _messages.names(inputs, "inputs"),
        "outputs": None if outputs is None else _messages.names(outputs, "outputs"),
        "node": node,
        "depth": depth,
        "inside": inside,
        "graph": graph,
    }
    return _session.extract(model, arguments)


@overload
def reduce(
    model: BytesSource, check: Callable[[bytes], object], *, limit: int = 10_000
) -> bytes: ...
@overload
def reduce(model: M, check: Callable[[M], object], *, limit: int = 10_000) -> M: ...
def reduce(
    model: ModelLike, check: Callable[[Any], object], *, limit: int = 10_000
) -> bytes | Message:
    """Reduces a model to a small one for which a check still fails, as an example of a problem.

    ``model`` is a path, bytes, or an object with ``SerializeToString``; the result is an object of the same class, or bytes.
    ``check`` gets a candidate in the same form and returns whether the problem still shows. Outputs, nodes, inputs, attributes
    and texts are removed, graphs of nodes entered, constants replaced by nodes that generate zeros, and sizes lowered. The order
    of candidates depends on the model and the answers alone. At most ``limit`` candidates are checked.

    Raises ValueError if ``check`` returns False for the model itself, and what ``check`` raises.
    """
    reduced = _session.reduce(model, check, limit)
    if reduced is None:
        raise ValueError("check returned False for the model itself: it must return True as long as the problem shows")
    return reduced


def diff(before: ModelLike, after: ModelLike, *, values: bool = True) -> dict[str, Any]:
    """Returns the differences between two models, in the form that ``sardonyx diff --json`` prints.

    Each model is a path, bytes, or an object with ``SerializeToString``. Nodes are matched by the values that they produce, then
    by what they compute, then by order, so that renamed nodes are renamed and not removed and added. ``equal`` is True if there
    are none. ``version`` has the part of the version number that the changes ask to raise: ``major`` if callers of the first
    model may fail with the second one, ``minor`` if they need no change, ``patch`` if the interface is the same;
    ``weights_only`` is True if only values of constants differ. Without ``values``, only types and shapes of constants are
    compared.

    Raises ``sardonyx.Error`` if a model cannot be read.
    """
    import json

    found: dict[str, Any] = json.loads(_session.diff(before, after, values))
    return found
