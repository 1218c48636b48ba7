"""The type stubs of the extension module: the names, the parameters and the documentation are those of the module.

`BLESS=1` writes the documentation of the module into the stubs, in the sources.
"""

import ast
import enum
import inspect
import os
import textwrap
from pathlib import Path

import pytest
from sardonyx import _core

STUBS = Path(__file__).parents[1] / "python" / "sardonyx" / "_core"
NAMES = sorted(path.stem for path in STUBS.glob("*.pyi") if path.stem != "__init__")


def documented(tree, module):
    """Each node of a stub that can have documentation, its dotted name, and the object that it is a stub of."""
    yield tree, module.__name__, module
    yield from documented_members(tree.body, module.__name__, module)


def documented_members(body, path, owner):
    seen = set()
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = node.name
        else:
            continue
        # The first overload, and the getter of a property, have the documentation. Python gives special methods some of its own.
        is_special = name.startswith("__") and name.endswith("__")
        value = vars(owner).get(name)
        if name in seen or is_special or value is None:
            continue
        seen.add(name)
        is_constant = isinstance(node, ast.AnnAssign) and not inspect.isdatadescriptor(value)
        if not is_constant and not isinstance(value, enum.Enum):
            yield node, f"{path}.{name}", value
        if isinstance(node, ast.ClassDef):
            yield from documented_members(node.body, f"{path}.{name}", value)


def doc_of(value):
    """The documentation of an object; None for what Python itself says of enumerations."""
    doc = value.__func__.__doc__ if isinstance(value, staticmethod) else value.__doc__
    if not doc or isinstance(value, type) and issubclass(value, enum.Enum):
        return None
    return inspect.cleandoc(doc)


def doc_node(node, body):
    """The statement that documents a node of a stub: the first within it, or the one after an attribute."""
    if isinstance(node, ast.AnnAssign):
        after = body[body.index(node) + 1 :][:1]
    else:
        after = node.body[:1]
    is_text = after and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant)
    return after[0] if is_text and isinstance(after[0].value.value, str) else None


def doc_in_stub(node, body):
    found = doc_node(node, body)
    return None if found is None else inspect.cleandoc(found.value.value)


def parents(tree):
    """The list of statements in which each node stands."""
    return {id(child): parent.body for parent in ast.walk(tree) if hasattr(parent, "body") for child in parent.body}


def literal(doc, indent):
    assert '"""' not in doc
    quotes = 'r"""' if "\\" in doc else '"""'
    is_short = "\n" not in doc and not doc.endswith('"')
    text = f'{quotes}{doc}"""' if is_short else f'{quotes}{doc}\n"""'
    return textwrap.indent(text, indent, lambda line: line.strip()) + "\n"


def with_docs(text, module):
    """The text of a stub with the documentation of the module."""
    tree = ast.parse(text)
    bodies = parents(tree)
    lines = text.splitlines(keepends=True)
    # From the end, so that the numbers of the lines before stay right.
    for node, _, value in reversed(list(documented(tree, module))):
        doc, found = doc_of(value), doc_node(node, bodies.get(id(node)))
        indent = " " * (0 if node is tree else node.col_offset if isinstance(node, ast.AnnAssign) else node.col_offset + 4)
        new = [] if doc is None else [literal(doc, indent)]
        if found is not None:
            is_all = not isinstance(node, (ast.AnnAssign, ast.Module)) and len(node.body) == 1
            new = new if new or not is_all else [f"{indent}...\n"]
            lines[found.lineno - 1 : found.end_lineno] = new
        elif doc is None:
            continue
        elif node is tree:
            lines[0:0] = [*new, "\n"]
        elif isinstance(node, ast.AnnAssign):
            lines[node.end_lineno : node.end_lineno] = new
        else:
            # A function with `...` behind its parameters, or a class, whose head is one line.
            is_class = isinstance(node, ast.ClassDef)
            last = (node.lineno if is_class else node.body[0].lineno) - 1
            head = lines[last].rstrip()
            lines[last] = head.removesuffix("...").rstrip() + "\n"
            lines[last + 1 : last + 1] = new
    return "".join(lines)


