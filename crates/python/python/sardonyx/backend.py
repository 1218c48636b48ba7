"""The interface that the onnx package calls a backend: models and single nodes, run at once.

The functions have the forms of ``onnx.backend.base.Backend``, so the tests of that package run on this module. The package
itself is needed only by :func:`run_node` and where it is imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx import _messages
from sardonyx._core.session import Session

__all__ = ["Backend", "BackendRep", "is_compatible", "prepare", "run", "run_model", "run_node", "supports_device"]

#: What the modules of other packages offer under the same names.
FUNCTIONS = ("is_compatible", "prepare", "run", "run_model", "run_node", "supports_device")


class BackendRep:
    """A model that is ready to run."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs the model on inputs in a list, in a dict by name, or on a single one; returns all outputs."""
        names = [port.name for port in self._session.inputs]
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        elif isinstance(inputs, (list, tuple)):
            if len(inputs) > len(names):
                raise ValueError(f"the model has {len(names)} inputs, but {len(inputs)} are given")
            feeds = dict(zip(names, inputs, strict=False))
        else:
            feeds = {names[0]: inputs} if names else {}
        outputs = self._session.run(feeds)
        return _named(list(outputs), list(outputs.values()))


class Backend:
    """The functions of this module as a class, for tests that want one."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether :func:`prepare` can be called: for every model on the CPU."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """Makes a model ready to run. Keywords are options of :class:`sardonyx.Session`."""
        if isinstance(model, BackendRep):
            return model
        if not cls.supports_device(device):
            raise ValueError(f"the device is '{device}', and models run on the CPU only")
        if isinstance(model, Session):
            return BackendRep(model)
        return BackendRep(Session(model, **kwargs))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Makes a model ready and runs it."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs a single node on inputs in the order of its own, or by name.

        ``opset_version`` says which version of the operators it is of; the newest by default.
        """
        return cls.run_model(_model_of(node, inputs, kwargs.pop("opset_version", None)), inputs, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on a device: on the CPU."""
        return str(device).partition(":")[0].upper() == "CPU"


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device


def run(model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
    """As :func:`run_model`, also for what :func:`prepare` returned."""
    return prepare(model, device, **kwargs).run(inputs)


def _named(names: list[str], values: list[Any]) -> tuple[Any, ...]:
    """The outputs in a tuple, which has their names where the onnx package is there to make one."""
    base = sys.modules.get("onnx.backend.base")
    return base.namedtupledict("Outputs", names)(*values) if base is not None else tuple(values)


def _model_of(node: Any, inputs: Any, opset: int | None) -> bytes:
    """A model that consists of one node, whose inputs have the types of what is given."""
    import numpy as np
    from onnx import NodeProto, defs, helper

    if isinstance(node, _messages.Bytes):
        node = NodeProto.FromString(bytes(node))
    names = [name for name in node.input if name]
    given = inputs if isinstance(inputs, Mapping) else dict(zip(names, _as_list(inputs), strict=False))
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
    return helper.make_model(graph, opset_imports=imports).SerializeToString()


def _as_list(inputs: Any) -> Sequence[Any]:
    return inputs if isinstance(inputs, (list, tuple)) else [inputs]
