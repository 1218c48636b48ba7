"""Training information and gradients for models without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from sardonyx import _messages
from sardonyx._core import session as _session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sardonyx._messages import BytesSource, M
    from sardonyx.typing import Message, ModelLike


@overload
def add_training(
    model: BytesSource,
    loss: str | None = None,
    *,
    loss_value: str | None = None,
    of: str | None = None,
    class_axis: int | None = None,
    ignore_class: int | None = None,
    optimizer: str = "sgd",
    learning_rate: float | None = None,
    momentum: float | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    epsilon: float | None = None,
    rate_decay: float | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    optimizer_operator: bool = False,
    train: Sequence[str] | None = None,
    freeze: Sequence[str] = (),
    init: str = "keep",
    training_mode: bool = False,
    gradient_nodes: bool = False,
    float_copies: bool = True,
) -> bytes: ...
@overload
def add_training(
    model: M,
    loss: str | None = None,
    *,
    loss_value: str | None = None,
    of: str | None = None,
    class_axis: int | None = None,
    ignore_class: int | None = None,
    optimizer: str = "sgd",
    learning_rate: float | None = None,
    momentum: float | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    epsilon: float | None = None,
    rate_decay: float | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    optimizer_operator: bool = False,
    train: Sequence[str] | None = None,
    freeze: Sequence[str] = (),
    init: str = "keep",
    training_mode: bool = False,
    gradient_nodes: bool = False,
    float_copies: bool = True,
) -> M: ...
def add_training(
    model: ModelLike,
    loss: str | None = None,
    *,
    loss_value: str | None = None,
    of: str | None = None,
    class_axis: int | None = None,
    ignore_class: int | None = None,
    optimizer: str = "sgd",
    learning_rate: float | None = None,
    momentum: float | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    epsilon: float | None = None,
    rate_decay: float | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    optimizer_operator: bool = False,
    train: Sequence[str] | None = None,
    freeze: Sequence[str] = (),
    init: str = "keep",
    training_mode: bool = False,
    gradient_nodes: bool = False,
    float_copies: bool = True,
) -> bytes | Message:
    """Adds training information to a model: a loss, its gradients by the weights, and one step of an optimizer.

    :class:`sardonyx.Trainer` trains the result. ``model`` is a path, bytes, or an object with ``SerializeToString``; the result
    is an object of the same class, or bytes. Values in the data files of a model at a path are copied into it. The main graph
    stays unchanged.

    ``loss`` is ``cross-entropy`` between class scores and a new input ``label`` of class numbers (int64), or ``squared-error``
    between an output and a new input ``target``. ``of`` names the output that the loss compares; by default the only one.
    ``class_axis`` is the axis of classes. Examples of the class ``ignore_class`` do not contribute. ``loss_value`` uses a value
    of the model as the loss instead.

    ``optimizer`` is ``sgd``, ``momentum``, ``nesterov``, ``adagrad``, ``adam`` or ``adamw``. ``learning_rate`` is the default of
    the input ``learning_rate`` of each step: 0.01, and 0.001 for adam and adamw. The other hyperparameters are 0.9 for
    ``momentum`` and ``beta1``, 0.999 for ``beta2``, 1e-8 for ``epsilon`` of adam and adamw and 1e-10 for that of adagrad, 0 for
    ``rate_decay`` (of adagrad), and 0 for ``weight_decay`` (0.01 for adamw); one that the optimizer does not have is refused.
    ``clip_norm`` scales all gradients by one factor so that their global L2 norm is at most this; ``clip_value`` clamps each
    element of the gradients.

    ``train`` and ``freeze`` are lists of patterns such as ``classifier.*``: names of initializers that are trained, and that are
    not. By default all initializers that nodes read as weights are trained. ``init`` selects the weights after
    ``Trainer.initialize``: ``keep`` (stored values), ``he``, ``xavier`` or ``uniform:BOUND``. ``training_mode`` runs Dropout and
    BatchNormalization in training mode. ``gradient_nodes`` and ``optimizer_operator`` write operators of
    ``ai.onnx.preview.training`` in place of operators of ``ai.onnx``. ``float_copies`` keeps a float master copy of each weight of
    float16 or bfloat16 in a further state variable; without it, a step below half a unit in the last place of a weight is lost.

    Raises ``sardonyx.Error`` if options do not fit the model (code ``input``), or if operators on the path to the loss have no
    gradient (code ``invalid``); the message lists them.
    """
    arguments: dict[str, object] = dict(locals())
    del arguments["model"]
    arguments["train"] = None if train is None else _messages.names(train, "train")
    arguments["freeze"] = _messages.names(freeze, "freeze")
    return _session.add_training(model, arguments)


@overload
def differentiate(
    model: BytesSource,
    *,
    of: str | None = None,
    by: Sequence[str] | None = None,
    gradient_node: bool = False,
    expand: bool = False,
) -> bytes: ...
@overload
def differentiate(
    model: M,
    *,
    of: str | None = None,
    by: Sequence[str] | None = None,
    gradient_node: bool = False,
    expand: bool = False,
) -> M: ...
def differentiate(
    model: ModelLike,
    *,
    of: str | None = None,
    by: Sequence[str] | None = None,
    gradient_node: bool = False,
    expand: bool = False,
) -> bytes | Message:
    """Adds gradients to a model as further outputs, each named after its value with ``_grad``, in its type and shape.

    ``model`` is a path, bytes, or an object with ``SerializeToString``; the result is an object of the same class, or bytes.
    ``of`` is the value to differentiate; by default the only output. If it is no scalar, the gradients are those of the sum of
    its elements. ``by`` lists the values by which it is differentiated: inputs and initializers by patterns such as
    ``*.weight``, other values by name; by default all inputs and initializers of floats. The added nodes are operators of
    ``ai.onnx``, so any runtime runs them; ``gradient_node`` adds one Gradient node of ``ai.onnx.preview.training`` in their
    place. ``expand`` adds no outputs, and replaces the Gradient nodes of the model by the nodes that compute them.

    Raises ``sardonyx.Error`` if options do not fit the model (code ``input``), or if operators between the values have no
    gradient (code ``invalid``).
    """
    arguments: dict[str, object] = {
        "of": of,
        "by": None if by is None else _messages.names(by, "by"),
        "gradient_node": gradient_node,
        "expand": expand,
    }
    return _session.differentiate(model, arguments)
