"""Modules that take the names of modules of another package."""

from __future__ import annotations

import importlib.machinery
import os
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.abc import Loader as _LoaderBase
    from importlib.resources.abc import TraversableResources
    from pathlib import Path
else:
    # Importing importlib.abc takes longer than importing this package.
    _LoaderBase = object


class Loader(_LoaderBase):
    """Loads a module that exists already, so that ``importlib.reload`` and ``importlib.resources`` work on it."""

    def __init__(self, module: types.ModuleType, directory: str) -> None:
        self._module, self._directory = module, directory

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Returns the module."""
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing: the module has its contents."""

    def get_resource_reader(self, fullname: str) -> TraversableResources:
        """Returns a reader of the directory with Sardonyx's own files."""
        # Imported late, as programs that only run models need none of it.
        from importlib.resources.abc import TraversableResources
        from pathlib import Path

        directory = Path(self._directory)

        class Reader(TraversableResources):
            def files(self) -> Path:
                return directory

        return Reader()


class Finder:
    """Finds the replacing modules. Stands before the other finders, so that an installed package is not found."""

    def __init__(self, modules: Mapping[str, types.ModuleType]) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a replacing module, and None for other names."""
        module = self._modules.get(name)
        return module.__spec__ if module is not None else None


def make_module(
    name: str, doc: str | None, contents: Mapping[str, object], *, file: str, is_package: bool
) -> types.ModuleType:
    """Makes a module with these contents. ``file`` becomes its ``__file__``."""
    module = types.ModuleType(name, doc)
    loader = Loader(module, os.path.dirname(file))
    module.__spec__ = importlib.machinery.ModuleSpec(name, loader, origin=file, is_package=is_package)
    module.__loader__ = loader
    module.__file__ = file
    module.__package__ = name if is_package else name.rpartition(".")[0]
    if is_package:
        # Programs look for files below __path__. This directory does not exist, so that only `Finder` finds submodules.
        module.__path__ = [os.path.join(os.path.dirname(file), name)]
    vars(module).update(contents)
    return module
