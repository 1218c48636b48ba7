"""Sardonyx in the place of the extension of the onnx package."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

from sardonyx import _core
from sardonyx._undo import Undoable

NAME = "onnx.onnx_cpp2py_export"
SUBMODULES = (
    "checker",
    "defs",
    "inliner",
    "parser",
    "printer",
    "shape_inference",
    "version_converter",
)


def use_as_onnx_core() -> OnnxCore:
    """Let the onnx package work on Sardonyx instead of its own extension.

    Works before ``import onnx`` and after it, and can be taken back::

        core = sardonyx.use_as_onnx_core()
        ...
        core.undo()

        with sardonyx.use_as_onnx_core():
            onnx.checker.check_model(model)

    If the package is loaded already, every reference to the extension in its modules is replaced, also
    in the defaults of their functions; its message classes, and so all models in memory, stay as they
    are. What other modules have taken from it before (``from onnx.checker import ValidationError``)
    stays that of the extension, so call this early. Operators that were registered with one core are
    not known to the other.

    Not safe while other threads use the onnx package.
    """
    if sys.modules.get(NAME) is _core:
        return OnnxCore(lambda: None)
    if NAME in sys.modules:
        return OnnxCore(_Swap(sys.modules[NAME], _core).undo)

    finder = _Finder()
    sys.meta_path.insert(0, finder)

    def undo() -> None:
        sys.meta_path.remove(finder)
        if sys.modules.get(NAME) is _core:
            # The package was loaded in the meantime. Its own extension takes over.
            for name in _modules(_core):
                sys.modules.pop(name, None)
            _Swap(_core, importlib.import_module(NAME))

    return OnnxCore(undo)


def become(name: str) -> None:
    """Put the core where the module of that name is. For a package that consists of this call."""
    sys.modules.update(_modules(_core, name))


class OnnxCore(Undoable):
    """What :func:`use_as_onnx_core` did. A context manager; leaving it undoes that."""


def _modules(core: types.ModuleType, name: str = NAME) -> dict[str, types.ModuleType]:
    """A core and its submodules by full names."""
    submodules = {f"{name}.{part}": getattr(core, part) for part in SUBMODULES}
    return {name: core, **submodules}


class _Finder:
    """Gives our modules to whoever imports the extension."""

    def __init__(self) -> None:
        self._modules = _modules(_core)
        self._specs = {name: module.__spec__ for name, module in self._modules.items()}

    def find_spec(self, name, path=None, target=None):
        if name not in self._modules:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name == NAME)

    def create_module(self, spec):
        return self._modules[spec.name]

    def exec_module(self, module):
        # Importing says in a module where it was found; ours have been found elsewhere before.
        module.__spec__ = self._specs[module.__spec__.name]


class _Swap:
    """Replaces one core by another in the loaded modules of the onnx package."""

    def __init__(self, old: types.ModuleType, new: types.ModuleType) -> None:
        self._changes: list[tuple[Callable[..., None], str, object, object]] = []
        # By identity: some of the objects cannot be hashed.
        self._new: dict[int, Any] = {id(old): new}
        for part in SUBMODULES:
            before, after = getattr(old, part), getattr(new, part)
            self._new[id(before)] = after
            for name, value in vars(before).items():
                if not name.startswith("__") and hasattr(after, name):
                    self._new[id(value)] = getattr(after, name)
        self._old_context = old.checker.CheckerContext
        self._new_context = new.checker.CheckerContext

        self._keep_additions(old.defs.OpSchema, new.defs.OpSchema)
        for part in ("Attribute", "FormalParameter", "TypeConstraintParam"):
            self._keep_additions(getattr(old.defs.OpSchema, part), getattr(new.defs.OpSchema, part))
        ours = {id(module) for core in (old, new) for module in _modules(core).values()}
        for name, module in list(sys.modules.items()):
            in_package = name == "onnx" or name.startswith("onnx.")
            if in_package and isinstance(module, types.ModuleType) and id(module) not in ours:
                self._patch(module)
        for name, module in _modules(new).items():
            self._set(sys.modules.__setitem__, name, sys.modules.get(name), module)

    def undo(self) -> None:
        for put, name, before, _ in reversed(self._changes):
            put(name, before)
        self._changes.clear()

    def _set(self, put, name, before, after) -> None:
        put(name, after)
        self._changes.append((put, name, before, after))

    def _keep_additions(self, old: type, new: type) -> None:
        """The package adds properties of its own to the classes."""
        for name, value in list(vars(old).items()):
            getter = value.fget if isinstance(value, property) else value
            if isinstance(getter, types.FunctionType):
                put = _class_member(new)
                self._set(put, name, vars(new).get(name, _ABSENT), value)

    def _patch(self, module: types.ModuleType) -> None:
        for name, value in list(vars(module).items()):
            after = self._replacement(value)
            if after is not value:
                self._set(vars(module).__setitem__, name, value, after)
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                defaults = value.__defaults__ or ()
                after = tuple(map(self._replacement, defaults))
                if any(a is not b for a, b in zip(defaults, after, strict=True)):
                    put = _function_member(value)
                    self._set(put, "__defaults__", defaults, after)

    def _replacement(self, value: object) -> object:
        if isinstance(value, self._old_context):
            if id(value) not in self._new:
                context = self._new_context()
                context.ir_version = value.ir_version
                context.opset_imports = value.opset_imports
                self._new[id(value)] = context
            return self._new[id(value)]
        if type(value).__name__ == "LexicalScopeContext":
            return self._new[id(type(value))]() if id(type(value)) in self._new else value
        return self._new.get(id(value), value)


_ABSENT = object()


def _class_member(cls: type):
    def put(name: str, value: object) -> None:
        if value is not _ABSENT:
            setattr(cls, name, value)
        elif name in vars(cls):
            delattr(cls, name)

    return put


def _function_member(function: types.FunctionType):
    return lambda name, value: setattr(function, name, value)