@pytest.mark.parametrize("name", NAMES)
def test_stubs_have_the_documentation_of_the_module(name):
    path, module = STUBS / f"{name}.pyi", getattr(_core, name)
    if os.environ.get("BLESS") == "1":
        path.write_text(with_docs(path.read_text(encoding="utf-8"), module), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    bodies = parents(tree)
    for node, place, value in documented(tree, module):
        assert doc_in_stub(node, bodies.get(id(node))) == doc_of(value), f"{place}: BLESS=1 rewrites the documentation in the stubs"


def test_documentation_is_written_into_stubs_and_taken_out():
    stub = textwrap.dedent(
        '''
        class First(Exception): ...
        @final
        class Second:
            # A comment.
            name: str
            @overload
            def run(
                self, one: int
            ) -> None: ...
            @overload
            def run(self) -> None: ...
            @property
            def old(self) -> int:
                """Gone."""
        def call() -> int: ...
        '''
    ).lstrip()

    class First(Exception):
        """Raised."""

    class Second:
        r"""One line with \\ and "quotes"."""

        name = property(doc="Name.")

        def run(self):
            """Runs.

            Twice.
            """

        old = property(lambda self: 1)

    def call():
        pass

    class Module:
        __name__, __doc__ = "m", "Module."

    module = Module()
    vars(module).update(First=First, Second=Second, call=call)
    new = with_docs(stub, module)
    expected = textwrap.dedent(
        '''
        """Module."""

        class First(Exception):
            """Raised."""
        @final
        class Second:
            r"""One line with \\\\ and "quotes"."""
            # A comment.
            name: str
            """Name."""
            @overload
            def run(
                self, one: int
            ) -> None:
                """Runs.

                Twice.
                """
            @overload
            def run(self) -> None: ...
            @property
            def old(self) -> int:
                ...
        def call() -> int: ...
        '''
    ).lstrip()
    assert new == expected
    assert with_docs(new, module) == new


SPECIAL = {"__call__", "__enter__", "__exit__", "__dlpack__", "__dlpack_device__"}


def is_public(name, owner):
    """Whether a stub has a name: all but special ones, of which it has those that Python does not give every class."""
    return not (name.startswith("__") and name.endswith("__")) or name in SPECIAL and name in vars(owner)


def named(body, owner):
    functions = {item.name for item in body if isinstance(item, (ast.FunctionDef, ast.ClassDef))}
    attributes = {item.target.id for item in body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)}
    return {name for name in functions | attributes if is_public(name, owner)}


@pytest.mark.parametrize("name", NAMES)
def test_stubs_name_what_is_there(name):
    module = getattr(_core, name)
    tree = ast.parse((STUBS / f"{name}.pyi").read_text(encoding="utf-8"))
    assert named(tree.body, module) == {found for found in vars(module) if is_public(found, module)}
    for item in tree.body:
        if not isinstance(item, ast.ClassDef):
            continue
        cls = getattr(module, item.name)
        # Attributes of exceptions are those of each object.
        if not issubclass(cls, Exception):
            assert named(item.body, cls) == {found for found in vars(cls) if is_public(found, cls)}, item.name


@pytest.mark.parametrize("name", ["ort", "session"])
def test_everything_is_documented(name):
    module = getattr(_core, name)
    tree = ast.parse((STUBS / f"{name}.pyi").read_text(encoding="utf-8"))
    for node, place, value in documented(tree, module):
        assert node is tree or doc_of(value), place


@pytest.mark.parametrize("name", NAMES)
def test_stubs_have_the_parameters_of_the_module(name):
    module = getattr(_core, name)
    tree = ast.parse((STUBS / f"{name}.pyi").read_text(encoding="utf-8"))
    for node, place, value in documented(tree, module):
        value = value.__func__ if isinstance(value, staticmethod) else value
        is_overloaded = isinstance(node, ast.FunctionDef) and any(
            isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list
        )
        if not isinstance(node, ast.FunctionDef) or not inspect.isroutine(value) or is_overloaded:
            continue
        try:
            found = inspect.signature(value)
        except ValueError:
            continue
        arguments = node.args
        names = [one.arg for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
        names += [one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None]
        assert sorted(names) == sorted(found.parameters), place
