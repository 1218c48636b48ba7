"""Replacement of the extension module of the onnx package by Sardonyx."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from typing import TYPE_CHECKING, Any

from sardonyx import _core
from sardonyx._shims.undo import Undoable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader as _LoaderBase

    # Takes the name and the new value of an item or attribute. Any: setters of different types are stored together.
    Setter = Callable[[str, Any], None]
else:
    # Importing importlib.abc takes longer than importing this package.
    _LoaderBase = object

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
    """Makes the onnx package use Sardonyx instead of its own extension module.

    Works before ``import onnx`` and after it, and can be undone::

        core = sardonyx.use_as_onnx_core()
        ...
        core.undo()

        with sardonyx.use_as_onnx_core():
            onnx.checker.check_model(model)

    If the package is loaded already, all references to the extension in its modules are replaced, also in default
    arguments. Message classes stay, so models in memory remain valid. References that other modules took before (``from
    onnx.checker import ValidationError``) are not replaced, so call this early. Operators that were registered with the
    extension are not known to Sardonyx, and the other way round.

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
            for name in _named_modules(_core):
                sys.modules.pop(name, None)
            _Swap(_core, importlib.import_module(NAME))

    return OnnxCore(undo)


def become(name: str) -> None:
    """Registers the core as the module ``name``. A package that consists of this call is Sardonyx's core."""
    sys.modules.update(_named_modules(_core, name))


class OnnxCore(Undoable):
    """Handle of :func:`use_as_onnx_core` that undoes it. As a context manager, it does so at the end of the block."""


def _named_modules(core: types.ModuleType, name: str = NAME) -> dict[str, types.ModuleType]:
    """Returns a core and its submodules by full names below ``name``."""
    submodules = {f"{name}.{part}": getattr(core, part) for part in SUBMODULES}
    return {name: core, **submodules}


class _Finder(_LoaderBase):
    """Finds Sardonyx's core for imports of the extension."""

    def __init__(self) -> None:
        self._modules = _named_modules(_core)
        self._specs = {name: module.__spec__ for name, module in self._modules.items()}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._modules:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name == NAME)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        # An import sets the spec to the one of this finder; the modules keep the one of their first import.
        if module.__spec__ is not None:
            module.__spec__ = self._specs[module.__spec__.name]


class _Swap:
    """Replaces one core by another in the loaded modules of the onnx package."""

    def __init__(self, old: types.ModuleType, new: types.ModuleType) -> None:
        self._changes: list[tuple[Setter, str, object]] = []
        # By identity: some of the objects cannot be hashed.
        self._new: dict[int, object] = {id(old): new}
        for part in SUBMODULES:
            before, after = getattr(old, part), getattr(new, part)
            self._new[id(before)] = after
            for name, value in vars(before).items():
                if not name.startswith("__") and hasattr(after, name):
                    self._new[id(value)] = getattr(after, name)
        self._old_context = old.checker.CheckerContext
        self._new_context = new.checker.CheckerContext

        self._copy_additions(old.defs.OpSchema, new.defs.OpSchema)
        for part in ("Attribute", "FormalParameter", "TypeConstraintParam"):
            self._copy_additions(getattr(old.defs.OpSchema, part), getattr(new.defs.OpSchema, part))
        ours = {id(module) for core in (old, new) for module in _named_modules(core).values()}
        for name, module in list(sys.modules.items()):
            in_package = name == "onnx" or name.startswith("onnx.")
            if in_package and isinstance(module, types.ModuleType) and id(module) not in ours:
                self._patch(module)
        for name, module in _named_modules(new).items():
            self._set(sys.modules.__setitem__, name, sys.modules.get(name), module)

    def undo(self) -> None:
        """Restores all replaced values, last one first."""
        for put, name, before in reversed(self._changes):
            put(name, before)
        self._changes.clear()

    def _set(self, put: Setter, name: str, before: object, after: object) -> None:
        put(name, after)
        self._changes.append((put, name, before))

    def _copy_additions(self, old: type, new: type) -> None:
        """Copies the methods and properties that the onnx package has added to a class of the extension."""
        for name, value in list(vars(old).items()):
            getter = value.fget if isinstance(value, property) else value
            if isinstance(getter, types.FunctionType):
                self._set(_class_setter(new), name, vars(new).get(name, _ABSENT), value)

    def _patch(self, module: types.ModuleType) -> None:
        """Replaces values of the old core in a module, and in the default arguments of its functions."""
        for name, value in list(vars(module).items()):
            after = self._replacement(value)
            if after is not value:
                self._set(vars(module).__setitem__, name, value, after)
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                defaults = value.__defaults__ or ()
                replaced = tuple(map(self._replacement, defaults))
                if any(a is not b for a, b in zip(defaults, replaced, strict=True)):
                    self._set(_attribute_setter(value), "__defaults__", defaults, replaced)

    def _replacement(self, value: object) -> object:
        """Returns the value of the new core for one of the old core, and other values unchanged."""
        if isinstance(value, self._old_context):
            if id(value) not in self._new:
                context = self._new_context()
                context.ir_version = value.ir_version
                context.opset_imports = value.opset_imports
                self._new[id(value)] = context
            return self._new[id(value)]
        if type(value).__name__ == "LexicalScopeContext":
            cls = self._new.get(id(type(value)))
            return cls() if callable(cls) else value
        return self._new.get(id(value), value)


_ABSENT = object()


def _class_setter(cls: type) -> Setter:
    """Returns a function that sets attributes of a class, or deletes those that become ``_ABSENT``."""

    def put(name: str, value: object) -> None:
        if value is not _ABSENT:
            setattr(cls, name, value)
        elif name in vars(cls):
            delattr(cls, name)

    return put


def _attribute_setter(function: types.FunctionType) -> Setter:
    return lambda name, value: setattr(function, name, value)
