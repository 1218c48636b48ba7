"""Runs, trains, checks and converts ONNX models, in pure Rust.

:class:`Session` runs a model::

    session = sardonyx.Session("model.onnx")
    y = session(x)

:class:`Trainer` trains a model that has training information::

    trainer = sardonyx.Trainer("model.onnx")
    loss = trainer.step({"x": x, "target": target})["loss"]

:func:`add_training` adds training information to a model that has none, and :func:`differentiate` adds gradients as outputs.
:func:`shard` divides a model among several devices, :func:`extract` makes a model of a part of one, :func:`simplify` one that computes
the same with fewer nodes, and :func:`reduce` a small example of a problem. :func:`diff` compares the structure of two models, and
:func:`compare` finds the first value that differs between two when they run.

The submodules:

- :mod:`sardonyx.defs`: schemas of all operators in all versions;
- :mod:`sardonyx.parser` and :mod:`sardonyx.printer`: models as text;
- :mod:`sardonyx.checker`: conformance of models to the standard;
- :mod:`sardonyx.shape_inference`: types and shapes of all values;
- :mod:`sardonyx.inliner`: function calls replaced by the bodies of the functions;
- :mod:`sardonyx.utils`: parts of model files, in the form of ``onnx.utils``;
- :mod:`sardonyx.version_converter`: models converted between versions of the operator set ``ai.onnx``;
- :mod:`sardonyx.generation`: language models and encoders of directories: texts, vectors, labels;
- :mod:`sardonyx.distributed`: one model on several devices, in one or several processes;
- :mod:`sardonyx.backend`: the backend interface of the onnx package;
- :mod:`sardonyx.ort`: the interface of ONNX Runtime;
- :mod:`sardonyx.typing`: types for annotations.

A model is a path, bytes, or an object with ``SerializeToString``, such as ``onnx.ModelProto``, so the onnx package is not
needed. :func:`use_as_onnx_core` makes an installed onnx package use Sardonyx instead of its own extension.
"""

from sardonyx import (
    backend,
    checker,
    defs,
    distributed,
    generation,
    inliner,
    ort,
    parser,
    printer,
    shape_inference,
    typing,
    utils,
    version_converter,
)
from sardonyx._comparing import compare
from sardonyx._core import IR_VERSION, __version__
from sardonyx._core.session import (
    Error,
    Port,
    Session,
    SessionState,
    StatePair,
    StopFlag,
    Tensor,
    Trainer,
    deadline,
)
from sardonyx._editing import diff, extract, reduce
from sardonyx._profile import Profile, ProfiledStep
from sardonyx._sharding import shard
from sardonyx._shims.onnx_core import OnnxCore, use_as_onnx_core
from sardonyx._shims.onnxruntime.replace import OnnxRuntime, use_as_onnxruntime
from sardonyx._simplifying import simplify
from sardonyx._state import State
from sardonyx._training import add_training, differentiate
from sardonyx._values import SparseTensor
from sardonyx.ort import InferenceSession

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
    "SessionState",
    "SparseTensor",
    "State",
    "StatePair",
    "StopFlag",
    "Tensor",
    "Trainer",
    "__version__",
    "add_training",
    "backend",
    "checker",
    "compare",
    "deadline",
    "defs",
    "diff",
    "differentiate",
    "distributed",
    "extract",
    "generation",
    "inliner",
    "ort",
    "parser",
    "printer",
    "reduce",
    "shape_inference",
    "shard",
    "simplify",
    "typing",
    "use_as_onnx_core",
    "use_as_onnxruntime",
    "utils",
    "version_converter",
]

# Pickles, tracebacks and help name the public place of a class, wherever its code is.
for _public in (OnnxCore, OnnxRuntime, Profile, ProfiledStep, SparseTensor, State):
    _public.__module__ = __name__
distributed.OutputPart.__module__ = distributed.__name__
del _public
