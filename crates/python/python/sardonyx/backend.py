"""The interface that the onnx package calls a backend: prepares and runs models and single nodes.

The functions have the signatures of ``onnx.backend.base.Backend``, so the tests of that package run on this module. The
onnx package is needed only by :func:`run_node`, and for the named tuples of outputs, which are plain tuples without it.
"""

from __future__ import annotations

import sys as _sys
import typing as _t
from collections.abc import Mapping as _Mapping

from sardonyx import _messages
from sardonyx._core.session import Session as _Session

if _t.TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from sardonyx.typing import ArrayLike, Message, ModelLike, Value, ValueLike

    #: Inputs of a run: by name, in the order of the model, or a single one.
    Inputs: _t.TypeAlias = _Mapping[str, ValueLike] | Sequence[ValueLike] | ArrayLike

__all__ = ["Backend", "BackendRep", "is_compatible", "prepare", "run", "run_model", "run_node", "supports_device"]


class BackendRep:
    """A model that is ready to run."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    def run(self, inputs: Inputs, **kwargs: object) -> tuple[Value, ...]:
        """Runs the model and returns all outputs. ``inputs`` is a list in the order of the model, a dict, or one input."""
        names = [port.name for port in self._session.inputs]
        feeds: dict[str, Value]
        if isinstance(inputs, _Mapping):
            feeds = dict(inputs)
        elif isinstance(inputs, (list, tuple)):
            if len(inputs) > len(names):
                raise ValueError(f"the model has {len(names)} inputs, but {len(inputs)} are given")
            feeds = dict(zip(names, inputs, strict=False))
        else:
            feeds = {names[0]: inputs} if names else {}
        outputs = self._session.run(feeds)
        return _name_outputs(list(outputs), list(outputs.values()))


class Backend:
    """The functions of this module as a class, which the test suite of the onnx package needs."""

    @classmethod
    def is_compatible(cls, model: object, device: str = "CPU", **kwargs: object) -> bool:
        """Whether :func:`prepare` can be called with the device. Accepts every model, as only opening it shows whether it runs."""
        return cls.supports_device(device)

    # Any: options of Session, of several types, which it checks.
    @classmethod
    def prepare(
        cls, model: ModelLike | BackendRep | _Session, device: str = "CPU", **kwargs: _t.Any
    ) -> BackendRep:
        """Opens a model. Keywords are options of :class:`sardonyx.Session`."""
        if isinstance(model, BackendRep):
            return model
        if not cls.supports_device(device):
            raise ValueError(f"the device is '{device}', and models run on the CPU only")
        if isinstance(model, _Session):
            return BackendRep(model)
        return BackendRep(_Session(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: ModelLike | BackendRep | _Session, inputs: Inputs, device: str = "CPU", **kwargs: object
    ) -> tuple[Value, ...]:
        """Opens a model and runs it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Message | Buffer,
        inputs: Inputs,
        device: str = "CPU",
        outputs_info: Sequence[tuple[object, Sequence[int]]] | None = None,
        *,
        opset_version: int | None = None,
        **kwargs: object,
    ) -> tuple[Value, ...]:
        """Runs a single node on inputs in the order of the node, or by name.

        ``opset_version`` selects the version of the operator set; by default the newest.
        """
        model = _make_model(node, inputs, opset_version)
        return cls.run_model(model, inputs, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is the CPU, the only one on which models run."""
        return str(device).partition(":")[0].upper() == "CPU"


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device


def run(
    model: ModelLike | BackendRep | _Session, inputs: Inputs, device: str = "CPU", **kwargs: object
) -> tuple[Value, ...]:
    """Runs a model, or the result of :func:`prepare`, once."""
    return prepare(model, device, **kwargs).run(inputs)


def _name_outputs(names: list[str], values: list[Value]) -> tuple[Value, ...]:
    """Returns the outputs as a named tuple of the onnx package if that is imported, else as a plain tuple."""
    base = _sys.modules.get("onnx.backend.base")
    if base is None:
        return tuple(values)
    outputs: tuple[Value, ...] = base.namedtupledict("Outputs", names)(*values)
    return outputs


def _make_model(node: Message | Buffer, inputs: Inputs, opset: int | None) -> bytes:
    """Returns a model of one node, whose inputs have the types of the given values."""
    import numpy as np
    from onnx import NodeProto, defs, helper

    node = node if isinstance(node, NodeProto) else NodeProto.FromString(_messages.serialized(node, "NodeProto"))
    names = [name for name in node.input if name]
    given: dict[str, Value]
    if isinstance(inputs, _Mapping):
        given = dict(inputs)
    else:
        values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        given = dict(zip(names, values, strict=False))
    ports = []
    for name in dict.fromkeys(names):
        if name in given:
            value = np.asarray(given[name])
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            ports.append(helper.make_tensor_value_info(name, kind, value.shape))
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", ports, outputs)
    version = defs.onnx_opset_version() if opset is None and not node.domain else opset
    imports = [helper.make_opsetid(node.domain, version or 1)]
    content: bytes = helper.make_model(graph, opset_imports=imports).SerializeToString()
    return content
