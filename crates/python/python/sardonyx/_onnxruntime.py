"""Sardonyx in the place of the onnxruntime package."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import sys
import types
from collections.abc import Iterable
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

    Replaces the modules ``onnxruntime``, ``.capi`` with its parts, ``.backend``, ``.datasets`` and
    ``.transformers.io_binding_helper``. Other parts of that package, such as ``onnxruntime.quantization``,
    cannot be imported meanwhile. Where onnxruntime is not installed, ``importlib.metadata.version("onnxruntime")``
    gives the version whose behaviour is followed: some packages look there for what is installed. What modules
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
    finder = _Finder()
    sys.meta_path.append(finder)

    def undo() -> None:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
            if sys.modules[name] is modules.get(name):
                del sys.modules[name]
        sys.modules.update(before)

    return OnnxRuntime(undo)


class OnnxRuntime(Undoable):
    """What :func:`use_as_onnxruntime` did. A context manager; leaving it undoes that."""


class _Finder(importlib.metadata.DistributionFinder):
    """Finds the distribution onnxruntime: programs that ask whether it is installed look for that, not for the module."""

    def find_spec(self, *_: Any, **__: Any) -> None:
        """Finds no module."""

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        """The distribution, for who asks for its name. Where onnxruntime is installed, its own is found before."""
        name = getattr(context, "name", None)
        return [_Distribution()] if name == NAME else []


class _Distribution(importlib.metadata.Distribution):
    """What is said of the distribution onnxruntime."""

    def read_text(self, filename: str) -> str | None:
        """The text of a file of metadata; there is one."""
        from sardonyx import ort

        if filename != "METADATA":
            return None
        version, summary = ort.__version__, ort.get_build_info()
        return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: {summary}\n"

    def locate_file(self, path: Any) -> Any:
        """Refused: nothing of the distribution lies in a file."""
        raise NotImplementedError(f"no file of {NAME} is here: Sardonyx takes its place")


def _modules() -> dict[str, types.ModuleType]:
    """Modules with the names of onnxruntime's, by these names."""
    from sardonyx import backend, ort
    from sardonyx.ort import _errors, _session, _torch_types

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
        # What optimum needs of it.
        f"{NAME}.transformers": {},
        f"{NAME}.transformers.io_binding_helper": {"TypeHelper": _torch_types.TypeHelper},
    }
    docs = {NAME: ort.__doc__, f"{NAME}.backend": backend.__doc__}
    packages = (
        NAME,
        *(f"{NAME}.{part}" for part in ("capi", "backend", "datasets", "transformers")),
    )
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
