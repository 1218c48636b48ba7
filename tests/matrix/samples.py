"""Models of every version of every operator, which `retype.py` then gives other types.

They come from what `version_cases.py` makes, from all backend cases of exactly the version, and from `samples.txt`.
"""

import collections
import functools
import pathlib
import re

import numpy as np
import onnx
from onnx import numpy_helper, parser, shape_inference

import kinds
from version_cases import Cases, collect
from version_cases_sources import BESIDE, Candidate, ir_version, of_backend, same_version, split, type_name

TEXTS = pathlib.Path(__file__).parent / "samples.txt"
# What a value is made of for which a text gives none.
NUMBERS = np.array([1, 0, 2])
DEFAULT_SHAPE = "[3]"


class Text(collections.namedtuple("Text", "line operator versions variable only inputs nodes outputs")):
    """A block of `samples.txt`; `only` are the types, their outer layers or their elements that it is for."""

    def is_for(self, kind):
        return not self.only or any(word in self.only for word in (kind, kinds.layers(kind)[0], kinds.element(kind)))


class Samples(Cases):
    """The samples of some versions, in lists by version: candidates, with judge and outputs where they are known."""

    def __init__(self, schemas, backend, keys):
        super().__init__(None, schemas)
        self.found = collections.defaultdict(list)
        collect(self, backend, keys)
        for key in keys:
            names = {candidate.name for candidate, _ in self.found[key]}
            for make, case in of_backend(key, schemas[key], backend):
                candidate = make(key, case)
                if make is same_version and candidate.name not in names:
                    self.found[key].append((candidate, ("case", candidate.expected)))
        self.texts = collections.defaultdict(list)
        for text in read_texts(TEXTS.read_text()):
            for since in text.versions:
                self.texts[(*split(text.operator), since)].append(text)
        for key in keys:
            plain = [of_text(text, key, None) for text in self.texts[key] if text.variable is None]
            self.found[key][:0] = [(candidate._replace(expected=None), stated(candidate)) for candidate in plain]
        missing = [key for key in self.texts if key not in schemas]
        self.failures += [f"samples.txt has a block of {key}, which does not exist" for key in missing]

    def keep(self, key, candidate, oracle, outputs, model):
        # The function that computes outputs stays with the candidate, for other types.
        known = candidate._replace(model=model)
        self.found[key].append((known, (oracle, outputs)))


def stated(candidate):
    """The judge and the outputs of a text, if it says them."""
    return candidate.expected and ("sample", candidate.expected)


def types_in(model, key, schema):
    """The types that each variable of the operator has in a model, as sets."""
    known = types_of_values(model)
    found = collections.defaultdict(set)
    for node in model.graph.node:
        if (node.domain, node.op_type) != key[:2]:
            continue
        for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
            for name, formal in zip(names, spread(formals, len(names))):
                if known.get(name):
                    found[formal.type_str].add(known[name])
    return found


def spread(formals, count):
    """The formal parameters, the last of which may stand for many."""
    return [formals[min(m, len(formals) - 1)] for m in range(count)]


def types_of_values(model):
    graph = shape_inference.infer_shapes(model).graph
    known = {
        info.name: kinds.plain(type_name(info.type))
        for info in (*graph.value_info, *graph.output, *graph.input)
        if type_name(info.type)
    }
    for tensor in graph.initializer:
        known[tensor.name] = f"tensor({onnx.TensorProto.DataType.Name(tensor.data_type).lower()})"
    return known


def read_texts(text):
    """The blocks of `samples.txt`."""
    blocks = []
    is_open = False
    for line, words in enumerate(text.splitlines(), 1):
        if words.startswith("#"):
            continue
        if not words:
            is_open = False
        elif not is_open:
            operator, *others = words.split()
            versions = [int(word) for word in others if word.isdigit()]
            variable, *only = [word for word in others if not word.isdigit()] or [None]
            blocks.append(Text(line, operator, versions, variable, only, [], [], []))
            is_open = True
        else:
            block = blocks[-1]
            {"< ": block.inputs, "> ": block.outputs, "  ": block.nodes}[words[:2]].append(words[2:])
    return blocks


