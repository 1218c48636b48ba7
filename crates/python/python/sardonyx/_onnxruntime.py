"""Sardonyx in the place of the onnxruntime package."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

from sardonyx._undo import Undoable

NAME = "onnxruntime"


def use_as_onnxruntime() -> OnnxRuntime:
    """Let ``import onnxruntime`` give :mod:`sardonyx.ort`, whether onnxruntime is installed or not.

    Can be taken back::

        runtime = sardonyx.use_as_onnxruntime()
        ...
        runtime.undo()

        with sardonyx.use_as_onnxruntime():
            import onnxruntime

    Replaces the modules ``onnxruntime``, ``.capi`` with its parts, ``.backend`` and ``.datasets``. Other
    parts of that package, such as ``onnxruntime.quantization``, cannot be imported meanwhile. What modules
    have taken from onnxruntime before stays theirs, so call this early.
    """
    modules = _modules()
    if getattr(sys.modules.get(NAME), "__sardonyx__", False):
        return OnnxRuntime(lambda: None)
    before = {
        name: module
        for name, module in sys.modules.items()
        if name == NAME or name.startswith(f"{NAME}.")
    }
    for name in before:
        del sys.modules[name]
    sys.modules.update(modules)

    def undo() -> None:
        for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
            if sys.modules[name] is modules.get(name):
                del sys.modules[name]
        sys.modules.update(before)

    return OnnxRuntime(undo)


class OnnxRuntime(Undoable):
    """What :func:`use_as_onnxruntime` did. A context manager; leaving it undoes that."""


def _modules() -> dict[str, types.ModuleType]:
    """Modules with the names of onnxruntime's, by these names."""
    from sardonyx import backend, ort
    from sardonyx.ort import _errors, _session

    public = {name: getattr(ort, name) for name in [*ort.__all__, "__version__"]}
    exceptions = {cls.__name__: cls for cls in _errors.CLASSES}
    state = {**public, **exceptions}
    collection = {**public, "Session": ort.InferenceSession, "check_and_normalize_provider_args": _normalized}
    parts: dict[str, dict[str, Any]] = {
        NAME: public,
        f"{NAME}.capi": {},
        f"{NAME}.capi.onnxruntime_pybind11_state": state,
        f"{NAME}.capi._pybind_state": state,
        f"{NAME}.capi.onnxruntime_inference_collection": collection,
        f"{NAME}.capi.onnxruntime_validation": {},
        f"{NAME}.backend": {name: getattr(backend, name) for name in backend.FUNCTIONS},
        f"{NAME}.backend.backend": {
            **{name: getattr(backend, name) for name in backend.FUNCTIONS},
            "OnnxRuntimeBackend": backend.Backend,
        },
        f"{NAME}.datasets": {"get_example": _get_example},
    }
    docs = {NAME: ort.__doc__, f"{NAME}.backend": backend.__doc__}
    packages = (NAME, f"{NAME}.capi", f"{NAME}.backend", f"{NAME}.datasets")
    made: dict[str, types.ModuleType] = {}
    for name, contents in parts.items():
        module = types.ModuleType(name, docs.get(name, _session.__doc__))
        is_package = name in packages
        module.__spec__ = importlib.machinery.ModuleSpec(
            name, None, origin=ort.__file__, is_package=is_package
        )
        module.__file__ = ort.__file__
        module.__package__ = name if is_package else name.rpartition(".")[0]
        if is_package:
            # Empty, so that nothing is found there that is not listed above.
            module.__path__ = []
        vars(module).update(contents, __sardonyx__=True)
        made[name] = module
        above, _, last = name.rpartition(".")
        if above:
            setattr(made[above], last, module)
    return made


def _normalized(providers: Any, options: Any, available: Any) -> tuple[list[str], list[dict[Any, Any]]]:
    """The providers that a session has, and their options."""
    from sardonyx.ort._session import _checked_providers

    names = _checked_providers(providers, options)
    return names, [{} for _ in names]


def _get_example(name: str) -> str:
    """Refused: the example models of onnxruntime are not here."""
    raise FileNotFoundError(f"the example model '{name}' is part of onnxruntime and not here")
