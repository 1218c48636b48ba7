"""Write a case for every version of every operator with every type of each of its type variables.

    python make_cases.py OUT BACKEND [--filter TEXT] [--sample COUNT] [--seed NUMBER]

BACKEND is what `dump_cases.py` wrote. It needs the packages of `conversions_requirements.txt`, and the directory of
`version_cases.py` in PYTHONPATH. A cell is a version of an operator, a variable and a type. Every cell that has a case
becomes

    OUT/<domain>.<Operator>-<since>/<variable>-<type>/...          as `dump_cases.py` documents

and all cells are lines of OUT/cells.tsv: the name of the case, operator, version, variable, type, the judge, and, where
there is no judge, why there is no case. `--filter` takes the cells whose name contains a text, and `--sample` as many
of them, chosen by the seed.
"""

import argparse
import pathlib
import random
import sys
import warnings

import onnxruntime
from onnx import checker, defs

import judges
import kinds
from retype import retyped
from samples import Samples, of_text, spread, stated, types_in, types_of_values
from version_cases import write
from version_cases_oracles import Refusal, brief
from version_cases_sources import BESIDE, backend_cases, ir_version, title

# Inference of the onnx package refuses models of these versions: their functions have constants of float.
LOOSE = {("", "MeanVarianceNormalization", 9)}

# Why cells have no case, where that takes more than what the judges say.
REASONS = {"ai.onnx.Col2Im-18/T-string": "the operator adds elements, and nothing says what a sum of texts is"}


def main(arguments):
    schemas = {(s.domain, s.name, s.since_version): s for s in defs.get_all_schemas_with_history()}
    cells = [cell for key in sorted(schemas) for cell in cells_of(key, schemas[key])]
    cells = [cell for cell in cells if arguments.filter in name_of(*cell)]
    if arguments.sample:
        cells = random.Random(arguments.seed).sample(cells, min(arguments.sample, len(cells)))
    wanted = {before(schemas, key) for key, _, _ in cells}
    samples = Samples(schemas, backend_cases(arguments.backend), sorted(wanted))
    if samples.failures:
        sys.exit("\n".join(samples.failures))
    lines = [line_of(arguments.out, samples, *cell) for cell in cells]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "cells.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    print(f"{len(cells)} cells, {sum(1 for line in lines if line[5])} cases")


def cells_of(key, schema):
    for constraint in sorted(schema.type_constraints, key=lambda found: found.type_param_str):
        for kind in sorted({kinds.plain(kind) for kind in constraint.allowed_type_strs}):
            yield key, constraint.type_param_str, kind


def name_of(key, variable, kind):
    """`ai.onnx.Abs-13/T-float`, `ai.onnx.If-16/V-optional_seq_float`."""
    words = kind.replace("tensor(", "").replace(")", "").replace("(", "_").replace(",", "_")
    return f"{title(key)}/{variable}-{words}"


def line_of(out, samples, key, variable, kind):
    """Writes the case of a cell; its line in `cells.tsv`."""
    name = name_of(key, variable, kind)
    judge, reason = "", REASONS.get(name, "")
    try:
        judge = write_case(out / name, samples, key, variable, kind)
    except Refusal as error:
        reason = reason or brief(error)
    domain, operator, since = key
    return name, f"{domain}.{operator}" if domain else operator, str(since), variable, kind, judge, reason


def write_case(directory, samples, key, variable, kind):
    """Writes the first candidate that is a model of this version and has a judge, who is returned."""
    # A deprecated version is the one before it. The checker accepts no model of it.
    now, key = key, before(samples.schemas, key)
    schema = samples.schemas[key]
    faults = []
    for candidate, known, sample in candidates(samples, key, variable, kind):
        try:
            check_types(candidate.model)
            if known:
                (judge, outputs), model = known, candidate.model
            else:
                judge, outputs, model = judges.judge(key, schema, candidate, variable, kind, sample)
            if is_used(schema, variable) and kind not in types_in(model, key, schema)[variable]:
                raise Refusal(f"{variable} is not {kind}")
            if not schema.deprecated:
                checker.check_model(model, full_check=not (candidate.loose or key in LOOSE))
            if now != key:
                model = at_version(model, now)
            elements = {kinds.element(found) or "float" for found in types_of_values(model).values()}
            facts = judges.tolerance(candidate, elements) | {"judge": judge}
            write(directory, candidate.inputs, outputs, model, facts)
            return judge
        except Exception as error:  # not every sample can have every type
            faults.append(f"{type(error).__name__}: {brief(error)}")
    raise Refusal(min(faults, key=len) if faults else "no sample")


def before(schemas, key):
    """The version before a deprecated one, if there is one."""
    earlier = [other for other in schemas if other[:2] == key[:2] and other[2] < key[2]]
    return max(earlier) if earlier and schemas[key].deprecated else key


def at_version(model, key):
    domain, _, since = key
    result = type(model)()
    result.CopyFrom(model)
    for found in result.opset_import:
        if found.domain == domain:
            found.version = since
        elif domain:
            found.version = BESIDE[domain, since]
    result.ir_version = ir_version({found.domain: found.version for found in result.opset_import})
    return result


def candidates(samples, key, variable, kind):
    """Models whose variable has the type; judge and outputs where they are known, or else the sample behind it."""
    schema = samples.schemas[key]
    for text in samples.texts[key]:
        if text.variable == variable and text.is_for(kind):
            candidate = of_text(text, key, kind)
            yield candidate._replace(expected=None), stated(candidate), None
    found = samples.found[key]
    for candidate, known in found:
        types = types_in(candidate.model, key, schema)
        if kind in types[variable] or not is_used(schema, variable):
            yield candidate, known, None
    name = kinds.element(kind)
    others = sorted(found, key=lambda each: distance(types_in(each[0].model, key, schema)[variable], name))
    for candidate, known in others:
        for changed in retyped(candidate, key, schema, variable, kind):
            yield changed, None, known and (candidate, known[1])


def is_used(schema, variable):
    return any(formal.type_str == variable for formal in (*schema.inputs, *schema.outputs))


def distance(types, name):
    """Samples of similar types come first."""
    return all(kinds.group(kinds.element(found)) != kinds.group(name) for found in types)


def check_types(model):
    """The checker does not look at which types an operator takes at a version."""
    opsets = {found.domain: found.version for found in model.opset_import}
    known = types_of_values(model)
    for node in model.graph.node:
        if not defs.has(node.op_type, node.domain):
            continue
        schema = defs.get_schema(node.op_type, opsets[node.domain], node.domain)
        for operands, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
            for operand, formal in zip(operands, spread(formals, len(operands))):
                kind = known.get(operand)
                if kind and kind not in {kinds.plain(each) for each in formal.types}:
                    raise Refusal(f"{node.op_type} takes no {kind}")
        check_inner(node, model)


def check_inner(node, model):
    """The same in the graphs of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner = type(model)()
            inner.CopyFrom(model)
            inner.graph.CopyFrom(attribute.g)
            # What the graph reads from around it.
            inner.graph.input.extend(model.graph.input)
            check_types(inner)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("backend", type=pathlib.Path)
    parser.add_argument("--filter", default="")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    main(parser.parse_args())
