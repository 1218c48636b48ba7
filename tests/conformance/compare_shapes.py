"""Compare inferred types and shapes with what the backend cases show, and with what the reference infers.

    python compare_shapes.py INFER_MODELS CASES DIRECTORY

INFER_MODELS is the program of that name in `tests/`, CASES the directory that `dump_cases.py` writes. DIRECTORY gets the models of
the cases with nothing declared but their inputs, and the same with types that we inferred. Two things must be so:

The types that we infer contain the outputs of the case (SHAPE-15-): element types are equal, ranks and numbers too. A symbol has one
size within a data set; the inputs say which where they can, and a symbol that was made up has that of its first appearance.

What `onnx.shape_inference.infer_shapes` knows with `data_prop`, we know: where it says a number, we say one, or an
expression over sizes of the inputs that has this value. Where it contradicts the outputs it counts for nothing.

What is not so is listed in `shape_expectations.txt` with the reason; what is not there, or there and not so, fails.
"""

import math
import pathlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import onnx
from onnx import GraphProto, ModelProto, OptionalProto, SequenceProto, MapProto, TensorProto, TypeProto

from compare_checks import SHOWN, differences, quiet, read_expectations

EXPECTATIONS = pathlib.Path(__file__).parent / "shape_expectations.txt"

# What can be the matter with a case; more than one, if so.
CONTRADICTORY = "its inputs are not what it declares"
REFUSED = "we refuse it"
OTHER = "we say something else"
LESS = "we know less than the reference"

# How expressions in the place of names are read.
FUNCTIONS = {
    "floor": math.floor,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "broadcast": lambda a, b: b if a == 1 else a,
}
Sizes = dict[str, int]
Value = TensorProto | SequenceProto | MapProto | OptionalProto


def main(command: str, cases: pathlib.Path, directory: pathlib.Path) -> int:
    paths = sorted(cases.glob("*/*/model.onnx"))
    names = ["/".join(path.parts[-3:-1]) for path in paths]
    ours = infer_all(command, paths, directory)
    found, reasons, numbers = {}, {}, Counter()
    for name, path, (model, problem) in zip(names, paths, ours, strict=True):
        case = Case(onnx.load(path), model, path.parent)
        complaints = [(REFUSED, problem)] if problem else []
        complaints += case.observe()
        with quiet():
            complaints += case.compare_with_reference()
        numbers += case.numbers
        if complaints:
            found[name] = ", ".join(sorted({kind for kind, _ in complaints}))
            reasons[name] = complaints[-1][1]
    problems = list(differences(found, read_expectations(EXPECTATIONS), set(names)))
    for problem in problems[:SHOWN]:
        print(problem, reasons.get(problem.split("\t")[0], ""), sep="\t")
    if len(problems) > SHOWN:
        print(f"and {len(problems) - SHOWN} more")
    print(
        f"shapes: {len(paths)} models, {len(paths) - len(found)} as observed and as the reference knows them, {len(found)} listed; "
        + ", ".join(f"{count} {what}" for what, count in sorted(numbers.items()))
        + (f", {len(problems)} problems" if problems else "")
    )
    return 1 if problems else 0


