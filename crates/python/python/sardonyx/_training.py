"""Training and gradients for models that have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx._core import session as _session


def add_training(
    model: Any,
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
    train: str | Sequence[str] | None = None,
    freeze: str | Sequence[str] = (),
    init: str = "keep",
    training_mode: bool = False,
    gradient_nodes: bool = False,
    float_copies: bool = True,
) -> Any:
    """The model with an entry of training information: a loss, its gradients by the weights, and one step of an optimizer.

    :class:`sardonyx.Trainer` runs it. ``model`` is what ``Session`` opens: a path, bytes, or an object with
    ``SerializeToString``; the answer is an object of the same class, or bytes. What a model at a path has in data files is inside
    the answer. The main graph computes what it did.

    ``loss`` is ``cross-entropy`` between class scores and a new input ``label`` of class numbers (int64), or ``squared-error``
    between an output and a new input ``target``. ``of`` names the output that the loss compares; by default the only one.
    ``class_axis`` is the axis of classes, and examples of the class ``ignore_class`` do not count. ``loss_value`` takes a value
    of the model as the loss instead.

    ``optimizer`` is ``sgd``, ``momentum``, ``nesterov``, ``adagrad``, ``adam`` or ``adamw``. ``learning_rate`` is the default of
    the input ``learning_rate`` of each step: 0.01, and 0.001 for adam and adamw. The other numbers are 0.9 for ``momentum`` and
    ``beta1``, 0.999 for ``beta2``, 1e-8 for ``epsilon`` of adam and adamw and 1e-10 for that of adagrad, 0 for ``rate_decay`` (of
    adagrad), and 0 for ``weight_decay`` (0.01 for adamw); one that the optimizer does not have is refused. ``clip_norm`` makes all
    gradients smaller by one factor where the root of the sum of all their squares is greater than it; ``clip_value`` limits each
    element of the gradients.

    ``train`` and ``freeze`` are patterns such as ``classifier.*`` for names of initializers that are trained, and that are not.
    By default those are trained that are read as weights. ``init`` says what weights are after ``Trainer.initialize``: ``keep``
    (what the model stores), ``he``, ``xavier`` or ``uniform:BOUND``. ``training_mode`` runs Dropout and BatchNormalization as in
    training. ``gradient_nodes`` and ``optimizer_operator`` write operators of ``ai.onnx.preview.training`` in the place of
    operators of ``ai.onnx``. ``float_copies`` keeps a float copy of weights of float16 and bfloat16, in a state variable of float
    beside each that has what rounding leaves off; without it a step below half a unit in the last place of a weight changes
    nothing.

    Raises ``sardonyx.Error`` if options do not fit the model (code ``input``), or if operators on the way to the loss have no
    gradient (code ``invalid``); the message lists them.
    """
    arguments = dict(locals())
    del arguments["model"]
    arguments["train"] = None if train is None else _listed(train)
    arguments["freeze"] = _listed(freeze)
    return _session.add_training(model, arguments)


def differentiate(
    model: Any,
    *,
    of: str | None = None,
    by: str | Sequence[str] | None = None,
    gradient_node: bool = False,
    expand: bool = False,
) -> Any:
    """The model with gradients as further outputs, each called after its value with ``_grad``, in its type and shape.

    ``model`` and the answer are those of :func:`add_training`. ``of`` is the value to differentiate; by default the only output.
    If it is no scalar, the gradients are those of the sum of its elements. ``by`` are the values by which it is differentiated:
    inputs and initializers by patterns such as ``*.weight``, other values by name; by default all inputs and initializers of
    floats. The nodes that are added are operators of ``ai.onnx``, so any runtime runs them; ``gradient_node`` adds one Gradient
    node of ``ai.onnx.preview.training`` in their place. ``expand`` adds no outputs, and replaces the Gradient nodes that the
    model has by the nodes that they mean.

    Raises ``sardonyx.Error`` as :func:`add_training` does.
    """
    arguments = {"of": of, "gradient_node": gradient_node, "expand": expand}
    return _session.differentiate(model, arguments | {"by": None if by is None else _listed(by)})


def _listed(patterns: str | Sequence[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)