def of_text(text, key, kind):
    """The model of a block for a type, its inputs, and its outputs where the block says what they are."""
    domain, _, since = key
    versions = {"": BESIDE[domain, since], domain: since} if domain else {"": since}
    imports = ", ".join(f'"{name}": {version}' for name, version in versions.items())
    values = {}
    for line in text.inputs:
        name, value = read_value(line, kind, values)
        values[name] = value
    wanted = [read_value(line, kind, values)[1] if " = " in line else None for line in text.outputs]
    given = ", ".join(declared(line, kind) for line in text.inputs)
    outputs = ", ".join(declared(line, kind) for line in text.outputs)
    nodes = filled("\n".join(text.nodes), kind)
    head = f"<ir_version: {ir_version(versions)}, opset_import: [{imports}]>"
    model = parser.parse_model(f"{head} g ({given}) => ({outputs}) {{ {nodes} }}")
    name = f"samples.txt:{text.line}"
    return Candidate(name, model, list(values.values()), wanted if all(value is not None for value in wanted) else None)


def filled(line, kind):
    """The words that stand for the type of the cell:

    $T  the type
    $I  what it holds, if it is a sequence or an optional value, and else itself
    $E  a tensor of its element; $S a scalar
    $N  the name of its element; $U in capitals, $D as a number
    """
    name = kind and kinds.element(kind)
    if not name:
        return line
    own = {"T": kind, "I": kinds.inner(kind), "E": f"tensor({name})"}
    line = re.sub(
        r"\$([TIE])(\[[^]]*\])?", lambda found: kinds.notation(own[found[1]], found[2] or DEFAULT_SHAPE), line
    )
    words = {"$S": name, "$N": name, "$U": name.upper(), "$D": str(kinds.number(name))}
    return functools.reduce(lambda text, word: text.replace(word, words[word]), words, line)


def declared(line, kind):
    """`$T x = …` as an input of a graph."""
    return filled(line.split(" = ")[0], kind)


def read_value(line, kind, known):
    """The name in `$T x = {1, 2}` or `$T y = x`, and its value."""
    head, _, given = line.partition(" = ")
    template, name = head.rsplit(" ", 1)
    if given in known:
        return name, known[given]
    if given.startswith("$of "):
        # A sequence of others.
        return name, [known[each] for each in given.split()[1:]]
    if template.startswith("map("):
        return name, mapping(filled(template, kind))
    own = {"$T": kind, "$I": kind and kinds.inner(kind), "$E": kind and f"tensor({kinds.element(kind)})"}
    own["$S"] = own["$E"]
    shown, shape = re.match(r"([^\[]*)((?:\[.*\])?)", template).groups()
    wrapped = re.fullmatch(r"(seq|optional)\((\$\w)\)", shown)
    if wrapped:
        return name, kinds.value_of(f"{wrapped[1]}({own[wrapped[2]]})", NUMBERS)
    if shown in own:
        shape = "" if shown == "$S" else shape or DEFAULT_SHAPE
        numbers = literal(f"double{shape} {name} = {given}") if given else NUMBERS
        return name, kinds.value_of(own[shown], numbers)
    return name, literal(f"{template} {name} = {given}")


def mapping(kind):
    """A value of `map(string, float)`: 7 at 1 and 8 at 2."""
    key, value = re.fullmatch(r"map\((\w+), (\w+)\)", kind).groups()
    keys = ("1", "2") if key == "string" else (1, 2)
    return dict(zip(keys, kinds.converted(np.array([7, 8]), value).tolist()))


def literal(text):
    """The value of `float[2] x = {1, 2}`."""
    graph = parser.parse_graph(f"g () => () <{text}> {{ }}")
    return numpy_helper.to_array(graph.initializer[0])