def infer_all(command: str, paths: list[pathlib.Path], directory: pathlib.Path) -> list[tuple[ModelProto, str]]:
    """Each model with the types that we infer, and what we say is wrong with it."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, path in enumerate(paths):
        model = onnx.load(path)
        undeclare(model.graph)
        source, target = directory / f"{number}.onnx", directory / f"{number}.inferred.onnx"
        source.write_bytes(model.SerializeToString())
        lines.append(f"{source}\t{target}\n")
    answer = subprocess.run([command], input="".join(lines), stdout=subprocess.PIPE, text=True, check=True)
    problems = answer.stdout.splitlines()
    targets = [directory / f"{number}.inferred.onnx" for number in range(len(paths))]
    return [(onnx.load(target), problem) for target, problem in zip(targets, problems, strict=True)]


def undeclare(graph: GraphProto) -> None:
    """Takes away what a file says of values that nodes make: it would hide what inference does not know."""
    graph.ClearField("value_info")
    for output in graph.output:
        output.ClearField("type")
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs:
                undeclare(inner)


class Case:
    """A case, and the same model with the types that we infer."""

    def __init__(self, declared: ModelProto, inferred: ModelProto, directory: pathlib.Path) -> None:
        self.declared, self.inferred, self.directory = declared, inferred, directory
        self.numbers: Counter[str] = Counter()
        # What is known of sizes before anything runs, by data set.
        self.given: list[Sizes] = []
        self.observed: dict[str, list[Value]] = {}

    def observe(self) -> Iterator[tuple[str, str]]:
        """Where our types do not contain the outputs."""
        graph = self.declared.graph
        defaults = {tensor.name for tensor in graph.initializer}
        fed = [info for info in graph.input if info.name not in defaults]
        types = types_of(self.inferred.graph)
        for data in sorted(self.directory.glob("test_data_set_*")):
            sizes = Observed({})
            for info, value in zip(fed, values(data, "input", fed), strict=False):
                if value is not None:
                    for _, said in sizes.complaints(info.type, value, info.name):
                        yield CONTRADICTORY, said
            self.given.append(dict(sizes.known))
            for info, value in zip(graph.output, values(data, "output", graph.output), strict=True):
                self.observed.setdefault(info.name, []).append(value)
                if info.name not in types:
                    self.numbers["outputs without a type"] += 1
                    continue
                self.numbers["outputs"] += 1
                yield from sizes.complaints(types[info.name], value, info.name)
            yield from sizes.later()
        if not self.given:
            self.given.append({})

    def compare_with_reference(self) -> Iterator[tuple[str, str]]:
        """Where the reference knows more than we do, or something else."""
        bare = ModelProto()
        bare.CopyFrom(self.declared)
        undeclare(bare.graph)
        try:
            reference = onnx.shape_inference.infer_shapes(bare, data_prop=True)
        except Exception:  # Models that it refuses.
            self.numbers["models that the reference refuses"] += 1
            return
        ours = types_of(self.inferred.graph)
        for name, theirs in types_of(reference.graph).items():
            if any(not contains(theirs, value) for value in self.observed.get(name, [])):
                self.numbers["outputs of which the reference is wrong"] += 1
                continue
            if name not in ours:
                yield LESS, f"{name}: nothing, not {brief(theirs)}"
                continue
            yield from self.less(name, ours[name], theirs)

    def less(self, name: str, ours: TypeProto, theirs: TypeProto) -> Iterator[tuple[str, str]]:
        kind = theirs.WhichOneof("value")
        if kind is None:
            return
        if ours.WhichOneof("value") != kind:
            yield OTHER, f"{name}: {brief(ours)}, not {brief(theirs)}"
            return
        inner, known = getattr(ours, kind), getattr(theirs, kind)
        if kind in ("sequence_type", "optional_type"):
            yield from self.less(name, inner.elem_type, known.elem_type)
            return
        if kind not in ("tensor_type", "sparse_tensor_type"):
            return
        if known.elem_type not in (0, inner.elem_type):
            yield OTHER, f"{name}: {brief(ours)}, not {brief(theirs)}"
        if not known.HasField("shape"):
            return
        if not inner.HasField("shape"):
            yield LESS, f"{name}: {brief(ours)}, not {brief(theirs)}"
            return
        if len(inner.shape.dim) != len(known.shape.dim):
            yield OTHER, f"{name}: {brief(ours)}, not {brief(theirs)}"
            return
        for mine, number in zip(inner.shape.dim, known.shape.dim, strict=True):
            if number.WhichOneof("value") != "dim_value":
                continue
            self.numbers["numbers of the reference"] += 1
            sizes = {size(mine, given) for given in self.given}
            if sizes != {number.dim_value}:
                yield LESS if None in sizes else OTHER, f"{name}: {brief(ours)}, not {brief(theirs)}"
                return


class Observed:
    """The sizes of symbols in one data set."""

    def __init__(self, known: Sizes) -> None:
        self.known = known
        self.open: list[tuple[str, str, int]] = []

    def complaints(self, ty: TypeProto, value: Value, name: str) -> Iterator[tuple[str, str]]:
        for tensor_type, tensor in tensors(ty, value):
            if tensor is None:
                yield OTHER, f"{name}: {brief(ty)}, but it is a {type(value).__name__}"
                continue
            shape = list(tensor.dims)
            said = f"{name}: {brief(ty)}, but it is {TensorProto.DataType.Name(tensor.data_type).lower()}{shape}"
            if tensor_type.elem_type not in (0, tensor.data_type):
                yield OTHER, said
            if not tensor_type.HasField("shape"):
                continue
            if len(tensor_type.shape.dim) != len(shape):
                yield OTHER, said
                continue
            for dim, length in zip(tensor_type.shape.dim, shape, strict=True):
                # The first appearance of a name says its size.
                if dim.dim_param.isidentifier():
                    self.known.setdefault(dim.dim_param, length)
                expected = size(dim, self.known)
                if expected is None and dim.WhichOneof("value"):
                    self.open.append((said, dim.dim_param, length))
                elif expected not in (None, length):
                    yield OTHER, said

    def later(self) -> Iterator[tuple[str, str]]:
        """Expressions whose symbols appeared after them."""
        for said, expression, length in self.open:
            if evaluated(expression, self.known) not in (None, length):
                yield OTHER, said


def contains(ty: TypeProto, value: Value) -> bool:
    return not list(Observed({}).complaints(ty, value, ""))


def size(dim: onnx.TensorShapeProto.Dimension, known: Sizes) -> int | None:
    if dim.WhichOneof("value") == "dim_value":
        return dim.dim_value
    return evaluated(dim.dim_param, known) if dim.dim_param else None


def evaluated(expression: str, known: Sizes) -> int | None:
    """The value of an expression as we write them, if all symbols in it have one."""
    if expression in known:
        return known[expression]
    symbols = set(re.findall(r"[^\W\d]\w*", expression)) - FUNCTIONS.keys()
    if not symbols <= known.keys():
        return None
    # Quotients are inside of `floor` only.
    return int(eval(expression, {"__builtins__": {}}, known | FUNCTIONS))  # noqa: S307


def types_of(graph: GraphProto) -> dict[str, TypeProto]:
    infos = [*graph.value_info, *graph.output]
    return {info.name: info.type for info in infos if info.type.WhichOneof("value")}


def tensors(ty: TypeProto, value: Value) -> Iterator[tuple[TypeProto.Tensor, TensorProto | None]]:
    """The tensors in a value with their types; a type without a tensor where the value is of another kind."""
    kind = ty.WhichOneof("value")
    if kind is None:
        return
    if isinstance(value, OptionalProto) and kind == "optional_type":
        parts = [part for part in (value.tensor_value, value.sequence_value) if part.ByteSize()]
        for part in parts:
            yield from tensors(ty.optional_type.elem_type, part)
    elif isinstance(value, SequenceProto) and kind == "sequence_type":
        for part in [*value.tensor_values, *value.sequence_values, *value.map_values, *value.optional_values]:
            yield from tensors(ty.sequence_type.elem_type, part)
    elif isinstance(value, TensorProto) and kind == "tensor_type":
        yield ty.tensor_type, value
    elif not (isinstance(value, MapProto) and kind == "map_type"):
        yield ty.tensor_type, None


MESSAGES: dict[str, Callable[[], Value]] = {
    "tensor_type": TensorProto,
    "sequence_type": SequenceProto,
    "map_type": MapProto,
    "optional_type": OptionalProto,
}


def values(data: pathlib.Path, role: str, infos: list[onnx.ValueInfoProto]) -> list[Value | None]:
    """The values of a data set, as far as there are files. An input that is left out is an empty file."""
    found = []
    for number, info in enumerate(infos):
        path = data / f"{role}_{number}.pb"
        if not path.exists():
            break
        content = path.read_bytes()
        message = MESSAGES[info.type.WhichOneof("value")]()
        message.ParseFromString(content)
        found.append(message if content else None)
    return found


def brief(ty: TypeProto) -> str:
    kind = ty.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return f"{kind.removesuffix('_type')}({brief(getattr(ty, kind).elem_type)})"
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return str(kind)
    tensor = getattr(ty, kind)
    elem = TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return f"{elem}[...]"
    dims = (str(getattr(dim, dim.WhichOneof("value") or "", "?")) for dim in tensor.shape.dim)
    return f"{elem}[{', '.join(dims)}]"


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])))
