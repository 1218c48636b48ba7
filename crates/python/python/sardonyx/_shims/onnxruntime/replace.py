"""Replacement of the package onnxruntime by Sardonyx."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from sardonyx._shims import modules as _replacing
from sardonyx._shims.undo import Undoable

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable, Mapping
    from importlib.metadata import Distribution, DistributionFinder

NAME = "onnxruntime"

#: Environment variable that makes Python processes find Sardonyx when they import onnxruntime. The file
#: ``sardonyx-as-onnxruntime.pth``, which the wheel installs at the top of ``site-packages``, reads it.
VARIABLE = "SARDONYX_AS_ONNXRUNTIME"


def use_as_onnxruntime(*, children: bool = False) -> OnnxRuntime:
    """Makes ``import onnxruntime`` give :mod:`sardonyx.ort`, whether onnxruntime is installed or not.

    Can be undone::

        runtime = sardonyx.use_as_onnxruntime()
        ...
        runtime.undo()

        with sardonyx.use_as_onnxruntime():
            import onnxruntime

    With ``children``, Python processes that this one starts meanwhile find Sardonyx too, such as those of multiprocessing
    with "spawn" or "forkserver": the environment variable ``SARDONYX_AS_ONNXRUNTIME`` is set for them.

    Replaces the modules ``onnxruntime``, ``.capi`` with its parts, ``.backend``, ``.datasets`` and
    ``.transformers.io_binding_helper``. Other parts of that package, such as ``onnxruntime.quantization``, cannot be
    imported meanwhile. Where onnxruntime is not installed, ``importlib.metadata.version("onnxruntime")`` returns the
    version whose behaviour Sardonyx follows, because some packages look there for an installation. References that
    modules took from onnxruntime before are not replaced, so call this early.
    """
    reset_variable = _set_variable() if children else lambda: None
    if getattr(sys.modules.get(NAME), "__sardonyx__", False):
        return OnnxRuntime(reset_variable)
    modules = _make_modules()
    before = {
        name: module
        for name, module in sys.modules.items()
        if name == NAME or name.startswith(f"{NAME}.")
    }
    for name in before:
        del sys.modules[name]
    sys.modules.update(modules)
    distribution_finder, module_finder = _DistributionFinder(), _replacing.Finder(modules)
    sys.meta_path.append(distribution_finder)
    sys.meta_path.insert(0, module_finder)

    def undo() -> None:
        reset_variable()
        sys.meta_path.remove(distribution_finder)
        sys.meta_path.remove(module_finder)
        for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
            if sys.modules[name] is modules.get(name):
                del sys.modules[name]
        sys.modules.update(before)

    return OnnxRuntime(undo)


def _set_variable() -> Callable[[], None]:
    """Sets the variable for child processes, and returns a function that restores it."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"

    def restore() -> None:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before

    return restore


class OnnxRuntime(Undoable):
    """Handle of :func:`use_as_onnxruntime` that undoes it. As a context manager, it does so at the end of the block."""


class _DistributionFinder:
    """Finds the distribution onnxruntime, as programs that ask whether it is installed look for that, not for the module.

    Has the methods of ``importlib.metadata.DistributionFinder`` without deriving from it: importing that module takes
    longer than importing all of this package. A program that asks for a distribution has imported it.
    """

    def find_spec(self, *_: object, **__: object) -> None:
        """Finds no module."""

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        """Returns the distribution for the name onnxruntime. An installed onnxruntime is found by earlier finders."""
        if getattr(context, "name", None) != NAME:
            return []
        from sardonyx._shims.onnxruntime.distribution import OnnxRuntimeDistribution

        return [OnnxRuntimeDistribution()]


def _make_modules() -> dict[str, types.ModuleType]:
    """Makes the modules that replace those of onnxruntime, by name."""
    from sardonyx import ort
    from sardonyx._shims.onnxruntime import (
        backend,
        devices,
        errors,
        internals,
        providers,
        session,
        torch_types,
        unsupported,
    )

    public = {name: getattr(ort, name) for name in [*ort.__all__, "__version__"]}
    exceptions = {cls.__name__: cls for cls in errors.CLASSES}
    state = {
        **public,
        **exceptions,
        **unsupported.make_functions(),
        "OrtValueVector": internals.OrtValueVector,
        "get_default_session_options": ort.SessionOptions,
        "get_hardware_devices": lambda: [device.device for device in devices.get_ep_devices()],
    }
    collection = {
        **public,
        "Session": ort.InferenceSession,
        "check_and_normalize_provider_args": providers.check_and_normalize_provider_args,
    }
    functions = {name: getattr(backend, name) for name in backend.FUNCTIONS}
    facts = {"package_name": NAME, "version": ort.__version__, "cuda_version": ""}
    parts: dict[str, Mapping[str, object]] = {
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
        f"{NAME}.backend.backend": {**functions, "OnnxRuntimeBackend": backend.OnnxRuntimeBackend},
        f"{NAME}.backend.backend_rep": {"OnnxRuntimeBackendRep": backend.OnnxRuntimeBackendRep},
        f"{NAME}.datasets": {"get_example": _get_example},
        # The package optimum imports it.
        f"{NAME}.transformers": {},
        f"{NAME}.transformers.io_binding_helper": {"TypeHelper": torch_types.TypeHelper},
    }
    docs = {NAME: ort.__doc__, f"{NAME}.backend": backend.__doc__}
    packages = (
        NAME,
        *(f"{NAME}.{part}" for part in ("capi", "backend", "datasets", "transformers")),
    )
    modules: dict[str, types.ModuleType] = {}
    for name, contents in parts.items():
        doc = docs.get(name, session.__doc__)
        module = _replacing.make_module(name, doc, contents, file=ort.__file__, is_package=name in packages)
        vars(module)["__sardonyx__"] = True
        modules[name] = module
        above, _, last = name.rpartition(".")
        if above:
            setattr(modules[above], last, module)
    # Packages write `from onnxruntime.capi.onnxruntime_inference_collection import C`.
    vars(modules[f"{NAME}.capi.onnxruntime_inference_collection"])["C"] = modules[f"{NAME}.capi._pybind_state"]
    return modules


def _get_example(name: str) -> NoReturn:
    """Refuses: the example models of onnxruntime are not here."""
    raise FileNotFoundError(
        f"the example model '{name}' is part of onnxruntime and not here: give the path of a model file of your own"
    )
