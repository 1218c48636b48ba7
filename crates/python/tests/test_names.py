"""Public names of the package: those that `public_names.txt` lists and the manual explains, and no others.

`BLESS=1` rewrites the list, so that a name which comes, goes or changes its parameters is seen in the difference.
"""

import importlib
import inspect
import os
import pickle
import re
import types
from pathlib import Path

import pytest
import sardonyx

LIST = Path(__file__).parent / "public_names.txt"
PAGE = Path(__file__).parents[3] / "docs" / "python-names.md"
MODULES = [
    "sardonyx",
    *sorted(f"sardonyx.{name}" for name in sardonyx.__all__ if inspect.ismodule(getattr(sardonyx, name))),
]


def module_names(module):
    """The names that a module shows in `dir`, without those that begin with an underscore."""
    # `from __future__ import annotations` leaves a name behind.
    return {name for name in dir(module) if not name.startswith("_")} - {"annotations"}


def signature(value):
    """The parameters of a function or class, without annotations, which mypy checks; empty if Python has none to show."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    return re.sub(r"^\(self(, /)?(, )?", "(", str(inspect.Signature(parameters)))


def members(cls):
    """The public members of a class that are defined in this package, with those that it inherits from private bases."""
    attributes = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    for name in sorted(attributes.union(dir(cls))):
        owner = next((base for base in cls.__mro__ if name in vars(base) or name in inspect.get_annotations(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("sardonyx"):
            continue
        value = inspect.getattr_static(cls, name, None)
        is_function = isinstance(value, (staticmethod, classmethod)) or inspect.isroutine(value)
        is_function = is_function and not inspect.isgetsetdescriptor(value) and not inspect.ismemberdescriptor(value)
        yield name + (signature(getattr(cls, name)) if is_function else "")


def listed():
    lines = []
    for path in MODULES:
        module = importlib.import_module(path)
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                continue
            if value is not module and getattr(value, "__module__", path) in set(MODULES) - {path}:
                # Listed where it is defined.
                lines.append(f"{path}.{name} = {value.__module__}.{value.__qualname__}")
                continue
            # `Value` is a class of Python itself.
            is_class = inspect.isclass(value) and value.__module__.startswith("sardonyx")
            is_made = is_class and not getattr(value, "_is_protocol", False)
            lines.append(f"{path}.{name}" + (signature(value) if is_made or inspect.isroutine(value) else ""))
            if is_class:
                lines += [f"{path}.{name}.{member}" for member in members(value)]
    return "\n".join(lines) + "\n"


def test_public_names_are_those_of_the_list():
    if os.environ.get("BLESS") == "1":
        LIST.write_text(listed(), encoding="utf-8")
    assert listed() == LIST.read_text(encoding="utf-8"), "BLESS=1 rewrites the list of public names"


@pytest.mark.parametrize("path", MODULES)
def test_a_module_shows_what_it_exports(path):
    module = importlib.import_module(path)
    exported = [name for name in module.__all__ if not name.startswith("_")]
    assert len(module.__all__) == len(set(module.__all__))
    assert module_names(module) == set(exported)
    assert module.__doc__


def test_all_files_without_an_underscore_are_public_modules():
    directory = Path(sardonyx.__file__).parent
    found = {path.stem for path in directory.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    public = {name for name in found if not name.startswith("_")}
    assert {f"sardonyx.{name}" for name in public} == set(MODULES) - {"sardonyx"}


def test_the_manual_explains_every_name():
    """One table for each module but `sardonyx.ort`, whose names are those of another package and have a page of their own."""
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    explained = {}
    for section in sections:
        title, _, text = section.partition("\n")
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")]
        assert all(len(row) == 2 and row[1] for row in rows), title
        explained[title.strip("`")] = [name for row in rows for name in re.findall("`([^`]+)`", row[0])]
    assert list(explained) == MODULES
    for path, names in explained.items():
        expected = [] if path == "sardonyx.ort" else importlib.import_module(path).__all__
        assert sorted(names) == sorted(expected), path


def public_classes():
    for path in MODULES:
        module = importlib.import_module(path)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("sardonyx"):
                yield value


def test_classes_say_where_they_are_public():
    """So that pickles and tracebacks hold public names only."""
    for value in public_classes():
        assert value.__module__ in MODULES, value
        assert getattr(importlib.import_module(value.__module__), value.__qualname__) is value


@pytest.mark.parametrize(
    "value",
    [
        sardonyx.SparseTensor([1.0], [0], (3,)),
        sardonyx.ProfiledStep("n", "Relu", "k", 1.5),
        sardonyx.distributed.OutputPart(0, (1,), (((0, 1),),), [1.0]),
        sardonyx.parser.Diagnostic(True, 1, 1, "m", None),
        sardonyx.ort.ExecutionMode.ORT_PARALLEL,
        sardonyx.ort.SessionOptions(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pickles_hold_public_names(value):
    content = pickle.dumps(value)
    assert b"sardonyx._" not in content and type(pickle.loads(content)) is type(value)
