"""Modules that stand at the names of another package."""

from __future__ import annotations

import importlib.machinery
import os
import types
from collections.abc import Sequence
from typing import Any


class Loader:
    """Loads a module that exists already, so that ``importlib.reload`` and ``importlib.resources`` work on it."""

    def __init__(self, module: types.ModuleType, directory: str) -> None:
        self._module, self._directory = module, directory

    def create_module(self, spec: Any) -> types.ModuleType:
        """Returns the module."""
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing: the module has its contents."""

    def get_resource_reader(self, fullname: str) -> Any:
        """Returns a reader of the directory of Sardonyx's own files."""
        # Needed by no program that only runs models.
        from importlib.resources.abc import TraversableResources
        from pathlib import Path

        directory = Path(self._directory)

        class Reader(TraversableResources):
            def files(self) -> Any:
                return directory

        return Reader()


class Finder:
    """Finds modules that stand at the names of another package, before an installed one is found."""

    def __init__(self, modules: dict[str, types.ModuleType]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Returns the spec of a module of this finder, and None for others."""
        module = self._modules.get(name)
        return module.__spec__ if module is not None else None


def make_module(name: str, doc: str | None, contents: dict[str, Any], *, file: str, is_package: bool) -> types.ModuleType:
    """Makes a module with these contents. ``file`` is what it says of where its code is."""
    module = types.ModuleType(name, doc)
    loader = Loader(module, os.path.dirname(file))
    module.__spec__ = importlib.machinery.ModuleSpec(name, loader, origin=file, is_package=is_package)
    module.__loader__ = loader
    module.__file__ = file
    module.__package__ = name if is_package else name.rpartition(".")[0]
    if is_package:
        # A directory that does not exist, so that nothing is found there but what a finder knows. Packages look for files in it.
        module.__path__ = [os.path.join(os.path.dirname(file), name)]
    vars(module).update(contents)
    return module
