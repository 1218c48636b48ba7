"""ONNX in pure Rust.

:class:`Session` runs a model::

    session = sardonyx.Session("model.onnx")
    y = session(x)

:class:`Trainer` trains a model that describes its training::

    trainer = sardonyx.Trainer("model.onnx")
    loss = trainer.step({"x": x, "target": target})["loss"]

:func:`add_training` describes the training of a model that has none, and :func:`differentiate` adds gradients as outputs.
:func:`shard` divides a model among several devices.

The submodules:

- :mod:`sardonyx.defs`: which operators there are, in all versions;
- :mod:`sardonyx.parser` and :mod:`sardonyx.printer`: models as text;
- :mod:`sardonyx.checker`: whether a model keeps to the standard;
- :mod:`sardonyx.shape_inference`: types and shapes of all values;
- :mod:`sardonyx.distributed`: a model on several devices, and by several processes together;
- :mod:`sardonyx.inliner`: calls of functions replaced by what the functions do;
- :mod:`sardonyx.version_converter`: models in other versions of the operator set ``ai.onnx``.

Models are paths, objects with ``SerializeToString``, such as ``onnx.ModelProto``, or the bytes that it gives, so the onnx
package is not needed. Where it is installed, :func:`use_as_onnx_core` lets it work on Sardonyx instead of its own extension.
"""

from sardonyx import (
    backend,
    checker,
    defs,
    distributed,
    inliner,
    parser,
    printer,
    shape_inference,
    version_converter,
)
from sardonyx._core import IR_VERSION, __version__
from sardonyx._core.session import Error, Port, Session, StopFlag, Tensor, Trainer, deadline
from sardonyx._onnx_core import OnnxCore, use_as_onnx_core
from sardonyx._onnxruntime import OnnxRuntime, use_as_onnxruntime
from sardonyx._profile import Profile, ProfiledStep
from sardonyx._sharding import shard
from sardonyx._state import State
from sardonyx._training import add_training, differentiate
from sardonyx._values import SparseTensor

# Needs the version above.
from sardonyx.ort import InferenceSession  # isort: skip

__all__ = [
    "IR_VERSION",
    "Error",
    "InferenceSession",
    "OnnxCore",
    "OnnxRuntime",
    "Port",
    "Profile",
    "ProfiledStep",
    "Session",
    "SparseTensor",
    "State",
    "StopFlag",
    "Tensor",
    "Trainer",
    "__version__",
    "add_training",
    "backend",
    "checker",
    "deadline",
    "defs",
    "differentiate",
    "distributed",
    "inliner",
    "parser",
    "printer",
    "shape_inference",
    "shard",
    "use_as_onnx_core",
    "use_as_onnxruntime",
    "version_converter",
]
