"""Texts of the reference's own tests and operators, taken out of its source archive when we run; none is kept with us.

String literals of its Python and C++ files and code blocks of its documents are tried with all four entry points. Those
that the reference parser takes are cases, called after file and line.
"""

import ast
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence

from ask import Answer
from cases import KINDS

HERE = pathlib.Path(__file__).parent
Ask = Callable[[Sequence[tuple[str, str]]], list[Answer]]

# What stands in for the parts of a text that Python computes.
COMPUTED = ("1", "x", "float", '"x"')
# A text that ends with its function or node is the only one in these models.
IN_A_MODEL = {
    "graph": "{text}",
    "function": "g () => () {{}} {text}",
    "node": "g () => () {{ {text}\n}}",
}


def fetch(directory: pathlib.Path) -> pathlib.Path:
    """The source archive that `archive.txt` names, by way of pip and its configuration."""
    requirement = (HERE / "archive.txt").read_text().splitlines()[-1]
    name, digest = re.fullmatch(r"(\S+) --hash=sha256:([0-9a-f]{64})", requirement).groups()
    path = directory / f"{name.replace('==', '-')}.tar.gz"
    if not path.exists() or sha256(path) != digest:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-binary", ":all:", "--no-build-isolation", "--require-hashes", "--dest", str(directory)]
        command += ["--requirement", str(HERE / "archive.txt")]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(HERE / "unbuilt")}, check=True)
    if sha256(path) != digest:
        sys.exit(f"{path} is not the archive that archive.txt names")
    return path


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def archive_cases(path: pathlib.Path, ask: Ask) -> dict[str, str]:
    """Every text that the reference takes to its end, by name."""
    candidates: dict[str, str] = {}
    seen = set()
    for place, text in sorted(literals(path)):
        if text not in seen:
            seen.add(text)
            candidates[place] = text
    questions = [(kind, text) for text in candidates.values() for kind in KINDS]
    names = [f"{kind}/archive/{place}" for place in candidates for kind in KINDS]
    taken = [
        (name, kind, text)
        for name, (kind, text), answer in zip(names, questions, ask(questions))
        if answer.message is not None
    ]
    whole = read_to_the_end([(kind, text) for _, kind, text in taken], ask)
    return {name: text for (name, _, text), is_whole in zip(taken, whole) if is_whole}


def read_to_the_end(texts: Sequence[tuple[str, str]], ask: Ask) -> list[bool]:
    """Whether the reference has read each text as a whole: only of a model it reads everything.

    A graph, function or node must therefore also be taken as the only one of its kind in a model.
    """
    import onnx

    in_models = [("model", text if kind == "model" else IN_A_MODEL[kind].format(text=text)) for kind, text in texts]
    whole = []
    for (kind, _), answer in zip(texts, ask(in_models)):
        model = None if answer.message is None else onnx.ModelProto.FromString(answer.message)
        counts = {} if model is None else {"function": len(model.functions), "node": len(model.graph.node)}
        wanted = {"graph": {"function": 0}, "function": {"function": 1}, "node": {"function": 0, "node": 1}}.get(kind, {})
        whole.append(model is not None and wanted.items() <= counts.items())
    return whole


def literals(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Strings that could be texts, with the places where they stand."""
    readers = {".py": python_strings, ".cc": cpp_strings, ".h": cpp_strings, ".md": code_blocks}
    with tarfile.open(path) as archive:
        for member in archive:
            reader = readers.get(pathlib.PurePosixPath(member.name).suffix)
            if reader is None or not member.isfile():
                continue
            file = member.name.partition("/")[2]
            per_line: dict[int, int] = {}
            for line, text in reader(archive.extractfile(member).read().decode()):
                if "=" not in text or "(" not in text:
                    continue
                per_line[line] = per_line.get(line, 0) + 1
                place = f"{file}:{line}" + (f".{per_line[line]}" if per_line[line] > 1 else "")
                yield place, text
                # The body of a function that an operator stands for.
                if text.lstrip().startswith("{"):
                    yield f"{place}/as-a-graph", f"g () => () {text}"


def python_strings(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            for computed in COMPUTED:
                pieces = (part.value if isinstance(part, ast.Constant) else computed for part in node.values)
                yield node.lineno, "".join(pieces)


CPP = re.compile(
    r"""//[^\n]* | /\*.*?\*/
    | R"(?P<tag>[^\s()\\]{0,16})\((?P<raw>.*?)\)(?P=tag)"
    | "(?P<plain>(?:[^"\\\n]|\\.)*)"
    | '(?:[^'\\\n]|\\.)+'
    | (?P<blank>\s+)
    | .""",
    re.DOTALL | re.VERBOSE,
)
CPP_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def cpp_strings(source: str) -> Iterator[tuple[int, str]]:
    """String literals, those that follow each other as one."""
    start, pieces = 0, []
    for token in CPP.finditer(source):
        literal = token["raw"]
        if token["plain"] is not None:
            literal = re.sub(r"\\(.)", lambda found: CPP_ESCAPES.get(found[1], found[1]), token["plain"])
        if literal is not None:
            start = start if pieces else token.start()
            pieces.append(literal)
        elif pieces and token["blank"] is None and not token[0].startswith(("//", "/*")):
            yield source.count("\n", 0, start) + 1, "".join(pieces)
            pieces = []


def code_blocks(source: str) -> Iterator[tuple[int, str]]:
    for block in re.finditer(r"^```[^\n]*\n(.*?)^```", source, re.DOTALL | re.MULTILINE):
        yield source.count("\n", 0, block.start()) + 1, block[1]
