"""Sardonyx in the place of the onnxruntime package."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sardonyx import _replaced
from sardonyx._undo import Undoable

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "onnxruntime"

#: Processes whose environment has this variable find Sardonyx where they import onnxruntime. A file of the wheel at the top of
#: ``site-packages`` looks for it: ``sardonyx-as-onnxruntime.pth``.
VARIABLE = "SARDONYX_AS_ONNXRUNTIME"


def use_as_onnxruntime(*, children: bool = False) -> OnnxRuntime:
    """Let ``import onnxruntime`` give :mod:`sardonyx.ort`, whether onnxruntime is installed or not.

    Can be taken back::

        runtime = sardonyx.use_as_onnxruntime()
        ...
        runtime.undo()

        with sardonyx.use_as_onnxruntime():
            import onnxruntime

    With ``children``, Python processes that this one starts meanwhile find Sardonyx too, such as those of multiprocessing
    with "spawn" or "forkserver". It sets the variable ``SARDONYX_AS_ONNXRUNTIME`` in the environment of this process.

    Replaces the modules ``onnxruntime``, ``.capi`` with its parts, ``.backend``, ``.datasets`` and
    ``.transformers.io_binding_helper``. Other parts of that package, such as ``onnxruntime.quantization``,
    cannot be imported meanwhile. Where onnxruntime is not installed, ``importlib.metadata.version("onnxruntime")``
    gives the version whose behaviour is followed: some packages look there for what is installed. What modules
    have taken from onnxruntime before stays theirs, so call this early.
    """
    forget_variable = _set_variable() if children else lambda: None
    if getattr(sys.modules.get(NAME), "__sardonyx__", False):
        return OnnxRuntime(forget_variable)
    modules = _modules()
    before = {
        name: module
        for name, module in sys.modules.items()
        if name == NAME or name.startswith(f"{NAME}.")
    }
    for name in before:
        del sys.modules[name]
    sys.modules.update(modules)
    finder, again = _Finder(), _replaced.Finder(modules)
    sys.meta_path.append(finder)
    sys.meta_path.insert(0, again)

    def undo() -> None:
        forget_variable()
        sys.meta_path.remove(finder)
        sys.meta_path.remove(again)
        for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
            if sys.modules[name] is modules.get(name):
                del sys.modules[name]
        sys.modules.update(before)

    return OnnxRuntime(undo)


def _set_variable() -> Callable[[], None]:
    """Sets the variable for child processes, and returns what sets it back."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"

    def set_back() -> None:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before

    return set_back


class OnnxRuntime(Undoable):
    """What :func:`use_as_onnxruntime` did. A context manager; leaving it undoes that."""


class _Finder:
    """Finds the distribution onnxruntime: programs that ask whether it is installed look for that, not for the module.

    It has the methods of ``importlib.metadata.DistributionFinder``. To import that module takes longer than all of this
    package, and a program that asks for a distribution has done so.
    """

    def find_spec(self, *_: Any, **__: Any) -> None:
        """Finds no module."""

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        """The distribution, for who asks for its name. Where onnxruntime is installed, its own is found before."""
        if getattr(context, "name", None) != NAME:
            return []
        from sardonyx._distribution import OnnxRuntimeDistribution

        return [OnnxRuntimeDistribution()]


def _modules() -> dict[str, types.ModuleType]:
    """Modules with the names of onnxruntime's, by these names."""
    from sardonyx import ort
    from sardonyx.ort import _backend, _devices, _errors, _inner, _providers, _refused, _session, _torch_types

    public = {name: getattr(ort, name) for name in [*ort.__all__, "__version__"]}
    exceptions = {cls.__name__: cls for cls in _errors.CLASSES}
    state = {
        **public,
        **exceptions,
        **_refused.make_functions(),
        "OrtValueVector": _inner.OrtValueVector,
        "get_default_session_options": ort.SessionOptions,
        "get_hardware_devices": lambda: [device.device for device in _devices.get_ep_devices()],
    }
    collection = {
        **public,
        "Session": ort.InferenceSession,
        "check_and_normalize_provider_args": _providers.check_and_normalize_provider_args,
    }
    functions = {name: getattr(_backend, name) for name in _backend.FUNCTIONS}
    facts = {"package_name": NAME, "version": ort.__version__, "cuda_version": ""}
    parts: dict[str, dict[str, Any]] = {
        NAME: {**public, **facts},
        f"{NAME}.capi": {},
        f"{NAME}.capi.onnxruntime_pybind11_state": state,
        f"{NAME}.capi._pybind_state": state,
        f"{NAME}.capi.onnxruntime_inference_collection": collection,
        f"{NAME}.capi.onnxruntime_validation": {
            "check_distro_info": lambda: None,
            "get_package_name_and_version_info": lambda: tuple(facts.values()),
        },
        f"{NAME}.capi.build_and_package_info": {**facts, "__version__": ort.__version__},
        f"{NAME}.backend": functions,
        f"{NAME}.backend.backend": {**functions, "OnnxRuntimeBackend": _backend.OnnxRuntimeBackend},
        f"{NAME}.backend.backend_rep": {"OnnxRuntimeBackendRep": _backend.OnnxRuntimeBackendRep},
        f"{NAME}.datasets": {"get_example": _get_example},
        # What optimum needs of it.
        f"{NAME}.transformers": {},
        f"{NAME}.transformers.io_binding_helper": {"TypeHelper": _torch_types.TypeHelper},
    }
    docs = {NAME: ort.__doc__, f"{NAME}.backend": _backend.__doc__}
    packages = (
        NAME,
        *(f"{NAME}.{part}" for part in ("capi", "backend", "datasets", "transformers")),
    )
    made: dict[str, types.ModuleType] = {}
    for name, contents in parts.items():
        doc = docs.get(name, _session.__doc__)
        made[name] = _replaced.make_module(name, doc, contents, file=ort.__file__, is_package=name in packages)
        vars(made[name])["__sardonyx__"] = True
        above, _, last = name.rpartition(".")
        if above:
            setattr(made[above], last, made[name])
    # Where packages take classes from by `from onnxruntime.capi.onnxruntime_inference_collection import C`.
    vars(made[f"{NAME}.capi.onnxruntime_inference_collection"])["C"] = made[f"{NAME}.capi._pybind_state"]
    return made


def _get_example(name: str) -> str:
    """Refused: the example models of onnxruntime are not here."""
    raise FileNotFoundError(
        f"the example model '{name}' is part of onnxruntime and not here: give the path of a model file of your own"
    )
